"""The files of a working tree that changed and are not committed yet."""

from __future__ import annotations

import hashlib
import os
import stat
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
_SHA1 = 40  # digits


def files(
    project: Path, patterns: Sequence[str], *, since: float | None = None, most: int = 10
) -> list[File]:
    """Return uncommitted files that match, in the order of their paths: changed, staged, or not yet added.

    Only those changed `since` a time in seconds since the epoch count, where it is given, and of more than
    `most` those changed last. What cannot be judged (binary, empty, too large, a link) is left out. Raises
    `InputError` outside of a git repository.
    """
    wanted = Patterns(patterns)
    repository, root = Repository(project), os.path.realpath(project)
    found = [
        (status.st_mtime, name)
        for name in dict.fromkeys(_names(repository))
        if wanted.match(name) and (status := _status(root, name)) is not None
        if since is None or status.st_mtime >= since - _SLACK
    ]
    committed = _committed(repository) if found else {}
    read: list[File] = []
    for _, name in sorted(found, reverse=True):
        if len(read) == most:
            break
        try:
            data = (project / name).read_bytes()
            if not _is_blob(data, committed.get(name, "")):
                read.append(documents.decode(name, data))
        except (InputError, OSError):
            continue
    return sorted(read, key=lambda each: each.path)


def _names(repository: Repository) -> list[str]:
    listing = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return [os.fsdecode(name) for name in repository.ask(*listing, seconds=SECONDS).split(b"\0") if name]


def _committed(repository: Repository) -> dict[str, str]:
    """Return the blob of each file that was committed last, by its path from the repository's folder."""
    if repository.commit("HEAD") is None:
        return {}
    entries = repository.ask("ls-tree", "-r", "-z", "HEAD", seconds=SECONDS).split(b"\0")
    split = (entry.partition(b"\t") for entry in entries)
    return {os.fsdecode(name): told.decode().rpartition(" ")[2] for told, _, name in split if name}


def _is_blob(data: bytes, oid: str) -> bool:
    """Whether git stores a file's content under `oid`, as it is or with the line ends that git gives it.

    Git itself would be quicker, and would run the filter that a repository names for the file.
    """
    digest = hashlib.sha1 if len(oid) == _SHA1 else hashlib.sha256
    return any(
        digest(b"blob %d\0" % len(each) + each).hexdigest() == oid
        for each in dict.fromkeys([data, data.replace(b"\r\n", b"\n")])
    )


def _status(root: str, name: str) -> os.stat_result | None:
    """Return the status of a regular file of a size that is judged; of none that a link leads to."""
    path = os.path.join(root, name)  # noqa: PTH118 - a string is compared below
    try:
        status = os.lstat(path)
    except OSError:
        return None
    is_meant = stat.S_ISREG(status.st_mode) and status.st_size <= MAX_BYTES
    return status if is_meant and os.path.realpath(path) == os.path.normpath(path) else None
