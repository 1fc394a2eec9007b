"""The data that gates are learned from: labelled subjects, with the tiers' opinions and how they arose.

An endpoint may give token probabilities for some replies and not for others, and several models may answer
under one name. Opinions that arose in another way than most of a model's have no margin: no gate is learned
from them, and none lets them through.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from judgekit.config import TIERS, Outcome, TierName
from judgekit.errors import InputError
from judgekit.evaluation.labels import agrees
from judgekit.judging.calibration import (
    DEFAULT_OPTIONS,
    Answered,
    Asked,
    Readings,
    join_model_names,
)
from judgekit.judging.escalation import decide
from judgekit.judging.evidence import FAILED
from judgekit.judging.steps import CALIBRATED_ROW, Ask

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from judgekit.evaluation.cases import Case, Recorded
    from judgekit.judging.evidence import TierEvidence
    from judgekit.judging.score_source import ScoreSource
    from judgekit.judging.steps import End, EscalationRules

Value = TypeVar("Value")

WHOLE_CASE_KEY = ""
"""Stands for a case judged as a whole (a document, a pair); candidates have their ids."""


# --- How models were asked, and how their answers were read


def find_models(cases: Sequence[Case]) -> dict[TierName, str]:
    """Find the model that gave each tier's answers. If a tier has a jury, its models' names are joined.

    Raises `InputError` if a tier's answers name different models, or if an answer names none.
    """
    models = {}
    for tier in TIERS:
        names = _collect_model_names(cases, tier)
        is_ambiguous = len(names) > 1
        is_unnamed = "" in names
        if is_ambiguous or is_unnamed:
            shown_names = ", ".join(map(repr, sorted(names)))
            problem = f"judges.{tier}.model: expected one model throughout, got {shown_names}"
            reason = "valid only for the models it was measured with"
            raise InputError(f"{problem}; a calibration is {reason}")
        if names:
            models[tier] = names.pop()
    return models


def _collect_model_names(cases: Iterable[Case], tier: TierName) -> set[str]:
    """Collect the names of the models that gave a tier's answers. "" stands for an unnamed model."""
    names = set()
    for case in cases:
        if tier in case.judges:
            jurors = case.judges[tier].jurors
            # A jury's models count as one, with a joint name.
            joint_name = join_model_names(juror.model for juror in jurors)
            names.add(joint_name)
    return names


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
    def answering_model(self) -> str:
        """The model that answered; if the record doesn't name it, the one asked."""
        return self.recorded.answered or self.recorded.model

    def find_score_source(self, *, gives_fractions: bool) -> ScoreSource:
        """Return the way the scores were read. Old records don't contain it, so infer it for them.

        `gives_fractions` says if any of the model's answers has fractional scores.
        """
        if self.recorded.read is not None:
            return self.recorded.read

        # If the model was asked several times, the record holds means of written answers. Means are
        # fractional, too, so the checks below would mistake them for scores from probabilities.
        holds_means = self.samples != 1
        if holds_means:
            return "whole"
        if self.recorded.probabilities is not None:
            return "points"

        # A fractional score is an expectation over token probabilities. If a model has one, then its integer
        # scores are expectations, too.
        has_scores = self.recorded.scores is not None
        if has_scores and gives_fractions:
            return "expected"
        return "whole"


class Ways(NamedTuple):
    """How most of a model's answers were read, which model gave them, and the tiers that deviate, by case."""

    common_sources: Readings
    common_models: Answered
    deviating_tiers_by_case: list[frozenset[TierName]]


def find_common_ways(cases: Sequence[Case]) -> Ways:
    """Find each model's most common way of answering, and the tiers that deviate from it in each case.

    A way has two parts: the source from which scores were read, such as probabilities, and the model that
    actually answered, which can differ from the requested one.
    """
    answers = _list_answers(cases)
    sources = _find_sources(answers)
    answering_models = [answer.answering_model for answer in answers]
    common_sources: Readings = _choose_most_common(answers, sources)
    common_models: Answered = _choose_most_common(answers, answering_models)

    deviating_tiers_by_case = [set[TierName]() for _ in cases]
    for answer, source in zip(answers, sources, strict=True):
        requested_model = answer.recorded.model
        has_common_source = source == common_sources[answer.tier][requested_model]
        has_common_model = answer.answering_model == common_models[answer.tier][requested_model]
        if not (has_common_source and has_common_model):
            deviating_tiers_by_case[answer.case_index].add(answer.tier)

    frozen_tiers = [frozenset(tiers) for tiers in deviating_tiers_by_case]
    return Ways(common_sources, common_models, frozen_tiers)


def _list_answers(cases: Sequence[Case]) -> list[_Answer]:
    """List all models' answers about all cases, without failures."""
    answers = []
    for case_index, case in enumerate(cases):
        for tier, recorded in answers_by_tier(case).items():
            for juror in recorded.jurors:
                if juror.failure is None:
                    answers.append(_Answer(case_index, tier, juror, samples=recorded.samples))
    return answers


def _find_sources(answers: Sequence[_Answer]) -> list[ScoreSource]:
    """Find the source of each answer's scores. It can depend on the same model's other answers."""
    voters_with_fractions = {answer.voter for answer in answers if answer.has_fractions}
    sources = []
    for answer in answers:
        gives_fractions = answer.voter in voters_with_fractions
        sources.append(answer.find_score_source(gives_fractions=gives_fractions))
    return sources


def _choose_most_common(
    answers: Sequence[_Answer], values: Sequence[Value]
) -> dict[TierName, dict[str, Value]]:
    """Find each model's most common value, by tier and requested model. Each answer has one value.

    The tiers keep their usual order.
    """
    counts_by_voter: dict[tuple[TierName, str], Counter[Value]] = defaultdict(Counter)
    for answer, value in zip(answers, values, strict=True):
        counts_by_voter[answer.voter][value] += 1

    common_values: dict[TierName, dict[str, Value]] = {}
    for tier, model in sorted(counts_by_voter, key=_rank_voter):
        most_common, _ = counts_by_voter[tier, model].most_common(1)[0]
        common_values.setdefault(tier, {})[model] = most_common
    return common_values


def _rank_voter(voter: tuple[TierName, str]) -> tuple[int, str]:
    """Rank a voter for sorting: by tier, then by the model's name."""
    tier, model = voter
    return TIERS.index(tier), model


# --- Labelled subjects, with the tiers' opinions


class Sample(NamedTuple):
    """A labelled document, or one labelled candidate, with each asked tier's opinion.

    `right_tie_tiers` are the tiers whose tie on a pair counts as right. With `can_win_stand`, a pair's win
    may stand against the next tier's tie. `wrong_tiers` are the tiers whose best of several isn't the label.
    With `has_binary_labels`, an improve is right about a subject to be rejected.
    """

    id: str
    label: Outcome
    opinions: Mapping[TierName, TierEvidence]
    right_tie_tiers: frozenset[TierName] = frozenset()
    can_win_stand: bool = False
    wrong_tiers: frozenset[TierName] | None = None
    has_binary_labels: bool = False

    def outcome(self, tier: TierName) -> Outcome | None:
        """Return a tier's outcome, or None if it wasn't asked or has none."""
        return self.opinions.get(tier, FAILED).outcome

    def is_wrong(self, tier: TierName) -> bool:
        """Whether a tier's outcome is missing or doesn't match the label."""
        # In a ranking, the label is a text, so outcomes can't be compared with it. `wrong_tiers` lists the
        # wrong tiers.
        if self.wrong_tiers is not None:
            return tier in self.wrong_tiers

        outcome = self.outcome(tier)
        if outcome is None:
            return True
        return not self.is_right(outcome)

    def is_right(self, outcome: Outcome | str) -> bool:
        return agrees(self.label, outcome, binary=self.has_binary_labels)

    def is_measured_by(self, tier: TierName) -> bool:
        """Whether earlier tiers can be compared with this tier, which is the reference."""
        is_labelled_tie = self.label == "improve"
        if is_labelled_tie:
            return True

        # With `can_win_stand`, an earlier tier's win can become final in spite of a later tie. So a wrong tie
        # of the reference doesn't show if the win is wrong.
        sees_tie = self.outcome(tier) == "improve"
        sees_wrong_tie = sees_tie and tier not in self.right_tie_tiers
        may_be_overruled = sees_wrong_tie and self.can_win_stand
        return not may_be_overruled

    def combined_outcome(self, tier: TierName) -> Outcome | None:
        """Return the outcome that a tier's jury agrees on. None if the jury is divided or has no outcome."""
        opinion = self.opinions.get(tier, FAILED)
        if opinion.is_divided:
            return None  # a divided jury's outcome can't become final
        return opinion.outcome

    def margin(self, tier: TierName) -> float | None:
        """Return the distance of a tier's opinion to another outcome. None if it can't become final."""
        opinion = self.opinions.get(tier, FAILED)
        if opinion.outcome == "accept" and not opinion.sees_whole_text:
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
        """The margin of each tier that has one. Without a margin, an opinion can't become final."""
        margins = {}
        for tier in self.opinions:
            margin = self.margin(tier)
            if margin is not None:
                margins[tier] = margin
        return margins


def drop_margins(
    opinions: Mapping[TierName, TierEvidence], tiers: Collection[TierName]
) -> dict[TierName, TierEvidence]:
    """Drop the margins from the opinions of these tiers. No gate is learned from an opinion without one."""
    evidence_by_tier = {}
    for tier, evidence in opinions.items():
        if tier in tiers:
            evidence_by_tier[tier] = evidence.without_margin()
        else:
            evidence_by_tier[tier] = evidence
    return evidence_by_tier


# --- How judging would end


class Walked(NamedTuple):
    """The end of one judging: its calls, whether it's right (None: undecided), whether a gate ended it."""

    calls: Mapping[TierName, int]
    is_right: bool | None
    is_ended_by_gate: bool


def walk(sample: Sample, rules: EscalationRules) -> Walked:
    """Replay the judging of a sample, and compare the result with the label. Each tier counts as one call."""
    end, tiers = replay_tiers(sample, rules)
    calls = dict.fromkeys(tiers, 1)

    is_undecided = end.tier is None
    if is_undecided:
        return Walked(calls, is_right=None, is_ended_by_gate=False)

    # A calibration's last tier ends the judging without a gate, because its opinion is always final.
    last_tier = rules.finality.last_tier if rules.finality else None
    needs_gate = end.tier != last_tier
    is_ended_by_gate = end.because == CALIBRATED_ROW and needs_gate
    return Walked(calls, sample.is_right(end.verdict), is_ended_by_gate)


def replay_tiers(sample: Sample, rules: EscalationRules) -> tuple[End, list[TierName]]:
    """Replay the judging of a sample. Returns the end of the judging, and the tiers that were asked."""
    evidence: dict[TierName, TierEvidence] = {}
    step = decide(evidence, rules)
    while isinstance(step, Ask):
        evidence[step.tier] = sample.opinions.get(step.tier, FAILED)
        step = decide(evidence, rules)
    end = step
    asked_tiers = list(evidence)
    return end, asked_tiers
