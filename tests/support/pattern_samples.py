"""Texts that a pattern of `re` matches, drawn at random: they show the words that a match can have."""

from __future__ import annotations

import re
import string
from re import _constants, _parser
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

_ALPHABET = string.ascii_letters + string.digits + "-_./+=#@!~, "
_LONGER = 3  # repetitions beyond the fewest
_REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT)


def draw_match(pattern: str, draw: random.Random) -> str:
    """Return a text that the pattern probably matches; it may include too much of a lookahead."""
    return _draw_sequence(_parser.parse(pattern), draw, "")


def _draw_sequence(sequence: Any, draw: random.Random, before: str) -> str:  # noqa: ANN401 - private types
    text = ""
    for kind, value in sequence:
        text += _draw_one(kind, value, draw, before + text)
    return text


def _draw_one(kind: Any, value: Any, draw: random.Random, before: str) -> str:  # noqa: ANN401 - as above
    if kind is _constants.LITERAL:
        return chr(value)
    if kind is _constants.NOT_LITERAL:
        return draw.choice([char for char in _ALPHABET if ord(char) != value])
    if kind is _constants.ANY:
        return "x"
    if kind is _constants.IN:
        return _draw_of_set(value, draw)
    if kind is _constants.BRANCH:
        return _draw_sequence(draw.choice(value[1]), draw, before)
    if kind is _constants.SUBPATTERN:
        return _draw_sequence(value[3], draw, before)
    if kind is _constants.ATOMIC_GROUP:
        return _draw_sequence(value, draw, before)
    if kind in _REPEATS:
        return _draw_repeated(value, draw, before)
    if kind is _constants.ASSERT:
        direction, content = value
        is_wanted = not before if direction < 0 else draw.random() < 1 / 2
        return _draw_sequence(content, draw, before) if is_wanted else ""
    return ""


def _draw_repeated(value: Any, draw: random.Random, before: str) -> str:  # noqa: ANN401 - as above
    fewest, most, content = value
    count = draw.randint(fewest, min(int(most), fewest + _LONGER))
    text = ""
    for _ in range(count):
        text += _draw_sequence(content, draw, before + text)
    return text


def _draw_of_set(items: Any, draw: random.Random) -> str:  # noqa: ANN401 - as above
    if items[0][0] is not _constants.NEGATE:
        kind, value = draw.choice(items)
        if kind is _constants.LITERAL:
            return chr(value)
        if kind is _constants.RANGE:
            return chr(draw.randint(*value))
    allowed = [char for char in _ALPHABET if _is_in_set(items, char)]
    if " " in allowed and draw.random() < 1 / 2:
        return " "  # words stand alone more often than not
    return draw.choice(allowed or ["\u00e9"])


def _is_in_set(items: Any, char: str) -> bool:  # noqa: ANN401 - as above
    is_negated = items[0][0] is _constants.NEGATE
    is_listed = False
    for kind, value in items[1:] if is_negated else items:
        if kind is _constants.LITERAL:
            is_listed |= ord(char) == value
        elif kind is _constants.RANGE:
            is_listed |= value[0] <= ord(char) <= value[1]
        elif kind is _constants.CATEGORY:
            is_listed |= bool(re.match(_CATEGORIES[value], char))
    return is_listed != is_negated


_CATEGORIES = {
    _constants.CATEGORY_DIGIT: r"\d",
    _constants.CATEGORY_NOT_DIGIT: r"\D",
    _constants.CATEGORY_SPACE: r"\s",
    _constants.CATEGORY_NOT_SPACE: r"\S",
    _constants.CATEGORY_WORD: r"\w",
    _constants.CATEGORY_NOT_WORD: r"\W",
}
