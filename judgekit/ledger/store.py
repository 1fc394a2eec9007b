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
    """Return the folder with the ledgers of all projects."""
    return Path(environment.LEDGER.path())


def misplaced(record: Record) -> str:
    """Explain why a line from elsewhere can't go into a ledger here; "" if it can."""
    # The project becomes the name of a folder, which mustn't lead outside the folder of the ledgers.
    if not _NAME.fullmatch(record.project):
        return "project: expected the name of a ledger"
    if not _FIRST <= record.timestamp.year <= _LAST:
        return "timestamp: not a time of a verdict"
    return ""


def same_project(project: str, wanted: str) -> bool:
    """Whether `wanted` names a project: in full (`shop-3f9a02c1b7de`), or without the hash (`shop`)."""
    name_without_hash = project[: -_HASH - 1]
    return wanted in (project, name_without_hash)


def point(text: str, now: datetime | None = None) -> datetime:
    """Parse a time, a date (its beginning in UTC), or a time before `now` such as `14d`, `36h` or `2w`.

    Raises `UsageError` if it's none of these.
    """
    stripped = text.strip()
    match = _AGO.fullmatch(stripped)
    try:
        if match:
            number, unit = match.groups()
            return (now or datetime.now(UTC)) - int(number) * _UNITS[unit]
        return aware(datetime.fromisoformat(stripped))
    except (ValueError, OverflowError):
        expected = "expected 14d, 36h, 2w, a date as 2026-02-01 or a time as 2026-02-01T08:00:00Z"
        raise UsageError(f"{text[:60]!r} is not a time: {expected}") from None


def _read_line(path: Path) -> str:
    """Read a file that holds one line, and return the line without its newline."""
    return os.fsdecode(path.read_bytes()).rstrip("\r\n")


def aware(when: datetime) -> datetime:
    """Convert a time to UTC. A time without a time zone is taken to be in UTC already."""
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
        """Whether a record is among the lines to read."""
        if self.kinds is not None and type(record) not in self.kinds:
            return False
        if self.project is not None and not same_project(record.project, self.project):
            return False
        if self.since is not None and record.timestamp < self.since:
            return False
        if self.until is None:
            return True
        # A label given later may be about an earlier verdict.
        return isinstance(record, Label) or record.timestamp < self.until


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
            return f"{self.path}:{self.line}: {self.why}; this line is skipped"
        return f"{self.path}: {self.why}; skipped"


OnDamage: TypeAlias = "Callable[[Damage], None]"


class ReadLine(NamedTuple):
    record: Record
    raw: bytes


def entries(
    places: Iterable[Path], wanted: LineFilter = EVERYTHING, on_damage: OnDamage = lambda _: None
) -> Iterator[ReadLine]:
    """Yield the wanted lines of some files and folders, day by day.

    `on_damage` is called for each line or file that can't be read. Of several lines with the same id and
    author, only the first is yielded.
    """
    # Compare the author, too: otherwise a member of a team could hide another's line by a line with its id.
    seen_ids = set()
    first_day = None
    if wanted.since is not None:
        first_day = wanted.since.astimezone(UTC).date()
    schemas = [SCHEMAS[kind].encode() for kind in wanted.kinds or ()]
    for path, day in files(places, on_damage).items():
        is_too_old = first_day is not None and day is not None and day < first_day
        if is_too_old:
            continue
        for number, raw in raw_lines(path, on_damage):
            # Most lines are of other kinds: skip them without parsing. But parse a line that's cut off, so
            # that it's reported as damaged.
            may_be_wanted = wanted.kinds is None or any(schema in raw for schema in schemas)
            is_cut_off = not raw.endswith(b"}")
            if not may_be_wanted and not is_cut_off:
                continue
            record = parse(raw)
            if isinstance(record, str):  # the problem
                on_damage(Damage(path, number, record))
                continue
            id_and_author = (record.id, getattr(record, "who", ""))
            if id_and_author not in seen_ids and wanted.takes(record):
                seen_ids.add(id_and_author)
                yield ReadLine(record, raw)


def raw_lines(path: Path, on_damage: OnDamage) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the bytes of each line of a file that isn't empty.

    A line that's too long isn't yielded: `on_damage` is called for it, as it is for an unreadable file.
    """
    try:
        with path.open("rb") as file:
            for number in count(1):
                raw = file.readline(MAX_LINE)
                if not raw:
                    return
                is_too_long = len(raw) == MAX_LINE and not raw.endswith(b"\n")
                if is_too_long:
                    on_damage(Damage(path, number, f"longer than {MAX_LINE} bytes"))
                    while raw and not raw.endswith(b"\n"):  # skip the remainder
                        raw = file.readline(MAX_LINE)
                    continue
                text = raw.strip()
                if text:
                    yield number, text
    except OSError as error:
        on_damage(Damage(path, 0, f"cannot be read ({error.strerror or error})"))


def parse(raw: bytes) -> Record | str:
    """Parse a line of a ledger. Returns the problem as text if it's damaged, or of an unknown kind."""
    try:
        return records.Line.model_validate_json(raw).root
    except ValidationError as error:
        return _describe_problem(raw, error)


def _describe_problem(raw: bytes, error: ValidationError) -> str:
    """Describe the problem of a line that isn't valid."""
    first_error = error.errors(include_url=False)[0]
    if first_error["type"] == "json_invalid":
        return "not JSON (cut off when the writer was killed, or edited)"
    # pydantic's "tag" is our `schema`, by which it chooses the kind of line.
    has_unknown_schema = first_error["type"].startswith("union_tag")
    if has_unknown_schema or not isinstance(json.loads(raw), dict):
        tag = first_error.get("ctx", {}).get("tag")
        schema = short_line(str(tag or ""), _MOST_SHOWN)
        if schema:
            return f"of a kind unknown to this version ({schema})"
        return "not a ledger line"
    return short_line(str(problem_in(raw, error)), _MOST_SHOWN)


def sort_out(
    lines: Iterable[bytes], why_not: Callable[[Record], str]
) -> tuple[list[Record], dict[int, str]]:
    """Parse lines from elsewhere, and separate those that are accepted from the others.

    `why_not` returns a reason against a record, or "" to accept it. Returns the accepted records, and the
    reasons against the other lines by their index in `lines`.
    """
    accepted = []
    reasons = {}
    for index, raw in enumerate(lines):
        record = parse(raw)
        if isinstance(record, str):
            reasons[index] = record
            continue
        reason = why_not(record)
        if reason:
            reasons[index] = reason
        else:
            accepted.append(record)
    return accepted, reasons


def files(places: Iterable[Path], on_damage: OnDamage = lambda _: None) -> dict[Path, date | None]:
    """Map each ledger file in some files and folders to the day in its name, the oldest first.

    A file without a day in its name has None, and comes first. `on_damage` is called for each folder or file
    that can't be read.
    """
    paths: set[Path] = set()
    for place in places:
        # Not `Path.is_dir`, which raises an error if a folder above can't be entered.
        if os.path.isdir(place):  # noqa: PTH112
            paths.update(_find_files(place, on_damage))
        elif _may_exist(place):
            paths.add(place)
    days = {}
    for path in sorted(paths, key=_sort_key):
        day, _ = _parse_name(path)
        days[path] = day
    return days


def _find_files(folder: Path, on_damage: OnDamage) -> Iterator[Path]:
    """Yield the ledger files in a folder and its subfolders.

    `on_damage` is called for each folder or file that can't be read.
    """

    def report_unreadable(error: OSError) -> None:
        problem = f"cannot be read ({error.strerror or error})"
        on_damage(Damage(Path(str(error.filename)), 0, problem))

    for parent, subfolders, names in os.walk(folder, onerror=report_unreadable):
        for name in [*subfolders, *names]:
            if not name.endswith(_SUFFIX):
                continue
            path = Path(parent, name)
            if os.path.isfile(path):  # noqa: PTH113
                yield path
            else:
                problem = "not a regular file (a folder, a broken link or a device)"
                on_damage(Damage(path, 0, problem))
        # Changing the list in place keeps `os.walk` out of the folders just reported.
        subfolders[:] = [name for name in subfolders if not name.endswith(_SUFFIX)]


def _may_exist(path: Path) -> bool:
    """Whether a file exists, as far as can be told.

    True also if the system doesn't let us look: then reading the file raises the reason.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _parse_name(path: Path) -> tuple[date | None, int]:
    """Return the day and the part in a file's name, such as 2026-02-01 and 3 for `2026-02-01.3.jsonl`.

    The first file of a day has no part in its name: that's part 0. The day is None if the name has none.
    """
    match = _DAY.fullmatch(path.name)
    if not match:
        return None, 0
    day_text, part_text = match.groups(default="0")
    day = None
    with suppress(ValueError):  # such as 2026-02-31
        day = date.fromisoformat(day_text)
    return day, int(part_text)


def _sort_key(path: Path) -> tuple[date, int, str]:
    """Return a key that sorts files by day and part, with files without a day first."""
    day, part = _parse_name(path)
    return day or date.min, part, str(path)


def _append(path: Path, raw: bytes, *, durable: bool) -> None:
    """Append a line to a file, whole or not at all; raises `OSError`.

    With `durable`, it returns once the line is on the disk. Otherwise a power failure soon after may lose it.
    """
    descriptor = outputs.open_to_append(str(path), private=True)
    end_before = os.lseek(descriptor, 0, os.SEEK_END)
    try:
        # A writer that was killed may have left a line without a newline: then begin a new line.
        os.lseek(descriptor, max(end_before - 1, 0), os.SEEK_SET)
        last_byte = os.read(descriptor, 1)
        if last_byte not in (b"", b"\n"):
            raw = b"\n" + raw
        unwritten = memoryview(raw)
        # A write may write only a part, such as on a full disk. The next write then raises the actual error.
        while unwritten:
            written_bytes = os.write(descriptor, unwritten)
            unwritten = unwritten[written_bytes:]
        if durable:
            os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, end_before)
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
        problem = f"the ledger cannot be written ({error.strerror or error})"
        remedy = "free space there, make it a writable folder, or set JUDGEKIT_HOME to a folder elsewhere"
        super().__init__(f"{folder}: {problem}; {remedy}")


def _make_name(path: str) -> str:
    """Make a ledger's name from a path or an address, such as `shop-3f9a02c1b7de`.

    It's the last part of the path in safe characters, and a hash of the whole path.
    """
    digest = hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()
    safe_name = re.sub(r"[^A-Za-z0-9._]", "-", Path(path).name)
    readable = safe_name.strip("-.")[:_READABLE]
    return f"{readable or 'project'}-{digest[:_HASH]}"


def _find_address(top: Path) -> str:
    """Find the address of a repository's remote, without credentials.

    It's the remote `origin`, or else the only remote. "" if there's neither.
    """
    addresses: dict[str, str] = {}
    with suppress(GitError):
        output = Repository(top).ask("config", "-z", "--get-regexp", r"^remote\..*\.url$")
        # With -z, git ends each entry with a NUL, and its key with a newline.
        for entry in os.fsdecode(output).split("\0"):
            if not entry:
                continue
            key, _, address = entry.partition("\n")
            remote = key.removeprefix("remote.").removesuffix(".url")
            if remote not in addresses:  # git fetches from the first of several addresses
                addresses[remote] = address
    if "origin" in addresses:
        address = addresses["origin"]
    elif len(addresses) == 1:
        (address,) = addresses.values()
    else:
        return ""
    return normalize_address(address, str(top))


def _move_lines(former: Path, folder: Path) -> None:
    """Move the lines of a ledger that's named by a checkout's path to the one that's named by its remote.

    Lines that can't be moved stay in the folder `former`, and a later call tries again.
    """
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


def _find_checkout(start: Path) -> Path | None:
    """Find the checkout that a folder is in; None if it's in none.

    If that's a linked worktree, the main checkout is returned.
    """
    for folder in (start, *start.parents):
        if (folder / ".git").exists():
            return _find_main_checkout(folder)
    return None


def _find_main_checkout(checkout: Path) -> Path:
    """Return the main checkout of a linked worktree. A checkout that isn't a worktree is returned itself."""
    if not (checkout / ".git").is_file():
        return checkout
    # In a worktree, .git is a file with the line `gitdir: PATH`, and PATH/commondir leads to the main .git.
    with suppress(OSError, ValueError):
        key, _, git_path = _read_line(checkout / ".git").partition(": ")
        common_path = _read_line(checkout / git_path / "commondir")
        main_git = Path(os.path.realpath(checkout / git_path / common_path))
        if key == "gitdir" and main_git.name == ".git":
            return main_git.parent
    return checkout


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
        top = _find_checkout(start)
        path = os.path.realpath(top or environment.project_root(str(start)))
        name = _make_name(os.path.normcase(path))
        address = "" if top is None else _find_address(Path(path))
        if address:
            former_folder = home() / name  # from before the repository had a remote
            name = _make_name(f"remote {address}")
            _move_lines(former_folder, home() / name)
        return cls(home() / name, name)

    def add(self, *records: Record) -> None:
        """Append records to the ledger, each to the file of its day in UTC.

        A record is written whole or not at all. Raises `LedgerError`, with the number of records written.
        """
        if not records:
            return
        dated_lines = []
        for record in records:
            day = record.timestamp.astimezone(UTC).date()
            own_record = record.model_copy(update={"project": self.name})
            dated_lines.append((day, line(own_record)))
        # Records that people typed must not be lost, so wait until they're on the disk.
        must_last = any(isinstance(record, _BY_HAND) for record in records)
        written_lines = 0
        try:
            environment.private_folder(str(self.folder))
            with file_lock(self.folder / LOCK, timeout=SECONDS):
                for day, raw in dated_lines:
                    _append(self._file_with_room(day), raw, durable=must_last)
                    written_lines += 1
        except OSError as error:
            raise LedgerError(self.folder, error, written_lines) from None

    def _file_with_room(self, day: date) -> Path:
        """Return the path of the first file of a day that isn't full. The file may not exist yet."""
        path = self.folder / f"{day}{_SUFFIX}"
        part = 0
        while path.exists() and path.stat().st_size >= MAX_BYTES:
            part += 1
            path = self.folder / f"{day}.{part}{_SUFFIX}"
        return path

    def records(
        self, wanted: LineFilter = EVERYTHING, on_damage: OnDamage = lambda _: None
    ) -> Iterator[Record]:
        """Yield the wanted records; call `on_damage` for each line or file that can't be read."""
        for read_line in entries([self.folder], wanted, on_damage):
            yield read_line.record

    def note(
        self,
        verdict: Verdict,
        said: Iterable[Record],
        gate: PushRecord | None = None,
        *,
        text: bool,
    ) -> Verdict:
        """Append a verdict to the ledger, with the findings marked that people dismissed earlier.

        `said` are ledger lines, with people's dismissals among them. `gate` describes the push; it's None for
        the verdict on a task. Quoted input is only written with `text`. Returns the verdict with the marks.
        Raises `LedgerError`.
        """
        quotes = [finding.quote for finding in verdict.findings]
        key = self._read_key() if any(quotes) else b""  # without quotes, there's nothing to hash
        hashes = [records.quote_hash(quote, key) for quote in quotes]
        marked_verdict = records.with_dismissals(verdict, hashes, said)
        is_task = gate is None
        self.add(
            records.verdict_line(marked_verdict, hashes, text=text, gate=gate, of_task=is_task)
        )
        return marked_verdict

    def _read_key(self) -> bytes:
        """Return the ledger's secret key for hashing quotes; raises `LedgerError`.

        The key is created when it's first needed.
        """
        path = self.folder / KEY
        try:
            if not path.exists():
                environment.private_folder(str(self.folder))
                with file_lock(self.folder / LOCK, timeout=SECONDS):
                    # Another process may have created it while this one waited.
                    if not path.exists():
                        secret = secrets.token_bytes(32)
                        outputs.write_atomically(str(path), secret, durable=True, private=True)
            return path.read_bytes()
        except OSError as error:
            raise LedgerError(self.folder, error) from None


def purge(folder: Path, before: date, *, preview: bool = False) -> Counter[str]:
    """Remove from a ledger's folder the files of days before `before` (UTC).

    Labels in later files are removed, too, if they're about a verdict in a removed file. Returns the number
    of removed lines of each kind; damaged lines and unreadable files are counted as `damaged`. A `preview`
    only counts them. Raises `LedgerError`.
    """
    counts: Counter[str] = Counter()
    removed_verdicts: set[str] = set()
    try:
        with nullcontext() if preview else file_lock(folder / LOCK, timeout=SECONDS):
            for path, day in files([folder]).items():
                if day is None:
                    continue
                lines = _read_lines(path)
                if day < before:
                    _count_removed(lines, counts, removed_verdicts)
                    if not preview:
                        path.unlink()
                    continue
                # Files come in the order of days, so all removed verdicts are known here.
                kept_lines = [raw for raw in lines if not _is_label_of(raw, removed_verdicts)]
                counts["label"] += len(lines) - len(kept_lines)
                if len(kept_lines) < len(lines) and not preview:
                    outputs.write_atomically(
                        str(path), b"".join(kept_lines), durable=True, private=True
                    )
    except OSError as error:
        raise LedgerError(folder, error) from None
    return +counts  # the `+` drops the kinds with a count of 0


def _count_removed(lines: Iterable[bytes], counts: Counter[str], verdict_ids: set[str]) -> None:
    """Count the lines of a removed file by kind, and add the ids of its verdicts to `verdict_ids`."""
    for record in map(parse, lines):
        if isinstance(record, VerdictLine):
            verdict_ids.add(record.id)
        if isinstance(record, str):
            counts["damaged"] += 1
        else:
            counts[kind_in(record.schema_)] += 1


def _read_lines(path: Path) -> list[bytes]:
    """Return the lines of a file that aren't empty.

    An unreadable file gives a single line that can't be parsed, and so counts as damaged.
    """
    try:
        with path.open("rb") as file:
            return [raw for raw in file if raw.strip()]
    except OSError:
        return [b"unreadable"]


def _is_label_of(raw: bytes, verdict_ids: Collection[str]) -> bool:
    """Whether a line of a ledger is a label of a verdict with one of these ids."""
    if SCHEMAS[Label].encode() not in raw:  # most lines: don't parse them
        return False
    record = parse(raw)
    return isinstance(record, Label) and record.of in verdict_ids
