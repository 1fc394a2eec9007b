"""Who goes up a tier and when a ranking ends: pure rules, told as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from making import finality_rule, finality_rules

from judgekit.judging.ranking import RankingStep, Ranks, Voter, asked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.config.names import ModeName, TierName
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
