"""Locks between processes, which end with their holder."""

from __future__ import annotations

import errno
import os
import platform
import random
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from judgekit import environment, outputs
from judgekit.text import escape_name, shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_POLL_SECONDS = (0.001, 0.01)  # shortest and longest pause
_SLOW_POLL_SECONDS = (0.1, 0.2)  # after the first second
_MAX_NAME_BYTES = 200  # bytes; file systems allow 255
_MAX_HOLDER_BYTES = 1_000  # a lock file's content is shorter
# The errors of file systems without locks, such as some network file systems
_UNSUPPORTED_LOCK_ERRORS = {
    errno.ENOLCK,
    errno.ENOSYS,
    getattr(errno, "ENOTSUP", errno.ENOSYS),
    errno.EOPNOTSUPP,
}


@contextmanager
def file_lock(
    path: Path, *, timeout: float, on_wait: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Hold the lock at `path` during a `with` block, after waiting for it for up to `timeout` seconds.

    If another process holds the lock, `on_wait` is called once, before waiting. Raises `TimeoutError` after
    the timeout, and `OSError` if the file can't be opened.
    """
    start = time.monotonic()
    descriptor = take(path)
    if descriptor is None:
        on_wait()

    while descriptor is None:
        seconds_waited = time.monotonic() - start
        if seconds_waited >= timeout:
            raise TimeoutError(f"{path} is held by another process")

        # Pause for a random time, so that waiting processes don't all retry at the same moment.
        shortest, longest = _POLL_SECONDS if seconds_waited < 1 else _SLOW_POLL_SECONDS
        time.sleep(random.uniform(shortest, longest))  # noqa: S311 - no secret
        descriptor = take(path)

    try:
        yield
    finally:
        os.close(descriptor)  # this unlocks it


def take(path: Path | str) -> int | None:
    """Take the lock at `path` without waiting, and return a descriptor. Closing it releases the lock.

    Returns None if another process holds the lock. On a file system without locks, this always succeeds.
    Raises `OSError` if the file can't be opened.
    """
    close_on_exec = getattr(os, "O_CLOEXEC", 0)  # not on Windows
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | close_on_exec, 0o600)
    try:
        _lock(descriptor)
    except OSError as error:
        has_no_locks = error.errno in _UNSUPPORTED_LOCK_ERRORS
        if has_no_locks:
            return descriptor
        os.close(descriptor)
        return None
    return descriptor


def _lock(descriptor: int) -> None:
    """Lock an open file without waiting.

    Raises `OSError` if another process holds the lock, or if the file system has no locks.
    """
    if sys.platform == "win32":
        import msvcrt  # noqa: PLC0415 - only Windows has it

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl  # noqa: PLC0415 - Windows has none

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


# --- Locks next to output files


class HeldError(Exception):
    """Another process is writing to the file; the message names the process, if it's known."""


class _Holder(NamedTuple):
    """The process that holds a lock, as written into the lock file.

    `kind` is "lock" for an operating system's lock, or "lease" if the file system has none, so that only the
    file's content protects it.
    """

    kind: str
    host: str
    process: int

    @classmethod
    def of_current_process(cls, kind: str) -> _Holder:
        """Describe the current process as a holder."""
        host = platform.node() or "unknown"
        # Two containers can have the same host name and process ids. On Linux, add the process namespace,
        # which differs.
        with suppress(OSError):
            host += f"/{Path('/proc/self/ns/pid').readlink()}"
        # Spaces separate the three words in a lock file, so the host can't have any.
        host_without_spaces = "".join(host.split())
        return cls(kind, host_without_spaces, os.getpid())

    @classmethod
    def read(cls, descriptor: int) -> _Holder | None:
        """Read the holder from a lock file; None if the file is still empty or incomplete."""
        os.lseek(descriptor, 0, os.SEEK_SET)
        words = os.read(descriptor, _MAX_HOLDER_BYTES).decode("utf-8", "replace").split()
        if len(words) != len(cls._fields):
            return None
        kind, host, process = words
        if not process.isdecimal():
            return None
        return cls(kind, host, int(process))

    def write(self, descriptor: int) -> None:
        """Replace a lock file's content with this holder."""
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, f"{self.kind} {self.host} {self.process}\n".encode())

    def is_gone(self) -> bool:
        """Whether the process has certainly ended. False if that can't be checked, as on another host."""
        is_on_this_host = self.host == _Holder.of_current_process(self.kind).host
        if not is_on_this_host:
            return False
        if sys.platform == "win32":  # there, the `os.kill` below would end the process
            return False
        try:
            os.kill(self.process, 0)  # sends no signal, but fails if there's no such process
        except ProcessLookupError:
            return True
        except OSError:  # the process exists, and belongs to another user
            return False
        return False

    def describe(self) -> str:
        """Name the process and its host for a message."""
        host = shorten_to_line(escape_name(self.host.partition("/")[0]), 60)
        return f"process {self.process} on {host}"


_LOCK_KIND = "lock"
_LEASE_KIND = "lease"
_HELD = "another run writes to it"


@contextmanager
def hold_for_writing(path: str) -> Iterator[None]:
    """Lock a file or folder for writing, with a temporary lock file `.NAME.lock` next to it.

    `path` must come from `outputs.resolve_output_path`. Raises `HeldError` if another process holds the lock.
    Raises `OSError` if the folder isn't writable, or if the lock file's path is taken by a link or a pipe.
    """
    lock_path = _name_lock_file(Path(path))

    # None means that the lock file was removed in the meantime. Then try again with a new one.
    descriptor = None
    while descriptor is None:
        descriptor = _try_to_hold(lock_path)

    try:
        yield
    finally:
        # As soon as the file is unlocked, another process can lock it, so remove it first.
        with suppress(OSError):  # Windows can't remove an open file, so there it stays
            lock_path.unlink()
        os.close(descriptor)


def _name_lock_file(path: Path) -> Path:
    """Return the path of the lock file for `path`, in the same folder."""
    # It isn't in a cache folder, because users and containers that share the file may not share a cache.
    name = path.name
    is_too_long = len(os.fsencode(name)) > _MAX_NAME_BYTES  # leaves room for the prefix and suffix
    if is_too_long:
        name = environment.digest(name)
    return path.with_name(f".{name}.lock")


def _try_to_hold(lock_path: Path) -> int | None:
    """Try to lock a lock file. Returns its descriptor, or None if the caller should try again.

    Raises `HeldError` if another process holds the lock or lease.
    """
    descriptor, is_new = outputs.open_or_make(str(lock_path))
    is_held = False
    try:
        is_held = _hold_open_file(lock_path, descriptor, is_new=is_new)
    finally:
        if not is_held:
            os.close(descriptor)
    return descriptor if is_held else None


def _hold_open_file(lock_path: Path, descriptor: int, *, is_new: bool) -> bool:
    """Lock an open lock file, and write this process into it. Returns False if the caller should try again.

    On a file system without locks, the file is a lease instead: its content names the process that holds it.
    Raises `HeldError` if another process holds the lock or lease.
    """
    lock_or_lease = _take_lock_or_lease(descriptor)

    holder = _Holder.read(descriptor)
    if _is_lease_of_other(holder, lock_or_lease, is_new=is_new):
        _refuse_live_holder(holder, lock_path)
        # The other process has ended, so its lease can go.
        _remove_if_at(lock_path, descriptor)
        return False

    # If the last holder has removed the file since it was opened, this lock is worthless: the next process
    # makes and locks a new file.
    if not _is_at(lock_path, descriptor):
        return False

    _Holder.of_current_process(lock_or_lease).write(descriptor)
    return True


def _is_lease_of_other(holder: _Holder | None, lock_or_lease: str, *, is_new: bool) -> bool:
    """Whether a lock file is another process's lease.

    `lock_or_lease` is the result of `_take_lock_or_lease` for the file.
    """
    if holder is not None and holder.kind == _LEASE_KIND:
        return True
    # Without locks, a file that was already there is another process's, even if it's still empty.
    has_no_locks = lock_or_lease == _LEASE_KIND
    return has_no_locks and not is_new


def _refuse_live_holder(holder: _Holder | None, path: Path) -> None:
    """Raise `HeldError` if the process named in a lock file might still be running."""
    if holder is None:  # another process has just created the file, but not written its id yet
        raise HeldError(_HELD)
    if not holder.is_gone():
        remedy = f"if that has ended, delete {path}"
        raise HeldError(f"{_HELD} ({holder.describe()}; {remedy})")


def _remove_if_at(path: Path, descriptor: int) -> None:
    """Remove the open file at `path`, unless another process has already removed or replaced it."""
    if _is_at(path, descriptor):
        path.unlink()


def _take_lock_or_lease(descriptor: int) -> str:
    """Lock a file and return "lock", or return "lease" if its file system has no locks.

    Raises `HeldError` if another process holds the lock.
    """
    try:
        _lock(descriptor)
    except OSError as error:
        has_no_locks = error.errno in _UNSUPPORTED_LOCK_ERRORS
        if has_no_locks:
            return _LEASE_KIND
        raise HeldError(_describe_lock(descriptor)) from None
    return _LOCK_KIND


def _describe_lock(descriptor: int) -> str:
    """Say for a message that a file is locked, and by which process if that can be read."""
    holder = None
    with suppress(OSError):  # on Windows, a locked file can't be read
        holder = _Holder.read(descriptor)
    if holder is None:
        return _HELD
    return f"{_HELD} ({holder.describe()})"


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether an open file is still at `path`, and hasn't been removed or replaced."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    return os.path.samestat(status, os.fstat(descriptor))
