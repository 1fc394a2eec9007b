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
from judgekit.replies.layout import cut_off_thoughts, find_exact_end, find_thoughts, is_in_thoughts
from judgekit.replies.scan import CUT, MAX_ENTRIES, QUOTES, Array, Object, read_value_at, scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Model = TypeVar("Model", bound="BaseModel")

MAX_MENTIONS = 250  # a reply that names keys of its answer more often is refused
_MAX_READ = 200_000  # characters that are read of the values of all mentions together
_LEAST_READ = 4_000  # and of each
_LEAST_SCORES = 2  # to treat numbers in prose as an assessment: a single one could be anything
_FENCE = re.compile(r"```(?:json)?[^\S\n]*+\n(.*)```", re.DOTALL)
# A key before a colon: in quotes that no backslash escapes, or bare behind a brace or comma.
_MENTION = re.compile(
    rf"(?<!\\)[{QUOTES}](?P<quoted>[^{QUOTES}\\\n]{{1,200}})[{QUOTES}]\s*+:"
    r"|[{,]\s*+(?P<bare>[A-Za-z_][\w-]{0,80}+)\s*+:"
)
# A brace just before a key: the key is the first of its object.
_FIRST = re.compile(r"\{\s*\Z")
# The start of an object that is written as a string: its first quotes are escaped.
_STRING = re.compile(rf"\{{(?:\\n|\s){{0,40}}\\{{1,8}}[{QUOTES}]")
_ESCAPED = re.compile(rf"\\{{1,8}}(?:(?=[{QUOTES}])|n)")
_AMOUNT = re.compile(fit.WORDS["amount"])


def extract(raw: str, model: type[Model]) -> Model:
    """Read the answer in a reply: the last object in `raw` that fits `model`, if nothing contradicts it.

    A value that was cut off doesn't count; a field with a default then keeps it. Keys match exactly, or else
    ignoring case, spaces, underscores and hyphens if only one key matches that way. An object inside another
    one isn't an answer, except under a key such as `result` or `answer`. Thoughts aren't answers, whatever
    they hold: an object in `<think>` or before a lone `</think>`. Answers that agree in the fields which
    `model` requires are one answer.

    Raises `AmbiguousReply` if `raw` gives two answers that differ, and `InvalidReply` if it gives none; the
    message says what the last object lacked. `UsageError` says that an argument is of another type.
    """
    require("extract", raw=raw)
    kind: object = model  # a caller in Python may pass anything
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        wanted = "a subclass of pydantic's BaseModel"
        raise UsageError(f"extract: model must be {wanted}, got {type(model).__name__}")
    return _find_only_answer(cut_off_thoughts(raw), model, nested=False)


def read_answer(raw: str, model: type[Model], *, schema_enforced: bool = False) -> Model:
    """Read the answer from a reply.

    If the provider enforced a schema, the whole reply must be the answer; otherwise it's looked for in the
    text. Raises `InvalidReply` without an answer, and `AmbiguousReply` for two that differ.
    """
    if not schema_enforced:
        return _find_only_answer(cut_off_thoughts(raw), model, nested=True)
    text = cut_off_thoughts(raw).strip("\ufeff \t\r\n")
    fence = _FENCE.fullmatch(text)
    if fence:
        text = fence[1].strip()
    is_one_object = text.startswith("{") and find_exact_end(text, 0) == len(text)
    if not is_one_object:
        raise InvalidReply(f"the reply is not one JSON object: {_quote(raw)}")
    # Strictly first: that's faster, and most replies are sound. The scanner below refuses a reply with too
    # many entries; a text this short can't have them.
    if len(text) <= MAX_ENTRIES:
        with suppress(ValidationError):
            return model.model_validate_json(text, strict=True, extra="forbid")
    try:
        return fit.fit(scan(text)[0], model)
    except fit.Misfit as misfit:
        raise InvalidReply(str(misfit)) from None


def _find_only_answer(raw: str, model: type[Model], *, nested: bool) -> Model:
    """Find the last object that fits `model`, and check that nothing in `raw` contradicts it.

    With `nested`, keys inside the answer's own object count as contradictions, too.
    """
    answers = _read_answers(raw, model)  # the last one in the text comes first
    last_object, answer = answers[0]
    if is_in_thoughts(find_thoughts(raw), last_object.start):
        raise InvalidReply("the only answer stands among the model's thoughts, which are none")
    if fit.is_quoted(last_object, model):
        raise AmbiguousReply(
            "an answer within a string of another object: which one is meant is not certain"
        )
    decisive_fields = _list_decisive_fields(model)
    for _, other_answer in answers:
        for name in decisive_fields:
            if getattr(other_answer, name) != getattr(answer, name):
                raise AmbiguousReply("two answers that differ: which one is meant is not certain")
    objects = [item for item, _ in answers]
    key = _find_contradiction(raw, objects, answer, nested=nested)
    if key is not None:
        raise AmbiguousReply(
            f"`{key}` is given again with another value: which one is meant is not certain"
        )
    return answer


def _read_answers(raw: str, model: type[Model]) -> list[tuple[Object, Model]]:
    """Read every object that fits `model`, the last one first; raises `InvalidReply` if none does."""
    why_last_misfits = ""
    answers = []
    for item in reversed(scan(raw)):
        try:
            answers.append((item, fit.fit(item, model)))
        except fit.Misfit as misfit:
            why_last_misfits = why_last_misfits or str(misfit)
    if not answers:
        raise InvalidReply(why_last_misfits or f"no object in the reply: {_quote(raw)}")
    return answers


def _quote(raw: str) -> str:
    """Quote the beginning of a reply for a message."""
    # `shorten` keeps whole words, so it leaves nothing of a reply that begins with a very long one.
    text = shorten(raw[:200], 60, placeholder="…") or raw[:59].strip()
    return repr(text) if text else "it is empty"


def _list_decisive_fields(model: type[BaseModel]) -> list[str]:
    """List the fields by which answers are compared: the required ones, or all if none is required."""
    fields = model.model_fields
    required = [name for name, field in fields.items() if field.is_required()]
    return required or list(fields)


# Finding a key of the answer that's given again with another value

_FieldsByKey = dict[str, list[tuple[BaseModel, str]]]
"""Maps a normalised key to the fields it names: pairs of the answer, or a model in it, and a field's name."""


def _find_contradiction(
    raw: str, objects: Sequence[Object], answer: BaseModel, *, nested: bool
) -> str | None:
    """Find a key of `answer` that `raw` gives again with another value; None if there's none.

    `objects` are those that give the answer, the last one first. With `nested`, keys inside that one count.
    """
    fields_by_key = _map_decisive_fields(answer)
    texts_around = _list_texts_around(raw, objects)
    last_object = objects[0]
    end = find_exact_end(raw, last_object.start)
    if end is None:  # it isn't exact JSON, so its own text is read as well
        texts = [raw]
    else:
        texts = [raw[: last_object.start], raw[end:], *_unescape_objects(texts_around)]
    for text in texts:
        for key, value, may_begin_object in _find_mentions(text, fields_by_key):
            fields = fields_by_key[key]
            if _is_other_value(value, fields, may_begin_object=may_begin_object):
                return key
            if _is_amount(value, fields):
                return key

    if nested and end is not None:
        for key, value in _walk_entries(last_object):
            fields = fields_by_key.get(key, [])
            if fields and _is_other_value(value, fields, may_begin_object=False):
                return key
    return _find_difference_in_prose(texts_around, fields_by_key)


def _unescape_objects(texts: Sequence[str]) -> list[str]:
    """Find objects that are written as strings; returns the text from there on, without its backslashes."""
    unescaped = []
    for text in texts:
        escaped_object = _STRING.search(text)
        if escaped_object:
            unescaped.append(_ESCAPED.sub("", text[escaped_object.start() :]))
    return unescaped


def _map_decisive_fields(answer: BaseModel) -> _FieldsByKey:
    """Map the normalised keys of an answer's decisive fields, and of the models in it, to these fields."""
    holders = [answer]
    for name in _list_decisive_fields(type(answer)):
        value = getattr(answer, name)
        if isinstance(value, BaseModel):
            holders.append(value)
    fields_by_key: _FieldsByKey = {}
    for holder in holders:
        for name in _list_decisive_fields(type(holder)):
            key = fit.normalise_key(fit.key_of(name, type(holder)))
            fields_by_key.setdefault(key, []).append((holder, name))
    return fields_by_key


def _list_texts_around(raw: str, objects: Sequence[Object]) -> list[str]:
    """List the texts between the objects that are exact JSON; the one behind the last object comes first.

    `objects` go from the last to the first. One that isn't exact JSON stays part of the text around it.
    """
    texts = []
    until = len(raw)
    for item in objects:
        end = find_exact_end(raw, item.start)
        if end is not None and end <= until:
            texts.append(raw[end:until])
            until = item.start
    texts.append(raw[:until])
    return texts


def _find_mentions(text: str, fields_by_key: _FieldsByKey) -> Iterator[tuple[str, object, bool]]:
    """Yield each key of the answer in a text, the value behind its colon, and whether it may open an object.

    If there are too many, yields only one, with the value `CUT`, which contradicts any answer.
    """
    mentions = []
    for match in _MENTION.finditer(text):
        key = fit.normalise_key(match["quoted"] or match["bare"])  # one of the two has matched
        if key in fields_by_key:
            mentions.append((key, match))
        if len(mentions) > MAX_MENTIONS:
            yield key, CUT, False
            return
    # Many mentions share the limit, so that a reply full of them isn't read over and over.
    most_characters = max(_LEAST_READ, _MAX_READ // (len(mentions) or 1))
    for key, match in mentions:
        start = match.start()
        follows_brace = _FIRST.search(text, max(0, start - 80), start) is not None
        value = read_value_at(text[match.end() : match.end() + most_characters])
        # The match of a bare key begins at its own brace or comma, so there's no brace before it.
        yield key, value, follows_brace or bool(match["bare"])


def _walk_entries(value: Object | Array) -> Iterator[tuple[str, object]]:
    """Yield every key (normalised) and value at any depth; items of a list have the key ""."""
    pairs: list[tuple[str, object]]
    if isinstance(value, Object):
        pairs = list(value.items())
    else:
        pairs = [("", item) for item in value]
    for key, item in pairs:
        yield fit.normalise_key(key), item
        if isinstance(item, (Object, Array)):
            yield from _walk_entries(item)


def _is_other_value(
    mention: object, fields: list[tuple[BaseModel, str]], *, may_begin_object: bool
) -> bool:
    """Whether a value that stands elsewhere in the reply contradicts the answer's `fields` of the same name.

    It does if it's valid for one of them and equal to none. A value that was cut off may have been any, so it
    contradicts them, too, unless its text may just be the beginning of the answer's own object
    (`may_begin_object`).
    """
    is_cut = False
    is_valid = False
    for holder, name in fields:
        value = _validate_value(mention, holder, name)
        if value is CUT:
            is_cut = True
        elif value is not None and value == getattr(holder, name):
            return False
        elif value is not None:
            is_valid = True
    if is_valid:
        return True
    return is_cut and not may_begin_object


def _is_amount(value: object, fields: list[tuple[BaseModel, str]]) -> bool:
    """Whether a value says an amount that's invalid for its field, such as "90 %" or 7 of 5.

    Such a value can't be the answer's own, but it may contradict the answer.
    """
    parts = value if isinstance(value, Array) else [value]
    amounts = []
    for part in parts:
        if isinstance(part, (int, float, str)):
            amounts += re.split(r"[/,;]\s?", str(part).strip())
    if not amounts or not all(map(_AMOUNT.fullmatch, amounts)):
        return False
    for holder, name in fields:
        annotation = _get_annotation(holder, name)
        # A text such as "4, 3, 5" may stand for the numbers of a nested object.
        has_numbers_within = fit.is_model(annotation) and not isinstance(value, (int, float))
        takes_amounts = fit.is_number(annotation) or has_numbers_within
        is_invalid = _validate_value(value, holder, name) is None
        if takes_amounts and is_invalid:
            return True
    return False


def _get_annotation(holder: BaseModel, name: str) -> object:
    """Return the type that a field is annotated with, without `Annotated` and `| None`."""
    return fit.unwrap_annotation(type(holder).model_fields[name].annotation)


def _validate_value(value: object, holder: BaseModel, name: str) -> object:
    """Validate a value for a field of `holder`, whose other fields keep their values.

    Returns the value as the field would hold it; `CUT` if it was cut off, and None if it isn't valid.
    """
    model = type(holder)
    values_by_key = {}
    for other in model.model_fields:
        values_by_key[fit.key_of(other, model)] = getattr(holder, other)
    try:
        shaped = fit.shape(value, _get_annotation(holder, name), name)
        values_by_key[fit.key_of(name, model)] = shaped
        return getattr(model.model_validate(values_by_key), name)
    except fit.CutOff:
        return CUT
    except (fit.Misfit, ValidationError):
        return None


def _find_difference_in_prose(texts: list[str], fields_by_key: _FieldsByKey) -> str | None:
    """Find a score that prose or markup states differently, such as "Accuracy: 2" beside `"accuracy": 4`.

    Finds nothing unless the texts together state every score, since a single number could mean anything.
    Returns the key of the first score that differs, or None.
    """
    scores = {}
    spellings = {}  # patterns that match a key written with spaces, underscores, hyphens or nothing
    for key, fields in fields_by_key.items():
        for holder, name in fields:
            if fit.is_number(_get_annotation(holder, name)):
                words = re.split(r"[\s_-]+", fit.key_of(name, type(holder)))
                spellings[key] = r"[\s_-]?".join(map(re.escape, words))
                scores[key] = getattr(holder, name)
    if len(scores) < _LEAST_SCORES:
        return None
    mentions = _find_numbers_in_prose(texts, list(spellings.values()))
    mentioned_keys = {key for key, _ in mentions}
    if mentioned_keys != scores.keys():
        return None
    for key, number in mentions:
        if number != abs(scores[key]):  # a dash before a number may be its sign
            return key
    return None


def _find_numbers_in_prose(
    texts: Sequence[str], spellings: Sequence[str]
) -> list[tuple[str, float]]:
    """List the keys (normalised) and numbers that prose states; `spellings` are the patterns of the keys."""
    names = "|".join(spellings)
    pattern = re.compile(fit.WORDS["said"].replace("(?&NAMES)", names))
    mentions = []
    for text in texts:
        for match in pattern.finditer(text):
            # In "Accuracy:\n1. The answer is …" the 1 numbers the item of a list, and isn't a score.
            next_mark = match["after"].strip()[:1]
            is_item_number = "\n" in match["between"] and next_mark in (".", ")", ":", "-")
            if not is_item_number:
                mentions.append((fit.normalise_key(match["key"]), float(match["number"])))
    return mentions
