"""What a tier is asked about a subject, and how one model is asked it: a call for each sample and part."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from judgekit.judging.kinds import kind_of
from judgekit.judging.round import Answer, Calls, Session, gather_limited, joined
from judgekit.judging.verdict import CompareRound, Round
from judgekit.providers.base import answering_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.config import ModeName, TierName
    from judgekit.judging.documents import Candidates, ComparisonInput, Document
    from judgekit.judging.fence import Fence
    from judgekit.judging.settings import JudgeSettings
    from judgekit.providers.base import Endpoint, Messages
    from judgekit.rubric.schema import CompareRubric, ScoreRubric, SelectRubric, Tier

AnyRubric = TypeVar("AnyRubric", "ScoreRubric", "SelectRubric", "CompareRubric")
Subject = TypeVar("Subject", bound="Document | ComparisonInput | Candidates")
Value = TypeVar("Value")
Opinion = TypeVar("Opinion")


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
    def record(self, opinion: Opinion) -> dict[str, Any]:
        """Return an opinion as it stands in a round."""

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
        answers = iter(await gather_limited(all_calls, session, endpoint, calls_in_one))
        return [list(islice(answers, len(calls))) for calls in calls_by_sample]

    def rounds(
        self, first: int, turns: Sequence[ModelTurn[Opinion]]
    ) -> Sequence[Round | CompareRound]:
        """Return the turns as a record has them, numbered from `first`."""
        rounds = []
        for number, turn in enumerate(turns, first):
            fields = turn.answer.record(self.record)
            rounds.append(Round(round=number, tier=self.tier, **fields))
        return rounds
