"""The whole table of quick x deep x tiebreaker x mode, and the gates of a calibration, written out."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pytest
from making import finality_rule, finality_rules

from judgekit.config import TIERS, Outcome, TierName
from judgekit.judging.escalation import ESCALATE, UNDETERMINED, EscalationRules, Final, certainty, margin
from judgekit.rubric import loader
from judgekit.rubric.schema import ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from judgekit.config import ModeName
    from judgekit.judging.escalation import FinalityRules
    from judgekit.judging.verdict import Consensus, VerdictWord

Confirm: TypeAlias = Literal["accept", "reject"]
CONFIRM: tuple[Confirm, Confirm] = ("accept", "reject")
LETTERS: dict[str, Outcome | None] = {"A": "accept", "I": "improve", "R": "reject", "F": None}
WORDS: dict[str, VerdictWord] = {
    "A": "accept",
    "I": "improve",
    "R": "reject",
    "E": "escalate",
    "U": "undetermined",
}

# One line a case: the outcomes in the order asked (A accept, I improve, R reject, F failed) and what they
# come to (E escalate, U undetermined), with the consensus. A shorter line ends the judging earlier.
STRICT = """
R    R single
AA   A unanimous
AI   I single
ARA  A majority
ARR  R majority
ARI  E none
ARF  E none
AFA  A unanimous
AFI  I single
AFR  E none
AFF  U none
IA   A single
II   I unanimous
IR   R single
IFA  A single
IFI  I unanimous
IFR  R single
IFF  U none
FA   A single
FI   I single
FR   R single
FFA  A single
FFI  I single
FFR  R single
FFF  U none
"""
LENIENT = """
A    A single
RR   R unanimous
RI   I single
RAA  A majority
RAR  R majority
RAI  E none
RAF  E none
RFR  R unanimous
RFI  I single
RFA  E none
RFF  U none
IA   A single
II   I unanimous
IR   R single
IFA  A single
IFI  I unanimous
IFR  R single
IFF  U none
FA   A single
FI   I single
FR   R single
FFA  A single
FFI  I single
FFR  R single
FFF  U none
"""
# Both modes. d = a jury without a majority among its families, a, i and r = one whose majority says so.
DIVIDED = """
dA   A single
rA   A single
dI   I single
dR   R single
FdA  A single
FaA  A single
Fda  A majority
FdF  E none
dFA  A single
dFF  E none
ddA  A single
ddI  I single
ddR  R single
dda  A majority
ddi  I majority
ddr  R majority
ddd  E none
ddF  E none
IdA  A single
Idr  R majority
IFd  E none
"""
DIVIDED_STRICT = """
AdA  A unanimous
AaA  A unanimous
Ada  A majority
AdI  I single
AdR  E none
Adr  E none
AdF  E none
Add  E none
ARa  A majority
ARr  R majority
ARi  E none
ARd  E none
AFa  A majority
AFr  E none
"""
# Both modes. ' = the margin to a threshold is smaller than is asked for.
CLOSE = """
II'   I unanimous
I'I'  I unanimous
FI'I  I unanimous
FI'A  A single
FI'R  R single
FI'F  U none
FA'A  A unanimous
FA'R  E none
FR'F  U none
IA'A  A majority
IA'I  I majority
IA'R  E none
IR'R  R majority
IA'F  U none
"""
CLOSE_STRICT = """
R'R   R unanimous
R'R'  R unanimous
R'I   I single
R'AA  A majority
R'AR  R majority
R'FR  R unanimous
A'A'  A unanimous
AI'F  U none
AI'I  I majority
AI'A  A majority
AI'R  E none
"""
CLOSE_LENIENT = """
A'A   A unanimous
A'RR  R majority
A'RA  A majority
A'I   I single
A'FF  U none
RI'R  R majority
RR'   R unanimous
"""


def lines(table: str, *confirm: Confirm) -> list[tuple[Confirm, str, str, Consensus]]:
    return [(word, *line.split()) for word in confirm for line in table.strip().splitlines()]  # type: ignore[misc]  # three words


CASES = [*lines(STRICT, "accept"), *lines(LENIENT, "reject")]


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
    for confirm, outcomes, verdict, consensus in CASES:
        tier = None if verdict in "EU" else TIERS[len(outcomes) - 1]
        expected = (outcomes, Final(WORDS[verdict], consensus, tier))
        assert run(outcomes, confirm) == expected, (confirm, outcomes)
    for confirm in CONFIRM:
        listed = {case[1] for case in CASES if case[0] == confirm}
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
        assert found == (outcomes, WORDS[verdict], consensus), (confirm, outcomes)


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


@pytest.mark.parametrize(
    ("outcomes", "confirm", "options", "verdict", "consensus"),
    [
        # A single tier decides alone, its jury by a majority or not at all.
        *[
            (letter, confirm, {"tiers": ONE}, verdict, consensus)
            for confirm in ("accept", "reject")
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
    ],
)
def test_fewer_tiers_the_same_voices_and_cut_texts(
    outcomes: str, confirm: Confirm, options: dict[str, Any], verdict: str, consensus: str
) -> None:
    used, final = run(outcomes, confirm, **options)
    assert (used, final.verdict, final.consensus) == (outcomes, verdict, consensus)


# --- the gates of a calibration


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
    for others in itertools.product((1, 1.5, 2, 2.9, 3, 3.4, 3.5, 4, 5), repeat=3):
        assert margin(rubric, dict(zip(rubric.dimensions, others, strict=True)), mode) >= 0


def test_the_certainty_of_a_probability() -> None:
    assert [certainty(likely) for likely in (None, 0.5, 0.9, 0.1, 1.0)] == [0, 0, 0.4, 0.4, 0.5]


NONE, ACCEPTS = finality_rules("c"), finality_rules("c", (finality_rule("quick", "accept", 1.0),))
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
        # The last word is final, and none before it is; where it fails the table holds.
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
    found = run(outcomes, "accept", truncated=truncated, finality=finality, margins=[sure])
    assert found == (outcomes, expected)


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


def test_a_failure_is_never_final() -> None:
    gates = finality_rules("c", (finality_rule("quick", "accept"),), last="quick")
    assert not gates.final("quick", {"quick": None}, {})
