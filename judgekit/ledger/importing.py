"""Brings the lines of other ledgers, and of older judges, into this one; twice does no harm."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC
from typing import TYPE_CHECKING

from pydantic import ValidationError

from judgekit.ledger import older, read, records
from judgekit.ledger.read import Damage
from judgekit.ledger.records import OverrideLine
from judgekit.problems import problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from judgekit.ledger.book import Ledger
    from judgekit.ledger.records import Record

_AT_ONCE = 500  # lines that are written under one lock
_NO_PLACE = "expected times inside the years 1 to 9999 and values nested less than 200 deep; mend the line"


@dataclass(slots=True)
class Imported:
    """What an import did: lines added, lines that were there already, lines that cannot be read."""

    added: int = 0
    known: int = 0
    damaged: list[Damage] = field(default_factory=list)


def bring(ledger: Ledger, places: Iterable[Path], *, text: bool = False) -> Imported:
    """Add every line in files and folders of `*.jsonl` that the ledger does not have yet.

    Without `text`, the reasoning of older lines is left out. Raises `LedgerError`.
    """
    done = Imported()
    ids = {each.id for each in ledger.records()}
    waiting: list[Record] = []
    for path in read.files(places, done.damaged.append):
        for found in _lines(path, text=text):
            if isinstance(found, Damage):
                done.damaged.append(found)
            elif found.id in ids:
                done.known += 1
            else:
                ids.add(found.id)
                waiting.append(_elsewhere(found))
                done.added += 1
            if len(waiting) == _AT_ONCE:
                ledger.add(*waiting)
                waiting.clear()
    ledger.add(*waiting)
    return done


def _elsewhere(record: Record) -> Record:
    """Return a record as it counts here: nobody typed an override of another ledger at a terminal of ours."""
    return record.model_copy(update={"terminal": False}) if isinstance(record, OverrideLine) else record


def _lines(path: Path, *, text: bool) -> Iterator[Record | Damage]:
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(read.lines(file.readline), 1):
                if raw is None:
                    yield read.too_long(path, number)
                elif raw:
                    found = _read(raw, text=text)
                    yield Damage(path, number, found) if isinstance(found, str) else found
    except OSError as error:
        yield read.unread(path, error)


def _read(raw: bytes, *, text: bool) -> Record | str:
    try:
        found = _record(raw, text=text)
    except (OverflowError, RecursionError):
        return _NO_PLACE
    return found if isinstance(found, str) or _can_be_kept(found) else _NO_PLACE


def _can_be_kept(record: Record) -> bool:
    """Whether a line can be written and read again, before others wait beside it."""
    try:
        record.timestamp.astimezone(UTC)
        return not isinstance(read.parse(records.line(record)), str)
    except (OverflowError, RecursionError, ValueError):
        return False


def _record(raw: bytes, *, text: bool) -> Record | str:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return "not JSON"
    if not isinstance(found, dict):
        return "not an object"
    if "schema" in found:
        return read.parse(raw)
    try:
        return older.verdict(found, text=text)
    except ValidationError as error:
        return str(problem(error.errors(include_url=False), found))
    except ValueError as error:
        return str(error)
