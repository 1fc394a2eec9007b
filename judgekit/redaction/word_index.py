"""Finds which of many words a text contains, in one pass; rules without a word in it aren't tried.

The words become one pattern, a tree of their letters, which is tried at every position. Of two words that
begin alike, the longer one matches and stands for the shorter one too. Words of a single character are in
most texts, so they're searched directly.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def any_word(words: Iterable[str]) -> str:
    """Build a pattern that matches any of some words. If several match at a place, it matches the longest."""
    tree: dict[str, Any] = {}
    for word in words:
        node = tree
        for char in word:
            node = node.setdefault(char, {})  # go down to the letter's node, and add it if it's new
        node[""] = {}  # "" marks a node at which a word ends
    return _build_pattern(tree)


def _build_pattern(node: dict[str, Any]) -> str:
    """Build a pattern for all ways to go on from a node of the tree of letters to the end of a word."""
    branches = []
    for char, child in sorted(node.items()):
        if char:
            branches.append(re.escape(char) + _build_pattern(child))
    if not branches:
        return ""
    is_end_of_word = "" in node
    if len(branches) == 1 and not is_end_of_word:
        return branches[0]
    pattern = f"(?:{'|'.join(branches)})"
    return f"{pattern}?" if is_end_of_word else pattern


class WordIndex:
    """The words of rules; `rules_of` returns the numbers of the rules with a word in a text."""

    def __init__(self, words_of_rules: Sequence[tuple[str, ...]]) -> None:
        self._rules_by_word: defaultdict[str, set[int]] = defaultdict(set)
        for number, words in enumerate(words_of_rules):
            for word in words:
                self._rules_by_word[word].add(number)
        self._single_letters = [word for word in self._rules_by_word if len(word) == 1]
        longer_words = [word for word in self._rules_by_word if len(word) > 1]
        self._rules_by_match = {word: self._find_rules_of_beginnings(word) for word in longer_words}
        # A lookahead finds words that overlap, too.
        self._pattern = re.compile(f"(?=({any_word(longer_words)}))")

    def _find_rules_of_beginnings(self, word: str) -> set[int]:
        """Return the rules of a word, and of all shorter words with which it begins.

        The pattern finds only the longest word at a place, so the shorter words' rules count for it, too.
        """
        rules: set[int] = set()
        for length in range(2, len(word) + 1):
            beginning = word[:length]
            rules |= self._rules_by_word.get(beginning, set())
        return rules

    def rules_of(self, text: str) -> list[int]:
        """Return the numbers of the rules that have a word which occurs in the text, in ascending order."""
        rules: set[int] = set()
        for word in set(self._pattern.findall(text)):
            rules |= self._rules_by_match[word]
        for letter in self._single_letters:
            if letter in text:
                rules |= self._rules_by_word[letter]
        return sorted(rules)


# Letters by their frequency in texts; all others are rare.
_BY_FREQUENCY = " etaoinsrhldcumfpgwybvkxjqz"


class AnyWord:
    """Any of many words: its pattern matches if a text contains one."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._of_all: re.Pattern[str] | None = None
        self._of_ascii: re.Pattern[str] | None = None

    def pattern_for(self, text: str) -> re.Pattern[str]:
        """Return the pattern with which to search a text. It's compiled when it's first needed.

        A text in ASCII can't have words with other letters. It gets a pattern without them, which is faster.
        """
        # Not a cached property: before Python 3.12 it holds a lock, and a child forked in the meantime would
        # hang on it.
        if text.isascii():
            if self._of_ascii is None:
                ascii_words = [word for word in self._words if word.isascii()]
                self._of_ascii = _compile_at_rarest_letter(ascii_words)
            return self._of_ascii
        if self._of_all is None:
            self._of_all = _compile_at_rarest_letter(self._words)
        return self._of_all


def _compile_at_rarest_letter(words: Sequence[str]) -> re.Pattern[str]:
    """Compile a pattern that finds any of some words by their rarest letters.

    `re` tries the rest of a word only at places with the word's rarest letter, of which a text has few. For
    "key" that's `k(?:ey)`. If other letters come before the rarest, a lookbehind checks them. So a match
    begins at the rarest letter, and not at the beginning of the word.
    """
    endings: defaultdict[str, list[str]] = defaultdict(list)  # by the rarest letter
    for word in words:
        letter = max(word, key=_rank_rarity)
        beginning, _, letters_behind = word.partition(letter)
        ending = re.escape(letters_behind)
        if beginning:  # a lookbehind from the word's end checks the letters before
            ending += f"(?<={re.escape(word)})"
        endings[letter].append(ending)
    branches = []
    for letter, letter_endings in endings.items():
        branches.append(f"{re.escape(letter)}(?:{'|'.join(letter_endings)})")
    return re.compile("|".join(branches))


def _rank_rarity(letter: str) -> int:
    """Return a number that's higher for rarer letters, and highest for characters other than a to z."""
    rank = _BY_FREQUENCY.find(letter)
    return rank if rank >= 0 else len(_BY_FREQUENCY)
