"""What the models of a tier make of a pair, and what the tiers' words come to.

The rules of escalation are those of the other tasks, told from the side of the first winner: a win of it is
an acceptance, a win of the other text a rejection, a tie an `improve`. Pure: no model is asked here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from judgekit.comparison import TIE
from judgekit.judging.contest import Ended
from judgekit.judging.jury import has_quorum

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from judgekit.judging.escalation import Final
    from judgekit.judging.gates import Gates
    from judgekit.rubric import ModeName, Outcome, TierName

PairWord: TypeAlias = Literal["A", "B", "tie"]
WINS: tuple[PairWord, PairWord] = ("A", "B")
ORDERS = ("AB", "BA")
SAME = "The order of the two texts decided."


@dataclass(frozen=True, slots=True)
class Vote:
    """One model's word about a pair, and why."""

    word: PairWord
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class Ballot:
    """The votes of one tier's models, each model's its own; there are none where too few answered."""

    votes: tuple[Vote, ...] = ()

    @property
    def lead(self) -> float:
        """By which share of the models that voted one of the two is ahead."""
        return abs(self._ahead) / len(self.votes) if self.votes else 0.0

    @property
    def word(self) -> PairWord | None:
        """The word of most, ties aside; None where nobody voted."""
        if not self.votes:
            return None
        return WINS[self._ahead < 0] if self._ahead else "tie"

    @property
    def reasoning(self) -> str:
        """Why, in the words of the first who voted so."""
        return next((each.reasoning for each in self.votes if each.word == self.word), "")

    @property
    def _ahead(self) -> int:
        words = [each.word for each in self.votes]
        return words.count("A") - words.count("B")


Ballots: TypeAlias = "Mapping[TierName, Ballot]"


def vote(said: Sequence[Vote | None]) -> Vote | None:
    """Return what one model's words come to: a tie where they differ, None where one failed."""
    known = [each for each in said if each is not None]
    if len(known) < len(said) or not known:
        return None
    return known[0] if len({each.word for each in known}) == 1 else Vote("tie", SAME)


def ballot(said: Sequence[Vote | None]) -> Ballot:
    """Return what a tier's models say together; nothing unless more than half of them have a word."""
    known = tuple(each for each in said if each is not None)
    return Ballot(known if has_quorum(len(known), len(said)) else ())


def favourite(ballots: Ballots) -> PairWord | None:
    """Return the first winner."""
    return next((each.word for each in ballots.values() if each.word in WINS), None)


def outcomes(ballots: Ballots) -> dict[TierName, Outcome | None]:
    """Return what the tiers said, told from the side of the first winner."""
    first = favourite(ballots)
    return {tier: _outcome(each.word, first) for tier, each in ballots.items()}


def ended(
    final: Final, ballots: Ballots, mode: ModeName, cut: Collection[TierName], gates: Gates | None
) -> Ended:
    """Return the end of a comparison; `cut` are the tiers that did not see both texts whole."""
    first = favourite(ballots)
    told = {"accept": first, "reject": _other(first), "improve": TIE}
    word, tier, consensus = told.get(final.verdict) or final.verdict, final.tier, final.consensus
    winner = _stands(ballots, final, mode, cut, gates)
    if winner is not None:
        word, tier, consensus = str(first), winner, "single"
    if tier is None:
        return Ended(word, consensus, truncated=bool(cut))
    if word != TIE and all(each in cut for each, one in ballots.items() if one.word == word):
        why = "no model saw both texts whole, so neither is known to be better"
        return Ended("undetermined", "none", degraded=why, truncated=True)
    return Ended(word, consensus, tier, ballots[tier].lead, ballots[tier].reasoning, truncated=tier in cut)


def _stands(
    ballots: Ballots, final: Final, mode: ModeName, cut: Collection[TierName], gates: Gates | None
) -> TierName | None:
    """Return the tier whose win the tie of the next does not undo: in lenient mode, where labels allow it.

    Without a calibration a win is final there as soon as it is given, unless it rests on a cut text.
    """
    if mode != "lenient" or gates is None or final.verdict != "improve" or final.tier is None:
        return None
    leads = {tier: each.lead for tier, each in ballots.items() if tier not in cut}
    return gates.stands(final.tier, outcomes(ballots), leads)


def _outcome(word: PairWord | None, first: PairWord | None) -> Outcome | None:
    if word is None:
        return None
    if word == "tie":
        return "improve"
    return "accept" if word == first else "reject"


def _other(letter: PairWord | None) -> PairWord | None:
    return None if letter is None else WINS[letter == "A"]
