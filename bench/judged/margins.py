"""Chooses the margins of a rubric from labels: how close the best subjects must be to go up a tier.

Recorded scores are walked through the very rule of `judgekit.judging.ranking` under every combination of
margins, and the one is taken that is right most often for at most so many calls a subject.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from judgekit.evaluation.ranking_task import build_ranking_rules, walk_ranking
from judgekit.judging import standing
from judgekit.judging.steps import End

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.config import ModeName, TierName
    from judgekit.judging.standing import Margins, MeansByVoter

By: TypeAlias = "Mapping[TierName, MeansByVoter]"
"""What each model of each tier gave to each subject, by letter, for each time that it was asked."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """Subjects with the best of them, by letter, and the scores that every tier would give them if asked."""

    id: str
    best: str
    said: By

    @property
    def letters(self) -> list[str]:
        """The subjects."""
        first = next(iter(self.said.values()))
        return sorted({letter for scored in first.values() for letter in scored})


class Walked(NamedTuple):
    """The end of a comparison under some margins, and its number of calls, all subjects together.

    Any of `leaders` is as good as the others; there are none if scores are missing.
    """

    leaders: tuple[str, ...]
    calls: int


class Learned(NamedTuple):
    """Margins, and on the items they were learned from: the share that is right, and calls a subject."""

    margins: Margins
    accuracy: float
    calls: float


def walk(item: Ranked, margins: Margins, mode: ModeName) -> Walked:
    """Return the end of a comparison by the judge's rule, under a rubric with these margins."""
    turns = walk_ranking(item.said, build_ranking_rules(item.letters, item.said, mode), margins)
    calls = sum(turn.call_count for turn in turns)
    last = turns[-1]
    if not isinstance(last.step, End) or last.step.tier is None:
        return Walked((), calls)
    if last.step.verdict == "accept" and last.best_letter is not None:
        return Walked((last.best_letter,), calls)
    return Walked(
        _tied(last.ranked_tier.means or {}, margins.get(last.ranked_tier.tier, 0.0), mode), calls
    )


def _tied(found: Mapping[str, float], margin: float, mode: ModeName) -> tuple[str, ...]:
    return tuple(standing.list_contenders(found, margin if mode == "strict" else 0.0))


def credit(item: Ranked, walked: Walked) -> float:
    """Return 1 for the right subject, a share of it for a tie with others, 0 for a wrong one."""
    return 1 / len(walked.leaders) if item.best in walked.leaders else 0.0


def grid(steps: Mapping[TierName, Sequence[float]]) -> list[Margins]:
    """Return every combination of margins."""
    tiers = list(steps)
    return [dict(zip(tiers, each, strict=True)) for each in itertools.product(*steps.values())]


def learn(
    items: Sequence[Ranked], candidates: Sequence[Margins], mode: ModeName, most_calls: float
) -> Learned | None:
    """Return the best margins with at most `most_calls` calls a subject; the cheapest of equally good ones.

    None if no candidate is that cheap.
    """
    found = [measured(items, margins, mode) for margins in candidates]
    able = [learned for learned in found if learned.calls <= most_calls]
    return max(able, key=lambda each: (round(each.accuracy, 9), -each.calls)) if able else None


def measured(items: Sequence[Ranked], margins: Margins, mode: ModeName) -> Learned:
    """Measure margins on labelled items."""
    walks = [walk(item, margins, mode) for item in items]
    accuracy = fmean(credit(item, walked) for item, walked in zip(items, walks, strict=True))
    calls = sum(walked.calls for walked in walks) / sum(len(item.letters) for item in items)
    return Learned(margins, accuracy, calls)
