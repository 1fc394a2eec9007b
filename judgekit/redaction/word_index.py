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
    """Build a regex that matches any of the words, preferring the longest."""
    tree: dict[str, Any] = {}
    for word in words:
        node = tree
        for char in word:
            node = node.setdefault(char, {})
        node[""] = {}  # "" marks a node at which a word ends
    return _build_pattern(tree)


def _build_pattern(node: dict[str, Any]) -> str:
    """Build a regex that matches the rest of any word below a node in a tree of letters.

    A node is a dict from the next letter to a child node. If a word ends at a node, the node also has the
    key "".
    """
    branches = []  # a pattern for each child node
    for char, child in sorted(node.items()):
        if char != "":
            branches.append(re.escape(char) + _build_pattern(child))
    if not branches:
        return ""

    # If a word ends here, the rest is optional, as in `pass(?:word)?`.
    is_end_of_word = "" in node
    if len(branches) == 1 and not is_end_of_word:
        return branches[0]
    pattern = f"(?:{'|'.join(branches)})"
    return f"{pattern}?" if is_end_of_word else pattern


class WordIndex:
    """An index of rules by trigger word, to find the rules that are relevant for a text.

    Rules are identified by their index in `trigger_words`.
    """

    def __init__(self, trigger_words: Sequence[tuple[str, ...]]) -> None:
        self._rules_by_word: defaultdict[str, set[int]] = defaultdict(set)
        for rule, words in enumerate(trigger_words):
            for word in words:
                self._rules_by_word[word].add(rule)

        # Single letters are in most texts, so they're searched without the pattern.
        self._single_letters = [word for word in self._rules_by_word if len(word) == 1]
        longer_words = [word for word in self._rules_by_word if len(word) > 1]
        self._rules_by_match = {word: self._find_rules_of_prefixes(word) for word in longer_words}
        # A lookahead consumes nothing, so the pattern also finds overlapping words.
        self._pattern = re.compile(f"(?=({any_word(longer_words)}))")

    def _find_rules_of_prefixes(self, word: str) -> set[int]:
        """Return the rules that a word or any of its prefixes triggers.

        The pattern finds only the longest word at each position, so its prefixes have to be added here.
        """
        rules: set[int] = set()
        for length in range(2, len(word) + 1):
            prefix = word[:length]
            rules |= self._rules_by_word.get(prefix, set())
        return rules

    def find_rules(self, text: str) -> list[int]:
        """Return the rules with a trigger word in the text, in ascending order."""
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
    # by rarest letter: patterns for the rest of each word
    rests: defaultdict[str, list[str]] = defaultdict(list)
    for word in words:
        letter = max(word, key=_rate_rarity)
        letters_before, _, letters_after = word.partition(letter)
        rest = re.escape(letters_after)
        if letters_before:
            # Look back to check the letters before the rarest one.
            rest += f"(?<={re.escape(word)})"
        rests[letter].append(rest)

    branches = []
    for letter, letter_rests in rests.items():
        branches.append(f"{re.escape(letter)}(?:{'|'.join(letter_rests)})")
    return re.compile("|".join(branches))


def _rate_rarity(letter: str) -> int:
    """Return a number that's higher for rarer letters, and highest for characters other than a to z."""
    rank = _BY_FREQUENCY.find(letter)
    return rank if rank >= 0 else len(_BY_FREQUENCY)
