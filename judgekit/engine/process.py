"""How one process becomes the engine of a place, and how others see and end it.

Standard library only: an engine listens before it loads anything, so that whoever starts it need not wait.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit.config import files
from judgekit.engine import address, client

if TYPE_CHECKING:
    from judgekit.engine.address import EngineAddress

ANSWER_SECONDS = 2.0
END_SECONDS = 5.0
_SIGN_SECONDS = 1.0  # from taking the lock to writing into it, which is milliseconds
_POLL = 0.02
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
        raise PermissionError(f"{place.folder} is not private")
    held = take_lock(place.lock)
    if held is None:
        return None
    try:
        os.ftruncate(held, 0)  # who died here is not this process
        return _on_socket(place, held) if unix else _on_port(place, held)
    except OSError:
        os.close(held)
        raise


def take_lock(path: str) -> int | None:
    """Take the lock at a path for good, and return its descriptor; None when another process has it."""
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


def _on_socket(place: EngineAddress, held: int) -> EngineLock:
    with suppress(FileNotFoundError):
        os.unlink(place.socket)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o077)
    try:
        listener.bind(place.socket)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)
    return EngineLock(place, held, listener, _mark(place.socket))


def _on_port(place: EngineAddress, held: int) -> EngineLock:
    listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
    token = secrets.token_urlsafe(32)
    new = f"{place.door}.new"
    try:
        with suppress(FileNotFoundError):
            os.unlink(new)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            file.write(f"{listener.getsockname()[1]} {token}\n".encode())
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


def say_leaving(place: EngineAddress) -> None:
    """Let others find this process, the engine of `place` so far, until it ends or says that it is gone."""
    with suppress(OSError):  # on a full disk it just leaves
        take_lock(place.leaving(os.getpid()))  # never closed: the lock tells that the process lives


def say_gone(place: EngineAddress) -> None:
    """Tell that this process has nothing left to do."""
    with suppress(OSError):
        os.unlink(place.leaving(os.getpid()))


def leaving(place: EngineAddress) -> list[tuple[EngineAddress, int]]:
    """Return the engines, of all versions, that finish what they were asked: their places and processes.

    What is left of those that died is removed.
    """
    found = []
    for other, process in address.leavers(place):
        path = other.leaving(process)
        with suppress(OSError):
            held = take_lock(path)
            if held is None:
                found.append((other, process))
            else:
                os.unlink(path)
                os.close(held)
    return found


def dismiss(place: EngineAddress, idle_seconds: float) -> None:
    """Tell the engines of other versions to leave soon, and clear up after those that died."""
    for other in address.relatives(place):
        try:
            _ask_to_leave(other, 1.0, idle_seconds)
        except client.EngineLost:
            continue
        except client.NoEngine:
            with suppress(OSError):
                _clear_up(other)
    leaving(place)


def _ask_to_leave(place: EngineAddress, seconds: float, idle_seconds: float = 0) -> None:
    body = f'{{"idle_seconds": {idle_seconds:g}}}'.encode()
    with client.Connection(place) as connection:
        connection.ask("POST", "/v1/stop", body, seconds=seconds).read()


def _clear_up(place: EngineAddress) -> None:
    held = take_lock(place.lock)
    if held is None:  # it is just being made
        return
    for path in (place.socket, place.door, place.log, f"{place.log}.1", place.tried, place.lock):
        with suppress(OSError):
            os.unlink(path)
    os.close(held)


class Known(NamedTuple):
    """An engine that runs: where, and what it says of itself; None when it does not answer.

    `leaving` is the process of one that nobody can ask any more, as it only finishes what it was asked.
    """

    place: EngineAddress
    health: dict[str, Any] | None
    leaving: int | None = None


def running() -> list[Known]:
    """Return the engines of this user and network, that of this version first, those that leave last."""
    own = address.find()
    if own is None:
        return []
    found = [Known(place, health(place)) for place in (own, *address.relatives(own))]
    runs = [known for known in found if known.health is not None or process_of(known.place) is not None]
    return runs + [Known(place, None, process) for place, process in leaving(own)]


def health(place: EngineAddress) -> dict[str, Any] | None:
    """Return what an engine says of itself, None when it does not answer."""
    try:
        told = json.loads(client.health(place, ANSWER_SECONDS))
    except (client.NoEngine, ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None


def process_of(place: EngineAddress) -> int | None:
    """Return the id of the process that is the engine of `place`, None when there is none."""
    if not Path(place.lock).exists():
        return None
    held = take_lock(place.lock)
    if held is not None:  # nobody had it
        os.close(held)
        return None
    end = time.monotonic() + _SIGN_SECONDS
    while time.monotonic() < end:
        with suppress(OSError, ValueError):
            return int(Path(place.lock).read_bytes())
        time.sleep(_POLL)  # it is just beginning
    return None


def start(seconds: float) -> Known | None:
    """Start an engine unless there is one, and return it when it is ready; None when it is not in time."""
    try:
        client.connect_or_start(seconds).close()
    except client.NoEngine:
        return None
    if not client.wait_until_ready(seconds):
        return None
    return next(iter(running()), None)


def stop(place: EngineAddress, *, at_once: bool = False, leaving: int | None = None) -> bool:
    """End the engine of `place`, or the one that is `leaving` it; False when it goes on with its work.

    One that does not answer is killed, and so is every one that is to end `at_once`.
    """
    process = leaving or process_of(place)
    if process is None:
        return True
    kill = at_once
    if not (at_once or leaving):
        try:
            _ask_to_leave(place, ANSWER_SECONDS)
        except client.NoEngine:
            kill = True
    if kill:
        with suppress(OSError):
            os.kill(process, getattr(signal, "SIGKILL", signal.SIGTERM))
    end = time.monotonic() + END_SECONDS
    while _runs(process):
        if time.monotonic() > end:
            return False
        time.sleep(_POLL)
    return True


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
        state = Path(f"/proc/{process}/stat").read_bytes()
        threads = len(os.listdir(f"/proc/{process}/task"))  # the others may end later, and hold the lock
    except FileNotFoundError:  # no such file: not Linux, or it has just ended
        return not Path("/proc/self/stat").exists()
    except OSError:
        return False
    return threads > 1 or not state.rpartition(b")")[2].startswith(b" Z")  # ended, and nobody has asked how
