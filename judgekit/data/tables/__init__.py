"""Writes results as one table: chooses the file format, the columns, and the form of each cell.

Each format has a line in `RESULT_FORMATS`, and a module in this package with the functions of `TableWriter`.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import PurePath
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from judgekit import outputs
from judgekit.text import defuse_cell

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

_MAX_EXACT_FLOAT = 2**53  # up to this, every whole number is a floating-point number, too
_INT64_BOUND = 2**63  # a whole number within these bounds fits into 64 bits
# Even if all are null.
_FIXED_KINDS = {
    "average": "float",
    "cost_usd": "float",
    "duration_ms": "int",
}


@contextmanager
def open_replacement(target: Path) -> Iterator[IO[bytes]]:
    """Open a new file, which atomically replaces `target` when the block ends.

    If `target` doesn't exist yet, the new file is private. Raises `OSError`.
    """
    with outputs.Replacement(str(target), mode=outputs.PRIVATE, durable=True) as replacement:
        yield replacement.file


class ResultsTable(NamedTuple):
    """Rows of results to write as a table, with each column's kinds of values by name, in order.

    `type_by_column` are the columns' types in the input.
    """

    part_file: Path
    kinds_by_column: Mapping[str, set[str]]
    new_name_by_column: Mapping[str, str]
    type_by_column: Mapping[str, pa.DataType]

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield each row with its size in bytes, the size first."""
        yield from _read_lines(self.part_file)


class TableWriter(Protocol):
    """The functions of a format's module."""

    def check(self, name: str) -> None:
        """Raise `InputError` about the file of this name if a library that writing needs is missing."""

    def write(self, table: ResultsTable, target: Path) -> None:
        """Write a table to a file atomically; raises `OSError`."""


class ResultFormat(NamedTuple):
    """A format for results: its files' endings, the usual one first, and its module.

    JSON Lines have no module, because each row is written as soon as it's judged. `is_lean`: it's for people,
    so it leaves out each row's whole verdict, unless that's asked for.
    """

    endings: tuple[str, ...]
    module: str | None
    is_lean: bool = False


RESULT_FORMATS = (
    ResultFormat((".jsonl", ".ndjson"), None),
    ResultFormat((".csv",), "delimited", is_lean=True),
    ResultFormat((".tsv",), "delimited", is_lean=True),
    ResultFormat((".parquet",), "parquet"),
)
"""The formats, in the order used in messages and the help."""

ENDINGS = tuple(ending for format_ in RESULT_FORMATS for ending in format_.endings)
USUAL_ENDINGS = tuple(format_.endings[0] for format_ in RESULT_FORMATS)


def find_format(path: str) -> ResultFormat | None:
    """Find a results file's format by its name. Returns None if its extension is unknown."""
    # Skip the first character, because a file named `.csv`, for example, has no extension.
    name = PurePath(path).name[1:].lower()
    for format_ in RESULT_FORMATS:
        if name.endswith(format_.endings):
            return format_
    return None


def load_writer(path: str) -> TableWriter | None:
    """Load the module that writes a results file with this name.

    Returns None for JSON Lines, which need no table writer, and for an unknown extension.
    """
    format_ = find_format(path)
    if format_ is None or format_.module is None:
        return None
    return cast("TableWriter", import_module(f"{__name__}.{format_.module}"))


def is_lean(path: str) -> bool:
    """Whether a results file with this name omits complete verdicts."""
    format_ = find_format(path)
    return format_ is not None and format_.is_lean


def write_table(
    writer: TableWriter,
    part: Path,
    target: Path,
    ours: Sequence[str],
    schema: pa.Schema | None,
    left_out: Collection[str] = (),
) -> None:
    """Write the rows in a JSON Lines file, `part`, as a table. Raises `OSError`.

    `ours` are the result columns, which follow the input columns. Columns in `left_out` are omitted. `schema`
    has the input columns' types. In Parquet, a column keeps its type if all its cells fit.
    """
    columns = ColumnKinds(ours)
    for _, row in _read_lines(part):
        columns.add(row)
    all_kinds, renamed = columns.get_kinds_by_name()
    kinds = {name: all_kinds[name] for name in all_kinds if name not in left_out}
    types = _select_types(schema, kinds)
    writer.write(
        ResultsTable(
            part_file=part, kinds_by_column=kinds, new_name_by_column=renamed, type_by_column=types
        ),
        target,
    )


def _select_types(schema: pa.Schema | None, names: Collection[str]) -> dict[str, pa.DataType]:
    """Return the types of the columns in `names` that can keep them.

    Columns of bytes can't, because their bytes were converted to text.
    """
    types = {}
    for column in schema or ():
        is_bytes = "binary" in str(column.type)
        if column.name in names and not is_bytes:
            types[column.name] = column.type
    return types


class ColumnTypeError(Exception):
    """A column has a cell that doesn't fit the column's type in the input."""

    def __init__(self, column: str) -> None:
        self.column = column


def _read_lines(part: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each line's size in bytes, and its row."""
    with part.open("rb") as file:
        for line in file:
            yield len(line), json.loads(line)


@dataclass
class ColumnKinds:
    """The kinds of values in each column of results, such as "int".

    A table has the columns of the input, those that judgekit adds (`added_names`), and one for each score.
    """

    added_names: Sequence[str]
    input_kinds_by_column: dict[str, set[str]] = field(default_factory=dict)
    added_kinds_by_column: dict[str, set[str]] = field(default_factory=dict)
    score_kinds_by_column: dict[str, set[str]] = field(default_factory=dict)

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row: note the kind of each value, such as "int", for the value's column."""
        for name, value in row.items():
            is_added = name in self.added_names
            kinds_by_column = self.added_kinds_by_column if is_added else self.input_kinds_by_column
            kinds_by_column.setdefault(name, set()).add(_determine_kind(value))
        for name, value in _map_scores(row).items():
            self.score_kinds_by_column.setdefault(name, set()).add(_determine_kind(value))

    def update(self, other: ColumnKinds) -> None:
        """Add the kinds of values in other rows."""
        _merge_kinds(self.input_kinds_by_column, other.input_kinds_by_column)
        _merge_kinds(self.added_kinds_by_column, other.added_kinds_by_column)
        _merge_kinds(self.score_kinds_by_column, other.score_kinds_by_column)

    def get_kinds_by_name(self) -> tuple[dict[str, set[str]], dict[str, str]]:
        """Return the kinds of values by column name, in order, and the new names of renamed input columns.

        If an input column has the name of a score column, it's renamed to `row.NAME`.
        """
        renamed = {}
        for name in self.input_kinds_by_column:
            if name in self.score_kinds_by_column:
                renamed[name] = self._choose_new_name(name)

        kinds = {}
        for name, column_kinds in self.input_kinds_by_column.items():
            kinds[renamed.get(name, name)] = column_kinds
        for name in self.added_names:
            if name == "scores":  # write a column for each score instead
                kinds |= self.score_kinds_by_column
            else:
                kinds[name] = self._list_added_kinds(name)
        return kinds, renamed

    def _choose_new_name(self, name: str) -> str:
        """Put `row.` before a column's name, more than once if the new name is used as well."""
        new_name = f"row.{name}"
        while new_name in self.score_kinds_by_column or new_name in self.input_kinds_by_column:
            new_name = f"row.{new_name}"
        return new_name

    def _list_added_kinds(self, name: str) -> set[str]:
        """List the kinds of an added column's values, and the kind that the column has in any case."""
        kinds = set(self.added_kinds_by_column.get(name, ()))
        if name in _FIXED_KINDS:
            kinds.add(_FIXED_KINDS[name])
        return kinds


def _merge_kinds(kinds_by_name: dict[str, set[str]], others: Mapping[str, set[str]]) -> None:
    for name, kinds in others.items():
        kinds_by_name.setdefault(name, set()).update(kinds)


def _map_scores(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row's scores by column name, `score.NAME`."""
    scores = row.get("scores")
    if isinstance(scores, dict):
        return {f"score.{name}": value for name, value in scores.items()}
    return {}


def build_cells(row: Mapping[str, Any], renamed: Mapping[str, str]) -> dict[str, Any]:
    """Return a row's cells by column name, with one column per score at the end."""
    cells_without_scores = {}
    for name, value in row.items():
        if name != "scores":
            cells_without_scores[renamed.get(name, name)] = value
    return cells_without_scores | _map_scores(row)


def format_cell(value: object) -> str:
    """Format a value as a CSV cell that no spreadsheet evaluates as a formula."""
    return "" if value is None else defuse_cell(convert_to_text(value))


def convert_to_text(value: object) -> str:
    """Return a string unchanged, and any other value as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _determine_kind(value: object) -> str:
    """Return the kind of column that a value needs; "" for None, which fits into any column."""
    match value:
        case None:
            return ""
        case bool():
            return "bool"
        case int():
            return _determine_integer_kind(value)
        case float():
            return "float"
        case _:
            return "text"


def _determine_integer_kind(value: int) -> str:
    """Return "int" for an integer that a float can hold exactly, "long" if 64 bits can, or else "text"."""
    is_exact_as_float = abs(value) <= _MAX_EXACT_FLOAT
    if is_exact_as_float:
        return "int"
    fits_into_64_bits = -_INT64_BOUND <= value < _INT64_BOUND
    return "long" if fits_into_64_bits else "text"


def _choose_type(kinds: set[str]) -> pa.DataType:
    """Choose the narrowest type for all these kinds of values, or text if there are no values.

    A "long" integer wouldn't be exact as a float, so with floats, it needs text.
    """
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency

    present_kinds = kinds - {""}  # a missing value fits into any type
    if not present_kinds:
        return pa.string()

    are_integers = all(kind in ("int", "long") for kind in present_kinds)
    are_numbers = all(kind in ("int", "float") for kind in present_kinds)
    are_booleans = all(kind == "bool" for kind in present_kinds)
    if are_integers:
        return pa.int64()
    if are_numbers:
        return pa.float64()
    if are_booleans:
        return pa.bool_()
    return pa.string()


def build_schema(kinds: Mapping[str, set[str]], types: Mapping[str, pa.DataType]) -> pa.Schema:
    """Build a table's schema.

    Types of columns that aren't in `types` are chosen by the kinds of their values.
    """
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency

    columns = []
    for name, column_kinds in kinds.items():
        columns.append((name, types.get(name, _choose_type(column_kinds))))
    return pa.schema(columns)


def make_batch(
    rows: Sequence[Mapping[str, Any]],
    schema: pa.Schema,
    renamed: Mapping[str, str],
    given: Container[str],
) -> pa.RecordBatch:
    """Convert result rows to a batch. `renamed` maps input columns to their new names.

    `given` contains the columns whose type is that of the input. Raises `ColumnTypeError` if the cells of
    such a column don't fit its type.
    """
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency

    cells_by_row = [build_cells(row, renamed) for row in rows]
    arrays = []
    for column in schema:
        values = [cells.get(column.name) for cells in cells_by_row]
        arrays.append(_make_array(values, column, is_of_input=column.name in given))
    return pa.record_batch(arrays, schema)


def _make_array(values: list[Any], column: pa.Field, *, is_of_input: bool) -> pa.Array:
    """Convert a column's values to an array.

    Raises `ColumnTypeError` if it's an input column, and its type can't represent all values exactly.
    """
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency

    if is_of_input:
        return _make_exact_array(values, column)
    if pa.types.is_string(column.type):
        values = [value if value is None else convert_to_text(value) for value in values]
    return pa.array(values, column.type)


def _make_exact_array(values: list[Any], column: pa.Field) -> pa.Array:
    """Convert an input column's values to an array of the column's type.

    Raises `ColumnTypeError` if a value doesn't fit, or would change: a duration in another unit, for example.
    """
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency

    from judgekit.data.arrow import convert_cells  # noqa: PLC0415 - imported lazily, because it needs pyarrow

    try:
        array = _parse_values(values, column.type)
        is_exact = convert_cells(array) == values
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        raise ColumnTypeError(column.name) from None
    if not is_exact:
        raise ColumnTypeError(column.name)
    return array


def _parse_values(values: list[Any], column_type: pa.DataType) -> pa.Array:
    """Convert values to an array. In JSON, values such as dates are strings, which pyarrow can parse."""
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency

    try:
        return pa.array(values, column_type)
    except (pa.ArrowException, ValueError, TypeError):
        return pa.array(values, pa.string()).cast(column_type)


def find_misfits(rows: Sequence[Mapping[str, Any]], types: Mapping[str, pa.DataType]) -> set[str]:
    """Find the columns whose cells don't all fit their type in `types`."""
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency

    misfit_columns = set()
    for name, column_type in types.items():
        values = [row.get(name) for row in rows]
        try:
            _make_array(values, pa.field(name, column_type), is_of_input=True)
        except ColumnTypeError:
            misfit_columns.add(name)
    return misfit_columns
