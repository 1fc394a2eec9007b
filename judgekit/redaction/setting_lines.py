"""Finds secrets in lines that set a name to a value, in settings files, shells, XML and lists.

In `NAME=value`, `name: value`, `<name>value</name>` or `set -gx NAME value` the name decides. The value is a
secret unless it's a reference, a call, a type or a placeholder. In code, where a bare word is usually a
variable, it also mustn't be one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit.redaction.named_values import strength_of
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
_LEAST = {"strong": 4, "short": 6, "secret": LEAST_TOKEN}  # characters of a value
_LEAST_DRAWN = 10  # letters or digits under the name of a secret
_LONG = 20  # characters of a token that no word reaches
_MOST_ITEMS = 40  # lines of a list
_KINDS = {"strong": "password", "short": "password", "secret": "token"}


def find_set_values(text: str, start: int, end: int) -> Iterator[SecretMatch]:
    """Yield the secrets in the lines of a span by the names that they set."""
    # Most texts have neither mark, and looking for one costs a tenth of a search for the pattern.
    for mark, pattern in (("</", "xml_element"), (";", "connection_part")):
        if text.find(mark, start, end) >= 0:
            for setting in PATTERNS[pattern].finditer(text, start, end):
                span = setting.span("value")
                yield from _check(text, setting["name"], span, is_code=False)
    for match in PATTERNS["setting_line"].finditer(text, start, end):
        yield from _find_in_line(text, match)


def _find_in_line(text: str, match: re.Match[str]) -> Iterator[SecretMatch]:
    """Yield the secrets that a line sets, given a match of its name, separator and value."""
    is_separated_by_blank = not match["separator"].strip()
    if is_separated_by_blank and not match["command"]:  # `set name value`, but not prose
        return
    names = (match["name"], _make_singular(match))
    if not any(strength_of(name) in _LEAST for name in names):
        return
    if match["value"].startswith(("[", "(")):
        yield from _find_in_list(text, match)
    first, last = match.span("value")
    quoted = PATTERNS["quoted_value"].match(text, first, last)
    if quoted is not None:
        is_raw = "r" in quoted["prefix"].lower()
        if is_raw and PATTERNS["expression"].search(quoted["inside"]):  # a regular expression
            return
        yield from _check(text, match["name"], quoted.span("inside"), is_code=False)
        return
    comment = PATTERNS["comment"].search(text, first, last)
    if comment is not None:
        last = comment.start()
    is_code = _is_code(match, text[first:last])
    yield from _check(text, match["name"], (first, last), is_code=is_code)


def _make_singular(match: re.Match[str]) -> str:
    """Return a line's name in the singular: `api_keys` has several values."""
    return match["name"].rstrip("sS")


def _is_code(match: re.Match[str], value: str) -> bool:
    """Whether a line could be program code, in which a bare word is a variable."""
    if match["command"]:
        return False
    is_env_line = match["separator"] == "=" and match["name"].isupper()  # `NAME=value`
    return not is_env_line or value.endswith((",", ";", ")", "{"))


def _check(text: str, name: str, span: Span, *, is_code: bool) -> Iterator[SecretMatch]:
    """Yield the value at a span if its name makes it a secret."""
    strength = strength_of(name)
    if strength not in _LEAST:
        return
    start, end = span
    value = text[start:end].rstrip()
    without_comma = value.rstrip(",;")
    if is_code and PATTERNS["bare_word"].fullmatch(without_comma):
        if without_comma != value:  # an argument, or the end of a statement
            return
        value = without_comma
    if len(value) < _LEAST[strength] or any(map(str.isspace, value)):
        return
    if is_reference(value) or PATTERNS["number"].fullmatch(value):
        return
    if is_variable(value.rstrip("?!.:")) and (is_code or not is_mixed(value)):
        return
    if strength == "secret":
        is_secret = _is_token(value) or _is_drawn(value, name, is_code=is_code)
        if not is_secret:
            return
    if strength == "short" and value.isalpha() and is_code:
        return
    yield SecretMatch(start, start + len(value), _KINDS[strength])


def _is_drawn(value: str, name: str, *, is_code: bool) -> bool:
    """Whether letters or digits alone are a random secret because the name says so: `JWT_SECRET=`.

    In code, and under a name that isn't in capitals, the name must have "secret" in it.
    """
    if not value.isalnum() or is_placeholder(value):
        return False
    is_of_both_cases = not (value.islower() or value.isupper() or value.istitle())
    is_shuffled = is_of_both_cases and share_of_changes(value) >= _SHUFFLED
    has_secret_name = "secret" in name.lower()
    if is_code:
        return has_secret_name and is_shuffled and len(value) >= LEAST_TOKEN
    least = LEAST_TOKEN if is_shuffled else _LEAST_DRAWN
    if len(value) < least:
        return False
    return has_secret_name or (name.isupper() and is_of_both_cases)


def _is_token(value: str) -> bool:
    """Whether a value can be a token: letters and digits, or more shuffled and longer than any word."""
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
    """Yield the secrets in a list of keys, which may go on over the next lines: `api_keys: ["…", "…"]`."""
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
        yield from _check(text, name, item.span("inside"), is_code=False)
