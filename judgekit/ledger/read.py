"""Reads ledgers: streams their lines, reports the damaged ones and goes on."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from datetime import UTC, date
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import ValidationError

from judgekit.ledger import project as projects
from judgekit.ledger.records import KINDS, Label, Line, VerdictLine, kind
from judgekit.problems import problem_in
from judgekit.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from datetime import datetime

    from judgekit.ledger.records import Record

SUFFIX = ".jsonl"
MAX_LINE = 16_000_000  # bytes: far above any real line
_MOST_SHOWN = 300  # characters of what is wrong with a line
_DAY = re.compile(r"^(\d{4}-\d\d-\d\d)(?:\.(\d+))?\.jsonl$")
_KINDS = {kind(each) for each in KINDS}


class Damage(NamedTuple):
    """A line that was skipped, and why; a whole file or folder where `line` is 0."""

    path: Path
    line: int
    why: str

    def __str__(self) -> str:
        """Say it in one line."""
        if not self.line:
            return f"{self.path}: {self.why}; what is in it is skipped"
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
    """Yield the wanted lines of files and folders of ledgers, day by day, each id of the same person once.

    `damaged` hears of every line, file and folder that cannot be read.
    """
    seen: set[tuple[str, str]] = set()  # with who acted: of a team one could hide the other's lines else
    for path in files(places, damaged):
        if not wanted.may_hold(path):
            continue
        for found in _lines(path, wanted):
            if isinstance(found, Damage):
                damaged(found)
                continue
            name = (found.record.id, getattr(found.record, "who", ""))
            if name not in seen and wanted.takes(found.record):
                seen.add(name)
                yield found


def records(
    places: Iterable[Path], wanted: Wanted = EVERYTHING, damaged: Callable[[Damage], None] = lambda _: None
) -> Iterator[Record]:
    """Yield the wanted records of `entries`."""
    return (found.record for found in entries(places, wanted, damaged))


def files(places: Iterable[Path], damaged: Callable[[Damage], None] = lambda _: None) -> list[Path]:
    """Return the ledger files in `places`, which are files or folders, the oldest days first.

    `damaged` hears of folders that cannot be looked into, and of what has a ledger's file's name but is none.
    """
    found = {path for place in places for path in _below(place, damaged)}
    return sorted(found, key=_order)


def _below(place: Path, damaged: Callable[[Damage], None]) -> Iterator[Path]:
    """Yield the ledger files in one place; a place that is no folder is a file, whatever its name."""
    if not os.path.isdir(place):  # noqa: PTH112 - pathlib's raises where a folder above is closed to us
        yield place
        return
    for folder, folders, names in os.walk(place, onerror=lambda error: damaged(_unread(error))):
        for path in (Path(folder, name) for name in [*folders, *names] if name.endswith(SUFFIX)):
            if os.path.isfile(path):  # noqa: PTH113 - the same
                yield path
            else:
                damaged(Damage(path, 0, "no regular file: a folder, a link to nothing, or a device"))
        folders[:] = [each for each in folders if not each.endswith(SUFFIX)]


def exists(place: Path) -> bool:
    """Whether there is something at a place, if only a link to nothing or what is closed to us."""
    try:
        os.lstat(place)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def unread(path: Path, error: OSError) -> Damage:
    """Return the damage of a file that cannot be opened or read."""
    return Damage(path, 0, f"cannot be read ({error.strerror or error})")


def too_long(path: Path, number: int) -> Damage:
    """Return the damage of a line that is not read."""
    return Damage(path, number, f"longer than {MAX_LINE} bytes")


def _unread(error: OSError) -> Damage:
    return unread(Path(str(error.filename)), error)


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
            schema = one_line(str(first.get("ctx", {}).get("tag") or ""), _MOST_SHOWN)
            return (
                f"of a kind that this version does not know ({schema})"
                if schema
                else "not a line of a ledger"
            )
        return one_line(str(problem_in(raw, error)), _MOST_SHOWN)


def _order(path: Path) -> tuple[str, int, str]:
    named = _DAY.match(path.name)
    return (named[1], int(named[2] or 0), str(path)) if named else ("", 0, str(path))


def _lines(path: Path, wanted: Wanted) -> Iterator[Entry | Damage]:
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(lines(file.readline), 1):
                if raw is None:
                    yield too_long(path, number)
                elif raw and (wanted.may_be(raw) or not raw.endswith(b"}")):
                    found = parse(raw)
                    yield Damage(path, number, found) if isinstance(found, str) else Entry(found, raw)
    except OSError as error:
        yield unread(path, error)


def lines(readline: Callable[[int], bytes]) -> Iterator[bytes | None]:
    """Yield each line without what surrounds it, None for one that is too long."""
    while raw := readline(MAX_LINE):
        if len(raw) == MAX_LINE and not raw.endswith(b"\n"):
            yield None
            _skip_line(readline)
        else:
            yield raw.strip()


def _skip_line(readline: Callable[[int], bytes]) -> None:
    while (part := readline(MAX_LINE)) and not part.endswith(b"\n"):
        pass
