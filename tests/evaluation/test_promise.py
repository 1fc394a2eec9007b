"""The promise of a calibration, on fresh subjects: thousands of seeded simulations of judges of known error.

Subjects are drawn from few kinds, each with its probability, so that how often a gate really errs is a sum
and no estimate. A calibration breaks its promise when any of its gates errs more often than promised.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import itertools
import json
import random
from math import sqrt
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest
from making import (
    PanelModels,
    comparison_input,
    file,
    finality_rule,
    finality_rules,
    judge_settings,
    promise,
)
from scripted import scripted_endpoint

from judgekit.evaluation import cases as labelled
from judgekit.evaluation.calibrate import choose_rules, read_ranked_cases
from judgekit.evaluation.cases import Case
from judgekit.evaluation.samples import Sample, replay_tiers
from judgekit.evaluation.tasks import choose_task
from judgekit.judging.escalation import decide
from judgekit.judging.evidence import TierEvidence, read_pair
from judgekit.judging.jury import Vote, combine_votes
from judgekit.judging.ranking import RankingJudge
from judgekit.judging.steps import End, EscalationRules
from judgekit.providers import registry, replay
from judgekit.providers.base import Endpoint
from judgekit.rubric import loader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from judgekit.config import ModeName, Outcome, TierName
    from judgekit.judging.calibration import Promise
    from judgekit.judging.documents import File
    from judgekit.judging.finality import FinalityRule, FinalityRules
    from judgekit.judging.jury import PairWord, TierVote
    from judgekit.rubric.schema import ScoreRubric


PAIR_TIERS: tuple[TierName, ...] = ("quick", "deep")
TIERS: tuple[TierName, ...] = (*PAIR_TIERS, "tiebreaker")
OTHER: dict[Outcome, Outcome] = {"accept": "reject", "reject": "accept"}
RUNS, PAIR_RUNS = 2_000, 200


class Kind(NamedTuple):
    """Subjects with the same right answer and the same opinions, and their share of all."""

    sample: Sample
    share: float


def rates(population: Sequence[Kind], rules: EscalationRules) -> list[float]:
    """Return each gate's error rate; with a reference, the excess over the reference's."""
    finality = rules.finality or finality_rules()
    wrong: dict[FinalityRule, float] = dict.fromkeys(finality.rules, 0.0)
    reached: dict[FinalityRule, float] = dict.fromkeys(finality.rules, 0.0)
    for sample, share in population:
        final, asked = replay_tiers(sample, rules)
        before = sample.outcome(asked[-2]) if len(asked) > 1 else None
        for gate in finality.rules:
            said = (asked[-1], sample.outcome(asked[-1]), before, final.tier)
            margin = sample.opinions[gate.stands or gate.tier].margin or 0
            if said == (gate.tier, gate.outcome, gate.after, gate.stands or gate.tier) and (
                margin >= gate.least_margin
            ):
                reached[gate] += share
                wrong[gate] += share * (final.verdict != sample.label)
                if finality.last_tier:
                    wrong[gate] -= share * (sample.outcome(finality.last_tier) != sample.label)
    return [wrong[gate] / reached[gate] for gate in finality.rules if reached[gate]]


def holds(
    population: Sequence[Kind], rules: EscalationRules, wanted: Promise, size: int, runs: int
) -> list[tuple[FinalityRule, ...]]:
    """See that calibrations with `size` labels break the promise no more often than promised; return them.

    Allowed are the promised share, and three standard errors of a share that is exactly so.
    """
    subjects, shares = [kind.sample for kind in population], [kind.share for kind in population]
    draw = random.Random(1122)

    def breaks(gates: tuple[FinalityRule, ...]) -> bool:
        finality = finality_rules(rules=gates, last=wanted.reference)
        own = dataclasses.replace(rules, finality=finality)
        return any(rate > wanted.rate for rate in rates(population, own))

    breaks = functools.cache(breaks)
    found = [
        choose_rules(draw.choices(subjects, shares, k=size), rules.tiers, wanted).finality.rules
        for _ in range(runs)
    ]
    share = 1 - wanted.confidence
    assert sum(map(breaks, found)) / runs <= share + 3 * sqrt(share * wanted.confidence / runs)
    return found


# --- Documents


class Judges(NamedTuple):
    """How often judges err: quick by outcome and margin, deep when quick is right and when quick is wrong."""

    quick: Mapping[tuple[Outcome, float], float]
    deep: tuple[float, float]
    confidence: float
    size: int
    useful: float = 0.0  # a calibration that lets nothing through keeps every promise


def errors(*rates: float) -> dict[tuple[Outcome, float], float]:
    outcomes: tuple[Outcome, ...] = ("accept", "reject")
    return dict(zip(itertools.product(outcomes, (2.0, 1.0, 0.0)), rates, strict=True))


# A promise is hardest to keep just above the promised rate: anything that looks good there is luck.
NEAR = errors(0.052, 0.055, 0.3, 0.051, 0.06, 0.2)
MIXED = errors(0.01, 0.075, 0.4, 0.005, 0.03, 0.15)
JUDGES = {
    "just above the promise": Judges(NEAR, (0.03, 0.3), 0.9, 500),
    "good and bad margins": Judges(MIXED, (0.03, 0.3), 0.9, 500, 0.5),
    "few labels": Judges(MIXED, (0.01, 0.1), 0.8, 150),
    "many labels": Judges(NEAR, (0.04, 0.5), 0.95, 900),
}


def kinds(judges: Judges) -> Iterator[Kind]:
    for (said, margin), error in judges.quick.items():
        for right, deep_right, third_right in itertools.product((True, False), repeat=3):
            label = said if right else OTHER[said]
            deep_error = judges.deep[0 if right else 1]
            share = (1 - error if right else error) / len(judges.quick)
            chance = (1 - deep_error if deep_right else deep_error) * (0.9 if third_right else 0.1)
            voices: dict[TierName, TierEvidence] = {
                "quick": TierEvidence(said, margin),
                "deep": TierEvidence(label if deep_right else OTHER[label], margin),
                "tiebreaker": TierEvidence(label if third_right else OTHER[label]),
            }
            yield Kind(Sample("", label, voices), share * chance)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "reference"), [*((name, None) for name in JUDGES), ("good and bad margins", "deep")]
)
def test_no_more_calibrations_break_a_promise_than_promised(
    name: str, reference: TierName | None
) -> None:
    judges = JUDGES[name]
    wanted = promise(0.05, judges.confidence, reference)
    found = holds(list(kinds(judges)), EscalationRules("accept", TIERS), wanted, judges.size, RUNS)
    assert sum(map(bool, found)) / RUNS >= judges.useful


@pytest.mark.slow
def test_what_the_simulation_calls_broken_is_broken() -> None:
    """The same measure finds fault with gates that take whatever looked good on the labels."""
    judges = JUDGES["just above the promise"]
    population, draw, broke = list(kinds(judges)), random.Random(1), 0
    for _ in range(200):
        drawn = draw.choices(
            [kind.sample for kind in population], [kind.share for kind in population], k=judges.size
        )
        gates = []
        for outcome, margin in judges.quick:
            inside = [
                sample
                for sample in drawn
                if sample.opinions["quick"] == TierEvidence(outcome, margin)
            ]
            if sum(sample.label != outcome for sample in inside) / max(1, len(inside)) <= 0.05:
                gates.append(finality_rule("quick", outcome, margin))
        rules = EscalationRules("accept", TIERS, finality=finality_rules(rules=tuple(gates)))
        broke += max(rates(population, rules), default=0.0) > 0.05
    assert broke / 200 > 0.5


# --- Pairs in lenient mode, where a win may stand against a tie

TASK = choose_task(loader.find_rubric("answer-preference").rubric, "lenient")
WORDS: dict[str, PairWord] = {"A": "A", "B": "B", "T": "tie"}


def pair_sample(label: str, quick: str, deep: str) -> Sample:
    """Make a pair from its right answer, the quick jury's opinions, and the deep tier's opinion."""
    one = {"model": "0", "family": "none"}
    jury = [{**one, "model": str(at), "choice": WORDS[each]} for at, each in enumerate(quick)]
    judges: dict[str, Any] = {"quick": {"jury": jury}, "deep": {**one, "choice": deep}}
    case = {"id": "x", "prompt": "p", "a": "1", "b": "2", "label": label, "judges": judges}
    (found,) = TASK.build_samples(Case.model_validate(case))
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
            for word, often in (
                (label, 0.9 * (1 - tied)),
                (other, 0.1 * (1 - tied)),
                ("tie", tied),
            ):
                yield Kind(pair_sample(label, said, word), chance * often)


POPULATIONS = {
    "narrow wins just above the promise": list(pair_kinds(0.02, 0.055, 0.3)),
    "all just above the promise": list(pair_kinds(0.052, 0.06, 0.3)),
    "narrow wins far above it": list(pair_kinds(0.01, 0.3, 0.8)),
    "narrow wins that a deep tier finds out": list(pair_kinds(0.01, 0.2, 0.0, ties=0.01)),
}


@pytest.mark.slow
@pytest.mark.parametrize("reference", [None, "deep"])
@pytest.mark.parametrize("name", POPULATIONS)
def test_the_promise_holds_for_what_stands_too(name: str, reference: TierName | None) -> None:
    rules, wanted = (
        EscalationRules("reject", PAIR_TIERS, "pair", "lenient"),
        promise(0.05, 0.9, reference),
    )
    found = holds(POPULATIONS[name], rules, wanted, 900, PAIR_RUNS)
    stand = sum(any(gate.stands for gate in gates) for gates in found) / PAIR_RUNS
    assert stand > (0.5 if name == "narrow wins that a deep tier finds out" else -1)


STANDS = finality_rule("deep", "improve", 0.3, after="accept", stands="quick")


@pytest.mark.parametrize(
    "finality",
    [
        finality_rules(rules=(*gates, *stands), last=last)
        for gates, last in [((), None), ((finality_rule("quick", "accept", 0.9),), PAIR_TIERS[1])]
        for stands in ((), (STANDS,))
    ],
)
def test_pairs_end_as_the_judge_ends_them(finality: FinalityRules) -> None:
    rules = EscalationRules("reject", PAIR_TIERS, "pair", "lenient", finality=finality)
    for votes, deep in itertools.product(("AAA", "AAB", "ABT", "BBA"), ("A", "B", "tie")):
        script: dict[TierName, TierVote] = {
            tier: combine_votes(
                [(scripted_endpoint(str(at)), Vote(WORDS[word])) for at, word in enumerate(words)]
            )
            for tier, words in zip(PAIR_TIERS, (votes, deep[0].upper()), strict=True)
        }
        pair = pair_sample("A", votes, deep)
        final, asked = replay_tiers(pair, rules)
        assert decide(read_pair({tier: script[tier] for tier in asked}), rules) == final


LOADED = loader.find_rubric("answer-quality")
RUBRIC = cast("ScoreRubric", LOADED.rubric)
ONE: dict[TierName, list[str]] = {"quick": ["small"], "deep": ["large"]}
Given = dict[str, list[float]]


def case(number: int, best: str, **said: Given | dict[str, Any]) -> labelled.Case:
    judges = {
        tier: {"model": ONE.get(tier, [tier])[0], "points": each} if "A" in each else each  # type: ignore[call-overload]
        for tier, each in said.items()
    }
    texts = [f"{number} {letter}" for letter in "ABC"]
    return labelled.Case.model_validate(
        {"id": str(number), "prompt": "p", "subjects": texts, "label": best, "judges": judges}
    )


def points(*values: float) -> Given:
    return {letter: [value] for letter, value in zip("ABC", values, strict=True)}


# --- the judge comes to the same -------------------------------------------------------------------------


def drawn(
    draw: random.Random, number: int, models: Mapping[TierName, Sequence[str]]
) -> labelled.Case:
    def said(name: str) -> dict[str, Any]:
        points = {"points": {each: [float(draw.randint(1, 5))] for each in "ABC"}}
        return {"model": name, "family": name[:1]} | (
            points if draw.random() < 0.9 else {"failure": "not_recorded"}
        )

    judges = {
        tier: {"jury": list(map(said, names))} if len(names) > 1 else said(names[0])
        for tier, names in models.items()
    }
    texts = [f"{number} {letter}" for letter in "ABC"]
    given = {"id": str(number), "prompt": "p", "subjects": texts, "label": "A", "judges": judges}
    return labelled.Case.model_validate(given)


def text_file(text: str) -> File:
    return file(text, text)


def lines(case: labelled.Case) -> Iterator[str]:
    for tier, recorded in case.judges.items():
        for each in recorded.jury or [recorded]:
            for letter, text in zip("ABC", case.subjects, strict=True):
                if each.points is None:
                    continue
                scores = dict.fromkeys(RUBRIC.dimensions, each.points[letter][0])
                reply = json.dumps({"reasoning": "", "scores": scores, "findings": []})
                line = {
                    "replay": 1,
                    "subject": text_file(text).sha256,
                    "rubric": RUBRIC.ref,
                    "tier": tier,
                }
                yield (
                    json.dumps(
                        {**line, "model": each.model, "reply": {"text": reply, "model": each.model}}
                    )
                    + "\n"
                )


PANELS: list[dict[TierName, list[str]]] = [
    {"quick": ["small"], "deep": ["large"]},
    {"quick": ["a1", "a2", "b1"], "deep": ["large"], "tiebreaker": ["x", "y"]},
    {"quick": ["small"], "deep": ["a", "b", "c"], "tiebreaker": ["c"]},
]
GATES = [
    None,
    finality_rules("c", (finality_rule("quick", "accept", 1.0),)),
    finality_rules(
        "c",
        (
            finality_rule("quick", "accept", 2.0),
            finality_rule("deep", "accept", 0.1, after="accept"),
        ),
    ),
    finality_rules(
        "c",
        (
            finality_rule("quick", "accept", 1.5),
            finality_rule("deep", "accept", 0.1, after="improve"),
        ),
        last="deep",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["strict", "lenient"])
@pytest.mark.parametrize("finality", GATES)
@pytest.mark.parametrize("panel", PANELS)
def test_the_judge_comes_to_what_was_measured(
    panel: dict[TierName, list[str]], finality: FinalityRules | None, mode: ModeName, tmp_path: Path
) -> None:
    """A promise would be empty if the judge walked another way than the learner."""
    draw = random.Random(f"{panel} {finality} {mode}")
    cases = [drawn(draw, number, panel) for number in range(10)]
    recording = tmp_path / "replies.jsonl"
    recording.write_text("".join(line for each in cases for line in lines(each)), encoding="utf-8")
    profile = registry.find("replay")
    asked: PanelModels = {
        tier: [
            Endpoint(profile, name, name[:1], profile.output, api_base=str(recording))
            for name in names
        ]
        for tier, names in panel.items()
    }
    settings = judge_settings(asked, LOADED, mode, timeout=60, finality=finality)
    judge = RankingJudge(replay.ReplayGateway(), settings)
    for item in read_ranked_cases(cases, RUBRIC, mode):
        comparison = asyncio.run(
            judge.judge(comparison_input("p", tuple(map(text_file, item.case.subjects))))
        )
        turns = list(item.replay_turns(finality))
        end = turns[-1].step
        assert isinstance(end, End)
        winner = turns[-1].best_letter if end.verdict == "accept" else "tie"
        assert comparison.verdict == (winner if end.tier else "undetermined")
        assert len(comparison.rounds) == sum(turn.call_count for turn in turns)
        assert comparison.calibration == (finality and finality.id)
