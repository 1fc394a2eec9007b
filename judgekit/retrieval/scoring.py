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
    from collections.abc import Callable, Iterable, Sequence

    from judgekit.retrieval.compiled import Profile

PROMINENT = 2  # columns: title and tags
_FEW = 16  # words that are counted one by one: the quicker way, for as few
_READ = 300  # words of a column that are looked at for its subject


class Text:
    """The stems of an entry by column, and how many there are in all: of a long one not all may be here."""

    __slots__ = ("columns", "distinct", "length")

    def __init__(self, columns: Sequence[str], length: int | None = None) -> None:
        self.columns = [column.split() for column in columns]
        self.distinct = [set(words) for words in self.columns]
        self.length = sum(map(len, self.columns)) if length is None else length

    def words(self) -> str:
        """Return the stems of all columns in a row."""
        return " ".join([" ".join(words) for words in self.columns])


class Sought:
    """What a query looks for in texts: `words` by stem, and rows of stems.

    A stem stands for terms, each by its number and with what one occurrence counts.
    """

    __slots__ = ("phrases", "words")

    def __init__(self) -> None:
        self.words: dict[str, dict[int, float]] = {}
        self.phrases: list[tuple[int, str]] = []

    def add(self, number: int, phrase: str, share: float = 1.0) -> None:
        """Look for a stem or a row of stems as the term `number`; an occurrence counts `share`."""
        if " " in phrase:
            self.phrases.append((number, _spaced(phrase)))
        else:
            terms = self.words.setdefault(phrase, {})
            terms[number] = max(share, terms.get(number, 0.0))


class Scorer:
    """Rates the entries of one store for what one query looks for.

    `rarities` are those of the terms, `average` is the mean length of the store's entries.
    """

    __slots__ = ("_profile", "_rarities", "_scale", "_sought", "_stems", "_weights")

    def __init__(self, sought: Sought, rarities: Sequence[float], average: float, profile: Profile) -> None:
        self._sought, self._stems, self._rarities = sought, frozenset(sought.words), rarities
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
        frequencies, titled = self._frequencies(text)
        for number in surely - frequencies.keys():
            frequencies[number] = self._profile.weights["body"]
        most, damping = self._profile.bm25["k1"] + 1, self.damping(text)
        rarities = self._rarities
        score = sum([rarities[term] * f * most / (f + damping) for term, f in frequencies.items()])
        return score, set(frequencies), titled

    def _frequencies(self, text: Text) -> tuple[dict[int, float], set[int]]:
        frequencies: dict[int, float] = {}
        titled: set[int] = set()
        sought, phrases = self._sought.words, self._sought.phrases
        for place, column in enumerate(text.columns):
            weight = self._weights[place]
            found = [
                (number, share * often)
                for stem, often in _counts(column, text.distinct[place] & self._stems)
                for number, share in sought[stem].items()
            ]
            if phrases and column:
                spaced = _spaced(" ".join(column))
                found += [(number, spaced.count(phrase)) for number, phrase in phrases if phrase in spaced]
            for number, often in found:
                frequencies[number] = frequencies.get(number, 0.0) + weight * often
            if place < PROMINENT:
                titled.update([number for number, _ in found])
        return frequencies, titled


def _counts(words: list[str], wanted: set[str]) -> Iterable[tuple[str, int]]:
    """Return how often each of some words occurs."""
    if len(wanted) <= _FEW:
        return [(word, words.count(word)) for word in wanted]
    counts = dict.fromkeys(wanted, 0)
    for word in words:
        if word in counts:
            counts[word] += 1
    return counts.items()


def _spaced(row: str) -> str:
    """Return a row of stems of which each keeps its own spaces, so that neighbours are both found."""
    return f" {row.replace(' ', '  ')} "


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
            for word in column[:_READ]:
                shares[word] = shares.get(word, 0.0) + share
    rarities = rarity([word for word in shares if len(word) > 1])
    weighed = sorted(((shares[word] * rare, word) for word, rare in rarities.items()), reverse=True)
    return {word: weight * rarities[word] for weight, word in weighed[:most]}


def likeness(text: Text, subject: dict[str, float]) -> float:
    """Return the weight of the words of the subject that an entry has."""
    own = set().union(*text.distinct)
    return sum([weight for word, weight in subject.items() if word in own])
