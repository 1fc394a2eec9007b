"""The ledger of one project: JSON Lines, a file a day, that commands append to, read and purge.

A line is appended whole or not at all, even if others are writing or the writer is killed. Reading reports
damaged lines and goes on.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections import Counter
from contextlib import nullcontext, suppress
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from pydantic import ValidationError

from judgekit import environment, outputs
from judgekit.config.locks import file_lock
from judgekit.config.yamlfile import problem_in
from judgekit.errors import Exit, JudgekitError, UsageError
from judgekit.git import GitError, Repository, normalize_address
from judgekit.ledger import records
from judgekit.ledger.records import (
    SCHEMAS,
    DismissalLine,
    Label,
    OverrideLine,
    Record,
    VerdictLine,
    kind_in,
    line,
)
from judgekit.text import short_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from judgekit.judging.verdict import Verdict
    from judgekit.ledger.records import PushRecord

MAX_BYTES = 32_000_000  # of one file; a day with more gets another one
MAX_LINE = 16_000_000  # bytes: far above any real line
LOCK = ".lock"
KEY = ".quotes.key"
SECONDS = 10.0  # a writer holds it for a millisecond; 20 at once wait for a fraction of a second
_SUFFIX = ".jsonl"
_DAY = re.compile(r"(\d{4}-\d\d-\d\d)(?:\.(\d+))?\.jsonl")
_MOST_SHOWN = 300  # characters of the message about a damaged line
# People can't be asked to type these again, so wait until they're on the disk.
_BY_HAND = (Label, OverrideLine, DismissalLine)
_HASH = 12
_READABLE = 40
_NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9._-]{{0,{_READABLE - 1}}}-[0-9a-f]{{{_HASH}}}")
_FIRST = 2000
_LAST = 2200  # years; Python's very first and last can't change time zones
_AGO = re.compile(r"(\d{1,5})([hdw])")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def home() -> Path:
    return Path(environment.LEDGER.path())


def misplaced(record: Record) -> str:
    """Explain why a line from elsewhere can't go into a ledger; "" if it can."""
    if not _NAME.fullmatch(record.project):  # becomes a folder's name, so it mustn't leave
        return "project: expected the name of a ledger"
    return "" if _FIRST <= record.timestamp.year <= _LAST else "timestamp: not a time of a verdict"


def same_project(project: str, wanted: str) -> bool:
    return wanted in (project, project[: -_HASH - 1])


def point(text: str, now: datetime | None = None) -> datetime:
    """Parse `14d`, `36h`, `2w`, a date (in UTC) or a time into a time; raises `UsageError`."""
    ago = _AGO.fullmatch(text.strip())
    try:
        if ago:
            return (now or datetime.now(UTC)) - int(ago[1]) * _UNITS[ago[2]]
        return aware(datetime.fromisoformat(text.strip()))
    except (ValueError, OverflowError):
        expected = "expected 14d, 36h, 2w, a date as 2026-02-01 or a time as 2026-02-01T08:00:00Z"
        raise UsageError(f"{text[:60]!r} is not a time: {expected}") from None


def _read_line(path: Path) -> str:
    return os.fsdecode(path.read_bytes()).rstrip("\r\n")


def aware(when: datetime) -> datetime:
    if when.tzinfo is None:
        return when.replace(tzinfo=UTC)
    return when.astimezone(UTC)


class LineFilter(NamedTuple):
    """The lines to read; None takes all. Labels pass `until`, since they're about earlier verdicts."""

    since: datetime | None = None
    until: datetime | None = None
    project: str | None = None
    kinds: Collection[type[Record]] | None = None

    def takes(self, record: Record) -> bool:
        """Whether the filter lets a record through."""
        if self.kinds is not None and type(record) not in self.kinds:
            return False
        if self.project is not None and not same_project(record.project, self.project):
            return False
        if self.since is not None and record.timestamp < self.since:
            return False
        if self.until is None or isinstance(record, Label):
            return True
        return record.timestamp < self.until


EVERYTHING = LineFilter()
DECISIONS = LineFilter(kinds=[OverrideLine, DismissalLine])
"""Decisions of people that later verdicts respect."""


class Damage(NamedTuple):
    """A line that was skipped, and the reason. With `line` 0 it's a whole file or folder."""

    path: Path
    line: int
    why: str

    def __str__(self) -> str:
        if self.line:
            position = f":{self.line}"
            what = "this line is skipped"
        else:
            position = ""
            what = "skipped"
        return f"{self.path}{position}: {self.why}; {what}"


OnDamage: TypeAlias = "Callable[[Damage], None]"


class ReadLine(NamedTuple):
    record: Record
    raw: bytes


def entries(
    places: Iterable[Path], wanted: LineFilter = EVERYTHING, on_damage: OnDamage = lambda _: None
) -> Iterator[ReadLine]:
    """Yield the wanted lines day by day, each (id, author) once; `on_damage` gets the unreadable ones."""
    # The author counts, too: otherwise one member of a team could hide another's lines.
    seen = set()
    first = wanted.since and wanted.since.astimezone(UTC).date()
    schemas = [SCHEMAS[kind].encode() for kind in wanted.kinds or ()]
    for path, day in files(places, on_damage).items():
        if first is not None and day is not None and day < first:
            continue
        for number, raw in raw_lines(path, on_damage):
            is_wanted = wanted.kinds is None or any(schema in raw for schema in schemas)
            if not is_wanted and raw.endswith(b"}"):
                continue
            record = parse(raw)
            if isinstance(record, str):
                on_damage(Damage(path, number, record))
                continue
            name = (record.id, getattr(record, "who", ""))
            if name not in seen and wanted.takes(record):
                seen.add(name)
                yield ReadLine(record, raw)


def raw_lines(path: Path, on_damage: OnDamage) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as file:
            for number in count(1):
                raw = file.readline(MAX_LINE)
                if not raw:
                    return
                if len(raw) == MAX_LINE and not raw.endswith(b"\n"):
                    on_damage(Damage(path, number, f"longer than {MAX_LINE} bytes"))
                    while (part := file.readline(MAX_LINE)) and not part.endswith(b"\n"):
                        pass
                elif text := raw.strip():
                    yield number, text
    except OSError as error:
        on_damage(Damage(path, 0, f"cannot be read ({error.strerror or error})"))


def parse(raw: bytes) -> Record | str:
    try:
        return records.Line.model_validate_json(raw).root
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"] == "json_invalid":
            return "not JSON (cut off when the writer was killed, or edited)"
        if first["type"].startswith("union_tag") or not isinstance(json.loads(raw), dict):
            tag = first.get("ctx", {}).get("tag")
            schema = short_line(str(tag or ""), _MOST_SHOWN)
            if schema:
                return f"of a kind unknown to this version ({schema})"
            return "not a ledger line"
        return short_line(str(problem_in(raw, error)), _MOST_SHOWN)


def sort_out(
    lines: Iterable[bytes], why_not: Callable[[Record], str]
) -> tuple[list[Record], dict[int, str]]:
    """Parse lines from elsewhere. Returns the accepted records, and by index the reasons against others."""
    taken = []
    refused = {}
    for index, raw in enumerate(lines):
        record = parse(raw)
        if isinstance(record, str):
            refused[index] = record
            continue
        why = why_not(record)
        if why:
            refused[index] = why
        else:
            taken.append(record)
    return taken, refused


def files(places: Iterable[Path], on_damage: OnDamage = lambda _: None) -> dict[Path, date | None]:
    """Find the ledger files in files and folders. Returns them with their days, oldest first.

    `on_damage` is called for each that can't be read.
    """

    def unread(error: OSError) -> None:
        problem = f"cannot be read ({error.strerror or error})"
        on_damage(Damage(Path(str(error.filename)), 0, problem))

    paths = set()
    for place in places:
        # os.path, since pathlib's tests raise an error if a folder above can't be entered.
        if not os.path.isdir(place):  # noqa: PTH112
            try:
                os.lstat(place)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                pass  # reading it will tell the reason
            paths.add(place)
            continue
        for folder, folders, names in os.walk(place, onerror=unread):
            for name in [*folders, *names]:
                path = Path(folder, name)
                if not name.endswith(_SUFFIX):
                    continue
                if os.path.isfile(path):  # noqa: PTH113
                    paths.add(path)
                else:
                    problem = "not a regular file (a folder, a broken link or a device)"
                    on_damage(Damage(path, 0, problem))
            folders[:] = [name for name in folders if not name.endswith(_SUFFIX)]
    order = []
    for path in paths:
        day = date.min
        part = 0
        match = _DAY.fullmatch(path.name)
        if match:
            part = int(match[2] or 0)
            with suppress(ValueError):
                day = date.fromisoformat(match[1])
        order.append((day, part, str(path), path))
    days: dict[Path, date | None] = {}
    for day, _, _, path in sorted(order):
        days[path] = None if day == date.min else day
    return days


def _append(path: Path, raw: bytes, *, durable: bool) -> None:
    """Append a line to a file, whole or not at all; raises `OSError`."""
    descriptor = outputs.open_to_append(str(path), private=True)
    end = os.lseek(descriptor, 0, os.SEEK_END)
    try:
        os.lseek(descriptor, max(end - 1, 0), os.SEEK_SET)
        is_torn = os.read(descriptor, 1) not in (b"", b"\n")  # by a writer that was killed
        left = memoryview(b"\n" + raw if is_torn else raw)
        # After a short write, the next one raises the actual error (a full disk).
        while left:
            left = left[os.write(descriptor, left) :]
        if durable:
            os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, end)
        raise
    finally:
        os.close(descriptor)


class LedgerError(JudgekitError):
    """Lines couldn't be written: the message says why and what to do. `written` of them made it."""

    exit_code = Exit.BAD_CONFIG
    wire_name = "ledger"
    status = 503

    def __init__(self, folder: Path, error: OSError, written: int = 0) -> None:
        self.written = written
        why = (
            f"{folder}: the ledger cannot be written ({error.strerror or error}); free space there"
        )
        super().__init__(
            f"{why}, make it a writable folder, or set JUDGEKIT_HOME to a folder elsewhere"
        )


def _make_name(path: str) -> str:
    digest = hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()
    readable = re.sub(r"[^A-Za-z0-9._]", "-", Path(path).name)
    readable = readable.strip("-.")[:_READABLE]
    return f"{readable or 'project'}-{digest[:_HASH]}"


def _find_address(top: Path) -> str:
    """Find the address of `origin`, or of the only remote, without credentials; "" if there's none."""
    addresses: dict[str, str] = {}
    with suppress(GitError):
        raw = Repository(top).ask("config", "-z", "--get-regexp", r"^remote\..*\.url$")
        for entry in os.fsdecode(raw).split("\0")[:-1]:
            key, _, address = entry.partition("\n")
            addresses.setdefault(key.removeprefix("remote.").removesuffix(".url"), address)
    if "origin" in addresses:
        address = addresses["origin"]
    elif len(addresses) == 1:
        address = next(iter(addresses.values()))
    else:
        return ""
    return normalize_address(address, str(top))


def _adopt(former: Path, folder: Path) -> None:
    """Move lines that were kept under a checkout's path into a ledger."""
    if not former.is_dir() or former.is_symlink():
        return
    with suppress(OSError):
        if not folder.exists():
            former.rename(folder)
            return
    with suppress(OSError), file_lock(folder / LOCK, timeout=SECONDS):
        for path in sorted(former.glob(f"*{_SUFFIX}")):
            if not _DAY.fullmatch(path.name):
                continue
            _append(folder / path.name, path.read_bytes(), durable=True)
            path.unlink()
        shutil.rmtree(former, ignore_errors=True)


class Ledger(NamedTuple):
    """The lines of one project, in `folder`; each of them carries its `name`."""

    folder: Path
    name: str

    @classmethod
    def of(cls, start: Path) -> Ledger:
        """Find the ledger of the project around a folder.

        A repository is identified by the address of its remote, so all its clones and worktrees share one
        ledger, and a checkout that's moved keeps its own. Without a remote, its path identifies it.
        """
        start = start.absolute()
        folders = (start, *start.parents)
        top = next((folder for folder in folders if (folder / ".git").exists()), None)
        if top is not None and (top / ".git").is_file():
            with suppress(OSError, ValueError):
                kind, _, git_path = _read_line(top / ".git").partition(": ")
                common = _read_line(top / git_path / "commondir")
                git = Path(os.path.realpath(top / git_path / common))
                if kind == "gitdir" and git.name == ".git":
                    top = git.parent
        path = os.path.realpath(top or environment.project_root(str(start)))
        name = _make_name(os.path.normcase(path))
        address = "" if top is None else _find_address(Path(path))
        if address:
            former = home() / name
            name = _make_name(f"remote {address}")
            _adopt(former, home() / name)
        return cls(home() / name, name)

    def add(self, *records: Record) -> None:
        """Append each record to the file of its day (UTC), whole or not at all; raises `LedgerError`."""
        dated = []
        durable = False
        for record in records:
            day = record.timestamp.astimezone(UTC).date()
            ours = record.model_copy(update={"project": self.name})
            dated.append((day, line(ours)))
            durable = durable or isinstance(record, _BY_HAND)
        written = 0
        if not dated:
            return
        try:
            environment.private_folder(str(self.folder))
            with file_lock(self.folder / LOCK, timeout=SECONDS):
                for day, raw in dated:
                    _append(self._file_with_room(day), raw, durable=durable)
                    written += 1
        except OSError as error:
            raise LedgerError(self.folder, error, written) from None

    def _file_with_room(self, day: date) -> Path:
        path = self.folder / f"{day}{_SUFFIX}"
        part = 0
        while path.exists() and path.stat().st_size >= MAX_BYTES:
            part += 1
            path = self.folder / f"{day}.{part}{_SUFFIX}"
        return path

    def records(
        self, wanted: LineFilter = EVERYTHING, on_damage: OnDamage = lambda _: None
    ) -> Iterator[Record]:
        return (read_line.record for read_line in entries([self.folder], wanted, on_damage))

    def note(
        self,
        verdict: Verdict,
        said: Iterable[Record],
        gate: PushRecord | None = None,
        *,
        text: bool,
    ) -> Verdict:
        """Append a verdict (a task's has no `gate`), and return it with dismissals; raises `LedgerError`."""
        quotes = [finding.quote for finding in verdict.findings]
        key = self._key() if any(quotes) else b""
        hashes = [records.quote_hash(quote, key) for quote in quotes]
        marked = records.with_dismissals(verdict, hashes, said)
        is_task = gate is None
        self.add(records.verdict_line(marked, hashes, text=text, gate=gate, of_task=is_task))
        return marked

    def _key(self) -> bytes:
        """Return the secret key for hashes of quotes, created on first use."""
        path = self.folder / KEY
        try:
            if not path.exists():
                environment.private_folder(str(self.folder))
                with file_lock(self.folder / LOCK, timeout=SECONDS):
                    if not path.exists():
                        secret = secrets.token_bytes(32)
                        outputs.write_atomically(str(path), secret, durable=True, private=True)
            return path.read_bytes()
        except OSError as error:
            raise LedgerError(self.folder, error) from None


def purge(folder: Path, before: date, *, preview: bool = False) -> Counter[str]:
    """Remove the files of days before `before` (UTC), and later labels of the verdicts in them.

    Returns the number of removed lines of each kind (an unreadable file counts as one `damaged`). Raises
    `LedgerError`.
    """
    counts: Counter[str] = Counter()
    gone = set()
    label = SCHEMAS[Label].encode()
    try:
        with nullcontext() if preview else file_lock(folder / LOCK, timeout=SECONDS):
            for path, day in files([folder]).items():
                try:
                    with path.open("rb") as file:
                        raws = [raw for raw in file if raw.strip()]
                except OSError:
                    raws = [b"unreadable"]
                if day is not None and day < before:
                    for record in map(parse, raws):
                        if isinstance(record, VerdictLine):
                            gone.add(record.id)
                        if isinstance(record, str):
                            counts["damaged"] += 1
                        else:
                            counts[kind_in(record.schema_)] += 1
                    if not preview:
                        path.unlink()
                elif day is not None:
                    kept = []
                    for raw in raws:
                        of = getattr(parse(raw), "of", None) if label in raw else None
                        if of not in gone:
                            kept.append(raw)
                    counts["label"] += len(raws) - len(kept)
                    if len(kept) < len(raws) and not preview:
                        outputs.write_atomically(
                            str(path), b"".join(kept), durable=True, private=True
                        )
    except OSError as error:
        raise LedgerError(folder, error) from None
    return +counts
