"""Measures from its page headers how much memory a Parquet file takes, before anything is unpacked.

A page of a few bytes can unpack to gigabytes, and every row can refer to the same long text in a dictionary.
The file's footer can lie about both, but readers rely on the page headers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyarrow import parquet

MAX_UNPACKED_BYTES = 256_000_000  # unpacked at once, plus
UNPACKED_BYTES_PER_FILE_BYTE = 4  # for each byte of the file
MAX_VALUES = 10_000_000  # in the lists of one column of a row group, plus
VALUES_PER_COLUMN_BYTE = 8  # for each byte of that column
BATCH_BYTES = 64_000_000  # of rows read at once
_FIRST_READ_BYTES = 8_192  # most headers are far shorter
_MAX_HEADER_BYTES = 16_000_000  # bytes: Arrow's own limit
_DICTIONARY = 2  # the page type of dictionaries
_DATA_HEADERS = (5, 8)  # ids of the header's fields about a data page, of both versions


class PagesError(ValueError):
    """A file's pages are malformed, or would take too much memory for the file's size."""


@dataclass
class Pages:
    """The memory of a file's largest row, and the text columns in lists that must be read as dictionaries."""

    row_bytes: int = 0
    nested_texts: set[str] = field(default_factory=set)

    def choose_rows_at_once(self, usual: int) -> int:
        """Choose how many rows to read at once: `usual`, or fewer if rows can be large."""
        rows_that_fit = BATCH_BYTES // max(1, self.row_bytes)
        return max(1, min(usual, rows_that_fit))


def measure_pages(opened: BinaryIO, file: parquet.ParquetFile, size: int) -> Pages:
    """Measure a Parquet file of `size` bytes. Raises `PagesError` if its pages take too much memory."""
    pages = Pages()
    max_bytes = MAX_UNPACKED_BYTES + UNPACKED_BYTES_PER_FILE_BYTE * size
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        group_bytes = _measure_group(opened, group, file.schema, pages)
        if group_bytes > max_bytes:
            problem = (
                f"its row group {number + 1} unpacks to {group_bytes // 1_000_000:,} MB at once"
            )
            raise PagesError(
                f"{problem}, and a file of this size to {max_bytes // 1_000_000:,} MB at most"
            )
        # Assume the worst: that a single row needs all that its group unpacks at once.
        pages.row_bytes = max(pages.row_bytes, group_bytes)
    return pages


def _measure_group(
    opened: BinaryIO,
    group: parquet.RowGroupMetaData,
    schema: parquet.ParquetSchema,
    pages: Pages,
) -> int:
    """Add up the bytes that a row group needs at once: each column's dictionary and its largest page.

    Adds columns with much text in lists to `pages.nested_texts`. Raises `PagesError` if lists have too many
    values.
    """
    group_bytes = 0
    for index in range(group.num_columns):
        chunk = group.column(index)
        column = schema.column(index)
        sizes = _measure_column(opened, chunk)
        group_bytes += sizes.dictionary_bytes + sizes.largest_page_bytes
        is_in_lists = column.max_repetition_level > 0
        if not is_in_lists:
            continue
        _check_values(chunk, column, sizes.value_count)
        is_text = chunk.physical_type == "BYTE_ARRAY"
        # At worst, the dictionary has a single text, and every value is a copy of it.
        if is_text and sizes.dictionary_bytes * sizes.value_count > BATCH_BYTES:
            pages.nested_texts.add(chunk.path_in_schema)
    return group_bytes


def _check_values(
    chunk: parquet.ColumnChunkMetaData, column: parquet.ColumnSchema, values: int
) -> None:
    """Raise `PagesError` if a list column has implausibly many values for its compressed size.

    A small file with very many values may have been made to fill the memory.
    """
    max_values = MAX_VALUES + VALUES_PER_COLUMN_BYTE * chunk.total_compressed_size
    # Values of a fixed size can be long, so limit their bytes, too.
    value_bytes = 1
    if chunk.physical_type == "FIXED_LEN_BYTE_ARRAY":
        value_bytes = max(1, column.length)
    has_too_many_values = values > max_values
    has_too_many_bytes = values * value_bytes > MAX_UNPACKED_BYTES + max_values
    if has_too_many_values or has_too_many_bytes:
        problem = f"its column {chunk.path_in_schema} has {values:,} values in lists"
        raise PagesError(f"{problem}, more than so few bytes may say; write smaller row groups")


@dataclass
class _Sizes:
    """The bytes of a column's dictionary and largest page, and its number of values."""

    dictionary_bytes: int = 0
    largest_page_bytes: int = 0
    value_count: int = 0


def _measure_column(opened: BinaryIO, chunk: parquet.ColumnChunkMetaData) -> _Sizes:
    """Measure a column's pages in a row group."""
    start = chunk.data_page_offset
    if chunk.has_dictionary_page:
        dictionary_start = chunk.dictionary_page_offset or 0
        if 0 < dictionary_start < start:  # the dictionary page comes before the data pages
            start = dictionary_start

    sizes = _Sizes()
    for page in _read_headers(opened, start, start + chunk.total_compressed_size):
        if page.kind == _DICTIONARY:
            sizes.dictionary_bytes = max(sizes.dictionary_bytes, page.unpacked_bytes)
        else:
            sizes.largest_page_bytes = max(sizes.largest_page_bytes, page.unpacked_bytes)
            sizes.value_count += page.value_count
    return sizes


@dataclass
class _Page:
    kind: int = 0
    unpacked_bytes: int = 0
    packed_bytes: int = 0
    value_count: int = 0


def _read_headers(opened: BinaryIO, start: int, end: int) -> Iterator[_Page]:
    """Yield the page headers between two positions in a file. Raises `PagesError` if one is malformed."""
    while start < end:
        page, length = _read_header(opened, start)
        if page.unpacked_bytes < 0 or page.packed_bytes < 0 or page.value_count < 0:
            raise PagesError("the header of a page is broken")
        yield page
        start += length + page.packed_bytes


def _read_header(opened: BinaryIO, start: int) -> tuple[_Page, int]:
    """Read the page header at a position in a file. Also returns its length in bytes.

    Raises `PagesError` if it's malformed.
    """
    max_bytes = _FIRST_READ_BYTES
    while True:
        opened.seek(start)
        raw = opened.read(max_bytes)
        try:
            return _parse_header(raw)
        except IndexError:  # the header is longer than the bytes read so far
            is_end_of_file = len(raw) < max_bytes
            if is_end_of_file or max_bytes == _MAX_HEADER_BYTES:
                raise PagesError("the header of a page is broken") from None
            max_bytes = min(16 * max_bytes, _MAX_HEADER_BYTES)


def _parse_header(raw: bytes) -> tuple[_Page, int]:
    """Parse a page header. Also returns its length in bytes.

    Raises `IndexError` if the header is longer than `raw`.
    """
    reader = _Thrift(raw)
    page = _Page()
    for number, kind in reader.read_fields():
        if number == 1:
            page.kind = reader.read_number()
        elif number == 2:  # noqa: PLR2004 - numbers of Parquet's format
            page.unpacked_bytes = reader.read_number()
        elif number == 3:  # noqa: PLR2004 - numbers of Parquet's format
            page.packed_bytes = reader.read_number()
        elif number in _DATA_HEADERS and kind == _Thrift.STRUCT:
            for inner, inner_kind in reader.read_fields():
                if inner == 1:
                    page.value_count = reader.read_number()
                else:
                    reader.skip(inner_kind)
        else:
            reader.skip(kind)
    return page, reader.position


class _Thrift:
    """Reads the part of Thrift's compact protocol that page headers use."""

    TRUE = 1
    FALSE = 2
    BYTE = 3
    DOUBLE = 7
    BINARY = 8
    LIST = 9
    SET = 10
    MAP = 11
    STRUCT = 12
    _NUMBERS = (4, 5, 6)
    _LONG_LIST = 15  # means that the size follows
    _DEEPEST = 10

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._depth = 0
        self.position = 0

    def read_fields(self) -> Iterator[tuple[int, int]]:
        """Yield the id and type of each field in a struct.

        The caller must read or skip a field's value before it takes the next field.
        """
        self._depth += 1
        if self._depth > self._DEEPEST:
            raise PagesError("the header of a page is broken")
        field_id = 0
        while header := self._read_byte():  # a zero ends the struct
            # The upper four bits are the difference from the last field id, or 0 if the id itself follows.
            id_delta = header >> 4
            field_type = header & 15
            field_id = field_id + id_delta if id_delta else self.read_number()
            yield field_id, field_type
        self._depth -= 1

    def read_number(self) -> int:
        """Read a signed number in zigzag encoding, which stores 0, -1, 1, -2 as 0, 1, 2, 3."""
        value = self._read_varint()
        return (value >> 1) ^ -(value & 1)

    def skip(self, kind: int) -> None:
        """Skip a value of type `kind`."""
        if kind in (self.TRUE, self.FALSE):
            return
        if kind == self.BYTE:
            self._read_byte()
        elif kind in self._NUMBERS:
            self._read_varint()
        elif kind == self.DOUBLE:
            self._skip_bytes(8)
        elif kind == self.BINARY:
            size = self._read_varint()
            self._skip_bytes(size)
        elif kind == self.STRUCT:
            for _, inner in self.read_fields():
                self.skip(inner)
        else:
            # Valid headers have no lists or maps.
            raise PagesError("the header of a page is broken")

    def _read_byte(self) -> int:
        value = self._raw[self.position]
        self.position += 1
        return value

    def _skip_bytes(self, count: int) -> None:
        """Skip bytes. Raises `IndexError` if there are fewer left."""
        self.position += count
        if self.position > len(self._raw):
            raise IndexError

    def _read_varint(self) -> int:
        """Read an unsigned number, stored as seven bits per byte, lowest bits first."""
        value = 0
        shift = 0
        while True:
            byte = self._read_byte()
            value |= (byte & 127) << shift
            is_last_byte = byte < 128  # noqa: PLR2004 - the high bit means that more bytes follow
            if is_last_byte:
                return value
            shift += 7
            if shift > 63:  # noqa: PLR2004 - a valid number has up to 64 bits
                raise PagesError("the header of a page is broken")
