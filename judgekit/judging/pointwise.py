"""Asks small models one question at a time, and reads each answer from the probabilities of one token.

A model too small to write a verdict still leans the right way: the expectation over the tokens of a scale
(G-Eval, Liu et al. 2023, arXiv:2303.16634) or the probability of "yes" tells good from bad where its most
likely token is always the same. The context comes first and the question last, so that a server that
caches prompts reads the context once.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit.errors import KEPT, FailureKind, GatewayError, Usage, usage_of_failed_call
from judgekit.judging.documents import PromptCandidate
from judgekit.judging.kinds import READS_TOKENS, kind_of
from judgekit.judging.questionnaire import Answers, TypedQuestion, mean_points
from judgekit.judging.round import Answer, Session, joined, make_failure, ms_since
from judgekit.providers.base import CallKey, Endpoint, Message, Messages, Reply, Request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.judging.fence import Fence
    from judgekit.judging.questionnaire import Questionnaire, Shares
    from judgekit.judging.verdict import Failure

ALTERNATIVES = 20  # the most that OpenAI's wire format allows
LEAST_MASS = 0.2  # below this the model was answering something else
IDLE = "How long is the river Danube?"
"""A request that hardly any memory answers: what makes yes likely even then is not the request."""

# How near known texts are to these thresholds is measured in docs/hardening.md.
LEAST_GAIN = (
    2.3  # how many times those for the idle request the odds of yes must be, for yes to count
)
LEAST_GAIN_OVER_MEMORY = 2.0  # the same, over the odds for the idle memory
LEAST_LEAD = (
    0.06  # of the scale: how far a text's mean score must be above its score for the idle subject
)

IDLE_RATING = TypedQuestion(
    "Does the text describe the river Danube well?",
    look_for=("its length", "its source", "the countries it flows through"),
)
"""A question about a subject that hardly any text has: what makes it good even then is not the text."""

IDLE_MEMORY = PromptCandidate(
    "idle", "Length of the river Danube", "FACT", ("rivers",), "The Danube is 2850 kilometres long."
)
"""A memory that answers hardly any request: what makes yes likely even for it stands in the conversation."""

_UNSEEN = 1e-6  # the probability of an answer that is not among the alternatives
_AROUND = " \t\r\n*_`\"'.:"  # what a token may have around its word


def probabilities(reply: Reply, tokens: Sequence[str]) -> dict[str, float]:
    """Return how likely each of `tokens` is among them; together they are 1.

    Raises `GatewayError` where a reply gives no probabilities, or gives them less than `LEAST_MASS` together.
    """
    if not reply.logprobs:
        why = f"{reply.model} gave no token probabilities"
        raise GatewayError(FailureKind.INVALID_REPLY, why, usage=Usage())
    mass = dict.fromkeys(tokens, 0.0)
    for text, logprob in reply.logprobs[0].items():
        token = text.strip(_AROUND).lower()
        if token in mass:
            mass[token] += math.exp(logprob)
    total = sum(mass.values())
    if total < LEAST_MASS:
        why = f"{reply.model} answered {reply.text[:20]!r}"
        why += f": {total:.0%} of the probability is on {', '.join(tokens)}"
        raise GatewayError(FailureKind.INVALID_REPLY, why, usage=Usage())
    return {token: value / total for token, value in mass.items()}


def earned(yes: float, idle: float, least: float = LEAST_GAIN) -> float:
    """Return the probability of yes as far as it is earned; never more than it is.

    `idle` is the probability of yes for a request, or a memory, that the rest has nothing to do with. Where
    its odds are nearly as high, something else causes the yes; at `least` times those odds yes and no are
    even. That an input without content measures a prompt's own leaning is from "Calibrate Before Use" (Zhao
    et al. 2021, arXiv:2102.09690).
    """
    gain = _odds(yes) / _odds(idle)
    return min(yes, gain / (gain + least))


def _odds(probability: float) -> float:
    """Return the odds of an answer; finite, though it seems certain where the other one was not seen."""
    bounded = min(max(probability, _UNSEEN), 1 - _UNSEEN)
    return bounded / (1 - bounded)


def thresholds(endpoint: Endpoint) -> Mapping[str, Mapping[str, float]]:
    """Return by rubric and mode where a model that judgekit fetches is undecided; in a recording, too."""
    if kind_of(endpoint) is not READS_TOKENS or not endpoint.model.startswith("local/"):
        return {}
    from judgekit.providers import local  # noqa: PLC0415 - what runs a model, where one does

    model = local.known(endpoint.model.removeprefix("local/"))
    return model.thresholds if model else {}


def centred(yes: float, threshold: float) -> float:
    """Return yes by its odds over those of the `threshold`, at which a model is undecided: 0.5 there."""
    odds = _odds(yes) * (1 - threshold) / threshold
    return odds / (1 + odds)


def earned_scores(
    scores: Mapping[str, float], idle: float, bar: float, span: float
) -> dict[str, float]:
    """Return scores, below `bar` where their mean is hardly above `idle`; `span` is that of the scale."""
    least = LEAST_LEAD * span
    if fmean(scores.values()) - idle >= least:
        return dict(scores)
    return {name: min(value, bar - least) for name, value in scores.items()}


class PointwiseQuestions(NamedTuple):
    """Questions by name after one context, the answers offered (`tokens`), and answered examples."""

    system: str
    context: str
    questions: Mapping[str, str]
    tokens: Sequence[str]
    call_key: CallKey
    examples: Sequence[tuple[str, str]] = ()

    def prompts(self) -> list[Messages]:
        prompts = []
        for question in self.questions.values():
            messages = [Message("system", self.system)]
            for context, answer in self.examples:
                messages += [
                    Message("user", f"{context}\n\n{question}"),
                    Message("assistant", answer),
                ]
            prompts.append((*messages, Message("user", f"{self.context}\n\n{question}")))
        return prompts


async def ask_pointwise(
    session: Session, endpoint: Endpoint, points: PointwiseQuestions, timeout: float
) -> Answer[dict[str, dict[str, float]]]:
    """Return for each question the probability of each token, or the first failure and no value.

    None is asked twice in a session. Together the questions may take `timeout` seconds for each.
    """
    started = time.monotonic()
    usage = Usage()
    model = endpoint.model
    long_numbers = [token for token in points.tokens if token.isdecimal() and len(token) > 1]
    if long_numbers:
        problem = f"a pointwise model answers in one digit and the scale has {long_numbers[-1]}"
        refusal = make_failure(FailureKind.BAD_REQUEST, f"{problem}; use one within 0 to 9")
        return Answer(value=None, failure=refusal, usage=usage, latency_ms=0, model=model)
    answers: dict[str, dict[str, float]] = {}
    failure: Failure | None = None
    try:
        timeout_of_all = session.timeout_of_call(timeout * len(points.questions))
        deadline = started + timeout_of_all
        for name, messages in zip(points.questions, points.prompts(), strict=True):
            seconds_left = deadline - time.monotonic()
            if seconds_left <= 0:
                count = f"{len(answers)} of {len(points.questions)} questions"
                why = f"no time left: {count} were answered in {timeout_of_all:g} s"
                failure = make_failure(FailureKind.TIMEOUT, why)
                break
            reply = await _ask_one(session, endpoint, points, name, messages, seconds_left)
            usage = usage.plus(reply.usage.of_call())
            model = reply.model
            answers[name] = probabilities(reply, points.tokens)
    except GatewayError as error:
        # What the questions before it cost is not lost with it.
        usage = usage.plus(usage_of_failed_call(error))
        failure = make_failure(error.kind, error.message)
    if failure is not None:
        return Answer(None, failure, usage, ms_since(started), endpoint.model)
    return Answer(answers, None, usage, ms_since(started), model)


async def _ask_one(
    session: Session,
    endpoint: Endpoint,
    points: PointwiseQuestions,
    name: str,
    messages: Messages,
    timeout: float,
) -> Reply:
    """Return the reply to one question; without cost, where the same was asked in this session before."""
    key = (endpoint.model, messages, ())
    if key in session.remembered:
        return replace(session.remembered[key], usage=KEPT)
    request = Request(
        messages=messages,
        call_key=points.call_key.within(name),
        timeout=timeout,
        max_tokens=1,
        top_logprobs=ALTERNATIVES,
    )
    reply = await session.reply(endpoint, request)
    session.remembered[key] = reply
    if reply.logprobs:
        await session.keep(endpoint, request, reply)
    return reply


# --- A questionnaire in their words


class TokenReader:
    """Asks a model each question alone, and then those of controls as long as they matter."""

    @property
    def bars(self) -> Sequence[float]:
        return (LEAST_MASS, LEAST_LEAD, LEAST_GAIN, LEAST_GAIN_OVER_MEMORY, ALTERNATIVES)

    def prompts(self, questionnaire: Questionnaire, fence: Fence) -> list[Messages]:
        prompts = _pointwise_questions(questionnaire, fence).prompts()
        for control in questionnaire.controls:
            if control.is_shown:
                prompts += _pointwise_questions(control.questionnaire, fence).prompts()
        return prompts

    def words(self, questionnaire: Questionnaire, fence: Fence) -> Any:  # noqa: ANN401 - JSON
        told = []
        for asked in (questionnaire, *(each.questionnaire for each in questionnaire.controls)):
            points = _pointwise_questions(asked, fence)
            told.append([points.prompts(), points.tokens])
        return told

    async def ask(
        self, session: Session, endpoint: Endpoint, questionnaire: Questionnaire, sample: int
    ) -> Answer[Answers]:
        """Return the answers, as far as they are earned; no value where one of the calls failed."""
        del sample  # probabilities leave nothing to repeat
        started = time.monotonic()
        timeout = questionnaire.timeout
        asked = _pointwise_questions(questionnaire, session.fence)
        answers = [await ask_pointwise(session, endpoint, asked, timeout)]
        shares = answers[0].value
        if not shares:
            return joined(answers, None, started)
        points = _points_of(questionnaire, shares)
        earned_points = points
        for control in questionnaire.controls:
            if not control.is_needed(earned_points):
                break
            idle = _pointwise_questions(control.questionnaire, session.fence)
            idle = idle._replace(tokens=asked.tokens)
            answers.append(await ask_pointwise(session, endpoint, idle, timeout))
            idle_shares = answers[-1].value
            if not idle_shares:
                return joined(answers, None, started)
            weighed = control.weigh(points, _points_of(control.questionnaire, idle_shares))
            earned_points = {
                name: min(value, weighed[name]) for name, value in earned_points.items()
            }
        return joined(answers, Answers(earned_points, shares), started)


def _pointwise_questions(questionnaire: Questionnaire, fence: Fence) -> PointwiseQuestions:
    """Return the questions in words that ask for one token; the scale is told by its two ends."""
    tokens: dict[str, None] = {}  # each once: numbers stand before words
    questions = {}
    for name, question in questionnaire.questions.items():
        questions[name] = _in_words(question)
        if question.kind != "predicate":
            tokens |= dict.fromkeys(question.values)
    for question in questionnaire.questions.values():
        tokens |= dict.fromkeys(question.values)
    examples = [(context(fence), answer) for context, answer in questionnaire.turns]
    return PointwiseQuestions(
        system=questionnaire.guarded_system(fence),
        context=questionnaire.context(fence),
        questions=questions,
        tokens=list(tokens),
        call_key=questionnaire.call_key,
        examples=examples,
    )


def _in_words(question: TypedQuestion) -> str:
    """Return a question as a model of one token is asked it: short, and of a scale two labels."""
    if question.kind == "predicate":
        return f"{question.ideal}\nAnswer with one word, yes or no."
    if question.kind == "choice":
        choices = " or ".join(question.options)
        ask = f"Which of the two texts is better, {choices}? Answer with one number."
        return f"{question.text}\n{ask}"
    points = [f"{value} ({label})" for value, label in question.options.items()]
    scale = f"from {points[0]} to {points[-1]}"
    return f"{question.ideal}\nRate the text above {scale}. Answer with one number."


def _points_of(questionnaire: Questionnaire, shares: Shares) -> dict[str, float]:
    points = {}
    for name in questionnaire.names_of_answers():
        points[name] = mean_points(shares[name], questionnaire.points_of_words)
    return points
