from __future__ import annotations

import random
from math import comb
from statistics import median as middle

import pytest

from judgekit.ledger import rates


@pytest.mark.parametrize(
    ("hits", "total", "low", "high"),
    [  # the first three as published: Newcombe, Statistics in Medicine 17 (1998), table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (20, 20, 0.8389, 1.0),
    ],
)
def test_wilson(hits: int, total: int, low: float, high: float) -> None:
    interval = rates.share_interval(hits, total)
    assert interval is not None
    assert interval == pytest.approx((low, high), abs=5e-5)


def test_nothing_has_no_interval() -> None:
    assert rates.share_interval(0, 0) is None
    assert rates.median_interval([1, 2, 3, 4, 5]) is None


def test_how_many_labels_without_an_error_make_sure() -> None:
    """What the guide promises: 73 right GO for 5 %, 35 right NO-GO for 10 %."""
    for limit, enough in ((0.05, 73), (0.10, 35)):
        ends = [interval.high for n in (enough - 1, enough) if (interval := rates.share_interval(0, n))]
        assert ends[0] > limit > ends[1]


@pytest.mark.parametrize("total", [6, 10, 25, 60, 101])
def test_the_ranks_of_the_median_cover_it(total: int) -> None:
    """The exact coverage of the two order statistics is at least 93 %."""
    interval = rates.median_interval(range(1, total + 1))
    assert interval is not None
    below, above = int(interval.low), int(interval.high)
    assert below + above == total + 1
    assert sum(comb(total, k) for k in range(below, above)) / 2**total >= 0.93


def test_the_interval_of_a_median_covers_it_as_often_as_promised() -> None:
    chance = random.Random(1)
    covered = 0
    for _ in range(400):
        sample = sorted(chance.lognormvariate(1, 1) for _ in range(40))
        interval = rates.median_interval(sample)
        assert interval is not None
        assert interval.low <= middle(sample) <= interval.high
        covered += interval.low <= 2.718281828 <= interval.high
    assert covered >= 368
