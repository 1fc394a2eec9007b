"""What the tiers said about labelled subjects, and what came of it under given rules."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from judgekit.judging.escalation import Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.config.names import Outcome, TierName
    from judgekit.judging.escalation import EscalationRules, FinalityRules


class TierOpinion(NamedTuple):
    """One tier's opinion and its margin; no outcome where it failed or could not be read.

    No gate lets an opinion without a margin through. Of a jury whose families came to different outcomes,
    `divided` says whether most came to this one.
    """

    outcome: Outcome | None
    margin: float | None = 0.0
    divided: bool | None = None


FAILED = TierOpinion(None)


@dataclass(frozen=True, slots=True)
class Sample:
    """A labelled document, or one labelled candidate, and what each tier that was asked said about it.

    `cut` are the tiers that did not see the whole text, `ties` those whose tie on a pair counts as right
    where others are measured by it. Where a pair `stands`, a win may stand against the tie of the next tier.
    Of several subjects that are ranked, `wrong` are the tiers whose best is not the labelled one.
    """

    id: str
    label: Outcome
    voices: Mapping[TierName, TierOpinion]
    cut: frozenset[TierName] = frozenset()
    ties: frozenset[TierName] = frozenset()
    stands: bool = False
    wrong: frozenset[TierName] | None = None

    def outcome(self, tier: TierName) -> Outcome | None:
        """Return what a tier said, None where it failed or was not asked."""
        return self.voices.get(tier, FAILED).outcome

    def is_wrong(self, tier: TierName) -> bool:
        """Whether what a tier said is not what the label says."""
        return self.outcome(tier) != self.label if self.wrong is None else tier in self.wrong

    def is_measured_by(self, tier: TierName) -> bool:
        """Whether it says how good others are that a tier says otherwise: its tie over a win may not.

        Where no winner is the costly error that is neither right nor as bad as the wrong winner.
        """
        tied = self.stands and self.outcome(tier) == "improve" and tier not in self.ties
        return not tied or self.label == "improve"

    def united(self, tier: TierName) -> Outcome | None:
        """Return the same, None also where the tier's jury is divided: that ends nothing."""
        voice = self.voices.get(tier, FAILED)
        return voice.outcome if voice.divided is None else None

    def margin(self, tier: TierName) -> float | None:
        """Return how far a tier's opinion is from another one, None where no gate may let it through."""
        voice = self.voices.get(tier, FAILED)
        unseen = voice.outcome == "accept" and tier in self.cut
        return None if unseen else voice.margin

    @property
    def margins(self) -> dict[TierName, float]:
        """The margins that are known."""
        known = {tier: self.margin(tier) for tier in self.voices}
        return {tier: margin for tier, margin in known.items() if margin is not None}


@dataclass(frozen=True, slots=True)
class Walked:
    """What rules make of samples.

    Of `cases` verdicts, `decided` are accept, improve or reject; of these `errors` differ from the label.
    `by_gate` ended before the last tier that was needed otherwise, by a gate. `calls` counts by tier.
    """

    cases: int
    decided: int
    errors: int
    by_gate: int
    calls: Mapping[TierName, int]

    @property
    def accuracy(self) -> float | None:
        """The share of right verdicts among all, the undecided ones counted as not right."""
        return (self.decided - self.errors) / self.cases if self.cases else None


def walk(samples: Sequence[Sample], rules: EscalationRules) -> Walked:
    """Return what `rules` would have come to, and whom they would have asked."""
    calls: Counter[TierName] = Counter(dict.fromkeys(rules.tiers, 0))
    decided = errors = by_gate = 0
    for sample in samples:
        final, asked = ended(sample, rules)
        calls.update(asked)
        if final.tier is None:
            continue
        decided += 1
        errors += final.verdict != sample.label
        by_gate += _by_gate(sample, final.tier, asked, rules.finality)
    return Walked(len(samples), decided, errors, by_gate, dict(calls))


def ended(sample: Sample, rules: EscalationRules) -> tuple[Final, list[TierName]]:
    """Return how one judging ends, and which tiers are asked on the way."""
    own = replace(rules, truncated=sample.cut)
    seen: dict[TierName, Outcome | None] = {}
    divided: dict[TierName, bool] = {}
    while not isinstance(step := own.next(seen, sample.margins, divided), Final):
        voice = sample.voices.get(step, FAILED)
        seen[step] = voice.outcome
        if voice.divided is not None:
            divided[step] = voice.divided
    winner = None
    if sample.stands and rules.finality and step.tier and step.verdict == "improve":
        winner = rules.finality.stands(step.tier, seen, sample.margins)
    return Final("accept", "single", winner) if winner else step, list(seen)


def _by_gate(
    sample: Sample, tier: TierName, asked: Sequence[TierName], finality: FinalityRules | None
) -> bool:
    if finality is None or tier == finality.last:
        return False
    return finality.final(tier, {each: sample.united(each) for each in asked}, sample.margins)
