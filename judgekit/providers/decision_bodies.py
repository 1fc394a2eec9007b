"""Reads decision models' answers from the raw body that a server sent.

There are two wire formats, OpenAI's `/v1/decisions` and System One's `/v1/systemone`. A question counts as
answered only if an answer with its name and kind fits it completely.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit.errors import FailureKind, GatewayError
from judgekit.providers.chat import parse_count
from judgekit.providers.decisions import (
    NO,
    YES,
    DecisionAnswer,
    check_probability,
    make_missing_answer,
    parse_amount,
)
from judgekit.providers.failures import classify_json_error, find_json_error
from judgekit.text import shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.providers.decisions import DecisionQuestion

# Servers round probabilities, usually to two places, so each may be off by half a unit. The total
# error is capped: otherwise an answer with very many options could say anything.
_ROUNDING_ERROR = 0.005
_SUM_SLACK = 0.01
_MAX_SUM_ERROR = 0.1
_QUOTED_CHARS = 120  # of a server's message
_MAX_VALUE_CHARS = 40  # characters quoted of an invalid value
# The type of an answer to each kind of question, as the two wire formats name it.
_TYPES_BY_KIND = {
    "predicate": ("predicate", "noul"),
    "choice": ("choice",),
    "score": ("score",),
}


class DecisionReply(NamedTuple):
    """The contents of a body: answers by question name, the model that answered, and its usage."""

    answers: dict[str, DecisionAnswer]
    model: str | None
    input_tokens: int
    cost_usd: float | None


def read_body(content: bytes, questions: Sequence[DecisionQuestion]) -> DecisionReply:
    """Read a server's answers to `questions` from its response body.

    If an answer is missing or invalid, its `problem` says why. Raises `GatewayError` if the body itself is
    invalid.
    """
    body = _unwrap_body(_parse_body(content))
    raw_answers_by_name = _group_by_name(body.get("answers"), questions)
    answers = {}
    for question in questions:
        raw_answers = raw_answers_by_name[question.name]  # empty if the question wasn't answered
        answers[question.name] = _read_answer(question, raw_answers)

    usage = body.get("usage")
    if not isinstance(usage, dict):
        usage = {}
    input_tokens = parse_count(usage.get("input_tokens")) or 0
    cost = parse_amount(usage.get("cost"))
    return DecisionReply(answers, _read_model(body), input_tokens, cost_usd=cost)


def _parse_body(content: bytes) -> _Object:
    """Parse a response body. Raises `GatewayError` if it isn't a JSON object."""
    try:
        body = json.loads(content, object_pairs_hook=_Object)
    except (ValueError, RecursionError):
        text = content[:_QUOTED_CHARS].decode("utf-8", "replace")
        beginning = shorten_to_line(text, _QUOTED_CHARS)
        raise _build_invalid_error(f"the reply is not JSON but {beginning!r}") from None
    if not isinstance(body, _Object):
        raise _build_invalid_error("the reply is not a JSON object")
    return body


def _unwrap_body(body: _Object) -> _Object:
    """Return the object with the answers: the body itself, or the `result` that a proxy has put into it.

    Cloudflare, for example, sends `{"result": {"answers": …}}`. Raises `GatewayError` if either object
    contains an error or a duplicate key.
    """
    _refuse_error_or_repeated_key(body)
    if "answers" in body:
        return body
    inner_body = body.get("result")
    if not isinstance(inner_body, _Object):
        return body
    _refuse_error_or_repeated_key(inner_body)
    return inner_body


def _refuse_error_or_repeated_key(body: _Object) -> None:
    """Raise `GatewayError` if a reply contains an error or a duplicate key."""
    # Beside an answer, only an explicit error counts.
    has_answer = bool(body.get("answers") or body.get("result"))
    error = find_json_error(body, has_answer=has_answer)
    if error:
        raise classify_json_error(error)
    if body.repeated_key:
        raise _build_invalid_error(f"the reply has the key {body.repeated_key!r} twice")


def _read_model(body: _Object) -> str | None:
    """Return the model's name in a body, or None. Raises `GatewayError` if it isn't a text."""
    model = body.get("model")
    if not isinstance(model, str | None):
        raise _build_invalid_error(
            f"`model` of the reply is not a text but {shorten_to_line(str(model), _MAX_VALUE_CHARS)}"
        )
    return model or None


class _Object(dict[str, Any]):
    """A JSON object that remembers duplicate keys in `pairs`."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs

    @property
    def repeated_key(self) -> str:
        """The first duplicate key, or ""."""
        seen = set()
        for key, _ in self.pairs:
            if key in seen:
                return shorten_to_line(key, _MAX_VALUE_CHARS)
            seen.add(key)
        return ""


def _group_by_name(
    answers: object, questions: Sequence[DecisionQuestion]
) -> defaultdict[str, list[Any]]:
    """Group the answers in a response body by question name.

    A question's group should contain one answer, but can contain any number if the server made a mistake.
    Raises `GatewayError` if `answers` is neither an object nor a list.
    """
    if isinstance(answers, _Object):
        pairs = answers.pairs
    elif isinstance(answers, list):
        pairs = _name_answers(answers, questions)
    else:
        raise _build_invalid_error("the reply has no answers")

    answers_by_name = defaultdict(list)
    for name, answer in pairs:
        answers_by_name[name].append(answer)
    return answers_by_name


def _name_answers(
    answers: list[Any], questions: Sequence[DecisionQuestion]
) -> list[tuple[str, Any]]:
    """Pair each answer with the name of its question.

    If no answer has a name, pair answers and questions in order. Raises `GatewayError` if there are more or
    fewer answers than questions.
    """
    names = [_get_name(answer) for answer in answers]
    if any(names):
        # An answer without a name is paired with "None". No question has this name, so the answer is ignored.
        return [(str(name), answer) for name, answer in zip(names, answers, strict=True)]

    if len(answers) != len(questions):
        counts = f"{len(answers)} answers without names to {len(questions)} questions"
        raise _build_invalid_error(f"the reply has {counts}")
    return [(question.name, answer) for question, answer in zip(questions, answers, strict=True)]


def _get_name(answer: object) -> object:
    """Return the name in an answer, or None."""
    return answer.get("name") if isinstance(answer, dict) else None


def _read_answer(question: DecisionQuestion, raw_answers: Sequence[Any]) -> DecisionAnswer:
    """Read the answer to a question from `raw_answers`, all answers with the question's name.

    If there isn't exactly one valid answer, the result has a `problem`.
    """
    if not raw_answers:
        return make_missing_answer(question, "was not answered")
    if len(raw_answers) > 1:
        return make_missing_answer(question, f"was answered {len(raw_answers)} times")

    answer = raw_answers[0]
    problem = _find_problem(answer)
    if problem:
        return make_missing_answer(question, problem)
    refusal = _describe_refusal(answer)
    if refusal:
        return make_missing_answer(question, refusal)._replace(is_refusal=True)
    try:
        return DecisionAnswer(_read_probabilities(question, answer))
    except ValueError as error:
        return make_missing_answer(question, str(error))


def _find_problem(answer: object) -> str | None:
    """Describe what makes an answer unusable, or return None. The server can send an error as an answer."""
    if not isinstance(answer, _Object):
        return "was not answered by an object"
    if answer.repeated_key:
        return f"was answered with the key {answer.repeated_key!r} twice"
    if answer.get("error"):
        message = classify_json_error(answer["error"]).message
        return f"was answered with an error: {shorten_to_line(message, _QUOTED_CHARS)}"
    return None


def _describe_refusal(answer: _Object) -> str | None:
    """Describe a model's refusal to answer, with its reason if given. Without a refusal, return None."""
    refusal = answer.get("refusal")
    is_refusal = refusal or answer.get("type") == "refusal"
    if not is_refusal:
        return None
    reason = shorten_to_line(str(refusal or answer.get("reason") or ""), _QUOTED_CHARS)
    return f"was refused: {reason}" if reason else "was refused"


def _read_probabilities(question: DecisionQuestion, answer: Mapping[str, Any]) -> dict[str, float]:
    """Read the probability of each possible answer to a question.

    Raises `ValueError` if anything in the answer is invalid. The message completes the sentence "Question
    X …".
    """
    _check_type(question, answer)
    if question.kind == "predicate":
        yes = _read_probability_of_yes(answer)
        return {YES: yes, NO: 1 - yes}

    probabilities = _read_given_probabilities(question, answer)
    _check_unused_fields(question, answer)
    return _scale_to_one(question, probabilities)


def _check_type(question: DecisionQuestion, answer: Mapping[str, Any]) -> None:
    """Raise `ValueError` if an answer says that it's for another type of question."""
    answer_type = answer.get("type", question.kind)
    if answer_type not in _TYPES_BY_KIND[question.kind]:
        quoted_type = shorten_to_line(str(answer_type), _MAX_VALUE_CHARS)
        raise ValueError(f"was answered as {quoted_type!r}, which is another type")


def _read_given_probabilities(
    question: DecisionQuestion, answer: Mapping[str, Any]
) -> dict[str, float]:
    """Read the probabilities that the server sent. It can omit those that are 0.

    Raises `ValueError` if one is invalid or given twice.
    """
    probabilities: dict[str, float] = {}
    for key, number in _list_probabilities(answer.get("probabilities")):
        value = _translate_key(question, key)
        if value in probabilities:
            raise ValueError(f"was answered with two probabilities of {value!r}")
        probabilities[value] = check_probability(number)
    return probabilities


def _check_unused_fields(question: DecisionQuestion, answer: Mapping[str, Any]) -> None:
    """Raise `ValueError` if an answer's confidence, score or choice is invalid.

    Only the probabilities are used, but they can't be trusted if these fields are wrong.
    """
    _check_confidence(answer.get("confidence"))
    if question.kind == "score":
        _check_score(question, answer.get("score"))
    elif answer.get("choice") is not None:
        _translate_key(question, answer["choice"])  # raises if it isn't one of the choices


def _check_confidence(confidence: object) -> None:
    """Raise `ValueError` if a confidence isn't a valid number. A missing one (None) is allowed."""
    if confidence is None:
        return
    is_valid = parse_amount(confidence) is not None
    if not is_valid:
        raise ValueError(
            f"was answered with a confidence of {shorten_to_line(str(confidence), _MAX_VALUE_CHARS)}"
        )


def _scale_to_one(
    question: DecisionQuestion, probabilities: Mapping[str, float]
) -> dict[str, float]:
    """Add the omitted probabilities as 0, and divide all by their total to remove rounding errors.

    Raises `ValueError` if they don't add up to about 1.
    """
    total = math.fsum(probabilities.values())
    if abs(total - 1) > _compute_tolerance(question):
        raise ValueError(f"was answered with probabilities that add up to {total:.3g}")
    return {value: probabilities.get(value, 0.0) / total for value in question.values}


def _read_probability_of_yes(answer: Mapping[str, Any]) -> float:
    """Read the probability of "yes" from the answer to a yes-or-no question.

    Raises `ValueError` if there's no such probability, or if there are two different ones.
    """
    # OpenAI's format calls it "probability", and System One's "noul". A server can send both.
    names = [name for name in ("probability", "noul") if name in answer]
    given = [check_probability(answer[name]) for name in names]
    if not given:
        raise ValueError("was answered with no probability")
    yes = given[0]
    is_contradictory = any(other != yes for other in given)
    if is_contradictory:
        raise ValueError("was answered with two probabilities")
    return yes


def _list_probabilities(probabilities: object) -> list[tuple[Any, Any]]:
    """List the values with their probabilities.

    They're either an object (`{"red": 0.7}`) or a list (`[{"value": "red", "probability": 0.7}]`). Raises
    `ValueError` for any other form.
    """
    if isinstance(probabilities, _Object):
        return list(probabilities.pairs)
    if isinstance(probabilities, list) and all(isinstance(item, dict) for item in probabilities):
        return [(item.get("value"), item.get("probability")) for item in probabilities]
    raise ValueError("was answered without probabilities")


def _translate_key(question: DecisionQuestion, key: object) -> str:
    """Convert a key of a server's probabilities to the value of an option.

    For a choice, the key is that value. For a score, it's the position of a level, such as "2". Raises
    `ValueError` if there's no such choice or level.
    """
    if question.kind == "choice":
        return _check_choice(question, str(key))
    return _find_level(question, str(key))


def _check_choice(question: DecisionQuestion, choice: str) -> str:
    """Return a choice unchanged. Raises `ValueError` if the question doesn't have it."""
    if choice not in question.values:
        raise ValueError(
            f"was answered with {shorten_to_line(choice, _MAX_VALUE_CHARS)!r}, which is no choice"
        )
    return choice


def _find_level(question: DecisionQuestion, text: str) -> str:
    """Return the level at a position, which counts from 0. Raises `ValueError` if there's no such level."""
    levels = question.options
    problem = (
        f"was answered with level {shorten_to_line(text, _MAX_VALUE_CHARS)} of {len(levels)} levels"
    )
    try:
        index = int(text)
    except ValueError:
        raise ValueError(problem) from None
    is_level = 0 <= index < len(levels)
    if not is_level:
        raise ValueError(problem)
    return levels[index].value


def _compute_tolerance(question: DecisionQuestion) -> float:
    """Return the most that rounding may change the sum of a question's probabilities."""
    return min(len(question.values) * _ROUNDING_ERROR + _SUM_SLACK, _MAX_SUM_ERROR)


def _check_score(question: DecisionQuestion, score: object) -> None:
    """Raise `ValueError` if a score isn't on the question's scale. A missing score (None) is allowed."""
    if score is None:
        return
    highest = len(question.options) - 1  # levels count from 0
    # Rounding can take the score slightly above the highest level.
    limit = highest * (1 + _compute_tolerance(question))
    is_on_scale = parse_amount(score, limit) is not None
    if not is_on_scale:
        raise ValueError(
            f"was answered with a score of {shorten_to_line(str(score), _MAX_VALUE_CHARS)} of 0 to {highest}"
        )


def _build_invalid_error(problem: str) -> GatewayError:
    return GatewayError(FailureKind.INVALID_REPLY, problem)
