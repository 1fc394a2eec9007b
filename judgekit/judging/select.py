"""The task `select`: each tier's models choose among candidates; only contested candidates go up a tier.

Many candidates are asked about in several calls at once: of a long list a model overlooks more, and takes
longer.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from judgekit.errors import GatewayError, Usage
from judgekit.judging import jury, pointwise, prompt, redact
from judgekit.judging.escalation import Final
from judgekit.judging.finality import certainty
from judgekit.judging.judge import Judge
from judgekit.judging.opinion import Mark
from judgekit.judging.prompt import Shown, candidate_text
from judgekit.judging.record import cost_of, failures, rubric_ref
from judgekit.judging.replies import KEEP, select_reply_model
from judgekit.judging.round import Answer, Points, Question, all_of, ask, ask_pointwise, joined
from judgekit.judging.session import Stopwatch
from judgekit.judging.state import round_record
from judgekit.judging.subject import CONTEXT_CHARS
from judgekit.judging.verdict import Decision, Selection
from judgekit.providers.base import Matter
from judgekit.rubric.schema import SelectRubric

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from judgekit.config.names import ModeName, TierName
    from judgekit.judging.escalation import Rules
    from judgekit.judging.fence import Fence
    from judgekit.judging.opinion import Marks
    from judgekit.judging.options import Manner
    from judgekit.judging.session import Session
    from judgekit.judging.verdict import Round
    from judgekit.providers.base import Endpoint, Message
    from judgekit.rubric.schema import WorkedExample


Item = TypeVar("Item")
Value = TypeVar("Value")

BATCH = 15  # candidates in one call


def split(items: Sequence[Item], most: int = BATCH) -> list[Sequence[Item]]:
    """Return `items` in as few runs of at most `most` as there must be, of nearly equal length."""
    count = -(-len(items) // most)
    cuts = [round(len(items) * number / count) for number in range(count + 1)]
    return [items[a:b] for a, b in pairwise(cuts)]


async def ask_all(
    batches: Sequence[Sequence[Item]],
    ask: Callable[[Sequence[Item]], Awaitable[Answer[dict[str, Value]]]],
    *,
    together: bool,
) -> Answer[dict[str, Value]]:
    """Return what `ask` answers for all batches as one answer, asked `together` or one after another.

    A batch that failed is missing from the value; its failure, the first of several, is the answer's.
    """
    if together:
        return _joined(await asyncio.gather(*map(ask, batches)))
    return _joined([await ask(each) for each in batches])


def _joined(answers: Sequence[Answer[dict[str, Value]]]) -> Answer[dict[str, Value]]:
    usage = Usage()
    value: dict[str, Value] = {}
    for each in answers:
        usage = usage.plus(each.usage)
        value |= each.value or {}
    failure = next((each.failure for each in answers if each.failure), None)
    latency = max(each.latency_ms for each in answers)
    return Answer(value or None, failure, usage, latency, answers[-1].model)


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


__all__ = ["CandidateJudge", "Query"]


@dataclass(frozen=True, slots=True)
class CandidateJudge(Judge[SelectRubric]):
    """Judges candidates; `call_seconds` bounds each call beside the rubric's own timeouts."""

    call_seconds: float | None = None

    async def judge(self, query: Query, candidates: Sequence[Shown]) -> Selection:
        """Return the decision on each candidate, in the given order; failures are in it, never raised."""
        watch = Stopwatch()
        session = self.session()
        session.call_seconds = self.call_seconds
        late = ""
        if self.manner.redact:
            size = sum(map(len, (query.text, *query.turns, *(each.text for each in candidates))))
            try:
                query, candidates = await session.aside(partial(_outgoing, query, candidates), size)
            except GatewayError as error:
                late = f"{error.kind} ({error.message})"
            left_out = redact.left_out(query.text, *query.turns, *map(candidate_text, candidates))
            if refusal := self.manner.refusal(left_out):
                late = f"nothing was judged: {refusal}"
        rules = self.rules()
        marks: dict[TierName, Marks] = {}
        rounds: list[Round] = []
        for tier in () if late else self.seats:
            asked = [each for each in candidates if _next(rules, marks, each.id) == tier]
            if asked:
                answers = await self._ask(tier, query, asked, marks, session)
                marks[tier] = dict.fromkeys(each.id for each in asked) | self._agreed(tier, answers)
                rounds += [
                    round_record(number, tier, each, _opinion(each.value))
                    for number, each in enumerate(answers, len(rounds) + 1)
                ]
        decisions = [_decision(each.id, rules, marks) for each in candidates]
        left = any(each.decision == "undetermined" for each in decisions)
        return Selection(
            rubric=rubric_ref(self.loaded),
            mode=self.mode,
            prompt_sha256=self.rubric.prompt.sha256,
            decisions=decisions,
            rounds=rounds,
            calibration=self.gates.id if self.gates else None,
            degraded=late or (failures(rounds) if left else None),
            duration_ms=watch.ms,
            **cost_of(rounds),
        )

    async def _ask(
        self,
        tier: TierName,
        query: Query,
        asked: Sequence[Shown],
        marks: Mapping[TierName, Marks],
        session: Session,
    ) -> list[Answer[Marks]]:
        """Return what each model of a tier makes of the candidates."""
        # Where the deep tier failed the tiebreaker stands in for it: nobody disagreed.
        stands_in = tier == "tiebreaker" and not any(marks.get("deep", {}).values())
        words: TierName = "deep" if stands_in else tier
        choice = Choice(self.rubric, self.mode, query, tier, self.manner, words)
        return await all_of(
            [partial(choice.ask, asked, seat, session) for seat in self.juries[tier]], session
        )

    def _agreed(self, tier: TierName, answers: Sequence[Answer[Marks]]) -> Marks:
        """Return what the models of a tier come to; nothing where too few of them answered."""
        seats = self.juries[tier]
        said = [(seat, each.value) for seat, each in zip(seats, answers, strict=True) if each.value]
        return jury.marks(said, len(seats), self.manner.jury)


def _outgoing(query: Query, candidates: Sequence[Shown]) -> tuple[Query, list[Shown]]:
    """Return the request and the candidates without their secrets."""
    return (
        Query(redact.request(query.text), redact.turns(query.turns)),
        [redact.shown(each) for each in candidates],
    )


def _next(rules: Rules, marks: Mapping[TierName, Marks], candidate: str) -> TierName | Final:
    seen = {tier: found[candidate] for tier, found in marks.items() if candidate in found}
    known = {tier: mark for tier, mark in seen.items() if mark}
    return rules.next(
        {tier: mark.outcome if mark else None for tier, mark in seen.items()},
        {tier: certainty(mark.probability) for tier, mark in known.items()},
        {tier: mark.divided for tier, mark in known.items() if mark.divided is not None},
    )


def _opinion(marks: Marks | None) -> dict[str, Any] | None:
    if marks is None:
        return None
    kept = [each for each, mark in marks.items() if mark and mark.outcome == "accept"]
    unjudged = [each for each, mark in marks.items() if mark is None]
    known = {each: mark.probability for each, mark in marks.items() if mark and mark.probability is not None}
    return {"keep": kept, "unjudged": unjudged} | ({"probabilities": known} if known else {})


def _decision(candidate: str, rules: Rules, marks: Mapping[TierName, Marks]) -> Decision:
    final = _next(rules, marks, candidate)
    # `improve` is what models say who are exactly between keeping and dropping: it decides nothing.
    if not isinstance(final, Final) or final.tier is None or final.verdict == "improve":
        return Decision(id=candidate, decision="undetermined")
    mark = marks[final.tier][candidate]
    return Decision(
        id=candidate,
        decision="kept" if final.verdict == "accept" else "dropped",
        tier=final.tier,
        probability=mark.probability if mark else None,
    )
