"""Which opinions of which tier a calibration lets be final.

`judgekit.evaluation.calibrate` learns them from labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from judgekit.config.names import ModeName, Outcome, TierName
    from judgekit.judging.logprobs import ScoreSource
    from judgekit.rubric.schema import ScoreMode, ScoreRubric

DIGITS = 4  # of a margin: thresholds and scores are compared as they are written


class FinalityRule(NamedTuple):
    """A class of opinions that may be final: those of `tier` that say `outcome` with at least this margin.

    `after` is what the tier before it said; None stands for the first tier, and for one that failed. Where
    `stands` names a tier it is another class: the wins of that tier, from this margin on, that `tier` answers
    with a tie. They may stand.
    """

    tier: TierName
    outcome: Outcome
    least_margin: float = 0.0
    after: Outcome | None = None
    stands: TierName | None = None


@dataclass(frozen=True, slots=True)
class FinalityRules:
    """The gates of one calibration; with none at all every tier is asked for a second opinion.

    The opinion of the tier `last`, where one is named, is final too, and no tier before it is passed over.
    `read` says how the opinions of each tier's models were read that it was learned from; where that is
    known, opinions that are read otherwise are of none of its classes.
    """

    id: str = ""
    rules: tuple[FinalityRule, ...] = ()
    last: TierName | None = None
    read: frozenset[tuple[TierName, str, ScoreSource]] = frozenset()

    def knows(self, tier: TierName, heard: Iterable[tuple[str, ScoreSource]]) -> bool:
        """Whether what models of a tier said was read as it was learned from: model by model."""
        return not self.read or all((tier, model, how) in self.read for model, how in heard)

    def final(
        self, tier: TierName, seen: Mapping[TierName, Outcome | None], margins: Mapping[TierName, float]
    ) -> bool:
        """Whether the opinion of `tier`, one of those in `seen`, may be final.

        No gate lets an opinion through that has no margin in `margins`.
        """
        if seen[tier] is None:
            return False
        return tier == self.last or self._lets_through(tier, seen, margins.get(tier), None)

    def stands(
        self, tier: TierName, seen: Mapping[TierName, Outcome | None], margins: Mapping[TierName, float]
    ) -> TierName | None:
        """Return the tier whose win stands against the tie of `tier`, the next one in `seen`, if it does."""
        before = _before(tier, seen)
        if before is None or seen[before] != "accept":
            return None
        return before if self._lets_through(tier, seen, margins.get(before), before) else None

    def _lets_through(
        self,
        tier: TierName,
        seen: Mapping[TierName, Outcome | None],
        margin: float | None,
        stands: TierName | None,
    ) -> bool:
        before = _before(tier, seen)
        said = (tier, seen[tier], seen[before] if before else None, stands)
        return margin is not None and any(
            (rule.tier, rule.outcome, rule.after, rule.stands) == said and margin >= rule.least_margin
            for rule in self.rules
        )


def _before(tier: TierName, seen: Mapping[TierName, Outcome | None]) -> TierName | None:
    """Return the tier that was asked before another one."""
    tiers = list(seen)
    place = tiers.index(tier)
    return tiers[place - 1] if place else None


def margin(rubric: ScoreRubric, scores: Mapping[str, float], mode: ModeName) -> float:
    """Return how far the scores are from another outcome, in points of the rubric's scale.

    For an acceptance the least distance above a threshold, for a rejection how far the lowest score is below
    its own, for `improve` the distance to the nearer of the two.
    """
    rule: ScoreMode = getattr(rubric.modes, mode)
    values = [scores[name] for name in rubric.dimensions]
    above = [min(values) - rule.accept.each]
    if rule.accept.mean is not None:
        above.append(fmean(values) - rule.accept.mean)
    below = rule.reject.any_below - min(values)
    distance = {"accept": min(above), "reject": below, "improve": min(-below, -min(above))}
    return round(distance[rubric.decide(scores, mode)], DIGITS)


def certainty(probability: float | None) -> float:
    """Return how far the probability of a kept candidate is from one half; 0 where there is none."""
    return 0.0 if probability is None else round(abs(probability - 0.5), DIGITS)
