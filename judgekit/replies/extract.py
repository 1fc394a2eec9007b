"""Finds the one answer in a model's reply, and checks that the reply doesn't give another one.

A model copies from the text that it judges. That text may hold an answer, or quotes and brackets that turn
their surroundings into one. So the second check doesn't rely on how the scanner split the reply: if a key of
the answer has a different value anywhere in the reply, the reply gives two answers, and neither is certain.
"""

from __future__ import annotations

import re
from contextlib import suppress
from textwrap import shorten
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ValidationError

from judgekit.config import require
from judgekit.errors import AmbiguousReply, InvalidReply, UsageError
from judgekit.replies import fit
from judgekit.replies.layout import after_thoughts, exact_end, is_in_thoughts, thoughts_in
from judgekit.replies.scan import CUT, MAX_ENTRIES, QUOTES, Array, Object, scan, value_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Model = TypeVar("Model", bound="BaseModel")

MAX_MENTIONS = 250  # a reply that names keys of its answer more often is refused
_MAX_READ = 200_000  # characters that are read of the values of all mentions together
_LEAST_READ = 4_000  # and of each
_LEAST_SCORES = 2  # to treat numbers in prose as an assessment: a single one could be anything
_FENCE = re.compile(r"```(?:json)?[^\S\n]*+\n(.*)```", re.DOTALL)
_MENTION = re.compile(
    rf"(?<!\\)[{QUOTES}](?P<quoted>[^{QUOTES}\\\n]{{1,200}})[{QUOTES}]\s*+:"
    r"|[{,]\s*+(?P<bare>[A-Za-z_][\w-]{0,80}+)\s*+:"
)
_FIRST = re.compile(r"\{\s*\Z")
_STRING = re.compile(rf"\{{(?:\\n|\s){{0,40}}\\{{1,8}}[{QUOTES}]")
_ESCAPED = re.compile(rf"\\{{1,8}}(?:(?=[{QUOTES}])|n)")
_AMOUNT = re.compile(fit.WORDS["amount"])


def extract(raw: str, model: type[Model]) -> Model:
    """Return the last object in `raw` that fits `model`, if `raw` gives no other answer.

    A value that was cut off doesn't count; a field with a default then keeps it. Keys match exactly, or else
    ignoring case, spaces, underscores and hyphens if only one key matches that way. An object inside another
    one isn't an answer, except under a key such as `result` or `answer`. Thoughts aren't answers, whatever
    they hold: an object in `<think>` or before a lone `</think>`. Answers that agree in the fields which
    `model` requires are one answer.

    Raises `AmbiguousReply` if `raw` gives two answers that differ, and `InvalidReply` if it gives none; the
    message says what the last object lacked. `UsageError` says that an argument is of another type.
    """
    require("extract", raw=raw)
    kind: object = model
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        wanted = "a subclass of pydantic's BaseModel"
        raise UsageError(f"extract: model must be {wanted}, got {type(model).__name__}")
    return _read(raw, model, nested=False)


def read(raw: str, model: type[Model], *, schema_enforced: bool = False) -> Model:
    """Read the answer from a reply; raises `InvalidReply`.

    If the provider enforced a schema, the whole reply must be the answer.
    """
    if not schema_enforced:
        return _read(raw, model, nested=True)
    text = after_thoughts(raw).strip("\ufeff \t\r\n")
    fence = _FENCE.fullmatch(text)
    if fence:
        text = fence[1].strip()
    if not text.startswith("{") or exact_end(text, 0) != len(text):
        raise InvalidReply(f"the reply is not one JSON object: {_quote(raw)}")
    # Fewer characters can't hold more entries than allowed, and a sound reply needs no tolerance.
    if len(text) <= MAX_ENTRIES:
        with suppress(ValidationError):
            return model.model_validate_json(text, strict=True, extra="forbid")
    try:
        return fit.fit(scan(text)[0], model)
    except fit.Misfit as misfit:
        raise InvalidReply(str(misfit)) from None


def _read(raw: str, model: type[Model], *, nested: bool) -> Model:
    return _only(after_thoughts(raw), model, nested=nested)


def _only(raw: str, model: type[Model], *, nested: bool) -> Model:
    reason = ""
    answers = []
    for item in reversed(scan(raw)):
        try:
            answers.append((item, fit.fit(item, model)))
        except fit.Misfit as misfit:
            reason = reason or str(misfit)
    if not answers:
        raise InvalidReply(reason or f"no object in the reply: {_quote(raw)}")
    last, answer = answers[0]
    if is_in_thoughts(thoughts_in(raw), last.start):
        raise InvalidReply("the only answer stands among the model's thoughts, which are none")
    if fit.is_quoted(last, model):
        raise AmbiguousReply(
            "an answer within a string of another object: which one is meant is not certain"
        )
    objects = []
    deciding = []
    for item, other in answers:
        objects.append(item)
        deciding.append([getattr(other, name) for name in _list_decisive_fields(model)])
    if any(values != deciding[0] for values in deciding):
        raise AmbiguousReply("two answers that differ: which one is meant is not certain")
    key = _differing(raw, objects, answer, nested=nested)
    if key is not None:
        raise AmbiguousReply(
            f"`{key}` is given again with another value: which one is meant is not certain"
        )
    return answer


def _quote(raw: str) -> str:
    text = shorten(raw[:200], 60, placeholder="…") or raw[:59].strip()
    return repr(text) if text else "it is empty"


def _list_decisive_fields(model: type[BaseModel]) -> list[str]:
    """List the fields that tell answers apart: the required ones, or all if none is required."""
    fields = model.model_fields
    return [name for name, field in fields.items() if field.is_required()] or list(fields)


# Finding a key of the answer that's given again with another value

_Places = dict[str, list[tuple[BaseModel, str]]]
"""Maps a plain key to the fields of an answer, and of its nested models, that the key names."""


def _differing(
    raw: str, objects: Sequence[Object], answer: BaseModel, *, nested: bool
) -> str | None:
    """Return a key of `answer` that `raw` gives again with another value, or None."""
    wanted = _decisive_places(answer)
    around = _list_texts_around(raw, objects)
    last = objects[0]
    end = exact_end(raw, last.start)
    if end is None:
        texts = [raw]
    else:
        texts = [raw[: last.start], raw[end:]]
        for text in around:
            # If an object is written as a string, add the text from there on, without its backslashes.
            string = _STRING.search(text)
            if string:
                texts.append(_ESCAPED.sub("", text[string.start() :]))
    for text in texts:
        for key, value, begins in _find_mentions(text, wanted):
            if _is_other(value, wanted[key], begins=begins) or _is_amount(value, wanted[key]):
                return key
    if nested and end is not None:
        for key, value in _inside(last):
            if key in wanted and _is_other(value, wanted[key], begins=False):
                return key
    return _find_difference_in_prose(around, wanted)


def _decisive_places(answer: BaseModel) -> _Places:
    """Return the decisive fields of an answer and of the models in it, by their plain keys."""
    holders = [answer]
    for name in _list_decisive_fields(type(answer)):
        value = getattr(answer, name)
        if isinstance(value, BaseModel):
            holders.append(value)
    places: _Places = {}
    for holder in holders:
        for name in _list_decisive_fields(type(holder)):
            key = fit.plain(fit.key_of(name, type(holder)))
            places.setdefault(key, []).append((holder, name))
    return places


def _list_texts_around(raw: str, objects: Sequence[Object]) -> list[str]:
    """Return the texts around the objects that are exact JSON, from the last one on."""
    around = []
    until = len(raw)
    for item in objects:
        end = exact_end(raw, item.start)
        if end is not None and end <= until:
            around.append(raw[end:until])
            until = item.start
    around.append(raw[:until])
    return around


def _find_mentions(text: str, wanted: _Places) -> Iterator[tuple[str, object, bool]]:
    """Yield each wanted key in a text, the value behind its colon, and whether an object may begin there."""
    places = []
    for match in _MENTION.finditer(text):
        key = fit.plain(match["quoted"] or match["bare"])
        if key in wanted:
            places.append((key, match))
        if len(places) > MAX_MENTIONS:
            yield key, CUT, False
            return
    most = max(_LEAST_READ, _MAX_READ // (len(places) or 1))
    for key, match in places:
        start = match.start()
        begins = match["bare"] or _FIRST.search(text, max(0, start - 80), start)
        value = value_at(text[match.end() : match.end() + most])
        yield key, value, bool(begins)


def _inside(value: Object | Array) -> Iterator[tuple[str, object]]:
    """Yield every key at any depth, and its value."""
    for key, item in value.items() if isinstance(value, Object) else (("", item) for item in value):
        yield fit.plain(key), item
        if isinstance(item, (Object, Array)):
            yield from _inside(item)


def _is_other(mention: object, places: list[tuple[BaseModel, str]], *, begins: bool) -> bool:
    """Whether a value would be valid there, but isn't the answer's."""
    is_cut = False
    is_known = False
    for holder, name in places:
        value = _validate_value(mention, holder, name)
        if value is CUT:
            is_cut = True
        elif value is not None:
            if value == getattr(holder, name):
                return False
            is_known = True
    return is_known or (is_cut and not begins)


def _is_amount(value: object, places: list[tuple[BaseModel, str]]) -> bool:
    """Whether a value is an amount in place of a number, in a form or size that no answer has."""
    parts = value if isinstance(value, Array) else [value]
    words = []
    for part in parts:
        if isinstance(part, (int, float, str)):
            words += re.split(r"[/,;]\s?", str(part).strip())
    if not words or not all(map(_AMOUNT.fullmatch, words)):
        return False
    for holder, name in places:
        kind = _get_kind(holder, name)
        is_several = fit.is_model(kind) and not isinstance(value, (int, float))
        if (fit.is_number(kind) or is_several) and _validate_value(value, holder, name) is None:
            return True
    return False


def _get_kind(holder: BaseModel, name: str) -> object:
    """Return the type that a field is annotated with."""
    return fit.strip(type(holder).model_fields[name].annotation)


def _validate_value(value: object, holder: BaseModel, name: str) -> object:
    """Validate a value for a field of `holder`: returns `CUT` if it's cut, None if it isn't valid."""
    model = type(holder)
    fields = {}
    for other in model.model_fields:
        fields[fit.key_of(other, model)] = getattr(holder, other)
    try:
        fields[fit.key_of(name, model)] = fit.shape(value, _get_kind(holder, name), name)
        return getattr(model.model_validate(fields), name)
    except fit.CutOff:
        return CUT
    except (fit.Misfit, ValidationError):
        return None


def _find_difference_in_prose(texts: list[str], wanted: _Places) -> str | None:
    """Find a key that prose or markup gives a different number, if it gives every wanted key a number."""
    numbers = {}
    spellings = {}
    for key, places in wanted.items():
        for holder, name in places:
            if fit.is_number(_get_kind(holder, name)):
                words = re.split(r"[\s_-]+", fit.key_of(name, type(holder)))
                spellings[key] = r"[\s_-]?".join(map(re.escape, words))
                numbers[key] = getattr(holder, name)
    if len(numbers) < _LEAST_SCORES:
        return None
    names = "|".join(spellings.values())
    pattern = re.compile(fit.WORDS["said"].replace("(?&NAMES)", names))
    mentions = []
    for text in texts:
        for match in pattern.finditer(text):
            next_mark = match["after"].strip()[:1]
            is_numbered_line = "\n" in match["between"] and next_mark in (".", ")", ":", "-")
            if not is_numbered_line:
                mentions.append((fit.plain(match["key"]), float(match["number"])))
    if dict(mentions).keys() == numbers.keys():
        for key, number in mentions:
            if number != abs(numbers[key]):  # a dash before a number may be its sign
                return key
    return None
