"""Who goes up a tier and when a ranking ends: pure rules, told as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from making import finality_rule, finality_rules

from judgekit.judging.ranking import (
    RankingStep,
    Ranks,
    Voter,
    asked,
    contending,
    last_word,
    lead,
    usual_margins,
    values,
)
from judgekit.rubric import loader
from judgekit.rubric.schema import ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.config import ModeName, TierName
    from judgekit.judging.escalation import FinalityRules
    from judgekit.judging.ranking import Said

MARGINS: dict[TierName, float] = {"quick": 0.4, "deep": 0.2, "tiebreaker": 0.2}
GATE = finality_rules("c", (finality_rule("quick", "accept", 2.0),))


def said(given: str | Mapping[str, str]) -> Said:
    """Return what models give to A, B, C, … by their digits; 0 fails."""
    by = {"m": given} if isinstance(given, str) else given
    return {
        Voter(name, name.partition("/")[0]): {
            letter: [float(digit)] for letter, digit in zip("ABC", digits, strict=False) if digit != "0"
        }
        for name, digits in by.items()
    }


def state(
    mode: ModeName = "lenient",
    finality: FinalityRules | None = None,
    panel: Mapping[TierName, set[str]] | None = None,
) -> Ranks:
    everyone: dict[TierName, set[str]] = {"quick": {"m"}, "deep": {"deep"}, "tiebreaker": {"tiebreaker"}}
    return Ranks(tuple("ABC"), panel or everyone, MARGINS, mode, finality)


@pytest.mark.parametrize(
    ("given", "mode", "finality", "near", "trusted"),
    [
        ("531", "lenient", None, "A", False),
        ("531", "strict", None, "AB", False),  # the best two at least
        ("551", "lenient", None, "AB", False),
        ("555", "strict", None, "ABC", False),
        ("531", "lenient", GATE, "A", True),
        ("541", "lenient", GATE, "AB", False),  # not far enough ahead
        ("135", "strict", GATE, "C", True),
        ("551", "lenient", GATE, "AB", False),
    ],
)
def test_who_goes_up_after_the_first_tier(
    given: str,
    mode: ModeName,
    finality: FinalityRules | None,
    near: str,
    trusted: bool,  # noqa: FBT001 - a column
) -> None:
    ranks = state(mode, finality)
    turn = ranks.take("quick", said(given))
    assert ("".join(turn.near), turn.trusted, turn.last) == (near, trusted, False)
    assert turn.is_end == (len(near) == 1)
    assert ranks.alive == turn.near
    assert ranks.seen == {"quick": turn.outcome}


@pytest.mark.parametrize("why", ["cut", "barred", "partial"])
def test_no_gate_lets_through_what_must_not_be_final_alone(why: str) -> None:
    free = state("lenient", GATE).take("quick", said("531"))
    assert free.trusted
    ranks = state("lenient", GATE)
    if why == "partial":
        held = ranks.take("quick", said("531"), partial=lambda letter: letter == "A")
    else:
        held = ranks.take("quick", said("531"), cut=why == "cut", barred=why == "barred")
    assert (held.trusted, held.near, held.is_end) == (False, ("A", "B"), False)


def test_a_reason_to_prefer_another_is_no_reason_to_doubt_the_best() -> None:
    ranking_step = state().take("quick", said("531"), partial=lambda letter: letter == "B")
    assert ranking_step.is_end


@pytest.mark.parametrize(
    ("deep", "mode", "winner"),
    [("54", "lenient", "A"), ("54", "strict", "A"), ("44", "lenient", None), ("44", "strict", None)],
)
def test_the_means_are_over_all_that_was_said(deep: str, mode: ModeName, winner: str | None) -> None:
    ranks = state(mode, panel={"quick": {"m"}, "deep": {"m"}})
    first = ranks.take("quick", said("441"))
    assert (first.best, first.lead, first.outcome, ranks.winner(first)) == (None, 0.0, "improve", None)
    last = ranks.take("deep", said(deep))
    assert last.last
    assert last.found == {"A": (4 + int(deep[0])) / 2, "B": (4 + int(deep[1])) / 2}
    assert ranks.winner(last) == winner
    assert ranks.leaders["deep"] == "A"


def test_a_tier_that_failed_counts_nowhere() -> None:
    ranks = state()
    assert ranks.take("quick", said("501")) == RankingStep("quick")
    assert (ranks.alive, ranks.seen, ranks.said) == (("A", "B", "C"), {"quick": None}, {})
    later = ranks.take("deep", {Voter("deep", "deep"): {"A": [2.0], "B": [5.0], "C": [1.0]}})
    assert later.found == {"A": 2, "B": 5, "C": 1}
    assert later.is_end


def test_half_of_a_jury_is_not_enough() -> None:
    ranks = state(panel={"quick": {"a", "b"}})
    assert ranks.take("quick", said({"a": "531", "b": "530"})).found is None


@pytest.mark.parametrize(
    ("other", "mean"),
    [("531", 3.5), ("111", 3.0), ("501", 3.5), ("000", 3.5)],  # of x: 5; 5 and 1; 5 alone, twice
)
def test_the_models_of_a_family_that_count_weigh_as_one(other: str, mean: float) -> None:
    ranks = state(panel={"quick": {"x/1", "x/2", "y/1"}})
    turn = ranks.take("quick", said({"x/1": "531", "x/2": other, "y/1": "231"}))
    assert turn.found is not None
    assert turn.found["A"] == pytest.approx(mean if other != "111" else 2.5)


@pytest.mark.parametrize(
    ("deep", "third", "after"),
    [
        ({"a": "444"}, {"a"}, None),  # heard
        ({"a": "444"}, {"m"}, None),
        ({"a": "444"}, {"a", "z"}, "tiebreaker"),
        ({"a": "444", "b": "444", "c": "044"}, {"c"}, "tiebreaker"),  # it failed
        ({"a": "044"}, {"m"}, "tiebreaker"),  # it stands in
    ],
)
def test_a_tiebreaker_that_was_heard_is_not_asked(
    deep: dict[str, str], third: set[str], after: TierName | None
) -> None:
    ranks = state(panel={"quick": {"m"}, "deep": set(deep), "tiebreaker": third})
    ranks.take("quick", said("444"))
    ranks.take("deep", said(deep))
    assert ranks.following("deep") == after


def test_the_tier_that_a_calibration_measures_by_is_the_last() -> None:
    ranks = state("lenient", finality_rules("c", (), last="deep"))
    assert not ranks.take("quick", said("531")).last
    turn = ranks.take("deep", {Voter("deep", "deep"): {"A": [4.0], "B": [5.0]}})
    assert (turn.last, turn.is_end, ranks.winner(turn)) == (True, True, "A")


def test_calls_are_counted_with_those_that_failed() -> None:
    twice: Said = {Voter("m", "m"): {"A": [1.0, 2.0], "B": []}}
    assert asked(twice, "AB") == 3
    assert asked(twice, "A") == 2


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


@pytest.mark.parametrize(
    ("ahead", "mode", "winner"),
    [(0.1, "strict", None), (0.1, "lenient", "A"), (0.5, "strict", "A"), (0.0, "lenient", None)],
)
def test_a_narrow_lead_wins_in_lenient_mode_only(ahead: float, mode: str, winner: str | None) -> None:
    found = {"A": 4.0 + ahead, "B": 4.0}
    assert last_word(found, 0.2, "strict" if mode == "strict" else "lenient") == winner
    assert lead(found) == pytest.approx(ahead)


def test_margins_are_shares_of_the_scale() -> None:
    rubric = loader.score_rubric("kls").rubric
    assert isinstance(rubric, ScoreRubric)
    expected = {"quick": 0.4, "deep": 0.2, "tiebreaker": 0.2}  # of a scale from 1 to 5
    assert usual_margins(rubric) == pytest.approx(expected)
