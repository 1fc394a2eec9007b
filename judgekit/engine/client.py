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
    from collections.abc import Callable, Iterator
    from typing import Self, TypeVar

    Value = TypeVar("Value")

PROTOCOL = 1
MAX_PATH = 103  # bytes of a socket's path: macOS allows 104 with the zero at the end, Linux 108
CONNECT_SECONDS = 0.05  # a busy engine accepts connections, too
START_SECONDS = 15.0
SECONDS = 3600.0  # for an answer: the longest deadline that can be configured
LOOK_SECONDS = 2.0  # of silence, then the engine's health is checked
HEALTH_SECONDS = 3.0  # for that check: the engine may be importing, and the machine busy
VAIN_SECONDS = 600.0  # until `start_for_later` starts an engine again that did not come up
TAKEN = 3  # exit code of an engine that finds another one in its place
_POLL = 0.005
_TAKEN_POLL = 0.1
_CHUNK = 65536
_MOST_ANSWER = 256_000_000  # bytes; a push of ten thousand files is a tenth of that
_BUSY = 503
_HEALTH = "/v1/health"
_NO_HTTP = "lost the engine: its response is not HTTP"
# Provider clients read these from their own process, not from arguments, so one engine serves callers with
# the same values.
# callers with the same values.
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
SHARED = (
    *(*_PROXIES, *map(str.lower, _PROXIES)),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
)
# The rest of an engine's environment: enough to find Python's modules and its own files. No keys, nothing of
# git.
_HANDED_ON = (
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
    """The files of one engine in `folder`, for one user and network (`compat_key`) and version (`code`)."""

    __slots__ = (
        "address_file",
        "code",
        "compat_key",
        "folder",
        "lock",
        "log",
        "socket",
        "stem",
        "tried",
    )

    def __init__(self, folder: str, compat_key: str, code: str) -> None:
        self.folder = folder
        self.compat_key = compat_key
        self.code = code
        self.stem = stem = os.path.join(folder, f"engine-{compat_key}-{code}")
        self.socket = f"{stem}.sock"
        self.address_file = (
            f"{stem}.port"  # holds its port and token, on systems without Unix sockets
        )
        self.lock = f"{stem}.lock"  # held as long as it takes new work; contains its process id
        self.log = f"{stem}.log"
        self.tried = (
            f"{stem}.tried"  # exists from a start without a waiting caller until an engine listens
        )


def find(*, make: bool = False) -> EngineAddress | None:
    """Find the address of the caller's engine, or None if no folder can be trusted; `make` creates it."""
    global _own_code  # noqa: PLW0603 - `functools.cache` would have to be imported
    environ = environment.environ()
    if not _own_code:
        package = os.path.dirname(os.path.realpath(environment.__file__))
        if os.path.isdir(os.path.join(package, "_bundled")):
            stamp = ""
        else:
            stamp = _stamp(package)
        version = f"{environment.__version__}\0{package}\0{stamp}"
        _own_code = environment.checksum(os.fsencode(version))[:12]
    key = "\0".join(
        [os.path.expanduser("~"), *[f"{name}={environ.get(name, '')}" for name in SHARED]]
    )
    compat_key = environment.checksum(key.encode("utf-8", "surrogateescape"))[:12]
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    temporary = environ.get("TMPDIR", "")
    if os.path.isabs(runtime) and private(runtime):
        folders = [os.path.join(runtime, "judgekit")]
    else:
        folders = []
    folders.append(environment.ENGINES.path())
    if os.name != "nt":
        bases = (temporary if os.path.isabs(temporary) else "/tmp", "/tmp")  # noqa: S108 - looked at before it is used
        folders += [os.path.join(base, f"judgekit-{os.getuid()}") for base in bases]
    for folder in folders:
        place = EngineAddress(folder, compat_key, _own_code)
        if len(os.fsencode(place.socket)) > MAX_PATH:
            continue
        if make:
            try:
                environment.private_folder(folder)
            except OSError:  # a read-only home, a full disk
                continue
        if private(folder):
            return place
    return None


def private(folder: str) -> bool:
    """Whether `folder` is a real folder of this user, closed to others."""
    try:
        state = os.lstat(folder)
    except OSError:
        return False
    own = os.name == "nt" or (state.st_uid == os.getuid() and not state.st_mode & 0o077)
    return own and stat.S_ISDIR(state.st_mode)


def _stamp(package: str) -> str:
    """Return a fingerprint of a checkout's sources."""
    count = size = newest = 0
    for folder, folders, files in os.walk(package):
        folders[:] = [name for name in folders if "." not in name and name != "__pycache__"]
        for name in files:
            if name.endswith(".py"):
                state = os.stat(os.path.join(folder, name))
                count = count + 1
                size = size + state.st_size
                newest = max(newest, state.st_mtime_ns)
    return f"{count} {size} {newest}"


class Response:
    """A status, and a body whose pieces are read as they arrive; reading may raise `EngineLost`."""

    def __init__(self, status: int, pieces: Iterator[bytes]) -> None:
        self.status = status
        self.pieces = pieces

    def read(self) -> bytes:
        return b"".join(self.pieces)


class Connection:
    """A connection to the engine at `place` for one request; closing it cancels that request.

    After every `LOOK_SECONDS` of silence the engine's health is checked. Raises `NoEngine` if none is
    running.
    """

    def __init__(self, place: EngineAddress | None = None) -> None:
        place = place or find()
        if place is None:
            raise NoEngine("no private folder for the engine's socket")
        none = f"no engine at {place.socket}"
        if not private(place.folder):
            raise NoEngine(f"{none} (its folder is not private)")
        self.place = place
        self._token = ""
        unix = hasattr(_socket, "AF_UNIX") and not os.path.exists(place.address_file)
        self._socket = _socket.socket(
            _socket.AF_UNIX if unix else _socket.AF_INET, _socket.SOCK_STREAM
        )
        try:
            self._socket.settimeout(CONNECT_SECONDS)
            if unix:
                self._socket.connect(place.socket)
            else:
                with open(place.address_file, encoding="ascii", newline="\n") as file:
                    port, self._token = file.read().split()
                self._socket.connect(("127.0.0.1", int(port)))
        except (OSError, ValueError) as error:
            self.close()
            raise NoEngine(f"{none} ({type(error).__name__})") from None
        if unix and not ours(self._socket):
            self.close()
            raise NoEngine(f"{none} (another user's process answers there)")

    def close(self) -> None:
        self._socket.close()

    def abort(self) -> None:
        """Abort a request that another thread is waiting for, which raises `EngineLost` there."""
        try:
            self._socket.shutdown(_socket.SHUT_RDWR)
        except OSError:  # it has hung up already
            return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, method: str, path: str, body: bytes = b"", *, seconds: float) -> Response:
        """Return the response once its status arrives, in `seconds`; raises `EngineBusy` or `EngineLost`."""
        deadline = time.monotonic() + seconds
        silence_s = LOOK_SECONDS if path != _HEALTH else seconds
        try:
            self._socket.settimeout(max(0.001, seconds))
            self._socket.sendall(self._make_request_head(method, path, len(body)) + body)
        except OSError as error:
            raise EngineLost(f"the engine closed the connection ({type(error).__name__})") from None
        text = b""
        while b"\r\n\r\n" not in text:
            piece = self._receive(deadline, silence_s)
            if not piece or len(text) > _CHUNK:
                raise EngineLost(_NO_HTTP if text else "the engine stopped before it responded")
            text += piece
        head, _, begin_of_body = text.partition(b"\r\n\r\n")
        status, headers = _read_head(head)
        length = headers.get("content-length")
        expected = int(length) if length else None
        response = Response(status, self._yield_body(begin_of_body, expected, deadline, silence_s))
        if status == _BUSY:
            raise _busy(response, headers)
        return response

    def _make_request_head(self, method: str, path: str, length: int) -> bytes:
        token = ""
        if self._token:
            token = f"Authorization: Bearer {self._token}\r\n"
        # The server closes an HTTP/1.0 connection after its answer, so nothing is chunked.
        head = (
            f"{method} {path} HTTP/1.0\r\nHost: judgekit\r\n{token}"
            f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        )
        return head.encode("ascii")

    def _yield_body(
        self, piece: bytes, length: int | None, deadline: float, silence_s: float
    ) -> Iterator[bytes]:
        """Yield the body as it arrives; raises `EngineLost` if it's too long or ends too early."""
        have = len(piece)
        while True:
            if have > _MOST_ANSWER:
                raise EngineLost("lost the engine: its response is too long")
            if piece:
                yield piece
            if have == length:
                break
            piece = self._receive(deadline, silence_s)
            if not piece:
                break
            have += len(piece)
        if length not in (None, have):
            raise EngineLost("lost the engine: its response ended too early")

    def _receive(self, deadline: float, silence_s: float) -> bytes:
        """Return the next bytes, b"" if the engine hung up; raises `EngineLost` after the deadline."""
        while (now := time.monotonic()) < deadline:
            try:
                self._socket.settimeout(min(deadline - now, silence_s))
                return self._socket.recv(_CHUNK)
            except TimeoutError:
                left = deadline - time.monotonic()
            except OSError:  # reset: it was killed
                return b""
            if left > 0:
                try:
                    health(self.place, min(left, HEALTH_SECONDS))
                except EngineBusy:
                    continue
                except NoEngine:
                    break
        raise EngineLost("lost the engine: it did not respond in time")


def _read_head(head: bytes) -> tuple[int, dict[str, str]]:
    """Parse the status and the headers of a response; the headers' names become lower case."""
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    version, _, status = first[: len("HTTP/1.1 200")].partition(" ")
    length = headers.get("content-length", "")
    if not version.startswith("HTTP/1.") or not status.isdecimal():
        raise EngineLost(_NO_HTTP)
    if length and not length.isdecimal():
        raise EngineLost(_NO_HTTP)
    return int(status), headers


def _busy(response: Response, headers: dict[str, str]) -> EngineBusy:
    """Build the error for a refusal; the hook reads its message without a JSON parser."""
    _, _, rest = response.read().partition(b'"message": "')
    message = rest.partition(b'"')[0].decode(errors="replace")
    retry_after = 0.0
    wait = headers.get("retry-after", "")
    if wait.replace(".", "", 1).isdecimal():
        retry_after = float(wait)
    return EngineBusy(message or "it is too busy, or stopping", retry_after)


def ours(connection: _socket.socket) -> bool:
    """Whether the process at the other end of a Unix socket runs as this user, as far as we can tell."""
    try:
        if sys.platform == "linux":
            # Pid, uid, gid.
            raw = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
        elif sys.platform == "darwin":
            raw = connection.getsockopt(0, 1, 76)  # SOL_LOCAL, LOCAL_PEERCRED: version, uid, groups
        else:
            return True  # the folder's permissions protect it
    except OSError:
        return False
    return int.from_bytes(raw[4:8], sys.byteorder) == os.getuid()


def health(place: EngineAddress | None, seconds: float) -> bytes:
    with Connection(place) as connection:
        return connection.ask("GET", _HEALTH, seconds=seconds).read()


def start(place: EngineAddress | None) -> int | None:
    """Start a detached engine. Returns the process, which ends once the engine listens or fails, or None."""
    if place is None or not sys.executable:
        return None
    kept = {}
    for name, text in environment.environ().items():
        if name in (*_HANDED_ON, *SHARED):
            kept[name] = text
    kept.setdefault("MALLOC_ARENA_MAX", "2")  # glibc would keep memory for each of its threads
    words = programs.python("judgekit.engine.server", place.folder, place.compat_key, place.code)
    try:
        if os.name != "nt":
            null_streams = []
            for number in range(3):
                null_streams.append((os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0))
            return os.posix_spawn(sys.executable, words, kept, file_actions=null_streams)
        import subprocess  # noqa: PLC0415 - not needed elsewhere

        detached = 0x00000008 | 0x00000200  # DETACHED_PROCESS, CREATE_NEW_PROCESS_GROUP
        null = subprocess.DEVNULL
        return subprocess.Popen(  # noqa: S603 - our own interpreter and module
            words, env=kept, stdin=null, stdout=null, stderr=null, creationflags=detached
        ).pid
    except OSError:
        return None


def start_for_later() -> int | None:
    """Start an engine without waiting for it; raises `NoEngine` if that failed recently."""
    place = find(make=True)
    if place is None:
        return None
    try:
        age = abs(time.time() - os.stat(place.tried).st_mtime)  # the clock may have been set back
    except OSError:
        age = VAIN_SECONDS
    if age < VAIN_SECONDS:
        hint = "judgekit engine start shows the reason"
        raise NoEngine(f"an engine was started {age:.0f} s ago and is not ready; {hint}")
    try:
        os.close(os.open(place.tried, os.O_WRONLY | os.O_CREAT, 0o600))
        os.utime(place.tried)
    except OSError:  # a full disk: it could not listen, either
        return None
    return start(place)


def connect_or_start(seconds: float = START_SECONDS) -> Connection:
    """Connect to the engine, starting it if need be; raises `NoEngine` after `seconds`."""
    place = find()
    end = time.monotonic() + seconds
    starter: int | None = None
    ended: int | None = TAKEN
    while True:
        try:
            return Connection(place)
        except NoEngine as error:
            if ended not in (None, TAKEN) or time.monotonic() > end:
                raise NoEngine(f"the engine could not start ({error})") from None
        if ended == TAKEN:
            if starter is None:
                place = find(make=True)
            else:  # the other engine is just starting, or just leaving
                time.sleep(_TAKEN_POLL)
            starter = start(place)
        time.sleep(_POLL)
        ended = 1 if starter is None else _exit_code(starter)


def _exit_code(process: int) -> int | None:
    if os.name == "nt":
        return None
    try:
        ended, status = os.waitpid(process, os.WNOHANG)
    except OSError:  # somebody else has waited for it
        return 0
    return os.waitstatus_to_exitcode(status) if ended else None


def call(
    operation: str,
    body: Callable[[], bytes],
    read: Callable[[Response], Value],
    locally: Callable[[NoEngine], Value],
    *,
    use: bool = True,
    begin: Callable[[], Connection] = connect_or_start,
    seconds: float = SECONDS,
    warn: Callable[[str], None] | None = None,
) -> Value:
    """Run an operation on the engine, and return the result of `read` on its response.

    If that fails, `locally` does it, and `warn` gets a line unless the user has switched the engine off.
    """
    try:
        if not (use and wanted()):
            raise EngineOff("no engine is wanted")
        with begin() as connection:
            return read(connection.ask("POST", f"/v1/{operation}", body(), seconds=seconds))
    except NoEngine as error:
        reason = error
    if warn is not None and not isinstance(reason, EngineOff):
        warn(f"{reason}; continuing in this process")
    return locally(reason)


def carried(project: str | None = None, *, git: bool = False) -> dict[str, object]:
    """Return the fields that every request carries; git's own variables only with `git`."""
    environ = environment.environ()
    variables = {}
    for name, value in environ.items():
        if git or not name.startswith("GIT_"):
            variables[name] = value
    return {
        "environ": variables,
        "cwd": os.getcwd(),
        "project": project,
        "client": str(os.getpid()),
    }


def wanted() -> bool:
    """Whether the environment allows the engine; recordings and `-v` need the caller's own process."""
    environ = environment.environ()
    if any(environ.get(f"JUDGEKIT_{name}", "").strip() for name in ("REPLAY", "RECORD", "VERBOSE")):
        return False
    return environ.get("JUDGEKIT_ENGINE", "").strip().lower() not in ("0", "false", "no", "off")
