"""Finds tokens by their vendor's prefix: the prefix, a separator, and a long random tail.

The prefixes are in `secret_rules.toml`, under `tokens`. A tail is random if letters and digits, or upper and
lower case, alternate as they never do in a word, name, date or version. An unknown prefix counts too if a
word such as `sk`, `pat` or `live` follows it, or if the tail is even longer. Hashes and identifiers don't
count.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from judgekit.redaction.secret_rules import PATTERNS, RULES, SecretMatch

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOKEN_WORDS = RULES["tokens"]
_VENDOR_PREFIXES = frozenset(_TOKEN_WORDS["vendors"].split())
_COMMON_PREFIXES = frozenset(_TOKEN_WORDS["common"].split())
_KIND_WORDS = frozenset(_TOKEN_WORDS["kinds"].split())
_UNAMBIGUOUS_KIND_WORDS = frozenset(_TOKEN_WORDS["sure_kinds"].split())
_IDENTIFIER_WORDS = frozenset(_TOKEN_WORDS["identifiers"].split())

# The minimum number of random characters after
_MIN_CHARS_AFTER_VENDOR = 14  # a prefix that only tokens have
_MIN_CHARS_AFTER_COMMON_PREFIX = 20  # a common word
_MIN_CHARS_AFTER_KIND_WORD = 24  # an unknown prefix with a word for a kind of key
_MIN_CHARS_AFTER_UNKNOWN_PREFIX = 32  # any other prefix
_MIN_HEX_DIGITS = 32  # if they may be a hash
_MIN_PIECE_CHARS = 5
# Change rates of random pieces
_RANDOM_CHANGE_RATE = 0.2  # between letters and digits
_SHUFFLED_CASE_RATE = (
    0.45  # between upper and lower case; camelCase with words of five letters has 0.4
)
_SHUFFLED_ALPHANUMERIC_CHANGE_RATE = 0.4
_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")


def find_vendor_tokens(text: str) -> Iterator[SecretMatch]:
    """Yield the tokens in a text that have a vendor's prefix, as in `sk_live_…`."""
    for candidate in PATTERNS["candidate"].finditer(text):
        token = candidate[0]
        # A final `=` is Base64 padding and belongs to the token. Other marks belong to the sentence.
        if not token.endswith("="):
            token = token.rstrip("=.~/+-_:")
        if is_vendor_token(token):
            yield SecretMatch(candidate.start(), candidate.start() + len(token), "token")


def is_vendor_token(token: str) -> bool:
    """Whether a word looks like a vendor's token, such as `sk_live_4eC39H…`: a prefix and a random tail.

    The less distinctive the prefix, the longer the tail must be.
    """
    pieces = PATTERNS["alphanumeric_piece"].findall(token)
    prefix = pieces[0]
    # Identifiers such as `user_…` and keys such as `pk_live_…` are meant to be public.
    if prefix.lower() in _IDENTIFIER_WORDS or PATTERNS["publishable"].match(token):
        return False
    ends_with_uuid = PATTERNS["uuid"].search(token[-_UUID_CHARS:])
    if ends_with_uuid:
        return _is_uuid_token(pieces)

    leading_words, tail = _split_leading_words(pieces)
    if prefix in _VENDOR_PREFIXES:
        return _count_random_characters(tail) >= _MIN_CHARS_AFTER_VENDOR
    if prefix in _COMMON_PREFIXES:
        min_length = _MIN_HEX_DIGITS if _is_hex(tail) else _MIN_CHARS_AFTER_COMMON_PREFIX
        return _count_random_characters(tail) >= min_length
    return _is_token_after_unknown_prefix(prefix, leading_words, tail)


def _split_leading_words(pieces: list[str]) -> tuple[list[str], list[str]]:
    """Split a token's pieces into the leading words, in lower case, and the tail.

    In `sk_live_4eC39H…`, the leading words are "sk" and "live". The first piece always counts as a word.
    """
    prefix, *tail = pieces
    leading_words = [prefix.lower()]
    while tail and is_word(tail[0]):
        leading_words.append(tail.pop(0).lower())
    return leading_words, tail


def _is_hex(tail: list[str]) -> bool:
    """Whether a token's tail consists of hexadecimal digits."""
    return _HEX_DIGITS.issuperset("".join(tail))


def _is_token_after_unknown_prefix(prefix: str, leading_words: list[str], tail: list[str]) -> bool:
    """Whether the tail after an unknown prefix is a secret. That depends on the leading words."""
    has_identifier_word = any(word in _IDENTIFIER_WORDS for word in leading_words)
    if has_identifier_word:
        return False

    # Kind words, such as `token` or `key`, say what kind of secret follows.
    if _is_hex(tail):
        # It may be a hash, so a word with other meanings, such as `key`, isn't enough.
        has_unambiguous_word = any(word in _UNAMBIGUOUS_KIND_WORDS for word in leading_words)
        return has_unambiguous_word and _count_random_characters(tail) >= _MIN_HEX_DIGITS
    has_kind_word = any(word in _KIND_WORDS for word in leading_words)
    if has_kind_word:
        is_long_enough = _count_random_characters(tail) >= _MIN_CHARS_AFTER_KIND_WORD
        return is_long_enough and _is_shuffled("".join(tail))
    # Without a kind word, only the look of the prefix and the tail can tell.
    return _is_prefix_with_random_piece(prefix, tail)


_UUID_CHARS = 36
_UUID_PIECES = 5
_UUID_TOKEN_PREFIXES = frozenset(("access", "api", "mob", "sdk", "key", "secret"))


def _is_uuid_token(pieces: list[str]) -> bool:
    """Whether a word that ends with a UUID is a token, such as `api-…`, rather than an identifier.

    `pieces` are the parts between the word's separators.
    """
    leading_pieces = pieces[:-_UUID_PIECES]
    if not leading_pieces:
        return False
    prefix = leading_pieces[0]
    if prefix in _VENDOR_PREFIXES or prefix in _UUID_TOKEN_PREFIXES:
        return True
    # A word such as `token` says that a secret follows.
    return any(piece.lower() in _UNAMBIGUOUS_KIND_WORDS for piece in leading_pieces)


def is_random_piece(piece: str) -> bool:
    """Whether part of a token is random, rather than a word, number, date or version.

    A random piece changes often between letters and digits, or between upper and lower case.
    """
    if len(piece) < _MIN_PIECE_CHARS or is_word(piece):
        return False
    has_letter = any(map(str.isalpha, piece))
    if not has_letter:
        return False

    change_rate = count_changes(piece) / (len(piece) - 1)
    has_digit = any(map(str.isdigit, piece))
    if has_digit:
        return change_rate >= _RANDOM_CHANGE_RATE

    # Without digits, the case must change more often than in camelCase.
    is_in_one_case = piece.islower() or piece.isupper()
    if is_in_one_case:
        return False
    return change_rate > _SHUFFLED_CASE_RATE


def is_word(piece: str) -> bool:
    """Whether a piece is a word, a number, a date or a version."""
    return bool(PATTERNS["word"].match(piece)) or bool(PATTERNS["date"].match(piece.lower()))


def count_changes(value: str) -> int:
    """Count the adjacent characters of different classes: lower case, upper case, digits and others."""
    classes = [(char.islower(), char.isupper(), char.isdigit()) for char in value]
    return sum(left_class != right_class for left_class, right_class in itertools.pairwise(classes))


def _count_random_characters(tail: list[str]) -> int:
    """Count the random characters in a token's tail, including separators.

    Return 0 if no piece looks random, or if most characters are in words.
    """
    words = [piece for piece in tail if is_word(piece)]
    # A piece that isn't a word can be too short to look random. It counts if another piece looks random.
    other_pieces = [piece for piece in tail if not is_word(piece)]
    if not any(map(is_random_piece, other_pieces)):
        return 0

    separator_count = len(other_pieces) - 1  # between the pieces
    random_characters = sum(map(len, other_pieces)) + separator_count
    word_characters = sum(map(len, words))
    has_mostly_words = word_characters > random_characters
    return 0 if has_mostly_words else random_characters


def _is_shuffled(value: str) -> bool:
    """Whether upper case, lower case and digits alternate as often as in random strings."""
    has_upper = any(map(str.isupper, value))
    has_lower = any(map(str.islower, value))
    has_digit = any(map(str.isdigit, value))
    if not (has_upper and has_lower and has_digit):
        return False
    return count_changes(value) / (len(value) - 1) >= _SHUFFLED_ALPHANUMERIC_CHANGE_RATE


def _is_prefix_with_random_piece(prefix: str, tail: list[str]) -> bool:
    """Whether an unknown lower-case prefix is followed by a single, long, random piece."""
    if not prefix.islower() or len(tail) != 1:
        return False
    piece = tail[0]
    return len(piece) >= _MIN_CHARS_AFTER_UNKNOWN_PREFIX and _is_shuffled(piece)
