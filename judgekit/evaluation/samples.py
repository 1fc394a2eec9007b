"""The data that gates are learned from: labelled subjects, with the tiers' opinions and how they arose.

An endpoint may give token probabilities for some replies and not for others, and several models may answer
under one name. Opinions that arose in another way than most of a model's have no margin: no gate is learned
from them, and none lets them through.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from judgekit.config import TIERS, Outcome, TierName
from judgekit.errors import InputError
from judgekit.evaluation.labels import agrees
from judgekit.judging.calibration import DEFAULT_OPTIONS, Answered, Asked, Readings, together
from judgekit.judging.escalation import decide
from judgekit.judging.evidence import FAILED
from judgekit.judging.steps import CALIBRATED, Ask

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from judgekit.evaluation.cases import Case, Recorded
    from judgekit.judging.evidence import TierEvidence
    from judgekit.judging.score_source import ScoreSource
    from judgekit.judging.steps import End, EscalationRules


WHOLE = ""
"""Stands for a case judged as a whole (a document, a pair); candidates have their ids."""


# --- How models were asked, and how their answers were read


def find_models(cases: Sequence[Case]) -> dict[TierName, str]:
    """Find the model that gave each tier's answers. If a tier has a jury, its models' names are joined.

    Raises `InputError` if a tier's answers name different models, or if an answer names none.
    """
    models = {}
    for tier in TIERS:
        names = set()
        for case in cases:
            if tier in case.judges:
                jurors = case.judges[tier].jurors
                names.add(together(juror.model for juror in jurors))

        if len(names) > 1 or "" in names:
            shown_names = ", ".join(map(repr, sorted(names)))
            problem = f"judges.{tier}.model: expected one model throughout, got {shown_names}"
            reason = "valid only for the models it was measured with"
            raise InputError(f"{problem}; a calibration is {reason}")
        if names:
            models[tier] = names.pop()
    return models


def find_options(cases: Sequence[Case]) -> Asked:
    """Find the options with which all tiers were called. If no case has answers, return the default options.

    Raises `InputError` if answers were given with different options.
    """
    option_sets = set()
    for case in cases:
        for recorded in answers_by_tier(case).values():
            options = (recorded.samples, recorded.criteria, recorded.rule, recorded.redact)
            option_sets.add(options)

    if len(option_sets) > 1:
        problem = "judges: expected the same samples, criteria, rule and redact throughout"
        raise InputError(
            f"{problem}; a calibration is valid only for the options it was measured with"
        )
    if not option_sets:
        return DEFAULT_OPTIONS

    samples, criteria, rule, redact = option_sets.pop()
    return Asked(samples=samples, criteria=criteria, jury=rule, redact=redact)


def answers_by_tier(case: Case) -> dict[TierName, Recorded]:
    """Return the recorded answers of a case by tier, omitting judges that aren't tiers."""
    recorded = {}
    for tier in TIERS:
        if tier in case.judges:
            recorded[tier] = case.judges[tier]
    return recorded


def find_cut_tiers(case: Case) -> set[TierName]:
    """Find the tiers that saw a truncated text."""
    return {tier for tier, recorded in answers_by_tier(case).items() if recorded.cut}


class _Answer(NamedTuple):
    """One model's answer about the case with this index."""

    case_index: int
    tier: TierName
    recorded: Recorded
    samples: int

    @property
    def voter(self) -> tuple[TierName, str]:
        return self.tier, self.recorded.model

    @property
    def has_fractions(self) -> bool:
        """Whether the scores are fractional, so that the model can't have written them itself."""
        scores = self.recorded.scores or {}
        return self.samples == 1 and any(score % 1 for score in scores.values())

    @property
    def answered(self) -> str:
        """The model that answered; if the record doesn't name it, the one asked."""
        return self.recorded.answered or self.recorded.model

    def source(self, *, gives_fractions: bool) -> ScoreSource:
        """Return the way in which the scores were read. If an old record doesn't contain that, infer it.

        `gives_fractions` says if any of the model's answers has fractional scores.
        """
        if self.recorded.read is not None:
            return self.recorded.read
        if self.samples == 1 and self.recorded.probabilities is not None:
            return "points"
        # A fractional score is an expectation over token probabilities. If a model has one, then its integer
        # scores are expectations, too.
        if self.samples == 1 and self.recorded.scores is not None and gives_fractions:
            return "expected"
        return "whole"


class Ways(NamedTuple):
    """How most of a model's answers were read, which model gave them, and the tiers that deviate, by case."""

    read: Readings
    answered: Answered
    deviating_tiers_by_case: list[frozenset[TierName]]


def find_common_ways(cases: Sequence[Case]) -> Ways:
    """Find each model's most common way of answering, and the tiers that deviate from it in each case.

    A way has two parts: the source from which scores were read, such as probabilities, and the model that
    actually answered, which can differ from the requested one.
    """
    answers = _list_answers(cases)
    with_fractions = {
        answer.voter for answer in answers if answer.has_fractions
    }  # tiers and models

    # Count how often each way occurs, by tier and requested model.
    source_counts: dict[tuple[TierName, str], Counter[ScoreSource]] = defaultdict(Counter)
    model_counts: dict[tuple[TierName, str], Counter[str]] = defaultdict(Counter)
    sources = []  # each answer's source
    for answer in answers:
        source = answer.source(gives_fractions=answer.voter in with_fractions)
        source_counts[answer.voter][source] += 1
        model_counts[answer.voter][answer.answered] += 1
        sources.append(source)

    # Choose the most common way of each model, in the tiers' order.
    common_sources: Readings = {}
    common_models: Answered = {}
    for tier, model in sorted(source_counts, key=lambda voter: (TIERS.index(voter[0]), voter[1])):
        common_source, _ = source_counts[tier, model].most_common(1)[0]
        common_sources.setdefault(tier, {})[model] = common_source
        common_model, _ = model_counts[tier, model].most_common(1)[0]
        common_models.setdefault(tier, {})[model] = common_model

    # Find the answers that were read from another source, or given by another model.
    deviating_tiers_by_case = [set[TierName]() for _ in cases]
    for answer, source in zip(answers, sources, strict=True):
        common_source = common_sources[answer.tier][answer.recorded.model]
        common_model = common_models[answer.tier][answer.recorded.model]
        if source != common_source or answer.answered != common_model:
            deviating_tiers_by_case[answer.case_index].add(answer.tier)
    return Ways(
        common_sources, common_models, [frozenset(tiers) for tiers in deviating_tiers_by_case]
    )


def _list_answers(cases: Sequence[Case]) -> list[_Answer]:
    """List all models' answers about all cases, without failures."""
    answers = []
    for case_index, case in enumerate(cases):
        for tier, recorded in answers_by_tier(case).items():
            for juror in recorded.jurors:
                if juror.failure is None:
                    answers.append(_Answer(case_index, tier, juror, samples=recorded.samples))
    return answers


# --- Labelled subjects, with the tiers' opinions


class Sample(NamedTuple):
    """A labelled document, or one labelled candidate, with each asked tier's opinion.

    `ties` are the tiers whose tie on a pair counts as right. If a pair `stands`, a win may stand against the
    next tier's tie. `wrong` are the tiers whose best of several isn't the label. If labels are `binary`, an
    improve is right about a subject to be rejected.
    """

    id: str
    label: Outcome
    opinions: Mapping[TierName, TierEvidence]
    ties: frozenset[TierName] = frozenset()
    stands: bool = False
    wrong: frozenset[TierName] | None = None
    binary: bool = False

    def outcome(self, tier: TierName) -> Outcome | None:
        """Return a tier's outcome, or None if it wasn't asked or has none."""
        return self.opinions.get(tier, FAILED).outcome

    def is_wrong(self, tier: TierName) -> bool:
        """Whether a tier's outcome is missing or doesn't match the label."""
        if self.wrong is not None:
            return tier in self.wrong
        outcome = self.outcome(tier)
        return outcome is None or not self.is_right(outcome)

    def is_right(self, outcome: Outcome | str) -> bool:
        return agrees(self.label, outcome, binary=self.binary)

    def is_measured_by(self, tier: TierName) -> bool:
        """Whether disagreeing with this tier counts as wrong. Only used if the tier is the reference."""
        # If this tier wrongly sees a tie, another tier's win may overrule it, so disagreeing isn't wrong.
        is_tie = self.outcome(tier) == "improve" and tier not in self.ties
        may_be_overruled = self.stands and is_tie
        return not may_be_overruled or self.label == "improve"

    def combined_outcome(self, tier: TierName) -> Outcome | None:
        """Return a tier's outcome.

        Returns None if it has none, or if its jury is divided and can't be final.
        """
        opinion = self.opinions.get(tier, FAILED)
        return None if opinion.is_divided else opinion.outcome

    def margin(self, tier: TierName) -> float | None:
        """Return the distance of a tier's opinion to another outcome. None if it can't become final."""
        opinion = self.opinions.get(tier, FAILED)
        if opinion.outcome == "accept" and not opinion.sees_all:
            return None  # the part of the text that the tier didn't see could be bad
        return opinion.margin

    @property
    def leanings(self) -> dict[TierName, float]:
        """The decision models' leanings by tier: how strongly each tends to accept (above 0) or reject."""
        leanings = {}
        for tier, opinion in self.opinions.items():
            if opinion.leaning is not None:
                leanings[tier] = opinion.leaning
        return leanings

    @property
    def margins(self) -> dict[TierName, float]:
        """The margins by tier, without the tiers whose opinion can't become final."""
        margins = {}
        for tier in self.opinions:
            margin = self.margin(tier)
            if margin is not None:
                margins[tier] = margin
        return margins


def without_margins(
    opinions: Mapping[TierName, TierEvidence], tiers: Collection[TierName]
) -> dict[TierName, TierEvidence]:
    """Return the opinions without the margins of `tiers`, so that no gate is learned from those."""
    evidence_by_tier = {}
    for tier, evidence in opinions.items():
        evidence_by_tier[tier] = evidence.without_margin() if tier in tiers else evidence
    return evidence_by_tier


# --- How judging would end


class Walked(NamedTuple):
    """The end of one judging: its calls, whether it's right (None: undecided), whether a gate ended it."""

    calls: Mapping[TierName, int]
    right: bool | None
    by_gate: bool


def walk(sample: Sample, rules: EscalationRules) -> Walked:
    """Replay the judging of a sample, counting one call per tier, and compare the result with the label."""
    end, tiers = replay_tiers(sample, rules)
    calls = dict.fromkeys(tiers, 1)
    if end.tier is None:
        return Walked(calls, right=None, by_gate=False)
    # The last tier would end the judging even without a gate.
    last_tier = rules.finality.last if rules.finality else None
    by_gate = end.because == CALIBRATED and end.tier != last_tier
    return Walked(calls, sample.is_right(end.verdict), by_gate)


def replay_tiers(sample: Sample, rules: EscalationRules) -> tuple[End, list[TierName]]:
    """Replay the judging of a sample. Returns its end, and the tiers that are asked until then."""
    evidence: dict[TierName, TierEvidence] = {}
    step = decide(evidence, rules)
    while isinstance(step, Ask):
        evidence[step.tier] = sample.opinions.get(step.tier, FAILED)
        step = decide(evidence, rules)
    return step, list(evidence)
