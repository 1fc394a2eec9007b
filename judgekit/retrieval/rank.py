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

    `titled` are those of `matched` that occur in its title or tags.
    """

    __slots__ = ("candidate", "matched", "score", "titled")

    def __init__(self, candidate: Candidate, score: float) -> None:
        self.candidate, self.score = candidate, score
        self.matched: set[int] = set()
        self.titled: set[int] = set()


class Statistics:
    """What is known of the query's terms in one store: the number of documents, and of those with each."""

    __slots__ = ("documents", "rarities")

    def __init__(self, terms: list[Term], matches: list[int], documents: int, profile: Profile) -> None:
        self.documents = documents
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
    scores = [hit.score for hit in kept]
    share = profile.confidence["body_share"]
    coverages = [confidence.coverage(statistics.rarities, hit.matched, hit.titled, share) for hit in kept]
    for place, hit in enumerate(kept):
        _rate(hit.candidate, confidence.features(place, scores, coverages, len(hit.matched)), profile)
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
