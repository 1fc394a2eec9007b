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

from judgekit.parse import kinds
from judgekit.parse.fit import shape
from judgekit.parse.keys import CutOff, Misfit, names_of, plain
from judgekit.parse.scan import CUT, Array, Object, value_at
from judgekit.parse.tokens import QUOTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_MENTIONS: Final = 250
"""A reply that names keys of its answer more often than this is refused."""

_MAX_READ: Final = 200_000  # characters that are read of the values of all mentions together
_LEAST_READ: Final = 4_000  # and of each
_MENTION: Final = re.compile(
    rf"(?<!\\)[{QUOTES}](?P<quoted>[^{QUOTES}\\\n]{{1,200}})[{QUOTES}]\s*+:"
    r"|[{,]\s*+(?P<bare>[A-Za-z_][\w-]{0,80}+)\s*+:"
)
_ASSESSED: Final = 2
_FIRST: Final = re.compile(r"\{\s*\Z")
_STRING: Final = re.compile(rf"\{{(?:\\n|\s){{0,40}}\\{{1,8}}[{QUOTES}]")
_ESCAPED: Final = re.compile(rf"\\{{1,8}}(?:(?=[{QUOTES}])|n)")
_AMOUNT: Final = re.compile(
    r"[+-]?\d{1,9}(?:[.,]\d{1,9})?\s{0,3}(?:%|(?:/|out of|of)\s{0,3}\d{1,9}|points?|stars?)?"
    r"|one|two|three|four|five|six|seven|eight|nine|ten|zero",
    re.IGNORECASE,
)
_FILLER: Final = r"(?:quality|score|rating|value|grade|is|was|of|at|as|gets|to)\b"
_SAID: Final = (  # a name, the number that it is given, and what shows that the number ends there
    r"(?<!\w)(?P<key>{names})(?!\w)(?P<between>[^\w{{\[]{{0,12}}(?:{filler}[^\w{{\[]{{0,12}}){{0,3}})"
    r"(?P<number>\d{{1,2}}(?:\.\d{{1,4}})?)(?P<unit>\s?(?:%|(?:/|out of|of)\s?\d{{1,3}}|points?|stars?)?)"
    r"(?=(?P<after>[\s*_`'\")\]}}]{{0,8}}(?:\Z|[,;!<|(:&]|\.(?!\d)|[-\u2013\u2014](?!\s?\d)|(?<=[\n)\"'\]}}])"
    r"|(?:because|since|as|and|but|with|due|{names})\b)))"
)
_UNKNOWN: Final = object()


class _Mention(NamedTuple):
    key: str
    value: object
    begins: bool = False  # an object, or a clause of prose: if its value breaks off, it says nothing yet


def same(one: BaseModel, other: BaseModel) -> bool:
    """Whether two answers of one model agree in all that the model requires."""
    return all(getattr(one, name) == getattr(other, name) for name in _decisive(type(one)))


def differing(raw: str, objects: Sequence[Object], answer: BaseModel, *, nested: bool) -> str | None:
    """Return a key of `answer` that `raw` gives again with another value, None where there is none.

    `objects` give `answer`, the one that it was read from first. If that is exact JSON, its strings are no
    part of the search, and the objects in it only with `nested`. Beside it, numbers count that no score can
    be, and numbers in prose, if each key that wants one has one.
    """
    wanted, found = _wanted(answer), objects[0]
    end = exact_end(raw, found.start)
    texts = [raw] if end is None else [raw[: found.start], raw[end:]]
    between = _between(raw, objects)
    in_strings = [] if end is None else [each for text in between for each in _unescaped(text)]
    mentions = [each for text in (*texts, *in_strings) for each in _mentions(text, wanted.keys())]
    inside = [each for each in _inside(found) if each.key in wanted] if nested and end is not None else []
    other = (
        each.key
        for each in (*mentions, *inside)
        if _is_other(each, wanted[each.key]) or (each not in inside and _is_amount(each, wanted[each.key]))
    )
    return next(other, None) or _otherwise_in_prose(between, wanted)


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


def _between(raw: str, objects: Sequence[Object]) -> list[str]:
    """Return what stands around those of the objects, given from the last on, that are exact JSON."""
    texts, until = [], len(raw)
    for found in objects:
        end = exact_end(raw, found.start)
        if end is not None and end <= until:
            texts.append(raw[end:until])
            until = found.start
    return [*texts, raw[:until]]


def _unescaped(text: str) -> list[str]:
    """Return the text from the first object on that is written as a string, without its backslashes."""
    begun = _STRING.search(text)
    return [_ESCAPED.sub("", text[begun.start() :])] if begun else []


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


def _is_amount(mention: _Mention, places: list[tuple[BaseModel, str]]) -> bool:
    """Whether a mention gives an amount where a number is wanted, in a form or size that no answer has."""
    given = mention.value
    for holder, name in places:
        kind = kinds.strip(type(holder).model_fields[name].annotation)
        if not (kinds.is_number(kind) or (kinds.is_model(kind) and not isinstance(given, (int, float)))):
            continue
        if _value(given, holder, name) is not None or isinstance(given, bool):
            continue
        parts = given if isinstance(given, Array) else [given]
        words = [str(each).strip() for each in parts if isinstance(each, (int, float, str))]
        if words and all(_AMOUNT.fullmatch(part) for word in words for part in re.split(r"[/,;]\s?", word)):
            return True
    return False


def _otherwise_in_prose(texts: list[str], wanted: dict[str, list[tuple[BaseModel, str]]]) -> str | None:
    """Return a key that prose or markup gives another number, if all keys that want one are given one.

    One number beside an answer may be anything; two at least make an assessment.
    """
    numbers = {
        plain(key): (re.split(r"[\s_-]+", key), getattr(holder, name))
        for places in wanted.values()
        for holder, name in places
        if kinds.is_number(kinds.strip(type(holder).model_fields[name].annotation))
        for key in names_of(name, type(holder))
    }
    if len(numbers) < _ASSESSED:
        return None
    names = "|".join(r"[\s_-]?".join(map(re.escape, words)) for words, _ in numbers.values())
    pattern = re.compile(_SAID.format(names=names, filler=_FILLER), re.IGNORECASE)
    said = [each for text in texts for each in pattern.finditer(text) if not _begins_list(each)]
    if {plain(each["key"]) for each in said} != set(numbers):
        return None
    # A dash before a number may be its sign.
    given = ((plain(each["key"]), float(each["number"])) for each in said)
    return next((key for key, number in given if number != abs(numbers[key][1])), None)


def _begins_list(said: re.Match[str]) -> bool:
    """Whether the number under a heading is that of the first item of a list."""
    return "\n" in said["between"] and said["after"].strip()[:1] in (".", ")", ":", "-")


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
