"""The file of an index: its place in the cache, its tables, and what SQLite's errors over it mean.

A store has one file at a time. A new one replaces it as the next generation: `v3.0.sqlite`, `v3.1.sqlite`.
The first number is `VERSION`, so that two versions of this program do not fight over one file. A change that
existing files can follow is one more entry of `MIGRATIONS`; any other change needs a new `VERSION`.

Times on a file system are coarse: what changes twice within one tick looks as if it had changed once. So what
was read too soon after its last change is not sure, and is looked at again. How soon that is depends on the
tick, which shows in the time itself: full seconds, or fractions of them.
"""

from __future__ import annotations

import os
import sys
import time

from judgekit import environment
from judgekit.retrieval.query import hidden_words
from judgekit.retrieval.stemmer import stems

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from sqlite3 import Connection, DatabaseError
    from typing import Any, TypeAlias

    from judgekit.retrieval.compiled import Language, Profile, Profiles
    from judgekit.retrieval.sources.base import Entry

    Progress: TypeAlias = Callable[[int, int], None]  # files that were read, and files to read
    # Of a file size, mtime_ns, and inode mixed with ctime_ns; of a folder ctime_ns, mtime_ns, inode.
    Stamp: TypeAlias = tuple[int, int, int]

FOLDER = "index"
VERSION = 3
COLUMNS_VERSION = 2
NAMES = ("title", "tags", "body", "parts")
BUSY_SECONDS = 0.3  # how long a writer waits for another one, once a query; readers never wait
MEMORY_FILES = 5_000  # files that are read into memory where no file can be kept: about a second

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE about (key TEXT PRIMARY KEY, value) WITHOUT ROWID",
        # What is looked at before every query: folders (`x`, `y`, `z` are ctime, mtime, inode) and the
        # store's own files (as in `file`). What was read too soon after its last change is not `sure`.
        """CREATE TABLE watch (number INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, folder INTEGER NOT NULL,
            x INTEGER, y INTEGER, z INTEGER, sure INTEGER NOT NULL)""",
        # One row a file, `pending` until it is read. `inode` is mixed with the ctime, see `look`. `live` is
        # 1 when it gave an entry; `hint` is what the store's own index said of it; `read` is when, in
        # nanoseconds; `digest` is of all that was found.
        """CREATE TABLE file (
            number INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, folder INTEGER NOT NULL,
            pending INTEGER NOT NULL DEFAULT 1, size INTEGER, mtime INTEGER, inode INTEGER,
            read INTEGER NOT NULL DEFAULT 0, hint TEXT, live INTEGER NOT NULL DEFAULT 0, digest INTEGER,
            problem TEXT, id TEXT, title TEXT, category TEXT, tags TEXT, updated REAL)""",
        "CREATE INDEX file_folder ON file (folder)",
        "CREATE INDEX file_pending ON file (number) WHERE pending",
        "CREATE INDEX file_problem ON file (path) WHERE problem IS NOT NULL",
        "CREATE TABLE note (place TEXT NOT NULL, text TEXT NOT NULL)",  # what is wrong beside single files
    ),
    # In how many entries each stem of the table `text` occurs; the row `TOTAL` counts all words.
    ("CREATE TABLE term (term TEXT PRIMARY KEY, entries INTEGER NOT NULL) WITHOUT ROWID",),
)
# No migration can follow a change of this table. It holds stems: all the rest was done before.
_TEXT_TABLE = (
    f"CREATE VIRTUAL TABLE text USING fts5({', '.join(NAMES)}, tokenize = 'unicode61 remove_diacritics 2')"
)
ADD_TEXT = f"INSERT INTO text (rowid, {', '.join(NAMES)}) VALUES (?, ?, ?, ?, ?)"  # noqa: S608 - names of ours
TOTAL = ""
_COUNT = """INSERT INTO term (term, entries) VALUES (?, ?)
    ON CONFLICT (term) DO UPDATE SET entries = entries + excluded.entries"""
_FORGET = "DELETE FROM term WHERE term = ? AND entries <= 0"
_PROBLEMS = (
    "SELECT text FROM note UNION ALL SELECT path || ': ' || problem FROM file WHERE problem IS NOT NULL"
)

_BUSY = (5, 6)  # SQLITE_BUSY, SQLITE_LOCKED
_READ_ONLY = (8, 14)  # SQLITE_READONLY, SQLITE_CANTOPEN
_DAMAGE = (1, 11, 26)  # SQLITE_ERROR (a table is missing), SQLITE_CORRUPT, SQLITE_NOTADB
# What our code raises over a sound database with spoilt values: no text, no such kind, a number for a path.
SPOILT = (ValueError, TypeError, AttributeError, LookupError, StopIteration, ArithmeticError)

_MAKING = ".making"
_ABANDONED = 600  # seconds after which what is still being laid out belongs to a process that was killed
_UNUSED = 30 * 86_400  # seconds after which the file of another version of this program goes

WINDOW = 2_000_000_000  # nanoseconds: the coarsest tick in use (FAT), where times are full seconds
FINE_WINDOW = 100_000_000  # nanoseconds: many ticks of a file system that tells less than seconds
_SECOND = 1_000_000_000
_DAY = 86_400 * _SECOND
_SIGNED = 2**63 - 1  # what fits into a column


class _Statements(dict[str, "Any"]):
    """The prepared statements of a connection."""

    def __init__(self, prepare: Callable[[str], Any]) -> None:
        self._prepare = prepare

    def __missing__(self, statement: str) -> Any:  # noqa: ANN401 - a statement of `_sqlite3`
        self[statement] = prepared = self._prepare(statement)
        return prepared


class _OneFunction:
    """All that `_sqlite3` takes from `functools`: what makes the cache of statements a connection has.

    It keeps them all, for as long as the connection is open: for one search.
    """

    @staticmethod
    def lru_cache(_size: int) -> Callable[[Any], Any]:
        return lambda prepare: _Statements(prepare).__getitem__


def _import_sqlite() -> Any:  # noqa: ANN401 - the module; its stubs are those of sqlite3
    """Import `_sqlite3`, without all that `sqlite3` imports, and without `functools`.

    The latter is a quarter of the cost of starting Python, for one function written in C. Whoever imports it
    later gets the real one. Raises `ImportError` for an interpreter without SQLite, or another than CPython.
    """
    if "functools" not in sys.modules and sys.implementation.name == "cpython":
        stand_in: Any = _OneFunction
        sys.modules["functools"] = stand_in
        try:
            import _sqlite3  # noqa: PLC0415 - see above
        except AttributeError:  # a version that takes more from functools
            sys.modules.pop("_sqlite3", None)
        else:
            return _sqlite3
        finally:
            del sys.modules["functools"]
    import _sqlite3  # noqa: PLC0415 - the usual way

    return _sqlite3


sqlite: Any
try:
    sqlite = _import_sqlite()
except ImportError:
    sqlite = None


class NoFullTextError(Exception):
    """This interpreter's SQLite cannot search: it is missing, or built without FTS5."""


class Index:
    """An open index of the store at `root`, a real path.

    `size` is the number of entries, `pending` that of files still to be read, `left_out` that of files which
    were too many. `outdated` are the files that the last `recheck` found changed.
    """

    builder: int
    kind: str
    pending: int
    size: int
    updated: int

    def __init__(
        self, connection: Connection, root: str, profiles: Profiles, path: str | None = None
    ) -> None:
        self.connection, self.root, self.profiles, self.path = connection, root, profiles, path
        self.folders = self.left_out = 0
        self.outdated: set[str] = set()
        self.trouble: str | None = None

    def load(self, about: dict[str, Any]) -> None:
        """Take over what the file says of itself."""
        self.kind, self.size, self.pending = about["kind"], about["size"], about["pending"]
        self.folders, self.updated, self.builder = about["folders"], about["updated"], about["builder"]

    @property
    def profile(self) -> Profile:
        """How the kind of store is read and ranked."""
        return self.profiles.by_kind[self.kind]

    def notes(self) -> list[str]:
        """Return one line for each problem of the store's files, and for what is missing in the index."""
        notes = []
        if self.pending:
            notes.append(f"{self.root}: {self.pending:,} files not read yet; the next query continues")
        if self.left_out:
            most = f"only the newest {MEMORY_FILES:,} files are searched, because no index can be stored"
            notes.append(f"{self.root}: {most}")
        if self.trouble is not None:
            notes.append(self.trouble)
        return notes + problems(self.connection)

    def close(self) -> None:
        self.connection.close()


def clock() -> int:
    """Return the time in nanoseconds, as file systems count it."""
    return time.time_ns()


def look(path: str) -> Stamp | None:
    """Return what tells whether a file changed, None when it is gone.

    The change time is part of it: tools that write into a file may set size and modification time back.
    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, (status.st_ino ^ status.st_ctime_ns) & _SIGNED


def look_at_folder(path: str) -> Stamp | None:
    """Return what tells whether entries of a folder came, went or changed places, None when it is gone."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ctime_ns, status.st_mtime_ns, status.st_ino


def is_sure(changed: int, read: int) -> bool:
    """Whether what was last `changed` (by the file system's clock) cannot have changed unseen after `read`.

    A time more than a day ahead was set by somebody and is no clock's: the next change sets another one.
    """
    return read - changed >= (FINE_WINDOW if changed % _SECOND else WINDOW) or changed - read > _DAY


def row(entry: Entry, language: Language) -> tuple[str, ...]:
    """Return the stems of each column for one entry, in the order of `NAMES`."""
    shown = (entry.title, " ".join(entry.tags), entry.body)
    hidden = hidden_words("\n".join(shown), language)
    return tuple(" ".join(stems(text, language)) for text in (*shown, hidden))


class TermCounts:
    """Counts in how many entries of an index each stem occurs; `write` before the transaction ends."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._changes: dict[str, int] = {}

    def count(self, texts: Iterable[str], change: int) -> None:
        """Count the row of an entry that is put in (`change` 1) or taken out (-1)."""
        words = [word for text in texts for word in text.split()]
        changes = self._changes
        changes[TOTAL] = changes.get(TOTAL, 0) + change * len(words)
        for word in set(words):
            changes[word] = changes.get(word, 0) + change

    def write(self) -> None:
        """Bring the changes into the table `term`."""
        changed = [(term, change) for term, change in self._changes.items() if change]
        self._connection.executemany(_COUNT, changed)
        self._connection.executemany(_FORGET, [(term,) for term, change in changed if change < 0])
        self._changes.clear()


def frequencies(connection: Connection, stems: Sequence[str]) -> dict[str, int]:
    """Return in how many entries each of several stems occurs."""
    marks = ", ".join("?" * len(stems))
    query = f"SELECT term, entries FROM term WHERE term IN ({marks})"  # noqa: S608 - question marks
    return dict(connection.execute(query, stems).fetchall())


def available() -> bool:
    """Whether this interpreter's SQLite has FTS5."""
    if sqlite is None:
        return False
    connection = connect(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE probe USING fts5(a)")
    except sqlite.OperationalError:
        return False
    finally:
        connection.close()
    return True


def connect(path: str, *, uri: bool = False) -> Connection:
    """Open an index file, or an empty database in memory for the path `:memory:`."""
    # Transactions are begun and ended by hand: the module's own ones would begin them too late.
    opened: Connection = sqlite.connect(path, timeout=BUSY_SECONDS, isolation_level=None, uri=uri)
    return opened


def connect_read_only(path: str) -> Connection:
    """Open an index file where nothing can be written; raises `OSError` when it is in use elsewhere."""
    if os.path.exists(path + "-wal") and os.path.getsize(path + "-wal"):
        raise OSError(f"{path}: parts of it are in another file")
    escaped = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return connect(f"file:{escaped}?immutable=1", uri=True)


def create(connection: Connection, about: dict[str, Any]) -> None:
    """Lay out an empty index and note what it is `about`."""
    _migrate(connection, 0)
    connection.execute(_TEXT_TABLE)
    put(connection, about)


def _migrate(connection: Connection, reached: int) -> None:
    """Bring the layout from step `reached` to the last one, all or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in (statement for step in MIGRATIONS[reached:] for statement in step):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def about(connection: Connection) -> dict[str, Any]:
    """Return what an index says of itself, its layout brought up to date before."""
    (reached,) = connection.execute("PRAGMA user_version").fetchone()
    if 0 < reached < len(MIGRATIONS):
        _migrate(connection, reached)
    return dict(connection.execute("SELECT key, value FROM about").fetchall())


def new_about(root: str, profiles: Profiles) -> dict[str, Any]:
    """Return what an empty index says of itself."""
    counts = {"kind": "", "size": 0, "pending": 0, "folders": 0}
    return {"root": root, "read_by": read_by(profiles), **counts, "updated": clock(), "builder": os.getpid()}


def put(connection: Connection, about: dict[str, Any]) -> None:
    """Note what an index says of itself."""
    connection.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", about.items())


def read_by(profiles: Profiles) -> str:
    """Return what changes when stores would be read differently."""
    read = [
        (
            kind,
            {name: (category.folder, category.body) for name, category in profile.categories.items()},
            profile.max_bytes,
        )
        for kind, profile in profiles.by_kind.items()
    ]
    words = [profile.language.fingerprint for profile in profiles.by_kind.values()]
    return environment.checksum(repr((COLUMNS_VERSION, read, words)).encode())


def problems(connection: Connection) -> list[str]:
    """Return one line for each problem of a store's files."""
    return [text for (text,) in connection.execute(_PROBLEMS).fetchall()]


def is_busy(error: DatabaseError) -> bool:
    """Whether an error only says that another process is writing."""
    return _code(error) in _BUSY


def is_read_only(error: BaseException) -> bool:
    """Whether an error says that nothing can be written here."""
    return isinstance(error, sqlite.DatabaseError) and _code(error) in _READ_ONLY


def is_damage(error: BaseException) -> bool:
    """Whether an error says that the file is no sound database of ours."""
    if isinstance(error, sqlite.DatabaseError):
        return _code(error) in _DAMAGE
    return isinstance(error, SPOILT)


def _code(error: DatabaseError) -> int:
    return getattr(error, "sqlite_errorcode", 1) & 0xFF


def path_of(root: str) -> str | None:
    """Return the newest index file of a store, None when there is none."""
    folder = os.path.join(environment.cache_home(), FOLDER, environment.file_name_for(root))
    newest = _newest(folder)
    return None if newest is None else f"{folder}/v{VERSION}.{newest}.sqlite"


def _newest(folder: str) -> int | None:
    """Return the newest generation of the index files in a folder."""
    start, end = f"v{VERSION}.", ".sqlite"
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    found = [name[len(start) : -len(end)] for name in names if name.startswith(start) and name.endswith(end)]
    return max((int(number) for number in found if number.isdecimal()), default=None)


def replace(root: str, profiles: Profiles, path: str | None) -> None:
    """Make an empty index file in place of the one at `path`, unless another process has, and remove that."""
    folder = environment.cache_folder(FOLDER, environment.file_name_for(root))
    newest = _newest(folder)
    if newest is not None and path != f"{folder}/v{VERSION}.{newest}.sqlite":
        return
    next_one = 0 if newest is None else newest + 1
    _make(f"{folder}/v{VERSION}.{next_one}.sqlite", new_about(root, profiles))
    for generation in range(next_one):
        _unlink(f"{folder}/v{VERSION}.{generation}.sqlite")
    _sweep(folder)


def _make(path: str, about: dict[str, Any]) -> None:
    """Lay out an empty index file, unless another process was quicker."""
    temporary = f"{os.path.dirname(path)}/{os.getpid()}{_MAKING}"
    _unlink(temporary)
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        connection = connect(temporary)
        try:
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")
            create(connection, about)
            connection.execute("PRAGMA journal_mode = WAL")
        finally:
            connection.close()
        try:
            os.link(temporary, path)
        except FileExistsError:  # another process was quicker, and as right
            return
    finally:
        _unlink(temporary)


def _sweep(folder: str) -> None:
    """Remove what killed processes left half made, and what other versions of this program left long ago."""
    with os.scandir(folder) as entries:
        for entry in list(entries):
            if entry.name.startswith(f"v{VERSION}."):
                continue
            limit = _ABANDONED if _MAKING in entry.name else _UNUSED
            try:
                if time.time() - entry.stat().st_mtime > limit:
                    os.unlink(entry.path)
            except OSError:  # it has been finished or swept meanwhile, or is none of ours
                continue


def _unlink(path: str) -> None:
    """Remove a database with what SQLite keeps beside it, as far as it is there."""
    for suffix in ("", "-wal", "-shm"):
        try:
            os.unlink(path + suffix)
        except FileNotFoundError:
            continue
