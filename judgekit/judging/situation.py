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
    from judgekit.judging.verdict import Consensus, VerdictWord


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
        """The leaning of each tier of decision models, if known.

        It's how far the tier's opinion is beyond the line to an acceptance, or negative if it's short of it.
        """
        leanings = {}
        for tier, evidence in self.evidence.items():
            if evidence.leaning is not None:
                leanings[tier] = evidence.leaning
        return leanings

    @property
    def quick_outcome(self) -> Outcome | None:
        return self.outcomes.get("quick") if self.rules.tiers[0] == "quick" else None

    @property
    def deep_outcome(self) -> Outcome | None:
        return self.outcomes.get("deep")

    @property
    def third_outcome(self) -> Outcome | None:
        return self.outcomes.get("tiebreaker")

    @property
    def first_two_outcomes(self) -> set[Outcome]:
        """The outcomes of quick and deep, unless they failed."""
        return {
            outcome for outcome in (self.quick_outcome, self.deep_outcome) if outcome is not None
        }

    @property
    def latest_tier(self) -> TierName:
        return list(self.evidence)[-1]

    @property
    def latest_evidence(self) -> TierEvidence:
        return self.evidence[self.latest_tier]

    def can_ask(self, tier: TierName) -> bool:
        return tier in self.rules.tiers and tier not in self.evidence

    def is_last_word(self, tier: TierName) -> bool:
        """Whether no later tier can settle a disagreement in this tier's jury."""
        if tier == self.rules.tiers[-1]:
            return True
        # A tiebreaker without a new model would only repeat opinions. It isn't used, so deep is the last.
        return tier == "deep" and not self.has_third_voice

    @property
    def has_third_voice(self) -> bool:
        """Whether the tiebreaker has a model that no other tier has, or its models are unknown."""
        if "tiebreaker" not in self.rules.tiers:
            return False
        quick_models, deep_models, tiebreaker_models = self.models_by_tier
        are_models_unknown = not tiebreaker_models
        new_models = tiebreaker_models - quick_models - deep_models
        return are_models_unknown or bool(new_models)

    @property
    def models_by_tier(self) -> list[set[str]]:
        return [set(self.rules.models.get(tier, ())) for tier in TIERS]

    def is_unexplained(self, tier: TierName, outcome: VerdictWord) -> bool:
        """Whether this outcome needs reasons that the tier doesn't give."""
        if self.evidence[tier].gives_reasons:
            return False
        return outcome == "improve" or (outcome == "reject" and self.rules.needs_reasons)

    def is_weak(self, tier: TierName) -> bool:
        """Whether another model should confirm a tier's opinion.

        An opinion is weak if it lacks reasons or is close to another outcome, or if only models of the
        winner's own family came to it.
        """
        evidence = self.evidence[tier]
        if evidence.is_own_family or self.lacks_reasons(tier):
            return True

        has_calibration = self.rules.finality is not None
        if has_calibration:  # its gates have already considered the margin to another outcome
            return False
        if evidence.margin is None:
            return False
        return evidence.margin < self.rules.margin

    def lacks_reasons(self, tier: TierName) -> bool:
        """Whether a tier's outcome is "improve" without any reasons."""
        # If a calibration makes "improve" final but nobody has given reasons, there's no calibrated end yet.
        waits_for_reasons = self.let_through_end is not None and self.calibrated_end is None
        if waits_for_reasons:
            return tier in self.rules.deciding_tiers  # decision models give no reasons

        evidence = self.evidence[tier]
        return evidence.outcome == "improve" and not evidence.gives_reasons

    @cached_property
    def let_through_end(self) -> End | None:
        """The result of the first opinion that a calibration makes final, or None if no opinion is."""
        finality = self.rules.finality
        # In the table, an only tier decides without a calibration. Rankings have no such row.
        decides_alone = len(self.rules.tiers) == 1 and self.rules.task != "ranking"
        if finality is None or decides_alone:
            return None

        for tier in self.rules.tiers:
            if tier not in self.evidence:  # neither this tier nor a later one was asked
                return None
            outcome = self._find_final_outcome(finality, tier)
            if outcome is not None and self._can_end(tier, outcome):
                return End(outcome, self._find_consensus(outcome), tier)
        return None

    def _can_end(self, tier: TierName, outcome: Outcome) -> bool:
        """Whether a tier may end the judging with this outcome."""
        evidence = self.evidence[tier]
        # A model that saw only the start of a text can reject it, but not accept it.
        has_seen_enough = evidence.sees_whole_text or outcome != "accept"
        return has_seen_enough and not evidence.is_own_family

    def _find_consensus(self, outcome: Outcome) -> Consensus:
        """Return "unanimous" if several tiers were asked and all have this outcome, otherwise "single"."""
        outcomes = self.outcomes.values()
        do_all_agree = all(other == outcome for other in outcomes)
        return "unanimous" if len(outcomes) > 1 and do_all_agree else "single"

    def _find_final_outcome(self, finality: FinalityRules, tier: TierName) -> Outcome | None:
        """Return the outcome that a calibration makes final for a tier, or None."""
        outcome = self.outcomes[tier]
        if outcome is None:
            return None

        # A rule about the leaning comes first. It can make another outcome final than that of the scores.
        outcome_by_leaning = None
        if finality.has_leaning_rule(tier):
            outcome_by_leaning = finality.find_decided_outcome(tier, self.leanings)
        if outcome_by_leaning is not None:
            return outcome_by_leaning

        # A rule about the margin can only make the tier's own outcome final.
        is_final_by_margin = finality.is_final(tier, self.outcomes, self.margins)
        return outcome if is_final_by_margin else None

    @property
    def calibrated_end(self) -> End | None:
        """The end of the judging by the first opinion that a calibration makes final.

        None if no opinion is final, or if it's "improve" without reasons.
        """
        end = self.let_through_end
        # An end by a calibration always has a tier, but the type checker can't know that.
        if end is None or end.tier is None:
            return end
        lacks_reasons = end.verdict == "improve" and self.is_unexplained(end.tier, "improve")
        return None if lacks_reasons else end

    @property
    def tier_for_reasons(self) -> TierName | None:
        """The first tier of models that write, and so can give reasons. Tiers that failed are skipped."""
        for tier in self.rules.tiers:
            can_write = tier not in self.rules.deciding_tiers
            evidence = self.evidence.get(tier)
            has_failed = evidence is not None and evidence.outcome is None
            if can_write and not has_failed:
                return tier
        return None

    def tiers_for(self, outcome: VerdictWord) -> set[TierName]:
        return {tier for tier, word in self.outcomes.items() if word == outcome}

    def has_seen_all(self, tiers: Collection[TierName]) -> bool:
        return any(self.evidence[tier].sees_whole_text for tier in tiers)

    # For rankings

    @property
    def complete_evidence(self) -> list[TierEvidence]:
        """The evidence of tiers with enough answers."""
        return [evidence for evidence in self.evidence.values() if evidence.standing]

    @property
    def next_tier(self) -> TierName | None:
        """The next tier of a ranking. None after the last one, or if the next would only repeat scores."""
        tiers = self.rules.tiers
        later_tiers = tiers[tiers.index(self.latest_tier) + 1 :]
        if not later_tiers:
            return None

        next_tier = later_tiers[0]
        # A tiebreaker would only repeat scores if all its models have given some in an earlier tier.
        if next_tier == "tiebreaker" and self._have_all_scored(next_tier):
            return None
        return next_tier

    def _have_all_scored(self, tier: TierName) -> bool:
        """Whether all of a tier's models have already given scores in earlier tiers.

        False if the deep tier hasn't ranked the subjects.
        """
        deep = self.evidence.get("deep")
        has_deep_ranked = deep is not None and deep.standing is not None
        if not has_deep_ranked:
            return False

        latest_standing = self.complete_evidence[-1].standing
        if latest_standing is None:
            return False
        models = set(self.rules.models.get(tier, ()))
        return models.issubset(latest_standing.heard_models)

    @property
    def contenders(self) -> tuple[str, ...]:
        """The subjects that the next tier compares: at first all of them, later only those near the best."""
        if not self.complete_evidence:
            return self.rules.letters
        latest_standing = self.complete_evidence[-1].standing
        if latest_standing is None:
            return self.rules.letters
        contender_count = max(latest_standing.near_best_count, 2)  # a comparison needs two
        return latest_standing.ranked_letters[:contender_count]
