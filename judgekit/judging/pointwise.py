"""Asks small models one question at a time, and reads each answer from one token's probabilities.

A model too small to write a verdict still leans the right way: the expectation over a scale's tokens
(G-Eval, Liu et al. 2023, arXiv:2303.16634) or the probability of "yes" separates good from bad even if its
most likely token is always the same. The context comes first and the question last, so that a server that
caches prompts reads the context once.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit.errors import CACHED_USAGE, FailureKind, GatewayError, Usage, usage_of_failed_call
from judgekit.judging.documents import PromptCandidate
from judgekit.judging.kinds import READS_TOKENS, get_model_kind
from judgekit.judging.questionnaire import Answers, TypedQuestion, average_points
from judgekit.judging.round import Answer, Session, make_failure, merge_answers, ms_since
from judgekit.providers.base import CallKey, Endpoint, Message, Messages, Reply, Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.judging.fence import Fence
    from judgekit.judging.questionnaire import Control, Points, Questionnaire, Shares
    from judgekit.judging.verdict import Failure

ALTERNATIVES = 20  # the most that OpenAI's API allows
MIN_MASS = 0.2  # of the possible answers; with less, the model was answering something else
IDLE_REQUEST = "How long is the river Danube?"
"""A request that hardly any memory answers: a likely yes even here isn't due to the request."""

# docs/hardening.md measures how near known texts come to these thresholds.
MIN_GAIN = 2.3  # the odds of yes must be this many times those for the idle request
MIN_GAIN_OVER_MEMORY = 2.0  # the same for the idle memory
MIN_LEAD = 0.06  # of the scale: how far a text's mean score must exceed the idle subject's

IDLE_RATING = TypedQuestion(
    "Does the text describe the river Danube well?",
    look_for=("its length", "its source", "the countries it flows through"),
)
"""A question about a subject that fits hardly any text: a good score even here isn't due to the text."""

IDLE_MEMORY = PromptCandidate(
    "idle", "Length of the river Danube", "FACT", ("rivers",), "The Danube is 2850 kilometres long."
)
"""A memory that answers hardly any request: a likely yes even here is due to the conversation."""

_UNSEEN = 1e-6  # the probability of an answer that's missing from the alternatives
_AROUND_WORDS = " \t\r\n*_`\"'.:"  # characters that a token can have around its word


def read_probabilities(reply: Reply, tokens: Sequence[str]) -> dict[str, float]:
    """Return the probability that a reply starts with each of `tokens`, scaled to a sum of 1.

    For example, a reply to a yes-or-no question starts with "yes" or "no". Raises `GatewayError` if the reply
    has no probabilities, or if less than `MIN_MASS` of the probability is on `tokens`.
    """
    # The errors have no usage, because the caller has already counted the reply's.
    if not reply.logprobs:
        problem = f"{reply.model} gave no token probabilities"
        raise GatewayError(FailureKind.INVALID_REPLY, problem, usage=Usage())

    unscaled = dict.fromkeys(tokens, 0.0)
    first_logprobs = reply.logprobs[0]
    for text, logprob in first_logprobs.items():
        # "Yes", " yes" and "yes." are the same answer.
        token = text.strip(_AROUND_WORDS).lower()
        if token in unscaled:
            unscaled[token] += math.exp(logprob)

    total = sum(unscaled.values())
    if total < MIN_MASS:
        problem = f"{reply.model} answered {reply.text[:20]!r}"
        problem += f": {total:.0%} of the probability is on {', '.join(tokens)}"
        raise GatewayError(FailureKind.INVALID_REPLY, problem, usage=Usage())
    return {token: probability / total for token, probability in unscaled.items()}


def correct_for_bias(yes: float, unrelated_yes: float, min_gain: float = MIN_GAIN) -> float:
    """Reduce the probability of yes by the model's bias towards yes.

    `unrelated_yes` is the probability for an unrelated request or memory. If the odds of `yes` are `min_gain`
    times those of `unrelated_yes`, the result is one half. The idea is from "Calibrate Before Use" (Zhao et
    al. 2021, arXiv:2102.09690).
    """
    gain = _compute_odds(yes) / _compute_odds(unrelated_yes)
    corrected = gain / (gain + min_gain)
    # With a bias towards no, that would be more than the model's answer, which then stays.
    return min(yes, corrected)


def _compute_odds(probability: float) -> float:
    """Return the odds of an answer, which are finite even for a probability of 1."""
    bounded = min(max(probability, _UNSEEN), 1 - _UNSEEN)
    return bounded / (1 - bounded)


def thresholds(endpoint: Endpoint) -> Mapping[str, Mapping[str, float]]:
    """Return a model's thresholds by rubric and mode. A probability of "yes" above the threshold means yes.

    They were measured for the local models that judgekit downloads. For any other model, return {}.
    """
    is_local = endpoint.model.startswith("local/")
    reads_tokens = get_model_kind(endpoint) is READS_TOKENS
    may_be_measured = is_local and reads_tokens
    if not may_be_measured:
        return {}
    from judgekit.providers import local  # noqa: PLC0415 - imported lazily because it's rarely needed

    model = local.recognise_model(endpoint.model.removeprefix("local/"))
    return model.thresholds if model else {}


def centre_probability(yes: float, threshold: float) -> float:
    """Shift a probability of yes so that the `threshold`, at which the model is undecided, becomes 0.5."""
    odds = _compute_odds(yes) * (1 - threshold) / threshold
    return odds / (1 + odds)


def lower_unearned_scores(
    scores: Mapping[str, float], unrelated_score: float, bar: float, span: float
) -> dict[str, float]:
    """Lower the scores to less than `bar` if the model scores an unrelated subject almost as high.

    `bar` is the least accepted score, and `span` the length of the scale.
    """
    least_lead = MIN_LEAD * span
    lead = fmean(scores.values()) - unrelated_score
    if lead >= least_lead:
        return dict(scores)
    # The model would give such scores to anything, so they must not reach the bar.
    highest_unearned = bar - least_lead
    return {name: min(score, highest_unearned) for name, score in scores.items()}


class PointwiseQuestions(NamedTuple):
    """Questions by name about a context, with the possible answers (`tokens`) and answered examples."""

    system: str
    context: str
    questions: Mapping[str, str]
    tokens: Sequence[str]
    call_key: CallKey
    examples: Sequence[tuple[str, str]] = ()

    def build_prompts(self) -> list[Messages]:
        """Build a prompt for each question."""
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
    """Ask one question after another, and return the probability of each token, by question.

    If a call fails, no further questions are asked, and the answer has no value. `timeout` is the average
    time for a question, in seconds.
    """
    started = time.monotonic()
    progress = _Progress(model=endpoint.model)
    refusal = _refuse_long_numbers(points.tokens)
    if refusal is not None:
        return Answer(None, refusal, progress.usage, latency_ms=0, model=endpoint.model)

    try:
        seconds = session.compute_call_timeout(timeout * len(points.questions))
        failure = await _ask_in_time(
            session, endpoint, points, progress, started=started, seconds=seconds
        )
    except GatewayError as error:
        # The failed call may also have cost something.
        progress.usage = progress.usage.plus(usage_of_failed_call(error))
        failure = make_failure(error.kind, error.message)

    if failure is not None:
        return Answer(None, failure, progress.usage, ms_since(started), endpoint.model)
    return Answer(progress.answers, None, progress.usage, ms_since(started), progress.model)


@dataclass(slots=True)
class _Progress:
    """The answers so far, their usage, and the name of the model that gave the last one."""

    model: str
    answers: dict[str, dict[str, float]] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)


async def _ask_in_time(
    session: Session,
    endpoint: Endpoint,
    points: PointwiseQuestions,
    progress: _Progress,
    *,
    started: float,
    seconds: float,
) -> Failure | None:
    """Ask the questions, and add each answer to `progress`. Returns a failure if the time runs out."""
    deadline = started + seconds
    for name, messages in zip(points.questions, points.build_prompts(), strict=True):
        seconds_left = deadline - time.monotonic()
        if seconds_left <= 0:
            answered = f"{len(progress.answers)} of {len(points.questions)} questions"
            problem = f"no time left: {answered} were answered in {seconds:g} s"
            return make_failure(FailureKind.TIMEOUT, problem)

        reply = await _ask_question(session, endpoint, points, name, messages, seconds_left)
        # Count the usage first, because reading the answer can fail.
        progress.usage = progress.usage.plus(reply.usage.count_as_call())
        progress.model = reply.model
        progress.answers[name] = read_probabilities(reply, points.tokens)
    return None


def _refuse_long_numbers(tokens: Sequence[str]) -> Failure | None:
    """Return a failure if a scale has a number with multiple digits, because answers are single tokens."""
    long_numbers = [token for token in tokens if token.isdecimal() and len(token) > 1]
    if not long_numbers:
        return None
    problem = f"a pointwise model answers in one digit and the scale has {long_numbers[-1]}"
    return make_failure(FailureKind.BAD_REQUEST, f"{problem}; use one within 0 to 9")


async def _ask_question(
    session: Session,
    endpoint: Endpoint,
    points: PointwiseQuestions,
    name: str,
    messages: Messages,
    timeout: float,
) -> Reply:
    """Ask a model one question. If this session has already asked it, return the earlier reply."""
    # Calls to decision models have their questions in the last part. Here, the messages contain the question.
    key = (endpoint.model, messages, ())
    if key in session.remembered:
        return replace(session.remembered[key], usage=CACHED_USAGE)

    request = Request(
        messages=messages,
        call_key=points.call_key.append_part(name),
        timeout=timeout,
        max_tokens=1,
        top_logprobs=ALTERNATIVES,
    )
    reply = await session.get_reply(endpoint, request)

    session.remembered[key] = reply
    if reply.logprobs:
        # Store it for later sessions. Without probabilities, it would be useless to them.
        await session.keep(endpoint, request, reply)
    return reply


# --- A questionnaire in such a model's terms


class TokenReader:
    """Asks a model each question separately, followed by controls as long as they matter."""

    @property
    def reading_thresholds(self) -> Sequence[float]:
        return (MIN_MASS, MIN_LEAD, MIN_GAIN, MIN_GAIN_OVER_MEMORY, ALTERNATIVES)

    def build_prompts(self, questionnaire: Questionnaire, fence: Fence) -> list[Messages]:
        """Build the human-readable prompts: first for the questions, then for any visible controls."""
        prompts = _make_questions(questionnaire, fence).build_prompts()
        for control in questionnaire.controls:
            if control.is_shown:
                prompts += _make_questions(control.questionnaire, fence).build_prompts()
        return prompts

    def collect_words(self, questionnaire: Questionnaire, fence: Fence) -> Any:  # noqa: ANN401 - JSON
        """Return the prompts and possible answers of the questionnaire and its controls, to be hashed."""
        words = []
        questionnaires = [questionnaire]
        questionnaires += [control.questionnaire for control in questionnaire.controls]
        for asked_questionnaire in questionnaires:
            questions = _make_questions(asked_questionnaire, fence)
            words.append([questions.build_prompts(), questions.tokens])
        return words

    async def ask(
        self, session: Session, endpoint: Endpoint, questionnaire: Questionnaire, sample: int
    ) -> Answer[Answers]:
        """Ask the questions and their controls, and return the points that the subject earns.

        A control asks the same about an unrelated subject. If that gets similar points, the subject hasn't
        earned them. If a call fails, the answer has no value.
        """
        del sample  # probabilities don't vary between samples
        started = time.monotonic()
        timeout = questionnaire.timeout
        questions = _make_questions(questionnaire, session.fence)
        answer = await ask_pointwise(session, endpoint, questions, timeout)
        if not answer.value:
            return merge_answers([answer], None, started)

        answers = [answer]
        points = _average_points(questionnaire, answer.value)
        earned_points = points
        for control in questionnaire.controls:
            # A control can only lower the points. If they're too low already, none is needed.
            if not control.is_needed(earned_points):
                break
            control_questions = _make_control_questions(control, session.fence, questions.tokens)
            control_answer = await ask_pointwise(session, endpoint, control_questions, timeout)
            answers.append(control_answer)
            if not control_answer.value:
                return merge_answers(answers, None, started)
            weighed_points = _weigh_points(control, points, control_answer.value)
            earned_points = {
                name: min(earned_points[name], weighed_points[name]) for name in points
            }
        return merge_answers(answers, Answers(earned_points, answer.value), started)


def _make_control_questions(
    control: Control, fence: Fence, tokens: Sequence[str]
) -> PointwiseQuestions:
    """Phrase a control's questions, with the real ones' tokens, so that probabilities are comparable."""
    control_questions = _make_questions(control.questionnaire, fence)
    return control_questions._replace(tokens=tokens)


def _weigh_points(control: Control, points: Points, control_shares: Shares) -> Points:
    """Weigh the subject's points against those of the control's unrelated subject."""
    control_points = _average_points(control.questionnaire, control_shares)
    return control.weigh(points, control_points)


def _make_questions(questionnaire: Questionnaire, fence: Fence) -> PointwiseQuestions:
    """Phrase a questionnaire's questions for answers of a single token, and list the possible tokens."""
    questions = {}
    for name, question in questionnaire.questions.items():
        questions[name] = _phrase_question(question)
    examples = [(context(fence), answer) for context, answer in questionnaire.example_turns]
    return PointwiseQuestions(
        system=questionnaire.write_guarded_system(fence),
        context=questionnaire.context(fence),
        questions=questions,
        tokens=_list_tokens(questionnaire.questions.values()),
        call_key=questionnaire.call_key,
        examples=examples,
    )


def _list_tokens(questions: Iterable[TypedQuestion]) -> list[str]:
    """List the possible tokens of all answers: first the numbers, then yes and no."""
    number_tokens: list[str] = []
    word_tokens: list[str] = []
    for question in questions:
        if question.kind == "predicate":
            word_tokens += question.values
        else:
            number_tokens += question.values
    return list(dict.fromkeys([*number_tokens, *word_tokens]))  # without duplicates


def _phrase_question(question: TypedQuestion) -> str:
    """Phrase a question for an answer of one token. Only the ends of a scale get labels."""
    if question.kind == "predicate":
        return f"{question.text_with_qualities}\nAnswer with one word, yes or no."
    # A choice lists its criteria in the text, and no qualities.
    if question.kind == "choice":
        choices = " or ".join(question.options)
        ask = f"Which of the two texts is better, {choices}? Answer with one number."
        return f"{question.text}\n{ask}"
    labelled_values = [f"{value} ({label})" for value, label in question.options.items()]
    scale = f"from {labelled_values[0]} to {labelled_values[-1]}"
    return f"{question.text_with_qualities}\nRate the text above {scale}. Answer with one number."


def _average_points(questionnaire: Questionnaire, shares: Shares) -> dict[str, float]:
    """Average the points of each question's possible answers, weighted by the probabilities in `shares`."""
    points = {}
    for name in questionnaire.list_answer_names():
        points[name] = average_points(shares[name], questionnaire.points_of_words)
    return points
