"""Tells secrets from their stand-ins: references, calls, types and placeholders.

Under a name for passwords, the name decides: anything but one of these is the secret, whatever it looks like.
"""

from __future__ import annotations

import functools
import re

from judgekit.redaction.secret_rules import PATTERNS, RULES
from judgekit.redaction.values import change_rate, is_mixed

_TYPE_WORDS = frozenset(RULES["words"]["types"].split())
_STATE_WORDS = frozenset(RULES["words"]["states"].split())
_CODE_WORDS = frozenset(RULES["words"]["code_words"].split())
_CODE_SEGMENTS = frozenset(RULES["words"]["code_segments"].split())
_NAME_SEGMENT_PATTERN = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_MIN_WORD_LETTERS = 3  # of a word in snake case
_SHUFFLED_CHANGE_RATE = 0.4  # change rate between kinds of characters; names in code have less


@functools.lru_cache(4096)
def is_reference(value: str) -> bool:
    """Whether a value only refers to a secret, such as `$PASSWORD`, or stands in for one, such as `***`."""
    without_punctuation = value.strip().rstrip(".,;:")
    text = without_punctuation.strip("\"'`")  # without quotes
    has_only_symbols = not any(map(str.isalnum, text))  # such as `***`
    if has_only_symbols or _is_type_or_state(text):  # such as `string` or `expired`
        return True

    # such as `${NAME}` or `~/key`
    is_template_or_path = bool(PATTERNS["reference"].fullmatch(text))
    is_placeholder = bool(PATTERNS["stand_in"].fullmatch(text))  # such as `your-password`
    if is_template_or_path or is_placeholder:
        return True

    variable = PATTERNS["variable"].fullmatch(text)
    if variable is not None:
        return _is_shell_variable(variable["name"])
    looks_like_call = bool(PATTERNS["call"].fullmatch(text))
    return looks_like_call and _is_expression(text)


def _is_type_or_state(text: str) -> bool:
    """Whether a text is a type, as in `password: str`, or a state, as in `password: expired`."""
    word = text.lower().strip("\"'`*_ ?!")
    return word in _TYPE_WORDS or word in _STATE_WORDS


def _is_expression(text: str) -> bool:
    """Whether a string that looks like code is an expression, such as `user.name(1)`."""
    text = text.lstrip("&*!-")  # operators
    callee = PATTERNS["bracket"].split(text, maxsplit=1)[0]  # "user.name" in "user.name(1)"
    names = PATTERNS["member"].split(callee)  # "user" and "name"
    if any(map(is_variable, names)):
        return True
    after_callee = text[len(callee) :]
    continues_on_next_line = after_callee in ("(", "[")
    if continues_on_next_line:
        return True

    # Otherwise, it could be a random password that contains brackets. These are rarely balanced.
    is_balanced = text.count("(") == text.count(")")
    if not is_balanced:
        return False
    # A random password has digits, or switches between lower and upper case more often than a name.
    switches_often = change_rate("".join(names)) >= _SHUFFLED_CHANGE_RATE
    return not switches_often and not is_mixed(callee)


def _is_shell_variable(name: str) -> bool:
    """Whether the text after a `$` is a variable's name, as in `$DB_PASSWORD`, and not a secret."""
    has_underscore_inside = "_" in name.strip("_")
    if has_underscore_inside or is_variable(name):
        return True
    # Without an underscore, it's one word, as in `$HOME`, `$home` or `$Home`. Such names have no digits.
    is_cased_like_word = name.isupper() or name.islower() or name.istitle()
    return is_cased_like_word and not is_mixed(name)


@functools.lru_cache(4096)
def is_variable(value: str) -> bool:
    """Whether an unquoted word is a variable or an ordinary word, rather than a password."""
    if not _IDENTIFIER.fullmatch(value):
        return False

    # `maxLen_2` has the segments "max", "len" and "2".
    segments = [segment.lower() for segment in _NAME_SEGMENT_PATTERN.findall(value)]
    has_code_segment = any(segment in _CODE_SEGMENTS for segment in segments)
    if has_code_segment or _is_snake_case(value, segments):
        return True
    # Longer words that are common in code, such as "config", may be anywhere in the value. A password rarely
    # has one by chance: only 1 in 400 random strings of 12 letters does.
    lower_value = value.lower()
    return any(word in lower_value for word in _CODE_WORDS)


def _is_snake_case(value: str, segments: list[str]) -> bool:
    """Whether a value is multiple words joined by `_`, such as `max_length` or `MAX_LENGTH`.

    `segments` are the value's parts, split at underscores and capitals.
    """
    has_digit = any(map(str.isdigit, value))
    is_in_one_case = value in (value.lower(), value.upper())
    if has_digit or not is_in_one_case:
        return False
    # Very short segments don't count as words.
    words = [segment for segment in segments if len(segment) >= _MIN_WORD_LETTERS]
    has_inner_underscore = "_" in value.strip("_")
    return has_inner_underscore and len(words) > 1
