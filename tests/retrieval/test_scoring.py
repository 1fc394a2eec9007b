from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgekit.retrieval import compiled
from judgekit.retrieval.bm25 import Scorer, Text

PROFILE = compiled.Profiles(compiled.bundled()).by_kind["claude-memory"]
STEMS = st.lists(st.sampled_from(["auth", "authent", "token", "cach", "x"]), max_size=12)


def sought(*phrases: str) -> Scorer:
    scorer = Scorer(PROFILE)
    scorer.rarities, scorer.average = [1.0] * 9, 10
    for number, phrase in enumerate(phrases):
        scorer.seek(number, phrase)
    return scorer


def text(title: str = "", body: str = "", tags: str = "", parts: str = "") -> Text:
    return Text([title, tags, body, parts])


def rate(scorer: Scorer, found: Text, *rarities: float) -> tuple[float, set[int], set[int]]:
    scorer.rarities = rarities or scorer.rarities
    return scorer.rate(found)


def score(scorer: Scorer, found: Text) -> float:
    return scorer.rate(found)[0]


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
    wanted = sought()
    wanted.seek(0, "auth")
    wanted.seek(0, "authent", 0.5)
    wanted.seek(1, "authent")
    wanted.seek(1, "authent", 0.5)  # the greater share counts
    assert rate(wanted, text(body="authent"))[1] == {0, 1}
    only_first = sought()
    only_first.seek(0, "authent", 0.5)
    whole = sought("authent")
    assert score(only_first, text(body="authent")) < score(whole, text(body="authent"))


def test_what_is_surely_there_counts_once() -> None:
    scorer = sought("a1", "b1")
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
