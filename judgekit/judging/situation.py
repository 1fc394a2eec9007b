"""The evidence and rules of a judging, as the rows of the escalation table see them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from judgekit.config import TIERS, TierName
from judgekit.judging.steps import End

if TYPE_CHECKING:
    from collections.abc import Collection

    from judgekit.config import Outcome
    from judgekit.judging.evidence import Evidence, TierEvidence
    from judgekit.judging.finality import FinalityRules
    from judgekit.judging.steps import EscalationRules
    from judgekit.judging.verdict import VerdictWord


@dataclass(frozen=True)
class Situation:
    """Everything known when deciding whether to go on."""

    evidence: Evidence
    rules: EscalationRules

    @cached_property
    def outcomes(self) -> dict[TierName, Outcome | None]:
        """The outcome of each tier so far, or None if it failed or leaves the decision to another tier."""
        outcomes: dict[TierName, Outcome | None] = {}
        for tier, evidence in self.evidence.items():
            # Another tier can settle the disagreement of a divided jury.
            is_left_open = evidence.is_divided and not self.is_last_word(tier)
            outcomes[tier] = None if is_left_open else evidence.outcome
        return outcomes

    @cached_property
    def margins(self) -> dict[TierName, float]:
        """The distance of each tier's opinion from another outcome, which a calibration's gates may use."""
        margins = {}
        for tier, evidence in self.evidence.items():
            if evidence.margin is not None:
                margins[tier] = evidence.margin
        return margins

    @property
    def leanings(self) -> dict[TierName, float]:
        """The signed distance of decision models' opinions from the other outcome, by tier, if known."""
        leanings = {}
        for tier, evidence in self.evidence.items():
            if evidence.leaning is not None:
                leanings[tier] = evidence.leaning
        return leanings

    @property
    def quick(self) -> Outcome | None:
        return self.outcomes.get("quick") if self.rules.tiers[0] == "quick" else None

    @property
    def deep(self) -> Outcome | None:
        return self.outcomes.get("deep")

    @property
    def third(self) -> Outcome | None:
        return self.outcomes.get("tiebreaker")

    @property
    def first_two(self) -> set[Outcome]:
        """The outcomes of quick and deep, unless they failed."""
        return {outcome for outcome in (self.quick, self.deep) if outcome is not None}

    @property
    def latest_tier(self) -> TierName:
        return list(self.evidence)[-1]

    @property
    def latest(self) -> TierEvidence:
        return self.evidence[self.latest_tier]

    def can_ask(self, tier: TierName) -> bool:
        return tier in self.rules.tiers and tier not in self.evidence

    def is_last_word(self, tier: TierName) -> bool:
        """Whether no later tier can settle a disagreement in this tier's jury."""
        if tier == self.rules.tiers[-1]:
            return True
        # A tiebreaker without a new model would only repeat other opinions, so it isn't used.
        return tier == "deep" and not self.has_third_voice

    @property
    def has_third_voice(self) -> bool:
        """Whether the tiebreaker has a model that no other tier has, or its models are unknown."""
        if "tiebreaker" not in self.rules.tiers:
            return False
        quick, deep, third = self.models_by_tier
        new_models = third - quick - deep
        return not third or bool(new_models)

    @property
    def models_by_tier(self) -> list[set[str]]:
        return [set(self.rules.models.get(tier, ())) for tier in TIERS]

    def is_unexplained(self, tier: TierName, outcome: VerdictWord) -> bool:
        """Whether this outcome needs reasons that the tier doesn't give."""
        if self.evidence[tier].gives_reasons:
            return False
        return outcome == "improve" or (outcome == "reject" and self.rules.explains)

    def is_weak(self, tier: TierName) -> bool:
        """Whether another model should confirm a tier's opinion.

        That's if it comes from the winner's own family, lacks reasons, or is close to another outcome.
        """
        evidence = self.evidence[tier]
        if evidence.is_own_family or self.lacks_reasons(tier):
            return True
        # If there's a calibration, its gates have already considered the margin to another outcome.
        if self.rules.finality is not None or evidence.margin is None:
            return False
        return evidence.margin < self.rules.margin

    def lacks_reasons(self, tier: TierName) -> bool:
        """Whether a tier's outcome is "improve" without any reasons."""
        let_through = self.let_through
        # If a calibration makes "improve" final without reasons, these must come from a tier that writes.
        # The opinions of other decision models don't matter.
        if let_through is not None and self.calibrated_end is None:
            return tier in self.rules.deciding
        evidence = self.evidence[tier]
        return evidence.outcome == "improve" and not evidence.gives_reasons

    @cached_property
    def let_through(self) -> End | None:
        """The result of the first opinion that a calibration makes final, or None if no opinion is."""
        finality = self.rules.finality
        is_only_tier = len(self.rules.tiers) == 1 and self.rules.task != "ranking"
        if finality is None or is_only_tier:
            return None

        for tier in self.rules.tiers:
            if tier not in self.evidence:
                return None
            outcome = self._find_final_outcome(finality, tier)
            if outcome is None:
                continue
            evidence = self.evidence[tier]
            # A model that saw only the start of a text can reject it, but not accept it.
            is_acceptance_cut = outcome == "accept" and not evidence.sees_all
            if not is_acceptance_cut and not evidence.is_own_family:
                do_all_agree = len(self.outcomes) > 1 and set(self.outcomes.values()) == {outcome}
                return End(outcome, "unanimous" if do_all_agree else "single", tier)
        return None

    def _find_final_outcome(self, finality: FinalityRules, tier: TierName) -> Outcome | None:
        """Return the outcome that a calibration makes final for a tier, or None."""
        outcome = self.outcomes[tier]
        if outcome is None:
            return None
        # Rules for leanings take precedence over margins, and can give another outcome than the scores.
        if finality.has_leaning_rule(tier):
            outcome_by_leaning = finality.decided(tier, self.leanings)
            if outcome_by_leaning is not None:
                return outcome_by_leaning
        if finality.final(tier, self.outcomes, self.margins):
            return outcome
        return None

    @property
    def calibrated_end(self) -> End | None:
        """The result (end) of the first opinion that a calibration makes final, unless it lacks reasons."""
        end = self.let_through
        if end is None or end.tier is None:
            return end
        if end.verdict == "improve" and self.is_unexplained(end.tier, "improve"):
            return None
        return end

    @property
    def tier_for_reasons(self) -> TierName | None:
        """The first tier of models that write, and so can give reasons, unless it failed."""
        for tier in self.rules.tiers:
            if tier in self.rules.deciding:
                continue
            if tier not in self.evidence or self.evidence[tier].outcome is not None:
                return tier
        return None

    def tiers_for(self, outcome: VerdictWord) -> set[TierName]:
        return {tier for tier, word in self.outcomes.items() if word == outcome}

    def has_seen_all(self, tiers: Collection[TierName]) -> bool:
        return any(self.evidence[tier].sees_all for tier in tiers)

    # For rankings

    @property
    def complete(self) -> list[TierEvidence]:
        """The evidence of tiers with enough answers."""
        return [evidence for evidence in self.evidence.values() if evidence.standing]

    @property
    def next_tier(self) -> TierName | None:
        """The next tier of a ranking, or None."""
        tiers = self.rules.tiers
        later_tiers = tiers[tiers.index(self.latest_tier) + 1 :]
        if not later_tiers:
            return None
        next_tier = later_tiers[0]
        # Skip a tiebreaker whose models have all answered before, because it would only repeat their scores.
        deep = self.evidence.get("deep")
        if next_tier == "tiebreaker" and deep is not None and deep.standing:
            latest_standing = self.complete[-1].standing
            models = set(self.rules.models.get(next_tier, ()))
            if latest_standing is not None and models <= latest_standing.heard:
                return None
        return next_tier

    @property
    def contenders(self) -> tuple[str, ...]:
        """The subjects that the next tier compares: initially all, later those near the best."""
        if not self.complete:
            return self.rules.letters
        standing = self.complete[-1].standing
        if standing is None:
            return self.rules.letters
        count = max(standing.near, 2)
        return standing.order[:count]
