"""The promise of a calibration, on fresh subjects: thousands of seeded simulations of judges of known error.

Subjects are drawn from few kinds, each with its probability, so that how often a gate really errs is a sum
and no estimate. A calibration breaks its promise when any of its gates errs more often than promised.
"""

from __future__ import annotations

import functools
import itertools
import random
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

import pytest
from making import finality_rule, finality_rules

from judgekit.evaluation.calibrate import choose_rules
from judgekit.evaluation.samples import Sample, TierOpinion, ended
from judgekit.judging.calibration import Promise
from judgekit.judging.escalation import EscalationRules

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from judgekit.config.names import Outcome, TierName
    from judgekit.judging.escalation import FinalityRule, FinalityRules

pytestmark = pytest.mark.slow

RUNS = 2_000
TIERS: tuple[TierName, ...] = ("quick", "deep", "tiebreaker")
OTHER: dict[Outcome, Outcome] = {"accept": "reject", "reject": "accept"}


class Judges(NamedTuple):
    """How often judges err: quick by outcome and margin, deep where quick is right and where it is wrong."""

    quick: Mapping[tuple[Outcome, float], float]
    deep: tuple[float, float]
    rate: float
    confidence: float
    size: int


class Kind(NamedTuple):
    """Subjects of which the same is right and the same is said, and the share of them among all."""

    sample: Sample
    share: float


# A promise is hardest to keep just above the promised rate: what looks good there is luck.
NEAR: dict[tuple[Outcome, float], float] = {
    ("accept", 2.0): 0.052,
    ("accept", 1.0): 0.055,
    ("accept", 0.0): 0.3,
    ("reject", 2.0): 0.051,
    ("reject", 1.0): 0.06,
    ("reject", 0.0): 0.2,
}
MIXED: dict[tuple[Outcome, float], float] = {
    ("accept", 2.0): 0.01,
    ("accept", 1.0): 0.075,
    ("accept", 0.0): 0.4,
    ("reject", 2.0): 0.005,
    ("reject", 1.0): 0.03,
    ("reject", 0.0): 0.15,
}
JUDGES = {
    "just above the promise": Judges(NEAR, (0.03, 0.3), 0.05, 0.9, 500),
    "good and bad margins": Judges(MIXED, (0.03, 0.3), 0.05, 0.9, 500),
    "few labels": Judges(MIXED, (0.01, 0.1), 0.05, 0.8, 150),
    "many labels": Judges(NEAR, (0.04, 0.5), 0.05, 0.95, 900),
}

USEFUL = {"good and bad margins": 0.5}  # a calibration that lets nothing through keeps every promise


def kinds(judges: Judges) -> list[Kind]:
    found = []
    for (said, margin), error in judges.quick.items():
        for right in (True, False):
            label = said if right else OTHER[said]
            share = (1 - error if right else error) / len(judges.quick)
            for deep_right, third_right in itertools.product((True, False), repeat=2):
                deep_error = judges.deep[0 if right else 1]
                chance = (1 - deep_error if deep_right else deep_error) * (0.9 if third_right else 0.1)
                voices: dict[TierName, TierOpinion] = {
                    "quick": TierOpinion(said, margin),
                    "deep": TierOpinion(label if deep_right else OTHER[label], margin),
                    "tiebreaker": TierOpinion(label if third_right else OTHER[label]),
                }
                found.append(Kind(Sample("", label, voices), share * chance))
    return found


def worst(population: Sequence[Kind], finality: FinalityRules) -> float:
    """Return the true rate of errors of the gate that errs most, of all that reaches it."""
    errors: dict[FinalityRule, float] = {}
    reached: dict[FinalityRule, float] = {}
    rules = EscalationRules("accept", TIERS, finality=finality)
    for kind in population:
        final, asked = ended(kind.sample, rules)
        for gate in finality.rules:
            if final.tier == gate.tier and lets_through(gate, kind.sample, asked):
                reached[gate] = reached.get(gate, 0) + kind.share
                wrong = kind.sample.outcome(gate.tier) != kind.sample.label
                errors[gate] = errors.get(gate, 0) + kind.share * wrong
    return max((errors[gate] / reached[gate] for gate in reached), default=0.0)


def lets_through(gate: FinalityRule, sample: Sample, asked: Sequence[TierName]) -> bool:
    voice = sample.voices[gate.tier]
    before = sample.outcome(asked[-2]) if len(asked) > 1 else None
    return (voice.outcome, before) == (gate.outcome, gate.after) and (voice.margin or 0) >= gate.least_margin


def excess(population: Sequence[Kind], finality: FinalityRules) -> float:
    """Return by how much more often the opinions of the worst gate err than the deep tier's on the same."""
    rates = [0.0]
    for gate in finality.rules:
        inside = [each for each in population if lets_through(gate, each.sample, ["quick"])]
        gained = sum(
            each.share
            * (
                (each.sample.outcome("quick") != each.sample.label)
                - (each.sample.outcome("deep") != each.sample.label)
            )
            for each in inside
        )
        rates.append(gained / sum(each.share for each in inside))
    return max(rates)


def broken(
    judges: Judges, promise: Promise, true_rate: Callable[[Sequence[Kind], FinalityRules], float]
) -> tuple[float, float]:
    """Return the shares of calibrations that break the promise, and of those that let anything through."""
    population = kinds(judges)
    subjects = [each.sample for each in population]
    shares = list(itertools.accumulate(each.share for each in population))
    generator = random.Random(1122)

    @functools.cache
    def breaks(finality: tuple[FinalityRule, ...]) -> bool:
        return true_rate(population, finality_rules(rules=finality, last=promise.reference)) > promise.rate

    chosen = [
        choose_rules(
            generator.choices(subjects, cum_weights=shares, k=judges.size), TIERS, promise
        ).finality.rules
        for _ in range(RUNS)
    ]
    return sum(map(breaks, chosen)) / RUNS, sum(map(bool, chosen)) / RUNS


def allowed(confidence: float) -> float:
    """Return the promised share, and three standard errors of a share that is exactly so."""
    share = 1 - confidence
    return share + 3 * sqrt(share * confidence / RUNS)


@pytest.mark.parametrize("name", JUDGES)
def test_of_all_calibrations_no_more_break_their_promise_than_promised(name: str) -> None:
    judges = JUDGES[name]
    broke, chose = broken(judges, Promise(judges.rate, judges.confidence), worst)
    assert broke <= allowed(judges.confidence)
    assert chose >= USEFUL.get(name, 0)


def test_against_the_deep_tier_the_promise_holds_too() -> None:
    judges = JUDGES["good and bad margins"]
    broke, chose = broken(judges, Promise(0.05, judges.confidence, reference="deep"), excess)
    assert broke <= allowed(judges.confidence)
    assert chose > 0.5


def test_what_the_simulation_calls_broken_is_broken() -> None:
    """The same measure finds fault with gates that take whatever looked good on the labels."""
    judges = JUDGES["just above the promise"]
    population = kinds(judges)
    generator = random.Random(1)
    shares = [each.share for each in population]
    broke = 0
    for _ in range(200):
        drawn = generator.choices([each.sample for each in population], shares, k=judges.size)
        finality = [
            finality_rule("quick", outcome, margin)
            for outcome, margin in judges.quick
            if seen(drawn, outcome, margin) <= judges.rate
        ]
        broke += worst(population, finality_rules(rules=tuple(finality))) > judges.rate
    assert broke / 200 > 0.5


def seen(drawn: Sequence[Sample], outcome: Outcome, margin: float) -> float:
    inside = [sample for sample in drawn if sample.voices["quick"] == TierOpinion(outcome, margin)]
    return sum(sample.label != outcome for sample in inside) / max(1, len(inside))
