"""Orders what matched: score, then the category's priority, then recency; cuts the noise.

A hit's `score` is what orders it; its candidate's `bm25` alone says whether it is noise.
"""

from __future__ import annotations

import time

from judgekit.retrieval import confidence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from judgekit.retrieval.candidate import Candidate
    from judgekit.retrieval.compiled import Profile
    from judgekit.retrieval.query import Term

_DAY = 86_400
_DIGITS = 6  # of a score relative to the best: what is equal up to here is a tie


class Hit:
    """A candidate, its score, and the numbers of the query's terms that occur in it.

    `titled` are those of `matched` that occur in its title or tags. `text` holds its words as the query's are
    compared with them, title first, and `length` is how many there are.
    """

    __slots__ = ("candidate", "length", "matched", "score", "text", "titled")

    def __init__(self, candidate: Candidate, score: float) -> None:
        self.candidate, self.score = candidate, score
        self.matched: set[int] = set()
        self.titled: set[int] = set()
        self.text, self.length = "", 0


class Statistics:
    """What is known of the query's terms in one store: the number of documents, and how rare each term is.

    `words` are the terms that are single words, as they are compared.
    """

    __slots__ = ("documents", "rarities", "words")

    def __init__(self, terms: list[Term], matches: list[int], documents: int, profile: Profile) -> None:
        self.documents = documents
        self.words = list(dict.fromkeys(term.phrases[0] for term in terms if " " not in term.phrases[0]))
        self.rarities = [
            confidence.rarity(count, documents, profile.background, common=term.common)
            for term, count in zip(terms, matches, strict=True)
        ]


def order(hits: list[Hit], statistics: Statistics, profile: Profile) -> list[Candidate]:
    """Return the candidates of `hits`, best first, without those below the noise floor."""
    if not hits:
        return []
    floor = profile.noise_floor * max(hit.candidate.bm25 for hit in hits)
    kept = [hit for hit in hits if hit.candidate.bm25 >= floor]
    best = max(hit.score for hit in kept)
    now = time.time()
    kept.sort(key=lambda hit: _place(hit, best, now, profile))
    for hit, found in zip(kept, confidence.features(kept, statistics, profile), strict=True):
        _rate(hit.candidate, found, profile)
    return [hit.candidate for hit in kept]


def _place(hit: Hit, best: float, now: float, profile: Profile) -> tuple[float, int, bool, float]:
    candidate = hit.candidate
    old = now - candidate.updated > profile.recent_days * _DAY
    return (
        -round(hit.score / (best or 1), _DIGITS),
        profile.priority(candidate.category),
        old,
        -candidate.updated,
    )


def _rate(candidate: Candidate, found: confidence.Features, profile: Profile) -> None:
    candidate.features = found
    candidate.confidence = confidence.probability(found, profile)
    if candidate.damaged:
        candidate.confidence = min(candidate.confidence, profile.labels["medium"])
    label = confidence.label(candidate.confidence, profile)
    candidate.confidence_label = "medium" if candidate.damaged and label == "high" else label
    candidate.worth_mentioning = candidate.confidence >= profile.labels["mention"]
