"""Which tier is asked next, and when the judging ends: a pure function of the opinions of the tiers.

The whole table stands in docs/escalation.md. The same rules serve documents and single candidates (kept
counts as accept, dropped as reject). `judgekit.evaluation.calibrate` learns which opinions may be final.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, TypeAlias

from pydantic import Field

from judgekit.config import TIERS, ModeName, Outcome, TierName
from judgekit.config.yamlfile import Strict

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from judgekit.judging.score_source import ScoreSource
    from judgekit.judging.verdict import Consensus, VerdictWord
    from judgekit.rubric.schema import ScoreMode, ScoreRubric

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


def margin(
    rubric: ScoreRubric, scores: Mapping[str, float], mode: ModeName, *, signed: bool = False
) -> float:
    """Return how many points scores are away from another outcome.

    If `signed`, it is how far they are above acceptance: negative, where they are below.
    """
    rule: ScoreMode = getattr(rubric.modes, mode)
    values = [scores[name] for name in rubric.dimensions]
    above_acceptance = min(values) - rule.accept.each
    if rule.accept.mean is not None:
        above_acceptance = min(above_acceptance, rubric.mean(scores) - rule.accept.mean)
    if signed:
        return round(above_acceptance, DIGITS)
    below_rejection = rule.reject.any_below - min(values)
    distances = {
        "accept": above_acceptance,
        "reject": below_rejection,
        "improve": min(-below_rejection, -above_acceptance),
    }
    return round(distances[rubric.decide(scores, mode)], DIGITS)


def certainty(probability: float | None) -> float:
    """Return how far the probability of a kept candidate is from one half; 0 where there is none."""
    if probability is None:
        return 0.0
    return round(abs(probability - 0.5), DIGITS)


def towards(outcome: Outcome, leaning: float) -> float:
    """Return how far a leaning is on the side of an acceptance, or of a rejection."""
    return leaning if outcome == "accept" else -leaning


class Final(NamedTuple):
    """The end of the judging: the verdict, how much agreement it has, and the tier that settled it."""

    verdict: VerdictWord
    consensus: Consensus
    tier: TierName | None


UNDETERMINED = Final("undetermined", "none", None)
ESCALATE = Final("escalate", "none", None)


@dataclass(frozen=True, slots=True)
class EscalationRules:
    """What governs escalation in one judging. One model in several tiers is one voice."""

    confirm: Literal["accept", "reject"]
    """The quick outcome that a second tier must confirm."""
    tiers: tuple[TierName, ...] = TIERS
    truncated: Collection[TierName] = ()
    """The tiers that do not see the whole subject: their acceptance is never final."""
    models: Mapping[TierName, Collection[str]] = field(default_factory=dict)
    finality: FinalityRules | None = None
    """With it no opinions of the first tier are final but those that it lets through."""
    margin: float = 0.0
    """Without `finality`: an opinion with less is not final alone, where another model can be asked."""
    partial: Collection[TierName] = ()
    """The tiers of which no opinion is final alone."""
    unproven: Collection[TierName] = ()
    """The tiers whose acceptance is final by a calibration only."""

    def next(
        self,
        seen: Seen,
        margins: Mapping[TierName, float] = {},
        divided: Mapping[TierName, bool] = {},
        leanings: Mapping[TierName, float] = {},
    ) -> TierName | Final:
        """Return the tier to ask now, or the end.

        `divided` says of each jury that is split whether most of its families agree with its outcome.
        `leanings` of decision models are above 0 on the side of acceptance: how far scores are above it, or
        by how much a candidate is likelier to be kept than not.
        """
        if any(self._is_last_word(tier) and not most for tier, most in divided.items()):
            return ESCALATE
        outcomes: dict[TierName, Outcome | None] = {}
        for tier, outcome in seen.items():
            # A divided jury counts as one that failed, where another tier can settle it.
            is_left_open = tier in divided and not self._is_last_word(tier)
            outcomes[tier] = None if is_left_open else outcome
        step_by_gates = None
        if self.finality and len(self.tiers) > 1:
            step_by_gates = self._next_by_gates(self.finality, outcomes, margins, leanings)
        step = step_by_gates or self._next_by_table(outcomes, margins)
        if not isinstance(step, Final):
            return step
        if step.verdict == "accept":
            accepting = {tier for tier, outcome in outcomes.items() if outcome == "accept"}
            if step.tier is not None:  # by its leaning a tier may accept what its scores do not
                accepting.add(step.tier)
            if accepting <= set(self.truncated):
                return UNDETERMINED
            if step_by_gates is None and accepting <= set(self.unproven):
                return UNDETERMINED
        if step.tier in divided:
            return step._replace(consensus="majority")
        if step == UNDETERMINED and divided:
            return ESCALATE
        return step

    def _is_last_word(self, tier: TierName) -> bool:
        """Whether no tier is left to settle what divides the jury of this one."""
        return tier == self.tiers[-1] or (tier == "deep" and not self._has_third_voice())

    def _has_third_voice(self) -> bool:
        """Whether the tiebreaker has a voice that neither quick nor deep had."""
        quick, deep, third = self._models_by_tier()
        return "tiebreaker" in self.tiers and (not third or bool(third - quick - deep))

    def _next_by_gates(
        self,
        finality: FinalityRules,
        seen: Seen,
        margins: Mapping[TierName, float],
        leanings: Mapping[TierName, float],
    ) -> TierName | Final | None:
        """Return the end, by the first opinion that a calibration's gates let through, or the tier to ask.

        None leaves it to the table: no opinion was let through, and the tier whose opinion is the last word
        by the calibration was asked, or is none of these.
        """
        for place, tier in enumerate(self.tiers):
            if tier not in seen:
                return tier if finality.last in self.tiers[place:] else None
            outcome = seen[tier]
            if outcome is None:
                continue
            is_final = finality.final(tier, seen, margins)
            if finality.has_leaning_rule(tier):
                outcome_by_leaning = finality.decided(tier, leanings)
                if outcome_by_leaning is not None:
                    is_final = True
                    outcome = outcome_by_leaning
            is_barred = tier in self.partial or (outcome == "accept" and tier in self.truncated)
            if is_final and not is_barred:
                do_all_agree = len(seen) > 1 and set(seen.values()) == {outcome}
                return Final(outcome, "unanimous" if do_all_agree else "single", tier)
        return None

    def _next_by_table(self, seen: Seen, margins: Mapping[TierName, float]) -> TierName | Final:
        """Return the tier to ask, or the end, by the table: quick, then deep, then the tiebreaker."""
        first = self.tiers[0]
        if first not in seen:
            return first
        first_outcome = seen[first]
        if len(self.tiers) == 1:
            return Final(first_outcome, "single", first) if first_outcome else UNDETERMINED
        quick = first_outcome if first == "quick" else None
        if quick is not None and self._is_quick_final(quick, margins):
            return Final(quick, "single", "quick")
        if "deep" in self.tiers and "deep" not in seen:
            return "deep"
        deep = seen.get("deep")
        if deep is None:  # it failed, or there is none
            return self._next_by_tiebreaker(quick, None, seen)
        if quick == deep:
            return Final(deep, "unanimous", "deep")
        if quick is None or "improve" in (quick, deep):
            if self._is_close("deep", margins) and self._has_third_voice():
                return self._next_by_tiebreaker(quick, deep, seen)
            return Final(deep, "single", "deep")
        if self._would_third_repeat():
            return ESCALATE
        return self._next_by_tiebreaker(quick, deep, seen)

    def _is_quick_final(self, quick: Outcome, margins: Mapping[TierName, float]) -> bool:
        """Whether the table lets a quick opinion be final alone."""
        if self.finality is not None or quick in ("improve", self.confirm):
            return False
        if quick == "accept" and "quick" in self.truncated:
            return False
        return not self._is_close("quick", margins)

    def _would_third_repeat(self) -> bool:
        """Whether the tiebreaker is one of those that disagree, and would only vote for itself."""
        quick, deep, third = self._models_by_tier()
        return bool(third) and quick != deep and third <= quick | deep

    def _models_by_tier(self) -> list[set[str]]:
        return [set(self.models.get(tier, ())) for tier in TIERS]

    def _is_close(self, tier: TierName, margins: Mapping[TierName, float]) -> bool:
        """Whether an opinion is not final alone: it is partial, or near to another outcome.

        One whose margin is not known is not near, and under a calibration its gates look at the margin.
        """
        if tier in self.partial:
            return True
        return self.finality is None and margins.get(tier, self.margin) < self.margin

    def _next_by_tiebreaker(
        self, quick: Outcome | None, deep: Outcome | None, seen: Seen
    ) -> TierName | Final:
        """Let the tiebreaker settle what the others left open, or stand in for a deep tier that failed."""
        outcomes = {outcome for outcome in (quick, deep) if outcome is not None}
        open_end = ESCALATE if {"accept", "reject"} <= outcomes else UNDETERMINED
        if "tiebreaker" not in seen:
            return "tiebreaker" if "tiebreaker" in self.tiers else open_end
        third = seen["tiebreaker"]
        if third is None:
            return open_end
        if third in outcomes:
            return Final(third, "unanimous" if {third} == outcomes else "majority", "tiebreaker")
        if {"accept", "reject"} <= {*outcomes, third}:
            return ESCALATE
        return Final(third, "single", "tiebreaker")
