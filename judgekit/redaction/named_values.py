"""Finds values whose name makes them secrets: `password: x`, `API_KEY=x`.

The name decides how much a value must look like a secret.
"""

from __future__ import annotations

import functools
import re
from typing import cast

from judgekit.redaction.references import is_reference
from judgekit.redaction.secret_rules import RE, RULES, SecretMatch
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
_LEAST_SHORT = 6
_PUBLIC = frozenset(("public", "publishable"))
_SHORT, _ENDINGS = (frozenset(RULES["words"][name].split()) for name in ("short", "endings"))


@functools.lru_cache(4096)
def strength_of(name: str) -> str:
    """Classify a name: of a password, a short word for one, a secret, a possible secret, or none."""
    words = []
    for word in RE["separator"].split(RE["hump"].sub(r"\1_\2", name).lower()):
        if word:
            words.append(word)
    for _ in range(3):
        if len(words) > 1 and (words[-1] in _ENDINGS or words[-1].isdigit()):
            words.pop()
    if not words or not _PUBLIC.isdisjoint(words):
        return ""
    last = words[-1].rstrip("0123456789")
    if RE["strong"].search("".join(words).rstrip("0123456789")):
        return "strong"
    if last in _SHORT or "".join(words[-2:]) in _SHORT:
        return "short"
    joined = "".join(words[-3:]).rstrip("0123456789")
    if RE["secret"].search(joined):
        return "secret"
    weak = RE["weak"].search(joined)
    if weak and (last == weak[0] or last.endswith(("key", "auth"))):
        return "weak"
    return ""


def find_named(text: str, match: re.Match[str]) -> SecretMatch | None:
    """Return the secret in a name and its value; `match` is from the lower-case text."""
    strength = strength_of(_read_name(text, match))
    if not strength:
        return None
    start, end = match.span("value")
    is_quoted = text[start] in "\"'`("
    if is_quoted:
        start += 1
        value = text[start : end - 1]
        scheme = RE["scheme"].match(value)
        if scheme:  # `Bearer`, `Basic`
            start += scheme.end()
            value = value[scheme.end() :]
    else:
        value = text[start:end].rstrip(".,:")
    is_strong = strength in ("strong", "short")
    if is_strong and not is_quoted and is_reference(value):
        return None
    is_phrase_value = is_quoted and (
        _is_hyphened_phrase(match, value) or (is_strong and bool(RE["passphrase"].match(value)))
    )
    if not is_phrase_value and not is_generated(value):
        is_name_of_setting = is_strong and value.isupper() and not value.isalnum()
        # A password's name decides, unless the value is a placeholder.
        is_sentence = any(map(str.isspace, value))
        if is_quoted and is_strong and not is_sentence:
            is_raw = text[start - 2 : start - 1] in ("r", "R")
            is_pattern = is_raw and bool(RE["expression"].search(value))
            is_stand_in = is_pattern or is_reference(value)
        else:
            is_stand_in = is_placeholder(value)
        if is_name_of_setting or is_stand_in:
            return None
    if is_quoted:
        is_hyphened = is_phrase_value and "-" in value
        is_secret = is_hyphened or _quoted_secret(text, match, value, strength)
    else:
        is_secret = _bare_secret(text, match, value, strength)
    if not is_secret:
        return None
    if is_strong:
        kind = "password"
    else:
        kind = {"key": "key", "secret": "secret"}.get(match["core"], "token")
    end = start + len(value)
    if not is_quoted:
        end = _end_of_setting(text, match, end)
    return SecretMatch(start, end, kind)


def _read_name(text: str, match: re.Match[str]) -> str:
    """Return the whole name before a value: `API key` counts as one."""
    core = match.start("core")
    before = cast("re.Match[str]", RE["before"].search(text, max(0, core - _LONGEST_NAME), core))[0]
    if not before:
        two_words = RE["two_words"].search(text, max(0, core - 14), core)
        if two_words:
            before = f"{two_words[1]}_"
    return before + text[core : match.end("tail")]


def _is_hyphened_phrase(match: re.Match[str], value: str) -> bool:
    """Whether a value is hyphenated words under the name of a secret: `maple-river-candle-orbit`."""
    if not value.islower() or "-" not in value or " " in value or not is_phrase(value):
        return False
    return bool(RE["secret_name"].search(match["core"] + match["tail"]))


def _end_of_setting(text: str, match: re.Match[str], end: int) -> int:
    """Find the end of a value: without quotes, a settings file's value is the rest of its line."""
    if RE["setting"].fullmatch(_read_line_before(text, match.start())):
        rest = RE["to_blank"].match(text, end)
        if rest and any(map(str.isalnum, rest[0])):
            return rest.end()
    return end


def _read_line_before(text: str, at: int) -> str:
    """Return the text before a position on its line; if that's long, only the end."""
    first = max(0, at - 2 * _LONGEST_NAME)
    return text[max(first, text.rfind("\n", first, at) + 1) : at]


def _quoted_secret(text: str, match: re.Match[str], value: str, strength: str) -> bool:
    if strength == "strong":
        return not value.startswith("/") or is_mixed(value)
    if strength == "short":
        is_long_enough = is_mixed(value) or len(value) >= _LEAST_SHORT
        return is_long_enough and not is_code(value)
    if strength == "weak":
        if is_weak_secret(value):
            return True
        line = _read_line_before(text, match.start())
        return bool(RE["hex_key"].match(value) and RE["secretive"].search(line))
    if len(value) < LEAST_TOKEN or not (is_mixed(value) or is_generated(value)):
        return False
    return not (is_code(value) or RE["expression"].search(value))


def _bare_secret(text: str, match: re.Match[str], value: str, strength: str) -> bool:
    """Whether a value without quotes is a secret: in code it's usually a name."""
    is_behind_colon = text[match.start() - 1 : match.start()] == ":"
    if is_behind_colon or is_code(value) or RE["choice"].match(value):
        return False
    if match["close"] and value.isdigit():
        return False
    if strength == "weak":
        return is_weak_secret(value)
    # Name and value are all that their line has, as in a file of settings.
    before = _read_line_before(text, match.start())
    behind = RE["end_of_setting"].match(text, match.end())
    is_alone = bool(behind and RE["setting"].fullmatch(before))
    if strength == "secret":
        return _is_secret_token(text, match, value, is_alone=is_alone)
    core = text[match.start("core") : match.end("core")]
    if strength == "short" and value.isdigit() and core == "PIN":
        return True
    if is_snake_case(value):
        is_setting = match["operator"] == ":" or match.end("operator") == match.start("value")
        if not (is_setting and is_alone and is_mixed(value)):
            return False
    if strength == "short":
        if is_chosen(value):
            return True
        return len(value) >= _LEAST_SHORT and _in_file_of_settings(text, match)
    if any(map(str.isdigit, value)) or not value.isidentifier():
        return True
    return _in_file_of_settings(text, match)


def _is_secret_token(text: str, match: re.Match[str], value: str, *, is_alone: bool) -> bool:
    """Whether an unquoted value under a name like `secret` or `token` is one."""
    if is_snake_case(value):
        return False
    name = text[match.start("core") : match.end("tail")]
    if is_alone and match["core"] == "secret" and name.isupper():
        return len(value) >= LEAST_TOKEN
    least = LEAST_BARE_TOKEN
    if is_alone and is_strange(value):
        least = LEAST_TOKEN
    return len(value) >= least and (is_mixed(value) or is_generated(value))


def _in_file_of_settings(text: str, match: re.Match[str]) -> bool:
    """Whether even a plain word is a value: `DB_PASSWORD=x`, `Pwd=x;`, `password: x`, `passwd=x` alone."""
    operator = match["operator"]
    gap = text[match.end("operator") : match.start("value")]
    after = text[match.end() : match.end() + 1]
    before = _read_line_before(text, match.start()).strip(" \t-")
    is_last = after in ("", "\n") or bool(RE["end_of_setting"].match(text, match.end()))
    is_alone = is_last and bool(re.fullmatch(r"[\w.-]*", before))
    if operator != "=":
        value = text[slice(*match.span("value"))]
        return is_alone and operator == ":" and gap == " " and value.islower()
    if not gap and RE["next_setting"].match(text, match.end()):
        return True
    if after == ";" or text[match.start("core") : match.end("tail")].isupper():
        return True
    if not gap and is_last and RE["property"].fullmatch(before):
        return match.end("tail") == match.start("operator")
    return is_alone and bool(RE["section"].search(text, max(0, match.start() - 300), match.start()))
