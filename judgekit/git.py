"""Git itself, asked safely: nothing of a repository is run, nothing is fetched, every answer is bytes."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from judgekit import environment
from judgekit.errors import InputError
from judgekit.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

SECONDS = 30.0
_SAID = 300  # characters of git's own words in an error
_SAFE = (
    "--no-pager",
    *("-c", "core.fsmonitor=false"),  # would run a program that the repository names
    *("-c", "core.quotePath=false"),
    *("-c", "diff.external="),
    *("-c", "log.showSignature=false"),
)
_ENVIRONMENT = {
    "GIT_NO_LAZY_FETCH": "1",  # what a partial clone lacks is missing, not fetched
    "GIT_NO_REPLACE_OBJECTS": "1",  # what is pushed is judged, not what stands in for it here
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}


class GitError(InputError):
    """Git could not answer; the message says what was asked and what git said."""


class Repository:
    """A git repository, of which `folder` is a working tree, a folder in it, or a bare repository.

    Where a hook runs, git's own variables (`GIT_DIR` of a linked worktree) say which repository it is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def ask(self, *words: str, stdin: bytes = b"", seconds: float = SECONDS) -> bytes:
        """Return what `git WORDS` prints; raises `GitError` when it fails or takes too long."""
        done = self._run(words, stdin, seconds)
        if done.returncode:
            raise _failed(words[0], done)
        return done.stdout

    def holds(self, *words: str) -> bool:
        """Whether `git WORDS` succeeds."""
        return self._run(words, b"", SECONDS).returncode == 0

    def commit(self, name: str) -> str | None:
        """Return the id of the commit that `name` (an id, a ref, a tag) leads to, or None."""
        done = self._run(("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"), b"", SECONDS)
        return done.stdout.decode().strip() or None if done.returncode == 0 else None

    def blobs(self, names: Iterable[str], most: int) -> Iterator[tuple[str, bytes | None]]:
        """Yield each blob's id and content; None for one that is missing or larger than `most` bytes."""
        wanted = list(names)
        sizes = {name: int(size) for name, kind, size in map(_three, self._listed(wanted)) if kind == "blob"}
        within = [name for name in wanted if sizes.get(name, most + 1) <= most]
        content = dict(_contents(self.ask("cat-file", "--batch", stdin=_lines(within)), within, sizes))
        for name in wanted:
            yield name, content.get(name)

    def _listed(self, names: list[str]) -> Iterator[str]:
        """Yield what `cat-file --batch-check` says of objects.

        Some versions of git end at the first object that a partial clone lacks, where others call it missing.
        """
        left = names
        while left:
            done = self._run(("cat-file", "--batch-check"), _lines(left), SECONDS)
            lines = done.stdout.decode().split("\n")[:-1]
            if done.returncode and b"lazy fetching disabled" not in done.stderr:
                raise _failed("cat-file", done)
            yield from lines
            left = left[len(lines) + 1 :] if done.returncode else []

    def _run(
        self, words: tuple[str, ...], stdin: bytes, seconds: float
    ) -> subprocess.CompletedProcess[bytes]:
        given = {name: value for name, value in environment.environ().items() if name != "GIT_EXTERNAL_DIFF"}
        try:
            return subprocess.run(  # noqa: S603 - git, and our own words
                ["git", *_SAFE, *words],  # noqa: S607 - the git that the user uses
                cwd=self.folder,
                env=given | _ENVIRONMENT,
                input=stdin,
                capture_output=True,
                check=False,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            raise GitError(f"git {words[0]}: no answer in {seconds:g} s") from None
        except OSError as error:
            raise GitError(f"git {words[0]}: could not be started ({error.strerror}); install git") from None


def _failed(word: str, done: subprocess.CompletedProcess[bytes]) -> GitError:
    said = one_line(done.stderr.decode("utf-8", "replace"), _SAID) or f"exit code {done.returncode}"
    return GitError(f"git {word}: {said}")


def _lines(names: Iterable[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()


def _three(line: str) -> tuple[str, str, str]:
    name, _, rest = line.partition(" ")
    kind, _, size = rest.partition(" ")
    return name, kind, size


def _contents(raw: bytes, names: Iterable[str], sizes: dict[str, int]) -> Iterator[tuple[str, bytes]]:
    """Cut the answer of `cat-file --batch`: for each blob a line, its bytes, a newline."""
    place = 0
    for name in names:
        start = raw.index(b"\n", place) + 1
        yield name, raw[start : start + sizes[name]]
        place = start + sizes[name] + 1
