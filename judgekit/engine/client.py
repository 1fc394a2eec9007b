"""Finds and starts the user's engine, and sends it HTTP requests, one at a time.

It needs only a little of the standard library: the prompt hook imports this, and `http.client` alone would
cost it more than a bare interpreter.
"""

from __future__ import annotations

import _socket
import os
import stat
import sys
import time

from judgekit import environment, programs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Self, TypeVar

    Value = TypeVar("Value")

PROTOCOL = 1
MAX_SOCKET_PATH_BYTES = (
    103  # bytes of a socket's path: macOS allows 104 with the zero at the end, Linux 108
)
CONNECT_SECONDS = 0.05  # a busy engine accepts connections, too
START_SECONDS = 15.0
MAX_ANSWER_SECONDS = 3600.0  # for an answer: the longest deadline that can be configured
SILENCE_SECONDS = 2.0  # of silence, then the engine's health is checked
HEALTH_SECONDS = 3.0  # for that check: the engine may be importing, and the machine busy
RESTART_SECONDS = 600.0  # until `start_for_later` starts an engine again that did not come up
TAKEN_EXIT_CODE = 3  # exit code of an engine that finds another one in its place
_POLL = 0.005
_TAKEN_POLL = 0.1
_CHUNK_SIZE = 65536
_MAX_ANSWER_BYTES = 256_000_000  # bytes; a push of ten thousand files is a tenth of that
_BUSY_STATUS = 503
_HEALTH_PATH = "/v1/health"
_END_OF_HEAD = b"\r\n\r\n"  # a blank line
_NO_HTTP = "lost the engine: its response is not HTTP"
# Provider clients read these from their own process, not from arguments, so one engine serves callers with
# the same values.
_PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
SHARED_VARIABLES = (
    *(*_PROXY_VARIABLES, *map(str.lower, _PROXY_VARIABLES)),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
)
# The rest of an engine's environment: enough to find Python's modules and its own files. No keys, nothing of
# git.
_INHERITED_VARIABLES = (
    *(
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "TZ",
        "TMPDIR",
        "TMP",
        "TEMP",
    ),
    *("USERPROFILE", "SYSTEMROOT", "SYSTEMDRIVE", "APPDATA", "LOCALAPPDATA"),
    *("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "JUDGEKIT_HOME"),
    *(
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONPYCACHEPREFIX",
        "LD_LIBRARY_PATH",
    ),
)
_own_code = ""


class NoEngine(Exception):  # noqa: N818 - a normal state, not an error
    """The reason to continue without the engine; this class itself if none answers, else a subclass."""


class EngineOff(NoEngine):
    """The user has switched the engine off, or replies are recorded or replayed."""


class EngineBusy(NoEngine):
    """The engine's queue is full, or it's leaving or can't become ready; retry after `retry_after` s."""

    def __init__(self, message: str, retry_after: float = 0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class EngineLost(NoEngine):
    """The engine went away, or hangs, before its answer was complete."""


class EngineAddress:
    """The files of one engine in `folder`, for one user and network (`compat_key`) and version."""

    __slots__ = (
        "address_file",
        "code_fingerprint",
        "compat_key",
        "folder",
        "lock_path",
        "log_path",
        "socket_path",
        "stem",
        "tried_path",
    )

    def __init__(self, folder: str, compat_key: str, code_fingerprint: str) -> None:
        """Build the paths of an engine's files in `folder`.

        An engine serves only processes with the same judgekit code and the same `compat_key`. The key is a
        hash of the home folder, the proxies and the certificates in use.
        """
        self.folder = folder
        self.compat_key = compat_key
        self.code_fingerprint = code_fingerprint

        self.stem = os.path.join(folder, f"engine-{compat_key}-{code_fingerprint}")
        self.socket_path = f"{self.stem}.sock"
        # On systems without Unix sockets, this file contains the port and token.
        self.address_file = f"{self.stem}.port"
        # Contains the engine's process id. It's locked as long as the engine accepts requests.
        self.lock_path = f"{self.stem}.lock"
        self.log_path = f"{self.stem}.log"
        # Touched by `start_for_later`, and removed once an engine listens. While this file is recent, the
        # hook starts no other engine, because the last start has failed or isn't finished.
        self.tried_path = f"{self.stem}.tried"


def find(*, make: bool = False) -> EngineAddress | None:
    """Find the address at which this user's engine listens, or would listen.

    The address is in the first folder that only this user can access, and whose path is short enough for a
    socket. Returns None if there's no such folder. If `make`, missing folders are created.
    """
    code = _identify_code()
    environ = environment.environ()
    compat_key = _compute_compat_key(environ)
    for folder in _list_folders(environ):
        address = EngineAddress(folder, compat_key, code)
        is_too_long = len(os.fsencode(address.socket_path)) > MAX_SOCKET_PATH_BYTES
        if is_too_long:
            continue
        if make and not _try_to_make(folder):
            continue
        if is_private_folder(folder):
            return address
    return None


def _identify_code() -> str:
    """Return a fingerprint of judgekit's code. Only an engine with the same fingerprint is used.

    The fingerprint covers the version, the folder and, in a checkout, the state of the source files.
    """
    global _own_code  # noqa: PLW0603 - `functools.cache` would have to be imported
    if not _own_code:
        package = os.path.dirname(os.path.realpath(environment.__file__))
        # Only an installed package has this folder. Its code doesn't change, unlike a checkout's.
        is_installed = os.path.isdir(os.path.join(package, "_bundled"))
        stamp = "" if is_installed else _stamp_sources(package)
        identity = f"{environment.__version__}\0{package}\0{stamp}"
        _own_code = environment.checksum(os.fsencode(identity))[:12]
    return _own_code


def _compute_compat_key(environ: Mapping[str, str]) -> str:
    """Hash the values that processes must have in common to use one engine.

    These are the home folder and the variables in `SHARED_VARIABLES`, such as HTTPS_PROXY.
    """
    shared_values = [f"{name}={environ.get(name, '')}" for name in SHARED_VARIABLES]
    text = "\0".join([os.path.expanduser("~"), *shared_values])
    return environment.checksum(text.encode("utf-8", "surrogateescape"))[:12]


def _list_folders(environ: Mapping[str, str]) -> list[str]:
    """List the folders that could contain an engine's socket, best first. Some might not exist."""
    folders = []
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime) and is_private_folder(runtime):
        folders.append(os.path.join(runtime, "judgekit"))
    folders.append(environment.ENGINES.path())
    if os.name == "nt":  # Windows uses a TCP port, so the path's length doesn't matter
        return folders

    # Also add folders with short paths, in case the paths above are too long for a socket.
    name = f"judgekit-{os.getuid()}"
    temporary = environ.get("TMPDIR", "")
    if os.path.isabs(temporary):
        folders.append(os.path.join(temporary, name))
    folders.append(os.path.join("/tmp", name))  # noqa: S108 - checked before it is used
    return folders


def _try_to_make(folder: str) -> bool:
    """Create a private folder if it's missing. Returns False if that fails."""
    try:
        environment.make_private_folder(folder)
    except OSError:  # for example, a read-only home or a full disk
        return False
    return True


def is_private_folder(folder: str) -> bool:
    """Whether `folder` is a real folder, not a link, that only this user can access."""
    try:
        state = os.lstat(folder)
    except OSError:
        return False
    if not stat.S_ISDIR(state.st_mode):
        return False
    if os.name == "nt":  # Windows has no such permissions
        return True
    is_open_to_others = state.st_mode & 0o077 != 0
    return state.st_uid == os.getuid() and not is_open_to_others


def _stamp_sources(package: str) -> str:
    """Return the count, total size and newest modification time of a package's source files."""
    count = 0
    size = 0
    newest_ns = 0
    for path in _iterate_source_files(package):
        state = os.stat(path)
        count += 1
        size += state.st_size
        newest_ns = max(newest_ns, state.st_mtime_ns)
    return f"{count} {size} {newest_ns}"


def _iterate_source_files(package: str) -> Iterator[str]:
    """Yield the paths of a package's Python files."""
    for folder, subfolders, names in os.walk(package):
        # Removing folders from this list keeps `os.walk` from entering them.
        subfolders[:] = [name for name in subfolders if _can_be_package(name)]
        for name in names:
            if name.endswith(".py"):
                yield os.path.join(folder, name)


def _can_be_package(folder_name: str) -> bool:
    """Whether modules can be imported from a folder. Names with a dot can't be imported."""
    return "." not in folder_name and folder_name != "__pycache__"


class Response:
    """A status, and a body whose pieces are read as they arrive; reading may raise `EngineLost`."""

    def __init__(self, status: int, pieces: Iterator[bytes]) -> None:
        self.status = status
        self.pieces = pieces

    def read(self) -> bytes:
        """Wait for the entire body."""
        return b"".join(self.pieces)


class Connection:
    """A connection to the engine at `address` for one request. Closing it cancels the request.

    After every `SILENCE_SECONDS` of silence the engine's health is checked. Raises `NoEngine` if none is
    running.
    """

    def __init__(self, address: EngineAddress | None = None) -> None:
        """Connect to the engine at `address`, which is this user's engine by default.

        Raises `NoEngine` if the engine can't be reached, or if another user could be listening there.
        """
        address = address or find()
        if address is None:
            raise NoEngine("no private folder for the engine's socket")
        no_engine = f"no engine at {address.socket_path}"
        if not is_private_folder(address.folder):
            raise NoEngine(f"{no_engine} (its folder is not private)")

        self.address = address
        # Only a TCP port needs a token. `_connect_to_port` reads it.
        self._token = ""
        is_unix = _uses_unix_socket(address)
        family = _socket.AF_UNIX if is_unix else _socket.AF_INET
        self._socket = _socket.socket(family, _socket.SOCK_STREAM)
        try:
            self._socket.settimeout(CONNECT_SECONDS)
            if is_unix:
                self._socket.connect(address.socket_path)
            else:
                self._connect_to_port()
        except (OSError, ValueError) as error:
            self.close()
            raise NoEngine(f"{no_engine} ({type(error).__name__})") from None

        # Another user's process mustn't see this user's texts.
        is_other_user = is_unix and not is_own_process(self._socket)
        if is_other_user:
            self.close()
            raise NoEngine(f"{no_engine} (another user's process answers there)")

    def _connect_to_port(self) -> None:
        """Read the engine's port and token from its file, and connect. Raises `OSError` or `ValueError`."""
        with open(self.address.address_file, encoding="ascii", newline="\n") as file:
            port, self._token = file.read().split()
        self._socket.connect(("127.0.0.1", int(port)))

    def close(self) -> None:
        self._socket.close()

    def abort(self) -> None:
        """Abort the request. A thread that waits for the response gets an `EngineLost`."""
        try:
            self._socket.shutdown(_socket.SHUT_RDWR)
        except OSError:  # the engine has already closed the connection
            return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, method: str, path: str, body: bytes = b"", *, seconds: float) -> Response:
        """Send a request, and return the response once its headers have arrived.

        The body arrives while the caller reads it. `seconds` limits the time for the whole response. Raises
        `EngineBusy` if the engine is too busy or stopping, and `EngineLost` if no HTTP response arrives in
        time.
        """
        deadline = time.monotonic() + seconds
        # If the engine is silent for this long, `_receive` sends it a health check. A health check itself
        # has only the deadline.
        silence_s = seconds if path == _HEALTH_PATH else SILENCE_SECONDS
        request = self._build_request_head(method, path, len(body)) + body
        self._send(request, seconds)

        head, start_of_body = self._receive_head(deadline, silence_s)
        status, headers = _parse_head(head)
        length_header = headers.get("content-length")
        body_length = int(length_header) if length_header else None
        chunks = self._yield_body(start_of_body, body_length, deadline, silence_s)
        response = Response(status, chunks)
        if status == _BUSY_STATUS:
            raise _make_busy_error(response, headers)
        return response

    def _build_request_head(self, method: str, path: str, length: int) -> bytes:
        """Build the request line and headers for a body of `length` bytes."""
        authorization = ""
        if self._token:
            authorization = f"Authorization: Bearer {self._token}\r\n"
        # With HTTP/1.0, the server closes the connection after its answer, and doesn't use chunked encoding.
        head = (
            f"{method} {path} HTTP/1.0\r\nHost: judgekit\r\n{authorization}"
            f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        )
        return head.encode("ascii")

    def _send(self, request: bytes, seconds: float) -> None:
        """Send a request within `seconds`. Raises `EngineLost` if that fails."""
        try:
            self._socket.settimeout(max(0.001, seconds))  # 0 would mean not to block at all
            self._socket.sendall(request)
        except OSError as error:
            raise EngineLost(f"the engine closed the connection ({type(error).__name__})") from None

    def _receive_head(self, deadline: float, silence_s: float) -> tuple[bytes, bytes]:
        """Receive a response's head. Returns it, and the start of the body, which can be empty.

        Raises `EngineLost` if the engine stops or doesn't send HTTP.
        """
        received = b""
        while _END_OF_HEAD not in received:
            chunk = self._receive(deadline, silence_s)
            if not chunk:  # the engine closed the connection
                raise EngineLost(_NO_HTTP if received else "the engine stopped before it responded")
            if len(received) > _CHUNK_SIZE:  # too long for a head
                raise EngineLost(_NO_HTTP)
            received += chunk

        # The last chunk can also contain the start of the body.
        head, _, start_of_body = received.partition(_END_OF_HEAD)
        return head, start_of_body

    def _yield_body(
        self, chunk: bytes, length: int | None, deadline: float, silence_s: float
    ) -> Iterator[bytes]:
        """Yield a response body in chunks. `chunk` is the first one, which arrived together with the headers.

        If `length` is None, the body ends when the engine closes the connection. Raises `EngineLost` if the
        body is too long or ends too early.
        """
        received = len(chunk)
        while True:
            if received > _MAX_ANSWER_BYTES:
                raise EngineLost("lost the engine: its response is too long")
            if chunk:
                yield chunk
            if received == length:
                return
            chunk = self._receive(deadline, silence_s)
            if not chunk:
                break
            received += len(chunk)

        # The engine closed the connection, which is an error if more bytes were announced.
        if length is not None:
            raise EngineLost("lost the engine: its response ended too early")

    def _receive(self, deadline: float, silence_s: float) -> bytes:
        """Return the next bytes from the engine, or b"" if the engine closed the connection.

        If nothing arrives for `silence_s` seconds, check the engine's health. Keep waiting while the engine
        is healthy. Raises `EngineLost` if the engine isn't healthy, or at the deadline.
        """
        while True:
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                break
            try:
                self._socket.settimeout(min(remaining_s, silence_s))
                return self._socket.recv(_CHUNK_SIZE)
            except TimeoutError:
                if not self._is_healthy(deadline):
                    break
            except OSError:  # the engine was killed
                return b""
        raise EngineLost("lost the engine: it did not respond in time")

    def _is_healthy(self, deadline: float) -> bool:
        """Whether the engine answers a health check before the deadline."""
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0:
            return False
        try:
            query_health(self.address, min(remaining_s, HEALTH_SECONDS))
        except EngineBusy:  # a busy engine is healthy
            return True
        except NoEngine:
            return False
        return True


def _uses_unix_socket(address: EngineAddress) -> bool:
    """Whether the engine listens on a Unix socket, not on a TCP port that it has written to a file."""
    return hasattr(_socket, "AF_UNIX") and not os.path.exists(address.address_file)


def _parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    """Parse the status line and headers of a response. Returns the status and the headers by lower-case name.

    Raises `EngineLost` if `head` isn't valid HTTP.
    """
    status_line, *header_lines = head.decode("latin-1").split("\r\n")
    headers = {}
    for line in header_lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()

    # In a status line such as "HTTP/1.1 200 OK", the first 12 characters are the version and the status.
    version, _, status = status_line[:12].partition(" ")
    if not version.startswith("HTTP/1.") or not status.isdecimal():
        raise EngineLost(_NO_HTTP)

    # The caller converts the length to an integer.
    length = headers.get("content-length", "")
    if length and not length.isdecimal():
        raise EngineLost(_NO_HTTP)
    return int(status), headers


def _make_busy_error(response: Response, headers: dict[str, str]) -> EngineBusy:
    """Build the error for a response with status 503.

    Its `retry_after` is 0 if the response doesn't suggest a retry.
    """
    message = _extract_message(response.read())
    retry_after = _parse_seconds(headers.get("retry-after", ""))
    return EngineBusy(message or "it is too busy, or stopping", retry_after)


def _extract_message(body: bytes) -> str:
    """Extract the value of "message" from a JSON body, up to the first quotation mark.

    Returns "" if there's none.
    """
    # Importing a JSON parser would slow down the prompt hook.
    _, _, after_key = body.partition(b'"message": "')
    raw_message, _, _ = after_key.partition(b'"')
    return raw_message.decode(errors="replace")


def _parse_seconds(text: str) -> float:
    """Parse a number such as 2 or 0.5. Returns 0 for any other text, such as a date."""
    digits = text.replace(".", "", 1)
    return float(text) if digits.isdecimal() else 0.0


def is_own_process(connection: _socket.socket) -> bool:
    """Whether the process at the other end of a Unix socket belongs to this user.

    Returns True on systems that offer no way to find out.
    """
    try:
        if sys.platform == "linux":
            # 12 bytes of `struct ucred`: pid, uid, gid
            credentials = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
        elif sys.platform == "darwin":
            # 76 bytes of `struct xucred`: version, uid, groups. SOL_LOCAL is 0, and LOCAL_PEERCRED is 1.
            credentials = connection.getsockopt(0, 1, 76)
        else:
            return True  # the folder's permissions protect the socket
    except OSError:
        return False
    # In both structs, the user id is the second 4-byte integer.
    user_id = int.from_bytes(credentials[4:8], sys.byteorder)
    return user_id == os.getuid()


def query_health(address: EngineAddress | None, seconds: float) -> bytes:
    """Query the state of the engine at `address`, by default this user's, and return it as JSON.

    Raises `NoEngine` if the engine doesn't answer within `seconds`.
    """
    with Connection(address) as connection:
        return connection.ask("GET", _HEALTH_PATH, seconds=seconds).read()


def start(address: EngineAddress | None) -> int | None:
    """Start an engine that outlives this process.

    This starts a child process, the starter. The starter forks the engine, and exits once the engine listens
    or has failed. Returns the starter's process id, or None if it can't be started.
    """
    if address is None or not sys.executable:
        return None

    environ = _select_variables()
    command = programs.build_python_command(
        "judgekit.engine.server", address.folder, address.compat_key, address.code_fingerprint
    )
    try:
        if os.name == "nt":
            return _spawn_on_windows(command, environ)
        return _spawn_on_posix(command, environ)
    except OSError:
        return None


def _select_variables() -> dict[str, str]:
    """Select the environment variables that an engine is started with.

    API keys aren't among them, because each request brings its own caller's variables.
    """
    environ = {}
    for name, value in environment.environ().items():
        if name in (*_INHERITED_VARIABLES, *SHARED_VARIABLES):
            environ[name] = value
    environ.setdefault("MALLOC_ARENA_MAX", "2")  # otherwise glibc reserves memory for every thread
    return environ


def _spawn_on_windows(command: list[str], environ: dict[str, str]) -> int:
    """Start a process that outlives this one, and return its id. Raises `OSError`."""
    import subprocess  # noqa: PLC0415 - imported lazily to keep the hooks fast

    detached = 0x00000008 | 0x00000200  # DETACHED_PROCESS, CREATE_NEW_PROCESS_GROUP
    null_stream = subprocess.DEVNULL
    return subprocess.Popen(  # noqa: S603 - our own interpreter and module
        command,
        env=environ,
        stdin=null_stream,
        stdout=null_stream,
        stderr=null_stream,
        creationflags=detached,
    ).pid


def _spawn_on_posix(command: list[str], environ: dict[str, str]) -> int:
    """Start a process that outlives this one, and return its id. Raises `OSError`."""
    # The engine would keep the caller's standard streams open, so open /dev/null in their place.
    file_actions = []
    for descriptor in range(3):  # standard input, output and errors
        open_null = (os.POSIX_SPAWN_OPEN, descriptor, os.devnull, os.O_RDWR, 0)
        file_actions.append(open_null)
    return os.posix_spawn(sys.executable, command, environ, file_actions=file_actions)


def start_for_later() -> int | None:
    """Start an engine for later calls, without waiting until it listens.

    Returns the process id of the starter, or None if it can't be started. Raises `NoEngine` if another engine
    was started in the last ten minutes and isn't listening yet.
    """
    address = find(make=True)
    if address is None:
        return None

    # This function touches the file below, and an engine removes it once it listens.
    age = _measure_age(address.tried_path)
    if age < RESTART_SECONDS:
        hint = "judgekit engine start shows the reason"
        raise NoEngine(f"an engine was started {age:.0f} s ago and is not ready; {hint}")

    try:
        _touch(address.tried_path)
    except OSError:  # for example, the disk is full, so the engine couldn't create its files either
        return None
    return start(address)


def _measure_age(path: str) -> float:
    """Return the seconds since a file was touched, or infinity if there's no file."""
    try:
        touched_at = os.stat(path).st_mtime
    except OSError:
        return float("inf")
    # If the clock was set back, the file's time is in the future. A negative age would count as recent.
    return abs(time.time() - touched_at)


def _touch(path: str) -> None:
    """Create a file if it's missing, and set its modification time to now. Raises `OSError`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    os.close(descriptor)
    os.utime(path)


def connect_or_start(seconds: float = START_SECONDS) -> Connection:
    """Connect to this user's engine. Start one first if none is running.

    Raises `NoEngine` if the engine can't start, or doesn't listen within `seconds`.
    """
    address = find()
    deadline = time.monotonic() + seconds
    try:
        return Connection(address)
    except NoEngine as error:
        # Connecting may have used up the time.
        _give_up_if_hopeless(error, deadline)

    address = find(make=True)  # a new engine needs a folder for its socket
    starter_pid = start(address)
    while True:
        time.sleep(_POLL)
        exit_code = _poll_starter(starter_pid)
        try:
            return Connection(address)
        except NoEngine as error:
            _give_up_if_hopeless(error, deadline, exit_code)
        if exit_code == TAKEN_EXIT_CODE:
            # Another engine is at the address, but it may be shutting down. Wait, then run a new starter.
            time.sleep(_TAKEN_POLL)
            starter_pid = start(address)


def _poll_starter(starter_pid: int | None) -> int | None:
    """Return the starter's exit code, or None while it's running."""
    if starter_pid is None:  # it couldn't be started, so it has failed
        return 1
    return _poll_exit_code(starter_pid)


def _give_up_if_hopeless(error: NoEngine, deadline: float, exit_code: int | None = None) -> None:
    """Raise `NoEngine` if no engine will listen in time.

    `exit_code` is the starter's exit code, or None if it's still running or wasn't started. `error` is the
    last failure to connect.
    """
    # The starter exits once its engine listens or has failed. Even after exit code 0, connecting should have
    # worked by now. TAKEN_EXIT_CODE means that another engine is at the address, which may still answer.
    has_failed = exit_code not in (None, TAKEN_EXIT_CODE)
    is_late = time.monotonic() > deadline
    if has_failed or is_late:
        raise NoEngine(f"the engine could not start ({error})") from None


def _poll_exit_code(pid: int) -> int | None:
    """Return a child process's exit code, or None while it's running. Always returns None on Windows."""
    if os.name == "nt":
        return None
    try:
        ended_pid, status = os.waitpid(pid, os.WNOHANG)
    except OSError:  # other code has already collected the exit code, so assume success
        return 0
    if ended_pid == 0:  # still running
        return None
    return os.waitstatus_to_exitcode(status)


def call(
    operation: str,
    body: Callable[[], bytes],
    read: Callable[[Response], Value],
    run_locally: Callable[[NoEngine], Value],
    *,
    use: bool = True,
    connect: Callable[[], Connection] = connect_or_start,
    seconds: float = MAX_ANSWER_SECONDS,
    warn: Callable[[str], None] | None = None,
) -> Value:
    """Run an operation, such as "judge", on the engine, and return the result of `read(response)`.

    `connect` connects to the engine, and `body` builds the request's body. If there's no engine or `use` is
    False, `run_locally` does the work in this process instead. Before that, `warn` gets the reason, unless
    the engine is switched off.
    """
    try:
        _require_engine(use=use)  # raises `EngineOff` if the engine mustn't be used
        with connect() as connection:
            response = connection.ask("POST", f"/v1/{operation}", body(), seconds=seconds)
            return read(response)
    except NoEngine as error:
        reason = error

    # Don't move this into the `except` block. There, an error of `run_locally` would seem to be caused by
    # `reason`.
    _warn_of_local_work(reason, warn)
    return run_locally(reason)


def _require_engine(*, use: bool) -> None:
    """Raise `EngineOff` if the caller or the environment wants no engine."""
    if not use or not is_enabled():
        raise EngineOff("no engine is wanted")


def _warn_of_local_work(reason: NoEngine, warn: Callable[[str], None] | None) -> None:
    """Warn that the work continues in this process. A user who has switched the engine off knows that."""
    is_switched_off = isinstance(reason, EngineOff)
    if warn is not None and not is_switched_off:
        warn(f"{reason}; continuing in this process")


def build_caller_fields(project: str | None = None, *, git: bool = False) -> dict[str, object]:
    """Build the request fields that describe the caller, such as the environment variables."""
    variables = {}
    for name, value in environment.environ().items():
        # Only requests of the gate need git's variables: GIT_DIR names the repository to read.
        if git or not name.startswith("GIT_"):
            variables[name] = value
    return {
        "environ": variables,
        "cwd": os.getcwd(),
        "project": project,
        "client": str(os.getpid()),
    }


def is_enabled() -> bool:
    """Whether environment variables allow using an engine."""
    environ = environment.environ()
    # Recording, replaying and verbose output only work in the caller's process.
    for name in ("JUDGEKIT_REPLAY", "JUDGEKIT_RECORD", "JUDGEKIT_VERBOSE"):
        if environ.get(name, "").strip():
            return False

    setting = environ.get("JUDGEKIT_ENGINE", "").strip()
    is_switched_off = setting.lower() in ("0", "false", "no", "off")
    return not is_switched_off
