"""Finds secrets in lines that set a name to a value, in settings files, shells, XML and lists.

In `NAME=value`, `name: value`, `<name>value</name>` or `set -gx NAME value` the name decides. The value is a
secret unless it's a reference, a call, a type or a placeholder. In code, where a bare word is usually a
variable, it also mustn't be one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit.redaction.named_values import classify_name
from judgekit.redaction.references import is_reference, is_variable
from judgekit.redaction.secret_rules import PATTERNS, SecretMatch, line_end
from judgekit.redaction.values import (
    LEAST_TOKEN,
    is_generated,
    is_mixed,
    is_placeholder,
    share_of_changes,
)

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

    from judgekit.redaction.secret_rules import Span

_SHUFFLED = 0.3  # share of changes between kinds of characters; names of code have less
_LEAST_LENGTHS = {"strong": 4, "short": 6, "secret": LEAST_TOKEN}  # characters of a value
_LEAST_RANDOM = 10  # letters or digits under the name of a secret
_LONG = 20  # characters of a token that no word reaches
_MOST_ITEMS = 40  # lines of a list
_KIND_BY_NAME_CLASS = {"strong": "password", "short": "password", "secret": "token"}


def find_set_values(text: str, start: int, end: int) -> Iterator[SecretMatch]:
    """Yield the secrets from `start` to `end` that are set under the name of a secret, one setting a line.

    Elements of XML and parts of connection strings (`Pwd=…;`) are settings, too.
    """
    # Most texts have neither of these marks, and looking for a mark is ten times as fast as for its pattern.
    for mark, pattern in (("</", "xml_element"), (";", "connection_part")):
        if text.find(mark, start, end) >= 0:
            for setting in PATTERNS[pattern].finditer(text, start, end):
                span = setting.span("value")
                yield from _find_value(text, setting["name"], span, is_code=False)
    for match in PATTERNS["setting_line"].finditer(text, start, end):
        yield from _find_in_line(text, match)


def _find_in_line(text: str, match: re.Match[str]) -> Iterator[SecretMatch]:
    """Yield the secrets that a line sets. `match` has the line's name, separator and value."""
    is_separated_by_blank = not match["separator"].strip()
    # `set name value` is a setting. Without such a command, a name and a value are probably prose.
    if is_separated_by_blank and not match["command"]:
        return
    names = (match["name"], _make_singular(match))
    if not any(classify_name(name) in _LEAST_LENGTHS for name in names):
        return
    if match["value"].startswith(("[", "(")):
        yield from _find_in_list(text, match)

    value_start, value_end = match.span("value")
    quoted_value = PATTERNS["quoted_value"].match(text, value_start, value_end)
    if quoted_value is not None:
        is_raw = "r" in quoted_value["prefix"].lower()
        if is_raw and PATTERNS["expression"].search(quoted_value["inside"]):  # a regular expression
            return
        yield from _find_value(text, match["name"], quoted_value.span("inside"), is_code=False)
        return

    comment = PATTERNS["comment"].search(text, value_start, value_end)
    if comment is not None:
        value_end = comment.start()
    is_code = _is_code(match, text[value_start:value_end])
    yield from _find_value(text, match["name"], (value_start, value_end), is_code=is_code)


def _make_singular(match: re.Match[str]) -> str:
    """Return a line's name in the singular, such as `api_key` for `api_keys`, the name of a list."""
    return match["name"].rstrip("sS")


def _is_code(match: re.Match[str], value: str) -> bool:
    """Whether a line may be program code, so that a word without quotes in it may be a variable.

    A command isn't code. Neither is `NAME=value`, unless the value ends like a statement.
    """
    if match["command"]:
        return False
    is_env_line = match["separator"] == "=" and match["name"].isupper()  # `NAME=value`
    return not is_env_line or value.endswith((",", ";", ")", "{"))


def _find_value(text: str, name: str, span: Span, *, is_code: bool) -> Iterator[SecretMatch]:
    """Yield the value at a span if it's a secret; a value of several words isn't.

    The less surely its `name` is a secret's, the more the value must look like a secret. `is_code` tells
    whether the line may be program code, in which a word may be a variable.
    """
    name_class = classify_name(name)
    if name_class not in _LEAST_LENGTHS:  # other names don't make their value a secret
        return
    start, end = span
    value = text[start:end].rstrip()
    without_comma = value.rstrip(",;")
    if is_code and PATTERNS["bare_word"].fullmatch(without_comma):
        if without_comma != value:  # the word is an argument, or ends a statement: a variable
            return
        value = without_comma

    if len(value) < _LEAST_LENGTHS[name_class] or any(map(str.isspace, value)):
        return
    if is_reference(value) or PATTERNS["number"].fullmatch(value):
        return
    without_punctuation = value.rstrip("?!.:")  # a variable's name has none
    if is_variable(without_punctuation) and (is_code or not is_mixed(value)):
        return
    if name_class == "secret":
        looks_secret = _is_token(value) or _is_random_secret(value, name, is_code=is_code)
        if not looks_secret:
            return
    if name_class == "short" and value.isalpha() and is_code:
        return
    yield SecretMatch(start, start + len(value), _KIND_BY_NAME_CLASS[name_class])


def _is_random_secret(value: str, name: str, *, is_code: bool) -> bool:
    """Whether letters and digits without symbols are a random secret, under a name such as `JWT_SECRET`.

    A name in capitals suffices, if the value has letters of both cases. In code, and for any other name, the
    name must have "secret" in it.
    """
    if not value.isalnum() or is_placeholder(value):
        return False
    is_of_both_cases = not (value.islower() or value.isupper() or value.istitle())
    is_shuffled = is_of_both_cases and share_of_changes(value) >= _SHUFFLED
    has_secret_name = "secret" in name.lower()
    if is_code:
        return has_secret_name and is_shuffled and len(value) >= LEAST_TOKEN
    least_length = LEAST_TOKEN if is_shuffled else _LEAST_RANDOM
    if len(value) < least_length:
        return False
    return has_secret_name or (name.isupper() and is_of_both_cases)


def _is_token(value: str) -> bool:
    """Whether a value can be a token.

    It has both letters and digits, or its characters are mixed and it's longer than any word.
    """
    if PATTERNS["format"].search(value):
        return False
    if is_placeholder(value) and not is_generated(value):
        return False
    if PATTERNS["choice"].match(value) or PATTERNS["code"].match(value):
        return False
    if is_mixed(value):
        return len(value) >= LEAST_TOKEN and not PATTERNS["words"].match(value)
    is_shuffled = share_of_changes(value) >= _SHUFFLED
    return len(value) >= _LONG and is_shuffled


def _find_in_list(text: str, match: re.Match[str]) -> Iterator[SecretMatch]:
    """Yield the secrets in a list such as `api_keys: ["…", "…"]`, which may go on over the next lines."""
    start = match.start("value")
    stop = start
    for _ in range(_MOST_ITEMS):
        stop = line_end(text, stop)
        is_closed = any(bracket in text[start:stop] for bracket in "])")
        if is_closed:
            break
        stop += 1
    name = _make_singular(match)
    for item in PATTERNS["list_item"].finditer(text, start, min(stop, len(text))):
        yield from _find_value(text, name, item.span("inside"), is_code=False)
