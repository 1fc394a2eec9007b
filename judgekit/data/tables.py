"""How results become one table, CSV, TSV or Parquet: which columns it has, and how each cell is written."""

from __future__ import annotations

import csv
import io
import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import IO, TYPE_CHECKING, Any

from judgekit import outputs
from judgekit.data.rows import DELIMITERS, parquet_module, plain_cells
from judgekit.text import defused

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

ENDINGS = (*DELIMITERS, ".parquet")
_EXACT = 2**53
_LONG = 2**63  # below: every whole number is a floating-point number, too; is one of 64 bits
_ROWS = 5000
_BYTES = 64_000_000  # of a row group of Parquet: what is in memory at once
_ALWAYS = {"average": "float", "cost_usd": "float", "duration_ms": "int"}  # also where all are null


@contextmanager
def replacing(target: Path) -> Iterator[IO[bytes]]:
    """Open what takes the place of a file at once, when all of it is on the disk; raises `OSError`.

    Only its owner can read a new one.
    """
    with outputs.Replacement(str(target), mode=outputs.PRIVATE, durable=True) as replacement:
        yield replacement.file


def write_table(part: Path, target: Path, ours: Sequence[str], schema: pa.Schema | None) -> None:
    """Write the rows of a file of JSON Lines as a table; raises `OSError`.

    `ours` are the columns behind a row's own ones; `scores` becomes a column for each score. A nested value,
    and `judged`, is text: JSON. In Parquet a column keeps its type of `schema` where all cells fit it. Else
    it has the type that all its values share, or is text.
    """
    columns = Columns(ours)
    for _, found in _lines(part):
        columns.add(found)
    kinds, renamed = columns.named()
    ending = target.suffix.lower()
    if ending in DELIMITERS:
        with replacing(target) as file:
            text = io.TextIOWrapper(file, "utf-8", newline="")
            # With the line end of RFC 4180 the writer quotes each line break that a cell may hold.
            writer = csv.writer(text, delimiter=DELIMITERS[ending], lineterminator="\r\n")
            writer.writerow(map(defused, kinds))
            for _, found in _lines(part):
                cells = _cells(found, renamed)
                writer.writerow([cell_of(cells.get(name)) for name in kinds])
            text.detach()  # which flushes
        return
    # Bytes have become text, some of them as Base64: as bytes again they would be others.
    types = {}
    for column in schema or ():
        if column.name in kinds and "binary" not in str(column.type):
            types[column.name] = column.type
    while True:
        try:
            with replacing(target) as file:
                _write_parquet(part, file, kinds, renamed, types)
        except ColumnTypeError as error:
            del types[error.column]
        else:
            return


class ColumnTypeError(Exception):
    """A column has a cell that does not fit the type it had in the input."""

    def __init__(self, column: str) -> None:
        self.column = column


def _lines(part: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with part.open("rb") as file:
        for line in file:
            yield len(line), json.loads(line)


@dataclass
class Columns:
    """The kinds of value in each column of rows of results: a row's `own` ones, `ours`, and its scores."""

    ours: Sequence[str]
    own: dict[str, set[str]] = field(default_factory=dict)
    known: dict[str, set[str]] = field(default_factory=dict)
    scores: dict[str, set[str]] = field(default_factory=dict)

    def add(self, found: Mapping[str, Any]) -> None:
        for name, value in found.items():
            (self.known if name in self.ours else self.own).setdefault(name, set()).add(
                _kind(value)
            )
        for name, value in _scores(found).items():
            self.scores.setdefault(name, set()).add(_kind(value))

    def update(self, other: Columns) -> None:
        for own, others in (
            (self.own, other.own),
            (self.known, other.known),
            (self.scores, other.scores),
        ):
            for name, kinds in others.items():
                own.setdefault(name, set()).update(kinds)

    def named(self) -> tuple[dict[str, set[str]], dict[str, str]]:
        """Return the kinds of each column, in order, and new names of those called like a score."""
        renamed: dict[str, str] = {}
        for name in self.own.keys() & self.scores.keys():
            new = name
            while new in self.scores or new in self.own:
                new = f"row.{new}"
            renamed[name] = new
        kinds = {renamed.get(name, name): found for name, found in self.own.items()}
        for name in self.ours:
            if name in _ALWAYS:
                always = {_ALWAYS[name]}
            else:
                always = set[str]()
            kinds |= (
                self.scores if name == "scores" else {name: self.known.get(name, set()) | always}
            )
        return kinds, renamed


def _scores(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scores of a row by the names of their columns."""
    scores = found.get("scores")
    if isinstance(scores, dict):
        return {f"score.{name}": value for name, value in scores.items()}
    return {}


def _cells(found: Mapping[str, Any], renamed: Mapping[str, str]) -> dict[str, Any]:
    own = {}
    for name, value in found.items():
        if name != "scores":
            own[renamed.get(name, name)] = value
    return own | _scores(found)


def cell_of(value: object) -> str:
    """Return a value as a cell of CSV; no spreadsheet takes it for a formula."""
    return "" if value is None else defused(text_of(value))


def text_of(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _kind(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "bool"
        case int():
            if abs(value) <= _EXACT:
                return "int"
            return "long" if -_LONG <= value < _LONG else "text"
        case float():
            return "float"
        case _:
            return "text"


def _arrow_type(kinds: set[str]) -> pa.DataType:
    import pyarrow as pa  # noqa: PLC0415 - an extra, which only Parquet needs

    held = kinds - {""}
    if held and held <= {"int", "long"}:
        return pa.int64()
    if held and held <= {"int", "float"}:
        return pa.float64()
    if held == {"bool"}:
        return pa.bool_()
    return pa.string()


def schema_of(kinds: Mapping[str, set[str]], types: Mapping[str, pa.DataType]) -> pa.Schema:
    """Return the columns of a table: each has its type of `types`, or that which its values share."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    return pa.schema([(name, types.get(name, _arrow_type(found))) for name, found in kinds.items()])


def batch_of(
    rows: Sequence[Mapping[str, Any]],
    schema: pa.Schema,
    renamed: Mapping[str, str],
    given: Container[str],
) -> pa.RecordBatch:
    """Return rows of results as a part of a table; columns that are `given` have a type of the input.

    Raises `ColumnTypeError` for such a column that does not fit its type.
    """
    import pyarrow as pa  # noqa: PLC0415 - as above

    held = [_cells(found, renamed) for found in rows]
    values = ([cells.get(name) for cells in held] for name in schema.names)
    pairs = zip(values, schema, strict=True)
    return pa.record_batch(
        [_array(cells, each, given=each.name in given) for cells, each in pairs], schema
    )


def _write_parquet(
    part: Path,
    file: IO[bytes],
    kinds: Mapping[str, set[str]],
    renamed: Mapping[str, str],
    types: Mapping[str, pa.DataType],
) -> None:
    """Write the rows as Parquet; raises `ColumnTypeError`."""
    schema = schema_of(kinds, types)
    held: list[dict[str, Any]] = []
    size = 0
    with parquet_module(part.name).ParquetWriter(file, schema) as writer:
        for length, found in chain(_lines(part), [(_BYTES + 1, None)]):  # which ends the last group
            held += [] if found is None else [found]
            size += length
            if held and (len(held) == _ROWS or size > _BYTES):
                writer.write_batch(batch_of(held, schema, renamed, types))
                held = []
                size = 0


def _array(values: list[Any], column: pa.Field, *, given: bool) -> pa.Array:
    import pyarrow as pa  # noqa: PLC0415 - as above

    if not given:
        if pa.types.is_string(column.type):
            values = [each if each is None else text_of(each) for each in values]
        return pa.array(values, column.type)
    try:
        try:
            array = pa.array(values, column.type)
        except (pa.ArrowException, ValueError, TypeError):
            array = pa.array(values, pa.string()).cast(column.type)
        if plain_cells(array) == values:  # a duration, say, was in another unit
            return array
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        pass
    raise ColumnTypeError(column.name)


def misfits(rows: Sequence[Mapping[str, Any]], types: Mapping[str, pa.DataType]) -> set[str]:
    """Return the columns in which a cell does not fit the column's type of `types`."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    found = set()
    for name, kind in types.items():
        try:
            _array([row.get(name) for row in rows], pa.field(name, kind), given=True)
        except ColumnTypeError:
            found.add(name)
    return found
