"""Runs llama.cpp's OpenAI-compatible server for one model file, in a child process that cannot outlive us."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import secrets
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from judgekit import checkout, environment, paths, programs
from judgekit.errors import ConfigError, FailureKind, GatewayError
from judgekit.text import lines_of

if TYPE_CHECKING:
    from types import TracebackType

START_SECONDS = 120.0  # a gigabyte from a slow disk
CONTEXT_TOKENS = 8192
THREADS = "JUDGEKIT_LOCAL_THREADS"
_MOST_THREADS = 8
_STOP_SECONDS = 10.0
_POLL = 0.02
_REASON_CHARS = 200


def threads() -> int:
    """Return how many threads a model may use: JUDGEKIT_LOCAL_THREADS, else all cores, eight at most.

    Waiting threads sleep, so that a second one pays off even beside a busy neighbour (measured on two
    cores with the 1.5B model: 54 tokens/s of prompt instead of 30 alone, 23 instead of 18 in company).

    Raises `ConfigError` when the variable is no whole number above zero.
    """
    text = environment.environ().get(THREADS)
    if not text:
        return min(_cores(), _MOST_THREADS)
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"expected a whole number above zero, got {text!r}", key=THREADS)
    return int(text)


class LocalServer:
    """The server for the model file `model_path`; a context manager, synchronous or not.

    Only who knows `api_key`, made up for each server, is answered. `launch` returns at once, `wait` and
    `ready` return when the model is loaded.
    """

    def __init__(self, model_path: Path, *, context: int = CONTEXT_TOKENS) -> None:
        self._path, self._context = model_path, context
        self.model = model_path.stem
        self.api_key = secrets.token_urlsafe(24)
        self._address = ""
        self._reported = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def base_url(self) -> str:
        """Address for an OpenAI client."""
        return f"{self._address}/v1"

    @property
    def alive(self) -> bool:
        """Whether the process was launched and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The child's process id, once launched."""
        return self._process.pid if self._process else None

    def launch(self) -> None:
        """Start the child process; raises `GatewayError` when the extra is not installed."""
        if importlib.util.find_spec("xllamacpp") is None:
            raise GatewayError(
                FailureKind.NOT_FOUND, f"a local model needs llama.cpp; {checkout.install('local')}"
            )
        settings = json.dumps(self._settings()).encode() + b"\n"
        with _open_log() as log:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                programs.python("judgekit.local.serve"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # threads that spin starve everybody else
                env={"OMP_WAIT_POLICY": "passive", **environment.environ()},
            )
        self._process = process
        self._kill = weakref.finalize(self, _kill, process)
        threading.Thread(
            target=self._converse, args=(process.stdin, process.stdout, settings), daemon=True
        ).start()

    def _settings(self) -> dict[str, str | int]:
        return {
            "model": str(self._path.resolve()),
            "alias": self.model,
            "api_key": self.api_key,  # not an argument: those are for all to see
            "context": self._context,
            "threads": threads(),
        }

    def _converse(self, stdin: IO[bytes], stdout: IO[bytes], settings: bytes) -> None:
        with contextlib.suppress(OSError, ValueError):  # it died, or was stopped: no address says so
            stdin.write(settings)
            stdin.flush()
            self._address = stdout.readline().decode().strip()
        self._reported.set()

    def wait(self, timeout: float = START_SECONDS) -> None:
        """Block until the server answers; raises `GatewayError` when it ends or is not up in `timeout` s."""
        self._reported.wait(timeout)
        self._check(timeout)

    async def ready(self, timeout: float = START_SECONDS) -> None:
        """Wait as `wait` does, without blocking the event loop."""
        deadline = time.monotonic() + timeout
        while not self._reported.is_set() and time.monotonic() < deadline:  # noqa: ASYNC110 - set by a thread
            await asyncio.sleep(_POLL)
        self._check(timeout)

    def _check(self, timeout: float) -> None:
        if self._address:
            return
        if not self._reported.is_set():
            raise GatewayError(FailureKind.TIMEOUT, f"{self.model}: not loaded within {timeout:.0f} s")
        raise GatewayError(FailureKind.COMMAND_FAILED, f"{self.model}: llama.cpp ended ({_reason()})")

    def stop(self) -> None:
        """End the child process for certain."""
        if self._process is not None:
            self._kill()
            self._reported.wait(_STOP_SECONDS)
            self._address = ""

    def __enter__(self) -> Self:
        self.launch()
        try:
            self.wait()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        self.launch()
        try:
            await self.ready()
        except BaseException:
            self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_SECONDS)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _cores() -> int:
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _log_path() -> Path:
    return Path(paths.cache_home()) / "logs" / "local-model.log"


def _open_log() -> IO[bytes]:
    paths.private_folder(str(_log_path().parent))
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    return os.fdopen(os.open(_log_path(), flags, 0o600), "wb")


def _reason() -> str:
    lines = [line for line in lines_of(_log_path().read_bytes().decode(errors="replace")) if line.strip()]
    errors = [line.partition(" E ")[2] for line in lines if " E " in line]
    return (errors or lines[-1:] or ["it gave no reason"])[0][:_REASON_CHARS]
