"""Writes results to OUT: builds its rows, finds those a second run keeps, and neither loses nor repeats any.

Each row is written as a line of JSON as soon as it's judged: to OUT itself if that's JSON Lines, else to
`OUT.part.jsonl`, from which OUT is written at the end. A second run reads these lines, not a finished CSV
file, because numbers and nested values have become text in it.
"""

from __future__ import annotations

import errno
import filecmp
import json
import math
import os
import sqlite3
import tempfile
import threading
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

from judgekit import environment, outputs
from judgekit.config.locks import HeldError, hold_for_writing
from judgekit.data import seals, tables
from judgekit.data.sources.line_reader import read_bounded_lines
from judgekit.errors import InputError, UsageError
from judgekit.evaluation.labels import normalise_id
from judgekit.judging.documents import MAX_BYTES
from judgekit.text import replace_surrogates, shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from judgekit.data.rows import Rows
    from judgekit.data.seals import Fingerprint
    from judgekit.data.sources import DataRow
    from judgekit.data.tables import TableWriter

OUR_COLUMNS = (
    "id",
    "verdict",
    "average",
    "scores",
    "reasoning",
    "model",
    "cost_usd",
    "duration_ms",
    "error",
    "fingerprint",
    "judged",
)
"""The columns that follow a row's own."""
RECORD_COLUMNS = ("fingerprint", "judged")
"""Those of `OUR_COLUMNS` that programs read and people don't: a lean table leaves them out."""
UNDETERMINED = "undetermined"
VARIANTS = "variants"
"""The record's key for the verdicts by name, if a row was judged in several ways."""
RUN = "run"
"""The column with the run's name, if it has one."""
_MAX_IN_MEMORY = 20_000  # ids of at most 1,000 characters
_JUDGE_CHARS = 200
_REQUIRED_COLUMNS = ("verdict", "fingerprint")  # besides the id, a line of ours has both
_NO_RESULT = b"?"
_MAX_LINE = 8 * MAX_BYTES  # bytes; JSON writes some characters as six
_CREATE_ROWS_SQL = """CREATE TABLE rows (
    id TEXT PRIMARY KEY,
    place INTEGER,  -- in the input; null for a row that it no longer has
    in_again_file INTEGER, start INTEGER, size INTEGER,  -- its newest line: in which file, and where
    fingerprint TEXT, word TEXT, failed INTEGER,
    sealed INTEGER,  -- whether this user's key wrote the line
    again INTEGER NOT NULL DEFAULT 0,  -- whether it is to be judged again
    moved INTEGER  -- where the line starts in the file that is being written
) WITHOUT ROWID"""
_NOTE_LINE_SQL = """INSERT INTO rows (id, in_again_file, start, size, fingerprint, word, failed, sealed)
    VALUES (:id, :in_again_file, :start, :size, :fingerprint, :word, :failed, :sealed)
    ON CONFLICT (id) DO UPDATE SET in_again_file = excluded.in_again_file, start = excluded.start,
    size = excluded.size, fingerprint = excluded.fingerprint, word = excluded.word,
    failed = excluded.failed, sealed = excluded.sealed, again = 0"""
_NOTE_PLACE_SQL = """INSERT INTO rows (id, place) VALUES (?, ?)
    ON CONFLICT (id) DO UPDATE SET place = coalesce(place, excluded.place)"""
_NOTE_MOVE_SQL = "UPDATE rows SET moved = ?, size = ?, sealed = ? WHERE id = ?"
_SELECT_IN_ORDER_SQL = (
    "SELECT id, in_again_file, start, size, sealed FROM rows WHERE {}"
    " ORDER BY place IS NULL, place, in_again_file DESC, start"
)


class TakenNames(NamedTuple):
    """Names that an input column can't keep in the results file: `OUR_COLUMNS` and this run's `more_names`.

    A column that gives the ids keeps the name `id`, since its values are our ids.
    """

    more_names: frozenset[str] = frozenset()
    id_column: str | None = None

    def with_names(self, names: Iterable[str]) -> TakenNames:
        return self._replace(more_names=self.more_names.union(names))

    def __contains__(self, name: object) -> bool:
        return name in OUR_COLUMNS or name in self.more_names


ONLY_OURS = TakenNames()


def build_result(
    row: DataRow,
    row_id: str | int,
    record: Mapping[str, Any] | None,
    error: str | None,
    fingerprint: str,
    taken: TakenNames = ONLY_OURS,
    run: str | None = None,
) -> dict[str, Any]:
    """Build a result row: the input row's columns, then `OUR_COLUMNS`.

    `record` is the record of a verdict or a comparison, or None if the row couldn't be judged. Input columns
    with a `taken` name become `row.NAME`. `run` is the run's name, if any. Infinity and NaN become null.
    """
    judged = record or {}
    columns = _copy_own_columns(row, taken)
    for name, verdict in (judged.get(VARIANTS) or {}).items():
        columns[variant_column(name)] = verdict
    if run is not None:
        columns[RUN] = run

    values = {
        **_collect_values(judged, error),
        "id": row_id,
        "fingerprint": fingerprint,
        "judged": record,
    }
    our_columns = {name: values.get(name) for name in OUR_COLUMNS}
    return {**columns, **_replace_infinities(our_columns)}


def _collect_values(judged: Mapping[str, Any], error: str | None) -> dict[str, Any]:
    """Collect a record's values by result column. An empty record counts as undetermined."""
    verdict = judged.get("verdict", UNDETERMINED)
    values = {**judged, "verdict": verdict, "error": error}
    if error is None and verdict == UNDETERMINED:
        values["error"] = judged.get("degraded")  # why it's undetermined

    is_comparison = judged.get("schema", "").startswith("judgekit/comparison@")
    if is_comparison:
        values["scores"] = _map_scores(judged)
        values["model"] = _name_deciding_models(judged)
    return values


def _copy_own_columns(row: DataRow, taken: TakenNames) -> dict[str, Any]:
    """Copy an input row's cells, under the column names that they get in the results file."""
    columns = {}
    for name, value in _replace_infinities(row.columns).items():
        if name == "id" and taken.id_column == "id":  # the result column `id` has the same values
            continue
        columns[_choose_free_name(name, taken, row.columns)] = value
    return columns


def variant_column(name: str) -> str:
    """Return the column name for a variant's verdicts."""
    return f"verdict.{name}"


def _map_scores(comparison: Mapping[str, Any]) -> dict[str, float] | None:
    """Map the compared texts' letters to their scores. Returns None if there are no scores."""
    scores = {}
    for subject in comparison["subjects"]:
        if subject["score"] is not None:
            scores[subject["letter"]] = subject["score"]
    return scores or None


def _name_deciding_models(comparison: Mapping[str, Any]) -> str | None:
    """Join the names of the models in the tier that decided. Returns None if no tier did."""
    models: dict[str, None] = {}  # an ordered set
    for answer in comparison["rounds"]:
        if answer["tier"] == comparison["judge_tier"]:
            models[answer["model"]] = None
    return ", ".join(models) or None


def _choose_free_name(name: str, taken: TakenNames, columns: Mapping[str, Any]) -> str:
    """Choose an input column's name in the results file.

    If a result column has the same name, use `row.NAME`. If the input also has a column `row.NAME`, use
    `row.row.NAME`, and so on.
    """
    if name not in taken:
        return name
    free_name = f"row.{name}"
    while free_name in taken or free_name in columns:
        free_name = f"row.{free_name}"
    return free_name


def describe_judge(columns: Mapping[str, Any]) -> str:
    """Describe the judge of a row in the results file as `RUBRIC@VERSION, MODE, MODEL`.

    Returns "" if there's no record.
    """
    judged = columns.get("judged")
    if not isinstance(judged, dict):
        return ""
    is_ours = str(judged.get("schema")).startswith("judgekit/")
    if not is_ours:
        return ""
    rubric = judged.get("rubric") or {}
    name_parts = [
        f"{rubric.get('id')}@{rubric.get('version')}",
        judged.get("mode"),
        columns.get("model"),
    ]
    return shorten_to_line(", ".join(str(part) for part in name_parts if part), _JUDGE_CHARS)


class Ids:
    """The ids read so far, by `normalise_id`, with the numbers of their rows.

    Many are kept in a temporary file, so a million take no more memory than a thousand. A few are kept in
    memory: a process forked while SQLite opens such a file would wait for it in vain.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._connection: sqlite3.Connection | None = None

    def add(self, row_id: str | int, number: int) -> int | None:
        """Note a row's id. Returns the number of an earlier row with the same id, or None if there's none."""
        name = normalise_id(row_id)
        if self._connection is not None:
            return _insert_id(self._connection, name, number)
        first_number = self._numbers.setdefault(name, number)
        is_repeated = first_number != number
        if is_repeated:
            return first_number

        if len(self._numbers) > _MAX_IN_MEMORY:  # move the ids to a temporary file
            self._connection = _open_temporary(
                "CREATE TABLE ids (id TEXT PRIMARY KEY, number INTEGER) WITHOUT ROWID"
            )
            self._connection.executemany("INSERT INTO ids VALUES (?, ?)", self._numbers.items())
            self._numbers.clear()
        return None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def _insert_id(table: sqlite3.Connection, name: str, number: int) -> int | None:
    """Insert a row's id. If an earlier row has the same id, return that row's number, otherwise None."""
    try:
        table.execute("INSERT INTO ids VALUES (?, ?)", (name, number))
    except sqlite3.IntegrityError:  # the id is in the table already
        query = "SELECT number FROM ids WHERE id = ?"
        (first_number,) = table.execute(query, (name,)).fetchone()
        return int(first_number)
    return None


class Results:
    """The destination of results; this class prints them as JSON Lines, and keeps none of earlier runs.

    Call `find_verdict` for each row first, in the order of the input, which becomes the order of the results
    file. Rows that aren't kept and never added stay as they were.
    """

    name = "standard output"

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._key = seals.get_state_key()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def find_verdict(self, row_id: str | int, fingerprint: Fingerprint) -> str | None:
        """Return the verdict that the results file has for a row with this id and content.

        Returns None if the row must be judged: it's not in the results file, is undetermined or has an error.
        """

    def count_earlier(self) -> int:
        """Count the rows from earlier runs."""
        return 0

    def add(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Seal a row built by `build_result`, write it atomically, and return it. Raises `InputError`."""
        row = seals.seal_row(columns, self._key)
        self._write(_dump_line(row).decode().removesuffix("\n"))
        return row

    def write_out(self) -> None:
        """Sort the rows into the order of the input, without repetitions, and write the results file."""

    def count_other_rows(self) -> Counter[str]:
        """Count the rows in the finished results file that this run didn't reach, by judge."""
        return Counter()


class _File(Results):
    """Results in a file, as the module describes."""

    def __init__(
        self,
        out: str,
        *,
        fresh: bool,
        trust: bool,
        full: bool,
        source: Rows | None,
        run: str | None,
    ) -> None:
        self.name = replace_surrogates(out)
        self._run_name = run
        self._is_fresh = fresh
        self._key = seals.get_state_key()

        self._schema = None if source is None else source.schema

        self._set_paths(out)
        self._refuse_links()
        self._refuse_file_of(source)
        is_lean = not full and tables.is_lean(str(self._path))
        self._omitted_columns = RECORD_COLUMNS if is_lean else ()

        # At the end of a run, a thread may still be reading rows. It mustn't use closed files.
        self._lock = threading.Lock()
        self._is_closed = False

        self._rows_met = 0
        self._has_written = False
        self._noted_end = 0  # where the last noted line of the part file ends
        self._stamp_file = _stamp_file_of(os.path.realpath(out))
        self._resources = self._open_files(trust=trust)

    def _set_paths(self, out: str) -> None:
        """Set the results file's path and writer, and the paths of the part file and the again file."""
        self._path = Path(resolve_output_path(out))
        self._writer = tables.load_writer(str(self._path))  # None if the results file is JSON Lines
        # JSON Lines can be appended to directly. A table is written from its part file at the end.
        self._part = self._path if self._writer is None else part_file_of(self._path)

        # If a row is judged again, its old line is kept here until the run ends. So the results file never
        # has the row twice, and a killed run loses nothing.
        self._again_file = self._path.with_name(f"{self._path.name}.again.jsonl")

    def _open_files(self, *, trust: bool) -> ExitStack:
        """Lock the results file, note its rows unless the run is fresh, and open the part file for new rows.

        `trust` means that rows without a valid seal count, too. Closing the returned stack releases
        everything.
        """
        with ExitStack() as opened:
            opened.enter_context(lock_output(str(self._path), self.name))
            self._database = _open_temporary(_CREATE_ROWS_SQL)
            opened.callback(self._database.close)
            try:
                if not self._is_fresh:
                    self._resume(trust=trust)
                self._is_part_new = not self._part.exists()
                self._descriptor = outputs.open_to_append(str(self._part))
            except OSError as error:
                raise self._write_error(error) from None

            opened.callback(self._close_part)
            return opened.pop_all()  # everything stays open

    def _close_part(self) -> None:
        """Close the part file's current descriptor, which `_rewrite` can have replaced."""
        os.close(self._descriptor)

    def __exit__(self, *_: object) -> None:
        is_empty = self._is_part_new and not self._has_written
        with self._lock:
            self._is_closed = True
            self._resources.close()
        if is_empty:  # the run ended before its first row
            self._part.unlink(missing_ok=True)

    def _refuse_links(self) -> None:
        """Raise `UsageError` if a file next to the results file is a link, which can come from a clone."""
        for path in (self._part, self._again_file):
            resolve_output_path(str(path))

    def _refuse_file_of(self, source: Rows | None) -> None:
        """Raise `UsageError` if results would overwrite the file that rows are read from."""
        if source is None:
            return
        for path in (self._path, self._part, self._again_file):
            if path.exists() and any(map(path.samefile, source.paths)):
                problem = "the rows are read from this file"
                raise UsageError(f"{self.name}: {problem}; choose another --out")

    def _resume(self, *, trust: bool) -> None:
        """Note the rows of earlier runs.

        Unless `trust`, raises `UsageError` for rows without a valid seal.
        """
        self._check_table()
        self._note_lines(self._again_file, in_again_file=True)
        self._note_lines(self._part, in_again_file=False)
        unsealed = self._count_unsealed()
        if unsealed and not trust:
            raise seals.build_seal_error(self.name, unsealed)

    def _count_unsealed(self) -> int:
        """Count the rows in the results file without a valid seal."""
        count = self._database.execute(
            "SELECT count(*) FROM rows WHERE start IS NOT NULL AND NOT sealed"
        )
        return int(count.fetchone()[0])

    def find_verdict(self, row_id: str | int, fingerprint: Fingerprint) -> str | None:
        with self._lock:
            if self._is_closed:
                return None
            return self._find_kept_verdict(row_id, fingerprint)

    def _find_kept_verdict(self, row_id: str | int, fingerprint: Fingerprint) -> str | None:
        """Note a row's position in the input, and return its verdict in the results file.

        Returns None if the row must be judged: it's new or undecided, or its content has changed.
        """
        self._rows_met += 1
        key = normalise_id(row_id)
        self._database.execute(_NOTE_PLACE_SQL, (key, self._rows_met))  # adds the row if it's new
        query = "SELECT fingerprint, word, failed, start FROM rows WHERE id = ?"
        old_fingerprint, word, failed, start = self._database.execute(query, (key,)).fetchone()
        is_in_results_file = start is not None
        if not is_in_results_file:
            return None

        is_decided = not failed and word != UNDETERMINED
        if is_decided and seals.is_of(old_fingerprint, fingerprint):
            return str(word)
        # The old line still counts until the row's new line is noted.
        self._database.execute("UPDATE rows SET again = 1 WHERE id = ?", (key,))
        return None

    def count_earlier(self) -> int:
        count = self._database.execute("SELECT count(*) FROM rows WHERE start IS NOT NULL")
        return int(count.fetchone()[0])

    def add(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        row = seals.seal_row(columns, self._key)
        self._append(row, _dump_line(row))
        return row

    def _append(self, row: Mapping[str, Any], raw: bytes) -> None:
        """Append a row's line, and note its position. If writing fails, no part of the line remains.

        Raises `InputError`.
        """
        try:
            self._prepare_files()
            start = os.lseek(self._descriptor, 0, os.SEEK_END)
            self._write_line(raw, start)
        except OSError as error:
            raise self._write_error(error) from None

        self._note_row(row, in_again_file=False, start=start, size=len(raw))
        # If this line starts later, an interrupted call has written a line without noting it. Then leave
        # `_noted_end` before that line: `_put_in_order` notes all lines after it.
        follows_noted_lines = start == self._noted_end
        if follows_noted_lines:
            self._noted_end += len(raw)

    def _write_line(self, raw: bytes, start: int) -> None:
        """Write a line at `start`, the end of the part file. If that fails, remove it and raise `OSError`."""
        written = 0
        try:
            written = os.write(self._descriptor, raw)
        finally:
            is_cut = written < len(raw)
            if is_cut:  # the disk is full, or the user pressed Ctrl-C
                os.ftruncate(self._descriptor, start)
        if is_cut:  # a partial write doesn't raise, so assume that the disk is full
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write_out(self) -> None:
        # Check this first, because `_put_in_order` sets `_has_written`. A fresh run replaces an old table,
        # even without any rows.
        is_changed = self._has_written or self._is_fresh
        try:
            self._put_in_order()
            if self._writer is not None:
                self._write_table(self._writer, is_changed=is_changed)
        except OSError as error:
            raise self._write_error(error) from None

    def _put_in_order(self) -> None:
        """Make the part file contain one sealed line per row, in the input's order.

        The again file is removed, because the part file has all its lines by then.
        """
        self._clean_end()
        has_unnoted_lines = os.fstat(self._descriptor).st_size > self._noted_end
        if has_unnoted_lines:  # an interrupted call of this run wrote them
            self._note_lines(self._part, in_again_file=False, start=self._noted_end)
        if not self._is_in_order():
            has_line = "start IS NOT NULL"
            self._rewrite(self._part, condition=has_line)
        self._again_file.unlink(missing_ok=True)

    def _is_in_order(self) -> bool:
        """Whether the part file contains exactly one sealed line per row, in the input's order.

        Then it needs no rewriting to become the results file.
        """
        expected_start = 0
        noted_lines = self._database.execute(_SELECT_IN_ORDER_SQL.format("start IS NOT NULL"))
        for _, in_again_file, start, size, sealed in noted_lines:
            is_next = start == expected_start and not in_again_file
            lacks_seal = bool(self._key) and not sealed
            if lacks_seal or not is_next:
                return False
            expected_start += size
        return True

    def _write_table(self, writer: TableWriter, *, is_changed: bool) -> None:
        """Write the results table from the part file, unless it's up to date.

        `is_changed` means that this run may have changed the part file.
        """
        part_time = self._part.stat().st_mtime_ns
        if not is_changed:
            has_same_time = self._get_modification_time() == part_time
            if has_same_time and self._is_own_file():  # the table is up to date
                return
        tables.write_table(
            writer,
            self._part,
            self._path,
            OUR_COLUMNS,
            self._schema,
            left_out=self._omitted_columns,
        )
        # If both files have the same mtime, the next run knows that the results file contains exactly these
        # rows.
        os.utime(self._path, ns=(part_time, part_time))
        if self._stamp_file is not None:
            self._stamp_file.write_text(self._describe_out(), encoding="ascii")

    def count_other_rows(self) -> Counter[str]:
        counts = Counter[str]()
        # A row without a place wasn't met in this run's input. A row with `again` was to be judged again, but
        # the run didn't reach it, so it still has its old verdict.
        query = "SELECT start, size FROM rows WHERE (place IS NULL OR again) AND start IS NOT NULL"
        positions = self._database.execute(f"{query} AND NOT in_again_file").fetchall()
        if not positions:
            return counts
        with suppress(OSError), self._part.open("rb") as file:
            for start, size in positions:
                file.seek(start)
                row, _ = _parse_line(file.read(size))
                judge = describe_judge(row or {})
                counts[judge or "no judge"] += 1
        return counts

    def _get_modification_time(self) -> int:
        """Return the results file's modification time in nanoseconds; 0 if it doesn't exist."""
        if self._path.exists():
            return self._path.stat().st_mtime_ns
        return 0

    def _is_own_file(self) -> bool:
        """Whether the results file is still the file that this user wrote on this machine."""
        if self._stamp_file is None:
            return False
        try:
            noted_stamp = self._stamp_file.read_text(encoding="ascii")
            return noted_stamp == self._describe_out()
        except (OSError, ValueError):
            return False

    def _describe_out(self) -> str:
        """Describe the results file by its stamp and the columns that it omits."""
        stamp = repr(environment.get_file_stamp(str(self._path)))
        if self._omitted_columns:
            return f"{stamp} without {','.join(self._omitted_columns)}"
        return stamp

    def _check_table(self) -> None:
        """Raise `UsageError` if the results file is a table with rows that may be missing from the part file.

        A run only keeps rows that are in the part file, so it would lose the others.
        """
        problem = self._find_table_problem()
        if problem is not None:
            remedy = "move it away, choose another --out, or lose it with --fresh"
            raise UsageError(f"{self.name}: {problem}; {remedy}")

    def _find_table_problem(self) -> str | None:
        """Describe why rows of the table may be missing from the part file. Returns None if they can't be."""
        written_at = self._get_modification_time()
        if self._writer is None or not written_at:  # there's no table
            return None
        if not self._part.exists():
            return f"there, but without {self._part.name} no row of it can be kept"

        is_newer = written_at > self._part.stat().st_mtime_ns
        if is_newer and not self._equals_lines(self._writer):
            return f"changed since judgekit wrote it from {self._part.name}"
        return None

    def _equals_lines(self, writer: TableWriter) -> bool:
        """Whether writing a table from the part file would give the same content as the results file.

        Compares the contents, because a copied file's time doesn't show when it was changed.
        """
        try:
            with tempfile.TemporaryDirectory() as folder:
                # The writer depends on the suffix.
                table = Path(folder) / f"table{self._path.suffix}"
                # The results file may have been written with or without complete verdicts.
                for left_out in ((), RECORD_COLUMNS):
                    tables.write_table(
                        writer, self._part, table, OUR_COLUMNS, self._schema, left_out=left_out
                    )
                    if filecmp.cmp(table, self._path, shallow=False):
                        return True
                return False
        except (OSError, ValueError):  # for example, an incomplete line
            return False

    def _write_error(self, error: OSError) -> InputError:
        return write_error(self.name, str(self._path.parent), error)

    def _note_lines(self, path: Path, *, in_again_file: bool, start: int = 0) -> None:
        """Note the position of each line, from byte `start` on. Raises `UsageError` for a foreign line."""
        with suppress(FileNotFoundError), path.open("rb") as file:
            file.seek(start)
            for number, line in enumerate(read_bounded_lines(file, _MAX_LINE), 1):
                # None means that the line is too long. Such a line is foreign, as `_NO_RESULT` is.
                raw = _NO_RESULT if line is None else line
                is_ended = line is None or raw.endswith(b"\n")
                row, is_invalid_json = _parse_line(raw)
                if is_invalid_json and not is_ended and _starts_like_result(raw):
                    break  # the last line is incomplete, because its writer was killed
                is_foreign = row is None and raw.strip() != b""
                if is_foreign:
                    raise _build_line_error(path, number)

                size = file.tell() - start
                if not is_ended:
                    size += 1  # `_clean_end` will add the line break
                if row is not None:
                    self._refuse_other_run(row)
                    self._note_row(row, in_again_file=in_again_file, start=start, size=size)
                start += size
                if not in_again_file:
                    self._noted_end = start

    def _refuse_other_run(self, row: Mapping[str, Any]) -> None:
        """Raise `UsageError` if a row is from a run with another name.

        A run without a name can continue any other, and any other can continue it.
        """
        run_of_row = row.get(RUN)
        may_continue = self._run_name is None or run_of_row is None or run_of_row == self._run_name
        if may_continue:
            return
        problem = f"it has rows of the run {shorten_to_line(str(run_of_row), _JUDGE_CHARS)!r}"
        raise UsageError(f"{self.name}: {problem}; choose another --out, or lose them with --fresh")

    def _note_row(
        self, row: Mapping[str, Any], *, in_again_file: bool, start: int, size: int
    ) -> None:
        """Note the position of a row's line, and the values that decide whether its result is kept."""
        values = {
            "id": normalise_id(row["id"]),
            "in_again_file": in_again_file,
            "start": start,
            "size": size,
            "fingerprint": row["fingerprint"],
            "word": row["verdict"],
            "failed": row.get("error") is not None,
            "sealed": seals.is_row_valid(row, self._key),
        }
        self._database.execute(_NOTE_LINE_SQL, values)

    def _clean_end(self) -> None:
        """Before the first write, remove an incomplete last line, or add a missing line break.

        In a fresh run, this empties the part file, because no line counts.
        """
        if self._has_written:
            return
        self._has_written = True
        if self._is_fresh:  # an earlier run's lines don't count
            self._again_file.unlink(missing_ok=True)

        # `_noted_end` is where the last complete line ends, with its line break. That's beyond the end of the
        # file if the line break is missing. In a fresh run it's 0, so the file is emptied.
        size = os.fstat(self._descriptor).st_size
        has_incomplete_line = size > self._noted_end
        lacks_line_break = size < self._noted_end
        if has_incomplete_line:
            os.ftruncate(self._descriptor, self._noted_end)
        elif lacks_line_break:
            os.write(self._descriptor, b"\n")

    def _prepare_files(self) -> None:
        """Before the first write, move the lines of rows that will be judged again to the again file."""
        if self._has_written:
            return
        self._clean_end()
        query = "SELECT 1 FROM rows WHERE again AND NOT in_again_file LIMIT 1"
        has_lines_to_move = self._database.execute(query).fetchone() is not None
        if has_lines_to_move:
            # The again file gets the lines before the part file loses them, so that a killed run loses none.
            # The first call sets `in_again_file` for them, so the second one leaves them out.
            self._rewrite(self._again_file, condition="in_again_file OR again")
            self._rewrite(self._part, condition="NOT in_again_file")

    def _rewrite(self, target: Path, condition: str) -> None:
        """Atomically rewrite `target` with the rows for which `condition` holds.

        `target` is the part file or the again file. The lines are taken from both files, in the order of the
        input.
        """
        # `_copy_lines` sets `moved` for each line that it copies.
        self._database.execute("UPDATE rows SET moved = NULL")
        self._again_file.touch(0o600)  # it's read below, so it must exist
        os.close(self._descriptor)  # Windows can't replace an open file
        try:
            with (
                tables.open_replacement(target) as file,
                self._part.open("rb") as part_file,
                self._again_file.open("rb") as again_file,
            ):
                self._copy_lines(part_file, again_file, file, condition)
        finally:
            self._descriptor = outputs.open_to_append(str(self._part))

        # Now that the file is replaced, the new positions are valid.
        self._database.execute(
            "UPDATE rows SET in_again_file = ?, start = moved WHERE moved IS NOT NULL",
            (target == self._again_file,),
        )
        self._noted_end = os.fstat(self._descriptor).st_size

    def _copy_lines(
        self, part_file: IO[bytes], again_file: IO[bytes], target: IO[bytes], condition: str
    ) -> None:
        """Copy the lines of rows for which `condition` holds, and set `moved` to their new positions."""
        new_start = 0
        noted_lines = self._database.execute(_SELECT_IN_ORDER_SQL.format(condition))
        for row_id, in_again_file, start, size, sealed in noted_lines:
            source = again_file if in_again_file else part_file
            source.seek(start)
            raw_line = source.read(size)
            if self._key and not sealed:  # the user has chosen to trust the file
                raw_line = _dump_line(seals.seal_row(json.loads(raw_line), self._key))
            target.write(raw_line)

            is_sealed = bool(self._key) or sealed  # with a key, every copied line has a seal
            self._database.execute(_NOTE_MOVE_SQL, (new_start, len(raw_line), is_sealed, row_id))
            new_start += len(raw_line)


def open_results(
    out: str | None,
    stdout: Callable[[str], None],
    *,
    fresh: bool,
    trust: bool = False,
    full: bool = False,
    source: Rows | None = None,
    run: str | None = None,
) -> Results:
    """Open the results file `out`. If it's None, write JSON Lines to `stdout`.

    An existing file is continued, unless `fresh`. If `trust`, rows without a valid seal are sealed instead of
    refused. If `full`, tables such as CSV also contain the complete verdicts. `source` are the rows to judge;
    `out` can't be their file. `run` is the run's name. A file of a run with another name is refused.

    Raises `UsageError` if `out` can't be used for these results, and `InputError` if it can't be read or
    written.
    """
    if out is None:
        return Results(stdout)

    if tables.find_format(out) is None:
        expected = ", ".join(tables.ENDINGS)
        raise UsageError(f"{out}: unknown ending of a file of results; expected {expected}")
    writer = tables.load_writer(out)
    if writer is not None:
        writer.check(out)  # report a missing library before anything is judged
    return _File(out, fresh=fresh, trust=trust, full=full, source=source, run=run)


def part_file_of(table: Path) -> Path:
    """Return the path of the JSON Lines file from which a table is written."""
    return table.with_name(f"{table.name}.part.jsonl")


def find_complete_results(path: str) -> str:
    """Return the file with the complete verdicts of the table `path`: itself or, if it's lean, its part file.

    If a lean table was changed or copied since it was written, its part file may not match it. Then `path`
    itself is returned.
    """
    if not tables.is_lean(path):
        return path
    part_file = part_file_of(Path(path))
    try:
        table_time = Path(path).stat().st_mtime_ns
        part_time = part_file.stat().st_mtime_ns
    except (OSError, ValueError):
        return path
    is_as_written = table_time == part_time  # a written table gets the part file's time
    return str(part_file) if is_as_written else path


def resolve_output_path(out: str) -> str:
    """Resolve the path of a results file.

    Raises `UsageError` for an untrusted link, a pipe or a device, and `InputError` if it can't be used.
    """
    try:
        return outputs.resolve_output_path(out)
    except outputs.RefusedOutputError as error:
        problem = f"{replace_surrogates(str(error.filename))}: no results are written there: {error.strerror}"
        raise UsageError(problem) from None
    except OSError as error:
        problem = (
            f"{replace_surrogates(out)}: cannot be written ({error.strerror}); choose another --out"
        )
        raise InputError(problem) from None


def write_error(name: str, folder: str, error: OSError, option: str = "--out") -> InputError:
    """Build the error for a file that can't be written, with a remedy.

    `option` is the option that names it.
    """
    remedy = f"free space or choose another {option}; run the same command again to go on"
    if error.errno == errno.ENOENT:
        remedy = f"make its folder or choose another {option}"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        remedy = f"results and their lock need a folder that you may write to, which {folder} isn't"
    return InputError(f"{name}: cannot be written ({error.strerror or error}); {remedy}")


def _stamp_file_of(table: str) -> Path | None:
    """Return the path of the file with a table's stamp, which shows that this user wrote the table.

    Returns None if its folder can't be made.
    """
    try:
        return Path(environment.RESULTS.make()) / environment.make_file_name(table)
    except OSError:
        return None


@contextmanager
def lock_output(path: str, name: str, option: str = "--out") -> Iterator[None]:
    """Lock a file, so that no other run writes to it. Messages call it `name`, and suggest another `option`.

    Raises `UsageError` if another run has locked it, and `InputError` if its folder isn't writable.
    """
    with ExitStack() as held_lock:
        _take_lock(held_lock, path, name, option)
        yield  # not in a `try`, so that errors of the caller's block aren't taken for errors of the lock


def _take_lock(held_lock: ExitStack, path: str, name: str, option: str) -> None:
    """Lock a file until `held_lock` is closed. Raises the errors of `lock_output`."""
    try:
        held_lock.enter_context(hold_for_writing(path))
    except HeldError as error:
        raise UsageError(f"{name}: {error}; wait for it, or choose another {option}") from None
    except outputs.RefusedOutputError as error:
        problem = (
            f"{replace_surrogates(str(error.filename))}: no lock is taken there: {error.strerror}"
        )
        raise UsageError(problem) from None
    except OSError as error:
        folder = str(Path(path).parent)
        raise write_error(name, folder, error, option) from None


def _build_line_error(path: Path, number: int) -> UsageError:
    """Build the error for a line in a results file that isn't ours."""
    problem = f"line {number} is no result of judgekit"
    remedy = "take the line out, choose another --out, or lose the file with --fresh"
    return UsageError(f"{replace_surrogates(str(path))}: {problem}; {remedy}")


def _open_temporary(table: str) -> sqlite3.Connection:
    """Open a temporary database with a table. `table` is the SQL statement that creates it."""
    # For the path "", SQLite creates a temporary file, and removes it even if the process dies.
    database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    database.execute(table)
    # One transaction for all statements is faster. It's never committed, since nobody needs the file later.
    database.execute("BEGIN")
    return database


def _dump_line(row: Mapping[str, Any]) -> bytes:
    """Serialise a row as a line of JSON in UTF-8. Lone surrogates become "?"."""
    return json.dumps(row, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace") + b"\n"


def _parse_line(raw: bytes) -> tuple[dict[str, Any] | None, bool]:
    """Parse a line of the results file. Also returns whether the line is invalid JSON.

    The row is None if judgekit didn't write the line.
    """
    try:
        row = json.loads(raw)
    except (ValueError, RecursionError):
        return None, True
    if not _is_result(row):
        return None, False
    return row, False


def _is_result(row: Any) -> bool:  # noqa: ANN401 - any JSON
    """Whether a JSON value has the columns that every result has."""
    if not isinstance(row, dict):
        return False
    has_id = isinstance(row.get("id"), str | int)
    has_texts = all(isinstance(row.get(name), str) for name in _REQUIRED_COLUMNS)
    return has_id and has_texts


def _starts_like_result(raw: bytes) -> bool:
    """Whether a line starts like those that judgekit writes."""
    return raw.startswith(b'{"') or raw == b"{"


def _replace_infinities(value: Any) -> Any:  # noqa: ANN401 - any value of JSON
    """Replace infinity and NaN, which aren't valid JSON, with None. Lists and objects are searched, too."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _replace_infinities(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_replace_infinities(item) for item in value]
    return value
