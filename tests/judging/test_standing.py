"""Who is ahead when subjects are scored."""

from __future__ import annotations

import pytest

from judgekit.judging.ranking import contending, default_margins, going_on, last_word, lead, values
from judgekit.rubric.schema import Scale


def test_the_mean_is_over_everything_that_was_said() -> None:
    said = {"m": {"A": [4.0, 5.0], "B": [3.0, 3.0]}, "n": {"A": [3.0], "B": [4.0]}}
    found = values(said, "AB")
    assert found is not None
    assert (found["A"], round(found["B"], 4)) == (4.0, 3.3333)


def test_a_model_that_failed_for_one_subject_counts_for_none() -> None:
    """Its leniency would lift the others alone."""
    said = {"kind": {"A": [5.0]}, "stern": {"A": [2.0], "B": [3.0]}}
    assert values(said, "AB") == {"A": 2.0, "B": 3.0}
    assert values({"kind": {"A": [5.0]}}, "AB") is None
    assert values({}, "AB") is None


def test_most_of_a_jury_must_have_scored_them_all() -> None:
    one = {"A": [4.0], "B": [2.0]}
    said = {"one": one, "two": {"A": [1.0]}}
    assert values(said, "AB", 3) is None
    assert values(said, "AB", 2) is None
    assert values(said, "AB", 1) == {"A": 4.0, "B": 2.0}
    assert values({**said, "three": one}, "AB", 3) == {"A": 4.0, "B": 2.0}


def test_a_model_that_was_not_asked_about_a_loser_counts() -> None:
    said = {"m": {"A": [4.0], "B": [4.0], "C": [1.0]}, "n": {"A": [5.0], "B": [3.0]}}
    assert values(said, "AB") == {"A": 4.5, "B": 3.5}


def test_kin_weigh_together_as_one_however_many_of_them_count() -> None:
    said = {"x1": {"A": [5.0], "B": [1.0]}, "x2": {"A": [3.0], "B": [1.0]}, "y1": {"A": [2.0], "B": [1.0]}}
    assert values(said, "AB", group=lambda key: key[0]) == {"A": 3.0, "B": 1.0}
    assert values({**said, "x2": {"A": [3.0]}}, "AB", group=lambda key: key[0]) == {"A": 3.5, "B": 1.0}
    assert values(said, "AB") == {"A": pytest.approx(10 / 3), "B": 1.0}


@pytest.mark.parametrize(
    ("margin", "near"),
    [(0.0, ["B"]), (0.24, ["B"]), (0.25, ["B", "A"]), (1.0, ["B", "A", "C"])],
)
def test_who_is_near_the_best(margin: float, near: list[str]) -> None:
    assert contending({"A": 4.0, "B": 4.25, "C": 3.25}, margin) == near


def test_sums_that_differ_in_the_last_bit_are_equal() -> None:
    assert contending({"A": 0.1 + 0.2, "B": 0.3}, 0.0) == ["A", "B"]


def test_the_best_two_go_on_where_a_win_must_be_confirmed() -> None:
    found = {"A": 2.0, "B": 5.0, "C": 3.0}
    assert going_on(found, 0.5) == ["B"]
    assert going_on(found, 0.5, at_least=2) == ["B", "C"]


@pytest.mark.parametrize(
    ("ahead", "mode", "winner"),
    [(0.1, "strict", None), (0.1, "lenient", "A"), (0.5, "strict", "A"), (0.0, "lenient", None)],
)
def test_a_narrow_lead_wins_in_lenient_mode_only(ahead: float, mode: str, winner: str | None) -> None:
    found = {"A": 4.0 + ahead, "B": 4.0}
    assert last_word(found, 0.2, "strict" if mode == "strict" else "lenient") == winner
    assert lead(found) == pytest.approx(ahead)


def test_margins_are_shares_of_the_scale() -> None:
    scale = Scale(min=1, max=5, labels=dict.fromkeys(range(1, 6), "x"))
    assert default_margins(scale) == {
        "quick": pytest.approx(0.4),
        "deep": pytest.approx(0.2),
        "tiebreaker": pytest.approx(0.2),
    }
