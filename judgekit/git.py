"""Git itself, asked safely: nothing of a repository is run, nothing is fetched, every answer is bytes.

Every call of git is made here. A folder of a clone may pose as a repository, and a repository's configuration
may name programs for almost anything. So only commands are run that read objects, names and configuration;
`git.toml` has them. None of them reads a working file, which git would hand to a filter.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from functools import cache
from subprocess import DEVNULL, PIPE, CompletedProcess, Popen
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from judgekit import environment, programs
from judgekit.errors import InputError
from judgekit.text import short_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

SECONDS = 30.0
MAX_ANSWER = (
    256_000_000  # bytes of one answer: a tree of a few kB can unfold to thousands of times as much
)
MAX_ENTRIES = 3_000_000  # of one tree
MAX_MEMORY = 2_000_000_000  # bytes that a git may take, where the system can limit it
PARTIAL = "this partial clone lacks a part of it; fetch all (git fetch --refetch --no-filter)"
_LACKING = b"lazy fetching disabled"  # what git says of an object that it would have to fetch
_PIECE = 1 << 16  # bytes


@cache
def _asked() -> dict[str, Any]:
    return environment.table(__file__, "git.toml")


class GitError(InputError):
    """Git could not answer; the message says what was asked and what git said."""


class TreeEntry(NamedTuple):
    """One name in a tree: `mode` is that of a file, a link or a submodule."""

    mode: str
    oid: str
    path: str


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

    def entries(self, commit: str, *paths: str, most: int = MAX_ENTRIES) -> Iterator[TreeEntry]:
        """Yield all files of a commit's tree, as they come; raises `GitError` after `most` of them.

        A tree may hold a name twice, and in any order: every entry is yielded.
        """
        words = ("ls-tree", "-r", "-z", "--full-tree", commit, "--", *paths)
        with self._running(words, b"", SECONDS) as running:
            count = 0
            rest = b""
            for piece in running.pieces():
                *records, rest = (rest + piece).split(b"\0")
                for record in records:
                    count += 1
                    if count > most:
                        raise GitError(f"git ls-tree: more than {most:,} files in {commit[:12]}")
                    about, _, path = os.fsdecode(record).partition("\t")
                    mode, _, oid = about.split(" ")
                    yield TreeEntry(mode, oid, path)
            done = running.done()
        if done.returncode:
            raise _failed(words[0], done)

    def holds(self, *words: str) -> bool:
        return self._run(words).returncode == 0

    def commit(self, name: str) -> str | None:
        """Return the id of the commit that `name` (an id, a ref, a tag) leads to, or None."""
        done = self._run(("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"))
        if done.returncode == 0:
            return done.stdout.decode().strip() or None
        return None

    def blobs(self, names: Iterable[str], most: int) -> Iterator[tuple[str, bytes | None]]:
        """Yield each blob's id and content, one at a time; None if missing or larger than `most` bytes."""
        wanted = list(names)
        sizes = dict.fromkeys(wanted, most + 1)
        for line in self.described(list(sizes)):
            name, kind, *size = line.split(" ")
            if kind == "blob":
                sizes[name] = int(size[0])
            else:
                sizes[name] = most + 1
        with tempfile.TemporaryFile() as asked:
            asked.write(os.fsencode("".join(f"{name}\n" for name in wanted if sizes[name] <= most)))
            asked.seek(0)
            with self._start(("cat-file", "--batch"), asked, DEVNULL) as process:
                assert process.stdout is not None  # noqa: S101 - opened as a pipe
                try:
                    for name in wanted:
                        length = sizes[name]
                        content = None
                        if length <= most:  # a line, the bytes and a newline
                            head = process.stdout.readline()
                            content = process.stdout.read(length)
                            if (
                                not head.endswith(b" blob %d\n" % length)
                                or process.stdout.read(1) != b"\n"
                            ):
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
            if done.returncode and _LACKING not in done.stderr:
                raise _failed("cat-file", done)
            yield from lines
            # Some versions of git end at the first object that a partial clone lacks; others call it missing.
            if done.returncode:
                left = left[len(lines) + 1 :]
            else:
                left = []

    def _run(
        self, words: Sequence[str], stdin: bytes = b"", seconds: float = SECONDS
    ) -> CompletedProcess[bytes]:
        with self._running(words, stdin, seconds) as running:
            pieces: list[bytes] = []
            size = 0
            for piece in running.pieces():
                size += len(piece)
                if size > MAX_ANSWER:
                    raise GitError(f"git {words[0]}: more than {MAX_ANSWER // 1_000_000} MB")
                pieces.append(piece)
            done = running.done()
        return CompletedProcess(words, done.returncode, b"".join(pieces), done.stderr)

    @contextmanager
    def _running(self, words: Sequence[str], stdin: bytes, seconds: float) -> Iterator[_Running]:
        """Give what git prints as it comes; git is ended after some seconds, and when the caller is done."""
        with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as complaint:
            asked.write(stdin)
            asked.seek(0)
            with self._start(words, asked, complaint) as process:
                running = _Running(process, words[0], complaint, seconds)
                try:
                    yield running
                finally:
                    running.end()

    def _start(
        self, words: Sequence[str], stdin: IO[bytes] | int, stderr: IO[bytes] | int
    ) -> Popen[bytes]:
        asked = _asked()
        if words[0] not in asked["reading"]:
            raise ValueError(
                f"git {words[0]} is not run: it may run programs that a repository names"
            )
        given = environment.environ()
        program = programs.find("git", given)
        if program is None:
            raise GitError(f"git {words[0]}: no git on PATH; install git")
        if words[0] in asked["asking_for_hooks"]:
            left_out = "core.hooksPath"
        else:
            left_out = ""
        settings = []
        for name, value in asked["settings"].items():
            if name != left_out:
                settings.append(f"{name}={value}")
        argv = [program, "--no-pager", *(part for setting in settings for part in ("-c", setting))]
        argv += [*(["--git-dir=."] if self.bare else ()), *words]
        kept = {}
        for name, value in given.items():
            if (
                not name.startswith("GIT_")
                or name in asked["kept"]
                or name.startswith("GIT_CONFIG_")
            ):
                kept[name] = value
        env = {**kept, **asked["environment"], "PATH": programs.search_path(given)}
        try:
            process = Popen(argv, cwd=self.folder, env=env, stdin=stdin, stdout=PIPE, stderr=stderr)  # noqa: S603 - git, and our own words
        except OSError as error:
            raise GitError(
                f"git {words[0]}: could not be started ({error.strerror}); install git"
            ) from None
        _limit_memory(process.pid)
        return process


def _limit_memory(pid: int) -> None:
    """Have a git end that needs much memory: it holds all changes of a commit before it prints the first."""
    if sys.platform != "linux":
        return
    import resource  # noqa: PLC0415 - Windows has none

    with suppress(OSError):  # it has ended
        resource.prlimit(pid, resource.RLIMIT_DATA, (MAX_MEMORY, MAX_MEMORY))


class _Running:
    """A git that was started, and what it prints; nothing waits for it longer than some seconds."""

    def __init__(
        self, process: Popen[bytes], word: str, complaint: IO[bytes], seconds: float
    ) -> None:
        self._process = process
        self._word = word
        self._complaint = complaint
        self._seconds = seconds
        self._is_late = False
        self._timer = threading.Timer(seconds, self._stop)
        self._timer.daemon = True
        self._timer.start()

    def _stop(self) -> None:
        self._is_late = True
        self._process.kill()

    def pieces(self) -> Iterator[bytes]:
        """Yield what is printed, to its end."""
        stdout = self._process.stdout
        assert isinstance(stdout, io.BufferedReader)  # noqa: S101 - opened as a pipe
        while piece := stdout.read1(_PIECE):
            yield piece

    def done(self) -> CompletedProcess[bytes]:
        """Return the exit code and the complaint, once all was printed; raises `GitError` if it is late."""
        self._process.wait()
        if self._is_late:
            raise GitError(f"git {self._word}: no response in {self._seconds:g} s")
        self._complaint.seek(0)
        return CompletedProcess(
            self._word, self._process.returncode, b"", self._complaint.read(_PIECE)
        )

    def end(self) -> None:
        self._timer.cancel()
        self._process.kill()  # does nothing where it has ended


def _failed(word: str, done: CompletedProcess[bytes]) -> GitError:
    if _LACKING in done.stderr:
        return GitError(f"git {word}: {PARTIAL}")
    complaint = (
        short_line(done.stderr.decode("utf-8", "replace"), 300) or f"exit code {done.returncode}"
    )
    return GitError(f"git {word}: {complaint}")
