"""Stores replies in a private SQLite file that several processes share."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from judgekit import environment
from judgekit.config import locks
from judgekit.judging.cache import MAX_AGE_SECONDS, StoredText
from judgekit.providers.per_process import PerProcess

MAX_BYTES = 100_000_000  # of the file
_LOCK_WAIT_SECONDS = 1.0  # seconds for another process that's writing
_SLOW_SECONDS = (
    0.5  # a statement this slow had to wait; even on a busy machine, others take a tenth
)
_CREATE_TABLE_SQL = """CREATE TABLE IF NOT EXISTS reply (
    key TEXT PRIMARY KEY, at REAL NOT NULL, reply TEXT NOT NULL) WITHOUT ROWID"""
_DELETE_OLDEST_SQL = """DELETE FROM reply WHERE key IN (SELECT key FROM (
    SELECT key, SUM(LENGTH(CAST(reply AS BLOB))) OVER (ORDER BY at DESC, key) AS total FROM reply)
    WHERE total > ?)"""
_DAMAGED_FILE_CODES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_FILE_SUFFIXES = ("", "-wal", "-shm")  # SQLite has two more files next to the main one
# For one statement at a time. It's reentrant, because garbage collection can close another store meanwhile.
_lock = PerProcess(threading.RLock)
# The parent process's connections, which a forked child must not even close
_inherited: list[sqlite3.Connection] = []


class CacheState(NamedTuple):
    """A store's path, size in bytes, number of replies, and the times of the oldest and newest (s)."""

    path: Path
    bytes: int
    replies: int
    oldest: float | None
    newest: float | None


class ReplyFile:
    """A private file of replies, which is replaced when damaged."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or Path(environment.REPLIES.path())
        self._connection: sqlite3.Connection | None = None
        self._connection_pid = 0  # id of the process that opened the connection
        self._is_trimmed = False  # whether expired replies were removed
        self._has_waited = False  # whether a statement had to wait for another process

    @property
    def is_quick(self) -> bool:
        """Whether a statement takes much less than a millisecond, so that it doesn't need a thread."""
        # The first statement removes old replies, which reads the entire file. If a statement had to wait for
        # another process, later ones may also have to.
        return self._is_trimmed and not self._has_waited

    def read_reply(self, key: str) -> StoredText | None:
        """Return the text under a key, or None if it's missing or can't be read."""
        if not self._path.is_file():
            return None
        row = self._execute("SELECT reply, ? - at FROM reply WHERE key = ?", time.time(), key)
        return None if row is None else StoredText(text=row[0], age_seconds=row[1])

    def write_reply(self, key: str, text: str) -> None:
        """Store a text under a key, ignoring failures. The first call also removes expired texts."""
        now_s = time.time()
        self._execute("INSERT OR REPLACE INTO reply VALUES (?, ?, ?)", key, now_s, text)
        if not self._is_trimmed:
            # `abs` also removes texts with a time in the future, written before the clock was set back.
            self._execute("DELETE FROM reply WHERE abs(at - ?) >= ?", now_s, MAX_AGE_SECONDS)
            self._is_trimmed = True

    def describe_state(self) -> CacheState:
        """Describe the stored replies. Return an empty state if the file is missing or damaged."""
        row = None
        if self._path.is_file():
            row = self._execute("SELECT COUNT(*), MIN(at), MAX(at) FROM reply")
        if row is None:
            return CacheState(path=self._path, bytes=0, replies=0, oldest=None, newest=None)
        replies, oldest, newest = row
        size = 0
        for file in self._list_files():
            if file.is_file():
                size += file.stat().st_size
        return CacheState(
            path=self._path, bytes=size, replies=replies, oldest=oldest, newest=newest
        )

    def clear(self) -> None:
        """Remove every reply and free its space."""
        if self._path.is_file():
            for statement in ("DELETE FROM reply", "PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM"):
                self._execute(statement)

    def _list_files(self) -> list[Path]:
        """List the paths of SQLite's files, which may not exist."""
        return [Path(f"{self._path}{suffix}") for suffix in _FILE_SUFFIXES]

    def _execute(self, statement: str, *values: str | float) -> tuple[Any, ...] | None:
        """Execute a statement and return the first row of its result.

        Returns None if there's no row or the statement fails. Errors don't raise, because a missing reply
        only costs another call to the model.
        """
        # Only one thread at a time uses the connection. That thread can wait `_LOCK_WAIT_SECONDS` for other
        # processes, so wait longer than that.
        lock = _lock.get()
        started = time.monotonic()
        if not lock.acquire(timeout=2 * _LOCK_WAIT_SECONDS):
            return None
        try:
            return self._fetch_row(statement, values)
        finally:
            lock.release()
            self._note_wait(started)

    def _fetch_row(self, statement: str, values: tuple[str | float, ...]) -> tuple[Any, ...] | None:
        """Execute a statement and return its first row. After an error, repair the file and return None."""
        row: tuple[Any, ...] | None = None
        try:
            row = self._connect().execute(statement, values).fetchone()
        except sqlite3.Error as error:
            self._repair(error, statement, values)
        except OSError:  # the file or its folder can't be used, so there's nothing to repair
            pass
        return row

    def _note_wait(self, started: float) -> None:
        """Record whether a statement begun at `started` was so slow that it must have waited."""
        # The first statement is slow anyway, because it removes old replies.
        if not self._is_trimmed:
            return
        if time.monotonic() - started > _SLOW_SECONDS:
            self._has_waited = True

    def _connect(self) -> sqlite3.Connection:
        """Return this process's connection, and open it first if there's none.

        Raises `OSError` or `sqlite3.Error`.
        """
        # A forked process can't use its parent's connection, so open a new one after a fork.
        is_inherited = self._connection_pid != os.getpid()
        if self._connection is None or is_inherited:
            self._connection = self._open()
            self._connection_pid = os.getpid()
        return self._connection

    def _repair(
        self, error: sqlite3.Error, statement: str, values: tuple[str | float, ...]
    ) -> None:
        """Make room in a full file and repeat the statement, or remove a damaged file."""
        code = _read_error_code(error)
        is_full = code == sqlite3.SQLITE_FULL
        if is_full and self._connection is not None:
            with suppress(sqlite3.Error):
                kept_bytes = MAX_BYTES // 4  # the newest replies
                self._connection.execute(_DELETE_OLDEST_SQL, (kept_bytes,))
                # Only a write needs room, and it returns no row. So there's no result to return.
                self._connection.execute(statement, values)
        elif code in _DAMAGED_FILE_CODES:
            self._remove_damaged()

    def _open(self) -> sqlite3.Connection:
        """Open a connection to the file, creating it if necessary.

        The connection is closed when this object is garbage-collected. Raises `OSError` or `sqlite3.Error`.
        """
        environment.make_private_folder(str(self._path.parent))
        self._path.touch(0o600)
        connection = sqlite3.connect(
            self._path,
            timeout=_LOCK_WAIT_SECONDS,
            isolation_level=None,  # every statement is its own transaction
            check_same_thread=False,  # several threads use it, one at a time
        )
        try:
            _prepare_database(connection)
        except sqlite3.Error:
            connection.close()
            raise
        weakref.finalize(self, _close, connection, os.getpid())
        return connection

    def _remove_damaged(self) -> None:
        """Remove the file if it's damaged, together with SQLite's log files. Closes the connection first."""
        self._disconnect()
        lock_path = self._path.with_suffix(".lock")
        # Hold the lock, so that only one process checks the file.
        with suppress(OSError), locks.file_lock(lock_path, timeout=_LOCK_WAIT_SECONDS):
            # Check again, because another process may have replaced the file meanwhile.
            if self._is_file_damaged():
                for file in self._list_files():
                    file.unlink(missing_ok=True)

    def _disconnect(self) -> None:
        """Close the connection if there's one."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _is_file_damaged(self) -> bool:
        """Whether SQLite finds damage in the file."""
        try:
            with closing(sqlite3.connect(self._path, timeout=_LOCK_WAIT_SECONDS)) as connection:
                first_row = connection.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.Error as error:
            return _read_error_code(error) in _DAMAGED_FILE_CODES
        return bool(first_row != ("ok",))


def _prepare_database(connection: sqlite3.Connection) -> None:
    """Set a connection's options, and create the table if it's missing. Raises `sqlite3.Error`."""
    connection.execute("PRAGMA journal_mode = WAL")
    # Replies don't wait for the disk; a power cut may lose the last ones.
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA journal_size_limit = 1000000")
    _limit_file_size(connection)
    connection.execute(_CREATE_TABLE_SQL)


def _limit_file_size(connection: sqlite3.Connection) -> None:
    """Limit the file to `MAX_BYTES`, which SQLite counts in pages, but to no fewer than 16 pages."""
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    most_pages = max(16, MAX_BYTES // page_bytes)
    connection.execute(f"PRAGMA max_page_count = {most_pages}")


def _close(connection: sqlite3.Connection, opened_by: int) -> None:
    """Close a connection, unless this process is a fork and has inherited it."""
    is_inherited = opened_by != os.getpid()
    if is_inherited:
        _inherited.append(connection)  # keeps it from being closed by the garbage collector
        return
    lock = _lock.get()
    with lock:
        connection.close()


def _read_error_code(error: sqlite3.Error) -> int:
    """Return an SQLite error's primary code, or 0 if it has none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
