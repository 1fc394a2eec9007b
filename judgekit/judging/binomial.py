"""Exact bounds on a share, from how often something was seen.

Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial",
Biometrika 26(4), 1934. The limit is where the binomial tail equals the level; it is found by halving.
"""

from __future__ import annotations

import functools
from math import exp, lgamma, log, log1p

_HALVINGS = 60  # an interval of 1 comes down to 1e-18
_NEGLIGIBLE = 1e-17
_MOST = 1_000_000  # labels; nobody gives more


def at_most(errors: int, total: int, rate: float) -> float:
    """Return the probability of seeing at most `errors` in `total` when each has the probability `rate`."""
    if errors >= total or rate <= 0:
        return 1.0
    if errors < 0 or rate >= 1:
        return 0.0
    whole = lgamma(total + 1) - lgamma(errors + 1) - lgamma(total - errors + 1)
    logarithm = whole + errors * log(rate) + (total - errors) * log1p(-rate)
    # Relative to the last term, from there down: below the mean each is smaller than the one before.
    term = found = 1.0
    for seen in range(errors, 0, -1):
        term *= seen / (total - seen + 1) * ((1 - rate) / rate)
        found += term
        if term < found * _NEGLIGIBLE and seen < total * rate:
            break
    return min(1.0, exp(logarithm + log(found)))


def upper(errors: int, total: int, level: float) -> float:
    """Return the rate that is exceeded with a probability of at most `level`; 1 when nothing was seen."""
    if not 0 <= errors <= total:
        raise ValueError(f"expected 0 to {total} errors, got {errors}")
    if errors == total:
        return 1.0
    low = errors / total
    high = 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if at_most(errors, total, middle) > level:
            low = middle
        else:
            high = middle
    return high


def lower(errors: int, total: int, level: float) -> float:
    """Return the rate below which the true one lies with a probability of at most `level`."""
    return 1 - upper(total - errors, total, level)


@functools.lru_cache(maxsize=1024)
def needed(rate: float, level: float, share: float = 0.0) -> int | None:
    """Return how many labels show such a `rate` if `share` of them are errors; None beyond a million."""
    few = 0
    many = 1
    while share < rate and at_most(round(share * many), many, rate) > level:
        few = many
        many = many * 2
        if many > _MOST:
            return None
    while many - few > 1:
        middle = (few + many) // 2
        enough = at_most(round(share * middle), middle, rate) <= level
        if enough:
            many = middle
        else:
            few = middle
    return many if share < rate else None
