"""A model's opinion, and the one opinion that the models of a tier come to as a jury."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from judgekit.providers.registry import UNKNOWN_FAMILY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from judgekit.config.names import Outcome
    from judgekit.judging.options import JuryRule
    from judgekit.judging.verdict import Finding
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
