"""The question for a tier, and how one model is asked it: a call for each sample and part."""

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
from judgekit.judging.calibration import hash_json
from judgekit.judging.fence import Fence, replace_nonces
from judgekit.judging.kinds import DECIDES, READS_TOKENS, ModelKind, get_model_kind
from judgekit.judging.round import Answer, Calls, Session, gather_limited, merge_answers
from judgekit.judging.settings import JudgeSettings
from judgekit.providers import registry, replay
from judgekit.providers.base import choose_answering_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.config import ModeName, TierName
    from judgekit.judging.documents import Candidates, ComparisonInput, Document
    from judgekit.judging.questionnaire import Answers, Asker, Questionnaire
    from judgekit.judging.verdict import AnyRound
    from judgekit.providers.base import Endpoint, Messages
    from judgekit.rubric.schema import CompareRubric, ScoreRubric, SelectRubric, Tier

AnyRubric = TypeVar("AnyRubric", "ScoreRubric", "SelectRubric", "CompareRubric")
Subject = TypeVar("Subject", bound="Document | ComparisonInput | Candidates")
Value = TypeVar("Value")
Opinion = TypeVar("Opinion")
_WORDS_HASH_DIGITS: Final = 12  # of a hash, in a recording's key
# By a task's question, and the hash of the rubric, mode and kind of model; computed once a process.
_hashes: dict[tuple[type, str, str, ModelKind], str] = {}


@dataclass(frozen=True, slots=True)
class ModelTurn(Generic[Opinion]):
    """All calls to one model in a tier, and their combined answer."""

    endpoint: Endpoint
    call_answers: Sequence[Answer[Any]]
    answer: Answer[Opinion]

    def answering_names(self) -> set[str]:
        """Return the names of the models that answered. If the requested name is an alias, they differ."""
        names = set()
        for answer in (*self.call_answers, self.answer):
            if answer.value:
                names.add(choose_answering_name(self.endpoint.model, answer.model))
        return names


def answering_models(turns: Sequence[ModelTurn[Any]]) -> set[tuple[str, str]]:
    """Return pairs of a requested model's name and the name of the model that answered."""
    models = set()
    for turn in turns:
        models |= {(turn.endpoint.model, name) for name in turn.answering_names()}
    return models


@dataclass(frozen=True)
class TierQuestion(ABC, Generic[AnyRubric, Subject, Value, Opinion]):
    """A tier's question, with that tier's instructions; may show `earlier_opinions`.

    Each call gives a `Value`. One model's values combine to its `Opinion`, and these to the tier's.
    """

    settings: JudgeSettings
    subject: Subject
    tier: TierName
    instructions_tier: TierName | None = None
    earlier_opinions: Sequence[Any] = ()

    @abstractmethod
    def build_prompts(self, endpoint: Endpoint | None, fence: Fence) -> list[Messages]:
        """Build a model's prompts, in order."""

    @abstractmethod
    def build_calls(self, endpoint: Endpoint, session: Session, sample: int) -> Calls[Value]:
        """Build the calls that ask a model once; `sample` numbers several replies to the same question."""

    @abstractmethod
    def combine_samples(self, samples: Sequence[Sequence[Value | None]]) -> Opinion | None:
        """Combine a model's calls, sample by sample; None if too few gave a value."""

    @abstractmethod
    def combine(self, voices: Sequence[tuple[Endpoint, Opinion | None]]) -> Any:  # noqa: ANN401 - the task's own
        """Combine the opinions of the tier's models as a jury."""

    @abstractmethod
    def build_rounds(self, first: int, turns: Sequence[ModelTurn[Opinion]]) -> Sequence[AnyRound]:
        """Convert the turns to rounds of a record, numbered from `first`."""

    @property
    def rubric(self) -> AnyRubric:
        return self.settings.loaded_rubric.rubric  # type: ignore[return-value]  # the library saw to it

    @property
    def mode(self) -> ModeName:
        return self.settings.mode

    @property
    def limits(self) -> Tier:
        limits: Tier = getattr(self.rubric.tiers, self.tier)
        return limits

    @property
    def rubrics_by_part(self) -> dict[str, AnyRubric]:
        """The rubric for each call: the complete rubric (under ""), or a part for each question, by name."""
        if self.settings.criteria == "together" or len(self.rubric.questions) == 1:
            return {"": self.rubric}
        return {name: self.rubric.about(name) for name in self.rubric.questions}

    def sample_plans(self, endpoint: Endpoint) -> list[Sequence[int]]:
        """Plan which samples (repeated answers) to request, as lists of sample numbers.

        By default, there's one list, such as 1 to 3 for three samples. A single sample has the number 0.
        """
        samples = self.settings.samples
        if not get_model_kind(endpoint).gives_reasons:
            samples = 1  # such a model gives probabilities, which don't vary between samples
        if samples == 1:
            return [[0]]
        return [range(1, samples + 1)]

    def is_enough(self, opinion: Opinion | None) -> bool:
        """Whether an opinion needs no further samples."""
        return opinion is not None

    def count_concurrent_calls(self, endpoint: Endpoint) -> int:
        """Count the calls to a model that one of `build_calls` may make at once."""
        del endpoint
        return 1

    def asks_in_order(self, endpoint: Endpoint) -> bool:
        """Whether calls run one after another, so that the deadline cuts only the last ones."""
        del endpoint
        return False

    async def ask(self, endpoint: Endpoint, session: Session) -> ModelTurn[Opinion]:
        """Ask one model, and return all its answers and its opinion.

        If the first samples don't settle the opinion, more are requested, and only the last ones form it.
        """
        started = time.monotonic()
        answers_by_sample: list[list[Answer[Value]]] = []
        opinion = None
        for samples in self.sample_plans(endpoint):
            new_answers = await self._ask_samples(endpoint, session, samples)
            answers_by_sample += new_answers
            opinion = self._form_opinion(new_answers)
            if self.is_enough(opinion):
                break

        all_answers = list(chain.from_iterable(answers_by_sample))
        # With several samples, failures don't matter if there's an opinion. With a single one they do,
        # because its opinion can lack the part that failed.
        is_single = len(answers_by_sample) == 1
        joint_answer = merge_answers(all_answers, opinion, started, keep_failure=is_single)
        return ModelTurn(endpoint, all_answers, joint_answer)

    async def _ask_samples(
        self, endpoint: Endpoint, session: Session, samples: Sequence[int]
    ) -> list[list[Answer[Value]]]:
        """Make the calls for all samples, concurrently if possible, and return the answers of each sample."""
        calls_by_sample = [self.build_calls(endpoint, session, sample) for sample in samples]
        all_calls = list(chain.from_iterable(calls_by_sample))
        if self.asks_in_order(endpoint):
            answers = [await call() for call in all_calls]
        else:
            # A call can make several requests at once, which count towards the provider's limit.
            requests_per_call = self.count_concurrent_calls(endpoint)
            answers = await gather_limited(all_calls, session, endpoint, requests_per_call)
        return _split_answers(answers, [len(calls) for calls in calls_by_sample])

    def _form_opinion(self, answers_by_sample: Sequence[Sequence[Answer[Value]]]) -> Opinion | None:
        """Form the opinion from the values of the samples' answers."""
        values_by_sample = []
        for answers in answers_by_sample:
            values_by_sample.append([answer.value for answer in answers])
        return self.combine_samples(values_by_sample)


def _split_answers(
    answers: Sequence[Answer[Value]], lengths: Sequence[int]
) -> list[list[Answer[Value]]]:
    """Split answers into consecutive lists of these lengths."""
    next_answers = iter(answers)
    return [list(islice(next_answers, length)) for length in lengths]


class AskedQuestion(TierQuestion[AnyRubric, Subject, Value, Opinion]):
    """A task's question in the form of questionnaires: it builds them and reads any model's answers."""

    has_scores: ClassVar[bool] = False
    """Whether answers are points on a scale, for which a model may give the expectation."""
    is_about_two: ClassVar[bool] = False
    """Whether it compares two texts: then every model weighs all criteria in one call."""

    @staticmethod
    @abstractmethod
    def write_agent_text(rubric: AnyRubric, mode: ModeName) -> str:
        """Write the rubric as instructions for an agent that judges by itself."""

    @classmethod
    @abstractmethod
    def about_fixed_subject(cls, settings: JudgeSettings, tier: TierName) -> Self:
        """Build the question about a subject that never changes, so that its words can be hashed."""

    @property
    @abstractmethod
    def reading_thresholds(self) -> Sequence[float]:
        """The thresholds for the task's reading of answers."""

    @abstractmethod
    def build_questionnaires(self, endpoint: Endpoint | None) -> list[Questionnaire]:
        """Build a model's questionnaires, in order, with as much of the subject as the model may see."""

    @abstractmethod
    def read(
        self, endpoint: Endpoint, questionnaire: Questionnaire, answers: Answers
    ) -> Value | None:
        """Read a model's answers to a questionnaire; None if something's missing."""

    def build_prompts(self, endpoint: Endpoint | None, fence: Fence) -> list[Messages]:
        """Build a model's prompts, in order."""
        asker = ASKERS[get_model_kind(endpoint)]
        prompts = []
        for questionnaire in self.build_questionnaires(endpoint):
            prompts += asker.build_prompts(questionnaire, fence)
        return prompts

    def build_calls(self, endpoint: Endpoint, session: Session, sample: int) -> Calls[Value]:
        """Build a call for each questionnaire."""
        kind = get_model_kind(endpoint)
        calls: Calls[Value] = []
        for questionnaire in self.build_questionnaires(endpoint):
            keyed_questionnaire = self._add_words_to_key(questionnaire, kind)
            calls.append(
                partial(self._ask_and_read, endpoint, session, keyed_questionnaire, sample)
            )
        return calls

    def _add_words_to_key(self, questionnaire: Questionnaire, kind: ModelKind) -> Questionnaire:
        """Add a hash of the questions' words to the call's key if this kind of model needs that.

        Then a recorded reply to other words isn't found under the key.
        """
        if not kind.is_bound_by_words:
            return questionnaire
        words_hash = self.hash_words(kind)[:_WORDS_HASH_DIGITS]
        key = questionnaire.call_key.append_part(f"words-{words_hash}")
        return replace(questionnaire, call_key=key)

    async def _ask_and_read(
        self, endpoint: Endpoint, session: Session, questionnaire: Questionnaire, sample: int
    ) -> Answer[Value]:
        """Ask an endpoint, and read its answers. Without an answer, there's no value."""
        asker = ASKERS[get_model_kind(endpoint)]
        answer = await asker.ask(session, endpoint, questionnaire, sample)
        value = None
        if answer.value is not None:
            value = self.read(endpoint, questionnaire, answer.value)
        return Answer(value, answer.failure, answer.usage, answer.latency_ms, answer.model)

    def hash_words(self, kind: ModelKind) -> str:
        """Hash the questions to a kind of model under this rubric, and the thresholds for its answers."""
        default_settings = JudgeSettings(loaded_rubric=self.settings.loaded_rubric, mode=self.mode)
        return hash_words(type(self), default_settings, kind)


def hash_words(
    question: type[AskedQuestion[Any, Any, Any, Any]], settings: JudgeSettings, kind: ModelKind
) -> str:
    """Hash the wording of the questions for a kind of model, and the thresholds for its answers. Cached."""
    key = (question, settings.loaded_rubric.sha256, settings.mode, kind)
    if key not in _hashes:
        _hashes[key] = _compute_words_hash(question, settings, kind)
    return _hashes[key]


def _compute_words_hash(
    question: type[AskedQuestion[Any, Any, Any, Any]], settings: JudgeSettings, kind: ModelKind
) -> str:
    """Hash the wording of the questions for a kind of model, and the thresholds for its answers.

    The hash is the same on every computer.
    """
    asker = ASKERS[kind]
    example_model = build_example_model(kind)
    hashed_parts: list[Any] = [asker.reading_thresholds]
    for tier in TIERS:
        # Only the wording is hashed, so every hash uses the same subject.
        tier_question = question.about_fixed_subject(settings, tier)
        hashed_parts.append(tier_question.reading_thresholds)
        for questionnaire in tier_question.build_questionnaires(example_model):
            hashed_parts.append(_write_portable_words(asker, questionnaire))
    return hash_json(hashed_parts)


def _write_portable_words(asker: Asker, questionnaire: Questionnaire) -> str:
    """Write a questionnaire's words as JSON, without the parts that differ between computers."""
    words = asker.collect_words(questionnaire, Fence("nonce"))
    text = json.dumps(words, sort_keys=True)
    # Labels in capitals are derived from a secret that each installation has.
    secret_labels = [label for label in questionnaire.labels if label.isupper()]
    for label in secret_labels:
        text = text.replace(label, "LABEL")
    return replace_nonces(text)


def build_example_model(kind: ModelKind) -> Endpoint:
    """Build an example model of a kind, to see its prompts. It can't be called."""
    model = replay.build_recorded_model("m", registry.UNKNOWN_FAMILY)
    return replace(model, decides=kind is DECIDES, is_pointwise=kind is READS_TOKENS)
