"""Renders verdicts and rows as CSV: a line for each with verdict, scores and reasons, but not the record."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any, TypeAlias

from judgekit.task_ids import task_name
from judgekit.text import defuse_cell

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from judgekit.cli.formats.row_results import RowResults
    from judgekit.gate import Report

    Record: TypeAlias = Mapping[str, Any]

_SUMMARY_COLUMNS = ("id", "verdict", "average", "scores", "reasoning", "model", "cost_usd")
_COLUMNS = (*_SUMMARY_COLUMNS, "duration_ms", "error")


def render_verdicts(verdicts: Sequence[Record]) -> str:
    return _write_rows([_convert_to_row(verdict) for verdict in verdicts])


def render_gate(report: Report) -> str:
    """Write a line for each judged file, each unexamined file, and each reason for skipping files."""
    rows = []
    judged_paths = set()
    for row in report.rows:
        judged_paths.add(row["path"])
        # The gate's word, such as GO, replaces the record's verdict.
        rows.append({**_convert_to_row(row["verdict"]), "verdict": row["word"]})

    for omission in report.not_examined:
        if omission["name"] not in judged_paths:
            word = "UNDETERMINED"
            error = f"not examined: {omission['reason']}"
            rows.append({"id": omission["name"], "verdict": word, "error": error})

    for group in report.skipped:
        rows.append(
            {"id": "", "verdict": "skipped", "error": f"{group['count']} {group['reason']}"}
        )
    return _write_rows(rows)


def render_rows(results: RowResults) -> str:
    """Render the result rows as CSV. The columns with the verdict record are left out."""
    from judgekit.data.results import RECORD_COLUMNS

    rows = []
    for row in results.rows:
        cells = {name: cell for name, cell in row.columns.items() if name not in RECORD_COLUMNS}
        rows.append(cells)
    return _write_rows(rows)


render_report = render_rows


def _convert_to_row(verdict: Record) -> dict[str, Any]:
    """Convert a verdict record to a row."""
    row = {name: verdict.get(name) for name in _COLUMNS}
    row["id"] = task_name(verdict["task_id"])
    row["error"] = verdict["degraded"]
    return row


def _write_rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """Render rows as CSV with a header. The input's columns come before ours."""
    from judgekit.data import tables

    column_kinds = tables.ColumnKinds(_COLUMNS)  # the columns that we add
    for row in rows:
        column_kinds.add(row)
    # An input column with the name of a score gets a new name.
    kinds_by_name, new_names = column_kinds.get_kinds_by_name()
    header = _choose_columns(kinds_by_name)

    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(defuse_cell, header))
    for row in rows:
        values_by_name = tables.build_cells(row, new_names)
        writer.writerow([tables.format_cell(values_by_name.get(name)) for name in header])
    return text.getvalue().removesuffix("\n")


def _choose_columns(kinds_by_name: Mapping[str, Collection[str]]) -> list[str]:
    """List the columns to write: all of the input's, and those that we add if they have values."""
    names = []
    for name, kinds in kinds_by_name.items():
        is_added = name in _COLUMNS
        has_values = bool(kinds)
        if has_values or not is_added:
            names.append(name)
    return names
