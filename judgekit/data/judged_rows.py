"""The rows that Python gets back: an iterator of results, which may become a data frame."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from judgekit.data.results import RECORD_COLUMNS
from judgekit.data.tables import cells_of
from judgekit.judging.notebook import make_frame

if TYPE_CHECKING:
    from types import TracebackType

    import pandas as pd


class JudgedRows(Generator[dict[str, Any], None, None]):
    """Results of rows, which are judged while they're asked for."""

    def __init__(self, rows: Generator[dict[str, Any], None, None]) -> None:
        self._rows = rows

    def send(self, value: None) -> dict[str, Any]:
        return self._rows.send(value)

    def throw(
        self,
        kind: Any,  # noqa: ANN401 - as generators have it
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
    ) -> dict[str, Any]:
        if value is None and traceback is None:
            return self._rows.throw(kind)
        return self._rows.throw(kind, value, traceback)

    def close(self) -> None:
        self._rows.close()

    def __repr__(self) -> str:
        return "<rows that are judged while you iterate over them; to_pandas() judges all>"

    def to_pandas(self, *, full: bool = False) -> pd.DataFrame:
        """Judge the rows that are left, and return them as a data frame with a column for each score.

        With `full` it has the whole verdict of each, too. Raises `UsageError` without pandas, before
        anything is judged, and what judging raises.
        """
        make_frame(())
        rows = []
        for row in self:
            cells = cells_of(row, {})
            if not full:
                cells = {name: cell for name, cell in cells.items() if name not in RECORD_COLUMNS}
            rows.append(cells)
        return make_frame(rows)
