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
from judgekit.providers.batches import MOST_BYTES, MOST_REQUESTS, BatchAnswer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_CREATE = """
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
_OBJECTS = {"batch", "request", "of_batch", "sqlite_sequence"}
_ALL = 2**62  # as the number of the last request: above that of any
_LINE_OVERHEAD = 200  # bytes that a file adds around a body, at most


class BatchPlace(NamedTuple):
    """The provider, address, model and path of a batch: requests to one place may share a batch."""

    provider: str
    base: str
    model: str
    path: str


class Submitted(NamedTuple):
    """A batch of ours; without an `id`, the provider may or may not have it.

    Once its answers are collected, `provider_files` are the files to delete at the provider; None before.
    """

    number: int
    tag: str
    place: BatchPlace
    file: str | None = None
    id: str | None = None
    provider_files: tuple[str, ...] | None = None
    is_ours: bool = True


def open_manifest(path: str, *, is_fresh: bool, is_trusted: bool) -> Manifest:
    """Open the manifest of a run.

    Raises `InputError` for a damaged file, `UsageError` for entries that this user's key didn't seal. With
    `is_fresh` such a file is replaced; a sound one stays, so that no batch is paid for twice. With
    `is_trusted` the entries are sealed, and none of the files they name is deleted.
    """
    manifest = Manifest(path)
    try:
        unsealed = manifest.count_unsealed()
        if unsealed and is_trusted:
            manifest.trust()
    except (sqlite3.Error, ValueError, TypeError) as error:
        manifest.close(remove=is_fresh)
        if is_fresh:
            return Manifest(path)
        raise InputError(
            f"{path}: no list of batches of judgekit ({error}); move it away"
        ) from None
    if unsealed and is_fresh:
        manifest.close(remove=True)
        return Manifest(path)
    if unsealed and not is_trusted:
        manifest.close()
        raise seals.refused(path, unsealed, "entry", "entries")
    return manifest


class Manifest:
    def __init__(self, path: str) -> None:
        """Open the file or create it; raises `InputError`."""
        self.path = path
        self.left_behind: list[str] = []
        self._key = seals.state_key()
        try:
            path = outputs.check_database(path)
            os.close(outputs.open_to_append(path))
            self._table = sqlite3.connect(path)
            try:
                self._prepare()
            except BaseException:
                self._table.close()
                raise
        except (OSError, sqlite3.Error) as error:
            remedy = "free space, or move it away and lose what it knows of batches"
            raise InputError(f"{path}: cannot be used ({error}); {remedy}") from None

    def _prepare(self) -> None:
        """Create the tables unless they exist; raises `InputError` for a database that isn't ours."""
        self._table.execute("PRAGMA trusted_schema = OFF")
        self._check_objects()
        self._table.executescript(_CREATE)
        if not self._has_seals():
            for statement in _LATER_COLUMNS:
                self._table.execute(statement)

    def answer(self, custom_id: str) -> BatchAnswer | None:
        """Return the answer to a request; None if there's none yet, or no such request."""
        row = self._execute("SELECT answer FROM request WHERE custom_id = ?", custom_id)
        if row is None:
            return None
        (text,) = row
        return BatchAnswer(*json.loads(text)) if text else None

    def has(self, custom_id: str) -> bool:
        """Whether a request is in a batch or waits for the next one."""
        return self._execute("SELECT 1 FROM request WHERE custom_id = ?", custom_id) is not None

    def add(self, custom_id: str, place: BatchPlace, body: bytes) -> None:
        """Add a request, which waits for the next batch."""
        values = custom_id, json.dumps(place), body
        seal = self._seal("request", _sealed_fields(*values, None))
        self._execute(
            "INSERT INTO request (custom_id, place, body, seal) VALUES (?, ?, ?, ?)", *values, seal
        )

    def last_number(self) -> int:
        """Return the number of the newest request; 0 if there are none."""
        row = self._execute("SELECT max(rowid) FROM request")
        return int(row[0] or 0) if row else 0

    def unsent(self, last: int = _ALL) -> Iterator[tuple[str, BatchPlace, int]]:
        """Yield unsent requests up to number `last`, in order: custom id, place and size in bytes."""
        query = (
            "SELECT custom_id, place, length(body) FROM request"
            " WHERE batch IS NULL AND rowid <= ? ORDER BY rowid"
        )
        for custom_id, place, size in self._table.execute(query, (last,)):
            yield custom_id, BatchPlace(*json.loads(place)), size

    def split_unsent(
        self, last: int, max_requests: Mapping[BatchPlace, int]
    ) -> list[tuple[BatchPlace, Sequence[str]]]:
        """Split the unsent requests up to number `last` into parts small enough for a batch.

        `max_requests` are the limits of places that take smaller batches than usual.
        """
        parts: list[tuple[BatchPlace, Sequence[str]]] = []
        # For each place the part that isn't full yet: its custom ids, and its size in bytes.
        open_parts: dict[BatchPlace, tuple[list[str], int]] = {}
        for custom_id, place, size in self.unsent(last):
            part, part_size = open_parts.get(place, ([], 0))
            line_size = size + _LINE_OVERHEAD
            has_most_requests = len(part) >= max_requests.get(place, MOST_REQUESTS)
            is_full = has_most_requests or part_size + line_size > MOST_BYTES
            if not part or is_full:
                part = []
                part_size = 0
                parts.append((place, part))
            part.append(custom_id)
            open_parts[place] = part, part_size + line_size
        return parts

    def intend(self, tag: str, place: BatchPlace, custom_ids: Sequence[str]) -> Submitted:
        """Record that a batch of these requests is about to be submitted."""
        with self._table:
            insert = "INSERT INTO batch (tag, place, is_ours) VALUES (?, ?, 1)"
            number = int(self._table.execute(insert, (tag, json.dumps(place))).lastrowid or 0)
            self._update(Submitted(number, tag, place))
            pairs = ((number, custom_id) for custom_id in custom_ids)
            self._table.executemany("UPDATE request SET batch = ? WHERE custom_id = ?", pairs)
        return Submitted(number, tag, place)

    def content(self, batch: Submitted) -> bytes:
        """Build a batch's request file."""
        query = "SELECT custom_id, body FROM request WHERE batch = ? ORDER BY rowid"
        line = b'{"custom_id": "%s", "method": "POST", "url": "/v1%s", "body": %s}\n'
        rows = self._table.execute(query, (batch.number,))
        path = batch.place.path.encode()
        lines = [line % (custom_id.encode(), path, body) for custom_id, body in rows]
        return b"".join(lines)

    def store(self, batch: Submitted) -> Submitted:
        """Save the changes to a batch, and return it."""
        with self._table:
            self._update(batch)
        return batch

    def _update(self, batch: Submitted) -> None:
        """Write a batch's changeable fields, with a new seal."""
        files = None if batch.provider_files is None else json.dumps(batch.provider_files)
        values = batch.file, batch.id, files, int(batch.is_ours)
        seal = self._seal("batch", [batch.tag, json.dumps(batch.place), *values])
        change = (
            "UPDATE batch SET file = ?, id = ?, rest = ?, is_ours = ?, seal = ? WHERE number = ?"
        )
        self._execute(change, *values, seal, batch.number)

    def batches(self) -> list[Submitted]:
        """List all batches, from old to new."""
        query = "SELECT number, tag, place, file, id, rest, is_ours FROM batch ORDER BY number"
        batches = []
        for number, tag, place, file, batch_id, files, is_ours in self._table.execute(query):
            batch = Submitted(
                number=number,
                tag=tag,
                place=BatchPlace(*json.loads(place)),
                file=file,
                id=batch_id,
                provider_files=files and tuple(json.loads(files)),
                is_ours=bool(is_ours),
            )
            batches.append(batch)
        return batches

    def requests(self, batch: Submitted) -> Iterator[str]:
        query = "SELECT custom_id FROM request WHERE batch = ? ORDER BY rowid"
        return (custom_id for (custom_id,) in self._table.execute(query, (batch.number,)))

    def collect(self, batch: Submitted, answers: Iterable[tuple[str, BatchAnswer | None]]) -> None:
        """Keep the answers of a finished batch; forget requests with no answer, or with two that differ."""
        contradicted = set[str]()
        keep = (
            "UPDATE request SET answer = ?, seal = ?, body = NULL WHERE custom_id = ? AND batch = ?"
        )
        drop = "UPDATE request SET answer = NULL WHERE custom_id = ? AND batch = ?"
        with self._table:
            values = self._seal_answers(batch, answers, contradicted)
            self._table.executemany(f"{keep} AND answer IS NULL", values)
            dropped = ((custom_id, batch.number) for custom_id in contradicted)
            self._table.executemany(drop, dropped)
            self._execute("DELETE FROM request WHERE batch = ? AND answer IS NULL", batch.number)
            self.store(batch)

    def _seal_answers(
        self,
        batch: Submitted,
        answers: Iterable[tuple[str, BatchAnswer | None]],
        contradicted: set[str],
    ) -> Iterator[tuple[str, str | None, str, int]]:
        """Yield for each answer its JSON and seal, with the request's custom id and the batch's number.

        Requests with two answers that differ are added to `contradicted`.
        """
        first_meanings: dict[str, str] = {}  # of each request's first answer, by custom id
        place = json.dumps(batch.place)
        for custom_id, answer in answers:
            if answer is None:
                continue
            meaning = _hash_answer(answer)
            first_meaning = first_meanings.setdefault(custom_id, meaning)
            if meaning != first_meaning:
                contradicted.add(custom_id)
            text = json.dumps(answer)
            seal = self._seal("request", _sealed_fields(custom_id, place, None, text))
            yield text, seal, custom_id, batch.number

    def release(self, batch: Submitted) -> None:
        """Forget a batch that the provider doesn't have: its requests are unsent again."""
        with self._table:
            self._execute(
                "UPDATE request SET batch = NULL WHERE batch = ? AND answer IS NULL", batch.number
            )
            self.end(batch)

    def end(self, batch: Submitted) -> None:
        """Forget a collected batch, once the provider keeps nothing of it."""
        with self._table:
            self._execute("DELETE FROM batch WHERE number = ?", batch.number)

    def forget(self, custom_ids: Iterable[str]) -> None:
        with self._table:
            values = ((custom_id,) for custom_id in custom_ids)
            self._table.executemany("DELETE FROM request WHERE custom_id = ?", values)

    def close(self, *, remove: bool = False) -> None:
        self._table.close()
        if remove:
            Path(self.path).unlink(missing_ok=True)

    def count_unsealed(self) -> int:
        """Count the batches and requests that this user's key didn't seal."""
        batches = self._table.execute("SELECT tag, place, file, id, rest, is_ours, seal FROM batch")
        count = 0
        for *values, seal in batches:
            if not seals.is_valid(self._key, "batch", values, seal):
                count += 1
        requests = self._table.execute("SELECT custom_id, place, body, answer, seal FROM request")
        for custom_id, place, body, answer, seal in requests:
            content = _sealed_fields(custom_id, place, body, answer)
            if not seals.is_valid(self._key, "request", content, seal):
                count += 1
        return count

    def trust(self) -> None:
        """Seal every entry because the user says so; none of the files it names counts as ours."""
        for batch in self.batches():
            if batch.provider_files is None:
                self.store(batch._replace(is_ours=False))
            else:
                self.left_behind += filter(None, batch.provider_files)
                self.end(batch)
        query = "SELECT custom_id, place, body, answer FROM request"
        with self._table:
            for custom_id, place, body, answer in self._table.execute(query).fetchall():
                seal = self._seal("request", _sealed_fields(custom_id, place, body, answer))
                self._execute("UPDATE request SET seal = ? WHERE custom_id = ?", seal, custom_id)

    def _seal(self, kind: str, content: object) -> str | None:
        if self._key:
            return seals.seal_of(self._key, kind, content)
        return None

    def _has_seals(self) -> bool:
        """Whether the file has a column for seals, which the first versions didn't write."""
        columns = self._table.execute("PRAGMA table_info(request)")
        return any(name == "seal" for _, name, *_ in columns)

    def _check_objects(self) -> None:
        """Raise `InputError` for a database that holds anything else, such as a trigger, which would run."""
        for kind, name in self._table.execute("SELECT type, name FROM sqlite_master"):
            is_known = name in _OBJECTS or name.startswith("sqlite_autoindex_")
            if not is_known or kind not in ("table", "index"):
                raise InputError(f"{self.path}: no list of batches of judgekit; move it away")

    def _execute(self, statement: str, *values: object) -> tuple[str, ...] | None:
        """Execute a statement, and return the first row of its result, if there is one."""
        row: tuple[str, ...] | None = self._table.execute(statement, values).fetchone()
        return row


def _hash_answer(answer: BatchAnswer) -> str:
    """Hash an answer without its id: a reply that's delivered twice may have two ids."""
    content = answer.body
    if isinstance(content, dict) and "choices" in content:
        content = content["choices"]
    text = json.dumps([answer.status, content], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _sealed_fields(
    custom_id: str, place: str, body: bytes | str | None, answer: str | None
) -> list[str | None]:
    """List the fields of a request that its seal covers."""
    # We write bytes; if somebody else wrote the file, it may be text.
    raw = body.encode() if isinstance(body, str) else body
    sha256 = None if raw is None else hashlib.sha256(raw).hexdigest()
    return [custom_id, place, sha256, answer]
