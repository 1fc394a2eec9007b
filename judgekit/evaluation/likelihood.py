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
    from collections.abc import Callable, Mapping, Sequence

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

    def compute_probability(self, leaning: float) -> float:
        """Compute the probability of an acceptance at a leaning."""
        exponent = self.slope * leaning + self.offset
        exponent = max(-30.0, min(30.0, exponent))
        return _clamp(1 / (1 + exp(-exponent)))


class _Step(NamedTuple):
    """Labels of adjacent leanings, from `start` on, which get the same probability."""

    start: float
    accepted: float
    labels: int

    def is_below(self, later: _Step) -> bool:
        """Whether the fraction of accepted labels is lower than on a later step."""
        # To compare accepted / labels without a division, multiply both sides by both numbers of labels.
        return self.accepted * later.labels < later.accepted * self.labels

    def merge(self, later: _Step) -> _Step:
        return _Step(self.start, self.accepted + later.accepted, self.labels + later.labels)


class _Steps(NamedTuple):
    leanings: list[float]
    fractions: list[float]

    def compute_probability(self, leaning: float) -> float:
        """Return the fraction of acceptances on a leaning's step."""
        step = max(0, bisect.bisect_right(self.leanings, leaning) - 1)
        return _clamp(self.fractions[step])


def learn_likelihood(labelled: Labelled) -> Likelihood | None:
    """Fit a curve from leanings to probabilities of acceptance.

    A leaning is how much a model tends to accept. The curve is logistic, or a step function if that fits
    better. Returns None if there are too few accepted or rejected labels.
    """
    accepted = sum(is_accepted for _, is_accepted in labelled)
    rejected = len(labelled) - accepted
    if len(labelled) < MIN_LABELS or min(accepted, rejected) < _MIN_PER_SIDE:
        return None

    ordered = sorted(labelled)
    logistic_loss = _measure_loss(_fit_logistic, ordered)
    steps_loss = _measure_loss(_fit_steps, ordered)
    if logistic_loss <= steps_loss:
        curve = _fit_logistic(ordered)
        return Likelihood(kind="platt", points=_sample_curve(curve, ordered))
    steps = _fit_steps(ordered)
    return Likelihood(kind="isotonic", points=_sample_steps(steps))


def _sample_curve(curve: _Logistic, ordered: Labelled) -> list[tuple[float, float]]:
    """Return points on the curve: its ends, and the quantiles that divide the labels into equal segments."""
    leanings = set()
    for segment in range(_SEGMENTS + 1):
        index = round((len(ordered) - 1) / _SEGMENTS * segment)
        leaning, _ = ordered[index]
        leanings.add(leaning)
    return [(leaning, round(curve.compute_probability(leaning), 4)) for leaning in sorted(leanings)]


def _sample_steps(steps: _Steps) -> list[tuple[float, float]]:
    """List the steps as points. If there are many, list only every second one, third one and so on."""
    points = []
    for leaning, fraction in zip(steps.leanings, steps.fractions, strict=True):
        probability = _clamp(fraction)
        points.append((leaning, round(probability, 4)))
    stride = max(1, len(points) // _MAX_STEPS)  # leaves fewer than twice `_MAX_STEPS`
    return points[::stride]


def _measure_loss(fit: Callable[[Labelled], _Logistic | _Steps], labelled: Labelled) -> float:
    """Compute the mean logarithmic loss of curves built by `fit`, by cross-validation.

    `labelled` has pairs of a leaning, which is how far an opinion leans towards acceptance, and whether a
    person accepted the text. The pairs are sorted by leaning.
    """
    losses = []
    for fold in range(_FOLDS):
        # Take every fifth label, so that each fold covers the whole range of leanings.
        test_labels = labelled[fold::_FOLDS]
        training_labels = list(labelled)
        del training_labels[fold::_FOLDS]

        curve = fit(training_labels)
        for leaning, is_accepted in test_labels:
            accept_probability = curve.compute_probability(leaning)
            label_probability = accept_probability if is_accepted else 1 - accept_probability
            losses.append(-log(label_probability))
    return fsum(losses) / len(losses)


def _fit_logistic(labelled: Labelled) -> _Logistic:
    """Fit a logistic curve with the least logarithmic loss, by Newton's method."""
    accepted = sum(is_accepted for _, is_accepted in labelled)
    rejected = len(labelled) - accepted
    # As Platt proposes, the targets are slightly above 0 and below 1.
    targets = {True: (accepted + 1) / (accepted + 2), False: 1 / (rejected + 2)}

    # Start from a flat curve at the acceptance rate.
    curve = _Logistic(slope=0.0, offset=log((accepted + 1) / (rejected + 1)))
    for _ in range(_MAX_ROUNDS):
        step = _compute_newton_step(_sum_derivatives(curve, labelled, targets))
        if step is None:
            break
        slope_step, offset_step = step
        curve = _Logistic(curve.slope - slope_step, curve.offset - offset_step)
        has_converged = abs(slope_step) + abs(offset_step) < _EPSILON
        if has_converged:
            break
    return curve


class _Derivatives(NamedTuple):
    """A curve's loss, derived by its slope, by its offset, by its slope twice, and so on."""

    by_slope: float
    by_offset: float
    by_slope_twice: float
    by_slope_and_offset: float
    by_offset_twice: float


def _sum_derivatives(
    curve: _Logistic, labelled: Labelled, targets: Mapping[bool, float]
) -> _Derivatives:
    """Sum the derivatives of the loss over all labels."""
    by_slope = 0.0
    by_offset = 0.0
    by_slope_twice = _EPSILON  # not 0, so that the matrix of second derivatives can be inverted
    by_slope_and_offset = 0.0
    by_offset_twice = _EPSILON
    for leaning, is_accepted in labelled:
        probability = curve.compute_probability(leaning)
        error = probability - targets[is_accepted]
        weight = probability * (1 - probability)
        by_slope += error * leaning
        by_offset += error
        by_slope_twice += weight * leaning * leaning
        by_slope_and_offset += weight * leaning
        by_offset_twice += weight
    return _Derivatives(by_slope, by_offset, by_slope_twice, by_slope_and_offset, by_offset_twice)


def _compute_newton_step(loss: _Derivatives) -> tuple[float, float] | None:
    """Multiply the gradient by the inverse of the Hessian, the matrix of second derivatives.

    Returns the steps of slope and offset, or None if the Hessian can hardly be inverted.
    """
    mixed = loss.by_slope_and_offset
    determinant = loss.by_slope_twice * loss.by_offset_twice - mixed * mixed
    if determinant < _EPSILON:
        return None
    slope_step = (loss.by_offset_twice * loss.by_slope - mixed * loss.by_offset) / determinant
    offset_step = (loss.by_slope_twice * loss.by_offset - mixed * loss.by_slope) / determinant
    return slope_step, offset_step


def _fit_steps(labelled: Labelled) -> _Steps:
    """Fit a rising step function with the least squared error. `labelled` must be sorted.

    For example, the labels 0, 1, 0, 1 become steps with the heights 0, 0.5 and 1.
    """
    steps: list[_Step] = []
    for leaning, is_accepted in labelled:
        step = _Step(leaning, accepted=float(is_accepted), labels=1)
        # Merge steps until they rise.
        while steps and not steps[-1].is_below(step):
            step = steps.pop().merge(step)
        steps.append(step)

    starts = [step.start for step in steps]
    fractions = [step.accepted / step.labels for step in steps]
    return _Steps(starts, fractions)


def _clamp(probability: float) -> float:
    """Keep a probability away from 0 and 1, because a few labels don't prove certainty."""
    return min(max(probability, _MIN_PROBABILITY), 1 - _MIN_PROBABILITY)
