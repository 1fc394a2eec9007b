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
MAX_RESTARTS = 8  # objects of one reply that are read although they start inside an unclosed string

_DOUBLE_QUOTES = '"“”„'
_SINGLE_QUOTES = "'\u2018\u2019"
QUOTES = _DOUBLE_QUOTES + _SINGLE_QUOTES

_STRING_CHAR_REGEX = r"(?:[^{0}\\]|\\[\s\S])"
_QUOTED_STRING_REGEX = "|".join(
    f"[{quotes}]{_STRING_CHAR_REGEX.format(quotes)}*+[{quotes}]"
    for quotes in ('"', _DOUBLE_QUOTES, "'", _SINGLE_QUOTES)
)
_BARE_KEY_REGEX = r"[A-Za-z_][\w-]{0,80}+"
_COMMENT_START_REGEX = r"//|/\*|\#"
# An unclosed comment isn't one: it would hide everything behind the object.
_COMMENT_REGEX = r"(?://|\#)[^\n]{0,500}+\n|/\*[^*]{0,500}+\*/"

_KEY_PATTERN = re.compile(
    rf"(?:(?P<quoted>{_QUOTED_STRING_REGEX})|(?P<bare>{_BARE_KEY_REGEX}))\s*+:"
)
# Braces in prose have neither a key nor their end behind them.
_OBJECT_START_PATTERN = re.compile(
    rf"\{{(?=\s*+(?://[^\n]{{0,300}}+\s*+)?+(?:\}}|(?:{_QUOTED_STRING_REGEX}|{_BARE_KEY_REGEX})\s*+:))"
)
_BEFORE_VALUE = re.compile(rf"(?:\s|{_COMMENT_REGEX})*+")
# Commas are not counted; only their absence matters, to words.
_BETWEEN_ENTRIES = re.compile(rf"(?:[\s,]|{_COMMENT_REGEX})*+")
_UNQUOTED_WORD_PATTERN = re.compile(r'(?:(?!//|/\*)[^,{}\[\]"\n\#])++')

_COMMA = r",[\s,]*+"
_NEXT_KEY = rf"(?:{_QUOTED_STRING_REGEX})\s*+(?::|\Z)|[{QUOTES}][^{QUOTES}]*+\Z"
_NEXT_ITEM = rf"[{QUOTES}{{\[\]]|-?[0-9]|(?:true|false|null|True|False|None)\b"

# What may end a number or word. In an object, a comma counts only before something that can follow it: `4,5`
# and `2, or 3` are not 4 and 2.
_AFTER_WORD_IN_OBJECT = re.compile(
    rf"[^\S\n]*+(?:\}}|\n|{_COMMENT_START_REGEX}|{_COMMA}(?:\Z|\}}|{_COMMENT_START_REGEX}|[{QUOTES}]|{_BARE_KEY_REGEX}\s*+:)|,[^\S\n]*+\n"
    rf"|(?<=\s)(?:{_QUOTED_STRING_REGEX})\s*+:)"
)
_AFTER_WORD_IN_ARRAY = re.compile(rf"\s*+(?:[,\]]|{_COMMENT_START_REGEX}|(?<=\n))")


# These patterns match the text after a quote that ends a string, rather than a quote inside the string.
def _build_end_in_object(next_key: str) -> str:
    after_comma = rf"{_COMMA}(?:\Z|\}}|{_COMMENT_START_REGEX}|{next_key})"
    return rf"\s*+(?:\}}|//|/\*|{after_comma}|(?<=\s)(?:{_QUOTED_STRING_REGEX})\s*+:)"


_ENDS_IN_ARRAY = (
    rf"\s*+(?:\]|//|/\*|{_COMMA}(?:\Z|{_COMMENT_START_REGEX}|{_NEXT_ITEM}))|\s*?\n\s*+[{QUOTES}]"
)
_ENDS_WITH_BARE_KEYS = _build_end_in_object(rf"{_NEXT_KEY}|{_BARE_KEY_REGEX}\s*+:")
_AFTER_STRING_IN_OBJECT = re.compile(_ENDS_WITH_BARE_KEYS)
_AFTER_STRING_IN_ARRAY = re.compile(_ENDS_IN_ARRAY)


def _make_first_quote_pattern(closing: str) -> re.Pattern[str]:
    return re.compile(rf"{_STRING_CHAR_REGEX.format(closing)}*+[{closing}]")


# A string's text up to its first unescaped quote, by opening quote: its end according to JSON.
_FIRST_QUOTE_PATTERN_BY_QUOTE = {
    **dict.fromkeys(_DOUBLE_QUOTES, _make_first_quote_pattern(_DOUBLE_QUOTES)),
    **dict.fromkeys(_SINGLE_QUOTES, _make_first_quote_pattern(_SINGLE_QUOTES)),
    '"': _make_first_quote_pattern('"'),
    "'": _make_first_quote_pattern("'"),
}


@cache
def _make_closing_quote_pattern(
    opening: str, *, in_object: bool, bare_keys: bool
) -> re.Pattern[str]:
    """Build a pattern that matches a string up to its closing quote.

    A quote only closes the string if it's followed by something that can follow a string, such as a comma.
    """
    quotes = _DOUBLE_QUOTES if opening in _DOUBLE_QUOTES else _SINGLE_QUOTES
    after_string = _get_pattern_after_string(in_object=in_object, bare_keys=bare_keys)

    other_char = _STRING_CHAR_REGEX.format(quotes)
    inner_quote = rf"[{quotes}](?!{after_string})"
    # `*+` takes all inner quotes and never gives one back, so the next quote is the closing one.
    content = f"(?:{other_char}|{inner_quote})*+"
    closing_quote = f"[{quotes}]"
    return re.compile(content + closing_quote)


def _get_pattern_after_string(*, in_object: bool, bare_keys: bool) -> str:
    """Return the pattern for the text that can follow a string in an object or array."""
    if not in_object:
        return _ENDS_IN_ARRAY
    if bare_keys:
        return _ENDS_WITH_BARE_KEYS
    return _build_end_in_object(_NEXT_KEY)


# As JSON writes a number, of a size that a score may have.
_JSON_NUMBER_PATTERN = re.compile(
    r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,2})?"
)

NUMBER_PATTERN = re.compile(
    r"[+-]?(?:[0-9]{1,18}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,2})?"
)
"""A number as people write it: also +1, 01, .5 and 1. (but neither 1_000 nor infinity)."""

_VALUE_BY_LITERAL: dict[str, bool | None] = {
    "true": True,
    "false": False,
    "null": None,
    "none": None,
}
_ESCAPE_PATTERN = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([\s\S]))")
_CHAR_BY_ESCAPE = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_SURROGATE_PATTERN = re.compile(r"[\ud800-\udfff]")


def read_number(text: str) -> float:
    """Convert text that `NUMBER_PATTERN` matches to an int or a float."""
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
    return _CHAR_BY_ESCAPE.get(char, escape[0])


def _decode(text: str) -> str:
    """Decode a string's escape sequences."""
    text = _ESCAPE_PATTERN.sub(_unescape, text)
    # Join surrogate pairs such as `\ud83d\ude00`, and replace lone surrogates with U+FFFD.
    if _SURROGATE_PATTERN.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


CUT = object()
"""Marks a value that was begun, but whose end wasn't seen."""


class Object(dict[str, Any]):
    """An object of the reply.

    - `closed`: the closing brace is there, and no value inside is truncated
    - `repeated_keys`: the keys given twice with different values
    - `tail`: the text up to the next object, including an unclosed string of this object
    - `start`: the position of an outermost object in the reply
    - `outer`: the object that quotes this one in a string, or None
    """

    closed = cut = False
    start = 0
    tail = ""
    outer: Object | None = None

    def __init__(self) -> None:
        super().__init__()
        self.repeated_keys = set[str]()

    def put(self, key: str, value: object) -> None:
        """Set `key`. If it already has a different value, also add it to `repeated_keys`."""
        if key in self:
            old_value = self[key]
            # Compare the types as well, because Python considers 1, 1.0 and True equal.
            is_same = type(old_value) is type(value) and old_value == value
            # A new container is still empty, so its content can't be compared yet.
            is_container = isinstance(value, (Object, Array))
            if is_container or not is_same:
                self.repeated_keys.add(key)
        self[key] = value


class Array(list[Any]):
    """An array of the reply; `closed` if its bracket was seen and nothing in it is cut."""

    closed = cut = False


def scan(raw: str) -> deque[Object]:
    """Read the outermost objects in a text, each as far as it's readable.

    Returns only the last `MAX_OBJECTS`. Raises `InvalidReply` if they have too many entries in total.
    Sets each object's `start`, its `tail` (the text up to the next object), and its `outer` (the object that
    has it in a string, or None).
    """
    objects: deque[Object] = deque(maxlen=MAX_OBJECTS)
    reader = _Reader(raw)
    match = _OBJECT_START_PATTERN.search(raw, reader.pos)
    while match:
        start = match.start()
        outer = None
        if objects:
            previous = objects[-1]
            # `reader.object_end` is still that of the previous object.
            previous.tail = raw[reader.object_end : start]
            is_restart = start == reader.last_restart_pos  # inside an unclosed string of `previous`
            outer = _find_outer(previous, is_restart=is_restart)

        item = reader.read(start)
        item.start = start
        item.outer = outer
        objects.append(item)
        match = _OBJECT_START_PATTERN.search(raw, reader.pos)

    if objects:
        objects[-1].tail = raw[reader.object_end :]
    return objects


def _find_outer(previous: Object, *, is_restart: bool) -> Object | None:
    """Return the object that has the object after `previous` in one of its strings, or None.

    `is_restart` means that the object after `previous` is inside an unclosed string of `previous`.
    """
    if is_restart:
        return previous

    # In `{"a": "{…}", "b": "{…}"}`, both inner objects are in strings of the same outer object. The quotes
    # between them show this.
    is_quote_between = any(quote in previous.tail for quote in QUOTES)
    return previous.outer if is_quote_between else None


def read_value_at(text: str) -> object:
    """Read the value at the start of `text`, or return `CUT` if it's incomplete."""
    object_with_value = f'{{"":{text}'  # the reader doesn't need a closing brace
    return _Reader(object_with_value).read(0).get("", CUT)


class _Reader:
    """Reads objects one after the other."""

    def __init__(self, raw: str) -> None:
        self.raw = raw
        self.pos = 0
        self.object_end = 0  # end of the last object
        self.entry_count = 0  # number of objects, keys and items
        # How often an object inside an unclosed string can still be read.
        self.restarts_left = MAX_RESTARTS
        # The start of the last object found inside an unclosed string, or -1.
        self.last_restart_pos = -1
        self.unclosed_string_start = -1  # start of the current object's unclosed string, or -1
        self.is_broken = False  # whether the current object can't be read any further
        self.has_bare_key = False  # whether the last key had no quotes

    def read(self, start: int) -> Object:
        """Read the object that starts at `start`, as far as possible.

        Sets `object_end` to the object's end, and `pos` to the position from which to search for the next
        object. Raises `InvalidReply` if there are too many entries.
        """
        outermost = Object()
        open_containers: list[Object | Array] = [outermost]  # objects and arrays, innermost last
        self.pos = start + len("{")
        self.is_broken = False
        self.unclosed_string_start = -1  # no string yet
        self.entry_count += 1

        while open_containers and not self.is_broken:
            self._skip(_BETWEEN_ENTRIES)
            if self._is_at_closing_bracket(open_containers[-1]):
                self._close_container(open_containers)
            else:
                self._read_next_entry(open_containers)
            if self.entry_count > MAX_ENTRIES:
                raise InvalidReply(f"more than {MAX_ENTRIES} objects, keys and items: no reply")

        # An unclosed string isn't part of the object, because the next object can be inside it.
        has_unclosed_string = self.unclosed_string_start >= 0
        self.object_end = self.unclosed_string_start if has_unclosed_string else self.pos
        return outermost

    def _is_at_closing_bracket(self, container: Object | Array) -> bool:
        """Whether the closing bracket of the container comes next."""
        closing_bracket = "}" if isinstance(container, Object) else "]"
        return self.raw.startswith(closing_bracket, self.pos)

    def _close_container(self, open_containers: list[Object | Array]) -> None:
        """Close the innermost container. It only counts as closed if no value in it is truncated."""
        container = open_containers.pop()
        container.closed = not container.cut
        self.pos += 1

    def _read_next_entry(self, open_containers: list[Object | Array]) -> None:
        """Read the next entry of the innermost container. If it's a container itself, open it."""
        value = self._read_entry(open_containers[-1])
        self.entry_count += 1
        if value is CUT:
            # A container with a truncated value is truncated itself.
            for container in open_containers:
                container.cut = True
        elif isinstance(value, (Object, Array)):
            open_containers.append(value)
            self.is_broken = len(open_containers) > MAX_DEPTH

    def _skip(self, pattern: re.Pattern[str]) -> None:
        """Move past a match of `pattern` at the current position, if there is one."""
        if match := pattern.match(self.raw, self.pos):
            self.pos = match.end()

    def _read_entry(self, container: Object | Array) -> object:
        """Read an object's key and value or an array's item, add it to `container`, and return the value.

        If the value is an object or array, only its opening bracket is read. Without an entry, set
        `is_broken`.
        """
        if isinstance(container, Array):
            return self._read_item(container)
        return self._read_pair(container)

    def _read_item(self, array: Array) -> object:
        """Read an array's next item, and add it. If there's none, set `is_broken`."""
        start = self.pos
        value = self._read_value(in_object=False)
        was_read = self.pos > start
        if was_read:
            array.append(value)
        else:
            self.is_broken = True
        return value

    def _read_pair(self, target: Object) -> object:
        """Read an object's next key and value, and add them.

        Without a key, set `is_broken` and return None.
        """
        key_match = _KEY_PATTERN.match(self.raw, self.pos)
        if not key_match:
            self.is_broken = True
            return None

        bare_key = key_match["bare"]  # a key without quotes
        self.has_bare_key = bare_key is not None
        if bare_key is not None:
            key = bare_key
        else:
            key = _decode(key_match["quoted"][1:-1])  # without the quotes

        self.pos = key_match.end()
        self._skip(_BEFORE_VALUE)
        value = self._read_value(in_object=True)
        target.put(key, value)
        return value

    def _read_value(self, *, in_object: bool) -> object:
        """Read a string, number, literal or unquoted words. Return `CUT` if the value is truncated.

        If the value is an object or array, only read its opening bracket, and return it empty.
        """
        first_char = self.raw[self.pos : self.pos + 1]  # "" at the text's end
        if first_char == "{":
            self.pos += 1
            return Object()
        if first_char == "[":
            self.pos += 1
            return Array()
        if first_char and first_char in QUOTES:
            return self._read_string(first_char, in_object=in_object)
        return self._read_word(in_object=in_object)

    def _read_word(self, *, in_object: bool) -> object:
        """Read a number, a literal such as `true`, or unquoted words.

        Returns `CUT` if there's none, or if it's truncated: it isn't followed by a comma, for example.
        """
        match = _UNQUOTED_WORD_PATTERN.match(self.raw, self.pos)
        if not match:
            return CUT
        self.pos = match.end()

        # The match includes blanks after the word. Go back to before them, because the pattern for the text
        # after a word starts with blanks.
        word_end = match.start() + len(match[0].rstrip())
        pattern_after = _AFTER_WORD_IN_OBJECT if in_object else _AFTER_WORD_IN_ARRAY
        is_complete = pattern_after.match(self.raw, word_end) is not None
        if not is_complete:
            return CUT

        word = match[0].strip()
        if _JSON_NUMBER_PATTERN.fullmatch(word):
            return read_number(word)
        return _VALUE_BY_LITERAL.get(word.lower(), word)

    def _read_string(self, opening: str, *, in_object: bool) -> object:
        """Read a string up to its closing quote, even if it contains unescaped quotes.

        If it's never closed, set `is_broken` and return `CUT`.
        """
        start = self.pos + 1

        # In valid JSON, the first quote closes the string. Check that a comma, for example, follows it.
        first_quote = _FIRST_QUOTE_PATTERN_BY_QUOTE[opening].match(self.raw, start)
        pattern_after = _AFTER_STRING_IN_OBJECT if in_object else _AFTER_STRING_IN_ARRAY
        if first_quote and pattern_after.match(self.raw, first_quote.end()):
            return self._end_string(start, first_quote.end())

        # Otherwise, skip unescaped quotes, up to the first one that can close the string.
        pattern = _make_closing_quote_pattern(
            opening, in_object=in_object, bare_keys=self.has_bare_key
        )
        closing_quote = pattern.match(self.raw, start)
        has_closing_quote = closing_quote is not None
        end = closing_quote.end() if closing_quote else len(self.raw)

        # A model can break off inside a string, and start its answer again. Then this quote belongs to the
        # new answer.
        restart = self._find_restart(start, end, is_closed=has_closing_quote)
        is_broken_off = restart is not None or not has_closing_quote
        if is_broken_off:
            self._break_off_string(end, restart)  # sets `is_broken`
            return CUT
        return self._end_string(start, end)

    def _end_string(self, start: int, end: int) -> str:
        """Return the string from `start` to its closing quote, and continue after it."""
        self.pos = end
        return _decode(self.raw[start : end - 1])

    def _find_restart(self, start: int, end: int, *, is_closed: bool) -> int | None:
        """Return the position in a string where the model started its answer again, or None.

        A model can break off inside a string, and begin a new object there. But a string can also quote one.
        """
        if not self.restarts_left:
            return None
        brace = _OBJECT_START_PATTERN.search(self.raw, start, end)
        if brace is None:
            return None

        # If both the object and the string are closed, the string just quotes the object.
        text = self.raw[brace.start() : end]
        is_object_closed = text.count("{") <= text.count("}")
        is_quoted = is_closed and is_object_closed
        return None if is_quoted else brace.start()

    def _break_off_string(self, end: int, restart: int | None) -> None:
        """Record that the string at `pos` is never closed, and stop reading the current object.

        Reading continues at `restart`, the start of an object inside the string, or at `end` if that's None.
        """
        self.is_broken = True
        self.unclosed_string_start = self.pos
        if restart is None:
            self.pos = end
        else:
            self.restarts_left -= 1
            # This tells `scan` that the object is inside a string.
            self.last_restart_pos = restart
            self.pos = restart
