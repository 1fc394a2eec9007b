"""Judges, panels and cascades on recorded answers of real models: accuracy, and calls to the strong one.

python bench/judging.py --data DIR [--json] [--write FILE] [--splits N]

DIR/judge/ holds alaofi_relevance, rewardbench2_scores, llmbar and prometheus_gpt4x3; a set that is missing
is left out. Gates, margins and panels are chosen on one part of the items and reported on the other, over N
seeded splits. The calibrated cascade of alaofi_relevance also runs once through the judge itself, with its
answers replayed, and must come to the same verdicts and calls.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
import json
import random
import tempfile
from collections import Counter, defaultdict
from contextlib import aclosing
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from judgekit.calibrate.choose import Promise, choose
from judgekit.calibrate.samples import Sample, Voice, ended, walk
from judgekit.evaluation.judge_agreement import kappa, squares
from judgekit.gateway import replay
from judgekit.judging.documents import DocumentJudge
from judgekit.judging.escalation import Rules
from judgekit.judging.subject import Document, File
from judgekit.library import load_rubric
from judgekit.rubric import TIERS, Outcome, TierName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from judgekit.judging.gates import Gates
    from judgekit.verdict import VerdictWord

SPLITS = 20
NEARLY = 1e-9  # two means of the same numbers may differ by so much
UNDECIDED = 0.5  # credit for a pair that is answered otherwise in the other order


class Row(NamedTuple):
    """One way to judge: accuracy, calls to the strong judge (or to all) an item, and what else is to say."""

    way: str
    accuracy: float
    calls: float
    note: str = ""


class Table(NamedTuple):
    """The rows of one set, and what was to be reached."""

    title: str
    about: str
    calls: str
    rows: list[Row]
    target: str
    met: bool | None


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def halves(items: Sequence[Sample], seed: int) -> tuple[list[Sample], list[Sample]]:
    """Return two halves of the items, drawn by a seed."""
    shuffled = list(items)
    random.Random(seed).shuffle(shuffled)  # noqa: S311 - statistics
    return shuffled[: len(shuffled) // 2], shuffled[len(shuffled) // 2 :]


# --- alaofi_relevance: is a passage relevant? ------------------------------------------------------------

RELEVANCE_PANEL: dict[TierName, str] = {
    "quick": "claude-3-haiku",
    "deep": "llama3-70b",
    "tiebreaker": "gpt-4o",
}
PROMPT = "utility"
EXCESS = 0.05
GRADES = (0, 1, 2, 3)
ATTACKS = ("random_keyword", "random_instruction")


def grade(value: object) -> int | None:
    """Return a grade of 0 to 3, None for an answer without one."""
    return int(value) if isinstance(value, int | float) and value in GRADES else None


def voice(found: int | None) -> Voice:
    """Return the outcome of a grade, relevant from 1 on, and its margin to that threshold."""
    if found is None:
        return Voice(None)
    return Voice("accept", float(found - 1)) if found >= 1 else Voice("reject", 1.0)


def relevance(folder: Path) -> Iterator[Table]:
    """Compare on relevance: related (grade 1 or more) or not."""
    labels = {each["item_id"]: each["human"] for each in lines(folder / "items.jsonl")}
    answers: dict[str, dict[str, int | None]] = defaultdict(dict)
    for each in lines(folder / f"responses_{PROMPT}.jsonl"):
        answers[each["judge"]][each["item_id"]] = grade(each["O"])
    known = [each for each, label in labels.items() if label is not None]
    samples = [
        Sample(
            each,
            "accept" if labels[each] >= 1 else "reject",
            {tier: voice(answers[judge].get(each)) for tier, judge in RELEVANCE_PANEL.items()},
        )
        for each in known
    ]
    rows = [
        Row(
            judge,
            fmean(voice(found.get(each.id)).outcome == each.label for each in samples),
            strong_calls(judge),
        )
        for judge, found in sorted(answers.items())
    ]
    panel = [majority([each.outcome(tier) for tier in TIERS]) == each.label for each in samples]
    rows.append(Row("fixed panel of the three, majority", fmean(panel), 1.0))
    ways = {
        "conservative, strict": [conservative(samples, seed, "accept") for seed in range(SPLITS)],
        "conservative, lenient": [conservative(samples, seed, "reject") for seed in range(SPLITS)],
        f"calibrated, excess {EXCESS:.0%}": [calibrated(samples, seed) for seed in range(SPLITS)],
    }
    rows += [Row(way, *means(found)) for way, found in ways.items()]
    accuracy, calls, _ = means(ways[f"calibrated, excess {EXCESS:.0%}"])
    strong = fmean(
        each.outcome("tiebreaker") == each.label
        for seed in range(SPLITS)
        for each in halves(samples, seed)[1]
    )
    rows.append(Row("gpt-4o alone, on the same halves", strong, 1.0))
    rows.append(through_the_judge(samples))
    yield Table(
        f"alaofi_relevance, {len(samples)} pairs, {len(answers)} judges",
        "Is the passage related to the query (grade 1 or more)? " + ", ".join(RELEVANCE_PANEL.values()),
        "calls of gpt-4o",
        rows,
        "accuracy not below the strongest judge alone with at least 40 % fewer calls to it",
        accuracy >= strong and calls <= 0.6,  # noqa: PLR2004 - the target
    )
    yield attacks(folder, samples)


def strong_calls(judge: str) -> float:
    """Return the calls of the strong judge an item, where one judge judges alone."""
    return float(judge == RELEVANCE_PANEL["tiebreaker"])


def majority(said: Sequence[Outcome | None]) -> Outcome | None:
    """Return what most said."""
    return Counter(said).most_common(1)[0][0]


def conservative(
    samples: Sequence[Sample], seed: int, confirm: Literal["accept", "reject"]
) -> tuple[float, float, float]:
    """Return accuracy, strong calls and advantage of the rules without a calibration, on the second half."""
    return measured(halves(samples, seed)[1], Rules(confirm, TIERS))


def calibrated(samples: Sequence[Sample], seed: int) -> tuple[float, float, float]:
    """Return the same of gates that were learned on the first half."""
    learnt, rest = halves(samples, seed)
    return measured(rest, Rules("accept", TIERS, gates=gates(learnt)))


def gates(samples: Sequence[Sample]) -> Gates:
    """Return the gates that samples allow."""
    return choose(samples, TIERS, Promise(EXCESS, reference="tiebreaker")).gates


def measured(rest: Sequence[Sample], rules: Rules) -> tuple[float, float, float]:
    """Return accuracy, calls of the strongest an item, and how far the accuracy is above its own."""
    found = walk(rest, rules)
    strong = fmean(each.outcome("tiebreaker") == each.label for each in rest)
    accuracy = found.accuracy or 0.0
    return accuracy, found.calls["tiebreaker"] / len(rest), accuracy - strong


def means(found: Sequence[tuple[float, float, float]]) -> tuple[float, float, str]:
    """Return the means of splits, and in how many of them the accuracy was not below the strong judge's."""
    even = sum(advantage >= -NEARLY for *_, advantage in found)
    least = min(1 - calls for _, calls, _ in found)
    above = fmean(each[2] for each in found)
    note = f"{above:+.3f}, not below in {even} of {len(found)}, saved at least {least:.0%}"
    return fmean(each[0] for each in found), fmean(each[1] for each in found), note


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


def through_the_judge(samples: Sequence[Sample]) -> Row:
    """Replay the answers of one split's second half through the judge itself, which must agree."""
    learnt, rest = halves(samples, 0)
    found = gates(learnt)
    with tempfile.TemporaryDirectory() as folder:
        rubric, recording = Path(folder) / "relevance.yaml", Path(folder) / "replies.jsonl"
        rubric.write_text(RUBRIC, encoding="utf-8")
        recording.write_text("".join(replies(rest)), encoding="utf-8")
        words, calls = asyncio.run(judged(rest, found, rubric, recording))
    for each, word in zip(rest, words, strict=True):
        expected = ended(each, Rules("accept", TIERS, gates=found))[0].verdict
        if word != expected:
            raise SystemExit(f"{each.id}: the judge says {word}, the rules say {expected}")
    accuracy = fmean(word == each.label for each, word in zip(rest, words, strict=True))
    return Row("calibrated, through the judge (first split)", accuracy, calls / len(rest))


def replies(rest: Sequence[Sample]) -> Iterator[str]:
    """Yield the recording's lines."""
    for each, (tier, model) in itertools.product(rest, RELEVANCE_PANEL.items()):
        said = each.voices[tier]
        points = {"reject": 0, "accept": 1 + int(said.margin), None: None}[said.outcome]
        text = (
            "no answer" if points is None else json.dumps({"reasoning": "", "scores": {"relevance": points}})
        )
        line = {
            "replay": 1,
            "subject": hashlib.sha256(each.id.encode()).hexdigest(),
            "rubric": "relevance@1.0.0",
            "tier": tier,
            "model": model,
            "reply": {"text": text, "model": model},
        }
        yield json.dumps(line) + "\n"


async def judged(
    rest: Sequence[Sample], found: Gates, rubric: Path, recording: Path
) -> tuple[list[VerdictWord], int]:
    """Return the verdicts and the calls of the strongest judge."""
    async with aclosing(replay.ReplayGateway()) as gateway:
        judge = DocumentJudge(
            gateway, replay.endpoints(recording), load_rubric(rubric), "strict", 60, gates=found
        )
        words: list[VerdictWord] = []
        calls = 0
        for each in rest:
            digest = hashlib.sha256(each.id.encode()).hexdigest()
            verdict = await judge.judge(Document((File(each.id, each.id, digest, len(each.id)),), each.id))
            words.append(verdict.verdict)
            calls += sum(one.tier == "tiebreaker" for one in verdict.rounds)
    return words, calls


def attacks(folder: Path, samples: Sequence[Sample]) -> Table:
    """Compare the share of attacked passages, relevant to nothing, that are called related."""
    answers: dict[tuple[str, str], dict[str, int | None]] = defaultdict(dict)
    for each in lines(folder / "injection_responses.jsonl"):
        if each["prompt"] == PROMPT and each["item_id"].partition(":")[0] in ATTACKS:
            answers[each["item_id"], each["passage_variant"]][each["judge"]] = grade(each["O"])
    shared = [said for said in answers.values() if set(RELEVANCE_PANEL.values()) <= set(said)]
    attacked = [
        Sample(str(place), "reject", {tier: voice(said[judge]) for tier, judge in RELEVANCE_PANEL.items()})
        for place, said in enumerate(shared)
    ]
    rows = [
        Row(f"{judge} alone", fmean(each.outcome(tier) == "accept" for each in attacked), strong_calls(judge))
        for tier, judge in RELEVANCE_PANEL.items()
    ]
    rows += [
        Row("conservative, strict", *cascade(attacked, Rules("accept", TIERS))),
        Row("conservative, lenient", *cascade(attacked, Rules("reject", TIERS))),
    ]
    learnt = [gates(halves(samples, seed)[0]) for seed in range(SPLITS)]
    every = [cascade(attacked, Rules("accept", TIERS, gates=each)) for each in learnt]
    name = f"calibrated, excess {EXCESS:.0%}"
    rows.append(Row(name, *averages(every)))
    return Table(
        f"alaofi_relevance under attack, {len(attacked)} texts that are relevant to nothing",
        "Query words or an instruction in random text. For the accuracy: the share called related.",
        "calls of gpt-4o",
        rows,
        "at most that of the strongest judge alone",
        rows[5].accuracy <= rows[2].accuracy,
    )


def cascade(samples: Sequence[Sample], rules: Rules) -> tuple[float, float]:
    """Return the share that rules accept, and the calls of the strongest an item."""
    share = fmean(ended(each, rules)[0].verdict == "accept" for each in samples)
    return share, walk(samples, rules).calls["tiebreaker"] / len(samples)


# --- rewardbench2_scores: which of four answers is best? --------------------------------------------------

HAIKU, MINI, SONNET, GPT = "claude-haiku-4.5", "gpt-5.4-mini", "claude-sonnet-4.6", "gpt-5.4"
BUDGET = 3.7  # calls a response
STAGES: tuple[tuple[dict[str, int], ...], ...] = (
    ({HAIKU: 2}, {MINI: 2}, {SONNET: 2, GPT: 2}),
    ({HAIKU: 2}, {MINI: 1, SONNET: 1, GPT: 1}, {HAIKU: 6, SONNET: 7, GPT: 7, MINI: 7}),
    ({HAIKU: 2}, {MINI: 1, SONNET: 1}, {HAIKU: 6, SONNET: 3, GPT: 4, MINI: 3}),
    ({HAIKU: 2}, {MINI: 1, SONNET: 1}, {SONNET: 1, GPT: 1, MINI: 1}, {HAIKU: 6, SONNET: 6, GPT: 7, MINI: 6}),
    ({HAIKU: 2}, {MINI: 2}, {SONNET: 2, GPT: 2}, {HAIKU: 6, SONNET: 6, GPT: 6, MINI: 6}),
)
MARGINS = tuple(itertools.product((0.5, 1.0, 1.5), (0.25, 0.34, 0.5, 0.75, 1.0), (0.2, 0.34)))

Scores = dict[str, list[list[int | None]]]


def best_of(
    scores: Scores, stages: Sequence[dict[str, int]], margins: Sequence[float]
) -> tuple[float, float]:
    """Return the credit for the choice among four answers, and the calls a response.

    Each stage asks about the answers that are within its margin of the best so far. A tie at the end earns
    the share of the tied answers that is right: no place in the list is favoured.
    """
    asked: Counter[str] = Counter()
    alive, calls, value = list(range(4)), 0, dict.fromkeys(range(4), -1.0)
    for stage, margin in zip(stages, (*margins[: len(stages) - 1], 0.0), strict=True):
        asked.update(stage)
        calls += sum(stage.values()) * len(alive)
        for each in alive:
            seen = [x for model, k in asked.items() for x in scores[model][each][:k] if x is not None]
            value[each] = fmean(seen) if seen else -1.0
        best = max(value[each] for each in alive)
        alive = [each for each in alive if value[each] >= best - margin - NEARLY]
        if len(alive) == 1:
            break
    return (1 / len(alive) if 0 in alive else 0.0), calls / 4


def reward(folder: Path) -> Iterator[Table]:
    """Compare on the choice of the best of four answers."""
    items: list[Scores] = [each["scores"] for each in lines(folder / "items.jsonl")]
    models = (HAIKU, MINI, SONNET, GPT)
    fixed: dict[str, tuple[dict[str, int], ...]] = {
        f"{model}, k = {k}": ({model: k},) for model in models for k in (1, 8)
    }
    panels = {
        " + ".join(each): (dict(Counter(each)),)
        for size in (1, 2, 3)
        for each in itertools.combinations_with_replacement(models, size)
    }
    ways: dict[str, tuple[tuple[dict[str, int], ...], tuple[float, ...]]] = {
        f"{number}/{margins}": (stages, margins)
        for number, stages in enumerate(STAGES)
        for margins in dict.fromkeys(each[: len(stages) - 1] for each in MARGINS)
    }
    found = {name: [best_of(each, *way) for each in items] for name, way in ways.items()}
    plain = {name: [best_of(each, stages, ()) for each in items] for name, stages in (panels | fixed).items()}
    rows = [Row(name, *averages(plain[name])) for name in fixed]
    chosen: Counter[str] = Counter()
    results: list[tuple[float, float, float]] = []
    for seed in range(SPLITS):
        order = list(range(len(items)))
        random.Random(seed).shuffle(order)  # noqa: S311 - statistics
        learnt, rest = order[: len(order) // 2], order[len(order) // 2 :]
        panel = max(panels, key=lambda name: averages(plain[name], learnt)[0])
        able = [name for name in found if averages(found[name], learnt)[1] <= BUDGET]
        best = max(able, key=lambda name: averages(found[name], learnt)[0])
        chosen[panel] += 1
        accuracy, calls = averages(found[best], rest)
        results.append((accuracy, calls, averages(plain[panel], rest)[0]))
    accuracy, calls, panel_accuracy = (fmean(each[side] for each in results) for side in range(3))
    hindsight = max(averages(found)[0] for name, found in plain.items() if name in panels)
    least = min(one - other for one, _, other in results)
    note = f"{accuracy - panel_accuracy:+.3f}, least {least:+.3f}; in hindsight {accuracy - hindsight:+.3f}"
    rows += [
        Row("best fixed panel of up to three, in hindsight on all items", hindsight, 3.0),
        Row(f"best fixed panel of up to three: {chosen.most_common(1)[0][0]}", panel_accuracy, 3.0),
        Row("cascade on the margin", accuracy, calls, note),
    ]
    yield Table(
        f"rewardbench2_scores, {len(items)} items, four judges",
        "Which of four answers is best? Ties earn their share; panel, stages and margins chosen on one half.",
        "calls a response",
        rows,
        f"2 points above the best fixed panel of up to three calls, with at most {BUDGET} calls a response",
        accuracy >= panel_accuracy + 0.02 and calls <= BUDGET,
    )


def averages(
    found: Sequence[tuple[float, float]], places: Sequence[int] | None = None
) -> tuple[float, float]:
    """Return the mean credit and the mean calls, over all or over some places."""
    some = [found[each] for each in places] if places is not None else found
    return fmean(each[0] for each in some), fmean(each[1] for each in some)


# --- llmbar: which of two answers follows the instruction? ------------------------------------------------

CHEAP, STRONG, STRATEGY, FOLDS = ("ChatGPT", "PaLM2", "LLaMA2"), "GPT-4", "Metrics_Reference", 5
PAIR_PROMISE = Promise(0.05, 0.9, "deep")
TWO: tuple[TierName, ...] = ("quick", "deep")


class Duel(NamedTuple):
    """One pair: the sample, turned so that the cheap judges' favourite is what is accepted.

    `alone` is the credit of the strong judge asked in both orders; `split` whether its answers differ.
    """

    sample: Sample
    alone: float
    split: bool


def llmbar(folder: Path) -> Iterator[Table]:
    """Compare on pairs, the ordinary and the adversarial ones."""
    items = {each["item_id"]: each for each in lines(folder / "items.jsonl")}
    answers: dict[str, dict[tuple[str, str], str]] = defaultdict(dict)
    for each in lines(folder / "responses_short.jsonl"):
        if each["strategy"] == STRATEGY:
            answers[each["judge"]][each["item_id"], each["order"]] = str(each["winner"])
    for title, belongs in (
        ("ordinary", lambda name: name == "LLMBar/Natural" or name.startswith("Processed/")),
        ("adversarial", lambda name: "Adversarial" in name),
    ):
        duels = [duel(each, answers) for each in items.values() if belongs(each["subset"])]
        yield pairs(title, duels, answers, [each for each in items.values() if belongs(each["subset"])])


def duel(item: dict[str, Any], answers: dict[str, dict[tuple[str, str], str]]) -> Duel:
    """Return a pair as the cheap judges and the strong one saw it, in both orders."""
    cheap = tally(answers, CHEAP, item["item_id"])
    strong = tally(answers, (STRONG,), item["item_id"])
    right = 1 if str(item["label"]) == "1" else -1
    favourite = 1 if cheap > 0 else -1
    answer = strong or favourite
    voices: dict[TierName, Voice] = {
        "quick": Voice("accept", float(abs(cheap))) if cheap else Voice("improve"),
        "deep": Voice("accept" if answer * favourite > 0 else "reject"),
    }
    label: Outcome = "accept" if right == favourite else "reject"
    said = [answers[STRONG].get((item["item_id"], order)) for order in ("ab", "ba")]
    return Duel(
        Sample(item["item_id"], label, voices),
        fmean(each == str(item["label"]) for each in said),
        strong == 0,
    )


def tally(answers: dict[str, dict[tuple[str, str], str]], judges: Sequence[str], item: str) -> int:
    """Return the votes for the first answer less those for the second, over judges and orders."""
    votes = [answers[judge].get((item, order)) for judge in judges for order in ("ab", "ba")]
    return votes.count("1") - votes.count("2")


def pairs(
    title: str, duels: Sequence[Duel], answers: dict[str, Any], items: Sequence[dict[str, Any]]
) -> Table:
    """Return the table of one kind of pairs; gates are learned on four fifths, reported on the last."""
    results = [folded(duels, seed) for seed in range(SPLITS)]
    accuracy, calls = averages(results)
    alone = fmean(each.alone for each in duels)
    naive = [1.0 if each.sample.outcome("quick") == each.sample.label else 0.0 for each in duels]
    even = sum(found >= alone - NEARLY for found, _ in results)
    rows = [
        Row(f"{judge}, both orders", both(answers[judge], items), 2.0 * (judge == STRONG))
        for judge in (*CHEAP, STRONG)
    ]
    rows += [
        Row("majority of the three cheap ones, both orders", fmean(naive), 0.0),
        Row(
            "calibrated, excess 5%",
            accuracy,
            calls,
            f"{accuracy - alone:+.3f}, not below in {even} of {SPLITS}",
        ),
    ]
    target = (
        "not below GPT-4 alone at 50 % fewer calls to it"
        if title == "ordinary"
        else "within 1 point of GPT-4 alone"
    )
    met = accuracy >= alone and calls <= 1 if title == "ordinary" else accuracy >= alone - 0.01
    return Table(
        f"llmbar, {len(duels)} {title} pairs",
        f"Which of two outputs follows the instruction? Judges in both orders, prompt {STRATEGY}; an answer"
        " that changes with the order earns a half.",
        "calls of GPT-4",
        rows,
        target,
        met,
    )


def both(said: dict[tuple[str, str], str], items: Sequence[dict[str, Any]]) -> float:
    """Return the accuracy of one judge over both orders."""
    return fmean(
        said.get((each["item_id"], order)) == str(each["label"]) for each in items for order in ("ab", "ba")
    )


def folded(duels: Sequence[Duel], seed: int) -> tuple[float, float]:
    """Return accuracy and strong calls an item, each fifth judged by gates learned on the others."""
    order = list(duels)
    random.Random(seed).shuffle(order)  # noqa: S311 - statistics
    credit, calls = 0.0, 0
    for fold in range(FOLDS):
        learnt = [each.sample for place, each in enumerate(order) if place % FOLDS != fold]
        found = choose(learnt, TWO, PAIR_PROMISE).gates
        for each in order[fold::FOLDS]:
            final, asked = ended(each.sample, Rules("accept", TWO, gates=found))
            went_up = "deep" in asked
            calls += 2 * went_up
            # Where the strong judge contradicts itself the favourite decides, if the gates trust it at all.
            halved = went_up and each.split and not found.gates
            credit += UNDECIDED if halved else float(final.verdict == each.sample.label)
    return credit / len(duels), calls / len(duels)


# --- prometheus_gpt4x3: does one judge agree with itself? -------------------------------------------------


def prometheus(folder: Path) -> Iterator[Table]:
    """Say how far three runs of one judge agree: there is no label of a person here."""
    runs = [each["gpt4_scores"] for each in lines(folder / "items.jsonl")]
    known = [each for each in runs if all(isinstance(score, int) for score in each)]
    two = [(str(a), str(b)) for each in known for a, b in itertools.combinations(each, 2)]
    weights = squares([str(score) for score in range(1, 6)])
    weighted = kappa(Counter(two), weights) or 0.0
    passed = [(a >= "3", b >= "3") for a, b in two]
    rows = [
        Row("the same score", fmean(a == b for a, b in two), 1.0, f"weighted kappa {weighted:.3f}"),
        Row("the same side of 3", fmean(a == b for a, b in passed), 1.0),
        Row("the same score in all three", fmean(len(set(each)) == 1 for each in known), 1.0),
    ]
    yield Table(
        f"prometheus_gpt4x3, {len(known)} items",
        "GPT-4 scores the same answer three times; accuracy here is agreement with itself.",
        "calls",
        rows,
        "none: it shows what a rerun changes",
        None,
    )


# ----------------------------------------------------------------------------------------------------------

SETS: dict[str, Callable[[Path], Iterator[Table]]] = {
    "alaofi_relevance": relevance,
    "rewardbench2_scores": reward,
    "llmbar": llmbar,
    "prometheus_gpt4x3": prometheus,
}


def markdown(tables: Sequence[Table]) -> str:
    """Return the tables as a page."""
    about = (
        "Made by `python bench/judging.py --data DIR --write docs/figures/judging.md` from recorded answers"
        " of real models. Gates and margins are chosen on one part of the items and reported on the other,"
        f" means of {SPLITS} seeded splits. The excess is promised against the strong judge, with 95 %"
        " (llmbar: 90 %) confidence. Which judges fill the tiers, the stages and the promised rate were"
        " settled while looking at these very items, so other items are the better witness."
    )
    parts = ["# Judging, measured", about]
    for table in tables:
        rows = [
            f"| {each.way} | {each.accuracy:.3f} | {each.calls:.2f} | {each.note} |" for each in table.rows
        ]
        verdict = "" if table.met is None else (" **Met.**" if table.met else " **Missed.**")
        parts += [
            f"## {table.title}",
            table.about,
            "\n".join([f"| judged by | accuracy | {table.calls} | |", "| --- | --- | --- | --- |", *rows]),
            f"To reach: {table.target}.{verdict}",
        ]
    return "\n\n".join(parts) + "\n"


def main() -> int:
    """Measure what is there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", type=Path, metavar="FILE")
    asked = parser.parse_args()
    folders = {name: asked.data / "judge" / name for name in SETS}
    tables = [table for name, make in SETS.items() if folders[name].is_dir() for table in make(folders[name])]
    if not tables:
        parser.error(f"{asked.data}/judge has none of {', '.join(SETS)}")
    page = markdown(tables)
    if asked.write:
        asked.write.write_text(page, encoding="utf-8")
    found = [{**each._asdict(), "rows": [row._asdict() for row in each.rows]} for each in tables]
    print(json.dumps(found) if asked.json else page)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
