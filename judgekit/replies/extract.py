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
_TOTAL_CHARS = 200_000  # characters of mentioned values to read, in total
_MIN_CHARS_PER_MENTION = 4_000  # even if the total is exceeded
_MIN_SCORES = 2  # to treat numbers in prose as an assessment: a single one could mean anything
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
    """Extract the answer from a reply: the last object in `raw` that fits `model`, if nothing contradicts it.

    A truncated value is ignored, so the field gets its default. Keys match exactly, or else ignoring case,
    spaces, underscores and hyphens if only one key matches that way. A nested object only counts as an answer
    under a key such as `result` or `answer`. Anything inside `<think>`, or before a lone `</think>`, doesn't
    count. Answers are considered the same if they agree in all fields that `model` requires.

    Raises `AmbiguousReply` if `raw` contains two different answers, and `InvalidReply` if it contains none;
    the message says what the last object lacked. Raises `UsageError` if an argument has the wrong type.
    """
    require("extract", raw=raw)
    kind: object = model  # an untyped caller can pass anything
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        wanted = "a subclass of pydantic's BaseModel"
        raise UsageError(f"extract: model must be {wanted}, got {type(model).__name__}")
    return _find_only_answer(cut_off_thoughts(raw), model, nested=False)


def read_answer(raw: str, model: type[Model], *, schema_enforced: bool = False) -> Model:
    """Read the answer from a reply, which must be the entire reply if the provider enforced a schema.

    Raises `InvalidReply` if there's no answer, and `AmbiguousReply` if there are two different ones.
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

    # Most replies are valid, so try the fast, strict parser first. Leave long replies to the scanner, which
    # refuses those with too many entries.
    if len(text) <= MAX_ENTRIES:
        with suppress(ValidationError):
            return model.model_validate_json(text, strict=True, extra="forbid")
    try:
        return fit.fit(scan(text)[0], model)
    except fit.Misfit as misfit:
        raise InvalidReply(str(misfit)) from None


def _find_only_answer(raw: str, model: type[Model], *, nested: bool) -> Model:
    """Find the last object that fits `model`, and check that nothing in `raw` contradicts it.

    If `nested`, also look for contradicting keys inside the answer itself.
    """
    answers = _read_answers(raw, model)  # in reverse order
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
    """Read all objects that fit `model`, last one first. Raises `InvalidReply` if none fits."""
    last_misfit = ""
    answers = []
    for item in reversed(scan(raw)):
        try:
            answers.append((item, fit.fit(item, model)))
        except fit.Misfit as misfit:
            last_misfit = last_misfit or str(misfit)
    if not answers:
        raise InvalidReply(last_misfit or f"no object in the reply: {_quote(raw)}")
    return answers


def _quote(raw: str) -> str:
    """Quote the beginning of a reply for a message."""
    # `shorten` only cuts between words, so the result is empty if the first word is too long.
    text = shorten(raw[:200], 60, placeholder="…") or raw[:59].strip()
    return repr(text) if text else "it is empty"


def _list_decisive_fields(model: type[BaseModel]) -> list[str]:
    """List the fields to compare between answers: the required ones, or all if none is required."""
    fields = model.model_fields
    required = [name for name, field in fields.items() if field.is_required()]
    return required or list(fields)


# Finding a key of the answer that's given again with another value

_FieldsByKey = dict[str, list[tuple[BaseModel, str]]]
"""Maps a normalised key to (model, field name) pairs, where the model is the answer or nested in it."""


def _find_contradiction(
    raw: str, objects: Sequence[Object], answer: BaseModel, *, nested: bool
) -> str | None:
    """Find a key of `answer` that appears elsewhere in `raw` with a different value, or return None.

    `objects` are all objects that give this answer, last one first. If `nested`, also search inside the last.
    """
    fields_by_key = _map_decisive_fields(answer)
    surroundings = _split_at_objects(raw, objects)
    last_object = objects[0]
    end = find_exact_end(raw, last_object.start)
    if end is None:
        # Without exact JSON, the scanner may have misjudged where the object ends, so search everything.
        texts = [raw]
    else:
        texts = [raw[: last_object.start], raw[end:], *_unescape_objects(surroundings)]
    for text in texts:
        for key, value, may_begin_object in _find_mentions(text, fields_by_key):
            fields = fields_by_key[key]
            if _contradicts(value, fields, may_begin_object=may_begin_object):
                return key
            if _is_invalid_amount(value, fields):
                return key

    if nested and end is not None:
        for key, value in _walk_entries(last_object):
            fields = fields_by_key.get(key, [])
            if fields and _contradicts(value, fields, may_begin_object=False):
                return key

    return _find_difference_in_prose(surroundings, fields_by_key)


def _unescape_objects(texts: Sequence[str]) -> list[str]:
    """Remove backslashes from each text that contains a JSON object in a string, starting at that object."""
    unescaped = []
    for text in texts:
        escaped_object = _STRING.search(text)
        if escaped_object:
            unescaped.append(_ESCAPED.sub("", text[escaped_object.start() :]))
    return unescaped


def _map_decisive_fields(answer: BaseModel) -> _FieldsByKey:
    """Map normalised keys to the decisive fields of the answer and of the models nested in it."""
    models = [answer]
    for name in _list_decisive_fields(type(answer)):
        value = getattr(answer, name)
        if isinstance(value, BaseModel):
            models.append(value)

    fields_by_key: _FieldsByKey = {}
    for model in models:
        for name in _list_decisive_fields(type(model)):
            key = fit.normalise_key(fit.key_of(name, type(model)))
            fields_by_key.setdefault(key, []).append((model, name))
    return fields_by_key


def _split_at_objects(raw: str, objects: Sequence[Object]) -> list[str]:
    """List the parts of `raw` before, between and after the exact JSON objects, last part first.

    `objects` are in reverse order, too.
    """
    parts = []
    part_end = len(raw)
    for item in objects:
        object_end = find_exact_end(raw, item.start)
        if object_end is not None and object_end <= part_end:
            parts.append(raw[object_end:part_end])
            part_end = item.start
    parts.append(raw[:part_end])
    return parts


def _find_mentions(text: str, fields_by_key: _FieldsByKey) -> Iterator[tuple[str, object, bool]]:
    """Find the answer's keys in a text.

    Yields the key, the value after its colon, and whether the key may be the first in an object. If there are
    too many mentions, yields a single one with the value `CUT`, which contradicts any answer.
    """
    mentions = []
    for match in _MENTION.finditer(text):
        key = fit.normalise_key(match["quoted"] or match["bare"])
        if key in fields_by_key:
            mentions.append((key, match))
        if len(mentions) > MAX_MENTIONS:
            yield key, CUT, False
            return

    # Divide the total among all mentions, so that a reply full of them doesn't take quadratic time.
    max_chars = max(_MIN_CHARS_PER_MENTION, _TOTAL_CHARS // (len(mentions) or 1))
    for key, match in mentions:
        start = match.start()
        follows_brace = _FIRST.search(text, max(0, start - 80), start) is not None
        value = read_value_at(text[match.end() : match.end() + max_chars])
        # For a bare key, the brace or comma is part of the match.
        yield key, value, follows_brace or bool(match["bare"])


def _walk_entries(value: Object | Array) -> Iterator[tuple[str, object]]:
    """Yield every normalised key with its value, at any depth. List items have the key ""."""
    pairs: list[tuple[str, object]]
    if isinstance(value, Object):
        pairs = list(value.items())
    else:
        pairs = [("", item) for item in value]
    for key, item in pairs:
        yield fit.normalise_key(key), item
        if isinstance(item, (Object, Array)):
            yield from _walk_entries(item)


def _contradicts(
    mentioned: object, fields: list[tuple[BaseModel, str]], *, may_begin_object: bool
) -> bool:
    """Whether a value elsewhere in the reply contradicts the answer's `fields`, which have the same key.

    It does if it's valid for one of them but equal to none.
    """
    is_cut = False
    is_valid = False
    for model, name in fields:
        value = _validate_value(mentioned, model, name)
        if value is CUT:
            is_cut = True
        elif value is not None and value == getattr(model, name):
            return False
        elif value is not None:
            is_valid = True
    if is_valid:
        return True

    # A truncated value might have been anything. After an opening brace, it may just be the first key of the
    # answer's own object.
    return is_cut and not may_begin_object


def _is_invalid_amount(value: object, fields: list[tuple[BaseModel, str]]) -> bool:
    """Whether `value` is an amount that one of the numeric `fields` can't accept, such as "90 %" or "7/5".

    The model may have meant it as a different score.
    """
    parts = value if isinstance(value, Array) else [value]
    amounts = []
    for part in parts:
        if isinstance(part, (int, float, str)):
            amounts += re.split(r"[/,;]\s?", str(part).strip())
    if not amounts or not all(map(_AMOUNT.fullmatch, amounts)):
        return False

    for model, name in fields:
        annotation = _get_annotation(model, name)
        # A list such as "4, 3, 5" may stand for the numbers in a nested model.
        may_be_nested_numbers = fit.is_model(annotation) and not isinstance(value, (int, float))
        takes_amounts = fit.is_number(annotation) or may_be_nested_numbers
        is_invalid = _validate_value(value, model, name) is None
        if takes_amounts and is_invalid:
            return True
    return False


def _get_annotation(model: BaseModel, name: str) -> object:
    """Return a field's type, without `Annotated` and `| None`."""
    return fit.unwrap_annotation(type(model).model_fields[name].annotation)


def _validate_value(value: object, instance: BaseModel, name: str) -> object:
    """Validate `value` as a replacement for one field of `instance`.

    Returns the converted value, `CUT` if it was truncated, or None if it's invalid.
    """
    model = type(instance)
    values_by_key = {}
    for field_name in model.model_fields:
        values_by_key[fit.key_of(field_name, model)] = getattr(instance, field_name)
    try:
        shaped = fit.shape(value, _get_annotation(instance, name), name)
        values_by_key[fit.key_of(name, model)] = shaped
        return getattr(model.model_validate(values_by_key), name)
    except fit.CutOff:
        return CUT
    except (fit.Misfit, ValidationError):
        return None


def _find_difference_in_prose(texts: list[str], fields_by_key: _FieldsByKey) -> str | None:
    """Find the first score that prose or markup gives differently, such as "Accuracy: 2".

    Returns its key; None if there's no such score.
    """
    scores = {}
    patterns = {}  # these match a key written with spaces, underscores, hyphens or nothing
    for key, fields in fields_by_key.items():
        for model, name in fields:
            if fit.is_number(_get_annotation(model, name)):
                words = re.split(r"[\s_-]+", fit.key_of(name, type(model)))
                patterns[key] = r"[\s_-]?".join(map(re.escape, words))
                scores[key] = getattr(model, name)
    if len(scores) < _MIN_SCORES:
        return None

    mentions = _find_numbers_in_prose(texts, list(patterns.values()))
    mentioned_keys = {key for key, _ in mentions}
    if (
        mentioned_keys != scores.keys()
    ):  # a few numbers could mean anything, unlike one for every score
        return None
    for key, number in mentions:
        if number != abs(scores[key]):  # the pattern takes a minus sign for a dash
            return key
    return None


def _find_numbers_in_prose(
    texts: Sequence[str], key_patterns: Sequence[str]
) -> list[tuple[str, float]]:
    """Find keys with numbers in prose, such as "Accuracy: 2", and list the normalised keys and numbers."""
    names = "|".join(key_patterns)
    pattern = re.compile(fit.WORDS["said"].replace("(?&NAMES)", names))
    mentions = []
    for text in texts:
        for match in pattern.finditer(text):
            # In "Accuracy:\n1. The answer is …", the 1 is a list number rather than a score.
            next_mark = match["after"].strip()[:1]
            is_item_number = "\n" in match["between"] and next_mark in (".", ")", ":", "-")
            if not is_item_number:
                mentions.append((fit.normalise_key(match["key"]), float(match["number"])))
    return mentions
