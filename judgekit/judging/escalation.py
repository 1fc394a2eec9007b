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
    """The rules of one calibration; `last` always ends it, `read` says how its opinions were read."""

    id: str = ""
    rules: tuple[FinalityRule, ...] = ()
    last: TierName | None = None
    read: frozenset[tuple[TierName, str, ScoreSource]] = frozenset()

    def knows(self, tier: TierName, sources: Iterable[tuple[str, ScoreSource]]) -> bool:
        return not self.read or all((tier, model, how) in self.read for model, how in sources)

    def decides(self, tier: TierName) -> bool:
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
        if seen[tier] is None:
            return False
        return tier == self.last or self._allows(tier, seen, margins.get(tier), None)

    def stands(
        self, tier: TierName, seen: Seen, margins: Mapping[TierName, float]
    ) -> TierName | None:
        """Return the tier whose win stands against the tie of `tier`, the next one in `seen`, if it does."""
        before = _before(tier, seen)
        if before is None or seen[before] != "accept":
            return None
        if self._allows(tier, seen, margins.get(before), before):
            return before
        return None

    def _allows(
        self, tier: TierName, seen: Seen, margin: float | None, stands: TierName | None
    ) -> bool:
        if margin is None:
            return False
        before = _before(tier, seen)
        after = seen[before] if before else None
        for rule in self.rules:
            is_same = (rule.tier, rule.outcome, rule.after) == (tier, seen[tier], after)
            is_same = is_same and rule.leaning is None
            if is_same and rule.stands == stands and margin >= rule.least_margin:
                return True
        return False


def _before(tier: TierName, seen: Seen) -> TierName | None:
    tiers = list(seen)
    if tiers[0] != tier:
        return tiers[tiers.index(tier) - 1]
    return None


def margin(
    rubric: ScoreRubric, scores: Mapping[str, float], mode: ModeName, *, signed: bool = False
) -> float:
    """Return how many points away another outcome is; if `signed`, how far scores are above acceptance."""
    rule: ScoreMode = getattr(rubric.modes, mode)
    values = [scores[name] for name in rubric.dimensions]
    above = [min(values) - rule.accept.each]
    if rule.accept.mean is not None:
        above.append(rubric.mean(scores) - rule.accept.mean)
    below = rule.reject.any_below - min(values)
    least_above = min(above)
    if signed:
        return round(least_above, DIGITS)
    distances = {"accept": least_above, "reject": below, "improve": min(-below, -least_above)}
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
    """What governs escalation in one judging.

    `confirm` is the quick outcome that a second tier must confirm. An acceptance of the tiers that are
    `truncated` is never final. One model in several tiers is one voice. With `finality`, of a first tier no
    opinions are final but those it lets through. Without, an opinion whose margin is less than `margin` is
    not final alone, where another model can be asked. Of the tiers in `partial` no opinion is. Of those that
    are `unproven` an acceptance is final by a calibration only.
    """

    confirm: Literal["accept", "reject"]
    tiers: tuple[TierName, ...] = TIERS
    truncated: Collection[TierName] = ()
    models: Mapping[TierName, Collection[str]] = field(default_factory=dict)
    finality: FinalityRules | None = None
    margin: float = 0.0
    partial: Collection[TierName] = ()
    unproven: Collection[TierName] = ()

    def next(
        self,
        seen: Seen,
        margins: Mapping[TierName, float] = {},
        divided: Mapping[TierName, bool] = {},
        leanings: Mapping[TierName, float] = {},
    ) -> TierName | Final:
        """Return the tier to ask now or the end; `divided` says of split juries if most agree with it.

        `leanings` of decision models are above 0 on the side of acceptance: how far scores are above it, or
        by how much a candidate is likelier to be kept than not.
        """
        if any(self._ends_with(tier) and not most for tier, most in divided.items()):
            return ESCALATE
        settled: dict[TierName, Outcome | None] = {}
        for tier, outcome in seen.items():
            is_left_open = tier in divided and not self._ends_with(tier)
            settled[tier] = None if is_left_open else outcome
        calibrated = None
        if self.finality and len(self.tiers) > 1:
            calibrated = self._calibrated(settled, margins, leanings)
        step = calibrated or self._step(settled, margins)
        if isinstance(step, str):
            return step
        if step.verdict == "accept":
            accepting = {tier for tier, outcome in settled.items() if outcome == "accept"}
            if accepting <= set(self.truncated):
                return UNDETERMINED
            if calibrated is None and accepting <= set(self.unproven):
                return UNDETERMINED
        if step.tier in divided:
            return step._replace(consensus="majority")
        return ESCALATE if step == UNDETERMINED and divided else step

    def _ends_with(self, tier: TierName) -> bool:
        """Whether no tier is left to settle what divides the jury of this one."""
        return tier == self.tiers[-1] or (tier == "deep" and not self._has_third())

    def _has_third(self) -> bool:
        """Whether the tiebreaker has a voice that neither quick nor deep had."""
        quick, deep, third = self._models_by_tier()
        return "tiebreaker" in self.tiers and (not third or bool(third - quick - deep))

    def _calibrated(
        self, seen: Seen, margins: Mapping[TierName, float], leanings: Mapping[TierName, float]
    ) -> TierName | Final | None:
        finality = self.finality or FinalityRules()
        for tier in self.tiers:
            if tier not in seen:
                if finality.last in self.tiers[self.tiers.index(tier) :]:
                    return tier
                return None
            outcome = seen[tier]
            is_final = finality.final(tier, seen, margins)
            if outcome is not None and finality.decides(tier):
                decided = finality.decided(tier, leanings)
                is_final = is_final or decided is not None
                outcome = decided or outcome
            barred = tier in self.partial or (outcome == "accept" and tier in self.truncated)
            if outcome is not None and not barred and is_final:
                agreed = len(seen) > 1 and set(seen.values()) == {outcome}
                return Final(outcome, "unanimous" if agreed else "single", tier)
        return None

    def _step(self, seen: Seen, margins: Mapping[TierName, float]) -> TierName | Final:
        first = self.tiers[0]
        if first not in seen:
            return first
        outcome = seen[first]
        if len(self.tiers) == 1:
            return Final(outcome, "single", first) if outcome else UNDETERMINED
        quick = outcome if first == "quick" else None
        cut = quick == "accept" and "quick" in self.truncated
        sure = quick not in ("improve", self.confirm) and not cut and self.finality is None
        if quick is not None and sure and not self._is_close("quick", margins):
            return Final(quick, "single", "quick")
        if "deep" not in seen:
            if "deep" in self.tiers:
                return "deep"
            return self._third(quick, None, seen)
        deep = seen["deep"]
        if deep is None:
            return self._third(quick, None, seen)
        if quick == deep:
            return Final(deep, "unanimous", "deep")
        if quick is None or "improve" in (quick, deep):
            if self._is_close("deep", margins) and self._has_third():
                return self._third(quick, deep, seen)
            return Final(deep, "single", "deep")
        # A tiebreaker that is one of those that disagree would only vote for itself.
        quick_models, deep_models, third_models = self._models_by_tier()
        voters = quick_models | deep_models
        would_repeat = third_models and quick_models != deep_models and third_models <= voters
        return ESCALATE if would_repeat else self._third(quick, deep, seen)

    def _models_by_tier(self) -> list[set[str]]:
        return [set(self.models.get(tier, ())) for tier in TIERS]

    def _is_close(self, tier: TierName, margins: Mapping[TierName, float]) -> bool:
        close = self.finality is None and margins.get(tier, self.margin) < self.margin
        return close or tier in self.partial

    def _third(self, quick: Outcome | None, deep: Outcome | None, seen: Seen) -> TierName | Final:
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
