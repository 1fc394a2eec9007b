"""Asks decision models every question about a subject in one request.

They answer with a probability for each possible answer and write nothing. Instead of a question about a
whole text, they may be asked about each of its claims.
"""

from __future__ import annotations

import json
import re
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from judgekit.errors import CACHED_USAGE, FailureKind, GatewayError, Usage, usage_of_failed_call
from judgekit.judging import claims
from judgekit.judging.jury import EVEN, PROBABILITY_DECIMALS
from judgekit.judging.questionnaire import Answers, average_points
from judgekit.judging.round import (
    Answer,
    Session,
    gather_limited,
    make_failure,
    merge_answers,
    ms_since,
)
from judgekit.providers.base import CallKey, Endpoint, Message, Messages, Reply, Request
from judgekit.providers.decisions import (
    MAX_LEVELS,
    MAX_QUESTIONS,
    DecisionOption,
    DecisionQuestion,
    build_question_arguments,
    read_answers,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from judgekit.judging.claims import Claim
    from judgekit.judging.fence import Fence
    from judgekit.judging.questionnaire import Questionnaire, TypedQuestion
    from judgekit.judging.verdict import Failure, Finding
    from judgekit.providers.decisions import DecisionAnswer

Distributions: TypeAlias = "dict[str, Mapping[str, float]]"
"""The probability of each possible answer, by the question's name."""

_TOO_MANY_PATTERN = re.compile(
    r"too many|too large|at most|max|limit|exceed|no more than|up to|fewer|less than", re.IGNORECASE
)
# Limits of questions per request, by address and model. They aren't stored, because servers get upgraded.
_most_by_server: dict[tuple[str | None, str], int] = {}


# --- A questionnaire in a decision model's terms


class Decider:
    """Asks a decision model all questions at once."""

    @property
    def reading_thresholds(self) -> Sequence[float]:
        return (EVEN,)  # a claim below it is a finding

    def build_prompts(self, questionnaire: Questionnaire, fence: Fence) -> list[Messages]:
        """Return the request in a form for people."""
        claims_by_name = _split_claims(questionnaire)
        questions = _make_questions(questionnaire, claims_by_name, fence)
        return [render_request(_make_state(questionnaire, fence), questions)]

    def collect_words(self, questionnaire: Questionnaire, fence: Fence) -> Any:  # noqa: ANN401 - JSON
        return self.build_prompts(questionnaire, fence)

    async def ask(
        self, session: Session, endpoint: Endpoint, questionnaire: Questionnaire, sample: int
    ) -> Answer[Answers]:
        """Ask a decision model all questions at once.

        If the text is too long for the model, returns a failure without a call.
        """
        del sample  # probabilities don't vary between samples
        started = time.monotonic()
        if questionnaire.cut_at_chars is not None:
            return _refuse_long_text(endpoint.model, questionnaire.cut_at_chars)

        claims_by_name = _split_claims(questionnaire)  # by the name of a question about each claim
        answer = await ask_decisions(
            session,
            endpoint,
            _make_state(questionnaire, session.fence),
            _make_questions(questionnaire, claims_by_name, session.fence),
            questionnaire.timeout,
        )
        answers = None
        if answer.value:
            answers = _read_distributions(questionnaire, claims_by_name, answer.value)
        # Keep the failure, because some questions can fail while others are answered.
        return merge_answers([answer], answers, started, keep_failure=True)


def _refuse_long_text(model: str, limit: int) -> Answer[Answers]:
    """Make the failure for a text with more characters than a model is sent."""
    problem = f"the text is longer than the {limit:,} characters that {model} is sent"
    failure = make_failure(FailureKind.CONTEXT_WINDOW, problem)
    return Answer(None, failure, Usage(), latency_ms=0, model=model)


def _split_claims(questionnaire: Questionnaire) -> dict[str, Sequence[Claim]]:
    """Split the text into claims, for each question that's asked about each claim."""
    claims_by_name = {}
    for name, question in questionnaire.questions.items():
        if question.split_claims is None:
            continue
        text_claims = question.split_claims()
        if text_claims:
            claims_by_name[name] = text_claims
    return claims_by_name


def _make_questions(
    questionnaire: Questionnaire, claims_by_name: Mapping[str, Sequence[Claim]], fence: Fence
) -> list[DecisionQuestion]:
    """Convert the questions to the form that decision models expect.

    In a listing of candidates, each question is repeated for each candidate. Otherwise, it's asked once about
    the text, or once about each of the text's claims.
    """
    if questionnaire.is_listing:
        questions = _make_candidate_questions(questionnaire)
    else:
        questions = _make_text_questions(questionnaire, names_of_claims=claims_by_name.keys())
    for name, text_claims in claims_by_name.items():
        questions += claims.claim_questions(name, text_claims, fence)
    return questions


def _make_candidate_questions(questionnaire: Questionnaire) -> list[DecisionQuestion]:
    """Repeat each question for each candidate of a listing. The candidates are memories."""
    questions = []
    for label in questionnaire.labels:
        for name, question in questionnaire.questions.items():
            full_name = questionnaire.name_question(label, name)
            instruction = f"About the memory [{label}]: {question.text}"
            questions.append(DecisionQuestion(full_name, "predicate", instruction))
    return questions


def _make_text_questions(
    questionnaire: Questionnaire, names_of_claims: Collection[str]
) -> list[DecisionQuestion]:
    """Make the questions about the whole text.

    `names_of_claims` are the names of questions to skip, because they're asked about each claim instead.
    """
    questions = []
    for name, question in questionnaire.questions.items():
        if name not in names_of_claims:
            questions.append(_make_question(name, question))
    return questions


def _make_question(name: str, question: TypedQuestion) -> DecisionQuestion:
    """Convert a question to the form that decision models expect."""
    if question.kind == "choice":
        return _make_choice(name, question)

    instruction = question.text_with_qualities
    if question.kind == "predicate":
        return DecisionQuestion(name, "predicate", instruction)
    points = [DecisionOption(value, label) for value, label in question.options.items()]
    return DecisionQuestion(name, "score", instruction, tuple(points))


def _make_choice(name: str, question: TypedQuestion) -> DecisionQuestion:
    """Convert a question about which of two texts is better."""
    instruction = f"{question.text}\nWhich of the two texts is better?"
    choices = []
    for text_name in question.options:
        choices.append(DecisionOption(text_name, f"the text {text_name} is better"))
    return DecisionQuestion(name, "choice", instruction, tuple(choices))


def _make_state(questionnaire: Questionnaire, fence: Fence) -> State:
    """Build the system message, context and key that all questions of a request share."""
    return State(
        system=questionnaire.write_guarded_system(fence),
        context=questionnaire.context(fence),
        call_key=questionnaire.call_key,
    )


def _read_distributions(
    questionnaire: Questionnaire,
    claims_by_name: Mapping[str, Sequence[Claim]],
    distributions: Distributions,
) -> Answers:
    """Convert a decision model's probabilities to the questionnaire's answers."""
    shares: dict[str, Mapping[str, float]] = {}  # probabilities by question
    findings: list[Finding] = []
    # A question about each claim gets the answer about its least supported claim, or none if an answer is
    # missing.
    for name, text_claims in claims_by_name.items():
        if claims.are_all_answered(name, text_claims, distributions):
            shares[name] = claims.find_least_supported(name, text_claims, distributions)
            findings += claims.list_unsupported_claims(name, text_claims, distributions)
    # Add the answers to all questions that were asked. Those about single claims have names of their own.
    shares |= distributions

    points = {}
    for name in questionnaire.list_answer_names():
        if name in shares:
            points[name] = average_points(shares[name], questionnaire.points_of_words)
    return Answers(points, shares, findings=tuple(findings))


def render_request(state: State, questions: Sequence[DecisionQuestion]) -> Messages:
    """Return the state and the questions in a form for people."""
    text = json.dumps(build_question_arguments(questions), ensure_ascii=False, indent=2)
    return (*state.messages, Message("user", f"The questions:\n{text}"))


def round_probabilities(
    distributions: Mapping[str, Mapping[str, float]],
) -> dict[str, dict[str, float]]:
    """Round probabilities to the digits that are recorded."""
    rounded_by_name = {}
    for name, shares in distributions.items():
        rounded_by_name[name] = {
            value: round(share, PROBABILITY_DECIMALS) for value, share in shares.items()
        }
    return rounded_by_name


def explain_unproven(models: Iterable[str]) -> str:
    """Explain why these decision models can't accept alone in strict mode."""
    names = ", ".join(dict.fromkeys(models))
    return (
        f"{names} would accept, but in strict mode a decision model does not accept alone: learn from labels "
        "when to believe it (judgekit calibrate), add a model that writes (judge.tiers.deep), or use "
        "--mode lenient"
    )


def explain_uncalibrated(models: Iterable[str]) -> str:
    """Explain that an acceptance by these decision models isn't backed by a calibration."""
    names = ", ".join(dict.fromkeys(models))
    return (
        f"accepted by {names} without a calibration, so nothing shows how far to believe it: learn that from "
        "labels (judgekit calibrate)"
    )


# --- Asking them


class State(NamedTuple):
    """The input to a decision model: the trusted system message, the fenced text, and the call's key."""

    system: str
    context: str
    call_key: CallKey

    @property
    def messages(self) -> Messages:
        return (Message("user", f"{self.system}\n\n{self.context}"),)


async def ask_decisions(
    session: Session,
    endpoint: Endpoint,
    state: State,
    questions: Sequence[DecisionQuestion],
    timeout: float,
) -> Answer[Distributions]:
    """Ask any number of questions, and return the probabilities by question, and the first failure.

    If multiple requests are needed, they run concurrently, within `timeout` seconds in total. If a question's
    scale is too long for decision models, returns a failure without a call.
    """
    started = time.monotonic()
    scale_problem = _find_scale_problem(questions)
    if scale_problem is not None:
        failure = make_failure(FailureKind.BAD_REQUEST, scale_problem)
        return Answer(None, failure, Usage(), latency_ms=0, model=endpoint.model)

    answers = await _ask_in_chunks(session, endpoint, state, questions, timeout)

    # Merge the answers to all requests.
    first_failure = next((answer.failure for answer in answers if answer.failure), None)
    distributions: Distributions = {}
    usage = Usage()
    model = endpoint.model
    for answer in answers:
        usage = usage.plus(answer.usage)
        if answer.value is not None:
            distributions |= answer.value
            model = answer.model
    return Answer(distributions or None, first_failure, usage, ms_since(started), model)


async def _ask_in_chunks(
    session: Session,
    endpoint: Endpoint,
    state: State,
    questions: Sequence[DecisionQuestion],
    timeout: float,
) -> list[Answer[Distributions]]:
    """Ask questions in chunks as large as the server allows, and return the answers to all chunks.

    If the server refuses a chunk because it has too many questions, remember a smaller size and ask all
    questions again.
    """
    server = (endpoint.api_base, endpoint.model)
    configured_size = endpoint.profile.limits.questions
    while True:
        size = configured_size or _most_by_server.get(server, MAX_QUESTIONS)
        starts = range(0, len(questions), size)
        chunks = [tuple(questions[start : start + size]) for start in starts]
        answers = await _ask_chunks(session, endpoint, state, chunks, timeout)

        failures = [answer.failure for answer in answers]
        smaller_size = _find_limit(failures, count=len(chunks[0]))
        if smaller_size is None:  # no chunk was too large
            return answers
        if configured_size:  # never override the user's configuration
            return answers
        # The size decreases each time, so the loop ends.
        _most_by_server[server] = smaller_size


async def _ask_chunks(
    session: Session,
    endpoint: Endpoint,
    state: State,
    chunks: Sequence[tuple[DecisionQuestion, ...]],
    timeout: float,
) -> list[Answer[Distributions]]:
    """Ask all chunks concurrently. If there are several, each call has a key of its own."""
    calls = []
    for number, chunk in enumerate(chunks, 1):
        key = state.call_key
        if len(chunks) > 1:
            key = key.append_part(f"questions{number}")
        calls.append(partial(_ask_once, session, endpoint, state.messages, chunk, key, timeout))
    return await gather_limited(calls, session, endpoint)


def _find_limit(failures: Iterable[Failure | None], count: int) -> int | None:
    """Find the server's limit of questions per call, from the failures of calls with up to `count` questions.

    For example, it's 20 if a message says "too many questions: 64, at most 20". Returns None if no message
    is about this.
    """
    if count == 1:  # a single question can't be too many
        return None
    for failure in failures:
        if failure is not None and _is_about_too_many_questions(failure):
            return _read_limit(failure.message, count)
    return None


def _is_about_too_many_questions(failure: Failure) -> bool:
    """Whether a server refused a request because it had too many questions."""
    if failure.kind is not FailureKind.BAD_REQUEST:
        return False
    is_about_questions = "question" in failure.message.lower()
    says_too_many = _TOO_MANY_PATTERN.search(failure.message) is not None
    return is_about_questions and says_too_many


def _read_limit(message: str, count: int) -> int:
    """Return the largest number in a message that's below `count`, or half of `count` if there's none."""
    numbers = [int(digits) for digits in re.findall(r"\d{1,4}", message)]
    possible_limits = [number for number in numbers if 0 < number < count]
    if possible_limits:
        return max(possible_limits)
    return count // 2


def _find_scale_problem(questions: Sequence[DecisionQuestion]) -> str | None:
    """Explain that a question's scale is too long for a decision model, or return None."""
    for question in questions:
        levels = len(question.options)
        if question.kind == "score" and levels > MAX_LEVELS:
            reason = f"the scale of the rubric has {levels} points, and a decision model takes {MAX_LEVELS}"
            remedy = "use a rubric with a smaller scale (1 to 5), or a model that writes"
            return f"{reason}: {remedy}"
    return None


async def _ask_once(
    session: Session,
    endpoint: Endpoint,
    messages: Messages,
    questions: tuple[DecisionQuestion, ...],
    call_key: CallKey,
    timeout: float,
) -> Answer[Distributions]:
    """Make one request, and return the probabilities by question.

    If the reply leaves questions unanswered, the result also has the failure of the first one.
    """
    started = time.monotonic()
    try:
        request = Request(
            messages=messages,
            call_key=call_key,
            timeout=session.compute_call_timeout(timeout),
            max_tokens=1,
            questions=questions,
        )
        reply, is_new = await _ask_or_remember(session, endpoint, request)
        answers = read_answers(reply.text, questions)
        unanswered = [answer for answer in answers.values() if answer.problem]
        # Store only complete replies, so that later sessions ask the unanswered questions again.
        if is_new and not unanswered:
            await session.keep(endpoint, request, reply)
    except GatewayError as error:
        call_failure = make_failure(error.kind, error.message)
        usage = usage_of_failed_call(error)
        return Answer(None, call_failure, usage, ms_since(started), endpoint.model)

    distributions = _collect_probabilities(answers)
    failure = None
    if unanswered:
        failure = _make_unanswered_failure(unanswered[0], reply.model)
    # A reply that this session remembers has already been paid for.
    usage = reply.usage.count_as_call() if is_new else CACHED_USAGE
    return Answer(distributions or None, failure, usage, ms_since(started), reply.model)


def _make_unanswered_failure(unanswered: DecisionAnswer, model: str) -> Failure:
    """Make the failure for a question that a model refused, or didn't answer validly."""
    kind = FailureKind.REFUSAL if unanswered.is_refusal else FailureKind.INVALID_REPLY
    return make_failure(kind, f"{model}: {unanswered.problem}")


def _collect_probabilities(answers: Mapping[str, DecisionAnswer]) -> Distributions:
    """Collect the probabilities of the questions that have been answered, by question."""
    distributions: Distributions = {}
    for name, answer in answers.items():
        if not answer.problem:
            distributions[name] = answer.probabilities
    return distributions


async def _ask_or_remember(
    session: Session, endpoint: Endpoint, request: Request
) -> tuple[Reply, bool]:
    """Return the reply to a request, and whether it's new rather than remembered from this session."""
    key = (endpoint.model, request.messages, request.questions)
    if key in session.remembered:
        return session.remembered[key], False
    reply = await session.get_reply(endpoint, request)
    session.remembered[key] = reply
    return reply, True
