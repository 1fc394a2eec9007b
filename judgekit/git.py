"""Git itself, asked safely: nothing of a repository is run, nothing is fetched, every answer is bytes.

Every call of git is made here. A folder of a clone may pose as a repository, and a repository's configuration
may name programs for almost anything. So only commands are run that read objects, names and configuration;
`git.toml` has them. None of them reads a working file, which git would hand to a filter.
"""

from __future__ import annotations

import os
import tempfile
from functools import cache
from subprocess import DEVNULL, PIPE, CompletedProcess, Popen, TimeoutExpired
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from judgekit import environment, programs
from judgekit.errors import InputError
from judgekit.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

SECONDS = 30.0


@cache
def _asked() -> dict[str, Any]:
    return environment.table(__file__, "git.toml")


class GitError(InputError):
    """Git could not answer; the message says what was asked and what git said."""


class Repository(NamedTuple):
    """A git repository, of which `folder` is a working tree, a folder in it, or a bare repository.

    Git's own variables (`GIT_DIR`) count. A bare one is none unless they name it, or `bare` says so.
    """

    folder: Path
    bare: bool = False

    def ask(self, *words: str, stdin: bytes = b"", seconds: float = SECONDS) -> bytes:
        """Return what `git WORDS` prints; raises `GitError` when it fails or takes too long."""
        done = self._run(words, stdin, seconds)
        if done.returncode:
            raise _failed(words[0], done)
        return done.stdout

    def holds(self, *words: str) -> bool:
        return self._run(words).returncode == 0

    def commit(self, name: str) -> str | None:
        """Return the id of the commit that `name` (an id, a ref, a tag) leads to, or None."""
        done = self._run(("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"))
        return done.stdout.decode().strip() or None if done.returncode == 0 else None

    def blobs(self, names: Iterable[str], most: int) -> Iterator[tuple[str, bytes | None]]:
        """Yield each blob's id and content, one at a time; None if missing or larger than `most` bytes."""
        wanted = list(names)
        sizes = dict.fromkeys(wanted, most + 1)
        for line in self.described(list(sizes)):
            name, kind, *size = line.split(" ")
            sizes[name] = int(size[0]) if kind == "blob" else most + 1
        with tempfile.TemporaryFile() as asked:
            asked.write(os.fsencode("".join(f"{name}\n" for name in wanted if sizes[name] <= most)))
            asked.seek(0)
            with self._start(("cat-file", "--batch"), asked, DEVNULL) as process:
                assert process.stdout is not None  # noqa: S101 - opened as a pipe
                try:
                    for name in wanted:
                        length, content = sizes[name], None
                        if length <= most:  # a line, the bytes and a newline
                            head, content = process.stdout.readline(), process.stdout.read(length)
                            if not head.endswith(b" blob %d\n" % length) or process.stdout.read(1) != b"\n":
                                raise GitError(f"git cat-file: {name} could not be read")
                        yield name, content
                finally:
                    process.kill()

    def described(self, names: list[str]) -> Iterator[str]:
        """Yield what `cat-file --batch-check` prints for objects."""
        left = names
        while left:
            done = self._run(("cat-file", "--batch-check"), os.fsencode("\n".join([*left, ""])))
            lines = done.stdout.decode("utf-8", "surrogateescape").split("\n")[:-1]
            if done.returncode and b"lazy fetching disabled" not in done.stderr:
                raise _failed("cat-file", done)
            yield from lines
            # Some versions of git end at the first object that a partial clone lacks; others call it missing.
            left = left[len(lines) + 1 :] if done.returncode else []

    def _run(
        self, words: Sequence[str], stdin: bytes = b"", seconds: float = SECONDS
    ) -> CompletedProcess[bytes]:
        with self._start(words) as process:
            try:
                printed, complaint = process.communicate(stdin, seconds)
            except TimeoutExpired:
                raise GitError(f"git {words[0]}: no response in {seconds:g} s") from None
            finally:
                process.kill()  # does nothing where it has ended
        return CompletedProcess(words, process.returncode, printed, complaint)

    def _start(self, words: Sequence[str], stdin: IO[bytes] | int = PIPE, stderr: int = PIPE) -> Popen[bytes]:
        asked = _asked()
        if words[0] not in asked["reading"]:
            raise ValueError(f"git {words[0]} is not run: it may run programs that a repository names")
        given = environment.environ()
        if (program := programs.find("git", given)) is None:
            raise GitError(f"git {words[0]}: no git on PATH; install git")
        left_out = "core.hooksPath" if words[0] in asked["asking_for_hooks"] else ""
        settings = [f"{name}={value}" for name, value in asked["settings"].items() if name != left_out]
        argv = [program, "--no-pager", *(part for setting in settings for part in ("-c", setting))]
        argv += [*(["--git-dir=."] if self.bare else ()), *words]
        kept = {
            name: value
            for name, value in given.items()
            if not name.startswith("GIT_") or name in asked["kept"] or name.startswith("GIT_CONFIG_")
        }
        env = {**kept, **asked["environment"], "PATH": programs.search_path(given)}
        try:
            return Popen(argv, cwd=self.folder, env=env, stdin=stdin, stdout=PIPE, stderr=stderr)  # noqa: S603 - git, and our own words
        except OSError as error:
            raise GitError(f"git {words[0]}: could not be started ({error.strerror}); install git") from None


def _failed(word: str, done: CompletedProcess[bytes]) -> GitError:
    complaint = one_line(done.stderr.decode("utf-8", "replace"), 300) or f"exit code {done.returncode}"
    return GitError(f"git {word}: {complaint}")
