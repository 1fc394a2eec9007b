"""Bets on the total of numbers of which some are known: what it's at least, with 95 % confidence.

That holds at any time, so one may look at the bound after each number, and stop when one likes.

Whole numbers from 0 up are drawn one after the other, without replacement, from a list whose length is known.
Somebody claims that all of them add up to at most so much. So at most a known mean is left for the next one,
and who bets on more than that can't expect to win. If a bettor grows rich all the same, the claim is wrong:
a fortune of 1 reaches 40 with a probability of at most 1 in 40 while the claim is true (Ville's inequality),
however long one plays and whatever makes one stop.

I. Waudby-Smith and A. Ramdas, "Estimating means of bounded random variables by betting", Journal of the Royal
Statistical Society B 86(1), 2024: section 5 for draws without replacement, and several bettors with constant
stakes. Their stakes are spread as in F. Orabona and K.-S. Jun, "Tight concentrations and confidence sequences
from the regret of universal portfolio", arXiv 2110.14099. Nothing needs to be tuned then, and a claim of more
is never refuted before a claim of less, so a bound is found by halving.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ONE_SIDED_LEVEL = 0.025  # on each of two sides
_BETTORS = 20
_STAKES = [
    math.sin(math.pi / 2 * number / (_BETTORS + 1)) ** 2 for number in range(1, _BETTORS + 1)
]
"""The shares of their fortune that the bettors stake on each number; many are near 0 or 1."""


class Bets:
    """Bets against the claim that `count` numbers add up to at most `claimed_total`."""

    def __init__(self, count: int, claimed_total: int, level: float = ONE_SIDED_LEVEL) -> None:
        """Start to bet against the claim that `count` numbers add up to at most `claimed_total`."""
        self._numbers_left = count
        self._total_left = claimed_total
        # If the claim is true, a fortune of 1 ever reaches 1 / `level` with a probability of at most `level`.
        self._refuting_fortune = 1 / level
        self._fortunes = [1 / _BETTORS] * _BETTORS  # each bettor uses another stake
        self.is_refuted = claimed_total < 0  # numbers are never negative

    @property
    def fortune(self) -> float:
        """The bettors' joint fortune, starting from 1."""
        return sum(self._fortunes)

    def add(self, number: int) -> None:
        """Bet that the next number is higher than claimed, then count the number and update `is_refuted`."""
        if self.is_refuted:
            return

        # If the number exceeds the rest of the claimed total, the claim is certainly wrong.
        if number > self._total_left:
            self.is_refuted = True
            return

        if self._total_left:
            self._bet(number)
            self.is_refuted = self.fortune >= self._refuting_fortune
        self._numbers_left -= 1
        self._total_left -= number

    def _bet(self, number: int) -> None:
        """Let each bettor stake a fraction of its fortune, and pay back the stake times a factor.

        If the claim is true, the factor is at most 1 on average, so a large fortune refutes the claim.
        """
        # The number's ratio to the mean that's left, which is `_total_left` / `_numbers_left`.
        payout_factor = number * self._numbers_left / self._total_left
        fortunes = []
        for fortune, stake in zip(self._fortunes, _STAKES, strict=True):
            kept_and_paid = (1 - stake) + stake * payout_factor
            fortunes.append(fortune * kept_and_paid)
        self._fortunes = fortunes


def bound_total(
    known_numbers: Sequence[int], count: int, largest: int, level: float = ONE_SIDED_LEVEL
) -> int:
    """Compute a lower bound for the total of `count` numbers, of which only `known_numbers` are known.

    The known numbers were drawn at random, in this order. Each number is at most `largest`. The true total is
    lower than the bound with a probability of at most `level`.
    """
    # Find the lowest total that the known numbers don't refute, by bisection. If a total is refuted, so are
    # all lower totals.
    low = sum(known_numbers)
    high = low + largest * (count - len(known_numbers))
    while low < high:
        middle = (low + high) // 2
        if _is_refuted(known_numbers, count, middle, level):
            low = middle + 1
        else:
            high = middle
    return low


def _is_refuted(known_numbers: Sequence[int], count: int, claimed_total: int, level: float) -> bool:
    """Whether bets on the known numbers refute the claim that all add up to at most `claimed_total`."""
    bets = Bets(count, claimed_total, level)
    for number in known_numbers:
        bets.add(number)
        if bets.is_refuted:
            return True
    return False
