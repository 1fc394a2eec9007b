"""Where judgekit keeps its files. Standard library and plain strings only: the prompt hook imports this."""

from __future__ import annotations

import os

MEMORY = os.path.join(".claude", "memory")
_PROJECT_MARKS = (".judgekit", MEMORY, ".git")


def config_home() -> str:
    """Return the folder of the user's configuration, rubrics and providers."""
    return os.environ.get("JUDGEKIT_HOME") or _xdg("XDG_CONFIG_HOME", ".config")


def cache_home() -> str:
    """Return the folder of what can be made again: indexes, compiled settings, fetched models."""
    own = os.environ.get("JUDGEKIT_HOME")
    return os.path.join(own, "cache") if own else _xdg("XDG_CACHE_HOME", ".cache")


def state_home() -> str:
    """Return the folder of what cannot be made again: the ledger."""
    own = os.environ.get("JUDGEKIT_HOME")
    return os.path.join(own, "state") if own else _xdg("XDG_STATE_HOME", os.path.join(".local", "state"))


def project_root(start: str) -> str:
    """Return the nearest folder at or above `start` that holds a project's mark, else `start` itself.

    The user's home folder is not a project, unless `start` is that folder.
    """
    start = os.path.abspath(start)
    home = os.path.expanduser("~")
    folder = start
    while True:
        if (folder != home or folder == start) and any(
            os.path.exists(os.path.join(folder, mark)) for mark in _PROJECT_MARKS
        ):
            return folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return start
        folder = parent


def private_folder(path: str) -> str:
    """Create `path` and what is missing above it, readable by their owner only, and return it."""
    if not os.path.isdir(path):
        above = os.path.dirname(path)
        if above not in ("", path):
            private_folder(above)
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not os.path.isdir(path):  # not what another process made meanwhile
                raise
    return path


def _xdg(variable: str, default: str) -> str:
    base = os.environ.get(variable) or os.path.join(os.path.expanduser("~"), default)
    return os.path.join(base, "judgekit")
