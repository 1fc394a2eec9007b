"""The SQL of an index file: how it is laid out and opened, and what its errors mean.

A change that the existing files can follow is one more entry of `MIGRATIONS`; any other one needs a new
`VERSION`, which is part of the file's name, so that two versions of this program do not fight over one
file.

What the full-text table holds: its columns, its tokenizer, the row of an entry, how common words are.

Makes and replaces the index files of one store: each in a folder of its own, generation after generation.
"""

from __future__ import annotations

import os
import time

from judgekit.retrieval.query import hidden_words
from judgekit.retrieval.sqljson import sqlite
from judgekit.retrieval.stemmer import stems

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from sqlite3 import Connection, DatabaseError
    from typing import Any

    from judgekit.retrieval.compiled import Language
    from judgekit.retrieval.sources.base import Entry


COLUMNS_VERSION = 2
NAMES = ("title", "tags", "body", "parts")
TOKENIZER = "unicode61 remove_diacritics 2"  # of stems: all the rest was done before

TOTAL = ""  # the row of `term` that counts the words of all entries
_COUNT = """INSERT INTO term (term, entries) VALUES (?, ?)
    ON CONFLICT (term) DO UPDATE SET entries = entries + excluded.entries"""
_FORGET = "DELETE FROM term WHERE term = ? AND entries <= 0"
_STARTING = "SELECT term, entries FROM term WHERE term >= ? AND term < ?"
_AFTER_ALL = "\U0010ffff"


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

    def add(self, texts: Iterable[str]) -> None:
        """Count the row of an entry that is put in."""
        self._count(texts, 1)

    def remove(self, number: int) -> None:
        """Take back the row of an entry that is still in the table `text`, and about to go."""
        names = ", ".join(NAMES)
        query = f"SELECT {names} FROM text WHERE rowid = ?"  # noqa: S608 - names of ours
        for texts in self._connection.execute(query, (number,)).fetchall():
            self._count(texts, -1)

    def write(self) -> None:
        """Bring the changes into the table `term`."""
        changed = [(term, change) for term, change in self._changes.items() if change]
        self._connection.executemany(_COUNT, changed)
        gone = [(term,) for term, change in changed if change < 0]
        self._connection.executemany(_FORGET, gone)
        self._changes.clear()

    def _count(self, texts: Iterable[str], change: int) -> None:
        words = [word for text in texts for word in text.split()]
        changes = self._changes
        changes[TOTAL] = changes.get(TOTAL, 0) + change * len(words)
        for word in set(words):
            changes[word] = changes.get(word, 0) + change


def total(connection: Connection) -> int:
    """Return how many words all entries of an index have."""
    return frequencies(connection, [TOTAL]).get(TOTAL, 0)


def beginning(connection: Connection, stem: str) -> dict[str, int]:
    """Return the stems that begin with `stem`, and in how many entries each occurs."""
    return dict(connection.execute(_STARTING, (stem, stem + _AFTER_ALL)).fetchall())


def frequencies(connection: Connection, stems: Sequence[str]) -> dict[str, int]:
    """Return in how many entries each of several stems occurs."""
    marks = ", ".join("?" * len(stems))
    query = f"SELECT term, entries FROM term WHERE term IN ({marks})"  # noqa: S608 - question marks
    return dict(connection.execute(query, stems).fetchall())


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
    f"CREATE VIRTUAL TABLE text USING fts5({', '.join(NAMES)}, tokenize = '{TOKENIZER}')",
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


_ENDING = ".sqlite"
_MAKING = ".making"
_ABANDONED = 600  # seconds after which what is still being laid out belongs to a process that was killed
_UNUSED = 30 * 86_400  # seconds after which the file of another version of this program goes


def newest(names: Iterable[str], version: int) -> int | None:
    """Return the newest generation among the names of a store's index files, None when there is none."""
    start = f"v{version}."
    found = [name.removeprefix(start).removesuffix(_ENDING) for name in names if name.startswith(start)]
    return max((int(each) for each in found if each.isdecimal()), default=None)


def path_of(folder: str, generation: int) -> str:
    """Return the path of one generation of a store's index."""
    return f"{folder}/v{VERSION}.{generation}{_ENDING}"


def make(folder: str, generation: int, about: dict[str, Any]) -> None:
    """Lay out an empty index file, unless another process was quicker."""
    temporary = f"{folder}/{os.getpid()}{_MAKING}"
    unlink(temporary)
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
            os.link(temporary, path_of(folder, generation))
        except FileExistsError:  # another process was quicker, and as right
            return
    finally:
        for suffix in ("", "-wal", "-shm"):
            unlink(temporary + suffix)


def replace(folder: str, about: dict[str, Any]) -> None:
    """Make the next generation of a store's index and remove the older ones."""
    existing = newest(os.listdir(folder), VERSION)
    make(folder, 0 if existing is None else existing + 1, about)
    for generation in range((-1 if existing is None else existing) + 1):
        for suffix in ("", "-wal", "-shm"):
            unlink(path_of(folder, generation) + suffix)
    sweep(folder)


def sweep(folder: str) -> None:
    """Remove what killed processes left half made, and what other versions of this program left long ago."""
    current = f"v{VERSION}."
    with os.scandir(folder) as entries:
        for entry in list(entries):
            limit = _ABANDONED if _MAKING in entry.name else _UNUSED
            if entry.name.startswith(current):
                continue
            try:
                if time.time() - entry.stat().st_mtime > limit:
                    os.unlink(entry.path)
            except OSError:  # it has been finished or swept meanwhile, or is none of ours
                continue


def unlink(path: str) -> None:
    """Remove a file, if it is there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
