"""Renders verdicts and rows as JSON Lines; the gate's end with a record of the whole run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from judgekit.cli.formats.json_array import list_gate_records

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.cli.formats.row_results import RowResults
    from judgekit.gate import Report
    from judgekit.judging.verdict import Comparison


def render_verdicts(verdicts: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for verdict in verdicts:
        lines.append(json.dumps(verdict, ensure_ascii=False, separators=(",", ":")))
    return "\n".join(lines)


def render_gate(report: Report) -> str:
    return render_verdicts(list_gate_records(report))


def render_rows(results: RowResults) -> str:
    return render_verdicts([row.columns for row in results.rows])


render_report = render_rows


def render_comparison(comparison: Comparison) -> str:
    return comparison.model_dump_json(by_alias=True)
