"""What sources of text have in common: lines of bounded length, and a row that cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from judgekit.data.sources import UnreadableRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.data.cells import CellError

BOM = b"\xef\xbb\xbf"
_PIECE = 1_000_000  # bytes, of a line that is too long to keep


def bounded_lines(file: BinaryIO, most: int) -> Iterator[bytes | None]:
    """Yield the lines of a file with their ends; None in place of one that has more than `most` bytes."""
    while line := file.readline(most):
        if len(line) < most or line.endswith(b"\n"):
            yield line
            continue
        while (rest := file.readline(_PIECE)) and not rest.endswith(b"\n"):
            pass
        yield None


def unreadable_row(error: CellError, number: int, line: int) -> UnreadableRow:
    """Return what stands in place of a row; its line is named where that has another number."""
    problem = error.problem
    if line != number:
        problem += f" (line {line})"
    return UnreadableRow(number=number, column=error.column, problem=problem)
