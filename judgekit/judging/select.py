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

from judgekit.errors import CallUsage, GatewayError
from judgekit.judging import jury, pointwise, prompt, redact
from judgekit.judging.escalation import Final, certainty
from judgekit.judging.judge import Judge
from judgekit.judging.jury import Mark
from judgekit.judging.pointwise import Points, ask_pointwise
from judgekit.judging.prompt import PromptCandidate, candidate_text
from judgekit.judging.replies import KEEP, select_reply_model
from judgekit.judging.round import Answer, Question, Stopwatch, gather_limited, joined, run_round
from judgekit.judging.state import round_record
from judgekit.judging.subject import CONTEXT_CHARS
from judgekit.judging.verdict import Decision, Selection, cost_of, failures, rubric_ref
from judgekit.providers.base import CallKey
from judgekit.rubric.schema import SelectRubric

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from judgekit.config.names import ModeName, TierName
    from judgekit.judging.escalation import EscalationRules
    from judgekit.judging.fence import Fence
    from judgekit.judging.jury import Marks
    from judgekit.judging.options import JudgeOptions
    from judgekit.judging.round import Session
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
    return _joined([await ask(batch) for batch in batches])


def _joined(answers: Sequence[Answer[dict[str, Value]]]) -> Answer[dict[str, Value]]:
    usage = CallUsage()
    value: dict[str, Value] = {}
    for answer in answers:
        usage = usage.plus(answer.usage)
        value |= answer.value or {}
    failure = next((answer.failure for answer in answers if answer.failure), None)
    latency = max(answer.latency_ms for answer in answers)
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
class SelectTask:
    """What a tier is asked about candidates; `words` is the tier whose instructions are given."""

    rubric: SelectRubric
    mode: ModeName
    query: Query
    tier: TierName
    options: JudgeOptions
    words: TierName

    async def ask(
        self, asked: Sequence[PromptCandidate], endpoint: Endpoint, session: Session
    ) -> Answer[Marks]:
        """Return a model's marks, or why it has none."""
        if endpoint.pointwise:
            return await self._ask_each(asked, endpoint, session)
        samples = self.options.samples_of(endpoint)
        if samples == 1:
            return await self._ask_once(asked, endpoint, session, 0)
        watch = Stopwatch()
        tries = [
            partial(self._ask_once, asked, endpoint, session, number) for number in range(1, samples + 1)
        ]
        answers = await gather_limited(tries, session, endpoint)
        marks = _shares([answer.value for answer in answers if answer.value], samples)
        return joined(answers, marks if any(marks.values()) else None, watch.ms)

    def questions(self, candidate: PromptCandidate, fence: Fence) -> list[tuple[Message, ...]]:
        """Return what a pointwise model is asked about a candidate, with all that yes is weighed against."""
        call_key = self._matter([candidate])
        points = [self._points(fence, candidate, self.query, call_key)]
        points += [idle for idle, _ in self._idle(fence, candidate, call_key)]
        return [messages for point in points for messages in point.prompts()]

    async def _ask_once(
        self, asked: Sequence[PromptCandidate], endpoint: Endpoint, session: Session, sample: int
    ) -> Answer[Marks]:
        async def ask_batch(batch: Sequence[PromptCandidate]) -> Answer[Marks]:
            return await self._ask_batch(batch, endpoint, session, sample)

        # What calls cost is known when they end: a limit on it holds only for one after another.
        return await ask_all(split(asked), ask_batch, together=session.max_cost_usd is None)

    async def _ask_batch(
        self, batch: Sequence[PromptCandidate], endpoint: Endpoint, session: Session, sample: int
    ) -> Answer[Marks]:
        watch = Stopwatch()
        calls = [
            partial(self._ask_about, rubric, batch, endpoint, session, part, sample)
            for part, rubric in self._asked().items()
        ]
        answers = await gather_limited(calls, session, endpoint)
        said = [answer.value for answer in answers if answer.value is not None]
        if len(said) < len(answers):
            return joined(answers, None, watch.ms)
        marks: Marks = {
            prompt_candidate.id: self._mark(
                {name: prompt_candidate.id in kept for held in said for name, kept in held.items()}
            )
            for prompt_candidate in batch
        }
        return joined(answers, marks, watch.ms)

    def _asked(self) -> dict[str, SelectRubric]:
        return self.options.asked(self.rubric)

    async def _ask_about(
        self,
        rubric: SelectRubric,
        batch: Sequence[PromptCandidate],
        endpoint: Endpoint,
        session: Session,
        part: str,
        sample: int,
    ) -> Answer[dict[str, set[str]]]:
        """Return the ids of the candidates that hold, by criterion."""
        shown = self._cut(endpoint, batch)
        messages, ids = prompt.select_messages(
            rubric, self.mode, self.words, self.query.text, self.query.turns, shown
        )
        tokens = REPLY_TOKENS + LABEL_TOKENS * len(batch) * len(rubric.criteria)
        model = select_reply_model(rubric, list(ids))
        question = Question(lambda: messages, 0, model, self._matter(batch, part), tokens, ids, sample)
        answer = await run_round(session, endpoint, question, self._timeout)
        names = list(rubric.criteria)
        keys = {names[0]: KEEP} if len(names) == 1 else {name: name for name in names}

        def held(reply: Mapping[str, list[str]]) -> dict[str, set[str]]:
            return {name: {ids[label] for label in reply[key]} for name, key in keys.items()}

        return answer.map(lambda reply: held(reply.model_dump()))

    def _matter(self, asked: Sequence[PromptCandidate], part: str = "") -> CallKey:
        return CallKey(_subject(self.query, asked, self.mode), self.rubric.ref, self.tier, part)

    @property
    def _timeout(self) -> float:
        seconds: float = getattr(self.rubric.tiers, self.tier).timeout
        return seconds

    def _mark(self, holds: Mapping[str, bool], probability: float | None = None) -> Mark:
        return Mark("accept" if self.rubric.keeps(holds, self.mode) else "reject", probability)

    async def _ask_each(
        self, asked: Sequence[PromptCandidate], endpoint: Endpoint, session: Session
    ) -> Answer[Marks]:
        """Ask a pointwise model about one candidate after another, until the deadline is over."""
        watch, call_key = Stopwatch(), self._matter(asked)
        marks: Marks = {}
        total, failure, model = CallUsage(), None, endpoint.model
        for prompt_candidate in asked:
            answer = await self._ask_alone(
                prompt_candidate, endpoint, session, call_key.within(prompt_candidate.id)
            )
            total, model = total.plus(answer.usage), answer.model
            failure = failure or answer.failure
            marks[prompt_candidate.id] = answer.value
        value = marks if any(marks.values()) else None
        return Answer(value, failure, total, watch.ms, model)

    async def _ask_alone(
        self, candidate: PromptCandidate, endpoint: Endpoint, session: Session, call_key: CallKey
    ) -> Answer[Mark]:
        """Ask about one candidate, and where yes is likelier than no, what makes it likely.

        A text that claims to answer anything makes yes likely for an idle request too, and a turn of the
        conversation that claims it does so for an idle memory.
        """
        watch = Stopwatch()
        points = self._points(session.fence, candidate, self.query, call_key)
        answers = [await ask_pointwise(session, endpoint, points, self._timeout)]
        if (found := answers[0].value) is None:
            return joined(answers, None, watch.ms)
        yes = earned = _yes(found)
        for idle, least in self._idle(session.fence, candidate, call_key):
            if self._mark_of(earned).outcome != "accept":
                break
            answers.append(await ask_pointwise(session, endpoint, idle, self._timeout))
            if (told := answers[-1].value) is None:
                return joined(answers, None, watch.ms)
            other = _yes(told)
            earned = {
                name: min(earned[name], pointwise.earned(each, other[name], least))
                for name, each in yes.items()
            }
        return joined(answers, self._mark_of(earned), watch.ms)

    def _idle(
        self, fence: Fence, candidate: PromptCandidate, call_key: CallKey
    ) -> Iterator[tuple[Points, float]]:
        """Yield what yes is weighed against, and how many times those odds it needs."""
        query = replace(self.query, text=pointwise.IDLE)
        yield self._points(fence, candidate, query, call_key.within("idle")), pointwise.LEAST_GAIN
        if self.query.turns:  # the same for each candidate: asked once in a session
            idle = self._points(fence, pointwise.IDLE_MEMORY, self.query, call_key.within("idle-memory"))
            yield idle, pointwise.LEAST_GAIN_OVER_MEMORY

    def _points(self, fence: Fence, candidate: PromptCandidate, query: Query, call_key: CallKey) -> Points:
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
            call_key,
            [_worked(fence, example) for example in self.rubric.prompt.examples],
        )

    def _mark_of(self, yes: Mapping[str, float]) -> Mark:
        rule = getattr(self.rubric.modes, self.mode).keep
        probability = min(yes.values()) if rule == "all" else max(yes.values())
        return self._mark({name: value >= KEEP_AT for name, value in yes.items()}, round(probability, 4))

    def _cut(self, endpoint: Endpoint, shown: Sequence[PromptCandidate]) -> list[PromptCandidate]:
        # What a model bears is shared: one that drops the rest in silence would judge what it never saw.
        share = (endpoint.profile.limits.context_chars or CONTEXT_CHARS) // len(shown)
        limit = min(getattr(self.rubric.tiers, self.tier).max_chars or CONTEXT_CHARS, share)
        return [replace(candidate, text=candidate.text[:limit]) for candidate in shown]


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


def _subject(query: Query, asked: Sequence[PromptCandidate], mode: ModeName) -> str:
    """Return the hash of all that the question is about, in whatever order the candidates came.

    The mode is part of it: it words the question.
    """
    listing = sorted(
        f"{prompt_candidate.id}\0{prompt_candidate.title}\0{prompt_candidate.text}"
        for prompt_candidate in asked
    )
    whole = "\0\0".join((mode, query.text, *query.turns, *listing))
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()


def _worked(fence: Fence, example: WorkedExample) -> pointwise.Example:
    shown = PromptCandidate("", example.title, example.category, tuple(example.tags), example.text)
    context = prompt.candidate_context(fence, shown, example.query, ())
    return pointwise.Example(context, "yes" if example.holds else "no")


__all__ = ["CandidateJudge", "Query"]


@dataclass(frozen=True, slots=True)
class CandidateJudge(Judge[SelectRubric]):
    """Judges candidates; `call_seconds` bounds each call beside the rubric's own timeouts."""

    call_seconds: float | None = None

    async def judge(self, query: Query, candidates: Sequence[PromptCandidate]) -> Selection:
        """Return the decision on each candidate, in the given order; failures are in it, never raised."""
        watch = Stopwatch()
        session = self.session()
        session.call_seconds = self.call_seconds
        late = ""
        if self.options.redact:
            size = sum(map(len, (query.text, *query.turns, *(candidate.text for candidate in candidates))))
            try:
                query, candidates = await session.aside(partial(_outgoing, query, candidates), size)
            except GatewayError as error:
                late = f"{error.kind} ({error.message})"
            left_out = redact.left_out(query.text, *query.turns, *map(candidate_text, candidates))
            if refusal := self.options.refusal(left_out):
                late = f"nothing was judged: {refusal}"
        rules = self.rules()
        marks: dict[TierName, Marks] = {}
        rounds: list[Round] = []
        for tier in () if late else self.panel:
            asked = [candidate for candidate in candidates if _next(rules, marks, candidate.id) == tier]
            if asked:
                answers = await self._ask(tier, query, asked, marks, session)
                marks[tier] = dict.fromkeys(prompt_candidate.id for prompt_candidate in asked) | self._agreed(
                    tier, answers
                )
                rounds += [
                    round_record(number, tier, each, _opinion(each.value))
                    for number, each in enumerate(answers, len(rounds) + 1)
                ]
        decisions = [_decision(candidate.id, rules, marks) for candidate in candidates]
        left = any(decision.decision == "undetermined" for decision in decisions)
        return Selection(
            rubric=rubric_ref(self.loaded),
            mode=self.mode,
            prompt_sha256=self.rubric.prompt.sha256,
            decisions=decisions,
            rounds=rounds,
            calibration=self.finality.id if self.finality else None,
            degraded=late or (failures(rounds) if left else None),
            duration_ms=watch.ms,
            **cost_of(rounds),
        )

    async def _ask(
        self,
        tier: TierName,
        query: Query,
        asked: Sequence[PromptCandidate],
        marks: Mapping[TierName, Marks],
        session: Session,
    ) -> list[Answer[Marks]]:
        """Return what each model of a tier makes of the candidates."""
        # Where the deep tier failed the tiebreaker stands in for it: nobody disagreed.
        stands_in = tier == "tiebreaker" and not any(marks.get("deep", {}).values())
        words: TierName = "deep" if stands_in else tier
        task = SelectTask(self.rubric, self.mode, query, tier, self.options, words)
        return await gather_limited(
            [partial(task.ask, asked, endpoint, session) for endpoint in self.models_by_tier[tier]], session
        )

    def _agreed(self, tier: TierName, answers: Sequence[Answer[Marks]]) -> Marks:
        """Return what the models of a tier come to; nothing where too few of them answered."""
        endpoints = self.models_by_tier[tier]
        said = [
            (endpoint, each.value) for endpoint, each in zip(endpoints, answers, strict=True) if each.value
        ]
        return jury.marks(said, len(endpoints), self.options.jury)


def _outgoing(query: Query, candidates: Sequence[PromptCandidate]) -> tuple[Query, list[PromptCandidate]]:
    """Return the request and the candidates without their secrets."""
    return (
        Query(redact.request(query.text), redact.turns(query.turns)),
        [redact.shown(candidate) for candidate in candidates],
    )


def _next(rules: EscalationRules, marks: Mapping[TierName, Marks], candidate: str) -> TierName | Final:
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


def _decision(candidate: str, rules: EscalationRules, marks: Mapping[TierName, Marks]) -> Decision:
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
