"""Letters that only look like the letters of ASCII, in words that are otherwise written in these.

A word with a Cyrillic or Greek letter among Latin ones, or in mathematical, circled, full-width or small
capital letters, reads like the plain word to a person and to many a model, and passes any check of its
letters. Words of one script stay as they are, and so do symbols: a mathematical letter alone, a Greek one
behind Latin capitals.
The pairs are from Unicode's confusables.txt (UTS #39), as far as they are of scripts in use beside Latin.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_CYRILLIC: Final = dict(
    zip(
        (
            "\u0430\u0410\u0412\u0441\u0421\u0501\u0435\u0415\u050c\u04bb\u041d\u0456\u0406\u04cf"
            "\u04c0\u0458\u0408\u043a\u041a\u041c\u043e\u041e\u0440\u0420\u051b\u051a\u0455\u0405"
            "\u0442\u0422\u0475\u0474\u051d\u051c\u0445\u0425\u0443\u0423\u0433\u043f\u0417\u042c"
        ),
        "aABcCdeEGhHiIlIjJkKMoOpPqQsStTvVwWxXyYrn3b",
        strict=True,
    )
)
_GREEK: Final = dict(
    zip(
        (
            "\u03b1\u0391\u0392\u0395\u0396\u0397\u03b9\u0399\u03ba\u039a\u039c\u039d\u03bd\u03bf"
            "\u039f\u03c1\u03a1\u03c4\u03a4\u03c5\u03a5\u03a7\u03f2\u03f3"
        ),
        "aABEZHiIkKMNvoOpPtTuYXcj",
        strict=True,
    )
)
_ARMENIAN: Final = dict(zip("\u0570\u0578\u057d\u0585\u0581\u053c\u0555\u054d", "hnuogLOU", strict=True))
_CAPITALS: Final = dict(
    zip(
        (
            "\u1d00\u0299\u1d04\u1d05\u1d07\ua730\u0262\u029c\u026a\u1d0a\u1d0b\u029f\u1d0d\u0274"
            "\u1d0f\u1d18\ua7af\u0280\ua731\u1d1b\u1d1c\u1d20\u1d21\u028f\u1d22"
        ),
        "ABCDEFGHIJKLMNOPQRSTUVWYZ",
        strict=True,
    )
)
_FOREIGN: Final = str.maketrans(_CYRILLIC | _ARMENIAN)
_STYLED_LEAST: Final = 2  # letters in a word: a single one is a symbol
_CAPITALS_LEAST: Final = 3

_CIRCLED: Final = "\u24b6-\u24e9\U0001f130-\U0001f189"
# It begins where no letter stands before it: a long word of ASCII is read once, not once for each letter.
_WORD: Final = re.compile(rf"(?<![A-Za-z0-9])[A-Za-z0-9]*+(?:[^\x00-\x7f\W]|[{_CIRCLED}])[\w{_CIRCLED}]*+")
_STRUCK: Final = re.compile(r"(?<=[A-Za-z])[\u0334-\u0338\u20d0-\u20f0]+")
_GREEK_WORD: Final = re.compile(r"[A-Za-z]?[a-z]+")


class _Styled(dict[int, int]):
    """A table for `str.translate` that learns of each character which letter or digit it is a style of."""

    def __missing__(self, code: int) -> int:
        if len(self) >= 4096:  # noqa: PLR2004 - a text has fewer; a flood of others is not kept
            self.clear()
        plain = unicodedata.normalize("NFKC", chr(code)) if code > 0x7F else ""  # noqa: PLR2004 - ASCII's end
        self[code] = ord(plain) if len(plain) == 1 and plain.isascii() and plain.isalnum() else code
        return self[code]


_BY_CATEGORY: Final = {
    "Mn": 0,
    "Me": 0,
    "Cf": 0,
    "Zs": ord(" "),
    "Pd": ord("-"),
    "Pi": ord('"'),
    "Pf": ord('"'),
}
_PUNCTUATION: Final = str.maketrans("\u201a\u201e\u2032\u2033\u2236\ua789\u05c3\u2044\u2215", "'\"'\"::://")


class _Folded(dict[int, int]):
    """A table for `str.translate` that learns of each character which one of ASCII it is read as."""

    def __missing__(self, code: int) -> int:
        if len(self) >= 4096:  # noqa: PLR2004 - as above
            self.clear()
        self[code] = _read_as(code) if code > 0x7F else code  # noqa: PLR2004 - ASCII's end
        return self[code]


def _read_as(code: int) -> int:
    char = chr(code)
    kind = unicodedata.category(char)
    if kind in _BY_CATEGORY:
        return _BY_CATEGORY[kind]
    parts = unicodedata.normalize("NFKD", char)
    letter = parts[0].translate(_SKELETON).translate(_PUNCTUATION)
    return ord(letter) if letter.isascii() and all(map(unicodedata.combining, parts[1:])) else code


_STYLED: Final = _Styled()
_FOLDED: Final = _Folded()
_SKELETON: Final = str.maketrans(_CYRILLIC | _ARMENIAN | _GREEK | _CAPITALS)


def plain(text: str) -> str:
    """Return the text with the words that imitate plain ones in plain letters; strokes through letters go."""
    if text.isascii():
        return text
    text = _WORD.sub(lambda match: _plain_word(match[0]), text)
    return _STRUCK.sub("", text)


def skeleton(text: str) -> str:
    """Return what a text looks like in small letters of ASCII, each character in its place."""
    return text if text.isascii() else text.translate(_STYLED).translate(_SKELETON)


def folded(text: str) -> str:
    """Return what a text says to a reader of ASCII, as far as it can, each character in its place.

    Accents go; styled letters, quotes, dashes and blanks become the plain ones; a NUL stands for a mark that
    is written over the letter before it. Only for looking things up: other scripts give no words.
    """
    return text if text.isascii() else text.translate(_FOLDED)


def _plain_word(word: str) -> str:
    unstyled = word.translate(_STYLED)
    if _styled_letters(word, unstyled) >= _STYLED_LEAST:
        word = unstyled
    if sum(char in _CAPITALS for char in word) >= _CAPITALS_LEAST:
        word = "".join(_CAPITALS.get(char, char) for char in word)
    latin = word.translate(_FOREIGN)
    if latin.isascii():
        return latin if any(char.isascii() and char.isalpha() for char in word) else word
    # Greek letters stand in symbols of Latin ones: only a word in small letters is an imitation.
    rest = "".join(char for char in latin if char.isascii())
    letters = "".join(_GREEK.get(char, char) for char in latin)
    return (
        letters
        if letters.isascii() and len(letters) > _CAPITALS_LEAST and _GREEK_WORD.fullmatch(rest)
        else word
    )


def _styled_letters(word: str, unstyled: str) -> int:
    return sum(a != b and b.isalpha() for a, b in zip(word, unstyled, strict=True))
