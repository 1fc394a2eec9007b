"""Finds values whose name makes them secrets: `password: x`, `API_KEY=x`.

The name decides how much a value must look like a secret.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple, cast

from judgekit.redaction.references import is_reference
from judgekit.redaction.secret_rules import PATTERNS, RULES, SecretMatch
from judgekit.redaction.values import (
    LEAST_BARE_TOKEN,
    LEAST_TOKEN,
    is_chosen,
    is_code,
    is_generated,
    is_mixed,
    is_phrase,
    is_placeholder,
    is_snake_case,
    is_strange,
    is_weak_secret,
)

_LONGEST_NAME = 60
_LONGEST_WORD_BEFORE = 14  # with the blank behind it
_LEAST_SHORT = 6
_SECTION_REACH = 300  # characters before a setting that may have its section's head
_DIGITS = "0123456789"
_PUBLIC = frozenset(("public", "publishable"))
_SHORT = frozenset(RULES["words"]["short"].split())
_ENDINGS = frozenset(RULES["words"]["endings"].split())


@functools.lru_cache(4096)
def classify_name(name: str) -> str:
    """Classify a setting's name by how surely its value is a secret.

    "strong" is the name of a password. "short" is a short name of a password, such as `pass` or `pw`.
    "secret" is the name of a token or a key. "weak" is a name that other things may have, too, such as
    `session`. Any other name gives "".
    """
    # `dbPassword` and `DB-PASSWORD` are both the words "db" and "password".
    in_snake_case = PATTERNS["hump"].sub(r"\1_\2", name)
    words = [word for word in PATTERNS["separator"].split(in_snake_case.lower()) if word]
    for _ in range(3):  # `api_key_prod_2` is classified as `api_key`
        if len(words) > 1 and (words[-1] in _ENDINGS or words[-1].isdigit()):
            words.pop()
    if not words or not _PUBLIC.isdisjoint(words):
        return ""

    last_word = words[-1].rstrip(_DIGITS)
    if PATTERNS["strong"].search("".join(words).rstrip(_DIGITS)):
        return "strong"
    last_two = "".join(words[-2:])
    if last_word in _SHORT or last_two in _SHORT:
        return "short"
    last_three = "".join(words[-3:]).rstrip(_DIGITS)
    if PATTERNS["secret"].search(last_three):
        return "secret"
    weak_match = PATTERNS["weak"].search(last_three)
    if weak_match and (last_word == weak_match[0] or last_word.endswith(("key", "auth"))):
        return "weak"
    return ""


def find_named(text: str, match: re.Match[str]) -> SecretMatch | None:
    """Find the secret behind a name, as in `password = "…"`; None if the value is no secret.

    `match` found the name and the value in the text in lower case. `text` has the original letters, at the
    same positions.
    """
    name_class = classify_name(_read_name(text, match))
    if not name_class:
        return None

    value = _read_value(text, match)
    is_password = name_class in ("strong", "short")
    if is_password and not value.is_quoted and is_reference(value.text):
        return None
    is_passphrase = value.is_quoted and _is_passphrase(match, value.text, is_password=is_password)
    may_stand_for_another = not is_passphrase and not is_generated(value.text)
    if may_stand_for_another and _is_stand_in(text, value, is_password=is_password):
        return None

    if value.is_quoted:
        is_hyphened_phrase = is_passphrase and "-" in value.text
        is_secret = is_hyphened_phrase or _is_quoted_secret(text, match, value.text, name_class)
    else:
        is_secret = _is_bare_secret(text, match, value.text, name_class)
    if not is_secret:
        return None

    if is_password:
        kind = "password"
    else:
        kind = {"key": "key", "secret": "secret"}.get(match["core"], "token")
    end = value.start + len(value.text)
    if not value.is_quoted:
        end = _end_of_setting(text, match, end)
    return SecretMatch(value.start, end, kind)


def _is_stand_in(text: str, value: _Value, *, is_password: bool) -> bool:
    """Whether a value isn't a secret itself but stands for one.

    It may be the name of a setting, a placeholder, a reference such as a variable, or a regular expression.
    """
    if is_password and value.text.isupper() and not value.text.isalnum():  # such as DB_PASSWORD
        return True
    is_sentence = any(map(str.isspace, value.text))
    if value.is_quoted and is_password and not is_sentence:
        # Nearly any word may be a password: only what clearly isn't one is left out. A letter `r` before the
        # quote makes a raw string, as in Python.
        is_raw = text[value.start - 2 : value.start - 1] in ("r", "R")
        is_pattern = is_raw and bool(PATTERNS["expression"].search(value.text))
        return is_pattern or is_reference(value.text)
    return is_placeholder(value.text)


class _Value(NamedTuple):
    """A value behind a name, without its quotes and without a word such as `Bearer`."""

    start: int
    text: str
    is_quoted: bool


def _read_value(text: str, match: re.Match[str]) -> _Value:
    """Read the value that a match found, with the letters of the original text."""
    start, end = match.span("value")
    is_quoted = text[start] in "\"'`("
    if not is_quoted:
        return _Value(start, text[start:end].rstrip(".,:"), is_quoted)
    start += 1
    value = text[start : end - 1]
    scheme = PATTERNS["scheme"].match(value)
    if scheme:  # `Bearer`, `Basic`
        start += scheme.end()
        value = value[scheme.end() :]
    return _Value(start, value, is_quoted)


def _read_name(text: str, match: re.Match[str]) -> str:
    """Read the whole name before a value, such as `db_password_2`.

    `match` only has the name's `core`, such as "password", and its `tail`, such as "_2". A separate word
    before it belongs to the name, too: `API key` gives `API_key`.
    """
    core_start = match.start("core")
    search_start = max(0, core_start - _LONGEST_NAME)
    name_start = cast("re.Match[str]", PATTERNS["before"].search(text, search_start, core_start))[0]
    if not name_start:
        two_words = PATTERNS["two_words"].search(
            text, max(0, core_start - _LONGEST_WORD_BEFORE), core_start
        )
        if two_words:
            name_start = f"{two_words[1]}_"
    return name_start + text[core_start : match.end("tail")]


def _is_passphrase(match: re.Match[str], value: str, *, is_password: bool) -> bool:
    """Whether a quoted value is a passphrase: several words, as people choose them for a password."""
    if is_password and PATTERNS["passphrase"].match(value):
        return True
    return _is_hyphened_phrase(match, value)


def _is_hyphened_phrase(match: re.Match[str], value: str) -> bool:
    """Whether a value is words with hyphens, like `maple-river-candle-orbit`, under the name of a secret."""
    if not value.islower() or "-" not in value or " " in value:
        return False
    return is_phrase(value) and bool(PATTERNS["secret_name"].search(match["core"] + match["tail"]))


def _end_of_setting(text: str, match: re.Match[str], end: int) -> int:
    """Find the end of a value without quotes.

    `end` is the end of what the pattern took for the value. In a line that only sets this value, as in a
    settings file, the value goes on to the next blank.
    """
    if PATTERNS["setting"].fullmatch(_read_line_before(text, match.start())):
        remainder = PATTERNS["to_blank"].match(text, end)
        if remainder and any(map(str.isalnum, remainder[0])):
            return remainder.end()
    return end


def _read_line_before(text: str, at: int) -> str:
    """Return the part of a line that's before a position, but at most 120 characters."""
    earliest = max(0, at - 2 * _LONGEST_NAME)
    line_break = text.rfind("\n", earliest, at)
    return text[max(earliest, line_break + 1) : at]


def _is_quoted_secret(text: str, match: re.Match[str], value: str, name_class: str) -> bool:
    """Whether a value in quotes is a secret.

    The more surely its name is a secret's (`name_class`), the less the value must look like a secret.
    """
    if name_class == "strong":
        is_path = value.startswith("/")
        return not is_path or is_mixed(value)
    if name_class == "short":
        is_long_enough = is_mixed(value) or len(value) >= _LEAST_SHORT
        return is_long_enough and not is_code(value)
    if name_class == "weak":
        if is_weak_secret(value):
            return True
        # A hexadecimal value may be a mere hash. It's a key only if the line has a word about encryption.
        line = _read_line_before(text, match.start())
        return bool(PATTERNS["hex_key"].match(value) and PATTERNS["secretive"].search(line))
    looks_random = is_mixed(value) or is_generated(value)
    if len(value) < LEAST_TOKEN or not looks_random:
        return False
    return not (is_code(value) or PATTERNS["expression"].search(value))


def _is_bare_secret(text: str, match: re.Match[str], value: str, name_class: str) -> bool:
    """Whether a value without quotes is a secret. In code, such a value is usually a name.

    The more surely its name is a secret's (`name_class`), the less the value must look like a secret. In a
    file of settings, even a plain word counts as a password.
    """
    is_behind_colon = text[match.start() - 1 : match.start()] == ":"
    if is_behind_colon or is_code(value) or PATTERNS["choice"].match(value):
        return False
    is_name_closed = bool(match["close"])  # `config["pin"] = 5`
    if is_name_closed and value.isdigit():
        return False
    if name_class == "weak":
        return is_weak_secret(value)

    text_before = _read_line_before(text, match.start())
    is_last = bool(PATTERNS["end_of_setting"].match(text, match.end()))
    # Nothing else is in the line, as in a settings file.
    is_alone = is_last and bool(PATTERNS["setting"].fullmatch(text_before))
    if name_class == "secret":
        return _is_secret_token(text, match, value, is_alone=is_alone)
    core_as_written = text[match.start("core") : match.end("core")]  # `match` has it in lower case
    if name_class == "short" and value.isdigit() and core_as_written == "PIN":
        return True
    if is_snake_case(value):  # it's a variable, unless the line is a setting
        has_no_gap = match.end("operator") == match.start("value")
        is_setting = match["operator"] == ":" or has_no_gap
        if not (is_setting and is_alone and is_mixed(value)):
            return False

    if name_class == "short":
        if is_chosen(value):
            return True
        return len(value) >= _LEAST_SHORT and _is_in_settings_file(text, match)
    has_digit = any(map(str.isdigit, value))
    if has_digit or not value.isidentifier():
        return True
    return _is_in_settings_file(text, match)


def _is_secret_token(text: str, match: re.Match[str], value: str, *, is_alone: bool) -> bool:
    """Whether a value without quotes, under a name such as `secret` or `token`, is a secret.

    `is_alone` tells whether the line has only the name and the value. Then a shorter value may do.
    """
    if is_snake_case(value):
        return False
    name = text[match.start("core") : match.end("tail")]
    if is_alone and match["core"] == "secret" and name.isupper():
        return len(value) >= LEAST_TOKEN
    least_length = LEAST_TOKEN if is_alone and is_strange(value) else LEAST_BARE_TOKEN
    return len(value) >= least_length and (is_mixed(value) or is_generated(value))


def _is_in_settings_file(text: str, match: re.Match[str]) -> bool:
    """Whether a name and its value look like a setting in a file, where even a plain word is a password.

    Settings are `DB_PASSWORD=x` and `Pwd=x;` anywhere. Alone in their line, `password: x` is one, and so is
    `passwd = x` below the head of a section.
    """
    operator = match["operator"]
    gap = text[match.end("operator") : match.start("value")]
    next_char = text[match.end() : match.end() + 1]
    text_before = _read_line_before(text, match.start()).strip(" \t-")
    is_last = next_char in ("", "\n") or bool(PATTERNS["end_of_setting"].match(text, match.end()))
    is_alone = is_last and bool(re.fullmatch(r"[\w.-]*", text_before))

    if operator != "=":
        value_start, value_end = match.span("value")
        is_yaml = operator == ":" and gap == " "
        return is_alone and is_yaml and text[value_start:value_end].islower()

    if not gap and PATTERNS["next_setting"].match(text, match.end()):
        return True
    name = text[match.start("core") : match.end("tail")]
    if next_char == ";" or name.isupper():
        return True
    if not gap and is_last and PATTERNS["property"].fullmatch(text_before):
        return match.end("tail") == match.start("operator")
    if not is_alone:
        return False
    section_start = max(0, match.start() - _SECTION_REACH)
    return bool(PATTERNS["section"].search(text, section_start, match.start()))
