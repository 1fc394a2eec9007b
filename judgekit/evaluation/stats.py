"""How far a figure can be trusted: intervals from drawing the queries again, with replacement.

The percentile method of Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13, as
Sakai, "Evaluating evaluation metrics based on the bootstrap", SIGIR 2006, uses it for retrieval. The seed
is fixed, so an interval is reproducible, and figures over equally many queries rest on the same draws.

Whether confidences mean what they say: of what is rated 0.7, seven in ten should turn out relevant.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence


RESAMPLES = 2_000
LEVEL = 0.95
SEED = 20_020_401


@dataclass(frozen=True, slots=True)
class BootstrapInterval:
    """A figure, and between which bounds it lies in `LEVEL` of the resamples."""

    value: float
    low: float
    high: float


class Measure(NamedTuple):
    """What each query adds to the two sums of which a figure is the ratio.

    A query for which the figure means nothing adds 0 to both.
    """

    gained: Sequence[float]
    possible: Sequence[float]


def mean(values: Sequence[float]) -> Measure:
    """Return the measure whose figure is the mean of `values`, one for each query."""
    return Measure(values, [1.0] * len(values))


def interval(measure: Measure, *, resamples: int = RESAMPLES, seed: int = SEED) -> BootstrapInterval | None:
    """Return a measure's figure with its bounds; see `intervals`."""
    return intervals({"": measure}, resamples=resamples, seed=seed)[""]


def intervals(
    measures: Mapping[str, Measure], *, resamples: int = RESAMPLES, seed: int = SEED
) -> dict[str, BootstrapInterval | None]:
    """Return the figure of each measure with its bounds, all from the same draws of the same queries.

    None where there is nothing to divide by. Resamples without anything to divide by are left out. All
    measures must be over the same queries (`ValueError`).
    """
    sizes = {len(column) for measure in measures.values() for column in measure}
    if len(sizes) > 1:
        raise ValueError(f"expected measures over the same queries, got {sorted(sizes)} of them")
    figures = {name: figure for name, measure in measures.items() if (figure := _ratio(measure)) is not None}
    drawn: dict[str, list[float]] = {name: [] for name in figures}
    for draw in _draws(max(sizes, default=0), resamples, seed):
        for name, values in drawn.items():
            gained, possible = measures[name]
            below = sum(map(possible.__getitem__, draw))
            if below:
                values.append(sum(map(gained.__getitem__, draw)) / below)
    found = {name: BootstrapInterval(figures[name], *_bounds(values)) for name, values in drawn.items()}
    return {name: found.get(name) for name in measures}


def resampled(
    size: int,
    figure: Callable[[Sequence[int]], float | None],
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> BootstrapInterval | None:
    """Return any `figure` of `size` items, given by their places, with its bounds; None where it has none.

    Draws for which it has none are left out. For ratios of sums `interval` is faster.
    """
    value = figure(range(size))
    if value is None:
        return None
    drawn = [found for draw in _draws(size, resamples, seed) if (found := figure(draw)) is not None]
    return BootstrapInterval(value, *_bounds(drawn))


def difference(
    first: Sequence[float], second: Sequence[float], *, resamples: int = RESAMPLES, seed: int = SEED
) -> BootstrapInterval | None:
    """Return by how much the mean of `first` is above that of `second`, paired by query.

    Zero outside the bounds says that the two differ. Raises `ValueError` when they are not equally long.
    """
    paired = [one - other for one, other in zip(first, second, strict=True)]
    return interval(mean(paired), resamples=resamples, seed=seed)


def _draws(size: int, resamples: int, seed: int) -> Iterator[list[int]]:
    if not size:
        return
    generator = Random(seed)  # noqa: S311 - statistics, no secret
    everyone = range(size)
    for _ in range(resamples):
        yield generator.choices(everyone, k=size)


def _ratio(measure: Measure) -> float | None:
    below = sum(measure.possible)
    return sum(measure.gained) / below if below else None


def _bounds(values: list[float]) -> tuple[float, float]:
    values.sort()
    outside = (1 - LEVEL) / 2
    last = len(values) - 1
    return values[round(outside * last)], values[round((1 - outside) * last)]


BINS = 10

Key = TypeVar("Key", bound="Hashable")


@dataclass(frozen=True, slots=True)
class Bin:
    """The hits whose probability is in `low` (included) to `high` (excluded, unless it is 1).

    `confidence` is the mean probability of these `count` hits, `relevant` the share that turned out true.
    """

    low: float
    high: float
    count: int
    confidence: float
    relevant: float


@dataclass(frozen=True, slots=True)
class LabelGroup:
    """The hits of one label, as in `Bin`."""

    label: str
    count: int
    confidence: float
    relevant: float


def brier(probabilities: Sequence[float], outcomes: Sequence[bool]) -> float | None:
    """Return the mean squared difference of probability and outcome: 0 is perfect, None without any.

    Always saying the overall share s gives s(1 - s). Brier, "Verification of forecasts expressed in terms of
    probability", Monthly Weather Review 78(1), 1950, in the form for two outcomes.
    """
    errors = [(probability - true) ** 2 for probability, true in zip(probabilities, outcomes, strict=True)]
    return sum(errors) / len(errors) if errors else None


def ece(probabilities: Sequence[float], outcomes: Sequence[bool], bins: int = BINS) -> float | None:
    """Return the expected calibration error: 0 is perfect, None without any hit.

    The mean over the hits of how far the share that is true lies from the mean probability in their bin
    (see `table`). Naeini, Cooper and Hauskrecht, "Obtaining well calibrated probabilities using Bayesian
    binning", AAAI 2015.
    """
    if not probabilities:
        return None
    found = table(probabilities, outcomes, bins)
    return sum(each.count * abs(each.relevant - each.confidence) for each in found) / len(probabilities)


def table(probabilities: Sequence[float], outcomes: Sequence[bool], bins: int = BINS) -> list[Bin]:
    """Return the bins, of equal width, that hold any hit, lowest first: a reliability diagram in numbers."""
    groups = _grouped(probabilities, outcomes, lambda place: min(int(probabilities[place] * bins), bins - 1))
    return [Bin(number / bins, (number + 1) / bins, *groups[number]) for number in sorted(groups)]


def by_label(
    labels: Sequence[str], probabilities: Sequence[float], outcomes: Sequence[bool]
) -> list[LabelGroup]:
    """Return the hits of each label, the most confident label first."""
    groups = _grouped(probabilities, outcomes, labels.__getitem__)
    found = [LabelGroup(label, *sums) for label, sums in groups.items()]
    return sorted(found, key=lambda group: -group.confidence)


def _grouped(
    probabilities: Sequence[float], outcomes: Sequence[bool], key: Callable[[int], Key]
) -> dict[Key, tuple[int, float, float]]:
    """Return count, mean probability and share that is true of the hits by `key` of their place."""
    members: dict[Key, list[tuple[float, bool]]] = {}
    for place, pair in enumerate(zip(probabilities, outcomes, strict=True)):
        members.setdefault(key(place), []).append(pair)
    return {
        name: (len(each), sum(one for one, _ in each) / len(each), sum(true for _, true in each) / len(each))
        for name, each in members.items()
    }
