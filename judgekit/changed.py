"""The files of a working tree that changed and are not committed yet."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from judgekit import documents
from judgekit.errors import InputError
from judgekit.git import Repository
from judgekit.globs import Patterns

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from judgekit.judging.subject import File

MAX_BYTES = 1_000_000  # of one file; a larger one is hardly what an agent wrote
SECONDS = 5.0  # for each question to git
_SLACK = 2.0  # seconds: some file systems round times of change
_DIFF = ("diff", "--name-only", "-z", "--relative", "--no-ext-diff", "--no-renames", "--diff-filter=d")


def files(
    project: Path, patterns: Sequence[str], *, since: float | None = None, most: int = 10
) -> list[File]:
    """Return uncommitted files that match, in the order of their paths: changed, staged, or not yet added.

    Only those changed `since` a time in seconds since the epoch count, where it is given, and of more than
    `most` those changed last. What cannot be judged (binary, empty, too large, a link) is left out. Raises
    `InputError` outside of a git repository.
    """
    wanted = Patterns(patterns)
    found = [
        (status.st_mtime, name)
        for name in dict.fromkeys(_names(Repository(project)))
        if wanted.match(name) and (status := _status(project / name)) is not None
        if since is None or status.st_mtime >= since - _SLACK
    ]
    read: list[File] = []
    for _, name in sorted(found, reverse=True):
        if len(read) == most:
            break
        try:
            read.append(documents.decode(name, (project / name).read_bytes()))
        except (InputError, OSError):
            continue
    return sorted(read, key=lambda each: each.path)


def _names(repository: Repository) -> list[str]:
    others = repository.ask("ls-files", "-z", "--others", "--exclude-standard", seconds=SECONDS)
    if repository.commit("HEAD") is None:
        tracked = repository.ask("ls-files", "-z", "--cached", seconds=SECONDS)
    else:
        tracked = repository.ask(*_DIFF, "--ignore-submodules", "HEAD", "--", seconds=SECONDS)
    return [os.fsdecode(name) for name in (tracked + others).split(b"\0") if name]


def _status(path: Path) -> os.stat_result | None:
    """Return the status of a regular file of a size that is judged."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status if path.is_file() and not path.is_symlink() and status.st_size <= MAX_BYTES else None
