"""Which ledger a folder belongs to."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from judgekit import environment

_HASH = 12
_READABLE = 40
_NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9._-]{{0,{_READABLE - 1}}}-[0-9a-f]{{{_HASH}}}")


def home() -> Path:
    """Return the folder with the ledgers of all projects of this user."""
    return Path(environment.state_home()) / "ledger"


def name(start: Path) -> str:
    """Return the name of the ledger of the project around `start`: readable, then a hash of its place.

    All worktrees of a repository have one ledger; so have all folders below one `.git`.
    """
    place = os.path.realpath(_root(start))
    digest = hashlib.sha256(os.path.normcase(place).encode("utf-8", "surrogateescape")).hexdigest()[:_HASH]
    readable = "".join(
        char if char.isascii() and (char.isalnum() or char in "._") else "-" for char in Path(place).name
    )
    return f"{readable.strip('-.')[:_READABLE] or 'project'}-{digest}"


def is_name(text: str) -> bool:
    """Whether `name` can have made this: it is then the name of a folder, and of no other place."""
    return _NAME.fullmatch(text) is not None


def same(project: str, wanted: str) -> bool:
    """Whether a ledger's name is the `wanted` one, which may leave out the hash."""
    return wanted in (project, project[: -_HASH - 1])


def _root(start: Path) -> Path:
    start = start.absolute()
    for folder in (start, *start.parents):
        if (folder / ".git").exists():
            return _main_worktree(folder)
    return Path(environment.project_root(str(start)))


def _line(path: Path) -> str:
    return os.fsdecode(path.read_bytes()).rstrip("\r\n")


def _main_worktree(folder: Path) -> Path:
    """Return the folder of the repository that a linked worktree belongs to, else `folder` itself."""
    try:
        kind, _, place = _line(folder / ".git").partition(": ")
        common = _line(folder / place / "commondir") if kind == "gitdir" else ""
    except (OSError, ValueError):  # a folder, as usual; a submodule, which has no commondir
        return folder
    git = Path(os.path.realpath(folder / place / common))
    return git.parent if git.name == ".git" else git
