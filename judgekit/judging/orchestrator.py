"""The one loop of judging: a subject is prepared, tier after tier is asked, and rules or limits end it.

A task (`score`, `select`, `compare`, `ranking`) says what a model is asked, how its replies become an
opinion, how the opinions of a tier combine, and how far that is from another outcome.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from judgekit import errors
from judgekit.config import TIERS, TierName
from judgekit.errors import GatewayError
from judgekit.judging import panel
from judgekit.judging.escalation import UNDETERMINED, Final
from judgekit.judging.fence import Fence
from judgekit.judging.round import Answer, Calls, Session, gather_limited, joined, ms_since
from judgekit.judging.verdict import CompareRound, Round, rubric_ref

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from judgekit.config import ModeName
    from judgekit.judging.cache import Replies
    from judgekit.judging.documents import Candidates, ComparisonInput, Document
    from judgekit.judging.settings import JudgeSettings
    from judgekit.providers.base import Endpoint, Gateway, Messages
    from judgekit.providers.resolve import Tiers
    from judgekit.rubric.schema import CompareRubric, ScoreRubric, SelectRubric, Tier

AnyRubric = TypeVar("AnyRubric", "ScoreRubric", "SelectRubric", "CompareRubric")
AnyJudge = TypeVar("AnyJudge", bound="Judge[Any, Any, Any]")
Value = TypeVar("Value")
Opinion = TypeVar("Opinion")
Subject = TypeVar("Subject", bound="Document | ComparisonInput | Candidates")
Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class ModelTurn(Generic[Opinion]):
    """Every call to one model in a tier, and all of them as one answer."""

    endpoint: Endpoint
    calls: Sequence[Answer[Any]]
    answer: Answer[Opinion]


@dataclass(frozen=True)
class TierQuestion(ABC, Generic[AnyRubric, Subject, Value, Opinion]):
    """What one tier is asked: with the instructions of a tier, and shown `earlier_opinions`."""

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
    def parts(self) -> dict[str, AnyRubric]:
        """What each call asks about, by its part of the key: the whole rubric, or one question."""
        if self.settings.criteria == "together" or len(self.rubric.questions) == 1:
            return {"": self.rubric}
        return {name: self.rubric.about(name) for name in self.rubric.questions}

    async def ask(
        self,
        endpoint: Endpoint,
        session: Session,
        samples: Sequence[int] | None = None,
        at_once: int = 1,
    ) -> ModelTurn[Opinion]:
        """Ask one model for each of `samples`, by default as configured; a call may make `at_once`."""
        started = time.monotonic()
        numbers = samples or self._sample_numbers(endpoint)
        calls_by_sample = [self.calls(endpoint, session, number) for number in numbers]
        calls = [call for sample_calls in calls_by_sample for call in sample_calls]
        answers = await gather_limited(calls, session, endpoint, at_once)
        values = [answer.value for answer in answers]
        size = len(calls_by_sample[0])
        values_by_sample = []
        for start in range(0, len(values), size):
            values_by_sample.append(values[start : start + size])
        opinion = self.opinion(values_by_sample)
        # Of several samples some may fail; of one a part may have failed, and the rest counts.
        is_single = len(calls_by_sample) == 1
        answer = joined(answers, opinion, started, always=is_single)
        return ModelTurn(endpoint, answers, answer)

    def _sample_numbers(self, endpoint: Endpoint) -> Sequence[int]:
        """Return the numbers of the samples from 1; 0 alone where a model is asked once."""
        # Token probabilities leave nothing to repeat.
        if endpoint.pointwise or self.settings.samples == 1:
            return [0]
        return range(1, self.settings.samples + 1)

    def rounds(
        self, first: int, turns: Sequence[ModelTurn[Opinion]]
    ) -> Sequence[Round | CompareRound]:
        return [
            Round(round=number, tier=self.tier, **turn.answer.record(self.record))
            for number, turn in enumerate(turns, first)
        ]


@dataclass(slots=True)
class JudgingState(Generic[Subject]):
    """One judging on its way: what each tier that was asked came to, in order, and every round.

    `refused` says why no model is asked about the subject. `secrets` were left out of it. `cut` are the tiers
    that do not see all of it, `turns` every call by tier, `voices` models' opinions where the tier has one.
    """

    subject: Subject
    session: Session
    refused: str = ""
    secrets: int = 0
    cut: Collection[TierName] = ()
    turns: dict[TierName, Sequence[ModelTurn[Any]]] = field(default_factory=dict)
    opinions: dict[TierName, Any] = field(default_factory=dict)
    rounds: list[Any] = field(default_factory=list)
    voices: list[tuple[TierName, Endpoint, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Judge(ABC, Generic[AnyRubric, Subject, Record]):
    """Judges subjects by its settings; `cache` has the replies of earlier judgings."""

    gateway: Gateway
    settings: JudgeSettings
    cache: Replies | None = None

    @abstractmethod
    def question(
        self, tier: TierName, state: JudgingState[Subject]
    ) -> TierQuestion[AnyRubric, Subject, Any, Any]:
        """Return what a tier is asked."""

    @abstractmethod
    def step(self, state: JudgingState[Subject]) -> TierName | Final:
        """Return the tier to ask now, or the end of the judging."""

    @abstractmethod
    def record(self, state: JudgingState[Subject], final: Final) -> Record:
        """Return the record of a judging that has ended."""

    @abstractmethod
    def redacted(self, subject: Subject) -> tuple[Subject, int]:
        """Return the subject without its secrets, and how many they were."""

    def attributed(self, subject: Subject) -> Subject:
        """Return the subject with the families of its authors that the configuration names."""
        return subject

    async def judge(self, subject: Subject) -> Record:
        """Return the record on a subject; failures are in it, never raised."""
        subject = self.attributed(subject)
        # In a thread: it may ask local servers, or a proxy, which models they have.
        if self.models_by_tier and subject.wrote:
            judge = await asyncio.to_thread(self.for_subject, subject)
        else:
            judge = self
        state = JudgingState(subject, judge.session())
        work = partial(judge.redacted, subject)
        try:
            state.subject, state.secrets = await state.session.run_in_thread(work, subject.size)
        except GatewayError as error:
            return judge.unjudged(state, f"{error.kind} ({error.message})")
        state.refused = judge.settings.refusal(state.secrets)
        return await judge.run(state)

    async def run(self, state: JudgingState[Subject]) -> Record:
        """Ask tier after tier about a subject that is prepared, and return the record."""
        if self.models_by_tier and not state.refused:
            final = self.step(state)
        else:
            final = UNDETERMINED
        while not isinstance(final, Final):
            await self._ask_tier(final, state)
            final = self.step(state)
        return self.record(state, final)

    async def _ask_tier(self, tier: TierName, state: JudgingState[Subject]) -> None:
        """Ask the models of a tier, and note in the state what they said and what they come to."""
        question = self.question(tier, state)
        calls = []
        for endpoint in self.models_by_tier[tier]:
            calls.append(partial(question.ask, endpoint, state.session))
        turns = await gather_limited(calls, state.session)
        opinion = question.combine([(turn.endpoint, turn.answer.value) for turn in turns])
        state.turns[tier] = turns
        state.opinions[tier] = opinion
        state.rounds += question.rounds(len(state.rounds) + 1, turns)
        if not opinion:
            return
        for turn in turns:
            if turn.answer.value:
                state.voices.append((tier, turn.endpoint, turn.answer.value))

    def unjudged(self, state: JudgingState[Subject], why: str) -> Record:
        state.refused = why
        judge = self.with_settings(finality=None, calibration_warning=None)
        return judge.record(state, UNDETERMINED)

    def prompts(
        self, tier: TierName, subject: Subject, endpoint: Endpoint | None = None
    ) -> list[Messages]:
        """Return what would be sent to `endpoint`, or the first model of `tier`, if it were asked first."""
        subject, secrets = self.redacted(subject)
        if self.settings.refusal(secrets):
            return []
        first = endpoint or next(iter(self.models_by_tier.get(tier, ())), None)
        return self.question(tier, JudgingState(subject, self.session())).prompts(first, Fence())

    def prompts_by_model(self, subject: Subject) -> list[tuple[TierName, str, list[Messages]]]:
        judge = self.for_subject(subject)
        settings = judge.settings
        if not settings.models_by_tier:
            return [(tier, "no model is set up", judge.prompts(tier, subject)) for tier in TIERS]
        shown = []
        for tier in TIERS:
            for endpoint in settings.models_by_tier.get(tier, ()):
                name = endpoint.model
                if endpoint.profile.provider in settings.replacement_providers:
                    name += ", in place of the author's family"
                shown.append((tier, name, judge.prompts(tier, subject, endpoint)))
        return shown

    @property
    def rubric(self) -> AnyRubric:
        return self.settings.loaded.rubric  # type: ignore[return-value]  # the library saw to it

    @property
    def models_by_tier(self) -> Tiers:
        return self.settings.models_by_tier

    def as_judge(self, kind: type[AnyJudge]) -> AnyJudge:
        return kind(self.gateway, self.settings, self.cache)

    def with_settings(self, **changes: Any) -> Self:  # noqa: ANN401 - any setting
        """Return the judge with some settings changed."""
        return replace(self, settings=replace(self.settings, **changes))

    def for_subject(self, subject: Subject) -> Self:
        """Return the judge without models of the families that wrote a subject, where others are there."""
        attributed = self.attributed(subject)
        wrote: tuple[str, ...] = attributed.wrote
        some: tuple[str, ...] = attributed.families_of_some_texts
        settings = panel.without_authors(self.settings, wrote, some)
        return replace(self, settings=settings)

    def session(self) -> Session:
        return Session(
            gateway=self.gateway,
            seconds=self.settings.timeout,
            max_cost_usd=self.settings.max_cost_usd,
            call_seconds=self.settings.call_timeout,
            cache=self.cache,
        )

    def measured(self, state: JudgingState[Subject]) -> dict[str, Any]:
        """Return what every record says: the rules, the rounds, the time, and the cost in US dollars."""
        settings = self.settings
        usages = [row.usage for row in state.rounds]
        usd, source = errors.added(usages)
        cost_complete = not any(usage.unpriced_calls for usage in usages)
        return {
            "rubric": rubric_ref(settings.loaded),
            "mode": settings.mode,
            "prompt_sha256": self.rubric.prompt.sha256,
            "calibration": settings.finality.id if settings.finality else None,
            "rounds": state.rounds,
            "duration_ms": ms_since(state.session.started),
            "cost_usd": usd and round(usd, 6),
            "cost_source": source,
            "cost_complete": cost_complete,
        }
