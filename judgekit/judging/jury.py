"""A model's opinion, and the one opinion that the models of a tier come to as a jury.

The models of one family have one vote together. About a pair the rules of escalation are told from the side
of the first winner: a win of it is an acceptance, a win of the other text a rejection, a tie an `improve`.
Pure: no model is asked here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from judgekit.providers.registry import UNKNOWN_FAMILY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from judgekit.config import Outcome, TierName
    from judgekit.judging.verdict import Consensus, Finding
    from judgekit.providers.base import Endpoint

JuryRule: TypeAlias = Literal["mean", "majority"]
"""How the models of a tier come to one opinion."""
Decide: TypeAlias = "Callable[[Mapping[str, float]], Outcome]"
Value = TypeVar("Value")
EVEN = 0.5  # a candidate is kept when it is likelier than not that it should be
DIGITS = 4  # of a probability


def has_quorum(answered: int, asked: int) -> bool:
    """Whether enough of a jury answered for it to count: more than half."""
    return 2 * answered > asked


def voter(endpoint: Endpoint) -> str:
    """Return who votes with a model's voice: its family; a model of an unknown one is a family of its own."""
    return f"model {endpoint.model}" if endpoint.family == UNKNOWN_FAMILY else f"family {endpoint.family}"


def by_family(voices: Sequence[tuple[Endpoint, Value]]) -> list[list[Value]]:
    """Return the voices family by family."""
    families: dict[str, list[Value]] = {}
    for endpoint, value in voices:
        families.setdefault(voter(endpoint), []).append(value)
    return list(families.values())


def _division(outcome: Outcome, families: Sequence[Outcome]) -> bool | None:
    """Return whether most families came to `outcome`, None where all came to the same one."""
    return None if len(set(families)) == 1 else has_quorum(families.count(outcome), len(families))


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
        return {
            "outcome": self.outcome,
            "scores": self.scores,
            "reasoning": self.reasoning,
            "dimensions": list(self.dimensions),
            "findings": [finding.model_dump() for finding in self.findings],
            "said": self.said,
            **({"samples": self.samples} if self.samples > 1 else {}),
            **({"expected": list(self.expected)} if self.expected else {}),
        }


def opinion(voices: Sequence[tuple[Endpoint, Opinion]], rule: JuryRule, decide: Decide) -> Opinion:
    """Return the one opinion of a jury; `decide` applies a rubric's thresholds to scores.

    The outcome is the one that all families come to; else, by `rule`, that of the mean of their scores, or
    the one that more than half of them come to (`improve` where there is none). It is `divided` then.
    """
    if len(voices) == 1:
        return voices[0][1]
    families = [_pooled(family, rule, decide) for family in by_family(voices)]
    pooled = _pooled(families, rule, decide)
    words = nearest([each for _, each in voices], pooled)
    return replace(
        pooled,
        reasoning=words.reasoning,
        dimensions=words.dimensions,
        findings=tuple(dict.fromkeys(finding for _, each in voices for finding in each.findings)),
        divided=_division(pooled.outcome, [family.outcome for family in families]),
    )


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
    return Opinion(outcome, {name: round(value, 2) for name, value in mean_scores(counted).items()})


def mean_scores(opinions: Sequence[Opinion]) -> dict[str, float]:
    """Return the mean of each score over opinions that all have the same dimensions."""
    return {name: fmean(each.scores[name] for each in opinions) for name in opinions[0].scores}


def nearest(opinions: Sequence[Opinion], to: Opinion) -> Opinion:
    """Return the opinion with nearest scores, of those with the same outcome where there are any."""

    def distance(other: Opinion) -> tuple[bool, float]:
        apart = sum(abs(other.scores[name] - to.scores[name]) for name in to.scores)
        return other.outcome != to.outcome, apart

    return min(opinions, key=distance)


@dataclass(frozen=True, slots=True)
class Mark:
    """Whether one candidate is kept (`accept`) or dropped (`reject`); exactly between is `improve`.

    The probability is known where models give token probabilities or several samples. `divided` is as in
    an opinion.
    """

    outcome: Outcome
    probability: float | None = None
    divided: bool | None = None

    @property
    def chance(self) -> float:
        return float(self.outcome == "accept") if self.probability is None else self.probability


Marks: TypeAlias = dict[str, Mark | None]
"""The marks of one round by candidate id; None where the round brought none."""


def marks(voices: Sequence[tuple[Endpoint, Marks]], asked: int, rule: JuryRule) -> Marks:
    """Return the marks of a jury of `asked` models; a candidate that half of them did not mark has none."""
    if asked == 1:
        return voices[0][1] if voices else {}
    found: Marks = {}
    for candidate in dict.fromkeys(each for _, said in voices for each in said):
        known = [(endpoint, mark) for endpoint, said in voices if (mark := said.get(candidate))]
        found[candidate] = _mark(known, rule) if has_quorum(len(known), asked) else None
    return found


def _mark(voices: Sequence[tuple[Endpoint, Mark]], rule: JuryRule) -> Mark:
    chances = [[mark.chance for mark in family] for family in by_family(voices)]
    families = [_share(family, rule) for family in chances]
    outcomes, share = [leaning(family) for family in families], _share(families, rule)
    outcome = outcomes[0] if len(set(outcomes)) == 1 else leaning(share)
    known = all(mark.probability is not None for _, mark in voices)
    probability = round(fmean(map(fmean, chances)), DIGITS) if known else None
    return Mark(outcome, probability, _division(outcome, outcomes))


def _share(chances: Iterable[float], rule: JuryRule) -> float:
    """Return how far several are for keeping, from 0 to 1: each counts whole where the majority decides."""
    whole = {"accept": 1.0, "improve": EVEN, "reject": 0.0}
    return fmean(chance if rule == "mean" else whole[leaning(chance)] for chance in chances)


def leaning(share: float) -> Outcome:
    """Return what the share of those who would keep a candidate comes to: kept, dropped or neither."""
    if share == EVEN:
        return "improve"
    return "accept" if share > EVEN else "reject"


PairWord: TypeAlias = Literal["A", "B", "tie"]
WINS: tuple[PairWord, PairWord] = ("A", "B")
ORDERS = ("AB", "BA")
SAME = "The answer changed with the order of the two texts, and that counts as a tie."
SPLIT = "Asked several times, it did not prefer one of the two more often."
_SHARE_DIGITS = 9  # sums of the same shares, added otherwise, are equal


def word_of(lean: float) -> PairWord:
    return WINS[lean < 0] if lean else "tie"


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
        return abs(self._ahead)

    @property
    def word(self) -> PairWord | None:
        """The word of most, ties aside; None where nobody voted."""
        return word_of(self._ahead) if self.votes else None

    @property
    def reasoning(self) -> str:
        """Why, in the words of the first who voted so."""
        return next((vote.reasoning for vote in self.votes if vote.word == self.word), "")

    @property
    def agreement(self) -> Consensus | None:
        """How many of the families that did not all come to the same said the word; None where all did."""
        words = [word_of(lean) for lean in self.own or self._voices]
        if len(set(words)) <= 1:
            return None
        said = sum(word == self.word for word in words)
        if has_quorum(said, len(words)):
            return "majority"
        return "single" if said == 1 else "none"

    @property
    def _voices(self) -> tuple[float, ...]:
        return self.families or tuple(vote.lean for vote in self.votes)

    @property
    def _ahead(self) -> float:
        return round(fmean(self._voices), _SHARE_DIGITS) if self.votes else 0.0


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
    votes = [vote(said[at : at + len(ORDERS)]) for at in range(0, len(said), len(ORDERS))]
    known: list[Vote] = []
    for at in range(0, len(votes), criteria):
        sample = [each for each in votes[at : at + criteria] if each is not None]
        if len(sample) == criteria:
            known.append(next((each for each in sample if each.word in WINS), sample[0]))
    if not has_quorum(len(known), len(votes) // criteria):
        return None
    ahead = round(fmean(each.lean for each in known), _SHARE_DIGITS)
    word = word_of(ahead)
    reasoning = next((each.reasoning for each in known if each.word == word), SPLIT)
    return Vote(word, reasoning, abs(ahead) if ahead else 1.0)


def tier_vote(said: Sequence[tuple[Endpoint, Vote | None]], rule: JuryRule = "mean") -> TierVote:
    """Return what a tier's models say together; nothing unless more than half of them have a word.

    Each family has one vote: the mean of its models' votes, or by the rule `majority` the word of most of
    them; then the word must be that of more than half of the families, too.
    """
    known = [(endpoint, each) for endpoint, each in said if each is not None]
    if not has_quorum(len(known), len(said)):
        return TierVote()
    leans = [fmean(each.lean for each in family) for family in by_family(known)]
    own = families = tuple(round(lean, _SHARE_DIGITS) for lean in leans)
    if rule == "majority":
        words = [word_of(lean) for lean in own]
        most = any(has_quorum(words.count(word), len(words)) for word in WINS)
        families = tuple(Vote(word).lean if most else 0.0 for word in words)
    found = TierVote(tuple(each for _, each in known), families, own)
    behind = frozenset(endpoint.family for endpoint, each in known if each.word == found.word)
    return replace(found, behind=behind)


def favourite(votes: Mapping[TierName, TierVote]) -> PairWord | None:
    return next((vote.word for vote in votes.values() if vote.word in WINS), None)


def outcomes(votes: Mapping[TierName, TierVote]) -> dict[TierName, Outcome | None]:
    """Return what the tiers said, told from the side of the first winner."""
    first = favourite(votes)
    words: dict[PairWord | None, Outcome | None] = {
        None: None,
        "A": "reject",
        "B": "reject",
        "tie": "improve",
    }
    if first is not None:
        words[first] = "accept"
    return {tier: words[vote.word] for tier, vote in votes.items()}
