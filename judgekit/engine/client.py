"""Asks the engine: one HTTP request after the other on a connection, written and read by hand.

Standard library only, and little of it: the prompt hook imports this, and `http.client` alone would cost it
more than a bare interpreter.
"""

from __future__ import annotations

import _socket
import os
import sys
import time

from judgekit import environment, programs
from judgekit.engine import address as places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self, TypeVar

    from judgekit.engine.address import EngineAddress

    Value = TypeVar("Value")

PROTOCOL = 1
CONNECT_SECONDS = 0.05  # to be let in; an engine that is busy lets in all the same
START_SECONDS = 15.0
SECONDS = 3600.0  # for an answer: the longest deadline that can be configured
LOOK_SECONDS = 2.0  # of silence after which an engine is asked whether it is well
HEALTH_SECONDS = 3.0  # that it may take to say so: it may be importing, and the machine busy
VAIN_SECONDS = 600.0  # until an engine that did not come up is started again by those who do not wait for it
TAKEN = 3  # exit code of whoever finds that another process is the engine already
_POLL = 0.005
_TAKEN_POLL = 0.1
_CHUNK = 65536
_MOST_HEAD = 65536
_MOST_ANSWER = 256_000_000  # bytes; a push of ten thousand files is a tenth of that
_BUSY = 503
# What an engine gets of the environment of whoever starts it: how to find Python's modules, its own files
# and the network. No key, nothing of git's, nothing of the session.
_HANDED_ON = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "TMP", "TEMP"),
    *("USERPROFILE", "SYSTEMROOT", "SYSTEMDRIVE", "APPDATA", "LOCALAPPDATA"),
    *("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "JUDGEKIT_HOME"),
    *("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "LD_LIBRARY_PATH"),
)


class NoEngine(Exception):  # noqa: N818 - a normal state, not an error
    """Why a caller goes on without the engine: this class where none answers, else a subclass."""

    another_may = True  # whether another engine may do what this one has not done

    def tell(self, warn: Callable[[str], None]) -> None:
        """Say that the work goes on without the engine, and why."""
        warn(f"{self}; continuing in this process")


class EngineOff(NoEngine):
    """The user has switched it off, or replies are recorded or played, which happens in the own process."""

    def tell(self, warn: Callable[[str], None]) -> None:
        """Say nothing: that is what the user wanted."""


class NotStarted(NoEngine):
    """None answers, and none could be started."""


class EngineBusy(NoEngine):
    """Its queue is full, it is leaving, or not ready for ever; ask again in `retry_after` s."""

    def __init__(self, message: str, retry_after: float = 0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class EngineLost(NoEngine):
    """It went away before its answer was whole."""


class EngineHung(EngineLost):
    """It lives and does not answer: no other one can take its place."""

    another_may = False


class EngineFault(NoEngine):
    """It met a fault of its own, or was sent more than it takes."""

    another_may = False


class Response:
    """A status, and a body that is read as it comes; reading raises `EngineLost`."""

    def __init__(self, status: int, pieces: Iterator[bytes]) -> None:
        self.status = status
        self._pieces = pieces

    def read(self) -> bytes:
        return b"".join(self._pieces)

    def lines(self) -> Iterator[bytes]:
        """Yield the body's lines as they come, without their ends."""
        rest = b""
        for piece in self._pieces:
            *whole, rest = (rest + piece).split(b"\n")
            yield from whole
        if rest:
            yield rest


class Connection:
    """A connection to the engine at `place`, opened when something is asked and kept for the next request.

    Not for several threads at once. Closing it in the middle of a request ends the engine's work on it.
    After every `look` seconds without anything the engine is asked whether it is well, and counts as lost
    when it is not.
    """

    def __init__(self, place: EngineAddress | None = None) -> None:
        self.place = place or places.find()
        self.look = float("inf")
        self._socket: _socket.socket | None = None
        self._token = ""
        self._buffer = b""
        self._whole = True  # whether all of the last answer was read
        self._served = False  # whether it has answered before

    def open(self) -> None:
        """Connect, unless it is; raises `NoEngine` when nobody of ours answers within `CONNECT_SECONDS`."""
        if self._socket is None:
            if self.place is None:
                raise NoEngine("no private folder for the engine's socket")
            try:
                self._socket, self._token = _connected(self.place)
            except (OSError, ValueError) as error:
                raise NoEngine(f"no engine at {self.place.socket} ({type(error).__name__})") from None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._buffer, self._whole = None, b"", True

    def abort(self) -> None:
        """End what another thread asks on this connection: there it raises `EngineLost`."""
        connection = self._socket
        if connection is not None:
            try:
                connection.shutdown(_socket.SHUT_RDWR)
            except OSError:  # it has hung up already
                return

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, method: str, path: str, body: bytes = b"", *, seconds: float) -> Response:
        """Send a request and return its answer, of which at least the status has come.

        `seconds` bound the whole exchange. Raises `NoEngine`, `EngineBusy` or `EngineLost`.
        """
        end = time.monotonic() + seconds
        if not self._whole:  # nobody wanted the rest of the last answer
            self.close()
        self.open()
        assert self._socket is not None  # noqa: S101 - open
        token = f"Authorization: Bearer {self._token}\r\n" if self._token else ""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: judgekit\r\n{token}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._whole = False
        try:
            self._socket.settimeout(max(0.001, end - time.monotonic()))
            self._socket.sendall(head.encode("ascii") + body)
            why = "stopped before it responded"
            self._buffer = self._receive(end)
        except OSError as error:
            why = f"closed the connection ({type(error).__name__})"
        if not self._buffer:
            self.close()
            if not self._served:
                raise EngineLost(f"the engine {why}")
            self._served = False  # it hung up while nobody asked, as it may
            return self.ask(method, path, body, seconds=end - time.monotonic())
        self._served = True
        status, headers = self._head(end)
        answer = Response(status, self._pieces(headers, end))
        if status == _BUSY:
            said = answer.read().partition(b'"message": "')[2].partition(b'"')[0].decode(errors="replace")
            retry_after = headers.get("retry-after", "0")
            raise EngineBusy(
                said or "it is too busy, or stopping",
                float(retry_after) if retry_after.replace(".", "", 1).isdecimal() else 0.0,
            )
        return answer

    def _head(self, end: float) -> tuple[int, dict[str, str]]:
        first, *lines = self._until(b"\r\n\r\n", end).decode("latin-1").split("\r\n")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        try:
            return int(first.split(" ")[1]), headers
        except (IndexError, ValueError):
            raise self._lost("its response is not HTTP") from None

    def _pieces(self, headers: dict[str, str], end: float) -> Iterator[bytes]:
        """Yield a body; when it is whole, the connection is ready for the next request, or closed."""
        if "chunked" in headers.get("transfer-encoding", ""):
            left = _MOST_ANSWER
            while size := self._size(self._until(b"\r\n", end).partition(b";")[0], 16):
                left -= size
                if left < 0:
                    raise self._lost("its response is too long")
                yield self._exactly(size, end)
                self._exactly(2, end)
            self._exactly(2, end)
        elif size := self._size(headers.get("content-length", "0"), 10):
            yield self._exactly(size, end)
        self._whole = True
        if headers.get("connection", "").lower() == "close":
            self.close()

    def _size(self, text: str | bytes, base: int) -> int:
        try:
            size = int(text, base)
        except ValueError:
            size = -1
        if not 0 <= size <= _MOST_ANSWER:
            raise self._lost("its response is not HTTP")
        return size

    def _until(self, mark: bytes, end: float) -> bytes:
        while mark not in self._buffer:
            if len(self._buffer) > _MOST_HEAD:
                raise self._lost("its response is not HTTP")
            self._buffer += self._more(end)
        found, _, self._buffer = self._buffer.partition(mark)
        return found

    def _exactly(self, count: int, end: float) -> bytes:
        pieces, have = [self._buffer], len(self._buffer)
        while have < count:
            pieces.append(self._more(end))
            have += len(pieces[-1])
        data = b"".join(pieces)
        self._buffer = data[count:]
        return data[:count]

    def _more(self, end: float) -> bytes:
        piece = self._receive(end)
        if not piece:
            raise self._lost("its response ended too early")
        return piece

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
            if left > 0 and not is_well(self.place, min(left, HEALTH_SECONDS)):
                break
        raise self._lost("it did not respond in time", EngineHung)

    def _lost(self, why: str, kind: type[EngineLost] = EngineLost) -> EngineLost:
        self.close()
        return kind(f"lost the engine: {why}")


def _connected(place: EngineAddress) -> tuple[_socket.socket, str]:
    """Return a connection to an engine that is ours, and the token it wants to see."""
    if not places.private(place.folder):
        raise OSError("the engine's folder is not private")
    unix, token = hasattr(_socket, "AF_UNIX") and not os.path.exists(place.door), ""
    kind: int = _socket.AF_UNIX if unix else _socket.AF_INET
    address: str | tuple[str, int] = place.socket
    if not unix:
        with open(place.door, encoding="ascii", newline="\n") as file:
            port, token = file.read().split()
        address = ("127.0.0.1", int(port))
    connection = _socket.socket(kind, _socket.SOCK_STREAM)
    try:
        connection.settimeout(CONNECT_SECONDS)
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    if unix and not ours(connection):
        connection.close()
        raise OSError("another user's process answers there")
    return connection, token


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


def is_well(place: EngineAddress | None, seconds: float = HEALTH_SECONDS) -> bool:
    """Whether the engine at a place answers at all."""
    try:
        health(place, seconds)
    except EngineBusy:
        return True
    except NoEngine:
        return False
    return True


def health(place: EngineAddress | None, seconds: float) -> bytes:
    """Return what an engine says of itself, in JSON; raises `NoEngine`."""
    with Connection(place) as connection:
        return connection.ask("GET", "/v1/health", seconds=seconds).read()


def start(place: EngineAddress | None = None) -> int | None:
    """Start an engine, detached, and return the id of the process that sets it up.

    Whoever comes second when several start one at once leaves again. The process that is returned ends as
    soon as the engine listens, or cannot. None: there is no folder to listen in, or no process to be had.
    """
    place = place or places.find(make=True)
    if place is None or not sys.executable:
        return None
    given = environment.environ()
    kept = {name: given[name] for name in (*_HANDED_ON, *places.SHARED) if name in given}
    words = programs.python("judgekit.engine.server", place.folder, place.compat_key, place.code)
    try:
        if os.name != "nt":
            nothing = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
            return os.posix_spawn(sys.executable, words, kept, file_actions=nothing)
        import subprocess  # noqa: PLC0415 - not needed elsewhere

        detached = 0x00000008 | 0x00000200  # DETACHED_PROCESS, CREATE_NEW_PROCESS_GROUP
        null = subprocess.DEVNULL
        started = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            words, env=kept, stdin=null, stdout=null, stderr=null, creationflags=detached
        )
    except OSError:
        return None
    return started.pid


def start_for_later(place: EngineAddress | None = None) -> int | None:
    """Start an engine that nobody waits for, as `start` does.

    Raises `NoEngine` where that was in vain lately, as without the packages that an engine needs: a prompt
    must not cost a process each time that fails.
    """
    place = place or places.find(make=True)
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
    """Return a connection to the engine, which is started when there is none; it may not be ready yet.

    Requests to it wait until it is. Raises `NotStarted` when none listens within `seconds`.
    """
    connection = Connection()
    try:
        connection.open()
    except NoEngine:
        connection.place = places.find(make=True)
    else:
        return connection
    end = time.monotonic() + seconds
    starter = start(connection.place)
    while True:
        ended = starter is None or _exit_code(starter)
        try:
            connection.open()
            break
        except NoEngine as error:
            if ended not in (None, TAKEN) or time.monotonic() > end:
                raise NotStarted(f"the engine could not start ({error})") from None
        if ended == TAKEN:  # by one that is just beginning, or just leaving
            time.sleep(_TAKEN_POLL)
            starter = start(connection.place)
        time.sleep(_POLL)
    end = time.monotonic() + 1  # nothing shall be left of a child that is about to end
    while starter is not None and ended is None and time.monotonic() < end:
        ended = _exit_code(starter)
        time.sleep(0.001)
    return connection


def _exit_code(process: int) -> int | None:
    """Return the exit code of a child that has ended, None while it runs; 0 when that cannot be known."""
    if os.name == "nt":
        return None
    try:
        ended, status = os.waitpid(process, os.WNOHANG)
    except OSError:  # somebody else has waited for it
        return 0
    return os.waitstatus_to_exitcode(status) if ended else None


def wait_until_ready(seconds: float = START_SECONDS) -> bool:
    """Wait until the engine has loaded what judging needs; False when it has not within `seconds`."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        try:
            told = health(None, left)
        except NoEngine:
            told = b""
        if b'"ready":true' in told or b'"failure":"' in told:
            return b'"ready":true' in told
        time.sleep(_POLL)
    return False


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

    Where it cannot be had or does not do it, return what `locally` makes of the reason. `use` is what the
    configuration says of using an engine, `begin` finds one, `seconds` bound its work. An error in what was
    asked is none of the engine's: `read` raises it.
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
    """Return what every request brings along: the caller's environment, folder, project and process.

    Git's own variables stay here unless `git` says otherwise.
    """
    given = environment.environ()
    variables = {name: value for name, value in given.items() if git or not name.startswith("GIT_")}
    return {"environ": variables, "cwd": os.getcwd(), "project": project, "client": str(os.getpid())}


def wanted() -> bool:
    """Whether the variable JUDGEKIT_ENGINE lets the engine be asked; what the user's file says comes on top.

    Recordings are made, and played, in the process that was asked for them.
    """
    given = environment.environ()
    if given.get("JUDGEKIT_REPLAY", "").strip() or given.get("JUDGEKIT_RECORD", "").strip():
        return False
    return given.get("JUDGEKIT_ENGINE", "").strip().lower() not in ("0", "false", "no", "off")
