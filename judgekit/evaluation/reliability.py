"""Whether confidences mean what they say: of what is rated 0.7, seven in ten should turn out relevant.

Everything takes probabilities (0..1) and, in the same order, what turned out true.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

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
class Group:
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


def by_label(labels: Sequence[str], probabilities: Sequence[float], outcomes: Sequence[bool]) -> list[Group]:
    """Return the hits of each label, the most confident label first."""
    groups = _grouped(probabilities, outcomes, labels.__getitem__)
    found = [Group(label, *sums) for label, sums in groups.items()]
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
