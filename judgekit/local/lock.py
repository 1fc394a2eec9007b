"""A lock between processes, on a file; the operating system lets go of it when its holder dies."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_POLL = 0.2


@contextmanager
def held(path: Path, *, seconds: float, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock at `path` for the block; `waiting` is called once when somebody else holds it.

    Raises `TimeoutError` when it is not free within `seconds`. The file itself stays.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        _acquire(descriptor, path, seconds, waiting)
        yield
    finally:
        os.close(descriptor)  # which unlocks


def _acquire(descriptor: int, path: Path, seconds: float, waiting: Callable[[], None]) -> None:
    if _locked(descriptor):
        return
    waiting()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(_POLL)
        if _locked(descriptor):
            return
    raise TimeoutError(f"{path} is held by another process")


if sys.platform == "win32":
    import msvcrt

    def _locked(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _locked(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True
