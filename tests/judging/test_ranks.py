"""Who goes up a tier and when a ranking ends: pure rules, told as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from making import finality_rule, finality_rules

from judgekit.judging.ranking import (
    RankingRules,
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
    from collections.abc import Collection, Mapping

    from judgekit.config import ModeName, TierName
    from judgekit.judging.escalation import FinalityRules
    from judgekit.judging.ranking import RankingStep, Said

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


def rules(
    mode: ModeName = "lenient",
    finality: FinalityRules | None = None,
    panel: Mapping[TierName, set[str]] | None = None,
    sided: Mapping[str, Collection[str]] | None = None,
) -> RankingRules:
    everyone: dict[TierName, set[str]] = {"quick": {"m"}, "deep": {"deep"}, "tiebreaker": {"tiebreaker"}}
    return RankingRules(tuple("ABC"), panel or everyone, MARGINS, mode, finality, sided or {})


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
    step = rules(mode, finality).step([], "quick", said(given))
    assert ("".join(step.near), step.trusted, step.last) == (near, trusted, False)
    assert step.is_end == (len(near) == 1)


def test_what_must_not_be_final_alone_is_confirmed_whatever_a_calibration_says() -> None:
    free, own = rules("lenient", GATE), rules("lenient", GATE, sided={"A": {"m"}})
    assert free.step([], "quick", said("531")).trusted
    for held in (
        free.step([], "quick", said("531"), cut=True),
        free.step([], "quick", said("531"), barred=True),
        own.step([], "quick", said("531")),
    ):
        assert (held.trusted, held.near, held.is_end) == (False, ("A", "B"), False)
    # A reason to prefer another is no reason to doubt the best.
    assert rules(sided={"B": {"m"}}).step([], "quick", said("531")).is_end


@pytest.mark.parametrize(
    ("deep", "mode", "winner"),
    [("54", "lenient", "A"), ("54", "strict", "A"), ("44", "lenient", None), ("44", "strict", None)],
)
def test_the_means_are_over_all_tiers(deep: str, mode: ModeName, winner: str | None) -> None:
    ranks = rules(mode, panel={"quick": {"m"}, "deep": {"m"}})
    first = ranks.step([], "quick", said("441"))
    assert (first.best, first.lead, first.outcome, ranks.winner(first)) == (None, 0.0, "improve", None)
    last = ranks.step([first], "deep", said(deep))
    assert last.found == {"A": (4 + int(deep[0])) / 2, "B": (4 + int(deep[1])) / 2}
    assert (last.last, last.leader, ranks.winner(last)) == (True, "A", winner)


def test_a_tier_that_failed_counts_nowhere() -> None:
    ranks = rules()
    failed = ranks.step([], "quick", said("501"))
    assert (failed.found, failed.outcome, failed.is_end, failed.near) == (None, None, False, ("A", "B", "C"))
    later = ranks.step([failed], "deep", said({"deep": "251"}))
    assert (later.found, later.is_end) == ({"A": 2, "B": 5, "C": 1}, True)
    assert rules(panel={"quick": {"a", "b"}}).step([], "quick", said({"a": "531", "b": "530"})).found is None


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
    ranks = rules(panel={"quick": {"m"}, "deep": set(deep), "tiebreaker": third})
    steps: list[RankingStep] = []
    for tier, scores in (("quick", said("444")), ("deep", said(deep))):
        assert ranks.following(steps) == tier
        steps.append(ranks.step(steps, tier, scores))
    assert ranks.following(steps) == after


def test_the_tier_that_a_calibration_measures_by_is_the_last() -> None:
    ranks = rules("lenient", finality_rules("c", (), last="deep"))
    quick = ranks.step([], "quick", said("531"))
    deep = ranks.step([quick], "deep", said({"deep": "45"}))
    assert (quick.last, deep.last, deep.is_end, ranks.winner(deep)) == (False, True, True, "A")


def test_calls_are_counted_with_those_that_failed() -> None:
    twice: Said = {Voter("m", "m"): {"A": [1.0, 2.0], "B": []}}
    assert (asked(twice, "AB"), asked(twice, "A")) == (3, 2)


ONE = {"A": [4.0], "B": [2.0]}


@pytest.mark.parametrize(
    ("scored", "least", "means"),
    [
        ([("m", {"A": [4.0, 5.0], "B": [3.0, 3.0]}), ("n", {"A": [3.0], "B": [4.0]})], None, (4.0, 10 / 3)),
        # A model that failed for one subject counts for none: its leniency would lift the others alone.
        ([("kind", {"A": [5.0]}), ("stern", {"A": [2.0], "B": [3.0]})], None, (2.0, 3.0)),
        ([("kind", {"A": [5.0]})], None, None),
        ([], None, None),
        # Most of a jury must have scored them all.
        ([("one", ONE), ("two", {"A": [1.0]})], 3, None),
        ([("one", ONE), ("two", {"A": [1.0]})], 2, None),
        ([("one", ONE), ("two", {"A": [1.0]})], 1, (4.0, 2.0)),
        ([("one", ONE), ("two", {"A": [1.0]}), ("three", ONE)], 3, (4.0, 2.0)),
        # One that was not asked about a loser counts.
        ([("m", {**ONE, "C": [1.0]}), ("n", {"A": [5.0], "B": [3.0]})], None, (4.5, 2.5)),
        # The models of a family that count weigh together as one.
        ([("x", {"A": [5.0], "B": [1.0]}), ("x", {"A": [3.0], "B": [1.0]}), ("y", ONE)], None, (4.0, 1.5)),
        ([("x", {"A": [5.0], "B": [1.0]}), ("x", {"A": [3.0]}), ("y", ONE)], None, (4.5, 1.5)),
    ],
)
def test_the_mean_of_each_subject(
    scored: list[tuple[str, dict[str, list[float]]]], least: int | None, means: tuple[float, float] | None
) -> None:
    found = values(scored, "AB", least)
    assert found == (means and {"A": pytest.approx(means[0]), "B": pytest.approx(means[1])})


@pytest.mark.parametrize(
    ("margin", "near"), [(0.0, ["B"]), (0.24, ["B"]), (0.25, ["B", "A"]), (1.0, ["B", "A", "C"])]
)
def test_who_is_near_the_best(margin: float, near: list[str]) -> None:
    assert contending({"A": 4.0, "B": 4.25, "C": 3.25}, margin) == near
    assert contending({"A": 0.1 + 0.2, "B": 0.3}, 0.0) == ["A", "B"]  # equal but for the last bit


@pytest.mark.parametrize(
    ("ahead", "mode", "winner"),
    [(0.1, "strict", None), (0.1, "lenient", "A"), (0.5, "strict", "A"), (0.0, "lenient", None)],
)
def test_a_narrow_lead_wins_in_lenient_mode_only(ahead: float, mode: ModeName, winner: str | None) -> None:
    found = {"A": 4.0 + ahead, "B": 4.0}
    assert last_word(found, 0.2, mode) == winner
    assert lead(found) == pytest.approx(ahead)


def test_margins_are_shares_of_the_scale() -> None:
    rubric = loader.score_rubric("kls").rubric
    assert isinstance(rubric, ScoreRubric)
    expected = {"quick": 0.4, "deep": 0.2, "tiebreaker": 0.2}  # of a scale from 1 to 5
    assert usual_margins(rubric) == pytest.approx(expected)
