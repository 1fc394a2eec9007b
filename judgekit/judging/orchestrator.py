"""The one loop of judging: prepare a subject and ask tier after tier, until rules or limits end it.

Each task (`score`, `select`, `compare`, `ranking`) is a `Judge` subclass, called by the loop; a task never
calls the loop itself. A `TierQuestion` is what a tier is asked, and asks the models.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from judgekit.config import TIERS, TierName
from judgekit.errors import GatewayError
from judgekit.judging import panel
from judgekit.judging.escalation import decide
from judgekit.judging.fence import Fence
from judgekit.judging.question import (
    AnyRubric,
    ModelTurn,
    Subject,
    TierQuestion,
    answering_models,
)
from judgekit.judging.round import Session, gather_limited
from judgekit.judging.state import JudgingState
from judgekit.judging.steps import UNASKED, Ask, End, EscalationRules, Step
from judgekit.providers import running

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from judgekit.judging.cache import ReplyCache
    from judgekit.judging.evidence import Evidence
    from judgekit.judging.settings import JudgeSettings
    from judgekit.providers.base import Endpoint, Gateway, Messages
    from judgekit.providers.resolve import Tiers

AnyJudge = TypeVar("AnyJudge", bound="Judge[Any, Any, Any]")
Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class Judge(ABC, Generic[AnyRubric, Subject, Record]):
    """Judges subjects by its settings; `cache` holds replies from earlier judgings.

    `judge_instead` replaces the loop for a prepared subject: on another machine, or at another depth.
    """

    gateway: Gateway
    settings: JudgeSettings
    cache: ReplyCache | None = None
    judge_instead: Callable[[Any, JudgingState[Any]], Awaitable[Any]] | None = None

    # --- Defined by each task

    def attribute_subject(self, subject: Subject) -> Subject:
        """Add the authors' families named in the configuration to the subject."""
        return subject

    @abstractmethod
    def redact_subject(self, subject: Subject) -> tuple[Subject, int]:
        """Remove the subject's secrets. Return the new subject and their number."""

    def note_refusal_and_cuts(self, state: JudgingState[Subject]) -> None:
        """Set the state's reason to refuse the subject, and the tiers that see it cut, if any."""

    @abstractmethod
    def read_evidence(self, state: JudgingState[Subject]) -> Evidence:
        """Read the opinions of all tiers so far."""

    @abstractmethod
    def build_rules(self, state: JudgingState[Subject]) -> EscalationRules:
        """Return the rules for this judging."""

    def choose_step(self, state: JudgingState[Subject]) -> Step:
        """Return the tier to ask now, or the end of the judging."""
        return decide(self.read_evidence(state), self.build_rules(state))

    @abstractmethod
    def build_question(
        self, tier: TierName, state: JudgingState[Subject]
    ) -> TierQuestion[AnyRubric, Subject, Any, Any]:
        """Build the question for a tier."""

    @abstractmethod
    def record(self, state: JudgingState[Subject], end: End) -> Record:
        """Build the record of a finished judging."""

    # --- The loop

    async def judge(self, subject: Subject) -> Record:
        """Judge a subject and return its record. Failures are part of the record, and never raised."""
        attributed = self.attribute_subject(subject)
        judge = await self._drop_author_families(attributed)
        state = JudgingState(attributed, judge.open_session())

        # If the secrets can't be removed, nothing is sent to a model.
        remove_secrets = partial(judge.redact_subject, attributed)
        try:
            state.subject, state.secret_count = await state.session.prepare(
                remove_secrets, attributed.char_count
            )
        except GatewayError as error:
            return judge.build_unjudged_record(state, f"{error.kind} ({error.message})")

        # The user can choose to refuse subjects with secrets.
        state.refusal_reason = judge.settings.explain_refusal(state.secret_count)
        if state.refusal_reason or judge.judge_instead is None:
            return await judge.run(state)
        # It can be judged on another machine, at another depth, or by one tier.
        record: Record = await judge.judge_instead(judge, state)
        return record

    async def _drop_author_families(self, attributed: Subject) -> Self:
        """Return a judge without models of the author's own family, as far as others are available."""
        if not self.models_by_tier or not attributed.author_families:
            return self
        # Use a thread, because this may query local servers or a proxy for their models.
        return await running.run_in_thread(partial(self.for_subject, attributed))

    async def run(self, state: JudgingState[Subject]) -> Record:
        """Ask tier after tier about a prepared subject until the result is certain, and return the record."""
        self.note_refusal_and_cuts(state)
        if not self.models_by_tier or state.refusal_reason:
            return self.record(state, UNASKED)

        judge = self
        step = judge.choose_step(state)
        while isinstance(step, Ask):
            # `_ask_tier` returns the judge to continue with. It's one without a calibration if other models
            # have answered than those that the calibration is for.
            judge = await judge._ask_tier(step.tier, state)
            step = judge.choose_step(state)
        return judge.record(state, step)

    async def _ask_tier(self, tier: TierName, state: JudgingState[Subject]) -> Self:
        """Ask a tier's models, and add their answers to the state.

        Returns the judge for the next step. It has lost its calibration if that doesn't fit the models that
        answered.
        """
        question = self.build_question(tier, state)
        calls = []
        for endpoint in self.models_by_tier[tier]:
            calls.append(partial(question.ask, endpoint, state.session))
        turns = await gather_limited(calls, state.session)

        judge = self._drop_misfit_calibration(tier, turns)
        # The settings hold the calibration, and the answers are combined by it.
        question = replace(question, settings=judge.settings)
        _add_turns(state, tier, question, turns)
        return judge

    def _drop_misfit_calibration(self, tier: TierName, turns: Sequence[ModelTurn[Any]]) -> Self:
        """Return the judge, without its calibration if that was made with other models."""
        calibration = self.settings.finality
        if calibration is None:
            return self
        # A provider can use a different model under the same name. Only the replies show that.
        models = sorted(answering_models(turns))
        problem = calibration.find_other_model(tier, models)
        if not problem:
            return self
        return replace(self, settings=self.settings.without_calibration(problem))

    def build_unjudged_record(self, state: JudgingState[Subject], why: str) -> Record:
        """Build the record of a subject that no model judged, with the reason."""
        state.refusal_reason = why
        judge = self.with_settings(finality=None, calibration_warning=None)
        return judge.record(state, UNASKED)

    # --- Previews of prompts

    def build_prompts(
        self, tier: TierName, subject: Subject, endpoint: Endpoint | None = None
    ) -> list[Messages]:
        """Build a tier's first prompts to a model. By default, it's the tier's first model.

        Returns [] if the subject is refused because of its secrets.
        """
        redacted, secrets = self.redact_subject(subject)
        is_refused = bool(self.settings.explain_refusal(secrets))
        if is_refused:
            return []

        models = self.models_by_tier.get(tier, ())
        if endpoint is None and models:
            endpoint = models[0]
        question = self.build_question(tier, JudgingState(redacted, self.open_session()))
        return question.build_prompts(endpoint, Fence())

    def list_prompts_by_model(self, subject: Subject) -> list[tuple[TierName, str, list[Messages]]]:
        """List the tier, name and prompts of each model. Without models, a note stands for the name.

        The judge must have been adapted to the subject with `for_subject`.
        """
        if not self.models_by_tier:
            return [
                (tier, "no model is set up", self.build_prompts(tier, subject)) for tier in TIERS
            ]
        prompts = []
        for tier in TIERS:
            for endpoint in self.models_by_tier.get(tier, ()):
                name = endpoint.model
                # These providers are only used to replace models of the author's family.
                is_replacement = endpoint.profile.provider in self.settings.replacement_providers
                if is_replacement:
                    name += ", in place of the author's family"
                prompts.append((tier, name, self.build_prompts(tier, subject, endpoint)))
        return prompts

    # --- Its parts

    @property
    def rubric(self) -> AnyRubric:
        return self.settings.loaded_rubric.rubric  # type: ignore[return-value]  # the library saw to it

    @property
    def models_by_tier(self) -> Tiers:
        return self.settings.models_by_tier

    @property
    def is_remote(self) -> bool:
        """Whether another machine asks the models."""
        return self.judge_instead is not None and not self.models_by_tier

    def with_settings(self, **changes: Any) -> Self:  # noqa: ANN401 - any setting
        """Copy the judge with some settings changed."""
        return replace(self, settings=replace(self.settings, **changes))

    def as_judge(self, kind: type[AnyJudge]) -> AnyJudge:
        """Build a judge for another task with the same settings."""
        return kind(self.gateway, self.settings, self.cache)

    def for_subject(self, subject: Subject) -> Self:
        """Return a judge without models of the author's own family, as far as others are available."""
        attributed = self.attribute_subject(subject)
        settings = panel.drop_author_families(
            self.settings, attributed.author_families, attributed.families_of_some_texts
        )
        return replace(self, settings=settings)

    def open_session(self) -> Session:
        """Open a session for one judgement, with its limits of time and cost."""
        return Session(
            gateway=self.gateway,
            timeout=self.settings.timeout,
            max_cost_usd=self.settings.max_cost_usd,
            call_timeout=self.settings.call_timeout,
            cache=self.cache,
        )


def _add_turns(
    state: JudgingState[Any],
    tier: TierName,
    question: TierQuestion[Any, Any, Any, Any],
    turns: Sequence[ModelTurn[Any]],
) -> None:
    """Add a tier's turns, and the opinion that combines their answers, to the state."""
    answers = [(turn.endpoint, turn.answer.value) for turn in turns]
    opinion = question.combine(answers)
    state.turns[tier] = turns
    state.opinions[tier] = opinion
    state.rounds += question.build_rounds(len(state.rounds) + 1, turns)

    # If too few models answered, there's no opinion, and their answers don't count.
    if opinion:
        state.voices += [(tier, endpoint, value) for endpoint, value in answers if value]
