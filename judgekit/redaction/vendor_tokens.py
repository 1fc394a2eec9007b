"""Finds tokens by their vendor's prefix: the prefix, a separator, and a long random tail.

The prefixes are in `secret_rules.toml`, under `tokens`. A tail is random if letters and digits, or upper and
lower case, alternate as they never do in a word, name, date or version. An unknown prefix counts too if a
word such as `sk`, `pat` or `live` follows it, or if the tail is even longer. Hashes and identifiers don't
count.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from judgekit.redaction.secret_rules import RE, RULES, SecretMatch

if TYPE_CHECKING:
    from collections.abc import Iterator

_WORDS = RULES["tokens"]
_VENDORS = frozenset(_WORDS["vendors"].split())
_COMMON = frozenset(_WORDS["common"].split())
_KINDS = frozenset(_WORDS["kinds"].split())
_SURE_KINDS = frozenset(_WORDS["sure_kinds"].split())
_IDENTIFIERS = frozenset(_WORDS["identifiers"].split())

_LEAST_OF_VENDOR = 14  # random characters behind a prefix that only tokens have
_LEAST_OF_WORD = 20  # behind a usual word
_LEAST_OF_KIND = 24  # behind a beginning that is not in the table, with a word for a kind of key
_LEAST_OF_UNKNOWN = 32  # behind any other prefix
_LEAST_OF_HEX = 32  # hexadecimal digits, if they may be a hash
_SHORT_PIECE = 5
_RANDOM = 0.2  # share of changes between letters and digits in random text
_SHUFFLED = 0.45  # and letters of both sizes; camelCase with words of five letters has 0.4
_SHUFFLED_WITH_DIGITS = 0.4
_HEX = frozenset("0123456789abcdefABCDEF")


def find_vendor_tokens(text: str) -> Iterator[SecretMatch]:
    """Yield the tokens in a text that begin as a vendor's do."""
    for candidate in RE["candidate"].finditer(text):
        # A `=` at the end is the padding of Base64; other signs there end a sentence.
        if not candidate[0].endswith("="):
            token = candidate[0].rstrip("=.~/+-_:")
        else:
            token = candidate[0]
        if is_vendor_token(token):
            yield SecretMatch(candidate.start(), candidate.start() + len(token), "token")


def is_vendor_token(token: str) -> bool:
    """Whether a word begins like a vendor's token and goes on as only tokens do."""
    pieces = RE["piece"].findall(token)
    beginning = pieces[0]
    if beginning.lower() in _IDENTIFIERS or RE["publishable"].match(token):
        return False
    if RE["uuid"].search(token[-_LENGTH_OF_UUID:]):
        return _is_before_uuid(pieces)
    tail = pieces[1:]
    kinds = {beginning.lower()}
    while tail and is_word(tail[0]):
        kinds.add(tail.pop(0).lower())
    length = _count_random(tail)
    is_hex = _HEX.issuperset("".join(tail))
    if beginning in _VENDORS:
        return length >= _LEAST_OF_VENDOR
    if beginning in _COMMON:
        return length >= (_LEAST_OF_HEX if is_hex else _LEAST_OF_WORD)
    if kinds & _IDENTIFIERS:
        return False
    if is_hex:
        return length >= _LEAST_OF_HEX and bool(kinds & _SURE_KINDS)
    if kinds & _KINDS:
        return length >= _LEAST_OF_KIND and _is_shuffled("".join(tail))
    return _is_of_unknown_vendor(beginning, tail)


_LENGTH_OF_UUID = 36
_PIECES_OF_UUID = 5


def _is_before_uuid(pieces: list[str]) -> bool:
    """Whether the text before a UUID begins a token, rather than naming the thing it identifies."""
    before = pieces[:-_PIECES_OF_UUID]
    if not before:
        return False
    if before[0] in _VENDORS or before[0] in _UUID_WORDS:
        return True
    return any(piece.lower() in _SURE_KINDS for piece in before)


_UUID_WORDS = frozenset(("access", "api", "mob", "sdk", "key", "secret"))


def is_random_piece(piece: str) -> bool:
    """Whether letters and digits alternate as they never do in a word, number, date or version."""
    if len(piece) < _SHORT_PIECE or is_word(piece):
        return False
    changes = count_changes(piece) / (len(piece) - 1)
    has_digit = any(map(str.isdigit, piece))
    has_letter = any(map(str.isalpha, piece))
    if has_digit and has_letter:
        return changes >= _RANDOM
    return has_letter and not (piece.islower() or piece.isupper()) and changes > _SHUFFLED


def is_word(piece: str) -> bool:
    """Whether a piece is a word, a number, a date or a version."""
    return bool(RE["word"].match(piece)) or bool(RE["date"].match(piece.lower()))


def count_changes(value: str) -> int:
    """Count a value's changes from one class of characters to another."""
    kinds = []
    for char in value:
        kinds.append((char.islower(), char.isupper(), char.isdigit()))
    return sum(one != other for one, other in itertools.pairwise(kinds))


def _count_random(tail: list[str]) -> int:
    """Count the random characters of a tail; 0 if most of it is words."""
    random = 0
    plain = 0
    is_random = False
    for piece in tail:
        if is_random_piece(piece):
            is_random = True
            random += len(piece) + 1
        elif is_word(piece):
            plain += len(piece)
        else:  # too short to tell, or too few changes
            random += len(piece) + 1
    if is_random and random > plain:
        return random - 1
    return 0


def _is_shuffled(value: str) -> bool:
    """Whether letters of both cases and digits alternate in a value as generators mix them."""
    classes = (str.isupper, str.islower, str.isdigit)
    if not all(any(map(is_of_class, value)) for is_of_class in classes):
        return False
    return count_changes(value) / (len(value) - 1) >= _SHUFFLED_WITH_DIGITS


def _is_of_unknown_vendor(beginning: str, tail: list[str]) -> bool:
    if not beginning.islower() or len(tail) != 1:
        return False
    return len(tail[0]) >= _LEAST_OF_UNKNOWN and _is_shuffled(tail[0])
