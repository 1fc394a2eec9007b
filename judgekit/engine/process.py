"""How one process becomes the engine of a place, and how others see and end it; its log.

Standard library only: an engine listens before it loads anything, so that its starter need not wait.
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
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit.config import files
from judgekit.engine import client
from judgekit.engine.client import EngineAddress
from judgekit.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

ANSWER_SECONDS = 2.0
END_SECONDS = 5.0
MAX_BYTES = 200_000  # of the log; then it becomes the older one, `.1`, and the older one goes
AGAIN_SECONDS = 60.0  # after which the same text is logged once more: strangers must not fill the log
_SIGN_SECONDS = 1.0  # from taking the lock to writing into it, which is milliseconds
_POLL = 0.02
_BACKLOG = 1024
_TRIES = 10


class EngineLock(NamedTuple):
    """What makes a process the engine of its place.

    The descriptor `lock` keeps others out; `mark` identifies `entrance`, by which clients find the engine,
    and which another process may have replaced; with a `token`, clients must send it.
    """

    place: EngineAddress
    lock: int
    listener: socket.socket
    entrance: str
    mark: tuple[int, int]
    token: str = ""

    def taken_away(self) -> bool:
        """Whether clients cannot find it any more."""
        return _mark(self.entrance) != self.mark

    def leave(self) -> None:
        """Make room for the next engine: from now on the lock tells that this one finishes its requests."""
        with suppress(OSError):
            if not self.taken_away():
                os.unlink(self.entrance)
        with suppress(OSError):
            if _is(self.place.lock, self.lock):
                os.rename(self.place.lock, _leaving_file(self.place, os.getpid()))

    def end(self) -> None:
        """Leave, and tell that there is nothing left to do; the lock ends with the process."""
        self.leave()
        with suppress(OSError):
            os.unlink(_leaving_file(self.place, os.getpid()))


def take(place: EngineAddress, *, unix: bool = hasattr(socket, "AF_UNIX")) -> EngineLock | None:
    """Become the engine of `place`, and listen; None when another process is.

    Raises `OSError` when the folder is not ours alone, or takes no files.
    """
    if not client.private(place.folder):
        raise PermissionError(f"{place.folder} is not private")
    held = take_lock(place.lock)
    if held is None:
        return None
    listener, token = None, "" if unix else secrets.token_urlsafe(32)
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
            new = Path(f"{place.door}.new")
            new.unlink(missing_ok=True)
            new.write_text(f"{listener.getsockname()[1]} {token}\n", encoding="ascii", newline="\n")
            new.replace(place.door)
    except OSError:
        if listener is not None:
            listener.close()
        os.close(held)
        raise
    finally:
        os.umask(before)
    entrance = place.socket if unix else place.door
    return EngineLock(place, held, listener, entrance, _mark(entrance), token)


def take_lock(path: str) -> int | None:
    """Take the lock at a path for good, and return its descriptor; None when another process has it."""
    for _ in range(_TRIES):
        held = files.take(path)
        if held is None:
            return None
        if _is(path, held):
            return held
        os.close(held)  # removed between opening and locking: the next one is another file
    return None


def _mark(path: str) -> tuple[int, int]:
    try:
        state = os.lstat(path)
    except OSError:
        return -1, -1
    return state.st_dev, state.st_ino


def _is(path: str, descriptor: int) -> bool:
    state = os.fstat(descriptor)
    return _mark(path) == (state.st_dev, state.st_ino)


def _leaving_file(place: EngineAddress, process: int) -> str:
    return f"{place.stem}.{process}.leaving"


def leaving_engines(place: EngineAddress) -> list[tuple[EngineAddress, int]]:
    """Return the engines of all versions that only finish their requests: their places and processes.

    The files of those that died are removed.
    """
    found = []
    for stem in _named(place, "leaving"):
        code, _, process = stem.rpartition(".")
        other = EngineAddress(place.folder, place.compat_key, code)
        with suppress(OSError, ValueError):
            path = _leaving_file(other, int(process))
            held = take_lock(path)
            if held is None:
                found.append((other, int(process)))
            else:
                os.unlink(path)
                os.close(held)
    return found


def relatives(place: EngineAddress) -> list[EngineAddress]:
    """Return the places of other versions for the same user and network, whether they run or not."""
    codes = {*_named(place, "sock"), *_named(place, "port")} - {place.code}
    return [EngineAddress(place.folder, place.compat_key, code) for code in sorted(codes)]


def _named(place: EngineAddress, kind: str) -> Iterator[str]:
    """Yield what comes after the common part of the names of all versions' files of a kind."""
    beginning, ending = f"engine-{place.compat_key}-", f".{kind}"
    for name in sorted(os.listdir(place.folder)):
        if name.startswith(beginning) and name.endswith(ending):
            yield name.removeprefix(beginning).removesuffix(ending)


def dismiss(place: EngineAddress, idle_seconds: float) -> None:
    """Ask the engines of other versions to leave soon, and remove the files of those that died."""
    for other in relatives(place):
        try:
            _ask_to_leave(other, 1.0, idle_seconds)
        except client.EngineLost:
            continue
        except client.NoEngine:
            with suppress(OSError):
                held = take_lock(other.lock)
                if held is not None:  # else it is just being made
                    for kind in ("sock", "port", "log", "log.1", "tried", "lock"):
                        Path(f"{other.stem}.{kind}").unlink(missing_ok=True)
                    os.close(held)
    leaving_engines(place)


def _ask_to_leave(place: EngineAddress, seconds: float, idle_seconds: float = 0) -> None:
    with client.Connection(place) as connection:
        body = f'{{"idle_seconds": {idle_seconds:g}}}'.encode()
        connection.ask("POST", "/v1/stop", body, seconds=seconds).read()


class Known(NamedTuple):
    """An engine that runs, and its health, None when it does not answer.

    `leaving` is the process of one that only finishes its requests.
    """

    place: EngineAddress
    health: dict[str, Any] | None
    leaving: int | None = None


def running() -> list[Known]:
    """Return the engines of this user and network: this version's first, those that leave last."""
    own = client.find()
    if own is None:
        return []
    found = [Known(place, health(place)) for place in (own, *relatives(own))]
    runs = [known for known in found if known.health is not None or process_of(known.place) is not None]
    return runs + [Known(place, None, process) for place, process in leaving_engines(own)]


def health(place: EngineAddress) -> dict[str, Any] | None:
    """Return the health of an engine, None when it does not answer."""
    try:
        found = json.loads(client.health(place, ANSWER_SECONDS))
    except (client.NoEngine, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def process_of(place: EngineAddress) -> int | None:
    """Return the id of the process that is the engine of `place`, None when there is none."""
    if not Path(place.lock).exists():
        return None
    end = time.monotonic() + _SIGN_SECONDS
    while time.monotonic() < end:
        if (held := take_lock(place.lock)) is not None:
            os.close(held)
            break
        with suppress(OSError, ValueError):
            return int(Path(place.lock).read_bytes())
        time.sleep(_POLL)  # it is just beginning
    return None


def start(seconds: float) -> Known | None:
    """Start an engine unless there is one, and return it when it is ready; None when it is not in time."""
    end = time.monotonic() + seconds
    try:
        with client.connect_or_start(seconds) as connection:
            place = connection.place
    except client.NoEngine:
        return None
    while place is not None and time.monotonic() < end:
        found = health(place)
        if found is not None and (found["ready"] or found["failure"]):
            return Known(place, found) if found["ready"] else None
        time.sleep(_POLL)
    return None


def stop(place: EngineAddress, *, at_once: bool = False, leaving: int | None = None) -> bool:
    """End the engine of `place`, or the one that is `leaving` it; False when it continues its work.

    One that does not answer is killed, and so is every one that is to end `at_once`.
    """
    process = leaving or process_of(place)
    if process is None:
        return True
    try:
        if not (at_once or leaving):
            _ask_to_leave(place, ANSWER_SECONDS)
    except client.NoEngine:
        at_once = True
    if at_once:
        with suppress(OSError):
            os.kill(process, getattr(signal, "SIGKILL", signal.SIGTERM))
    end = time.monotonic() + END_SECONDS
    while process in (process_of(place), *(number for _, number in leaving_engines(place))):
        if time.monotonic() > end:
            return False
        time.sleep(_POLL)
    return True


class Log(logging.Handler):
    """Appends lines to the file at `path`, bounded in size; a line that cannot be written is dropped.

    Of what libraries log it contains the fixed part of each message, of errors the kind and the line of code.
    """

    def __init__(self, path: str) -> None:
        super().__init__(logging.WARNING)
        self._path = path
        self._written: dict[str, float] = {}

    def add(self, text: str) -> None:
        """Write one line, with the time and the process; not again what was written just now."""
        now = time.monotonic()
        if now - self._written.get(text, -AGAIN_SECONDS) < AGAIN_SECONDS:
            return
        self._written = {old: at for old, at in self._written.items() if now - at < AGAIN_SECONDS} | {
            text: now
        }
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(descriptor, f"{moment} {os.getpid()} {text}\n".encode("utf-8", "replace"))
                full = os.fstat(descriptor).st_size > MAX_BYTES
            finally:
                os.close(descriptor)
            if full:
                os.replace(self._path, f"{self._path}.1")

    def fault(self, error: BaseException) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        line = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
        self.add(f"fault: {type(error).__name__}{line}")

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            self.fault(record.exc_info[1])
        else:
            self.add(f"{record.name}: {one_line(str(record.msg).partition(chr(10))[0], 200)}")
