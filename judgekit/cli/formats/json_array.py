"""Renders verdicts and rows as one JSON array; the gate's ends with a record of the whole run.

A `report` is one object.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.cli.formats.row_results import RowResults
    from judgekit.gate import Report
    from judgekit.judging.verdict import Comparison


def render_verdicts(verdicts: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps(list(verdicts), indent=2, ensure_ascii=False)


def render_gate(report: Report) -> str:
    return render_verdicts(list_gate_records(report))


def list_gate_records(report: Report) -> list[Mapping[str, Any]]:
    """List the verdicts of the gate's files, followed by the record of the run."""
    # Imported here since it loads pydantic, which takes longer than judging a document with the engine.
    from judgekit.gate.record import build_gate_record

    verdicts = [row["verdict"] for row in report.rows]
    return [*verdicts, build_gate_record(report)]


def render_rows(results: RowResults) -> str:
    return render_verdicts([row.columns for row in results.rows])


def render_report(results: RowResults) -> str:
    """Write the summary of rows as one object."""
    return results.summary.model_dump_json(by_alias=True)


def render_comparison(comparison: Comparison) -> str:
    return comparison.model_dump_json(by_alias=True, indent=2)
