"""Scores the entries that a search found: BM25 for the terms of the query, then what the best have in common.

BM25 is the sum over the terms of

    rarity * f * (k1 + 1) / (f + k1 * (1 - b + b * (length + padding) / (average + padding)))

`f` is how often the term occurs, each occurrence weighted by its column (one saturation for all columns:
Robertson, Zaragoza and Taylor 2004); a longer word that begins with the term counts `prefix`. `rarity` is the
inverse document frequency that cannot get negative, smoothed for small stores (see confidence.py). `length`
is the number of indexed words. FTS5's own bm25() has fixed k1 and b and no padding, counts longer words in
full, and gives nothing for a word that half of all entries have; it only chooses the entries rated here.

The rest is pseudo-relevance feedback (RM3: Lavrenko and Croft 2001) without a second search: the words that
are frequent in the best entries and rare in the store stand for the subject; hits with many of them move up.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from judgekit.retrieval.compiled import Profile
    from judgekit.retrieval.query import Term

PROMINENT = 2  # columns: title and tags
_READ = 2_500  # characters of a column that are looked at for its subject, twice the spaces included


class Text:
    """The stems of an entry by column, and how many there are in all."""

    __slots__ = ("columns", "length", "whole")

    def __init__(self, columns: Sequence[str], length: int | None = None) -> None:
        # Two spaces between words: each keeps its own, so that neighbours are both found.
        self.columns = [f"  {column.replace(' ', '  ')}  " if column else "" for column in columns]
        self.whole = "".join(self.columns)
        self.length = sum(column.count(" ") + 1 for column in columns if column) if length is None else length


class Pattern:
    """A term as it is looked for in a `Text`."""

    __slots__ = ("beginning", "probes", "wholes")

    def __init__(self, term: Term) -> None:
        self.wholes = [f" {phrase.replace(' ', '  ')} " for phrase in term.phrases]
        self.beginning = None if term.prefix is None else f" {term.prefix}"
        first = self.wholes[0] if self.beginning is None else self.beginning
        self.probes = [first, *self.wholes[1:]]

    def occurs(self, text: str) -> bool:
        """Whether the term is there at all."""
        return any(probe in text for probe in self.probes)

    def count(self, text: str, prefix: float) -> float:
        """Return how often the term occurs; a longer word that begins with it counts `prefix`."""
        found: float = sum([text.count(whole) for whole in self.wholes])
        if self.beginning is not None:
            found += prefix * (text.count(self.beginning) - text.count(self.wholes[0]))
        return found


class Scorer:
    """Rates the entries of one store for the terms of one query.

    `rarities` are those of the terms, `average` is the mean length of the store's entries.
    """

    __slots__ = ("_patterns", "_profile", "_rarities", "_scale", "_weights")

    def __init__(
        self, terms: Sequence[Term], rarities: Sequence[float], average: float, profile: Profile
    ) -> None:
        self._patterns, self._rarities = [Pattern(term) for term in terms], rarities
        self._profile, self._weights = profile, list(profile.weights.values())
        self._scale = average + profile.bm25["padding"]

    def damping(self, text: Text) -> float:
        """Return what is added to a frequency below the line: more in a long entry."""
        bm25 = self._profile.bm25
        length = (text.length + bm25["padding"]) / (self._scale or 1)
        return bm25["k1"] * (1 - bm25["b"] + bm25["b"] * length)

    def rate(self, text: Text, surely: frozenset[int] = frozenset()) -> tuple[float, set[int], set[int]]:
        """Return the score of an entry, the numbers of the terms in it, and of those in its title or tags.

        Terms that are `surely` in it, although its `text` does not show them, count once in the body.
        """
        prefix, most, damping = self._profile.bm25["prefix"], self._profile.bm25["k1"] + 1, self.damping(text)
        score, matched, titled = 0.0, set(), set()
        for number, pattern in enumerate(self._patterns):
            frequency = 0.0
            if pattern.occurs(text.whole):
                for place, column in enumerate(text.columns):
                    if column and pattern.occurs(column):
                        frequency += self._weights[place] * pattern.count(column, prefix)
                        if place < PROMINENT:
                            titled.add(number)
            elif number in surely:
                frequency = self._profile.weights["body"]
            if frequency:
                matched.add(number)
                score += self._rarities[number] * frequency * most / (frequency + damping)
        return score, matched, titled


def subject(
    best: Sequence[tuple[Text, float]],
    rarity: Callable[[list[str]], dict[str, float]],
    *,
    most: int,
    padding: float,
) -> dict[str, float]:
    """Return the `most` typical words of the best entries (with their scores), each with its weight.

    `rarity` gives the rarity of each of some words, and leaves out those of one entry only.
    """
    total = sum(score for _, score in best)
    shares: dict[str, float] = {}
    for text, score in best:
        share = score / (total * (text.length + padding))
        for column in text.columns:
            for word in column[:_READ].split():
                shares[word] = shares.get(word, 0.0) + share
    rarities = rarity([word for word in shares if len(word) > 1])
    weighed = sorted(((shares[word] * rare, word) for word, rare in rarities.items()), reverse=True)
    return {word: weight * rarities[word] for weight, word in weighed[:most]}


def likeness(text: Text, subject: dict[str, float]) -> float:
    """Return the weight of the words of the subject that an entry has."""
    own = set(text.whole[:_READ].split())
    return sum([subject[word] for word in own & subject.keys()])
