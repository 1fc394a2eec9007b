"""How good one ranking is, from relevance grades that people gave: the measures that trec_eval computes.

A ranking is a list of different ids, best first. `grades` are the judgements of one query by id: a grade of
1 or more is relevant, 0 or less is not, and what nobody judged is not. A query without anything relevant
gives 0 in every measure, as a query without any hit does. All values are in 0..1.
"""

from __future__ import annotations

from itertools import islice
from math import log2
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def ndcg(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> float:
    """Return the normalised discounted cumulative gain of the first `k`.

    The gain of a document is its grade (linear, not 2^grade - 1), divided by log2(place + 1) with places from
    1; the sum is divided by that of the best ranking that the grades allow. Järvelin and Kekäläinen,
    "Cumulated gain-based evaluation of IR techniques", TOIS 20(4), 2002, with the discount of trec_eval's
    `ndcg_cut`, which also leaves the first place without a discount.
    """
    ideal = _discounted(sorted(grades.values(), reverse=True)[:k])
    return _discounted(grades.get(each, 0) for each in islice(ranking, k)) / ideal if ideal else 0.0


def recall(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> float:
    """Return how much of what is relevant is among the first `k` (trec_eval's `recall`)."""
    relevant = sum(grade > 0 for grade in grades.values())
    return _relevant(ranking, grades, k) / relevant if relevant else 0.0


def precision(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> float:
    """Return the share of relevant ones among the first `k` (trec_eval's `P`).

    It is divided by `k` where the ranking is shorter, too.
    """
    return _relevant(ranking, grades, k) / k


def reciprocal_rank(ranking: Iterable[str], grades: Mapping[str, int]) -> float:
    """Return 1 over the place of the first relevant document (trec_eval's `recip_rank`).

    Its mean over the queries is MRR; Voorhees, "The TREC-8 question answering track report", 1999.
    """
    places = (place for place, each in enumerate(ranking, 1) if grades.get(each, 0) > 0)
    first = next(places, None)
    return 1 / first if first is not None else 0.0


def _discounted(gains: Iterable[int]) -> float:
    return sum(gain / log2(place + 1) for place, gain in enumerate(gains, 1) if gain > 0)


def _relevant(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> int:
    return sum(grades.get(each, 0) > 0 for each in islice(ranking, k))
