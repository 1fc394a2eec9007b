"""The figures of a retrieval report, from what each query found."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from judgekit.evaluation import metrics, reliability
from judgekit.evaluation.bootstrap import Measure, intervals, mean
from judgekit.evaluation.report import Confidence, Elsewhere, Injection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.evaluation.bootstrap import Interval
    from judgekit.retrieval.candidate import Candidate

    Grades = Mapping[str, Mapping[str, int]]

CUTOFF, FIRST = 10, 3
SHOWN = 10  # hits of a query whose confidence counts: what a search lists
POOL, MAX_INJECTED = 15, 3  # candidates that the hook looks at, and what it injects at most, by default
INJECTED_LABEL = "high"


class Seen(NamedTuple):
    """What one query found.

    The ids of its `ranking`, the product's `candidates`, and those of another scope's documents, if asked.
    """

    query: str
    ranking: Sequence[str]
    candidates: Sequence[Candidate]
    elsewhere: Sequence[Candidate] | None


class Told(NamedTuple):
    """What the hook adds to a prompt: memories in full, and those it only hints at."""

    injected: list[Candidate]
    mentioned: list[Candidate]


def told(candidates: Sequence[Candidate]) -> Told:
    """Return what the hook makes of a prompt's candidates under the default configuration."""
    pool = candidates[:POOL]
    injected = [each for each in pool if each.confidence_label == INJECTED_LABEL][:MAX_INJECTED]
    return Told(injected, [each for each in pool if each.worth_mentioning and each not in injected])


def metrics_of(seen: Sequence[Seen], grades: Grades) -> dict[str, Interval | None]:
    """Return the means over the queries that have judgements, as `trec_eval -c` forms them."""
    judged = [(each.ranking, grades[each.query]) for each in seen if each.query in grades]
    values = {
        f"nDCG@{CUTOFF}": [metrics.ndcg(*each, CUTOFF) for each in judged],
        f"R@{CUTOFF}": [metrics.recall(*each, CUTOFF) for each in judged],
        f"P@{FIRST}": [metrics.precision(*each, FIRST) for each in judged],
        "MRR": [metrics.reciprocal_rank(*each) for each in judged],
    }
    return intervals({name: mean(each) for name, each in values.items()})


def confidence_of(seen: Sequence[Seen], grades: Grades) -> Confidence:
    """Return how far the confidences of the hits that a search lists are right."""
    shown = [(each.query, hit) for each in seen for hit in each.candidates[:SHOWN]]
    probabilities = [hit.confidence for _, hit in shown]
    outcomes = [_is_relevant(query, hit, grades) for query, hit in shown]
    return Confidence(
        hits=len(shown),
        brier=reliability.brier(probabilities, outcomes),
        ece=reliability.ece(probabilities, outcomes),
        bins=reliability.table(probabilities, outcomes),
        labels=reliability.by_label([hit.confidence_label for _, hit in shown], probabilities, outcomes),
    )


def injection_of(seen: Sequence[Seen], grades: Grades) -> Injection:
    """Return what the hook would have added, and how much of it is relevant."""
    prompts = [told(each.candidates) for each in seen]
    right = [
        sum(_is_relevant(each.query, hit, grades) for hit in prompt.injected)
        for each, prompt in zip(seen, prompts, strict=True)
    ]
    answerable = [any(grade > 0 for grade in grades.get(each.query, {}).values()) for each in seen]
    found = intervals(
        _shares(prompts)
        | {
            "precision": Measure(right, [len(each.injected) for each in prompts]),
            "coverage": Measure([count > 0 for count in right], answerable),
        }
    )
    return Injection(prompts=len(prompts), answerable=sum(answerable), **found)


def elsewhere_of(seen: Sequence[Seen]) -> Elsewhere | None:
    """Return what the hook would have added from another scope's documents; None when none was asked."""
    prompts = [told(each.elsewhere) for each in seen if each.elsewhere is not None]
    if not prompts:
        return None
    return Elsewhere(prompts=len(prompts), **intervals(_shares(prompts)))


def _shares(prompts: Sequence[Told]) -> dict[str, Measure]:
    return {
        "injected": mean([bool(each.injected) for each in prompts]),
        "nudged": mean([bool(each.mentioned) for each in prompts]),
    }


def _is_relevant(query: str, hit: Candidate, grades: Grades) -> bool:
    return grades.get(query, {}).get(hit.id, 0) > 0
