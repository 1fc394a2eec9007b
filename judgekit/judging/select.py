"""The task `select`: each tier's models choose among candidates; only contested candidates go up a tier."""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise, product
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeAlias

from judgekit.judging import decisions, documents, jury, pointwise, prompt
from judgekit.judging.decisions import State
from judgekit.judging.documents import CONTEXT_CHARS, Candidates, PromptCandidate, Query
from judgekit.judging.escalation import decide
from judgekit.judging.evidence import Evidence, read_candidate
from judgekit.judging.jury import Mark, Marks
from judgekit.judging.orchestrator import Judge
from judgekit.judging.pointwise import PointwiseQuestions, ask_pointwise
from judgekit.judging.prompt import candidate_text
from judgekit.judging.question import ModelTurn, TierQuestion
from judgekit.judging.round import Answer, Calls, Session, joined, run_round
from judgekit.judging.steps import EACH_HAS_ITS_OWN, UNASKED, Ask, End, EscalationRules, Step
from judgekit.judging.verdict import Decision, Selection, failures
from judgekit.providers.base import CallKey, Endpoint, Messages, Reply, Request
from judgekit.providers.decisions import YES
from judgekit.redaction import redact
from judgekit.replies.forms import KEEP, ReplyForm, select_reply_model
from judgekit.rubric.schema import SelectRubric

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from judgekit.config import TierName
    from judgekit.judging.fence import Fence
    from judgekit.judging.state import JudgingState
    from judgekit.providers.decisions import DecisionQuestion

Holds: TypeAlias = dict[str, dict[str, bool]]
"""Whether each criterion holds, by candidate."""

BATCH = 15  # candidates in one call: of a long list a model overlooks more, and takes longer
KEEP_AT = 0.5  # a pointwise candidate is kept when yes is likelier than no
POINTWISE_CHARS = (
    300  # of a candidate's text; a small model judges it no better by more, only slower
)
REPLY_TOKENS = 64  # the object around the labels, and a fence that a model may put around it
LABEL_TOKENS = 16


def batches(candidates: Sequence[PromptCandidate]) -> list[Sequence[PromptCandidate]]:
    """Return candidates in as few runs of at most `BATCH` as possible, of nearly equal length."""
    count = math.ceil(len(candidates) / BATCH)
    cuts = [round(len(candidates) * number / count) for number in range(count + 1)]
    return [candidates[start:end] for start, end in pairwise(cuts)]


@dataclass(frozen=True)
class SelectQuestion(TierQuestion[SelectRubric, Candidates, Holds, Marks]):
    """What a tier is asked about candidates: a batch at a time, or one by one of a pointwise model."""

    def prompts(self, endpoint: Endpoint | None, fence: Fence) -> list[Messages]:
        if endpoint is not None and endpoint.decides:
            state, labels_by_id = self._state(endpoint, fence)
            questions = self._questions(labels_by_id)
            return [decisions.shown(state, _flat(questions))]
        if endpoint is not None and endpoint.pointwise:
            return self._pointwise_prompts(fence)
        prompts = []
        batches_of_all = batches(self.subject.candidates)
        for batch, rubric in product(batches_of_all, self.rubrics_by_part.values()):
            messages, _ = self._messages(rubric, batch, endpoint)
            prompts.append(messages)
        return prompts

    def _pointwise_prompts(self, fence: Fence) -> list[Messages]:
        """Return the prompts about each candidate, and those that its yes may be weighed against."""
        prompts = []
        key = self._key(self.subject.candidates)
        for candidate in self.subject.candidates:
            query = self.subject.query
            prompts += self._pointwise_questions(fence, candidate, query, key).prompts()
            for idle, _ in self._idle(fence, candidate, key):
                prompts += idle.prompts()
        return prompts

    async def ask(self, endpoint: Endpoint, session: Session) -> ModelTurn[Marks]:
        if endpoint.decides:
            return await self._ask_together(endpoint, session)
        if endpoint.pointwise:
            return await self._ask_one_by_one(endpoint, session)
        return await TierQuestion.ask(self, endpoint, session)

    def calls(self, endpoint: Endpoint, session: Session, sample: int) -> Calls[Holds]:
        """Return a call for each batch of candidates and each part of the rubric."""
        calls: Calls[Holds] = []
        parts = self.rubrics_by_part.items()
        for batch, (part, rubric) in product(batches(self.subject.candidates), parts):
            messages, ids_by_label = self._messages(rubric, batch, endpoint)
            criteria = list(rubric.criteria)
            request = Request(
                messages=(),  # `run_round` fills them in
                call_key=self._key(batch, part),
                timeout=self.limits.timeout,
                max_tokens=REPLY_TOKENS + LABEL_TOKENS * len(batch) * len(criteria),
                labels=ids_by_label,
                sample=sample,
            )
            call = partial(
                run_round,
                session,
                endpoint,
                request,
                make_messages=partial(Messages, messages),
                characters=0,
                form=select_reply_model(criteria, list(ids_by_label)),
                make_value=partial(_holds, criteria, ids_by_label, batch),
            )
            calls.append(call)
        return calls

    def opinion(self, samples: Sequence[Sequence[Holds | None]]) -> Marks | None:
        """Return the marks of one sample, or by how many of several keep a candidate; None without any."""
        marks_by_sample = [self._marks(sample) for sample in samples]
        if len(samples) == 1:
            return {**marks_by_sample[0]} or None
        is_kept_by_sample: dict[str, list[bool]] = {}
        for marks_of_sample in marks_by_sample:
            for candidate, mark in marks_of_sample.items():
                is_kept_by_sample.setdefault(candidate, []).append(mark.outcome == "accept")
        marks: Marks = {}
        for candidate, is_kept in is_kept_by_sample.items():
            marks[candidate] = None
            if jury.has_quorum(len(is_kept), len(samples)):
                share = fmean(is_kept)
                marks[candidate] = Mark(jury.leaning(share), round(share, jury.DIGITS))
        return marks if any(marks.values()) else None

    def combine(self, voices: Sequence[tuple[Endpoint, Marks | None]]) -> Marks:
        answered = [(endpoint, marks) for endpoint, marks in voices if marks]
        unmarked: Marks = dict.fromkeys(candidate.id for candidate in self.subject.candidates)
        return unmarked | jury.marks(answered, len(voices), self.settings.jury)

    def record(self, opinion: Marks) -> dict[str, Any]:
        marks = {name: mark for name, mark in opinion.items() if mark}
        probabilities = {}
        for name, mark in marks.items():
            if mark.probability is not None:
                probabilities[name] = mark.probability
        record: dict[str, Any] = {
            "keep": [name for name, mark in marks.items() if mark.outcome == "accept"],
            "unjudged": [name for name in opinion if name not in marks],
        }
        if probabilities:
            record["probabilities"] = probabilities
        return record

    def _messages(
        self, rubric: SelectRubric, batch: Sequence[PromptCandidate], endpoint: Endpoint | None
    ) -> tuple[Messages, dict[str, str]]:
        tier = self.instructions_tier or self.tier
        cut = self._cut(batch, endpoint)
        return prompt.select_messages(rubric, self.mode, tier, self.subject.query, cut)

    def _cut(
        self, candidates: Sequence[PromptCandidate], endpoint: Endpoint | None
    ) -> list[PromptCandidate]:
        """Return candidates as a model is shown them: they share its limit, and each has that of the tier."""
        # A model might drop in silence what is beyond its context, and judge it all the same.
        context_limit = CONTEXT_CHARS
        if endpoint is not None:
            context_limit = endpoint.profile.limits.context_chars or CONTEXT_CHARS
        limit = min(self.limits.max_chars or CONTEXT_CHARS, context_limit // len(candidates))
        return [replace(candidate, text=candidate.text[:limit]) for candidate in candidates]

    def _marks(self, holds: Sequence[Holds | None]) -> dict[str, Mark]:
        """Return the marks of the candidates for which there is an answer on every criterion."""
        answers_by_candidate: Holds = {}
        for holds_of_call in holds:
            for candidate, answers in (holds_of_call or {}).items():
                earlier_answers = answers_by_candidate.get(candidate, {})
                answers_by_candidate[candidate] = earlier_answers | answers
        marks = {}
        for candidate, answers in answers_by_candidate.items():
            if len(answers) == len(self.rubric.criteria):
                marks[candidate] = self._mark(answers)
        return marks

    def _mark(self, holds: Mapping[str, bool], probability: float | None = None) -> Mark:
        """Return whether a candidate is kept, by the criteria that hold."""
        return Mark("accept" if self.rubric.keeps(holds, self.mode) else "reject", probability)

    def _key(self, candidates: Sequence[PromptCandidate], part: str = "") -> CallKey:
        """Return the key of a question about candidates in any order; the mode words it."""
        parts_of_candidates = (
            (candidate.id, candidate.title, candidate.text) for candidate in candidates
        )
        listing = sorted(map("\0".join, parts_of_candidates))
        query = self.subject.query
        text = "\0\0".join((self.mode, query.text, *query.turns, *listing))
        sha256 = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return CallKey(sha256, self.rubric.ref, self.tier, part)

    async def _ask_together(self, endpoint: Endpoint, session: Session) -> ModelTurn[Marks]:
        """Ask a decision model about all candidates at once; those without an answer have no mark."""
        started = time.monotonic()
        state, labels_by_id = self._state(endpoint, session.fence)
        questions = self._questions(labels_by_id)
        timeout = self.limits.timeout
        answer = await decisions.ask_decisions(session, endpoint, state, _flat(questions), timeout)
        distributions = answer.value or {}
        marks: Marks = {}
        for candidate, questions_by_criterion in questions.items():
            yes = {}
            for criterion, question in questions_by_criterion.items():
                if question.name in distributions:
                    yes[criterion] = distributions[question.name][YES]
            is_complete = len(yes) == len(questions_by_criterion)
            marks[candidate] = self._mark_of_yes(endpoint, yes) if is_complete else None
        value = marks if any(marks.values()) else None
        return ModelTurn(endpoint, [answer], joined([answer], value, started, keep_failure=True))

    def _questions(self, labels_by_id: Mapping[str, str]) -> dict[str, dict[str, DecisionQuestion]]:
        """Return the question about each criterion of each candidate."""
        questions: dict[str, dict[str, DecisionQuestion]] = {}
        for candidate, label in labels_by_id.items():
            questions[candidate] = {}
            for criterion, text in self.rubric.criteria.items():
                question = decisions.candidate_question(label, criterion, getattr(text, self.mode))
                questions[candidate][criterion] = question
        return questions

    def _state(self, endpoint: Endpoint, fence: Fence) -> tuple[State, dict[str, str]]:
        """Return what a decision model reads about all candidates, and their labels by their ids."""
        candidates = self._cut(self.subject.candidates, endpoint)
        listing, labels_by_id = prompt.listed_candidates(self.subject.query, candidates)
        state = State(
            system=f"{self.rubric.prompt.system} {fence.guard}",
            context=prompt.candidates_context(fence, self.subject.query, listing),
            call_key=self._key(self.subject.candidates),
        )
        return state, labels_by_id

    async def _ask_one_by_one(self, endpoint: Endpoint, session: Session) -> ModelTurn[Marks]:
        """Ask a pointwise model about each candidate, until the deadline is over; the rest have no mark."""
        started = time.monotonic()
        key = self._key(self.subject.candidates)
        answers = {}
        for candidate in self.subject.candidates:
            call_key = key.within(candidate.id)
            answer = await self._ask_alone(candidate, endpoint, session, call_key)
            answers[candidate.id] = answer
        marks = {name: answer.value for name, answer in answers.items()}
        calls = list(answers.values())
        value = marks if any(marks.values()) else None
        return ModelTurn(endpoint, calls, joined(calls, value, started, keep_failure=True))

    async def _ask_alone(
        self, candidate: PromptCandidate, endpoint: Endpoint, session: Session, key: CallKey
    ) -> Answer[Mark]:
        """Ask about one candidate, and as long as it would be kept, whether yes is due to something else.

        The answer has no mark where one of the calls failed.
        """
        started = time.monotonic()
        timeout = self.limits.timeout
        points = self._pointwise_questions(session.fence, candidate, self.subject.query, key)
        answers = [await ask_pointwise(session, endpoint, points, timeout)]
        distributions = answers[0].value
        if distributions is None:
            return joined(answers, None, started)
        yes = {criterion: answer["yes"] for criterion, answer in distributions.items()}
        earned_yes = yes
        for idle_points, least_gain in self._idle(session.fence, candidate, key):
            if self._mark_of_yes(endpoint, earned_yes).outcome != "accept":
                break
            answers.append(await ask_pointwise(session, endpoint, idle_points, timeout))
            idle = answers[-1].value
            if idle is None:
                return joined(answers, None, started)
            still_earned = {}
            for criterion, probability in yes.items():
                share = pointwise.earned(probability, idle[criterion]["yes"], least_gain)
                still_earned[criterion] = min(earned_yes[criterion], share)
            earned_yes = still_earned
        return joined(answers, self._mark_of_yes(endpoint, earned_yes), started)

    def _mark_of_yes(self, endpoint: Endpoint, yes: Mapping[str, float]) -> Mark:
        """Return the mark of a candidate by how likely yes is for each criterion."""
        thresholds = pointwise.thresholds(endpoint).get(self.rubric.ref, {})
        threshold = thresholds.get(self.mode, KEEP_AT)
        centred = {}
        for criterion, probability in yes.items():
            centred[criterion] = pointwise.centred(probability, threshold)
        if getattr(self.rubric.modes, self.mode).keep == "all":
            deciding_probability = min(centred.values())
        else:
            deciding_probability = max(centred.values())
        holds = {criterion: probability >= KEEP_AT for criterion, probability in centred.items()}
        return self._mark(holds, round(deciding_probability, jury.DIGITS))

    def _idle(
        self, fence: Fence, candidate: PromptCandidate, key: CallKey
    ) -> Iterator[tuple[PointwiseQuestions, float]]:
        """Yield questions to which yes means nothing, and how many times their odds a real yes needs.

        First an idle query about this candidate, then this query about an idle memory.
        """
        query = self.subject.query
        idle_query = query._replace(text=pointwise.IDLE)
        idle_key = key.within("idle")
        idle_questions = self._pointwise_questions(fence, candidate, idle_query, idle_key)
        yield idle_questions, pointwise.LEAST_GAIN
        if query.turns:
            # The same for each candidate, so it is asked once in a session.
            memory_key = key.within("idle-memory")
            memory = pointwise.IDLE_MEMORY
            idle_memory = self._pointwise_questions(fence, memory, query, memory_key)
            yield idle_memory, pointwise.LEAST_GAIN_OVER_MEMORY

    def _pointwise_questions(
        self, fence: Fence, candidate: PromptCandidate, query: Query, key: CallKey
    ) -> PointwiseQuestions:
        """Return what a model of one token is asked about a candidate: yes or no to each criterion."""
        short = replace(candidate, text=candidate.text[:POINTWISE_CHARS])
        questions = {}
        for name, text in self.rubric.criteria.items():
            questions[name] = f"{getattr(text, self.mode)}\nAnswer with one word, yes or no."
        examples = []
        for example in self.rubric.prompt.examples:
            memory = PromptCandidate.of(example, name="", text=example.text)
            context = prompt.candidate_context(fence, memory, Query(example.query))
            examples.append((context, "yes" if example.holds else "no"))
        return PointwiseQuestions(
            system=f"{self.rubric.prompt.system} {fence.guard}",
            context=prompt.candidate_context(fence, short, query),
            questions=questions,
            tokens=("yes", "no"),
            call_key=key,
            examples=examples,
        )


def _flat(questions: Mapping[str, Mapping[str, DecisionQuestion]]) -> list[DecisionQuestion]:
    return list(chain.from_iterable(by_criterion.values() for by_criterion in questions.values()))


def _holds(
    criteria: Sequence[str],
    ids_by_label: Mapping[str, str],
    batch: Sequence[PromptCandidate],
    reply: ReplyForm,
    _: Reply,
) -> Holds:
    """Return which criteria hold for each candidate of a batch by a reply."""
    labels_by_key = reply.model_dump()
    ids_by_criterion = {}
    for criterion in criteria:
        key = KEEP if len(criteria) == 1 else criterion  # as the form has it
        ids_by_criterion[criterion] = {ids_by_label[label] for label in labels_by_key[key]}
    holds = {}
    for candidate in batch:
        holds[candidate.id] = {
            criterion: candidate.id in ids_by_criterion[criterion] for criterion in criteria
        }
    return holds


@dataclass(frozen=True, slots=True)
class CandidateJudge(Judge[SelectRubric, Candidates, Selection]):
    """Decides on each of several candidates."""

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
        # A prompt has less of each text: with the margin no secret is cut in two before it is found.
        turns = []
        for turn in subject.query.turns:
            turns.append(redact.words(turn[: 4 * documents.TURN_CHARS + redact.MARGIN]))
        text = redact.words(subject.query.text[: documents.PROMPT_CHARS + redact.MARGIN])
        candidates = tuple(map(_redacted, subject.candidates))
        shown_texts = (text, *turns, *map(candidate_text, candidates))
        secrets = sum(shown_text.count(redact.MARK) for shown_text in shown_texts)
        return Candidates(Query(text, tuple(turns)), candidates), secrets

    def question(self, tier: TierName, state: JudgingState[Candidates]) -> SelectQuestion:
        """Return what a tier is asked: about the candidates that need it, and no others."""
        subject = state.subject
        contested = []
        for candidate in subject.candidates:
            step = self._step_for(candidate.id, state)
            if isinstance(step, Ask) and step.tier == tier:
                contested.append(candidate)
        # Where the deep tier failed the tiebreaker stands in for it: there is no disagreement.
        has_deep_marks = any(state.opinions.get("deep", {}).values())
        stands_in = tier == "tiebreaker" and not has_deep_marks
        return SelectQuestion(
            self.settings,
            subject._replace(candidates=tuple(contested)),
            tier,
            instructions_tier="deep" if stands_in else tier,
        )

    def step(self, state: JudgingState[Candidates]) -> Step:
        """Return the first tier that some candidate needs, or an end, in which each candidate has its own."""
        waiting = set()
        for candidate in state.subject.candidates:
            step = self._step_for(candidate.id, state)
            if isinstance(step, Ask):
                waiting.add(step.tier)
        for tier in self.models_by_tier:
            if tier in waiting:
                return Ask(tier)
        return EACH_HAS_ITS_OWN

    def evidence(self, state: JudgingState[Candidates], candidate: str = "") -> Evidence:
        """Read what the tiers said about one candidate, by its id."""
        evidence = {}
        for tier, marks in state.opinions.items():
            if candidate in marks:
                decides = tier in self.settings.deciding_tiers
                evidence[tier] = read_candidate(marks[candidate], decides=decides)
        return evidence

    def rules(self, state: JudgingState[Candidates]) -> EscalationRules:
        del state
        rules = self.settings.escalation_rules("candidate")
        if len(self.models_by_tier) == 1:
            # One tier alone is asked by those who want its answer as it is: the prompt hook.
            rules = replace(rules, needs_proof=False)
        return rules

    def _step_for(self, candidate: str, state: JudgingState[Candidates]) -> Step:
        """Return the tier to ask about one candidate, by its id, or the end for it."""
        return decide(self.evidence(state, candidate), self.rules(state))

    def unjudged(self, state: JudgingState[Candidates], why: str) -> Selection:
        return self.record(state, UNASKED).model_copy(update={"degraded": why})

    def record(self, state: JudgingState[Candidates], end: End) -> Selection:
        """Return the decision on each candidate; `degraded` says why some are undetermined, if so."""
        del end  # each candidate has its own
        decided = [self._decision(state, candidate.id) for candidate in state.subject.candidates]
        degraded = None
        if any(decision.decision == "undetermined" for decision in decided):
            degraded = failures(state.rounds) or self._unproven_reason(state)
        if state.refused:
            degraded = f"not judged: {state.refused}"
        return Selection(
            stale=self.settings.calibration_warning,
            by_decisions=self._is_by_decisions(state),
            decisions=decided,
            degraded=degraded,
            **state.common_fields(self.settings),
        )

    def _is_by_decisions(self, state: JudgingState[Candidates]) -> bool:
        """Whether decision models were asked, and no others."""
        return bool(state.rounds) and set(state.opinions) <= set(self.settings.deciding_tiers)

    def _unproven_reason(self, state: JudgingState[Candidates]) -> str | None:
        """Say why candidates are undecided that every tier kept; None where that is not so."""
        is_strict = self.settings.mode == "strict"
        if not is_strict or not self._is_by_decisions(state):
            return None
        return decisions.unproven_reason(row.model for row in state.rounds)

    def _decision(self, state: JudgingState[Candidates], candidate: str) -> Decision:
        """Return what the tiers decide about one candidate, by its id."""
        end = self._step_for(candidate, state)
        # `improve` means exactly between keeping and dropping: it decides nothing.
        if not isinstance(end, End) or end.tier is None or end.verdict == "improve":
            return Decision(id=candidate, decision="undetermined")
        mark = state.opinions[end.tier][candidate]
        return Decision(
            id=candidate,
            decision="kept" if end.verdict == "accept" else "dropped",
            tier=end.tier,
            probability=mark.probability if mark else None,
        )


def _redacted(candidate: PromptCandidate) -> PromptCandidate:
    return replace(
        candidate,
        title=redact.words(candidate.title),
        category=redact.words(candidate.category),
        tags=tuple(map(redact.words, candidate.tags)),
        text=redact.words(candidate.text),
    )
