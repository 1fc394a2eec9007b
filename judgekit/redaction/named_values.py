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
    MIN_BARE_TOKEN,
    MIN_TOKEN,
    is_code,
    is_generated,
    is_human_password,
    is_mixed,
    is_phrase,
    is_placeholder,
    is_snake_case,
    is_strange,
    is_weak_secret,
)

_LONGEST_NAME = 60
_LONGEST_WORD_BEFORE = 14  # including the blank after it
_MIN_SHORT = 6
_SECTION_REACH = 300  # characters before a setting that are searched for its section's header
_DIGITS = "0123456789"
_PUBLIC = frozenset(("public", "publishable"))
_SHORT = frozenset(RULES["words"]["short"].split())
_SUFFIXES = frozenset(RULES["words"]["endings"].split())


@functools.lru_cache(4096)
def classify_name(name: str) -> str:
    """Classify a setting's name by how likely its value is a secret.

    - "strong": a password
    - "short": a password's abbreviation, such as `pass` or `pw`
    - "secret": a token or key
    - "weak": a name that can also have other meanings, such as `session`
    - "": any other name
    """
    # Split into words: both `dbPassword` and `DB-PASSWORD` become ["db", "password"].
    snake_case = PATTERNS["hump"].sub(r"\1_\2", name)
    words = [word for word in PATTERNS["separator"].split(snake_case.lower()) if word]
    # Drop up to three suffixes: `api_key_prod_2` is classified as `api_key`.
    for _ in range(3):
        if len(words) > 1 and (words[-1] in _SUFFIXES or words[-1].isdigit()):
            words.pop()

    # A word such as "public" means that the value isn't secret.
    if not words or not _PUBLIC.isdisjoint(words):
        return ""

    # Match the words joined, because `pass_word` and `api_key` are also written as one word.
    all_words = "".join(words).rstrip(_DIGITS)
    last_three = "".join(words[-3:]).rstrip(_DIGITS)
    last_two = "".join(words[-2:])
    last_word = words[-1].rstrip(_DIGITS)
    if PATTERNS["strong"].search(all_words):
        return "strong"
    if last_word in _SHORT or last_two in _SHORT:
        return "short"
    if PATTERNS["secret"].search(last_three):
        return "secret"

    # The last word must be the match itself, or end with "key" or "auth", such as "apikey" and "oauth". In
    # any other longer word, the match is a coincidence.
    weak_match = PATTERNS["weak"].search(last_three)
    if weak_match and (last_word == weak_match[0] or last_word.endswith(("key", "auth"))):
        return "weak"
    return ""


def find_named(text: str, match: re.Match[str]) -> SecretMatch | None:
    """Return the secret after a name such as "password", or None if the value isn't a secret.

    `match` is the name and its value. It was found in `text.lower()`, but its positions are valid in `text`.
    """
    # such as "strong" for `password`, or "weak" for `session`
    name_class = classify_name(_read_name(text, match))
    if not name_class:
        return None

    # An unquoted value can be code that reads the password, such as `password=get_password()`.
    value = _read_value(text, match)
    is_password = name_class in ("strong", "short")
    if is_password and not value.is_quoted and is_reference(value.text):
        return None

    # Reject placeholders such as "your-password", but not passphrases and generated values, which can look
    # like them.
    is_passphrase = value.is_quoted and _is_passphrase(match, value.text, is_password=is_password)
    is_clearly_secret = is_passphrase or is_generated(value.text)
    if not is_clearly_secret and _is_stand_in(text, value, is_password=is_password):
        return None

    # The name's class decides how much the value must look like a secret.
    if value.is_quoted:
        is_hyphenated_phrase = is_passphrase and "-" in value.text
        is_secret = is_hyphenated_phrase or _is_quoted_secret(text, match, value.text, name_class)
    else:
        is_secret = _is_bare_secret(text, match, value.text, name_class)
    if not is_secret:
        return None

    # Build the match, with the kind that the text's readers will see in place of the secret.
    if is_password:
        kind = "password"
    else:
        kind = {"key": "key", "secret": "secret"}.get(match["core"], "token")
    end = value.start + len(value.text)
    if not value.is_quoted:
        end = _find_bare_value_end(text, match, end)
    return SecretMatch(value.start, end, kind)


def _is_stand_in(text: str, value: _Value, *, is_password: bool) -> bool:
    """Whether a value only stands for a secret: a setting's name, placeholder, variable or regex."""
    is_constant = value.text.isupper() and not value.text.isalnum()  # such as DB_PASSWORD
    if is_password and is_constant:
        return True
    has_blank = any(map(str.isspace, value.text))
    if not (is_password and value.is_quoted) or has_blank:
        return is_placeholder(value.text)

    # Nearly any quoted word can be a password, so only rule out references and regexes. A regex is usually
    # in a raw string, with an `r` before the quote.
    prefix = text[value.start - 2 : value.start - 1]
    is_regex = prefix in ("r", "R") and bool(PATTERNS["expression"].search(value.text))
    return is_regex or is_reference(value.text)


class _Value(NamedTuple):
    """A value after a name, without its quotes and without a word such as `Bearer`."""

    start: int
    text: str
    is_quoted: bool


def _read_value(text: str, match: re.Match[str]) -> _Value:
    """Read the matched value as written in the text, since `match` only has it in lower case."""
    start, end = match.span("value")
    is_quoted = text[start] in "\"'`("
    if not is_quoted:
        return _Value(start, text[start:end].rstrip(".,:"), is_quoted)

    # Remove the quotes, and a scheme such as `Bearer` before a token.
    inner_start = start + 1
    value = text[inner_start : end - 1]
    scheme = PATTERNS["scheme"].match(value)
    if scheme:
        inner_start += scheme.end()
        value = value[scheme.end() :]
    return _Value(inner_start, value, is_quoted)


def _read_name(text: str, match: re.Match[str]) -> str:
    """Read the full name before a value, such as `db_password_2`.

    `match` only has the name's `core` ("password") and its `tail` ("_2").
    """
    core_start = match.start("core")
    search_start = max(0, core_start - _LONGEST_NAME)
    prefix = cast("re.Match[str]", PATTERNS["before"].search(text, search_start, core_start))[0]
    if not prefix:
        # The name can be two words: `API key` is read as `API_key`.
        search_start = max(0, core_start - _LONGEST_WORD_BEFORE)
        two_words = PATTERNS["two_words"].search(text, search_start, core_start)
        if two_words:
            prefix = f"{two_words[1]}_"
    return prefix + text[core_start : match.end("tail")]


def _is_passphrase(match: re.Match[str], value: str, *, is_password: bool) -> bool:
    """Whether a quoted value is a passphrase: multiple words, as people choose for a password."""
    if is_password and PATTERNS["passphrase"].match(value):
        return True
    return _is_hyphenated_phrase(match, value)


def _is_hyphenated_phrase(match: re.Match[str], value: str) -> bool:
    """Whether a value after a secret's name is a passphrase such as `maple-river-candle-orbit`."""
    if not value.islower() or "-" not in value or " " in value:
        return False
    name = match["core"] + match["tail"]  # such as "password" and "_2"
    return is_phrase(value) and bool(PATTERNS["secret_name"].search(name))


def _find_bare_value_end(text: str, match: re.Match[str], end: int) -> int:
    """Return the end of an unquoted value.

    The match ends at `end`, but if the line is a setting, the value extends to the next blank.
    """
    text_before = _read_line_before(text, match.start())
    is_setting = PATTERNS["setting"].fullmatch(text_before)
    if is_setting:
        remainder = PATTERNS["to_blank"].match(text, end)
        if remainder and any(map(str.isalnum, remainder[0])):
            return remainder.end()
    return end


def _read_line_before(text: str, position: int) -> str:
    """Return the line up to a position, but at most the last 120 characters."""
    earliest = max(0, position - 2 * _LONGEST_NAME)
    line_break = text.rfind("\n", earliest, position)
    return text[max(earliest, line_break + 1) : position]


def _is_quoted_secret(text: str, match: re.Match[str], value: str, name_class: str) -> bool:
    """Whether a quoted value is a secret.

    The weaker the class of its name, the more the value itself must look like a secret.
    """
    if name_class == "strong":  # such as `password`
        is_path = value.startswith("/")
        return not is_path or is_mixed(value)
    if name_class == "short":  # such as `pw`
        is_long_enough = is_mixed(value) or len(value) >= _MIN_SHORT
        return is_long_enough and not is_code(value)
    if name_class == "weak":  # such as `session`
        if is_weak_secret(value):
            return True
        # A hexadecimal value could just be a hash. It's a key if the line also mentions encryption.
        text_before = _read_line_before(text, match.start())
        is_about_encryption = PATTERNS["secretive"].search(text_before)
        return bool(PATTERNS["hex_key"].match(value) and is_about_encryption)

    # The name's class is "secret": a token's or key's name, such as `api_key`.
    looks_random = is_mixed(value) or is_generated(value)
    if len(value) < MIN_TOKEN or not looks_random:
        return False
    return not (is_code(value) or PATTERNS["expression"].search(value))


def _is_bare_secret(text: str, match: re.Match[str], value: str, name_class: str) -> bool:
    """Whether an unquoted value is a secret, rather than a variable.

    The weaker the class of its name, the more the value itself must look like a secret.
    """
    is_after_colon = text[match.start() - 1 : match.start()] == ":"
    if is_after_colon or is_code(value) or PATTERNS["choice"].match(value):
        return False
    is_subscript = bool(match["close"])  # `config["pin"] = 5` is code
    if is_subscript and value.isdigit():
        return False

    # weak names
    if name_class == "weak":
        return is_weak_secret(value)
    text_before = _read_line_before(text, match.start())
    is_last_in_line = bool(PATTERNS["end_of_setting"].match(text, match.end()))
    # As in a settings file, nothing else is on the line.
    is_alone = is_last_in_line and bool(PATTERNS["setting"].fullmatch(text_before))
    if name_class == "secret":
        return _is_secret_token(text, match, value, is_alone=is_alone)

    # A PIN in upper case. In lower case, "pin" is often a verb or a component.
    core_as_written = text[match.start("core") : match.end("core")]
    if name_class == "short" and value.isdigit() and core_as_written == "PIN":
        return True

    # A value in snake case is a variable, unless the line is a setting.
    if is_snake_case(value):
        has_no_gap = match.end("operator") == match.start("value")
        is_setting = match["operator"] == ":" or has_no_gap
        if not (is_setting and is_alone and is_mixed(value)):
            return False

    # Elsewhere, the value must look like a password. In a settings file, it can be a plain word.
    if name_class == "short":
        if is_human_password(value):
            return True
        return len(value) >= _MIN_SHORT and _is_in_settings_file(text, match)
    has_digit = any(map(str.isdigit, value))
    if has_digit or not value.isidentifier():
        return True
    return _is_in_settings_file(text, match)


def _is_secret_token(text: str, match: re.Match[str], value: str, *, is_alone: bool) -> bool:
    """Whether an unquoted value with a name such as `secret` or `token` is a secret.

    A shorter value is enough if nothing else is on the line (`is_alone`).
    """
    if is_snake_case(value):  # a variable
        return False
    name = text[match.start("core") : match.end("tail")]
    if is_alone and match["core"] == "secret" and name.isupper():
        return len(value) >= MIN_TOKEN
    least_length = MIN_TOKEN if is_alone and is_strange(value) else MIN_BARE_TOKEN
    return len(value) >= least_length and (is_mixed(value) or is_generated(value))


def _is_in_settings_file(text: str, match: re.Match[str]) -> bool:
    """Whether a name and its value look like a setting in a file, such as `DB_PASSWORD=x` or `Pwd=x;`.

    `match` has the groups `core` and `tail` (the name's two parts), `operator` (such as `=`) and `value`.
    """
    operator = match["operator"]
    gap = text[match.end("operator") : match.start("value")]  # blanks between operator and value
    next_char = text[match.end() : match.end() + 1]
    text_before = _read_line_before(text, match.start()).strip(" \t-")

    # A setting is alone on its line if only a prefix such as `db.` is before it.
    ends_line = next_char in ("", "\n") or bool(PATTERNS["end_of_setting"].match(text, match.end()))
    is_alone = ends_line and bool(re.fullmatch(r"[\w.-]*", text_before))

    # YAML, such as `password: x`, with a value in lower case
    if operator != "=":
        value_start, value_end = match.span("value")
        is_yaml = operator == ":" and gap == " "
        return is_alone and is_yaml and text[value_start:value_end].islower()

    # another setting on the same line, such as `passwd=x host=y`
    if not gap and PATTERNS["next_setting"].match(text, match.end()):
        return True

    # part of a connection string, such as `Pwd=x;`, or an environment variable, such as `DB_PASSWORD=x`
    name = text[match.start("core") : match.end("tail")]
    if next_char == ";" or name.isupper():
        return True

    # a properties file, such as `db.password=x`: no blanks around the operator
    if not gap and ends_line and PATTERNS["property"].fullmatch(text_before):
        return match.end("tail") == match.start("operator")

    # an INI file, such as `passwd = x` below a section header `[database]`
    if not is_alone:
        return False
    search_start = max(0, match.start() - _SECTION_REACH)
    return bool(PATTERNS["section"].search(text, search_start, match.start()))
