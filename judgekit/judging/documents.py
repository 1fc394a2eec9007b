"""The task `score`: documents are rated by tiers of models, and the rubric's thresholds decide."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from judgekit import prompt
from judgekit.fence import Fence
from judgekit.gateway.base import Matter
from judgekit.judging import pointwise
from judgekit.judging.asking import Answer, Points, Question, ask, ask_pointwise
from judgekit.judging.escalation import UNDETERMINED, Final, Rules
from judgekit.judging.gates import margin
from judgekit.judging.record import Judged, Opinion, round_record, verdict
from judgekit.judging.replies import score_reply_model
from judgekit.judging.session import Session, Stopwatch
from judgekit.judging.subject import is_cut
from judgekit.text import visible
from judgekit.verdict import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic import BaseModel

    from judgekit.gateway.base import Endpoint, Gateway, Message
    from judgekit.judging.gates import Gates
    from judgekit.judging.reply_cache import Cache
    from judgekit.judging.subject import Document
    from judgekit.library import LoadedRubric
    from judgekit.rubric import ModeName, ScoreRubric, TierName
    from judgekit.subject import Part
    from judgekit.verdict import Round, Verdict

REPLY_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class DocumentJudge:
    """Judges documents under one rubric in one mode, with one model for each tier in `endpoints`.

    `nobody` says why there is none, where there is none. `cache` holds replies of earlier judgings. `gates`
    are those of a calibration, `stale` says in one line why one that is there is not used.
    """

    gateway: Gateway
    endpoints: Mapping[TierName, Endpoint]
    loaded: LoadedRubric
    mode: ModeName
    deadline: float
    max_cost_usd: float | None = None
    nobody: str = "no model was given"
    cache: Cache | None = None
    gates: Gates | None = None
    stale: str | None = None

    @property
    def rubric(self) -> ScoreRubric:
        """The rubric, known to be one that scores."""
        return self.loaded.rubric  # type: ignore[return-value]  # library.score_rubric saw to it

    async def judge(self, document: Document) -> Verdict:
        """Return the verdict on a document; what failed on the way is in it, never raised."""
        watch = Stopwatch()
        session = Session(self.gateway, self.deadline, self.max_cost_usd, cache=self.cache)
        parts = {tier: self._seen_by(tier, document) for tier in self.endpoints}
        cut = {tier for tier, seen in parts.items() if is_cut(seen)}
        models = {tier: seat.model for tier, seat in self.endpoints.items()}
        confirm = getattr(self.rubric.modes, self.mode).confirm
        rules = Rules(confirm, tuple(self.endpoints), cut, models, self.gates)
        opinions: dict[TierName, Opinion | None] = {}
        rounds: list[Round] = []
        lacking = document.lacks(self.rubric)
        step = rules.next({}) if self.endpoints and not lacking else UNDETERMINED
        while not isinstance(step, Final):
            answer = await self._ask(step, parts[step], document, opinions.values(), session)
            opinions[step] = answer.value
            rounds.append(round_record(len(rounds) + 1, step, answer))
            known = {tier: each for tier, each in opinions.items() if each}
            step = rules.next(
                {tier: each.outcome if each else None for tier, each in opinions.items()},
                {tier: margin(self.rubric, each.scores, self.mode) for tier, each in known.items()},
            )
        voices = {models[tier] for tier, each in opinions.items() if each}
        judged = Judged(
            document,
            self.loaded,
            self.mode,
            step,
            opinions,
            rounds,
            cut,
            len(voices),
            lacking or self.nobody,
            self.gates.id if self.gates else None,
            self.stale,
        )
        return verdict(judged, watch.ms)

    def prompts(self, tier: TierName, document: Document) -> list[tuple[Message, ...]]:
        """Return what would be sent to `tier`, were it asked first: one prompt, or one a dimension."""
        parts, seat = self._seen_by(tier, document), self.endpoints.get(tier)
        if seat is not None and seat.pointwise:
            return self._points(Fence(), parts, document, Matter("", "", tier)).prompts()
        return [self._messages(tier, parts, document, ())]

    def _seen_by(self, tier: TierName, document: Document) -> tuple[Part, ...]:
        return document.seen_by(getattr(self.rubric.tiers, tier), self.endpoints.get(tier))

    def _messages(
        self, tier: TierName, parts: tuple[Part, ...], document: Document, earlier: Iterable[Opinion | None]
    ) -> tuple[Message, ...]:
        told = [prompt.Earlier(each.scores, each.reasoning) for each in earlier if each]
        # Shuffled by the subject: the tiebreaker cannot learn whose opinion stands first.
        random.Random(document.sha256).shuffle(told)  # noqa: S311 - an order, not a secret
        if tier != "tiebreaker":
            return prompt.score_messages(self.rubric, tier, parts, document.task)
        # Where nobody disagrees the tiebreaker stands in for the deep tier, and is told what that is told.
        words: TierName = tier if len(told) > 1 else "deep"
        return prompt.score_messages(self.rubric, words, parts, document.task, told)

    async def _ask(
        self,
        tier: TierName,
        parts: tuple[Part, ...],
        document: Document,
        earlier: Iterable[Opinion | None],
        session: Session,
    ) -> Answer[Opinion]:
        endpoint, timeout = self.endpoints[tier], getattr(self.rubric.tiers, tier).timeout
        matter = Matter(document.sha256, self.rubric.ref, tier)
        if endpoint.pointwise:
            return await self._ask_pointwise(endpoint, parts, document, matter, session)
        question = Question(
            self._messages(tier, parts, document, earlier),
            score_reply_model(self.rubric),
            matter,
            REPLY_TOKENS,
        )
        answer = await ask(session, endpoint, question, timeout)
        return answer.map(self._opinion)

    async def _ask_pointwise(
        self,
        endpoint: Endpoint,
        parts: tuple[Part, ...],
        document: Document,
        matter: Matter,
        session: Session,
    ) -> Answer[Opinion]:
        points = self._points(session.fence, parts, document, matter)
        timeout = getattr(self.rubric.tiers, matter.tier).timeout
        answer = await ask_pointwise(session, endpoint, points, timeout)
        return answer.map(
            lambda found: self._rated({name: pointwise.expectation(each) for name, each in found.items()})
        )

    def _points(self, fence: Fence, parts: tuple[Part, ...], document: Document, matter: Matter) -> Points:
        scale = self.rubric.scale
        return Points(
            f"{self.rubric.prompt.system} {fence.guard}",
            prompt.document_context(fence, parts, document.task, self.rubric.given),
            {name: prompt.rating_question(self.rubric, name) for name in self.rubric.dimensions},
            [str(value) for value in range(scale.min, scale.max + 1)],
            matter,
        )

    def _opinion(self, reply: BaseModel) -> Opinion:
        said = reply.model_dump()
        opinion = self._rated(said["scores"])
        # A model's words are shown on terminals and written as JSON: no escapes, no lone surrogates.
        findings = tuple(
            Finding(**{name: visible(str(value or "")) for name, value in each.items()})
            for each in said["findings"]
        )
        word = said.get("verdict")
        told = visible(word) if word else None
        return Opinion(opinion.outcome, opinion.scores, visible(said["reasoning"]), findings, told)

    def _rated(self, scores: Mapping[str, float]) -> Opinion:
        rounded = {name: round(float(value), 2) for name, value in scores.items()}
        return Opinion(self.rubric.decide(scores, self.mode), rounded)
