"""Keeps replies that could be read, so that judging the same again asks no model and decides the same."""

from __future__ import annotations

import hashlib
import json
import operator
import os
import sqlite3
import threading
import time
import weakref
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from judgekit import environment
from judgekit.config import locks
from judgekit.environment import __version__
from judgekit.errors import KEPT
from judgekit.judging.fence import without_nonce
from judgekit.providers.base import Endpoint, Reply, Request, secret_values

MAX_DAYS = 30  # of a reply that is given again, in this store and in a team's
_MAX_SECONDS = MAX_DAYS * 86_400.0
MAX_BYTES = 100_000_000  # of the file
_WAIT = 1.0  # seconds for another process that writes
_CREATE = """CREATE TABLE IF NOT EXISTS reply (
    key TEXT PRIMARY KEY, at REAL NOT NULL, reply TEXT NOT NULL) WITHOUT ROWID"""
_MAKE_ROOM = """DELETE FROM reply WHERE key IN (SELECT key FROM (
    SELECT key, SUM(LENGTH(CAST(reply AS BLOB))) OVER (ORDER BY at DESC, key) AS total FROM reply)
    WHERE total > ?)"""
# What a profile says of itself, and where the values of an endpoint come from: no call shows it.
_DESCRIBING = {
    *("title", "rank", "notes", "detect", "models", "models_env"),
    *("key", "base_env", "limits", "price", "states_cost", "batches"),
}
_ADDRESSES = ("URL", "BASE", "ENDPOINT")
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}

# Of a reply, as they are named where they are kept.
PARTS = (
    "text",
    "model",
    "logprobs",
    "tokens",
    "held",
)
parts = operator.attrgetter("text", "model", "logprobs", "tokens", "schema_enforced")
_FILES = ("", "-wal", "-shm")
# One statement at a time, and none at a fork: what SQLite locks then stays locked in the child.
_turn = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_turn.acquire, after_in_parent=_turn.release, after_in_child=_turn.release
    )


class CacheState(NamedTuple):
    """Where replies are kept, bytes on the disk, how many, and when the first and last were kept (s)."""

    path: Path
    bytes: int
    replies: int
    oldest: float | None
    newest: float | None


class Replies(Protocol):
    """Where replies are kept; a fault of it costs a call, never a verdict."""

    def find(self, endpoint: Endpoint, request: Request) -> Reply | None: ...
    def keep(self, endpoint: Endpoint, request: Request, reply: Reply) -> None: ...


class ReplyCache:
    """A private file of replies, for several processes; a fault of it costs a call, never a verdict."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or Path(environment.REPLIES.path())
        self._opened: sqlite3.Connection | None = None
        self._is_trimmed = False

    def find(self, endpoint: Endpoint, request: Request) -> Reply | None:
        """Return what `endpoint` replied to the same request before, without its usage; else None."""
        if endpoint.profile.kind == "replay" or not self._path.is_file():
            return None
        # One that is dated in the future was kept under a wrong clock: nobody knows its age.
        young = "SELECT reply FROM reply WHERE key = ? AND abs(at - ?) < ?"
        row = self._run(young, key(endpoint, request), time.time(), _MAX_SECONDS)
        return loaded(row[0] if row else "")

    def keep(self, endpoint: Endpoint, request: Request, reply: Reply) -> None:
        """Keep a reply that could be read; a recording is kept already, and may be made anew."""
        if endpoint.profile.kind == "replay":
            return
        text = json.dumps(dict(zip(PARTS, parts(reply), strict=True)))
        now = time.time()
        self._run(
            "INSERT OR REPLACE INTO reply VALUES (?, ?, ?)", key(endpoint, request), now, text
        )
        if not self._is_trimmed:
            self._run("DELETE FROM reply WHERE abs(at - ?) >= ?", now, _MAX_SECONDS)
            self._is_trimmed = True

    def state(self) -> CacheState:
        """Return what is kept; nothing where there is no file, or a damaged one."""
        if self._path.is_file():
            row = self._run("SELECT COUNT(*), MIN(at), MAX(at) FROM reply")
        else:
            row = None
        size = sum(
            each.stat().st_size for end in _FILES if (each := Path(f"{self._path}{end}")).is_file()
        )
        return CacheState(self._path, size if row else 0, *(row or (0, None, None)))

    def clear(self) -> None:
        """Remove every reply, and give its space back."""
        if self._path.is_file():
            for statement in ("DELETE FROM reply", "PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM"):
                self._run(statement)

    def _run(self, statement: str, *values: str | float) -> tuple[Any, ...] | None:
        """Return the first row of a statement, None without one or on failure; removes a damaged file."""
        if not _turn.acquire(timeout=2 * _WAIT):
            return None
        row: tuple[Any, ...] | None = None
        try:
            self._opened = self._opened or self._open()
            row = self._opened.execute(statement, values).fetchone()
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code == sqlite3.SQLITE_FULL and self._opened is not None:
                with suppress(sqlite3.Error):
                    self._opened.execute(_MAKE_ROOM, (MAX_BYTES // 4,))
                    self._opened.execute(statement, values)
            if code in _DAMAGED:
                self._remove()
        except OSError:
            pass
        finally:
            _turn.release()
        return row

    def _open(self) -> sqlite3.Connection:
        environment.private_folder(str(self._path.parent))
        self._path.touch(0o600)
        # Judging may go on in another thread than it began, one at a time.
        connection = sqlite3.connect(
            self._path, timeout=_WAIT, isolation_level=None, check_same_thread=False
        )
        try:
            # Without a wait for the disk at each reply: the last ones may be lost with the power.
            for pragma in (
                "journal_mode = WAL",
                "synchronous = NORMAL",
                "journal_size_limit = 1000000",
            ):
                connection.execute(f"PRAGMA {pragma}")
            size = connection.execute("PRAGMA page_size").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {max(16, MAX_BYTES // size)}")
            connection.execute(_CREATE)
        except sqlite3.Error:
            connection.close()
            raise
        weakref.finalize(self, connection.close)
        return connection

    def _remove(self) -> None:
        """Remove the file if it is still damaged: another process may have begun it anew."""
        if self._opened is not None:
            with suppress(sqlite3.Error):
                self._opened.close()
            self._opened = None
        with suppress(OSError), locks.file_lock(self._path.with_suffix(".lock"), timeout=_WAIT):
            try:
                with closing(sqlite3.connect(self._path, timeout=_WAIT)) as connection:
                    damaged = connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",)
            except sqlite3.Error as error:
                damaged = getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED
            for end in _FILES if damaged else ():
                Path(f"{self._path}{end}").unlink(missing_ok=True)


def loaded(text: str) -> Reply | None:
    """Return a reply that was kept, without its usage; None where this is none."""
    with suppress(ValueError, KeyError, TypeError):
        kept = json.loads(text)
        tokens = tuple(kept.get("tokens", ()))
        schema_enforced = bool(kept.get("held"))
        return Reply(
            kept["text"], kept["model"], KEPT, tuple(kept["logprobs"]), tokens, schema_enforced
        )
    return None


def key(endpoint: Endpoint, request: Request) -> str:
    """Return a hash of what is sent, without its nonces, and to whom: of an environment the addresses."""
    asked = [(message.role, without_nonce(message.content)) for message in request.messages]
    profile = endpoint.profile
    secrets = secret_values(endpoint)
    described = profile.model_dump(mode="json", exclude=_DESCRIBING)
    if not described.get(
        "reads_reasoning"
    ):  # as it was before profiles had it: replies are found again
        described.pop("reads_reasoning", None)
    whom = [described, endpoint.api_base, endpoint.model]
    parameters = {
        name: value
        for name, value in endpoint.parameters.items()
        if (
            any(word in name for word in _ADDRESSES)
            if profile.kind == "command"
            else value not in secrets
        )
    }
    if request.sample:
        sample = [request.sample]
    else:
        sample = []
    how = [
        endpoint.output,
        parameters,
        request.max_tokens,
        request.schema,
        request.top_logprobs,
        *sample,
    ]
    text = json.dumps([__version__, whom, how, asked], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
