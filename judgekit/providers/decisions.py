"""Decision models: typed questions about a text go in, a probability for each possible answer comes out.

They write nothing. This module builds their questions and stores their answers; `decision_bodies.py` reads
the answers that a server sends.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from judgekit.text import parse_strict_json, shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_QUESTIONS = 128  # per request, in both wire formats
MAX_LEVELS = 10  # of a score question
YES = "yes"
NO = "no"
_STORED_TOLERANCE = 0.001  # the sum of stored probabilities is off by rounding to six places
_MAX_VALUE_CHARS = 40  # characters quoted of an invalid value


class DecisionOption(NamedTuple):
    """One possible answer: a word, or a point on a scale. `description` says when it's right."""

    value: str
    description: str = ""


class DecisionQuestion(NamedTuple):
    """A question with all its possible answers.

    For a score, `options` are its levels, the lowest first. A predicate has none: it's answered yes or no.
    """

    name: str
    kind: Literal["predicate", "choice", "score"]
    instruction: str
    options: tuple[DecisionOption, ...] = ()

    @property
    def values(self) -> tuple[str, ...]:
        """The possible answers."""
        if self.kind == "predicate":
            return (YES, NO)
        return tuple(option.value for option in self.options)


class DecisionAnswer(NamedTuple):
    """The probability of each possible answer, by its value, or a one-line `problem` if there are none.

    `is_refusal` if the problem is that the model refused to answer.
    """

    probabilities: Mapping[str, float]
    problem: str = ""
    is_refusal: bool = False


def build_question_arguments(questions: Sequence[DecisionQuestion]) -> list[dict[str, Any]]:
    """Convert questions to the JSON objects that litellm expects."""
    json_objects = []
    for question in questions:
        fields: dict[str, Any] = {"type": question.kind, "name": question.name}
        fields["instructions"] = question.instruction
        # An option's own value has the key "value" in a choice, and "label" in a score.
        if question.kind == "choice":
            fields["choices"] = [_describe_option("value", option) for option in question.options]
        if question.kind == "score":
            fields["levels"] = [_describe_option("label", option) for option in question.options]
        json_objects.append(fields)
    return json_objects


def _describe_option(key: str, option: DecisionOption) -> dict[str, str]:
    if option.description:
        return {key: option.value, "description": option.description}
    return {key: option.value}


def parse_amount(value: object, limit: float = math.inf) -> float | None:
    """Return `value` as a float if it's a finite number from 0 to `limit`, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer with hundreds of digits
        return None
    is_in_range = math.isfinite(number) and 0 <= number <= limit
    return number if is_in_range else None


def check_probability(number: object) -> float:
    """Return a number from 0 to 1 as a float; raises `ValueError` for anything else.

    The message completes the sentence "Question X …".
    """
    checked_number = parse_amount(number, 1)
    if checked_number is None:
        raise ValueError(
            f"was answered with {shorten_to_line(str(number), 40)}, which is no probability"
        )
    return checked_number


def make_missing_answer(question: DecisionQuestion, fault: str) -> DecisionAnswer:
    """Build the result for a question without a valid answer.

    The `fault` completes the sentence "Question X …", as in "was not answered".
    """
    return DecisionAnswer({}, f"the question {question.name!r} {fault}")


# --- Answers as a reply's text, which is stored and recorded


def write_answers(answers: Mapping[str, DecisionAnswer]) -> str:
    """Write answers as a JSON object that maps each question to its probabilities, problem or refusal."""
    outcomes_by_name: dict[str, Any] = {}
    for name, answer in answers.items():
        if answer.problem:
            key = "refusal" if answer.is_refusal else "problem"
            outcomes_by_name[name] = {key: answer.problem}
        else:
            probabilities = answer.probabilities.items()
            outcomes_by_name[name] = {
                value: round(probability, 6) for value, probability in probabilities
            }
    return json.dumps(outcomes_by_name, ensure_ascii=False)


def read_answers(text: str, questions: Sequence[DecisionQuestion]) -> dict[str, DecisionAnswer]:
    """Read answers that `write_answers` wrote. An answer that's missing or doesn't fit has only a problem."""
    stored_answers = _parse_object(text)
    answers = {}
    for question in questions:
        answers[question.name] = _read_answer(question, stored_answers.get(question.name))
    return answers


def _parse_object(text: str) -> dict[str, Any]:
    """Parse a JSON object, or return {} for any other text."""
    try:
        content = parse_strict_json(text)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _read_answer(question: DecisionQuestion, fields: object) -> DecisionAnswer:
    """Read the stored answer to a question. If it's missing or doesn't fit, the result has only a problem."""
    if not isinstance(fields, dict):
        return make_missing_answer(question, "was not answered")

    if "refusal" in fields or "problem" in fields:
        reason = fields.get("refusal") or fields.get("problem")
        return DecisionAnswer({}, str(reason), is_refusal="refusal" in fields)

    # All other fields are the question's values, with their probabilities.
    has_same_values = set(fields) == set(question.values)
    if not has_same_values:
        return make_missing_answer(question, "was answered about something else")
    return _read_probabilities(question, fields)


def _read_probabilities(question: DecisionQuestion, fields: Mapping[str, Any]) -> DecisionAnswer:
    """Read the stored probabilities of a question's answers. If they're invalid, the result has a problem."""
    # The probabilities were valid when they were stored, but the file may have been damaged.
    try:
        probabilities = {value: check_probability(fields[value]) for value in question.values}
    except ValueError as error:
        return make_missing_answer(question, str(error))
    total = math.fsum(probabilities.values())
    if abs(total - 1) > _STORED_TOLERANCE:
        return make_missing_answer(
            question, f"was kept with probabilities that add up to {total:.3g}"
        )
    return DecisionAnswer(probabilities)
