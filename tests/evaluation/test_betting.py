"""Bets on a total: the fortunes are those of the reference, and a true claim is seldom refuted."""

from __future__ import annotations

from itertools import combinations
from math import comb

import pytest

from judgekit.evaluation.betting import Bets, bound_total


def numbers_in(digits: str) -> list[int]:
    return [int(digit) for digit in digits]


# Made with `diversified_betting_mart` of confseq: stakes of sin²(π/2 · 1/21) to sin²(π/2 · 20/21), theta=1.
SHARES = numbers_in("111110111011111111111111110011")
WINS = numbers_in("11011")  # of a difference: 2 is a win, 1 a tie
NEAR = numbers_in("11011111111111111011101011100111111110110010001000")
FORTUNES = {
    "5 of 100": (SHARES, 100, 60, 5, 5.809866),
    "10 of 100": (SHARES, 100, 60, 10, 1.493946),
    "30 of 100": (SHARES, 100, 60, 30, 282.303399),
    "5 differences of 40": (WINS, 40, 10, 5, 18.62002),
    "10 of 1,000": (NEAR, 1000, 700, 10, 1.892164),
    "50 of 1,000": (NEAR, 1000, 700, 50, 0.322625),
}
# By the same: the least total whose fortune has never been 40 or more.
LONG = numbers_in("111111111011110111111111111110111110111111111101111111111111")
LEVEL = 0.1


@pytest.mark.parametrize(
    ("numbers", "count", "claimed", "drawn", "fortune"), FORTUNES.values(), ids=FORTUNES
)
def test_a_fortune_is_that_of_the_reference(
    numbers: list[int], count: int, claimed: int, drawn: int, fortune: float
) -> None:
    bets = Bets(count, claimed, level=1e-9)
    for number in numbers[:drawn]:
        bets.add(number)
    assert bets.fortune == pytest.approx(fortune, rel=1e-4)


def test_the_least_total_is_that_of_the_reference() -> None:
    assert bound_total(LONG, count=100, largest=1) == 82


def refuting_draws(total: int, count: int, claimed: int) -> int:
    """Count the orders of `total` ones among `count` numbers that refute the claim at any time."""
    refuting = 0
    for ones in combinations(range(count), total):
        bets = Bets(count, claimed, LEVEL)
        for place in range(count):
            bets.add(int(place in ones))
        refuting += bets.is_refuted
    return refuting


@pytest.mark.parametrize("claimed", [2, 5, 6, 9])
def test_a_true_claim_is_refuted_no_more_often_than_the_level_whenever_one_stops(
    claimed: int,
) -> None:
    count = 12
    assert refuting_draws(claimed, count, claimed) <= LEVEL * comb(count, claimed)


def test_a_wrong_claim_is_refuted_once_all_numbers_are_there() -> None:
    assert refuting_draws(total=6, count=12, claimed=5) == comb(12, 6)


@pytest.mark.parametrize("claimed", [4, 6, 9])
def test_a_claim_of_more_is_refuted_no_sooner(claimed: int) -> None:
    less = Bets(20, claimed, level=1e-9)
    more = Bets(20, claimed + 1, level=1e-9)
    for number in (1, 0, 1, 1, 0, 1):
        less.add(number)
        more.add(number)
    assert more.fortune < less.fortune


def test_the_whole_list_leaves_no_doubt() -> None:
    assert bound_total([1, 0, 1], count=3, largest=1) == 2


def test_a_claim_that_nothing_is_left_bets_on_nothing() -> None:
    bets = Bets(10, 0)
    bets.add(0)
    assert bets.fortune == pytest.approx(1.0)


def test_a_claim_of_less_than_nothing_is_wrong_at_once() -> None:
    assert Bets(10, -1).is_refuted
