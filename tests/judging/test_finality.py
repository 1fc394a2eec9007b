"""Which opinions a calibration lets be final, and what the rules make of it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from making import finality_rule, finality_rules

from judgekit.config.names import TIERS
from judgekit.judging.escalation import EscalationRules, Final, FinalityRules, certainty, margin
from judgekit.rubric import loader
from judgekit.rubric.schema import ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Collection

    from judgekit.config.names import ModeName, Outcome, TierName

LETTERS: dict[str, Outcome | None] = {"A": "accept", "I": "improve", "R": "reject", "F": None}


@pytest.fixture
def rubric() -> ScoreRubric:
    found = loader.score_rubric("kls").rubric
    assert isinstance(found, ScoreRubric)
    return found


@pytest.mark.parametrize(
    ("mode", "scores", "expected"),
    [
        ("strict", (5, 5, 5), 1.5),  # the mean is 1.5 above 3.5, the least score 2 above 3
        ("strict", (3, 5, 5), 0),
        ("strict", (4, 4, 3.5), 0.3333),
        ("lenient", (5, 5, 4), 1),
        ("lenient", (3, 3, 3), 0),
        ("strict", (1, 5, 5), 1),
        ("strict", (1.9, 5, 5), 0.1),
        ("strict", (2, 5, 5), 0),  # improve, and at the edge of a rejection
        ("strict", (3, 3, 3), 0.5),  # improve: accepted with half a point more in the mean
        ("lenient", (2.5, 4, 4), 0.5),
    ],
)
def test_the_margin_is_the_distance_to_another_outcome(
    rubric: ScoreRubric, mode: ModeName, scores: tuple[float, ...], expected: float
) -> None:
    assert margin(rubric, dict(zip(rubric.dimensions, scores, strict=True)), mode) == expected


@pytest.mark.parametrize("mode", ["strict", "lenient"])
def test_no_margin_is_negative(rubric: ScoreRubric, mode: ModeName) -> None:
    for scores in itertools.product((1, 1.5, 2, 2.9, 3, 3.4, 3.5, 4, 5), repeat=3):
        assert margin(rubric, dict(zip(rubric.dimensions, scores, strict=True)), mode) >= 0


def test_the_certainty_of_a_probability() -> None:
    assert [certainty(each) for each in (None, 0.5, 0.9, 0.1, 1.0)] == [0, 0, 0.4, 0.4, 0.5]


def run(
    finality: FinalityRules,
    outcomes: str,
    margins: tuple[float, ...] = (),
    tiers: tuple[TierName, ...] = TIERS,
    truncated: Collection[TierName] = (),
) -> tuple[str, Final]:
    """Feed outcomes to rules with gates; return the letters used and the end."""
    rules = EscalationRules("accept", tiers, truncated, finality=finality)
    seen: dict[TierName, Outcome | None] = {}
    known = dict(zip(tiers, margins, strict=False))
    for used in range(len(outcomes) + 1):
        step = rules.next(seen, {tier: known.get(tier, 0.0) for tier in seen})
        if isinstance(step, Final):
            return outcomes[:used], step
        if used < len(outcomes):
            seen[step] = LETTERS[outcomes[used]]
    raise AssertionError(f"{outcomes}: the judging asks on")


ACCEPTS = finality_rules("c", (finality_rule("quick", "accept", 1.0),))


def test_an_opinion_that_a_gate_lets_through_is_final() -> None:
    assert run(ACCEPTS, "A", (1.0,)) == ("A", Final("accept", "single", "quick"))


def test_with_less_margin_it_goes_up() -> None:
    assert run(ACCEPTS, "AA", (0.5,)) == ("AA", Final("accept", "unanimous", "deep"))


def test_what_no_gate_names_goes_up_whatever_the_mode_says() -> None:
    used, final = run(ACCEPTS, "RR", (2.0,))  # strict alone would have ended after the first rejection
    assert (used, final.verdict) == ("RR", "reject")


def test_without_any_gate_everything_goes_up_and_the_table_holds() -> None:
    for outcomes in map("".join, itertools.product("AIRF", repeat=3)):
        used, final = run(finality_rules("c"), outcomes)
        assert len(used) > 1
        if outcomes[:2] in ("AR", "RA"):
            agreed = outcomes[2] in "AR"
            found = (used, final.consensus == "majority", final.verdict == "escalate")
            assert found == (outcomes, agreed, not agreed)
        if outcomes[:2] in ("RI", "AI", "IA", "IR"):
            assert final.verdict == LETTERS[outcomes[1]]


def test_a_gate_of_the_deep_tier_looks_at_what_came_before() -> None:
    finality = finality_rules("c", (finality_rule("deep", "reject", 0.0, after="accept"),))
    assert run(finality, "AR") == ("AR", Final("reject", "single", "deep"))
    assert run(finality, "RAA")[1].consensus == "majority"
    assert run(finality, "FR")[1] == Final("reject", "single", "deep")  # as without a calibration


def test_an_acceptance_of_a_cut_text_is_not_final_for_all_gates() -> None:
    used, final = run(ACCEPTS, "AA", (2.0,), truncated={"quick"})
    assert (used, final.verdict) == ("AA", "accept")
    assert run(ACCEPTS, "AA", (2.0,), truncated={"quick", "deep"})[1].verdict == "undetermined"


def test_the_last_word_is_final_and_nobody_before_it_is() -> None:
    finality = finality_rules("c", last="tiebreaker")
    assert run(finality, "AAR") == ("AAR", Final("reject", "single", "tiebreaker"))
    assert run(finality, "RRR") == ("RRR", Final("reject", "unanimous", "tiebreaker"))
    assert run(finality_rules("c", last="deep"), "AR") == ("AR", Final("reject", "single", "deep"))


def test_where_the_last_word_fails_the_table_holds() -> None:
    assert run(finality_rules("c", last="deep"), "AFA")[1] == Final("accept", "unanimous", "tiebreaker")
    assert run(finality_rules("c", last="deep"), "AFF")[1].verdict == "undetermined"
    assert run(finality_rules("c", last="tiebreaker"), "AAF")[1].verdict == "accept"
    assert run(finality_rules("c", last="tiebreaker"), "ARF")[1].verdict == "escalate"


def test_one_tier_alone_decides_with_gates_too() -> None:
    assert run(finality_rules("c"), "A", tiers=("quick",))[1] == Final("accept", "single", "quick")


def test_a_failure_is_never_final() -> None:
    assert not finality_rules("c", (finality_rule("quick", "accept"),), last="quick").final(
        "quick", {"quick": None}, {}
    )
