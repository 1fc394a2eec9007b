"""Writes results as CSV or TSV in which no spreadsheet takes a cell for a formula."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from judgekit.data.sources.delimited import DELIMITERS
from judgekit.data.tables import build_cells, format_cell, open_replacement
from judgekit.text import defuse_cell

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.data.tables import ResultsTable


def check(_name: str) -> None:
    """Do nothing, because the standard library is enough."""


def write(table: ResultsTable, target: Path) -> None:
    delimiter = DELIMITERS[target.suffix.lower()]
    with open_replacement(target) as file:
        text = io.TextIOWrapper(file, "utf-8", newline="")
        # With the line ends of RFC 4180, the writer quotes cells with any kind of line break.
        writer = csv.writer(text, delimiter=delimiter, lineterminator="\r\n")
        writer.writerow(map(defuse_cell, table.kinds_by_column))
        for _, row in table.rows():
            cells = build_cells(row, table.new_name_by_column)
            writer.writerow([format_cell(cells.get(name)) for name in table.kinds_by_column])
        text.detach()  # also flushes
