"""Classifies values by their looks: generated, chosen by a person, a name, code, or a placeholder."""

from __future__ import annotations

import re

from judgekit.redaction.secret_rules import PATTERNS
from judgekit.redaction.vendor_tokens import count_changes

_SYMBOLS = frozenset("!#$%&*+=?@^|~")
_MIN_SYMBOLS = 3
# Characters of a value
_MIN_PASSWORD_CHARS = 6
MIN_TOKEN = 8
MIN_BARE_TOKEN = 16
_MIN_DIGITLESS_TOKEN_CHARS = 20
_MIN_WEAK_TOKEN_CHARS = 20
_MIN_PHRASE_WORDS = 4
_MIN_STRANGE_RUNS = 4
# Orders of letters (`a`), digits (`0`) and symbols (`-`) in a value
_STRANGE_RUN_ORDERS = ("a0-", "0a0", "a0a")
_SHUFFLED_CHANGE_RATE = 0.45  # random values have 0.6, camelCase with words of five letters 0.4
_WEAK_TOKEN_CHANGE_RATE = 0.35


def is_mixed(value: str) -> bool:
    """Whether a value has both letters and digits."""
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def fits(value: str, required_look: str) -> bool:
    """Whether a value has the look that a rule requires of a secret.

    `required_look` is the name of a group in the rule's pattern, such as "mixed" for a value with letters and
    digits. `secret_rules.toml` explains all these names.
    """
    if required_look == "phrase":
        return is_phrase(value)
    if required_look == "sure":
        # The rule's pattern is sure, so any value fits, except a stand-in such as `[password]`.
        is_stand_in = value.startswith("[")
        return not is_stand_in

    # A generated value has each of the other looks, and a placeholder has none.
    if is_generated(value):
        return True
    if is_placeholder(value):
        return False
    return _has_look(value, required_look)


def _has_look(value: str, required_look: str) -> bool:
    """Whether a value has a look. The value is neither generated nor a placeholder."""
    if required_look == "mixed":
        return _looks_mixed(value)
    if required_look == "random":
        return _looks_mixed(value) and _has_enough_digits(value)
    if required_look == "generated":
        # A value can be strange enough even if `is_generated` rejects it.
        return is_strange(value)
    if required_look == "chosen":  # by a person
        return is_strange(value) or is_human_password(value)
    if required_look == "value":  # any value
        return True

    # "word" and "secretword": any word, except a sentence's word or a constant's name
    is_of_sentence = bool(PATTERNS["sentence"].match(value))  # such as "must" or "expired"
    is_constant_name = value.isupper()
    return not is_of_sentence and not is_constant_name


def _looks_mixed(value: str) -> bool:
    """Whether a value has letters and digits, and isn't an identifier such as `item_2`."""
    return is_mixed(value) and not is_snake_case(value)


def _has_enough_digits(value: str) -> bool:
    """Whether a value is long enough for a token, and at least a tenth of it is digits."""
    digits = sum(map(str.isdigit, value))
    return len(value) >= MIN_TOKEN and digits * 10 >= len(value)


def is_placeholder(value: str) -> bool:
    """Whether a value isn't a secret itself, but a placeholder, a setting's name, or multiple words."""
    if PATTERNS["placeholder"].match(value) or PATTERNS["name"].match(value):
        return True
    return any(map(str.isspace, value))


def is_generated(value: str) -> bool:
    """Whether a value looks machine-generated, judging by its mixture of letters, digits and symbols."""
    if len(value) < MIN_TOKEN or any(map(str.isspace, value)):
        return False
    is_format_string = PATTERNS["format"].search(value)  # such as `user=%s`
    if is_format_string:
        return False
    if _has_enough_symbols(value):
        return True

    # Without enough symbols, the value must have both cases, be long, and change often between cases and
    # digits.
    has_only_words = PATTERNS["words"].match(value)  # such as `Read_File_Sync`
    if has_only_words or not _has_both_cases(value):
        return False
    has_digits = is_mixed(value)  # It has letters in any case.
    min_length = MIN_BARE_TOKEN if has_digits else _MIN_DIGITLESS_TOKEN_CHARS
    return len(value) >= min_length and change_rate(value) >= _SHUFFLED_CHANGE_RATE


def _has_enough_symbols(value: str) -> bool:
    """Whether a value has so many symbols among its letters that it must be generated."""
    # Symbols at the value's ends don't count, because they may be punctuation.
    symbol_count = len(_SYMBOLS.intersection(value[1:-1]))
    has_both_cases = _has_both_cases(value)
    has_letters_and_digits = is_mixed(value)
    if has_both_cases and has_letters_and_digits:
        return symbol_count > 0
    if has_both_cases or has_letters_and_digits:
        return symbol_count >= _MIN_SYMBOLS
    return False


def _has_both_cases(value: str) -> bool:
    """Whether a value has letters in upper and in lower case."""
    return any(map(str.isupper, value)) and any(map(str.islower, value))


def change_rate(value: str) -> float:
    """Return the frequency of changes between classes of characters, from 0 to 1.

    The classes are lower case, upper case, digits and others.
    """
    pairs = max(len(value) - 1, 1)
    return count_changes(value) / pairs


def is_snake_case(value: str) -> bool:
    """Whether a value is an identifier of multiple words joined by `_`."""
    has_underscore_inside = "_" in value.strip("_")
    return has_underscore_inside and value.isidentifier() and not is_generated(value)


def is_code(value: str) -> bool:
    """Whether a value starts like an attribute, address, path or option, and isn't random."""
    return bool(PATTERNS["code"].match(value)) and not is_generated(value)


def is_weak_secret(value: str) -> bool:
    """Whether a value is a secret if its name, such as `key` or `session`, can mean other things."""
    if len(value) < _MIN_WEAK_TOKEN_CHARS or not is_mixed(value) or is_snake_case(value):
        return False
    return not PATTERNS["hex_or_id"].match(value) and change_rate(value) >= _WEAK_TOKEN_CHANGE_RATE


def is_strange(value: str) -> bool:
    """Whether a value mixes letters, digits and symbols more than a name, version or measurement does."""
    core = value.strip("\"'`*.,;:!?)")  # without quotes, Markdown and punctuation
    if not is_mixed(core):
        return _is_strange_without_digits(core)
    if len(core) < _MIN_PASSWORD_CHARS:
        return False
    is_measurement = PATTERNS["measure"].match(core)  # such as "100ms"
    if is_measurement:
        return False
    return _has_strange_runs(core)


def _is_strange_without_digits(core: str) -> bool:
    """Whether a value has upper case, lower case and a symbol, and is long enough."""
    # A capital at the start doesn't count, because many words have one. A symbol only counts between other
    # characters.
    has_upper = any(map(str.isupper, core[1:]))
    has_lower = any(map(str.islower, core))
    has_symbol = bool(_SYMBOLS.intersection(core[1:-1]))
    return has_upper and has_lower and has_symbol and len(core) >= MIN_TOKEN


def _has_strange_runs(core: str) -> bool:
    """Whether a value has many runs of letters, digits and symbols, or a few in an order as in passwords."""
    classes = "".join(map(_classify_character, core))
    runs = re.sub(r"(.)\1+", r"\1", classes)  # "abc12-x" has the runs "a0-a"
    if len(runs) >= _MIN_STRANGE_RUNS:
        return True
    is_word_and_number = runs == "a0"  # such as "summer2024"
    has_strange_part = any(order in runs for order in _STRANGE_RUN_ORDERS)  # such as "a0a"
    return is_word_and_number or has_strange_part


def _classify_character(char: str) -> str:
    """Return "a" for a letter, "0" for a digit, and "-" for anything else."""
    if char.isalpha():
        return "a"
    return "0" if char.isdigit() else "-"


def is_human_password(value: str) -> bool:
    """Whether a value looks like a password chosen by a person: letters and digits, but no technical term."""
    core = value.strip("\"'`*_.,;:?)")  # without quotes, Markdown and punctuation
    if len(core) < _MIN_PASSWORD_CHARS or not is_mixed(core):
        return False
    is_term = bool(PATTERNS["term"].match(core) or PATTERNS["expression"].search(core))
    return not is_term and not is_placeholder(core)


def is_phrase(value: str) -> bool:
    """Whether a value is a passphrase: at least four words, separated by blanks or hyphens, but not prose."""
    words = value.lower().replace("-", " ").split()
    if len(words) < _MIN_PHRASE_WORDS:
        return False
    phrase = " ".join(words)
    return bool(PATTERNS["passphrase"].match(phrase)) and not PATTERNS["prose"].search(phrase)
