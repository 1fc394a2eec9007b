"""Reads rows of Parquet, in batches that stay small in memory, whatever the file says about itself."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, BinaryIO

from judgekit.data import parquet_pages
from judgekit.data.arrow import convert_cells, import_parquet_module
from judgekit.data.cells import CellError, check_names
from judgekit.data.sources import TOO_LONG_MESSAGE, DataRow, UnreadableRow
from judgekit.data.sources.line_reader import build_unreadable_row
from judgekit.errors import InputError
from judgekit.judging.documents import MAX_BYTES
from judgekit.text import replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyarrow import parquet

    from judgekit.data.sources import Reading, Stream

_MAX_BATCH_ROWS = 64  # rows in memory at once
_BUFFER = 1_000_000  # bytes of a column read ahead
_BYTES_PER_OBJECT = 60  # bytes of a Python object, roughly


def check(file: BinaryIO, name: str, reading: Reading) -> pa.Schema:
    del reading  # the file says itself how it is written
    return _open(file, name).schema_arrow


def read(file: BinaryIO, name: str, reading: Reading) -> Stream:
    """Yield the rows in a file. Raises `InputError` if it could take too much memory."""
    del reading  # Parquet files need no options for reading
    pages = _measure_pages(file, name)
    file.seek(0)
    with _open(file, name, texts=sorted(pages.nested_texts)) as opened:
        try:
            names = check_names(opened.schema_arrow.names)
        except CellError as error:
            yield build_unreadable_row(error, number=0, line=0)  # 0 stands for the header
            return

        number = 0
        for batch in _yield_batches(opened, pages.choose_rows_at_once(_MAX_BATCH_ROWS)):
            for cells in _yield_cells(batch):
                number += 1
                yield _build_row(number, names, cells)


def _build_row(
    number: int, names: Sequence[str], cells: Sequence[Any] | None
) -> DataRow | UnreadableRow:
    """Build a row from its cells, which are None if the row is too long.

    A cell that can't be read is a `CellError`, and makes the row unreadable.
    """
    if cells is None:
        return UnreadableRow(number, "", f"expected a shorter row; {TOO_LONG_MESSAGE}")
    row = dict(zip(names, cells, strict=True))
    for name, cell in row.items():
        is_unreadable = isinstance(cell, CellError)
        if is_unreadable:
            return UnreadableRow(number, name, cell.problem)
    return DataRow(number, row)


def _open(file: BinaryIO, name: str, texts: Sequence[str] = ()) -> parquet.ParquetFile:
    """Open a Parquet file. Repeated strings in the columns `texts` are only kept in memory once."""
    return import_parquet_module(name).ParquetFile(
        file, buffer_size=_BUFFER, read_dictionary=list(texts)
    )


def _measure_pages(file: BinaryIO, name: str) -> parquet_pages.Pages:
    """Measure a file's pages. Raises `InputError` if the file could take too much memory."""
    size = file.seek(0, io.SEEK_END)
    try:
        return parquet_pages.measure_pages(file, _open(file, name), size)
    except parquet_pages.PagesError as error:
        raise InputError(f"{replace_surrogates(name)}: {error}") from None


def _yield_batches(file: parquet.ParquetFile, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches."""
    # Each row group has its own dictionaries, so a batch mustn't contain more than one.
    for number in range(file.num_row_groups):
        yield from file.iter_batches(rows, row_groups=[number], use_threads=False)


def _yield_cells(batch: pa.RecordBatch) -> Iterator[Sequence[Any] | None]:
    """Yield the cells of each row, or None if a row is too long to unpack."""
    # If the entire batch is small enough, so is every row in it.
    if _estimate_bytes(batch.columns) <= MAX_BYTES:
        yield from zip(*map(convert_cells, batch.columns), strict=True)
        return

    for index in range(batch.num_rows):
        row = batch.slice(index, 1)
        if _estimate_bytes(row.columns) > MAX_BYTES:
            yield None
            continue
        cells = []
        for column in row.columns:
            cells += convert_cells(column)  # a list of one cell
        yield cells


def _estimate_bytes(columns: Iterable[pa.Array]) -> int:
    """Estimate the bytes of memory that these columns' cells take as Python objects."""
    total = 0
    for column in columns:
        total += len(column) * _BYTES_PER_OBJECT + _count_content_bytes(column)
    return total


def _count_content_bytes(column: pa.Array) -> int:
    """Count the bytes of the cells' content, without what Python objects add."""
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency

    kind = column.type
    if pa.types.is_dictionary(kind):
        return _count_dictionary_bytes(column)
    if pa.types.is_struct(kind):
        return _estimate_bytes(column.flatten())
    if pa.types.is_map(kind):
        return _count_map_bytes(column)
    if _is_list(kind):
        return _estimate_bytes([column.flatten()])
    if _is_text(kind):
        return _count_text_bytes(column)
    return int(column.nbytes)


def _count_dictionary_bytes(column: pa.Array) -> int:
    """Count the bytes of a dictionary column. A text counts in each cell, though it's stored only once."""
    from pyarrow import compute  # noqa: PLC0415 - an optional dependency

    entries = column.dictionary
    if not _is_text(entries.type):
        return 0
    entry_lengths = compute.binary_length(entries)
    cell_lengths = compute.take(entry_lengths, column.indices)
    return compute.sum(cell_lengths).as_py() or 0  # the sum of no lengths is None


def _count_map_bytes(column: pa.Array) -> int:
    """Count the bytes of a column of maps."""
    # A slice of a map array still contains the entries of all rows. The offsets tell which are its own.
    start = column.offsets[0].as_py()
    count = column.offsets[len(column)].as_py() - start
    keys = column.keys.slice(start, count)
    items = column.items.slice(start, count)
    return _estimate_bytes([keys, items])


def _count_text_bytes(column: pa.Array) -> int:
    """Count the bytes of a column of texts."""
    from pyarrow import compute  # noqa: PLC0415 - an optional dependency

    lengths = compute.binary_length(column)
    return compute.sum(lengths).as_py() or 0  # the sum of no lengths is None


def _is_list(kind: pa.DataType) -> bool:
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency

    has_any_length = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return bool(has_any_length or pa.types.is_fixed_size_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency

    kinds = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    return kind in kinds or pa.types.is_fixed_size_binary(kind)
