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
from judgekit.judging.escalation import UNDETERMINED, Final
from judgekit.judging.fence import Fence
from judgekit.judging.finality import margin
from judgekit.judging.independence import is_independent, lacking
from judgekit.judging.judge import Judge
from judgekit.judging.logprobs import WORDS
from judgekit.judging.opinion import Opinion
from judgekit.judging.prompt import Earlier
from judgekit.judging.record import Judged, unsettled, verdict
from judgekit.judging.replies import ScoreReply, score_reply_model
from judgekit.judging.round import Answer, Points, Question, all_of, ask, ask_pointwise, joined
from judgekit.judging.session import Stopwatch
from judgekit.judging.state import Course
from judgekit.judging.subject import is_cut
from judgekit.judging.verdict import Finding
from judgekit.providers.base import Matter
from judgekit.retrieval.stemmer import fold, stem, words
from judgekit.rubric.schema import ScoreRubric
from judgekit.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pydantic import BaseModel

    from judgekit.config.names import ModeName, TierName
    from judgekit.judging.options import Manner
    from judgekit.judging.session import Session
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
    return tuple(each.model_copy(update={"dimension": _dimension(each, rubric)}) for each in findings)


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
    return frozenset(tuple(_stems(each)) for each in terms)


def _stems(text: str) -> list[str]:
    return [_stem(word) for word in words(fold(text))]


_stem = lru_cache(maxsize=20_000)(stem)  # the words of rubrics and of judges come again and again


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
        return logprobs.expectations(reply, told, range(scale.min, scale.max + 1)) if reply else {}

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


class Elsewhere(Protocol):
    """Another program that judges documents in our stead."""

    async def judge(self, judge: DocumentJudge, document: Document) -> Verdict:
        """Return the verdict under the judge's rubric, mode and limits; what failed is in it."""
        ...


@dataclass(frozen=True, slots=True)
class DocumentJudge(Judge[ScoreRubric]):
    """Judges documents. Where they are judged `elsewhere`, no model is asked from here.

    Where scores are `compared` with those of other documents, they are taken as models first gave them.
    """

    elsewhere: Elsewhere | None = None
    compared: bool = False

    @property
    def can_judge(self) -> bool:
        """Whether there is anybody to ask."""
        return bool(self.seats) or self.elsewhere is not None

    async def judge(self, document: Document) -> Verdict:
        """Return the verdict on a document; what failed on the way is in it, never raised."""
        wrote = self._wrote(document)
        document = replace(document, author=replace(document.author, family=authors.listed(wrote)))
        # In a thread: it may ask local servers, or a proxy, of whom they are.
        judge = await asyncio.to_thread(self.facing, document) if wrote and self.seats else self
        return await DocumentJudge._judge(judge, document)

    def facing(self, document: Document) -> DocumentJudge:
        """Return the judge without models of the families that wrote a document, where others are there."""
        return self.apart_from(self._wrote(document))

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
            late = Judged(document, self.loaded, self.mode, UNDETERMINED, Course(), (), nobody)
            return verdict(late, watch.ms)
        refusal = self.manner.refusal(left_out)
        if self.elsewhere is not None and not refusal:
            found = await self.elsewhere.judge(self, document)
            found = found.model_copy(update={"redacted": left_out + found.redacted})
            accepted = found.verdict == "accept" and not found.independent and not found.human_override
            why = lacking(self.independence, self._wrote(document), ()) if accepted else None
            return unsettled(found, why) if why else found
        cut = {tier for tier in self.seats if self._is_cut(tier, document)}
        rules = self.rules(cut, self.manner.margin)
        course = Course()
        missing = refusal or document.lacks(self.rubric)
        step = rules.next({}) if self.seats and not missing else UNDETERMINED
        while not isinstance(step, Final):
            await self._ask(step, document, course, session)
            known = {tier: each for tier, each in course.opinions.items() if each}
            step = rules.next(
                {tier: each.outcome if each else None for tier, each in course.opinions.items()},
                self._margins(course),
                {tier: each.divided for tier, each in known.items() if each.divided is not None},
            )
        calibration = self.gates.id if self.gates else None
        nobody = missing or self.nobody
        wrote = self._wrote(document)
        judged = Judged(
            document,
            self.loaded,
            self.mode,
            step,
            course,
            cut,
            nobody,
            calibration,
            "; ".join(filter(None, (self.stale, self._unread(course)))) or None,
            is_independent(wrote, course.families(step)),
        )
        found = verdict(judged, watch.ms)
        if not found.rounds:
            return found
        if self.manner.redact:
            found = redact.replies(found)
        asked = self.asked_instead(course.opinions)
        found = found.model_copy(update={"redacted": left_out, "substitutes": asked})
        why = lacking(self.independence, wrote, course.families(step)) if step.verdict == "accept" else None
        return unsettled(found, why) if why else found

    def prompts(
        self, tier: TierName, document: Document, seat: Endpoint | None = None
    ) -> list[tuple[Message, ...]]:
        """Return what would be sent to a model of `tier`, were it asked first: one prompt or several.

        Of several models that sit there `seat` is the one that is meant, the first where none is given.
        """
        document, left_out = self._outgoing(document)
        if self.manner.refusal(left_out):
            return []
        first = seat or next(iter(self.juries.get(tier, ())), None)
        return self._rating(tier, document, Course()).prompts(first, Fence())

    def _margins(self, course: Course) -> dict[TierName, float]:
        """Return how far opinions are from another outcome, but for those that no gate may let through."""
        return {
            tier: margin(self.rubric, each.scores, self.mode)
            for tier, each in course.opinions.items()
            if each and (self.gates is None or self.gates.knows(tier, course.read(tier)))
        }

    def _unread(self, course: Course) -> str | None:
        """Say in one line whose opinions could not be read as those that a calibration was learned from."""
        unread = [tier for tier in course.opinions if tier not in self._margins(course)]
        said = [tier for tier in unread if course.opinions[tier] and tier != list(self.seats)[-1]]
        if self.gates is None or not said:
            return None
        how = " and ".join(sorted({WORDS[how] for tier in said for _, how in course.read(tier)}))
        return f"calibration {self.gates.id} says nothing of {', '.join(said)}: what it said was {how}"

    def _outgoing(self, document: Document) -> tuple[Document, int]:
        return redact.document(document) if self.manner.redact else (document, 0)

    def _is_cut(self, tier: TierName, document: Document) -> bool:
        """Whether any model of a tier does not see the whole document."""
        rating = self._rating(tier, document, Course())
        return any(is_cut(rating.seen_by(seat)) for seat in self.juries[tier])

    def _rating(self, tier: TierName, document: Document, course: Course) -> Rating:
        asked = Rating(self.rubric, self.mode, document, tier, self.manner, tier, compared=self.compared)
        if tier != "tiebreaker":
            return asked
        # In which order a jury's models are named plays no part.
        voices = sorted(
            course.voices, key=lambda each: (list(course.opinions).index(each.tier), each.seat.model)
        )
        told = [Earlier(each.scores, redact.words(each.reasoning)) for _, _, each in voices]
        # Shuffled by the subject: the tiebreaker cannot learn whose opinion stands first.
        random.Random(document.sha256).shuffle(told)  # noqa: S311 - an order, not a secret
        # Where nobody disagrees the tiebreaker stands in for the deep tier, and is told what that is told.
        words: TierName = tier if course.disagrees() else "deep"
        return replace(asked, words=words, told=told)

    async def _ask(self, tier: TierName, document: Document, course: Course, session: Session) -> None:
        """Ask every model of a tier, and note in `course` what each says and what it comes to."""
        seats = self.juries[tier]
        rating = self._rating(tier, document, course)
        answers = await all_of([partial(rating.ask, seat, session) for seat in seats], session)
        said = [(seat, each.value) for seat, each in zip(seats, answers, strict=True) if each.value]
        enough = jury.has_quorum(len(said), len(seats))
        decide = partial(self.rubric.decide, mode=self.mode)
        course.note(tier, seats, answers, jury.opinion(said, self.manner.jury, decide) if enough else None)
