"""The whole table of quick x deep x tiebreaker x mode, and the gates of a calibration, written out."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

import pytest
from escalating import CONFIRM, LENIENT, LETTERS, STRICT, Confirm, lines
from making import finality_rule, finality_rules

from judgekit.config import TIERS, Outcome, TierName
from judgekit.judging.escalation import ESCALATE, UNDETERMINED, EscalationRules, Final, margin
from judgekit.rubric import loader
from judgekit.rubric.schema import ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from judgekit.config import ModeName
    from judgekit.judging.escalation import FinalityRules

# Both modes. d = a jury without a majority among its families, a, i and r = one whose majority says so.
DIVIDED = """
A single     dA rA FdA FaA dFA ddA IdA
I single     dI ddI
R single     dR ddR
A majority   Fda dda
E none       FdF dFF ddd ddF IFd
I majority   ddi
R majority   ddr Idr
"""
DIVIDED_STRICT = """
A unanimous  AdA AaA
A majority   Ada ARa AFa
I single     AdI
E none       AdR Adr AdF Add ARi ARd AFr
R majority   ARr
"""
# Both modes. ' = the margin to a threshold is smaller than is asked for.
CLOSE = """
I unanimous  II' I'I' FI'I
A single     FI'A
R single     FI'R
U none       FI'F FR'F IA'F
A unanimous  FA'A
E none       FA'R IA'R
A majority   IA'A
I majority   IA'I
R majority   IR'R
"""
CLOSE_STRICT = """
R unanimous  R'R R'R' R'FR
I single     R'I
A majority   R'AA AI'A
R majority   R'AR
A unanimous  A'A'
U none       AI'F
I majority   AI'I
E none       AI'R
"""
CLOSE_LENIENT = """
A unanimous  A'A
R majority   A'RR RI'R
A majority   A'RA
I single     A'I
U none       A'FF
R unanimous  RR'
"""


def run(
    outcomes: str,
    confirm: Confirm,
    tiers: tuple[TierName, ...] = TIERS,
    truncated: Collection[TierName] = (),
    models: Mapping[TierName, Collection[str]] = {},
    finality: FinalityRules | None = None,
    margins: Sequence[float] = (),
) -> tuple[str, Final]:
    """Feed outcomes to the rules; return the letters used and the end."""
    rules = EscalationRules(confirm, tiers, truncated, models, finality, margin=0.5)
    seen: dict[TierName, Outcome | None] = {}
    known: dict[TierName, float] = {}
    divided: dict[TierName, bool] = {}
    told: list[str] = re.findall(r"\w'?", outcomes)
    for used in range(len(told) + 1):
        step = rules.next(seen, known, divided)
        if isinstance(step, Final):
            return "".join(told[:used]), step
        if used < len(told):
            letter = told[used][0]
            seen[step] = LETTERS[letter.upper()] if letter != "d" else "improve"
            usual = 0.0 if finality else 0.49 if told[used].endswith("'") else 0.5
            known[step] = margins[used] if used < len(margins) else usual
            if letter.islower():
                divided[step] = letter != "d"
    raise AssertionError(f"{outcomes}: the judging asks for more than {len(tiers)} tiers")


def test_the_table_is_right_and_complete() -> None:
    cases = [*lines(STRICT, "accept"), *lines(LENIENT, "reject")]
    for confirm, outcomes, verdict, consensus in cases:
        tier = None if consensus == "none" else TIERS[len(outcomes) - 1]
        assert run(outcomes, confirm) == (outcomes, Final(verdict, consensus, tier)), (confirm, outcomes)
    for confirm in CONFIRM:
        listed = {case[1] for case in cases if case[0] == confirm}
        for each in itertools.product("AIRF", repeat=3):
            assert run("".join(each), confirm)[0] in listed, (confirm, each)


def test_what_divides_a_jury_or_is_close_goes_up() -> None:
    for confirm, outcomes, verdict, consensus in (
        *lines(DIVIDED, "accept", "reject"),
        *lines(DIVIDED_STRICT, "accept"),
        *lines(CLOSE, "accept", "reject"),
        *lines(CLOSE_STRICT, "accept"),
        *lines(CLOSE_LENIENT, "reject"),
    ):
        used, final = run(outcomes, confirm)
        found = (used, final.verdict, final.consensus)
        assert found == (outcomes, verdict, consensus), (confirm, outcomes)


@pytest.mark.parametrize("confirm", CONFIRM)
def test_a_divided_jury_counts_as_one_that_failed_until_no_tier_is_left(confirm: Confirm) -> None:
    """In quick and deep, whatever most of it said; but what is divided ends in no `undetermined`."""
    for outcomes in itertools.product("AIRFd", "AIRFdair", "AIRF"):
        plain = "".join("F" if outcome in "dair" else outcome for outcome in outcomes)
        used, final = run("".join(outcomes), confirm)
        instead, expected = run(plain, confirm)
        assert len(used) == len(instead)
        if any(letter.islower() for letter in used) and expected.verdict == "undetermined":
            assert final.verdict == "escalate"
        else:
            assert final == expected


ONE: tuple[TierName, ...] = ("quick",)
TWO: tuple[TierName, ...] = ("quick", "deep")
NO_QUICK: tuple[TierName, ...] = ("deep", "tiebreaker")
NO_DEEP: tuple[TierName, ...] = ("quick", "tiebreaker")
JURY: dict[TierName, Collection[str]] = dict.fromkeys(TIERS, ("a", "b", "c"))
SAME: dict[TierName, Collection[str]] = dict.fromkeys(TIERS, ("one",))
SHARED: dict[TierName, Collection[str]] = {"quick": ["a", "b"], "deep": ["c"], "tiebreaker": ["b"]}


def test_fewer_tiers_the_same_voices_and_cut_texts() -> None:
    cases: list[tuple[str, Confirm, dict[str, Any], str, str]] = [
        # A single tier decides alone, its jury by a majority or not at all.
        *[
            (letter, confirm, {"tiers": ONE}, verdict, consensus)
            for confirm in CONFIRM
            for letter, verdict, consensus in (
                ("A", "accept", "single"),
                ("I", "improve", "single"),
                ("R", "reject", "single"),
                ("F", "undetermined", "none"),
                ("a", "accept", "majority"),
                ("i", "improve", "majority"),
                ("r", "reject", "majority"),
                ("d", "escalate", "none"),
            )
        ],
        # Of two tiers the second is the last.
        ("Aa", "accept", {"tiers": TWO}, "accept", "majority"),
        ("Ai", "accept", {"tiers": TWO}, "improve", "majority"),
        ("Ar", "accept", {"tiers": TWO}, "escalate", "none"),
        ("Ad", "accept", {"tiers": TWO}, "escalate", "none"),
        ("dr", "accept", {"tiers": TWO}, "reject", "majority"),
        # Without a quick tier the deep one starts; without a deep one the tiebreaker confirms.
        ("A", "accept", {"tiers": NO_QUICK}, "accept", "single"),
        ("FR", "accept", {"tiers": NO_QUICK}, "reject", "single"),
        ("AA", "accept", {"tiers": NO_DEEP}, "accept", "unanimous"),
        ("AF", "accept", {"tiers": NO_DEEP}, "undetermined", "none"),
        # A jury in every tier is not asked a third time.
        ("da", "accept", {"models": JURY}, "accept", "majority"),
        ("Aa", "accept", {"models": JURY}, "accept", "majority"),
        ("dd", "accept", {"models": JURY}, "escalate", "none"),
        # A close opinion stands where the tiebreaker is no other voice.
        ("FI'", "accept", {"models": SAME}, "improve", "single"),
        # A tiebreaker that is one of those who disagree is not asked.
        ("AR", "accept", {"models": SHARED}, "escalate", "none"),
        ("ARA", "accept", {"models": {**SHARED, "tiebreaker": ["b", "d"]}}, "accept", "majority"),
        # An acceptance of a cut text goes up: lenient would have ended after the first.
        ("AA", "reject", {"tiers": TWO, "truncated": {"quick"}}, "accept", "unanimous"),
        ("AR", "reject", {"tiers": TWO, "truncated": {"quick"}}, "escalate", "none"),
        ("AF", "reject", {"tiers": TWO, "truncated": {"quick"}}, "undetermined", "none"),
        ("R", "accept", {"tiers": TWO, "truncated": {"quick"}}, "reject", "single"),
        ("AA", "accept", {"truncated": {"quick", "deep"}}, "undetermined", "none"),
    ]
    for outcomes, confirm, options, verdict, consensus in cases:
        used, final = run(outcomes, confirm, **options)
        found = (used, final.verdict, final.consensus)
        assert found == (outcomes, verdict, consensus), (outcomes, confirm, options)


# --- the gates of a calibration


def test_the_margin_is_the_distance_to_another_outcome() -> None:
    rubric = loader.find_rubric("kls").rubric
    assert isinstance(rubric, ScoreRubric)
    cases: list[tuple[ModeName, tuple[float, ...], float]] = [
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
    ]
    for mode, scores, expected in cases:
        assert margin(rubric, dict(zip(rubric.dimensions, scores, strict=True)), mode) == expected
        for others in itertools.product((1, 1.5, 2, 2.9, 3, 3.5, 4, 5), repeat=3):
            assert margin(rubric, dict(zip(rubric.dimensions, others, strict=True)), mode) >= 0


NONE, ACCEPTS = finality_rules("c"), finality_rules("c", (finality_rule("quick", "accept", 1.0),))
BY_DEEP = finality_rules("c", (finality_rule("deep", "reject", 0.0, after="accept"),))
LAST_DEEP, LAST_THIRD = finality_rules("c", last="deep"), finality_rules("c", last="tiebreaker")


def test_what_gates_let_through() -> None:
    cases: list[tuple[FinalityRules, str, float, Collection[TierName], Final]] = [
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
        # The last word is final, and none before it is; where it fails the table holds.
        (LAST_THIRD, "AAR", 0.0, (), Final("reject", "single", "tiebreaker")),
        (LAST_THIRD, "RRR", 0.0, (), Final("reject", "unanimous", "tiebreaker")),
        (LAST_DEEP, "AR", 0.0, (), Final("reject", "single", "deep")),
        (LAST_DEEP, "AFA", 0.0, (), Final("accept", "unanimous", "tiebreaker")),
        (LAST_DEEP, "AFF", 0.0, (), UNDETERMINED),
        (LAST_THIRD, "AAF", 0.0, (), Final("accept", "unanimous", "deep")),
        (LAST_THIRD, "ARF", 0.0, (), ESCALATE),
    ]
    for finality, outcomes, sure, truncated, expected in cases:
        found = run(outcomes, "accept", truncated=truncated, finality=finality, margins=[sure])
        assert found == (outcomes, expected)
    assert not finality_rules("c", last="quick").final("quick", {"quick": None}, {})  # a failure never is


def test_without_any_gate_everything_goes_up_and_the_table_holds() -> None:
    for outcomes in map("".join, itertools.product("AIRF", repeat=3)):
        used, final = run(outcomes, "accept", finality=NONE)
        assert len(used) > 1
        if outcomes[:2] in ("AR", "RA"):
            agreed = outcomes[2] in "AR"
            found = (used, final.consensus == "majority", final.verdict == "escalate")
            assert found == (outcomes, agreed, not agreed)
        if outcomes[:2] in ("RI", "AI", "IA", "IR"):
            assert final.verdict == LETTERS[outcomes[1]]
    assert run("A", "accept", ONE, finality=NONE)[1] == Final("accept", "single", "quick")
