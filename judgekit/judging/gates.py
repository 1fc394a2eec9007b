"""Which opinions of which tier a calibration lets be final; `judgekit.calibrate` learns them from labels."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.rubric import ModeName, Outcome, ScoreMode, ScoreRubric, TierName

DIGITS = 4  # of a margin: thresholds and scores are compared as they are written


class Gate(NamedTuple):
    """A class of opinions that may be final: those of `tier` that say `outcome` with at least this margin.

    `after` is what the tier before it said; None stands for the first tier, and for one that failed.
    """

    tier: TierName
    outcome: Outcome
    least_margin: float = 0.0
    after: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Gates:
    """The gates of one calibration; with none at all every tier is asked for a second opinion.

    The opinion of the tier `last`, where one is named, is final too, and no tier before it is passed over.
    """

    id: str = ""
    gates: tuple[Gate, ...] = ()
    last: TierName | None = None

    def final(
        self, tier: TierName, seen: Mapping[TierName, Outcome | None], margins: Mapping[TierName, float]
    ) -> bool:
        """Whether the opinion of `tier`, one of those in `seen`, may be final."""
        outcome = seen[tier]
        if outcome is None:
            return False
        if tier == self.last:
            return True
        before = list(seen)[: list(seen).index(tier)]
        after = seen[before[-1]] if before else None
        margin = margins.get(tier, 0.0)
        return any(
            (gate.tier, gate.outcome, gate.after) == (tier, outcome, after) and margin >= gate.least_margin
            for gate in self.gates
        )


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
