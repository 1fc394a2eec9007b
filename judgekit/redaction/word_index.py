"""Finds which of many words a text contains, in one pass; rules without a word in it aren't tried.

The words become one pattern, a tree of their letters, which is tried at every position. Of two words that
begin alike, the longer one matches and stands for the shorter one too. Words of a single character are in
most texts, so they're searched directly.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def any_word(words: Iterable[str]) -> str:
    """Return a pattern of any of the words, the longest at each place."""
    tree: dict[str, Any] = {}
    for word in words:
        node = tree
        for char in word:
            node = node.setdefault(char, {})
        node[""] = {}
    return _pattern_of(tree)


def _pattern_of(node: dict[str, Any]) -> str:
    branches = []
    for char, child in sorted(node.items()):
        if char:
            branches.append(re.escape(char) + _pattern_of(child))
    if not branches:
        return ""
    is_end = "" in node
    if len(branches) == 1 and not is_end:
        return branches[0]
    return f"(?:{'|'.join(branches)}){'?' if is_end else ''}"


class WordIndex:
    """The words of rules; `rules_of` returns the numbers of the rules with a word in a text."""

    def __init__(self, words_of_rules: Sequence[tuple[str, ...]]) -> None:
        self._rules_by_word: dict[str, set[int]] = {}
        for number, words in enumerate(words_of_rules):
            for word in words:
                self._rules_by_word.setdefault(word, set()).add(number)
        self._single = [word for word in self._rules_by_word if len(word) == 1]
        longer = [word for word in self._rules_by_word if len(word) > 1]
        self._rules_by_match = {word: self._rules_of_beginnings(word) for word in longer}
        self._pattern = re.compile(f"(?=({any_word(longer)}))")

    def _rules_of_beginnings(self, word: str) -> set[int]:
        """Return the rules of a word and of the words that it begins with."""
        rules: set[int] = set()
        for length in range(2, len(word) + 1):
            rules |= self._rules_by_word.get(word[:length], set())
        return rules

    def rules_of(self, text: str) -> list[int]:
        """Return the numbers of the rules with a word in the text, in order."""
        rules: set[int] = set()
        for word in set(self._pattern.findall(text)):
            rules |= self._rules_by_match[word]
        for word in self._single:
            if word in text:
                rules |= self._rules_by_word[word]
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
        """Return the pattern for a text, compiled on first use, which takes a moment."""
        # Not a cached property: before Python 3.12 it holds a lock, and a child forked in the meantime would
        # hang on it.
        if text.isascii():
            if self._of_ascii is None:
                # The words that such a text can have: `re` passes over letters faster then.
                words = [word for word in self._words if word.isascii()]
                self._of_ascii = _compile_at_rarest_letter(words)
            return self._of_ascii
        if self._of_all is None:
            self._of_all = _compile_at_rarest_letter(self._words)
        return self._of_all


def _compile_at_rarest_letter(words: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern that matches from the rarest letter of a word on: few places of a text are tried."""
    endings: dict[str, list[str]] = {}
    for word in words:
        letter = max(word, key=_rarity)
        beginning, _, rest = word.partition(letter)
        ending = re.escape(rest)
        if beginning:
            ending += f"(?<={re.escape(word)})"
        endings.setdefault(letter, []).append(ending)
    branches = [f"{re.escape(letter)}(?:{'|'.join(rest)})" for letter, rest in endings.items()]
    return re.compile("|".join(branches))


def _rarity(letter: str) -> int:
    place = _BY_FREQUENCY.find(letter)
    return place if place >= 0 else len(_BY_FREQUENCY)
