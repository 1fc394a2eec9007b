"""Tells secrets from their stand-ins: references, calls, types and placeholders.

Under a name for passwords, the name decides: anything but one of these is the secret, whatever it looks like.
"""

from __future__ import annotations

import functools
import re

from judgekit.redaction.secret_rules import RE, RULES
from judgekit.redaction.values import is_mixed, share_of_changes

_TYPES, _STATES, _CODE_WORDS, _CODE_SEGMENTS = (
    frozenset(RULES["words"][name].split())
    for name in ("types", "states", "code_words", "code_segments")
)
_SEGMENT = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_LEAST_LETTERS = 3  # of a word between `_`
_SHUFFLED = 0.4  # share of changes between kinds of characters; names of code have less


@functools.lru_cache(4096)
def is_reference(value: str) -> bool:
    """Whether a value refers to a secret: its place, its future place, or its kind."""
    text = value.strip().rstrip(".,;:").strip("\"'`")
    if not any(map(str.isalnum, text)):
        return True
    lower = text.lower().strip("\"'`*_ ?!")
    if lower in _TYPES or lower in _STATES:
        return True
    if RE["reference"].fullmatch(text):
        return True
    if RE["stand_in"].fullmatch(text):
        return True
    variable = RE["variable"].fullmatch(text)
    if variable is not None:
        return _is_shell_variable(variable["name"])
    return bool(RE["call"].fullmatch(text)) and _is_expression(text)


def _is_expression(text: str) -> bool:
    """Whether a call, an attribute or a type begins with a name, not with random letters."""
    text = text.lstrip("&*!-")
    head = RE["bracket"].split(text, maxsplit=1)[0]
    names = RE["member"].split(head)
    if any(map(is_variable, names)):
        return True
    if text[len(head) :] in ("(", "["):  # the arguments are on the next lines
        return True
    is_closed = text.count("(") == text.count(")")
    return is_closed and share_of_changes("".join(names)) < _SHUFFLED and not is_mixed(head)


def _is_shell_variable(name: str) -> bool:
    """Whether a name behind `$` looks chosen by a person: `$DB_PASSWORD`, `$password`."""
    if is_variable(name) or "_" in name.strip("_"):
        return True
    return not is_mixed(name) and (name.isupper() or name.islower() or name.istitle())


@functools.lru_cache(4096)
def is_variable(value: str) -> bool:
    """Whether a bare word is a variable or an ordinary word, not a password.

    A code word inside it is enough: a random text of twelve letters contains one only once in 400 times.
    """
    if not _IDENTIFIER.fullmatch(value):
        return False
    segments = [segment.lower() for segment in _SEGMENT.findall(value)]
    if not _CODE_SEGMENTS.isdisjoint(segments):
        return True
    words = [
        segment for segment in segments if segment.isalpha() and len(segment) >= _LEAST_LETTERS
    ]
    is_snake = (
        "_" in value.strip("_") and len(words) > 1 and value in (value.lower(), value.upper())
    )
    if is_snake and not any(map(str.isdigit, value)):
        return True
    lower = value.lower()
    return any(word in lower for word in _CODE_WORDS)
