"""Limits on results for CI: rates over all rows, and comparison with earlier results."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from judgekit.errors import InputError
from judgekit.text import format_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.evaluation.conditions import Condition

ACCEPT = "accept"


class Base(NamedTuple):
    """Earlier results, and how many percentage points the accept rate may fall below theirs."""

    path: str
    max_lost_points: Fraction = Fraction(0)


def read_base(text: str) -> Base:
    """Parse `BASE[:POINTS]`, such as `main.jsonl:1.5`."""
    path, _, number = text.rpartition(":")
    # If no valid number follows the last colon, the colon is part of the path.
    if path:
        with suppress(ValueError, ZeroDivisionError):  # `Fraction` also reads "1/0"
            points = Fraction(number)
            if points >= 0:
                return Base(path, points)
    return Base(text)


def describe_missed(
    conditions: Sequence[Condition], counts: Mapping[str, int], name: str
) -> list[str]:
    """Describe the conditions that the rows don't meet. `counts` contains the number of rows by verdict."""
    rows = sum(counts.values())
    lines = []
    for condition in conditions:
        totals = condition.count_rows(counts)
        if condition.holds(totals, rows):
            continue

        range_text = condition.describe_range(totals, rows)
        line = f"{name}: {condition} isn't met: {range_text} of {format_count(rows, 'row', 'rows')}"
        # A row without a verdict could count either way, so it's assumed to count against the condition.
        rows_without_verdict = totals.maximum - totals.minimum
        if rows_without_verdict:
            subject = format_count(
                rows_without_verdict,
                "row without a verdict counts",
                "rows without a verdict count",
            )
            line += f"; {subject} against it"
        lines.append(line)
    return lines


def describe_worse(
    verdicts: Mapping[str, str], base_verdicts: Mapping[str, str], name: str, base: Base
) -> str | None:
    """Describe how much lower the accept rate is than in earlier results. Returns None if `base` allows that.

    `verdicts` and `base_verdicts` map row ids to verdicts. Only rows in both count. Raises `InputError` if
    there are none.
    """
    common_ids = verdicts.keys() & base_verdicts.keys()
    if not common_ids:
        problem = "no row is in both; name the column of ids with --id"
        raise InputError(f"--fail-if-worse {base.path}: {problem}")

    accepted = sum(verdicts[row_id] == ACCEPT for row_id in common_ids)
    accepted_before = sum(base_verdicts[row_id] == ACCEPT for row_id in common_ids)
    rows = len(common_ids)
    lost_points = Fraction(accepted_before - accepted, rows) * 100
    if lost_points <= base.max_lost_points:
        return None

    shares_text = f"{accepted / rows:.3f} accepted, {accepted_before / rows:.3f} there"
    loss_text = f"{float(lost_points):.1f} points less"
    if base.max_lost_points:
        loss_text += f", {float(base.max_lost_points):g} allowed"
    rows_text = format_count(rows, "row", "rows")
    return f"{name} is worse than {base.path}: {shares_text}, of {rows_text} in both ({loss_text})"
