"""A model's opinion, and the joint opinion of a tier's models as a jury, with one vote per family."""

from __future__ import annotations

from collections import Counter, defaultdict
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
EVEN = 0.5  # a candidate with a higher probability is kept
PROBABILITY_DECIMALS = 4  # of a probability


def has_quorum(answered: int, asked: int) -> bool:
    """Whether more than half of a jury answered, so that it counts."""
    return 2 * answered > asked


def voter(model: str, family: str) -> str:
    """Return the voter that a model belongs to: its family or, if that's unknown, only itself."""
    if family == UNKNOWN_FAMILY:
        return f"model {model}"
    return f"family {family}"


def group_by_family(voices: Sequence[tuple[Endpoint, Value]]) -> list[list[Value]]:
    """Group models' answers by family. A model of unknown family is its own group."""
    values_by_voter: defaultdict[str, list[Value]] = defaultdict(list)
    for endpoint, value in voices:
        name = voter(endpoint.model, endpoint.family)
        values_by_voter[name].append(value)
    return list(values_by_voter.values())


def _find_division(outcome: Outcome, family_outcomes: Sequence[Outcome]) -> bool | None:
    """Return True if most families came to `outcome`, False if not, or None if all agree."""
    if len(set(family_outcomes)) == 1:
        return None
    return has_quorum(family_outcomes.count(outcome), len(family_outcomes))


@dataclass(frozen=True, slots=True)
class Opinion:
    """A document's scores, and the outcome by the rubric's thresholds."""

    outcome: Outcome
    scores: dict[str, float]
    reasoning: str = ""
    findings: tuple[Finding, ...] = ()
    stated_word: str | None = None
    """The model's own verdict word, which decides nothing."""
    sample_count: int = 1
    """The number of replies to the same question that the scores average."""
    divided: bool | None = None
    """For a jury with different outcomes: whether most families came to this one."""
    dimensions: tuple[str, ...] = ()
    """The dimensions mentioned in the reasoning."""
    expected_value_names: tuple[str, ...] = ()
    """The dimensions whose scores are expectations over the scale."""
    probabilities: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """A decision model's probabilities, by dimension and answer."""


def combine_opinions(
    voices: Sequence[tuple[Endpoint, Opinion]], rule: JuryRule, decide: Decide
) -> Opinion:
    """Combine the opinions of a jury's models into one, with one vote per model family."""
    if len(voices) == 1:
        _, only_opinion = voices[0]
        return only_opinion

    # Pool within each family first, so that a family with many models has one vote.
    family_opinions = [
        _pool_opinions(opinions, rule, decide) for opinions in group_by_family(voices)
    ]
    pooled = _pool_opinions(family_opinions, rule, decide)

    # A text can't be averaged, so take it from the model with the most similar scores.
    model_opinions = [opinion for _, opinion in voices]
    nearest = find_nearest(model_opinions, pooled)
    family_outcomes = [opinion.outcome for opinion in family_opinions]
    return replace(
        pooled,
        reasoning=nearest.reasoning,
        dimensions=nearest.dimensions,
        findings=_collect_findings(model_opinions),
        divided=_find_division(pooled.outcome, family_outcomes),
    )


def _collect_findings(opinions: Sequence[Opinion]) -> tuple[Finding, ...]:
    """Collect the findings of all opinions, without duplicates."""
    findings: list[Finding] = []
    for opinion in opinions:
        findings += opinion.findings
    return tuple(dict.fromkeys(findings))


def _pool_opinions(opinions: Sequence[Opinion], rule: JuryRule, decide: Decide) -> Opinion:
    """Combine opinions into one outcome with mean scores.

    If the outcomes differ, `rule` chooses the outcome. The rule "mean" derives it from the mean scores. The
    other rule takes the outcome of the majority, with the mean of its scores, or "improve" if there's no
    majority.
    """
    outcomes = [opinion.outcome for opinion in opinions]
    is_unanimous = len(set(outcomes)) == 1
    if is_unanimous:
        return _average_opinions(opinions, outcomes[0])
    if rule == "mean":
        return _average_opinions(opinions, decide(average_scores(opinions)))

    outcome = _find_majority_outcome(outcomes)
    supporters = [opinion for opinion in opinions if opinion.outcome == outcome]
    # Without a majority, the outcome is "improve", which may have no supporters.
    return _average_opinions(supporters or opinions, outcome)


def _find_majority_outcome(outcomes: Sequence[Outcome]) -> Outcome:
    """Find the outcome of more than half of the opinions. If there's none, it's "improve"."""
    outcome, votes = Counter(outcomes).most_common(1)[0]
    if has_quorum(votes, len(outcomes)):
        return outcome
    return "improve"


def _average_opinions(opinions: Sequence[Opinion], outcome: Outcome) -> Opinion:
    """Build an opinion from an outcome and the mean scores of these opinions."""
    scores = {name: round(score, 2) for name, score in average_scores(opinions).items()}
    return Opinion(outcome, scores)


def average_scores(opinions: Sequence[Opinion]) -> dict[str, float]:
    """Average the opinions' scores by dimension."""
    return {
        name: fmean(opinion.scores[name] for opinion in opinions) for name in opinions[0].scores
    }


def find_nearest(opinions: Sequence[Opinion], to: Opinion) -> Opinion:
    """Return the opinion whose scores are nearest `to` another opinion, preferably with the same outcome."""

    def distance(opinion: Opinion) -> tuple[bool, float]:
        differences = [abs(opinion.scores[name] - to.scores[name]) for name in to.scores]
        has_other_outcome = opinion.outcome != to.outcome  # False sorts first
        return (has_other_outcome, sum(differences))

    return min(opinions, key=distance)


class Mark(NamedTuple):
    """Whether a candidate is kept (`accept`), dropped (`reject`), or exactly in between (`improve`)."""

    outcome: Outcome
    probability: float | None = None
    divided: bool | None = None

    @property
    def chance(self) -> float:
        """The probability of keeping the candidate. If the model gave none, it's 1 or 0."""
        if self.probability is None:
            return float(self.outcome == "accept")
        return self.probability


Marks: TypeAlias = dict[str, Mark | None]  # by candidate id; None if a round brought none


def combine_marks(voices: Sequence[tuple[Endpoint, Marks]], asked: int, rule: JuryRule) -> Marks:
    """Combine the marks of a jury's models into one mark per candidate. A mark means keep or drop.

    `voices` contains the models that answered, and `asked` is the number of queried models. A candidate's
    mark is None unless more than half of the queried models have marked it.
    """
    if not voices:
        return {}
    if asked == 1:
        _, only_marks = voices[0]
        return only_marks

    jury_marks: Marks = {}
    for candidate, candidate_marks in _group_by_candidate(voices).items():
        jury_marks[candidate] = None
        if has_quorum(len(candidate_marks), asked):
            jury_marks[candidate] = _combine_candidate_marks(candidate_marks, rule)
    return jury_marks


def _group_by_candidate(
    voices: Sequence[tuple[Endpoint, Marks]],
) -> dict[str, list[tuple[Endpoint, Mark]]]:
    """Group the models' marks by candidate. A candidate without any mark gets an empty list."""
    marks_by_candidate: dict[str, list[tuple[Endpoint, Mark]]] = {}
    for endpoint, model_marks in voices:
        for candidate, mark in model_marks.items():
            candidate_marks = marks_by_candidate.setdefault(candidate, [])
            if mark is not None:
                candidate_marks.append((endpoint, mark))
    return marks_by_candidate


def _combine_candidate_marks(marks: Sequence[tuple[Endpoint, Mark]], rule: JuryRule) -> Mark:
    """Combine the models' marks (yes or no, with a chance) for a candidate, with one vote per family."""
    chances_by_family = []
    for family_marks in group_by_family(marks):
        chances_by_family.append([mark.chance for mark in family_marks])

    family_chances = [_combine_chances(chances, rule) for chances in chances_by_family]
    family_outcomes = [decide_chance(chance) for chance in family_chances]
    outcome = decide_chance(_combine_chances(family_chances, rule))

    # The chance of a mark without a probability is just 1 or 0, which would distort the average.
    probability = None
    has_all_probabilities = all(mark.probability is not None for _, mark in marks)
    if has_all_probabilities:
        probability = _average_by_family(chances_by_family)
    return Mark(outcome, probability, _find_division(outcome, family_outcomes))


def _average_by_family(chances_by_family: Sequence[Sequence[float]]) -> float:
    """Average the families' mean chances, so that each family counts once."""
    family_means = [fmean(chances) for chances in chances_by_family]
    return round(fmean(family_means), PROBABILITY_DECIMALS)


def _combine_chances(chances: Sequence[float], rule: JuryRule) -> float:
    """Combine chances of keeping a candidate. The rule "mean" averages them, "majority" averages votes."""
    if rule == "mean":
        return fmean(chances)
    # An even chance counts as half a vote.
    vote_by_outcome = {"accept": 1.0, "improve": EVEN, "reject": 0.0}
    votes = [vote_by_outcome[decide_chance(chance)] for chance in chances]
    return fmean(votes)


def decide_chance(chance: float) -> Outcome:
    """Convert the chance of keeping a candidate to an outcome. An even chance means `improve`."""
    if chance > EVEN:
        return "accept"
    if chance < EVEN:
        return "reject"
    return "improve"


PairWord: TypeAlias = Literal["A", "B", "tie"]
WINS: tuple[PairWord, PairWord] = ("A", "B")
ORDERS = ("AB", "BA")
ORDER_CHANGED_REASONING = (
    "The answer changed with the order of the two texts, and that counts as a tie."
)
NO_MAJORITY_REASONING = "Asked several times, it did not prefer one of the two more often."
_SHARE_DIGITS = 9  # rounding makes sums in different orders equal


def get_favoured_text(lean: float) -> PairWord:
    """Return the text that a lean favours: "A" if it's positive, "B" if it's negative, otherwise "tie"."""
    if lean > 0:
        return "A"
    if lean < 0:
        return "B"
    return "tie"


class Vote(NamedTuple):
    """One model's vote on a pair, with its reason."""

    word: PairWord
    reasoning: str = ""
    share: float = 1.0
    """The fraction of the model's replies by which the word leads."""
    probabilities: Mapping[str, float] = {}
    """A decision model's probabilities, by letter."""

    @property
    def lean(self) -> float:
        """The lean from A (1) to B (-1)."""
        return {"A": self.share, "B": -self.share, "tie": 0.0}[self.word]


class TierVote(NamedTuple):
    """The vote of a tier's models."""

    word: PairWord | None = None
    """None if too few models have one."""
    lead: float = 0.0
    """The fraction of the families by which the word leads."""
    reasoning: str = ""
    agreement: Consensus | None = None
    """How many families agree with the word; None if all do."""
    families: frozenset[str] = frozenset()
    """The families for the word."""
    models: frozenset[str] = frozenset()
    """The models with a vote, in a tier that has a word."""
    votes: tuple[Vote, ...] = ()
    """Each model's vote."""


def combine_orders(votes: Sequence[Vote | None]) -> Vote | None:
    """Combine a model's votes on two texts, which it saw in both orders. If the votes differ, it's a tie.

    Return None if a vote is missing.
    """
    answers = [vote for vote in votes if vote is not None]
    has_failure = len(answers) < len(votes)
    if has_failure or not answers:
        return None
    words = {vote.word for vote in answers}
    if len(words) == 1:
        return answers[0]
    # Neither vote's reasoning explains the tie.
    return Vote("tie", ORDER_CHANGED_REASONING)


def combine_calls(answers: Sequence[Vote | None], criteria: int = 1) -> Vote | None:
    """Combine a model's calls about two texts into a vote.

    The answers must be sorted by sample, then criterion, then order of the texts. A sample is complete if all
    its criteria have votes. Returns None unless more than half of the samples are complete.
    """
    votes = [combine_orders(both_orders) for both_orders in _cut_into_chunks(answers, len(ORDERS))]
    samples = _cut_into_chunks(votes, criteria)
    sample_votes: list[Vote] = []
    for sample in samples:
        vote = _combine_criteria(sample, criteria)
        if vote is not None:
            sample_votes.append(vote)
    if not has_quorum(len(sample_votes), len(samples)):
        return None
    return _combine_samples(sample_votes)


def _combine_criteria(sample: Sequence[Vote | None], criteria: int) -> Vote | None:
    """Return a sample's first vote for a winner, or a tie if all its votes are ties.

    A sample has a vote on each criterion. Returns None if one of the `criteria` (a number) has no vote.
    """
    votes = [vote for vote in sample if vote is not None]
    is_complete = len(votes) == criteria
    if not is_complete:
        return None
    for vote in votes:
        if vote.word in WINS:
            return vote
    return votes[0]  # all votes are ties


def _combine_samples(votes: Sequence[Vote]) -> Vote:
    """Combine the samples' votes by their mean lean, from 1 (for A) to -1 (for B)."""
    lean = round(fmean(vote.lean for vote in votes), _SHARE_DIGITS)
    word = get_favoured_text(lean)
    # Votes for A and B can add up to a tie. Then there may be no tied vote, so no reasoning for a tie.
    reasoning = next((vote.reasoning for vote in votes if vote.word == word), NO_MAJORITY_REASONING)
    if word == "tie":
        return Vote(word, reasoning)  # the lean of a tie is always 0, so it needs no share
    return Vote(word, reasoning, share=abs(lean))


def _cut_into_chunks(values: Sequence[Value], size: int) -> list[Sequence[Value]]:
    """Cut a sequence into chunks of `size` values. The last one can be shorter."""
    return [values[start : start + size] for start in range(0, len(values), size)]


def combine_votes(
    voices: Sequence[tuple[Endpoint, Vote | None]], rule: JuryRule = "mean"
) -> TierVote:
    """Combine a tier's votes on two texts, with one vote per model family.

    A vote leans towards A (up to 1) or B (down to -1). With the rule "mean", the mean lean decides. With
    "majority", a text needs the votes of more than half of the families. The result is empty unless more than
    half of the models have voted.
    """
    answered = [(endpoint, vote) for endpoint, vote in voices if vote is not None]
    if not has_quorum(len(answered), len(voices)):
        return TierVote()

    family_leans = _average_leans_by_family(answered)
    family_words = [get_favoured_text(lean) for lean in family_leans]
    tier_lean = _combine_leans(family_leans, rule)
    word = get_favoured_text(tier_lean)

    # Votes for A and B can cancel out to a tie, which then has no supporters.
    supporters = [(endpoint, vote) for endpoint, vote in answered if vote.word == word]
    reasons = [vote.reasoning for _, vote in supporters]
    return TierVote(
        word=word,
        lead=abs(tier_lean),
        reasoning=reasons[0] if reasons else "",
        agreement=_rate_agreement(family_words, word),
        # Only the families that support the result count for its independence of the texts' authors.
        families=frozenset(endpoint.family for endpoint, _ in supporters),
        models=frozenset(endpoint.model for endpoint, _ in answered),
        votes=tuple(vote for _, vote in answered),
    )


def _average_leans_by_family(voices: Sequence[tuple[Endpoint, Vote]]) -> list[float]:
    """Average the leans of each family's votes."""
    family_leans = []
    for family_votes in group_by_family(voices):
        family_lean = fmean(vote.lean for vote in family_votes)
        family_leans.append(round(family_lean, _SHARE_DIGITS))
    return family_leans


def _combine_leans(family_leans: Sequence[float], rule: JuryRule) -> float:
    """Combine the families' leans into their tier's."""
    if rule == "majority":
        family_words = [get_favoured_text(lean) for lean in family_leans]
        tier_lean = _measure_majority_lean(family_words)
    else:
        tier_lean = fmean(family_leans)
    return round(tier_lean, _SHARE_DIGITS)


def _measure_majority_lean(words: Sequence[PairWord]) -> float:
    """Return the families' mean lean, from 1 (for A) to -1 (for B), or 0 if neither text has a majority."""
    has_majority = any(has_quorum(words.count(text), len(words)) for text in WINS)
    if not has_majority:
        return 0.0
    # A vote with the default share has a lean of 1, 0 or -1.
    return fmean(Vote(word).lean for word in words)


def _rate_agreement(family_words: Sequence[PairWord], word: PairWord) -> Consensus | None:
    """Rate how many families agree with their tier's result, which is `word`.

    Returns None if all families agree with each other.
    """
    is_unanimous = len(set(family_words)) == 1
    if is_unanimous:
        return None

    agreeing_families = family_words.count(word)
    if has_quorum(agreeing_families, len(family_words)):
        return "majority"
    if agreeing_families == 1:
        return "single"
    return "none"  # no family agrees, or several do, but no majority


def find_favourite(votes: Mapping[TierName, TierVote]) -> PairWord | None:
    """Return the text that the first tier with a winner prefers, or None."""
    for vote in votes.values():
        if vote.word in WINS:
            return vote.word
    return None


def convert_to_outcomes(votes: Mapping[TierName, TierVote]) -> dict[TierName, Outcome | None]:
    """Convert each tier's vote into an outcome for the `favourite`, which the first winning vote chose.

    A vote for the favourite is `accept`, a vote for the other text is `reject`, and a tie is `improve`.
    """
    favourite_word = find_favourite(votes)
    return {tier: _convert_word(vote.word, favourite_word) for tier, vote in votes.items()}


def _convert_word(word: PairWord | None, favourite_word: PairWord | None) -> Outcome | None:
    """Convert a tier's word into an outcome for the favourite. Returns None if the tier has no word."""
    if word is None:
        return None
    if word == "tie":
        return "improve"
    if word == favourite_word:
        return "accept"
    return "reject"
