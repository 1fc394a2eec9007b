"""Locks between processes, which end with their holder."""

from __future__ import annotations

import errno
import os
import platform
import random
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from judgekit import environment, outputs
from judgekit.text import escaped, short_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_POLL = (0.001, 0.01)
_SLOW_POLL = (0.1, 0.2)  # once it has waited for a second
_LONGEST_NAME = 200  # bytes; a file system takes 255
# File systems without locks, such as some network ones: appending is still one write there.
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
    """Hold the lock at `path`, waiting up to `timeout` seconds for it.

    `on_wait` is called once, before waiting, if another process holds the lock. Raises `TimeoutError` if the
    time is up, and `OSError` if the file can't be opened.
    """
    start = time.monotonic()
    descriptor = take(path)
    if descriptor is None:
        on_wait()
    while descriptor is None:
        seconds_waited = time.monotonic() - start
        if seconds_waited >= timeout:
            raise TimeoutError(f"{path} is held by another process")
        shortest, longest = _POLL if seconds_waited < 1 else _SLOW_POLL
        time.sleep(random.uniform(shortest, longest))  # noqa: S311 - so that processes don't march in step
        descriptor = take(path)
    try:
        yield
    finally:
        os.close(descriptor)  # this unlocks it


def take(path: Path | str) -> int | None:
    """Take the lock at `path` without waiting; return the open file's descriptor, or None if it's held.

    Closing the descriptor releases the lock. On a file system without locks it's always free. Raises
    `OSError` if the file can't be opened.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        _lock(descriptor)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            os.close(descriptor)
            return None
    return descriptor


def _lock(descriptor: int) -> None:
    """Lock an open file.

    Raises `OSError` if another process holds the lock, or if the file system has no locks.
    """
    if sys.platform == "win32":
        import msvcrt  # noqa: PLC0415 - only Windows has it

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl  # noqa: PLC0415 - Windows has none

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


# --- Beside a file that is written


class HeldError(Exception):
    """Another process is writing to a file; the message names it, if it's known."""


class _Holder(NamedTuple):
    """The process that holds a lock, as written into the lock's file.

    `kind` is "lock" for one of the operating system, or "lease" if the file itself is all there is.
    """

    kind: str
    host: str
    process: int

    @classmethod
    def here(cls, kind: str) -> _Holder:
        """Describe this process."""
        host = platform.node() or "unknown"
        # Two containers may have the same host name and the same process numbers, so their namespace of
        # process numbers is added; only Linux has these.
        with suppress(OSError):
            host += f"/{Path('/proc/self/ns/pid').readlink()}"
        return cls(kind, "".join(host.split()), os.getpid())

    @classmethod
    def read(cls, descriptor: int) -> _Holder | None:
        """Read the holder from a lock's file; None if nobody has written it yet."""
        os.lseek(descriptor, 0, os.SEEK_SET)
        words = os.read(descriptor, 1000).decode("utf-8", "replace").split()
        if len(words) != len(cls._fields):
            return None
        kind, host, process = words
        if not process.isdecimal():
            return None
        return cls(kind, host, int(process))

    def write(self, descriptor: int) -> None:
        """Write the holder into a lock's file, in place of an earlier one."""
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, f"{self.kind} {self.host} {self.process}\n".encode())

    def is_gone(self) -> bool:
        """Whether it's certain that the process has ended. It isn't for a process on another machine."""
        is_on_this_host = self.host == _Holder.here(self.kind).host
        # In Windows signal 0 would end the process.
        if sys.platform == "win32" or not is_on_this_host:
            return False
        try:
            os.kill(self.process, 0)  # sends nothing, but fails without such a process
        except ProcessLookupError:
            return True
        except OSError:  # it's there, and somebody else's
            return False
        return False

    def describe(self) -> str:
        """Name the process and its host for a message."""
        host = short_line(escaped(self.host.partition("/")[0]), 60)
        return f"process {self.process} on {host}"


_LOCK = "lock"
_LEASE = "lease"
_HELD = "another run writes to it"


@contextmanager
def hold_beside(path: str) -> Iterator[None]:
    """Hold a file or a folder exclusively, by the lock `.NAME.lock` beside it, which is removed afterwards.

    The path is one that `outputs.place_of` returned. The lock isn't in a cache, since people and containers
    that share a folder needn't share one. On a file system without locks, the lock's file is a lease: it
    names the host and process that hold it.

    Raises `HeldError` if another process holds it, and `OSError` if there's a link or a pipe in its place, or
    the folder can't be written.
    """
    held_path = Path(path)
    name = held_path.name
    if len(os.fsencode(name)) > _LONGEST_NAME:
        name = environment.digest(name)
    lock = held_path.with_name(f".{name}.lock")
    descriptor = None
    while descriptor is None:
        descriptor = _try_to_hold(lock)
    try:
        yield
    finally:
        with suppress(OSError):  # Windows removes no file that is open
            lock.unlink()
        os.close(descriptor)


def _try_to_hold(path: Path) -> int | None:
    """Take the lock in a file, or lease the file; return its descriptor, or None if it must be tried again.

    It must if the last holder has just removed the file, or has ended without doing so: then it's removed
    here. Raises `HeldError` if another process holds the file.
    """
    descriptor, is_new = outputs.open_or_make(str(path))
    with ExitStack() as stack:
        stack.callback(os.close, descriptor)
        kind = _lock_or_lease(descriptor)
        holder = _Holder.read(descriptor)
        was_leased = holder is not None and holder.kind == _LEASE
        is_lease_of_another = kind == _LEASE and not is_new
        if was_leased or is_lease_of_another:
            _refuse_held(holder, path)
            if _is_at(path, descriptor):
                path.unlink()  # its holder has ended
            return None
        if not _is_at(path, descriptor):  # its holder has just removed it
            return None
        _Holder.here(kind).write(descriptor)
        stack.pop_all()  # so that the descriptor stays open
    return descriptor


def _refuse_held(holder: _Holder | None, path: Path) -> None:
    """Raise `HeldError`, unless the process that leased a file has ended without removing the file."""
    if holder is None:  # it was created just now, and the name isn't written yet
        raise HeldError(_HELD)
    if not holder.is_gone():
        remedy = f"if that has ended, delete {path}"
        raise HeldError(f"{_HELD} ({holder.describe()}; {remedy})")


def _lock_or_lease(descriptor: int) -> str:
    """Lock a file, and return "lock", or "lease" if its file system has no locks.

    Raises `HeldError` if another process holds the lock.
    """
    try:
        _lock(descriptor)
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return _LEASE
        holder = None
        with suppress(OSError):  # Windows doesn't let anybody read a locked file
            holder = _Holder.read(descriptor)
        raise HeldError(f"{_HELD} ({holder.describe()})" if holder else _HELD) from None
    return _LOCK


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether an open file is still the one at `path`: its last holder may have removed it meanwhile."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    return os.path.samestat(status, os.fstat(descriptor))
