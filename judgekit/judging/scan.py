"""A tolerant scanner: text to the objects in it, in order, with what is uncertain marked as such.

It reads JSON exactly, and beside it what models write instead: single and typographic quotes, bare keys and
words, Python's literals, comments, missing and surplus commas, raw newlines and unescaped quotes in
strings. Whatever is not followed by something that ends it is `CUT`: it was begun, and its value is not
known.

The tokens of what models write: patterns, and the values of strings and words.
"""

from __future__ import annotations

import re
from collections import deque
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from judgekit.errors import InvalidReply

if TYPE_CHECKING:
    from collections.abc import Sequence


DOUBLE: Final = '"“”„'
SINGLE: Final = "'\u2018\u2019"
QUOTES: Final = DOUBLE + SINGLE

_BODY = r"(?:[^{0}\\]|\\[\s\S])"
_QUOTED = "|".join(f"[{quotes}]{_BODY.format(quotes)}*+[{quotes}]" for quotes in ('"', DOUBLE, "'", SINGLE))
_BARE = r"[A-Za-z_][\w-]{0,80}+"
_COMMENT = r"//|/\*|\#"

KEY: Final = re.compile(rf"(?:(?P<quoted>{_QUOTED})|(?P<bare>{_BARE}))\s*+:")
"""A key and its colon."""

START: Final = re.compile(
    rf"\{{(?=\s*+(?://[^\n]{{0,300}}+\s*+)?+(?:\}}|(?:{_QUOTED}|{_BARE})\s*+:))",
)
"""A brace that begins an object: a key, or the end, follows (braces in prose have neither)."""

# A comment that nothing ends is none: it would hide whatever stands behind the object.
_NOTE = r"(?://|\#)[^\n]{0,500}+\n|/\*[^*]{0,500}+\*/"
COMMENTS: Final = re.compile(rf"(?:\s|{_NOTE})*+")
"""What may stand between a colon and its value."""

GAP: Final = re.compile(rf"(?:[\s,]|{_NOTE})*+")
"""What may stand between entries; commas are not counted, only their absence matters, to words."""

WORD: Final = re.compile(r'(?:(?!//|/\*)[^,{}\[\]"\n\#])++')
"""A number, a literal or bare words, up to what could end them."""

_COMMA = r",[\s,]*+"
_NEXT_KEY = rf"(?:{_QUOTED})\s*+(?::|\Z)|[{QUOTES}][^{QUOTES}]*+\Z"
_NEXT_ITEM = rf"[{QUOTES}{{\[\]]|-?[0-9]|(?:true|false|null|True|False|None)\b"

AFTER_WORD: Final = {
    # A comma counts only before something that can follow it: `4,5` and `2, or 3` are not 4 and 2.
    True: re.compile(
        rf"[^\S\n]*+(?:\}}|\n|{_COMMENT}|{_COMMA}(?:\Z|\}}|{_COMMENT}|[{QUOTES}]|{_BARE}\s*+:)|,[^\S\n]*+\n"
        rf"|(?<=\s)(?:{_QUOTED})\s*+:)"
    ),
    False: re.compile(rf"\s*+(?:[,\]]|{_COMMENT}|(?<=\n))"),
}
"""What ends a number or word, in an object (True) and in an array."""


def _after_string(*, in_object: bool, bare_keys: bool) -> str:
    """Return what follows a quote that ends a string; one inside it is followed by other things."""
    bare = rf"|{_BARE}\s*+:" if bare_keys else ""
    if in_object:
        more = rf"{_COMMA}(?:\Z|\}}|{_COMMENT}|{_NEXT_KEY}{bare})|(?<=\s)(?:{_QUOTED})\s*+:"
        return rf"\s*+(?:\}}|//|/\*|{more})"
    return rf"\s*+(?:\]|//|/\*|{_COMMA}(?:\Z|{_COMMENT}|{_NEXT_ITEM}))|\s*?\n\s*+[{QUOTES}]"


_CONTEXTS = tuple(product((True, False), repeat=2))

AFTER_STRING: Final = {
    (in_object, bare): re.compile(_after_string(in_object=in_object, bare_keys=bare))
    for in_object, bare in _CONTEXTS
}
"""What ends a string, by (in an object or an array, keys may be bare)."""

_STRICT = {'"': '"', "'": "'", "“": DOUBLE, "”": DOUBLE, "„": DOUBLE, "\u2018": SINGLE, "\u2019": SINGLE}

FIRST_QUOTE: Final = {
    opening: re.compile(rf"{_BODY.format(closing)}*+[{closing}]") for opening, closing in _STRICT.items()
}
"""A string's text up to its first unescaped quote, by opening quote: where JSON ends it."""

LAST_QUOTE: Final = {
    (opening, in_object, bare): re.compile(
        rf"(?:{_BODY.format(quotes)}|[{quotes}](?!{_after_string(in_object=in_object, bare_keys=bare)}))*+"
        rf"[{quotes}]"
    )
    for quotes in (DOUBLE, SINGLE)
    for opening in quotes
    for in_object, bare in _CONTEXTS
}
"""A string's text up to the first quote that something follows which ends a string."""

NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,2})?")
"""A number as JSON writes it, of a size that a score may have."""

SPELT_NUMBER: Final = re.compile(
    r"[+-]?(?:[0-9]{1,18}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,2})?"
)
"""A number as people write it: also +1, 01, .5 and 1. (but neither 1_000 nor infinity)."""

_LITERALS: dict[str, bool | None] = {"true": True, "false": False, "null": None, "none": None}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([\s\S]))")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"} | {char: char for char in QUOTES + "\\/"}
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def scalar(word: str) -> float | bool | str | None:
    """Return the value of a bare word: a number, a literal of JSON or Python, else the word itself."""
    if NUMBER.fullmatch(word):
        return number(word)
    return _LITERALS.get(word.lower(), word)


def number(text: str) -> float:
    """Return the value of a text that `SPELT_NUMBER` matches: an int where it is written as one."""
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def decode(text: str) -> str:
    """Return a string's text with its escapes replaced and surrogates joined, or replaced where alone."""
    if "\\" in text:
        text = _ESCAPE.sub(_unescape, text)
    if _SURROGATE.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _unescape(match: re.Match[str]) -> str:
    code, char = match.groups()
    return chr(int(code, 16)) if code else _ESCAPED.get(char, match[0])


MAX_DEPTH: Final = 64
"""Objects nested deeper than this are no reply; the bound keeps memory and recursion small."""

MAX_ENTRIES: Final = 50_000
"""A text with more objects, keys and items than this is a flood, not a reply."""

MAX_OBJECTS: Final = 256
"""How many objects, counted from the end of a reply, are considered."""

MAX_RESCUES: Final = 8
"""How often one reply is read again from an object that an unclosed string had swallowed."""


class _Cut:
    def __repr__(self) -> str:
        return "CUT"


CUT: Final = _Cut()
"""Stands for a value that was begun and of which the end was not seen."""


class Object(dict[str, Any]):
    """An object of the reply.

    `closed` says whether its brace was seen and nothing in it is cut, `repeated` names the keys given twice
    with different values, and `tail` is the text between this object and the next, with a string that the
    object broke off in. `start` is where an outermost object begins in the reply. `around` is the object in
    a string of which this one was found, if it was.
    """

    __slots__ = ("around", "closed", "cut", "repeated", "start", "tail")

    def __init__(self) -> None:
        super().__init__()
        self.closed, self.cut, self.repeated, self.tail = False, False, set[str](), ""
        self.start = 0
        self.around: Object | None = None

    def put(self, key: str, value: object) -> None:
        """Set `key`, and remember it as repeated unless it was there with the same scalar."""
        if key in self and (isinstance(value, (Object, Array)) or not _same(self[key], value)):
            self.repeated.add(key)
        self[key] = value


class Array(list[Any]):
    """An array of the reply; `closed` says whether its bracket was seen and nothing in it is cut."""

    __slots__ = ("closed", "cut")

    def __init__(self) -> None:
        super().__init__()
        self.closed, self.cut = False, False


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and not isinstance(one, (Object, Array)) and one == other


def scan(raw: str) -> Sequence[Object]:
    """Return the last `MAX_OBJECTS` outermost objects of `raw`, in order.

    An object that breaks off, at the end of the text or at something that cannot stand there, is returned as
    far as it goes, and scanning goes on behind it. Raises `InvalidReply` for more than `MAX_ENTRIES`.
    """
    objects: deque[Object] = deque(maxlen=MAX_OBJECTS)
    reader, end = _Reader(raw), 0
    while start := START.search(raw, reader.pos):
        if objects:
            objects[-1].tail = raw[end : start.start()]
        around = _around(objects[-1], start.start(), reader.rescued) if objects else None
        objects.append(reader.read(start.start()))
        objects[-1].around, objects[-1].start, end = around, start.start(), reader.end
    if objects:
        objects[-1].tail = raw[end:]
    return objects


def value_at(text: str) -> object:
    """Return the value that `text`, which follows a key, begins with; `CUT` where its end is not seen."""
    return _Reader(f'{{"":{text}').read(0).get("", CUT)


def _around(before: Object, start: int, rescued: int) -> Object | None:
    """Return the object in a string of which the one at `start` stands, if it may stand in one."""
    if start == rescued:
        return before
    # Where more strings follow, what swallowed the object before goes on.
    return before.around if any(quote in before.tail for quote in QUOTES) else None


class _Reader:
    """Reads one object after the other; `pos` only moves on, save for at most `MAX_RESCUES` times."""

    def __init__(self, raw: str) -> None:
        self.raw, self.pos, self.rescues = raw, 0, MAX_RESCUES
        self.end, self.unread, self.entries, self.rescued = 0, -1, 0, -1
        self.broken, self.bare_key = False, False

    def read(self, start: int) -> Object:
        """Read the object that begins at `start`; leave `pos` behind it, or where it breaks off.

        `end` is the same, save that a string which breaks off is not taken for read.
        """
        top = Object()
        open_: list[Object | Array] = [top]
        self.pos, self.broken, self.unread = start + 1, False, -1
        self._count()
        while open_ and not self.broken:
            self._skip()
            if self.raw.startswith("}" if isinstance(open_[-1], Object) else "]", self.pos):
                box = open_.pop()
                box.closed = not box.cut
                self.pos += 1
            else:
                self._entry(open_)
                self._count()
        self.end = self.pos if self.unread < 0 else self.unread
        return top

    def _count(self) -> None:
        self.entries += 1
        if self.entries > MAX_ENTRIES:
            raise InvalidReply(f"more than {MAX_ENTRIES} objects, keys and items: no reply")

    def _skip(self) -> None:
        if gap := GAP.match(self.raw, self.pos):
            self.pos = gap.end()

    def _entry(self, open_: list[Object | Array]) -> None:
        """Read a key and value, or an array's item, and add it; an object or array is left open."""
        box = open_[-1]
        key = ""
        if isinstance(box, Object):
            matched = KEY.match(self.raw, self.pos)
            if not matched:
                self.broken = True
                return
            self.bare_key = matched["bare"] is not None
            key = matched["bare"] or decode(matched["quoted"][1:-1])
            self.pos = matched.end()
            self._skip_to_value()
        before = self.pos
        value = self._value(in_object=isinstance(box, Object))
        if isinstance(box, Object):
            box.put(key, value)
        elif self.pos == before:
            self.broken = True
        else:
            box.append(value)
        if value is CUT:
            for outer in open_:
                outer.cut = True
        elif isinstance(value, (Object, Array)):
            open_.append(value)
            self.broken = len(open_) > MAX_DEPTH

    def _skip_to_value(self) -> None:
        if gap := COMMENTS.match(self.raw, self.pos):
            self.pos = gap.end()

    def _value(self, *, in_object: bool) -> object:
        first = self.raw[self.pos : self.pos + 1]
        if first == "{" or first == "[":  # noqa: PLR1714 - `in "{["` would hold for the empty string
            self.pos += 1
            return Object() if first == "{" else Array()
        if first and first in QUOTES:
            return self._string(first, in_object=in_object)
        return self._word(in_object=in_object)

    def _word(self, *, in_object: bool) -> object:
        """Read a number, a literal or a bare word; it must be followed by a delimiter."""
        word = WORD.match(self.raw, self.pos)
        if not word:
            return CUT
        self.pos = word.end()
        if not AFTER_WORD[in_object].match(self.raw, word.start() + len(word[0].rstrip())):
            return CUT
        return scalar(word[0].strip())

    def _string(self, opening: str, *, in_object: bool) -> object:
        """Read a string: to its first quote if that can be its end, else to the first one that can."""
        start = self.pos + 1
        strict = FIRST_QUOTE[opening].match(self.raw, start)
        if strict and AFTER_STRING[in_object, True].match(self.raw, strict.end()):
            self.pos = strict.end()
            return decode(self.raw[start : self.pos - 1])
        closing = LAST_QUOTE[opening, in_object, self.bare_key].match(self.raw, start)
        end = closing.end() if closing else len(self.raw)
        rescued = self._swallowed(start, end, closed=closing is not None)
        self.broken = closing is None or rescued is not None
        self.unread = self.pos if self.broken else -1
        self.pos = end if rescued is None else rescued
        return CUT if self.broken else decode(self.raw[start : end - 1])

    def _swallowed(self, start: int, end: int, *, closed: bool) -> int | None:
        """Where, in a string with unescaped quotes, an object begins that the string cannot contain.

        A string may quote an object as a whole. One that ends inside it, or never, was itself left unclosed
        by the model, and what follows is the next answer.
        """
        inner = START.search(self.raw, start, end) if self.rescues else None
        if not inner:
            return None
        begun = self.raw.count("{", inner.start(), end) - self.raw.count("}", inner.start(), end)
        if closed and begun <= 0:
            return None
        self.rescues -= 1
        self.rescued = inner.start()
        return self.rescued
