"""Shared by the sources of text: reads lines of bounded length, and builds unreadable rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from judgekit.data.sources import UnreadableRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.data.cells import CellError

BOM = b"\xef\xbb\xbf"
_CHUNK_SIZE = 1_000_000  # bytes to read at once from the rest of a line that is too long


def bounded_lines(file: BinaryIO, max_bytes: int) -> Iterator[bytes | None]:
    """Yield a file's lines with their line ends. A line of more than `max_bytes` is None."""
    while line := file.readline(max_bytes):
        is_complete = len(line) < max_bytes or line.endswith(b"\n")
        if is_complete:
            yield line
            continue
        # The line is too long. Read its rest in chunks, and ignore it.
        while (chunk := file.readline(_CHUNK_SIZE)) and not chunk.endswith(b"\n"):
            pass
        yield None


def unreadable_row(error: CellError, number: int, line: int) -> UnreadableRow:
    """Build an unreadable row from an error. If the line has another number than the row, mention it."""
    problem = error.problem
    if line != number:
        problem += f" (line {line})"
    return UnreadableRow(number=number, column=error.column, problem=problem)
