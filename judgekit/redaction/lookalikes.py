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

_ALIKE: dict[str, Any] = environment.table(__file__, "lookalikes.toml")["alike"]
_CYRILLIC = str.maketrans(*_ALIKE["cyrillic"])
_ARMENIAN = str.maketrans(*_ALIKE["armenian"])
_GREEK = str.maketrans(*_ALIKE["greek"])
_CAPITALS = str.maketrans(*_ALIKE["capitals"])
_PUNCTUATION = str.maketrans(*_ALIKE["punctuation"])
_SKELETON = _CYRILLIC | _ARMENIAN | _GREEK | _CAPITALS
_CATEGORIES = {
    "Mn": "\0",
    "Me": "\0",
    "Cf": "\0",
    "Zs": " ",
    "Pd": "-",
    "Pi": '"',
    "Pf": '"',
}
_STYLED_LEAST = 2  # letters in a word: a single one is a symbol
_CAPITALS_LEAST = 3
_CIRCLED = "\u24b6-\u24e9\U0001f130-\U0001f189"
# It starts without a letter before it: a long ASCII word is read once, not once for each letter.
_FOREIGN_WORD = re.compile(
    rf"(?<![A-Za-z0-9])[A-Za-z0-9]*+(?:[^\x00-\x7f\W]|[{_CIRCLED}])[\w{_CIRCLED}]*+"
)
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_STRUCK = re.compile(r"(?<=[A-Za-z])[\u0334-\u0338\u20d0-\u20f0]+")


def plain(text: str) -> str:
    """Rewrite disguised words in plain letters, such as Latin words written with Cyrillic lookalikes.

    Strokes through letters are dropped, too.
    """
    if text.isascii():
        return text
    text = _FOREIGN_WORD.sub(lambda match: _translate_word(match[0]), text)
    return _STRUCK.sub("", text)


def skeleton(text: str) -> str:
    """Replace each letter by the ASCII letter it looks like. The length stays, and so do all positions."""
    if text.isascii():
        return text
    return "".join(map(_strip_style, text)).translate(_SKELETON)


def folded(text: str) -> str:
    """Replace letters, blanks, dashes and quotes by the ASCII characters that they look like.

    Marks over letters and invisible characters become NUL. Each character gives exactly one, so all positions
    stay the same.
    """
    return _NOT_ASCII.sub(lambda match: "".join(map(_fold, match[0])), text)


@functools.lru_cache(4096)
def _strip_style(char: str) -> str:
    """Return the plain ASCII letter or digit for a bold, circled or full-width one; others stay."""
    plain = unicodedata.normalize("NFKC", char)
    if len(plain) == 1 and plain.isascii() and plain.isalnum():
        return plain
    return char


@functools.lru_cache(4096)
def _fold(char: str) -> str:
    """Fold a character to the ASCII character that it looks like. A mark or an invisible one becomes NUL.

    A character that looks like none is returned itself.
    """
    if char.isascii():
        return char
    category = unicodedata.category(char)
    if category in _CATEGORIES:
        return _CATEGORIES[category]
    decomposed = unicodedata.normalize("NFKD", char)
    base = decomposed[0]
    marks = decomposed[1:]
    letter = base.translate(_SKELETON).translate(_PUNCTUATION)
    # A character may decompose to a letter and accents, which are dropped. If it decomposes to more letters
    # (a ligature), it stays, because one character mustn't become several.
    if letter.isascii() and all(map(unicodedata.combining, marks)):
        return letter
    return char


def _translate_word(word: str) -> str:
    """Translate a word to the plain Latin word that it imitates.

    If it imitates none, the word is returned as it is, or only without its bold, circled or similar styles.
    """
    unstyled = "".join(map(_strip_style, word))
    if _count_styled_letters(word, unstyled) >= _STYLED_LEAST:
        word = unstyled
    small_capitals = [char for char in word if ord(char) in _CAPITALS]
    if len(small_capitals) >= _CAPITALS_LEAST:
        word = word.translate(_CAPITALS)

    latin = word.translate(_CYRILLIC | _ARMENIAN)
    if latin.isascii():
        has_latin_letter = any(char.isascii() and char.isalpha() for char in word)
        # Without a Latin letter, the word is from its own script, even if all its letters look like Latin.
        return latin if has_latin_letter else word

    # Formulas combine Greek and Latin letters, too. So only a longer word in small letters, perhaps with a
    # capital at its beginning, counts as an imitation.
    latin_part = "".join(char for char in latin if char.isascii())
    is_in_small_letters = re.fullmatch("[A-Za-z]?[a-z]+", latin_part)
    with_greek = latin.translate(_GREEK)
    is_long = len(with_greek) > _CAPITALS_LEAST
    if with_greek.isascii() and is_long and is_in_small_letters:
        return with_greek
    return word


def _count_styled_letters(word: str, unstyled: str) -> int:
    """Count the letters of a word that have a style, so that they differ from the word in `unstyled`."""
    count = 0
    for char, letter in zip(word, unstyled, strict=True):
        if char != letter and letter.isalpha():
            count += 1
    return count
