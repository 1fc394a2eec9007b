"""Decision models: typed questions about a text in, a probability for each possible answer out.

They write nothing. Two wires are read here, OpenAI's `/v1/decisions` and System One's `/v1/systemone`, from
the body as the server sent it: a question counts as answered only by an answer of its own name and kind whose
probabilities make sense.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from judgekit.errors import FailureKind, GatewayError
from judgekit.text import short_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_QUESTIONS = 128  # in one request, on both wires
MOST_LEVELS = 10  # of a score question
YES = "yes"
NO = "no"
_SUM_WITHIN = 0.02  # probabilities are rounded on the wire
_WORDS = 120  # characters of a server's own words


class DecisionOption(NamedTuple):
    """One possible answer: a word, or a point of a scale; `description` says when it is right."""

    value: str
    description: str = ""


class DecisionQuestion(NamedTuple):
    """A question with all its possible answers.

    `options` of a score are its levels, the lowest first; a predicate has none, and is answered yes or no.
    """

    name: str
    kind: Literal["predicate", "choice", "score"]
    instruction: str
    options: tuple[DecisionOption, ...] = ()

    @property
    def values(self) -> tuple[str, ...]:
        if self.kind == "predicate":
            return (YES, NO)
        return tuple(option.value for option in self.options)


class DecisionAnswer(NamedTuple):
    """The probability of each possible answer, by its value; or why there is none, in one line.

    `is_refusal` tells a model that would not answer from an answer that makes no sense.
    """

    probabilities: Mapping[str, float]
    problem: str = ""
    is_refusal: bool = False


class DecisionReply(NamedTuple):
    """What a body says: the answers by the names of their questions, who answered, what it took."""

    answers: dict[str, DecisionAnswer]
    model: str | None
    input_tokens: int
    cost_usd: float | None


def sent_questions(questions: Sequence[DecisionQuestion]) -> list[dict[str, Any]]:
    """Return questions as litellm takes them, in OpenAI's form."""
    sent = []
    for question in questions:
        fields: dict[str, Any] = {"type": question.kind, "name": question.name}
        fields["instructions"] = question.instruction
        if question.kind == "choice":
            fields["choices"] = [_described("value", option) for option in question.options]
        if question.kind == "score":
            fields["levels"] = [_described("label", option) for option in question.options]
        sent.append(fields)
    return sent


def _described(key: str, option: DecisionOption) -> dict[str, str]:
    if option.description:
        return {key: option.value, "description": option.description}
    return {key: option.value}


# --- Reading a body


def read_body(content: bytes, questions: Sequence[DecisionQuestion]) -> DecisionReply:
    """Return what a server answered to `questions`; raises `GatewayError` where no answer can be read."""
    try:
        body = json.loads(content, object_pairs_hook=_Object)
    except (ValueError, RecursionError):
        beginning = short_line(content[:_WORDS].decode("utf-8", "replace"), _WORDS)
        raise _invalid(f"the reply is not JSON but {beginning!r}") from None
    if isinstance(body, dict) and "answers" not in body and isinstance(body.get("result"), dict):
        body = body["result"]  # an envelope, as Cloudflare has one
    answers = body.get("answers") if isinstance(body, dict) else None
    if isinstance(answers, _Object):
        raw_by_name: dict[str, list[Any]] = {}
        for name, answer in answers.pairs:
            raw_by_name.setdefault(name, []).append(answer)
    elif isinstance(answers, list):
        raw_by_name = _by_name(answers, questions)
    else:
        raise _invalid("the reply has no answers")
    read = {}
    for question in questions:
        read[question.name] = _answer(question, raw_by_name.get(question.name, []))
    usage = body.get("usage")
    if not isinstance(usage, dict):
        usage = {}
    model = body.get("model")
    if not isinstance(model, str):
        model = None
    tokens = int(_amount(usage.get("input_tokens")) or 0)
    return DecisionReply(read, model or None, tokens, cost_usd=_amount(usage.get("cost")))


class _Object(dict[str, Any]):
    """An object of JSON: of a key that it has twice the last value counts; `pairs` has both."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs


def _amount(value: object, most: float = math.inf) -> float | None:
    """Return a finite number from 0 to `most`; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return None
    return number if math.isfinite(number) and 0 <= number <= most else None


def _by_name(answers: list[Any], questions: Sequence[DecisionQuestion]) -> dict[str, list[Any]]:
    """Return listed answers by their names; answers without any name stand in the order of the questions."""
    names = [answer.get("name") if isinstance(answer, dict) else None for answer in answers]
    if not any(names):
        if len(answers) != len(questions):
            counts = f"{len(answers)} answers without names to {len(questions)} questions"
            raise _invalid(f"the reply has {counts}")
        names = [question.name for question in questions]
    by_name: dict[str, list[Any]] = {}
    for name, answer in zip(names, answers, strict=True):
        by_name.setdefault(str(name), []).append(answer)
    return by_name


def _answer(question: DecisionQuestion, raws: Sequence[Any]) -> DecisionAnswer:
    """Return the answer to a question, which is the only one of its name, or what is wrong with it."""
    if not raws:
        return _no_answer(question, "was not answered")
    if len(raws) > 1:
        return _no_answer(question, f"was answered {len(raws)} times")
    raw = raws[0]
    if not isinstance(raw, dict):
        return _no_answer(question, "was not answered by an object")
    refusal = raw.get("refusal")
    if refusal or raw.get("type") == "refusal":
        words = short_line(str(refusal or raw.get("reason") or ""), _WORDS)
        problem = f"was refused: {words}" if words else "was refused"
        answer = _no_answer(question, problem)
        return answer._replace(is_refusal=True)
    try:
        probabilities = _probabilities(question, raw)
    except ValueError as error:
        return _no_answer(question, str(error))
    return DecisionAnswer(probabilities)


def _probabilities(question: DecisionQuestion, raw: Mapping[str, Any]) -> dict[str, float]:
    """Return the probability of each possible answer; raises `ValueError` in words."""
    if question.kind == "predicate":
        yes = _probability(raw.get("probability", raw.get("noul")))
        return {YES: yes, NO: 1 - yes}
    listed = raw.get("probabilities")
    if isinstance(listed, _Object):
        pairs = listed.pairs
    elif isinstance(listed, list) and all(isinstance(item, dict) for item in listed):
        pairs = [(item.get("value"), item.get("probability")) for item in listed]
    else:
        raise ValueError("was answered without probabilities")
    by_value = {}
    for key, number in pairs:
        value = _value(question, key)
        if value in by_value:
            raise ValueError(f"was answered with two probabilities of {value!r}")
        by_value[value] = _probability(number)
    if question.kind == "score":
        _check_score(question, raw.get("score"))
    total = math.fsum(by_value.values())
    # What all others leave nothing for may be left out; what is left out otherwise is not zero.
    if abs(total - 1) > _SUM_WITHIN:
        raise ValueError(f"was answered with probabilities that add up to {total:.3g}")
    return {value: by_value.get(value, 0.0) / total for value in question.values}


def _value(question: DecisionQuestion, key: object) -> str:
    """Return the possible answer that a key means: of a score it is the index of a level."""
    if question.kind == "choice":
        value = str(key)
        if value not in question.values:
            raise ValueError(f"was answered with {short_line(value, 40)!r}, which is no choice")
        return value
    try:
        index = int(str(key))
    except ValueError:
        index = -1
    if not 0 <= index < len(question.options):
        levels = f"{len(question.options)} levels"
        raise ValueError(f"was answered with level {short_line(str(key), 40)} of {levels}")
    return question.options[index].value


def _probability(number: object) -> float:
    probability = _amount(number, 1)
    if probability is None:
        raise ValueError(
            f"was answered with {short_line(str(number), 40)}, which is no probability"
        )
    return probability


def _check_score(question: DecisionQuestion, score: object) -> None:
    """Raise `ValueError` where a score is none of the scale."""
    most = len(question.options) - 1
    if score is not None and _amount(score, most + _SUM_WITHIN) is None:
        raise ValueError(
            f"was answered with a score of {short_line(str(score), 40)} of 0 to {most}"
        )


def _no_answer(question: DecisionQuestion, what: str) -> DecisionAnswer:
    return DecisionAnswer({}, f"the question {question.name!r} {what}")


def _invalid(problem: str) -> GatewayError:
    return GatewayError(FailureKind.INVALID_REPLY, problem)


# --- As the text of a reply, which is what is kept and recorded


def write_answers(answers: Mapping[str, DecisionAnswer]) -> str:
    """Return answers as JSON: by name the probabilities, or what was wrong."""
    written: dict[str, Any] = {}
    for name, answer in answers.items():
        if answer.problem:
            key = "refusal" if answer.is_refusal else "problem"
            written[name] = {key: answer.problem}
        else:
            shares = answer.probabilities
            written[name] = {value: round(shares[value], 6) for value in shares}
    return json.dumps(written, ensure_ascii=False)


def read_answers(text: str, questions: Sequence[DecisionQuestion]) -> dict[str, DecisionAnswer]:
    """Return the answers that `write_answers` wrote; one that does not fit its question has a problem."""
    try:
        written = json.loads(text)
    except (ValueError, RecursionError):
        written = {}
    answers = {}
    for question in questions:
        fields = written.get(question.name) if isinstance(written, dict) else None
        if not isinstance(fields, dict):
            answers[question.name] = _no_answer(question, "was not answered")
        elif "refusal" in fields or "problem" in fields:
            problem = str(fields.get("refusal") or fields.get("problem"))
            answers[question.name] = DecisionAnswer({}, problem, "refusal" in fields)
        elif set(fields) != set(question.values):
            answers[question.name] = _no_answer(question, "was answered about something else")
        else:
            answers[question.name] = DecisionAnswer(
                {value: float(fields[value]) for value in question.values}
            )
    return answers
