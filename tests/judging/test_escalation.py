"""The whole table of quick x deep x tiebreaker x mode, written out."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Literal

import pytest

from judgekit.judging.escalation import Final, Rules
from judgekit.rubric import TIERS, Outcome, TierName

if TYPE_CHECKING:
    from collections.abc import Collection

LETTERS: dict[str, Outcome | None] = {"A": "accept", "I": "improve", "R": "reject", "F": None}
WORDS = {"A": "accept", "I": "improve", "R": "reject", "E": "escalate", "U": "undetermined"}

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
CASES = [
    (confirm, *line.split())
    for confirm, table in (("accept", STRICT), ("reject", LENIENT))
    for line in table.strip().splitlines()
]


def run(
    outcomes: str,
    confirm: Literal["accept", "reject"],
    tiers: tuple[TierName, ...] = TIERS,
    truncated: Collection[TierName] = (),
) -> tuple[str, Final]:
    """Feed outcomes to the rules; return the letters used and the end."""
    rules = Rules(confirm, tiers, truncated)
    seen: dict[TierName, Outcome | None] = {}
    for used in range(len(outcomes) + 1):
        step = rules.next(seen)
        if isinstance(step, Final):
            return outcomes[:used], step
        if used < len(outcomes):
            seen[step] = LETTERS[outcomes[used]]
    raise AssertionError(f"{outcomes}: the judging asks for more than {len(tiers)} tiers")


@pytest.mark.parametrize(("confirm", "outcomes", "verdict", "consensus"), CASES)
def test_the_table(confirm: Literal["accept", "reject"], outcomes: str, verdict: str, consensus: str) -> None:
    used, final = run(outcomes, confirm)
    assert used == outcomes
    assert (final.verdict, final.consensus) == (WORDS[verdict], consensus)
    assert final.tier == (None if verdict in "EU" else TIERS[len(outcomes) - 1])


@pytest.mark.parametrize("confirm", ["accept", "reject"])
def test_the_table_is_complete(confirm: Literal["accept", "reject"]) -> None:
    listed = {case[1] for case in CASES if case[0] == confirm}
    for outcomes in itertools.product("AIRF", repeat=3):
        used, _ = run("".join(outcomes), confirm)
        assert used in listed


@pytest.mark.parametrize("confirm", ["accept", "reject"])
@pytest.mark.parametrize(
    ("outcome", "verdict"), [("A", "accept"), ("I", "improve"), ("R", "reject"), ("F", "undetermined")]
)
def test_a_single_tier_decides_alone(
    confirm: Literal["accept", "reject"], outcome: str, verdict: str
) -> None:
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
def test_an_acceptance_of_a_cut_text_goes_up(
    outcomes: str, confirm: Literal["accept", "reject"], verdict: str
) -> None:
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
