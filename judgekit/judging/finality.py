"""Which opinions may be final by a calibration: its gates, learned by `judgekit.evaluation.calibrate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeAlias

from pydantic import Field

from judgekit.config import Outcome, TierName
from judgekit.config.yamlfile import Strict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from judgekit.judging.score_source import ScoreSource

DIGITS = 4  # of a margin: thresholds and scores are compared as they are written
Seen: TypeAlias = "Mapping[TierName, Outcome | None]"
"""The outcome of each tier that was asked, in order; None for a round that failed."""


class FinalityRule(Strict):
    """Which opinions of a tier may be final."""

    tier: TierName
    outcome: Outcome
    after: Outcome | None = None
    least_margin: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    stands: TierName | None = Field(
        default=None, description="instead: the wins of this tier that `tier` answers with a tie"
    )
    leaning: Annotated[float, Field(allow_inf_nan=False)] | None = Field(
        default=None,
        exclude_if=lambda leaning: leaning is None,
        description="instead of a margin: of a decision model, how far on the side of the outcome it is",
    )


@dataclass(frozen=True, slots=True)
class FinalityRules:
    """The rules of one calibration."""

    id: str = ""
    rules: tuple[FinalityRule, ...] = ()
    last: TierName | None = None
    """The tier whose opinion is the last word, if one is."""
    read: frozenset[tuple[TierName, str, ScoreSource]] = frozenset()
    """How the opinions of each tier's models were read; empty where that does not matter."""
    answered: frozenset[tuple[TierName, str, str]] = frozenset()
    """Which model answered as each that was asked, by tier; empty where that does not matter."""

    def knows(self, tier: TierName, sources: Iterable[tuple[str, ScoreSource]]) -> bool:
        """Whether the calibration was learned from opinions that were read in these ways, by model."""
        return not self.read or all((tier, model, how) in self.read for model, how in sources)

    def find_other_model(self, tier: TierName, answers: Iterable[tuple[str, str]]) -> str:
        """Say that another model answered than those of which the rules were learned; "" if none did.

        `answers` are the names that were asked and that answered.
        """
        for asked, answered in answers:
            then = {name for place, model, name in self.answered if (place, model) == (tier, asked)}
            if then and answered not in then:
                names = " and ".join(sorted(then))
                return f"it was made for {names} as {tier}, and {answered} answers as {asked} now"
        return ""

    def has_rule(self, tier: TierName, outcome: Outcome) -> bool:
        """Whether opinions of a tier with this outcome may be final."""
        return any(rule.tier == tier and rule.outcome == outcome for rule in self.rules)

    def has_leaning_rule(self, tier: TierName) -> bool:
        """Whether opinions of a tier are final by their leaning, whatever the outcome of its scores."""
        return any(rule.tier == tier and rule.leaning is not None for rule in self.rules)

    def decided(self, tier: TierName, leanings: Mapping[TierName, float]) -> Outcome | None:
        """Return the outcome that the leaning of a tier is far enough on the side of, if any."""
        if tier not in leanings:
            return None
        for rule in self.rules:
            if rule.tier != tier or rule.leaning is None:
                continue
            if towards(rule.outcome, leanings[tier]) >= rule.leaning:
                return rule.outcome
        return None

    def final(self, tier: TierName, seen: Seen, margins: Mapping[TierName, float]) -> bool:
        """Whether the opinion of a tier is final: as the last word, or because a rule lets it through."""
        if seen[tier] is None:
            return False
        return tier == self.last or self._allows(tier, seen, margins.get(tier), stands=None)

    def stands(
        self, tier: TierName, seen: Seen, margins: Mapping[TierName, float]
    ) -> TierName | None:
        """Return the tier before `tier` if its win stands against the tie of `tier`; else None."""
        before = _tier_before(tier, seen)
        if before is None or seen[before] != "accept":
            return None
        if self._allows(tier, seen, margins.get(before), stands=before):
            return before
        return None

    def _allows(
        self, tier: TierName, seen: Seen, margin: float | None, *, stands: TierName | None
    ) -> bool:
        """Whether a rule for such an opinion of `tier` asks for no larger margin.

        The margin is that of the opinion, or of the win that `stands` against it. None is no margin.
        """
        if margin is None:
            return False
        before = _tier_before(tier, seen)
        after = seen[before] if before else None
        for rule in self.rules:
            if rule.leaning is not None:
                continue
            is_for_opinion = (rule.tier, rule.outcome, rule.after) == (tier, seen[tier], after)
            if is_for_opinion and rule.stands == stands and margin >= rule.least_margin:
                return True
        return False


def _tier_before(tier: TierName, seen: Seen) -> TierName | None:
    """Return the tier that was asked before another one; None where that is the first."""
    tiers = list(seen)
    if tiers[0] == tier:
        return None
    return tiers[tiers.index(tier) - 1]


def towards(outcome: Outcome, leaning: float) -> float:
    """Return how far a leaning is on the side of an acceptance, or of a rejection."""
    return leaning if outcome == "accept" else -leaning
