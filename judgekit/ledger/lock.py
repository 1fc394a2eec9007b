"""One writer at a time: a lock on a file, which the operating system lets go of when its holder dies."""

from __future__ import annotations

import errno
import os
import random
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECONDS = 10.0  # a writer holds it for a millisecond; 20 at once wait for a fraction of a second
_POLL = (0.001, 0.01)
# A file system without locks, as some network ones are: appending is still one write.
_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, getattr(errno, "ENOTSUP", errno.ENOSYS), errno.EOPNOTSUPP}


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock at `path` for the block; the file itself stays.

    Raises `TimeoutError` when another process keeps it for `SECONDS`, `OSError` when it cannot be opened.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + SECONDS
        while not _locked(descriptor):
            if time.monotonic() > deadline:
                raise TimeoutError(f"held by another process for {SECONDS:g} s")
            time.sleep(random.uniform(*_POLL))  # noqa: S311 - so that waiting writers do not march in step
        yield
    finally:
        os.close(descriptor)  # which unlocks


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
        except OSError as error:
            return error.errno in _UNSUPPORTED
        return True
