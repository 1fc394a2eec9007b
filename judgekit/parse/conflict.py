"""Whether a reply gives another answer beside the one that was read from it.

A model copies from the text that it judges. That text may hold an answer, or quotes and brackets that make an
answer of what stands around them. So this check does not rely on how the scanner split the reply: if a key of
the answer has another value anywhere in the reply, the reply gives two answers, and neither is certain.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from pydantic import BaseModel, ValidationError

from judgekit.parse.fit import shape
from judgekit.parse.keys import CutOff, Misfit, names_of, plain
from judgekit.parse.scan import CUT, Array, Object, value_at
from judgekit.parse.tokens import QUOTES

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_MENTIONS: Final = 250
"""A reply that names keys of its answer more often than this is refused."""

_MAX_READ: Final = 200_000  # characters that are read of the values of all mentions together
_LEAST_READ: Final = 4_000  # and of each
_MENTION: Final = re.compile(
    rf"(?<!\\)[{QUOTES}](?P<quoted>[^{QUOTES}\\\n]{{1,200}})[{QUOTES}]\s*+:"
    r"|[{,]\s*+(?P<bare>[A-Za-z_][\w-]{0,80}+)\s*+:"
)
_FIRST: Final = re.compile(r"\{\s*\Z")
_UNKNOWN: Final = object()


class _Mention(NamedTuple):
    key: str
    value: object
    begins: bool = False  # an object, or a clause of prose: if its value breaks off, it says nothing yet


def same(one: BaseModel, other: BaseModel) -> bool:
    """Whether two answers of one model agree in all that the model requires."""
    return all(getattr(one, name) == getattr(other, name) for name in _decisive(type(one)))


def differing(raw: str, found: Object, answer: BaseModel, *, nested: bool) -> str | None:
    """Return a key of `answer` that `raw` gives again with another value, None where there is none.

    `found` is the object that `answer` was read from. If it is exact JSON, its strings are no part of the
    search, and the objects in it only with `nested`.
    """
    wanted = _wanted(answer)
    end = exact_end(raw, found.start)
    texts = [raw] if end is None else [raw[: found.start], raw[end:]]
    mentions = [each for text in texts for each in _mentions(text, wanted.keys())]
    if nested and end is not None:
        mentions += [each for each in _inside(found) if each.key in wanted]
    return next((each.key for each in mentions if _is_other(each, wanted[each.key])), None)


def exact_end(raw: str, start: int) -> int | None:
    """Return where the JSON object that begins at `start` ends; None if it is not JSON to the letter."""
    try:
        return _DECODER.raw_decode(raw, start)[1]
    except (ValueError, RecursionError):
        return None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a key is given twice")
    return found


def _no_number(word: str) -> NoReturn:
    raise ValueError(word)


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_number)


def _decisive(model: type[BaseModel]) -> list[str]:
    """Return the fields by which answers differ: those that are required, or all."""
    fields = model.model_fields
    return [name for name, field in fields.items() if field.is_required()] or list(fields)


def _wanted(answer: BaseModel) -> dict[str, list[tuple[BaseModel, str]]]:
    """Return the keys (plain) of an answer and of the models in it, with where their values stand."""
    found: dict[str, list[tuple[BaseModel, str]]] = {}
    inner = [getattr(answer, name) for name in _decisive(type(answer))]
    for holder in (answer, *(each for each in inner if isinstance(each, BaseModel))):
        for name in _decisive(type(holder)):
            for key in {plain(key) for key in names_of(name, type(holder))}:
                found.setdefault(key, []).append((holder, name))
    return found


def _mentions(text: str, wanted: Any) -> list[_Mention]:  # noqa: ANN401 - a view of keys
    """Return the keys in a text that are among the `wanted`, with what stands behind their colons."""
    places = [
        each for each in _MENTION.finditer(text) if plain(each["quoted"] or each["bare"] or "") in wanted
    ][: MAX_MENTIONS + 1]
    if len(places) > MAX_MENTIONS:
        return [_Mention(plain(places[-1]["quoted"] or places[-1]["bare"]), CUT)]
    most = max(_LEAST_READ, _MAX_READ // (len(places) or 1))
    return [
        _Mention(
            plain(each["quoted"] or each["bare"]),
            value_at(text[each.end() : each.end() + most]),
            bool(each["bare"] or _FIRST.search(text, max(0, each.start() - 80), each.start())),
        )
        for each in places
    ]


def _inside(value: Object | Array) -> Iterator[_Mention]:
    """Yield every key at any depth."""
    for key, item in value.items() if isinstance(value, Object) else (("", item) for item in value):
        yield _Mention(plain(key), item)
        if isinstance(item, (Object, Array)):
            yield from _inside(item)


def _is_other(mention: _Mention, places: list[tuple[BaseModel, str]]) -> bool:
    """Whether a mention gives a value that the answer might have there, and does not have."""
    values = [(_value(mention.value, *place), getattr(*place)) for place in places]
    if any(value is not _UNKNOWN and value == own for value, own in values if value is not None):
        return False
    return any(value is not None for value, _ in values) and not (
        mention.begins and all(value in (None, _UNKNOWN) for value, _ in values)
    )


def _value(given: object, holder: BaseModel, name: str) -> object:
    """Return what a field of `holder` is when this is given for it: `_UNKNOWN` if cut, None if no value."""
    model = type(holder)
    fields = {names_of(each, model)[0]: getattr(holder, each) for each in model.model_fields}
    try:
        fields[names_of(name, model)[0]] = shape(given, model.model_fields[name].annotation, name)
        return getattr(model.model_validate(fields), name)
    except CutOff:
        return _UNKNOWN
    except (Misfit, ValidationError):
        return None
