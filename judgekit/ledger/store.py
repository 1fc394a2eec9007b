"""The ledger of one project: JSON Lines, a file a day, that commands append to and read from.

A line is appended whole or not at all, whoever else writes and whoever is killed. Reading reports damaged
lines and goes on.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import ValidationError

from judgekit import environment
from judgekit.config.files import held
from judgekit.config.yamlfile import problem_in
from judgekit.errors import Exit, JudgekitError, UsageError
from judgekit.judging.redact import redact
from judgekit.ledger import records as overrides
from judgekit.ledger.records import KINDS, Label, Line, OverrideLine, VerdictLine, kind, line
from judgekit.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from judgekit.ledger.records import Record


_AGO = re.compile(r"^(\d{1,5})([hdw])$")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def point(text: str, now: datetime | None = None) -> datetime:
    """Return the point in time that `text` names; a date is its first moment in UTC.

    Raises `UsageError`.
    """
    ago = _AGO.match(text.strip())
    try:
        if ago:
            return (now or datetime.now(UTC)) - int(ago[1]) * _UNITS[ago[2]]
        return aware(datetime.fromisoformat(text.strip()))
    except (ValueError, OverflowError):
        told = "expected 14d, 36h, 2w, a date as 2026-02-01 or a time as 2026-02-01T08:00:00Z"
        raise UsageError(f"{text[:60]!r} is no point in time: {told}") from None


def aware(when: datetime) -> datetime:
    """Return a time in UTC; one without a zone is taken as UTC."""
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)


_HASH = 12
_READABLE = 40
_NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9._-]{{0,{_READABLE - 1}}}-[0-9a-f]{{{_HASH}}}")


def home() -> Path:
    """Return the folder with the ledgers of all projects of this user."""
    return Path(environment.state_home()) / "ledger"


def project_name(start: Path) -> str:
    """Return the name of the ledger of the project around `start`: readable, then a hash of its place.

    All worktrees of a repository have one ledger; so have all folders below one `.git`.
    """
    place = os.path.realpath(_root(start))
    digest = hashlib.sha256(os.path.normcase(place).encode("utf-8", "surrogateescape")).hexdigest()[:_HASH]
    readable = "".join(
        char if char.isascii() and (char.isalnum() or char in "._") else "-" for char in Path(place).name
    )
    return f"{readable.strip('-.')[:_READABLE] or 'project'}-{digest}"


def is_project_name(text: str) -> bool:
    """Whether `name` can have made this: it is then the name of a folder, and of no other place."""
    return _NAME.fullmatch(text) is not None


def same_project(project: str, wanted: str) -> bool:
    """Whether a ledger's name is the `wanted` one, which may leave out the hash."""
    return wanted in (project, project[: -_HASH - 1])


def _root(start: Path) -> Path:
    start = start.absolute()
    for folder in (start, *start.parents):
        if (folder / ".git").exists():
            return _main_worktree(folder)
    return Path(environment.project_root(str(start)))


def _line(path: Path) -> str:
    return os.fsdecode(path.read_bytes()).rstrip("\r\n")


def _main_worktree(folder: Path) -> Path:
    """Return the folder of the repository that a linked worktree belongs to, else `folder` itself."""
    try:
        kind, _, place = _line(folder / ".git").partition(": ")
        common = _line(folder / place / "commondir") if kind == "gitdir" else ""
    except (OSError, ValueError):  # a folder, as usual; a submodule, which has no commondir
        return folder
    git = Path(os.path.realpath(folder / place / common))
    return git.parent if git.name == ".git" else git


MAX_BYTES = 32_000_000  # of one file; a day that has more goes on in a second one
LOCK = ".lock"
SECONDS = 10.0  # a writer holds it for a millisecond; 20 at once wait for a fraction of a second
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)


class LedgerError(JudgekitError):
    """Lines could not be written: the text says why and what to do; `written` of them are in the ledger.

    The user's environment names the place, so the exit code is that of a wrong configuration.
    """

    exit_code = Exit.BAD_CONFIG

    def __init__(self, folder: Path | str, reason: str, written: int = 0) -> None:
        self.written = written
        remedy = "free space there, make it writable"
        link = _dead_link(Path(folder))
        if link is not None:
            reason, remedy = f"{link} is a link that leads to no folder", "make that folder, remove the link"
        told = f"{folder}: the ledger cannot be written ({reason}); {remedy}"
        super().__init__(f"{told}, or set JUDGEKIT_HOME to a folder elsewhere")


def _dead_link(folder: Path) -> Path | None:
    """Return the link at or above a folder that leads nowhere, if there is one."""
    places = (folder, *folder.parents)
    return next((place for place in places if os.path.islink(place) and not os.path.exists(place)), None)  # noqa: PTH110, PTH114 - they never raise


def append(folder: Path, lines: Sequence[tuple[date, bytes]], *, durable: bool = False) -> None:
    """Append each line (with its newline) to the file of its day in `folder`, which is made if need be.

    With `durable` they are on the disk before it returns. Raises `LedgerError`; the lines before the one
    that failed stay, of that one nothing does.
    """
    written = 0
    try:
        environment.private_folder(str(folder))
        with held(folder / LOCK, seconds=SECONDS):
            for day, line in lines:
                _write(_file(folder, day), line, durable=durable)
                written += 1
    except OSError as error:
        raise LedgerError(folder, error.strerror or str(error), written) from None


def day_file(day: date, number: int = 0) -> str:
    """Return the name of a day's file; `number` counts those that were full."""
    return f"{day.isoformat()}.{number}.jsonl" if number else f"{day.isoformat()}.jsonl"


def _file(folder: Path, day: date) -> Path:
    """Return the day's first file that has room."""
    candidates = (folder / day_file(day, number) for number in count())
    return next(path for path in candidates if _size(path) < MAX_BYTES)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _write(path: Path, line: bytes, *, durable: bool) -> None:
    """Append one line in one write; a part of it that was written is taken away again."""
    descriptor = os.open(path, _FLAGS, 0o600)
    try:
        end = os.lseek(descriptor, 0, os.SEEK_END)
        try:
            _write_whole(descriptor, _after(descriptor, end) + line)
        except OSError:
            os.ftruncate(descriptor, end)
            raise
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _after(descriptor: int, end: int) -> bytes:
    """Return what must come first: a newline where a killed writer left a line without one."""
    if end == 0:
        return b""
    os.lseek(descriptor, end - 1, os.SEEK_SET)
    return b"" if os.read(descriptor, 1) == b"\n" else b"\n"


def _write_whole(descriptor: int, data: bytes) -> None:
    """Write all of `data`; where the first write falls short the next one says why (a full disk)."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


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


class ReadLine(NamedTuple):
    """A line that was read, and its bytes as they stand there (without the newline)."""

    record: Record
    raw: bytes


@dataclass(frozen=True, slots=True)
class LineFilter:
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
        if self.project is not None and not same_project(record.project, self.project):
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


EVERYTHING = LineFilter()


def entries(
    places: Iterable[Path],
    wanted: LineFilter = EVERYTHING,
    damaged: Callable[[Damage], None] = lambda _: None,
) -> Iterator[ReadLine]:
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
    places: Iterable[Path],
    wanted: LineFilter = EVERYTHING,
    damaged: Callable[[Damage], None] = lambda _: None,
) -> Iterator[Record]:
    """Yield the wanted records of `entries`."""
    return (read_line.record for read_line in entries(places, wanted, damaged))


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
        folders[:] = [folder for folder in folders if not folder.endswith(SUFFIX)]


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


def _lines(path: Path, wanted: LineFilter) -> Iterator[ReadLine | Damage]:
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(lines(file.readline), 1):
                if raw is None:
                    yield too_long(path, number)
                elif raw and (wanted.may_be(raw) or not raw.endswith(b"}")):
                    found = parse(raw)
                    yield Damage(path, number, found) if isinstance(found, str) else ReadLine(found, raw)
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


_BY_HAND = (Label, OverrideLine)  # what a person typed cannot be had again: it waits for the disk


@dataclass(frozen=True, slots=True)
class Ledger:
    """The lines of one project, in `folder`; `name` stands in each of them."""

    folder: Path
    name: str

    @classmethod
    def of(cls, start: Path) -> Ledger:
        """Return the ledger of the project around the folder `start`; touches nothing."""
        name = project_name(start)
        return cls(home() / name, name)

    def add(self, *records: Record) -> None:
        """Append records, each as one line to the file of its own day (UTC).

        Raises `LedgerError`: say it and go on, nothing else is lost.
        """
        lines = [
            (record.timestamp.astimezone(UTC).date(), line(record.model_copy(update={"project": self.name})))
            for record in records
        ]
        if lines:
            durable = any(isinstance(record, _BY_HAND) for record in records)
            append(self.folder, lines, durable=durable)

    def records(
        self, wanted: LineFilter = EVERYTHING, damaged: Callable[[Damage], None] = lambda _: None
    ) -> Iterator[Record]:
        """Yield the project's records; `damaged` hears of all that cannot be read."""
        places = [self.folder] if exists(self.folder) else []
        return records(places, wanted, damaged)

    def override_for(
        self, task_id: str, subjects: Collection[str] = (), *, without_terminal: bool = False
    ) -> OverrideLine | None:
        """Return the newest override of a task, None when there is none to honour.

        A task is a blob, `path@sha256…`, or the name of a task whose files have the SHA-256 in `subjects`. An
        override given without a terminal counts only `without_terminal`.
        """
        lines = self.records(LineFilter(kinds=[OverrideLine]))
        task_id = redact(task_id).text  # as the ledger has it
        return overrides.newest_override(lines, task_id, subjects, without_terminal=without_terminal)
