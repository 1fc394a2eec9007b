from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgekit.retrieval import compiled, confidence, rank
from judgekit.retrieval.candidate import Candidate
from judgekit.retrieval.query import Term
from judgekit.retrieval.rank import Hit, Statistics

PROFILE = compiled.Profiles(compiled.bundled()).by_kind["claude-memory"]
NOW = time.time()
DAY = 86_400
BACKGROUND = PROFILE.background


def hit(name: str, score: float, category: str = "decision", age: float = 100, matched: int = 2) -> Hit:
    candidate = Candidate(
        name, name, category, tags=(), updated=NOW - age * DAY, root="/r", place=name, kind="claude-memory"
    )
    found = Hit(candidate, score)
    candidate.bm25 = score
    found.matched = found.titled = set(range(matched))
    return found


def statistics(documents: int = 100, terms: int = 2) -> Statistics:
    return Statistics([Term(f"t{n}", [f"t{n}"]) for n in range(terms)], [1] * terms, documents, PROFILE)


def order(*hits: Hit, documents: int = 100) -> list[str]:
    return [each.id for each in rank.order(list(hits), statistics(documents), PROFILE)]


def test_the_best_score_comes_first_and_noise_goes() -> None:
    assert order(hit("a", 1.0), hit("b", 4.0), hit("c", 0.99), hit("d", 2.0)) == ["b", "d", "a"]
    assert rank.order([], statistics(), PROFILE) == []


def test_ties_go_by_category_then_by_recency() -> None:
    tied = [
        hit("session", 1, "session_summary", age=1),
        hit("old", 1, age=300),
        hit("new", 1, age=2),
        hit("older", 1, age=400),
        hit("unknown", 1, "strange", age=0),
        hit("runbook", 1, "runbook"),
    ]
    assert order(*tied) == ["new", "old", "older", "runbook", "session", "unknown"]
    assert order(*reversed(tied)) == ["new", "old", "older", "runbook", "session", "unknown"]


def test_noise_is_told_by_bm25_and_order_by_the_score() -> None:
    best, noise, other = hit("best", 0.7), hit("noise", 0.9), hit("other", 1.0)
    best.candidate.bm25, noise.candidate.bm25, other.candidate.bm25 = 8.0, 1.9, 2.0
    assert order(best, noise, other) == ["other", "best"]


def test_a_candidate_is_rated() -> None:
    first, second = rank.order([hit("a", 4), hit("b", 2, matched=1)], statistics(), PROFILE)
    assert (first.confidence_label, first.worth_mentioning) == ("high", True)
    assert first.features.coverage == 1
    assert first.features.alone == 1
    assert second.features.coverage == pytest.approx(0.5)
    assert second.features.standing == 0.5
    assert second.confidence < first.confidence


def test_one_of_several_that_cover_as_much_is_less_sure() -> None:
    alone = rank.order([hit("a", 4)], statistics(), PROFILE)[0].confidence
    pair = rank.order([hit("a", 4), hit("b", 4)], statistics(), PROFILE)[0].confidence
    crowd = rank.order([hit(str(n), 4) for n in range(8)], statistics(), PROFILE)[0].confidence
    assert alone > pair > crowd
    assert confidence.label(crowd, PROFILE) == "low"


def test_rarity_follows_the_store_as_it_grows() -> None:
    def rarity(matches: int, documents: int, *, common: bool = False) -> float:
        return confidence.rarity(matches, documents, BACKGROUND, common=common)

    assert rarity(1, 1) > 1, "one document is no evidence that a word is common"
    assert rarity(0, 1) > rarity(1, 1)
    assert rarity(1, 1) > rarity(1, 1, common=True)
    assert rarity(500, 1000) < 1 < rarity(1, 1000)
    assert rarity(1, 10_000) > rarity(1, 100)


@given(
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1),
    st.sampled_from(["coverage", "alone", "standing"]),
)
def test_confidence_is_a_probability_that_grows_with_the_evidence(
    coverage: float, alone: float, standing: float, single: float, name: str
) -> None:
    found = confidence.Features(coverage, alone, standing, single)
    before = confidence.probability(found, PROFILE)
    assert 0 < before < 1
    setattr(found, name, 1.0)
    assert confidence.probability(found, PROFILE) >= before


@pytest.mark.parametrize(("value", "label"), [(0.99, "high"), (0.5, "high"), (0.49, "medium"), (0.1, "low")])
def test_labels(value: float, label: str) -> None:
    assert confidence.label(value, PROFILE) == label


def test_a_query_that_nothing_covers_has_no_coverage() -> None:
    assert confidence.coverage([], set(), set(), 0.8) == 0
    assert confidence.coverage([1.0, 3.0], {1}, set(), 0.8) == pytest.approx(0.6)
