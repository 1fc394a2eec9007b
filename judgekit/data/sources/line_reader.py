"""Shared by the sources of text: reads lines of bounded length, and builds unreadable rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from judgekit.data.sources import UnreadableRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.data.cells import CellError

BOM = b"\xef\xbb\xbf"
_PIECE = 1_000_000  # bytes read at a time from a line that's too long to keep


def bounded_lines(file: BinaryIO, most: int) -> Iterator[bytes | None]:
    """Yield the lines of a file with their line ends. A line of more than `most` bytes is None."""
    while line := file.readline(most):
        is_whole = len(line) < most or line.endswith(b"\n")
        if is_whole:
            yield line
            continue
        # Skip the rest of the line, piece by piece.
        while (piece := file.readline(_PIECE)) and not piece.endswith(b"\n"):
            pass
        yield None


def unreadable_row(error: CellError, number: int, line: int) -> UnreadableRow:
    """Build an unreadable row from an error. It names the line if that has another number than the row."""
    problem = error.problem
    if line != number:
        problem += f" (line {line})"
    return UnreadableRow(number=number, column=error.column, problem=problem)
