"""What values look like that are secrets: a generator made them, or a person chose them.

A name or a place says how much a value must look like one; `judgekit.secret_search` puts both together.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Final

from judgekit import secret_places

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PLACEHOLDER: Final = re.compile(
    r"[<\[{(%$*.…_-]|\W*$|.*(?:[{}<>…]|\.\.\.|\*\*\*|xxx|redacted)|(?:your|my|some|an?|the|test|fake|dummy)[_-]"
    r"|(?:example|change[_-]?me|placeholder|password|passwd|secret|token|string|str|bytes|bool|boolean|int|integer|float|any|object|secretstr|required|optional|none"
    r"|null|nil|undefined|true|false|enabled|disabled|default|hidden|empty|invalid|missing|unset|auto|prompt"
    r"|expired|wrong|pass|text)s?\W*$",
    re.IGNORECASE,
)
"""How values begin, or what they are, that stand where a secret will."""

_CODE: Final = re.compile(
    r"[A-Za-z_]\w*(?:(?:\.|::|->)[A-Za-z_]\w*)+[;:.]?$|\.{0,2}/|~/|[A-Za-z]:\\|\w+://|-|@|#|!"
)
"""An attribute, a path, an address or an option: what stands behind a name in code."""

_SYMBOLS: Final = frozenset("!#$%&*+=?@^|~")
_FORMAT: Final = re.compile(r"%[sdr](?!\w)")
_LEAST_SYMBOLS: Final = 3
_SHUFFLED: Final = 0.45  # what is drawn at random has 0.6, camelCase with words of five letters 0.4

_OF_SENTENCES: Final = (
    "the|you|your|must|should|will|may|can|not|and|for|from|with|that|this|has|have|are|was|when|here|least|most"
    "|characters?|chars|letters?|digits?|words?|enter|type|confirm|new|old|repeat|forgot|reset|change|set|invalid"
    "|incorrect|wrong|missing|required|optional|please|password|passwd|passphrase|user|name|field"
)
PASSPHRASE: Final = re.compile(
    rf"(?!(?:.* )?(?:{_OF_SENTENCES})(?: |$))(?:[a-z]{{3,9}}(?: [a-z]{{3,9}}){{3,7}}"
    r"|(?=[^0-9]*[0-9])[\w!#$%&*+=?@^~-]{2,12}(?: [\w!#$%&*+=?@^~-]{2,12}){2,7})$",
    re.IGNORECASE,
)
"""Four words or more, or three with a digit, none of which a sentence about passwords has."""

_NAME_ENDS: Final = re.compile(
    r"(?:.*[_-])?(?:password|passwd|passphrase|pwd|secret|token|key|credential)s?\W*$", re.IGNORECASE
)
LEAST_TOKEN: Final = 8
LEAST_BARE_TOKEN: Final = 16


def _is_word_of_sentence(value: str) -> bool:
    return bool(_SENTENCE_WORD.match(value))


_SENTENCE_WORD: Final = re.compile(
    rf"(?:{_OF_SENTENCES}|option|flag|argument|parameter|switch|file|stdin|input|command|environment|variable|only"
    r"|plain|clear|hashed|stored|sent|shown|asked|given|used|empty|blank|valid|correct|expired|also|still|never"
    r"|always|instead|when|where|which|what|store|value|values|support|based|protected|manager|auth\w*)\W*$",
    re.IGNORECASE,
)


def _fits_word(value: str) -> bool:
    return not stands_in(value) and not _is_word_of_sentence(value) and not value.isupper()


def _is_token(value: str) -> bool:
    """Whether a value is a long mixture of letters and digits, and no name of several words."""
    digits = sum(map(str.isdigit, value))
    return is_mixed(value) and not snake(value) and len(value) >= LEAST_TOKEN and digits * 10 >= len(value)


def is_strange(value: str) -> bool:
    """Whether letters, digits and symbols are mixed within a value as in no name, version or measure."""
    core = value.strip("\"'`*.,;:!?)")
    if not is_mixed(core):
        cases = any(map(str.isupper, core[1:])) and any(map(str.islower, core))
        return cases and len(core) >= LEAST_TOKEN and bool(_SYMBOLS.intersection(core[1:-1]))
    kinds = "".join("a" if char.isalpha() else "0" if char.isdigit() else "-" for char in core)
    inside = re.sub(r"(.)\1+", r"\1", kinds)
    return (
        len(core) >= _LEAST_STRANGE
        and not _MEASURE.match(core)
        and (
            len(inside) >= _CHANGED_OFTEN
            or (inside == "a0" and len(core) >= _LEAST_STRANGE)
            or "a0-" in inside
            or "0a0" in inside
            or "a0a" in inside
        )
    )


_LEAST_STRANGE: Final = 6
_CHANGED_OFTEN: Final = 4
_MEASURE: Final = re.compile(
    r"(?:v?\d+(?:[.,:/-]\d+)*\w{0,8}|\w+[.@/:\\]\S*|[A-Za-z]+-?\d{1,4}(?:-bit|s)?|\d+-\w+(?:-\w+)*)$"
)
_TERM: Final = re.compile(
    r"(?:v?\d+(?:[.,:/-]\d+)*\w{0,8}|\S+[@/\\]\S*|\w+(?:[.:]\w+)+|\d+-\w+(?:-\w+)*"
    r"|(?:\w*[_-])?(?:hmac)?(?:sha|md|utf|iso|latin|cp|aes|des|rsa|ecdsa|ed|curve|oauth|openid|ipv|base|http|argon|pbkdf|bcrypt|scrypt|ripemd|blake|crc"
    r"|pkcs|win|windows|python|py|java|node|tls|ssl|ntlm|smb|rfc|cve|uint|int|float|log|x|h|s|e|p|ec|mp)-?_?\d{1,5}(?:[_-]?[a-z]{1,8}\d{0,3})*"
    r"|(?:\w*[_-])?(?:user|test|version|step|figure|fig|table|section|chapter|option|type|level|line|page|item|note|part|phase|arg|param|field|string"
    r"|example|case|key|token|password|pass|secret|id|num|server|host|client|account|group|role|mode|rule|day|week|month|value|var|name)s?[-_]?\d{1,2})$",
    re.IGNORECASE,
)
"""What has letters and digits and is no password all the same: measures, standards, numbered things."""


def is_chosen(value: str) -> bool:
    """Whether a value is what people choose behind the word password: letters with digits, no standard."""
    core = value.strip("\"'`*_.,;:?)")
    return (
        len(core) >= _LEAST_STRANGE
        and is_mixed(core)
        and not _TERM.match(core)
        and not stands_in(core)
        and not _EXPRESSION.search(core)
    )


def is_phrase(value: str) -> bool:
    """Whether a value is four words or more, none of which a sentence has."""
    words = value.lower().replace("-", " ").split()
    return (
        len(words) >= _LEAST_WORDS
        and bool(PASSPHRASE.match(" ".join(words)))
        and not secret_places.PROSE.intersection(words)
    )


_LEAST_WORDS: Final = 4

FITS: Final[Mapping[str, Callable[[str], bool]]] = {
    "value": lambda value: generated(value) or not stands_in(value),
    "mixed": lambda value: (
        generated(value) or (is_mixed(value) and not stands_in(value) and not snake(value))
    ),
    "random": lambda value: generated(value) or (_is_token(value) and not stands_in(value)),
    "generated": lambda value: generated(value) or (is_strange(value) and not stands_in(value)),
    "chosen": lambda value: (
        generated(value) or ((is_strange(value) or is_chosen(value)) and not stands_in(value))
    ),
    "phrase": is_phrase,
    "sure": lambda value: not value.startswith("["),
    "word": lambda value: generated(value) or _fits_word(value),
    "secretword": lambda value: generated(value) or _fits_word(value),
}


def stands_in(value: str) -> bool:
    """Whether a value says where a secret will stand, or names the place where it is kept."""
    return bool(_PLACEHOLDER.match(value) or _NAME_ENDS.match(value)) or any(map(str.isspace, value))


def generated(value: str) -> bool:
    """Whether a value is such a mixture that only a generator makes, whatever it begins with."""
    if len(value) < LEAST_TOKEN or _FORMAT.search(value) or any(map(str.isspace, value)):
        return False
    symbols = len(_SYMBOLS.intersection(value[1:-1]))
    cases = any(map(str.isupper, value)) and any(map(str.islower, value))
    if not is_mixed(value):
        return cases and (symbols >= _LEAST_SYMBOLS or (len(value) >= _LEAST_WEAK and _is_shuffled(value)))
    return symbols >= (1 if cases else _LEAST_SYMBOLS) or (cases and _is_shuffled(value))


def _is_shuffled(value: str) -> bool:
    """Whether small, great letters, digits and the rest change more often than in a name of several words."""
    return len(value) >= LEAST_BARE_TOKEN and _changes(value) >= _SHUFFLED


def _changes(value: str) -> float:
    """Return how often a value changes from one class of characters to another, as a part of its length."""
    kinds = [(char.islower(), char.isupper(), char.isdigit()) for char in value]
    return sum(one != other for one, other in itertools.pairwise(kinds)) / max(len(kinds) - 1, 1)


def is_random(value: str) -> bool:
    """Whether letters and digits are mixed, or only a generator makes such a value."""
    return is_mixed(value) or generated(value)


def is_code(value: str) -> bool:
    """Whether a value is an attribute, a path, an address or an option."""
    return bool(_CODE.match(value)) and not generated(value)


_HEX_KEY: Final = re.compile(r"[0-9a-fA-F]{32,}$")
SECRETIVE: Final = re.compile(r"crypt|secret|cipher|jwt|hmac|auth", re.IGNORECASE)


def quoted_secret(value: str, strength: str, *, secretive: bool = False) -> bool:
    """Whether a value in quotes is a secret under a name of this strength."""
    if strength == "strong":
        return not value.startswith("/") or is_mixed(value)
    if strength == "short":
        return (is_mixed(value) or len(value) >= LEAST_SHORT) and not is_code(value)
    if strength == "weak":
        return is_weak_secret(value) or (secretive and bool(_HEX_KEY.match(value)))
    return (
        len(value) >= LEAST_TOKEN
        and is_random(value)
        and not is_code(value)
        and not _EXPRESSION.search(value)
    )


_EXPRESSION: Final = re.compile(r"\[[a-zA-Z]-|\(\?|\\[dw]")  # a regular one
LEAST_SHORT: Final = 6
_LEAST_WEAK: Final = 20
_HEX_OR_ID: Final = re.compile(r"[0-9a-fA-F-]+$|\w+[:/.]|.*[\\\[\](){}|^ ]")


def is_weak_secret(value: str) -> bool:
    """Whether a value is a secret under a name like `key` or `session`, which many others have too."""
    return (
        len(value) >= _LEAST_WEAK
        and is_mixed(value)
        and not snake(value)
        and not _HEX_OR_ID.match(value)
        and _changes(value) >= _SHUFFLED_WEAK
    )


_SHUFFLED_WEAK: Final = 0.35


def snake(value: str) -> bool:
    """Whether a value is a name of several words, as code has them."""
    return value.isidentifier() and "_" in value.strip("_") and not generated(value)


def is_mixed(value: str) -> bool:
    """Whether a value has letters and digits."""
    return any(char.isdigit() for char in value) and any(char.isalpha() for char in value)
