"""A model's opinion, and the one opinion that the models of a tier come to as a jury.

About a pair the rules of escalation are told from the side of the first winner: a win of it is an
acceptance, a win of the other text a rejection, a tie an `improve`. Pure: no model is asked here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from judgekit.judging.comparison import Ended
from judgekit.judging.verdict import TIE
from judgekit.providers.registry import UNKNOWN_FAMILY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from judgekit.config.names import ModeName, Outcome, TierName
    from judgekit.judging.escalation import EscalationRules, Final
    from judgekit.judging.options import JuryRule
    from judgekit.judging.verdict import Consensus, Finding
    from judgekit.providers.base import Endpoint


@dataclass(frozen=True, slots=True)
class Opinion:
    """Scores of a document and what the thresholds make of them; `said` is the model's own verdict word.

    `samples` is how many replies of the model the scores are the mean of. Of a jury whose families came to
    different outcomes, `divided` says whether most of them came to this one; else it is None. `dimensions`
    are those that the reasoning speaks of, `expected` those whose score is the mean over the scale's points,
    each weighted with its probability.
    """

    outcome: Outcome
    scores: dict[str, float]
    reasoning: str = ""
    findings: tuple[Finding, ...] = ()
    said: str | None = None
    samples: int = 1
    divided: bool | None = None
    dimensions: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """Return the opinion as it stands in a round."""
        findings = [finding.model_dump() for finding in self.findings]
        how = {"samples": self.samples} if self.samples > 1 else {}
        told = {"expected": list(self.expected)} if self.expected else {}
        return {
            "outcome": self.outcome,
            "scores": self.scores,
            "reasoning": self.reasoning,
            "dimensions": list(self.dimensions),
            "findings": findings,
            "said": self.said,
            **how,
            **told,
        }


@dataclass(frozen=True, slots=True)
class Mark:
    """Whether one candidate is kept (`accept`) or dropped (`reject`); exactly between is `improve`.

    The probability is known where models give token probabilities or several samples. `divided` is as in
    an opinion.
    """

    outcome: Outcome
    probability: float | None = None
    divided: bool | None = None


Marks: TypeAlias = dict[str, Mark | None]
"""The marks of one round by candidate id; None where the round brought none."""


Decide: TypeAlias = "Callable[[Mapping[str, float]], Outcome]"

Value = TypeVar("Value")

EVEN = 0.5  # a candidate is kept when it is likelier than not that it should be
DIGITS = 4  # of a probability


def has_quorum(answered: int, asked: int) -> bool:
    """Whether enough of a jury answered for it to count: more than half."""
    return 2 * answered > asked


def opinion(voices: Sequence[tuple[Endpoint, Opinion]], rule: JuryRule, decide: Decide) -> Opinion:
    """Return the one opinion of a jury; `decide` applies a rubric's thresholds to scores.

    The outcome is the one that all families come to; else, by `rule`, that of the mean of their scores, or
    the one that more than half of them come to (`improve` where there is none). It is `divided` then.
    """
    if len(voices) == 1:
        return voices[0][1]
    families = [_pooled(each, rule, decide) for each in by_family(voices)]
    pooled = _pooled(families, rule, decide)
    words = nearest([each for _, each in voices], pooled)
    return replace(
        pooled,
        reasoning=words.reasoning,
        dimensions=words.dimensions,
        findings=_every(each.findings for _, each in voices),
        divided=_division(pooled.outcome, [family.outcome for family in families]),
    )


def marks(voices: Sequence[tuple[Endpoint, Marks]], asked: int, rule: JuryRule) -> Marks:
    """Return the marks of a jury of `asked` models; a candidate that half of them did not mark has none."""
    if asked == 1:
        return voices[0][1] if voices else {}
    found: Marks = {}
    for candidate in dict.fromkeys(each for _, said in voices for each in said):
        own = [(endpoint, mark) for endpoint, said in voices if (mark := said.get(candidate))]
        found[candidate] = _mark(own, rule) if has_quorum(len(own), asked) else None
    return found


def _mark(voices: Sequence[tuple[Endpoint, Mark]], rule: JuryRule) -> Mark:
    families = [_share(map(_chance, each), rule) for each in by_family(voices)]
    outcomes = [leaning(family) for family in families]
    share = _share(families, rule)
    outcome = outcomes[0] if len(set(outcomes)) == 1 else leaning(share)
    known = all(mark.probability is not None for _, mark in voices)
    chances = [fmean(map(_chance, each)) for each in by_family(voices)]
    return Mark(outcome, round(fmean(chances), DIGITS) if known else None, _division(outcome, outcomes))


def _share(chances: Iterable[float], rule: JuryRule) -> float:
    """Return how far several are for keeping, from 0 to 1: each counts whole where the majority decides."""
    whole = {"accept": 1.0, "improve": EVEN, "reject": 0.0}
    return fmean(chance if rule == "mean" else whole[leaning(chance)] for chance in chances)


def _chance(mark: Mark) -> float:
    return float(mark.outcome == "accept") if mark.probability is None else mark.probability


def leaning(share: float) -> Outcome:
    """Return what the share of those who would keep a candidate comes to: kept, dropped or neither."""
    if share == EVEN:
        return "improve"
    return "accept" if share > EVEN else "reject"


def _division(outcome: Outcome, families: Sequence[Outcome]) -> bool | None:
    """Return whether most families came to `outcome`, None where all came to the same one."""
    return None if len(set(families)) == 1 else has_quorum(families.count(outcome), len(families))


def by_family(voices: Sequence[tuple[Endpoint, Value]]) -> list[list[Value]]:
    """Return the voices family by family."""
    found: dict[str, list[Value]] = {}
    for endpoint, value in voices:
        found.setdefault(voter(endpoint), []).append(value)
    return list(found.values())


def voter(endpoint: Endpoint) -> str:
    """Return who votes with a model's voice: its family; a model of an unknown one is a family of its own."""
    return f"model {endpoint.model}" if endpoint.family == UNKNOWN_FAMILY else f"family {endpoint.family}"


def _pooled(opinions: Sequence[Opinion], rule: JuryRule, decide: Decide) -> Opinion:
    outcomes = [each.outcome for each in opinions]
    counted, scores = opinions, mean_scores(opinions)
    if len(set(outcomes)) == 1:
        outcome = outcomes[0]
    elif rule == "mean":
        outcome = decide(scores)
    else:
        most, votes = Counter(outcomes).most_common(1)[0]
        outcome = most if has_quorum(votes, len(outcomes)) else "improve"
        counted = [each for each in opinions if each.outcome == outcome] or opinions
    rounded = {name: round(value, 2) for name, value in mean_scores(counted).items()}
    return Opinion(outcome, rounded)


def mean_scores(opinions: Sequence[Opinion]) -> dict[str, float]:
    """Return the mean of each score over opinions that all have the same dimensions."""
    return {name: fmean(each.scores[name] for each in opinions) for name in opinions[0].scores}


def nearest(opinions: Sequence[Opinion], to: Opinion) -> Opinion:
    """Return the opinion with nearest scores, of those with the same outcome where there are any."""
    return min(opinions, key=lambda each: (each.outcome != to.outcome, _distance(each, to)))


def _distance(one: Opinion, other: Opinion) -> float:
    return sum(abs(one.scores[name] - other.scores[name]) for name in one.scores)


def _every(found: Iterable[Sequence[Finding]]) -> tuple[Finding, ...]:
    """Return the findings of several, each once."""
    return tuple(dict.fromkeys(finding for findings in found for finding in findings))


Item = TypeVar("Item")
PairWord: TypeAlias = Literal["A", "B", "tie"]
WINS: tuple[PairWord, PairWord] = ("A", "B")
ORDERS = ("AB", "BA")
SAME = "The answer changed with the order of the two texts, and that counts as a tie."
SPLIT = "Asked several times, it did not prefer one of the two more often."
_FEW: dict[int, Consensus] = {1: "single"}  # of a divided jury's families said the word
SHARE_DIGITS = 9  # of a share: sums of the same shares, added otherwise, are equal


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
        return round(fmean(self._voices), SHARE_DIGITS) if self.votes else 0.0


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
    ahead = round(fmean(each.lean for each in known), SHARE_DIGITS)
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
    leans = [fmean(each.lean for each in own) for own in by_family(known)]
    own = families = tuple(round(lean, SHARE_DIGITS) for lean in leans)
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
