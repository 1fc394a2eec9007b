from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgekit.retrieval import bm25, compiled
from judgekit.retrieval.bm25 import Scorer, Sought, Text

PROFILE = compiled.Profiles(compiled.bundled()).by_kind["claude-memory"]
STEMS = st.lists(st.sampled_from(["auth", "authent", "token", "cach", "x"]), max_size=12)


def sought(*phrases: str) -> Sought:
    found = Sought()
    for number, phrase in enumerate(phrases):
        found.add(number, phrase)
    return found


def text(title: str = "", body: str = "", tags: str = "", parts: str = "") -> Text:
    return Text([title, tags, body, parts])


def rate(wanted: Sought, found: Text, *rarities: float) -> tuple[float, set[int], set[int]]:
    return Scorer(wanted, rarities or [1.0] * 9, 10, PROFILE).rate(found)


def score(wanted: Sought, found: Text) -> float:
    return rate(wanted, found)[0]


def test_where_a_term_stands_is_told() -> None:
    _, matched, titled = rate(sought("a1", "b1", "c1", "d1"), text("a1", "b1", "c1"))
    assert (matched, titled) == ({0, 1, 2}, {0, 2})


def test_columns_count_by_their_weight() -> None:
    wanted = sought("a1")
    by_column = [
        score(wanted, each) for each in (text("a1"), text(tags="a1"), text(body="a1"), text(parts="a1"))
    ]
    assert by_column == sorted(by_column, reverse=True)
    assert len(set(by_column)) == 4


def test_the_formula_by_hand() -> None:
    # f = 2 * 1.0, length 4, average 10, padding 10: 1.2 * (0.25 + 0.75 * 14 / 20) = 0.93
    assert rate(sought("a1"), text(body="a1 x1 a1 y1"), 3.0)[0] == pytest.approx(3 * 2 * 2.2 / (2 + 0.93))


def test_rows_of_stems_are_found_in_their_order_only() -> None:
    wanted = sought("rate limit")
    assert rate(wanted, text(body="the rate limit of rate limit"))[1] == {0}
    assert rate(wanted, text(body="limit rate"))[1] == set()
    assert rate(wanted, text(body="rate x limit"))[1] == set()
    assert rate(wanted, text(title="rate", body="limit"))[1] == set()
    assert rate(wanted, text(body="rates limits"))[1] == set()
    twice, once = text(body="rate limit rate limit"), text(body="rate limit x x")
    assert score(wanted, twice) > score(wanted, once)


def test_one_stem_may_stand_for_several_terms_each_with_its_share() -> None:
    wanted = Sought()
    wanted.add(0, "auth")
    wanted.add(0, "authent", 0.5)
    wanted.add(1, "authent")
    wanted.add(1, "authent", 0.5)  # the greater share counts
    assert rate(wanted, text(body="authent"))[1] == {0, 1}
    only_first = Sought()
    only_first.add(0, "authent", 0.5)
    whole = sought("authent")
    assert score(only_first, text(body="authent")) < score(whole, text(body="authent"))


def test_what_is_surely_there_counts_once() -> None:
    scorer = Scorer(sought("a1", "b1"), [1.0, 1.0], 10, PROFILE)
    unread = Text(["", "", "x1", ""], length=1)
    found, matched, titled = scorer.rate(unread, frozenset({1}))
    assert found == pytest.approx(score(sought("x1"), unread))
    assert (matched, titled) == ({1}, set())


@given(STEMS, STEMS)
def test_more_of_a_term_never_scores_less(title: list[str], body: list[str]) -> None:
    wanted = sought("auth", "token")
    before = Text([" ".join(title), "", " ".join(body), ""], length=20)
    after = Text([" ".join(title), "", " ".join([*body, "auth"]), ""], length=20)
    assert 0 <= score(wanted, before) < score(wanted, after)
    assert (score(wanted, before) > 0) == bool({"auth", "token"} & {*title, *body})


def test_a_longer_entry_scores_less() -> None:
    short, long = text(body="auth x1"), text(body="auth" + " x1" * 50)
    assert score(sought("auth"), short) > score(sought("auth"), long)


def rarity(words: list[str]) -> dict[str, float]:
    return dict.fromkeys(words, 1.0)


def test_the_subject_is_what_the_best_have_in_common() -> None:
    best = [(text("jwt", "cookie session"), 2.0), (text("token", "cookie session"), 1.0)]
    subject = bm25.subject(best, rarity, most=3, padding=10)
    assert list(subject)[:2] == ["session", "cookie"]
    assert subject["cookie"] > subject["jwt"]
    assert len(subject) == 3
    assert bm25.likeness(text(body="cookie session"), subject) > bm25.likeness(text("cookie"), subject) > 0
    assert bm25.likeness(text("pancake"), subject) == 0


def test_single_letters_and_words_without_a_rarity_are_no_subject() -> None:
    best = [(text("x cookie odd"), 1.0)]
    assert list(
        bm25.subject(best, lambda words: dict.fromkeys(set(words) - {"odd"}, 1.0), most=9, padding=10)
    ) == ["cookie"]
