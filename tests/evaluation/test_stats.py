"""Figures against values worked out by hand, against another implementation, and against known laws."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from math import isclose, sqrt
from statistics import mean as average
from statistics import pstdev
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from judgekit.evaluation import Bin, LabelGroup, Measure, brier, by_label, difference, ece, mean, stats, table
from judgekit.evaluation.stats import interval, intervals

if TYPE_CHECKING:
    from judgekit.evaluation.stats import BootstrapInterval, Pair

shares = st.lists(st.floats(0, 1, width=32), min_size=1, max_size=30)
hits_of = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60)


def value(figure: BootstrapInterval | float | None) -> float:
    assert figure is not None
    return figure if isinstance(figure, float) else figure.value


# Bootstrap


def sample(size: int, chance: float, seed: int = 1) -> list[float]:
    generator = random.Random(seed)
    return [float(generator.random() < chance) for _ in range(size)]


def test_bounds_are_those_of_the_normal_distribution_reproducible_and_cover_the_truth() -> None:
    values = sample(400, 0.3)
    found = interval(mean(values))
    assert found is not None
    error = 1.96 * pstdev(values) / sqrt(len(values))
    assert found.value == average(values)
    assert isclose(found.low, found.value - error, abs_tol=0.006)
    assert isclose(found.high, found.value + error, abs_tol=0.006)
    assert interval(mean(values)) == found != interval(mean(values), seed=7)
    many = [interval(mean(sample(100, 0.4, seed)), resamples=300) for seed in range(200)]
    assert 0.90 <= sum(each is not None and each.low <= 0.4 <= each.high for each in many) / 200 <= 0.985


def test_measures_are_drawn_together_and_paired() -> None:
    values = sample(60, 0.5)
    found = intervals({"one": mean(values), "two": mean([2 * value for value in values])})
    one, two = found["one"], found["two"]
    assert one is not None
    assert two is not None
    assert (two.value, two.low, two.high) == (2 * one.value, 2 * one.low, 2 * one.high)
    apart = difference([each + 0.01 for each in values], values)
    assert apart is not None
    assert [apart.low, apart.high] == pytest.approx([0.01, 0.01])
    # A ratio of sums weighs queries by what they had.
    assert interval(Measure([3, 0, 0], [3, 1, 0])) == stats.BootstrapInterval(0.75, 0.0, 1.0)
    assert interval(Measure([], [])) is interval(Measure([0, 0], [0, 0])) is None
    with pytest.raises(ValueError, match=r"the same queries, got \[2, 3\]"):
        intervals({"a": mean([1, 2]), "b": mean([1, 2, 3])})
    with pytest.raises(ValueError, match=r"shorter|longer"):
        difference([1.0], [1.0, 2.0])


@settings(max_examples=40)
@given(values=shares)
def test_bounds_stand_around_the_figure_and_inside_the_values(values: list[float]) -> None:
    found = interval(mean(values), resamples=200)
    assert found is not None
    assert min(values) - 1e-9 <= found.low <= found.high <= max(values) + 1e-9
    if len(set(values)) == 1:
        assert isclose(found.low, found.high)


# Reliability

PROBABILITIES = [0.05, 0.1, 0.15, 0.95, 1.0, 0.5]
OUTCOMES = [False, True, False, True, True, False]


def test_reliability_by_hand() -> None:
    expected = (0.05**2 + 0.9**2 + 0.15**2 + 0.05**2 + 0 + 0.5**2) / 6
    assert brier(PROBABILITIES, OUTCOMES) == pytest.approx(expected)
    assert ece(PROBABILITIES, OUTCOMES) == pytest.approx((0.05 + 2 * 0.375 + 0.5 + 2 * 0.025) / 6)
    found = table(PROBABILITIES, OUTCOMES)
    bins = [(each.low, each.high, each.count) for each in found]
    assert bins == [(0.0, 0.1, 1), (0.1, 0.2, 2), (0.5, 0.6, 1), (0.9, 1.0, 2)]
    assert found[1::2] == [Bin(0.1, 0.2, 2, 0.125, 0.5), Bin(0.9, 1.0, 2, 0.975, 1.0)]
    for tenths in range(10):
        assert [each.low for each in table([tenths / 10], [True])] == [tenths / 10]
    groups = by_label(["low", "high", "low"], [0.25, 0.75, 0.5], [False, True, True])
    assert groups == [LabelGroup("high", 1, 0.75, 1.0), LabelGroup("low", 2, 0.375, 0.5)]
    assert (brier([], []), ece([], []), table([], []), by_label([], [], [])) == (None, None, [], [])
    for function in (brier, ece, table):
        with pytest.raises(ValueError, match="shorter"):
            function([0.1, 0.2], [True])


@example(hits=[(0.7, False)] * 3, seed=0)
@given(hits=hits_of, seed=st.integers(0, 99))
def test_laws_of_reliability(hits: list[tuple[float, bool]], seed: int) -> None:
    probabilities, outcomes = [each for each, _ in hits], [true for _, true in hits]
    found = table(probabilities, outcomes)
    assert sum(each.count for each in found) == len(hits)
    assert all(each.low - 1e-9 <= each.confidence <= each.high + 1e-9 for each in found)
    assert 0 <= value(ece(probabilities, outcomes)) <= 1
    assert 0 <= value(brier(probabilities, outcomes)) <= 1
    mixed = random.Random(seed).sample(hits, len(hits))
    again = ece([each for each, _ in mixed], [true for _, true in mixed])
    assert again == pytest.approx(ece(probabilities, outcomes), abs=1e-9)
    # The overall share as the only probability is calibrated.
    share = sum(outcomes) / len(outcomes)
    assert ece([share] * len(hits), outcomes) == pytest.approx(0, abs=1e-9)
    assert brier([share] * len(hits), outcomes) == pytest.approx(share * (1 - share), abs=1e-9)


# Agreement


def pairs_of(counts: dict[Pair, int]) -> list[Pair]:
    return [pair for pair, count in counts.items() for _ in range(count)]


YES_NO = pairs_of({("yes", "yes"): 20, ("yes", "no"): 5, ("no", "yes"): 10, ("no", "no"): 15})


def test_kappa_by_hand() -> None:
    # observed .7, expected .5 * .6 + .5 * .4 = .5
    assert stats.kappa(Counter(YES_NO)) == pytest.approx(0.4)
    assert stats.kappa(Counter([("a", "a"), ("b", "b")])) == 1
    assert stats.kappa(Counter([("a", "a")] * 4)) is stats.kappa(Counter()) is None
    assert stats.kappa({("a", "a"): 1, ("a", "b"): 1, ("b", "a"): 1, ("b", "b"): 1}) == pytest.approx(0)


def test_words_have_an_order_or_no_weighted_kappa() -> None:
    assert stats.scale(["accept", "reject", "improve", "reject"]) == ["reject", "improve", "accept"]
    assert stats.scale(["10", "9", "0.5"]) == ["0.5", "9", "10"]
    assert stats.scale(["A", "B", "tie"]) is None
    plain, weighted = stats.kappas(YES_NO)
    assert plain is not None
    assert plain.low < plain.value < plain.high
    assert weighted is None
    assert stats.kappas([("1", "1"), ("2", "1"), ("3", "3")])[1] is not None


def test_a_word_that_was_never_said_has_no_precision() -> None:
    (said, never) = sorted(stats.classes([("a", "a"), ("b", "a")]), key=lambda each: each.word)
    assert (said.word, never.word, never.precision, value(never.recall)) == ("a", "b", None, 0)
    assert (stats.accuracy([]), stats.kappas([]), stats.classes([])) == (None, (None, None), [])


class Known(NamedTuple):
    """A table of labels (down) and answers (across), and what scikit-learn 1.9.1 says of it.

    From `accuracy_score`, `cohen_kappa_score` (also with `weights="quadratic"`) and
    `precision_recall_fscore_support`.
    """

    words: str
    table: tuple[tuple[int, ...], ...]
    agreement: tuple[float, float, float]
    precision: tuple[float, ...]
    recall: tuple[float, ...]


ORACLE = (
    Known(
        "reject improve accept",
        ((23, 2, 3), (1, 13, 2), (1, 2, 13)),
        (0.8166666666666667, 0.717948717948718, 0.7268408551068883),
        (0.92, 0.764705882353, 0.722222222222),
        (0.821428571429, 0.8125, 0.8125),
    ),
    Known(
        "0 1 2 3",
        ((5, 3, 1, 0), (5, 13, 2, 0), (1, 1, 23, 5), (2, 2, 3, 14)),
        (0.6875, 0.5684074233923178, 0.6601474831676819),
        (0.384615384615, 0.684210526316, 0.793103448276, 0.736842105263),
        (0.555555555556, 0.65, 0.766666666667, 0.666666666667),
    ),
    Known(
        "1 2 3 4 5",
        ((6, 2, 1, 0, 1), (1, 4, 1, 0, 2), (1, 0, 3, 1, 1), (0, 2, 0, 7, 0), (0, 1, 1, 1, 4)),
        (0.6, 0.4980392156862745, 0.562874251497006),
        (0.75, 0.444444444444, 0.5, 0.777777777778, 0.5),
        (0.6, 0.5, 0.5, 0.777777777778, 0.571428571429),
    ),
)


@pytest.mark.parametrize("known", ORACLE, ids=lambda known: known.words)
def test_figures_are_those_of_another_implementation(known: Known) -> None:
    words = known.words.split(" ")
    counts = dict(zip(itertools.product(words, words), itertools.chain(*known.table), strict=True))
    found = pairs_of(counts)
    agreement = (stats.accuracy(found), *stats.kappas(found))
    assert list(map(value, agreement)) == pytest.approx(known.agreement, abs=1e-12)
    classes = stats.classes(found)
    assert [each.word for each in classes] == words
    assert [value(each.precision) for each in classes] == pytest.approx(known.precision)
    assert [value(each.recall) for each in classes] == pytest.approx(known.recall)
