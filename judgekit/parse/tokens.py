"""The tokens of what models write: patterns, and the values of strings and words.

Every pattern runs in time linear in what it passes over: repetitions are possessive or bounded, and a look
ahead stops at the next quote.
"""

from __future__ import annotations

import re
from itertools import product
from typing import Final

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
