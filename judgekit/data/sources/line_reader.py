"""Shared by the sources of text: reads lines of bounded length, and builds unreadable rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from judgekit.data.sources import UnreadableRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.data.cells import CellError

BOM = b"\xef\xbb\xbf"
_CHUNK_SIZE = 1_000_000  # bytes to read at once from the rest of a line that is too long


def read_bounded_lines(file: BinaryIO, max_bytes: int) -> Iterator[bytes | None]:
    """Yield a file's lines with their line ends. A line of more than `max_bytes` is None."""
    while line := file.readline(max_bytes):
        is_complete = len(line) < max_bytes or line.endswith(b"\n")
        if is_complete:
            yield line
        else:
            _skip_rest(file)
            yield None


def _skip_rest(file: BinaryIO) -> None:
    """Read the rest of a line, in chunks to save memory, and ignore it."""
    while True:
        chunk = file.readline(_CHUNK_SIZE)
        is_end_of_file = chunk == b""
        if is_end_of_file or chunk.endswith(b"\n"):
            return


def build_unreadable_row(error: CellError, number: int, line: int) -> UnreadableRow:
    """Build an unreadable row from an error. If the line has another number than the row, mention it."""
    problem = error.problem
    if line != number:
        problem += f" (line {line})"
    return UnreadableRow(number=number, column=error.column, problem=problem)
