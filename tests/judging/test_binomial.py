"""Exact bounds on a share: known values, closed forms, and the sum that they are the limit of."""

from __future__ import annotations

import itertools
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgekit.judging.binomial import at_most, lower, needed, upper

# Limits as any table of the Clopper-Pearson interval has them (one-sided .05, two-sided .05).
KNOWN = [(0, 59, 0.05, 0.0495), (0, 20, 0.025, 0.1684), (1, 10, 0.025, 0.4450), (3, 10, 0.025, 0.6525)]


def test_known_bounds_and_closed_forms() -> None:
    for errors, total, level, bound in KNOWN:
        assert upper(errors, total, level) == pytest.approx(bound, abs=1e-4)
    for total, level in itertools.product((1, 7, 59, 1000, 40_000), (0.05, 0.01, 0.0001)):
        assert upper(0, total, level) == pytest.approx(1 - level ** (1 / total), rel=1e-9)
        assert lower(total, total, level) == pytest.approx(level ** (1 / total), rel=1e-9)
    assert (upper(0, 0, 0.05), lower(0, 0, 0.05)) == (1, 0)
    with pytest.raises(ValueError, match="got 3"):
        upper(3, 2, 0.05)


@given(st.integers(1, 60), st.data(), st.floats(0.01, 0.99))
def test_the_tail_is_the_sum_of_its_terms(total: int, data: st.DataObject, rate: float) -> None:
    errors = data.draw(st.integers(0, total))
    terms = sum(comb(total, seen) * rate**seen * (1 - rate) ** (total - seen) for seen in range(errors + 1))
    assert at_most(errors, total, rate) == pytest.approx(min(terms, 1), rel=1e-9)


@given(st.integers(1, 300), st.data(), st.floats(0.001, 0.4))
def test_at_the_bound_the_tail_is_the_level(total: int, data: st.DataObject, level: float) -> None:
    errors = data.draw(st.integers(0, total - 1))
    bound = upper(errors, total, level)
    assert at_most(errors, total, bound) == pytest.approx(level, rel=1e-6)
    assert bound > errors / total
    assert upper(errors + 1, total, level) > bound
    assert lower(errors, total, 0.05) <= errors / total <= upper(errors, total, 0.05)


def test_how_many_labels_show_a_rate() -> None:
    for rate, level, count in ((0.05, 0.05, 59), (0.01, 0.05, 299), (0.05, 0.005, 104)):
        assert needed(rate, level) == count
        assert upper(0, count, level) <= rate < upper(0, count - 1, level)
    some = needed(0.05, 0.05, 0.02)
    assert some is not None
    assert upper(round(0.02 * some), some, 0.05) <= 0.05
    assert some > 59
    # No number of labels shows what is not so.
    assert needed(0.05, 0.05, 0.05) is needed(0.05, 0.05, 0.0499999) is None
