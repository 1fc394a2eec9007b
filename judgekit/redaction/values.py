"""Classifies values by their looks: generated, chosen by a person, a name, code, or a placeholder."""

from __future__ import annotations

import re

from judgekit.redaction.secret_rules import PATTERNS
from judgekit.redaction.vendor_tokens import count_changes

_SYMBOLS = frozenset("!#$%&*+=?@^|~")
_LEAST_SYMBOLS = 3
_LEAST_STRANGE = 6
LEAST_TOKEN = 8
LEAST_BARE_TOKEN = 16
_LEAST_WEAK = 20
_LEAST_WORDS = 4
_CHANGED_OFTEN = 4
_STRANGE_RUNS = ("a0-", "0a0", "a0a")  # `a` letters, `0` digits, `-` symbols
_SHUFFLED = 0.45  # random values have 0.6, camelCase with words of five letters 0.4
_SHUFFLED_WEAK = 0.35


def is_mixed(value: str) -> bool:
    """Whether a value has both letters and digits."""
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def fits(value: str, wanted: str) -> bool:
    """Whether a value looks as a rule demands.

    `wanted` names the demand, such as "mixed": it's the name of a group in the rule's pattern. The names are
    explained in `secret_rules.toml`.
    """
    if wanted == "phrase":
        return is_phrase(value)
    if wanted == "sure":
        return not value.startswith("[")
    if is_generated(value):
        return True
    if is_placeholder(value):
        return False
    if wanted == "random" and not _has_enough_digits(value):
        return False
    if wanted in ("mixed", "random"):
        return is_mixed(value) and not is_snake_case(value)
    if wanted == "generated":
        return is_strange(value)
    if wanted == "chosen":
        return is_strange(value) or is_chosen(value)
    if wanted == "value":
        return True
    return not (PATTERNS["sentence"].match(value) or value.isupper())


def _has_enough_digits(value: str) -> bool:
    """Whether a value is as long as a token at least, and at least a tenth of its characters are digits."""
    digits = sum(map(str.isdigit, value))
    return len(value) >= LEAST_TOKEN and digits * 10 >= len(value)


def is_placeholder(value: str) -> bool:
    """Whether a value isn't a secret itself: a placeholder, a name for where the secret is kept, or a text.

    A value with blanks counts as a text.
    """
    if PATTERNS["placeholder"].match(value) or PATTERNS["name"].match(value):
        return True
    return any(map(str.isspace, value))


def is_generated(value: str) -> bool:
    """Whether a value is a mixture of characters that people don't write, so that a generator made it."""
    if len(value) < LEAST_TOKEN or any(map(str.isspace, value)):
        return False
    if PATTERNS["format"].search(value):
        return False

    symbol_count = len(_SYMBOLS.intersection(value[1:-1]))  # those at the ends may be punctuation
    has_both_cases = any(map(str.isupper, value)) and any(map(str.islower, value))
    has_letters_and_digits = is_mixed(value)
    if has_letters_and_digits and has_both_cases and symbol_count:
        return True
    if (has_letters_and_digits or has_both_cases) and symbol_count >= _LEAST_SYMBOLS:
        return True
    if PATTERNS["words"].match(value):
        return False
    least_length = LEAST_BARE_TOKEN if has_letters_and_digits else _LEAST_WEAK
    return has_both_cases and len(value) >= least_length and share_of_changes(value) >= _SHUFFLED


def share_of_changes(value: str) -> float:
    """Compute the share of neighbouring characters that are of different classes, from 0 to 1.

    The classes are lower case, upper case, digits and others.
    """
    pairs = max(len(value) - 1, 1)
    return count_changes(value) / pairs


def is_snake_case(value: str) -> bool:
    """Whether a value is a name as code has it, with several words joined by `_`."""
    has_underscore_inside = "_" in value.strip("_")
    return has_underscore_inside and value.isidentifier() and not is_generated(value)


def is_code(value: str) -> bool:
    """Whether a value begins like code or a path (an attribute, an address, an option) and isn't random."""
    return bool(PATTERNS["code"].match(value)) and not is_generated(value)


def is_weak_secret(value: str) -> bool:
    """Whether a value is a secret under a name such as `key` or `session`, which other things have, too."""
    if len(value) < _LEAST_WEAK or not is_mixed(value) or is_snake_case(value):
        return False
    return not PATTERNS["hex_or_id"].match(value) and share_of_changes(value) >= _SHUFFLED_WEAK


def _classify_character(char: str) -> str:
    """Return "a" for a letter, "0" for a digit, and "-" for anything else."""
    if char.isalpha():
        return "a"
    return "0" if char.isdigit() else "-"


def is_strange(value: str) -> bool:
    """Whether a value mixes letters, digits and symbols in a way that names, versions and measures don't."""
    core = value.strip("\"'`*.,;:!?)")
    if not is_mixed(core):
        # A capital at the beginning doesn't count, since many words have one.
        behind_initial = core[1:]
        has_upper = any(map(str.isupper, behind_initial))
        has_lower = any(map(str.islower, core))
        has_symbol = bool(_SYMBOLS.intersection(core[1:-1]))
        return has_upper and has_lower and has_symbol and len(core) >= LEAST_TOKEN

    classes = "".join(map(_classify_character, core))
    runs = re.sub(r"(.)\1+", r"\1", classes)  # "abc12-x" has the runs "a0-a"
    has_many_runs = len(runs) >= _CHANGED_OFTEN
    is_mixture = has_many_runs or runs == "a0" or any(part in runs for part in _STRANGE_RUNS)
    return is_mixture and len(core) >= _LEAST_STRANGE and not PATTERNS["measure"].match(core)


def is_chosen(value: str) -> bool:
    """Whether a value looks like a password chosen by a person: letters and digits, but no technical term."""
    core = value.strip("\"'`*_.,;:?)")
    if len(core) < _LEAST_STRANGE or not is_mixed(core):
        return False
    is_term = bool(PATTERNS["term"].match(core) or PATTERNS["expression"].search(core))
    return not is_term and not is_placeholder(core)


def is_phrase(value: str) -> bool:
    """Whether a value is a passphrase: four or more words, joined by blanks or hyphens.

    If the words are typical of a sentence, it isn't one.
    """
    words = value.lower().replace("-", " ").split()
    if len(words) < _LEAST_WORDS:
        return False
    phrase = " ".join(words)
    return bool(PATTERNS["passphrase"].match(phrase)) and not PATTERNS["prose"].search(phrase)
