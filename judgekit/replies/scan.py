"""A tolerant scanner: text to the objects in it, in order, with what is uncertain marked as such.

It reads JSON exactly, and beside it what models write instead: single and typographic quotes, bare keys and
words, Python's literals, comments, missing and surplus commas, raw newlines and unescaped quotes in strings.
A value that is not followed by something that ends it is `CUT`: it was begun, and is not known.
"""

from __future__ import annotations

import re
from collections import deque
from functools import cache
from typing import Any

from judgekit.errors import InvalidReply

MAX_DEPTH = 64  # objects nested deeper are no reply; keeps memory and recursion small
MAX_ENTRIES = 50_000  # a text with more objects, keys and items is a flood, not a reply
MAX_OBJECTS = 256  # that are considered, counted from the end of a reply
MAX_RESCUES = 8  # rescans of one reply from an object that an unclosed string had swallowed

_DOUBLE = '"“”„'
_SINGLE = "'\u2018\u2019"
QUOTES = _DOUBLE + _SINGLE

_BODY = r"(?:[^{0}\\]|\\[\s\S])"
_QUOTED = "|".join(
    f"[{quotes}]{_BODY.format(quotes)}*+[{quotes}]" for quotes in ('"', _DOUBLE, "'", _SINGLE)
)
_BARE = r"[A-Za-z_][\w-]{0,80}+"
_COMMENT = r"//|/\*|\#"
# An unclosed comment isn't one: it would hide everything behind the object.
_NOTE = r"(?://|\#)[^\n]{0,500}+\n|/\*[^*]{0,500}+\*/"

_KEY = re.compile(rf"(?:(?P<quoted>{_QUOTED})|(?P<bare>{_BARE}))\s*+:")
# Braces in prose have neither a key nor their end behind them.
_START = re.compile(rf"\{{(?=\s*+(?://[^\n]{{0,300}}+\s*+)?+(?:\}}|(?:{_QUOTED}|{_BARE})\s*+:))")
_BEFORE_VALUE = re.compile(rf"(?:\s|{_NOTE})*+")
# Commas are not counted; only their absence matters, to words.
_BETWEEN_ENTRIES = re.compile(rf"(?:[\s,]|{_NOTE})*+")
_WORD = re.compile(r'(?:(?!//|/\*)[^,{}\[\]"\n\#])++')

_COMMA = r",[\s,]*+"
_NEXT_KEY = rf"(?:{_QUOTED})\s*+(?::|\Z)|[{QUOTES}][^{QUOTES}]*+\Z"
_NEXT_ITEM = rf"[{QUOTES}{{\[\]]|-?[0-9]|(?:true|false|null|True|False|None)\b"

_AFTER_WORD = {  # what may end a number or word, in an object (True) and in an array
    # A comma counts only before something that can follow it: `4,5` and `2, or 3` are not 4 and 2.
    True: re.compile(
        rf"[^\S\n]*+(?:\}}|\n|{_COMMENT}|{_COMMA}(?:\Z|\}}|{_COMMENT}|[{QUOTES}]|{_BARE}\s*+:)|,[^\S\n]*+\n"
        rf"|(?<=\s)(?:{_QUOTED})\s*+:)"
    ),
    False: re.compile(rf"\s*+(?:[,\]]|{_COMMENT}|(?<=\n))"),
}


# These patterns match the text after a quote that ends a string, rather than a quote inside the string.
def _build_end_in_object(next_key: str) -> str:
    after_comma = rf"{_COMMA}(?:\Z|\}}|{_COMMENT}|{next_key})"
    return rf"\s*+(?:\}}|//|/\*|{after_comma}|(?<=\s)(?:{_QUOTED})\s*+:)"


_ENDS_IN_ARRAY = rf"\s*+(?:\]|//|/\*|{_COMMA}(?:\Z|{_COMMENT}|{_NEXT_ITEM}))|\s*?\n\s*+[{QUOTES}]"
_ENDS_WITH_BARE_KEYS = _build_end_in_object(rf"{_NEXT_KEY}|{_BARE}\s*+:")
_AFTER_STRING = {True: re.compile(_ENDS_WITH_BARE_KEYS), False: re.compile(_ENDS_IN_ARRAY)}


def _make_first_quote_pattern(closing: str) -> re.Pattern[str]:
    return re.compile(rf"{_BODY.format(closing)}*+[{closing}]")


# A string's text up to its first unescaped quote, by opening quote: its end according to JSON.
_FIRST_QUOTE = {
    **dict.fromkeys(_DOUBLE, _make_first_quote_pattern(_DOUBLE)),
    **dict.fromkeys(_SINGLE, _make_first_quote_pattern(_SINGLE)),
    '"': _make_first_quote_pattern('"'),
    "'": _make_first_quote_pattern("'"),
}


@cache
def _make_closing_quote_pattern(
    opening: str, *, in_object: bool, bare_keys: bool
) -> re.Pattern[str]:
    """Build a pattern for a string up to the first quote that is followed by what can follow a string."""
    quotes = _DOUBLE if opening in _DOUBLE else _SINGLE
    after_string = _ENDS_IN_ARRAY
    if in_object:
        after_string = _ENDS_WITH_BARE_KEYS if bare_keys else _build_end_in_object(_NEXT_KEY)
    return re.compile(rf"(?:{_BODY.format(quotes)}|[{quotes}](?!{after_string}))*+[{quotes}]")


# As JSON writes a number, of a size that a score may have.
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,2})?")

SPELT_NUMBER = re.compile(
    r"[+-]?(?:[0-9]{1,18}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,2})?"
)
"""A number as people write it: also +1, 01, .5 and 1. (but neither 1_000 nor infinity)."""

_LITERALS: dict[str, bool | None] = {"true": True, "false": False, "null": None, "none": None}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([\s\S]))")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def read_number(text: str) -> float:
    """Convert text that `SPELT_NUMBER` matches to an int or a float."""
    if text.lstrip("+-").isdigit():
        return int(text)
    return float(text)


def _unescape(escape: re.Match[str]) -> str:
    """Return the character for an escape sequence, or an unknown sequence unchanged."""
    code, char = escape.groups()
    if code:
        return chr(int(code, 16))
    if char in QUOTES or char in "\\/":
        return char
    return _ESCAPED.get(char, escape[0])


def _decode(text: str) -> str:
    """Replace the escape sequences in a string. A surrogate pair becomes one character, a lone one U+FFFD."""
    text = _ESCAPE.sub(_unescape, text)
    if _SURROGATE.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


CUT = object()
"""Marks a value that was begun, but whose end wasn't seen."""


class Object(dict[str, Any]):
    """An object of the reply.

    `closed` says whether its brace was seen and nothing in it is cut, `repeated` names the keys given twice
    with different values, and `tail` is the text between this object and the next, with a string that the
    object broke off in. `start` is where an outermost object begins in the reply. `outer` is the object in a
    string of which this one was found, if it was.
    """

    closed = cut = False
    start = 0
    tail = ""
    outer: Object | None = None

    def __init__(self) -> None:
        super().__init__()
        self.repeated = set[str]()

    def put(self, key: str, value: object) -> None:
        """Set `key`, and add it to `repeated` if it already has a different value."""
        if key in self:
            before = self[key]
            # Compare types, too, because 1 equals true and 1.0 in Python.
            is_same = type(before) is type(value) and before == value
            # A container hasn't been filled yet, so it counts as different.
            if isinstance(value, (Object, Array)) or not is_same:
                self.repeated.add(key)
        self[key] = value


class Array(list[Any]):
    """An array of the reply; `closed` if its bracket was seen and nothing in it is cut."""

    closed = cut = False


def scan(raw: str) -> deque[Object]:
    """Read the last `MAX_OBJECTS` outermost objects in a text, each as far as it's readable.

    Raises `InvalidReply` if the text has too many entries.
    """
    objects: deque[Object] = deque(maxlen=MAX_OBJECTS)
    reader = _Reader(raw)
    previous_end = 0
    match = _START.search(raw, reader.pos)
    while match:
        start = match.start()
        outer = None

        # :
        if objects:
            previous = objects[-1]
            previous.tail = raw[previous_end:start]
            outer = _find_outer(previous, is_rescued=start == reader.rescued)

        item = reader.read(start)
        item.outer = outer
        item.start = start
        objects.append(item)
        previous_end = reader.end
        match = _START.search(raw, reader.pos)
    if objects:
        objects[-1].tail = raw[previous_end:]
    return objects


def _find_outer(previous: Object, *, is_rescued: bool) -> Object | None:
    """Find the object that contains the next object in one of its strings.

    `is_rescued` means that the next object was found inside an unclosed string of `previous`.
    """
    if is_rescued:
        return previous
    has_quote_between = not set(QUOTES).isdisjoint(previous.tail)
    if has_quote_between:  # both objects may be in the same string
        return previous.outer
    return None


def read_value_at(text: str) -> object:
    """Read the value at the start of `text`, or return `CUT` if it's incomplete."""
    object_with_value = f'{{"":{text}'  # the reader doesn't need a closing brace
    return _Reader(object_with_value).read(0).get("", CUT)


class _Reader:
    """Reads objects one after the other."""

    def __init__(self, raw: str) -> None:
        self.raw = raw
        self.pos = 0
        self.end = 0  # of the last object's text
        self.entries = 0
        self.rescues_left = MAX_RESCUES
        self.rescued = -1  # the start of the last object found inside an unclosed string
        self.unclosed = -1  # the start of the object's unclosed string, if any
        self.broken = False  # the object can't be read any further
        self.bare_key = False  # the last key had no quotes

    def read(self, start: int) -> Object:
        """Read the object that starts at `start`, as far as possible.

        Afterwards, `end` is the end of this object, and `pos` is the position to search for the next one.
        """
        top = Object()
        open_containers: list[Object | Array] = [top]
        self.pos = start + 1
        self.broken = False
        self.unclosed = -1
        self.entries += 1

        while open_containers and not self.broken:
            container = open_containers[-1]
            self._skip(_BETWEEN_ENTRIES)
            closing_bracket = "}" if isinstance(container, Object) else "]"
            if self.raw.startswith(closing_bracket, self.pos):
                open_containers.pop()
                container.closed = not container.cut
                self.pos += 1
            else:
                value = self._read_entry(container)
                self.entries += 1
                if value is CUT:
                    # A container with an incomplete value is incomplete itself.
                    for open_container in open_containers:
                        open_container.cut = True
                elif isinstance(value, (Object, Array)):
                    open_containers.append(value)
                    self.broken = len(open_containers) > MAX_DEPTH
            if self.entries > MAX_ENTRIES:
                raise InvalidReply(f"more than {MAX_ENTRIES} objects, keys and items: no reply")

        # After an unclosed string, `pos` can be inside it, at the next object.
        self.end = self.pos if self.unclosed < 0 else self.unclosed
        return top

    def _skip(self, pattern: re.Pattern[str]) -> None:
        """Move past a match of `pattern` at the current position, if there is one."""
        if match := pattern.match(self.raw, self.pos):
            self.pos = match.end()

    def _read_entry(self, container: Object | Array) -> object:
        """Read an object's key and value, or an array's item, and add it to `container`.

        Returns the value. If it's an object or array, only its opening bracket has been read. Sets `broken`
        if there's no entry.
        """
        if isinstance(container, Array):
            start = self.pos
            value = self._read_value(in_object=False)
            if self.pos == start:  # nothing was read
                self.broken = True
            else:
                container.append(value)
            return value

        matched = _KEY.match(self.raw, self.pos)
        if not matched:
            self.broken = True
            return None
        self.bare_key = matched["bare"] is not None
        self.pos = matched.end()
        self._skip(_BEFORE_VALUE)
        value = self._read_value(in_object=True)
        key = matched["bare"] or _decode(matched["quoted"][1:-1])
        container.put(key, value)
        return value

    def _read_value(self, *, in_object: bool) -> object:
        """Read a string, number, literal or bare words, or only the opening bracket of an object or array.

        Returns `CUT` if the value is incomplete.
        """
        first = self.raw[self.pos : self.pos + 1]
        if first == "{" or first == "[":  # noqa: PLR1714 - `in "{["` would hold for the empty string
            self.pos += 1
            return Object() if first == "{" else Array()
        if first and first in QUOTES:
            return self._read_string(first, in_object=in_object)

        match = _WORD.match(self.raw, self.pos)
        if not match:
            return CUT
        self.pos = match.end()
        word_end = match.start() + len(match[0].rstrip())
        if not _AFTER_WORD[in_object].match(self.raw, word_end):
            return CUT
        word = match[0].strip()
        if _NUMBER.fullmatch(word):
            return read_number(word)
        return _LITERALS.get(word.lower(), word)

    def _read_string(self, opening: str, *, in_object: bool) -> object:
        """Read a string up to its closing quote.

        If it's never closed, sets `broken` and returns `CUT`.
        """
        # As in JSON, the first quote closes the string, if what comes next can follow a string.
        start = self.pos + 1
        first_quote = _FIRST_QUOTE[opening].match(self.raw, start)
        if first_quote and _AFTER_STRING[in_object].match(self.raw, first_quote.end()):
            self.pos = first_quote.end()
            return _decode(self.raw[start : self.pos - 1])

        # Otherwise that quote is an unescaped one inside the string, and the first suitable quote closes it.
        pattern = _make_closing_quote_pattern(opening, in_object=in_object, bare_keys=self.bare_key)
        closing_quote = pattern.match(self.raw, start)
        end = closing_quote.end() if closing_quote else len(self.raw)

        # If only the beginning of an object appears in the string, the model broke off and started again.
        inner = None
        if self.rescues_left:
            inner = _START.search(self.raw, start, end)
        if inner and closing_quote:
            inside = self.raw[inner.start() : end]
            is_complete_object = inside.count("{") <= inside.count("}")
            if is_complete_object:  # the string quotes it
                inner = None
        if closing_quote and not inner:
            self.pos = end
            return _decode(self.raw[start : end - 1])

        # The string is never closed. Continue at the object inside it, or after the string.
        self.broken = True
        self.unclosed = self.pos
        if inner:
            self.rescues_left -= 1
            self.rescued = inner.start()
        self.pos = inner.start() if inner else end
        return CUT
