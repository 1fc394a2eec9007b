"""What a tier is asked about a document: the scores, in one reply or dimension by dimension."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit.errors import FailureKind, Usage
from judgekit.judging import claims, decisions, jury, pointwise, prompt
from judgekit.judging.decisions import State
from judgekit.judging.documents import Document, is_cut
from judgekit.judging.findings import mentions, place_findings, read_findings
from judgekit.judging.jury import Opinion
from judgekit.judging.pointwise import PointwiseQuestions, ask_pointwise
from judgekit.judging.question import TierQuestion
from judgekit.judging.round import Answer, Calls, Session, joined, make_failure, run_round
from judgekit.providers.base import CallKey, Endpoint, Message, Reply, Request
from judgekit.replies import logprobs
from judgekit.replies.forms import ScoreReply, score_reply_model
from judgekit.rubric.schema import ScoreRubric
from judgekit.text import visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.judging.claims import Claim
    from judgekit.judging.fence import Fence
    from judgekit.judging.verdict import Finding
    from judgekit.providers.decisions import DecisionQuestion
    from judgekit.rubric.schema import Dimension

REPLY_TOKENS = 2048


class RatedReply(NamedTuple):
    """What one reply says; the fields are as in an `Opinion`."""

    scores: Mapping[str, float]
    reasoning: str = ""
    findings: tuple[Finding, ...] = ()
    said: str | None = None
    expected: tuple[str, ...] = ()
    probabilities: Mapping[str, Mapping[str, float]] = {}


@dataclass(frozen=True)
class ScoreQuestion(TierQuestion[ScoreRubric, Document, RatedReply, Opinion]):
    """What a tier is asked about a document."""

    compared: bool = False
    """Whether scores are taken as first given, to be compared with those of other documents."""
    findings: tuple[Sequence[str], Sequence[str]] | None = None
    """After a review: the findings that were upheld, and those that nobody checked."""

    def prompts(self, endpoint: Endpoint | None, fence: Fence) -> list[tuple[Message, ...]]:
        if endpoint is not None and endpoint.decides:
            questions = self._questions(self._claims(endpoint), fence)
            return [decisions.shown(self._state(endpoint, fence), questions)]
        if endpoint is not None and endpoint.pointwise:
            return self._pointwise_questions(endpoint, fence).prompts()
        return [self._messages(rubric, endpoint) for rubric in self.rubrics_by_part.values()]

    def sample_plans(self, endpoint: Endpoint) -> list[Sequence[int]]:
        plans = TierQuestion.sample_plans(self, endpoint)
        if endpoint.logprobs and self.settings.samples > 1:
            return [[0], *plans]
        return plans

    def is_enough(self, opinion: Opinion | None) -> bool:
        """Whether all scores of an opinion are expectations: that leaves nothing to repeat."""
        return opinion is not None and len(opinion.expected) == len(self.rubric.dimensions)

    def calls(self, endpoint: Endpoint, session: Session, sample: int) -> Calls[RatedReply]:
        if endpoint.decides:
            return [partial(self._ask_decisions, endpoint, session)]
        if endpoint.pointwise:
            return [partial(self._ask_pointwise, endpoint, session)]
        alternatives = logprobs.ALTERNATIVES if endpoint.logprobs else 0
        calls: Calls[RatedReply] = []
        for part, rubric in self.rubrics_by_part.items():
            request = Request(
                messages=(),
                call_key=self._call_key.within(part),
                timeout=self.limits.timeout,
                max_tokens=REPLY_TOKENS,
                top_logprobs=alternatives,
                sample=sample,
            )
            call = partial(
                run_round,
                session,
                endpoint,
                request,
                make_messages=partial(self._messages, rubric, endpoint),
                characters=self.subject.size,
                form=_form_of(rubric),
                make_value=partial(self._read, part),
            )
            calls.append(call)
        return calls

    @property
    def _call_key(self) -> CallKey:
        return CallKey(self.subject.sha256, self.rubric.ref, self.tier)

    def opinion(self, samples: Sequence[Sequence[RatedReply | None]]) -> Opinion | None:
        """Return the opinion of one sample, or of several the mean, in the words of the nearest one."""
        opinions = []
        for sample in samples:
            replies = [reply for reply in sample if reply is not None]
            if len(replies) == len(sample):
                opinions.append(self._sample_opinion(replies))
        if not jury.has_quorum(len(opinions), len(samples)):
            return None
        if len(samples) == 1:
            return opinions[0]
        mean = self._opinion_of_scores(jury.mean_scores(opinions))
        nearest = jury.nearest(opinions, mean)
        return replace(
            nearest,
            outcome=mean.outcome,
            scores=mean.scores,
            said=None,
            expected=(),
            samples=len(opinions),
        )

    def _sample_opinion(self, replies: Sequence[RatedReply]) -> Opinion:
        """Return the opinion of one sample: of a reply about all dimensions, or of one reply for each."""
        scores: dict[str, float] = {}
        findings: list[Finding] = []
        expected: list[str] = []
        for reply in replies:
            scores |= reply.scores
            findings += reply.findings
            expected += reply.expected
        if len(replies) == 1:
            reasoning = replies[0].reasoning
            said = replies[0].said
        else:
            reasoning = _reasoning_by_dimension(replies)
            said = None
        return replace(
            self._opinion_of_scores(scores),
            reasoning=reasoning,
            findings=place_findings(findings, self.rubric),
            said=said,
            dimensions=tuple(mentions(reasoning, self.rubric)),
            expected=tuple(expected),
            probabilities=replies[0].probabilities,
        )

    def combine(self, voices: Sequence[tuple[Endpoint, Opinion | None]]) -> Opinion | None:
        opinions = [(endpoint, opinion) for endpoint, opinion in voices if opinion]
        if not jury.has_quorum(len(opinions), len(voices)):
            return None
        decide = partial(self.rubric.decide, mode=self.mode)
        return jury.opinion(opinions, self.settings.jury, decide)

    def record(self, opinion: Opinion) -> dict[str, Any]:
        record: dict[str, Any] = {
            "outcome": opinion.outcome,
            "scores": opinion.scores,
            "reasoning": opinion.reasoning,
            "dimensions": list(opinion.dimensions),
            "findings": [finding.model_dump() for finding in opinion.findings],
            "said": opinion.said,
        }
        if opinion.samples > 1:
            record["samples"] = opinion.samples
        if opinion.expected:
            record["expected"] = list(opinion.expected)
        if opinion.probabilities:
            record["probabilities"] = decisions.rounded(opinion.probabilities)
        return record

    def _read(self, part: str, form: ScoreReply, reply: Reply) -> RatedReply:
        """Return what a reply says about `part`, or about all dimensions where that is empty."""
        scale = self.rubric.scale
        content = form.model_dump()
        scores: dict[str, float] = {}
        for name, answer in content["scores"].items():
            if isinstance(answer, str):  # yes or no
                scores[name] = scale.answers[answer]
            else:
                scores[name] = answer
        expectations: dict[str, float] = {}
        if reply.tokens:
            points = range(scale.min, scale.max + 1)
            expectations = logprobs.expectations(reply, form, points)
        return RatedReply(
            scores=scores | expectations,
            reasoning=visible(form.reasoning),
            findings=read_findings(part, content["findings"]),
            said=visible(form.verdict) or None,
            expected=tuple(expectations),
        )

    def _messages(self, rubric: ScoreRubric, endpoint: Endpoint | None) -> tuple[Message, ...]:
        """Return the request to score the document by a rubric, or a part of it."""
        earlier_opinions = []
        for opinion in self.earlier_opinions:
            scores = {name: opinion.scores[name] for name in rubric.dimensions}
            earlier_opinions.append(replace(opinion, scores=scores))
        return prompt.score_messages(
            rubric,
            self.instructions_tier or self.tier,
            self.subject.visible_files(self.limits, endpoint),
            self.subject.task,
            earlier_opinions,
            self.findings,
        )

    def _claims(self, endpoint: Endpoint) -> list[Claim]:
        """Return the claims that a decision model is asked about one by one; none by most rubrics."""
        if claims.claims_dimension(self.rubric) is None:
            return []
        text = self.subject.visible_files(self.limits, endpoint)[0].text
        return claims.split_claims(text)

    def _questions(self, stated: Sequence[Claim], fence: Fence) -> list[DecisionQuestion]:
        """Return what a decision model is asked: a question about each dimension, or about its claims."""
        claims_dimension = claims.claims_dimension(self.rubric) if stated else None
        questions = []
        for name, dimension in self.rubric.dimensions.items():
            if name != claims_dimension:
                questions.append(decisions.dimension_question(self.rubric, name, dimension))
        if claims_dimension is not None:
            questions += claims.claim_questions(claims_dimension, stated, fence)
        return questions

    async def _ask_decisions(self, endpoint: Endpoint, session: Session) -> Answer[RatedReply]:
        """Ask about all dimensions and claims at once; no value unless every question is answered."""
        started = time.monotonic()
        visible_files = self.subject.visible_files(self.limits, endpoint)
        if is_cut(visible_files):
            most = sum(len(file.text) for file in visible_files)
            why = f"the text is longer than the {most:,} characters that {endpoint.model} is sent"
            failure = make_failure(FailureKind.CONTEXT_WINDOW, why)
            return Answer(None, failure, Usage(), 0, endpoint.model)
        state = self._state(endpoint, session.fence)
        stated = self._claims(endpoint)
        questions = self._questions(stated, session.fence)
        timeout = self.limits.timeout
        answer = await decisions.ask_decisions(session, endpoint, state, questions, timeout)
        distributions = answer.value or {}
        if set(distributions) != {question.name for question in questions}:
            return joined([answer], None, started)
        return joined([answer], self._rate_by_distributions(stated, distributions), started)

    def _rate_by_distributions(
        self, stated: Sequence[Claim], answers: Mapping[str, Mapping[str, float]]
    ) -> RatedReply:
        """Return what the answers to all questions come to; the worst claim is that of its dimension."""
        claims_dimension = claims.claims_dimension(self.rubric) if stated else None
        findings: tuple[Finding, ...] = ()
        probabilities = dict(answers)
        if claims_dimension is not None:
            findings = claims.unsupported_claims(claims_dimension, stated, answers)
            worst = claims.least_supported(claims_dimension, stated, answers)
            probabilities = {claims_dimension: worst, **answers}
        of_dimensions = {name: probabilities[name] for name in self.rubric.dimensions}
        scores = self._expectations(of_dimensions)
        return RatedReply(scores, findings=findings, probabilities=probabilities)

    def _state(self, endpoint: Endpoint, fence: Fence) -> State:
        parts = self.subject.visible_files(self.limits, endpoint)
        return State(
            system=prompt.rating_system(self.rubric, fence),
            context=prompt.document_context(fence, parts, self.subject.task, self.rubric.given),
            call_key=self._call_key,
        )

    async def _ask_pointwise(self, endpoint: Endpoint, session: Session) -> Answer[RatedReply]:
        """Ask about each dimension; where that would accept the text, about an idle subject too.

        There is no value where one of the two calls failed.
        """
        started = time.monotonic()
        timeout = self.limits.timeout
        points = self._pointwise_questions(endpoint, session.fence)
        answer = await ask_pointwise(session, endpoint, points, timeout)
        if not answer.value:
            return joined([answer], None, started)
        scores = self._expectations(answer.value)
        if self.compared or self._opinion_of_scores(scores).outcome != "accept":
            return joined([answer], RatedReply(scores), started)
        # Numbers are compared with a number, yes and no with yes and no: one idle question for each kind.
        idle_questions: dict[str, str] = {}
        for dimension in self.rubric.dimensions.values():
            idle_questions[_idle_name(dimension)] = prompt.idle_question(
                self.rubric, dimension.scale
            )
        idle_points = points._replace(questions=idle_questions)
        idle = await ask_pointwise(session, endpoint, idle_points, timeout)
        if not idle.value:
            return joined([answer, idle], None, started)
        earned = self._earned_scores(scores, self._expectations(idle.value))
        return joined([answer, idle], RatedReply(earned), started)

    def _expectations(self, distributions: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        """Return the mean points of each question, by the probabilities of its answers."""
        points_of_words = self.rubric.scale.answers
        return {
            name: pointwise.expectation(probabilities, answers=points_of_words)
            for name, probabilities in distributions.items()
        }

    def _earned_scores(
        self, scores: Mapping[str, float], idle_scores: Mapping[str, float]
    ) -> dict[str, float]:
        """Return scores as far as the text earns them: an idle subject would get the rest, too."""
        earned = dict(scores)
        scale = self.rubric.scale
        bar = getattr(self.rubric.modes, self.mode).accept.each
        for idle_name, idle_score in idle_scores.items():
            scores_of_kind = {}
            for name, dimension in self.rubric.dimensions.items():
                if _idle_name(dimension) == idle_name:
                    scores_of_kind[name] = scores[name]
            span = scale.max - scale.min
            earned |= pointwise.earned_scores(scores_of_kind, idle_score, bar, span)
        return earned

    def _pointwise_questions(self, endpoint: Endpoint, fence: Fence) -> PointwiseQuestions:
        """Return what a model of one token is asked about each dimension: a number, or yes or no."""
        scale = self.rubric.scale
        dimensions = self.rubric.dimensions
        scales = {dimension.scale for dimension in dimensions.values()}
        tokens: list[str] = []
        if None in scales:
            tokens += map(str, range(scale.min, scale.max + 1))
        if "binary" in scales:
            tokens += scale.answers
        questions = {}
        for name, dimension in dimensions.items():
            questions[name] = prompt.rating_question(self.rubric, dimension)
        files = self.subject.visible_files(self.limits, endpoint)
        return PointwiseQuestions(
            system=prompt.rating_system(self.rubric, fence),
            context=prompt.document_context(fence, files, self.subject.task, self.rubric.given),
            questions=questions,
            tokens=tokens,
            call_key=self._call_key,
        )

    def _opinion_of_scores(self, scores: Mapping[str, float]) -> Opinion:
        rounded = {name: round(float(score), 2) for name, score in scores.items()}
        return Opinion(self.rubric.decide(scores, self.mode), rounded)


def _form_of(rubric: ScoreRubric) -> type[ScoreReply]:
    """Return the form of a reply about all dimensions of a rubric."""
    binary = [name for name, dimension in rubric.dimensions.items() if dimension.scale]
    scale = rubric.scale
    return score_reply_model(tuple(rubric.dimensions), scale.min, scale.max, frozenset(binary))


def _idle_name(dimension: Dimension) -> str:
    """Return the name of the idle question that is answered as one about a dimension is."""
    return str(dimension.scale or "idle")


def _reasoning_by_dimension(replies: Sequence[RatedReply]) -> str:
    """Return the reasoning of several replies, a line for each dimension with the reasoning about it."""
    lines = []
    for reply in replies:
        for name in reply.scores:
            if reply.reasoning:
                lines.append(f"{name}: {reply.reasoning}")
    return "\n".join(lines)
