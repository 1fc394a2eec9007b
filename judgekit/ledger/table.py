"""Verdicts as CSV: one row each, with what people said about it."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from judgekit.ledger import kpi
from judgekit.ledger.overrides import newest
from judgekit.ledger.records import Label, OverrideLine, VerdictLine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from judgekit.ledger.records import LabelWord, Record

COLUMNS = (
    *("timestamp", "project", "id", "task_id", "commit", "rubric", "version", "mode", "verdict", "gate"),
    *("average", "scores", "model", "judge_tier", "consensus", "seconds", "cost_usd", "degraded"),
    *("author", "imported", "label", "override"),
)


def rows(records: Iterable[Record]) -> Iterator[str]:
    """Yield a CSV table of the verdicts, its heading first, line by line."""
    found = list(records)
    labels = kpi.agreed(each for each in found if isinstance(each, Label))
    overrides = [each for each in found if isinstance(each, OverrideLine)]
    yield _row(COLUMNS)
    for each in found:
        if isinstance(each, VerdictLine):
            yield _row([_cell(value) for value in _values(each, labels, overrides)])


def _values(
    verdict: VerdictLine, labels: Mapping[str, LabelWord], overrides: Iterable[OverrideLine]
) -> Sequence[object]:
    scores = " ".join(f"{name}={value:g}" for name, value in (verdict.scores or {}).items())
    hashes = [each.sha256 for each in verdict.subjects]
    override = newest(overrides, verdict.task_id, hashes, without_terminal=True)
    return (
        *(verdict.timestamp.isoformat(), verdict.project, verdict.id, verdict.task_id, verdict.commit),
        *(verdict.rubric.id, verdict.rubric.version, verdict.mode, verdict.verdict, verdict.word),
        *(verdict.average, scores, verdict.model, verdict.judge_tier, verdict.consensus),
        *(verdict.duration_ms / 1000, verdict.cost_usd, verdict.degraded, verdict.author.name),
        *(verdict.imported is not None, labels.get(verdict.id), override and override.decision),
    )


def _cell(value: object) -> str:
    """Return a value as text that no spreadsheet takes for a formula."""
    text = "" if value is None else str(value)
    return (
        f"'{text}" if isinstance(value, str) and text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
    )


def _row(cells: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()
