"""llmbar: the one of two answers that follows the instruction."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from contextlib import aclosing
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.judged.recorded import UNREADABLE, endpoint, recording, reply, stand_in
from bench.judged.tables import EQUAL_WITHIN, SPLITS, Row, Table, averages, lines, shuffled
from judgekit.evaluation.calibrate import choose_rules
from judgekit.evaluation.cases import Case
from judgekit.evaluation.tasks import read_samples
from judgekit.judging.calibration import Promise
from judgekit.judging.compare import PairJudge
from judgekit.judging.documents import ComparisonInput
from judgekit.judging.jury import ORDERS
from judgekit.judging.settings import JudgeSettings
from judgekit.providers import replay
from judgekit.rubric.loader import find_rubric

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from judgekit.config import TierName
    from judgekit.judging.finality import FinalityRules
    from judgekit.judging.verdict import Comparison

CHEAP, STRONG, STRATEGY, FOLDS = ("ChatGPT", "PaLM2", "LLaMA2"), "GPT-4", "Metrics_Reference", 5
PANEL: dict[TierName, tuple[str, ...]] = {"quick": CHEAP, "deep": (STRONG,)}
TIERS: tuple[TierName, ...] = tuple(PANEL)
PROMISE = Promise(rate=0.05, confidence=0.9, reference="deep")
TIE = 0.5  # credit for a tie: one of the two is right, but it doesn't say which
NEAR = 0.01
RUBRIC = find_rubric("answer-preference@1.0.0")

# A judge's answer in each order of a pair: "1" or "2" as the data has it, anything else for no answer.
Answers = dict[str, dict[tuple[str, str], str]]


class Duel(NamedTuple):
    """One pair, named as the data names it, with the word that is right."""

    id: str
    right: str


def comparison_input(duel: Duel) -> ComparisonInput:
    """Return the pair as the judge gets it, texts that stand for those of the data."""
    return ComparisonInput(duel.id, (stand_in(f"{duel.id} A"), stand_in(f"{duel.id} B")))


def tables(folder: Path) -> Iterator[Table]:
    """Compare on pairs, the ordinary and the adversarial ones."""
    items = lines(folder / "items.jsonl")
    answers: Answers = defaultdict(dict)
    for line in lines(folder / "responses_short.jsonl"):
        if line["strategy"] == STRATEGY:
            answers[line["judge"]][line["item_id"], line["order"]] = str(line["winner"])
    for title, belongs in (
        ("ordinary", lambda name: name == "LLMBar/Natural" or name.startswith("Processed/")),
        ("adversarial", lambda name: "Adversarial" in name),
    ):
        duels = [
            Duel(item["item_id"], "A" if str(item["label"]) == "1" else "B")
            for item in items
            if belongs(item["subset"])
        ]
        yield table(title, duels, answers)


def word(answers: Answers, judge: str, duel: Duel, order: str) -> str | None:
    """Return a judge's answer in one order; None if it couldn't be read."""
    return {"1": "A", "2": "B"}.get(answers[judge].get((duel.id, order.lower()), ""))


def case(duel: Duel, answers: Answers) -> Case:
    """Return a pair as `judgekit calibrate` reads it."""

    def said(judge: str) -> dict[str, Any]:
        return {
            "model": judge,
            "orders": {order: word(answers, judge, duel, order) for order in ORDERS},
        }

    judges = {
        tier: {"jury": [said(model) for model in models]} if len(models) > 1 else said(models[0])
        for tier, models in PANEL.items()
    }
    return Case.model_validate({"id": duel.id, "label": duel.right, "judges": judges})


def table(title: str, duels: Sequence[Duel], answers: Answers) -> Table:
    """Return the table of one kind of pairs; gates are learned on four fifths, reported on the last."""
    judged = Judged(duels, answers)
    results = [folded(duels, judged, answers, seed) for seed in range(SPLITS)]
    accuracy, calls = averages(results)
    strong = judged.alone("deep")
    even = sum(found >= strong - EQUAL_WITHIN for found, _ in results)
    met = accuracy >= strong and calls <= 1 if title == "ordinary" else accuracy >= strong - NEAR
    return Table(
        f"llmbar, {len(duels)} {title} pairs",
        f"Which of two outputs follows the instruction? Judges in both orders, prompt {STRATEGY}; an answer"
        " that changes with the order is a tie and earns a half.",
        f"calls of {STRONG}",
        [
            *(Row(f"{each}, both orders", both(answers, each, duels), 0.0) for each in CHEAP),
            Row(f"{STRONG}, both orders", both(answers, STRONG, duels), 2.0),
            Row("the three cheap ones as a jury, both orders", judged.alone("quick"), 0.0),
            Row(f"{STRONG} alone, compare in both orders", strong, 2.0),
            Row(
                f"compare, calibrated, excess {PROMISE.rate:.0%}",
                accuracy,
                calls,
                f"{accuracy - strong:+.3f}, not below in {even} of {SPLITS}",
            ),
        ],
        f"not below {STRONG} alone at 50 % fewer calls to it"
        if title == "ordinary"
        else f"within 1 point of {STRONG} alone",
        met,
    )


def both(answers: Answers, judge: str, duels: Sequence[Duel]) -> float:
    """Return the accuracy of one judge over both orders, each taken by itself."""
    return fmean(
        word(answers, judge, duel, order) == duel.right for duel in duels for order in ORDERS
    )


def folded(
    duels: Sequence[Duel], judged: Judged, answers: Answers, seed: int
) -> tuple[float, float]:
    """Return accuracy and strong calls an item, each fifth judged by gates learned on the others."""
    mixed = shuffled(duels, seed)
    found: list[tuple[float, float]] = []
    for fold in range(FOLDS):
        learnt = [case(duel, answers) for place, duel in enumerate(mixed) if place % FOLDS != fold]
        finality = choose_rules(
            read_samples(learnt, RUBRIC.rubric, "lenient"), TIERS, PROMISE
        ).finality
        words = judged.under(finality)
        found += [words[duel.id] for duel in mixed[fold::FOLDS]]
    return averages(found)


class Judged:
    """The judge's own answers about pairs, with replies replayed; asked once for each set of gates."""

    def __init__(self, duels: Sequence[Duel], answers: Answers) -> None:
        self._duels, self._answers = duels, answers
        self._known: dict[
            tuple[FinalityRules | None, tuple[TierName, ...]], dict[str, tuple[float, float]]
        ] = {}

    def alone(self, tier: TierName) -> float:
        """Return the accuracy of one tier's models by themselves."""
        return averages(self.under(None, (tier,)).values())[0]

    def under(
        self, finality: FinalityRules | None, tiers: tuple[TierName, ...] = TIERS
    ) -> dict[str, tuple[float, float]]:
        """Return for each pair its credit and the calls of the strong judge."""
        if (finality, tiers) not in self._known:
            with recording(self._replies()) as path:
                found = asyncio.run(self._judge(finality, tiers, path))
            self._known[finality, tiers] = {
                duel.id: (
                    _credit(duel, comparison),
                    float(sum(round_.model == STRONG for round_ in comparison.rounds)),
                )
                for duel, comparison in zip(self._duels, found, strict=True)
            }
        return self._known[finality, tiers]

    def _replies(self) -> Iterator[str]:
        for duel in self._duels:
            pair = comparison_input(duel)
            labels = {"LEFT": pair.files[0].sha256, "RIGHT": pair.files[1].sha256}
            for tier, models in PANEL.items():
                for model in models:
                    for order in ORDERS:
                        text = _text(word(self._answers, model, duel, order))
                        yield reply(
                            pair.hash_shown_texts(order),
                            RUBRIC.rubric.ref,
                            tier,
                            model,
                            text,
                            labels,
                        )

    async def _judge(
        self, finality: FinalityRules | None, tiers: Sequence[TierName], path: Path
    ) -> list[Comparison]:
        panel = {tier: tuple(endpoint(path, model) for model in PANEL[tier]) for tier in tiers}
        async with aclosing(replay.ReplayGateway()) as gateway:
            settings = JudgeSettings(
                loaded_rubric=RUBRIC, mode="lenient", models_by_tier=panel, finality=finality
            )
            judge = PairJudge(gateway, settings)
            return [await judge.judge(comparison_input(duel)) for duel in self._duels]


def _text(said: str | None) -> str:
    label: Mapping[str, str] = {"A": "LEFT", "B": "RIGHT"}
    return UNREADABLE if said is None else json.dumps({"reasoning": "", "better": label[said]})


def _credit(duel: Duel, comparison: Comparison) -> float:
    """Return 1 for the right text, a half for none, whether for a tie or for want of an answer."""
    return float(comparison.verdict == duel.right) if comparison.verdict in ("A", "B") else TIE
