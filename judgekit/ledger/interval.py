"""95 % confidence intervals: of a share, of a median, and of sums, products and ratios of such estimates."""

from __future__ import annotations

from functools import lru_cache
from math import floor, hypot, inf, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

from judgekit.calibrate import binomial

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LEVEL = 0.95
_Z = NormalDist().inv_cdf(0.5 + LEVEL / 2)


class Interval(NamedTuple):
    """From `low` to `high`, in the unit of what was measured."""

    low: float
    high: float


class Estimate(NamedTuple):
    """A value with the ends of its interval."""

    value: float
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


@lru_cache(maxsize=4096)
def exact(hits: int, total: int) -> Estimate:
    """Return the share of `hits` in `total`, at least 1, with the exact interval of Clopper and Pearson."""
    tail = (1 - LEVEL) / 2
    return Estimate(hits / total, binomial.lower(hits, total, tail), binomial.upper(hits, total, tail))


def weighted(parts: Iterable[tuple[float, Estimate]]) -> Estimate:
    """Return the weighted sum of independent estimates.

    The method of variance estimates recovery: Zou and Donner, "Construction of confidence limits about effect
    measures: a general approach", Statistics in Medicine 27 (2008). No value is below 0, so no end is.
    """
    known = list(parts)
    value = sum(weight * each.value for weight, each in known)
    below = hypot(*(weight * (each.value - each.low) for weight, each in known))
    above = hypot(*(weight * (each.high - each.value) for weight, each in known))
    return Estimate(value, max(0.0, value - below), value + above)


def product(one: Estimate, other: Estimate) -> Estimate:
    """Return the product of two independent estimates, none below 0, by the method of `weighted`."""
    value = one.value * other.value
    below = hypot(other.value * (one.value - one.low), one.value * (other.value - other.low))
    above = hypot(other.value * (one.high - one.value), one.value * (other.high - other.value))
    return Estimate(value, max(0.0, value - below), value + above)


def ratio(one: Estimate, other: Estimate) -> Interval:
    """Return the interval of the ratio of two independent estimates, none below 0; `inf` has no end above.

    Donner and Zou, "Closed-form confidence intervals for functions of the normal mean and standard
    deviation", Statistical Methods in Medical Research 21 (2012), equation 9 (MOVER-R).
    """
    middle = one.value * other.value
    above, below = one.low * (2 * one.value - one.low), other.high * (2 * other.value - other.high)
    divisor = middle + sqrt(max(0.0, middle**2 - above * below))
    low = above / divisor if divisor > 0 else 0.0
    above, below = one.high * (2 * one.value - one.high), other.low * (2 * other.value - other.low)
    high = (middle + sqrt(max(0.0, middle**2 - above * below))) / below if below > 0 else inf
    return Interval(low, high)
