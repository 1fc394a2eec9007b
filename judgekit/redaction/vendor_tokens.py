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
_VENDORS = frozenset(_TOKEN_WORDS["vendors"].split())
_COMMON = frozenset(_TOKEN_WORDS["common"].split())
_KINDS = frozenset(_TOKEN_WORDS["kinds"].split())
_SURE_KINDS = frozenset(_TOKEN_WORDS["sure_kinds"].split())
_IDENTIFIERS = frozenset(_TOKEN_WORDS["identifiers"].split())

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
    """Yield the tokens in a text that begin like those of a vendor, as in `sk_live_…`."""
    for candidate in PATTERNS["candidate"].finditer(text):
        token = candidate[0]
        # A `=` at the end is the padding of Base64, and belongs to the token. Other marks end a sentence.
        if not token.endswith("="):
            token = token.rstrip("=.~/+-_:")
        if is_vendor_token(token):
            yield SecretMatch(candidate.start(), candidate.start() + len(token), "token")


def is_vendor_token(token: str) -> bool:
    """Whether a word begins like a vendor's token, and goes on with a random part that's long enough.

    The less the beginning tells, the longer the random part must be.
    """
    pieces = PATTERNS["piece"].findall(token)
    beginning = pieces[0]
    if beginning.lower() in _IDENTIFIERS or PATTERNS["publishable"].match(token):
        return False
    if PATTERNS["uuid"].search(token[-_LENGTH_OF_UUID:]):
        return _is_before_uuid(pieces)

    # Split `sk_live_4eC39H…` into the leading words "sk" and "live", and the later pieces, here a random one.
    later_pieces = pieces[1:]
    leading_words = {beginning.lower()}
    while later_pieces and is_word(later_pieces[0]):
        leading_words.add(later_pieces.pop(0).lower())
    random_length = _count_random_characters(later_pieces)
    is_hex = _HEX.issuperset("".join(later_pieces))

    if beginning in _VENDORS:
        return random_length >= _LEAST_OF_VENDOR
    if beginning in _COMMON:
        least = _LEAST_OF_HEX if is_hex else _LEAST_OF_WORD
        return random_length >= least
    if leading_words & _IDENTIFIERS:
        return False
    if is_hex:
        return random_length >= _LEAST_OF_HEX and bool(leading_words & _SURE_KINDS)
    if leading_words & _KINDS:
        return random_length >= _LEAST_OF_KIND and _is_shuffled("".join(later_pieces))
    return _is_of_unknown_vendor(beginning, later_pieces)


_LENGTH_OF_UUID = 36
_PIECES_OF_UUID = 5


def _is_before_uuid(pieces: list[str]) -> bool:
    """Whether a word that ends with a UUID is a token, going by the pieces before the UUID.

    Otherwise these only name the thing that the UUID identifies, as in `user-…`.
    """
    leading_pieces = pieces[:-_PIECES_OF_UUID]
    if not leading_pieces:
        return False
    beginning = leading_pieces[0]
    if beginning in _VENDORS or beginning in _UUID_WORDS:
        return True
    return any(piece.lower() in _SURE_KINDS for piece in leading_pieces)


_UUID_WORDS = frozenset(("access", "api", "mob", "sdk", "key", "secret"))


def is_random_piece(piece: str) -> bool:
    """Whether a piece of a word is random, and not a word, a number, a date or a version.

    Letters and digits must alternate often. If there are only letters, they must change between upper and
    lower case more often than in camelCase.
    """
    if len(piece) < _SHORT_PIECE or is_word(piece):
        return False
    share = count_changes(piece) / (len(piece) - 1)
    has_digit = any(map(str.isdigit, piece))
    has_letter = any(map(str.isalpha, piece))
    if has_digit and has_letter:
        return share >= _RANDOM
    is_in_one_case = piece.islower() or piece.isupper()
    return has_letter and not is_in_one_case and share > _SHUFFLED


def is_word(piece: str) -> bool:
    """Whether a piece is a word, a number, a date or a version."""
    return bool(PATTERNS["word"].match(piece)) or bool(PATTERNS["date"].match(piece.lower()))


def count_changes(value: str) -> int:
    """Count the pairs of neighbouring characters that are of different classes.

    The classes are lower case, upper case, digits and others.
    """
    classes = [(char.islower(), char.isupper(), char.isdigit()) for char in value]
    return sum(left_class != right_class for left_class, right_class in itertools.pairwise(classes))


def _count_random_characters(tail: list[str]) -> int:
    """Count the random characters in the pieces of a word's end.

    0 if no piece looks random, or if words make up the larger part.
    """
    random_characters = 0
    word_characters = 0
    has_random_piece = False
    for piece in tail:
        if is_word(piece):
            word_characters += len(piece)
            continue
        # Any piece that isn't a word is added, also if it's too short to look random. `+ 1` is for the
        # separator behind it.
        random_characters += len(piece) + 1
        if is_random_piece(piece):
            has_random_piece = True
    if has_random_piece and random_characters > word_characters:
        return random_characters - 1  # there's no separator behind the last piece
    return 0


def _is_shuffled(value: str) -> bool:
    """Whether a value has capitals, small letters and digits that alternate as often as in random texts."""
    has_upper = any(map(str.isupper, value))
    has_lower = any(map(str.islower, value))
    has_digit = any(map(str.isdigit, value))
    if not (has_upper and has_lower and has_digit):
        return False
    return count_changes(value) / (len(value) - 1) >= _SHUFFLED_WITH_DIGITS


def _is_of_unknown_vendor(beginning: str, tail: list[str]) -> bool:
    """Whether a word with an unknown beginning is a token.

    It is if the beginning is in small letters, and a single long random piece follows.
    """
    if not beginning.islower() or len(tail) != 1:
        return False
    piece = tail[0]
    return len(piece) >= _LEAST_OF_UNKNOWN and _is_shuffled(piece)
