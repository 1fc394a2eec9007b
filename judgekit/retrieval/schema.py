"""The SQL of an index file: how it is laid out and opened, and what its errors mean.

A change that the existing files can follow is one more entry of `MIGRATIONS`; any other one needs a new
`VERSION`, which is part of the file's name, so that two versions of this program do not fight over one file.
"""

from __future__ import annotations

import os

from judgekit.retrieval import columns
from judgekit.retrieval.sqljson import sqlite

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from sqlite3 import Connection, DatabaseError
    from typing import Any

VERSION = 3
BUSY_SECONDS = 0.3  # how long a writer waits for another one, once a query; readers never wait

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE about (key TEXT PRIMARY KEY, value) WITHOUT ROWID",
        # What is looked at before every query: folders (`x`, `y`, `z` are ctime, mtime, inode) and the
        # store's own files (as in `file`). What was read too soon after its last change is not `sure`.
        """CREATE TABLE watch (number INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, folder INTEGER NOT NULL,
            x INTEGER, y INTEGER, z INTEGER, sure INTEGER NOT NULL)""",
        # One row a file, `pending` until it is read. `inode` is mixed with the ctime, see watch.py. `live` is
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
    # In how many entries each stem of the table `text` occurs, see columns.py.
    ("CREATE TABLE term (term TEXT PRIMARY KEY, entries INTEGER NOT NULL) WITHOUT ROWID",),
)
_CREATE = (  # what columns.py decides, and no migration can follow
    f"CREATE VIRTUAL TABLE text USING fts5({', '.join(columns.NAMES)}, tokenize = '{columns.TOKENIZER}')",
)
_BUSY = (5, 6)  # SQLITE_BUSY, SQLITE_LOCKED
_READ_ONLY = (8, 14)  # SQLITE_READONLY, SQLITE_CANTOPEN
_DAMAGE = (1, 11, 26)  # SQLITE_ERROR (a table is missing), SQLITE_CORRUPT, SQLITE_NOTADB
# What our code raises over a sound database with spoilt values: no text, no such kind, a number for a path.
SPOILT = (ValueError, TypeError, AttributeError, LookupError, StopIteration, ArithmeticError)


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


def connect(path: str, *, uri: bool = False) -> Connection:
    """Open an index file, or an empty database in memory for the path `:memory:`."""
    # Transactions are begun and ended by hand: the module's own ones would begin them too late.
    opened: Connection = sqlite.connect(path, timeout=BUSY_SECONDS, isolation_level=None, uri=uri)
    return opened


def connect_read_only(path: str) -> Connection:
    """Open an index file where nothing can be written; raises `OSError` when it is in use elsewhere."""
    if os.path.exists(path + "-wal") and os.path.getsize(path + "-wal"):
        raise OSError(f"{path}: not all of it is in one file")
    escaped = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return connect(f"file:{escaped}?immutable=1", uri=True)


def create(connection: Connection, about: dict[str, Any]) -> None:
    """Lay out an empty index and note what it is `about`."""
    migrate(connection, 0)
    for statement in _CREATE:
        connection.execute(statement)
    put(connection, about.items())


def migrate(connection: Connection, reached: int) -> None:
    """Bring the layout from step `reached` to the last one, all or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in (each for step in MIGRATIONS[reached:] for each in step):
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
        migrate(connection, reached)
    return dict(connection.execute("SELECT key, value FROM about").fetchall())


def put(connection: Connection, pairs: Iterable[tuple[str, Any]]) -> None:
    """Note what an index says of itself."""
    connection.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", pairs)


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


def is_missing_module(error: DatabaseError) -> bool:
    """Whether an error says that SQLite was built without FTS5."""
    return "no such module" in str(error)


def _code(error: DatabaseError) -> int:
    return getattr(error, "sqlite_errorcode", 1) & 0xFF
