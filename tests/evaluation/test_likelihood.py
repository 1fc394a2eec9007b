"""How likely an acceptance is by the labels, where a decision model leans so far."""

from __future__ import annotations

import random
from math import exp

from judgekit.evaluation.likelihood import learn_likelihood


def labelled(count: int, slope: float, offset: float) -> list[tuple[float, bool]]:
    chance = random.Random(5)
    pairs = []
    for _ in range(count):
        leaning = chance.uniform(-0.5, 0.5)
        share = 1 / (1 + exp(-(slope * leaning + offset)))
        pairs.append((leaning, chance.random() < share))
    return pairs


def test_a_logistic_truth_is_found() -> None:
    curve = learn_likelihood(labelled(4000, slope=6.0, offset=-1.0))
    assert curve is not None
    assert curve.kind == "platt"
    for leaning, share in curve.points:
        assert abs(share - 1 / (1 + exp(-(6.0 * leaning - 1.0)))) < 0.05


def test_a_step_is_learned_as_one() -> None:
    chance = random.Random(7)
    pairs = []
    for number in range(2000):
        leaning = number / 2000 - 0.5
        pairs.append((leaning, chance.random() < (0.9 if leaning > 0.4 else 0.1)))
    curve = learn_likelihood(pairs)
    assert curve is not None
    assert curve.kind == "isotonic"
    shares = [share for _, share in curve.points]
    assert shares == sorted(shares)
    assert shares[0] < 0.2
    assert shares[-1] > 0.8


def test_too_few_labels_make_no_curve() -> None:
    assert learn_likelihood([(0.1, True)] * 10) is None
    assert learn_likelihood([(0.1, True)] * 100) is None
