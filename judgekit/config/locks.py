"""Locks between processes, which end with their holder."""

from __future__ import annotations

import errno
import os
import random
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

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
    path: Path, *, timeout: float, on_wait: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Hold the lock at `path`, for which it waits up to `timeout` seconds.

    `on_wait` is called once where another process holds it. Raises `TimeoutError` and `OSError`.
    """
    start = time.monotonic()
    descriptor = take(path)
    if descriptor is None:
        on_wait()
    while descriptor is None:
        waited = time.monotonic() - start
        if waited >= timeout:
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
