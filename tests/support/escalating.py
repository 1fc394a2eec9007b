"""The table of quick x deep x tiebreaker: the oracle of the rules, and of judging when models fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from judgekit.config import Outcome
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

# The result of a judging (A accept, I improve, R reject, E escalate, U undetermined), with the consensus, and
# the outcomes before it, in the order asked (F failed). Fewer of them end the judging earlier.
STRICT = """
R single     R IR IFR FR FFR
A unanimous  AA AFA
I single     AI AFI FI FFI
A majority   ARA
R majority   ARR
E none       ARI ARF AFR
U none       AFF IFF FFF
A single     IA IFA FA FFA
I unanimous  II IFI
"""
LENIENT = """
A single     A IA IFA FA FFA
R unanimous  RR RFR
I single     RI RFI FI FFI
A majority   RAA
R majority   RAR
E none       RAI RAF RFA
U none       RFF IFF FFF
I unanimous  II IFI
R single     IR IFR FR FFR
"""


def lines(table: str, *confirm: Confirm) -> list[tuple[Confirm, str, VerdictWord, Consensus]]:
    """Split each row into the outcome to confirm, the outcomes, the verdict and the consensus."""
    rows = [line.split() for line in table.strip().splitlines()]
    return [
        (word, outcomes, WORDS[verdict], consensus)  # type: ignore[misc]  # the table's own words
        for word in confirm
        for verdict, consensus, *every in rows
        for outcomes in every
    ]
