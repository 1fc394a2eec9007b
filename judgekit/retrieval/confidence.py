"""How likely a hit is to be relevant, from what the query and the ranking say about it.

A logistic regression. Its coefficients are data (`confidence` in retrieval/*.yaml), fitted on questions
asked about a conversation of which single-sentence notes were kept, searched in their own and in another
conversation's notes, whole and in random subsets of 1, 3 and 30; half of the questions have no answer there.
"""

from __future__ import annotations

from math import exp, log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.retrieval.compiled import Profile


SAME = 0.05  # coverages that differ by less are taken for equal


class Features:
    """What a hit's confidence rests on; all in 0..1, none of them a model's opinion.

    `coverage`: the share of the query's terms that occur in it, each weighted by its rarity, and by the
    profile's `body_share` where it stands in the body alone. `alone`: 1 over the number of hits, itself
    included, that cover as much: of several that fit equally well not all are meant. `standing`: its score
    as a share of the best one. `single`: 1 over the number of terms that occur: one word is weak evidence
    however well it covers a short query.
    """

    __slots__ = ("alone", "coverage", "single", "standing")

    def __init__(self, coverage: float, alone: float, standing: float, single: float) -> None:
        self.coverage, self.alone, self.standing, self.single = coverage, alone, standing, single


def rarity(matches: int, documents: int, background: Mapping[str, float], *, common: bool) -> float:
    """Return the inverse document frequency of a term, smoothed by an imagined collection.

    The smoothing keeps it meaningful where bm25's own is not: with one document every term is in all or none.
    """
    imagined = background["documents"]
    expected = imagined * background["common" if common else "plain"]
    having = matches + expected
    return log(1 + (documents + imagined - having + 0.5) / (having + 0.5))


def coverage(rarities: list[float], matched: set[int], titled: set[int], body_share: float) -> float:
    """Return the share of a query that an entry covers.

    Its terms `matched` occur there, those in `titled` in the title or the tags.
    """
    total = sum(rarities)
    found = sum(rarities[number] * (1 if number in titled else body_share) for number in matched)
    return found / total if total else 0.0


def features(place: int, scores: list[float], coverages: list[float], matched: int) -> Features:
    """Return the features of the hit at `place` (scores are best first) in which `matched` terms occur."""
    own = coverages[place]
    equals = sum(each > own - SAME for each in coverages)
    standing = scores[place] / scores[0] if scores[0] > 0 else 0.0
    return Features(own, 1 / equals, standing, 1 / max(matched, 1))


def probability(found: Features, profile: Profile) -> float:
    """Return the probability, 0..1, that a hit with these features is relevant."""
    weight = profile.confidence
    logit = weight["intercept"]
    logit += weight["coverage"] * found.coverage + weight["alone"] * found.alone
    logit += weight["standing"] * found.standing + weight["single"] * found.single
    return 1 / (1 + exp(-logit))


def label(probability: float, profile: Profile) -> str:
    """Return `high`, `medium` or `low`."""
    if probability >= profile.labels["high"]:
        return "high"
    return "medium" if probability >= profile.labels["medium"] else "low"
