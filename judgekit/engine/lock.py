"""Becoming the engine of a place: of many that try at once one holds the lock, and listens.

Standard library only: an engine listens before it loads anything, so that whoever starts it need not wait.
"""

from __future__ import annotations

import os
import secrets
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from judgekit.config import files
from judgekit.engine import address, client

if TYPE_CHECKING:
    from judgekit.engine.address import EngineAddress

_BACKLOG = 1024
_TRIES = 10


class EngineLock(NamedTuple):
    """What makes a process the engine of its place.

    `lock` is the descriptor that keeps others out, `mark` tells the file by which clients find the engine
    from one that somebody else has put there since; with a `token`, clients have to know it.
    """

    place: EngineAddress
    lock: int
    listener: socket.socket
    mark: tuple[int, int]
    token: str = ""

    @property
    def entrance(self) -> str:
        """The file by which clients find the engine."""
        return self.place.door if self.token else self.place.socket

    def taken_away(self) -> bool:
        """Whether clients cannot find it any more."""
        return _mark(self.entrance) != self.mark

    def leave(self) -> None:
        """Take the way in away, then let go of the lock: whoever has it next may make a new one."""
        with suppress(OSError):
            if not self.taken_away():
                os.ftruncate(self.lock, 0)  # nobody shall take the next one for this process
                os.unlink(self.entrance)
        with suppress(OSError):
            os.close(self.lock)


def take(place: EngineAddress, *, unix: bool = hasattr(socket, "AF_UNIX")) -> EngineLock | None:
    """Become the engine of `place`, and listen; None when another process is.

    Raises `OSError` when the folder is not ours alone, or takes no files.
    """
    if not address.private(place.folder):
        raise PermissionError(f"{place.folder} is not ours alone")
    held = the_only_one(place)
    if held is None:
        return None
    try:
        os.ftruncate(held, 0)  # who died here is not this process
        return _on_socket(place, held) if unix else _on_port(place, held)
    except OSError:
        os.close(held)
        raise


def the_only_one(place: EngineAddress) -> int | None:
    """Take the lock of `place` for good; None when another process has it."""
    return _alone(place.lock)


def _alone(path: str) -> int | None:
    for _ in range(_TRIES):
        held = files.take(path)
        if held is None:
            return None
        state = os.fstat(held)
        if _mark(path) == (state.st_dev, state.st_ino):
            return held
        os.close(held)  # removed between opening and locking: the next one is another file
    return None


def sign(held: int) -> None:
    """Write this process's id into the lock that it holds."""
    os.ftruncate(held, 0)
    os.pwrite(held, f"{os.getpid()}\n".encode(), 0)


def say_leaving(place: EngineAddress) -> None:
    """Let others find this process, the engine of `place` so far, until it ends or says that it is gone."""
    with suppress(OSError):  # on a full disk it just leaves
        _alone(place.leaving(os.getpid()))  # never closed: the lock tells that the process lives


def say_gone(place: EngineAddress) -> None:
    """Tell that this process has nothing left to do."""
    with suppress(OSError):
        os.unlink(place.leaving(os.getpid()))


def leaving(place: EngineAddress) -> list[tuple[EngineAddress, int]]:
    """Return the engines, of all versions, that finish what they were asked: their places and processes.

    What is left of those that died is removed.
    """
    found = []
    for engine_address, process in address.leavers(place):
        path = engine_address.leaving(process)
        with suppress(OSError):
            held = _alone(path)
            if held is None:
                found.append((engine_address, process))
            else:
                os.unlink(path)
                os.close(held)
    return found


def dismiss(place: EngineAddress, idle_seconds: float) -> None:
    """Tell the engines of other versions to leave soon, and clear up after those that died."""
    for other in address.relatives(place):
        with suppress(OSError):
            try:
                with client.Connection(other) as connection:
                    body = f'{{"idle_seconds": {idle_seconds:g}}}'.encode()
                    connection.ask("POST", "/v1/stop", body, seconds=1)
            except client.EngineLost:
                pass
            except client.NoEngine:
                _clear_up(other)
    leaving(place)


def _clear_up(place: EngineAddress) -> None:
    held = the_only_one(place)
    if held is None:  # it is just being made
        return
    for path in (place.socket, place.door, place.log, f"{place.log}.1", place.tried, place.lock):
        with suppress(OSError):
            os.unlink(path)
    os.close(held)


def _on_socket(place: EngineAddress, held: int) -> EngineLock:
    with suppress(FileNotFoundError):
        os.unlink(place.socket)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        before = os.umask(0o077)
        try:
            listener.bind(place.socket)
        finally:
            os.umask(before)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return EngineLock(place, held, listener, _mark(place.socket))


def _on_port(place: EngineAddress, held: int) -> EngineLock:
    listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
    token = secrets.token_urlsafe(32)
    new = f"{place.door}.new"
    try:
        with suppress(FileNotFoundError):
            os.unlink(new)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(descriptor, f"{listener.getsockname()[1]} {token}\n".encode())
        finally:
            os.close(descriptor)
        os.replace(new, place.door)
    except OSError:
        listener.close()
        raise
    return EngineLock(place, held, listener, _mark(place.door), token)


def _mark(path: str) -> tuple[int, int]:
    try:
        state = os.lstat(path)
    except OSError:
        return -1, -1
    return state.st_dev, state.st_ino
