"""The manifest of a run in batches: the requests in each batch, and the answers that were paid for.

It's a file beside OUT that only its owner can read. Each entry is on the disk before the next step begins,
so a run can be killed at any point and go on from there. It holds no key.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from judgekit import outputs
from judgekit.data import seals
from judgekit.errors import InputError
from judgekit.providers.batches import MAX_BYTES, MAX_REQUESTS, BatchAnswer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_CREATE_TABLES_SQL = """
CREATE TABLE IF NOT EXISTS batch (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    tag TEXT, place TEXT,
    file TEXT, id TEXT,  -- the provider's names, once it has given them
    rest TEXT,  -- of a batch whose answers are here: the files that the provider still has
    is_ours INTEGER,  -- 0 where the user trusts the batch without proof: none of its files is deleted
    seal TEXT);
CREATE TABLE IF NOT EXISTS request (
    custom_id TEXT PRIMARY KEY, place TEXT,
    batch INTEGER,  -- null until it is about to be submitted
    body BLOB,  -- until it is answered
    answer TEXT,
    seal TEXT);
CREATE INDEX IF NOT EXISTS of_batch ON request (batch);
"""
_LATER_COLUMNS = (  # columns missing in a file of an earlier version
    "ALTER TABLE batch ADD COLUMN is_ours INTEGER",
    "ALTER TABLE batch ADD COLUMN seal TEXT",
    "ALTER TABLE request ADD COLUMN seal TEXT",
)
_DATABASE_OBJECT_NAMES = {"batch", "request", "of_batch", "sqlite_sequence"}
_MAX_REQUEST_NUMBER = 2**62  # as the number of the last request: above that of any
_LINE_OVERHEAD = 200  # bytes that a file adds around a body, at most


class BatchTarget(NamedTuple):
    """Where a batch is sent: all its requests have the same provider, address, model and path."""

    provider: str
    base_url: str
    model: str
    path: str


class Submitted(NamedTuple):
    """A batch that was submitted, or is about to be: without an `id`, the provider may or may not have it.

    `provider_files` is None until the answers are collected, then the provider's files that we must delete.
    """

    number: int
    tag: str
    target: BatchTarget
    request_file_id: str | None = None
    id: str | None = None
    provider_files: tuple[str, ...] | None = None
    is_ours: bool = True


def open_manifest(path: str, *, is_fresh: bool, is_trusted: bool) -> Manifest:
    """Open a run's manifest.

    Raises `InputError` for a damaged file, and `UsageError` for entries that aren't sealed with this user's
    key. `is_trusted` seals these entries instead, and `is_fresh` replaces the file in both cases.
    """
    manifest = Manifest(path)
    try:
        unsealed = manifest.count_unsealed()
        if unsealed and is_trusted:
            manifest.seal_entries()
    except (sqlite3.Error, ValueError, TypeError) as error:
        manifest.close(remove=is_fresh)
        if is_fresh:
            return Manifest(path)
        raise InputError(
            f"{path}: no list of batches of judgekit ({error}); move it away"
        ) from None

    # `is_fresh` only replaces a manifest with unsealed entries. A sealed one is kept, so that no batch is
    # paid for twice.
    if unsealed and is_fresh:
        manifest.close(remove=True)
        return Manifest(path)
    if unsealed and not is_trusted:
        manifest.close()
        raise seals.build_seal_error(path, unsealed, "entry", "entries")
    return manifest


class Manifest:
    def __init__(self, path: str) -> None:
        """Open or create the file. Raises `InputError` if that fails."""
        self.path = path
        self.left_behind: list[str] = []  # ids of files at the provider that we mustn't delete
        self._key = seals.get_state_key()
        try:
            path = outputs.resolve_database_path(path)
            # SQLite would create a file that others can read, so create a private one before.
            os.close(outputs.open_to_append(path))
            self._connection = sqlite3.connect(path)
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise
        except (OSError, sqlite3.Error) as error:
            remedy = "free space, or move it away and lose what it knows of batches"
            raise InputError(f"{path}: cannot be used ({error}); {remedy}") from None

    def _prepare(self) -> None:
        """Create missing tables and columns. Raises `InputError` for a database that isn't ours."""
        self._connection.execute("PRAGMA trusted_schema = OFF")
        self._check_objects()
        self._connection.executescript(_CREATE_TABLES_SQL)
        if not self._has_seals():  # the file was created by an earlier version
            for statement in _LATER_COLUMNS:
                self._connection.execute(statement)

    def answer(self, custom_id: str) -> BatchAnswer | None:
        """Return a request's answer, or None if there is no answer or no such request."""
        row = self._execute("SELECT answer FROM request WHERE custom_id = ?", custom_id)
        if row is None:
            return None
        (text,) = row
        return BatchAnswer(*json.loads(text)) if text else None

    def has(self, custom_id: str) -> bool:
        """Whether a request is in a batch or waiting for the next one."""
        return self._execute("SELECT 1 FROM request WHERE custom_id = ?", custom_id) is not None

    def add(self, custom_id: str, target: BatchTarget, body: bytes) -> None:
        """Add a request to send in the next batch."""
        target_json = json.dumps(target)
        fields = _list_sealed_fields(custom_id, target_json, body, answer=None)
        seal = self._seal("request", fields)
        insert = "INSERT INTO request (custom_id, place, body, seal) VALUES (?, ?, ?, ?)"
        self._execute(insert, custom_id, target_json, body, seal)

    def last_number(self) -> int:
        """Return the newest request's number, or 0 without requests."""
        row = self._execute("SELECT max(rowid) FROM request")
        return int(row[0] or 0) if row else 0

    def list_unsent_requests(
        self, last: int = _MAX_REQUEST_NUMBER
    ) -> Iterator[tuple[str, BatchTarget, int]]:
        """Yield the custom id, target and size of each unsent request up to number `last`, in order."""
        query = (
            "SELECT custom_id, place, length(body) FROM request"
            " WHERE batch IS NULL AND rowid <= ? ORDER BY rowid"
        )
        for custom_id, target_json, size in self._connection.execute(query, (last,)):
            yield custom_id, BatchTarget(*json.loads(target_json)), size

    def split_unsent(
        self, last: int, max_requests: Mapping[BatchTarget, int]
    ) -> list[tuple[BatchTarget, Sequence[str]]]:
        """Split the unsent requests up to number `last` into batches, as lists of custom ids.

        `max_requests` has the limits of targets that only accept fewer requests per batch than usual.
        """
        batches: list[tuple[BatchTarget, Sequence[str]]] = []
        # Each target has one batch that isn't full yet. These are its custom ids (the same list as in
        # `batches`) and its size in bytes.
        open_batches: dict[BatchTarget, tuple[list[str], int]] = {}
        for custom_id, target, size in self.list_unsent_requests(last):
            custom_ids, batch_size = open_batches.get(target, ([], 0))
            line_size = size + _LINE_OVERHEAD
            has_max_requests = len(custom_ids) >= max_requests.get(target, MAX_REQUESTS)
            is_full = has_max_requests or batch_size + line_size > MAX_BYTES
            if not custom_ids or is_full:
                custom_ids = []
                batch_size = 0
                batches.append((target, custom_ids))
            custom_ids.append(custom_id)
            open_batches[target] = custom_ids, batch_size + line_size
        return batches

    def add_batch(self, tag: str, target: BatchTarget, custom_ids: Sequence[str]) -> Submitted:
        """Record that a batch of these requests is about to be submitted."""
        with self._connection:
            insert = "INSERT INTO batch (tag, place, is_ours) VALUES (?, ?, 1)"
            number = int(self._connection.execute(insert, (tag, json.dumps(target))).lastrowid or 0)
            batch = Submitted(number, tag, target)
            self._update(batch)  # adds the seal
            pairs = ((number, custom_id) for custom_id in custom_ids)
            self._connection.executemany("UPDATE request SET batch = ? WHERE custom_id = ?", pairs)
        return batch

    def build_request_file(self, batch: Submitted) -> bytes:
        """Build a batch's request file, as JSON Lines."""
        query = "SELECT custom_id, body FROM request WHERE batch = ? ORDER BY rowid"
        rows = self._connection.execute(query, (batch.number,))
        path = batch.target.path.encode()
        # The bodies are large and already JSON, so insert them without parsing.
        line_format = b'{"custom_id": "%s", "method": "POST", "url": "/v1%s", "body": %s}\n'
        lines = [line_format % (custom_id.encode(), path, body) for custom_id, body in rows]
        return b"".join(lines)

    def store(self, batch: Submitted) -> Submitted:
        """Save a changed batch, and return it."""
        with self._connection:
            self._update(batch)
        return batch

    def _update(self, batch: Submitted) -> None:
        """Write the fields of a batch that can change, and a new seal."""
        files = None if batch.provider_files is None else json.dumps(batch.provider_files)
        values = batch.request_file_id, batch.id, files, int(batch.is_ours)
        seal = self._seal("batch", [batch.tag, json.dumps(batch.target), *values])
        change = (
            "UPDATE batch SET file = ?, id = ?, rest = ?, is_ours = ?, seal = ? WHERE number = ?"
        )
        self._execute(change, *values, seal, batch.number)

    def batches(self) -> list[Submitted]:
        """List all batches, oldest first."""
        query = "SELECT number, tag, place, file, id, rest, is_ours FROM batch ORDER BY number"
        batches = []
        for (
            number,
            tag,
            target_json,
            file,
            batch_id,
            files_json,
            is_ours,
        ) in self._connection.execute(query):
            batch = Submitted(
                number=number,
                tag=tag,
                target=BatchTarget(*json.loads(target_json)),
                request_file_id=file,
                id=batch_id,
                provider_files=files_json and tuple(json.loads(files_json)),
                is_ours=bool(is_ours),
            )
            batches.append(batch)
        return batches

    def requests(self, batch: Submitted) -> Iterator[str]:
        query = "SELECT custom_id FROM request WHERE batch = ? ORDER BY rowid"
        return (custom_id for (custom_id,) in self._connection.execute(query, (batch.number,)))

    def collect(self, batch: Submitted, answers: Iterable[tuple[str, BatchAnswer | None]]) -> None:
        """Store an ended batch's answers. Forget the requests that have no answer or different answers."""
        store_first_answer = (
            "UPDATE request SET answer = ?, seal = ?, body = NULL"
            " WHERE custom_id = ? AND batch = ? AND answer IS NULL"
        )
        drop_answer = "UPDATE request SET answer = NULL WHERE custom_id = ? AND batch = ?"
        contradicted = set[str]()  # custom ids, added while the answers are stored
        with self._connection:
            sealed_answers = self._seal_answers(batch, answers, contradicted)
            self._connection.executemany(store_first_answer, sealed_answers)
            keys = ((custom_id, batch.number) for custom_id in contradicted)
            self._connection.executemany(drop_answer, keys)
            # This includes the requests whose answer was just dropped.
            self._execute("DELETE FROM request WHERE batch = ? AND answer IS NULL", batch.number)
            self.store(batch)

    def _seal_answers(
        self,
        batch: Submitted,
        answers: Iterable[tuple[str, BatchAnswer | None]],
        contradicted: set[str],
    ) -> Iterator[tuple[str, str | None, str, int]]:
        """Yield the values to store for each answer: its JSON and seal, the custom id and the batch's number.

        The custom ids of requests with two different answers are added to `contradicted`.
        """
        first_hashes: dict[str, str] = {}  # of each request's first answer, by custom id
        target_json = json.dumps(batch.target)
        for custom_id, answer in answers:
            if answer is None:
                continue
            answer_hash = _hash_answer(answer)
            if answer_hash != first_hashes.setdefault(custom_id, answer_hash):
                contradicted.add(custom_id)
            answer_json = json.dumps(answer)
            fields = _list_sealed_fields(custom_id, target_json, body=None, answer=answer_json)
            yield answer_json, self._seal("request", fields), custom_id, batch.number

    def mark_unsent(self, batch: Submitted) -> None:
        """Forget a batch that the provider doesn't have, and mark its requests as not sent yet."""
        with self._connection:
            self._execute(
                "UPDATE request SET batch = NULL WHERE batch = ? AND answer IS NULL", batch.number
            )
            self.end(batch)

    def end(self, batch: Submitted) -> None:
        """Forget a collected batch whose files the provider has deleted."""
        with self._connection:
            self._execute("DELETE FROM batch WHERE number = ?", batch.number)

    def forget(self, custom_ids: Iterable[str]) -> None:
        with self._connection:
            values = ((custom_id,) for custom_id in custom_ids)
            self._connection.executemany("DELETE FROM request WHERE custom_id = ?", values)

    def close(self, *, remove: bool = False) -> None:
        self._connection.close()
        if remove:
            Path(self.path).unlink(missing_ok=True)

    def count_unsealed(self) -> int:
        """Count the batches and requests that weren't sealed with this user's key."""
        count = 0
        batches = self._connection.execute(
            "SELECT tag, place, file, id, rest, is_ours, seal FROM batch"
        )
        for *fields, seal in batches:
            if not seals.is_valid(self._key, "batch", fields, seal):
                count += 1
        requests = self._connection.execute(
            "SELECT custom_id, place, body, answer, seal FROM request"
        )
        for custom_id, target_json, body, answer, seal in requests:
            fields = _list_sealed_fields(custom_id, target_json, body, answer)
            if not seals.is_valid(self._key, "request", fields, seal):
                count += 1
        return count

    def seal_entries(self) -> None:
        """Seal all entries, because the user trusts the file.

        Files at the provider don't count as ours, because nothing proves that.
        """
        for batch in self.batches():
            if batch.provider_files is None:
                self.store(batch._replace(is_ours=False))
            else:  # the batch is collected, so only its files at the provider remain
                # They may be somebody else's, so report them instead of deleting them.
                self.left_behind += filter(None, batch.provider_files)
                self.end(batch)

        query = "SELECT custom_id, place, body, answer FROM request"
        with self._connection:
            for custom_id, target_json, body, answer in self._connection.execute(query).fetchall():
                fields = _list_sealed_fields(custom_id, target_json, body, answer)
                seal = self._seal("request", fields)
                self._execute("UPDATE request SET seal = ? WHERE custom_id = ?", seal, custom_id)

    def _seal(self, kind: str, content: object) -> str | None:
        if self._key:
            return seals.seal_of(self._key, kind, content)
        return None

    def _has_seals(self) -> bool:
        """Whether the file has a column for seals. The first versions' files have none."""
        columns = self._connection.execute("PRAGMA table_info(request)")
        return any(name == "seal" for _, name, *_ in columns)

    def _check_objects(self) -> None:
        """Raise `InputError` if the database contains anything but our own tables and indexes."""
        # In a file from somebody else, a trigger, for example, could change data.
        for kind, name in self._connection.execute("SELECT type, name FROM sqlite_master"):
            is_known = name in _DATABASE_OBJECT_NAMES or name.startswith("sqlite_autoindex_")
            if not is_known or kind not in ("table", "index"):
                raise InputError(f"{self.path}: no list of batches of judgekit; move it away")

    def _execute(self, statement: str, *values: object) -> tuple[str, ...] | None:
        """Execute a statement, and return the first row of its result, or None."""
        row: tuple[str, ...] | None = self._connection.execute(statement, values).fetchone()
        return row


def _hash_answer(answer: BatchAnswer) -> str:
    """Hash an answer's status and content, to tell repeated answers from contradictory ones."""
    content = answer.body
    if isinstance(content, dict) and "choices" in content:
        # Ignore the reply's id, which can be different if the same answer is delivered twice.
        content = content["choices"]
    text = json.dumps([answer.status, content], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _list_sealed_fields(
    custom_id: str, target_json: str, body: bytes | str | None, answer: str | None
) -> list[str | None]:
    """List a request's fields that its seal covers."""
    # We store the body as bytes, but a file that somebody else created may contain text.
    raw = body.encode() if isinstance(body, str) else body
    body_sha256 = None if raw is None else hashlib.sha256(raw).hexdigest()
    return [custom_id, target_json, body_sha256, answer]
