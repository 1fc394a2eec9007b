"""What a run over rows says of itself: how far it is, and a summary at the end."""

from __future__ import annotations

import time
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING

from judgekit.errors import UsageError
from judgekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.data.runs import DatasetRun

_BEST_FIRST = ("accept", "improve", "reject", "escalate", "undetermined")
# A narrow terminal shows the beginning: what a person must look at stands there.
_WORST_FIRST = ("reject", "undetermined", "escalate", "improve", "accept")


def summarise(
    run: DatasetRun,
    name: str,
    seconds: float,
    total: int | None,
    *,
    interrupted: bool,
    resumes: bool,
    others: Mapping[str, int] = MappingProxyType({}),
    is_settled: bool = False,
) -> str:
    """Return one line: rows by verdict, how many were judged and reused, and what it cost.

    `others` are rows of OUT that this run did not come to, by judge. If the condition of `--until`
    `is_settled`, the rows that are left weren't needed.
    """
    count = run.judged + run.kept
    rows = counted(count, "row", "rows")
    if others:
        rows = f"{count:,} of {counted(count + sum(others.values()), 'row', 'rows')}"
    if interrupted:
        rows = f"interrupted: {rows}"
    parts = [
        f"{rows} in {name}: {_count_verdicts(run, _BEST_FIRST) or 'no verdict'}",
        f"{run.judged:,} judged in {seconds:,.0f} s, {run.kept:,} reused",
        describe_cost(run),
        *_describe_labels(run),
    ]
    if run.thoughts:
        parts.append(f"{counted(run.thoughts, '<think> block', '<think> blocks')} left out")
    if others:
        by_judge = ", ".join(f"{number:,} by {judge}" for judge, number in others.items())
        parts.append(f"rows that this run did not come to: {by_judge}")
    left = "the rest" if total is None else counted(total - count, "row", "rows")
    is_complete = total == count  # none is left, whatever ended the run
    if is_settled and not is_complete:
        parts.append(f"{left} not needed")
    elif run.gave_up and not is_complete:
        failures = f"the first {run.sent:,} that were sent failed alike"
        parts.append(f"{left} not judged, because {failures}")
    elif run.is_spent and not is_complete:
        parts.append(f"{left} not judged, because --max-cost is reached")
    elif interrupted and resumes:
        parts.append("run the same command to continue")
    elif interrupted:
        parts.append("with --out a run can be continued")
    return "; ".join(parts)


def _count_verdicts(run: DatasetRun, order: Sequence[str]) -> str:
    """Return how many rows have each verdict, in an order; others behind, by name."""
    words = sorted(run.verdict_counts, key=lambda word: ((*order, word).index(word), word))
    return ", ".join(f"{run.verdict_counts[word]:,} {word}" for word in words)


def _describe_labels(run: DatasetRun) -> list[str]:
    """Return how many labels agree with verdicts, and how many labels were left out and why."""
    from judgekit.evaluation.labels import agreement

    try:
        agreed, compared, left_out = agreement(run.labels)
    except UsageError as error:  # the verdicts are there, and `report` asks
        return [f"labels not compared: {error}"]
    parts = []
    if compared:
        parts.append(f"{agreed:,} of {compared:,} labels agree ({agreed / compared:.0%})")
    if (compared or left_out.unknown) and left_out.told():
        parts.append(f"left out: {left_out.told()}")
    return parts


def describe_cost(run: DatasetRun) -> str:
    """Return what a run has cost so far, and whether that is all."""
    if not run.spent_usd and run.unpriced:
        return "cost at least 0 (a model has no price)" if run.priced else "cost unknown"
    if not run.spent_usd and run.is_local:
        return "cost 0 (local)"
    digits = 4 if 0 < run.spent_usd < 1 else 2
    at_least = "at least " if run.unpriced else ""
    return f"{at_least}{run.spent_usd:.{digits}f} USD"


def describe_progress(run: DatasetRun, total: int | None, started: float) -> str:
    """Return how many rows are judged, with which verdicts, how fast, and what it has cost so far."""
    done = run.judged + run.kept
    rows = counted(done, "row", "rows")
    if total is not None:
        rows = f"{done:,} of {counted(total, 'row', 'rows')}"
    verdicts = _count_verdicts(run, _WORST_FIRST) or "no verdict yet"
    if run.waits_for:
        return f"{rows}: {verdicts}, {describe_cost(run)}; waiting for {run.waits_for}"
    a_second = run.judged / max(time.monotonic() - started, 0.001)
    left = ""
    if total and a_second:
        left = f", {timedelta(seconds=int((total - done) / a_second))} left"
    return f"{rows}: {verdicts}{left}, {a_second:.1f} a second, {describe_cost(run)}"
