"""One model of one tier decides about candidates: in few calls, or one question at a time."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, TypeAlias

from judgekit import prompt
from judgekit.gateway.base import Matter
from judgekit.judging import jury, pointwise
from judgekit.judging.asking import Answer, Points, Question, ask, ask_pointwise
from judgekit.judging.batches import ask_all, split
from judgekit.judging.calls import all_of, joined
from judgekit.judging.opinion import Mark
from judgekit.judging.replies import KEEP, select_reply_model
from judgekit.judging.session import Stopwatch
from judgekit.judging.subject import CONTEXT_CHARS
from judgekit.prompt import Shown
from judgekit.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from judgekit.fence import Fence
    from judgekit.gateway.base import Endpoint, Message
    from judgekit.judging.manner import Manner
    from judgekit.judging.opinion import Marks
    from judgekit.judging.session import Session
    from judgekit.names import ModeName, TierName
    from judgekit.rubric import SelectRubric, WorkedExample

KEEP_AT = 0.5  # a pointwise candidate is kept when yes is likelier than no
POINTWISE_CHARS = 300  # of a candidate's text; a small model judges it no better by more, only slower
REPLY_TOKENS = 64  # the object around the labels, and a fence that a model may put around it
LABEL_TOKENS = 16
_YES_NO = ("yes", "no")
_Found: TypeAlias = "Mapping[str, Mapping[str, float]]"
"""The probabilities of yes and no, by criterion."""


@dataclass(frozen=True, slots=True)
class Query:
    """What candidates are wanted for: the request and the last turns of the conversation before it."""

    text: str
    turns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """What a tier is asked about candidates; `words` is the tier whose instructions are given."""

    rubric: SelectRubric
    mode: ModeName
    query: Query
    tier: TierName
    manner: Manner
    words: TierName

    async def ask(self, asked: Sequence[Shown], seat: Endpoint, session: Session) -> Answer[Marks]:
        """Return a model's marks, or why it has none."""
        if seat.pointwise:
            return await self._ask_each(asked, seat, session)
        samples = self.manner.samples_of(seat)
        if samples == 1:
            return await self._ask_once(asked, seat, session, 0)
        watch = Stopwatch()
        tries = [partial(self._ask_once, asked, seat, session, number) for number in range(1, samples + 1)]
        answers = await all_of(tries, session, seat)
        marks = _shares([each.value for each in answers if each.value], samples)
        return joined(answers, marks if any(marks.values()) else None, watch.ms)

    def questions(self, candidate: Shown, fence: Fence) -> list[tuple[Message, ...]]:
        """Return what a pointwise model is asked about a candidate, with all that yes is weighed against."""
        matter = self._matter([candidate])
        points = [self._points(fence, candidate, self.query, matter)]
        points += [idle for idle, _ in self._idle(fence, candidate, matter)]
        return [each for one in points for each in one.prompts()]

    async def _ask_once(
        self, asked: Sequence[Shown], seat: Endpoint, session: Session, sample: int
    ) -> Answer[Marks]:
        async def ask_batch(batch: Sequence[Shown]) -> Answer[Marks]:
            return await self._ask_batch(batch, seat, session, sample)

        # What calls cost is known when they end: a limit on it holds only for one after another.
        return await ask_all(split(asked), ask_batch, together=session.max_cost_usd is None)

    async def _ask_batch(
        self, batch: Sequence[Shown], seat: Endpoint, session: Session, sample: int
    ) -> Answer[Marks]:
        watch = Stopwatch()
        calls = [
            partial(self._ask_about, rubric, batch, seat, session, part, sample)
            for part, rubric in self._asked().items()
        ]
        answers = await all_of(calls, session, seat)
        said = [each.value for each in answers if each.value is not None]
        if len(said) < len(answers):
            return joined(answers, None, watch.ms)
        marks: Marks = {
            each.id: self._mark({name: each.id in kept for held in said for name, kept in held.items()})
            for each in batch
        }
        return joined(answers, marks, watch.ms)

    def _asked(self) -> dict[str, SelectRubric]:
        return self.manner.asked(self.rubric)

    async def _ask_about(
        self,
        rubric: SelectRubric,
        batch: Sequence[Shown],
        seat: Endpoint,
        session: Session,
        part: str,
        sample: int,
    ) -> Answer[dict[str, set[str]]]:
        """Return the ids of the candidates that hold, by criterion."""
        shown = self._cut(seat, batch)
        messages, ids = prompt.select_messages(
            rubric, self.mode, self.words, self.query.text, self.query.turns, shown
        )
        tokens = REPLY_TOKENS + LABEL_TOKENS * len(batch) * len(rubric.criteria)
        model = select_reply_model(rubric, list(ids))
        question = Question(lambda: messages, 0, model, self._matter(batch, part), tokens, ids, sample)
        answer = await ask(session, seat, question, self._timeout)
        names = list(rubric.criteria)
        keys = {names[0]: KEEP} if len(names) == 1 else {name: name for name in names}

        def held(reply: Mapping[str, list[str]]) -> dict[str, set[str]]:
            return {name: {ids[label] for label in reply[key]} for name, key in keys.items()}

        return answer.map(lambda reply: held(reply.model_dump()))

    def _matter(self, asked: Sequence[Shown], part: str = "") -> Matter:
        return Matter(_subject(self.query, asked, self.mode), self.rubric.ref, self.tier, part)

    @property
    def _timeout(self) -> float:
        seconds: float = getattr(self.rubric.tiers, self.tier).timeout
        return seconds

    def _mark(self, holds: Mapping[str, bool], probability: float | None = None) -> Mark:
        return Mark("accept" if self.rubric.keeps(holds, self.mode) else "reject", probability)

    async def _ask_each(self, asked: Sequence[Shown], seat: Endpoint, session: Session) -> Answer[Marks]:
        """Ask a pointwise model about one candidate after another, until the deadline is over."""
        watch, matter = Stopwatch(), self._matter(asked)
        marks: Marks = {}
        total, failure, model = Usage(), None, seat.model
        for each in asked:
            answer = await self._ask_alone(each, seat, session, matter.within(each.id))
            total, model = total.plus(answer.usage), answer.model
            failure = failure or answer.failure
            marks[each.id] = answer.value
        value = marks if any(marks.values()) else None
        return Answer(value, failure, total, watch.ms, model)

    async def _ask_alone(
        self, candidate: Shown, seat: Endpoint, session: Session, matter: Matter
    ) -> Answer[Mark]:
        """Ask about one candidate, and where yes is likelier than no, what makes it likely.

        A text that claims to answer anything makes yes likely for an idle request too, and a turn of the
        conversation that claims it does so for an idle memory.
        """
        watch = Stopwatch()
        points = self._points(session.fence, candidate, self.query, matter)
        answers = [await ask_pointwise(session, seat, points, self._timeout)]
        if (found := answers[0].value) is None:
            return joined(answers, None, watch.ms)
        yes = earned = _yes(found)
        for idle, least in self._idle(session.fence, candidate, matter):
            if self._mark_of(earned).outcome != "accept":
                break
            answers.append(await ask_pointwise(session, seat, idle, self._timeout))
            if (told := answers[-1].value) is None:
                return joined(answers, None, watch.ms)
            other = _yes(told)
            earned = {
                name: min(earned[name], pointwise.earned(each, other[name], least))
                for name, each in yes.items()
            }
        return joined(answers, self._mark_of(earned), watch.ms)

    def _idle(self, fence: Fence, candidate: Shown, matter: Matter) -> Iterator[tuple[Points, float]]:
        """Yield what yes is weighed against, and how many times those odds it needs."""
        query = replace(self.query, text=pointwise.IDLE)
        yield self._points(fence, candidate, query, matter.within("idle")), pointwise.LEAST_GAIN
        if self.query.turns:  # the same for each candidate: asked once in a session
            idle = self._points(fence, pointwise.IDLE_MEMORY, self.query, matter.within("idle-memory"))
            yield idle, pointwise.LEAST_GAIN_OVER_MEMORY

    def _points(self, fence: Fence, candidate: Shown, query: Query, matter: Matter) -> Points:
        short = replace(candidate, text=candidate.text[:POINTWISE_CHARS])
        questions = {
            name: f"{getattr(text, self.mode)}\nAnswer with one word, yes or no."
            for name, text in self.rubric.criteria.items()
        }
        return Points(
            f"{self.rubric.prompt.system} {fence.guard}",
            prompt.candidate_context(fence, short, query.text, query.turns),
            questions,
            _YES_NO,
            matter,
            [_worked(fence, each) for each in self.rubric.prompt.examples],
        )

    def _mark_of(self, yes: Mapping[str, float]) -> Mark:
        rule = getattr(self.rubric.modes, self.mode).keep
        probability = min(yes.values()) if rule == "all" else max(yes.values())
        return self._mark({name: value >= KEEP_AT for name, value in yes.items()}, round(probability, 4))

    def _cut(self, seat: Endpoint, shown: Sequence[Shown]) -> list[Shown]:
        # What a model bears is shared: one that drops the rest in silence would judge what it never saw.
        share = (seat.profile.limits.context_chars or CONTEXT_CHARS) // len(shown)
        limit = min(getattr(self.rubric.tiers, self.tier).max_chars or CONTEXT_CHARS, share)
        return [replace(each, text=each.text[:limit]) for each in shown]


def _yes(found: _Found) -> dict[str, float]:
    return {name: pointwise.yes_probability(each) for name, each in found.items()}


def _shares(samples: Sequence[Marks], asked: int) -> Marks:
    """Return the marks of several replies: the share of them that keep a candidate is its probability."""
    found: Marks = {}
    for candidate in dict.fromkeys(each for said in samples for each in said):
        own = [mark.outcome == "accept" for said in samples if (mark := said.get(candidate))]
        share = fmean(own) if own else 0.0
        counts = jury.has_quorum(len(own), asked)
        found[candidate] = Mark(jury.leaning(share), round(share, jury.DIGITS)) if counts else None
    return found


def _subject(query: Query, asked: Sequence[Shown], mode: ModeName) -> str:
    """Return the hash of all that the question is about, in whatever order the candidates came.

    The mode is part of it: it words the question.
    """
    listing = sorted(f"{each.id}\0{each.title}\0{each.text}" for each in asked)
    whole = "\0\0".join((mode, query.text, *query.turns, *listing))
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()


def _worked(fence: Fence, example: WorkedExample) -> pointwise.Example:
    shown = Shown("", example.title, example.category, tuple(example.tags), example.text)
    context = prompt.candidate_context(fence, shown, example.query, ())
    return pointwise.Example(context, "yes" if example.holds else "no")
