from __future__ import annotations

import random
from math import isclose, sqrt
from statistics import mean as average
from statistics import pstdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgekit.evaluation import Measure, difference, interval, intervals, mean

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
