"""The SQL of an index file: how it is laid out and opened. A change of layout needs a new `VERSION`."""

from __future__ import annotations

from judgekit.retrieval import columns
from judgekit.retrieval.sqljson import sqlite

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection, DatabaseError

VERSION = 2
COLUMNS = columns.NAMES
BUSY_SECONDS = 2.0  # how long a writer waits for another one; readers never wait

_CREATE = (
    "CREATE TABLE about (key TEXT PRIMARY KEY, value) WITHOUT ROWID",
    # One row a file that was read. `live` is 1 when it gave an entry; `hint` is what the store's index said.
    """CREATE TABLE file (
        number INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, size INTEGER, mtime INTEGER, inode INTEGER,
        hint TEXT, live INTEGER, problem TEXT,
        id TEXT, title TEXT, category TEXT, tags TEXT, updated REAL)""",
    "CREATE TABLE note (text TEXT)",  # what is wrong with the store's own index
    f"CREATE VIRTUAL TABLE text USING fts5({', '.join(columns.NAMES)}, tokenize = '{columns.TOKENIZER}')",
)


class NoFullTextError(Exception):
    """This interpreter's SQLite cannot search: it is missing, or built without FTS5."""


def available() -> bool:
    """Whether this interpreter's SQLite has FTS5."""
    if sqlite is None:
        return False
    connection = sqlite.connect(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE probe USING fts5(a)")
    except sqlite.OperationalError:
        return False
    finally:
        connection.close()
    return True


def connect(path: str) -> Connection:
    """Open an index file, or an empty database in memory for the path `:memory:`."""
    # Transactions are begun and ended by hand: the module's own ones would begin them too late.
    return sqlite.connect(path, timeout=BUSY_SECONDS, isolation_level=None)


def create(connection: Connection, root: str, version: str) -> None:
    """Lay out an empty index of `root`, read under the profile of `version`."""
    for statement in _CREATE:
        connection.execute(statement)
    about = [("root", root), ("profile", version)]
    connection.executemany("INSERT INTO about VALUES (?, ?)", about)


def about(connection: Connection) -> tuple[str, str]:
    """Return the root that an index is of, and the version of the profile it was read under."""
    rows = dict(connection.execute("SELECT key, value FROM about"))
    return rows.get("root", ""), rows.get("profile", "")


def is_busy(error: DatabaseError) -> bool:
    """Whether an error only says that another process is writing."""
    return _code(error) in (5, 6)  # SQLITE_BUSY, SQLITE_LOCKED


def is_damage(error: DatabaseError) -> bool:
    """Whether an error says that the file is no sound database of ours."""
    return _code(error) in (1, 11, 26)  # SQLITE_ERROR (a table is missing), SQLITE_CORRUPT, SQLITE_NOTADB


def is_missing_module(error: DatabaseError) -> bool:
    """Whether an error says that SQLite was built without FTS5."""
    return "no such module" in str(error)


def _code(error: DatabaseError) -> int:
    return getattr(error, "sqlite_errorcode", 1) & 0xFF
