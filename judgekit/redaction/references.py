"""Tells secrets from their stand-ins: references, calls, types and placeholders.

Under a name for passwords, the name decides: anything but one of these is the secret, whatever it looks like.
"""

from __future__ import annotations

import functools
import re

from judgekit.redaction.secret_rules import PATTERNS, RULES
from judgekit.redaction.values import change_rate, is_mixed

_TYPES = frozenset(RULES["words"]["types"].split())
_STATES = frozenset(RULES["words"]["states"].split())
_CODE_WORDS = frozenset(RULES["words"]["code_words"].split())
_CODE_SEGMENTS = frozenset(RULES["words"]["code_segments"].split())
_SEGMENT = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_MIN_WORD_LETTERS = 3  # of a word in snake case
_SHUFFLED_CHANGE_RATE = 0.4  # change rate between kinds of characters; names in code have less


@functools.lru_cache(4096)
def is_reference(value: str) -> bool:
    """Whether a value only refers to a secret: a variable, call, type, path or placeholder."""
    text = value.strip().rstrip(".,;:").strip("\"'`")  # without punctuation and quotes
    has_only_symbols = not any(map(str.isalnum, text))  # such as `***`
    if has_only_symbols:
        return True

    # a type such as `str`, or a state such as `expired`
    lower_word = text.lower().strip("\"'`*_ ?!")
    if lower_word in _TYPES or lower_word in _STATES:
        return True

    # a path or placeholder
    if PATTERNS["reference"].fullmatch(text) or PATTERNS["stand_in"].fullmatch(text):
        return True

    # a variable or call
    variable = PATTERNS["variable"].fullmatch(text)
    if variable is not None:
        return _is_shell_variable(variable["name"])
    looks_like_code = bool(PATTERNS["call"].fullmatch(text))
    return looks_like_code and _is_expression(text)


def _is_expression(text: str) -> bool:
    """Whether a string that looks like code is an expression, such as `user.name(1)`."""
    text = text.lstrip("&*!-")  # operators
    callee = PATTERNS["bracket"].split(text, maxsplit=1)[0]  # "user.name" in "user.name(1)"
    names = PATTERNS["member"].split(callee)
    if any(map(is_variable, names)):
        return True

    after_callee = text[len(callee) :]
    if after_callee in ("(", "["):  # the arguments are on the next lines
        return True

    # Random characters rarely have balanced brackets, and change between cases and digits more often.
    is_balanced = text.count("(") == text.count(")")
    is_shuffled = change_rate("".join(names)) >= _SHUFFLED_CHANGE_RATE
    return is_balanced and not is_shuffled and not is_mixed(callee)


def _is_shell_variable(name: str) -> bool:
    """Whether the text after a `$` is a variable's name, as in `$DB_PASSWORD`, and not a secret."""
    has_underscore_inside = "_" in name.strip("_")
    if has_underscore_inside or is_variable(name):
        return True
    is_in_one_case = name.isupper() or name.islower() or name.istitle()
    return is_in_one_case and not is_mixed(name)


@functools.lru_cache(4096)
def is_variable(value: str) -> bool:
    """Whether an unquoted word is a variable or an ordinary word, rather than a password."""
    if not _IDENTIFIER.fullmatch(value):
        return False

    # `maxLen_2` has the segments "max", "len" and "2".
    segments = [segment.lower() for segment in _SEGMENT.findall(value)]
    if not _CODE_SEGMENTS.isdisjoint(segments):
        return True
    if _is_snake_case(value, segments):
        return True
    # Only one in 400 random strings of 12 letters contains a word that's common in code, such as "config".
    lower_value = value.lower()
    return any(word in lower_value for word in _CODE_WORDS)


def _is_snake_case(value: str, segments: list[str]) -> bool:
    """Whether a value is multiple words joined by `_`, all in the same case and without digits.

    `segments` are the parts between underscores. Very short ones don't count as words.
    """
    if any(map(str.isdigit, value)):
        return False
    words = [segment for segment in segments if len(segment) >= _MIN_WORD_LETTERS]
    has_inner_underscore = "_" in value.strip("_")
    is_in_one_case = value in (value.lower(), value.upper())
    return has_inner_underscore and len(words) > 1 and is_in_one_case
