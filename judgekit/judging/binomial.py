"""Exact bounds on a rate, from the number of times something was seen.

Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial",
Biometrika 26(4), 1934. The bound is the rate at which the binomial tail equals the level, found by
bisection.
"""

from __future__ import annotations

import functools
from math import exp, lgamma, log, log1p

_HALVINGS = 60  # shrink an interval of length 1 to 1e-18
_NEGLIGIBLE = 1e-17  # of a sum: adding it changes no digit
_MOST = 1_000_000  # labels; nobody gives more


def at_most(errors: int, total: int, rate: float) -> float:
    """Compute the probability that at most `errors` occur in `total` cases, each with probability `rate`."""
    if errors >= total or rate <= 0:
        return 1.0
    if errors < 0 or rate >= 1:
        return 0.0
    # Start from the logarithm of the probability of exactly `errors`, the last term of the sum.
    ways = lgamma(total + 1) - lgamma(errors + 1) - lgamma(total - errors + 1)
    last_term = ways + errors * log(rate) + (total - errors) * log1p(-rate)
    # Work down from the last term, relative to it: below the mean each term is smaller than the next.
    term = 1.0
    relative_sum = 1.0
    for error_count in range(errors, 0, -1):
        term *= error_count / (total - error_count + 1) * ((1 - rate) / rate)
        relative_sum += term
        if term < relative_sum * _NEGLIGIBLE and error_count < total * rate:
            break
    return min(1.0, exp(last_term + log(relative_sum)))


def upper(errors: int, total: int, level: float) -> float:
    """Find a rate that the true rate exceeds with a probability of at most `level`; 1 without data."""
    if not 0 <= errors <= total:
        raise ValueError(f"expected 0 to {total} errors, got {errors}")
    if errors == total:
        return 1.0
    too_low = errors / total
    high_enough = 1.0
    for _ in range(_HALVINGS):
        middle = (too_low + high_enough) / 2
        if at_most(errors, total, middle) > level:
            too_low = middle
        else:
            high_enough = middle
    return high_enough


def lower(errors: int, total: int, level: float) -> float:
    """Find the rate below which the true one lies with a probability of at most `level`."""
    return 1 - upper(total - errors, total, level)


@functools.lru_cache(maxsize=1024)
def count_labels_needed(rate: float, level: float, share: float = 0.0) -> int | None:
    """Compute how many labels it takes to rule out an error rate above `rate`.

    A `share` of the labels is expected to be errors, and `level` is the probability of ruling it out
    wrongly. None if more than a million labels are needed, or if `share` isn't below `rate`: then no number
    of labels is enough.
    """
    if share >= rate:
        return None

    def are_enough(labels: int) -> bool:
        """Whether the expected errors among so many labels rule out the rate."""
        return at_most(round(share * labels), labels, rate) <= level

    # Double the number until it's enough, then halve the interval in which it became enough.
    too_few = 0
    enough = 1
    while not are_enough(enough):
        too_few = enough
        enough *= 2
        if enough > _MOST:
            return None

    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if are_enough(middle):
            enough = middle
        else:
            too_few = middle
    return enough
