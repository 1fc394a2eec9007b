"""Writes results as Parquet: a column keeps its type in the input if all cells fit it."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

from judgekit.data.arrow import import_parquet_module
from judgekit.data.tables import ColumnTypeError, build_schema, make_batch, open_replacement

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

    from judgekit.data.tables import ResultsTable

_MAX_GROUP_ROWS = 5000
_MAX_GROUP_BYTES = 64_000_000  # in a row group, which must fit into memory


def check(name: str) -> None:
    import_parquet_module(name)


def write(table: ResultsTable, target: Path) -> None:
    """Write a table. A column keeps its type from the input if all its cells fit."""
    types = dict(table.type_by_column)
    while True:  # if a cell doesn't fit, drop its column's type and try again
        try:
            with open_replacement(target) as file:
                _write_to(file, table, types)
        except ColumnTypeError as error:
            del types[error.column]
        else:
            return


def _write_to(file: IO[bytes], table: ResultsTable, types: Mapping[str, pa.DataType]) -> None:
    """Write the rows to an open file. Raises `ColumnTypeError` if a cell doesn't fit its type."""
    schema = build_schema(table.kinds_by_column, types)
    with import_parquet_module(table.part_file.name).ParquetWriter(file, schema) as writer:
        for rows in _group_rows(table):
            writer.write_batch(make_batch(rows, schema, table.new_name_by_column, types))


def _group_rows(table: ResultsTable) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows in groups that are small enough for memory."""
    rows = []
    size = 0
    for byte_count, row in table.rows():
        rows.append(row)
        size += byte_count
        if len(rows) == _MAX_GROUP_ROWS or size > _MAX_GROUP_BYTES:
            yield rows
            rows = []
            size = 0
    if rows:
        yield rows
