"""Makes a process the engine of its place, lets others see and end it, and keeps its log.

Standard library only: an engine listens before it loads anything, so that its starter needn't wait.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import signal
import socket
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from judgekit import outputs
from judgekit.config import locks
from judgekit.engine import client
from judgekit.engine.client import EngineAddress
from judgekit.text import short_line

ANSWER_SECONDS = 2.0
END_SECONDS = 5.0
MAX_BYTES = 200_000  # of the log; then it becomes the older half, `.1`, replacing the previous one
AGAIN_SECONDS = 60.0  # before the same text is logged again: strangers must not fill the log
_SIGN_SECONDS = 1.0  # from taking the lock to writing into it, which takes milliseconds
_POLL = 0.02
_BACKLOG = 1024
_TRIES = 10


class EngineLock(NamedTuple):
    """The claim to be a place's engine: `lock` keeps other engines out; clients must send the `token`.

    `mark` identifies `entrance`, by which clients find the engine; another process may have replaced it.
    """

    place: EngineAddress
    lock: int
    listener: socket.socket
    entrance: str
    mark: tuple[int, int]
    token: str = ""

    def taken_away(self) -> bool:
        """Whether clients can't find the engine any more."""
        return _mark(self.entrance) != self.mark

    def leave(self) -> None:
        """Make room for the next engine; from now on the lock says that this one finishes its requests."""
        with suppress(OSError):
            if not self.taken_away():
                os.unlink(self.entrance)
        with suppress(OSError):
            if _is_still_at(self.place.lock, self.lock):
                os.rename(self.place.lock, f"{self.place.stem}.{os.getpid()}.leaving")

    def end(self) -> None:
        self.leave()
        with suppress(OSError):
            os.unlink(f"{self.place.stem}.{os.getpid()}.leaving")


def take(place: EngineAddress, *, unix: bool = hasattr(socket, "AF_UNIX")) -> EngineLock | None:
    """Become the engine of `place`, and listen; None if another process is. Raises `OSError`."""
    if not client.private(place.folder):
        raise PermissionError(f"{place.folder} is not private")
    held = take_lock(place.lock)
    if held is None:
        return None
    listener = None
    token = "" if unix else secrets.token_urlsafe(32)
    before = os.umask(0o077)
    try:
        os.ftruncate(held, 0)  # of an engine that died here
        if unix:
            Path(place.socket).unlink(missing_ok=True)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(place.socket)
            listener.listen(_BACKLOG)
        else:
            listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
            outputs.write_atomically(
                place.address_file, f"{listener.getsockname()[1]} {token}\n", private=True
            )
    except OSError:
        if listener is not None:
            listener.close()
        os.close(held)
        raise
    finally:
        os.umask(before)
    entrance = place.socket if unix else place.address_file
    return EngineLock(place, held, listener, entrance, _mark(entrance), token)


def take_lock(path: str) -> int | None:
    """Take the lock at a path for good, and return its descriptor; None if another process has it."""
    for _ in range(_TRIES):
        held = locks.take(path)
        if held is None:
            return None
        if _is_still_at(path, held):
            return held
        # It was removed between opening and locking, so the next engine locks a different file
        os.close(held)
    return None


def _mark(path: str) -> tuple[int, int]:
    try:
        state = os.lstat(path)
    except OSError:
        return -1, -1
    return state.st_dev, state.st_ino


def _is_still_at(path: str, descriptor: int) -> bool:
    state = os.fstat(descriptor)
    return _mark(path) == (state.st_dev, state.st_ino)


class Running(NamedTuple):
    place: EngineAddress
    process: int
    leaving: bool


def engines(place: EngineAddress) -> list[Running]:
    """List the engines of all versions, ours first, leaving ones last; remove files of dead ones."""
    found: dict[int, Running] = {}
    stem = f"engine-{place.compat_key}-"
    for ending in (
        ".lock",
        ".leaving",
    ):  # in this order, so that one that starts leaving in between isn't missed
        for path in sorted(Path(place.folder).glob(f"{stem}*{ending}")):
            code = path.name.removeprefix(stem).partition(".")[0]
            other = EngineAddress(place.folder, place.compat_key, code)
            leaving = ending == ".leaving"
            with suppress(OSError):
                held = take_lock(str(path))
                if held is None:
                    if process := _process(path):
                        found[process] = Running(other, process, leaving)
                    continue
                if leaving:
                    path.unlink()
                elif other.code != place.code:
                    for kind in ("sock", "port", "log", "log.1", "tried", "lock"):
                        Path(f"{other.stem}.{kind}").unlink(missing_ok=True)
                os.close(held)
    return sorted(found.values(), key=lambda each: (each.leaving, each.place.code != place.code))


def _process(path: Path) -> int | None:
    end = time.monotonic() + _SIGN_SECONDS
    while time.monotonic() < end:
        try:
            return int(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError:
            time.sleep(_POLL)  # it is just beginning
    return None


def running() -> list[Running]:
    place = client.find()
    return [] if place is None else engines(place)


def dismiss(place: EngineAddress, idle_seconds: float) -> None:
    for engine in engines(place):
        if not engine.leaving and engine.place.code != place.code:
            with suppress(client.NoEngine):
                _ask_to_leave(engine.place, 1.0, idle_seconds)


def _ask_to_leave(place: EngineAddress, seconds: float, idle_seconds: float = 0) -> None:
    with client.Connection(place) as connection:
        body = f'{{"idle_seconds": {idle_seconds:g}}}'.encode()
        connection.ask("POST", "/v1/stop", body, seconds=seconds).read()


def health(place: EngineAddress) -> dict[str, Any] | None:
    try:
        found = json.loads(client.health(place, ANSWER_SECONDS))
    except (client.NoEngine, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def start(seconds: float) -> Running | None:
    """Start an engine unless there is one, and return it once it's ready; None if it isn't in time."""
    end = time.monotonic() + seconds
    try:
        with client.connect_or_start(seconds) as connection:
            place = connection.place
    except client.NoEngine:
        return None
    while time.monotonic() < end:
        found = health(place)
        if found is not None and (found["ready"] or found["failure"]):
            if found["ready"]:
                return Running(place, found["pid"], leaving=False)
            return None
        time.sleep(_POLL)
    return None


def stop(engine: Running, *, at_once: bool = False) -> bool:
    """End an engine, by force if it doesn't answer or `at_once`; False if it continues its work."""
    try:
        if not (at_once or engine.leaving):
            _ask_to_leave(engine.place, ANSWER_SECONDS)
    except client.NoEngine:
        at_once = True
    if at_once:
        with suppress(OSError):
            os.kill(engine.process, getattr(signal, "SIGKILL", signal.SIGTERM))
    end = time.monotonic() + END_SECONDS
    while engine.process in [each.process for each in engines(engine.place)]:
        if time.monotonic() > end:
            return False
        time.sleep(_POLL)
    return True


class Log(logging.Handler):
    """Appends lines to a file of bounded size, as far as they can be written: no arguments of messages."""

    def __init__(self, path: str) -> None:
        super().__init__(logging.WARNING)
        self._path = path
        self._written: dict[str, float] = {}

    def add(self, text: str) -> None:
        """Write one line, with the time and the process, unless the same line was just written."""
        now = time.monotonic()
        if now - self._written.get(text, -AGAIN_SECONDS) < AGAIN_SECONDS:
            return
        kept = {}
        for old, at in self._written.items():
            if now - at < AGAIN_SECONDS:
                kept[old] = at
        self._written = kept | {text: now}
        line = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {os.getpid()} {text}\n"
        with suppress(OSError):
            # A folder that somebody has removed is not made again.
            os.stat(os.path.dirname(self._path))
            outputs.append(self._path, line, MAX_BYTES)

    def fault(self, error: BaseException) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        if frames:
            line = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}"
        else:
            line = ""
        self.add(f"fault: {type(error).__name__}{line}")

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            self.fault(record.exc_info[1])
        else:
            self.add(f"{record.name}: {short_line(str(record.msg).partition(chr(10))[0], 200)}")
