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

_MAX_CACHED_CHARS = 8192  # cached characters; few texts have as many different ones
FIRST_SPECIAL_SCRIPT_CHAR = "\u0e00"  # the first character of any script below

SPACED_SCRIPT = 0  # of scripts with spaces between words
HANGUL = 1
_THAI = 2  # this script and the following ones have no spaces between words
_LAO = 3
_BURMESE = 4
_KHMER = 5
_KANA = 6
_HAN = 7
# The first and the last character of each block, and its script.
_SCRIPT_BLOCKS = (
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
_SKIN_TONE_BLOCK = (0x1F3FB, 0x1F3FF)  # the colour of the emoji before it
_VARIATION_SELECTOR_BLOCK = (0xFE00, 0xFE0F)  # these choose how the character before is drawn

# Syllables of the longest indexed prefix of a Korean word. The word itself is indexed as well.
MAX_PREFIX_SYLLABLES = 8
# Signs that belong to their word, and placeholders for them until the other signs are removed.
_PLACEHOLDER_BY_SIGN = {"#": "\x01", "+": "\x02", ".": "\x03"}


def _build_ascii_table() -> str:
    """Build a table for `str.translate` that restores signs from placeholders, and blanks other signs."""
    sign_by_mark = {mark: sign for sign, mark in _PLACEHOLDER_BY_SIGN.items()}
    table = ""
    for code in range(128):
        char = chr(code)
        if char in sign_by_mark:
            table += sign_by_mark[char]
        else:
            table += char if char.isalnum() else " "
    return table


_ASCII_WORD_TABLE = _build_ascii_table()


class _WordTable(dict[int, str]):
    """A table for `str.translate` that fills itself: each character maps to itself, a word, or a space."""

    def __missing__(self, code: int) -> str:
        """Choose and cache the replacement for a new character."""
        if len(self) >= _MAX_CACHED_CHARS:
            self.clear()
        char = chr(code)
        is_skin_tone = _is_in_blocks(code, (_SKIN_TONE_BLOCK,))
        is_emoji = _is_in_blocks(code, _EMOJI) and not is_skin_tone
        if code < len(_ASCII_WORD_TABLE):  # an ASCII character
            replacement = _ASCII_WORD_TABLE[code]
        elif is_emoji:
            replacement = f" {char} "  # each emoji is a word
        elif char.isalnum() or _is_mark(char):
            replacement = char
        else:  # also a skin tone, so that an emoji is the same word in every tone
            replacement = " "

        self[code] = replacement
        return replacement


def _is_in_blocks(code: int, blocks: Sequence[tuple[int, int]]) -> bool:
    """Whether a character code is in a block, given by first and last code."""
    return any(first <= code <= last for first, last in blocks)


def _is_mark(char: str) -> bool:
    """Whether a character is a vowel or tone mark around a letter, as in Thai and Hindi."""
    import unicodedata  # noqa: PLC0415 - most prompts don't need it

    is_mark = unicodedata.category(char).startswith("M")
    return is_mark and not _is_in_blocks(ord(char), (_VARIATION_SELECTOR_BLOCK,))


_WORD_TABLE = _WordTable()


class _Scripts(dict[str, int]):
    """The script of each character, one of the numbers above. It's a cache that fills itself."""

    def __missing__(self, char: str) -> int:
        """Look up and cache the script of a new character."""
        if len(self) >= _MAX_CACHED_CHARS:
            self.clear()
        code = ord(char)
        script = SPACED_SCRIPT
        for first, last, block_script in _SCRIPT_BLOCKS:
            if first <= code <= last:
                script = block_script
        self[char] = script
        return script


_SCRIPT_BY_CHAR = _Scripts()


def split_words(text: str, before_dot: Sequence[str]) -> list[str]:
    """Split text into words. A word with a sign is followed by the word without it: `.net` by `net`.

    `before_dot` are strings such as `(.` in which the dot can start a word.
    """
    marked = _keep_signs(text, before_dot)
    # `_keep_signs` has put placeholders for the signs, and both tables turn them back. The one for ASCII
    # suits most texts, and is ten times faster.
    table = _ASCII_WORD_TABLE if text.isascii() else _WORD_TABLE
    pieces = marked.translate(table).split()
    has_no_signs = marked is text  # then `_keep_signs` returns the same object
    if has_no_signs:
        return pieces

    signs = "".join(_PLACEHOLDER_BY_SIGN)
    words = []
    for piece in pieces:
        words.append(piece)
        bare = piece.strip(signs)
        # A single letter, such as the C of `C#`, would match too much.
        if len(bare) > 1 and bare != piece:
            words.append(bare)

    return words


def split_tokens(text: str, joiners: str, before_dot: Sequence[str]) -> list[str]:
    """Split text into words without changing them. Words connected by `joiners` stay together.

    `before_dot` are strings such as `(.` in which the dot can start a word.
    """
    if joiners not in _TABLE_BY_JOINERS:
        _TABLE_BY_JOINERS[joiners] = _TokenTable(joiners)
    table = _TABLE_BY_JOINERS[joiners]
    marked = _keep_signs(text, before_dot)
    tokens = []
    for piece in marked.translate(table).split():
        marked_token = piece.strip(joiners)
        token = marked_token.translate(_SIGN_BY_PLACEHOLDER)
        if token:
            tokens.append(token)
    return tokens


class _TokenTable(dict[int, str]):
    """The table `_WORD_TABLE`, but keeping joiners in place, and marks as they are."""

    def __init__(self, joiners: str) -> None:
        super().__init__()
        self._unchanged_codes = {ord(char) for char in (*joiners, *_PLACEHOLDER_BY_SIGN.values())}

    def __missing__(self, code: int) -> str:
        """Choose and cache the replacement for a new character."""
        if len(self) >= _MAX_CACHED_CHARS:
            self.clear()
        replacement = chr(code) if code in self._unchanged_codes else _WORD_TABLE[code]
        self[code] = replacement
        return replacement


_TABLE_BY_JOINERS: dict[str, _TokenTable] = {}
_SIGN_BY_PLACEHOLDER = {ord(mark): sign for sign, mark in _PLACEHOLDER_BY_SIGN.items()}


def _keep_signs(text: str, before_dot: Sequence[str]) -> str:
    """Replace signs that belong to a word (`C#`, `.NET`) by placeholders that survive splitting.

    Without such signs, the same object is returned.
    """
    mark_by_position: dict[int, str] = {}
    if "#" in text:
        _mark_after_words(text, "#", mark_by_position)
    if "++" in text:
        _mark_after_words(text, "++", mark_by_position)
    if "." in text:
        _mark_before_words(text, before_dot, mark_by_position)
    if not mark_by_position:
        return text

    pieces: list[str] = []
    end = 0
    for position in sorted(mark_by_position):
        pieces += (text[end:position], mark_by_position[position])
        end = position + 1

    pieces.append(text[end:])
    return "".join(pieces)


def _mark_after_words(text: str, sign: str, mark_by_position: dict[int, str]) -> None:
    """Add the positions where `sign` ends a word, as in `C#`, to `mark_by_position`."""
    mark = _PLACEHOLDER_BY_SIGN[sign[0]]
    start = text.find(sign)
    while start >= 0:
        end = start + len(sign)
        is_after_letter = start > 0 and text[start - 1].isalpha()
        next_char = text[end : end + 1]  # "" at the end of the text
        goes_on = next_char != "" and (next_char.isalnum() or next_char in "#+=_")
        if is_after_letter and not goes_on:
            for position in range(start, end):
                mark_by_position[position] = mark
        start = text.find(sign, end)


def _mark_before_words(
    text: str, before_dot: Sequence[str], mark_by_position: dict[int, str]
) -> None:
    """Add the positions where a dot starts a word, as in `.NET`, to `mark_by_position`.

    Such a dot starts the text, or follows certain characters: `before_dot` has these together with the dot,
    such as `(.`. A letter follows the dot.
    """
    if text.startswith(".") and text[1:2].isalpha():
        mark_by_position[0] = _PLACEHOLDER_BY_SIGN["."]
    for pair in before_dot:
        start = text.find(pair)
        while start >= 0:
            dot = start + 1
            next_char = text[dot + 1 : dot + 2]
            if next_char.isalpha():
                mark_by_position[dot] = _PLACEHOLDER_BY_SIGN["."]
            start = text.find(pair, dot)


def has_runs(word: str) -> bool:
    """Whether a word has characters in scripts that are split into pairs or beginnings."""
    if max(word) < FIRST_SPECIAL_SCRIPT_CHAR:  # a shortcut for most scripts
        return False
    return any(_SCRIPT_BY_CHAR[char] != SPACED_SCRIPT for char in word)


def is_unspaced(word: str) -> bool:
    """Whether a word contains scripts without spaces, so that it can be a complete sentence."""
    if max(word) < FIRST_SPECIAL_SCRIPT_CHAR:  # a shortcut for most scripts
        return False
    return any(_SCRIPT_BY_CHAR[char] > HANGUL for char in word)


def split_runs(word: str) -> list[tuple[int, str]]:
    """Split a word into runs of a single script. Returns pairs of script and run."""
    if not word:  # e.g. a combining mark without a letter
        return []

    starts = [0]
    for position in range(1, len(word)):
        if _SCRIPT_BY_CHAR[word[position]] != _SCRIPT_BY_CHAR[word[position - 1]]:
            starts.append(position)

    ends = [*starts[1:], len(word)]
    runs = []
    for start, end in zip(starts, ends, strict=True):
        script = _SCRIPT_BY_CHAR[word[start]]
        runs.append((script, word[start:end]))
    return runs


def list_index_forms(script: int, run: str) -> list[str]:
    """List the terms to index for a run of Hangul, or of a script without spaces."""
    if script == HANGUL:
        return list_prefixes(run)
    # No pair starts with the last character, so add it alone. A query for a single character then finds it.
    return [*_list_pairs(run), run[-1]]


def list_query_forms(script: int, run: str) -> list[str]:
    """List the terms to query for a run of Hangul, or of a script without spaces."""
    if script == HANGUL:
        return list_prefixes(run)
    if len(run) == 1:
        return [run]  # the query finds the indexed pairs that start with it
    return _list_pairs(run)


def _list_pairs(run: str) -> list[str]:
    """List the overlapping pairs of adjacent characters."""
    return [run[start : start + 2] for start in range(len(run) - 1)]


def list_prefixes(run: str) -> list[str]:
    """List the beginnings of a Korean word, shortest first, and the word itself.

    Beginnings have two to eight syllables. In a word of two, the second is often a particle, so the first
    alone is a beginning as well.
    """
    shortest = 1 if len(run) <= 2 else 2  # noqa: PLR2004 - see the docstring
    longest = min(len(run) - 1, MAX_PREFIX_SYLLABLES)
    forms = [run[:length] for length in range(shortest, longest + 1)]
    forms.append(run)
    return forms


def measure_run_share(text: str) -> float:
    """Return the fraction of characters in Hangul and in scripts that run words together without spaces."""
    if not text or max(text) < FIRST_SPECIAL_SCRIPT_CHAR:  # a shortcut for most texts
        return 0.0
    count = sum(_SCRIPT_BY_CHAR[char] != SPACED_SCRIPT for char in text)
    return count / len(text)


class _Spread(dict[int, str]):
    """A table for `str.translate` that separates characters of scripts without spaces, for FTS5."""

    def __missing__(self, code: int) -> str:
        """Choose and cache the replacement: a gap follows each character of a script without spaces."""
        if len(self) >= _MAX_CACHED_CHARS:
            self.clear()
        char = chr(code)
        script_has_spaces = _SCRIPT_BY_CHAR[char] in (SPACED_SCRIPT, HANGUL)
        replacement = char if script_has_spaces else f"{char}{GAP}"
        self[code] = replacement
        return replacement


GAP = "\u200b"  # no width
_GAP_INSERTION_TABLE = _Spread()


def add_gaps(text: str) -> str:
    """Return text with a `GAP` after each character in a script without spaces."""
    return text.translate(_GAP_INSERTION_TABLE)
