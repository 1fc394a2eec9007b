"""What a confidence is made of; how good it is is measured by bench/confidence.py."""

from __future__ import annotations

import time
from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgekit.retrieval import compiled, confidence
from judgekit.retrieval.confidence import LONG, Candidate
from judgekit.retrieval.terms import Term

PROFILE = compiled.Profiles(compiled.bundled()).by_kind["claude-memory"]
BACKGROUND = PROFILE.background
NOW, DAY = time.time(), 86_400
WORDS = ["refresh", "jwt", "token", "flow"]


def terms(rarity: float = 4.0) -> list[Term]:
    found = [Term(word, [word], [word]) for word in WORDS]
    for term in found:
        term.rarity = rarity
    return found


def hit(
    text: str, titled: int = 0, score: float = 1, category: str = "decision", age: float = 0
) -> Candidate:
    """Return an entry of these words, of which the first `titled` are its title."""
    words, updated = text.split(), NOW - age * DAY
    found = Candidate(
        text, text, category, tags=(), updated=updated, root="/r", place=text, kind="claude-memory"
    )
    found.text, found.length, found.score, found.bm25 = text, len(words), score, score
    found.matched = {number for number, word in enumerate(WORDS) if word in words}
    found.titled = {number for number, word in enumerate(WORDS) if word in words[:titled]}
    return found


def rated(*hits: Candidate, documents: int = 100, rarity: float = 4.0) -> list[dict[str, float]]:
    confidence.rate(hits, terms(rarity), documents, PROFILE)
    return [each.features for each in hits]


def test_rarity_follows_the_store_as_it_grows() -> None:
    def rarity(matches: int, documents: int, *, common: bool = False) -> float:
        return confidence.rarity(matches, documents, BACKGROUND, common=common)

    assert rarity(1, 1) > 1, "one document is no evidence that a word is common"
    assert rarity(0, 1) > rarity(1, 1)
    assert rarity(1, 1) > rarity(1, 1, common=True)
    assert rarity(500, 1000) < 1 < rarity(1, 1000)
    assert rarity(1, 10_000) > rarity(1, 100)


def test_the_odds_are_those_of_bayes_and_evidence_is_rarity() -> None:
    share, imagined = PROFILE.confidence["body_share"], BACKGROUND["documents"]
    title, body, both = 4.0, 4 * share, 4 + 4 * share
    assert rated(hit("jwt", 1), documents=1)[0]["odds"] == pytest.approx(title - log(imagined))
    rivals = rated(hit("jwt refresh", 1), hit("jwt"), documents=40)
    assert rivals[0]["odds"] == pytest.approx(both - log(exp(body) + 38 + imagined))
    assert rivals[1]["odds"] == pytest.approx(body - log(exp(both) + 38 + imagined))
    # A word in a long body may stand there by chance; the title's word counts all the same.
    for length, own in ((LONG, body), (LONG * 2, share * (4 - log(2))), (LONG * 1_000_000, 0)):
        long = hit("jwt refresh", 1)
        long.length = length
        assert rated(long, documents=1)[0]["odds"] == pytest.approx(title + own - log(imagined)), length


@given(st.lists(st.integers(0, 4), min_size=1, max_size=50), st.integers(0, 1_000_000), st.floats(0, 100))
def test_odds_are_bounded_and_follow_the_evidence(titled: list[int], documents: int, rarity: float) -> None:
    hits = [hit(" ".join(WORDS), count) for count in sorted(titled)]
    found = [each["odds"] for each in rated(*hits, documents=documents, rarity=rarity)]
    assert all(abs(each) <= confidence.MOST for each in found)
    assert found == sorted(found)


@pytest.mark.parametrize(
    ("feature", "hits", "expected"),
    [
        ("alone", [("jwt refresh", 2)], [1]),
        ("alone", [("jwt refresh", 2), ("token flow", 2)], [1, 1]),  # a prompt may be about two things
        ("alone", [("jwt refresh", 2), ("refresh jwt", 2), ("flow", 0)], [0.5, 0.5, 0.5]),
        ("alone", [("jwt refresh", 0), ("token", 0)], [1, 0.5]),  # a single word is no distinction
        ("titled", [("refresh jwt", 2), ("jwt x refresh", 1), ("token refresh", 0)], [1, 0.5, 0]),
        ("titled", [("jwt", 0), ("token", 0)], [confidence.UNKNOWN] * 2),
        ("coverage", [("jwt refresh", 0), ("flow", 0), ("x", 0)], [0.5, 0.25, 0]),
        ("near", [("refresh jwt token flow", 0), ("flow token jwt refresh", 0)], [1, 1]),
        ("near", [("refresh a b jwt", 0), ("refresh a b c jwt", 0)], [1 / 3, 0]),
        ("near", [("jwt refresh x y z token x y z flow", 0), ("flow refresh", 0)], [1 / 3, 0]),
        ("near", [("refresh refresh", 0)], [0]),
    ],
)
def test_features(feature: str, hits: list[tuple[str, int]], expected: list[float]) -> None:
    assert [each[feature] for each in rated(*[hit(*each) for each in hits])] == pytest.approx(expected)


def test_hits_that_answer_to_different_words_are_no_rivals() -> None:
    both = rated(hit("jwt refresh", 2), hit("token flow", 2))
    same = rated(hit("jwt refresh", 2), hit("refresh jwt", 2))
    assert both[0]["odds"] > same[0]["odds"]


def test_a_long_prompt_need_not_be_repeated_whole() -> None:
    words = [f"w{number}" for number in range(30)]
    assert confidence.near(words, words[:4]) == pytest.approx(3 / confidence.PAIRS)
    assert confidence.near(words, words) == 1
    assert confidence.near([], ["a"]) == confidence.near(["a"], ["a", "a"]) == 0


def test_a_confidence_grows_with_the_evidence_and_its_label_begins_at_its_threshold() -> None:
    found = []
    for rarity in range(200):
        one, other = hit("refresh jwt", 2), hit("token")
        other.damaged = True
        rated(one, other, rarity=rarity / 10)
        assert one.features["coverage"] == (0.5 if rarity else 0)
        for each in (one, other):
            labels = [name for name in ("high", "medium") if each.confidence >= PROFILE.labels[name]]
            assert each.confidence_label == [*labels, "low"][0] or each.damaged
            assert each.worth_mentioning == (each.confidence >= PROFILE.labels["mention"])
        assert other.confidence_label != "high"
        assert other.confidence <= PROFILE.labels["medium"]
        found.append(one.confidence)
    assert found == sorted(found)
    assert 0 < found[0] < PROFILE.labels["medium"]
    assert PROFILE.labels["high"] < found[-1] < 1


def order(*hits: Candidate) -> list[str]:
    return [candidate.id for candidate in confidence.order(hits, terms(), 100, PROFILE)]


def test_the_best_score_comes_first_and_noise_goes() -> None:
    scores = {"a": 1.0, "b": 4.0, "c": 0.99, "d": 2.0}
    assert order(*[hit(name, score=score) for name, score in scores.items()]) == ["b", "d", "a"]
    best, noise, other = hit("best", score=0.7), hit("noise", score=0.9), hit("other", score=1.0)
    best.bm25, noise.bm25, other.bm25 = 8.0, 1.9, 2.0
    assert order(best, noise, other) == ["other", "best"], "noise is told by bm25 and order by the score"
    assert order() == []


def test_ties_go_by_category_then_by_recency() -> None:
    tied = [
        hit("session", category="session_summary", age=1),
        hit("old", age=300),
        hit("new", age=2),
        hit("older", age=400),
        hit("unknown", category="strange"),
        hit("runbook", category="runbook", age=100),
    ]
    for hits in (tied, tied[::-1]):
        assert order(*hits) == ["new", "old", "older", "runbook", "session", "unknown"]
