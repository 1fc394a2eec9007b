"""Which opinions a calibration lets be final, and what the rules make of it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from making import finality_rule, finality_rules

from judgekit.config import TIERS
from judgekit.judging.escalation import (
    ESCALATE,
    UNDETERMINED,
    EscalationRules,
    Final,
    FinalityRules,
    certainty,
    margin,
)
from judgekit.rubric import loader
from judgekit.rubric.schema import ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Collection

    from judgekit.config import ModeName, Outcome, TierName

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


BY_DEEP = finality_rules("c", (finality_rule("deep", "reject", 0.0, after="accept"),))
LAST_DEEP, LAST_THIRD = finality_rules("c", last="deep"), finality_rules("c", last="tiebreaker")


@pytest.mark.parametrize(
    ("finality", "outcomes", "sure", "truncated", "expected"),
    [
        (ACCEPTS, "A", 1.0, (), Final("accept", "single", "quick")),
        (ACCEPTS, "AA", 0.5, (), Final("accept", "unanimous", "deep")),  # with less margin it goes up
        # What no gate names goes up; strict alone would have ended after the first rejection.
        (ACCEPTS, "RR", 2.0, (), Final("reject", "unanimous", "deep")),
        # An acceptance of a cut text is not final for all gates.
        (ACCEPTS, "AA", 2.0, {"quick"}, Final("accept", "unanimous", "deep")),
        (ACCEPTS, "AA", 2.0, {"quick", "deep"}, UNDETERMINED),
        # A gate of the deep tier looks at what came before.
        (BY_DEEP, "AR", 0.0, (), Final("reject", "single", "deep")),
        (BY_DEEP, "RAA", 0.0, (), Final("accept", "majority", "tiebreaker")),
        (BY_DEEP, "FR", 0.0, (), Final("reject", "single", "deep")),  # as without a calibration
        # The last word is final, and nobody before it is; where it fails the table holds.
        (LAST_THIRD, "AAR", 0.0, (), Final("reject", "single", "tiebreaker")),
        (LAST_THIRD, "RRR", 0.0, (), Final("reject", "unanimous", "tiebreaker")),
        (LAST_DEEP, "AR", 0.0, (), Final("reject", "single", "deep")),
        (LAST_DEEP, "AFA", 0.0, (), Final("accept", "unanimous", "tiebreaker")),
        (LAST_DEEP, "AFF", 0.0, (), UNDETERMINED),
        (LAST_THIRD, "AAF", 0.0, (), Final("accept", "unanimous", "deep")),
        (LAST_THIRD, "ARF", 0.0, (), ESCALATE),
    ],
)
def test_what_gates_let_through(
    finality: FinalityRules, outcomes: str, sure: float, truncated: Collection[TierName], expected: Final
) -> None:
    assert run(finality, outcomes, (sure,), truncated=truncated) == (outcomes, expected)


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


def test_one_tier_alone_decides_with_gates_too() -> None:
    assert run(finality_rules("c"), "A", tiers=("quick",))[1] == Final("accept", "single", "quick")


def test_a_failure_is_never_final() -> None:
    assert not finality_rules("c", (finality_rule("quick", "accept"),), last="quick").final(
        "quick", {"quick": None}, {}
    )
