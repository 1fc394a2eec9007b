"""Raw reply to validated object: the reading of what models answer.

Models wrap JSON in prose, fences and thinking, quote numbers, nest or flatten scores, forget a brace and
go on talking. All of that is form, and `extract` reads through it. It never changes or completes a value:
a number that may have been cut, a percentage, a score off the scale or two answers in one object are refused.

Why not a repair library: those exist to return *some* object from any text. They close what was cut, fill
in empty values and turn `{"score": 1` into 1, which may have been 10. A judge that invents a score is worse
than one that says it could not read the reply.
"""

from __future__ import annotations

from textwrap import shorten
from typing import TYPE_CHECKING, TypeVar

from judgekit.errors import InvalidReply
from judgekit.parse.fit import fit, is_quoted, loose_keys
from judgekit.parse.keys import Misfit
from judgekit.parse.scan import scan

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["extract"]

Model = TypeVar("Model", bound="BaseModel")


def extract(raw: str, model: type[Model]) -> Model:
    """Return the last object in `raw` that fits `model`.

    An object that was never closed counts when every value it is read for is followed by a delimiter; a
    field with a default that was begun but not ended keeps its default.
    Thinking comes before the answer, so what stands in a `<think>` block counts only if nothing after it
    fits. One that stands in a string of another object is nobody's answer: it may be quoted. Keys match
    exactly, else without regard to case, spaces, underscores and hyphens where only one does. Keys that
    `model` does not name are left to its own `extra` setting: a model for replies should ignore them,
    because models add some. Time and memory grow linearly with `raw`.

    Raises `InvalidReply`, whose message says what the last object lacked.
    """
    reason, behind = "", set[str]()
    for found in reversed(scan(raw)):
        behind |= loose_keys(found.tail)
        try:
            value = fit(found, model, behind)
        except Misfit as misfit:
            reason = reason or str(misfit)
            continue
        if is_quoted(found, model):
            raise InvalidReply(
                "an answer within a string of another object: which one is meant is not certain"
            )
        return value
    raise InvalidReply(reason or f"no object in the reply: {_quote(raw)}")


def _quote(raw: str) -> str:
    text = shorten(raw[:200], 60, placeholder="…") or raw[:59].strip()
    return repr(text) if text else "it is empty"
