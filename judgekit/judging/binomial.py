"""Exact bounds on a rate, from the number of times something was seen.

Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial",
Biometrika 26(4), 1934. The bound is the rate at which the binomial tail equals the level, found by
bisection.
"""

from __future__ import annotations

import functools
from math import exp, lgamma, log, log1p

_HALVINGS = 60  # shrink an interval of length 1 to 1e-18
_NEGLIGIBLE = 1e-17  # a term this small, relative to the sum, changes no digit
_MAX_LABELS = 1_000_000


def compute_lower_tail(errors: int, total: int, rate: float) -> float:
    """Return the probability of at most `errors` in `total` cases, given the error rate."""
    if errors >= total or rate <= 0:
        return 1.0
    if errors < 0 or rate >= 1:
        return 0.0

    # The probability is a sum of binomial terms, one for each number of errors. Compute the last term as a
    # logarithm, because otherwise a tiny probability becomes 0.
    log_combinations = lgamma(total + 1) - lgamma(errors + 1) - lgamma(total - errors + 1)
    log_last_term = log_combinations + errors * log(rate) + (total - errors) * log1p(-rate)
    relative_sum = _sum_relative_terms(errors, total, rate)
    probability = exp(log_last_term + log(relative_sum))
    return min(1.0, probability)  # rounding can exceed 1


def _sum_relative_terms(errors: int, total: int, rate: float) -> float:
    """Sum the binomial terms for up to `errors` errors, relative to the last term, which counts as 1."""
    mean = total * rate
    odds_against = (1 - rate) / rate
    term = 1.0
    relative_sum = 1.0
    for error_count in range(errors, 0, -1):
        term *= error_count / (total - error_count + 1) * odds_against  # one error less
        relative_sum += term
        # Below the mean, the terms get smaller and smaller, so the rest is negligible, too.
        is_below_mean = error_count < mean
        is_negligible = term < relative_sum * _NEGLIGIBLE
        if is_below_mean and is_negligible:
            break
    return relative_sum


def compute_upper_bound(errors: int, total: int, level: float) -> float:
    """Return an upper confidence bound of an error rate.

    `level` is the probability that the true rate is higher. For example, with 0 errors in 59 cases and a
    `level` of 0.05, the bound is 5 %. Without data, it's 1. Raises `ValueError` if there are more errors than
    cases.
    """
    if not 0 <= errors <= total:
        raise ValueError(f"expected 0 to {total} errors, got {errors}")
    if errors == total:
        return 1.0

    # Bisect to find the rate at which the probability of `errors` or fewer falls to `level`.
    too_low = errors / total
    high_enough = 1.0
    for _ in range(_HALVINGS):
        middle = (too_low + high_enough) / 2
        if compute_lower_tail(errors, total, middle) > level:
            too_low = middle
        else:
            high_enough = middle
    return high_enough


def lower(errors: int, total: int, level: float) -> float:
    """Return a lower confidence bound of an error rate, like `compute_upper_bound`."""
    return 1 - compute_upper_bound(total - errors, total, level)


@functools.lru_cache(maxsize=1024)
def count_labels_needed(rate: float, level: float, expected_rate: float = 0.0) -> int | None:
    """Return the number of labels needed to show that an error rate is at most `rate`.

    A label is the right outcome of a case. `expected_rate` is the error rate expected among the labels,
    and `level` is the probability of a wrong conclusion. Returns None if more than a million labels are
    needed, or if no number is enough.
    """
    if expected_rate >= rate:
        return None

    def are_enough(labels: int) -> bool:
        # The expected errors must be improbably few for a true error rate of `rate`.
        expected_errors = round(expected_rate * labels)
        probability = compute_lower_tail(expected_errors, labels, rate)
        return probability <= level

    # Double the number until it's enough.
    too_few = 0
    enough = 1
    while not are_enough(enough):
        too_few = enough
        enough *= 2
        if enough > _MAX_LABELS:
            return None

    # Then bisect to find the smallest number.
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if are_enough(middle):
            enough = middle
        else:
            too_few = middle
    return enough
