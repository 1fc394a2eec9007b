"""The task `select`: each tier's models choose among candidates; only contested candidates go up a tier."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, product
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeAlias

from judgekit.judging import documents, jury, pointwise, prompt
from judgekit.judging.documents import CONTEXT_CHARS, Candidates, PromptCandidate, Query
from judgekit.judging.escalation import UNDETERMINED, Final, certainty
from judgekit.judging.jury import Mark, Marks
from judgekit.judging.orchestrator import Judge
from judgekit.judging.pointwise import Points, ask_pointwise
from judgekit.judging.prompt import candidate_text
from judgekit.judging.question import ModelTurn, TierQuestion
from judgekit.judging.round import Answer, Calls, Session, joined, run_round
from judgekit.judging.verdict import Decision, Selection, failures
from judgekit.providers.base import CallKey, Endpoint, Messages, Reply, Request
from judgekit.redaction import redact
from judgekit.replies.forms import KEEP, ReplyForm, select_reply_model
from judgekit.rubric.schema import SelectRubric

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from judgekit.config import Outcome, TierName
    from judgekit.judging.fence import Fence
    from judgekit.judging.state import JudgingState

Holds: TypeAlias = dict[str, dict[str, bool]]
"""Whether each criterion holds, by candidate."""

BATCH = 15  # candidates in one call: of a long list a model overlooks more, and takes longer
KEEP_AT = 0.5  # a pointwise candidate is kept when yes is likelier than no
POINTWISE_CHARS = (
    300  # of a candidate's text; a small model judges it no better by more, only slower
)
REPLY_TOKENS = 64  # the object around the labels, and a fence that a model may put around it
LABEL_TOKENS = 16


def batches(items: Sequence[PromptCandidate]) -> list[Sequence[PromptCandidate]]:
    """Return `items` in as few runs of at most `BATCH` as possible, of nearly equal length."""
    count = -(-len(items) // BATCH)
    cuts = []
    for number in range(count + 1):
        cuts.append(round(len(items) * number / count))
    return [items[a:b] for a, b in pairwise(cuts)]


@dataclass(frozen=True)
class SelectQuestion(TierQuestion[SelectRubric, Candidates, Holds, Marks]):
    def prompts(self, endpoint: Endpoint | None, fence: Fence) -> list[Messages]:
        candidates = self.subject.candidates
        if endpoint is None or not endpoint.pointwise:
            pairs = product(batches(candidates), self.rubrics_by_part.values())
            return [self._messages(rubric, batch, endpoint)[0] for batch, rubric in pairs]
        key = self._key(candidates)
        found: list[Messages] = []
        for candidate in candidates:
            found += self._points(fence, candidate, self.subject.query, key).prompts()
            for idle, _ in self._idle(fence, candidate, key):
                found += idle.prompts()
        return found

    async def ask(self, endpoint: Endpoint, session: Session) -> ModelTurn[Marks]:
        if not endpoint.pointwise:
            return await TierQuestion.ask(self, endpoint, session)
        # One candidate after another, until the deadline is over.
        started = time.monotonic()
        key = self._key(self.subject.candidates)
        answers = {}
        for own in self.subject.candidates:
            answers[own.id] = await self._ask_alone(own, endpoint, session, key.within(own.id))
        marks = {name: answer.value for name, answer in answers.items()}
        calls = list(answers.values())
        value = marks if any(marks.values()) else None
        return ModelTurn(endpoint, calls, joined(calls, value, started, always=True))

    def calls(self, endpoint: Endpoint, session: Session, sample: int) -> Calls[Holds]:
        found: Calls[Holds] = []
        for batch in batches(self.subject.candidates):
            for part, rubric in self.rubrics_by_part.items():
                messages, ids = self._messages(rubric, batch, endpoint)
                tokens = REPLY_TOKENS + LABEL_TOKENS * len(batch) * len(rubric.criteria)
                key = self._key(batch, part)
                timeout = self.limits.timeout
                request = Request((), key, timeout, tokens, labels=ids, sample=sample)
                model = select_reply_model(list(rubric.criteria), list(ids))
                read = partial(_holds, list(rubric.criteria), ids, batch)
                made = partial(Messages, messages)
                found.append(partial(run_round, session, endpoint, request, made, 0, model, read))
        return found

    def opinion(self, samples: Sequence[Sequence[Holds | None]]) -> Marks | None:
        said = [self._marks(sample) for sample in samples]
        if len(samples) == 1:
            return {**said[0]} or None
        found: Marks = {}
        for candidate in dict.fromkeys(candidate for marks in said for candidate in marks):
            kept = []
            for marks in said:
                if candidate in marks:
                    kept.append(marks[candidate].outcome == "accept")
            share = fmean(kept)
            counts = jury.has_quorum(len(kept), len(samples))
            if counts:
                found[candidate] = Mark(jury.leaning(share), round(share, jury.DIGITS))
            else:
                found[candidate] = None
        return found if any(found.values()) else None

    def combine(self, voices: Sequence[tuple[Endpoint, Marks | None]]) -> Marks:
        known = [(endpoint, marks) for endpoint, marks in voices if marks]
        nothing: Marks = dict.fromkeys(candidate.id for candidate in self.subject.candidates)
        return nothing | jury.marks(known, len(voices), self.settings.jury)

    def record(self, opinion: Marks) -> dict[str, Any]:
        known = {name: mark for name, mark in opinion.items() if mark}
        likely = {}
        for name, mark in known.items():
            if mark.probability is not None:
                likely[name] = mark.probability
        keep = [name for name, mark in known.items() if mark.outcome == "accept"]
        found = {"keep": keep, "unjudged": [name for name in opinion if name not in known]}
        return {**found, "probabilities": likely} if likely else {**found}

    def _messages(
        self, rubric: SelectRubric, batch: Sequence[PromptCandidate], endpoint: Endpoint | None
    ) -> tuple[Messages, dict[str, str]]:
        # They share the limit of the model: it might drop the rest in silence, and judge it all the same.
        most = (endpoint and endpoint.profile.limits.context_chars) or CONTEXT_CHARS
        limit = min(self.limits.max_chars or CONTEXT_CHARS, most // len(batch))
        shown = [replace(candidate, text=candidate.text[:limit]) for candidate in batch]
        return prompt.select_messages(
            rubric, self.mode, self.instructions_tier or self.tier, self.subject.query, shown
        )

    def _marks(self, holds: Sequence[Holds | None]) -> dict[str, Mark]:
        """Return the marks of the candidates for which there is an answer on every criterion."""
        whole: Holds = {}
        for part in holds:
            for candidate, held in (part or {}).items():
                whole[candidate] = whole.get(candidate, {}) | held
        count = len(self.rubric.criteria)
        return {name: self._mark(held) for name, held in whole.items() if len(held) == count}

    def _mark(self, holds: Mapping[str, bool], probability: float | None = None) -> Mark:
        return Mark("accept" if self.rubric.keeps(holds, self.mode) else "reject", probability)

    def _key(self, candidates: Sequence[PromptCandidate], part: str = "") -> CallKey:
        """Return the key of a question about candidates in any order; the mode words it."""
        listing = sorted(f"{own.id}\0{own.title}\0{own.text}" for own in candidates)
        query = self.subject.query
        whole = "\0\0".join((self.mode, query.text, *query.turns, *listing))
        sha256 = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()
        return CallKey(sha256, self.rubric.ref, self.tier, part)

    async def _ask_alone(
        self, candidate: PromptCandidate, endpoint: Endpoint, session: Session, key: CallKey
    ) -> Answer[Mark]:
        """Ask about one candidate, and where yes is likelier, whether it would be for anything idle too."""
        started = time.monotonic()
        timeout = self.limits.timeout
        threshold = pointwise.thresholds(endpoint).get(self.rubric.ref, {}).get(self.mode, KEEP_AT)
        rule = getattr(self.rubric.modes, self.mode).keep

        def mark(yes: Mapping[str, float]) -> Mark:
            likely = {}
            for name, each in yes.items():
                likely[name] = pointwise.centred(each, threshold)
            probability = (min if rule == "all" else max)(likely.values())
            return self._mark(
                {name: each >= KEEP_AT for name, each in likely.items()}, round(probability, 4)
            )

        points = self._points(session.fence, candidate, self.subject.query, key)
        answers = [await ask_pointwise(session, endpoint, points, timeout)]
        found = answers[0].value
        if found is None:
            return joined(answers, None, started)
        yes = earned = {name: likely["yes"] for name, likely in found.items()}
        for idle, least in self._idle(session.fence, candidate, key):
            if mark(earned).outcome != "accept":
                break
            answers.append(await ask_pointwise(session, endpoint, idle, timeout))
            other = answers[-1].value
            if other is None:
                return joined(answers, None, started)
            still_earned = {}
            for name, likely in yes.items():
                share = pointwise.earned(likely, other[name]["yes"], least)
                still_earned[name] = min(earned[name], share)
            earned = still_earned
        return joined(answers, mark(earned), started)

    def _idle(
        self, fence: Fence, candidate: PromptCandidate, key: CallKey
    ) -> Iterator[tuple[Points, float]]:
        """Yield what yes is weighed against, and how many times those odds it needs."""
        query = self.subject.query
        idle = query._replace(text=pointwise.IDLE)
        yield self._points(fence, candidate, idle, key.within("idle")), pointwise.LEAST_GAIN
        if query.turns:  # the same for each candidate: asked once in a session
            memory = self._points(fence, pointwise.IDLE_MEMORY, query, key.within("idle-memory"))
            yield memory, pointwise.LEAST_GAIN_OVER_MEMORY

    def _points(
        self, fence: Fence, candidate: PromptCandidate, query: Query, key: CallKey
    ) -> Points:
        short = replace(candidate, text=candidate.text[:POINTWISE_CHARS])
        ask = "Answer with one word, yes or no."
        criteria = self.rubric.criteria
        questions = {}
        for name, text in criteria.items():
            questions[name] = f"{getattr(text, self.mode)}\n{ask}"
        examples = []
        for example in self.rubric.prompt.examples:
            memory = PromptCandidate(
                "", example.title, example.category, tuple(example.tags), example.text
            )
            context = prompt.candidate_context(fence, memory, Query(example.query))
            examples.append((context, "yes" if example.holds else "no"))
        context = prompt.candidate_context(fence, short, query)
        system = f"{self.rubric.prompt.system} {fence.guard}"
        return Points(system, context, questions, ("yes", "no"), key, examples)


def _holds(
    names: Sequence[str],
    ids: Mapping[str, str],
    batch: Sequence[PromptCandidate],
    reply: ReplyForm,
    _: Reply,
) -> Holds:
    lists = reply.model_dump()
    kept = {}
    for name in names:
        kept[name] = {ids[label] for label in lists[KEEP if len(names) == 1 else name]}
    return {own.id: {name: own.id in kept[name] for name in names} for own in batch}


@dataclass(frozen=True, slots=True)
class CandidateJudge(Judge[SelectRubric, Candidates, Selection]):
    async def select(self, query: Query, candidates: Sequence[PromptCandidate]) -> Selection:
        """Return the decision on each candidate, in the given order; failures are in it, never raised."""
        return await self.measured_for(query).judge(Candidates(query, tuple(candidates)))

    def measured_for(self, query: Query) -> CandidateJudge:
        """Return the judge without what was learned, if models see more than they did then: earlier turns."""
        finality = self.settings.finality
        if finality is None or not query.turns:
            return self
        why = "its labelled requests had no earlier conversation; set retrieval.context_turns to 0"
        notes = [f"calibration {finality.id} not used: {why}", self.settings.calibration_warning]
        return self.with_settings(finality=None, calibration_warning="; ".join(filter(None, notes)))

    def redacted(self, subject: Candidates) -> tuple[Candidates, int]:
        if not self.settings.redact:
            return subject, 0
        clean = redact.words
        most = redact.MARGIN
        turns = tuple(
            clean(turn[: 4 * documents.TURN_CHARS + most]) for turn in subject.query.turns
        )
        query = Query(clean(subject.query.text[: documents.PROMPT_CHARS + most]), turns)

        def cleaned(own: PromptCandidate) -> PromptCandidate:
            tags = tuple(map(clean, own.tags))
            return PromptCandidate(
                own.id, clean(own.title), clean(own.category), tags, clean(own.text)
            )

        candidates = tuple(map(cleaned, subject.candidates))
        shown = (query.text, *turns, *map(candidate_text, candidates))
        return Candidates(query, candidates), sum(text.count(redact.MARK) for text in shown)

    def question(self, tier: TierName, state: JudgingState[Candidates]) -> SelectQuestion:
        subject = state.subject
        asked = tuple(own for own in subject.candidates if self._next(state, own.id) == tier)
        # Where the deep tier failed the tiebreaker stands in for it: there is no disagreement.
        stands_in = tier == "tiebreaker" and not any(state.opinions.get("deep", {}).values())
        words: TierName = "deep" if stands_in else tier
        asking = subject._replace(candidates=asked)
        return SelectQuestion(self.settings, asking, tier, words)

    def step(self, state: JudgingState[Candidates]) -> TierName | Final:
        waiting = {self._next(state, candidate.id) for candidate in state.subject.candidates}
        return next((tier for tier in self.models_by_tier if tier in waiting), UNDETERMINED)

    def _next(self, state: JudgingState[Candidates], candidate: str) -> TierName | Final:
        seen: dict[TierName, Outcome | None] = {}
        margins: dict[TierName, float] = {}
        divided: dict[TierName, bool] = {}
        for tier, marks in state.opinions.items():
            if candidate not in marks:
                continue
            mark: Mark | None = marks[candidate]
            if not mark:
                seen[tier] = None
                continue
            seen[tier] = mark.outcome
            margins[tier] = certainty(mark.probability)
            if mark.divided is not None:
                divided[tier] = mark.divided
        return self.settings.escalation_rules().next(seen, margins, divided)

    def unjudged(self, state: JudgingState[Candidates], why: str) -> Selection:
        return self.record(state, UNDETERMINED).model_copy(update={"degraded": why})

    def record(self, state: JudgingState[Candidates], final: Final) -> Selection:
        del final  # each candidate has its own
        decisions = []
        for candidate in state.subject.candidates:
            end = self._next(state, candidate.id)
            name = candidate.id
            # `improve` means exactly between keeping and dropping: it decides nothing.
            if not isinstance(end, Final) or end.tier is None or end.verdict == "improve":
                decisions.append(Decision(id=name, decision="undetermined"))
                continue
            word = "kept" if end.verdict == "accept" else "dropped"
            mark = state.opinions[end.tier][name]
            probability = mark.probability if mark else None
            decisions.append(
                Decision(id=name, decision=word, tier=end.tier, probability=probability)
            )
        left = any(decision.decision == "undetermined" for decision in decisions)
        why = failures(state.rounds) if left else None
        if state.refused:
            why = f"not judged: {state.refused}"
        return Selection(
            stale=self.settings.calibration_warning,
            decisions=decisions,
            degraded=why,
            **state.measured(self.settings),
        )
