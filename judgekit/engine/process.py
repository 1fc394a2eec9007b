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
    """This process's right to be the engine at `place`.

    `lock` is a descriptor that keeps other engines out. Clients find the engine by the file `entrance`, and
    must send the `token`. `mark` tells whether another process has replaced that file.
    """

    place: EngineAddress
    lock: int
    listener: socket.socket
    entrance: str
    mark: tuple[int, int]
    token: str = ""

    def taken_away(self) -> bool:
        """Whether the file by which clients find this engine has been removed or replaced."""
        return _identify_file(self.entrance) != self.mark

    def leave(self) -> None:
        """Make room for the next engine, while this one finishes its requests."""
        with suppress(OSError):
            if not self.taken_away():
                os.unlink(self.entrance)
        with suppress(OSError):
            if _is_still_at(self.place.lock, self.lock):
                # This frees the lock's path, and shows that the engine is still running.
                os.rename(self.place.lock, f"{self.place.stem}.{os.getpid()}.leaving")

    def end(self) -> None:
        """Remove the engine's remaining files, when all requests are finished."""
        self.leave()
        with suppress(OSError):
            os.unlink(f"{self.place.stem}.{os.getpid()}.leaving")


def take(place: EngineAddress, *, unix: bool = hasattr(socket, "AF_UNIX")) -> EngineLock | None:
    """Become the engine at `place`, and listen there. Returns None if another process already is.

    Raises `OSError` if the folder isn't private, or listening fails.
    """
    if not client.private(place.folder):
        raise PermissionError(f"{place.folder} is not private")

    lock = take_lock(place.lock)
    if lock is None:
        return None
    token = "" if unix else secrets.token_urlsafe(32)
    previous_umask = os.umask(0o077)  # create the socket for this user only
    try:
        os.ftruncate(lock, 0)  # remove the process id of an engine that died
        listener = _listen_on_socket(place) if unix else _listen_on_port(place, token)
    except OSError:
        os.close(lock)
        raise
    finally:
        os.umask(previous_umask)

    entrance = place.socket if unix else place.address_file
    return EngineLock(place, lock, listener, entrance, _identify_file(entrance), token)


def _listen_on_socket(place: EngineAddress) -> socket.socket:
    """Listen on the engine's Unix socket. Raises `OSError`."""
    Path(place.socket).unlink(missing_ok=True)  # left by an engine that died
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(place.socket)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _listen_on_port(place: EngineAddress, token: str) -> socket.socket:
    """Listen on a free port, and write the port and token to a file for clients. Raises `OSError`."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
    try:
        _, port = listener.getsockname()
        outputs.write_atomically(place.address_file, f"{port} {token}\n", private=True)
    except OSError:
        listener.close()
        raise
    return listener


def take_lock(path: str) -> int | None:
    """Lock the file at a path, and return the descriptor that holds the lock until it's closed.

    Returns None if another process has the lock.
    """
    for _ in range(_TRIES):
        descriptor = locks.take(path)
        if descriptor is None:
            return None
        if _is_still_at(path, descriptor):
            return descriptor
        # The file was removed or renamed before we locked it. This lock is useless, because the next engine
        # would lock a new file at the same path.
        os.close(descriptor)
    return None


def _identify_file(path: str) -> tuple[int, int]:
    """Return a file's device and inode, which identify it, or (-1, -1) if there's no file."""
    try:
        state = os.lstat(path)
    except OSError:
        return -1, -1
    return state.st_dev, state.st_ino


def _is_still_at(path: str, descriptor: int) -> bool:
    """Whether the open file is still the one at this path."""
    state = os.fstat(descriptor)
    return _identify_file(path) == (state.st_dev, state.st_ino)


class Running(NamedTuple):
    place: EngineAddress
    process: int
    leaving: bool


def engines(place: EngineAddress) -> list[Running]:
    """List running engines of all versions in the folder of `place`, and remove files of dead ones.

    Engines with this code come first, and those that are leaving come last.
    """
    engine_by_process: dict[int, Running] = {}
    stem = f"engine-{place.compat_key}-"
    # A leaving engine renames its `.lock` to `.leaving`. In this order, an engine that does so between the
    # two searches isn't missed.
    for suffix in (".lock", ".leaving"):
        is_leaving = suffix == ".leaving"
        for path in sorted(Path(place.folder).glob(f"{stem}*{suffix}")):
            code, _, _ = path.name.removeprefix(stem).partition(".")
            address = EngineAddress(place.folder, place.compat_key, code)
            with suppress(OSError):
                lock = take_lock(str(path))
                if lock is None:  # the engine is alive
                    process = _read_process_id(path)
                    if process is not None:
                        engine_by_process[process] = Running(address, process, is_leaving)
                    continue

                # The engine is dead. Keep the files for this code, including its log.
                if is_leaving:
                    path.unlink()
                elif address.code != place.code:
                    _remove_files(address)
                os.close(lock)

    def rank(engine: Running) -> tuple[bool, bool]:
        return engine.leaving, engine.place.code != place.code

    return sorted(engine_by_process.values(), key=rank)


def _remove_files(address: EngineAddress) -> None:
    for suffix in ("sock", "port", "log", "log.1", "tried", "lock"):
        Path(f"{address.stem}.{suffix}").unlink(missing_ok=True)


def _read_process_id(lock: Path) -> int | None:
    """Read an engine's process id from its lock file.

    Returns None if the file is gone, or no process id is written to it within a second.
    """
    deadline = time.monotonic() + _SIGN_SECONDS
    while time.monotonic() < deadline:
        try:
            return int(lock.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError:  # the engine is just starting, and hasn't written its id yet
            time.sleep(_POLL)
    return None


def running() -> list[Running]:
    """List the caller's engines of all versions."""
    engine_address = client.find()
    if engine_address is None:
        return []
    return engines(engine_address)


def dismiss(place: EngineAddress, idle_seconds: float) -> None:
    """Ask engines of other versions to leave once they've been idle for `idle_seconds`."""
    for engine in engines(place):
        if not engine.leaving and engine.place.code != place.code:
            with suppress(client.NoEngine):
                _ask_to_leave(engine.place, 1.0, idle_seconds)


def _ask_to_leave(place: EngineAddress, seconds: float, idle_seconds: float = 0) -> None:
    """Ask an engine to leave, now or after it has been idle for `idle_seconds`.

    Raises `NoEngine` if the engine doesn't answer within `seconds`.
    """
    with client.Connection(place) as connection:
        body = f'{{"idle_seconds": {idle_seconds:g}}}'.encode()
        connection.ask("POST", "/v1/stop", body, seconds=seconds).read()


def health(place: EngineAddress) -> dict[str, Any] | None:
    """Ask an engine for its state. Returns None if it doesn't answer with a JSON object."""
    try:
        state = json.loads(client.health(place, ANSWER_SECONDS))
    except (client.NoEngine, ValueError, RecursionError):
        return None
    if not isinstance(state, dict):
        return None
    return state


def start(seconds: float) -> Running | None:
    """Start an engine unless one is running, wait until it's ready, and return it.

    Returns None if the engine fails or isn't ready within `seconds`.
    """
    deadline = time.monotonic() + seconds
    try:
        with client.connect_or_start(seconds) as connection:
            engine_address = connection.place
    except client.NoEngine:
        return None

    while time.monotonic() < deadline:
        state = health(engine_address)
        if state is not None and state["ready"]:
            return Running(engine_address, state["pid"], leaving=False)
        if state is not None and state["failure"]:
            return None
        time.sleep(_POLL)
    return None


def stop(engine: Running, *, at_once: bool = False) -> bool:
    """Ask an engine to stop, or kill it if `at_once` or if it doesn't answer, and wait for its end.

    Returns False if it's still running after 5 seconds.
    """
    if not at_once and not engine.leaving:
        try:
            _ask_to_leave(engine.place, ANSWER_SECONDS)
        except client.NoEngine:
            at_once = True
    if at_once:
        with suppress(OSError):
            os.kill(engine.process, getattr(signal, "SIGKILL", signal.SIGTERM))

    deadline = time.monotonic() + END_SECONDS
    while any(running_engine.process == engine.process for running_engine in engines(engine.place)):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL)
    return True


class Log(logging.Handler):
    """Appends lines to a file of bounded size. A line that can't be written is lost.

    Arguments of messages aren't written, since they may quote texts.
    """

    def __init__(self, path: str) -> None:
        super().__init__(logging.WARNING)
        self._path = path
        self._written: dict[str, float] = {}

    def add(self, text: str) -> None:
        """Write a line with the time and process id, unless the same text was written recently."""
        now = time.monotonic()
        recent_texts = {}
        for old_text, written_at in self._written.items():
            if now - written_at < AGAIN_SECONDS:
                recent_texts[old_text] = written_at
        if text in recent_texts:
            return
        self._written = recent_texts | {text: now}

        utc = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = f"{utc} {os.getpid()} {text}\n"
        with suppress(OSError):
            # Fail if the folder has been removed. `append` would create it again.
            os.stat(os.path.dirname(self._path))
            outputs.append(self._path, line, MAX_BYTES)

    def fault(self, error: BaseException) -> None:
        """Write an error's class and source line, but not its message, which can quote private texts."""
        position = ""
        frames = traceback.extract_tb(error.__traceback__)
        if frames:
            innermost = frames[-1]
            position = f" at {os.path.basename(innermost.filename)}:{innermost.lineno}"
        self.add(f"fault: {type(error).__name__}{position}")

    def emit(self, record: logging.LogRecord) -> None:
        """Write another library's log message, without its arguments, which can quote private texts."""
        if record.exc_info and record.exc_info[1]:
            self.fault(record.exc_info[1])
            return
        first_line, _, _ = str(record.msg).partition("\n")
        self.add(f"{record.name}: {short_line(first_line, 200)}")
