"""Figures against values worked out by hand, against another implementation, and against known laws."""

from __future__ import annotations

import random
from collections import Counter
from math import isclose, sqrt
from statistics import mean as average
from statistics import pstdev
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from judgekit.evaluation import (
    Bin,
    LabelGroup,
    Measure,
    brier,
    by_label,
    difference,
    ece,
    interval,
    intervals,
    mean,
    stats,
    table,
)

shares = st.lists(st.floats(0, 1, width=32), min_size=1, max_size=30)


def sample(size: int, chance: float, seed: int = 1) -> list[float]:
    generator = random.Random(seed)
    return [float(generator.random() < chance) for _ in range(size)]


def test_nearly_that_of_the_normal_distribution() -> None:
    values = sample(400, 0.3)
    bootstrap_interval = interval(mean(values))
    assert bootstrap_interval is not None
    error = 1.96 * pstdev(values) / sqrt(len(values))
    assert bootstrap_interval.value == average(values)
    assert isclose(bootstrap_interval.low, bootstrap_interval.value - error, abs_tol=0.006)
    assert isclose(bootstrap_interval.high, bootstrap_interval.value + error, abs_tol=0.006)


def test_covers_the_truth_about_as_often_as_it_says() -> None:
    covered = 0
    for seed in range(200):
        bootstrap_interval = interval(mean(sample(100, 0.4, seed)), resamples=300)
        assert bootstrap_interval is not None
        covered += bootstrap_interval.low <= 0.4 <= bootstrap_interval.high
    assert 0.90 <= covered / 200 <= 0.985


def test_is_reproducible_and_depends_on_the_seed() -> None:
    values = [random.Random(5).random() for _ in range(50)] + sample(50, 0.5)
    assert interval(mean(values)) == interval(mean(values))
    assert interval(mean(values)) != interval(mean(values), seed=7)


def test_measures_are_drawn_together() -> None:
    values = sample(60, 0.5)
    doubled = [2 * value for value in values]
    found = intervals({"one": mean(values), "two": mean(doubled)})
    bootstrap_interval, two = found["one"], found["two"]
    assert bootstrap_interval is not None
    assert two is not None
    assert (two.value, two.low, two.high) == (
        2 * bootstrap_interval.value,
        2 * bootstrap_interval.low,
        2 * bootstrap_interval.high,
    )
    assert bootstrap_interval == interval(mean(values))


def test_a_ratio_of_sums_weighs_queries_by_what_they_had() -> None:
    bootstrap_interval = interval(Measure([3, 0, 0], [3, 1, 0]))
    assert bootstrap_interval is not None
    assert bootstrap_interval.value == 0.75
    assert (bootstrap_interval.low, bootstrap_interval.high) == (0.0, 1.0)


@pytest.mark.parametrize("measure", [Measure([], []), Measure([0, 0], [0, 0])])
def test_nothing_to_divide_by_is_no_figure(measure: Measure) -> None:
    assert interval(measure) is None


def test_a_difference_is_paired() -> None:
    worse = [random.Random(3).random() for _ in range(1)] + sample(80, 0.5)
    better = [each + 0.01 for each in worse]
    bootstrap_interval = difference(better, worse)
    assert bootstrap_interval is not None
    assert isclose(bootstrap_interval.low, 0.01)
    assert isclose(bootstrap_interval.high, 0.01)


def test_measures_of_different_queries_are_refused() -> None:
    with pytest.raises(ValueError, match=r"the same queries, got \[2, 3\]"):
        intervals({"a": mean([1, 2]), "b": mean([1, 2, 3])})
    with pytest.raises(ValueError, match=r"shorter|longer"):
        difference([1.0], [1.0, 2.0])


@settings(max_examples=40)
@given(values=shares)
def test_bounds_stand_around_the_figure_and_inside_the_values(values: list[float]) -> None:
    bootstrap_interval = interval(mean(values), resamples=200)
    assert bootstrap_interval is not None
    assert min(values) - 1e-9 <= bootstrap_interval.low <= bootstrap_interval.high <= max(values) + 1e-9
    if len(set(values)) == 1:
        assert isclose(bootstrap_interval.low, bootstrap_interval.high)


# Reliability

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


# Agreement


def pairs_of(table: dict[tuple[str, str], int]) -> list[stats.Pair]:
    return [pair for pair, count in table.items() for _ in range(count)]


YES_NO = pairs_of({("yes", "yes"): 20, ("yes", "no"): 5, ("no", "yes"): 10, ("no", "no"): 15})


def test_kappa_of_a_table_of_two() -> None:
    # observed .7, expected .5 * .6 + .5 * .4 = .5
    assert stats.kappa(Counter(YES_NO)) == pytest.approx(0.4)


def test_kappa_is_one_when_all_agree_and_none_when_there_is_one_word() -> None:
    assert stats.kappa(Counter([("a", "a"), ("b", "b")])) == 1
    assert stats.kappa(Counter([("a", "a")] * 4)) is None
    assert stats.kappa(Counter()) is None


def test_kappa_of_who_does_not_look_is_zero() -> None:
    assert stats.kappa({("a", "a"): 1, ("a", "b"): 1, ("b", "a"): 1, ("b", "b"): 1}) == pytest.approx(0)


def test_quadratic_weights_count_far_misses_more() -> None:
    near = Counter({("1", "2"): 1, ("2", "2"): 4, ("3", "3"): 4, ("1", "1"): 4})
    far = Counter({("1", "3"): 1, ("2", "2"): 4, ("3", "3"): 4, ("1", "1"): 4})
    weights = stats.squares(["1", "2", "3"])
    # near: observed 1/13; expected from the margins 5, 4, 4 and 4, 5, 4
    expected = (5 * 5 + 5 * 4 * 4 + 4 * 4 + 4 * 4 + 4 * 4 * 4 + 4 * 5) / 13**2
    assert stats.kappa(near, weights) == pytest.approx(1 - (1 / 13) / expected)
    one, other = stats.kappa(near, weights), stats.kappa(far, weights)
    assert one is not None
    assert other is not None
    assert one > other
    assert stats.kappa(near) == pytest.approx(stats.kappa(far), abs=0.01)


def test_words_with_an_order() -> None:
    assert stats.scale(["accept", "reject", "improve", "reject"]) == ["reject", "improve", "accept"]
    assert stats.scale(["10", "9", "0.5"]) == ["0.5", "9", "10"]
    assert stats.scale(["A", "B", "tie"]) is None


def test_words_without_an_order_have_no_weighted_kappa() -> None:
    plain, weighted = stats.kappas(YES_NO)
    assert plain is not None
    assert plain.low < plain.value < plain.high
    assert weighted is None
    assert stats.kappas([("1", "1"), ("2", "1"), ("3", "3")])[1] is not None


def test_precision_and_recall_of_each_word() -> None:
    found = {each.word: each for each in stats.classes(YES_NO)}
    yes = found["yes"]
    assert (yes.labelled, yes.said) == (25, 30)
    assert yes.precision is not None
    assert yes.recall is not None
    assert yes.precision.value == pytest.approx(20 / 30)
    assert yes.recall.value == pytest.approx(20 / 25)


def test_a_word_that_was_never_said_has_no_precision() -> None:
    (said, never) = sorted(stats.classes([("a", "a"), ("b", "a")]), key=lambda each: each.word)
    assert (said.word, never.word) == ("a", "b")
    assert never.precision is None
    assert never.recall is not None
    assert never.recall.value == 0


def test_nothing_measured_is_nothing() -> None:
    assert stats.accuracy([]) is None
    assert stats.kappas([]) == (None, None)
    assert stats.classes([]) == []


class Known(NamedTuple):
    """A table of labels (down) and answers (across), and what scikit-learn 1.9.1 says of it.

    From `accuracy_score`, `cohen_kappa_score` (also with `weights="quadratic"`) and
    `precision_recall_fscore_support`.
    """

    words: tuple[str, ...]
    table: tuple[tuple[int, ...], ...]
    accuracy: float
    kappa: float
    weighted: float
    precision: tuple[float, ...]
    recall: tuple[float, ...]


ORACLE = (
    Known(
        ("reject", "improve", "accept"),
        ((23, 2, 3), (1, 13, 2), (1, 2, 13)),
        0.8166666666666667,
        0.717948717948718,
        0.7268408551068883,
        (0.92, 0.764705882353, 0.722222222222),
        (0.821428571429, 0.8125, 0.8125),
    ),
    Known(
        ("0", "1", "2", "3"),
        ((5, 3, 1, 0), (5, 13, 2, 0), (1, 1, 23, 5), (2, 2, 3, 14)),
        0.6875,
        0.5684074233923178,
        0.6601474831676819,
        (0.384615384615, 0.684210526316, 0.793103448276, 0.736842105263),
        (0.555555555556, 0.65, 0.766666666667, 0.666666666667),
    ),
    Known(
        ("1", "2", "3", "4", "5"),
        ((6, 2, 1, 0, 1), (1, 4, 1, 0, 2), (1, 0, 3, 1, 1), (0, 2, 0, 7, 0), (0, 1, 1, 1, 4)),
        0.6,
        0.4980392156862745,
        0.562874251497006,
        (0.75, 0.444444444444, 0.5, 0.777777777778, 0.5),
        (0.6, 0.5, 0.5, 0.777777777778, 0.571428571429),
    ),
)


@pytest.mark.parametrize("known", ORACLE, ids=lambda known: "-".join(known.words))
def test_figures_are_those_of_another_implementation(known: Known) -> None:
    counts = {
        (label, said): known.table[down][across]
        for down, label in enumerate(known.words)
        for across, said in enumerate(known.words)
    }
    found = pairs_of(counts)
    accuracy, (plain, weighted) = stats.accuracy(found), stats.kappas(found)
    assert accuracy is not None
    assert plain is not None
    assert weighted is not None
    assert accuracy.value == pytest.approx(known.accuracy, abs=1e-12)
    assert plain.value == pytest.approx(known.kappa, abs=1e-12)
    assert weighted.value == pytest.approx(known.weighted, abs=1e-12)
    classes = stats.classes(found)
    assert tuple(each.word for each in classes) == known.words
    assert [each.precision.value for each in classes if each.precision] == pytest.approx(known.precision)
    assert [each.recall.value for each in classes if each.recall] == pytest.approx(known.recall)
