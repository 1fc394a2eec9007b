"""What a tier is asked about a subject, and how one model is asked it: a call for each sample and part."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Self, TypeVar

from judgekit.config import TIERS
from judgekit.judging.asking import ASKERS
from judgekit.judging.calibration import sha256
from judgekit.judging.fence import Fence, without_nonce
from judgekit.judging.kinds import DECIDES, READS_TOKENS, ModelKind, kind_of
from judgekit.judging.round import Answer, Calls, Session, gather_limited, joined
from judgekit.judging.settings import JudgeSettings
from judgekit.providers import registry, replay
from judgekit.providers.base import answering_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.config import ModeName, TierName
    from judgekit.judging.documents import Candidates, ComparisonInput, Document
    from judgekit.judging.questionnaire import Answers, Questionnaire
    from judgekit.judging.verdict import AnyRound
    from judgekit.providers.base import Endpoint, Messages
    from judgekit.rubric.schema import CompareRubric, ScoreRubric, SelectRubric, Tier

AnyRubric = TypeVar("AnyRubric", "ScoreRubric", "SelectRubric", "CompareRubric")
Subject = TypeVar("Subject", bound="Document | ComparisonInput | Candidates")
Value = TypeVar("Value")
Opinion = TypeVar("Opinion")
_WORDS_DIGITS: Final = 12  # of a hash, in the key of a recording
# By a task's question, the hash of the rubric, the mode and the kind of model; hashed once in a process.
_hashes: dict[tuple[type, str, str, ModelKind], str] = {}


@dataclass(frozen=True, slots=True)
class ModelTurn(Generic[Opinion]):
    """Every call to one model in a tier, and all of them as one answer."""

    endpoint: Endpoint
    calls: Sequence[Answer[Any]]
    answer: Answer[Opinion]

    def answering_names(self) -> set[str]:
        """Name the models that gave its answers: behind a name that moves on it's another one some day."""
        names = set()
        for answer in (*self.calls, self.answer):
            if answer.value:
                names.add(answering_name(self.endpoint.model, answer.model))
        return names


def answering_models(turns: Sequence[ModelTurn[Any]]) -> set[tuple[str, str]]:
    """Return the models that were asked, each with those that answered."""
    models = set()
    for turn in turns:
        models |= {(turn.endpoint.model, name) for name in turn.answering_names()}
    return models


@dataclass(frozen=True)
class TierQuestion(ABC, Generic[AnyRubric, Subject, Value, Opinion]):
    """What one tier is asked: with the instructions of a tier, and shown `earlier_opinions`.

    A call brings a `Value`. Those of one model come to its `Opinion`, and these to that of the tier.
    """

    settings: JudgeSettings
    subject: Subject
    tier: TierName
    instructions_tier: TierName | None = None
    earlier_opinions: Sequence[Any] = ()

    @abstractmethod
    def prompts(self, endpoint: Endpoint | None, fence: Fence) -> list[Messages]:
        """Return what would be sent to a model, in order."""

    @abstractmethod
    def calls(self, endpoint: Endpoint, session: Session, sample: int) -> Calls[Value]:
        """Return the calls that ask a model once; of several replies to a question `sample` is the number."""

    @abstractmethod
    def opinion(self, samples: Sequence[Sequence[Value | None]]) -> Opinion | None:
        """Return what a model's calls come to, sample by sample; None where too few brought a value."""

    @abstractmethod
    def combine(self, voices: Sequence[tuple[Endpoint, Opinion | None]]) -> Any:  # noqa: ANN401 - the task's own
        """Return what the models of the tier come to as a jury."""

    @abstractmethod
    def rounds(self, first: int, turns: Sequence[ModelTurn[Opinion]]) -> Sequence[AnyRound]:
        """Return the turns as a record has them, numbered from `first`."""

    @property
    def rubric(self) -> AnyRubric:
        return self.settings.loaded.rubric  # type: ignore[return-value]  # the library saw to it

    @property
    def mode(self) -> ModeName:
        return self.settings.mode

    @property
    def limits(self) -> Tier:
        limits: Tier = getattr(self.rubric.tiers, self.tier)
        return limits

    @property
    def rubrics_by_part(self) -> dict[str, AnyRubric]:
        """What each call asks about, by its part of the key: the whole rubric, or one question."""
        if self.settings.criteria == "together" or len(self.rubric.questions) == 1:
            return {"": self.rubric}
        return {name: self.rubric.about(name) for name in self.rubric.questions}

    def sample_plans(self, endpoint: Endpoint) -> list[Sequence[int]]:
        """Return the numbers of the samples to ask for, and what else to ask for if they are not enough.

        They count from 1; 0 stands alone where a model is asked once.
        """
        # Probabilities leave nothing to repeat.
        if not kind_of(endpoint).gives_reasons or self.settings.samples == 1:
            return [[0]]
        return [range(1, self.settings.samples + 1)]

    def is_enough(self, opinion: Opinion | None) -> bool:
        """Whether an opinion needs no further samples."""
        return opinion is not None

    def calls_in_one(self, endpoint: Endpoint) -> int:
        """Return how many calls to a model one of `calls` may make at a time."""
        del endpoint
        return 1

    def asks_in_order(self, endpoint: Endpoint) -> bool:
        """Whether one call ends before the next one begins: at the deadline the first ones are answered."""
        del endpoint
        return False

    async def ask(self, endpoint: Endpoint, session: Session) -> ModelTurn[Opinion]:
        """Ask one model, and ask for further samples only where the first are not enough."""
        started = time.monotonic()
        answers_by_sample: list[list[Answer[Value]]] = []
        opinion = None
        for samples in self.sample_plans(endpoint):
            answers_of_plan = await self._ask_samples(endpoint, session, samples)
            answers_by_sample += answers_of_plan
            values = [[answer.value for answer in answers] for answers in answers_of_plan]
            opinion = self.opinion(values)  # of these samples alone
            if self.is_enough(opinion):
                break
        all_answers = list(chain.from_iterable(answers_by_sample))
        # Of several samples some may fail; of one a part may have failed, and the rest counts.
        is_single = len(answers_by_sample) == 1
        joint_answer = joined(all_answers, opinion, started, keep_failure=is_single)
        return ModelTurn(endpoint, all_answers, joint_answer)

    async def _ask_samples(
        self, endpoint: Endpoint, session: Session, samples: Sequence[int]
    ) -> list[list[Answer[Value]]]:
        """Return the answers to the calls of each sample."""
        calls_by_sample = [self.calls(endpoint, session, sample) for sample in samples]
        all_calls = list(chain.from_iterable(calls_by_sample))
        calls_in_one = self.calls_in_one(endpoint)
        if self.asks_in_order(endpoint):
            answers = iter([await call() for call in all_calls])
        else:
            answers = iter(await gather_limited(all_calls, session, endpoint, calls_in_one))
        return [list(islice(answers, len(calls))) for calls in calls_by_sample]


class AskedQuestion(TierQuestion[AnyRubric, Subject, Value, Opinion]):
    """What a task asks by questionnaires: it makes them, and reads the answers, whoever gave them."""

    has_scores: ClassVar[bool] = False
    """Whether answers are points of a scale, of which a model may give the expectation."""
    is_about_two: ClassVar[bool] = False
    """Whether it's about two texts together: then all criteria are weighed in a call, by any model."""

    @staticmethod
    @abstractmethod
    def agent_text(rubric: AnyRubric, mode: ModeName) -> str:
        """Return the rubric in words, as instructions for an agent that judges by itself."""

    @classmethod
    @abstractmethod
    def about_letters(cls, settings: JudgeSettings, tier: TierName) -> Self:
        """Return what a tier is asked about a subject that never changes: by it the words are known."""

    @property
    @abstractmethod
    def bars(self) -> Sequence[float]:
        """The numbers by which the task reads answers."""

    @abstractmethod
    def questionnaires(self, endpoint: Endpoint | None) -> list[Questionnaire]:
        """Return what a model is asked, in order: of a subject as long as the model may see it."""

    @abstractmethod
    def read(
        self, endpoint: Endpoint, questionnaire: Questionnaire, answers: Answers
    ) -> Value | None:
        """Return what a model's answers to a questionnaire mean; None where something is missing."""

    def prompts(self, endpoint: Endpoint | None, fence: Fence) -> list[Messages]:
        asker = ASKERS[kind_of(endpoint)]
        prompts = []
        for questionnaire in self.questionnaires(endpoint):
            prompts += asker.prompts(questionnaire, fence)
        return prompts

    def calls(self, endpoint: Endpoint, session: Session, sample: int) -> Calls[Value]:
        """Return a call for each questionnaire; a recording may be bound to the words."""
        kind = kind_of(endpoint)
        calls: Calls[Value] = []
        for questionnaire in self.questionnaires(endpoint):
            bound = questionnaire
            if kind.is_bound_by_words:
                words = self.words_sha256(kind)[:_WORDS_DIGITS]
                key = questionnaire.call_key.within(f"words-{words}")
                bound = replace(questionnaire, call_key=key)
            calls.append(partial(self._ask, endpoint, session, bound, sample))
        return calls

    async def _ask(
        self, endpoint: Endpoint, session: Session, questionnaire: Questionnaire, sample: int
    ) -> Answer[Value]:
        asker = ASKERS[kind_of(endpoint)]
        answer = await asker.ask(session, endpoint, questionnaire, sample)
        value = None
        if answer.value is not None:
            value = self.read(endpoint, questionnaire, answer.value)
        return Answer(value, answer.failure, answer.usage, answer.latency_ms, answer.model)

    def words_sha256(self, kind: ModelKind) -> str:
        """Return the hash of all that a kind of model is asked under the rubric, and how it is read."""
        usual = JudgeSettings(loaded=self.settings.loaded, mode=self.mode)
        return hash_words(type(self), usual, kind)


def hash_words(
    question: type[AskedQuestion[Any, Any, Any, Any]], settings: JudgeSettings, kind: ModelKind
) -> str:
    """Return the hash of what a kind of model is asked about letters, with the bars for its answers."""
    key = (question, settings.loaded.sha256, settings.mode, kind)
    if key not in _hashes:
        _hashes[key] = _hash_words(question, settings, kind)
    return _hashes[key]


def _hash_words(
    question: type[AskedQuestion[Any, Any, Any, Any]], settings: JudgeSettings, kind: ModelKind
) -> str:
    asker = ASKERS[kind]
    model = example_of(kind)
    fence = Fence("nonce")
    words: list[Any] = [asker.bars]
    for tier in TIERS:
        about_letters = question.about_letters(settings, tier)
        words.append(about_letters.bars)
        for questionnaire in about_letters.questionnaires(model):
            text = json.dumps(asker.words(questionnaire, fence), sort_keys=True)
            # Labels are drawn by an installation's own secret.
            for label in filter(str.isupper, questionnaire.labels):
                text = text.replace(label, "LABEL")
            words.append(without_nonce(text))
    return sha256(words)


def example_of(kind: ModelKind) -> Endpoint:
    """Return a model of a kind that nobody can ask: how it would be asked can be looked at."""
    model = replay.recorded_model("m", registry.UNKNOWN_FAMILY)
    return replace(model, decides=kind is DECIDES, pointwise=kind is READS_TOKENS)
