"""How far a judge agrees with labels: pairs of the right word and the word that was said.

Everything takes the pairs of what could be read. What could not is neither right nor wrong: it is counted
apart.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from judgekit.evaluation.bootstrap import Interval, Measure, interval, resampled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Pair: TypeAlias = tuple[str, str]
"""The label, and what was said."""

OUTCOMES = ("reject", "improve", "accept")  # from the worst to the best


class Class(NamedTuple):
    """One word: how many items are labelled so, how many were called so, and how many of each rightly."""

    word: str
    labelled: int
    said: int
    precision: Interval | None
    recall: Interval | None


def scale(words: Sequence[str]) -> list[str] | None:
    """Return the words in their order where they have one: outcomes, or numbers; None for other words."""
    unique = set(words)
    if unique <= set(OUTCOMES):
        return [word for word in OUTCOMES if word in unique]
    try:
        return sorted(unique, key=float)
    except ValueError:
        return None


def accuracy(pairs: Sequence[Pair]) -> Interval | None:
    """Return the share that was said rightly."""
    return interval(Measure([label == said for label, said in pairs], [1.0] * len(pairs)))


def kappa(counts: Mapping[Pair, int], distance: Mapping[Pair, float] | None = None) -> float | None:
    """Return Cohen's kappa of a table of pairs; None where chance alone could not disagree.

    1 is perfect, 0 what two that do not look at the items would reach. Cohen, "A coefficient of agreement for
    nominal scales", 1960; with a `distance` of words the weighted one, Cohen, "Weighted kappa", 1968.
    """
    total = sum(counts.values())
    labels, said = Counter[str](), Counter[str]()
    for (label, word), count in counts.items():
        labels[label] += count
        said[word] += count

    def apart(pair: Pair) -> float:
        return float(pair[0] != pair[1]) if distance is None else distance[pair]

    observed = sum(apart(pair) * count for pair, count in counts.items())
    expected = sum(apart((a, b)) * labels[a] * said[b] for a in labels for b in said)
    return 1 - observed * total / expected if expected else None


def squares(words: Sequence[str]) -> dict[Pair, float]:
    """Return the squared distance of any two words of a scale: of the numbers, or of their places."""
    try:
        place = {word: float(word) for word in words}
    except ValueError:
        place = {word: float(number) for number, word in enumerate(words)}
    return {(a, b): (place[a] - place[b]) ** 2 for a in words for b in words}


def kappas(pairs: Sequence[Pair]) -> tuple[Interval | None, Interval | None]:
    """Return Cohen's kappa and, for words with an order, the quadratically weighted one."""
    words = scale([word for pair in pairs for word in pair])
    distance = squares(words) if words else None

    def counted(places: Sequence[int]) -> Counter[Pair]:
        return Counter(map(pairs.__getitem__, places))

    plain = resampled(len(pairs), lambda places: kappa(counted(places)))
    if distance is None:
        return plain, None
    return plain, resampled(len(pairs), lambda places: kappa(counted(places), distance))


def classes(pairs: Sequence[Pair]) -> list[Class]:
    """Return precision and recall of each word, in their order where they have one."""
    words = [word for pair in pairs for word in pair]
    found = []
    for word in scale(words) or sorted(set(words)):
        hits = [label == said == word for label, said in pairs]
        labelled = [label == word for label, _ in pairs]
        said = [given == word for _, given in pairs]
        precision, recall = interval(Measure(hits, said)), interval(Measure(hits, labelled))
        found.append(Class(word, sum(labelled), sum(said), precision, recall))
    return found
