"""What a run over rows says of itself: how far it is, and a summary at the end."""

from __future__ import annotations

import time
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING

from judgekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.data.runs import DatasetRun


_WORST_FIRST = ("reject", "undetermined", "escalate", "improve", "accept")


_WORDS = ("accept", "improve", "reject", "escalate", "undetermined")


def summary(
    run: DatasetRun,
    name: str,
    seconds: float,
    total: int | None,
    *,
    interrupted: bool,
    resumes: bool,
    others: Mapping[str, int] = MappingProxyType({}),
) -> str:
    """Return one line: rows by verdict, how many were judged and reused, and what it cost.

    `others` are rows of OUT that this run did not come to, by judge.
    """
    count = run.now + run.kept
    rows = counted(count, "row", "rows")
    if others:
        rows = f"{count:,} of {counted(count + sum(others.values()), 'row', 'rows')}"
    order = sorted(run.words, key=lambda word: ((*_WORDS, word).index(word), word))
    words = ", ".join(f"{run.words[word]:,} {word}" for word in order) or "no verdict"
    parts = [
        f"{'interrupted: ' * interrupted}{rows} in {name}: {words}",
        f"{run.now:,} judged in {seconds:,.0f} s, {run.kept:,} reused",
        cost(run),
    ]
    parts += _labels_told(run)
    if others:
        theirs = ", ".join(f"{number:,} by {judge}" for judge, number in others.items())
        parts.append(f"rows that this run did not come to: {theirs}")
    left = "the rest"
    if total is not None:
        left = counted(total - count, "row", "rows")
    if run.gave_up:
        parts.append(
            f"{left} not judged, because the first {run.sent:,} that were sent failed alike"
        )
    elif run.is_spent:
        parts.append(f"{left} not judged, because --max-cost is reached")
    elif interrupted:
        parts.append(
            "run the same command to continue" if resumes else "with --out a run can be continued"
        )
    return "; ".join(filter(None, parts))


def _labels_told(run: DatasetRun) -> list[str]:
    """Return how many labels agree with verdicts, and how many labels were left out and why."""
    from judgekit.evaluation.labels import agreement

    agreed, compared, left_out = agreement(run.labels, run.strange_label)
    told = []
    if compared:
        told.append(f"{agreed:,} of {compared:,} labels agree ({agreed / compared:.0%})")
    if compared or left_out.unknown:
        told += [f"left out: {left_out.told()}"] if left_out.told() else []
    return told


def cost(run: DatasetRun) -> str:
    if not run.spent_usd and (run.is_local or run.unpriced):
        return "cost 0 (local)" if run.is_local else "cost unknown"
    if run.spent_usd >= 1 or not run.spent_usd:
        digits = 2
    else:
        digits = 4
    return f"{'at least ' * bool(run.unpriced)}{run.spent_usd:.{digits}f} USD"


def describe_progress(run: DatasetRun, total: int | None, started: float) -> str:
    done = run.now + run.kept
    pace = run.now / max(time.monotonic() - started, 0.001)
    # A narrow terminal shows the beginning: what a person must look at stands there.
    order = sorted(run.words, key=lambda word: ((*_WORST_FIRST, word).index(word), word))
    verdicts = ", ".join(f"{run.words[word]:,} {word}" for word in order)
    if total and pace:
        left = f", {timedelta(seconds=int((total - done) / pace))} left"
    else:
        left = ""
    how_fast = f"{left}, {pace:.1f} a second"
    waiting = ""
    if run.waits_for:
        how_fast = ""
        waiting = f"; waiting for {run.waits_for}"
    if total is None:
        of = ""
    else:
        of = f"{done:,} of "
    rows = f"{of}{counted(done if total is None else total, 'row', 'rows')}"
    return f"{rows}: {verdicts or 'no verdict yet'}{how_fast}, {cost(run)}{waiting}"
