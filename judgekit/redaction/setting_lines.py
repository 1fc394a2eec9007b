"""Finds secrets in lines that set a name to a value, in settings files, shells, XML and lists.

In `NAME=value`, `name: value`, `<name>value</name>` or `set -gx NAME value` the name decides. The value is a
secret unless it's a reference, a call, a type or a placeholder. In code, where a bare word is usually a
variable, it also mustn't be one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit.redaction.named_values import classify_name
from judgekit.redaction.references import is_reference, is_variable
from judgekit.redaction.secret_rules import PATTERNS, SecretMatch, find_line_end
from judgekit.redaction.values import (
    MIN_TOKEN,
    change_rate,
    is_generated,
    is_mixed,
    is_placeholder,
)

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

    from judgekit.redaction.secret_rules import Span

_SHUFFLED_CHANGE_RATE = 0.3  # change rate between kinds of characters; names in code have less
_MIN_LENGTHS = {"strong": 4, "short": 6, "secret": MIN_TOKEN}  # of a value, by its name's class
_MIN_RANDOM = 10  # letters and digits of a random secret
_LONGER_THAN_WORDS = 20  # characters
_MAX_LIST_LINES = 40
_KIND_BY_NAME_CLASS = {"strong": "password", "short": "password", "secret": "token"}


def find_set_values(text: str, start: int, end: int) -> Iterator[SecretMatch]:
    """Yield the secrets between `start` and `end` that are set as in a settings file, such as `password: x`.

    XML elements and parts of connection strings (`Pwd=…;`) also count as settings.
    """
    # Most texts contain neither `</` nor `;`, and searching for these is ten times as fast as trying the
    # patterns.
    for mark, pattern in (("</", "xml_element"), (";", "connection_part")):
        if text.find(mark, start, end) >= 0:
            for setting in PATTERNS[pattern].finditer(text, start, end):
                span = setting.span("value")
                yield from _find_value(text, setting["name"], span, is_code=False)
    for match in PATTERNS["setting_line"].finditer(text, start, end):
        yield from _find_in_line(text, match)


def _find_in_line(text: str, match: re.Match[str]) -> Iterator[SecretMatch]:
    """Yield the secrets in a line such as `password: x`.

    `match` has the groups `command` (such as `set`, or empty), `name`, `separator` and `value`.
    """
    # `set name value` is a setting. Without a command such as `set`, it's probably prose.
    is_separated_by_blank = not match["separator"].strip()
    if is_separated_by_blank and not match["command"]:
        return

    # A name can be plural, such as `passwords`, so check the singular as well.
    names = (match["name"], _make_singular(match))
    is_secret_name = any(classify_name(name) in _MIN_LENGTHS for name in names)
    if not is_secret_name:
        return

    # a list of values, such as `["x", "y"]`
    if match["value"].startswith(("[", "(")):
        yield from _find_in_list(text, match)

    # a quoted value
    value_start, value_end = match.span("value")
    quoted_value = PATTERNS["quoted_value"].match(text, value_start, value_end)
    if quoted_value is not None:
        is_raw = "r" in quoted_value["prefix"].lower()  # as in Python's r"…"
        is_regex = is_raw and PATTERNS["expression"].search(quoted_value["inside"])
        if is_regex:
            return
        yield from _find_value(text, match["name"], quoted_value.span("inside"), is_code=False)
        return

    # an unquoted value, without a comment after it
    comment = PATTERNS["comment"].search(text, value_start, value_end)
    if comment is not None:
        value_end = comment.start()
    is_code = _is_code(match, text[value_start:value_end])
    yield from _find_value(text, match["name"], (value_start, value_end), is_code=is_code)


def _make_singular(match: re.Match[str]) -> str:
    """Return a setting's name in the singular: `api_key` for a list called `api_keys`."""
    return match["name"].rstrip("sS")


def _is_code(match: re.Match[str], value: str) -> bool:
    """Whether a line could be program code. In code, an unquoted word can be a variable."""
    has_shell_command = bool(match["command"])  # such as `set`
    if has_shell_command:
        return False
    is_env_line = match["separator"] == "=" and match["name"].isupper()  # `NAME=value`
    ends_like_code = value.endswith((",", ";", ")", "{"))
    return not is_env_line or ends_like_code


def _find_value(text: str, name: str, span: Span, *, is_code: bool) -> Iterator[SecretMatch]:
    """Yield the value at a span if it's a secret. `name` is the setting's name.

    The weaker the name, the more the value itself must look like a secret. If `is_code`, the value can be a
    variable.
    """
    name_class = classify_name(name)
    if name_class not in _MIN_LENGTHS:  # the name doesn't suggest a secret
        return

    # In code, a word before a comma or semicolon is a variable.
    start, end = span
    value = text[start:end].rstrip()
    without_comma = value.rstrip(",;")
    has_comma = without_comma != value
    if is_code and has_comma and PATTERNS["bare_word"].fullmatch(without_comma):
        return

    # Reject values that are too short, sentences, references such as `get_password()`, numbers and variables.
    if len(value) < _MIN_LENGTHS[name_class] or any(map(str.isspace, value)):
        return
    if is_reference(value) or PATTERNS["number"].fullmatch(value):
        return
    without_punctuation = value.rstrip("?!.:")
    if is_variable(without_punctuation) and (is_code or not is_mixed(value)):
        return

    # Names such as `api_key` and `pin` are weak, so their values must meet more conditions.
    if name_class == "secret":
        looks_secret = _is_token(value) or _is_random_secret(value, name, is_code=is_code)
        if not looks_secret:
            return
    if name_class == "short" and value.isalpha() and is_code:  # such as `pin = output`
        return
    yield SecretMatch(start, start + len(value), _KIND_BY_NAME_CLASS[name_class])


def _is_random_secret(value: str, name: str, *, is_code: bool) -> bool:
    """Whether an alphanumeric value is a random secret. `name` is the setting's name.

    In code, the name must contain "secret", because a value under another name could be a variable.
    """
    if not value.isalnum() or is_placeholder(value):
        return False

    has_mixed_case = not (value.islower() or value.isupper() or value.istitle())
    is_shuffled = has_mixed_case and change_rate(value) >= _SHUFFLED_CHANGE_RATE
    has_secret_name = "secret" in name.lower()
    if is_code:
        return has_secret_name and is_shuffled and len(value) >= MIN_TOKEN

    # Outside of code, a value that isn't shuffled must be longer.
    min_length = MIN_TOKEN if is_shuffled else _MIN_RANDOM
    if len(value) < min_length:
        return False
    is_env_name = name.isupper()  # such as API_KEY
    return has_secret_name or (is_env_name and has_mixed_case)


def _is_token(value: str) -> bool:
    """Whether a value can be a token: letters and digits, or a random string longer than most words."""
    if PATTERNS["format"].search(value):  # such as `user=%s`
        return False
    if is_placeholder(value) and not is_generated(value):
        return False
    if PATTERNS["choice"].match(value) or PATTERNS["code"].match(value):
        return False

    if is_mixed(value):
        return len(value) >= MIN_TOKEN and not PATTERNS["words"].match(value)
    is_shuffled = change_rate(value) >= _SHUFFLED_CHANGE_RATE
    return len(value) >= _LONGER_THAN_WORDS and is_shuffled


def _find_in_list(text: str, match: re.Match[str]) -> Iterator[SecretMatch]:
    """Yield the secrets in a list such as `api_keys: ["…", "…"]`, which can span multiple lines."""
    # Find the line with the closing bracket.
    start = match.start("value")
    end = start
    for _ in range(_MAX_LIST_LINES):
        end = find_line_end(text, end)
        is_closed = any(bracket in text[start:end] for bracket in "])")
        if is_closed:
            break
        end += len("\n")

    name = _make_singular(match)
    for item in PATTERNS["list_item"].finditer(text, start, min(end, len(text))):
        yield from _find_value(text, name, item.span("inside"), is_code=False)
