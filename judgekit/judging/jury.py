"""A model's opinion, and the one opinion that the models of a tier come to as a jury, a family a vote."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, TypeVar

from judgekit.providers.registry import UNKNOWN_FAMILY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from judgekit.config import Outcome, TierName
    from judgekit.judging.verdict import Consensus, Finding
    from judgekit.providers.base import Endpoint

JuryRule: TypeAlias = Literal["mean", "majority"]
Decide: TypeAlias = "Callable[[Mapping[str, float]], Outcome]"
Value = TypeVar("Value")
EVEN = 0.5  # a candidate is kept when it is likelier than not that it should be
DIGITS = 4  # of a probability


def has_quorum(answered: int, asked: int) -> bool:
    """Whether enough of a jury answered for it to count: more than half."""
    return 2 * answered > asked


def voter(model: str, family: str) -> str:
    """Return who votes with a model's voice: its family; a model of an unknown one is a family of its own."""
    if family == UNKNOWN_FAMILY:
        return f"model {model}"
    return f"family {family}"


def by_family(voices: Sequence[tuple[Endpoint, Value]]) -> list[list[Value]]:
    """Return what models said, family by family; a model of an unknown one is a family of its own."""
    families: dict[str, list[Value]] = {}
    for endpoint, value in voices:
        families.setdefault(voter(endpoint.model, endpoint.family), []).append(value)
    return list(families.values())


def _division(outcome: Outcome, families: Sequence[Outcome]) -> bool | None:
    """Return whether most families came to `outcome`, where they came to different ones; else None."""
    if len(set(families)) == 1:
        return None
    return has_quorum(families.count(outcome), len(families))


@dataclass(frozen=True, slots=True)
class Opinion:
    """Scores of a document, and what the thresholds make of them."""

    outcome: Outcome
    scores: dict[str, float]
    reasoning: str = ""
    findings: tuple[Finding, ...] = ()
    said: str | None = None
    """The model's own verdict word, which decides nothing."""
    samples: int = 1
    """Of how many replies to the same question the scores are the mean."""
    divided: bool | None = None
    """Of a jury whose families came to different outcomes: whether most of them came to this one."""
    dimensions: tuple[str, ...] = ()
    """Those that the reasoning mentions."""
    expected: tuple[str, ...] = ()
    """Those whose scores are means over the scale's points, by their probabilities."""
    probabilities: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Of a decision model, by dimension and answer."""


def opinion(voices: Sequence[tuple[Endpoint, Opinion]], rule: JuryRule, decide: Decide) -> Opinion:
    """Return the one opinion of a jury: what all families say, else by `rule` that of the mean or of most.

    Its reasoning is that of the model whose scores are nearest, its findings are those of all models.
    """
    if len(voices) == 1:
        return voices[0][1]
    family_opinions = [_pooled(opinions, rule, decide) for opinions in by_family(voices)]
    pooled = _pooled(family_opinions, rule, decide)
    model_opinions = [opinion for _, opinion in voices]
    closest = nearest(model_opinions, pooled)
    findings: dict[Finding, None] = {}  # each once, in order
    for model_opinion in model_opinions:
        findings |= dict.fromkeys(model_opinion.findings)
    return replace(
        pooled,
        reasoning=closest.reasoning,
        dimensions=closest.dimensions,
        findings=tuple(findings),
        divided=_division(pooled.outcome, [family.outcome for family in family_opinions]),
    )


def _pooled(opinions: Sequence[Opinion], rule: JuryRule, decide: Decide) -> Opinion:
    """Return the outcome that opinions come to by a rule, with the mean scores of those that count."""
    outcomes = [opinion.outcome for opinion in opinions]
    counted = opinions
    if len(set(outcomes)) == 1:
        outcome = outcomes[0]
    elif rule == "mean":
        outcome = decide(mean_scores(opinions))
    else:
        outcome, votes = Counter(outcomes).most_common(1)[0]
        if not has_quorum(votes, len(outcomes)):
            outcome = "improve"
        counted = [opinion for opinion in opinions if opinion.outcome == outcome] or opinions
    scores = {name: round(score, 2) for name, score in mean_scores(counted).items()}
    return Opinion(outcome, scores)


def mean_scores(opinions: Sequence[Opinion]) -> dict[str, float]:
    """Return the mean of each score over opinions that all have the same dimensions."""
    return {
        name: fmean(opinion.scores[name] for opinion in opinions) for name in opinions[0].scores
    }


def nearest(opinions: Sequence[Opinion], to: Opinion) -> Opinion:
    """Return the opinion with nearest scores, of those with the same outcome where there are any."""

    def distance(opinion: Opinion) -> tuple[bool, float]:
        differences = [abs(opinion.scores[name] - to.scores[name]) for name in to.scores]
        return (opinion.outcome != to.outcome, sum(differences))

    return min(opinions, key=distance)


class Mark(NamedTuple):
    """Whether one candidate is kept (`accept`), dropped (`reject`), or exactly between (`improve`)."""

    outcome: Outcome
    probability: float | None = None
    divided: bool | None = None

    @property
    def chance(self) -> float:
        """How likely the candidate is to be kept; 1 or 0, where the model gave no probability."""
        if self.probability is None:
            return float(self.outcome == "accept")
        return self.probability


Marks: TypeAlias = dict[str, Mark | None]  # by candidate id; None where a round brought none


def marks(voices: Sequence[tuple[Endpoint, Marks]], asked: int, rule: JuryRule) -> Marks:
    """Return the marks of a jury of `asked` models; a candidate that half of them did not mark has None."""
    if asked == 1:
        return voices[0][1] if voices else {}
    marks_by_candidate: dict[str, list[tuple[Endpoint, Mark]]] = {}
    for endpoint, marks_of_model in voices:
        for candidate, mark in marks_of_model.items():
            marks_of_candidate = marks_by_candidate.setdefault(candidate, [])
            if mark is not None:
                marks_of_candidate.append((endpoint, mark))
    jury_marks: Marks = {}
    for candidate, marks_of_candidate in marks_by_candidate.items():
        jury_marks[candidate] = None
        if has_quorum(len(marks_of_candidate), asked):
            jury_marks[candidate] = _jury_mark(marks_of_candidate, rule)
    return jury_marks


def _jury_mark(marks: Sequence[tuple[Endpoint, Mark]], rule: JuryRule) -> Mark:
    """Return the one mark that models come to about a candidate, a family a vote."""
    chances_by_family = [[mark.chance for mark in family] for family in by_family(marks)]
    family_shares = [_share(chances, rule) for chances in chances_by_family]
    family_outcomes = [leaning(share) for share in family_shares]
    if len(set(family_outcomes)) == 1:
        outcome = family_outcomes[0]
    else:
        outcome = leaning(_share(family_shares, rule))
    probability = None
    if all(mark.probability is not None for _, mark in marks):
        probability = round(fmean(map(fmean, chances_by_family)), DIGITS)
    return Mark(outcome, probability, _division(outcome, family_outcomes))


def _share(chances: Sequence[float], rule: JuryRule) -> float:
    """Return the mean chance, or by `majority` the share of those that keep: half a vote is one between."""
    if rule == "mean":
        return fmean(chances)
    votes = {"accept": 1.0, "improve": EVEN, "reject": 0.0}
    return fmean(votes[leaning(chance)] for chance in chances)


def leaning(share: float) -> Outcome:
    """Return whether a share, or a chance, is for keeping, for dropping, or exactly between."""
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
    """Return who a lean is for: above 0 it is A, below 0 B."""
    if lean > 0:
        return "A"
    return "B" if lean < 0 else "tie"


class Vote(NamedTuple):
    """One model's word about a pair, and why."""

    word: PairWord
    reasoning: str = ""
    share: float = 1.0
    """By which share of the model's replies the word is ahead."""
    probabilities: Mapping[str, float] = {}
    """Of a decision model, by letter."""

    @property
    def lean(self) -> float:
        """How far it is for A (1) or for B (-1)."""
        return {"A": self.share, "B": -self.share, "tie": 0.0}[self.word]


class TierVote(NamedTuple):
    """The vote of a tier's models."""

    word: PairWord | None = None
    """None where too few models have one."""
    lead: float = 0.0
    """By which share of the families the word is ahead."""
    reasoning: str = ""
    agreement: Consensus | None = None
    """How many families agree with the word; None where all do."""
    families: frozenset[str] = frozenset()
    """Those for the word."""
    models: frozenset[str] = frozenset()
    """Those that have a vote, in a tier that has a word."""
    votes: tuple[Vote, ...] = ()
    """What each model said."""


def vote(votes: Sequence[Vote | None]) -> Vote | None:
    """Return what one model's words come to: a tie where they differ, None where one failed."""
    answered = [vote for vote in votes if vote is not None]
    if len(answered) < len(votes) or not answered:
        return None
    if len({vote.word for vote in answered}) == 1:
        return answered[0]
    return Vote("tie", SAME)


def of_calls(answers: Sequence[Vote | None], criteria: int = 1) -> Vote | None:
    """Return what a model's calls come to; None unless more than half of its samples are complete.

    The answers stand by sample, then criterion, then order. In a sample, the first criterion that is won
    decides.
    """
    votes = [vote(pair) for pair in _chunks(answers, len(ORDERS))]
    samples = _chunks(votes, criteria)
    sample_votes: list[Vote] = []
    for sample in samples:
        answered = [vote for vote in sample if vote is not None]
        if len(answered) == criteria:
            wins = [vote for vote in answered if vote.word in WINS]
            sample_votes.append(wins[0] if wins else answered[0])
    if not has_quorum(len(sample_votes), len(samples)):
        return None
    lean = round(fmean(vote.lean for vote in sample_votes), _SHARE_DIGITS)
    word = word_of(lean)
    reasoning = next((vote.reasoning for vote in sample_votes if vote.word == word), SPLIT)
    # A tie has no lead to measure: all of the model's voice is for it.
    return Vote(word, reasoning, share=abs(lean) if lean else 1.0)


def _chunks(values: Sequence[Value], size: int) -> list[Sequence[Value]]:
    return [values[start : start + size] for start in range(0, len(values), size)]


def tier_vote(voices: Sequence[tuple[Endpoint, Vote | None]], rule: JuryRule = "mean") -> TierVote:
    """Return the vote of a tier's models, a family one voice; no word unless more than half have one."""
    answered = [(endpoint, vote) for endpoint, vote in voices if vote is not None]
    if not has_quorum(len(answered), len(voices)):
        return TierVote()
    family_leans = []
    for votes_of_family in by_family(answered):
        lean = fmean(vote.lean for vote in votes_of_family)
        family_leans.append(round(lean, _SHARE_DIGITS))
    family_words = [word_of(lean) for lean in family_leans]
    if rule == "majority":
        tier_lean = _lean_of_majority(family_words)
    else:
        tier_lean = fmean(family_leans)
    tier_lean = round(tier_lean, _SHARE_DIGITS)
    word = word_of(tier_lean)
    families = set()
    reasons = []
    for endpoint, vote in answered:
        if vote.word == word:
            families.add(endpoint.family)
            reasons.append(vote.reasoning)
    return TierVote(
        word=word,
        lead=abs(tier_lean),
        reasoning=reasons[0] if reasons else "",
        agreement=_agreement(family_words, word),
        families=frozenset(families),
        models=frozenset(endpoint.model for endpoint, _ in answered),
        votes=tuple(vote for _, vote in answered),
    )


def _lean_of_majority(words: Sequence[PairWord]) -> float:
    """Return by which share of families a word is ahead; 0 where neither text has more than half of them."""
    if not any(has_quorum(words.count(word), len(words)) for word in WINS):
        return 0.0
    return fmean(Vote(word).lean for word in words)


def _agreement(words: Sequence[PairWord], word: PairWord) -> Consensus | None:
    """Return how many families agree with the word of their tier; None where all do."""
    if len(set(words)) == 1:
        return None
    families = words.count(word)
    if has_quorum(families, len(words)):
        return "majority"
    return "single" if families == 1 else "none"


def favourite(votes: Mapping[TierName, TierVote]) -> PairWord | None:
    """Return the text that the first tier with a winner prefers; None where no tier has one."""
    return next((vote.word for vote in votes.values() if vote.word in WINS), None)


def outcomes(votes: Mapping[TierName, TierVote]) -> dict[TierName, Outcome | None]:
    """Return what the tiers said, seen from the side of the first winner: its win is an acceptance."""
    words: dict[PairWord | None, Outcome | None] = {
        favourite(votes): "accept",
        "tie": "improve",
        None: None,
    }
    return {tier: words.get(vote.word, "reject") for tier, vote in votes.items()}
