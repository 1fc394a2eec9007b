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
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, TypeAlias

from pydantic import ValidationError

from judgekit import environment, outputs
from judgekit.config.locks import file_lock
from judgekit.config.yamlfile import explain_json_error
from judgekit.errors import Exit, JudgekitError, UsageError
from judgekit.git import GitError, Repository, normalise_address
from judgekit.ledger import records
from judgekit.ledger.records import (
    SCHEMAS,
    DismissalLine,
    Label,
    OverrideLine,
    Record,
    VerdictLine,
    parse_kind,
    serialise_record,
)
from judgekit.text import shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from pydantic_core import ErrorDetails

    from judgekit.judging.verdict import Verdict
    from judgekit.ledger.records import PushRecord

MAX_FILE_BYTES = 32_000_000  # of one file; a day with more gets another one
MAX_LINE_BYTES = 16_000_000  # bytes: far above any real line
LOCK_FILE = ".lock"
KEY_FILE = ".quotes.key"
_KEY_BYTES = 32
_DAMAGED_LINE = b"unreadable"  # not JSON, so parsing it fails
LOCK_SECONDS = 10.0  # long enough: a writer holds the lock for about a millisecond
_LEDGER_FILE_SUFFIX = ".jsonl"
_FILE_NAME_PATTERN = re.compile(r"(\d{4}-\d\d-\d\d)(?:\.(\d+))?\.jsonl")
_MAX_PROBLEM_CHARS = 300  # characters of the message about a damaged line
# People can't be asked to type these again, so wait until they're on the disk.
_TYPED_RECORDS = (Label, OverrideLine, DismissalLine)
_HASH_DIGITS = 12
_MAX_READABLE_CHARS = 40
_LEDGER_NAME_PATTERN = re.compile(
    rf"[A-Za-z0-9_][A-Za-z0-9._-]{{0,{_MAX_READABLE_CHARS - 1}}}-[0-9a-f]{{{_HASH_DIGITS}}}"
)
_FIRST_YEAR = 2000
_LAST_YEAR = 2200  # years; Python's very first and last can't change time zones
_TIME_AGO_PATTERN = re.compile(r"(\d{1,5})([hdw])")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def get_ledgers_folder() -> Path:
    """Return the folder with the ledgers of all projects."""
    return Path(environment.LEDGER.path())


def explain_misplaced(record: Record) -> str:
    """Explain why a record from another machine can't be stored. Returns "" if it can."""
    # The project becomes a folder's name, so it mustn't lead out of the ledgers' folder.
    if not _LEDGER_NAME_PATTERN.fullmatch(record.project):
        return "project: expected the name of a ledger"
    # The UTC day becomes a file's name. Near the years 1 and 9999, Python can't convert times to UTC.
    if not _FIRST_YEAR <= record.timestamp.year <= _LAST_YEAR:
        return "timestamp: not a time of a verdict"
    return ""


def is_same_project(project: str, wanted: str) -> bool:
    """Whether `wanted` is the project's name, with or without its hash: `shop-3f9a02c1b7de`, `shop`."""
    name_without_hash = project[: -_HASH_DIGITS - 1]
    return wanted in (project, name_without_hash)


def parse_time(text: str, now: datetime | None = None) -> datetime:
    """Parse an ISO time or date (UTC by default), or a time before `now`: `14d`, `36h` or `2w`.

    Raises `UsageError` if it's none of these.
    """
    stripped = text.strip()
    match = _TIME_AGO_PATTERN.fullmatch(stripped)
    try:
        if match:
            number, unit = match.groups()
            return (now or datetime.now(UTC)) - int(number) * _UNITS[unit]
        return convert_to_utc(datetime.fromisoformat(stripped))
    except (ValueError, OverflowError):
        expected = "expected 14d, 36h, 2w, a date as 2026-02-01 or a time as 2026-02-01T08:00:00Z"
        raise UsageError(f"{text[:60]!r} is not a time: {expected}") from None


def _read_line(path: Path) -> str:
    """Read a file that holds one line, and return the line without its newline."""
    return os.fsdecode(path.read_bytes()).rstrip("\r\n")


def convert_to_utc(when: datetime) -> datetime:
    """Convert a time to UTC. Times without a time zone are in UTC already."""
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
        """Whether a record matches the filter."""
        if self.kinds is not None and type(record) not in self.kinds:
            return False
        if self.project is not None and not is_same_project(record.project, self.project):
            return False
        if self.since is not None and record.timestamp < self.since:
            return False
        if self.until is None:
            return True
        # `until` doesn't apply to labels, since a later label can be about an earlier verdict.
        return isinstance(record, Label) or record.timestamp < self.until


EVERYTHING = LineFilter()
DECISIONS_FILTER = LineFilter(kinds=[OverrideLine, DismissalLine])
"""Decisions of people that later verdicts respect."""


class Damage(NamedTuple):
    """A line that was skipped, and the reason. With `line_number` 0 it's a whole file or folder."""

    path: Path
    line_number: int
    why: str

    def __str__(self) -> str:
        if self.line_number:
            return f"{self.path}:{self.line_number}: {self.why}; this line is skipped"
        return f"{self.path}: {self.why}; skipped"


OnDamage: TypeAlias = "Callable[[Damage], None]"


class ReadLine(NamedTuple):
    record: Record
    raw: bytes


def read_entries(
    places: Iterable[Path], wanted: LineFilter = EVERYTHING, on_damage: OnDamage = lambda _: None
) -> Iterator[ReadLine]:
    """Yield the wanted lines in the given files and folders, day by day.

    Lines with the same id and author are yielded only once. `on_damage` is called for each unreadable line or
    file.
    """
    encoded_schemas = None
    if wanted.kinds is not None:
        encoded_schemas = [SCHEMAS[kind].encode() for kind in wanted.kinds]

    yielded = set()  # pairs of id and author
    for path, day in list_files(places, on_damage).items():
        if _is_before(day, wanted.since):
            continue

        for number, raw in read_raw_lines(path, on_damage):
            # Parsing is slow, so skip lines of other kinds without it.
            if not _is_worth_parsing(raw, encoded_schemas):
                continue

            record = parse(raw)
            if isinstance(record, str):  # The line can't be read, and this string is the reason.
                on_damage(Damage(path, number, record))
                continue

            # Ids can be copied. Compare the author too, so that nobody can hide another person's line.
            author = getattr(record, "who", "")  # verdicts and faults have none
            id_and_author = (record.id, author)
            is_new = id_and_author not in yielded
            if is_new and wanted.takes(record):
                yielded.add(id_and_author)
                yield ReadLine(record, raw)


def _is_before(day: date | None, since: datetime | None) -> bool:
    """Whether a file's day ended before a time. False if either is unknown."""
    if day is None or since is None:
        return False
    return day < since.astimezone(UTC).date()


def _is_worth_parsing(raw: bytes, schemas: Collection[bytes] | None) -> bool:
    """Whether a line may have one of these schemas, or is cut off. None means any schema."""
    if schemas is None:
        return True
    # A cut-off line may have lost its schema. Parsing it fails, so that it's reported as damage.
    is_cut_off = not raw.endswith(b"}")
    return is_cut_off or any(schema in raw for schema in schemas)


def read_raw_lines(path: Path, on_damage: OnDamage) -> Iterator[tuple[int, bytes]]:
    """Yield the number and content of each line in a file, except empty lines.

    `on_damage` is called for a line that's too long, or if the file can't be read.
    """
    try:
        with path.open("rb") as file:
            for number in count(1):
                raw = file.readline(MAX_LINE_BYTES)
                if not raw:
                    return

                if _is_too_long(raw):
                    on_damage(Damage(path, number, f"longer than {MAX_LINE_BYTES} bytes"))
                    _skip_rest_of_line(file)
                    continue

                content = raw.strip()
                if content:
                    yield number, content
    except OSError as error:
        # Line number 0 stands for the whole file.
        on_damage(Damage(path, 0, f"cannot be read ({error.strerror or error})"))


def _is_too_long(raw: bytes) -> bool:
    """Whether reading a line has stopped at the size limit, before the line's end."""
    has_end = raw.endswith(b"\n")
    return len(raw) == MAX_LINE_BYTES and not has_end


def _skip_rest_of_line(file: BinaryIO) -> None:
    """Read up to the end of the line or of the file, in pieces that fit into memory."""
    is_at_end = False
    while not is_at_end:
        piece = file.readline(MAX_LINE_BYTES)
        is_at_end = not piece or piece.endswith(b"\n")


def parse(raw: bytes) -> Record | str:
    """Parse a ledger line. Returns the problem as a string if the line is damaged or unknown."""
    try:
        return records.Line.model_validate_json(raw).root
    except ValidationError as error:
        return _describe_problem(raw, error)


def _describe_problem(raw: bytes, error: ValidationError) -> str:
    """Describe why a line is invalid."""
    first_error = error.errors(include_url=False)[0]
    if first_error["type"] == "json_invalid":
        return "not JSON (cut off when the writer was killed, or edited)"

    has_unknown_schema = first_error["type"].startswith("union_tag")
    if has_unknown_schema or not _is_object(raw):
        return _describe_unknown_kind(first_error)
    return shorten_to_line(str(explain_json_error(raw, error)), _MAX_PROBLEM_CHARS)


def _is_object(raw: bytes) -> bool:
    """Whether valid JSON is an object, rather than a list or a number."""
    return isinstance(json.loads(raw), dict)


def _describe_unknown_kind(error: ErrorDetails) -> str:
    """Describe a line if its schema is missing or unknown."""
    # pydantic's "tag" is our `schema`, by which it chooses the kind of line.
    context = error.get("ctx", {})
    schema = shorten_to_line(str(context.get("tag") or ""), _MAX_PROBLEM_CHARS)
    if schema:
        return f"of a kind unknown to this version ({schema})"
    return "not a ledger line"


def parse_accepted(
    lines: Iterable[bytes], find_problem: Callable[[Record], str]
) -> tuple[list[Record], dict[int, str]]:
    """Parse untrusted lines. Returns the accepted records, and the reasons to reject the others.

    `find_problem` returns the reason to reject a record, or "".
    """
    accepted = []
    reasons = {}  # by the line's index in `lines`

    for index, raw in enumerate(lines):
        record = parse(raw)
        if isinstance(record, str):  # The line can't be parsed, and this string is the reason.
            reasons[index] = record
            continue

        problem = find_problem(record)
        if problem:
            reasons[index] = problem
        else:
            accepted.append(record)
    return accepted, reasons


def list_files(
    places: Iterable[Path], on_damage: OnDamage = lambda _: None
) -> dict[Path, date | None]:
    """Find the ledger files in the given files and folders. Returns the day in each file's name.

    Files without a day (None) come first, then the oldest. In folders, `on_damage` is called for each
    subfolder, broken link or device with a ledger file's name, and for each folder that can't be read.
    """
    paths: set[Path] = set()
    for place in places:
        paths.update(_find_files_at(place, on_damage))

    days = {}
    for path in sorted(paths, key=_sort_key):
        day, _ = _parse_name(path)
        days[path] = day
    return days


def _find_files_at(place: Path, on_damage: OnDamage) -> Iterable[Path]:
    """Find the ledger files at a place, which is a folder or a single file."""
    # Unlike `Path.is_dir`, this doesn't raise an error if a parent folder can't be entered.
    is_folder = os.path.isdir(place)  # noqa: PTH112
    if is_folder:
        return _find_files(place, on_damage)
    return [place] if _may_exist(place) else []


def _find_files(folder: Path, on_damage: OnDamage) -> Iterator[Path]:
    """Yield the ledger files in a folder and its subfolders.

    `on_damage` is called for each folder that can't be read, and for anything that's named like a ledger file
    but isn't a regular file.
    """

    def report_unreadable(error: OSError) -> None:
        problem = f"cannot be read ({error.strerror or error})"
        on_damage(Damage(Path(str(error.filename)), 0, problem))

    for parent, subfolders, names in os.walk(folder, onerror=report_unreadable):
        # A folder can have a ledger file's name: report it, too.
        for name in filter(_has_suffix, [*subfolders, *names]):
            path = Path(parent, name)
            if os.path.isfile(path):  # noqa: PTH113
                yield path
            else:
                problem = "not a regular file (a folder, a broken link or a device)"
                on_damage(Damage(path, 0, problem))

        # Remove these folders from the list in place, so that `os.walk` doesn't enter them.
        subfolders[:] = [name for name in subfolders if not _has_suffix(name)]


def _has_suffix(name: str) -> bool:
    """Whether a name ends like a ledger file's."""
    return name.endswith(_LEDGER_FILE_SUFFIX)


def _may_exist(path: Path) -> bool:
    """Whether a file exists; True if that can't be determined."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # reading the file will report the reason
    return True


def _parse_name(path: Path) -> tuple[date | None, int]:
    """Extract the day and part number from a file's name, such as `2026-02-01.3.jsonl`.

    Without a valid day, the day is None. Without a part number, the part is 0.
    """
    match = _FILE_NAME_PATTERN.fullmatch(path.name)
    if not match:
        return None, 0
    day_text, part_text = match.groups()
    part = int(part_text or 0)
    try:
        return date.fromisoformat(day_text), part
    except ValueError:  # e.g. 2026-02-31
        return None, part


def _sort_key(path: Path) -> tuple[date, int, str]:
    """Return a key that sorts files by day and part. Files without a day come first."""
    day, part = _parse_name(path)
    return day or date.min, part, str(path)


def _append(path: Path, raw: bytes, *, durable: bool) -> None:
    """Append a line to a file, completely or not at all. Raises `OSError` on failure.

    If `durable`, wait until the line is safely on the disk.
    """
    descriptor = outputs.open_to_append(str(path), private=True)
    original_end = os.lseek(descriptor, 0, os.SEEK_END)
    try:
        # If a killed process has left an incomplete line at the file's end, start a new line.
        if _ends_within_line(descriptor, original_end):
            raw = b"\n" + raw
        _write_all(descriptor, raw)
        if durable:
            os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, original_end)  # remove the incomplete line
        raise
    finally:
        os.close(descriptor)


def _ends_within_line(descriptor: int, end: int) -> bool:
    """Whether a file's last line is incomplete, without a newline. `end` is the file's size."""
    last_position = max(end - 1, 0)
    os.lseek(descriptor, last_position, os.SEEK_SET)
    last_byte = os.read(descriptor, 1)
    is_empty_file = last_byte == b""
    return not is_empty_file and last_byte != b"\n"


def _write_all(descriptor: int, raw: bytes) -> None:
    """Write all bytes to a file."""
    # On a full disk, `os.write` can write only a part. The next call then raises the actual error.
    unwritten = memoryview(raw)
    while unwritten:
        written_bytes = os.write(descriptor, unwritten)
        unwritten = unwritten[written_bytes:]


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
    """Build a ledger's name from a path or URL: its last part and a hash, such as `shop-3f9a02c1b7de`."""
    digest = hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()
    safe_name = re.sub(r"[^A-Za-z0-9._]", "-", Path(path).name)
    readable = safe_name.strip("-.")[:_MAX_READABLE_CHARS]
    return f"{readable or 'project'}-{digest[:_HASH_DIGITS]}"


def _find_remote_address(checkout: Path) -> str:
    """Return the address of the remote `origin`, or else of the only remote, such as `github.com/ann/shop`.

    Returns "" if there's no remote, or several without an `origin`.
    """
    url_by_remote = _read_remote_urls(checkout)
    if "origin" in url_by_remote:
        url = url_by_remote["origin"]
    elif len(url_by_remote) == 1:
        (url,) = url_by_remote.values()
    else:
        return ""
    # The URL can be a path relative to the checkout.
    return normalise_address(url, str(checkout))


def _read_remote_urls(checkout: Path) -> dict[str, str]:
    """Return the URL of each remote, by the remote's name; {} if git fails."""
    try:
        output = Repository(checkout).ask("config", "-z", "--get-regexp", r"^remote\..*\.url$")
    except GitError:
        return {}

    url_by_remote: dict[str, str] = {}
    # With -z, each entry is a key, a newline, the value and a NUL.
    entries = os.fsdecode(output).split("\0")
    for entry in filter(None, entries):
        key, _, url = entry.partition("\n")
        remote = key.removeprefix("remote.").removesuffix(".url")
        # If a remote has multiple URLs, git fetches from the first one.
        url_by_remote.setdefault(remote, url)
    return url_by_remote


def _move_lines(old_folder: Path, new_folder: Path) -> None:
    """Move a ledger's lines from one folder to another.

    If that fails, the next call moves the lines that are left.
    """
    is_real_folder = old_folder.is_dir() and not old_folder.is_symlink()
    if not is_real_folder:
        return

    # If the new folder doesn't exist, renaming the old one is enough.
    with suppress(OSError):
        if not new_folder.exists():
            old_folder.rename(new_folder)
            return

    # The new folder exists, or another process has just created it. So append to its files.
    with suppress(OSError), file_lock(new_folder / LOCK_FILE, timeout=LOCK_SECONDS):
        _append_files(old_folder, new_folder)
        # Files of lines with other names stay where they are. Any others, such as the lock, aren't needed.
        has_other_lines = any(old_folder.rglob(f"*{_LEDGER_FILE_SUFFIX}"))
        if not has_other_lines:
            shutil.rmtree(old_folder, ignore_errors=True)


def _append_files(old_folder: Path, new_folder: Path) -> None:
    """Append each ledger file of a folder to the file of the same name in another, and delete it."""
    for path in sorted(old_folder.glob(f"*{_LEDGER_FILE_SUFFIX}")):
        if not _FILE_NAME_PATTERN.fullmatch(path.name):
            continue
        _append(new_folder / path.name, path.read_bytes(), durable=True)
        path.unlink()


def _find_checkout(start: Path) -> Path | None:
    """Find the main checkout of the git repository that contains a folder; None outside any."""
    for folder in (start, *start.parents):
        if (folder / ".git").exists():
            return _find_main_checkout(folder)
    return None


def _find_main_checkout(checkout: Path) -> Path:
    """Return the main checkout of a linked worktree. Any other checkout is returned unchanged."""
    git_file = checkout / ".git"
    if not git_file.is_file():
        return checkout
    # A submodule has no `commondir` file (OSError). A damaged file can contain a NUL (ValueError).
    with suppress(OSError, ValueError):
        # In a worktree, .git is a file that contains `gitdir: PATH`.
        key, _, git_path = _read_line(git_file).partition(": ")
        if key != "gitdir":
            return checkout
        # The file PATH/commondir contains the path of the main repository's git folder, relative to PATH.
        common_path = _read_line(checkout / git_path / "commondir")
        main_git = Path(os.path.realpath(checkout / git_path / common_path))
        # The git folder of a bare repository or a submodule has another name, and isn't inside a checkout.
        if main_git.name == ".git":
            return main_git.parent
    return checkout


class Ledger(NamedTuple):
    """The lines of one project, in `folder`; each of them carries its `name`."""

    folder: Path
    name: str

    @classmethod
    def of(cls, start: Path) -> Ledger:
        """Find the ledger of the project that contains the folder `start`.

        All clones and worktrees of a repository share a ledger, which is named after the remote's address.
        Without such an address, the ledger is named after the project's path.
        """
        start = start.absolute()
        checkout = _find_checkout(start)
        project_folder = checkout or environment.find_project_root(str(start))
        project_path = os.path.realpath(project_folder)
        # On Windows, the same path can be written in upper or lower case.
        path_name = _make_name(os.path.normcase(project_path))
        path_folder = get_ledgers_folder() / path_name

        address = _find_remote_address(Path(project_path)) if checkout else ""
        if not address:
            return cls(path_folder, path_name)

        # The address can be a local path. "remote" makes the name differ from that of the project there.
        remote_name = _make_name(f"remote {address}")
        remote_folder = get_ledgers_folder() / remote_name
        # Before the repository had a remote, the ledger was named after the path. Move those lines.
        _move_lines(path_folder, remote_folder)
        return cls(remote_folder, remote_name)

    def add(self, *records: Record) -> None:
        """Append records to the ledger, each to the file for its UTC day.

        Each record is written completely or not at all. Raises `LedgerError`, which contains the number of
        records written.
        """
        if not records:
            return

        # Serialise all records before writing any. If one can't be serialised, none is written.
        dated_lines = []
        for record in records:
            day = record.timestamp.astimezone(UTC).date()
            named_record = record.model_copy(update={"project": self.name})
            dated_lines.append((day, serialise_record(named_record)))

        # People can't be asked to type records again, so such records must be safely on the disk.
        is_typed = any(isinstance(record, _TYPED_RECORDS) for record in records)
        written_count = 0
        try:
            environment.make_private_folder(str(self.folder))
            with file_lock(self.folder / LOCK_FILE, timeout=LOCK_SECONDS):
                for day, raw in dated_lines:
                    path = self._find_file_with_room(day)
                    _append(path, raw, durable=is_typed)
                    written_count += 1
        except OSError as error:
            raise LedgerError(self.folder, error, written_count) from None

    def _find_file_with_room(self, day: date) -> Path:
        """Return the path of a day's first file that isn't full. It may not exist yet."""
        path = self.folder / f"{day}{_LEDGER_FILE_SUFFIX}"
        part = 0
        while path.exists() and path.stat().st_size >= MAX_FILE_BYTES:
            part += 1
            path = self.folder / f"{day}.{part}{_LEDGER_FILE_SUFFIX}"
        return path

    def read_records(
        self, wanted: LineFilter = EVERYTHING, on_damage: OnDamage = lambda _: None
    ) -> Iterator[Record]:
        """Yield the wanted records; call `on_damage` for each line or file that can't be read."""
        for read_line in read_entries([self.folder], wanted, on_damage):
            yield read_line.record

    def add_verdict(
        self,
        verdict: Verdict,
        ledger_records: Iterable[Record],
        gate: PushRecord | None = None,
        *,
        text: bool,
    ) -> Verdict:
        """Append a verdict to the ledger, and return it with its dismissed findings marked.

        `ledger_records` contains people's dismissals. `gate` describes the push, or is None for a task.
        Quoted input is only written if `text`. Raises `LedgerError` if the ledger can't be written.
        """
        # Hash the quotes with the ledger's key. If there are no quotes, no key is needed.
        quotes = [finding.quote for finding in verdict.findings]
        key = self._read_key() if any(quotes) else b""
        hashes = [records.hash_quote(quote, key) for quote in quotes]
        marked_verdict = records.mark_dismissed(verdict, hashes, ledger_records)
        is_task = gate is None
        self.add(
            records.make_verdict_line(marked_verdict, hashes, text=text, gate=gate, of_task=is_task)
        )
        return marked_verdict

    def _read_key(self) -> bytes:
        """Return the ledger's secret key for hashing quotes, creating it if needed; raises `LedgerError`."""
        path = self.folder / KEY_FILE
        try:
            if not path.exists():
                self._create_key(path)
            return path.read_bytes()
        except OSError as error:
            raise LedgerError(self.folder, error) from None

    def _create_key(self, path: Path) -> None:
        """Write a new secret key to a file, unless another process is faster."""
        environment.make_private_folder(str(self.folder))
        with file_lock(self.folder / LOCK_FILE, timeout=LOCK_SECONDS):
            # Another process may have created the key while we waited for the lock.
            if path.exists():
                return
            secret = secrets.token_bytes(_KEY_BYTES)
            outputs.write_atomically(str(path), secret, durable=True, private=True)


def purge(folder: Path, before: date, *, preview: bool = False) -> Counter[str]:
    """Delete a ledger's files for days before `before` (UTC), and the newer labels of the deleted verdicts.

    Returns the number of deleted lines by kind. Damaged lines and unreadable files count as "damaged". If
    `preview`, nothing is deleted. Raises `LedgerError` if a file can't be deleted or rewritten.
    """
    counts: Counter[str] = Counter()  # deleted lines, by kind
    removed_verdict_ids: set[str] = set()
    try:
        # A preview changes nothing, so it needs no lock.
        lock = nullcontext() if preview else file_lock(folder / LOCK_FILE, timeout=LOCK_SECONDS)
        with lock:
            for path, day in list_files([folder]).items():
                # The ledger never writes a file without a day, so keep it.
                if day is None:
                    continue
                # The files are sorted by day, so all deleted verdicts are known before the first kept file.
                if day < before:
                    _count_removed(_read_lines(path), counts, removed_verdict_ids)
                    if not preview:
                        path.unlink()
                else:
                    counts["label"] += _remove_labels(path, removed_verdict_ids, preview=preview)
    except OSError as error:
        raise LedgerError(folder, error) from None

    return +counts  # `+` drops kinds with a count of 0


def _count_removed(lines: Iterable[bytes], counts: Counter[str], verdict_ids: set[str]) -> None:
    """Count removed lines by kind, and add the ids of removed verdicts to `verdict_ids`."""
    for raw in lines:
        record = parse(raw)
        if isinstance(record, str):  # The line is damaged, and this string is the reason.
            counts["damaged"] += 1
            continue

        counts[parse_kind(record.schema_)] += 1
        if isinstance(record, VerdictLine):
            verdict_ids.add(record.id)


def _remove_labels(path: Path, verdict_ids: Collection[str], *, preview: bool) -> int:
    """Remove the labels of these verdicts from a file, and return their number. A preview only counts."""
    lines = _read_lines(path)
    kept_lines = [raw for raw in lines if not _is_label_of(raw, verdict_ids)]
    removed_count = len(lines) - len(kept_lines)
    if preview or removed_count == 0:
        return removed_count
    outputs.write_atomically(str(path), b"".join(kept_lines), durable=True, private=True)
    return removed_count


def _read_lines(path: Path) -> list[bytes]:
    """Return the non-empty lines of a file, or a single damaged line if the file can't be read."""
    try:
        with path.open("rb") as file:
            return [raw for raw in file if raw.strip()]
    except OSError:
        return [_DAMAGED_LINE]


def _is_label_of(raw: bytes, verdict_ids: Collection[str]) -> bool:
    """Whether a ledger line is a label of one of these verdicts."""
    # Most lines are of other kinds, so skip these without parsing.
    if SCHEMAS[Label].encode() not in raw:
        return False
    record = parse(raw)
    return isinstance(record, Label) and record.of in verdict_ids
