"""Kappa and its kin against values worked out by hand."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import pytest

from judgekit.evaluation import agreement


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
    found = pairs(counts)
    accuracy, (plain, weighted) = agreement.accuracy(found), agreement.kappas(found)
    assert accuracy is not None
    assert plain is not None
    assert weighted is not None
    assert accuracy.value == pytest.approx(known.accuracy, abs=1e-12)
    assert plain.value == pytest.approx(known.kappa, abs=1e-12)
    assert weighted.value == pytest.approx(known.weighted, abs=1e-12)
    classes = agreement.classes(found)
    assert tuple(each.word for each in classes) == known.words
    assert [each.precision.value for each in classes if each.precision] == pytest.approx(known.precision)
    assert [each.recall.value for each in classes if each.recall] == pytest.approx(known.recall)
