"""Where an engine listens and for whom, how it is started, and one HTTP request after the other to it.

Standard library only, and little of it: the prompt hook imports this, and `http.client` alone would cost it
more than a bare interpreter.
"""

from __future__ import annotations

import _socket
import os
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
LOOK_SECONDS = 2.0  # of silence after which the engine's health is checked
HEALTH_SECONDS = 3.0  # for that: it may be importing, and the machine busy
VAIN_SECONDS = 600.0  # until `start_for_later` starts an engine again that did not come up
TAKEN = 3  # exit code of an engine's process that finds another one in its place
_POLL = 0.005
_TAKEN_POLL = 0.1
_CHUNK = 65536
_MOST_ANSWER = 256_000_000  # bytes; a push of ten thousand files is a tenth of that
_BUSY = 503
_NO_HTTP = "lost the engine: its response is not HTTP"
# The clients of providers read these from their own process, not from their arguments: one engine serves
# callers with the same values.
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
SHARED = (
    *(*_PROXIES, *map(str.lower, _PROXIES)),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
)
# The rest of an engine's environment: how to find Python's modules and its own files. No key, nothing of git.
_HANDED_ON = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "TMP", "TEMP"),
    *("USERPROFILE", "SYSTEMROOT", "SYSTEMDRIVE", "APPDATA", "LOCALAPPDATA"),
    *("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "JUDGEKIT_HOME"),
    *("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "LD_LIBRARY_PATH"),
)
_own_code = ""


class NoEngine(Exception):  # noqa: N818 - a normal state, not an error
    """Why a caller continues without the engine: this class where none answers, else a subclass."""

    def tell(self, warn: Callable[[str], None]) -> None:
        warn(f"{self}; continuing in this process")


class EngineOff(NoEngine):
    """The user has switched it off, or replies are recorded or replayed."""

    def tell(self, warn: Callable[[str], None]) -> None:
        """Say nothing: the user wanted that."""


class NotStarted(NoEngine):
    """None answers, and none could be started."""


class EngineBusy(NoEngine):
    """Its queue is full, it is leaving, or cannot become ready; ask again in `retry_after` s."""

    def __init__(self, message: str, retry_after: float = 0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class EngineLost(NoEngine):
    """It went away before its answer was complete."""


class EngineHung(EngineLost):
    """It lives and does not answer: no other one can take its place."""


class EngineFault(NoEngine):
    """It met a fault of its own, or the request was too large."""


class EngineAddress:
    """The files of one engine in `folder`.

    `compat_key` is the same for all versions of judgekit that serve the same user and network, `code` for all
    processes that run the same version.
    """

    __slots__ = ("code", "compat_key", "door", "folder", "lock", "log", "socket", "stem", "tried")

    def __init__(self, folder: str, compat_key: str, code: str) -> None:
        self.folder, self.compat_key, self.code = folder, compat_key, code
        self.stem = stem = os.path.join(folder, f"engine-{compat_key}-{code}")
        self.socket = f"{stem}.sock"
        self.door = f"{stem}.port"  # holds its port and token, on systems without Unix sockets
        self.lock = f"{stem}.lock"  # held as long as it takes new work; contains its process id
        self.log = f"{stem}.log"
        self.tried = f"{stem}.tried"  # exists from a start without a waiting caller until an engine listens


def find(*, make: bool = False) -> EngineAddress | None:
    """Return the place of the engine for the current caller, None where no folder can be trusted.

    With `make` its folder is created.
    """
    global _own_code  # noqa: PLW0603 - `functools.cache` would have to be imported
    environ = environment.environ()
    if not _own_code:
        package = os.path.dirname(os.path.realpath(environment.__file__))
        stamp = "" if os.path.isdir(os.path.join(package, "_bundled")) else _stamp(package)
        version = f"{environment.__version__}\0{package}\0{stamp}"
        _own_code = environment.checksum(os.fsencode(version))[:12]
    network = [f"{name}={environ.get(name, '')}" for name in SHARED]
    key = "\0".join([os.path.expanduser("~"), *network])
    compat_key = environment.checksum(key.encode("utf-8", "surrogateescape"))[:12]
    runtime, temporary = environ.get("XDG_RUNTIME_DIR", ""), environ.get("TMPDIR", "")
    folders = [os.path.join(runtime, "judgekit")] if os.path.isabs(runtime) and private(runtime) else []
    folders.append(os.path.join(environment.cache_home(), "run"))
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
    """Whether `folder` is a real folder of this user that others cannot look into."""
    try:
        state = os.lstat(folder)
    except OSError:
        return False
    if os.path.islink(folder) or not os.path.isdir(folder):
        return False
    return os.name == "nt" or (state.st_uid == os.getuid() and not state.st_mode & 0o077)


def _stamp(package: str) -> str:
    """Return what changes with every edit of a checkout."""
    count = size = newest = 0
    for folder, folders, files in os.walk(package):
        folders[:] = [name for name in folders if "." not in name and name != "__pycache__"]
        for name in files:
            if name.endswith(".py"):
                state = os.stat(os.path.join(folder, name))
                count, size, newest = count + 1, size + state.st_size, max(newest, state.st_mtime_ns)
    return f"{count} {size} {newest}"


class Response:
    """A status, and a body whose pieces are read as they come; reading raises `EngineLost`."""

    def __init__(self, status: int, pieces: Iterator[bytes]) -> None:
        self.status, self.pieces = status, pieces

    def read(self) -> bytes:
        return b"".join(self.pieces)


class Connection:
    """A way to the engine at `place`, for one thread, connected anew for each request.

    Closing it ends the engine's work on the request. After every `look` seconds of silence the engine's
    health is checked; it counts as lost when it does not answer.
    """

    def __init__(self, place: EngineAddress | None = None) -> None:
        self.place = place or find()
        self.look = float("inf")
        self._socket: _socket.socket | None = None
        self._token = ""
        self._used = False

    def open(self) -> None:
        """Connect, unless it is; raises `NoEngine` when none of this user's answers in time."""
        if self._socket is not None:
            return
        place = self.place
        if place is None:
            raise NoEngine("no private folder for the engine's socket")
        none = f"no engine at {place.socket}"
        if not private(place.folder):
            raise NoEngine(f"{none} (its folder is not private)")
        unix, self._token = hasattr(_socket, "AF_UNIX") and not os.path.exists(place.door), ""
        connection = _socket.socket(_socket.AF_UNIX if unix else _socket.AF_INET, _socket.SOCK_STREAM)
        try:
            connection.settimeout(CONNECT_SECONDS)
            if unix:
                connection.connect(place.socket)
            else:
                with open(place.door, encoding="ascii", newline="\n") as file:
                    port, self._token = file.read().split()
                connection.connect(("127.0.0.1", int(port)))
        except (OSError, ValueError) as error:
            connection.close()
            raise NoEngine(f"{none} ({type(error).__name__})") from None
        if unix and not ours(connection):
            connection.close()
            raise NoEngine(f"{none} (another user's process answers there)")
        self._socket = connection

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._used = None, False

    def abort(self) -> None:
        """End the request of another thread on this connection, where it raises `EngineLost`, for good."""
        connection, self.place = self._socket, None
        try:
            if connection is not None:
                connection.shutdown(_socket.SHUT_RDWR)
        except OSError:  # it has hung up already
            return

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, method: str, path: str, body: bytes = b"", *, seconds: float) -> Response:
        """Send a request and return its answer as soon as the status is there.

        `seconds` bound the whole exchange. Raises `NoEngine`, `EngineBusy` or `EngineLost`.
        """
        end = time.monotonic() + seconds
        if self._used:
            self.close()
        self.open()
        assert self._socket is not None  # noqa: S101 - open
        self._used = True
        token = f"Authorization: Bearer {self._token}\r\n" if self._token else ""
        head = (  # after an answer to HTTP/1.0 the server hangs up: nothing is chunked
            f"{method} {path} HTTP/1.0\r\nHost: judgekit\r\n{token}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        try:
            self._socket.settimeout(max(0.001, end - time.monotonic()))
            self._socket.sendall(head.encode("ascii") + body)
        except OSError as error:
            raise self._lost(f"the engine closed the connection ({type(error).__name__})") from None
        text = b""
        while b"\r\n\r\n" not in text:
            piece = self._receive(end)
            if not piece or len(text) > _CHUNK:
                raise self._lost(_NO_HTTP if text else "the engine stopped before it responded")
            text += piece
        text, _, rest = text.partition(b"\r\n\r\n")
        first, *lines = text.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        version, _, status = first[:12].partition(" ")
        length = headers.get("content-length", "")
        if not (version.startswith("HTTP/1.") and status.isdecimal() and length.isdecimal() >= bool(length)):
            raise self._lost(_NO_HTTP)
        answer = Response(int(status), self._pieces(rest, int(length) if length else None, end))
        if answer.status == _BUSY:
            message = answer.read().partition(b'"message": "')[2].partition(b'"')[0].decode(errors="replace")
            wait = headers.get("retry-after", "")
            retry_after = float(wait) if wait.replace(".", "", 1).isdecimal() else 0.0
            raise EngineBusy(message or "it is too busy, or stopping", retry_after)
        return answer

    def _pieces(self, piece: bytes, length: int | None, end: float) -> Iterator[bytes]:
        """Yield a body, of which `piece` is the beginning, up to its length or else to the end."""
        have = len(piece)
        while True:
            if have > _MOST_ANSWER:
                raise self._lost("lost the engine: its response is too long")
            if piece:
                yield piece
            if have == length or not (piece := self._receive(end)):
                break
            have += len(piece)
        self.close()
        if length not in (None, have):
            raise EngineLost("lost the engine: its response ended too early")

    def _receive(self, end: float) -> bytes:
        """Return what comes next, nothing where it hung up; raises `EngineHung` when that is too late."""
        if self._socket is None:
            raise EngineLost("the connection was closed")
        while (now := time.monotonic()) < end:
            try:
                self._socket.settimeout(min(end - now, self.look))
                return self._socket.recv(_CHUNK)
            except TimeoutError:
                left = end - time.monotonic()
            except OSError:  # reset: it was killed
                return b""
            if left > 0:
                try:
                    health(self.place, min(left, HEALTH_SECONDS))
                except EngineBusy:
                    continue
                except NoEngine:
                    break
        raise self._lost("lost the engine: it did not respond in time", EngineHung)

    def _lost(self, why: str, kind: type[EngineLost] = EngineLost) -> EngineLost:
        self.close()
        return kind(why)


def ours(connection: _socket.socket) -> bool:
    """Whether the process at the other end of a Unix socket runs as the same user, as far as can be known."""
    try:
        if sys.platform == "linux":
            raw = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)  # pid, uid, gid
        elif sys.platform == "darwin":
            raw = connection.getsockopt(0, 1, 76)  # SOL_LOCAL, LOCAL_PEERCRED: version, uid, groups
        else:
            return True  # the folder's rights are what protects it
    except OSError:
        return False
    return int.from_bytes(raw[4:8], sys.byteorder) == os.getuid()


def health(place: EngineAddress | None, seconds: float) -> bytes:
    """Return the health of an engine, in JSON; raises `NoEngine`."""
    with Connection(place) as connection:
        return connection.ask("GET", "/v1/health", seconds=seconds).read()


def start(place: EngineAddress | None) -> int | None:
    """Start an engine, detached, and return the process that ends as soon as it listens, or cannot.

    Of several that are started at once all but one leave again. None: no folder, or no process to be had.
    """
    if place is None or not sys.executable:
        return None
    kept = {name: text for name, text in environment.environ().items() if name in (*_HANDED_ON, *SHARED)}
    words = programs.python("judgekit.engine.server", place.folder, place.compat_key, place.code)
    try:
        if os.name != "nt":
            nothing = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
            return os.posix_spawn(sys.executable, words, kept, file_actions=nothing)
        import subprocess  # noqa: PLC0415 - not needed elsewhere

        detached = 0x00000008 | 0x00000200  # DETACHED_PROCESS, CREATE_NEW_PROCESS_GROUP
        null = subprocess.DEVNULL
        return subprocess.Popen(  # noqa: S603 - our own interpreter and module
            words, env=kept, stdin=null, stdout=null, stderr=null, creationflags=detached
        ).pid
    except OSError:
        return None


def start_for_later() -> int | None:
    """Start an engine, as `start` does, for callers that do not wait for it.

    Raises `NoEngine` where that was in vain lately: a prompt must not cost a process each time that fails.
    """
    place = find(make=True)
    if place is None:
        return None
    try:
        age = abs(time.time() - os.stat(place.tried).st_mtime)  # the clock may have been set back
    except OSError:
        age = VAIN_SECONDS
    if age < VAIN_SECONDS:
        raise NoEngine(
            f"an engine was started {age:.0f} s ago and is not ready; judgekit engine start shows the reason"
        )
    try:
        os.close(os.open(place.tried, os.O_WRONLY | os.O_CREAT, 0o600))
        os.utime(place.tried)
    except OSError:  # a full disk: it could not listen, either
        return None
    return start(place)


def connect_or_start(seconds: float = START_SECONDS) -> Connection:
    """Return a connection to the engine, started when there is none; requests wait until it is ready.

    Raises `NotStarted` when none listens within `seconds`.
    """
    connection, end = Connection(), time.monotonic() + seconds
    starter: int | None = None
    ended: int | None = TAKEN
    while True:
        try:
            connection.open()
        except NoEngine as error:
            if ended not in (None, TAKEN) or time.monotonic() > end:
                raise NotStarted(f"the engine could not start ({error})") from None
        else:
            return connection
        if ended == TAKEN:
            if starter is None:
                connection.place = find(make=True)
            else:  # the other one is just beginning, or just leaving
                time.sleep(_TAKEN_POLL)
            starter = start(connection.place)
        time.sleep(_POLL)
        ended = 1 if starter is None else _exit_code(starter)


def _exit_code(process: int) -> int | None:
    """Return the exit code of a child that has ended, None while it runs; 0 when that cannot be known."""
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
) -> Value:
    """Have the engine do an operation, and return what `read` makes of its response.

    Where there is no engine or it fails, return what `locally` makes of the reason. `use` is whether the
    configuration allows an engine, `begin` finds one, `seconds` bound its work.
    """
    try:
        if not (use and wanted()):
            raise EngineOff("no engine is wanted")
        with begin() as connection:
            connection.look = LOOK_SECONDS
            return read(connection.ask("POST", f"/v1/{operation}", body(), seconds=seconds))
    except NoEngine as error:
        reason = error
    return locally(reason)


def carried(project: str | None = None, *, git: bool = False) -> dict[str, object]:
    """Return what every request contains: the caller's environment, folder, project and process.

    Git's own variables are left out unless `git` is true.
    """
    environ = environment.environ()
    variables = {name: value for name, value in environ.items() if git or not name.startswith("GIT_")}
    return {"environ": variables, "cwd": os.getcwd(), "project": project, "client": str(os.getpid())}


def wanted() -> bool:
    """Whether the environment allows the engine; recordings are made and replayed in the caller's process."""
    environ = environment.environ()
    if environ.get("JUDGEKIT_REPLAY", "").strip() or environ.get("JUDGEKIT_RECORD", "").strip():
        return False
    return environ.get("JUDGEKIT_ENGINE", "").strip().lower() not in ("0", "false", "no", "off")
