from __future__ import annotations

from math import isclose, log2
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgekit.evaluation import ndcg, precision, recall, reciprocal_rank

if TYPE_CHECKING:
    from collections.abc import Callable

GRADES = {"a": 3, "b": 2, "c": 0, "d": 1, "e": -1}
IDEAL = 3 + 2 / log2(3) + 1 / log2(4)

IDS = [f"d{number}" for number in range(12)]
rankings = st.permutations(IDS).flatmap(
    lambda ids: st.integers(0, len(ids)).map(lambda length: list(ids[:length]))
)
judgements = st.dictionaries(st.sampled_from([*IDS, "elsewhere"]), st.integers(-1, 4))
cutoffs = st.integers(1, 15)

MEASURES: dict[str, Callable[[list[str], dict[str, int], int], float]] = {
    "ndcg": ndcg,
    "recall": recall,
    "precision": precision,
    "mrr": lambda ranking, grades, _: reciprocal_rank(ranking, grades),
}
measure = pytest.mark.parametrize("name", MEASURES)


@pytest.mark.parametrize(
    ("ranking", "k", "expected"),
    [
        (["a", "b", "d"], 3, 1.0),
        (["a", "b", "c", "d", "e"], 5, (3 + 2 / log2(3) + 1 / log2(5)) / IDEAL),
        (["b", "a"], 2, (2 + 3 / log2(3)) / (3 + 2 / log2(3))),
        (["x", "y", "a"], 2, 0.0),
        (["x", "y", "a"], 3, (3 / log2(4)) / IDEAL),
        (["d"], 10, 1 / IDEAL),
        (["e", "a"], 2, (3 / log2(3)) / (3 + 2 / log2(3))),
        ([], 10, 0.0),
    ],
)
def test_ndcg_by_hand(ranking: list[str], k: int, expected: float) -> None:
    assert isclose(ndcg(ranking, GRADES, k), expected)


def test_gains_are_linear() -> None:
    """With exponential gains a grade of 3 would be worth seven times one of 1."""
    assert isclose(ndcg(["d"], {"a": 3, "d": 1}, 1), 1 / 3)


@pytest.mark.parametrize(
    ("ranking", "k", "expected_recall", "expected_precision", "expected_rank"),
    [
        (["a", "b", "d"], 3, 1.0, 1.0, 1.0),
        (["c", "x", "d", "a"], 3, 1 / 3, 1 / 3, 1 / 3),
        (["c", "x", "d", "a"], 4, 2 / 3, 2 / 4, 1 / 3),
        (["a"], 10, 1 / 3, 1 / 10, 1.0),
        (["e", "c"], 2, 0.0, 0.0, 0.0),
        ([], 3, 0.0, 0.0, 0.0),
    ],
)
def test_the_others_by_hand(
    ranking: list[str], k: int, expected_recall: float, expected_precision: float, expected_rank: float
) -> None:
    assert isclose(recall(ranking, GRADES, k), expected_recall)
    assert isclose(precision(ranking, GRADES, k), expected_precision)
    assert isclose(reciprocal_rank(ranking, GRADES), expected_rank)


@measure
@pytest.mark.parametrize("grades", [{}, {"a": 0}, {"a": -1, "b": 0}])
def test_a_query_without_anything_relevant_gives_0(name: str, grades: dict[str, int]) -> None:
    assert MEASURES[name](["a", "b"], grades, 10) == 0.0


@measure
@given(ranking=rankings, grades=judgements, k=cutoffs)
def test_bounds(name: str, ranking: list[str], grades: dict[str, int], k: int) -> None:
    assert 0.0 <= MEASURES[name](ranking, grades, k) <= 1.0 + 1e-12


@measure
@given(ranking=rankings, grades=judgements, k=cutoffs, at=st.integers(0, 10))
def test_a_better_document_further_up_never_costs(
    name: str, ranking: list[str], grades: dict[str, int], k: int, at: int
) -> None:
    if at + 1 >= len(ranking) or grades.get(ranking[at], 0) >= grades.get(ranking[at + 1], 0):
        return
    swapped = [*ranking[:at], ranking[at + 1], ranking[at], *ranking[at + 2 :]]
    assert MEASURES[name](swapped, grades, k) >= MEASURES[name](ranking, grades, k) - 1e-12


@measure
@given(ranking=rankings, grades=judgements, k=cutoffs, at=st.integers(0, 10))
def test_the_order_of_equally_good_documents_does_not_matter(
    name: str, ranking: list[str], grades: dict[str, int], k: int, at: int
) -> None:
    if at + 1 >= len(ranking) or grades.get(ranking[at], 0) != grades.get(ranking[at + 1], 0):
        return
    swapped = [*ranking[:at], ranking[at + 1], ranking[at], *ranking[at + 2 :]]
    assert MEASURES[name](swapped, grades, k) == MEASURES[name](ranking, grades, k)


@measure
@given(ranking=rankings, grades=judgements, k=cutoffs)
def test_what_nobody_judged_counts_as_not_relevant(
    name: str, ranking: list[str], grades: dict[str, int], k: int
) -> None:
    complete = dict.fromkeys(IDS, 0) | grades
    assert MEASURES[name](ranking, complete, k) == MEASURES[name](ranking, grades, k)


@given(ranking=rankings, grades=judgements, k=cutoffs)
def test_recall_grows_with_the_cutoff(ranking: list[str], grades: dict[str, int], k: int) -> None:
    assert recall(ranking, grades, k) <= recall(ranking, grades, k + 1)


@given(grades=judgements.filter(lambda grades: any(grade > 0 for grade in grades.values())), k=cutoffs)
def test_the_best_ranking_gets_1(grades: dict[str, int], k: int) -> None:
    best = sorted(grades, key=lambda each: -grades[each])
    assert isclose(ndcg(best, grades, k), 1.0)
    assert reciprocal_rank(best, grades) == 1.0
