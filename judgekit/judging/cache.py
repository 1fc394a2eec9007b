"""Keeps replies that could be read, so that judging the same again asks no model and decides the same.

The key is everything that was sent, but for the fence's nonce, and whom it was sent to, so a change of the
text, the rubric, the wording, a limit or the model is a new question.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import time
import weakref
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from judgekit import environment
from judgekit.config import files
from judgekit.environment import __version__
from judgekit.errors import KEPT
from judgekit.judging.fence import without_nonce
from judgekit.providers.base import Reply, secret_values

if TYPE_CHECKING:
    from collections.abc import Callable

    from judgekit.providers.base import Endpoint, Request

MAX_REPLIES = 20_000
MAX_DAYS = 30
MAX_BYTES = 100_000_000  # of the file
MAX_REPLY = 1_000_000  # characters; a longer one is not worth its place
_WAIT = 1.0  # seconds for another process that writes
_TRIM_EVERY = 100  # replies kept between two looks at what is too old or too much
_CREATE = """CREATE TABLE IF NOT EXISTS reply (
    key TEXT PRIMARY KEY, at REAL NOT NULL, reply TEXT NOT NULL) WITHOUT ROWID"""
_TRIM = """DELETE FROM reply WHERE at < ? OR key IN (
    SELECT key FROM reply ORDER BY at DESC LIMIT -1 OFFSET ?)"""
_TRIM_BYTES = """DELETE FROM reply WHERE key IN (SELECT key FROM (
    SELECT key, SUM(LENGTH(CAST(reply AS BLOB))) OVER (ORDER BY at DESC, key) AS total FROM reply)
    WHERE total > ?)"""
# What a profile says of itself, and where the values of an endpoint come from: no call shows it.
_DESCRIBING = {
    *("title", "rank", "notes", "detect", "models", "models_env"),
    *("key", "base_env", "limits", "price", "states_cost"),
}
_ADDRESSES = ("URL", "BASE", "ENDPOINT")
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_lasting = threading.local()
Value = TypeVar("Value")


class ReplyCache:
    """A file of replies that only its owner can read: the user's, or the one at `path`.

    A fault of the file costs a call, never a verdict. Several processes may use it at once; a method may wait
    a second for them. It is bounded in days, replies and bytes, the oldest go first; a damaged one is begun
    anew.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or Path(environment.cache_home()) / "replies.sqlite"
        self._opened: sqlite3.Connection | None = None
        self._mark: tuple[int, ...] | None = None
        self._kept = 0
        self._turn = threading.Lock()

    def is_same_as(self, other: ReplyCache) -> bool:
        """Whether the other is of the same file, and that has not been replaced since this one was opened."""
        return self._path == other._path and (self._opened is None or _mark(self._path) == self._mark)

    def find(self, endpoint: Endpoint, request: Request) -> Reply | None:
        """Return what `endpoint` replied to the same request before, without its usage; else None."""
        if endpoint.profile.kind == "replay" or not self._path.is_file():
            return None
        query, wanted = "SELECT reply FROM reply WHERE key = ?", (key(endpoint, request),)
        found = self._use(lambda connection: connection.execute(query, wanted).fetchone())
        with suppress(ValueError, KeyError, TypeError):
            kept = json.loads(found[0] if found else "")
            tokens, held = tuple(kept.get("tokens", ())), bool(kept.get("held"))
            return Reply(kept["text"], kept["model"], KEPT, tuple(kept["logprobs"]), tokens, held)
        return None

    def keep(self, endpoint: Endpoint, request: Request, reply: Reply) -> None:
        """Keep a reply that could be read."""
        kept = {"text": reply.text, "model": reply.model, "logprobs": reply.logprobs, "tokens": reply.tokens}
        text = json.dumps({**kept, "held": reply.held})
        # A recording is kept already, and may be made anew.
        if endpoint.profile.kind == "replay" or len(text) > MAX_REPLY:
            return
        row = (key(endpoint, request), time.time(), text)

        def insert(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR REPLACE INTO reply VALUES (?, ?, ?)", row)
            self._kept += 1
            if self._kept % _TRIM_EVERY == 1 % _TRIM_EVERY:
                _trim(connection)

        self._use(insert)

    def _use(self, work: Callable[[sqlite3.Connection], Value]) -> Value | None:
        """Return what `work` returns with the connection, which is one thread's at a time; None if it fails.

        Makes room where there is none, and removes a damaged file; other errors pass by themselves.
        """
        if not self._turn.acquire(timeout=2 * _WAIT):
            return None
        try:
            if self._opened is None:
                self._opened = self._open()
            return work(self._opened)
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            with suppress(sqlite3.Error):
                if code == sqlite3.SQLITE_FULL and self._opened is not None:
                    _trim(self._opened)
            if code in _DAMAGED:
                self._remove()
        except OSError:
            pass
        finally:
            self._turn.release()
        return None

    def _open(self) -> sqlite3.Connection:
        environment.private_folder(str(self._path.parent))
        self._path.touch(0o600)
        # Judging may go on in another thread than it began, one at a time.
        connection = sqlite3.connect(self._path, timeout=_WAIT, isolation_level=None, check_same_thread=False)
        try:
            # Without a wait for the disk at each reply: the last ones may be lost with the power.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA journal_size_limit = 1000000")
            size = connection.execute("PRAGMA page_size").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {max(16, MAX_BYTES // size)}")
            connection.execute(_CREATE)
        except sqlite3.Error:
            connection.close()
            raise
        weakref.finalize(self, connection.close)
        self._mark = _mark(self._path)
        return connection

    def _remove(self) -> None:
        """Remove the file if it is still damaged: another process may have begun it anew."""
        if self._opened is not None:
            with suppress(sqlite3.Error):
                self._opened.close()
            self._opened = None
        with suppress(OSError), files.held(self._path.with_suffix(".lock"), seconds=_WAIT):
            try:
                with closing(sqlite3.connect(self._path, timeout=_WAIT)) as connection:
                    damaged = connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",)
            except sqlite3.Error as error:
                damaged = getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED
            for end in ("", "-wal", "-shm") if damaged else ():
                Path(f"{self._path}{end}").unlink(missing_ok=True)


def _trim(connection: sqlite3.Connection) -> None:
    """Remove what is too old or too much; so much at a time that there is room for long."""
    connection.execute(_TRIM, (time.time() - MAX_DAYS * 86_400, MAX_REPLIES))
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    if (pages - free) * size > MAX_BYTES // 2:
        connection.execute(_TRIM_BYTES, (MAX_BYTES // 4,))


def _mark(path: Path) -> tuple[int, ...] | None:
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_dev, state.st_ino, os.getpid()  # no connection may be used on in a forked process


def lasting_cache() -> ReplyCache:
    """Return the user's cache, left open for this thread: opening it takes longer than a question to it."""
    fresh = ReplyCache()
    known: ReplyCache | None = getattr(_lasting, "cache", None)
    if known is None or not known.is_same_as(fresh):
        known = _lasting.cache = fresh
    return known


def key(endpoint: Endpoint, request: Request) -> str:
    """Return a hash of all that an answer depends on, which neither a provider's key nor the time left is.

    Of the environment that a program sees only addresses are of it: a hook's PATH is not a shell's.
    """
    asked = [(message.role, without_nonce(message.content)) for message in request.messages]
    profile, secrets = endpoint.profile, secret_values(endpoint)
    whom = [profile.model_dump(mode="json", exclude=_DESCRIBING), endpoint.api_base, endpoint.model]
    parameters = {
        name: value
        for name, value in endpoint.parameters.items()
        if (any(word in name for word in _ADDRESSES) if profile.kind == "command" else value not in secrets)
    }
    sample = [request.sample] if request.sample else []
    how = [endpoint.output, parameters, request.max_tokens, request.schema, request.top_logprobs, *sample]
    text = json.dumps([__version__, whom, how, asked], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
