"""Letters that look like others, and the plain reading of texts with such letters.

A word with a Cyrillic or Greek letter among Latin ones, or in mathematical, circled, full-width or small
capital letters, reads like the plain word to a person and to many a model, and passes any check of its
letters. Words in one script stay as they are, and so do symbols: a single mathematical letter, or a Greek one
behind Latin capitals.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import Any

from judgekit import environment

_LOOKALIKES_BY_ALPHABET: dict[str, Any] = environment.read_toml(__file__, "lookalikes.toml")[
    "alike"
]
_LATIN_BY_CYRILLIC = str.maketrans(*_LOOKALIKES_BY_ALPHABET["cyrillic"])
_LATIN_BY_ARMENIAN = str.maketrans(*_LOOKALIKES_BY_ALPHABET["armenian"])
_LATIN_BY_GREEK = str.maketrans(*_LOOKALIKES_BY_ALPHABET["greek"])
_LATIN_BY_SMALL_CAPITAL = str.maketrans(*_LOOKALIKES_BY_ALPHABET["capitals"])
_ASCII_BY_PUNCTUATION = str.maketrans(*_LOOKALIKES_BY_ALPHABET["punctuation"])
_LATIN_BY_LOOKALIKE = (
    _LATIN_BY_CYRILLIC | _LATIN_BY_ARMENIAN | _LATIN_BY_GREEK | _LATIN_BY_SMALL_CAPITAL
)
_ASCII_BY_CATEGORY = {
    "Mn": "\0",
    "Me": "\0",
    "Cf": "\0",
    "Zs": " ",
    "Pd": "-",
    "Pi": '"',
    "Pf": '"',
}
_MIN_STYLED_LETTERS = 2  # in a word; a single one is a mathematical symbol
_MIN_SMALL_CAPITALS = 3
_MIN_GREEK_WORD_LETTERS = (
    4  # letters of a word with Greek lookalikes; a shorter one may be a formula
)
_CIRCLED_LETTER_RANGES = "\u24b6-\u24e9\U0001f130-\U0001f189"
# The lookbehind makes it start only at a word's beginning. Otherwise a long ASCII word would be scanned once
# for each of its letters.
_FOREIGN_WORD_PATTERN = re.compile(
    rf"(?<![A-Za-z0-9])[A-Za-z0-9]*+(?:[^\x00-\x7f\W]|[{_CIRCLED_LETTER_RANGES}])[\w{_CIRCLED_LETTER_RANGES}]*+"
)
_NON_ASCII_PATTERN = re.compile(r"[^\x00-\x7f]+")
_OVERLAY_MARKS_PATTERN = re.compile(r"(?<=[A-Za-z])[\u0334-\u0338\u20d0-\u20f0]+")


def undo_lookalikes(text: str) -> str:
    """Rewrite disguised Latin words, such as words with Cyrillic lookalikes or struck-through letters."""
    if text.isascii():
        return text
    text = _FOREIGN_WORD_PATTERN.sub(lambda match: _translate_word(match[0]), text)
    return _OVERLAY_MARKS_PATTERN.sub("", text)


def skeleton(text: str) -> str:
    """Replace each letter with the ASCII letter it looks like, without changing positions."""
    if text.isascii():
        return text
    return "".join(map(_strip_style, text)).translate(_LATIN_BY_LOOKALIKE)


def fold_to_ascii(text: str) -> str:
    """Replace letters, blanks, dashes and quotes with their ASCII lookalikes, without changing positions.

    Combining marks and invisible characters become NUL.
    """
    return _NON_ASCII_PATTERN.sub(lambda match: "".join(map(_fold, match[0])), text)


@functools.lru_cache(4096)
def _strip_style(char: str) -> str:
    """Convert a bold, circled or full-width letter or digit to ASCII. Return other characters unchanged."""
    normalised = unicodedata.normalize("NFKC", char)
    if len(normalised) == 1 and normalised.isascii() and normalised.isalnum():
        return normalised
    return char


@functools.lru_cache(4096)
def _fold(char: str) -> str:
    """Convert a character to its ASCII lookalike, or return it unchanged if it has none.

    Combining marks and invisible characters become NUL.
    """
    if char.isascii():
        return char
    category = unicodedata.category(char)
    if category in _ASCII_BY_CATEGORY:  # a mark, invisible character, blank, dash or quote
        return _ASCII_BY_CATEGORY[category]

    decomposed = unicodedata.normalize("NFKD", char)
    base_letter = decomposed[0]
    has_only_accents = all(map(unicodedata.combining, decomposed[1:]))  # as in é
    if not has_only_accents:
        # A ligature such as ﬁ becomes two letters, but the number of characters must stay the same.
        return char

    lookalike = base_letter.translate(_LATIN_BY_LOOKALIKE)  # for letters of other alphabets
    lookalike = lookalike.translate(_ASCII_BY_PUNCTUATION)
    return lookalike if lookalike.isascii() else char


def _translate_word(word: str) -> str:
    """Replace lookalikes of Latin letters if the word also has real Latin letters.

    Bold, circled and other styled letters become plain in any word.
    """
    word = _strip_styles(word)
    translated = word.translate(_LATIN_BY_CYRILLIC | _LATIN_BY_ARMENIAN)
    if not translated.isascii():  # other letters are left, perhaps Greek ones
        return _translate_greek(word, translated)

    # A word without any Latin letter is really Cyrillic or Armenian, even if it looks Latin.
    has_latin_letter = any(char.isascii() and char.isalpha() for char in word)
    return translated if has_latin_letter else word


def _strip_styles(word: str) -> str:
    """Make a word's styled letters plain, and its small capitals too."""
    # A single styled letter may be a mathematical symbol.
    unstyled = "".join(map(_strip_style, word))
    if _count_styled_letters(word, unstyled) >= _MIN_STYLED_LETTERS:
        word = unstyled

    # One or two small capitals may be phonetic symbols.
    small_capitals = [char for char in word if ord(char) in _LATIN_BY_SMALL_CAPITAL]
    if len(small_capitals) >= _MIN_SMALL_CAPITALS:
        word = word.translate(_LATIN_BY_SMALL_CAPITAL)
    return word


def _count_styled_letters(word: str, unstyled: str) -> int:
    """Count the letters that differ between a word and its unstyled form."""
    count = 0
    for char, unstyled_char in zip(word, unstyled, strict=True):
        if char != unstyled_char and unstyled_char.isalpha():
            count += 1
    return count


def _translate_greek(word: str, translated: str) -> str:
    """Replace a word's Greek lookalikes, or return `word` if it isn't a disguised Latin one.

    In `translated`, the word's Cyrillic and Armenian lookalikes are already replaced.
    """
    latin = translated.translate(_LATIN_BY_GREEK)
    return latin if _is_greek_disguise(translated, latin) else word


def _is_greek_disguise(word: str, latin: str) -> bool:
    """Whether a word is a Latin one with some letters replaced by Greek lookalikes.

    `latin` is the word with these lookalikes changed back to Latin letters.
    """
    has_unknown_letter = not latin.isascii()
    if has_unknown_letter:
        return False
    # Formulas also mix Greek and Latin letters, but they're shorter, or have capitals inside.
    is_long = len(latin) >= _MIN_GREEK_WORD_LETTERS
    latin_part = "".join(char for char in word if char.isascii())
    is_lower_or_capitalised = bool(re.fullmatch("[A-Za-z]?[a-z]+", latin_part))
    return is_long and is_lower_or_capitalised
