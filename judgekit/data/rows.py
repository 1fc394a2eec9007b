"""Where rows come from: JSON Lines, CSV, TSV or Parquet, a folder of these, standard input; how a cell reads.

Rows are read one by one, so a million need no more memory than a thousand. A row that cannot be read is
yielded as `UnreadableRow`, and reading goes on with the next one. The rows of a folder are those of its
files, in the order of their paths.
"""

from __future__ import annotations

import csv
import io
import json
import os
import stat
from collections import Counter, deque
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Self, TypeAlias

from judgekit.config.files import install_extra
from judgekit.data import parquet_pages, sniffing
from judgekit.data.values import NoJsonValueError, plain_value
from judgekit.errors import InputError
from judgekit.judging.documents import MAX_BYTES, STDIN
from judgekit.text import RepeatedKeyError, encodable, one_line, with_different_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import ModuleType

    import pyarrow as pa
    from pyarrow import parquet
    from pyarrow.fs import FileSystem

    Stream: TypeAlias = Iterator["DataRow | UnreadableRow"]

ENDINGS = (".jsonl", ".ndjson", ".csv", ".tsv", ".parquet")
DELIMITERS = {".csv": ",", ".tsv": "\t"}
DEEPEST = 100  # lists and objects inside each other; Python itself stops somewhere below 1,000
_BATCH = 64  # rows of a Parquet file in memory at once
_BUFFER = 1_000_000  # bytes of a Parquet column that are read ahead
_OBJECT = 60  # bytes of a value of Python, about
_PIECE = 1_000_000  # bytes, of a line that is too long to keep
_TOO_LONG = f"it has more than {MAX_BYTES // 1_000_000} MB"
_BOM = b"\xef\xbb\xbf"
_KINDS = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}


class DataRow(NamedTuple):
    """One row: its number among the rows of the input, from 1, and its columns as the input has them.

    A cell of CSV is text. A cell of Parquet is what JSON can say: a time or a date is text (ISO 8601, to the
    microsecond), a duration is seconds, a decimal is text with all its digits, bytes are text (in Base64
    where they are not UTF-8), and a map is a list of pairs.
    """

    number: int
    columns: Mapping[str, Any]


class UnreadableRow(NamedTuple):
    """In place of a row: what was expected, in which column ("" for all of it). Number 0 is the header."""

    number: int
    column: str
    problem: str


@dataclass(frozen=True)
class RowFiles:
    """The files of a dataset, by their paths: on this machine, or in another file `system`."""

    name: str
    paths: Sequence[str]
    system: FileSystem | None = None

    @classmethod
    def at(cls, path: str) -> Self:
        """Return a file, those in a folder, or those at an address such as s3://bucket/folder.

        Of a folder, hidden files are left out, those below hidden folders, and links: what they lead to may
        be anywhere on this machine. Raises `InputError`.
        """
        with _readable(path):
            system = None
            if "://" in path:
                system, root = file_system(path)
                if _is_local(system):
                    return replace(cls.at(root), name=path)
                if system.get_file_info(root).is_file:
                    return cls(path, [root], system)
                below = _listed(system, root)
            elif stat.S_ISDIR(Path(path).stat().st_mode):
                root = path
                below = _files_below(path)
            else:
                return cls(path, [path])
            names = sorted(name for name in below if _is_shown(name))
            if not names:
                endings = ", ".join(ENDINGS)
                raise InputError(
                    f"{path}: no file of rows in it; expected {endings} (links are left out)"
                )
            return cls(path, [f"{root.rstrip('/')}/{name}" for name in names], system)

    def opened(self, path: str) -> BinaryIO:
        if self.system is None:
            return Path(path).open("rb")
        return io.BufferedReader(self.system.open_input_file(path))

    def rows(self) -> Stream:
        before = 0
        for path in self.paths:
            number = 0
            with self.opened(path) as file:
                for row in rows_in(file, path):
                    number = max(number, row.number)
                    yield self.numbered(row, before, path)
            before += number

    def numbered(
        self, row: DataRow | UnreadableRow, before: int, path: str
    ) -> DataRow | UnreadableRow:
        """Return a row of a file with its number in the dataset, in which so many are `before` the file."""
        number = row.number and row.number + before
        if isinstance(row, UnreadableRow) and len(self.paths) > 1:
            return row._replace(number=number, problem=f"{row.problem} ({encodable(path)})")
        return row._replace(number=number)


def file_system(address: str) -> tuple[FileSystem, str]:
    """Return the file system of a folder or of an address, and the path there; raises as pyarrow does."""
    parquet_module(address, "an address")
    from pyarrow.fs import FileSystem, LocalFileSystem  # noqa: PLC0415 - the extra

    if "://" in address:
        found: tuple[FileSystem, str] = FileSystem.from_uri(address)
        return found
    return LocalFileSystem(), os.path.realpath(address)


def _is_local(system: FileSystem) -> bool:
    from pyarrow.fs import LocalFileSystem  # noqa: PLC0415 - the extra

    return isinstance(system, LocalFileSystem)


def _listed(system: FileSystem, root: str) -> list[str]:
    """Return the files below a folder of another file system, by their paths from there."""
    from pyarrow.fs import FileSelector  # noqa: PLC0415 - the extra

    files = system.get_file_info(FileSelector(root, recursive=True))
    return [each.path.removeprefix(root).lstrip("/") for each in files if each.is_file]


def _files_below(folder: str) -> list[str]:
    """Return the files below a folder, by their paths from there; no link is one, and none is followed."""
    names = []
    for base, _, files in os.walk(folder, onerror=_raise):
        for name in files:
            file = Path(base, name)
            if stat.S_ISREG(file.lstat().st_mode):
                names.append(file.relative_to(folder).as_posix())
    return names


def _raise(error: OSError) -> None:
    raise error


def _is_shown(name: str) -> bool:
    """Whether a file in a folder has rows by its name, and neither it nor a folder above it is hidden."""
    is_hidden = any(part.startswith((".", "_")) for part in name.split("/"))
    return Path(name).suffix.lower() in ENDINGS and not is_hidden


class Rows:
    """The rows of one input. Each iteration reads it from the start; standard input can be read once.

    `name` is for messages; `path` is "" for standard input and for an address; `schema` is that of the first
    Parquet file, else None. Iterating raises `InputError` where the file itself can be read no further.
    """

    def __init__(
        self, path: str, read: Callable[[], Stream], schema: pa.Schema | None = None
    ) -> None:
        if path == STDIN or "://" in path:
            self.path = ""
        else:
            self.path = path
        if path == STDIN:
            self.name = "standard input"
        else:
            self.name = encodable(path)
        self.lasting = path != STDIN
        self.schema = schema
        self._read = read

    def __iter__(self) -> Stream:
        with _readable(self.name):
            yield from self._read()


def open_rows(path: str, stdin: BinaryIO) -> Rows:
    """Return the rows of a file, of a folder or address, or of JSON Lines on standard input for `-`.

    Raises `InputError`.
    """
    if path == STDIN:
        return Rows(path, partial(_checked_json_rows, stdin, "standard input"))
    files = RowFiles.at(path)
    with _readable(path):
        if not (Path(path).is_dir() or "://" in path):
            if Path(path).suffix.lower() not in ENDINGS:
                expected = f"{', '.join(ENDINGS)}, a folder, or - for JSON Lines on standard input"
                raise InputError(f"{path}: unknown ending of a file of rows; expected {expected}")
            if not stat.S_ISREG(Path(path).stat().st_mode):
                raise InputError(
                    f"{path}: not a file; pass its rows as JSON Lines on standard input: -"
                )
        tables = [each for each in files.paths if each.lower().endswith(".parquet")]
        with files.opened((tables or files.paths)[0]) as file:
            if tables:
                schema = _parquet(file, path).schema_arrow
            else:
                schema = None
    return Rows(path, files.rows, schema)


def rows_in(file: BinaryIO, name: str) -> Stream:
    """Yield the rows of an open file; its name says by its ending how they are written.

    Raises `InputError` for a file that is something else.
    """
    ending = Path(name).suffix.lower()
    if ending == ".parquet":
        yield from _parquet_rows(file, name)
    elif ending in DELIMITERS:
        head = sniffing.head_of(file)
        sniffing.refuse_others(head, name)
        yield from _csv_rows(file, sniffing.delimiter_of(head, DELIMITERS[ending], name))
    else:
        yield from _checked_json_rows(file, name)


def _checked_json_rows(file: BinaryIO, name: str) -> Stream:
    sniffing.refuse_others(sniffing.head_of(file), name)
    yield from _json_rows(file)


def bounded_lines(file: BinaryIO, most: int) -> Iterator[bytes | None]:
    """Yield the lines of a file with their ends; None in place of one that has more than `most` bytes."""
    while line := file.readline(most):
        if len(line) < most or line.endswith(b"\n"):
            yield line
            continue
        while (rest := file.readline(_PIECE)) and not rest.endswith(b"\n"):
            pass
        yield None


class _CellError(Exception):
    """Why a row cannot be read: the column ("" for the whole row) and what was expected."""

    def __init__(self, problem: str, column: str = "") -> None:
        self.column = column
        self.problem = problem


@contextmanager
def _readable(name: str) -> Iterator[None]:
    try:
        yield
    except (
        OSError,
        ValueError,
    ) as error:  # ValueError: a NUL in the path; also pyarrow's own errors
        why = getattr(error, "strerror", None) or one_line(str(error), 200)
        raise InputError(f"{name}: cannot be read ({why})") from None


def _json_rows(file: BinaryIO) -> Stream:
    number = 0
    for line, raw in enumerate(bounded_lines(file, MAX_BYTES), 1):
        if line == 1 and raw is not None:
            raw = raw.removeprefix(_BOM)  # noqa: PLW2901 - the mark is no part of the first row
        if raw is not None and not raw.strip():
            continue
        number += 1
        try:
            yield DataRow(number, _object(raw))
        except _CellError as error:
            yield _unreadable(error, number, line)


def _unreadable(error: _CellError, number: int, line: int) -> UnreadableRow:
    if line != number:
        where = f" (line {line})"
    else:
        where = ""
    return UnreadableRow(number, error.column, error.problem + where)


def _object(raw: bytes | None) -> dict[str, Any]:
    if raw is None:
        raise _CellError(f"expected a shorter row; {_TOO_LONG}")
    try:
        text = raw.decode()
        found = json.loads(text, object_pairs_hook=with_different_keys)
    except UnicodeDecodeError as error:
        raise _CellError(sniffing.no_utf_8(raw[error.start])) from None
    except RepeatedKeyError as error:
        raise _CellError(
            "expected each key once, got this one twice; rename one", error.key
        ) from None
    except json.JSONDecodeError as error:
        raise _CellError(
            f"expected a JSON object; {error.msg} at character {error.pos + 1}"
        ) from None
    except ValueError:
        raise _CellError("expected a shorter number, got one of thousands of digits") from None
    except RecursionError:
        found = None
    deep = text.count("[") + text.count("{") > DEEPEST and (found is None or _is_deep(found))
    if deep:
        raise _CellError(
            f"expected at most {DEEPEST} lists and objects inside each other, got more"
        )
    if not isinstance(found, dict):
        raise _CellError(f"expected a JSON object, got {_KINDS.get(type(found), 'a number')}")
    if "\\ud" in text or "\\uD" in text:
        for column, value in found.items():
            try:
                json.dumps([column, value], ensure_ascii=False).encode()
            except UnicodeEncodeError:
                problem = (
                    "expected text, got half of a surrogate pair (a \\ud8… without its other half)"
                )
                raise _CellError(problem, encodable(column)) from None
    return found


def _is_deep(value: object) -> bool:
    level = [value]
    for _ in range(DEEPEST + 1):
        held = [each for each in level if isinstance(each, dict | list)]
        if not held:
            return False
        level = []
        for each in held:
            for part in each.values() if isinstance(each, dict) else each:
                level.append(part)
    return True


class _CsvLines:
    """The lines of a CSV file; all but the first of a row that turned out to be broken can be read again."""

    def __init__(self, file: BinaryIO) -> None:
        self._lines = bounded_lines(file, MAX_BYTES)
        self._again: deque[str] = deque()
        self._row: list[str] = []
        self._size = 0
        self.line = 0  # the number of the row's first line

    def __iter__(self) -> _CsvLines:
        return self

    def __next__(self) -> str:
        if self._again:
            line = self._again.popleft()
        else:
            raw = next(self._lines)
            first = self.line == 1 and not self._row
            # What is not UTF-8 is found in its cell: the quotes of the line have to be seen first.
            line = (
                (raw or b"").removeprefix(_BOM if first else b"").decode("utf-8", "surrogateescape")
            )
        self._row.append(line)
        self._size += len(line)
        if not line or self._size > MAX_BYTES:
            raise csv.Error(_TOO_LONG)
        return line

    def begin(self) -> None:
        self.line += len(self._row) or 1
        self._row = []
        self._size = 0

    def give_back(self) -> None:
        self._again.extendleft(reversed(self._row[1:]))
        del self._row[1:]

    @property
    def is_blank(self) -> bool:
        return not "".join(self._row).strip(" \r\n")  # a row of TSV may consist of tabs


def _csv_rows(file: BinaryIO, delimiter: str) -> Stream:
    csv.field_size_limit(max(csv.field_size_limit(), MAX_BYTES))
    lines = _CsvLines(file)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    names: list[str] | None = None
    number = 0
    while True:
        lines.begin()
        problem: _CellError | None = None
        row: dict[str, str] = {}
        try:
            cells = next(reader, None)
            if cells is None:
                return
            if lines.is_blank:
                continue
            if names is None:
                names = _checked_names(cells)
                continue
            row = _named(names, cells)
        except csv.Error as error:
            lines.give_back()  # a quote that was left open must not swallow the rows behind it
            problem = _CellError(
                f"expected quotes around whole cells, and doubled inside them ({error})"
            )
        except _CellError as error:
            problem = error
        number += names is not None
        yield DataRow(number, row) if problem is None else _unreadable(problem, number, lines.line)
        if names is None:  # no row can be read without its header
            return


def _checked_names(names: Sequence[str]) -> list[str]:
    for at, (name, times) in enumerate(Counter(names).items(), 1):
        _check_text(name)
        if not name.strip():
            raise _CellError(f"expected a name for each column, got none for column {at}; add it")
        if times > 1:
            raise _CellError(
                f"expected different names, got this one {times} times; rename one", name
            )
    return list(names)


def _named(names: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    if len(cells) != len(names):
        raise _CellError(
            f"expected {len(names)} cells, as many as the header has, got {len(cells)}"
        )
    for name, cell in zip(names, cells, strict=True):
        _check_text(cell, name)
    return dict(zip(names, cells, strict=True))


def _check_text(cell: str, name: str = "") -> None:
    if "\0" in cell:
        raise _CellError("expected text, got a NUL byte", name)
    try:
        cell.encode()
    except UnicodeEncodeError as error:
        got = ord(cell[error.start]) - 0xDC00
        raise _CellError(sniffing.no_utf_8(got), name) from None


def parquet_module(name: str, what: str = "Parquet") -> ModuleType:
    """Return `pyarrow.parquet`; raises `InputError`, for a file of this name, where it is not installed."""
    try:
        from pyarrow import parquet  # noqa: PLC0415 - an extra, which only Parquet needs
    except ImportError as error:
        how = install_extra("data")
        raise InputError(f"{name}: {what} needs pyarrow ({error}); run {how}") from None
    return parquet  # type: ignore[no-any-return]  # it has no types


def _parquet(file: BinaryIO, name: str, texts: Sequence[str] = ()) -> parquet.ParquetFile:
    """Return an open file of Parquet; each of these `texts` of its lists is in memory once."""
    return parquet_module(name).ParquetFile(file, buffer_size=_BUFFER, read_dictionary=list(texts))


def _looked_at(opened: BinaryIO, path: str) -> parquet_pages.Pages:
    """Return what the pages of a file take; raises `InputError` for a file that takes too much memory."""
    size = opened.seek(0, io.SEEK_END)
    try:
        return parquet_pages.look(opened, _parquet(opened, path), size)
    except parquet_pages.PagesError as error:
        raise InputError(f"{encodable(path)}: {error}") from None


def _parquet_rows(opened: BinaryIO, path: str) -> Stream:
    pages = _looked_at(opened, path)
    opened.seek(0)
    with _parquet(opened, path, sorted(pages.nested_texts)) as file:
        try:
            names = _checked_names(file.schema_arrow.names)
        except _CellError as error:
            yield _unreadable(error, 0, 0)
            return
        number = 0
        for batch in _batches(file, pages.rows_at_once(_BATCH)):
            for cells in _cells(batch):
                number += 1
                if cells is None:
                    yield UnreadableRow(number, "", f"expected a shorter row; {_TOO_LONG}")
                    continue
                row = dict(zip(names, cells, strict=True))
                wrong = next(
                    (name for name, cell in row.items() if isinstance(cell, _CellError)), None
                )
                if wrong is None:
                    yield DataRow(number, row)
                else:
                    yield UnreadableRow(number, wrong, row[wrong].problem)


def _batches(file: parquet.ParquetFile, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file; one batch has rows of one row group, as each has dictionaries of its own."""
    for number in range(file.num_row_groups):
        yield from file.iter_batches(rows, row_groups=[number], use_threads=False)


def _cells(batch: pa.RecordBatch) -> Iterator[Sequence[Any] | None]:
    """Yield the cells of each row; None for a row that is too long to be unpacked."""
    if _unpacked_bytes(batch.columns) <= MAX_BYTES:
        yield from zip(*map(plain_cells, batch.columns), strict=True)
        return
    for number in range(batch.num_rows):
        row = batch.slice(number, 1)
        is_short = _unpacked_bytes(row.columns) <= MAX_BYTES
        yield [plain_cells(column)[0] for column in row.columns] if is_short else None


def _unpacked_bytes(columns: Iterable[pa.Array]) -> int:
    """Return about how many bytes these cells take as texts, numbers and lists of Python."""
    import pyarrow as pa  # noqa: PLC0415 - an extra, which only Parquet needs
    from pyarrow import compute  # noqa: PLC0415 - the same

    total = 0
    for column in columns:
        kind = column.type
        total += len(column) * _OBJECT
        if pa.types.is_dictionary(kind):
            entries = column.dictionary
            if _is_text(entries.type):
                lengths = compute.take(compute.binary_length(entries), column.indices)
                total += compute.sum(lengths).as_py() or 0
        elif pa.types.is_struct(kind):
            total += _unpacked_bytes(column.flatten())
        elif pa.types.is_map(kind):
            first = column.offsets[0].as_py()
            last = column.offsets[len(column)].as_py()
            total += _unpacked_bytes(
                each.slice(first, last - first) for each in (column.keys, column.items)
            )
        elif (
            pa.types.is_list(kind)
            or pa.types.is_large_list(kind)
            or pa.types.is_fixed_size_list(kind)
        ):
            total += _unpacked_bytes([column.flatten()])
        elif _is_text(kind):
            total += compute.sum(compute.binary_length(column)).as_py() or 0
        else:
            total += column.nbytes
    return total


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa  # noqa: PLC0415 - an extra, which only Parquet needs

    kinds = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    return kind in kinds or pa.types.is_fixed_size_binary(kind)


def plain_cells(column: pa.Array) -> list[Any]:
    """Return the cells of an Arrow array as `DataRow` says, or an error for what Python cannot hold."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    elif kind in (pa.duration("ns"), pa.time64("ns")):
        column = column.cast(
            (pa.duration if pa.types.is_duration(kind) else pa.time64)("us"), safe=False
        )
    try:
        return [plain_value(cell) for cell in column.to_pylist()]
    except (ValueError, OverflowError, NoJsonValueError):
        return [_plain_cell(cell) for cell in column]


def _plain_cell(cell: pa.Scalar) -> object:
    try:
        return plain_value(cell.as_py())
    except (ValueError, OverflowError) as error:
        return _CellError(f"expected a value that Python can hold ({one_line(str(error), 100)})")
    except NoJsonValueError as error:
        return _CellError(one_line(str(error), 200))
