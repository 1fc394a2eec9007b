"""The ledger of one project: JSON Lines, a file a day, that commands append to, read and purge.

A line is appended whole or not at all, whoever else writes and whoever is killed. Reading reports damaged
lines and goes on.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from pydantic import ValidationError

from judgekit import environment
from judgekit.config.files import held
from judgekit.config.yamlfile import problem_in
from judgekit.errors import Exit, JudgekitError, UsageError
from judgekit.judging.redact import redact
from judgekit.ledger.records import SCHEMAS, Label, Line, OverrideLine, VerdictLine, line, newest_override
from judgekit.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from judgekit.ledger.records import Record

MAX_BYTES = 32_000_000  # of one file; a day that has more goes on in a second one
MAX_LINE = 16_000_000  # bytes: far above any real line
LOCK = ".lock"
SECONDS = 10.0  # a writer holds it for a millisecond; 20 at once wait for a fraction of a second
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
_SUFFIX = ".jsonl"
_DAY = re.compile(r"^(\d{4}-\d\d-\d\d)(?:\.(\d+))?\.jsonl$")
_MOST_SHOWN = 300  # characters of what is wrong with a line
_BY_HAND = (Label, OverrideLine)  # what a person typed cannot be had again: it waits for the disk
_HASH = 12
_READABLE = 40
_NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9._-]{{0,{_READABLE - 1}}}-[0-9a-f]{{{_HASH}}}")
_AGO = re.compile(r"^(\d{1,5})([hdw])$")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def home() -> Path:
    """Return the folder with the ledgers of all projects of this user."""
    return Path(environment.state_home()) / "ledger"


def project_name(start: Path) -> str:
    """Return the name of the ledger of the project around `start`: readable, then a hash of its place.

    All worktrees of a repository have one ledger; so have all folders below one `.git`. A submodule has
    its own.
    """
    start = start.absolute()
    top = next((folder for folder in (start, *start.parents) if (folder / ".git").exists()), None)
    if top is not None and (top / ".git").is_file():
        try:
            kind, _, place = os.fsdecode((top / ".git").read_bytes()).rstrip("\r\n").partition(": ")
            common = os.fsdecode((top / place / "commondir").read_bytes()).rstrip("\r\n")
            git = Path(os.path.realpath(top / place / common))
            top = git.parent if kind == "gitdir" and git.name == ".git" else top
        except (OSError, ValueError):
            pass
    place = os.path.realpath(top or environment.project_root(str(start)))
    digest = hashlib.sha256(os.path.normcase(place).encode("utf-8", "surrogateescape")).hexdigest()[:_HASH]
    readable = re.sub(r"[^A-Za-z0-9._]", "-", Path(place).name)
    return f"{readable.strip('-.')[:_READABLE] or 'project'}-{digest}"


def is_project_name(text: str) -> bool:
    """Whether `project_name` can have made this: it is then the name of a folder, and of no other place."""
    return _NAME.fullmatch(text) is not None


def same_project(project: str, wanted: str) -> bool:
    """Whether a ledger's name is the `wanted` one, which may leave out the hash."""
    return wanted in (project, project[: -_HASH - 1])


def point(text: str, now: datetime | None = None) -> datetime:
    """Return the point in time that `14d`, `36h`, `2w`, a date (its first moment in UTC) or a time names.

    Raises `UsageError`.
    """
    ago = _AGO.match(text.strip())
    try:
        if ago:
            return (now or datetime.now(UTC)) - int(ago[1]) * _UNITS[ago[2]]
        return aware(datetime.fromisoformat(text.strip()))
    except (ValueError, OverflowError):
        expected = "expected 14d, 36h, 2w, a date as 2026-02-01 or a time as 2026-02-01T08:00:00Z"
        raise UsageError(f"{text[:60]!r} is not a time: {expected}") from None


def aware(when: datetime) -> datetime:
    """Return a time in UTC; one without a zone is taken as UTC."""
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)


@dataclass(frozen=True, slots=True)
class LineFilter:
    """Which lines to read; None takes all.

    Labels are taken from `since` on however late, since they are about earlier verdicts.
    """

    since: datetime | None = None
    until: datetime | None = None
    project: str | None = None
    kinds: Collection[type[Record]] | None = None

    def takes(self, record: Record) -> bool:
        return (
            (self.kinds is None or type(record) in self.kinds)
            and (self.project is None or same_project(record.project, self.project))
            and (self.since is None or record.timestamp >= self.since)
            and (self.until is None or isinstance(record, Label) or record.timestamp < self.until)
        )


EVERYTHING = LineFilter()


class Damage(NamedTuple):
    """A line that was skipped, and why; a whole file or folder where `line` is 0."""

    path: Path
    line: int
    why: str

    def __str__(self) -> str:
        if not self.line:
            return f"{self.path}: {self.why}; skipped"
        return f"{self.path}:{self.line}: {self.why}; this line is skipped"


OnDamage: TypeAlias = "Callable[[Damage], None]"


class ReadLine(NamedTuple):
    """A line that was read, and its bytes as they stand there (without the newline)."""

    record: Record
    raw: bytes


def entries(
    places: Iterable[Path], wanted: LineFilter = EVERYTHING, damaged: OnDamage = lambda _: None
) -> Iterator[ReadLine]:
    """Yield the wanted lines of files and folders of ledgers, day by day, each id of the same person once.

    `damaged` gets every line, file and folder that cannot be read. A file of a day before `wanted.since`
    stays closed, and a line of no wanted kind is not parsed.
    """
    seen: set[tuple[str, str]] = set()  # with who acted: of a team one could hide the other's lines else
    first = wanted.since and wanted.since.astimezone(UTC).date()
    schemas = None if wanted.kinds is None else [SCHEMAS[kind].encode() for kind in wanted.kinds]
    for path in files(places, damaged):
        day = _day_of(path)
        if first is not None and day is not None and day < first:
            continue
        for number, raw in raw_lines(path, damaged):
            if schemas is not None and raw.endswith(b"}") and not any(schema in raw for schema in schemas):
                continue
            record = parse(raw)
            if isinstance(record, str):
                damaged(Damage(path, number, record))
                continue
            name = (record.id, getattr(record, "who", ""))
            if name not in seen and wanted.takes(record):
                seen.add(name)
                yield ReadLine(record, raw)


def records(
    places: Iterable[Path], wanted: LineFilter = EVERYTHING, damaged: OnDamage = lambda _: None
) -> Iterator[Record]:
    """Yield the wanted records of `entries`."""
    return (read_line.record for read_line in entries(places, wanted, damaged))


def raw_lines(path: Path, damaged: OnDamage) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the text of each line of a file that is not blank; one too long is damage."""
    try:
        with path.open("rb") as file:
            for number in count(1):
                if not (raw := file.readline(MAX_LINE)):
                    return
                if len(raw) == MAX_LINE and not raw.endswith(b"\n"):
                    damaged(Damage(path, number, f"longer than {MAX_LINE} bytes"))
                    while (part := file.readline(MAX_LINE)) and not part.endswith(b"\n"):
                        pass
                elif text := raw.strip():
                    yield number, text
    except OSError as error:
        damaged(Damage(path, 0, f"cannot be read ({error.strerror or error})"))


def parse(raw: bytes) -> Record | str:
    """Return the record in a line, or why there is none."""
    try:
        return Line.model_validate_json(raw, extra="ignore").root
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"] == "json_invalid":
            return "not JSON (cut off when the writer was killed, or edited)"
        if first["type"].startswith("union_tag") or not isinstance(json.loads(raw), dict):
            schema = one_line(str(first.get("ctx", {}).get("tag") or ""), _MOST_SHOWN)
            return f"of a kind unknown to this version ({schema})" if schema else "not a ledger line"
        return one_line(str(problem_in(raw, error)), _MOST_SHOWN)


def files(places: Iterable[Path], damaged: OnDamage = lambda _: None) -> list[Path]:
    """Return the ledger files in `places`, which are files or folders, the oldest days first.

    A place that is no folder is a file, whatever its name. `damaged` gets folders that cannot be looked into,
    and what has the name of a ledger's file but is none.
    """

    def unread(error: OSError) -> None:
        damaged(Damage(Path(str(error.filename)), 0, f"cannot be read ({error.strerror or error})"))

    found: set[Path] = set()
    for place in places:
        # os.path, since pathlib's tests raise where a folder above is closed to us.
        if not os.path.isdir(place):  # noqa: PTH112
            found.add(place)
            continue
        for folder, folders, names in os.walk(place, onerror=unread):
            for path in (Path(folder, name) for name in [*folders, *names] if name.endswith(_SUFFIX)):
                if os.path.isfile(path):  # noqa: PTH113
                    found.add(path)
                else:
                    damaged(Damage(path, 0, "not a regular file (a folder, a broken link or a device)"))
            folders[:] = [name for name in folders if not name.endswith(_SUFFIX)]
    named = {path: _DAY.match(path.name) for path in found}
    order = {path: (name[1], int(name[2] or 0)) if name else ("", 0) for path, name in named.items()}
    return sorted(found, key=lambda path: (*order[path], str(path)))


def _day_of(path: Path) -> date | None:
    """Return the day that a ledger's file is named by; None for any other file."""
    named = _DAY.match(path.name)
    try:
        return date.fromisoformat(named[1]) if named else None
    except ValueError:
        return None


def exists(place: Path) -> bool:
    """Whether there is something at a place, if only a link to nothing or what is closed to us."""
    try:
        os.lstat(place)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


class LedgerError(JudgekitError):
    """Lines could not be written: the text says why and what to do; `written` of them are in the ledger.

    The user's environment names the place, so the exit code is that of a wrong configuration.
    """

    exit_code = Exit.BAD_CONFIG

    def __init__(self, folder: Path, error: OSError, written: int = 0) -> None:
        self.written = written
        reason, remedy = error.strerror or str(error), "free space there, or make it writable"
        for place in (folder, *folder.parents):
            if os.path.islink(place) and not os.path.exists(place):  # noqa: PTH110, PTH114 - they never raise
                reason = f"{place} is a broken link"
                remedy = "create the folder, or remove the link"
        why = f"{folder}: the ledger cannot be written ({reason}); {remedy}"
        super().__init__(f"{why}, or set JUDGEKIT_HOME to a folder elsewhere")


def append(folder: Path, dated: Sequence[tuple[date, bytes]], *, durable: bool = False) -> None:
    """Append each line (with its newline) to the file of its day in `folder`, which is made if need be.

    With `durable` they are on the disk before it returns. Raises `LedgerError`; the lines before the one
    that failed stay, of that one nothing does.
    """
    written = 0
    try:
        environment.private_folder(str(folder))
        with held(folder / LOCK, seconds=SECONDS):
            for day, raw in dated:
                names = (f"{day}.{number}{_SUFFIX}" if number else f"{day}{_SUFFIX}" for number in count())
                paths = (folder / name for name in names)
                path = next(path for path in paths if not path.exists() or path.stat().st_size < MAX_BYTES)
                descriptor = os.open(path, _FLAGS, 0o600)
                end = os.lseek(descriptor, 0, os.SEEK_END)
                try:
                    os.lseek(descriptor, max(end - 1, 0), os.SEEK_SET)
                    torn = os.read(descriptor, 1) not in (b"", b"\n")  # by a killed writer
                    left = memoryview(b"\n" + raw if torn else raw)
                    while left:  # where the first write falls short the next one says why (a full disk)
                        left = left[os.write(descriptor, left) :]
                    if durable:
                        os.fsync(descriptor)
                except OSError:
                    os.ftruncate(descriptor, end)
                    raise
                finally:
                    os.close(descriptor)
                written += 1
    except OSError as error:
        raise LedgerError(folder, error, written) from None


def old_lines(folder: Path, before: date) -> Counter[str]:
    """Return how many lines of each kind (and damaged ones) `purge` would remove."""
    return _purged(folder, before)[0]


def purge(folder: Path, before: date) -> None:
    """Remove the files of days before `before` (UTC), and later labels of the verdicts in them.

    Damaged lines of later days stay. A file is replaced at once: a reader sees the old or the new one. Raises
    `LedgerError`.
    """
    try:
        with held(folder / LOCK, seconds=SECONDS):
            for path, kept in _purged(folder, before)[1].items():
                if kept is None:
                    path.unlink()
                    continue
                temporary = path.with_name(f".{path.name}.{os.getpid()}")
                try:
                    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
                    with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
                        file.writelines(kept)
                        file.flush()
                        os.fsync(file.fileno())
                    temporary.replace(path)
                except OSError:
                    temporary.unlink(missing_ok=True)
                    raise
    except OSError as error:
        raise LedgerError(folder, error) from None


def _purged(folder: Path, before: date) -> tuple[Counter[str], dict[Path, list[bytes] | None]]:
    """Count what a purge removes, and return what stays of each file that it changes; None: all of it goes.

    A file that cannot be read counts as one damaged line.
    """
    counts: Counter[str] = Counter()
    changed: dict[Path, list[bytes] | None] = {}
    gone: set[str] = set()
    label = SCHEMAS[Label].encode()
    for path in files([folder]):
        day = _day_of(path)
        try:
            with path.open("rb") as file:
                raws = [raw for raw in file if raw.strip()]
        except OSError:
            raws = [b"unreadable"]
        if day is not None and day < before:
            changed[path] = None
            for record in map(parse, raws):
                schema = "/damaged@" if isinstance(record, str) else record.schema_
                counts[schema.partition("/")[2].partition("@")[0]] += 1
                gone |= {record.id} if isinstance(record, VerdictLine) else set()
        elif day is not None:
            labels = {raw: parse(raw) for raw in raws if label in raw}
            kept = [raw for raw in raws if getattr(labels.get(raw), "of", None) not in gone]
            if len(kept) < len(raws):
                changed[path] = kept
                counts["label"] += len(raws) - len(kept)
    return counts, changed


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
        named = [record.model_copy(update={"project": self.name}) for record in records]
        dated = [(record.timestamp.astimezone(UTC).date(), line(record)) for record in named]
        if dated:
            append(self.folder, dated, durable=any(isinstance(record, _BY_HAND) for record in records))

    def records(
        self, wanted: LineFilter = EVERYTHING, damaged: OnDamage = lambda _: None
    ) -> Iterator[Record]:
        """Yield the project's records; `damaged` gets all that cannot be read."""
        places = [self.folder] if exists(self.folder) else []
        return (read_line.record for read_line in entries(places, wanted, damaged))

    def override_for(
        self, task_id: str, subjects: Collection[str] = (), *, without_terminal: bool = False
    ) -> OverrideLine | None:
        """Return the newest override of a task, None when there is none to honour.

        A task is a blob, `path@sha256…`, or the name of a task whose files have the SHA-256 in `subjects`. An
        override given without a terminal counts only `without_terminal`.
        """
        task_id = redact(task_id).text  # as the ledger has it
        overrides = self.records(LineFilter(kinds=[OverrideLine]))
        return newest_override(overrides, task_id, subjects, without_terminal=without_terminal)
