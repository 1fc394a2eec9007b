"""Locks between processes, which end with their holder; the data folders of judgekit, and its extras."""

from __future__ import annotations

import errno
import os
import random
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from judgekit import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_POLL = (0.001, 0.01)
_SLOW_POLL = (0.1, 0.2)  # of who has waited for a second already
# A file system without locks, as some network ones are: appending is still one write.
_UNSUPPORTED = {
    errno.ENOLCK,
    errno.ENOSYS,
    getattr(errno, "ENOTSUP", errno.ENOSYS),
    errno.EOPNOTSUPP,
}


@contextmanager
def file_lock(
    path: Path, *, seconds: float, waiting: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Hold the lock at `path`; `waiting` is called once if it is held. Raises `TimeoutError`, `OSError`."""
    start = time.monotonic()
    descriptor = take(path)
    if descriptor is None:
        waiting()
    while descriptor is None:
        waited = time.monotonic() - start
        if waited >= seconds:
            raise TimeoutError(f"{path} is held by another process")
        time.sleep(random.uniform(*(_POLL if waited < 1 else _SLOW_POLL)))  # noqa: S311 - not to march in step
        descriptor = take(path)
    try:
        yield
    finally:
        os.close(descriptor)  # which unlocks


def take(path: Path | str) -> int | None:
    """Take the lock at `path` until the descriptor is closed; None when it is held; raises `OSError`."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        if sys.platform == "win32":
            import msvcrt  # noqa: PLC0415 - the module of one system

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl  # noqa: PLC0415 - the module of the others

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            os.close(descriptor)
            return None
    return descriptor


COMPILED = Path(__file__).with_name("bundled.json")
"""The data in bundled YAML files by the SHA-256 of their bytes; `make generate` writes it."""
FOLDERS = ("rubrics", "providers", "retrieval", "hooks", "examples", "skills")

_PACKAGE = Path(__file__).resolve().parents[1]


def profile_files() -> list[Path]:
    """Return the files of provider profiles: the user's, and the bundled ones that they do not replace."""
    # Later wins, so the bundled folder comes first.
    folders = (folder("providers"), Path(environment.config_home()) / "providers")
    return list(
        {path.name: path for each in folders for path in sorted(each.glob("*.yaml"))}.values()
    )


def folder(name: str) -> Path:
    """Return the bundled data folder `name`, one of `FOLDERS`."""
    installed = _PACKAGE / "_bundled" / name
    return installed if installed.is_dir() else _PACKAGE.parent / name


def install_extra(extra: str) -> str:
    """Return what to run to have an extra; it names no package of an index, which could be a stranger's."""
    return f"pip install '.[{extra}]' in your checkout of judgekit"
