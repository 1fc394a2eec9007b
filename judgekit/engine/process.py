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
from judgekit.text import shorten_to_line

ANSWER_SECONDS = 2.0
END_SECONDS = 5.0
MAX_LOG_BYTES = (
    200_000  # of the log; then it becomes the older half, `.1`, replacing the previous one
)
REPEAT_AFTER_S = 60.0  # before the same text is logged again: strangers must not fill the log
_PID_TIMEOUT_S = 1.0  # from taking the lock to writing into it, which takes milliseconds
_POLL = 0.02
_BACKLOG = 1024
_TRIES = 10


class EngineLock(NamedTuple):
    """This process's right to be the engine at `address`.

    `lock_descriptor` is a descriptor that keeps other engines out. Clients find the engine by the file
    `listener_path`, and must send the `token`. `file_id` is that file's device and inode, which change if
    it's replaced.
    """

    address: EngineAddress
    lock_descriptor: int
    listener: socket.socket
    listener_path: str
    file_id: tuple[int, int]
    token: str = ""

    def is_unreachable(self) -> bool:
        """Whether the file by which clients find this engine has been removed or replaced."""
        return _identify_file(self.listener_path) != self.file_id

    def release(self) -> None:
        """Let another engine take this address, while this engine finishes its requests."""
        with suppress(OSError):
            # While this engine is reachable, the file at this path is its own.
            if not self.is_unreachable():
                os.unlink(self.listener_path)
        with suppress(OSError):
            if _is_still_at(self.address.lock_path, self.lock_descriptor):
                # Renaming the lock file lets the next engine create its own. `list_engines` still finds this
                # one.
                os.rename(self.address.lock_path, f"{self.address.stem}.{os.getpid()}.leaving")

    def end(self) -> None:
        """Remove the engine's remaining files, once all requests are finished."""
        self.release()
        with suppress(OSError):
            os.unlink(f"{self.address.stem}.{os.getpid()}.leaving")


def become_engine(
    address: EngineAddress, *, unix: bool = hasattr(socket, "AF_UNIX")
) -> EngineLock | None:
    """Make this process the engine at `address`, and listen there.

    Returns None if another process is the engine there. Raises `OSError` if the folder isn't private, or if
    listening fails.
    """
    if not client.is_private_folder(address.folder):
        raise PermissionError(f"{address.folder} is not private")

    lock = take_lock(address.lock_path)
    if lock is None:
        return None

    # Any local user can connect to a port, so a token is needed there.
    token = "" if unix else secrets.token_urlsafe(32)
    try:
        os.ftruncate(lock, 0)  # remove the process id written by an engine that died
        listener = _listen_privately(address, token, unix=unix)
    except OSError:
        os.close(lock)
        raise

    listener_path = address.socket_path if unix else address.address_file
    return EngineLock(
        address=address,
        lock_descriptor=lock,
        listener=listener,
        listener_path=listener_path,
        file_id=_identify_file(listener_path),
        token=token,
    )


def _listen_privately(address: EngineAddress, token: str, *, unix: bool) -> socket.socket:
    """Listen at `address`. Only this user can access the socket, or the file with the port and token.

    Raises `OSError` if that fails.
    """
    previous_umask = os.umask(0o077)
    try:
        return _listen_on_socket(address) if unix else _listen_on_port(address, token)
    finally:
        os.umask(previous_umask)


def _listen_on_socket(address: EngineAddress) -> socket.socket:
    """Listen on the engine's Unix socket. Raises `OSError` if that fails."""
    Path(address.socket_path).unlink(missing_ok=True)  # left by an engine that died
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(address.socket_path)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _listen_on_port(address: EngineAddress, token: str) -> socket.socket:
    """Listen on a free port, and write the port and token to a file for clients.

    Raises `OSError` if either fails.
    """
    listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
    try:
        _, port = listener.getsockname()
        outputs.write_atomically(address.address_file, f"{port} {token}\n", private=True)
    except OSError:
        listener.close()
        raise
    return listener


def take_lock(path: str) -> int | None:
    """Lock a file, and return a descriptor. Closing the descriptor releases the lock.

    Returns None if another process has the lock, or if others keep replacing the file.
    """
    for _ in range(_TRIES):
        descriptor = locks.take(path)
        if descriptor is None:
            return None
        if _is_still_at(path, descriptor):
            return descriptor
        # Another process removed or renamed the file before we locked it. Others will lock a new file at this
        # path, so our lock is useless. Try again.
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
    address: EngineAddress
    pid: int
    is_shutting_down: bool


def list_engines(address: EngineAddress) -> list[Running]:
    """List the running engines in an address's folder, and remove the files of dead ones.

    Engines that are shutting down come last. Among the others, those that run the address's code come first.
    """
    engine_by_pid: dict[int, Running] = {}
    # An engine that shuts down renames its `.lock` to `.leaving`. If it does so between the two searches,
    # this order finds it twice, which the dict merges. The other order would miss it.
    for suffix in (".lock", ".leaving"):
        pattern = f"engine-{address.compat_key}-*{suffix}"
        for path in sorted(Path(address.folder).glob(pattern)):
            with suppress(OSError):
                engine = _find_living_engine(path, address)
                if engine is not None:
                    engine_by_pid[engine.pid] = engine

    def rank(engine: Running) -> tuple[bool, bool]:
        runs_other_code = engine.address.code_fingerprint != address.code_fingerprint
        return engine.is_shutting_down, runs_other_code

    return sorted(engine_by_pid.values(), key=rank)


def _find_living_engine(path: Path, own_address: EngineAddress) -> Running | None:
    """Return the engine with this lock file. If it's dead, remove its files and return None.

    Raises `OSError` if the lock file can't be opened, or a file can't be removed.
    """
    prefix = f"engine-{own_address.compat_key}-"
    code, _, _ = path.name.removeprefix(prefix).partition(".")
    address = EngineAddress(own_address.folder, own_address.compat_key, code)
    is_shutting_down = path.suffix == ".leaving"

    lock = take_lock(str(path))
    if lock is None:  # the engine is alive, because it holds the lock
        pid = _read_process_id(path)
        return None if pid is None else Running(address, pid, is_shutting_down)

    # The engine is dead, because this process could take the lock.
    ran_other_code = code != own_address.code_fingerprint
    try:
        if is_shutting_down:
            # Keep its other files, because they may be a new engine's by now.
            path.unlink()
        elif ran_other_code:
            # If it ran our own code, keep its files instead, because the log can be of interest.
            _remove_files(address)
    finally:
        os.close(lock)
    return None


def _remove_files(address: EngineAddress) -> None:
    for suffix in ("sock", "port", "log", "log.1", "tried", "lock"):
        Path(f"{address.stem}.{suffix}").unlink(missing_ok=True)


def _read_process_id(lock: Path) -> int | None:
    """Read an engine's process id from its lock file, waiting up to a second for the engine to write it.

    Returns None if the file is gone or remains empty.
    """
    deadline = time.monotonic() + _PID_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            return int(lock.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError:  # the engine is just starting, and hasn't written its id yet
            time.sleep(_POLL)
    return None


def list_running_engines() -> list[Running]:
    """List this user's running engines, including those of other versions."""
    own_address = client.find()
    if own_address is None:  # without a private folder, there are no engines
        return []
    return list_engines(own_address)


def dismiss_others(address: EngineAddress, idle_seconds: float) -> None:
    """Ask engines that run other versions to shut down once they've been idle for `idle_seconds`."""
    for engine in list_engines(address):
        is_other_version = engine.address.code_fingerprint != address.code_fingerprint
        if is_other_version and not engine.is_shutting_down:
            with suppress(client.NoEngine):
                _request_shutdown(engine.address, timeout=1.0, idle_seconds=idle_seconds)


def _request_shutdown(address: EngineAddress, timeout: float, idle_seconds: float = 0) -> None:
    """Ask an engine to shut down, now or after it has been idle for `idle_seconds`.

    Raises `NoEngine` if the engine doesn't answer within `timeout` seconds.
    """
    body = json.dumps({"idle_seconds": idle_seconds}).encode()
    with client.Connection(address) as connection:
        connection.ask("POST", "/v1/stop", body, seconds=timeout).read()


def query_health(address: EngineAddress) -> dict[str, Any] | None:
    """Query an engine's state. Returns None if it doesn't answer with a JSON object."""
    try:
        state = json.loads(client.query_health(address, ANSWER_SECONDS))
    except (client.NoEngine, ValueError, RecursionError):
        return None
    if not isinstance(state, dict):
        return None
    return state


def start(seconds: float) -> Running | None:
    """Return a running engine that is ready. Start one if necessary.

    Returns None if the engine fails, or isn't ready within `seconds`.
    """
    deadline = time.monotonic() + seconds
    try:
        with client.connect_or_start(seconds) as connection:
            address = connection.address
    except client.NoEngine:
        return None

    # An engine listens before it's ready to judge.
    while time.monotonic() < deadline:
        state = query_health(address)
        if state is not None and state["ready"]:
            return Running(address, state["pid"], is_shutting_down=False)
        if state is not None and state["failure"]:
            return None
        time.sleep(_POLL)
    return None


def stop(engine: Running, *, at_once: bool = False) -> bool:
    """Ask an engine to shut down, and wait until its process has ended.

    Kills the process if `at_once`, or if the engine doesn't answer. Returns False if the process is still
    running after 5 seconds.
    """
    if at_once:
        _kill(engine.pid)
    elif not engine.is_shutting_down:
        try:
            _request_shutdown(engine.address, ANSWER_SECONDS)
        except client.NoEngine:
            _kill(engine.pid)
    return _wait_until_ended(engine)


def _kill(pid: int) -> None:
    """Kill a process. Does nothing if it has already ended."""
    kill_signal = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows has no SIGKILL
    with suppress(OSError):
        os.kill(pid, kill_signal)


def _wait_until_ended(engine: Running) -> bool:
    """Wait until an engine's process has ended. Returns False if it's still running after `END_SECONDS`."""
    deadline = time.monotonic() + END_SECONDS
    while True:
        running_pids = [running_engine.pid for running_engine in list_engines(engine.address)]
        if engine.pid not in running_pids:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL)


class Log(logging.Handler):
    """Appends lines to a file of bounded size. A line that can't be written is lost.

    Arguments of messages aren't written, since they may quote texts.
    """

    def __init__(self, path: str) -> None:
        super().__init__(logging.WARNING)
        self._path = path
        self._times_by_text: dict[str, float] = {}  # of recent lines

    def add(self, text: str) -> None:
        """Append `text` to the log, with the time and process id, unless it was written recently."""
        now = time.monotonic()
        times_by_text = self._find_recent_texts(now)
        if text in times_by_text:
            return
        times_by_text[text] = now
        self._times_by_text = times_by_text
        self._append_line(text)

    def _find_recent_texts(self, now: float) -> dict[str, float]:
        """Find the texts of the last `REPEAT_AFTER_S` seconds, and the time when each was written."""
        times_by_text = {}
        for text, written_at in self._times_by_text.items():
            is_recent = now - written_at < REPEAT_AFTER_S
            if is_recent:
                times_by_text[text] = written_at
        return times_by_text

    def _append_line(self, text: str) -> None:
        """Append `text` to the log file, with the time and process id. A failure is ignored."""
        utc = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = f"{utc} {os.getpid()} {text}\n"
        with suppress(OSError):
            # If somebody removed the folder, don't let `append` create it again.
            os.stat(os.path.dirname(self._path))
            outputs.append(self._path, line, max_bytes=MAX_LOG_BYTES)

    def add_error(self, error: BaseException) -> None:
        """Write an error's class and source line, without the message, which can quote private texts."""
        position = ""
        frames = traceback.extract_tb(error.__traceback__)
        if frames:
            innermost = frames[-1]
            position = f" at {os.path.basename(innermost.filename)}:{innermost.lineno}"
        self.add(f"fault: {type(error).__name__}{position}")

    def emit(self, record: logging.LogRecord) -> None:
        """Write another library's log message, or only the class and source line of its exception.

        A message is written without its arguments, because they can quote private texts.
        """
        error = record.exc_info[1] if record.exc_info else None
        if error:
            self.add_error(error)
            return
        first_line, _, _ = str(record.msg).partition("\n")
        self.add(f"{record.name}: {shorten_to_line(first_line, 200)}")
