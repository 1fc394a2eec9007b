"""The task `score`: each tier's models rate a document, and the rubric's thresholds decide.

A model rates in one call or several, by its words or by the probabilities of its tokens.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Protocol

from judgekit.errors import GatewayError
from judgekit.judging import authors, jury, logprobs, pointwise, prompt, redact
from judgekit.judging.authors import is_independent, lacking
from judgekit.judging.escalation import UNDETERMINED, Final, margin
from judgekit.judging.fence import Fence
from judgekit.judging.judge import Judge
from judgekit.judging.jury import Opinion
from judgekit.judging.logprobs import WORDS
from judgekit.judging.pointwise import Points, ask_pointwise
from judgekit.judging.prompt import Earlier
from judgekit.judging.record import Judgement, unsettled, verdict
from judgekit.judging.replies import ScoreReply, score_reply_model
from judgekit.judging.round import Answer, Question, Stopwatch, gather_limited, joined, run_round
from judgekit.judging.state import JudgingState
from judgekit.judging.subject import is_cut
from judgekit.judging.verdict import Finding
from judgekit.providers.base import CallKey
from judgekit.retrieval.stemmer import fold, stem, words
from judgekit.rubric.schema import ScoreRubric
from judgekit.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pydantic import BaseModel

    from judgekit.config.names import ModeName, TierName
    from judgekit.judging.options import JudgeOptions
    from judgekit.judging.round import Session
    from judgekit.judging.subject import Document, Part
    from judgekit.judging.verdict import Verdict
    from judgekit.providers.base import Endpoint, Message, Reply


def dimensions_in(text: str, rubric: ScoreRubric) -> tuple[str, ...]:
    """Return the dimensions that a text speaks of, in the rubric's order."""
    return tuple(_counted(text, rubric))


def placed(findings: Iterable[Finding], rubric: ScoreRubric) -> tuple[Finding, ...]:
    """Return findings, each with a dimension of the rubric where its words leave no doubt which one it is.

    One that names a dimension, in whatever spelling, keeps it. The others get the one of which they mention
    the most terms; where there is none, or a tie, a finding stays as it is. Quotes are not looked at: they
    are words of the subject, not of the judge.
    """
    return tuple(
        finding.model_copy(update={"dimension": _dimension(finding, rubric)}) for finding in findings
    )


def _dimension(finding: Finding, rubric: ScoreRubric) -> str:
    named = _stems(finding.dimension)
    for name in rubric.dimensions:
        if named and named == _stems(name):
            return name
    counts = _counted(f"{finding.dimension}. {finding.issue}. {finding.suggestion}", rubric)
    most = max(counts.values(), default=0)
    best = [name for name, count in counts.items() if count == most]
    return best[0] if len(best) == 1 else finding.dimension


def _counted(text: str, rubric: ScoreRubric) -> Mapping[str, int]:
    """Return how many different terms of each dimension stand in a text, where there are any."""
    stems = _stems(text)
    terms = {name: _terms(name, *dimension.terms) for name, dimension in rubric.dimensions.items()}
    sizes = {len(term) for several in terms.values() for term in several}
    rows = {row for size in sizes for row in zip(*(stems[at:] for at in range(size)), strict=False)}
    found = {name: len(several & rows) for name, several in terms.items()}
    return {name: count for name, count in found.items() if count}


@lru_cache(maxsize=1024)
def _terms(*terms: str) -> frozenset[tuple[str, ...]]:
    """Return the stems of each term."""
    return frozenset(tuple(_stems(term)) for term in terms)


def _stems(text: str) -> list[str]:
    return [_stem(word) for word in words(fold(text))]


_stem = lru_cache(maxsize=20_000)(stem)  # the words of rubrics and of judges come again and again


REPLY_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class ScoreTask:
    """What a tier is asked about a document.

    `words` is the tier whose instructions are given, `told` are the earlier opinions that the tiebreaker
    is shown. Where scores are `compared` with those of other documents, they are taken as first given.
    """

    rubric: ScoreRubric
    mode: ModeName
    document: Document
    tier: TierName
    options: JudgeOptions
    words: TierName
    told: Sequence[Earlier] = ()
    compared: bool = False

    def seen_by(self, endpoint: Endpoint | None) -> tuple[Part, ...]:
        """Return the document as a model of the tier sees it."""
        return self.document.seen_by(getattr(self.rubric.tiers, self.tier), endpoint)

    def prompts(self, endpoint: Endpoint | None, fence: Fence) -> list[tuple[Message, ...]]:
        """Return what would be sent to a model: one prompt, or one for each dimension."""
        if endpoint is not None and endpoint.pointwise:
            return self._points(endpoint, fence).prompts()
        return [self._messages(score_rubric, endpoint) for score_rubric in self._asked().values()]

    async def ask(self, endpoint: Endpoint, session: Session) -> Answer[Opinion]:
        """Return a model's opinion, or why it has none."""
        if endpoint.pointwise:
            return await self._ask_pointwise(endpoint, session)
        samples = self.options.samples_of(endpoint)
        watch, before = Stopwatch(), list[Answer[Opinion]]()
        if samples == 1 or endpoint.logprobs:
            once = await self._ask_once(endpoint, session, 0)
            # Token probabilities leave nothing to repeat.
            if samples == 1 or (once.value and len(once.value.expected) == len(self.rubric.dimensions)):
                return once
            before = [once]
        tries = [partial(self._ask_once, endpoint, session, number) for number in range(1, samples + 1)]
        answers = await gather_limited(tries, session, endpoint)
        opinions = [answer.value for answer in answers if answer.value]
        opinion = self._mean(opinions) if jury.has_quorum(len(opinions), samples) else None
        return joined([*before, *answers], opinion, watch.ms)

    def _asked(self) -> dict[str, ScoreRubric]:
        return self.options.asked(self.rubric)

    def _messages(self, rubric: ScoreRubric, endpoint: Endpoint | None) -> tuple[Message, ...]:
        told = [
            replace(earlier, scores={name: earlier.scores[name] for name in rubric.dimensions})
            for earlier in self.told
        ]
        return prompt.score_messages(rubric, self.words, self.seen_by(endpoint), self.document.task, told)

    async def _ask_once(self, endpoint: Endpoint, session: Session, sample: int) -> Answer[Opinion]:
        watch = Stopwatch()
        asked = [
            partial(self._ask_about, rubric, endpoint, session, part, sample)
            for part, rubric in self._asked().items()
        ]
        answers = await gather_limited(asked, session, endpoint)
        if len(answers) == 1:
            return answers[0].map(self._judged)
        said = [answer.value for answer in answers if answer.value]
        whole = self._judged(_merged(said)) if len(said) == len(answers) else None
        return joined(answers, whole, watch.ms)

    async def _ask_about(
        self, rubric: ScoreRubric, endpoint: Endpoint, session: Session, part: str, sample: int
    ) -> Answer[RatedReply]:
        question = Question(
            partial(self._messages, rubric, endpoint),
            self.document.size,
            score_reply_model(rubric),
            self._matter(part),
            REPLY_TOKENS,
            sample=sample,
            likely=True,
        )
        answer = await run_round(session, endpoint, question, self._timeout)
        return answer.map(lambda told: _said(told, part, self._expected(told, answer.reply)))

    def _expected(self, told: ScoreReply, reply: Reply | None) -> dict[str, float]:
        scale = self.rubric.scale
        return logprobs.expectations(reply, told, range(scale.min, scale.max + 1)) if reply else {}

    async def _ask_pointwise(self, endpoint: Endpoint, session: Session) -> Answer[Opinion]:
        """Ask about each dimension, and where that would accept the text, about an idle subject.

        A text that asks for high scores gets them for that one too. Such scores are kept below the bar, where
        those of a worse text, of which nothing was asked, may be above them: that is no order.
        """
        watch, points = Stopwatch(), self._points(endpoint, session.fence)
        answer = await ask_pointwise(session, endpoint, points, self._timeout)
        scores = {name: pointwise.expectation(each) for name, each in (answer.value or {}).items()}
        if not scores or self.compared or self._rated(scores).outcome != "accept":
            return answer.map(lambda _: self._rated(scores))
        question = {"idle": prompt.idle_question(self.rubric)}
        idle = await ask_pointwise(session, endpoint, replace(points, questions=question), self._timeout)
        opinion = self._earned(scores, pointwise.expectation(idle.value["idle"])) if idle.value else None
        return joined([answer, idle], opinion, watch.ms)

    def _earned(self, scores: Mapping[str, float], idle: float) -> Opinion:
        rule, scale = getattr(self.rubric.modes, self.mode), self.rubric.scale
        return self._rated(pointwise.earned_scores(scores, idle, rule.accept.each, scale.max - scale.min))

    def _points(self, endpoint: Endpoint, fence: Fence) -> Points:
        scale = self.rubric.scale
        return Points(
            prompt.rating_system(self.rubric, fence),
            prompt.document_context(fence, self.seen_by(endpoint), self.document.task, self.rubric.given),
            {name: prompt.rating_question(self.rubric, name) for name in self.rubric.dimensions},
            [str(value) for value in range(scale.min, scale.max + 1)],
            self._matter(),
        )

    def _matter(self, part: str = "") -> CallKey:
        return CallKey(self.document.sha256, self.rubric.ref, self.tier, part)

    @property
    def _timeout(self) -> float:
        seconds: float = getattr(self.rubric.tiers, self.tier).timeout
        return seconds

    def _rated(self, scores: Mapping[str, float]) -> Opinion:
        rounded = {name: round(float(value), 2) for name, value in scores.items()}
        return Opinion(self.rubric.decide(scores, self.mode), rounded)

    def _judged(self, said: RatedReply) -> Opinion:
        return replace(
            self._rated(said.scores),
            reasoning=said.reasoning,
            findings=placed(said.findings, self.rubric),
            said=said.word,
            dimensions=dimensions_in(said.reasoning, self.rubric),
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
class RatedReply:
    """What stands in one reply, made fit to be shown; `word` is the verdict that a model may add.

    `expected` names the dimensions whose score is an expectation.
    """

    scores: dict[str, float]
    reasoning: str
    findings: tuple[Finding, ...]
    word: str | None
    expected: tuple[str, ...] = ()


def _said(reply: BaseModel, dimension: str, expected: Mapping[str, float]) -> RatedReply:
    """Return what a reply says, with the scores that are `expected` in place of those it gives.

    A `dimension` that was asked about alone is what its findings are about.
    """
    told: dict[str, Any] = reply.model_dump()
    # A model's words are shown on terminals and written as JSON: no escapes, no lone surrogates.
    findings = [
        {name: visible(str(value or "")) for name, value in each.items()} for each in told["findings"]
    ]
    word = told.get("verdict")
    return RatedReply(
        told["scores"] | expected,
        visible(told["reasoning"]),
        tuple(Finding(**finding | ({"dimension": dimension} if dimension else {})) for finding in findings),
        visible(word) if word else None,
        tuple(expected),
    )


def _merged(said: Sequence[RatedReply]) -> RatedReply:
    """Return replies that are each about one dimension as one."""
    return RatedReply(
        {name: score for rated_reply in said for name, score in rated_reply.scores.items()},
        "\n".join(
            f"{name}: {rated_reply.reasoning}"
            for rated_reply in said
            for name in rated_reply.scores
            if rated_reply.reasoning
        ),
        tuple(finding for reply in said for finding in reply.findings),
        None,
        tuple(name for each in said for name in each.expected),
    )


class ExternalJudge(Protocol):
    """Another program that judges documents in our stead."""

    async def judge(self, judge: DocumentJudge, document: Document) -> Verdict:
        """Return the verdict under the judge's rubric, mode and limits; what failed is in it."""
        ...


@dataclass(frozen=True, slots=True)
class DocumentJudge(Judge[ScoreRubric]):
    """Judges documents. Where they are judged `elsewhere`, no model is asked from here.

    Where scores are `compared` with those of other documents, they are taken as models first gave them.
    """

    elsewhere: ExternalJudge | None = None
    compared: bool = False

    @property
    def can_judge(self) -> bool:
        """Whether there is anybody to ask."""
        return bool(self.panel) or self.elsewhere is not None

    async def judge(self, document: Document) -> Verdict:
        """Return the verdict on a document; what failed on the way is in it, never raised."""
        wrote = self._wrote(document)
        document = replace(document, author=replace(document.author, family=authors.listed(wrote)))
        # In a thread: it may ask local servers, or a proxy, of whom they are.
        judge = await asyncio.to_thread(self.for_subject, document) if wrote and self.panel else self
        return await DocumentJudge._judge(judge, document)

    def for_subject(self, document: Document) -> DocumentJudge:
        """Return the judge without models of the families that wrote a document, where others are there."""
        return self.excluding_families(self._wrote(document))

    def _wrote(self, document: Document) -> tuple[str, ...]:
        """Return the families that wrote a document, as far as it or the configuration says."""
        said = (*authors.named(document.author.family), *authors.named(self.written_by))
        return tuple(dict.fromkeys(said))

    async def _judge(self, document: Document) -> Verdict:
        watch, session = Stopwatch(), self.session()
        try:
            document, left_out = await session.aside(partial(self._outgoing, document), document.size)
        except GatewayError as error:
            nobody = f"{error.kind} ({error.message})"
            late = Judgement(document, self.loaded, self.mode, UNDETERMINED, JudgingState(), (), nobody)
            return verdict(late, watch.ms)
        refusal = self.options.refusal(left_out)
        if self.elsewhere is not None and not refusal:
            found = await self.elsewhere.judge(self, document)
            found = found.model_copy(update={"redacted": left_out + found.redacted})
            accepted = found.verdict == "accept" and not found.independent and not found.human_override
            why = lacking(self.independence, self._wrote(document), ()) if accepted else None
            return unsettled(found, why) if why else found
        cut = {tier for tier in self.panel if self._is_cut(tier, document)}
        rules = self.rules(cut, self.options.margin)
        state = JudgingState()
        missing = refusal or document.lacks(self.rubric)
        step = rules.next({}) if self.panel and not missing else UNDETERMINED
        while not isinstance(step, Final):
            await self._ask(step, document, state, session)
            known = {tier: opinion for tier, opinion in state.opinions.items() if opinion}
            step = rules.next(
                {tier: opinion.outcome if opinion else None for tier, opinion in state.opinions.items()},
                self._margins(state),
                {tier: each.divided for tier, each in known.items() if each.divided is not None},
            )
        calibration = self.finality.id if self.finality else None
        nobody = missing or self.nobody
        wrote = self._wrote(document)
        judged = Judgement(
            document,
            self.loaded,
            self.mode,
            step,
            state,
            cut,
            nobody,
            calibration,
            "; ".join(filter(None, (self.calibration_warning, self._unread(state)))) or None,
            is_independent(wrote, state.families(step)),
        )
        found = verdict(judged, watch.ms)
        if not found.rounds:
            return found
        if self.options.redact:
            found = redact.replies(found)
        asked = self.asked_instead(state.opinions)
        found = found.model_copy(update={"redacted": left_out, "substitutes": asked})
        why = lacking(self.independence, wrote, state.families(step)) if step.verdict == "accept" else None
        return unsettled(found, why) if why else found

    def prompts(
        self, tier: TierName, document: Document, endpoint: Endpoint | None = None
    ) -> list[tuple[Message, ...]]:
        """Return what would be sent to a model of `tier`, were it asked first: one prompt or several.

        Of several models that sit there `endpoint` is the one that is meant, the first where none is given.
        """
        document, left_out = self._outgoing(document)
        if self.options.refusal(left_out):
            return []
        first = endpoint or next(iter(self.models_by_tier.get(tier, ())), None)
        return self._rating(tier, document, JudgingState()).prompts(first, Fence())

    def _margins(self, state: JudgingState) -> dict[TierName, float]:
        """Return how far opinions are from another outcome, but for those that no gate may let through."""
        return {
            tier: margin(self.rubric, each.scores, self.mode)
            for tier, each in state.opinions.items()
            if each and (self.finality is None or self.finality.knows(tier, state.read(tier)))
        }

    def _unread(self, state: JudgingState) -> str | None:
        """Say in one line whose opinions could not be read as those that a calibration was learned from."""
        unread = [tier for tier in state.opinions if tier not in self._margins(state)]
        said = [tier for tier in unread if state.opinions[tier] and tier != list(self.panel)[-1]]
        if self.finality is None or not said:
            return None
        how = " and ".join(sorted({WORDS[how] for tier in said for _, how in state.read(tier)}))
        return f"calibration {self.finality.id} says nothing of {', '.join(said)}: what it said was {how}"

    def _outgoing(self, document: Document) -> tuple[Document, int]:
        return redact.document(document) if self.options.redact else (document, 0)

    def _is_cut(self, tier: TierName, document: Document) -> bool:
        """Whether any model of a tier does not see the whole document."""
        task = self._rating(tier, document, JudgingState())
        return any(is_cut(task.seen_by(endpoint)) for endpoint in self.models_by_tier[tier])

    def _rating(self, tier: TierName, document: Document, state: JudgingState) -> ScoreTask:
        score_task = ScoreTask(
            self.rubric, self.mode, document, tier, self.options, tier, compared=self.compared
        )
        if tier != "tiebreaker":
            return score_task
        # In which order a jury's models are named plays no part.
        voices = sorted(
            state.voices, key=lambda each: (list(state.opinions).index(each.tier), each.endpoint.model)
        )
        told = [Earlier(each.scores, redact.words(each.reasoning)) for _, _, each in voices]
        # Shuffled by the subject: the tiebreaker cannot learn whose opinion stands first.
        random.Random(document.sha256).shuffle(told)  # noqa: S311 - an order, not a secret
        # Where nobody disagrees the tiebreaker stands in for the deep tier, and is told what that is told.
        words: TierName = tier if state.disagrees() else "deep"
        return replace(score_task, words=words, told=told)

    async def _ask(self, tier: TierName, document: Document, state: JudgingState, session: Session) -> None:
        """Ask every model of a tier, and note in `state` what each says and what it comes to."""
        endpoints = self.models_by_tier[tier]
        task = self._rating(tier, document, state)
        answers = await gather_limited(
            [partial(task.ask, endpoint, session) for endpoint in endpoints], session
        )
        said = [
            (endpoint, each.value) for endpoint, each in zip(endpoints, answers, strict=True) if each.value
        ]
        enough = jury.has_quorum(len(said), len(endpoints))
        decide = partial(self.rubric.decide, mode=self.mode)
        state.note(
            tier, endpoints, answers, jury.opinion(said, self.options.jury, decide) if enough else None
        )
