"""Classifies values by their looks: generated, chosen by a person, a name, code, or a placeholder."""

from __future__ import annotations

import re

from judgekit.redaction.secret_rules import RE
from judgekit.redaction.vendor_tokens import count_changes

_SYMBOLS = frozenset("!#$%&*+=?@^|~")
_LEAST_SYMBOLS = 3
_LEAST_STRANGE = 6
LEAST_TOKEN = 8
LEAST_BARE_TOKEN = 16
_LEAST_WEAK = 20
_LEAST_WORDS = 4
_CHANGED_OFTEN = 4
_SHUFFLED = 0.45  # random values have 0.6, camelCase with words of five letters 0.4
_SHUFFLED_WEAK = 0.35


def is_mixed(value: str) -> bool:
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def fits(value: str, wanted: str) -> bool:
    """Whether a value fits the group of a place's pattern; `secret_rules.toml` explains the groups."""
    if wanted == "phrase":
        return is_phrase(value)
    if wanted == "sure":
        return not value.startswith("[")
    if is_generated(value):
        return True
    if is_placeholder(value):
        return False
    if wanted in ("mixed", "random"):
        if wanted == "random":
            digits = sum(map(str.isdigit, value))
            has_digits = len(value) >= LEAST_TOKEN and digits * 10 >= len(value)
            if not has_digits:
                return False
        return is_mixed(value) and not is_snake_case(value)
    if wanted in ("generated", "chosen"):
        return is_strange(value) or (wanted == "chosen" and is_chosen(value))
    return wanted == "value" or not (RE["sentence"].match(value) or value.isupper())


def is_placeholder(value: str) -> bool:
    """Whether a value is a placeholder for a secret, or names the place it's kept in."""
    if RE["placeholder"].match(value) or RE["name"].match(value):
        return True
    return any(map(str.isspace, value))


def is_generated(value: str) -> bool:
    """Whether a value is a mixture that only generators make, whatever it begins with."""
    if len(value) < LEAST_TOKEN or RE["format"].search(value) or any(map(str.isspace, value)):
        return False
    symbols = len(_SYMBOLS.intersection(value[1:-1]))
    cases = any(map(str.isupper, value)) and any(map(str.islower, value))
    mixed = is_mixed(value)
    if symbols >= (1 if mixed and cases else _LEAST_SYMBOLS) and (mixed or cases):
        return True
    if RE["words"].match(value):
        return False
    least = LEAST_BARE_TOKEN if mixed else _LEAST_WEAK
    return cases and len(value) >= least and share_of_changes(value) >= _SHUFFLED


def share_of_changes(value: str) -> float:
    """Return the changes between classes of characters in a value, relative to its length."""
    return count_changes(value) / max(len(value) - 1, 1)


def is_snake_case(value: str) -> bool:
    """Whether a value is a name of several words, as in code."""
    return value.isidentifier() and "_" in value.strip("_") and not is_generated(value)


def is_code(value: str) -> bool:
    return bool(RE["code"].match(value)) and not is_generated(value)


def is_weak_secret(value: str) -> bool:
    """Whether a value is a secret under a name like `key` or `session`, which other things have too."""
    long = len(value) >= _LEAST_WEAK and is_mixed(value) and not is_snake_case(value)
    return long and not RE["hex_or_id"].match(value) and share_of_changes(value) >= _SHUFFLED_WEAK


def _kind_of_character(char: str) -> str:
    if char.isalpha():
        return "a"
    return "0" if char.isdigit() else "-"


def is_strange(value: str) -> bool:
    """Whether letters, digits and symbols are mixed as they never are in names, versions or measures."""
    core = value.strip("\"'`*.,;:!?)")
    if not is_mixed(core):
        has_both_cases = any(map(str.isupper, core[1:])) and any(map(str.islower, core))
        has_symbol = bool(_SYMBOLS.intersection(core[1:-1]))
        return has_both_cases and has_symbol and len(core) >= LEAST_TOKEN
    kinds = "".join(map(_kind_of_character, core))
    runs = re.sub(r"(.)\1+", r"\1", kinds)  # collapse repeats
    is_mixture = (
        len(runs) >= _CHANGED_OFTEN
        or runs == "a0"
        or "a0-" in runs
        or "0a0" in runs
        or "a0a" in runs
    )
    return is_mixture and len(core) >= _LEAST_STRANGE and not RE["measure"].match(core)


def is_chosen(value: str) -> bool:
    """Whether a value is something people choose as a password: letters with digits, no standard."""
    core = value.strip("\"'`*_.,;:?)")
    if len(core) < _LEAST_STRANGE or not is_mixed(core):
        return False
    return not (RE["term"].match(core) or is_placeholder(core) or RE["expression"].search(core))


def is_phrase(value: str) -> bool:
    """Whether a value is four words or more, none of them typical of a sentence."""
    words = value.lower().replace("-", " ").split()
    many = len(words) >= _LEAST_WORDS
    phrase = " ".join(words)
    return many and bool(RE["passphrase"].match(phrase)) and not RE["prose"].search(phrase)
