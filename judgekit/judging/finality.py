"""Which opinions a calibration makes final: its gates, learned by `judgekit.evaluation.calibrate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeAlias

from pydantic import Field

from judgekit.config import Outcome, TierName
from judgekit.config.yamlfile import Strict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from judgekit.judging.score_source import ScoreSource

MARGIN_DECIMALS = 4  # of a margin, so that thresholds and scores are compared as they're written
Seen: TypeAlias = "Mapping[TierName, Outcome | None]"
"""The outcome of each tier asked, in order; None for a failed round."""


class FinalityRule(Strict):
    """A class of a tier's opinions that may be final."""

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
    last_tier: TierName | None = None
    """The tier whose opinion is always final, if there is one."""
    score_sources: frozenset[tuple[TierName, str, ScoreSource]] = frozenset()
    """How each tier's models' opinions were read; empty if that doesn't matter."""
    answering_models: frozenset[tuple[TierName, str, str]] = frozenset()
    """The model that answered under each name, by tier; empty if that doesn't matter."""

    def knows(self, tier: TierName, sources: Iterable[tuple[str, ScoreSource]]) -> bool:
        """Whether the calibration covers a tier's opinions, given how each model's were read."""
        if not self.score_sources:  # an older calibration covers all
            return True
        return all((tier, model, source) in self.score_sources for model, source in sources)

    def find_other_model(self, tier: TierName, answers: Iterable[tuple[str, str]]) -> str:
        """Return a message if a different model answers now than when the calibration was made, or "".

        `answers` contains pairs of a requested model name and the name in the reply.
        """
        for asked_name, answering_name in answers:
            earlier_names = self._list_earlier_names(tier, asked_name)
            if not earlier_names:  # nothing to compare with
                continue
            if answering_name not in earlier_names:
                made_for = f"it was made for {' and '.join(earlier_names)} as {tier}"
                return f"{made_for}, and {answering_name} answers as {asked_name} now"
        return ""

    def _list_earlier_names(self, tier: TierName, asked_name: str) -> list[str]:
        """List the names of the models that answered for `asked_name` when the calibration was made."""
        earlier_names = set()
        for earlier_tier, earlier_asked_name, answering_name in self.answering_models:
            if earlier_tier == tier and earlier_asked_name == asked_name:
                earlier_names.add(answering_name)
        return sorted(earlier_names)

    def has_rule(self, tier: TierName, outcome: Outcome) -> bool:
        """Whether a tier's opinions with this outcome can be final."""
        return any(rule.tier == tier and rule.outcome == outcome for rule in self.rules)

    def has_leaning_rule(self, tier: TierName) -> bool:
        """Whether a tier's opinions can be final by their leaning, regardless of their scores."""
        return any(rule.tier == tier and rule.leaning is not None for rule in self.rules)

    def find_decided_outcome(
        self, tier: TierName, leanings: Mapping[TierName, float]
    ) -> Outcome | None:
        """Return the outcome that a decision model leans to far enough, or None.

        The calibration's rules say how far that is.
        """
        if tier not in leanings:
            return None
        for rule in self.rules:
            if rule.tier != tier or rule.leaning is None:
                continue
            is_enough = measure_distance_towards(rule.outcome, leanings[tier]) >= rule.leaning
            if is_enough:
                return rule.outcome
        return None

    def is_final(self, tier: TierName, seen: Seen, margins: Mapping[TierName, float]) -> bool:
        """Whether a tier's opinion is final."""
        if seen[tier] is None:
            return False
        return tier == self.last_tier or self._allows(tier, seen, margins.get(tier), stands=None)

    def stands(
        self, tier: TierName, seen: Seen, margins: Mapping[TierName, float]
    ) -> TierName | None:
        """Return the previous tier if the calibration upholds its win against a tie of `tier`, or None."""
        previous_tier = _find_tier_before(tier, seen)
        if previous_tier is None:
            return None
        has_winner = seen[previous_tier] == "accept"
        if not has_winner:
            return None

        # All rules with `stands` are for ties, so there's no need to check that `tier` sees one.
        winning_margin = margins.get(previous_tier)
        if self._allows(tier, seen, winning_margin, stands=previous_tier):
            return previous_tier
        return None

    def _allows(
        self, tier: TierName, seen: Seen, margin: float | None, *, stands: TierName | None
    ) -> bool:
        """Whether one of the calibration's rules is for this case, and the margin is large enough for it.

        `seen` contains the outcomes by tier. `stands` is the previous tier, if the question is whether to
        uphold its outcome instead of the one of `tier`.
        """
        if margin is None:
            return False
        tier_before = _find_tier_before(tier, seen)
        outcome_before = seen[tier_before] if tier_before else None
        case = (tier, seen[tier], outcome_before, stands)
        for rule in self.rules:
            is_for_leanings = rule.leaning is not None
            if is_for_leanings:  # such rules aren't about margins
                continue
            rule_case = (rule.tier, rule.outcome, rule.after, rule.stands)
            if rule_case == case and margin >= rule.least_margin:
                return True
        return False


def _find_tier_before(tier: TierName, seen: Seen) -> TierName | None:
    """Return the tier that was asked before `tier`, or None if that was the first."""
    tiers = list(seen)
    position = tiers.index(tier)
    if position == 0:
        return None
    return tiers[position - 1]


def measure_distance_towards(outcome: Outcome, leaning: float) -> float:
    """Return a leaning's distance towards an outcome, which is negative on the other side."""
    if outcome == "accept":
        return leaning
    return -leaning
