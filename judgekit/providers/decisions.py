"""Decision models: typed questions about a text go in, a probability for each possible answer comes out.

They write nothing. This module builds their questions and stores their answers; `decision_bodies.py` reads
the answers that a server sends.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from judgekit.text import short_line, strict_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_QUESTIONS = 128  # per request, in both wire formats
MOST_LEVELS = 10  # of a score question
YES = "yes"
NO = "no"
_KEPT_WITHIN = 0.001  # stored probabilities add up to 1 but are rounded to six places
_SHORT = 40  # characters quoted of an invalid value


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
    """The probability of each possible answer, by its value, or the reason there is none, in one line.

    `is_refusal` tells a model that wouldn't answer from an answer that makes no sense.
    """

    probabilities: Mapping[str, float]
    problem: str = ""
    is_refusal: bool = False


def sent_questions(questions: Sequence[DecisionQuestion]) -> list[dict[str, Any]]:
    """Convert questions to the objects that litellm sends, in OpenAI's form."""
    question_arguments = []
    for question in questions:
        fields: dict[str, Any] = {"type": question.kind, "name": question.name}
        fields["instructions"] = question.instruction
        if question.kind == "choice":
            fields["choices"] = [_describe_option("value", option) for option in question.options]
        if question.kind == "score":
            fields["levels"] = [_describe_option("label", option) for option in question.options]
        question_arguments.append(fields)
    return question_arguments


def _describe_option(key: str, option: DecisionOption) -> dict[str, str]:
    if option.description:
        return {key: option.value, "description": option.description}
    return {key: option.value}


def amount(value: object, most: float = math.inf) -> float | None:
    """Return `value` as a number if it's one from 0 to `most` and finite, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer with hundreds of digits
        return None
    if not math.isfinite(number) or not 0 <= number <= most:
        return None
    return number


def probability(number: object) -> float:
    """Return `number` if it's a number from 0 to 1.

    Otherwise raises `ValueError`. Its message continues a sentence about a question: `was answered with …`.
    """
    checked_number = amount(number, 1)
    if checked_number is None:
        raise ValueError(
            f"was answered with {short_line(str(number), 40)}, which is no probability"
        )
    return checked_number


def no_answer(question: DecisionQuestion, fault: str) -> DecisionAnswer:
    """Build the answer of a question without a valid answer.

    `fault` says what's wrong. It continues a sentence that begins with the question: `was not answered`.
    """
    return DecisionAnswer({}, f"the question {question.name!r} {fault}")


# --- As the text of a reply, which is stored and recorded


def write_answers(answers: Mapping[str, DecisionAnswer]) -> str:
    """Write answers as a JSON object: each question's name with its probabilities, problem or refusal."""
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
    """Read the answers that `write_answers` wrote.

    If a question's answer is missing or doesn't fit the question, its answer says so as its problem.
    """
    stored_answers: object = {}
    with suppress(ValueError):
        stored_answers = strict_json(text)
    if not isinstance(stored_answers, dict):
        stored_answers = {}
    answers = {}
    for question in questions:
        answers[question.name] = _read_answer(question, stored_answers.get(question.name))
    return answers


def _read_answer(question: DecisionQuestion, fields: object) -> DecisionAnswer:
    """Read the stored answer to a question; if it's missing or doesn't fit, the result says so."""
    if not isinstance(fields, dict):
        return no_answer(question, "was not answered")
    if "refusal" in fields or "problem" in fields:
        problem = str(fields.get("refusal") or fields.get("problem"))
        return DecisionAnswer({}, problem, is_refusal="refusal" in fields)
    if set(fields) != set(question.values):
        return no_answer(question, "was answered about something else")
    return _read_probabilities(question, fields)


def _read_probabilities(question: DecisionQuestion, fields: Mapping[str, Any]) -> DecisionAnswer:
    """Read the stored probabilities of a question's answers.

    They're checked again, since the file may have been damaged. If they're invalid, the answer says so.
    """
    try:
        probabilities = {value: probability(fields[value]) for value in question.values}
    except ValueError as error:
        return no_answer(question, str(error))
    total = math.fsum(probabilities.values())
    if abs(total - 1) > _KEPT_WITHIN:
        return no_answer(question, f"was kept with probabilities that add up to {total:.3g}")
    return DecisionAnswer(probabilities)
