"""The whole table of quick x deep x tiebreaker x mode, written out."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Literal, TypeAlias

import pytest

from judgekit.config import TIERS, Outcome, TierName
from judgekit.judging.escalation import EscalationRules, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from judgekit.judging.verdict import Consensus, VerdictWord

Confirm: TypeAlias = Literal["accept", "reject"]
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
    return [(each, *line.split()) for each in confirm for line in table.strip().splitlines()]  # type: ignore[misc]  # three words


CASES = [*lines(STRICT, "accept"), *lines(LENIENT, "reject")]


def run(
    outcomes: str,
    confirm: Confirm,
    tiers: tuple[TierName, ...] = TIERS,
    truncated: Collection[TierName] = (),
    models: Mapping[TierName, str | Collection[str]] = {},
) -> tuple[str, Final]:
    """Feed outcomes to the rules; return the letters used and the end."""
    rules = EscalationRules(confirm, tiers, truncated, models, margin=0.5)
    seen: dict[TierName, Outcome | None] = {}
    margins: dict[TierName, float] = {}
    divided: dict[TierName, bool] = {}
    told: list[str] = re.findall(r"\w'?", outcomes)
    for used in range(len(told) + 1):
        step = rules.next(seen, margins, divided)
        if isinstance(step, Final):
            return "".join(told[:used]), step
        if used < len(told):
            letter = told[used][0]
            seen[step] = LETTERS[letter.upper()] if letter != "d" else "improve"
            margins[step] = 0.49 if told[used].endswith("'") else 0.5
            if letter.islower():
                divided[step] = letter != "d"
    raise AssertionError(f"{outcomes}: the judging asks for more than {len(tiers)} tiers")


def test_the_table() -> None:
    for confirm, outcomes, verdict, consensus in CASES:
        tier = None if verdict in "EU" else TIERS[len(outcomes) - 1]
        expected = (outcomes, Final(WORDS[verdict], consensus, tier))
        assert run(outcomes, confirm) == expected, (confirm, outcomes)


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


@pytest.mark.parametrize("confirm", ["accept", "reject"])
def test_a_divided_jury_counts_as_one_that_failed_until_nobody_is_left(
    confirm: Confirm,
) -> None:
    """In quick and deep, whatever most of it said; but nobody who is divided leaves `undetermined`."""
    for outcomes in itertools.product("AIRFd", "AIRFdair", "AIRF"):
        plain = "".join("F" if outcome in "dair" else outcome for outcome in outcomes)
        used, final = run("".join(outcomes), confirm)
        instead, expected = run(plain, confirm)
        assert len(used) == len(instead)
        if any(each.islower() for each in used) and expected.verdict == "undetermined":
            assert final.verdict == "escalate"
        else:
            assert final == expected


@pytest.mark.parametrize(
    ("outcomes", "verdict", "consensus"),
    [
        ("a", "accept", "majority"),
        ("i", "improve", "majority"),
        ("r", "reject", "majority"),
        ("d", "escalate", "none"),
    ],
)
def test_the_only_jury_decides_by_its_majority_or_not_at_all(
    outcomes: str, verdict: str, consensus: str
) -> None:
    _, final = run(outcomes, "accept", tiers=("quick",))
    assert (final.verdict, final.consensus) == (verdict, consensus)


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [("Aa", "accept"), ("Ai", "improve"), ("Ar", "escalate"), ("Ad", "escalate"), ("dr", "reject")],
)
def test_of_two_tiers_the_second_is_the_last(outcomes: str, verdict: str) -> None:
    used, final = run(outcomes, "accept", tiers=("quick", "deep"))
    assert (used, final.verdict) == (outcomes, verdict)


@pytest.mark.parametrize("outcomes", ["da", "Aa"])
def test_a_jury_in_every_tier_is_not_asked_a_third_time(outcomes: str) -> None:
    same: dict[TierName, tuple[str, ...]] = dict.fromkeys(TIERS, ("a", "b", "c"))
    assert run(outcomes, "accept", models=same) == (outcomes, Final("accept", "majority", "deep"))
    assert run("dd", "accept", models=same)[1].verdict == "escalate"


def test_a_close_opinion_stands_where_the_tiebreaker_is_no_other_voice() -> None:
    same = dict.fromkeys(TIERS, "one")
    assert run("FI'", "accept", models=same) == ("FI'", Final("improve", "single", "deep"))


def test_a_tiebreaker_that_is_one_of_those_who_disagree_is_not_asked() -> None:
    models: dict[TierName, list[str]] = {"quick": ["a", "b"], "deep": ["c"], "tiebreaker": ["b"]}
    assert run("AR", "accept", models=models)[1].verdict == "escalate"
    assert run("ARA", "accept", models=models | {"tiebreaker": ["b", "d"]})[1].verdict == "accept"


@pytest.mark.parametrize("confirm", ["accept", "reject"])
def test_the_table_is_complete(confirm: Confirm) -> None:
    listed = {case[1] for case in CASES if case[0] == confirm}
    for outcomes in itertools.product("AIRF", repeat=3):
        used, _ = run("".join(outcomes), confirm)
        assert used in listed


@pytest.mark.parametrize("confirm", ["accept", "reject"])
@pytest.mark.parametrize(
    ("outcome", "verdict"), [("A", "accept"), ("I", "improve"), ("R", "reject"), ("F", "undetermined")]
)
def test_a_single_tier_decides_alone(confirm: Confirm, outcome: str, verdict: str) -> None:
    _, final = run(outcome, confirm, tiers=("quick",))
    assert final.verdict == verdict


@pytest.mark.parametrize(
    ("outcomes", "confirm", "verdict"),
    [
        ("AA", "reject", "accept"),  # lenient would have ended after the first, had it seen the whole text
        ("AR", "reject", "escalate"),
        ("AF", "reject", "undetermined"),
        ("R", "accept", "reject"),  # a rejection of the part that was seen stands
    ],
)
def test_an_acceptance_of_a_cut_text_goes_up(outcomes: str, confirm: Confirm, verdict: str) -> None:
    used, final = run(outcomes, confirm, tiers=("quick", "deep"), truncated={"quick"})
    assert (used, final.verdict) == (outcomes, verdict)


def test_an_acceptance_that_nobody_gave_to_the_whole_text_is_none() -> None:
    _, final = run("AA", "accept", truncated={"quick", "deep"})
    assert final.verdict == "undetermined"


def test_without_a_quick_tier_the_deep_one_starts() -> None:
    assert run("A", "accept", tiers=("deep", "tiebreaker")) == ("A", Final("accept", "single", "deep"))
    assert run("FR", "accept", tiers=("deep", "tiebreaker")) == (
        "FR",
        Final("reject", "single", "tiebreaker"),
    )


def test_without_a_deep_tier_the_tiebreaker_confirms() -> None:
    assert run("AA", "accept", tiers=("quick", "tiebreaker"))[1].verdict == "accept"
    assert run("AF", "accept", tiers=("quick", "tiebreaker"))[1].verdict == "undetermined"
