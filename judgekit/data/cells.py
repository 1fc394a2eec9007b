"""Checks column names and cell texts, whatever kind of file they come from."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from judgekit.data import sniffing

if TYPE_CHECKING:
    from collections.abc import Sequence


_INDEX_COLUMN = "Unnamed: 0"


class CellError(Exception):
    """The reason why a row can't be read: the column ("" for the whole row) and what was expected."""

    def __init__(self, problem: str, column: str = "") -> None:
        self.column = column
        self.problem = problem


def check_names(names: Sequence[str]) -> list[str]:
    """Check and return column names. Raises `CellError` if one is empty, undecodable or repeated."""
    counts = Counter(names)
    for position, name in enumerate(names, 1):
        check_text(name)
        if not name.strip():
            raise CellError(
                f"expected a name for each column, got none for column {position}; add it"
            )
        if counts[name] > 1:
            raise CellError(
                f"expected different names, got this one {counts[name]} times; rename one", name
            )
    return list(names)


def strip_blank_end(cells: Sequence[str], min_cells: int) -> Sequence[str]:
    """Strip blank cells from the end of a row, but keep at least `min_cells` cells."""
    count = len(cells)
    # There are such cells because Excel also saves columns whose cells were cleared.
    while count > min_cells and not cells[count - 1].strip():
        count -= 1
    return cells[:count]


def name_index_column(names: Sequence[str]) -> Sequence[str]:
    """Name an unnamed first column "Unnamed: 0", as pandas does when it reads back its own index."""
    is_index = len(names) > 1 and not names[0].strip() and _INDEX_COLUMN not in names
    return [_INDEX_COLUMN, *names[1:]] if is_index else names


def check_text(cell: str, column: str = "") -> None:
    """Raise `CellError` if a cell contains a NUL character, or bytes that weren't valid UTF-8."""
    if "\0" in cell:
        raise CellError("expected text, got a NUL byte", column)
    try:
        cell.encode()
    except UnicodeEncodeError as error:
        # Files are read with `surrogateescape`, which decodes an invalid byte to 0xDC00 + byte.
        byte = ord(cell[error.start]) - 0xDC00
        raise CellError(sniffing.describe_invalid_byte(byte), column) from None
