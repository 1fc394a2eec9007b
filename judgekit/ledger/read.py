"""Reads ledgers: streams their lines, reports the damaged ones and goes on."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, date
from typing import TYPE_CHECKING, NamedTuple

from pydantic import ValidationError

from judgekit.ledger import project as projects
from judgekit.ledger.records import KINDS, Label, Line, VerdictLine, kind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from datetime import datetime
    from pathlib import Path

    from judgekit.ledger.records import Record

MAX_LINE = 16_000_000  # bytes: far above any real line
_DAY = re.compile(r"^(\d{4}-\d\d-\d\d)(?:\.(\d+))?\.jsonl$")
_KINDS = {kind(each) for each in KINDS}


class Damage(NamedTuple):
    """A line that was skipped, and why."""

    path: Path
    line: int
    why: str

    def __str__(self) -> str:
        """Say it in one line."""
        return f"{self.path}:{self.line}: {self.why}; this line is skipped"


class Entry(NamedTuple):
    """A line that was read, and its bytes as they stand there (without the newline)."""

    record: Record
    raw: bytes


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which lines to read; None takes all.

    `rubric` is an id or `id@version`, `model` the one that decided; both choose among verdicts alone, and
    labels are taken from `since` on however late, since they are about earlier verdicts.
    """

    since: datetime | None = None
    until: datetime | None = None
    project: str | None = None
    rubric: str | None = None
    model: str | None = None
    kinds: Collection[type[Record]] | None = None

    def takes(self, record: Record) -> bool:
        """Whether a record is wanted."""
        if self.kinds is not None and type(record) not in self.kinds:
            return False
        if self.project is not None and not projects.same(record.project, self.project):
            return False
        if self.since is not None and record.timestamp < self.since:
            return False
        if self.until is not None and not isinstance(record, Label) and record.timestamp >= self.until:
            return False
        return not isinstance(record, VerdictLine) or self._takes_verdict(record)

    def _takes_verdict(self, verdict: VerdictLine) -> bool:
        reference = f"{verdict.rubric.id}@{verdict.rubric.version}"
        return self.rubric in (None, verdict.rubric.id, reference) and self.model in (None, verdict.model)

    def may_hold(self, path: Path) -> bool:
        """Whether a file of a day can have wanted lines; any other file can."""
        day = day_of(path)
        return day is None or self.since is None or day >= self.since.astimezone(UTC).date()

    def may_be(self, raw: bytes) -> bool:
        """Whether a line can be of a wanted kind, told without reading it."""
        return self.kinds is None or any(kind(each).encode() in raw for each in self.kinds)


EVERYTHING = Wanted()


def entries(
    places: Iterable[Path], wanted: Wanted = EVERYTHING, damaged: Callable[[Damage], None] = lambda _: None
) -> Iterator[Entry]:
    """Yield the wanted lines of files and folders of ledgers, day by day, each id once.

    `damaged` hears of every line that cannot be read. Raises `OSError` for a file that cannot be opened.
    """
    seen: set[str] = set()
    for path in files(places):
        if not wanted.may_hold(path):
            continue
        for found in _lines(path, wanted):
            if isinstance(found, Damage):
                damaged(found)
            elif wanted.takes(found.record) and found.record.id not in seen:
                seen.add(found.record.id)
                yield found


def records(
    places: Iterable[Path], wanted: Wanted = EVERYTHING, damaged: Callable[[Damage], None] = lambda _: None
) -> Iterator[Record]:
    """Yield the wanted records of `entries`."""
    return (found.record for found in entries(places, wanted, damaged))


def files(places: Iterable[Path]) -> list[Path]:
    """Return the ledger files in `places`, which are files or folders, the oldest days first."""
    found = {path for place in places for path in (place.rglob("*.jsonl") if place.is_dir() else [place])}
    return sorted(found, key=_order)


def day_of(path: Path) -> date | None:
    """Return the day that a ledger's file is named by; None for any other file."""
    named = _DAY.match(path.name)
    try:
        return date.fromisoformat(named[1]) if named else None
    except ValueError:
        return None


def parse(raw: bytes) -> Record | str:
    """Return the record in a line, or why there is none."""
    try:
        return Line.model_validate_json(raw, extra="ignore").root
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    if first["type"] == "json_invalid":
        return "not JSON (cut off when its writer was killed, or edited)"
    if first["type"].startswith("union_tag") or not isinstance(json.loads(raw), dict):
        schema = first.get("ctx", {}).get("tag")
        return f"of a kind that this version does not know ({schema})" if schema else "not a line of a ledger"
    return f"{'.'.join(str(part) for part in first['loc'][1:])}: {first['msg']}"


def _order(path: Path) -> tuple[str, int, str]:
    named = _DAY.match(path.name)
    return (named[1], int(named[2] or 0), str(path)) if named else ("", 0, str(path))


def _lines(path: Path, wanted: Wanted) -> Iterator[Entry | Damage]:
    with path.open("rb") as file:
        number = 0
        while raw := file.readline(MAX_LINE):
            number += 1
            if len(raw) == MAX_LINE and not raw.endswith(b"\n"):
                yield Damage(path, number, f"longer than {MAX_LINE} bytes")
                _skip_line(file.readline)
                continue
            raw = raw.strip()
            if raw and (wanted.may_be(raw) or not raw.endswith(b"}")):
                found = parse(raw)
                yield Damage(path, number, found) if isinstance(found, str) else Entry(found, raw)


def _skip_line(readline: Callable[[int], bytes]) -> None:
    while (part := readline(MAX_LINE)) and not part.endswith(b"\n"):
        pass
