"""95 % confidence intervals of a share and of a median."""

from __future__ import annotations

from math import floor, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

LEVEL = 0.95
_Z = NormalDist().inv_cdf(0.5 + LEVEL / 2)


class Interval(NamedTuple):
    """From `low` to `high`, in the unit of what was measured."""

    low: float
    high: float


def share(hits: int, total: int) -> Interval | None:
    """Return the Wilson score interval of `hits` out of `total`, None of nothing.

    Chosen after Brown, Cai and DasGupta, "Interval Estimation for a Binomial Proportion", Statistical
    Science 16 (2001): close to its promised coverage where shares are near 0 or 1, as ours are.
    """
    if total == 0:
        return None
    mean, square = hits / total, _Z**2
    middle = (mean + square / (2 * total)) / (1 + square / total)
    half = _Z / (1 + square / total) * sqrt(mean * (1 - mean) / total + square / (4 * total**2))
    return Interval(max(0.0, middle - half), min(1.0, middle + half))


def median(ordered: Sequence[float]) -> Interval | None:
    """Return an interval of the median between two order statistics, None for fewer than six values.

    The ranks are those of the normal approximation to the binomial, rounded outwards (Conover, "Practical
    Nonparametric Statistics", 3.2): no distribution is assumed, and latencies have none worth the name. Of
    five values even the smallest and the largest cover the median only 94 % of the time.
    """
    total = len(ordered)
    if total < 6:  # noqa: PLR2004 - explained above
        return None
    below = max(1, floor(total / 2 - _Z * sqrt(total) / 2))
    return Interval(ordered[below - 1], ordered[total - below])
