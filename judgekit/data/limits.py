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
    """Read BASE[:POINTS]; a path may have colons of its own, so only a number behind the last one counts."""
    path, _, points = text.rpartition(":")
    if path:
        with suppress(ValueError, ZeroDivisionError):
            found = Fraction(points)
            if found >= 0:
                return Base(path, found)
    return Base(text)


def describe_missed(
    conditions: Sequence[Condition], counts: Mapping[str, int], name: str
) -> list[str]:
    """Say which conditions rows with these verdicts don't meet; rows without a verdict meet none for sure."""
    rows = sum(counts.values())
    lines = []
    for condition in conditions:
        totals = condition.count_rows(counts)
        if condition.holds(totals, rows):
            continue
        shown = condition.describe_range(totals, rows)
        line = f"{name}: {condition} isn't met: {shown} of {counted(rows, 'row', 'rows')}"
        open_rows = totals.most - totals.least
        if open_rows:
            what = counted(
                open_rows, "row without a verdict counts", "rows without a verdict count"
            )
            line += f"; {what} against it"
        lines.append(line)
    return lines


def describe_worse(
    words: Mapping[str, str], base_words: Mapping[str, str], name: str, base: Base
) -> str | None:
    """Say that fewer rows are accepted than in earlier results; None if that isn't so.

    Rows count that are in both. Raises `InputError` if there's none.
    """
    in_both = words.keys() & base_words.keys()
    if not in_both:
        problem = "no row is in both; name the column of ids with --id"
        raise InputError(f"--fail-if-worse {base.path}: {problem}")
    accepted = sum(words[key] == ACCEPT for key in in_both)
    accepted_before = sum(base_words[key] == ACCEPT for key in in_both)
    rows = len(in_both)
    lost = Fraction(accepted_before - accepted, rows) * 100
    if lost <= base.points:
        return None
    shares = f"{accepted / rows:.3f} accepted, {accepted_before / rows:.3f} there"
    allowed = f", {float(base.points):g} allowed" if base.points else ""
    less = f"{float(lost):.1f} points less{allowed}"
    both = counted(rows, "row", "rows")
    return f"{name} is worse than {base.path}: {shares}, of {both} in both ({less})"
