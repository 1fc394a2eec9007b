"""rewardbench2_scores: the best of four answers."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from contextlib import aclosing
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.judged.margins import Ranked, credit, grid, learn, walk
from bench.judged.recorded import endpoint, recording, reply, rubric_of, scored, stand_in
from bench.judged.tables import SPLITS, Row, Table, averages, halves, lines
from judgekit.config import TIERS, TierName
from judgekit.judging.documents import LETTERS, ComparisonInput
from judgekit.judging.ranking import RankingJudge
from judgekit.judging.settings import JudgeSettings
from judgekit.judging.standing import Voter
from judgekit.providers import replay

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from judgekit.judging.standing import Margins
    from judgekit.judging.verdict import Comparison

HAIKU, MINI, SONNET, GPT = "claude-haiku-4.5", "gpt-5.4-mini", "claude-sonnet-4.6", "gpt-5.4"
MODELS = (HAIKU, MINI, SONNET, GPT)
AGAIN = " once more"
"""Behind the name of a model of the tiebreaker: samples that it gave besides those of the other tiers.

A judge does not ask those again that it heard.
"""
BUDGET = 3.7  # calls a response
ABOVE = 0.02
SAMPLES = 8
ANSWERS = LETTERS[:4]
# The best cheap judge twice, then each judge once, then all that is left of everyone.
PANEL: dict[TierName, dict[str, int]] = {
    "quick": {HAIKU: 2},
    "deep": dict.fromkeys(MODELS, 1),
    "tiebreaker": {
        f"{name}{AGAIN}": k for name, k in ((HAIKU, 5), (MINI, 7), (SONNET, 7), (GPT, 7))
    },
}
MARGINS = grid({"quick": (0.5, 1.0, 1.5, 2.0), "deep": (0.1, 0.2, 0.25, 0.34, 0.5, 0.75)})
RUBRIC = """\
rubric: best-of-four
version: 1.0.0
task: score
title: How good is an answer?
scale: {min: 1, max: 10, labels: {1: a, 2: b, 3: c, 4: d, 5: e, 6: f, 7: g, 8: h, 9: i, 10: j}}
dimensions: {quality: {question: How good is the answer?}}
modes:
  strict: {accept: {each: 6}, reject: {any_below: 4}, confirm: accept}
  lenient: {accept: {each: 6}, reject: {any_below: 4}, confirm: reject}
prompt: {system: You judge., instructions: {quick: Rate it., deep: Rate it., tiebreaker: Rate it.}}
"""

Scores = dict[str, list[list[int | None]]]


class Item(NamedTuple):
    """One prompt with four answers, as the panel scores them; `scores` is all that is recorded."""

    ranked: Ranked
    scores: Scores


def item(line: dict[str, Any], place: int) -> Item:
    """Return a line of the data; each tier gets the samples that follow those of the tier before."""
    scores: Scores = line["scores"]
    used: Counter[str] = Counter()
    said: dict[TierName, dict[Voter, dict[str, list[float]]]] = {}
    for tier, models in PANEL.items():
        said[tier] = {}
        for model, count in models.items():
            name = model.removesuffix(AGAIN)
            first, used[name] = used[name], used[name] + count
            said[tier][_voice(model)] = {
                letter: [float(x) for x in given[first : first + count] if x is not None]
                for letter, given in zip(ANSWERS, scores[name], strict=True)
            }
    return Item(Ranked(f"{line['item_id']} {place}", ANSWERS[line["gold"]], said), scores)


def _voice(model: str) -> Voter:
    return Voter(model, model)  # of four companies


def tables(folder: Path) -> Iterator[Table]:
    """Compare on the choice of the best of four answers."""
    items = [item(each, place) for place, each in enumerate(lines(folder / "items.jsonl"))]
    panels = {
        each: {one.ranked.id: panel_credit(one, Counter(each)) for one in items}
        for size in (1, 2, 3)
        for each in itertools.combinations_with_replacement(MODELS, size)
    }
    judged = Judged([each.ranked for each in items])
    results: list[tuple[float, float, float]] = []
    chosen: Counter[tuple[str, ...]] = Counter()
    for seed in range(SPLITS):
        learnt, rest = halves(items, seed)
        panel = max(panels, key=lambda name: fmean(panels[name][each.ranked.id] for each in learnt))
        chosen[panel] += 1
        learned = learn([each.ranked for each in learnt], MARGINS, "lenient", BUDGET)
        if learned is None:
            raise SystemExit(f"no margins keep within {BUDGET} calls a response")
        found = judged.under(learned.margins)
        accuracy, calls = averages(found[each.ranked.id] for each in rest)
        results.append((accuracy, calls, fmean(panels[panel][each.ranked.id] for each in rest)))
    accuracy, calls, panel_accuracy = (
        fmean(result[side] for result in results) for side in range(3)
    )
    hindsight = max(fmean(found.values()) for found in panels.values())
    least = min(one - other for one, _, other in results)
    note = f"{accuracy - panel_accuracy:+.3f}, least {least:+.3f}; in hindsight {accuracy - hindsight:+.3f}"
    best = " + ".join(chosen.most_common(1)[0][0])
    yield Table(
        f"rewardbench2_scores, {len(items)} items, four judges",
        "Which of four answers is best? Ties earn their share; fixed panel and margins chosen on one half.",
        "calls a response",
        [
            *(
                Row(f"{model}, k = {k}", *alone(items, model, k))
                for model in MODELS
                for k in (1, SAMPLES)
            ),
            Row("best fixed panel of up to three, in hindsight on all items", hindsight, 3.0),
            Row(f"best fixed panel of up to three: {best}", panel_accuracy, 3.0),
            Row("compare, the rubric's margins chosen so", accuracy, calls, note),
        ],
        f"2 points above the best fixed panel of up to three calls, with at most {BUDGET} calls a response",
        accuracy >= panel_accuracy + ABOVE and calls <= BUDGET,
    )


def panel_credit(one: Item, panel: Mapping[str, int]) -> float:
    """Return the credit of the mean of some samples of some models."""
    means = {letter: _mean(one.scores, place, panel) for place, letter in enumerate(ANSWERS)}
    best = max(means.values())
    near = [letter for letter, value in means.items() if value == best]
    return 1 / len(near) if one.ranked.best in near else 0.0


def _mean(scores: Scores, place: int, panel: Mapping[str, int]) -> float:
    seen = [x for model, k in panel.items() for x in scores[model][place][:k] if x is not None]
    return round(fmean(seen), 9) if seen else 0.0


def alone(items: Sequence[Item], model: str, k: int) -> tuple[float, float]:
    """Return the accuracy of one model asked k times, and its calls."""
    return fmean(panel_credit(each, {model: k}) for each in items), float(k)


class Judged:
    """The judge's own answers about items, asked once for each set of margins."""

    def __init__(self, items: Sequence[Ranked]) -> None:
        self._items = items
        self._known: dict[str, dict[str, tuple[float, float]]] = {}

    def under(self, margins: Margins) -> dict[str, tuple[float, float]]:
        """Return for each item its credit and the calls a response; a tie earns the share of those that tie.

        Exits if the judge and the rule by which the margins were learned differ.
        """
        key = str(margins)
        if key not in self._known:
            with recording(self._replies()) as path:
                found = asyncio.run(self._judge(margins, path))
            self._known[key] = {
                ranked.id: self._credit(ranked, comparison, margins)
                for ranked, comparison in zip(self._items, found, strict=True)
            }
        return self._known[key]

    def _credit(
        self, each: Ranked, comparison: Comparison, margins: Margins
    ) -> tuple[float, float]:
        expected = walk(each, margins, "lenient")
        winner = expected.leaders[0] if len(expected.leaders) == 1 else "tie"
        if comparison.verdict != (winner if expected.leaders else "undetermined"):
            raise SystemExit(
                f"{each.id}: the judge says {comparison.verdict}, the rule says {winner}"
            )
        return credit(each, expected), len(comparison.rounds) / len(ANSWERS)

    def _replies(self) -> Iterator[str]:
        for ranked in self._items:
            for tier, models in PANEL.items():
                for model, count in models.items():
                    for letter in ANSWERS:
                        given = ranked.said[tier][_voice(model)][letter]
                        subject = stand_in(f"{ranked.id} {letter}").sha256
                        for place in range(count):
                            value = given[place] if place < len(given) else None
                            yield reply(
                                subject, "best-of-four@1.0.0", tier, model, scored(value, "quality")
                            )

    async def _judge(self, margins: Margins, path: Path) -> list[Comparison]:
        panel = {
            tier: tuple(
                endpoint(path, model) for model, count in PANEL[tier].items() for _ in range(count)
            )
            for tier in TIERS
        }
        async with aclosing(replay.ReplayGateway()) as gateway:
            told = ", ".join(f"{tier}: {margin}" for tier, margin in margins.items())
            loaded = rubric_of(f"{RUBRIC}margins: {{{told}}}\n")
            settings = JudgeSettings(
                loaded_rubric=loaded, mode="lenient", models_by_tier=panel, timeout=600
            )
            judge = RankingJudge(gateway, settings)
            return [
                await judge.judge(
                    ComparisonInput(
                        "Answer.", tuple(stand_in(f"{each.id} {letter}") for letter in ANSWERS)
                    )
                )
                for each in self._items
            ]
