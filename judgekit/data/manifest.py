"""The manifest of a run in batches: which requests are in which batch, and the answers that were paid for.

A file beside OUT, which only its owner can read. What it says is on the disk before the next step is taken,
so that a run that was killed at any point goes on from there. It holds no key.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from judgekit import outputs
from judgekit.errors import InputError
from judgekit.providers.batches import MOST_BYTES, MOST_REQUESTS, BatchAnswer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_CREATE = """
CREATE TABLE IF NOT EXISTS batch (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    tag TEXT, place TEXT,
    file TEXT, id TEXT,  -- the provider's names, once it has given them
    rest TEXT);  -- of a batch whose answers are here: the files that the provider still has
CREATE TABLE IF NOT EXISTS request (
    custom_id TEXT PRIMARY KEY, place TEXT,
    batch INTEGER,  -- null until it is about to be submitted
    body BLOB,  -- until it is answered
    answer TEXT);
CREATE INDEX IF NOT EXISTS of_batch ON request (batch);
"""
_ALL = 2**62
_AROUND = 200  # bytes around a body in a file, at most


class Place(NamedTuple):
    """Whom a batch asks, and for what: requests to the same place may be in one batch."""

    provider: str
    base: str
    model: str
    path: str


class Submitted(NamedTuple):
    """A batch of ours; without an `id` it is not known whether the provider has it."""

    number: int
    tag: str
    place: Place
    file: str | None = None
    id: str | None = None
    rest: tuple[str, ...] | None = None


class Manifest:
    def __init__(self, path: str) -> None:
        """Open the file, or make it; raises `InputError`."""
        self.path = path
        try:
            path = outputs.check_database(path)
            os.close(outputs.open_to_append(path))
            self._table = sqlite3.connect(path)
            self._table.executescript(_CREATE)
        except (OSError, sqlite3.Error) as error:
            what = "free space, or move it away and lose what it knows of batches"
            raise InputError(f"{path}: cannot be used ({error}); {what}") from None

    def answer(self, custom_id: str) -> BatchAnswer | None:
        row = self._row("SELECT answer FROM request WHERE custom_id = ?", custom_id)
        return BatchAnswer(*json.loads(row[0])) if row and row[0] else None

    def has(self, custom_id: str) -> bool:
        """Whether a request is in a batch, or will be in the next."""
        return self._row("SELECT 1 FROM request WHERE custom_id = ?", custom_id) is not None

    def add(self, custom_id: str, place: Place, body: bytes) -> None:
        values = custom_id, json.dumps(place), body
        self._row("INSERT INTO request (custom_id, place, body) VALUES (?, ?, ?)", *values)

    def last(self) -> int:
        """Return the number of the newest request."""
        row = self._row("SELECT max(rowid) FROM request")
        return int(row[0] or 0) if row else 0

    def unsent(self, last: int = _ALL) -> Iterator[tuple[str, Place, int]]:
        """Yield the requests up to the `last` that are in no batch, with the bytes of each, in order."""
        which = "SELECT custom_id, place, length(body) FROM request WHERE batch IS NULL AND rowid <= ?"
        for custom_id, place, size in self._table.execute(f"{which} ORDER BY rowid", (last,)):
            yield custom_id, Place(*json.loads(place)), size

    def parts(self, last: int, most: Mapping[Place, int]) -> list[tuple[Place, Sequence[str]]]:
        """Return the requests up to the `last` that are in no batch, in parts that a batch may have."""
        parts: list[tuple[Place, Sequence[str]]] = []
        filling: dict[Place, tuple[list[str], int]] = {}
        for custom_id, place, size in self.unsent(last):
            part, before = filling.get(place, ([], 0))
            total = before + size + _AROUND
            if not part or len(part) >= most.get(place, MOST_REQUESTS) or total > MOST_BYTES:
                part, total = [], size + _AROUND
                parts.append((place, part))
            part.append(custom_id)
            filling[place] = part, total
        return parts

    def intend(self, tag: str, place: Place, custom_ids: Sequence[str]) -> Submitted:
        """Note that a batch of these requests is about to be submitted."""
        with self._table:
            made = self._table.execute(
                "INSERT INTO batch (tag, place) VALUES (?, ?)", (tag, json.dumps(place))
            )
            number = int(made.lastrowid or 0)
            pairs = ((number, custom_id) for custom_id in custom_ids)
            self._table.executemany("UPDATE request SET batch = ? WHERE custom_id = ?", pairs)
        return Submitted(number, tag, place)

    def content(self, batch: Submitted) -> bytes:
        """Return the file of a batch."""
        which = "SELECT custom_id, body FROM request WHERE batch = ? ORDER BY rowid"
        line = b'{"custom_id": "%s", "method": "POST", "url": "/v1%s", "body": %s}\n'
        rows, path = self._table.execute(which, (batch.number,)), batch.place.path.encode()
        return b"".join(line % (custom_id.encode(), path, body) for custom_id, body in rows)

    def changed(self, batch: Submitted) -> Submitted:
        """Note what is new about a batch, and return it."""
        with self._table:
            rest = None if batch.rest is None else json.dumps(batch.rest)
            values = batch.file, batch.id, rest, batch.number
            self._row("UPDATE batch SET file = ?, id = ?, rest = ? WHERE number = ?", *values)
        return batch

    def batches(self) -> list[Submitted]:
        rows = self._table.execute("SELECT number, tag, place, file, id, rest FROM batch ORDER BY number")
        return [
            Submitted(number, tag, Place(*json.loads(place)), file, own, rest and tuple(json.loads(rest)))
            for number, tag, place, file, own, rest in rows
        ]

    def requests(self, batch: Submitted) -> Iterator[str]:
        which = "SELECT custom_id FROM request WHERE batch = ? ORDER BY rowid"
        return (custom_id for (custom_id,) in self._table.execute(which, (batch.number,)))

    def collect(self, batch: Submitted, answers: Iterable[tuple[str, BatchAnswer | None]]) -> None:
        """Keep the answers of a batch that is over; forget requests with none, or with two that differ."""
        told: dict[str, str] = {}
        contradicted: set[str] = set()

        def rows() -> Iterator[tuple[str, str, int]]:
            for custom_id, answer in answers:
                if answer is None:
                    continue
                if told.setdefault(custom_id, _meaning(answer)) != _meaning(answer):
                    contradicted.add(custom_id)
                yield json.dumps(answer), custom_id, batch.number

        keep = "UPDATE request SET answer = ?, body = NULL WHERE custom_id = ? AND batch = ?"
        drop = "UPDATE request SET answer = NULL WHERE custom_id = ? AND batch = ?"
        with self._table:
            self._table.executemany(f"{keep} AND answer IS NULL", rows())
            dropped = ((custom_id, batch.number) for custom_id in contradicted)
            self._table.executemany(drop, dropped)
            self._row("DELETE FROM request WHERE batch = ? AND answer IS NULL", batch.number)
            self.changed(batch)

    def release(self, batch: Submitted) -> None:
        """Forget a batch that the provider does not have: its requests are in none."""
        with self._table:
            self._row("UPDATE request SET batch = NULL WHERE batch = ? AND answer IS NULL", batch.number)
            self.end(batch)

    def end(self, batch: Submitted) -> None:
        """Forget a batch whose answers are here, and of which the provider keeps nothing."""
        with self._table:
            self._row("DELETE FROM batch WHERE number = ?", batch.number)

    def forget(self, custom_ids: Iterable[str]) -> None:
        with self._table:
            which = ((custom_id,) for custom_id in custom_ids)
            self._table.executemany("DELETE FROM request WHERE custom_id = ?", which)

    def close(self, *, remove: bool = False) -> None:
        self._table.close()
        if remove:
            Path(self.path).unlink(missing_ok=True)

    def _row(self, statement: str, *values: object) -> tuple[str, ...] | None:
        row: tuple[str, ...] | None = self._table.execute(statement, values).fetchone()
        return row


def _meaning(answer: BatchAnswer) -> str:
    """Return what stands for the words of an answer: a reply that is given twice may have two ids."""
    body = answer.body
    words = body.get("choices", body) if isinstance(body, dict) else body
    return hashlib.sha256(json.dumps([answer.status, words], sort_keys=True).encode()).hexdigest()
