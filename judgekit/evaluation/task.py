"""A task as evaluation sees it: how a case is put to models, recorded, and read.

Documents, candidates, pairs and rankings each have a module with their own class, and `tasks.py` chooses
one. The decisive facts of recorded answers are read by `judgekit.judging.evidence`, just like live ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, TypedDict, cast

from judgekit.config import TierName
from judgekit.config import settings as configuration
from judgekit.errors import InputError
from judgekit.evaluation.cases import Recorded
from judgekit.evaluation.samples import (
    WHOLE_CASE_KEY,
    Sample,
    answers_by_tier,
    drop_margins,
    replay_tiers,
)
from judgekit.judging import service
from judgekit.judging.calibration import MODEL_SEPARATOR
from judgekit.judging.kinds import DECIDES, WRITES, get_model_kind
from judgekit.judging.orchestrator import Record
from judgekit.judging.question import AnyRubric, Opinion, Subject
from judgekit.judging.score import DocumentJudge

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from judgekit.config import ModeName, Outcome
    from judgekit.errors import Usage
    from judgekit.evaluation.cases import Case
    from judgekit.judging.evidence import TierEvidence
    from judgekit.judging.named_inputs import NamedInputs
    from judgekit.judging.orchestrator import Judge
    from judgekit.judging.question import ModelTurn
    from judgekit.judging.request import JudgeRequest
    from judgekit.judging.round import Answer
    from judgekit.judging.score_source import ScoreSource
    from judgekit.judging.settings import JudgeSettings
    from judgekit.judging.state import JudgingState
    from judgekit.judging.steps import End, EscalationRules, Task
    from judgekit.providers.base import Gateway
    from judgekit.rubric.loader import LoadedRubric
    from judgekit.rubric.schema import Better


class RecordedAnswer(TypedDict, total=False):
    """The fields of `Recorded` with one model's answer, and the way it was `read`."""

    scores: dict[str, float]
    keep: list[str]
    unjudged: list[str]
    probabilities: dict[str, float]
    orders: dict[Literal["AB", "BA"], Better | None]
    points: dict[str, list[float]]
    failure: str
    read: ScoreSource | None


class Tried(NamedTuple):
    """One question of a case, or about one of its candidates: the expected word and the judge's."""

    case: str
    mode: ModeName
    expected: str
    said: str
    scores: dict[str, float] | None = None
    why: str = ""

    @property
    def agrees(self) -> bool:
        return self.expected == self.said


class UnaskedError(InputError):
    """No model was asked about a case, which lacks something its rubric needs, or may not be sent."""

    def __init__(self, case: Case, why: str) -> None:
        self.case_id = case.id
        self.reason = why
        super().__init__(str(case.build_error(f"no model was asked (not judged: {why})")))


@dataclass(frozen=True)
class CaseTask(ABC, Generic[AnyRubric, Subject, Opinion, Record]):
    """One task under a rubric in a mode. Anything that doesn't fit the rubric is an `InputError`."""

    rubric: AnyRubric
    mode: ModeName

    name: ClassVar[Task]
    label_kind: ClassVar[Literal["outcome", "winner", "candidates"]]
    """The meaning of a label: a text's quality, the best text, or the candidates to keep."""
    trials_at_once: ClassVar[int] = 1
    """The number of cases judged at once, if the provider allows it."""

    # --- How models are asked

    def build_configured_judge(
        self, gateway: Gateway, loaded: LoadedRubric, project: Path | None, request: JudgeRequest
    ) -> DocumentJudge:
        """Build the judge that the project configures."""
        config = configuration.load(project)
        settings = service.judge_settings(config, loaded, project, request)
        return DocumentJudge(gateway, settings, service.open_reply_cache(request))

    @abstractmethod
    def judge(self, judge: DocumentJudge) -> Judge[AnyRubric, Subject, Record]:
        """Build this task's judge with another judge's settings."""

    @abstractmethod
    def build_subject(self, case: Case, inputs: NamedInputs | None) -> Subject:
        """Build the subject to judge in a case, such as a document.

        If the case only names a file, the text is read from `inputs`. Raises `InputError` without a text.
        """

    async def ask_tiers(
        self,
        judge: Judge[AnyRubric, Subject, Record],
        case: Case,
        state: JudgingState[Subject],
    ) -> None:
        """Call every tier for a case, and store the opinions in `state`.

        Some tasks raise `UnaskedError` if no model may see the case.
        """
        del case  # other tasks use it
        await judge.run(state)

    # --- How an answer is recorded

    def record(self, case: Case, turn: ModelTurn[Opinion], settings: JudgeSettings) -> Recorded:
        """Record a model's answer or failure, with its tokens, cost and latency."""
        call_answers = self.list_answered_calls(turn)
        answer = self.read_turn(case, turn)
        if not answer:
            answer = {"failure": self.find_failure(call_answers), "read": None}

        usages = [call_answer.usage for call_answer in call_answers]
        cost_usd = _sum_costs([usage.cost_usd for usage in usages])
        latency_ms: int | None = turn.answer.latency_ms
        # Replies from the cache are free and fast, so they would distort the mean cost and latency.
        if _uses_cache(usages):
            cost_usd = None
            latency_ms = None

        # The requested name can be an alias of the model that answers.
        answering_names = sorted(turn.answering_names())
        return Recorded(
            **answer,
            model=turn.endpoint.model,
            answered=MODEL_SEPARATOR.join(answering_names) or None,
            family=turn.endpoint.family,
            # Also count the calls that the cache saved.
            calls=self.count_calls(turn, settings),
            input_tokens=sum(usage.input_tokens for usage in usages),
            output_tokens=sum(usage.output_tokens for usage in usages),
            cost_usd=cost_usd,
            latency_ms=latency_ms,
        )

    @abstractmethod
    def read_turn(self, case: Case, turn: ModelTurn[Opinion]) -> RecordedAnswer:
        """Return a model's answer in recorded form, or {} if it's unreadable."""

    def list_answered_calls(self, turn: ModelTurn[Opinion]) -> Sequence[Answer[Any]]:
        """Return the answers that a record adds up."""
        return [turn.answer]

    def count_calls(self, turn: ModelTurn[Opinion], settings: JudgeSettings) -> int:
        """Count the calls that a model needs for the case, without the cache."""
        questions = len(self.rubric.questions)
        model_kind = get_model_kind(turn.endpoint)
        if model_kind is WRITES:
            # A model that writes text is called for each sample. With some settings, it gets each question in
            # a call of its own, too.
            return settings.count_calls_at_once(questions)
        if model_kind is DECIDES:
            return 1  # a decision model gets all questions at once
        return questions  # a model that answers with a token gets one question at a time

    def find_failure(self, calls: Sequence[Answer[Any]]) -> str:
        """Find out why there's no readable answer: the failure of the first call that failed.

        Returns "not_recorded" if no call has failed.
        """
        for call in calls:
            if call.failure:
                return call.failure.kind
        return "not_recorded"

    # --- How a recorded answer is read

    @abstractmethod
    def read_answers(self, case: Case, recorded: Recorded) -> dict[str, str | None]:
        """Return a judge's answers by candidate id.

        If there are no candidates, `WHOLE_CASE_KEY` is the only key.
        """

    @abstractmethod
    def label_words(self, case: Case) -> Sequence[str]:
        """Return the words that are valid labels."""

    def read_labels(self, case: Case) -> dict[str, str]:
        """Read the label of a case. As it is for the whole case, the only key is `WHOLE_CASE_KEY`.

        Tasks with candidates override this, and return a label for each candidate's id. Raises `InputError`
        if the label is invalid.
        """
        label = case.get_label(self.mode)
        words = self.label_words(case)
        if label not in words:
            raise case.build_error(f"label: expected {', '.join(words)}, got {label!r}")
        return {WHOLE_CASE_KEY: str(label)}

    @abstractmethod
    def build_samples(
        self, case: Case, deviating_tiers: Collection[TierName] = ()
    ) -> Iterator[Sample]:
        """Yield the document, the pair or each candidate; tiers in `deviating_tiers` have no margin."""

    def read_score(self, case: Case, recorded: Recorded) -> float | None:
        """Raise `InputError`, because the label of this case must be a word, not a score.

        The task for documents overrides this, and returns the tier's mean score.
        """
        del recorded  # the task for documents uses it
        raise case.build_error("label: expected words; a number is for a scored document")

    def read_ratings(self, case: Case, recorded: Recorded) -> Mapping[str, float] | None:
        """Return a document's scores, with their distance from acceptance as `DISTANCE_KEY`.

        Returns None if they can't be read.
        """
        del case, recorded
        return None

    def record_course(
        self, case: Case, deviating_tiers: Collection[TierName], rules: EscalationRules
    ) -> Recorded | None:
        """Return None, because this task has no combined result of the tiers to record.

        Tasks that read each tier separately override this, and return a record.
        """
        del case, deviating_tiers, rules  # other tasks use them
        return None

    # --- How a record compares with a label

    @abstractmethod
    def compare_with_label(self, case: Case, record: Record) -> Iterator[Tried]:
        """Yield the expected and actual word for each candidate of a selection, else for the case."""

    def label_word(self, case: Case) -> str:
        label = case.get_label(self.mode)
        assert isinstance(label, str)  # noqa: S101 - no case of a rubric has a number
        return label


class SeparateTiersTask(CaseTask[AnyRubric, Subject, Opinion, Record]):
    """A task that reads each tier's opinion separately: documents and candidates."""

    @abstractmethod
    def read_evidence(self, case: Case, recorded: Recorded) -> dict[str, TierEvidence]:
        """Read a tier's evidence, by candidate id. For a document, `WHOLE_CASE_KEY` is the only key."""

    @abstractmethod
    def record_ends(self, case: Case, ends: Mapping[str, End], calls: int) -> Recorded:
        """Record how the judging ended, by candidate id. For a document, `WHOLE_CASE_KEY` is the only key."""

    def read_answers(self, case: Case, recorded: Recorded) -> dict[str, str | None]:
        evidence = self.read_evidence(case, recorded)
        return {part: opinion.outcome for part, opinion in evidence.items()}

    def build_samples(
        self, case: Case, deviating_tiers: Collection[TierName] = ()
    ) -> Iterator[Sample]:
        """Yield a sample for the document, or for each candidate, with all tiers' evidence.

        Margins are removed from the evidence of `deviating_tiers`, so that no gate is learned from it.
        """
        evidence_by_tier = {}
        for tier, recorded in answers_by_tier(case).items():
            evidence_by_tier[tier] = self.read_evidence(case, recorded)

        for part_name, label in self.read_labels(case).items():
            opinions = {tier: evidence[part_name] for tier, evidence in evidence_by_tier.items()}
            yield Sample(
                id=_name_sample(case, part_name),
                label=cast("Outcome", label),
                opinions=drop_margins(opinions, deviating_tiers),
            )

    def record_course(
        self, case: Case, deviating_tiers: Collection[TierName], rules: EscalationRules
    ) -> Recorded:
        """Record the tiers' combined result on a case, by replaying the escalation rules.

        The opinions of `deviating_tiers` get no margins, so that no gate makes them final.
        """
        evidence_by_tier = self._read_evidence(case, rules.tiers)
        # The rules would wait for a tier without an answer, so only replay the others.
        replayed_rules = replace(rules, tiers=tuple(evidence_by_tier))

        end_by_part = {}
        asked_tiers = set[TierName]()
        for part_name in _list_part_names(evidence_by_tier):
            opinions = {tier: evidence[part_name] for tier, evidence in evidence_by_tier.items()}
            sample = _build_unlabelled_sample(part_name, drop_margins(opinions, deviating_tiers))
            end_by_part[part_name], part_tiers = replay_tiers(sample, replayed_rules)
            asked_tiers.update(part_tiers)

        calls = sum(case.judges[tier].calls for tier in asked_tiers)
        return self.record_ends(case, end_by_part, calls)

    def _read_evidence(
        self, case: Case, tiers: Sequence[TierName]
    ) -> dict[TierName, Mapping[str, TierEvidence]]:
        """Read the evidence of the tiers that answered about the case."""
        evidence_by_tier: dict[TierName, Mapping[str, TierEvidence]] = {}
        for tier in tiers:
            if tier in case.judges:
                evidence_by_tier[tier] = self.read_evidence(case, case.judges[tier])
        return evidence_by_tier


def _name_sample(case: Case, part_name: str) -> str:
    """Name a sample CASE/CANDIDATE or, for a whole document, CASE."""
    if part_name == WHOLE_CASE_KEY:
        return case.id
    return f"{case.id}/{part_name}"


def _list_part_names(
    evidence_by_tier: Mapping[TierName, Mapping[str, TierEvidence]],
) -> list[str]:
    """List the parts that the tiers judged: `WHOLE_CASE_KEY` for a document, or each candidate by id."""
    first_evidence = next(iter(evidence_by_tier.values()))  # all tiers have the same parts
    return list(first_evidence)


def _build_unlabelled_sample(part_name: str, opinions: Mapping[TierName, TierEvidence]) -> Sample:
    """Build a sample for a replay, which doesn't read the label."""
    unused_label: Outcome = "accept"
    return Sample(part_name, unused_label, opinions)


def gives_decisions(recorded: Recorded) -> bool:
    """Whether an answer only comes from decision models."""
    return all(juror.read == "decided" for juror in recorded.jurors)


def join_answers(answers: Sequence[Recorded], settings: JudgeSettings, *, is_cut: bool) -> Recorded:
    """Combine the answers of a tier's models into one record, with the total tokens, calls and costs.

    The record also contains the settings that the models were called with. `is_cut` means that they saw a
    shortened text.
    """
    is_single = len(answers) == 1
    joined = answers[0] if is_single else _join_jury(answers)
    conditions = {
        "samples": settings.samples,
        "criteria": settings.criteria,
        "rule": settings.jury,
        "redact": bool(settings.redact),
        "cut": is_cut,
    }
    return joined.model_copy(update=conditions)


def _join_jury(answers: Sequence[Recorded]) -> Recorded:
    """Join the answers of a jury's models, with the total tokens, calls and costs."""
    return Recorded(
        jury=list(answers),
        calls=sum(answer.calls for answer in answers),
        input_tokens=sum(answer.input_tokens for answer in answers),
        output_tokens=sum(answer.output_tokens for answer in answers),
        cost_usd=_sum_costs([answer.cost_usd for answer in answers]),
        # The models are called concurrently, so the slowest one determines the latency.
        latency_ms=_find_longest_wait([answer.latency_ms for answer in answers]),
    )


def _find_longest_wait(waits: Sequence[int | None]) -> int | None:
    """Find the longest wait. Returns None if any is unknown."""
    known_waits = [wait for wait in waits if wait is not None]
    if len(known_waits) < len(waits):
        return None
    return max(known_waits)


def _uses_cache(usages: Iterable[Usage]) -> bool:
    """Say if any reply came from the cache, or may have, because its cost has several sources."""
    return any(usage.cost_source in ("cache", "mixed") for usage in usages)


def _sum_costs(amounts: Sequence[float | None]) -> float | None:
    """Add up amounts. Returns None if any is unknown."""
    known_amounts = [amount for amount in amounts if amount is not None]
    if len(known_amounts) < len(amounts):
        return None
    return sum(known_amounts)
