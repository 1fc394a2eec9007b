"""The promise of a calibration for pairs in lenient mode, where a win may stand against a tie: simulated.

Subjects are drawn from few kinds, as in `test_promise.py`: how often a gate errs is a sum and no estimate.
"""

from __future__ import annotations

import functools
import itertools
import random
from math import sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from making import finality_rule, finality_rules

from judgekit.evaluation.calibrate import choose_rules
from judgekit.evaluation.cases import Case
from judgekit.evaluation.samples import Reader, Sample, ended
from judgekit.judging.calibration import Promise
from judgekit.judging.compare import ended as judged
from judgekit.judging.escalation import EscalationRules, Final
from judgekit.judging.jury import TierVote, Vote
from judgekit.rubric import loader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from judgekit.config.names import TierName
    from judgekit.judging.escalation import FinalityRule, FinalityRules
    from judgekit.judging.jury import PairWord

RUNS = 200
CONFIDENCE = 0.9
TIERS: tuple[TierName, ...] = ("quick", "deep")
READER = Reader(loader.comparing_rubric("answer-preference").rubric, "lenient")
WORDS = {"A": "A", "B": "B", "T": "tie"}


class Kind(NamedTuple):
    sample: Sample
    share: float


class Duel(NamedTuple):
    """What is right, what the jury of the quick tier says, and what the deep tier says."""

    label: str
    quick: str
    deep: str


def sample(duel: Duel) -> Sample:
    jury = [{"choice": WORDS[each]} for each in duel.quick]
    judges: dict[str, Any] = {"quick": {"jury": jury}, "deep": {"choice": duel.deep}}
    case = {"id": "x", "prompt": "p", "a": "1", "b": "2", "label": duel.label, "judges": judges}
    (found,) = READER.samples(Case.model_validate(case))
    return found


def kinds(wide: float, narrow: float, even: float, ties: float = 0.4) -> Iterator[Kind]:
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
                yield Kind(sample(Duel(label, said, word)), chance * often)


POPULATIONS = {
    "narrow wins just above the promise": list(kinds(0.02, 0.055, 0.3)),
    "all just above the promise": list(kinds(0.052, 0.06, 0.3)),
    "narrow wins far above it": list(kinds(0.01, 0.3, 0.8)),
    "narrow wins that a deep tier finds out": list(kinds(0.01, 0.2, 0.0, ties=0.01)),
}
USEFUL = "narrow wins that a deep tier finds out"


def rates(population: Sequence[Kind], finality: FinalityRules) -> list[float]:
    """Return for each gate how often what ends by it is wrong; with a reference, how much more often."""
    wrong: dict[FinalityRule, float] = dict.fromkeys(finality.rules, 0.0)
    reached: dict[FinalityRule, float] = dict.fromkeys(finality.rules, 0.0)
    for each in population:
        final, asked = ended(each.sample, EscalationRules("reject", TIERS, finality=finality))
        for gate in finality.rules:
            if final.tier == (gate.stands or gate.tier) and len(asked) == (2 if gate.stands else 1):
                if gate.outcome != each.sample.outcome(asked[-1]):
                    continue
                reached[gate] += each.share
                wrong[gate] += each.share * (final.verdict != each.sample.label)
                if finality.last:
                    wrong[gate] -= each.share * (each.sample.outcome(finality.last) != each.sample.label)
    return [wrong[gate] / reached[gate] for gate in finality.rules if reached[gate]]


def broken(population: Sequence[Kind], promise: Promise, size: int) -> tuple[float, float]:
    """Return the shares of calibrations that break the promise, and that let a win stand against a tie."""
    subjects = [each.sample for each in population]
    shares = list(itertools.accumulate(each.share for each in population))
    draw = random.Random(1122)

    @functools.cache
    def breaks(finality: tuple[FinalityRule, ...]) -> bool:
        return any(
            rate > promise.rate
            for rate in rates(population, finality_rules(rules=finality, last=promise.reference))
        )

    chosen = [
        choose_rules(draw.choices(subjects, cum_weights=shares, k=size), TIERS, promise).finality.rules
        for _ in range(RUNS)
    ]
    stand = sum(any(gate.stands for gate in finality) for finality in chosen)
    return sum(map(breaks, chosen)) / RUNS, stand / RUNS


@pytest.mark.parametrize("reference", [None, "deep"])
@pytest.mark.parametrize("name", POPULATIONS)
def test_the_promise_holds_for_what_stands_too(name: str, reference: TierName | None) -> None:
    size = 900
    broke, stand = broken(POPULATIONS[name], Promise(0.05, CONFIDENCE, reference), size)
    share = 1 - CONFIDENCE
    assert broke <= share + 3 * sqrt(share * CONFIDENCE / RUNS)
    assert stand > (0.5 if name == USEFUL else -1)


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
    rules = EscalationRules("reject", TIERS, finality=finality)
    for votes, deep in itertools.product(("AAA", "AAB", "ABT", "BBA"), ("A", "B", "tie")):
        heard: dict[TierName, TierVote] = {}
        script = {"quick": tier_vote(votes), "deep": tier_vote("T" if deep == "tie" else deep)}
        pair = sample(Duel("A", votes, deep))
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
    words: dict[str, PairWord] = {"A": "A", "B": "B", "T": "tie"}
    return TierVote(tuple(Vote(words[vote]) for vote in votes))
