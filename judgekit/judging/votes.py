"""What the models of a tier make of a pair, and what the tiers' words come to.

The rules of escalation are those of the other tasks, told from the side of the first winner: a win of it is
an acceptance, a win of the other text a rejection, a tie an `improve`. Pure: no model is asked here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from judgekit.judging import jury
from judgekit.judging.comparison import TIE
from judgekit.judging.comparison_input import Ended
from judgekit.judging.jury import has_quorum

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.config.names import ModeName, Outcome, TierName
    from judgekit.judging.escalation import EscalationRules, Final
    from judgekit.judging.options import JuryRule
    from judgekit.judging.verdict import Consensus
    from judgekit.providers.base import Endpoint

Item = TypeVar("Item")
PairWord: TypeAlias = Literal["A", "B", "tie"]
WINS: tuple[PairWord, PairWord] = ("A", "B")
ORDERS = ("AB", "BA")
SAME = "The answer changed with the order of the two texts, and that counts as a tie."
SPLIT = "Asked several times, it did not prefer one of the two more often."
_FEW: dict[int, Consensus] = {1: "single"}  # of a divided jury's families said the word
DIGITS = 9  # of a share: sums of the same shares, added otherwise, are equal


@dataclass(frozen=True, slots=True)
class Vote:
    """One model's word about a pair, and why; `share` is by which share of its replies the word is ahead."""

    word: PairWord
    reasoning: str = ""
    share: float = 1.0

    @property
    def lean(self) -> float:
        """How far it is for A (1) or for B (-1)."""
        return {"A": self.share, "B": -self.share, "tie": 0.0}[self.word]


@dataclass(frozen=True, slots=True)
class TierVote:
    """The votes of one tier's models; there are none where too few answered.

    `families` are how far each family is for A (1) or for B (-1); without them each vote counts by itself.
    `own` is what each family said before their votes were counted whole, where they were. `behind` names the
    families whose models voted for the word.
    """

    votes: tuple[Vote, ...] = ()
    families: tuple[float, ...] = ()
    own: tuple[float, ...] = ()
    behind: frozenset[str] = frozenset()

    @property
    def lead(self) -> float:
        """By which share of those that voted, each family once, one of the two is ahead."""
        return abs(self._ahead)

    @property
    def word(self) -> PairWord | None:
        """The word of most, ties aside; None where nobody voted."""
        return word_of(self._ahead) if self.votes else None

    @property
    def reasoning(self) -> str:
        """Why, in the words of the first who voted so."""
        return next((each.reasoning for each in self.votes if each.word == self.word), "")

    @property
    def agreement(self) -> Consensus | None:
        """How many of the families that did not all come to the same said the word; None where all did."""
        words = [word_of(each) for each in self.own or self._voices]
        if len(set(words)) <= 1:
            return None
        said = sum(word == self.word for word in words)
        return "majority" if has_quorum(said, len(words)) else _FEW.get(said, "none")

    @property
    def _voices(self) -> tuple[float, ...]:
        return self.families or tuple(each.lean for each in self.votes)

    @property
    def _ahead(self) -> float:
        return round(fmean(self._voices), DIGITS) if self.votes else 0.0


Ballots: TypeAlias = "Mapping[TierName, TierVote]"


def vote(said: Sequence[Vote | None]) -> Vote | None:
    """Return what one model's words come to: a tie where they differ, None where one failed."""
    known = [each for each in said if each is not None]
    if len(known) < len(said) or not known:
        return None
    return known[0] if len({each.word for each in known}) == 1 else Vote("tie", SAME)


def of_calls(said: Sequence[Vote | None], criteria: int = 1) -> Vote | None:
    """Return what all calls of one model come to: in the order of samples, of `criteria`, of texts.

    Where criteria are asked about one by one, the most important on which one text wins in both orders
    decides. Of several samples each counts alike; None unless more than half of them have a word.
    """
    votes = [vote(both) for both in _batches(said, len(ORDERS))]
    samples = [_weighed(batch) for batch in _batches(votes, criteria)]
    known = [sample for sample in samples if sample is not None]
    if not has_quorum(len(known), len(samples)):
        return None
    ahead = round(fmean(each.lean for each in known), DIGITS)
    word = word_of(ahead)
    reasoning = next((each.reasoning for each in known if each.word == word), SPLIT)
    return Vote(word, reasoning, abs(ahead) if ahead else 1.0)


def word_of(lean: float) -> PairWord:
    """Return the word for how far one or several are for A (1) or for B (-1)."""
    return WINS[lean < 0] if lean else "tie"


def tier_vote(said: Sequence[tuple[Endpoint, Vote | None]], rule: JuryRule = "mean") -> TierVote:
    """Return what a tier's models say together; nothing unless more than half of them have a word.

    Each family has one vote: the mean of its models' votes, or by the rule `majority` the word of most of
    them; then the word must be that of more than half of the families, too.
    """
    known = [(endpoint, each) for endpoint, each in said if each is not None]
    if not has_quorum(len(known), len(said)):
        return TierVote()
    leans = [fmean(each.lean for each in own) for own in jury.by_family(known)]
    own = families = tuple(round(lean, DIGITS) for lean in leans)
    if rule == "majority":
        families = _whole(families)
    found = TierVote(tuple(each for _, each in known), families, own)
    return replace(
        found, behind=frozenset(endpoint.family for endpoint, each in known if each.word == found.word)
    )


def favourite(tier_votes: Ballots) -> PairWord | None:
    """Return the first winner."""
    return next((each.word for each in tier_votes.values() if each.word in WINS), None)


def outcomes(tier_votes: Ballots) -> dict[TierName, Outcome | None]:
    """Return what the tiers said, told from the side of the first winner."""
    first = favourite(tier_votes)
    return {tier: _outcome(each.word, first) for tier, each in tier_votes.items()}


def ended(final: Final, tier_votes: Ballots, mode: ModeName, rules: EscalationRules) -> Ended:
    """Return the end of a comparison to which the rules led, with what they know of the tiers."""
    first, cut = favourite(tier_votes), rules.truncated
    told = {"accept": first, "reject": _other(first), "improve": TIE}
    word, tier, consensus = told.get(final.verdict) or final.verdict, final.tier, final.consensus
    winner = _stands(tier_votes, final, mode, rules)
    if winner is not None:
        word, tier, consensus = str(first), winner, "single"
    said = first if final.verdict == "undetermined" else word
    sayers = [each for each, one in tier_votes.items() if one.word == said and said is not None]
    if sayers and all(sayer in cut for sayer in sayers):
        why = "no model saw both texts whole, so neither is known to be better"
        return Ended("undetermined", "none", degraded=why, truncated=True)
    if tier is None:
        return Ended(word, consensus, truncated=bool(cut))
    return Ended(
        word, consensus, tier, tier_votes[tier].lead, tier_votes[tier].reasoning, truncated=tier in cut
    )


def _stands(tier_votes: Ballots, final: Final, mode: ModeName, rules: EscalationRules) -> TierName | None:
    """Return the tier whose win the tie of the next does not undo: in lenient mode, where labels allow it.

    Without a calibration a win is final there as soon as it is given, unless it rests on a cut text or on
    none but the winner's own family.
    """
    finality, barred = rules.finality, {*rules.truncated, *rules.partial}
    if mode != "lenient" or finality is None or final.verdict != "improve" or final.tier is None:
        return None
    leads = {tier: each.lead for tier, each in tier_votes.items() if tier not in barred}
    return finality.stands(final.tier, outcomes(tier_votes), leads)


def _outcome(word: PairWord | None, first: PairWord | None) -> Outcome | None:
    if word is None:
        return None
    if word == "tie":
        return "improve"
    return "accept" if word == first else "reject"


def _other(letter: PairWord | None) -> PairWord | None:
    return None if letter is None else WINS[letter == "A"]


def _weighed(votes: Sequence[Vote | None]) -> Vote | None:
    """Return the first vote that is no tie, of those on each criterion; None where one is missing."""
    known = [each for each in votes if each is not None]
    if len(known) < len(votes):
        return None
    return next((each for each in known if each.word != TIE), known[0])


def _whole(leans: Sequence[float]) -> tuple[float, ...]:
    """Return the votes of families where each counts whole, and without a word of most of them for none."""
    words = [word_of(lean) for lean in leans]
    most = next((each for each in WINS if has_quorum(words.count(each), len(words))), None)
    return tuple(Vote(word).lean for word in words) if most else (0.0,) * len(words)


def _batches(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    return [items[at : at + size] for at in range(0, len(items), size)]
