"""The environment that holds (the process's, or the one a request brought), and every file that is kept.

One process may work for several callers, each with keys and settings of its own. Standard library only: the
prompt hook imports this.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextvars import ContextVar
    from typing import Any

__version__ = "0.1.0"

# All of judgekit's variables, except JUDGEKIT_<SECTION>_<KEY> for configuration keys.
VARIABLE_NAMES = (
    *(
        "JUDGEKIT_API_BASE",
        "JUDGEKIT_API_KEY",
        "JUDGEKIT_DECISIONS_BASE",
        "JUDGEKIT_DECISIONS_KEY",
        "JUDGEKIT_DEEP_MODEL",
        "JUDGEKIT_DISABLE",
        "JUDGEKIT_ENGINE",
    ),
    *("JUDGEKIT_HOME", "JUDGEKIT_HOOK_BEFORE", "JUDGEKIT_INSIDE", "JUDGEKIT_LOCAL_MODEL"),
    *("JUDGEKIT_LOCAL_THREADS", "JUDGEKIT_MODEL", "JUDGEKIT_MODELS", "JUDGEKIT_ONLY_MODEL"),
    *(
        "JUDGEKIT_QUICK_MODEL",
        "JUDGEKIT_RECORD",
        "JUDGEKIT_REPLAY",
        "JUDGEKIT_SERVER_TOKEN",
        "JUDGEKIT_SKIP",
    ),
    *("JUDGEKIT_STATE_KEY", "JUDGEKIT_TIEBREAKER_MODEL", "JUDGEKIT_TRACEBACK", "JUDGEKIT_VERBOSE"),
)
ends_at_once = False  # set by a process that exits after one answer, without cleaning up
_override: ContextVar[Mapping[str, str] | None] | None = None  # created by the first override


def environ() -> Mapping[str, str]:
    """Return the current caller's environment variables."""
    override = None if _override is None else _override.get()
    return os.environ if override is None else override


def is_on(variable: str) -> bool:
    """Whether a variable is set to something other than 0, false, no or off."""
    return environ().get(variable, "").lower() not in ("", "0", "false", "no", "off")


class OverrideEnviron:
    """A context in which `environ` returns these variables, including in threads and tasks started there."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def __enter__(self) -> None:
        """Use these environment variables until the block ends."""
        global _override  # noqa: PLW0603 - one variable for the process
        if _override is None:
            # This import takes 3 % of Python's start-up time, so only do it when it's needed.
            from contextvars import ContextVar  # noqa: PLC0415 - imported lazily to start fast

            _override = ContextVar("environment", default=None)
        self._token = _override.set(self._variables)

    def __exit__(self, *_: object) -> None:
        if _override is not None:
            _override.reset(self._token)


MEMORY = os.path.join(".claude", "memory")
MEMORY_CONFIG = "memory-config.json"
_PROJECT_MARKERS = (".judgekit", MEMORY, ".git")
_PRIME = 2**64 - 59  # the largest below 2**64


def config_home() -> str:
    """Return the folder of the user's configuration, rubrics and providers."""
    return _find_home("", "XDG_CONFIG_HOME", ".config")


def cache_home() -> str:
    """Return the folder for files that can be recreated, such as indexes and downloaded models."""
    return _find_home("cache", "XDG_CACHE_HOME", ".cache")


def state_home() -> str:
    """Return the folder for files that can't be recreated, such as the ledger."""
    return _find_home("state", "XDG_STATE_HOME", os.path.join(".local", "state"))


def _find_home(subfolder: str, xdg_variable: str, xdg_default: str) -> str:
    """Return the path of one of judgekit's folders, such as ~/.config/judgekit.

    If JUDGEKIT_HOME is set, return its `subfolder`. Otherwise, return the folder `judgekit` in the XDG
    folder: the value of `xdg_variable` or, by default, `~/xdg_default`. Raises `ConfigError` if JUDGEKIT_HOME
    is relative.
    """
    judgekit_home = environ().get("JUDGEKIT_HOME")
    if judgekit_home:
        _require_absolute_home(judgekit_home)
        return os.path.join(judgekit_home, subfolder) if subfolder else judgekit_home

    xdg_folder = environ().get(xdg_variable, "")
    if not os.path.isabs(xdg_folder):  # the XDG specification says to ignore relative paths
        xdg_folder = os.path.join(os.path.expanduser("~"), xdg_default)
    return os.path.join(xdg_folder, "judgekit")


def _require_absolute_home(judgekit_home: str) -> None:
    """Raise `ConfigError` for a relative path, because it could lead into a repository."""
    if os.path.isabs(judgekit_home):
        return
    from judgekit.errors import ConfigError  # noqa: PLC0415 - imported lazily to keep the git hook fast

    problem = f"expected an absolute path, got {judgekit_home!r}"
    remedy = "write it out from the root, without ~"
    raise ConfigError(f"{problem}; {remedy}", key="JUDGEKIT_HOME")


def configuration_files(project: str) -> list[str]:
    """List the paths of the user's and the project's configuration files, which may not exist."""
    return [
        os.path.join(config_home(), "config.yaml"),
        os.path.join(project, ".judgekit", "config.yaml"),
        # The settings of another tool, which apply to the project's search
        os.path.join(project, MEMORY, MEMORY_CONFIG),
    ]


def find_project_root(start: str = ".") -> str:
    """Find the nearest project folder at or above `start`, or return `start` itself."""
    start = os.path.abspath(start)
    home = os.path.expanduser("~")
    for folder in walk_up(start):
        # A home folder often contains a .claude folder, but that doesn't make everything in it a project.
        is_home_above = folder == home and folder != start
        if is_home_above:
            continue
        if is_project(folder, start):
            return folder
    return start


def walk_up(path: str) -> Iterator[str]:
    """Yield a path and the folders above it, up to and including the root."""
    yield path
    parent = os.path.dirname(path)
    while parent != path:  # the root is its own parent
        yield parent
        path = parent
        parent = os.path.dirname(path)


def is_project(folder: str, start: str) -> bool:
    """Whether a folder is a project: it contains a marker, such as `.git`, which a trusted user has created.

    Root, the current user and the owner of `start` are trusted. This keeps other users from making, for
    example, /tmp a project.
    """
    markers = _find_project_markers(folder)
    if not markers:
        return False

    try:
        trusted_users = _list_trusted_users(start)
        is_world_writable = os.stat(folder).st_mode & 0o002
        has_trusted_owner = os.lstat(folder).st_uid in trusted_users
        if has_trusted_owner and not is_world_writable:
            return True
        # If others can write to the folder, as in /tmp, the markers must belong to trusted users.
        return all(os.lstat(marker).st_uid in trusted_users for marker in markers)
    except OSError:  # the folder or a marker was removed meanwhile
        return False


def _find_project_markers(folder: str) -> list[str]:
    """List the paths of a folder's project markers, such as `.git`."""
    paths = [os.path.join(folder, name) for name in _PROJECT_MARKERS]
    return [path for path in paths if os.path.exists(path)]


def _list_trusted_users(start: str) -> set[int]:
    """List the ids of root, the current user and the owner of `start`. Raises `OSError`."""
    trusted_users = {0}
    if hasattr(os, "getuid"):  # not on Windows
        trusted_users.add(os.getuid())
    # In a container, a mounted folder can belong to another user.
    if os.path.exists(start):
        trusted_users.add(os.lstat(start).st_uid)
    return trusted_users


def make_private_folder(path: str) -> str:
    """Create a folder and its missing parents, accessible to the owner only, and return its path."""
    if os.path.isdir(path):
        return path

    parent = os.path.dirname(path)  # "" for a relative path without folders
    is_root = parent == path
    if parent and not is_root:
        make_private_folder(parent)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        # Another process may have created the folder meanwhile, but a file is an error.
        if not os.path.isdir(path):
            raise
    return path


def make_file_name(path: str) -> str:
    """Return a unique file name for `path`: its readable end, and a checksum of the entire path."""
    raw = os.path.normcase(path).encode("utf-8", "surrogateescape")
    readable = "".join(char if char.isascii() and char.isalnum() else "-" for char in path[-40:])
    return f"{readable.strip('-')}-{checksum(raw)}"


def checksum(raw: bytes) -> str:
    """Return a checksum of 16 hexadecimal digits, which needs no import but isn't secure."""
    number = int.from_bytes(b"1" + raw, "big")  # because of the 1, leading zeros count
    return f"{number % _PRIME:016x}"


def read_toml(module_file: str, name: str) -> dict[str, Any]:
    """Read the TOML file `name` in the folder of a module's file."""
    import tomllib  # noqa: PLC0415 - imported lazily to keep the hooks fast

    folder = os.path.dirname(module_file)
    with open(os.path.join(folder, name), "rb") as file:
        return tomllib.load(file)


def digest(text: str) -> str:
    """Return a secure hash of 16 hexadecimal digits."""
    from _blake2 import blake2b  # noqa: PLC0415 - `hashlib` would cost the hook a tenth of its time

    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def get_file_stamp(path: str) -> tuple[int, ...] | None:
    """Return a value that changes whenever a file does, even if its mtime is reset. None if it's missing."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


# All files and folders that judgekit stores for a user outside projects


class Place:
    """A file or folder in one of judgekit's home folders: configuration, cache or data."""

    __slots__ = ("about", "home", "name")

    def __init__(self, home: Callable[[], str], name: str, about: str) -> None:
        self.home = home
        self.name = name
        self.about = about

    def path(self, *below: str) -> str:
        """Return the absolute path of this place, or of something below it."""
        return os.path.join(self.home(), self.name, *below)

    def make(self, *below: str) -> str:
        """Return the path of a folder, creating it for its owner only if it's missing. Raises `OSError`."""
        return make_private_folder(self.path(*below))


SETTINGS = Place(config_home, "config.yaml", "your settings")
RUBRICS = Place(config_home, "rubrics", "your rubrics")
PROVIDERS = Place(config_home, "providers", "your profiles of providers")
STORE_PROFILES = Place(config_home, "retrieval", "your profiles of stores")
CALIBRATIONS = Place(config_home, "calibrations", "what was learned from labels")
ACCEPTED_CALIBRATIONS = Place(
    config_home, "accepted.json", "calibrations of projects that you accepted"
)
NOISE = Place(config_home, "noise", "how far the scores of a judge move")
LABEL_SECRET = Place(config_home, "label-secret", "the secret behind the labels of a prompt")
STATE_KEY = Place(config_home, "state-key", "the key that seals results")

REPLIES = Place(cache_home, "replies.sqlite", "replies of models, for 30 days")
INDEXES = Place(cache_home, "index", "search indexes, one folder for each store")
HOOK_SETTINGS = Place(cache_home, "settings", "settings as the hook reads them")
NOTICES = Place(cache_home, "notices", "which notices the hook gave")
STOP_SESSIONS = Place(cache_home, "stop", "what was judged as an agent stopped")
GATE_RULES = Place(cache_home, "gate", "which files of a repository the gate judges")
ADDRESSES = Place(cache_home, "addresses", "what servers of models were seen to do")
PROXIES = Place(cache_home, "proxies", "what proxies say of their models")
RESULTS = Place(cache_home, "results", "which tables of results are as they were written")
MODELS = Place(cache_home, "models", "models that run on this machine")
MODEL_LOG = Place(cache_home, os.path.join("logs", "local-model.log"), "what they print")
ENGINES = Place(cache_home, "run", "the addresses of running engines")
DEMO = Place(cache_home, "demo", "the sample of `judgekit demo`")

LEDGER = Place(state_home, "ledger", "the ledger: verdicts, and what people said of them")
NOTIFIED_VERDICTS = Place(state_home, "notified", "which verdicts `escalate.notify` was told of")
ORIGINAL_FILES = Place(
    state_home, "installed.json", "files of other programs before judgekit changed them"
)
INJECTIONS = Place(state_home, "injections.jsonl", "the hook's log, if you switched it on")
SESSIONS = Place(state_home, "sessions", "what each session was shown")
RELEVANCE = Place(state_home, "relevance", "what you said of memories that the hook added")
SERVER = Place(state_home, "serve", "tokens and log of a shared judge")

PLACES = tuple(place for place in globals().values() if isinstance(place, Place))
