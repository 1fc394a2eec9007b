"""What names of columns and texts in cells must be, whatever kind of file has them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from judgekit.data import sniffing

if TYPE_CHECKING:
    from collections.abc import Sequence


class CellError(Exception):
    """Why a row cannot be read: the column ("" for the whole row) and what was expected."""

    def __init__(self, problem: str, column: str = "") -> None:
        self.column = column
        self.problem = problem


def check_names(names: Sequence[str]) -> list[str]:
    """Return the names of columns; raises `CellError` where one is empty, broken, or there twice."""
    for position, (name, times) in enumerate(Counter(names).items(), 1):
        check_text(name)
        if not name.strip():
            raise CellError(
                f"expected a name for each column, got none for column {position}; add it"
            )
        if times > 1:
            raise CellError(
                f"expected different names, got this one {times} times; rename one", name
            )
    return list(names)


def check_text(cell: str, column: str = "") -> None:
    """Raise `CellError` for a text with a NUL, or with what was no UTF-8 in its file."""
    if "\0" in cell:
        raise CellError("expected text, got a NUL byte", column)
    try:
        cell.encode()
    except UnicodeEncodeError as error:
        byte = ord(cell[error.start]) - 0xDC00
        raise CellError(sniffing.no_utf_8(byte), column) from None
