from __future__ import annotations

import random
from math import isclose

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from judgekit.evaluation import Bin, LabelGroup, brier, by_label, ece, table

PROBABILITIES = [0.05, 0.1, 0.15, 0.95, 1.0, 0.5]
OUTCOMES = [False, True, False, True, True, False]

pairs = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60)


def test_brier_by_hand() -> None:
    found = brier(PROBABILITIES, OUTCOMES)
    assert found is not None
    assert isclose(found, (0.05**2 + 0.9**2 + 0.15**2 + 0.05**2 + 0 + 0.5**2) / 6)


def test_bins_are_closed_below_and_the_last_one_above() -> None:
    found = table(PROBABILITIES, OUTCOMES)
    assert [(each.low, each.high, each.count) for each in found] == [
        (0.0, 0.1, 1),
        (0.1, 0.2, 2),
        (0.5, 0.6, 1),
        (0.9, 1.0, 2),
    ]
    assert found[1] == Bin(0.1, 0.2, 2, 0.125, 0.5)
    assert found[3] == Bin(0.9, 1.0, 2, 0.975, 1.0)


def test_ece_by_hand() -> None:
    found = ece(PROBABILITIES, OUTCOMES)
    assert found is not None
    assert isclose(found, (0.05 + 2 * 0.375 + 0.5 + 2 * 0.025) / 6)


@pytest.mark.parametrize("tenths", range(10))
def test_every_tenth_begins_its_bin(tenths: int) -> None:
    (found,) = table([tenths / 10], [True])
    assert found.low == tenths / 10


def test_labels_come_most_confident_first() -> None:
    found = by_label(["low", "high", "low"], [0.25, 0.75, 0.5], [False, True, True])
    assert found == [LabelGroup("high", 1, 0.75, 1.0), LabelGroup("low", 2, 0.375, 0.5)]


def test_of_nothing_nothing_is_said() -> None:
    assert brier([], []) is None
    assert ece([], []) is None
    assert table([], []) == []
    assert by_label([], [], []) == []


def test_lists_of_different_length_are_refused() -> None:
    for function in (brier, ece, table):
        with pytest.raises(ValueError, match="shorter"):
            function([0.1, 0.2], [True])


def test_honest_probabilities_are_reliable_and_shifted_ones_are_not() -> None:
    generator = random.Random(11)
    honest = [generator.random() for _ in range(20_000)]
    outcomes = [generator.random() < each for each in honest]
    shifted = [min(each + 0.2, 1.0) for each in honest]
    small, large = ece(honest, outcomes), ece(shifted, outcomes)
    assert small is not None
    assert large is not None
    assert small < 0.02
    assert 0.15 < large < 0.2
    assert (brier(honest, outcomes) or 0) < (brier(shifted, outcomes) or 0)


@given(hits=pairs)
def test_the_overall_share_as_the_only_probability_is_calibrated(hits: list[tuple[float, bool]]) -> None:
    outcomes = [true for _, true in hits]
    share = sum(outcomes) / len(outcomes)
    constant = [share] * len(outcomes)
    found, error = ece(constant, outcomes), brier(constant, outcomes)
    assert found is not None
    assert error is not None
    assert isclose(found, 0, abs_tol=1e-9)
    assert isclose(error, share * (1 - share), abs_tol=1e-9)


@example(hits=[(0.7, False)] * 3)
@given(hits=pairs)
def test_bounds_and_counts(hits: list[tuple[float, bool]]) -> None:
    probabilities, outcomes = [each for each, _ in hits], [true for _, true in hits]
    found = table(probabilities, outcomes)
    assert sum(each.count for each in found) == len(hits)
    assert all(each.low - 1e-9 <= each.confidence <= each.high + 1e-9 for each in found)
    assert 0 <= (ece(probabilities, outcomes) or 0) <= 1
    assert 0 <= (brier(probabilities, outcomes) or 0) <= 1


@given(hits=pairs, seed=st.integers(0, 99))
def test_the_order_of_hits_does_not_matter(hits: list[tuple[float, bool]], seed: int) -> None:
    mixed = random.Random(seed).sample(hits, len(hits))
    one, two = (ece([each for each, _ in kept], [true for _, true in kept]) for kept in (hits, mixed))
    assert one is not None
    assert two is not None
    assert isclose(one, two, abs_tol=1e-9)
