"""The task `select`: candidates are judged together, in one call or few; only contested ones go up a tier."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from judgekit import prompt
from judgekit.gateway.base import Matter
from judgekit.judging import outgoing, pointwise
from judgekit.judging.asking import (
    Answer,
    Points,
    Question,
    ask,
    ask_pointwise,
)
from judgekit.judging.batches import ask_all, split
from judgekit.judging.escalation import Final, Rules
from judgekit.judging.gates import certainty
from judgekit.judging.record import cost_of, failures, round_record, rubric_ref
from judgekit.judging.replies import select_reply_model
from judgekit.judging.session import Session, Stopwatch
from judgekit.judging.subject import CONTEXT_CHARS
from judgekit.prompt import Shown
from judgekit.usage import Usage
from judgekit.verdict import Decision, Selection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic import BaseModel

    from judgekit.fence import Fence
    from judgekit.gateway.base import Endpoint, Gateway
    from judgekit.judging.gates import Gates
    from judgekit.judging.reply_cache import Cache
    from judgekit.library import LoadedRubric
    from judgekit.rubric import ModeName, Outcome, SelectRubric, TierName, WorkedExample
    from judgekit.verdict import Round

KEEP_AT = 0.5  # a pointwise candidate is kept when yes is likelier than no
POINTWISE_CHARS = 300  # of a candidate's text; a small model judges it no better by more, only slower
REPLY_TOKENS = 64  # the object around the labels, and a fence that a model may put around it
LABEL_TOKENS = 16
_YES_NO = ("yes", "no")


@dataclass(frozen=True, slots=True)
class Query:
    """What candidates are wanted for: the request and the last turns of the conversation before it."""

    text: str
    turns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """What one tier made of one candidate; the probability is known for pointwise models only."""

    outcome: Outcome
    probability: float | None = None


Marks: TypeAlias = dict[str, Mark | None]
"""The marks of one round by candidate id; None where the round brought none."""


@dataclass(frozen=True, slots=True)
class CandidateJudge:
    """Judges candidates under one rubric in one mode.

    `tiers` are the endpoints that may be asked, in order; `call_seconds` bounds each call beside the
    rubric's own timeouts. `cache` holds replies of earlier judgings. `gates` are those of a calibration.
    Without `redact` secrets are sent with the texts they stand in.
    """

    gateway: Gateway
    tiers: Mapping[TierName, Endpoint]
    loaded: LoadedRubric
    mode: ModeName
    deadline: float
    call_seconds: float | None = None
    max_cost_usd: float | None = None
    cache: Cache | None = None
    gates: Gates | None = None
    redact: bool = True

    @property
    def rubric(self) -> SelectRubric:
        """The rubric, known to be one that selects."""
        return self.loaded.rubric  # type: ignore[return-value]  # library.select_rubric saw to it

    async def judge(self, query: Query, candidates: Sequence[Shown]) -> Selection:
        """Return the decision on each candidate, in the given order; failures are in it, never raised."""
        watch = Stopwatch()
        if self.redact:
            query = Query(outgoing.request(query.text), outgoing.turns(query.turns))
            candidates = [outgoing.shown(each) for each in candidates]
        session = Session(self.gateway, self.deadline, self.max_cost_usd, self.call_seconds, cache=self.cache)
        models = {tier: seat.model for tier, seat in self.tiers.items()}
        confirm = getattr(self.rubric.modes, self.mode).confirm
        rules = Rules(confirm, tuple(self.tiers) or ("quick",), models=models, gates=self.gates)
        marks: dict[TierName, Marks] = {}
        rounds: list[Round] = []
        for tier in self.tiers:
            asked = [each for each in candidates if _next(rules, marks, each.id) == tier]
            if asked:
                answer = await self._ask(tier, query, asked, marks.get("deep", {}), session)
                marks[tier] = dict.fromkeys(each.id for each in asked) | (answer.value or {})
                rounds.append(round_record(len(rounds) + 1, tier, answer, _opinion(answer.value)))
        decisions = [_decision(each.id, rules, marks) for each in candidates]
        left = any(each.decision == "undetermined" for each in decisions)
        return Selection(
            rubric=rubric_ref(self.loaded),
            mode=self.mode,
            prompt_sha256=self.rubric.prompt.sha256,
            decisions=decisions,
            rounds=rounds,
            calibration=self.gates.id if self.gates else None,
            degraded=failures(rounds) if left else None,
            duration_ms=watch.ms,
            **cost_of(rounds),
        )

    async def _ask(
        self, tier: TierName, query: Query, asked: Sequence[Shown], deep: Marks, session: Session
    ) -> Answer[Marks]:
        if self.tiers[tier].pointwise:
            return await self._ask_each(query, asked, self._matter(tier, query, asked), session)
        # Where the deep tier failed the tiebreaker stands in for it: nobody disagreed.
        words: TierName = "deep" if tier == "tiebreaker" and not any(deep.values()) else tier

        async def ask_batch(batch: Sequence[Shown]) -> Answer[Marks]:
            return await self._ask_batch(tier, words, query, batch, session)

        # What calls cost is known when they end: a limit on it holds only for one after another.
        return await ask_all(split(asked), ask_batch, together=self.max_cost_usd is None)

    async def _ask_batch(
        self, tier: TierName, words: TierName, query: Query, batch: Sequence[Shown], session: Session
    ) -> Answer[Marks]:
        messages, ids = prompt.select_messages(
            self.rubric, self.mode, words, query.text, query.turns, self._cut(tier, batch)
        )
        tokens = REPLY_TOKENS + LABEL_TOKENS * len(batch) * len(self.rubric.criteria)
        model = select_reply_model(self.rubric, list(ids))
        question = Question(messages, model, self._matter(tier, query, batch), tokens, ids)
        timeout = getattr(self.rubric.tiers, tier).timeout
        answer = await ask(session, self.tiers[tier], question, timeout)
        return answer.map(lambda reply: self._marks(reply, ids))

    def _matter(self, tier: TierName, query: Query, asked: Sequence[Shown]) -> Matter:
        return Matter(_subject(query, asked, self.mode), self.rubric.ref, tier)

    def _marks(self, reply: BaseModel, ids: Mapping[str, str]) -> Marks:
        said: dict[str, list[str]] = reply.model_dump()
        criteria = list(self.rubric.criteria)
        keys = {criteria[0]: "keep"} if len(criteria) == 1 else {name: name for name in criteria}
        return {
            each: self._mark({name: label in said[key] for name, key in keys.items()})
            for label, each in ids.items()
        }

    def _mark(self, holds: Mapping[str, bool], probability: float | None = None) -> Mark:
        return Mark("accept" if self.rubric.keeps(holds, self.mode) else "reject", probability)

    async def _ask_each(
        self, query: Query, asked: Sequence[Shown], matter: Matter, session: Session
    ) -> Answer[Marks]:
        """Ask a pointwise model about one candidate after another, until the deadline is over."""
        watch, tier, endpoint = Stopwatch(), matter.tier, self.tiers[matter.tier]
        timeout = getattr(self.rubric.tiers, tier).timeout
        marks: Marks = {}
        total, failure, model = Usage(), None, endpoint.model
        for each in asked:
            points = self._points(session.fence, query, each, matter._replace(part=each.id))
            answer = await ask_pointwise(session, endpoint, points, timeout)
            total, model = total.plus(answer.usage), answer.model
            failure = failure or answer.failure
            marks[each.id] = self._likely(answer.value) if answer.value else None
        value = marks if any(marks.values()) else None
        return Answer(value, failure, total, watch.ms, model)

    def _points(self, fence: Fence, query: Query, candidate: Shown, matter: Matter) -> Points:
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

    def _likely(self, found: Mapping[str, Mapping[str, float]]) -> Mark:
        yes = {name: pointwise.yes_probability(each) for name, each in found.items()}
        rule = getattr(self.rubric.modes, self.mode).keep
        probability = min(yes.values()) if rule == "all" else max(yes.values())
        return self._mark({name: value >= KEEP_AT for name, value in yes.items()}, round(probability, 4))

    def _cut(self, tier: TierName, shown: Sequence[Shown]) -> list[Shown]:
        # What a model bears is shared: one that drops the rest in silence would judge what it never saw.
        share = (self.tiers[tier].profile.limits.context_chars or CONTEXT_CHARS) // len(shown)
        limit = min(getattr(self.rubric.tiers, tier).max_chars or CONTEXT_CHARS, share)
        return [replace(each, text=each.text[:limit]) for each in shown]


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


def _seen(marks: Mapping[TierName, Marks], candidate: str) -> dict[TierName, Outcome | None]:
    return {
        tier: mark.outcome if (mark := found[candidate]) else None
        for tier, found in marks.items()
        if candidate in found
    }


def _next(rules: Rules, marks: Mapping[TierName, Marks], candidate: str) -> TierName | Final:
    known = {tier: mark for tier, found in marks.items() if (mark := found.get(candidate))}
    return rules.next(
        _seen(marks, candidate), {tier: certainty(mark.probability) for tier, mark in known.items()}
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
    if not isinstance(final, Final) or final.tier is None:
        return Decision(id=candidate, decision="undetermined")
    mark = marks[final.tier][candidate]
    return Decision(
        id=candidate,
        decision="kept" if final.verdict == "accept" else "dropped",
        tier=final.tier,
        probability=mark.probability if mark else None,
    )
