"""Limits on results, for CI: shares of all rows, and whether they're worse than earlier results."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from judgekit.errors import InputError
from judgekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.evaluation.conditions import Condition

ACCEPT = "accept"


class Base(NamedTuple):
    """Earlier results, and by how many percentage points their accept rate may be higher."""

    path: str
    points: Fraction = Fraction(0)


def read_base(text: str) -> Base:
    """Read BASE[:POINTS]. Paths may have colons, too: without a number after the last one, it's all path."""
    path, _, number = text.rpartition(":")
    if path:
        with suppress(ValueError, ZeroDivisionError):  # `Fraction` also reads "1/0"
            points = Fraction(number)
            if points >= 0:
                return Base(path, points)
    return Base(text)


def describe_missed(
    conditions: Sequence[Condition], counts: Mapping[str, int], name: str
) -> list[str]:
    """Write a line for each condition that the rows don't meet; `counts` are their numbers by verdict.

    Rows without a verdict count against every condition.
    """
    rows = sum(counts.values())
    lines = []
    for condition in conditions:
        totals = condition.count_rows(counts)
        if condition.holds(totals, rows):
            continue
        range_text = condition.describe_range(totals, rows)
        line = f"{name}: {condition} isn't met: {range_text} of {counted(rows, 'row', 'rows')}"
        rows_without_verdict = totals.most - totals.least
        if rows_without_verdict:
            subject = counted(
                rows_without_verdict,
                "row without a verdict counts",
                "rows without a verdict count",
            )
            line += f"; {subject} against it"
        lines.append(line)
    return lines


def describe_worse(
    words: Mapping[str, str], base_words: Mapping[str, str], name: str, base: Base
) -> str | None:
    """Describe by how much the accept rate has fallen since earlier results, over rows present in both.

    None if it hasn't fallen by more than `base` allows. Raises `InputError` if no row is present in both.
    """
    in_both = words.keys() & base_words.keys()
    if not in_both:
        problem = "no row is in both; name the column of ids with --id"
        raise InputError(f"--fail-if-worse {base.path}: {problem}")
    accepted = sum(words[key] == ACCEPT for key in in_both)
    accepted_before = sum(base_words[key] == ACCEPT for key in in_both)
    rows = len(in_both)
    lost_points = Fraction(accepted_before - accepted, rows) * 100
    if lost_points <= base.points:
        return None
    shares_text = f"{accepted / rows:.3f} accepted, {accepted_before / rows:.3f} there"
    loss_text = f"{float(lost_points):.1f} points less"
    if base.points:
        loss_text += f", {float(base.points):g} allowed"
    rows_text = counted(rows, "row", "rows")
    return f"{name} is worse than {base.path}: {shares_text}, of {rows_text} in both ({loss_text})"
