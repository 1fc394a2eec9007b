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


class Features:
    """What a hit's confidence rests on; all in 0..1, none of them a model's opinion.

    `coverage`: the share of the query's terms that occur in it, each weighted by its rarity.
    `standing`: its score as a share of the best one. `lead`: how far the next hit is behind, as a share of
    its own score, scaled by `standing`. `single`: 1 over the number of terms that occur: one word alone is
    weak evidence however well it covers a short query.
    """

    __slots__ = ("coverage", "lead", "single", "standing")

    def __init__(self, coverage: float, lead: float, standing: float, single: float) -> None:
        self.coverage, self.lead, self.standing, self.single = coverage, lead, standing, single


def rarity(matches: int, documents: int, background: Mapping[str, float], *, common: bool) -> float:
    """Return the inverse document frequency of a term, smoothed by an imagined collection.

    The smoothing keeps it meaningful where bm25's own is not: with one document every term is in all or none.
    """
    imagined = background["documents"]
    expected = imagined * background["common" if common else "plain"]
    having = matches + expected
    return log(1 + (documents + imagined - having + 0.5) / (having + 0.5))


def features(scores: list[float], place: int, rarities: list[float], matched: set[int]) -> Features:
    """Return the features of the hit at `place` of `scores` (best first) that matches the terms `matched`."""
    score, best = scores[place], scores[0]
    following = scores[place + 1] if place + 1 < len(scores) else 0.0
    standing = score / best if best > 0 else 0.0
    gap = (score - following) / score if score > 0 else 0.0
    total = sum(rarities)
    coverage = sum(rarities[number] for number in matched) / total if total else 0.0
    return Features(coverage, gap * standing, standing, 1 / max(len(matched), 1))


def probability(found: Features, profile: Profile) -> float:
    """Return the probability, 0..1, that a hit with these features is relevant."""
    weight = profile.confidence
    logit = weight["intercept"]
    logit += weight["coverage"] * found.coverage + weight["lead"] * found.lead
    logit += weight["standing"] * found.standing + weight["single"] * found.single
    return 1 / (1 + exp(-logit))


def label(probability: float, profile: Profile) -> str:
    """Return `high`, `medium` or `low`."""
    if probability >= profile.labels["high"]:
        return "high"
    return "medium" if probability >= profile.labels["medium"] else "low"
