"""Tells secrets from their stand-ins: references, calls, types and placeholders.

Under a name for passwords, the name decides: anything but one of these is the secret, whatever it looks like.
"""

from __future__ import annotations

import functools
import re

from judgekit.redaction.secret_rules import PATTERNS, RULES
from judgekit.redaction.values import is_mixed, share_of_changes

_TYPES = frozenset(RULES["words"]["types"].split())
_STATES = frozenset(RULES["words"]["states"].split())
_CODE_WORDS = frozenset(RULES["words"]["code_words"].split())
_CODE_SEGMENTS = frozenset(RULES["words"]["code_segments"].split())
_SEGMENT = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_LEAST_LETTERS = 3  # of a word between `_`
_SHUFFLED = 0.4  # share of changes between kinds of characters; names of code have less


@functools.lru_cache(4096)
def is_reference(value: str) -> bool:
    """Whether a value isn't a secret, but refers to one or describes it.

    Such a value is a variable, a call, a type, the path of a secret, or a placeholder.
    """
    text = value.strip().rstrip(".,;:").strip("\"'`")
    if not any(map(str.isalnum, text)):  # only marks, such as `***`
        return True

    lower = text.lower().strip("\"'`*_ ?!")
    if lower in _TYPES or lower in _STATES:
        return True
    if PATTERNS["reference"].fullmatch(text) or PATTERNS["stand_in"].fullmatch(text):
        return True
    variable = PATTERNS["variable"].fullmatch(text)
    if variable is not None:
        return _is_shell_variable(variable["name"])
    looks_like_code = bool(PATTERNS["call"].fullmatch(text))
    return looks_like_code and _is_expression(text)


def _is_expression(text: str) -> bool:
    """Whether a value that looks like a call, an attribute or a type really is one.

    It is if it begins with a name as code has it. A random text may look like code by chance.
    """
    text = text.lstrip("&*!-")
    head = PATTERNS["bracket"].split(text, maxsplit=1)[0]  # "user.name" of "user.name(1)"
    names = PATTERNS["member"].split(head)
    if any(map(is_variable, names)):
        return True
    behind_head = text[len(head) :]
    if behind_head in ("(", "["):  # an open bracket: the arguments are on the next lines
        return True
    is_closed = text.count("(") == text.count(")")
    is_shuffled = share_of_changes("".join(names)) >= _SHUFFLED
    return is_closed and not is_shuffled and not is_mixed(head)


def _is_shell_variable(name: str) -> bool:
    """Whether the text behind a `$` is a variable's name, as in `$DB_PASSWORD`, and not a random text."""
    has_underscore_inside = "_" in name.strip("_")
    if has_underscore_inside or is_variable(name):
        return True
    is_in_one_case = name.isupper() or name.islower() or name.istitle()
    return is_in_one_case and not is_mixed(name)


@functools.lru_cache(4096)
def is_variable(value: str) -> bool:
    """Whether a word without quotes is a variable or an ordinary word, and so not a password.

    It's enough that it contains a word of code, such as "config". A random text of twelve letters contains
    such a word only once in 400 times.
    """
    if not _IDENTIFIER.fullmatch(value):
        return False
    # `maxLen_2` has the segments "max", "len" and "2".
    segments = [segment.lower() for segment in _SEGMENT.findall(value)]
    if not _CODE_SEGMENTS.isdisjoint(segments):
        return True
    if _is_snake_case(value, segments):
        return True
    lower = value.lower()
    return any(word in lower for word in _CODE_WORDS)


def _is_snake_case(value: str, segments: list[str]) -> bool:
    """Whether a value is several words joined by `_`, all in upper or all in lower case, without digits."""
    if any(map(str.isdigit, value)):
        return False
    words = [segment for segment in segments if len(segment) >= _LEAST_LETTERS]
    is_in_one_case = value in (value.lower(), value.upper())
    return "_" in value.strip("_") and len(words) > 1 and is_in_one_case
