"""How far a figure can be trusted: intervals from drawing the queries again, with replacement.

The percentile method of Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13, as
Sakai, "Evaluating evaluation metrics based on the bootstrap", SIGIR 2006, uses it for retrieval. The seed is
fixed, so an interval is reproducible, and figures over equally many queries rest on the same draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

RESAMPLES = 2_000
LEVEL = 0.95
SEED = 20_020_401


@dataclass(frozen=True, slots=True)
class Interval:
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


def interval(measure: Measure, *, resamples: int = RESAMPLES, seed: int = SEED) -> Interval | None:
    """Return a measure's figure with its bounds; see `intervals`."""
    return intervals({"": measure}, resamples=resamples, seed=seed)[""]


def intervals(
    measures: Mapping[str, Measure], *, resamples: int = RESAMPLES, seed: int = SEED
) -> dict[str, Interval | None]:
    """Return the figure of each measure with its bounds, all from the same draws of the same queries.

    None where there is nothing to divide by. Resamples without anything to divide by are left out. All
    measures must be over the same queries (`ValueError`).
    """
    sizes = {len(column) for measure in measures.values() for column in measure}
    if len(sizes) > 1:
        raise ValueError(f"expected measures over the same queries, got {sorted(sizes)} of them")
    figures = {name: figure for name, each in measures.items() if (figure := _ratio(each)) is not None}
    drawn: dict[str, list[float]] = {name: [] for name in figures}
    for draw in _draws(max(sizes, default=0), resamples, seed):
        for name, values in drawn.items():
            gained, possible = measures[name]
            below = sum(map(possible.__getitem__, draw))
            if below:
                values.append(sum(map(gained.__getitem__, draw)) / below)
    found = {name: Interval(figures[name], *_bounds(values)) for name, values in drawn.items()}
    return {name: found.get(name) for name in measures}


def resampled(
    size: int,
    figure: Callable[[Sequence[int]], float | None],
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Interval | None:
    """Return any `figure` of `size` items, given by their places, with its bounds; None where it has none.

    Draws for which it has none are left out. For ratios of sums `interval` is faster.
    """
    value = figure(range(size))
    if value is None:
        return None
    drawn = [found for draw in _draws(size, resamples, seed) if (found := figure(draw)) is not None]
    return Interval(value, *_bounds(drawn))


def difference(
    first: Sequence[float], second: Sequence[float], *, resamples: int = RESAMPLES, seed: int = SEED
) -> Interval | None:
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
