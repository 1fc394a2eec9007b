"""What a confidence is made of; how good it is is measured by bench/confidence.py."""

from __future__ import annotations

import time
from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgekit.retrieval import compiled, confidence
from judgekit.retrieval.confidence import Candidate, Features, Hit, Statistics
from judgekit.retrieval.query import Term

PROFILE = compiled.Profiles(compiled.bundled()).by_kind["claude-memory"]
BACKGROUND = PROFILE.background
NOW, DAY = time.time(), 86_400
WORDS = ["refresh", "jwt", "token", "flow"]


def hit(text: str, titled: int = 0) -> Hit:
    """Return an entry of these words, of which the first `titled` are its title."""
    candidate = Candidate(
        text, text, "decision", tags=(), updated=0, root="/r", place=text, kind="claude-memory"
    )
    found, words = Hit(candidate, 1.0), text.split()
    found.text, found.length = text, len(words)
    found.matched = {number for number, word in enumerate(WORDS) if word in words}
    found.titled = {number for number, word in enumerate(WORDS) if word in words[:titled]}
    return found


def features(*hits: Hit, documents: int = 100, matches: int = 1) -> list[Features]:
    terms = [Term(word, [word]) for word in WORDS]
    return confidence.features(hits, Statistics(terms, [matches] * 4, documents, PROFILE), PROFILE)


def test_rarity_follows_the_store_as_it_grows() -> None:
    def rarity(matches: int, documents: int, *, common: bool = False) -> float:
        return confidence.rarity(matches, documents, BACKGROUND, common=common)

    assert rarity(1, 1) > 1, "one document is no evidence that a word is common"
    assert rarity(0, 1) > rarity(1, 1)
    assert rarity(1, 1) > rarity(1, 1, common=True)
    assert rarity(500, 1000) < 1 < rarity(1, 1000)
    assert rarity(1, 10_000) > rarity(1, 100)


def test_evidence_is_the_rarity_of_what_occurs() -> None:
    rarities = [1.0, 2.0, 4.0]
    assert confidence.evidence(rarities, set(), set(), 10, 0.8) == 0
    assert confidence.evidence(rarities, {0, 2}, {0, 2}, 10, 0.8) == 5
    assert confidence.evidence(rarities, {0, 2}, {0}, 10, 0.8) == pytest.approx(1 + 0.8 * 4)


def test_a_word_in_a_long_body_may_stand_there_by_chance() -> None:
    def evidence(length: int) -> float:
        return confidence.evidence([1.0, 4.0], {0, 1}, {0}, length, 1.0)

    assert evidence(confidence.LONG) == 5
    assert evidence(confidence.LONG * 2) == pytest.approx(5 - log(2))
    assert evidence(confidence.LONG * 1_000_000) == 1, "the title's word counts all the same"


def test_the_odds_are_those_of_bayes() -> None:
    imagined = BACKGROUND["documents"]
    assert confidence.odds(5.0, [5.0], 1, BACKGROUND) == pytest.approx(5 - log(imagined))
    expected = log(exp(5) / (exp(3) + 38 + imagined))
    assert confidence.odds(5.0, [5.0, 3.0], 40, BACKGROUND) == pytest.approx(expected)


@given(st.lists(st.floats(0, 400), min_size=1, max_size=50), st.integers(0, 1_000_000))
def test_odds_are_bounded_and_follow_the_evidence(evidences: list[float], documents: int) -> None:
    found = [confidence.odds(evidence, evidences, documents, BACKGROUND) for evidence in sorted(evidences)]
    assert all(abs(each) <= confidence.MOST for each in found)
    assert found == sorted(found)


def test_hits_that_answer_to_different_words_are_no_rivals() -> None:
    matched = [frozenset({0, 1}), frozenset({1, 2}), frozenset({3}), frozenset({0, 1})]
    found = confidence.rivals(matched, [1.0, 2.0, 3.0, 4.0])
    assert [sorted(rivals) for rivals in found] == [[1, 2, 4], [1, 2, 4], [3], [1, 2, 4]]


def test_a_prompt_about_two_things_may_mean_two_entries() -> None:
    both = features(hit("jwt refresh", 2), hit("token flow", 2))
    same = features(hit("jwt refresh", 2), hit("refresh jwt", 2))
    assert [each.alone for each in both] == [1, 1]
    assert both[0].odds > same[0].odds


def test_a_single_word_in_common_is_no_distinction() -> None:
    assert [feature.alone for feature in features(hit("jwt refresh"), hit("token"))] == [1, 0.5]


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("refresh jwt token flow", 1),
        ("flow token jwt refresh", 1),
        ("refresh a b jwt", 1 / 3),
        ("refresh a b c jwt", 0),
        ("jwt refresh x y z token x y z flow", 1 / 3),
        ("refresh refresh", 0),
        ("flow refresh", 0),
        ("", 0),
    ],
)
def test_near_counts_the_neighbours_of_the_query_that_stand_together(text: str, share: float) -> None:
    assert confidence.near(WORDS, text.split()) == pytest.approx(share)


def test_near_of_a_query_of_one_word_is_nothing() -> None:
    assert confidence.near([], ["a"]) == 0
    assert confidence.near(["a"], ["a", "a"]) == 0


def test_a_long_prompt_need_not_be_repeated_whole() -> None:
    words = [f"w{number}" for number in range(30)]
    assert confidence.near(words, words[:4]) == pytest.approx(3 / confidence.PAIRS)
    assert confidence.near(words, words) == 1


def test_titles_are_compared_with_what_other_titles_hold() -> None:
    both, one, none = features(hit("refresh jwt", 2), hit("jwt x refresh", 1), hit("token refresh", 0))
    assert (both.titled, none.titled) == (1, 0)
    assert one.titled == pytest.approx(0.5)
    assert [feature.titled for feature in features(hit("jwt"), hit("token"))] == [confidence.UNKNOWN] * 2


def test_of_several_that_fit_equally_well_not_all_are_meant() -> None:
    one, *_ = features(hit("jwt refresh", 2))
    pair = features(hit("jwt refresh", 2), hit("refresh jwt", 2), hit("flow", 0))
    assert one.alone == 1
    assert [each.alone for each in pair] == [0.5, 0.5, 0.5]
    assert pair[0].odds < one.odds


def test_coverage_is_the_share_of_the_query() -> None:
    assert [feature.coverage for feature in features(hit("jwt refresh"), hit("flow"))] == [0.5, 0.25]
    empty = confidence.features([hit("x")], Statistics([], [], 5, PROFILE), PROFILE)
    assert empty[0].coverage == 0


@given(
    st.floats(-12, 12),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1),
    st.sampled_from(["odds", "titled", "near", "alone"]),
)
def test_confidence_is_a_probability_that_grows_with_the_evidence(
    odds: float, titled: float, near: float, alone: float, name: str
) -> None:
    found = Features(odds=odds, titled=titled, near=near, alone=alone)
    before = confidence.probability(found, PROFILE)
    assert 0 < before < 1
    setattr(found, name, 12.0 if name == "odds" else 1.0)
    assert confidence.probability(found, PROFILE) >= before


def test_a_label_begins_at_its_threshold() -> None:
    high, medium = PROFILE.labels["high"], PROFILE.labels["medium"]
    found = [confidence.label(each, PROFILE) for each in (1.0, high, high - 0.01, medium, medium - 0.01, 0.0)]
    assert found == ["high", "high", "medium", "medium", "low", "low"]


def ranked_hit(
    name: str, score: float, category: str = "decision", age: float = 100, matched: int = 2
) -> Hit:
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
    assert order(ranked_hit("a", 1.0), ranked_hit("b", 4.0), ranked_hit("c", 0.99), ranked_hit("d", 2.0)) == [
        "b",
        "d",
        "a",
    ]
    assert confidence.order([], statistics(), PROFILE) == []


def test_ties_go_by_category_then_by_recency() -> None:
    tied = [
        ranked_hit("session", 1, "session_summary", age=1),
        ranked_hit("old", 1, age=300),
        ranked_hit("new", 1, age=2),
        ranked_hit("older", 1, age=400),
        ranked_hit("unknown", 1, "strange", age=0),
        ranked_hit("runbook", 1, "runbook"),
    ]
    assert order(*tied) == ["new", "old", "older", "runbook", "session", "unknown"]
    assert order(*reversed(tied)) == ["new", "old", "older", "runbook", "session", "unknown"]


def test_noise_is_told_by_bm25_and_order_by_the_score() -> None:
    best, noise, other = ranked_hit("best", 0.7), ranked_hit("noise", 0.9), ranked_hit("other", 1.0)
    best.candidate.bm25, noise.candidate.bm25, other.candidate.bm25 = 8.0, 1.9, 2.0
    assert order(best, noise, other) == ["other", "best"]


def test_a_candidate_is_rated() -> None:
    first, second = confidence.order(
        [ranked_hit("a", 4), ranked_hit("b", 2, matched=1)], statistics(), PROFILE
    )
    assert first.features.coverage == 1
    assert first.features.alone == 1
    assert second.features.coverage == pytest.approx(0.5)
    assert second.confidence < first.confidence
    for candidate in (first, second):
        assert candidate.confidence_label == confidence.label(candidate.confidence, PROFILE)
        assert candidate.worth_mentioning == (candidate.confidence >= PROFILE.labels["mention"])
