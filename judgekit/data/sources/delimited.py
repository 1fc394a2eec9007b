"""Reads rows of CSV and TSV: the first line is the header; an unclosed quote costs only one row."""

from __future__ import annotations

import csv
from collections import deque
from pathlib import PurePath
from typing import TYPE_CHECKING, BinaryIO

from judgekit.data import sniffing
from judgekit.data.cells import (
    CellError,
    check_names,
    check_text,
    name_index_column,
    strip_blank_end,
)
from judgekit.data.sources import TOO_LONG_MESSAGE, DataRow, strip_compression_extension
from judgekit.data.sources.line_reader import BOM, build_unreadable_row, read_bounded_lines
from judgekit.data.sources.output_columns import find_outputs
from judgekit.judging.documents import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from judgekit.data.sources import Reading, Stream
    from judgekit.data.sources.output_columns import OutputColumns

DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".psv": "|"}


def check(file: BinaryIO, name: str, reading: Reading) -> None:
    _find_delimiter(file, name, reading)


def read(file: BinaryIO, name: str, reading: Reading) -> Stream:
    """Yield the rows below the header. Raises `InputError` for a file of another kind."""
    delimiter = _find_delimiter(file, name, reading)
    csv.field_size_limit(max(csv.field_size_limit(), MAX_BYTES))
    lines = _Lines(file)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)

    names: list[str] | None = None
    outputs: OutputColumns | None = None
    empty_count = 0  # empty rows since the last row with content
    number = 0

    while True:
        # Read the header or the cells of the next row.
        lines.begin()
        problem: CellError | None = None
        is_empty = False
        row = {}
        try:
            cells = next(reader, None)
            if cells is None:  # the end of the file
                return
            if lines.is_blank:
                continue
            if names is None:
                if _is_separator_line(cells):
                    continue
                header = name_index_column(strip_blank_end(cells, 1))
                outputs = find_outputs(header)
                names = check_names(outputs.unique_names() if outputs else header)
                continue
            is_empty = lines.has_only(delimiter)
            row = _map_cells(names, cells)
        except csv.Error as error:
            lines.give_back()  # an unclosed quote mustn't swallow the rows after it
            problem = CellError(
                f"expected quotes around whole cells, and doubled inside them ({error})"
            )
        except CellError as error:
            problem = error

        if names is None:  # without a header, no row can be read
            if problem is not None:
                yield build_unreadable_row(problem, number, lines.line_number)
            return

        # Excel writes cleared rows below the table. So an empty row only counts if another row follows.
        number += 1
        if is_empty:
            empty_count += 1
            continue
        for empty_number in range(number - empty_count, number):
            yield DataRow(empty_number, _map_cells(names, [""] * len(names)))
        empty_count = 0

        if problem is None and outputs is not None:
            yield from _split_outputs(outputs, number, row)
        elif problem is None:
            yield DataRow(number, row)
        else:
            yield build_unreadable_row(problem, number, lines.line_number)


def _split_outputs(outputs: OutputColumns, number: int, row: dict[str, str]) -> Iterator[DataRow]:
    """Split a row of a prompt comparison into one row per output.

    `number` is the row's number in the file.
    """
    first_number = (number - 1) * len(outputs.outputs) + 1
    cells = list(row.values())  # `build_rows` has its own names for them
    for row_number, columns in enumerate(outputs.build_rows(cells), first_number):
        yield DataRow(row_number, columns)


def _find_delimiter(file: BinaryIO, name: str, reading: Reading) -> str:
    """Return the delimiter that the user named.

    Without one, find it in the header, and remark if it's unusual. Raises `InputError` for a file in another
    format.
    """
    head = sniffing.peek_head(file)
    sniffing.refuse_others(head, name)
    if reading.delimiter is not None:
        return reading.delimiter
    usual = DELIMITERS[PurePath(strip_compression_extension(name)).suffix]
    delimiter = sniffing.find_delimiter(head, usual, name)
    if delimiter != usual:
        words = sniffing.describe_delimiter(delimiter)
        reading.remark(f"{name}: {words} taken for delimiters (--delimiter C names another)")
    return delimiter


class _Lines:
    """The lines of a file; if a row is broken, all its lines except the first can be read again."""

    def __init__(self, file: BinaryIO) -> None:
        self._lines = read_bounded_lines(file, MAX_BYTES)
        self._lines_to_repeat: deque[str] = deque()
        self._row_lines: list[str] = []  # the lines of the current row
        self._row_char_count = 0  # of the current row, in characters
        self.line_number = 0  # the number of the current row's first line

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        """Return the next line. Raises `csv.Error` if it makes the row too long."""
        if self._lines_to_repeat:
            next_line = self._lines_to_repeat.popleft()
        else:
            next_line = self._decode(next(self._lines))
        self._row_lines.append(next_line)
        self._row_char_count += len(next_line)
        is_line_too_long = not next_line  # `_decode` returns "" for such a line
        if is_line_too_long or self._row_char_count > MAX_BYTES:
            raise csv.Error(TOO_LONG_MESSAGE)
        return next_line

    def _decode(self, raw: bytes | None) -> str:
        """Decode a line. If it was too long, `raw` is None, and the result is ""."""
        if raw is None:
            return ""
        if self.line_number == 1 and not self._row_lines:  # the file's first line
            raw = raw.removeprefix(BOM)
        # Invalid bytes become surrogates, which are reported once the cells have been parsed.
        return raw.decode("utf-8", "surrogateescape")

    def begin(self) -> None:
        """Begin a new row."""
        self.line_number += len(self._row_lines) or 1  # 1 for the first row
        self._row_lines = []
        self._row_char_count = 0

    def give_back(self) -> None:
        """Put all lines of the row except the first back, to be read again."""
        self._lines_to_repeat.extendleft(reversed(self._row_lines[1:]))
        del self._row_lines[1:]

    @property
    def is_blank(self) -> bool:
        return not "".join(self._row_lines).strip(" \r\n")  # a row of TSV may consist of tabs

    def has_only(self, delimiter: str) -> bool:
        """Whether the row only has delimiters, without even quotes between them."""
        return not "".join(self._row_lines).strip(f" \r\n{delimiter}")


def _is_separator_line(cells: Sequence[str]) -> bool:
    """Whether a line is a separator line such as `sep=;`, which Excel understands above the header."""
    if not cells[0].startswith("sep="):
        return False
    # One character follows `sep=`. If it's the reader's own delimiter, the reader has split the line there,
    # so count it.
    delimiter_count = len(cells) - 1
    return len(cells[0]) + delimiter_count == len("sep=;")


def _map_cells(names: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    """Map column names to a row's cells. Raises `CellError` for a wrong number of cells or invalid text."""
    cells = strip_blank_end(cells, len(names))
    if len(cells) != len(names):
        raise CellError(f"expected {len(names)} cells, as many as the header has, got {len(cells)}")
    row = dict(zip(names, cells, strict=True))
    for name, cell in row.items():
        check_text(cell, name)
    return row
