"""Finds which of many words a text contains, in one pass; rules without a word in it aren't tried.

The words become one pattern from a trie, the tree of their letters. It's tried at every position. Of two
words that begin alike, the longer one matches and stands for the shorter one too. Words of a single character
are in most texts, so they're searched directly.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def build_word_regex(words: Iterable[str]) -> str:
    """Build a regex that matches any of the words, preferring the longest."""
    trie: dict[str, Any] = {}
    for word in words:
        node = trie
        for char in word:
            node = node.setdefault(char, {})
        node[""] = {}  # "" marks a node at which a word ends
    return _build_pattern(trie)


def _build_pattern(node: dict[str, Any]) -> str:
    """Build a regex for the rest of a word, after the letters that lead to a node of a trie.

    For example, in a trie of "pass" and "password", the regex after "pass" is `(?:word)?`. A node maps each
    next letter to a child node. If a word ends at the node, it also has the key "".
    """
    branches = []  # a pattern for each child node
    for char, child in sorted(node.items()):
        if char != "":
            branches.append(re.escape(char) + _build_pattern(child))
    if not branches:
        return ""

    is_end_of_word = "" in node
    if is_end_of_word:
        return f"(?:{'|'.join(branches)})?"
    if len(branches) == 1:
        return branches[0]
    return f"(?:{'|'.join(branches)})"


class WordIndex:
    """An index of rules by trigger word, to find the rules that are relevant for a text.

    Rules are identified by their index in `trigger_words`.
    """

    def __init__(self, trigger_words: Sequence[tuple[str, ...]]) -> None:
        self._rules_by_word: defaultdict[str, set[int]] = defaultdict(set)
        for rule, words in enumerate(trigger_words):
            for word in words:
                self._rules_by_word[word].add(rule)

        # Single characters would make the pattern match nearly everywhere, so it doesn't have them.
        self._single_characters = [word for word in self._rules_by_word if len(word) == 1]
        longer_words = [word for word in self._rules_by_word if len(word) > 1]
        # A lookahead consumes nothing, so the pattern also finds overlapping words.
        self._pattern = re.compile(f"(?=({build_word_regex(longer_words)}))")
        # At each position, the pattern finds only the longest word, which may begin with other words.
        self._rules_by_longest_word = {
            word: self._collect_rules_of_prefixes(word) for word in longer_words
        }

    def _collect_rules_of_prefixes(self, word: str) -> set[int]:
        """Return the indexes of all rules that a word triggers. "password" also triggers those of "pass"."""
        rules: set[int] = set()
        for length in range(2, len(word) + 1):  # single characters are searched separately
            prefix = word[:length]
            rules |= self._rules_by_word.get(prefix, set())
        return rules

    def find_rules(self, text: str) -> list[int]:
        """Return the indexes of the rules with a trigger word in the text, in ascending order."""
        rules: set[int] = set()
        longest_words = set(self._pattern.findall(text))
        for word in longest_words:
            rules |= self._rules_by_longest_word[word]

        # The pattern finds no single characters, so search for them separately.
        for character in self._single_characters:
            if character in text:
                rules |= self._rules_by_word[character]
        return sorted(rules)


# Letters by their frequency in texts; all others are rare.
_LETTERS_BY_FREQUENCY = " etaoinsrhldcumfpgwybvkxjqz"


class AnyWord:
    """A set of words, with a pattern that finds any of them. It's compiled on first use."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._full_pattern: re.Pattern[str] | None = None
        self._ascii_pattern: re.Pattern[str] | None = None

    def pattern_for(self, text: str) -> re.Pattern[str]:
        """Return a compiled pattern that finds any of the words in a text.

        Its matches start at a word's rarest letter, not always at its first one.
        """
        # The patterns aren't cached properties, because before Python 3.12 a cached property takes a lock.
        # A process forked at that moment would wait for the lock forever.

        # ASCII text can't contain words with other letters, and a pattern without these words is faster.
        if text.isascii():
            if self._ascii_pattern is None:
                ascii_words = [word for word in self._words if word.isascii()]
                self._ascii_pattern = _compile_at_rarest_letter(ascii_words)
            return self._ascii_pattern

        if self._full_pattern is None:
            self._full_pattern = _compile_at_rarest_letter(self._words)
        return self._full_pattern


def _compile_at_rarest_letter(words: Sequence[str]) -> re.Pattern[str]:
    """Compile a fast pattern that finds any of the words, starting at a word's rarest letter.

    For example, "key" becomes `k(?:ey)`, and "token" becomes `k(?:en(?<=token))`. That's fast because few
    positions in a text have a rare letter.
    """
    patterns_by_letter: defaultdict[str, list[str]] = defaultdict(list)
    for word in words:
        letter = max(word, key=_rate_rarity)
        letters_before, _, letters_after = word.partition(letter)
        pattern = re.escape(letters_after)
        if letters_before:
            # The match starts after these letters, so look back from the word's end to check them.
            pattern += f"(?<={re.escape(word)})"
        patterns_by_letter[letter].append(pattern)

    branches = []
    for letter, patterns in patterns_by_letter.items():
        branches.append(f"{re.escape(letter)}(?:{'|'.join(patterns)})")
    return re.compile("|".join(branches))


def _rate_rarity(letter: str) -> int:
    """Return a number that's higher for rarer letters, and highest for characters other than a to z."""
    rank = _LETTERS_BY_FREQUENCY.find(letter)
    return rank if rank >= 0 else len(_LETTERS_BY_FREQUENCY)
