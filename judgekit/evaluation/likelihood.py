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

LEAST = 20  # labels for a curve
_LEAST_OF_SIDE = 2  # labels that accept, and as many that don't
_FOLDS = 5
_ROUNDS = 100
_LEAST_DOUBT = 1e-3  # no probability counts as surer than this
_FLAT = 1e-9  # a slope or step below this counts as none
_MOST_STEPS = 50  # in a file, roughly
_PIECES = 10  # into which a file splits a logistic curve, with equally many labels each

Labelled: TypeAlias = "Sequence[tuple[float, bool]]"
"""Leanings, each with whether its label accepts."""


class _Logistic(NamedTuple):
    slope: float
    offset: float

    def at(self, leaning: float) -> float:
        """Compute the probability of an acceptance at a leaning."""
        exponent = self.slope * leaning + self.offset
        exponent = max(-30.0, min(30.0, exponent))
        return _keep_unsure(1 / (1 + exp(-exponent)))


class _Steps(NamedTuple):
    leanings: list[float]
    shares: list[float]

    def at(self, leaning: float) -> float:
        """Return the share of acceptances on the step that a leaning falls on."""
        step = max(0, bisect.bisect_right(self.leanings, leaning) - 1)
        return _keep_unsure(self.shares[step])


def learn_likelihood(labelled: Labelled) -> Likelihood | None:
    """Choose the better of two curves; None if there are too few labels, or too few accepts or rejects."""
    accepted = sum(is_accepted for _, is_accepted in labelled)
    rejected = len(labelled) - accepted
    if len(labelled) < LEAST or min(accepted, rejected) < _LEAST_OF_SIDE:
        return None
    ordered = sorted(labelled)
    if _measure_loss(_fit_logistic, ordered) <= _measure_loss(_fit_steps, ordered):
        points = _sample_curve(_fit_logistic(ordered), ordered)
        return Likelihood(kind="platt", points=points)
    points = _sample_steps(_fit_steps(ordered))
    return Likelihood(kind="isotonic", points=points)


def _sample_curve(curve: _Logistic, ordered: Labelled) -> list[tuple[float, float]]:
    """Take points of the curve at leanings with equal numbers of labels between them, and at both ends."""
    leanings = set()
    for piece in range(_PIECES + 1):
        index = round((len(ordered) - 1) / _PIECES * piece)
        leaning, _ = ordered[index]
        leanings.add(leaning)
    return [(leaning, round(curve.at(leaning), 4)) for leaning in sorted(leanings)]


def _sample_steps(steps: _Steps) -> list[tuple[float, float]]:
    """List the steps as points. If there are very many, take only every second, every third and so on."""
    points = []
    for leaning, share in zip(steps.leanings, steps.shares, strict=True):
        points.append((leaning, round(_keep_unsure(share), 4)))
    stride = max(1, len(points) // _MOST_STEPS)
    return points[::stride]


def _measure_loss(fit: Callable[[Labelled], _Logistic | _Steps], labelled: Labelled) -> float:
    """Compute the mean logarithmic loss of a curve on labels that it wasn't fitted to (cross-validation)."""
    losses = []
    for fold in range(_FOLDS):
        training_labels = list(labelled)
        del training_labels[fold::_FOLDS]
        curve = fit(training_labels)
        for leaning, is_accepted in labelled[fold::_FOLDS]:
            share = curve.at(leaning)
            losses.append(-log(share if is_accepted else 1 - share))
    return fsum(losses) / len(losses)


def _fit_logistic(labelled: Labelled) -> _Logistic:
    """Fit the logistic curve of least loss, by Newton's method.

    In each round, the gradient and the matrix of second derivatives give a step for the slope and a step
    for the offset. The matrix is `slope_slope`, `slope_offset` and `offset_offset`.
    """
    accepted = sum(is_accepted for _, is_accepted in labelled)
    rejected = len(labelled) - accepted
    # Platt's smoothed targets, and his starting curve: flat, at the share of acceptances.
    targets = {True: (accepted + 1) / (accepted + 2), False: 1 / (rejected + 2)}
    curve = _Logistic(slope=0.0, offset=log((accepted + 1) / (rejected + 1)))
    for _ in range(_ROUNDS):
        slope_gradient = 0.0
        offset_gradient = 0.0
        slope_slope = _FLAT  # not 0, so that the matrix can be inverted
        slope_offset = 0.0
        offset_offset = _FLAT
        for leaning, is_accepted in labelled:
            share = curve.at(leaning)
            error = share - targets[is_accepted]
            weight = share * (1 - share)
            slope_gradient += error * leaning
            offset_gradient += error
            slope_slope += weight * leaning * leaning
            slope_offset += weight * leaning
            offset_offset += weight

        determinant = slope_slope * offset_offset - slope_offset * slope_offset
        if determinant < _FLAT:
            break
        slope_step = (offset_offset * slope_gradient - slope_offset * offset_gradient) / determinant
        offset_step = (slope_slope * offset_gradient - slope_offset * slope_gradient) / determinant
        curve = _Logistic(curve.slope - slope_step, curve.offset - offset_step)
        if abs(slope_step) + abs(offset_step) < _FLAT:
            break
    return curve


def _fit_steps(labelled: Labelled) -> _Steps:
    """Fit rising steps with the least squared error, by merging neighbouring steps that don't rise."""
    starts = []
    sums = []
    counts = []
    for leaning, is_accepted in labelled:
        starts.append(leaning)
        sums.append(float(is_accepted))
        counts.append(1)
        # In other words: while the last step's share isn't above that of the step before.
        while len(sums) > 1 and sums[-2] * counts[-1] >= sums[-1] * counts[-2]:
            last_sum = sums.pop()
            sums[-1] += last_sum
            last_count = counts.pop()
            counts[-1] += last_count
            starts.pop()
    shares = [total / count for total, count in zip(sums, counts, strict=True)]
    return _Steps(starts, shares)


def _keep_unsure(share: float) -> float:
    """Keep a probability away from 0 and 1, of which a few labels can't make anybody sure."""
    return min(max(share, _LEAST_DOUBT), 1 - _LEAST_DOUBT)
