"""Learns, from labels, the probability of an acceptance at each leaning of a decision model.

Two kinds of curve are tried, and the better one on held-out labels is taken: a logistic curve (Platt,
"Probabilistic outputs for support vector machines", 1999, with its smoothed targets), and rising steps
(isotonic regression by pooling neighbours: Ayer and others, 1955; Zadrozny and Elkan, 2002).
"""

from __future__ import annotations

import bisect
from math import exp, fsum, log
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from judgekit.judging.calibration import Likelihood

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MIN_LABELS = 20  # labels for a curve
_MIN_PER_SIDE = 2  # labels that accept, and that don't
_FOLDS = 5
_MAX_ROUNDS = 100
_MIN_PROBABILITY = 1e-3  # and its distance from 1
_EPSILON = 1e-9  # smaller slopes or steps count as 0
_MAX_STEPS = 50  # in a file, roughly
_SEGMENTS = 10  # of a logistic curve in a file, with equally many labels each

Labelled: TypeAlias = "Sequence[tuple[float, bool]]"
"""Leanings, each with whether its label accepts."""


class _Logistic(NamedTuple):
    slope: float
    offset: float

    def at(self, leaning: float) -> float:
        """Compute the probability of an acceptance at a leaning."""
        exponent = self.slope * leaning + self.offset
        exponent = max(-30.0, min(30.0, exponent))
        return _clamp(1 / (1 + exp(-exponent)))


class _Steps(NamedTuple):
    leanings: list[float]
    fractions: list[float]

    def at(self, leaning: float) -> float:
        """Return the fraction of acceptances on a leaning's step."""
        step = max(0, bisect.bisect_right(self.leanings, leaning) - 1)
        return _clamp(self.fractions[step])


def learn_likelihood(labelled: Labelled) -> Likelihood | None:
    """Fit a curve that maps a leaning, a model's tendency to accept, to the probability of acceptance.

    Of a logistic curve and a step function, the better one is used. Returns None if there are too few
    accepted or rejected labels.
    """
    accepted = sum(is_accepted for _, is_accepted in labelled)
    rejected = len(labelled) - accepted
    if len(labelled) < MIN_LABELS or min(accepted, rejected) < _MIN_PER_SIDE:
        return None

    ordered = sorted(labelled)
    if _measure_loss(_fit_logistic, ordered) <= _measure_loss(_fit_steps, ordered):
        points = _sample_curve(_fit_logistic(ordered), ordered)
        return Likelihood(kind="platt", points=points)
    points = _sample_steps(_fit_steps(ordered))
    return Likelihood(kind="isotonic", points=points)


def _sample_curve(curve: _Logistic, ordered: Labelled) -> list[tuple[float, float]]:
    """Return points on the curve: its ends, and the quantiles that divide the labels into equal segments."""
    leanings = set()
    for segment in range(_SEGMENTS + 1):
        index = round((len(ordered) - 1) / _SEGMENTS * segment)
        leaning, _ = ordered[index]
        leanings.add(leaning)
    return [(leaning, round(curve.at(leaning), 4)) for leaning in sorted(leanings)]


def _sample_steps(steps: _Steps) -> list[tuple[float, float]]:
    """List the steps as points. If there are more than `_MAX_STEPS`, take them at regular intervals."""
    points = []
    for leaning, fraction in zip(steps.leanings, steps.fractions, strict=True):
        points.append((leaning, round(_clamp(fraction), 4)))
    stride = max(1, len(points) // _MAX_STEPS)
    return points[::stride]


def _measure_loss(fit: Callable[[Labelled], _Logistic | _Steps], labelled: Labelled) -> float:
    """Compute the mean logarithmic loss of curves built by `fit`, by cross-validation."""
    losses = []
    for fold in range(_FOLDS):
        training_labels = list(labelled)
        del training_labels[fold::_FOLDS]
        curve = fit(training_labels)
        for leaning, is_accepted in labelled[fold::_FOLDS]:
            probability = curve.at(leaning)
            losses.append(-log(probability if is_accepted else 1 - probability))
    return fsum(losses) / len(losses)


def _fit_logistic(labelled: Labelled) -> _Logistic:
    """Fit a logistic curve with the least logarithmic loss, by Newton's method."""
    accepted = sum(is_accepted for _, is_accepted in labelled)
    rejected = len(labelled) - accepted

    # As Platt proposes, the targets are slightly above 0 and below 1. Start from a flat curve at the
    # acceptance rate.
    targets = {True: (accepted + 1) / (accepted + 2), False: 1 / (rejected + 2)}
    curve = _Logistic(slope=0.0, offset=log((accepted + 1) / (rejected + 1)))

    for _ in range(_MAX_ROUNDS):
        # Compute the gradient of the loss, and the Hessian matrix of its second derivatives.
        slope_gradient = 0.0
        offset_gradient = 0.0
        slope_slope = _EPSILON  # not 0, so that the Hessian can be inverted
        slope_offset = 0.0
        offset_offset = _EPSILON
        for leaning, is_accepted in labelled:
            probability = curve.at(leaning)
            error = probability - targets[is_accepted]
            weight = probability * (1 - probability)
            slope_gradient += error * leaning
            offset_gradient += error
            slope_slope += weight * leaning * leaning
            slope_offset += weight * leaning
            offset_offset += weight

        # Multiply the gradient by the inverse of the Hessian.
        determinant = slope_slope * offset_offset - slope_offset * slope_offset
        if determinant < _EPSILON:
            break
        slope_step = (offset_offset * slope_gradient - slope_offset * offset_gradient) / determinant
        offset_step = (slope_slope * offset_gradient - slope_offset * slope_gradient) / determinant
        curve = _Logistic(curve.slope - slope_step, curve.offset - offset_step)

        # Stop when the curve hardly changes any more.
        if abs(slope_step) + abs(offset_step) < _EPSILON:
            break
    return curve


def _fit_steps(labelled: Labelled) -> _Steps:
    """Fit a rising step function with the least squared error, by merging adjacent steps that don't rise.

    `labelled` must be sorted.
    """
    # each step's start, number of accepted labels, and number of all labels
    starts = []
    sums = []
    counts = []

    for leaning, is_accepted in labelled:
        # Start with a step for each label.
        starts.append(leaning)
        sums.append(float(is_accepted))
        counts.append(1)

        # Merge the last two steps while the earlier one's mean isn't lower. To compare the means without
        # division, multiply both by both counts.
        while len(sums) > 1 and sums[-2] * counts[-1] >= sums[-1] * counts[-2]:
            last_sum = sums.pop()
            sums[-1] += last_sum
            last_count = counts.pop()
            counts[-1] += last_count
            starts.pop()

    # A step's height is the fraction of accepted labels.
    fractions = [total / count for total, count in zip(sums, counts, strict=True)]
    return _Steps(starts, fractions)


def _clamp(probability: float) -> float:
    """Keep a probability away from 0 and 1, because a few labels don't prove certainty."""
    return min(max(probability, _MIN_PROBABILITY), 1 - _MIN_PROBABILITY)
