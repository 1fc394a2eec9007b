"""Whether a reply gives another answer beside the one that was read from it.

A model copies from the text that it judges. That text may hold an answer, or quotes and brackets that make
an answer of what stands around them. So this check does not rely on how the scanner split the reply: if a
key of the answer has another value anywhere in the reply, the reply gives two answers, and neither is
certain.

Raw reply to validated object: the reading of what models answer.
"""

from __future__ import annotations

import json
import re
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from judgekit.errors import AmbiguousReply, InvalidReply
from judgekit.judging.fit import (
    CutOff,
    Misfit,
    fit,
    is_model,
    is_number,
    is_quoted,
    names_of,
    plain,
    shape,
    strip,
)
from judgekit.judging.scan import CUT, QUOTES, Array, Object, scan, value_at

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


def same(base_model: BaseModel, other: BaseModel) -> bool:
    """Whether two answers of one model agree in all that the model requires."""
    return all(getattr(base_model, name) == getattr(other, name) for name in _decisive(type(base_model)))


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
    mentions = [mention for text in (*texts, *in_strings) for mention in _mentions(text, wanted.keys())]
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
            plain(place["quoted"] or place["bare"]),
            value_at(text[place.end() : place.end() + most]),
            bool(place["bare"] or _FIRST.search(text, max(0, place.start() - 80), place.start())),
        )
        for place in places
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
        kind = strip(type(holder).model_fields[name].annotation)
        if not (is_number(kind) or (is_model(kind) and not isinstance(given, (int, float)))):
            continue
        if _value(given, holder, name) is not None or isinstance(given, bool):
            continue
        parts = given if isinstance(given, Array) else [given]
        words = [str(part).strip() for part in parts if isinstance(part, (int, float, str))]
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
        if is_number(strip(type(holder).model_fields[name].annotation))
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
    fields = {
        names_of(model_field, model)[0]: getattr(holder, model_field) for model_field in model.model_fields
    }
    try:
        fields[names_of(name, model)[0]] = shape(given, model.model_fields[name].annotation, name)
        return getattr(model.model_validate(fields), name)
    except CutOff:
        return _UNKNOWN
    except (Misfit, ValidationError):
        return None


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
    if not text.startswith("{") or exact_end(text, 0) != len(text):
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
    if not all(same(answer, other) for _, other in answers):
        raise AmbiguousReply("two answers that differ: which one is meant is not certain")
    key = differing(raw, [found for found, _ in answers], answer, nested=nested)
    if key is not None:
        raise AmbiguousReply(f"`{key}` is given again with another value: which one is meant is not certain")
    return answer


def _quote(raw: str) -> str:
    text = shorten(raw[:200], 60, placeholder="…") or raw[:59].strip()
    return repr(text) if text else "it is empty"
