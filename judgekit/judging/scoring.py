"""One model of one tier rates one document: in one call or several, by its words or by its probabilities."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from judgekit import prompt, terms
from judgekit.gateway.base import Matter
from judgekit.judging import jury, likely, pointwise
from judgekit.judging.asking import Answer, Points, Question, ask, ask_pointwise
from judgekit.judging.calls import all_of, joined
from judgekit.judging.opinion import Opinion
from judgekit.judging.replies import ScoreReply, score_reply_model
from judgekit.judging.session import Stopwatch
from judgekit.text import visible
from judgekit.verdict import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic import BaseModel

    from judgekit.fence import Fence
    from judgekit.gateway.base import Endpoint, Message, Reply
    from judgekit.judging.manner import Manner
    from judgekit.judging.session import Session
    from judgekit.judging.subject import Document
    from judgekit.names import ModeName, TierName
    from judgekit.prompt import Earlier
    from judgekit.rubric import ScoreRubric
    from judgekit.subject import Part

REPLY_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class Rating:
    """What a tier is asked about a document.

    `words` is the tier whose instructions are given, `told` are the earlier opinions that the tiebreaker
    is shown. Where scores are `compared` with those of other documents, they are taken as first given.
    """

    rubric: ScoreRubric
    mode: ModeName
    document: Document
    tier: TierName
    manner: Manner
    words: TierName
    told: Sequence[Earlier] = ()
    compared: bool = False

    def seen_by(self, seat: Endpoint | None) -> tuple[Part, ...]:
        """Return the document as a model of the tier sees it."""
        return self.document.seen_by(getattr(self.rubric.tiers, self.tier), seat)

    def prompts(self, seat: Endpoint | None, fence: Fence) -> list[tuple[Message, ...]]:
        """Return what would be sent to a model: one prompt, or one for each dimension."""
        if seat is not None and seat.pointwise:
            return self._points(seat, fence).prompts()
        return [self._messages(each, seat) for each in self._asked().values()]

    async def ask(self, seat: Endpoint, session: Session) -> Answer[Opinion]:
        """Return a model's opinion, or why it has none."""
        if seat.pointwise:
            return await self._ask_pointwise(seat, session)
        samples = self.manner.samples_of(seat)
        watch, before = Stopwatch(), list[Answer[Opinion]]()
        if samples == 1 or seat.logprobs:
            once = await self._ask_once(seat, session, 0)
            # Token probabilities leave nothing to repeat.
            if samples == 1 or (once.value and len(once.value.expected) == len(self.rubric.dimensions)):
                return once
            before = [once]
        tries = [partial(self._ask_once, seat, session, number) for number in range(1, samples + 1)]
        answers = await all_of(tries, session, seat)
        opinions = [each.value for each in answers if each.value]
        found = self._mean(opinions) if jury.has_quorum(len(opinions), samples) else None
        return joined([*before, *answers], found, watch.ms)

    def _asked(self) -> dict[str, ScoreRubric]:
        return self.manner.asked(self.rubric)

    def _messages(self, rubric: ScoreRubric, seat: Endpoint | None) -> tuple[Message, ...]:
        told = [
            replace(each, scores={name: each.scores[name] for name in rubric.dimensions})
            for each in self.told
        ]
        return prompt.score_messages(rubric, self.words, self.seen_by(seat), self.document.task, told)

    async def _ask_once(self, seat: Endpoint, session: Session, sample: int) -> Answer[Opinion]:
        watch = Stopwatch()
        asked = [
            partial(self._ask_about, rubric, seat, session, part, sample)
            for part, rubric in self._asked().items()
        ]
        answers = await all_of(asked, session, seat)
        if len(answers) == 1:
            return answers[0].map(self._judged)
        said = [each.value for each in answers if each.value]
        whole = self._judged(_merged(said)) if len(said) == len(answers) else None
        return joined(answers, whole, watch.ms)

    async def _ask_about(
        self, rubric: ScoreRubric, seat: Endpoint, session: Session, part: str, sample: int
    ) -> Answer[Said]:
        question = Question(
            partial(self._messages, rubric, seat),
            self.document.size,
            score_reply_model(rubric),
            self._matter(part),
            REPLY_TOKENS,
            sample=sample,
            likely=True,
        )
        answer = await ask(session, seat, question, self._timeout)
        return answer.map(lambda told: _said(told, part, self._expected(told, answer.reply)))

    def _expected(self, told: ScoreReply, reply: Reply | None) -> dict[str, float]:
        scale = self.rubric.scale
        return likely.expectations(reply, told, range(scale.min, scale.max + 1)) if reply else {}

    async def _ask_pointwise(self, seat: Endpoint, session: Session) -> Answer[Opinion]:
        """Ask about each dimension, and where that would accept the text, about an idle subject.

        A text that asks for high scores gets them for that one too. Such scores are kept below the bar, where
        those of a worse text, of which nothing was asked, may be above them: that is no order.
        """
        watch, points = Stopwatch(), self._points(seat, session.fence)
        answer = await ask_pointwise(session, seat, points, self._timeout)
        scores = {name: pointwise.expectation(each) for name, each in (answer.value or {}).items()}
        if not scores or self.compared or self._rated(scores).outcome != "accept":
            return answer.map(lambda _: self._rated(scores))
        question = {"idle": prompt.idle_question(self.rubric)}
        idle = await ask_pointwise(session, seat, replace(points, questions=question), self._timeout)
        opinion = self._earned(scores, pointwise.expectation(idle.value["idle"])) if idle.value else None
        return joined([answer, idle], opinion, watch.ms)

    def _earned(self, scores: Mapping[str, float], idle: float) -> Opinion:
        rule, scale = getattr(self.rubric.modes, self.mode), self.rubric.scale
        return self._rated(pointwise.earned_scores(scores, idle, rule.accept.each, scale.max - scale.min))

    def _points(self, seat: Endpoint, fence: Fence) -> Points:
        scale = self.rubric.scale
        return Points(
            prompt.rating_system(self.rubric, fence),
            prompt.document_context(fence, self.seen_by(seat), self.document.task, self.rubric.given),
            {name: prompt.rating_question(self.rubric, name) for name in self.rubric.dimensions},
            [str(value) for value in range(scale.min, scale.max + 1)],
            self._matter(),
        )

    def _matter(self, part: str = "") -> Matter:
        return Matter(self.document.sha256, self.rubric.ref, self.tier, part)

    @property
    def _timeout(self) -> float:
        seconds: float = getattr(self.rubric.tiers, self.tier).timeout
        return seconds

    def _rated(self, scores: Mapping[str, float]) -> Opinion:
        rounded = {name: round(float(value), 2) for name, value in scores.items()}
        return Opinion(self.rubric.decide(scores, self.mode), rounded)

    def _judged(self, said: Said) -> Opinion:
        return replace(
            self._rated(said.scores),
            reasoning=said.reasoning,
            findings=terms.placed(said.findings, self.rubric),
            said=said.word,
            dimensions=terms.dimensions_in(said.reasoning, self.rubric),
            expected=said.expected,
        )

    def _mean(self, opinions: Sequence[Opinion]) -> Opinion:
        """Return the mean of several samples, in the words of the nearest."""
        mean = self._rated(jury.mean_scores(opinions))
        words = jury.nearest(opinions, mean)
        return replace(
            mean,
            reasoning=words.reasoning,
            findings=words.findings,
            samples=len(opinions),
            dimensions=words.dimensions,
        )


@dataclass(frozen=True, slots=True)
class Said:
    """What stands in one reply, made fit to be shown; `word` is the verdict that a model may add.

    `expected` names the dimensions whose score is an expectation.
    """

    scores: dict[str, float]
    reasoning: str
    findings: tuple[Finding, ...]
    word: str | None
    expected: tuple[str, ...] = ()


def _said(reply: BaseModel, dimension: str, expected: Mapping[str, float]) -> Said:
    """Return what a reply says, with the scores that are `expected` in place of those it gives.

    A `dimension` that was asked about alone is what its findings are about.
    """
    told: dict[str, Any] = reply.model_dump()
    # A model's words are shown on terminals and written as JSON: no escapes, no lone surrogates.
    findings = [
        {name: visible(str(value or "")) for name, value in each.items()} for each in told["findings"]
    ]
    word = told.get("verdict")
    return Said(
        told["scores"] | expected,
        visible(told["reasoning"]),
        tuple(Finding(**each | ({"dimension": dimension} if dimension else {})) for each in findings),
        visible(word) if word else None,
        tuple(expected),
    )


def _merged(said: Sequence[Said]) -> Said:
    """Return replies that are each about one dimension as one."""
    return Said(
        {name: score for each in said for name, score in each.scores.items()},
        "\n".join(f"{name}: {each.reasoning}" for each in said for name in each.scores if each.reasoning),
        tuple(finding for each in said for finding in each.findings),
        None,
        tuple(name for each in said for name in each.expected),
    )
