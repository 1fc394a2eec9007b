"""Where an engine listens, and for whom: a folder of its user's own, and a name that says what is alike.

Standard library and plain strings only: the prompt hook imports this.
"""

from __future__ import annotations

import os

from judgekit import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_PATH = 103  # bytes of a socket's path: macOS allows 104 with the zero at the end, Linux 108
# What the clients of providers read from their own process and not from their arguments: an engine serves
# those who have the same, and gets these, but no other variables of whoever starts it.
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
SHARED = (
    *(*_PROXIES, *map(str.lower, _PROXIES)),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
)
_own_code = ""


class EngineAddress:
    """The files of one engine in `folder`.

    `compat_key` is the same for all versions of judgekit that serve the same user and network, `code` for all
    processes that run the same version.
    """

    __slots__ = ("code", "compat_key", "door", "folder", "lock", "log", "socket", "stem", "tried")

    def __init__(self, folder: str, compat_key: str, code: str) -> None:
        self.folder, self.compat_key, self.code = folder, compat_key, code
        self.stem = stem = os.path.join(folder, f"engine-{compat_key}-{code}")
        self.socket = f"{stem}.sock"  # where it listens
        self.door = f"{stem}.port"  # where its port and token stand, on systems without Unix sockets
        self.lock = f"{stem}.lock"  # held as long as it takes new work; its process id stands in it
        self.log = f"{stem}.log"
        self.tried = f"{stem}.tried"  # there from a start that nobody waits for until an engine listens

    def leaving(self, process: int) -> str:
        """Return what a process holds that takes no new work any more, until its end."""
        return f"{self.stem}.{process}.leaving"


def find(*, make: bool = False) -> EngineAddress | None:
    """Return the place of the engine for the current caller, None where no folder can be trusted.

    With `make` its folder is there afterwards, without it only where somebody has made one.
    """
    environ = environment.environ()
    network = [f"{name}={environ.get(name, '')}" for name in SHARED]
    compat_key, code = _hash("\0".join([os.path.expanduser("~"), *network])), _code()
    for folder in _folders():
        place = EngineAddress(folder, compat_key, code)
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


def _folders() -> Iterator[str]:
    """Yield where an engine may listen, the best first; the last has a short name."""
    environ = environment.environ()
    runtime, temporary = environ.get("XDG_RUNTIME_DIR", ""), environ.get("TMPDIR", "")
    if os.path.isabs(runtime) and private(runtime):
        yield os.path.join(runtime, "judgekit")
    yield os.path.join(environment.cache_home(), "run")
    if os.name != "nt":
        for base in (temporary if os.path.isabs(temporary) else "/tmp", "/tmp"):  # noqa: S108 - looked at before it is used
            yield os.path.join(base, f"judgekit-{os.getuid()}")


def private(folder: str) -> bool:
    """Whether a folder is one, no link to one, and nobody's but ours to look into."""
    try:
        state = os.lstat(folder)
    except OSError:
        return False
    if os.path.islink(folder) or not os.path.isdir(folder):
        return False
    return os.name == "nt" or (state.st_uid == os.getuid() and not state.st_mode & 0o077)


def relatives(place: EngineAddress) -> list[EngineAddress]:
    """Return the places of other versions that serve the same user and network, whether they run or not."""
    codes = {code for code, kind in _named(place) if kind in ("sock", "port")}
    return [EngineAddress(place.folder, place.compat_key, code) for code in sorted(codes - {place.code})]


def leavers(place: EngineAddress) -> list[tuple[EngineAddress, int]]:
    """Return the engines of all versions, for the same user and network, that said they leave."""
    found = []
    for name, kind in _named(place):
        code, _, process = name.rpartition(".")
        if kind == "leaving" and process.isdecimal():
            found.append((EngineAddress(place.folder, place.compat_key, code), int(process)))
    return found


def _named(place: EngineAddress) -> Iterator[tuple[str, str]]:
    """Yield the files of all versions: what comes after the common part of their names, and their endings."""
    beginning = f"engine-{place.compat_key}-"
    for name in sorted(os.listdir(place.folder)):
        if name.startswith(beginning):
            stem, _, kind = name.rpartition(".")
            yield stem[len(beginning) :], kind


def _code() -> str:
    """Return what changes with the version; in a checkout also with every edit before this process began."""
    global _own_code  # noqa: PLW0603 - `functools.cache` would have to be imported
    if not _own_code:
        package = os.path.dirname(os.path.realpath(environment.__file__))
        installed = os.path.isdir(os.path.join(package, "_bundled"))
        _own_code = _hash(f"{environment.__version__}\0{package}\0{'' if installed else _stamp(package)}")
    return _own_code


def _stamp(package: str) -> str:
    count = size = newest = 0
    folders = [package]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    state = entry.stat()
                    count, size, newest = count + 1, size + state.st_size, max(newest, state.st_mtime_ns)
                elif "." not in entry.name and entry.name != "__pycache__" and entry.is_dir():
                    folders.append(entry.path)
    return f"{count} {size} {newest}"


def _hash(text: str) -> str:
    """Return the 64-bit FNV-1a hash: a name, not a secret, and importing `hashlib` costs the hook more."""
    value = 0xCBF29CE484222325
    for byte in text.encode("utf-8", "surrogateescape"):
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"[:12]
