"""The promise of a calibration, on fresh subjects: thousands of seeded simulations of judges of known error.

Subjects are drawn from few kinds, each with its probability, so that how often a gate really errs is a sum
and no estimate. A calibration breaks its promise when any of its gates errs more often than promised.
"""

from __future__ import annotations

import functools
import itertools
import random
from math import sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from making import finality_rule, finality_rules
from scripted import scripted_endpoint

from judgekit.evaluation.calibrate import choose_rules
from judgekit.evaluation.cases import Case
from judgekit.evaluation.samples import Reader, Sample, TierOpinion, ended
from judgekit.judging import jury
from judgekit.judging.calibration import Promise
from judgekit.judging.compare import ended as judged
from judgekit.judging.escalation import EscalationRules, Final
from judgekit.judging.jury import Vote
from judgekit.rubric import loader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from judgekit.config import Outcome, TierName
    from judgekit.judging.escalation import FinalityRule, FinalityRules
    from judgekit.judging.jury import PairWord, TierVote

TIERS: tuple[TierName, ...] = ("quick", "deep", "tiebreaker")
OTHER: dict[Outcome, Outcome] = {"accept": "reject", "reject": "accept"}


class Kind(NamedTuple):
    """Subjects of which the same is right and the same is said, and the share of them among all."""

    sample: Sample
    share: float


def chosen(
    population: Sequence[Kind], tiers: Sequence[TierName], promise: Promise, size: int, runs: int
) -> list[tuple[FinalityRule, ...]]:
    """Return the gates that calibrations with `size` labels each come to."""
    subjects = [each.sample for each in population]
    shares = list(itertools.accumulate(each.share for each in population))
    draw = random.Random(1122)
    return [
        choose_rules(draw.choices(subjects, cum_weights=shares, k=size), tiers, promise).finality.rules
        for _ in range(runs)
    ]


def allowed(confidence: float, runs: int) -> float:
    """Return the promised share, and three standard errors of a share that is exactly so."""
    share = 1 - confidence
    return share + 3 * sqrt(share * confidence / runs)


# --- Documents

RUNS = 2_000


class Judges(NamedTuple):
    """How often judges err: quick by outcome and margin, deep where quick is right and where it is wrong."""

    quick: Mapping[tuple[Outcome, float], float]
    deep: tuple[float, float]
    rate: float
    confidence: float
    size: int


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

    @functools.cache
    def breaks(finality: tuple[FinalityRule, ...]) -> bool:
        return true_rate(population, finality_rules(rules=finality, last=promise.reference)) > promise.rate

    found = chosen(population, TIERS, promise, judges.size, RUNS)
    return sum(map(breaks, found)) / RUNS, sum(map(bool, found)) / RUNS


@pytest.mark.slow
@pytest.mark.parametrize("name", JUDGES)
def test_of_all_calibrations_no_more_break_their_promise_than_promised(name: str) -> None:
    judges = JUDGES[name]
    broke, chose = broken(judges, Promise(judges.rate, judges.confidence), worst)
    assert broke <= allowed(judges.confidence, RUNS)
    assert chose >= USEFUL.get(name, 0)


@pytest.mark.slow
def test_against_the_deep_tier_the_promise_holds_too() -> None:
    judges = JUDGES["good and bad margins"]
    broke, chose = broken(judges, Promise(0.05, judges.confidence, reference="deep"), excess)
    assert broke <= allowed(judges.confidence, RUNS)
    assert chose > 0.5


@pytest.mark.slow
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


# --- Pairs in lenient mode, where a win may stand against a tie

PAIR_RUNS, CONFIDENCE = 200, 0.9
PAIR_TIERS: tuple[TierName, ...] = ("quick", "deep")
READER = Reader(loader.comparing_rubric("answer-preference").rubric, "lenient")
WORDS: dict[str, PairWord] = {"A": "A", "B": "B", "T": "tie"}


class Duel(NamedTuple):
    """What is right, what the jury of the quick tier says, and what the deep tier says."""

    label: str
    quick: str
    deep: str


def pair_sample(duel: Duel) -> Sample:
    jury = [{"choice": WORDS[each]} for each in duel.quick]
    judges: dict[str, Any] = {"quick": {"jury": jury}, "deep": {"choice": duel.deep}}
    case = {"id": "x", "prompt": "p", "a": "1", "b": "2", "label": duel.label, "judges": judges}
    (found,) = READER.samples(Case.model_validate(case))
    return found


def pair_kinds(wide: float, narrow: float, even: float, ties: float = 0.4) -> Iterator[Kind]:
    """Yield pairs by how often wide and narrow quick wins are wrong.

    `even` is the share of pairs without a winner among these, `ties` how often the deep tier answers one of
    them with a tie, as it does with four of ten others.
    """
    for (said, share, error), wrong in itertools.product(
        (("AAA", 0.5, wide), ("AAB", 0.4, narrow), ("ABT", 0.1, 0.5)), (False, True)
    ):
        tied = ties if wrong else 0.4
        for label, part in {"B": 1 - even, "tie": even}.items() if wrong else [("A", 1.0)]:
            other = {"A": "B", "B": "A", "tie": "A"}[label]
            chance = share * part * (error if wrong else 1 - error)
            for word, often in ((label, 0.9 * (1 - tied)), (other, 0.1 * (1 - tied)), ("tie", tied)):
                yield Kind(pair_sample(Duel(label, said, word)), chance * often)


POPULATIONS = {
    "narrow wins just above the promise": list(pair_kinds(0.02, 0.055, 0.3)),
    "all just above the promise": list(pair_kinds(0.052, 0.06, 0.3)),
    "narrow wins far above it": list(pair_kinds(0.01, 0.3, 0.8)),
    "narrow wins that a deep tier finds out": list(pair_kinds(0.01, 0.2, 0.0, ties=0.01)),
}
USEFUL_PAIRS = "narrow wins that a deep tier finds out"


def rates(population: Sequence[Kind], finality: FinalityRules) -> list[float]:
    """Return for each gate how often what ends by it is wrong; with a reference, how much more often."""
    wrong: dict[FinalityRule, float] = dict.fromkeys(finality.rules, 0.0)
    reached: dict[FinalityRule, float] = dict.fromkeys(finality.rules, 0.0)
    for each in population:
        final, asked = ended(each.sample, EscalationRules("reject", PAIR_TIERS, finality=finality))
        for gate in finality.rules:
            if final.tier == (gate.stands or gate.tier) and len(asked) == (2 if gate.stands else 1):
                if gate.outcome != each.sample.outcome(asked[-1]):
                    continue
                reached[gate] += each.share
                wrong[gate] += each.share * (final.verdict != each.sample.label)
                if finality.last:
                    wrong[gate] -= each.share * (each.sample.outcome(finality.last) != each.sample.label)
    return [wrong[gate] / reached[gate] for gate in finality.rules if reached[gate]]


@pytest.mark.slow
@pytest.mark.parametrize("reference", [None, "deep"])
@pytest.mark.parametrize("name", POPULATIONS)
def test_the_promise_holds_for_what_stands_too(name: str, reference: TierName | None) -> None:
    promise = Promise(0.05, CONFIDENCE, reference)
    found = chosen(POPULATIONS[name], PAIR_TIERS, promise, 900, PAIR_RUNS)

    @functools.cache
    def breaks(rules: tuple[FinalityRule, ...]) -> bool:
        finality = finality_rules(rules=rules, last=reference)
        return any(rate > promise.rate for rate in rates(POPULATIONS[name], finality))

    assert sum(map(breaks, found)) / PAIR_RUNS <= allowed(CONFIDENCE, PAIR_RUNS)
    stand = sum(any(gate.stands for gate in rules) for rules in found) / PAIR_RUNS
    assert stand > (0.5 if name == USEFUL_PAIRS else -1)


def test_letting_every_win_of_a_trusted_tier_stand_would_break_it() -> None:
    """Why a win below its gate's margin needs a gate of its own: the simulation tells the two apart."""
    finality = finality_rules(
        rules=(
            finality_rule("quick", "accept", 1.0),
            finality_rule("deep", "improve", 0.0, after="accept", stands="quick"),
        )
    )
    assert max(rates(POPULATIONS["narrow wins far above it"], finality)) > 0.25


@pytest.mark.parametrize(
    "finality",
    [finality_rules(), finality_rules(rules=(finality_rule("quick", "accept", 0.9),), last="deep")],
)
@pytest.mark.parametrize(
    "stands", [(), (finality_rule("deep", "improve", 0.3, after="accept", stands="quick"),)]
)
def test_pairs_end_as_the_judge_ends_them(finality: FinalityRules, stands: tuple[FinalityRule, ...]) -> None:
    """What labels are walked through is what judging does."""
    finality = finality_rules(rules=(*finality.rules, *stands), last=finality.last)
    rules = EscalationRules("reject", PAIR_TIERS, finality=finality)
    for votes, deep in itertools.product(("AAA", "AAB", "ABT", "BBA"), ("A", "B", "tie")):
        heard: dict[TierName, TierVote] = {}
        script = {"quick": tier_vote(votes), "deep": tier_vote("T" if deep == "tie" else deep)}
        pair = pair_sample(Duel("A", votes, deep))
        final, asked = ended(pair, rules)
        for tier in asked:
            heard[tier] = script[tier]
        step = rules.next({tier: pair.outcome(tier) for tier in asked}, pair.margins)
        assert isinstance(step, Final)
        found = judged(step, heard, "lenient", rules)
        first = next((vote.word for vote in heard.values() if vote.word != "tie"), None)
        other = {"A": "B", "B": "A"}.get(first or "")
        told = {"accept": first, "reject": other, "improve": "tie"}
        assert (found.verdict, found.tier) == (told.get(final.verdict, final.verdict), final.tier)


def tier_vote(votes: str) -> TierVote:
    return jury.tier_vote([(scripted_endpoint(str(at)), Vote(WORDS[vote])) for at, vote in enumerate(votes)])
