"""The results that Python callers iterate over, or turn into a data frame."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from judgekit.data.results import RECORD_COLUMNS
from judgekit.data.tables import build_cells
from judgekit.judging.html import table_html
from judgekit.judging.notebook import make_data_frame
from judgekit.text import escape_name, shorten_to_line

if TYPE_CHECKING:
    from types import TracebackType

    import pandas as pd


_MAX_NAME_CHARS = 80  # characters


class JudgedRow(dict[str, Any]):
    """A row with its result: a dict that's shown briefly in a terminal or a notebook."""

    def __repr__(self) -> str:
        """Summarise the row in one line. `to_dict` returns everything."""
        mean = "" if self.get("average") is None else f", mean {self['average']:g}"
        return escape_name(
            f"<row {shorten_to_line(str(self.get('id')), _MAX_NAME_CHARS)}: {self.get('verdict')}{mean}>"
        )

    def _repr_html_(self) -> str:
        cells = []
        for name, value in self.items():
            if name not in RECORD_COLUMNS:
                cells.append({"column": name, "value": value})
        return table_html(cells)

    def to_dict(self) -> dict[str, Any]:
        """Return the whole row as a plain dict."""
        return dict(self)


class JudgedRows(Generator[JudgedRow, None, None]):
    """Results of rows, which are judged as you iterate."""

    def __init__(self, rows: Generator[JudgedRow, None, None]) -> None:
        self._rows = rows

    def send(self, value: None) -> JudgedRow:
        return self._rows.send(value)

    def throw(
        self,
        kind: Any,  # noqa: ANN401 - as generators have it
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
    ) -> JudgedRow:
        if value is None and traceback is None:
            # Python 3.12 and later warn if a generator's `throw` gets more than one argument.
            return self._rows.throw(kind)
        return self._rows.throw(kind, value, traceback)

    def close(self) -> None:
        self._rows.close()

    def __repr__(self) -> str:
        return "<rows that are judged while you iterate over them; to_pandas() judges all>"

    def to_pandas(self, *, full: bool = False) -> pd.DataFrame:
        """Judge the remaining rows, and return them as a data frame with a column for each score.

        `full` adds each row's complete verdict. Raises `UsageError` if pandas isn't installed, and whatever
        judging raises.
        """
        make_data_frame(())  # if pandas is missing, this raises before anything is judged
        rows = []
        for row in self:
            cells = build_cells(row, {})
            if not full:
                cells = {name: cell for name, cell in cells.items() if name not in RECORD_COLUMNS}
            rows.append(cells)
        return make_data_frame(rows)
