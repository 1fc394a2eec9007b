"""What the best hits have in common puts all hits in a better order.

Pseudo-relevance feedback (Lavrenko and Croft 2001, RM3), without a second search: the words that are frequent in
the best entries and rare in the store stand for the subject, and hits that have many of them move up.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from judgekit.retrieval.bm25 import Text

_LEAST = 2  # entries that a word must occur in: what only one has says nothing of the others
_READ = 2_500  # characters of a column that are looked at, twice the spaces included


def subject(
    best: Sequence[tuple[Text, float]], most: int, rarity: Callable[[list[str]], dict[str, float]]
) -> dict[str, float]:
    """Return the `most` typical words of the best entries (with their scores), each with its weight.

    `rarity` gives the rarity of each of some words, and leaves out those of one entry only.
    """
    total = sum(score for _, score in best)
    shares: dict[str, float] = {}
    for text, score in best:
        share = score / (total * (text.length + 10))
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
