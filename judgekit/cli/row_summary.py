"""A run's messages about itself: its progress, and a summary at the end."""

from __future__ import annotations

import time
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING

from judgekit.errors import UsageError
from judgekit.text import format_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.data.runs import DatasetRun

_BEST_FIRST = ("accept", "improve", "reject", "escalate", "undetermined")
# A narrow terminal shows only the beginning, so verdicts that need a person come first.
_WORST_FIRST = ("reject", "undetermined", "escalate", "improve", "accept")


def summarise_run(
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
    """Summarise a run in a line: rows by verdict, the numbers judged and reused, and the cost.

    `others` are rows in OUT that this run didn't reach, by judge. If `is_settled`, the condition of `--until`
    is decided, so that the remaining rows aren't needed.
    """
    rows = _count_done_rows(run, others)
    if interrupted:
        rows = f"interrupted: {rows}"
    parts = [
        f"{rows} in {name}: {_count_verdicts(run, _BEST_FIRST) or 'no verdict'}",
        f"{run.judged_count:,} judged in {seconds:,.0f} s, {run.kept_count:,} reused",
        describe_cost(run),
        *_describe_labels(run),
    ]
    if run.thought_count:
        parts.append(
            f"{format_count(run.thought_count, '<think> block', '<think> blocks')} left out"
        )
    if others:
        by_judge = ", ".join(f"{number:,} by {judge}" for judge, number in others.items())
        parts.append(f"rows that this run did not come to: {by_judge}")

    end = _explain_unjudged_rows(run, total, is_settled=is_settled)
    if end:
        parts.append(end)
    elif interrupted:
        remedy = (
            "run the same command to continue" if resumes else "with --out a run can be continued"
        )
        parts.append(remedy)
    return "; ".join(parts)


def _count_done_rows(run: DatasetRun, others: Mapping[str, int]) -> str:
    """Count the rows judged or reused: "3 rows", or with others in OUT, "3 of 5 rows"."""
    done = run.judged_count + run.kept_count
    if not others:
        return format_count(done, "row", "rows")
    in_out = done + sum(others.values())
    return f"{done:,} of {format_count(in_out, 'row', 'rows')}"


def _explain_unjudged_rows(run: DatasetRun, total: int | None, *, is_settled: bool) -> str:
    """Explain why the run stopped before the last row; "" if it reached it or was interrupted."""
    done = run.judged_count + run.kept_count
    if total == done:
        return ""
    remaining_rows = "the rest" if total is None else format_count(total - done, "row", "rows")
    return _explain_end(run, remaining_rows, is_settled=is_settled)


def _explain_end(run: DatasetRun, remaining_rows: str, *, is_settled: bool) -> str:
    """Explain why the run stopped before the last row; "" if it didn't stop by itself.

    `remaining_rows` describes the unjudged rows, such as "12 rows". If `is_settled`, the condition
    of `--until` is decided.
    """
    if is_settled:
        return f"{remaining_rows} not needed"
    if run.gave_up:
        failures = f"the first {run.sent_count:,} that were sent failed alike"
        return f"{remaining_rows} not judged, because {failures}"
    if run.is_budget_spent:
        return f"{remaining_rows} not judged, because --max-cost is reached"
    return ""


def _count_verdicts(run: DatasetRun, order: Sequence[str]) -> str:
    """Count rows by verdict, starting with those in `order`; "" if there are none."""
    counts = run.verdict_counts
    words = [word for word in order if word in counts]
    words += sorted(word for word in counts if word not in order)
    return ", ".join(f"{counts[word]:,} {word}" for word in words)


def _describe_labels(run: DatasetRun) -> list[str]:
    """Describe how many labels agree with the verdicts, and how many were left out, with reasons."""
    from judgekit.evaluation.labels import count_agreements

    try:
        agreed, compared, left_out = count_agreements(run.label_verdict_counts)
    except UsageError as error:
        # Don't fail: the verdicts are valid, and `report` can compare the labels with other options.
        return [f"labels not compared: {error}"]

    has_labels = bool(compared or left_out.unknown)  # blank cells are no labels
    if not has_labels:
        return []

    parts = []
    if compared:
        parts.append(f"{agreed:,} of {compared:,} labels agree ({agreed / compared:.0%})")
    reasons = left_out.describe()
    if reasons:
        parts.append(f"left out: {reasons}")
    return parts


def describe_cost(run: DatasetRun) -> str:
    """Describe what a run has cost so far. Calls without a known price make it a lower bound or unknown."""
    if run.spent_usd:
        return _describe_spending(run)
    if run.unpriced_count and run.priced_count:
        return "cost at least 0 (a model has no price)"
    if run.unpriced_count:
        return "cost unknown"
    if run.is_local:
        return "cost 0 (local)"
    return "0.00 USD"  # no row is judged yet, or the calls cost nothing


def _describe_spending(run: DatasetRun) -> str:
    """Describe a cost above 0."""
    digits = 4 if run.spent_usd < 1 else 2
    at_least = "at least " if run.unpriced_count else ""
    return f"{at_least}{run.spent_usd:.{digits}f} USD"


def describe_progress(run: DatasetRun, total: int | None, started: float) -> str:
    """Describe a run's progress: rows, verdicts, speed and cost so far."""
    done = run.judged_count + run.kept_count
    rows = format_count(done, "row", "rows")
    if total is not None:
        rows = f"{done:,} of {format_count(total, 'row', 'rows')}"
    verdicts = _count_verdicts(run, _WORST_FIRST) or "no verdict yet"
    if run.waits_for:
        return f"{rows}: {verdicts}, {describe_cost(run)}; waiting for {run.waits_for}"

    seconds = max(time.monotonic() - started, 0.001)  # never divide by 0
    rows_a_second = run.judged_count / seconds
    time_left = ""
    if total and rows_a_second:
        seconds_left = int((total - done) / rows_a_second)
        time_left = f", {timedelta(seconds=seconds_left)} left"
    return f"{rows}: {verdicts}{time_left}, {rows_a_second:.1f} a second, {describe_cost(run)}"
