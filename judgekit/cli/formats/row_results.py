"""Results of rows as formats get them: the rows, their summary, and the limits they miss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from judgekit.data.labels import ResultFile, ResultRow
    from judgekit.data.report import ResultsReport
    from judgekit.evaluation.page import Section

    Record: TypeAlias = Mapping[str, Any]

WORST_FIRST = ("reject", "improve", "escalate", "undetermined", "accept")
NOT_ACCEPTED = WORST_FIRST[:-1]
UNDECIDED = WORST_FIRST[2:4]
WORST_ROWS = "The worst rows"
"""The title of the section that lists them."""
_VERDICT_SCHEMA_PREFIX = "judgekit/verdict@"
_FOREIGN_RUBRIC = {"id": "results", "version": ""}  # for results written by another program


@dataclass(frozen=True)
class RowResults:
    """Results of rows.

    `rows` can be read several times. `about` is one line, `sections` are the same as on the page.
    `missed_limits` has a line for each missed limit. `worst_row_count` is the number of worst rows wanted,
    None if it wasn't given.
    """

    rows: ResultFile
    summary: ResultsReport
    about: str
    sections: Sequence[Section]
    missed_limits: Sequence[str] = ()
    has_limits: bool = False
    worst_row_count: int | None = None

    def verdicts(self) -> Iterator[Record]:
        """Yield the rows as verdict records, with their ids as `row`."""
        for row in self.rows:
            yield convert_to_verdict(row, self.rows.name)


def convert_to_verdict(row: ResultRow, file: str) -> dict[str, Any]:
    """Convert a row of results to a verdict record, with the results file as its subject.

    Only results of `judgekit judge` have findings and rounds.
    """
    # This needs pydantic, which takes longer to import than an engine takes to judge a document.
    from judgekit.data.labels import parse_object

    record = _read_columns(row.columns)
    # Our own results have this column: a verdict's record, or a comparison's.
    judged = parse_object(row.columns.get("judged")) or {}
    schema = str(judged.get("schema"))
    if schema.startswith("judgekit/"):
        record["rubric"] = judged.get("rubric") or _FOREIGN_RUBRIC
        record["mode"] = judged.get("mode") or ""
        record["reasoning"] = record["reasoning"] or judged.get("reasoning") or ""
    # A verdict's record is complete, but the row's own error comes first.
    if schema.startswith(_VERDICT_SCHEMA_PREFIX):
        degraded = record["degraded"] or judged.get("degraded")
        record = {**record, **judged, "degraded": degraded}

    record["row"] = row.row_id
    record["task_id"] = row.row_id
    record["verdict"] = row.verdict
    record["scores"] = dict(row.scores)
    record["subjects"] = [{"path": file, "sha256": ""}]
    return record


def _read_columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Build a verdict record from the columns that any program's results may have."""
    from judgekit.evaluation.labels import parse_number

    reasoning = columns.get("reasoning")
    return {
        "rubric": _FOREIGN_RUBRIC,
        "mode": "",
        "average": parse_number(columns.get("average")),
        "reasoning": "" if reasoning is None else str(reasoning),
        "findings": [],
        "rounds": [],
        "model": columns.get("model"),
        "degraded": columns.get("error"),
        "duration_ms": parse_number(columns.get("duration_ms")) or 0.0,
        "cost_usd": parse_number(columns.get("cost_usd")),
    }
