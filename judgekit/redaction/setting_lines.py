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
# Of a value, by its name's class.
_MIN_CHARS_BY_NAME_CLASS = {
    "strong": 4,
    "short": 6,
    "secret": MIN_TOKEN,
}
_MIN_RANDOM_SECRET_CHARS = 10  # letters and digits of a random secret
_MIN_CHARS_BEYOND_WORDS = 20  # characters
_MAX_LIST_LINES = 40
_KIND_BY_NAME_CLASS = {"strong": "password", "short": "password", "secret": "token"}


def find_in_settings(text: str, start: int, end: int) -> Iterator[SecretMatch]:
    """Yield the secrets in settings such as `password: x`, from `start` to `end`.

    XML elements and parts of connection strings (`Pwd=…;`) also count as settings.
    """
    # Most texts contain neither `</` nor `;`, and searching for these is ten times as fast as trying the
    # patterns.
    for mark, pattern in (("</", "xml_element"), (";", "connection_part")):
        has_mark = text.find(mark, start, end) >= 0
        if not has_mark:
            continue
        for setting in PATTERNS[pattern].finditer(text, start, end):
            yield from _find_value(text, setting["name"], setting.span("value"), is_code=False)
    for line in PATTERNS["setting_line"].finditer(text, start, end):
        yield from _find_in_line(text, line)


def _find_in_line(text: str, match: re.Match[str]) -> Iterator[SecretMatch]:
    """Yield the secrets in a line such as `password: x`.

    `match` has the groups `command` (such as `set`, or empty), `name`, `separator` and `value`.
    """
    if _is_prose(match) or not _has_secret_name(match):
        return

    may_be_list = match["value"].startswith(("[", "("))  # such as `["x", "y"]`
    if may_be_list:
        yield from _find_in_list(text, match)

    # A password can also start with a bracket, so search for a single value in any case.
    quoted_value = PATTERNS["quoted_value"].match(text, *match.span("value"))
    if quoted_value is None:
        yield from _find_unquoted_value(text, match)
    elif not _is_regex(quoted_value):
        yield from _find_value(text, match["name"], quoted_value.span("inside"), is_code=False)


def _is_prose(match: re.Match[str]) -> bool:
    """Whether only a blank separates name and value, without a command as in `set name value`."""
    is_separated_by_blank = not match["separator"].strip()
    has_command = bool(match["command"])
    return is_separated_by_blank and not has_command


def _has_secret_name(match: re.Match[str]) -> bool:
    """Whether the name suggests a secret."""
    # It can be plural, such as `passwords`, so check the singular as well.
    names = (match["name"], _make_singular(match))
    return any(classify_name(name) in _MIN_CHARS_BY_NAME_CLASS for name in names)


def _make_singular(match: re.Match[str]) -> str:
    """Return a setting's name in the singular: `api_key` for a list called `api_keys`."""
    return match["name"].rstrip("sS")


def _find_in_list(text: str, match: re.Match[str]) -> Iterator[SecretMatch]:
    """Yield the secrets in a list such as `api_keys: ["…", "…"]`, which can span multiple lines."""
    start = match.start("value")
    end = _find_list_end(text, start)
    name = _make_singular(match)  # such as `api_key`
    for item in PATTERNS["list_item"].finditer(text, start, end):
        yield from _find_value(text, name, item.span("inside"), is_code=False)


def _find_list_end(text: str, start: int) -> int:
    """Return the end of the line with a list's closing bracket, or of the last line that may be searched."""
    end = start
    for _ in range(_MAX_LIST_LINES):
        end = find_line_end(text, end)
        is_closed = any(bracket in text[start:end] for bracket in "])")
        if is_closed:
            break
        end += len("\n")
    return min(end, len(text))


def _is_regex(quoted_value: re.Match[str]) -> bool:
    """Whether a quoted value is a raw string, such as Python's r"…", with a regex in it."""
    is_raw = "r" in quoted_value["prefix"].lower()
    return is_raw and bool(PATTERNS["expression"].search(quoted_value["inside"]))


def _find_unquoted_value(text: str, match: re.Match[str]) -> Iterator[SecretMatch]:
    """Yield the unquoted value in a line if it's a secret. A comment after it isn't part of it."""
    value_start, value_end = match.span("value")
    comment = PATTERNS["comment"].search(text, value_start, value_end)
    if comment is not None:
        value_end = comment.start()
    is_code = _is_code(match, text[value_start:value_end])
    yield from _find_value(text, match["name"], (value_start, value_end), is_code=is_code)


def _is_code(match: re.Match[str], value: str) -> bool:
    """Whether a line could be program code. In code, an unquoted word can be a variable."""
    has_shell_command = bool(match["command"])  # such as `set`
    if has_shell_command:
        return False
    sets_environment = match["separator"] == "=" and match["name"].isupper()  # `NAME=value`
    if sets_environment:
        # A constant in code looks the same, except for its end.
        return value.endswith((",", ";", ")", "{"))
    return True


def _find_value(text: str, name: str, span: Span, *, is_code: bool) -> Iterator[SecretMatch]:
    """Yield the value at a span if it's a secret. `name` is the setting's name.

    The less the name suggests a secret, the more the value must look like one. If `is_code`, the value can be
    a variable.
    """
    name_class = classify_name(name)
    if name_class not in _MIN_CHARS_BY_NAME_CLASS:  # the name doesn't suggest a secret
        return

    start, end = span
    value = text[start:end].rstrip()
    if len(value) < _MIN_CHARS_BY_NAME_CLASS[name_class]:
        return
    if _is_prose_or_number(value) or _is_expression(value, is_code=is_code):
        return
    if _fits_name(value, name, name_class, is_code=is_code):
        yield SecretMatch(start, start + len(value), _KIND_BY_NAME_CLASS[name_class])


def _is_prose_or_number(value: str) -> bool:
    """Whether a value has more than one word, or is a number."""
    has_blank = any(map(str.isspace, value))
    return has_blank or bool(PATTERNS["number"].fullmatch(value))


def _is_expression(value: str, *, is_code: bool) -> bool:
    """Whether a value is a reference such as `get_password()`, or a variable."""
    if is_reference(value):
        return True

    # In code, a word before a comma or semicolon is a variable.
    before_delimiter = value.rstrip(",;")
    has_delimiter = before_delimiter != value
    if is_code and has_delimiter and PATTERNS["bare_word"].fullmatch(before_delimiter):
        return True

    # Outside of code, a word with a digit is more likely a password than a variable.
    can_be_variable = is_code or not is_mixed(value)
    without_punctuation = value.rstrip("?!.:")
    return can_be_variable and is_variable(without_punctuation)


def _fits_name(value: str, name: str, name_class: str, *, is_code: bool) -> bool:
    """Whether a value can be a secret, judging by its setting's name."""
    if name_class == "secret":  # such as `api_key`, whose value must look random
        return _is_token(value) or _is_random_secret(value, name, is_code=is_code)
    if name_class == "short":  # such as `pin`, whose value mustn't be a variable
        is_variable_name = is_code and value.isalpha()  # such as `pin = output`
        return not is_variable_name
    return True  # A name such as `password` allows any value.


def _is_random_secret(value: str, name: str, *, is_code: bool) -> bool:
    """Whether an alphanumeric value is a random secret. `name` is the setting's name."""
    if not value.isalnum() or is_placeholder(value):
        return False

    has_secret_name = "secret" in name.lower()
    is_cased_like_word = value.islower() or value.isupper() or value.istitle()
    changes_often = not is_cased_like_word and change_rate(value) >= _SHUFFLED_CHANGE_RATE
    if is_code:
        # Under a name without "secret", the value could be a variable.
        return has_secret_name and changes_often and len(value) >= MIN_TOKEN

    # Outside of code, a value can also be a secret if it rarely changes between cases and digits, but then it
    # must be longer.
    min_length = MIN_TOKEN if changes_often else _MIN_RANDOM_SECRET_CHARS
    if len(value) < min_length:
        return False
    is_environment_variable = name.isupper()  # such as `API_KEY`
    return has_secret_name or (is_environment_variable and not is_cased_like_word)


def _is_token(value: str) -> bool:
    """Whether a value can be a token: letters and digits, or a random string longer than most words."""
    if _is_template_or_code(value):
        return False
    # A generated value can contain a placeholder such as "xxx" by chance.
    if is_placeholder(value) and not is_generated(value):
        return False

    if is_mixed(value):
        has_only_words = bool(PATTERNS["words"].match(value))  # such as `build_step_2_name`
        return len(value) >= MIN_TOKEN and not has_only_words
    is_shuffled = change_rate(value) >= _SHUFFLED_CHANGE_RATE
    return len(value) >= _MIN_CHARS_BEYOND_WORDS and is_shuffled


def _is_template_or_code(value: str) -> bool:
    """Whether a value is a format string such as `user=%s`, a choice such as `str|None`, or code."""
    if PATTERNS["format"].search(value) or PATTERNS["choice"].match(value):
        return True
    return bool(PATTERNS["code"].match(value))  # such as `settings.token` or `/run/token`
