from __future__ import annotations

import time

import pytest

from judgekit.retrieval import compiled, confidence
from judgekit.retrieval.confidence import Candidate, Hit, Statistics
from judgekit.retrieval.query import Term

PROFILE = compiled.Profiles(compiled.bundled()).by_kind["claude-memory"]
NOW = time.time()
DAY = 86_400


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
    return [candidate.id for candidate in confidence.order(list(hits), statistics(documents), PROFILE)]


def test_the_best_score_comes_first_and_noise_goes() -> None:
    assert order(hit("a", 1.0), hit("b", 4.0), hit("c", 0.99), hit("d", 2.0)) == ["b", "d", "a"]
    assert confidence.order([], statistics(), PROFILE) == []


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
    first, second = confidence.order([hit("a", 4), hit("b", 2, matched=1)], statistics(), PROFILE)
    assert first.features.coverage == 1
    assert first.features.alone == 1
    assert second.features.coverage == pytest.approx(0.5)
    assert second.confidence < first.confidence
    for candidate in (first, second):
        assert candidate.confidence_label == confidence.label(candidate.confidence, PROFILE)
        assert candidate.worth_mentioning == (candidate.confidence >= PROFILE.labels["mention"])
