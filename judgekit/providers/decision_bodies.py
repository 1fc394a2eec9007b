"""Reads decision models' answers from the raw body that a server sent.

There are two wire formats, OpenAI's `/v1/decisions` and System One's `/v1/systemone`. A question counts as
answered only if an answer with its name and kind fits it completely.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit.errors import FailureKind, GatewayError
from judgekit.providers.chat import count_in
from judgekit.providers.decisions import NO, YES, DecisionAnswer, amount, no_answer, probability
from judgekit.providers.failures import error_in_success, stated_failure
from judgekit.text import short_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.providers.decisions import DecisionQuestion

# Servers round probabilities, usually to two places, so each may be off by half a unit. The total
# error is capped: otherwise an answer with very many options could say anything.
_ROUNDED_BY = 0.005
_SLACK = 0.01
_MOST_OFF = 0.1
_WORDS = 120  # characters quoted of a server's message
_SHORT = 40  # characters quoted of an invalid value
# The field that answers a question of each kind, in the two wire formats.
_KINDS = {
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
    """Read a server's answers to `questions`; raises `GatewayError` if none can be read."""
    try:
        body = json.loads(content, object_pairs_hook=_Object)
    except (ValueError, RecursionError):
        beginning = short_line(content[:_WORDS].decode("utf-8", "replace"), _WORDS)
        raise _invalid(f"the reply is not JSON but {beginning!r}") from None
    if not isinstance(body, _Object):
        raise _invalid("the reply is not a JSON object")
    _check_envelope(body)
    if "answers" not in body and isinstance(body.get("result"), _Object):
        body = body["result"]  # an envelope, such as Cloudflare's
        _check_envelope(body)
    answers = body.get("answers")
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
    if not isinstance(model, str | None):
        raise _invalid(f"`model` of the reply is not a text but {short_line(str(model), _SHORT)}")
    tokens = count_in(usage.get("input_tokens")) or 0
    return DecisionReply(read, model or None, tokens, cost_usd=amount(usage.get("cost")))


def _check_envelope(body: _Object) -> None:
    """Raise `GatewayError` for duplicate keys, and for an error instead of answers or beside them."""
    has_answer = bool(body.get("answers") or body.get("result"))
    if error := error_in_success(body, has_answer=has_answer):
        raise stated_failure(error)
    if body.repeated:
        raise _invalid(f"the reply has the key {body.repeated!r} twice")


class _Object(dict[str, Any]):
    """A JSON object. Of a duplicate key the last value counts; `pairs` keeps them all."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs

    @property
    def repeated(self) -> str:
        """The first duplicate key, or ""."""
        seen = set()
        for key, _ in self.pairs:
            if key in seen:
                return short_line(key, _SHORT)
            seen.add(key)
        return ""


def _by_name(answers: list[Any], questions: Sequence[DecisionQuestion]) -> dict[str, list[Any]]:
    """Group a list of answers by name; unnamed answers are matched to the questions by position."""
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
    """Read the only answer with a question's name, or state what's wrong with it."""
    if not raws:
        return no_answer(question, "was not answered")
    if len(raws) > 1:
        return no_answer(question, f"was answered {len(raws)} times")
    raw = raws[0]
    if not isinstance(raw, _Object):
        return no_answer(question, "was not answered by an object")
    if raw.repeated:
        return no_answer(question, f"was answered with the key {raw.repeated!r} twice")
    if raw.get("error"):
        words = stated_failure(raw["error"]).message
        return no_answer(question, f"was answered with an error: {short_line(words, _WORDS)}")
    refusal = raw.get("refusal")
    if refusal or raw.get("type") == "refusal":
        words = short_line(str(refusal or raw.get("reason") or ""), _WORDS)
        problem = f"was refused: {words}" if words else "was refused"
        answer = no_answer(question, problem)
        return answer._replace(is_refusal=True)
    try:
        probabilities = _probabilities(question, raw)
    except ValueError as error:
        return no_answer(question, str(error))
    return DecisionAnswer(probabilities)


def _probabilities(question: DecisionQuestion, raw: Mapping[str, Any]) -> dict[str, float]:
    """Read the probability of each possible answer; raises `ValueError` with the problem in words."""
    kind = raw.get("type", question.kind)
    if kind not in _KINDS[question.kind]:
        raise ValueError(
            f"was answered as {short_line(str(kind), _SHORT)!r}, which is another type"
        )
    if question.kind == "predicate":
        values = {probability(raw[name]) for name in ("probability", "noul") if name in raw}
        if len(values) != 1:
            found = "two probabilities" if values else "no probability"
            raise ValueError(f"was answered with {found}")
        (yes,) = values
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
        by_value[value] = probability(number)
    confidence = raw.get("confidence")
    if confidence is not None and amount(confidence) is None:
        raise ValueError(f"was answered with a confidence of {short_line(str(confidence), _SHORT)}")
    if question.kind == "score":
        _check_score(question, raw.get("score"))
    elif raw.get("choice") is not None:
        _value(question, raw["choice"])
    total = math.fsum(by_value.values())
    # A server may omit answers if the others add up to 1. Otherwise an omitted one isn't zero.
    if abs(total - 1) > _tolerance(question):
        raise ValueError(f"was answered with probabilities that add up to {total:.3g}")
    return {value: by_value.get(value, 0.0) / total for value in question.values}


def _value(question: DecisionQuestion, key: object) -> str:
    """Translate a key to the answer it stands for; a score's keys are indexes of its levels."""
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


def _tolerance(question: DecisionQuestion) -> float:
    """Compute how far rounding may move the sum of a question's probabilities from 1."""
    return min(len(question.values) * _ROUNDED_BY + _SLACK, _MOST_OFF)


def _check_score(question: DecisionQuestion, score: object) -> None:
    """Raise `ValueError` if a score isn't on the scale."""
    most = len(question.options) - 1
    if score is not None and amount(score, most * (1 + _tolerance(question))) is None:
        raise ValueError(
            f"was answered with a score of {short_line(str(score), 40)} of 0 to {most}"
        )


def _invalid(problem: str) -> GatewayError:
    return GatewayError(FailureKind.INVALID_REPLY, problem)
