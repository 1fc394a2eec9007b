"""Cuts text into words in any script, and words into their indexed forms.

A word is a run of letters, digits and their marks. `C#`, `C++`, `.NET` and an emoji are words, too. Han, kana
and Thai, and some of their neighbours, don't put spaces between words. So a run in one of these scripts is
indexed and queried as overlapping pairs of characters. Its last character is added alone: that way each
character begins something in the index, and a single one is found as a beginning. Korean puts particles
behind a word, so a run of Hangul is indexed by its beginnings. Runs end where the script changes.

All functions expect folded text (see terms.py).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_KEPT = 8192  # cached characters; few texts have as many different ones
FIRST = "\u0e00"  # the first character of any script below

LETTERS = 0  # of scripts with spaces between words
HANGUL = 1
_THAI = 2  # this script and the following ones have no spaces between words
_LAO = 3
_BURMESE = 4
_KHMER = 5
_KANA = 6
_HAN = 7
# The first and the last character of each block, and its script.
_BLOCKS = (
    (0x0E00, 0x0E7F, _THAI),
    (0x0E80, 0x0EFF, _LAO),
    (0x1000, 0x109F, _BURMESE),
    (0x1100, 0x11FF, HANGUL),
    (0x1780, 0x17FF, _KHMER),
    (0x3005, 0x3007, _HAN),
    (0x3041, 0x30FF, _KANA),
    (0x3130, 0x318F, HANGUL),
    (0x31F0, 0x31FF, _KANA),
    (0x3400, 0x4DBF, _HAN),
    (0x4E00, 0x9FFF, _HAN),
    (0xAC00, 0xD7A3, HANGUL),
    (0xF900, 0xFAFF, _HAN),
    (0xFF66, 0xFF9F, _KANA),
    (0x20000, 0x3FFFF, _HAN),
)
_EMOJI = ((0x2600, 0x27BF), (0x2B50, 0x2B55), (0x1F300, 0x1FAFF))
_SKIN = (0x1F3FB, 0x1F3FF)  # the colour of the emoji before it
_SELECTORS = (0xFE00, 0xFE0F)  # these choose how the character before is drawn

MOST_BEGINNINGS = 8  # syllables of the longest beginning of a Korean word, beside the word itself
# Signs that belong to their word, and placeholders for them until the other signs are removed.
_MARKS = {"#": "\x01", "+": "\x02", ".": "\x03"}


def _ascii_table() -> str:
    kept = {ord(mark): sign for sign, mark in _MARKS.items()}
    table = ""
    for code in range(128):
        char = chr(code)
        table += kept.get(code) or (char if char.isalnum() else " ")
    return table


_SPACED = _ascii_table()


class _Kept(dict[int, str]):
    """A table for `str.translate` that fills itself: each character maps to itself, a word, or a space."""

    def __missing__(self, code: int) -> str:
        if len(self) >= _MOST_KEPT:
            self.clear()
        char = chr(code)
        if code < len(_SPACED):
            kept = _SPACED[code]
        elif _is_in(code, _EMOJI) and not _is_in(code, (_SKIN,)):
            kept = f" {char} "
        elif char.isalnum() or _is_mark(char):
            kept = char
        else:
            kept = " "
        self[code] = kept
        return kept


def _is_in(code: int, blocks: Sequence[tuple[int, int]]) -> bool:
    return any(first <= code <= last for first, last in blocks)


def _is_mark(char: str) -> bool:
    """Whether a character is a vowel or a tone written around a letter, as in Thai and Hindi."""
    import unicodedata  # noqa: PLC0415 - most prompts do without

    return unicodedata.category(char)[0] == "M" and not _is_in(ord(char), (_SELECTORS,))


_KEPT = _Kept()


class _Scripts(dict[str, int]):
    """The script of each character, learnt as it comes."""

    def __missing__(self, char: str) -> int:
        if len(self) >= _MOST_KEPT:
            self.clear()
        code = ord(char)
        found = LETTERS
        for first, last, script in _BLOCKS:
            if first <= code <= last:
                found = script
        self[char] = found
        return found


_SCRIPT_OF = _Scripts()


def split_words(text: str, before_dot: Sequence[str]) -> list[str]:
    """Return the words of a text, in its order; a `.net` comes before its `net`.

    `before_dot` lists what can start a word with a dot: a preceding character, and the dot.
    """
    signed = _keep_signs(text, before_dot)
    if text.isascii():  # by a table: ten times as fast, and most texts are ASCII
        found = signed.translate(_SPACED).split()
    else:
        found = signed.translate(_KEPT).split()
    if signed is text:
        return found
    words = []
    for word in found:
        words.append(word)
        bare = word.strip("".join(_MARKS))
        if len(bare) > 1 and bare != word:
            words.append(bare)
    return words


def split_tokens(text: str, joiners: str, before_dot: Sequence[str]) -> list[str]:
    """Return the words of a text as they're written; words connected by `joiners` stay one."""
    table = _JOINED.setdefault(joiners, _Joined(joiners))
    tokens = []
    for piece in _keep_signs(text, before_dot).translate(table).split():
        token = piece.strip(joiners).translate(_UNMARKED)
        if token:
            tokens.append(token)
    return tokens


class _Joined(dict[int, str]):
    """The table `_KEPT`, but keeping joiners in place, and marks as they are."""

    def __init__(self, joiners: str) -> None:
        super().__init__()
        self._left = {ord(char) for char in (*joiners, *_MARKS.values())}

    def __missing__(self, code: int) -> str:
        if len(self) >= _MOST_KEPT:
            self.clear()
        kept = chr(code) if code in self._left else _KEPT[code]
        self[code] = kept
        return kept


_JOINED: dict[str, _Joined] = {}
_UNMARKED = {ord(mark): sign for sign, mark in _MARKS.items()}


def _keep_signs(text: str, before_dot: Sequence[str]) -> str:
    """Mark the signs in a text that belong to a word; a text without any is returned as it is."""
    signs: dict[int, str] = {}
    if "#" in text:
        _find_behind(text, "#", signs)
    if "++" in text:
        _find_behind(text, "++", signs)
    if "." in text:
        _find_before(text, before_dot, signs)
    if not signs:
        return text
    pieces: list[str] = []
    end = 0
    for place in sorted(signs):
        pieces += (text[end:place], signs[place])
        end = place + 1
    pieces.append(text[end:])
    return "".join(pieces)


def _find_behind(text: str, sign: str, signs: dict[int, str]) -> None:
    """Note each place of a sign that ends a word: behind a letter, if the word doesn't go on."""
    place = text.find(sign)
    while place >= 0:
        end = place + len(sign)
        is_behind_letter = place > 0 and text[place - 1].isalpha()
        goes_on = end < len(text) and (text[end].isalnum() or text[end] in "#+=_")
        if is_behind_letter and not goes_on:
            for number in range(place, end):
                signs[number] = _MARKS[sign[0]]
        place = text.find(sign, end)


def _find_before(text: str, before_dot: Sequence[str], signs: dict[int, str]) -> None:
    """Note each dot that begins a word: at the start, or behind a space or a bracket, before a letter."""
    if text[0] == "." and text[1:2].isalpha():
        signs[0] = _MARKS["."]
    for start in before_dot:
        place = text.find(start)
        while place >= 0:
            dot = place + 1
            if text[dot : dot + 1] == "." and text[dot + 1 : dot + 2].isalpha():
                signs[dot] = _MARKS["."]
            place = text.find(start, dot)


def has_runs(word: str) -> bool:
    """Whether a word has characters of the scripts that are cut into pairs or beginnings."""
    return max(word) >= FIRST and any(_SCRIPT_OF[char] != LETTERS for char in word)


def is_unspaced(word: str) -> bool:
    """Whether a word has characters of scripts without spaces, so that it may be a whole sentence."""
    return max(word) >= FIRST and any(_SCRIPT_OF[char] > HANGUL for char in word)


def split_runs(word: str) -> list[tuple[int, str]]:
    """Split a word into runs of one script each, with that script; an empty word has none."""
    if not word:  # a combining mark without its letter
        return []
    starts = [0]
    for place in range(1, len(word)):
        if _SCRIPT_OF[word[place]] != _SCRIPT_OF[word[place - 1]]:
            starts.append(place)
    ends = [*starts[1:], len(word)]
    return [
        (_SCRIPT_OF[word[start]], word[start:end]) for start, end in zip(starts, ends, strict=True)
    ]


def index_forms(script: int, run: str) -> list[str]:
    """List the terms to index for a run of Hangul, or of a script without spaces."""
    if script == HANGUL:
        return beginnings(run)
    return [*_list_pairs(run), run[-1]]


def query_forms(script: int, run: str) -> list[str]:
    """List the terms to query for a run; a single character is queried as a beginning."""
    if script == HANGUL:
        return beginnings(run)
    return _list_pairs(run) or [run]


def _list_pairs(run: str) -> list[str]:
    return [run[place : place + 2] for place in range(len(run) - 1)]


def beginnings(run: str) -> list[str]:
    """List the beginnings of a Korean word of two syllables or more, shortest first, and the word.

    In a word of two syllables the second is often a particle, so there the first one counts.
    """
    shortest = 1 if len(run) <= 2 else 2  # noqa: PLR2004 - see the docstring
    ends = range(shortest, min(len(run), MOST_BEGINNINGS + 1))
    return [*[run[:end] for end in ends], run]


def share_of_runs(text: str) -> float:
    """Measure the share of characters, 0..1, whose scripts are cut into pairs or beginnings."""
    if not text or max(text) < FIRST:
        return 0.0
    return sum(_SCRIPT_OF[char] != LETTERS for char in text) / len(text)


class _Spread(dict[int, str]):
    """A table for `str.translate` that separates characters of scripts without spaces, for FTS5."""

    def __missing__(self, code: int) -> str:
        if len(self) >= _MOST_KEPT:
            self.clear()
        char = chr(code)
        parted = char if _SCRIPT_OF[char] in (LETTERS, HANGUL) else f"{char}{GAP}"
        self[code] = parted
        return parted


GAP = "\u200b"  # no width
_SPREAD = _Spread()


def spread(text: str) -> str:
    """Return a text with a `GAP` behind each character of a script without spaces."""
    return text.translate(_SPREAD)
