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

_MAX_NAME_CHARS = 60
_MAX_PRECEDING_WORD_CHARS = 14  # including the blank after it
_MIN_SHORT_PASSWORD_CHARS = 6
_SECTION_REACH = 300  # characters before a setting that are searched for its section's header
_DIGITS = "0123456789"
_PUBLIC_NAME_WORDS = frozenset(("public", "publishable"))
_PASSWORD_CLASSES = ("strong", "short")  # of names such as `password` and `pin`
_SHORT_PASSWORD_NAMES = frozenset(RULES["words"]["short"].split())
_NAME_SUFFIXES = frozenset(RULES["words"]["endings"].split())


@functools.lru_cache(4096)
def classify_name(name: str) -> str:
    """Classify a setting's name by how likely its value is a secret.

    - "strong": a password
    - "short": a password's abbreviation, such as `pass` or `pw`
    - "secret": a token or key
    - "weak": a name that can also have other meanings, such as `session`
    - "": any other name
    """
    words = _drop_suffixes(_split_name(name))
    is_public = any(word in _PUBLIC_NAME_WORDS for word in words)  # such as `public_key`
    if not words or is_public:
        return ""

    # Match the words joined, because `pass_word` and `api_key` are also written as one word.
    all_words = "".join(words).rstrip(_DIGITS)
    last_three = "".join(words[-3:]).rstrip(_DIGITS)
    last_two = "".join(words[-2:])
    last_word = words[-1].rstrip(_DIGITS)
    if PATTERNS["strong"].search(all_words):
        return "strong"
    if last_word in _SHORT_PASSWORD_NAMES or last_two in _SHORT_PASSWORD_NAMES:
        return "short"
    if PATTERNS["secret"].search(last_three):
        return "secret"
    if _is_weak_name(last_three, last_word):
        return "weak"
    return ""


def _split_name(name: str) -> list[str]:
    """Split a name into lower-case words: `dbPassword` and `DB-PASSWORD` become ["db", "password"]."""
    snake_case = PATTERNS["hump"].sub(r"\1_\2", name)
    words = PATTERNS["separator"].split(snake_case.lower())
    return [word for word in words if word]


def _drop_suffixes(words: list[str]) -> list[str]:
    """Drop up to three suffixes, but never the first word: `api_key_prod_2` becomes `api_key`."""
    kept_words = words.copy()
    for _ in range(3):
        if len(kept_words) > 1 and (kept_words[-1] in _NAME_SUFFIXES or kept_words[-1].isdigit()):
            kept_words.pop()
    return kept_words


def _is_weak_name(last_three: str, last_word: str) -> bool:
    """Whether a name ends with a word that can also have other meanings, such as `session` or `auth`.

    `last_three` are the name's last three words, joined, and `last_word` is the last of them.
    """
    weak_name = PATTERNS["weak"].search(last_three)
    if weak_name is None:
        return False
    is_whole_word = last_word == weak_name[0]
    # Most weak names end a longer word by coincidence, as in `obsession`. But "key" and "auth" also belong to
    # joined words, as in `oauth`.
    ends_with_key_or_auth = last_word.endswith(("key", "auth"))
    return is_whole_word or ends_with_key_or_auth


def find_named(text: str, match: re.Match[str]) -> SecretMatch | None:
    """Return the secret after a name such as "password", or None if the value isn't a secret.

    `match` is the name and its value. It was found in `text.lower()`, but its positions are valid in `text`.
    """
    # such as "strong" for `password`, or "weak" for `session`
    name_class = classify_name(_read_name(text, match))
    if not name_class:
        return None
    value = _read_value(text, match)
    if not _is_named_secret(text, match, value, name_class):
        return None

    end = value.start + len(value.text)
    if not value.is_quoted:
        end = _find_bare_value_end(text, match, end)
    return SecretMatch(value.start, end, _choose_kind(match, name_class))


def _is_named_secret(text: str, match: re.Match[str], value: _Value, name_class: str) -> bool:
    """Whether a value is a secret, rather than code or a placeholder.

    The name's class decides how much the value must look like a secret.
    """
    # An unquoted value can be code that reads the password, such as `password=get_password()`.
    is_password = name_class in _PASSWORD_CLASSES
    if is_password and not value.is_quoted and is_reference(value.text):
        return False

    # Passphrases and generated values are secrets even if they look like a placeholder such as
    # "your-password".
    is_passphrase = value.is_quoted and _is_passphrase(match, value.text, is_password=is_password)
    is_clearly_secret = is_passphrase or is_generated(value.text)
    if not is_clearly_secret and _is_stand_in(text, value, is_password=is_password):
        return False

    if not value.is_quoted:
        return _is_bare_secret(text, match, value.text, name_class)
    # `_is_quoted_secret` may ask for digits or random characters, which words joined by hyphens lack.
    is_hyphenated_passphrase = is_passphrase and "-" in value.text
    if is_hyphenated_passphrase:
        return True
    return _is_quoted_secret(text, match, value.text, name_class)


def _choose_kind(match: re.Match[str], name_class: str) -> str:
    """Choose the kind of a secret, such as "token". In the redacted text, it replaces the secret."""
    if name_class in _PASSWORD_CLASSES:
        return "password"
    core = match["core"]  # the name's main part, such as "key" in `api_key_2`
    return core if core in {"key", "secret"} else "token"


def _is_stand_in(text: str, value: _Value, *, is_password: bool) -> bool:
    """Whether a value only stands for a secret: a setting's name, placeholder, variable or regex."""
    # A setting's name has an underscore, as in `DB_PASSWORD`. Capitals and digits alone can be a password.
    is_setting_name = value.text.isupper() and not value.text.isalnum()
    if is_password and is_setting_name:
        return True

    has_blank = any(map(str.isspace, value.text))
    is_quoted_word = value.is_quoted and not has_blank
    if is_password and is_quoted_word:
        # Nearly any quoted word can be a password, so only rule out regexes and variables.
        return _is_regex(text, value) or is_reference(value.text)
    return is_placeholder(value.text)


def _is_regex(text: str, value: _Value) -> bool:
    """Whether a quoted value is a regex in a raw string, such as `r"[a-z]+"`."""
    quote_start = value.start - 1
    prefix = text[quote_start - 1 : quote_start]
    is_raw = prefix in ("r", "R")
    return is_raw and bool(PATTERNS["expression"].search(value.text))


class _Value(NamedTuple):
    """A value after a name, without its quotes and without a word such as `Bearer`."""

    start: int
    text: str
    is_quoted: bool


def _read_value(text: str, match: re.Match[str]) -> _Value:
    """Read the matched value as written in the text, since `match` only has it in lower case."""
    start, end = match.span("value")
    # Parentheses count as quotes, because Perl has strings such as `q(…)`.
    is_quoted = text[start] in "\"'`("
    if not is_quoted:
        without_punctuation = text[start:end].rstrip(".,:")
        return _Value(start, without_punctuation, is_quoted)

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
    search_start = max(0, core_start - _MAX_NAME_CHARS)
    joined_part = PATTERNS["before"].search(text, search_start, core_start)
    joined_part = cast("re.Match[str]", joined_part)  # the pattern always matches, if only ""
    # If nothing such as `db_` is joined to the core, a separate word can belong to it, as in `API key`.
    prefix = joined_part[0] or _read_word_before(text, core_start)
    return prefix + text[core_start : match.end("tail")]


def _read_word_before(text: str, core_start: int) -> str:
    """Read `API_` for a name of two words, such as `API key`. For a name of one word, return ""."""
    search_start = max(0, core_start - _MAX_PRECEDING_WORD_CHARS)
    word = PATTERNS["two_words"].search(text, search_start, core_start)
    return f"{word[1]}_" if word else ""


def _is_passphrase(match: re.Match[str], value: str, *, is_password: bool) -> bool:
    """Whether a quoted value is a passphrase: multiple words, as people choose for a password."""
    if is_password and PATTERNS["passphrase"].match(value):
        return True
    return _is_hyphenated_phrase(match, value)


def _is_hyphenated_phrase(match: re.Match[str], value: str) -> bool:
    """Whether a value after a secret's name is a passphrase such as `maple-river-candle-orbit`."""
    is_hyphenated = "-" in value and " " not in value
    if not is_hyphenated or not value.islower():
        return False
    name = match["core"] + match["tail"]  # such as "password" and "_2"
    return is_phrase(value) and bool(PATTERNS["secret_name"].search(name))


def _find_bare_value_end(text: str, match: re.Match[str], end: int) -> int:
    """Return the end of an unquoted value.

    The match ends at `end`, but if the line is a setting, the value extends to the next blank.
    """
    if not _starts_like_setting(text, match):
        return end

    remainder = PATTERNS["to_blank"].match(text, end)
    if remainder is None:
        return end
    is_mere_punctuation = not any(map(str.isalnum, remainder[0]))  # such as a comma after the value
    return end if is_mere_punctuation else remainder.end()


def _starts_like_setting(text: str, match: re.Match[str]) -> bool:
    """Whether only a prefix such as `db.`, or a word such as `export`, is before a name on its line."""
    return bool(PATTERNS["setting"].fullmatch(_read_line_before(text, match.start())))


def _read_line_before(text: str, position: int) -> str:
    """Return the line up to a position, but at most the last 120 characters."""
    earliest = max(0, position - 2 * _MAX_NAME_CHARS)
    line_break = text.rfind("\n", earliest, position)
    return text[max(earliest, line_break + 1) : position]


def _is_quoted_secret(text: str, match: re.Match[str], value: str, name_class: str) -> bool:
    """Whether a quoted value is a secret.

    The weaker the class of its name, the more the value itself must look like a secret.
    """
    if name_class == "strong":  # such as `password`
        is_mere_path = value.startswith("/") and not is_mixed(value)
        return not is_mere_path
    if name_class == "short":  # such as `pw`
        if is_code(value):
            return False
        # With letters and digits, even a short value is a password.
        return is_mixed(value) or len(value) >= _MIN_SHORT_PASSWORD_CHARS
    if name_class == "weak":  # such as `session`
        return is_weak_secret(value) or _is_encryption_key(text, match, value)
    return _is_quoted_token(value)  # the class "secret", such as `api_key`


def _is_encryption_key(text: str, match: re.Match[str], value: str) -> bool:
    """Whether a value is a hexadecimal encryption key."""
    # It could just be a hash, unless the text before it on the same line mentions encryption.
    text_before = _read_line_before(text, match.start())
    is_about_encryption = bool(PATTERNS["encryption_word"].search(text_before))
    return is_about_encryption and bool(PATTERNS["hex_key"].match(value))


def _is_quoted_token(value: str) -> bool:
    """Whether a quoted value is long and random enough for a token or key, and isn't code or a regex."""
    looks_random = is_mixed(value) or is_generated(value)
    if len(value) < MIN_TOKEN or not looks_random:
        return False
    is_code_or_regex = is_code(value) or bool(PATTERNS["expression"].search(value))
    return not is_code_or_regex


def _is_bare_secret(text: str, match: re.Match[str], value: str, name_class: str) -> bool:
    """Whether an unquoted value is a secret, rather than a variable.

    The weaker the class of its name, the more the value itself must look like a secret.
    """
    if _is_code_or_choice(text, match, value):
        return False
    if name_class == "weak":
        return is_weak_secret(value)

    is_setting_line = _is_setting_line(text, match)
    if name_class == "secret":
        return _is_secret_token(text, match, value, is_setting_line=is_setting_line)
    if name_class == "short" and _is_pin(text, match, value):
        return True
    if _is_snake_case_variable(match, value, is_setting_line=is_setting_line):
        return False
    return _is_bare_password(text, match, value, name_class)


def _is_code_or_choice(text: str, match: re.Match[str], value: str) -> bool:
    """Whether a name and its value are code, or the value is a choice such as `str|None`."""
    # in code, such as `:token => value` or `Config::token = value`
    is_after_colon = text[match.start() - 1 : match.start()] == ":"
    if is_after_colon or is_code(value) or PATTERNS["choice"].match(value):
        return True
    is_subscript = bool(match["close"])  # `config["pin"] = 5` is code
    return is_subscript and value.isdigit()


def _is_setting_line(text: str, match: re.Match[str]) -> bool:
    """Whether the line is only a setting, as in a settings file. A comment may follow."""
    is_last_in_line = bool(PATTERNS["end_of_setting"].match(text, match.end()))
    return is_last_in_line and _starts_like_setting(text, match)


def _is_pin(text: str, match: re.Match[str], value: str) -> bool:
    """Whether a name is "PIN" and its value a number. In lower case, "pin" is often a verb or a component."""
    core_as_written = text[match.start("core") : match.end("core")]
    return core_as_written == "PIN" and value.isdigit()


def _is_set_without_gap(match: re.Match[str]) -> bool:
    """Whether a value follows a colon, as in `name: value`, or comes right after another operator."""
    has_no_gap = match.end("operator") == match.start("value")
    return match["operator"] == ":" or has_no_gap


def _is_snake_case_variable(match: re.Match[str], value: str, *, is_setting_line: bool) -> bool:
    """Whether a value in snake case is a variable, rather than a password as in `PASSWORD=blue_sky7`."""
    if not is_snake_case(value):
        return False
    is_password_in_setting = is_setting_line and _is_set_without_gap(match) and is_mixed(value)
    return not is_password_in_setting


def _is_bare_password(text: str, match: re.Match[str], value: str, name_class: str) -> bool:
    """Whether an unquoted value looks like a password. In a settings file, it can also be a plain word."""
    if _looks_like_password(value, name_class):
        return True
    is_too_short = name_class == "short" and len(value) < _MIN_SHORT_PASSWORD_CHARS
    if is_too_short:
        return False
    return _is_in_settings_file(text, match)


def _looks_like_password(value: str, name_class: str) -> bool:
    """Whether a value looks like a password, rather than a plain word."""
    if name_class == "short":
        return is_human_password(value)
    has_digit = any(map(str.isdigit, value))
    # An identifier only has letters, digits and underscores.
    has_symbol = not value.isidentifier()
    return has_digit or has_symbol


def _is_secret_token(text: str, match: re.Match[str], value: str, *, is_setting_line: bool) -> bool:
    """Whether an unquoted value with a name such as `secret` or `token` is a secret."""
    if is_snake_case(value):  # a variable
        return False

    # In a line such as `SECRET=…`, any value is a secret if it isn't too short.
    name = text[match.start("core") : match.end("tail")]
    is_secret_setting = is_setting_line and match["core"] == "secret" and name.isupper()
    if is_secret_setting:
        return len(value) >= MIN_TOKEN

    looks_random = is_mixed(value) or is_generated(value)
    if not looks_random:
        return False
    # If the line is only a setting, the value can be short. But then it mustn't look like a version, such as
    # `1.2.3-rc1`.
    can_be_short = is_setting_line and is_strange(value)
    min_length = MIN_TOKEN if can_be_short else MIN_BARE_TOKEN
    return len(value) >= min_length


def _is_in_settings_file(text: str, match: re.Match[str]) -> bool:
    """Whether a name and its value look like a setting in a file, such as `DB_PASSWORD=x` or `Pwd=x;`.

    `match` has the groups `core` and `tail` (the name's two parts), `operator` (such as `=`) and `value`.
    """
    if match["operator"] != "=":
        return _is_yaml_setting(text, match)
    is_connection_part = text.startswith(";", match.end())  # such as `Pwd=x;`
    if is_connection_part or _is_before_next_setting(text, match):
        return True

    name = text[match.start("core") : match.end("tail")]
    is_environment_variable = name.isupper()  # such as `DB_PASSWORD=x`
    if is_environment_variable:
        return True

    if _is_in_properties_line(text, match):
        # In a properties file, `=` comes right after the name, as in `db.password=x`.
        return match.start("operator") == match.end("tail")
    return _is_ini_setting(text, match)


def _is_yaml_setting(text: str, match: re.Match[str]) -> bool:
    """Whether a setting is alone on its line, such as `password: x`, with a value in lower case."""
    has_yaml_operator = match["operator"] == ":" and _read_gap(text, match) == " "
    # A capitalised word may be a form's text, as in `Password: Required`.
    value_start, value_end = match.span("value")
    is_lower = text[value_start:value_end].islower()
    return has_yaml_operator and is_lower and _is_alone_except_prefix(text, match)


def _is_before_next_setting(text: str, match: re.Match[str]) -> bool:
    """Whether another setting follows on the same line, as in `passwd=x host=y`."""
    if _read_gap(text, match):
        return False
    return bool(PATTERNS["next_setting"].match(text, match.end()))


def _is_in_properties_line(text: str, match: re.Match[str]) -> bool:
    """Whether a line looks like one of a properties file, without a blank before the value."""
    if _read_gap(text, match) or not _ends_line(text, match):
        return False
    return bool(PATTERNS["property"].fullmatch(_read_prefix(text, match)))


def _is_ini_setting(text: str, match: re.Match[str]) -> bool:
    """Whether a setting is alone on its line, such as `passwd = x`, below a section header `[database]`."""
    if not _is_alone_except_prefix(text, match):
        return False
    search_start = max(0, match.start() - _SECTION_REACH)
    return bool(PATTERNS["section"].search(text, search_start, match.start()))


def _is_alone_except_prefix(text: str, match: re.Match[str]) -> bool:
    """Whether nothing else is on a setting's line, except a prefix such as `db.`."""
    has_only_prefix = bool(re.fullmatch(r"[\w.-]*", _read_prefix(text, match)))
    return has_only_prefix and _ends_line(text, match)


def _ends_line(text: str, match: re.Match[str]) -> bool:
    """Whether a setting's line ends after its value. A comment may follow."""
    next_char = text[match.end() : match.end() + 1]
    return next_char in ("", "\n") or bool(PATTERNS["end_of_setting"].match(text, match.end()))


def _read_prefix(text: str, match: re.Match[str]) -> str:
    """Read the text before a setting on its line, without blanks and dashes around it."""
    return _read_line_before(text, match.start()).strip(" \t-")


def _read_gap(text: str, match: re.Match[str]) -> str:
    """Read the text between a setting's operator and its value, such as blanks."""
    return text[match.end("operator") : match.start("value")]
