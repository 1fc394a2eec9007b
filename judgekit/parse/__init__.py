"""Raw reply to validated object: the reading of what models answer.

Models wrap JSON in prose, fences and thinking, quote numbers, nest or flatten scores, forget a brace and
go on talking. All of that is form, and `extract` reads through it. It never changes or completes a value:
a number that may have been cut, a percentage, a score off the scale or two answers in one object are refused.

Why not a repair library: those exist to return *some* object from any text. They close what was cut, fill
in empty values and turn `{"score": 1` into 1, which may have been 10. A judge that invents a score is worse
than one that says it could not read the reply.
"""

from __future__ import annotations

import re
from textwrap import shorten
from typing import TYPE_CHECKING, Final, TypeVar

from judgekit.errors import AmbiguousReply, InvalidReply
from judgekit.parse import conflict
from judgekit.parse.fit import fit, is_quoted
from judgekit.parse.keys import Misfit
from judgekit.parse.scan import scan

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["extract", "read"]

Model = TypeVar("Model", bound="BaseModel")

_THINKING: Final = re.compile(r"\s*+<think>")
_THOUGHT: Final = "</think>"
_FENCE: Final = re.compile(r"```(?:json)?[^\S\n]*+\n(.*)```", re.DOTALL)


def extract(raw: str, model: type[Model]) -> Model:
    """Return the last object in `raw` that fits `model`, if `raw` gives no other answer.

    An object that was never closed counts when every value it is read for is followed by a delimiter; a
    field with a default that was begun but not ended keeps its default. Keys match exactly, else without
    regard to case, spaces, underscores and hyphens where only one does. Keys that `model` does not name are
    left to its own `extra` setting: a model for replies should ignore them, because models add some.

    An object inside another one is no answer, save under a key such as `result` or `answer`. A `<think>`
    block at the beginning counts only if nothing after it fits. Answers that agree in the fields which
    `model` requires are one answer. Time and memory grow linearly with `raw`.

    Raises `AmbiguousReply` if `raw` gives two answers that differ, and `InvalidReply` if it gives none; the
    message says what the last object lacked.
    """
    return _read(raw, model, nested=False)


def read(raw: str, model: type[Model], *, held: bool = False) -> Model:
    """Return a judge's answer: `extract`, but a differing answer inside the object is refused too.

    If the provider `held` the reply to a schema, the whole reply is the object; nothing is searched for.
    Raises `InvalidReply`.
    """
    if not held:
        return _read(raw, model, nested=True)
    text = _after_thinking(raw).strip("\ufeff \t\r\n")
    fence = _FENCE.fullmatch(text)
    text = fence[1].strip() if fence else text
    if not text.startswith("{") or conflict.exact_end(text, 0) != len(text):
        raise InvalidReply(f"the reply is not one JSON object: {_quote(raw)}")
    try:
        return fit(scan(text)[0], model)
    except Misfit as misfit:
        raise InvalidReply(str(misfit)) from None


def _read(raw: str, model: type[Model], *, nested: bool) -> Model:
    rest = _after_thinking(raw)
    try:
        return _only(rest, model, nested=nested)
    except AmbiguousReply:
        raise
    except InvalidReply:
        if rest == raw:
            raise
    return _only(raw, model, nested=nested)


def _after_thinking(raw: str) -> str:
    """Return what follows the thinking that a reply begins with.

    A second end of it may be quoted, and so may one without a beginning: then all of the reply counts.
    """
    _, end, rest = raw.partition(_THOUGHT)
    return rest if end and _THOUGHT not in rest and _THINKING.match(raw) else raw


def _only(raw: str, model: type[Model], *, nested: bool) -> Model:
    """Return the one answer in a text."""
    reason, answers = "", []
    for found in reversed(scan(raw)):
        try:
            answers.append((found, fit(found, model)))
        except Misfit as misfit:
            reason = reason or str(misfit)
    if not answers:
        raise InvalidReply(reason or f"no object in the reply: {_quote(raw)}")
    last, answer = answers[0]
    if is_quoted(last, model):
        raise AmbiguousReply("an answer within a string of another object: which one is meant is not certain")
    if not all(conflict.same(answer, other) for _, other in answers):
        raise AmbiguousReply("two answers that differ: which one is meant is not certain")
    key = conflict.differing(raw, [found for found, _ in answers], answer, nested=nested)
    if key is not None:
        raise AmbiguousReply(f"`{key}` is given again with another value: which one is meant is not certain")
    return answer


def _quote(raw: str) -> str:
    text = shorten(raw[:200], 60, placeholder="…") or raw[:59].strip()
    return repr(text) if text else "it is empty"
