"""Finds the one answer in a model's reply, and checks that the reply doesn't give another one.

A model copies from the text that it judges. That text may hold an answer, or quotes and brackets that turn
their surroundings into one. So the second check doesn't rely on how the scanner split the reply: if a key of
the answer has a different value anywhere in the reply, the reply gives two answers, and neither is certain.
"""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import islice
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
_MAX_TOTAL_MENTION_CHARS = 200_000  # characters of mentioned values to read, in total
_MIN_CHARS_PER_MENTION = 4_000  # even if the total is exceeded
_MAX_INDENT = 80  # characters between an object's brace and its first key
_MIN_PROSE_SCORES = (
    2  # to treat numbers in prose as an assessment: a single one could mean anything
)
_CODE_FENCE_PATTERN = re.compile(r"```(?:json)?[^\S\n]*+\n(.*)```", re.DOTALL)
# A key before a colon: in quotes that no backslash escapes, or bare behind a brace or comma.
_KEY_MENTION_PATTERN = re.compile(
    rf"(?<!\\)[{QUOTES}](?P<quoted>[^{QUOTES}\\\n]{{1,200}})[{QUOTES}]\s*+:"
    r"|[{,]\s*+(?P<bare>[A-Za-z_][\w-]{0,80}+)\s*+:"
)
# A brace just before a key: the key is the first of its object.
_OPENING_BRACE_PATTERN = re.compile(r"\{\s*\Z")
# The start of an object that is written as a string: its first quotes are escaped.
_ESCAPED_OBJECT_PATTERN = re.compile(rf"\{{(?:\\n|\s){{0,40}}\\{{1,8}}[{QUOTES}]")
_ESCAPE_BACKSLASHES_PATTERN = re.compile(rf"\\{{1,8}}(?:(?=[{QUOTES}])|n)")
_AMOUNT_PATTERN = re.compile(fit.WORDS["amount"])


def extract(raw: str, model: type[Model]) -> Model:
    """Extract the answer from a reply: the last object in `raw` that fits `model`.

    A key may differ from its field's key in case, spaces, underscores and hyphens. But an object with two
    such keys for one field, and no exact one, doesn't fit. A truncated optional field gets its default. A
    nested object only counts as an answer under a key such as `result` or `answer`. Anything inside
    `<think>`, or before a `</think>` that was never opened, doesn't count.

    Raises `AmbiguousReply` if `raw` contains two answers that differ in a field that `model` requires.
    Raises `InvalidReply` if there's no answer; its message says what the last object lacked. Raises
    `UsageError` if an argument has the wrong type.
    """
    require("extract", raw=raw)
    _require_model(model)
    return _find_only_answer(cut_off_thoughts(raw), model, nested=False)


def _require_model(model: object) -> None:
    """Raise `UsageError` unless `model` is a subclass of pydantic's `BaseModel`."""
    is_model = isinstance(model, type) and issubclass(model, BaseModel)
    if not is_model:
        wanted = "a subclass of pydantic's BaseModel"
        raise UsageError(f"extract: model must be {wanted}, got {type(model).__name__}")


def read_answer(raw: str, model: type[Model], *, schema_enforced: bool = False) -> Model:
    """Read the answer from a reply.

    If `schema_enforced`, the provider promised a reply that is only the answer, so other text is an error.
    Raises `InvalidReply` if there's no answer, and `AmbiguousReply` if there are two different ones.
    """
    if not schema_enforced:
        return _find_only_answer(cut_off_thoughts(raw), model, nested=True)

    text = _strip_wrapping(cut_off_thoughts(raw))
    is_one_object = text.startswith("{") and find_exact_end(text, 0) == len(text)
    if not is_one_object:
        raise InvalidReply(f"the reply is not one JSON object: {_quote(raw)}")

    # Most replies are valid, so try pydantic's fast parser first. It doesn't limit the number of entries, but
    # a text of at most `MAX_ENTRIES` characters can't have more entries than that.
    if len(text) <= MAX_ENTRIES:
        with suppress(ValidationError):
            return model.model_validate_json(text, strict=True, extra="forbid")
    return _scan_answer(text, model)


def _strip_wrapping(text: str) -> str:
    """Remove a byte order mark, blanks, and Markdown's code fence (```) around a reply."""
    text = text.strip("\ufeff \t\r\n")
    fenced = _CODE_FENCE_PATTERN.fullmatch(text)
    return fenced[1].strip() if fenced else text


def _scan_answer(text: str, model: type[Model]) -> Model:
    """Read the answer with the tolerant scanner, which also takes, for example, a number in quotes.

    Raises `InvalidReply` if the object doesn't fit the model.
    """
    first_object = scan(text)[0]
    try:
        return fit.fit(first_object, model)
    except fit.Misfit as misfit:
        raise InvalidReply(str(misfit)) from None


def _find_only_answer(raw: str, model: type[Model], *, nested: bool) -> Model:
    """Find the last object that fits `model`, and check that nothing in `raw` contradicts it.

    If `nested`, also look for contradicting keys inside the answer itself. Raises `InvalidReply` if there's
    no answer, and `AmbiguousReply` if there's a contradiction.
    """
    answers = _read_answers(raw, model)  # the last one comes first
    last_object, answer = answers[0]
    # If even the last answer is among the thoughts, there's none after them.
    if is_in_thoughts(find_thoughts(raw), last_object.start):
        raise InvalidReply("the only answer stands among the model's thoughts, which are none")
    if fit.is_quoted(last_object, model):
        raise AmbiguousReply(
            "an answer within a string of another object: which one is meant is not certain"
        )
    _refuse_different_answers(answer, [other_answer for _, other_answer in answers])

    # The text around the objects must not contradict the answer either, as `"score": 2` would.
    objects = [item for item, _ in answers]
    key = _find_contradiction(raw, objects, answer, nested=nested)
    if key is not None:
        raise AmbiguousReply(
            f"`{key}` is given again with another value: which one is meant is not certain"
        )
    return answer


def _refuse_different_answers(answer: BaseModel, others: Sequence[BaseModel]) -> None:
    """Raise `AmbiguousReply` if one of the others has a different value in a required field."""
    decisive_fields = _list_decisive_fields(type(answer))
    for other in others:
        for name in decisive_fields:
            if getattr(other, name) != getattr(answer, name):
                raise AmbiguousReply("two answers that differ: which one is meant is not certain")


def _read_answers(raw: str, model: type[Model]) -> list[tuple[Object, Model]]:
    """Read all objects that fit `model`, last one first.

    If none fits, raises `InvalidReply` with the misfit of the last object.
    """
    answers = []
    misfits = []
    for item in reversed(scan(raw)):
        try:
            answers.append((item, fit.fit(item, model)))
        except fit.Misfit as misfit:
            misfits.append(str(misfit))

    if answers:
        return answers
    if misfits:
        raise InvalidReply(misfits[0])
    raise InvalidReply(f"no object in the reply: {_quote(raw)}")


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

    `objects` are all objects in `raw` that give this answer, from the last to the first. If `nested`, also
    look for contradicting keys inside the last one.
    """
    fields_by_key = _map_decisive_fields(answer)
    # The texts before, between and after the objects.
    surroundings = _split_at_objects(raw, objects)

    key = _find_contradicting_json(raw, objects[0], surroundings, fields_by_key, nested=nested)
    if key is not None:
        return key
    return _find_difference_in_prose(surroundings, fields_by_key)


def _find_contradicting_json(
    raw: str,
    last_object: Object,
    surroundings: Sequence[str],
    fields_by_key: _FieldsByKey,
    *,
    nested: bool,
) -> str | None:
    """Find a key that has another value elsewhere in the reply, such as `"score": 2`, or return None."""
    end = find_exact_end(raw, last_object.start)
    if end is None:
        # The object isn't exact JSON, so the scanner may have misjudged its end. Search everything.
        return _find_contradicting_mention([raw], fields_by_key)

    before, after = raw[: last_object.start], raw[end:]
    # A key in escaped quotes isn't recognised. So search the objects with such quotes unescaped, too.
    unescaped = _unescape_objects(surroundings)
    key = _find_contradicting_mention([before, after, *unescaped], fields_by_key)
    if key is None and nested:
        return _find_contradicting_entry(last_object, fields_by_key)
    return key


def _find_contradicting_mention(texts: Sequence[str], fields_by_key: _FieldsByKey) -> str | None:
    """Find the first key that a text gives with a different value or an invalid amount, or return None."""
    for text in texts:
        for key, value, may_begin_object in _find_mentions(text, fields_by_key):
            fields = fields_by_key[key]
            if _contradicts(value, fields, may_begin_object=may_begin_object):
                return key
            if _is_invalid_amount(value, fields):
                return key
    return None


def _find_contradicting_entry(item: Object, fields_by_key: _FieldsByKey) -> str | None:
    """Find the first key that an object gives with a different value, at any depth, or return None."""
    for key, value in _walk_entries(item):
        if key not in fields_by_key:
            continue
        if _contradicts(value, fields_by_key[key], may_begin_object=False):
            return key
    return None


def _unescape_objects(texts: Sequence[str]) -> list[str]:
    r"""Return each text from its first escaped JSON object on, such as `{\"score\": 2}`, without backslashes.

    Texts without such an object are left out.
    """
    unescaped = []
    for text in texts:
        object_match = _ESCAPED_OBJECT_PATTERN.search(text)
        if object_match:
            rest = text[object_match.start() :]
            unescaped.append(_ESCAPE_BACKSLASHES_PATTERN.sub("", rest))
    return unescaped


def _map_decisive_fields(answer: BaseModel) -> _FieldsByKey:
    """Map each normalised key, such as "accuracy", to the fields that all answers must agree on.

    Each field is given as the model instance (the answer, or one nested in it) and the field's name.
    """
    fields_by_key: _FieldsByKey = {}
    for instance in (answer, *_list_nested_models(answer)):
        model = type(instance)
        for name in _list_decisive_fields(model):
            key = fit.normalise_key(fit.get_json_key(name, model))
            fields_by_key.setdefault(key, []).append((instance, name))
    return fields_by_key


def _list_nested_models(answer: BaseModel) -> list[BaseModel]:
    """List the models that are values of the answer's decisive fields."""
    values = [getattr(answer, name) for name in _list_decisive_fields(type(answer))]
    return [value for value in values if isinstance(value, BaseModel)]


def _split_at_objects(raw: str, objects: Sequence[Object]) -> list[str]:
    """List the parts of `raw` before, between and after the objects, from the last part to the first.

    `objects` goes from the last object to the first, too. An object that isn't exact JSON stays in its part.
    """
    parts = []
    part_end = len(raw)
    for item in objects:
        object_end = find_exact_end(raw, item.start)
        if object_end is None:
            continue
        # Skip an object that contains a later one, because that one already begins the next part.
        contains_later_object = object_end > part_end
        if contains_later_object:
            continue
        parts.append(raw[object_end:part_end])
        part_end = item.start
    parts.append(raw[:part_end])
    return parts


def _find_mentions(text: str, fields_by_key: _FieldsByKey) -> Iterator[tuple[str, object, bool]]:
    """Find the answer's keys in a text, such as `"score": 4`.

    Yields the key, the value after its colon, and whether the key could be the first in an object.
    """
    mentions = list(islice(_find_keys(text, fields_by_key), MAX_MENTIONS + 1))
    if not mentions:
        return
    if len(mentions) > MAX_MENTIONS:
        # There are too many to read. Yield just one, with a truncated value: that contradicts any answer.
        any_key, _match = mentions[-1]
        yield any_key, CUT, False
        return

    # Limit the length of each value, so that a reply full of mentions doesn't take quadratic time.
    max_chars = max(_MIN_CHARS_PER_MENTION, _MAX_TOTAL_MENTION_CHARS // len(mentions))
    for key, match in mentions:
        value = read_value_at(text[match.end() : match.end() + max_chars])
        yield key, value, _may_begin_object(text, match)


def _find_keys(text: str, fields_by_key: _FieldsByKey) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield each of the answer's keys in the text, normalised, with its match."""
    for match in _KEY_MENTION_PATTERN.finditer(text):
        key = fit.normalise_key(match["quoted"] or match["bare"])
        if key in fields_by_key:
            yield key, match


def _may_begin_object(text: str, match: re.Match[str]) -> bool:
    """Whether a matched key could be the first in an object."""
    is_bare = match["bare"] is not None
    if is_bare:  # the pattern only finds a key without quotes after a brace or a comma
        return True

    # Look for an opening brace before the key, but not far, because this is done for every key.
    key_start = match.start()
    search_start = max(0, key_start - _MAX_INDENT)
    return _OPENING_BRACE_PATTERN.search(text, search_start, key_start) is not None


def _walk_entries(value: Object | Array) -> Iterator[tuple[str, object]]:
    """Yield every normalised key and its value, at any depth. List items have the key ""."""
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
    """Whether `mentioned`, a value elsewhere in the reply, contradicts the answer.

    `fields` are the answer's fields with the same key as this value. The value has to equal one of them,
    unless it's invalid for all. `may_begin_object` means that its key could be the first in an object.
    """
    is_cut = False
    is_different = False
    for instance, name in fields:
        value = _validate_value(mentioned, instance, name)
        if value is None:  # invalid for this field
            continue
        if value is CUT:
            is_cut = True
            continue
        if value == getattr(instance, name):
            return False
        is_different = True

    if is_different:
        return True
    # A truncated value could have been different, so it counts as a contradiction. But after an opening
    # brace, it can belong to the answer's own object.
    return is_cut and not may_begin_object


def _is_invalid_amount(value: object, fields: list[tuple[BaseModel, str]]) -> bool:
    """Whether `value` looks like a score, but isn't valid for one of the `fields` that take scores.

    Examples are "90 %" and "7/5". The language model may have meant a different score.
    """
    parts = _split_amounts(value)
    if not parts:
        return False
    all_are_amounts = all(map(_AMOUNT_PATTERN.fullmatch, parts))
    if not all_are_amounts:
        return False

    for instance, name in fields:
        # For example, 90 is invalid on a scale of 1 to 5.
        is_invalid = _validate_value(value, instance, name) is None
        if is_invalid and _takes_amount(_get_annotation(instance, name), value):
            return True
    return False


def _split_amounts(value: object) -> list[str]:
    """Split a value, or each item of an array, at slashes, commas and semicolons.

    For example, "7/5" becomes ["7", "5"].
    """
    items = value if isinstance(value, Array) else [value]
    parts = []
    for item in items:
        if isinstance(item, (int, float, str)):
            parts += re.split(r"[/,;]\s?", str(item).strip())
    return parts


def _takes_amount(annotation: object, value: object) -> bool:
    """Whether a field of this type could be given as an amount such as `value`."""
    if fit.is_number(annotation):
        return True
    # A text such as "4, 3, 5" can give a nested model all its numbers at once.
    is_single_number = isinstance(value, (int, float))
    return fit.is_model(annotation) and not is_single_number


def _get_annotation(instance: BaseModel, name: str) -> object:
    """Return a field's type, without `Annotated` and `| None`."""
    return fit.unwrap_annotation(type(instance).model_fields[name].annotation)


def _validate_value(value: object, instance: BaseModel, name: str) -> object:
    """Validate `value` as a replacement for the field `name` of `instance`.

    Returns the converted value, `CUT` if it was truncated, or None if it's invalid.
    """
    model = type(instance)
    values_by_key = {}  # the instance's fields, by JSON key
    for field_name in model.model_fields:
        values_by_key[fit.get_json_key(field_name, model)] = getattr(instance, field_name)
    try:
        new_value = fit.coerce(value, _get_annotation(instance, name), name)
        values_by_key[fit.get_json_key(name, model)] = new_value
        # Validate all fields together, because some depend on each other.
        return getattr(model.model_validate(values_by_key), name)
    except fit.CutOff:
        return CUT
    except (fit.Misfit, ValidationError):
        return None


def _find_difference_in_prose(texts: list[str], fields_by_key: _FieldsByKey) -> str | None:
    """Return the key of the first score that prose such as "Accuracy: 2" contradicts, or None.

    `texts` are the parts of the reply outside of its objects.
    """
    number_fields = _map_number_fields(fields_by_key)
    if len(number_fields) < _MIN_PROSE_SCORES:
        return None  # a single number in prose could mean anything

    patterns = []
    for instance, name in number_fields.values():
        patterns.append(_make_key_pattern(fit.get_json_key(name, type(instance))))
    mentions = _find_numbers_in_prose(texts, patterns)

    # Prose is only an assessment if it gives a number for every score.
    mentioned_keys = {key for key, _ in mentions}
    if mentioned_keys != number_fields.keys():
        return None

    for key, number in mentions:
        instance, name = number_fields[key]
        # The pattern takes a minus sign for a dash, so compare without signs.
        expected_number = abs(getattr(instance, name))
        if number != expected_number:
            return key
    return None


def _map_number_fields(fields_by_key: _FieldsByKey) -> dict[str, tuple[BaseModel, str]]:
    """Map each key to its numeric field; if there are several, to the last one."""
    number_fields = {}
    for key, fields in fields_by_key.items():
        for instance, name in fields:
            if fit.is_number(_get_annotation(instance, name)):
                number_fields[key] = (instance, name)
    return number_fields


def _make_key_pattern(key: str) -> str:
    """Make a pattern for a key in prose: its words, with a space, underscore, hyphen or nothing between."""
    words = re.split(r"[\s_-]+", key)
    return r"[\s_-]?".join(map(re.escape, words))


def _find_numbers_in_prose(
    texts: Sequence[str], key_patterns: Sequence[str]
) -> list[tuple[str, float]]:
    """List the numbers that prose gives for keys, as in "Accuracy: 2".

    Returns pairs of a normalised key and its number.
    """
    pattern = _make_prose_pattern(key_patterns)
    mentions = []
    for text in texts:
        for match in pattern.finditer(text):
            if _is_item_number(match):
                continue
            key = fit.normalise_key(match["key"])
            mentions.append((key, float(match["number"])))
    return mentions


def _make_prose_pattern(key_patterns: Sequence[str]) -> re.Pattern[str]:
    """Make the pattern of a key and its number in prose, from the template in `reply_words.toml`."""
    template = fit.WORDS["said"]
    names = "|".join(key_patterns)
    return re.compile(template.replace("(?&NAMES)", names))


def _is_item_number(match: re.Match[str]) -> bool:
    """Whether the number belongs to a list item, as on a line "1. The answer is …" after "Accuracy:"."""
    is_on_next_line = "\n" in match["between"]
    next_char = match["after"].strip()[:1]
    return is_on_next_line and next_char in (".", ")", ":", "-")
