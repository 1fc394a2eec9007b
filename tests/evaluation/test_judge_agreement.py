"""Kappa and its kin against values worked out by hand."""

from __future__ import annotations

from collections import Counter

import pytest

from judgekit.evaluation import judge_agreement as agreement


def pairs(table: dict[tuple[str, str], int]) -> list[agreement.Pair]:
    return [pair for pair, count in table.items() for _ in range(count)]


YES_NO = pairs({("yes", "yes"): 20, ("yes", "no"): 5, ("no", "yes"): 10, ("no", "no"): 15})


def test_kappa_of_a_table_of_two() -> None:
    # observed .7, expected .5 * .6 + .5 * .4 = .5
    assert agreement.kappa(Counter(YES_NO)) == pytest.approx(0.4)


def test_kappa_is_one_when_all_agree_and_none_when_there_is_one_word() -> None:
    assert agreement.kappa(Counter([("a", "a"), ("b", "b")])) == 1
    assert agreement.kappa(Counter([("a", "a")] * 4)) is None
    assert agreement.kappa(Counter()) is None


def test_kappa_of_who_does_not_look_is_zero() -> None:
    assert agreement.kappa({("a", "a"): 1, ("a", "b"): 1, ("b", "a"): 1, ("b", "b"): 1}) == pytest.approx(0)


def test_quadratic_weights_count_far_misses_more() -> None:
    near = Counter({("1", "2"): 1, ("2", "2"): 4, ("3", "3"): 4, ("1", "1"): 4})
    far = Counter({("1", "3"): 1, ("2", "2"): 4, ("3", "3"): 4, ("1", "1"): 4})
    weights = agreement.squares(["1", "2", "3"])
    # near: observed 1/13; expected from the margins 5, 4, 4 and 4, 5, 4
    expected = (5 * 5 + 5 * 4 * 4 + 4 * 4 + 4 * 4 + 4 * 4 * 4 + 4 * 5) / 13**2
    assert agreement.kappa(near, weights) == pytest.approx(1 - (1 / 13) / expected)
    one, other = agreement.kappa(near, weights), agreement.kappa(far, weights)
    assert one is not None
    assert other is not None
    assert one > other
    assert agreement.kappa(near) == pytest.approx(agreement.kappa(far), abs=0.01)


def test_words_with_an_order() -> None:
    assert agreement.scale(["accept", "reject", "improve", "reject"]) == ["reject", "improve", "accept"]
    assert agreement.scale(["10", "9", "0.5"]) == ["0.5", "9", "10"]
    assert agreement.scale(["A", "B", "tie"]) is None


def test_words_without_an_order_have_no_weighted_kappa() -> None:
    plain, weighted = agreement.kappas(YES_NO)
    assert plain is not None
    assert plain.low < plain.value < plain.high
    assert weighted is None
    assert agreement.kappas([("1", "1"), ("2", "1"), ("3", "3")])[1] is not None


def test_precision_and_recall_of_each_word() -> None:
    found = {each.word: each for each in agreement.classes(YES_NO)}
    yes = found["yes"]
    assert (yes.labelled, yes.said) == (25, 30)
    assert yes.precision is not None
    assert yes.recall is not None
    assert yes.precision.value == pytest.approx(20 / 30)
    assert yes.recall.value == pytest.approx(20 / 25)


def test_a_word_that_was_never_said_has_no_precision() -> None:
    (said, never) = sorted(agreement.classes([("a", "a"), ("b", "a")]), key=lambda each: each.word)
    assert (said.word, never.word) == ("a", "b")
    assert never.precision is None
    assert never.recall is not None
    assert never.recall.value == 0


def test_nothing_measured_is_nothing() -> None:
    assert agreement.accuracy([]) is None
    assert agreement.kappas([]) == (None, None)
    assert agreement.classes([]) == []
