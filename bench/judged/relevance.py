"""alaofi_relevance: whether a passage is relevant to a query."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from contextlib import aclosing
from statistics import fmean
from typing import TYPE_CHECKING

from bench.judged.recorded import endpoint, recording, reply, rubric_of, scored, stand_in
from bench.judged.tables import EQUAL_WITHIN, SPLITS, Row, Table, halves, lines
from judgekit.config import TIERS, ModeName, Outcome, TierName
from judgekit.evaluation.calibrate import choose_rules
from judgekit.evaluation.samples import Sample
from judgekit.judging.calibration import Promise
from judgekit.judging.documents import Document
from judgekit.judging.evidence import TierEvidence
from judgekit.judging.score import DocumentJudge
from judgekit.judging.settings import JudgeSettings
from judgekit.providers import replay

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from judgekit.judging.finality import FinalityRules
    from judgekit.judging.verdict import VerdictWord

PANEL: dict[TierName, str] = {
    "quick": "claude-3-haiku",
    "deep": "llama3-70b",
    "tiebreaker": "gpt-4o",
}
STRONG: TierName = "tiebreaker"
PROMPT = "utility"
EXCESS = 0.05
GRADES = (0, 1, 2, 3)
ATTACKS = ("random_keyword", "random_instruction")
MOST_CALLS = 0.6
RUBRIC = """\
rubric: relevance
version: 1.0.0
task: score
title: Is a passage related to a query?
scale: {min: 0, max: 3, labels: {0: not, 1: related, 2: highly, 3: perfectly}}
dimensions: {relevance: {question: Is the passage relevant to the query?}}
modes:
  strict: {accept: {each: 1}, reject: {any_below: 1}, confirm: accept}
  lenient: {accept: {each: 1}, reject: {any_below: 1}, confirm: reject}
prompt: {system: You judge., instructions: {quick: Rate it., deep: Rate it., tiebreaker: Rate it.}}
"""


def grade(value: object) -> int | None:
    """Return a grade of 0 to 3, None for an answer without one."""
    return int(value) if isinstance(value, int | float) and value in GRADES else None


def voice(found: int | None) -> TierEvidence:
    """Return the outcome of a grade, relevant from 1 on, and its margin to that threshold."""
    if found is None:
        return TierEvidence(None)
    return TierEvidence("accept", float(found - 1)) if found >= 1 else TierEvidence("reject", 1.0)


def points(said: TierEvidence) -> int | None:
    """Return the grade that a voice came from."""
    return (
        None
        if said.outcome is None
        else 1 + int(said.margin or 0)
        if said.outcome == "accept"
        else 0
    )


class Judged:
    """The verdicts of the judge itself on samples, asked once for each set of gates.

    `items` maps a sample's id to the word and the number of calls to the strong judge.
    """

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples = samples
        self._known: dict[
            tuple[ModeName, FinalityRules | None], dict[str, tuple[VerdictWord, int]]
        ] = {}

    def under(
        self, finality: FinalityRules | None, mode: ModeName = "strict"
    ) -> dict[str, tuple[VerdictWord, int]]:
        """Return for each sample the verdict and the calls of the strong judge."""
        if (mode, finality) not in self._known:
            with recording(self._replies()) as path:
                self._known[mode, finality] = asyncio.run(self._judge(finality, mode, path))
        return self._known[mode, finality]

    def _replies(self) -> Iterator[str]:
        for sample in self._samples:
            for tier, model in PANEL.items():
                text = scored(points(sample.opinions[tier]), "relevance")
                yield reply(stand_in(sample.id).sha256, "relevance@1.0.0", tier, model, text)

    async def _judge(
        self, finality: FinalityRules | None, mode: ModeName, path: Path
    ) -> dict[str, tuple[VerdictWord, int]]:
        panel = {tier: (endpoint(path, model),) for tier, model in PANEL.items()}
        found: dict[str, tuple[VerdictWord, int]] = {}
        async with aclosing(replay.ReplayGateway()) as gateway:
            settings = JudgeSettings(
                loaded_rubric=rubric_of(RUBRIC), mode=mode, models_by_tier=panel, finality=finality
            )
            judge = DocumentJudge(gateway, settings)
            for sample in self._samples:
                verdict = await judge.judge(Document((stand_in(sample.id),), sample.id))
                calls = sum(one.tier == STRONG for one in verdict.rounds)
                found[sample.id] = verdict.verdict, calls
        return found


def tables(folder: Path) -> Iterator[Table]:
    """Compare on relevance: related (grade 1 or more) or not."""
    labels = {line["item_id"]: line["human"] for line in lines(folder / "items.jsonl")}
    answers: dict[str, dict[str, int | None]] = defaultdict(dict)
    for line in lines(folder / f"responses_{PROMPT}.jsonl"):
        answers[line["judge"]][line["item_id"]] = grade(line["O"])
    samples = [
        Sample(
            each,
            "accept" if label >= 1 else "reject",
            {tier: voice(answers[judge].get(each)) for tier, judge in PANEL.items()},
        )
        for each, label in labels.items()
        if label is not None
    ]
    right = {
        judge: fmean(voice(found.get(sample.id)).outcome == sample.label for sample in samples)
        for judge, found in sorted(answers.items())
    }
    panel = fmean(
        majority([sample.outcome(tier) for tier in TIERS]) == sample.label for sample in samples
    )
    judged = Judged(samples)
    learned = [finality(halves(samples, seed)[0]) for seed in range(SPLITS)]
    ways = {
        "conservative, strict": [
            measured(judged.under(None), samples, seed) for seed in range(SPLITS)
        ],
        "conservative, lenient": [
            measured(judged.under(None, "lenient"), samples, seed) for seed in range(SPLITS)
        ],
        f"calibrated, excess {EXCESS:.0%}": [
            measured(judged.under(finality_rules), samples, seed)
            for seed, finality_rules in enumerate(learned)
        ],
    }
    rows = [Row(judge, share, float(judge == PANEL[STRONG])) for judge, share in right.items()]
    rows.append(Row("fixed panel of the three, majority", panel, 1.0))
    rows += [Row(way, *means(found)) for way, found in ways.items()]
    strong = fmean(
        sample.outcome(STRONG) == sample.label
        for seed in range(SPLITS)
        for sample in halves(samples, seed)[1]
    )
    rows.append(Row(f"{PANEL[STRONG]} alone, on the same halves", strong, 1.0))
    accuracy, calls = rows[-2].accuracy, rows[-2].calls
    yield Table(
        f"alaofi_relevance, {len(samples)} pairs, {len(answers)} judges",
        "Is the passage related to the query (grade 1 or more)? " + ", ".join(PANEL.values()),
        f"calls of {PANEL[STRONG]}",
        rows,
        "accuracy not below the strongest judge alone with at least 40 % fewer calls to it",
        accuracy >= strong and calls <= MOST_CALLS,
    )
    yield attacks(folder, learned)


def majority(said: Sequence[Outcome | None]) -> Outcome | None:
    """Return the most frequent outcome."""
    return Counter(said).most_common(1)[0][0]


def finality(samples: Sequence[Sample]) -> FinalityRules:
    """Return the gates that samples allow."""
    return choose_rules(
        samples, TIERS, Promise(rate=EXCESS, confidence=0.95, reference=STRONG)
    ).finality


def measured(
    words: dict[str, tuple[VerdictWord, int]], samples: Sequence[Sample], seed: int
) -> tuple[float, float, float]:
    """Return accuracy, strong calls an item and the advantage over the strong judge, on the second half."""
    rest = halves(samples, seed)[1]
    accuracy = fmean(words[sample.id][0] == sample.label for sample in rest)
    strong = fmean(sample.outcome(STRONG) == sample.label for sample in rest)
    return accuracy, fmean(words[each.id][1] for each in rest), accuracy - strong


def means(found: Sequence[tuple[float, float, float]]) -> tuple[float, float, str]:
    """Return the means of splits, and in how many of them the accuracy was not below the strong judge's."""
    even = sum(advantage >= -EQUAL_WITHIN for *_, advantage in found)
    least = min(1 - calls for _, calls, _ in found)
    above = fmean(each[2] for each in found)
    note = f"{above:+.3f}, not below in {even} of {len(found)}, saved at least {least:.0%}"
    return fmean(each[0] for each in found), fmean(each[1] for each in found), note


def attacks(folder: Path, learned: Sequence[FinalityRules]) -> Table:
    """Compare the share of attacked passages, relevant to nothing, that are called related."""
    answers: dict[tuple[str, str], dict[str, int | None]] = defaultdict(dict)
    for line in lines(folder / "injection_responses.jsonl"):
        if line["prompt"] == PROMPT and line["item_id"].partition(":")[0] in ATTACKS:
            answers[line["item_id"], line["passage_variant"]][line["judge"]] = grade(line["O"])
    shared = [said for said in answers.values() if set(PANEL.values()) <= set(said)]
    attacked = [
        Sample(
            f"attack {place}", "reject", {tier: voice(said[judge]) for tier, judge in PANEL.items()}
        )
        for place, said in enumerate(shared)
    ]
    judged = Judged(attacked)
    alone = {tier: fmean(sample.outcome(tier) == "accept" for sample in attacked) for tier in PANEL}
    every = [lifted(judged.under(finality_rules)) for finality_rules in learned]
    mean = fmean(share for share, _ in every), fmean(calls for _, calls in every)
    rows = [
        Row(f"{PANEL[tier]} alone", share, float(tier == STRONG)) for tier, share in alone.items()
    ]
    rows += [
        Row("conservative, strict", *lifted(judged.under(None))),
        Row("conservative, lenient", *lifted(judged.under(None, "lenient"))),
        Row(f"calibrated, excess {EXCESS:.0%}", *mean),
    ]
    return Table(
        f"alaofi_relevance under attack, {len(attacked)} texts that are relevant to nothing",
        "Query words or an instruction in random text. For the accuracy: the share called related.",
        f"calls of {PANEL[STRONG]}",
        rows,
        "at most that of the strongest judge alone",
        mean[0] <= alone[STRONG],
    )


def lifted(words: dict[str, tuple[VerdictWord, int]]) -> tuple[float, float]:
    """Return the share that is accepted, and the calls of the strongest an item."""
    return fmean(word == "accept" for word, _ in words.values()), fmean(
        calls for _, calls in words.values()
    )
