"""How far to trust a decision model before a strong judge, by labels and by fixed thresholds.

python bench/decide.py --data DIR [--json] [--write FILE] [--local FILE] [--record N]

DIR/judge/alaofi_relevance has pairs of a query and a passage, and what real judges answered. Two stand-ins
give the probability that a passage is relevant, before the recorded gpt-4o: a local model of 1.5B, asked for
one token (`--local` has its answers by pair, and `--record` asks for N of them first), and the share of five
cheap judges that say yes. What may be final is learned on one half of the pairs and measured on the other, in
ten splits, beside fixed thresholds: what is surer than the threshold is final, the rest goes to gpt-4o. A
third stand-in has known probabilities, and labels drawn by them: there the best threshold is known, too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
from collections import defaultdict
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.judged.relevance import grade
from bench.judged.tables import SPLITS, halves, lines, shuffled
from judgekit.evaluation.calibrate import choose_rules
from judgekit.evaluation.samples import Sample, walk
from judgekit.judging.calibration import Promise
from judgekit.judging.evidence import TierEvidence
from judgekit.judging.pointwise import PointwiseQuestions, ask_pointwise
from judgekit.judging.round import Session
from judgekit.judging.steps import EscalationRules
from judgekit.providers.base import CallKey
from judgekit.providers.gateway import open_gateway
from judgekit.providers.resolve import PanelRequest, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from judgekit.config import Outcome

STRONG = "gpt-4o"
CHEAP = ("claude-3-haiku", "command-r", "gpt-3.5-turbo-1106", "llama3-8b", "command-r-plus")
LOCAL_MODEL = "qwen2.5-coder-1.5b"
RECORDED = Path(__file__).parent / "judged" / "relevance-local.jsonl"
EXCESS = 0.05
FIXED = (0.5, 0.7, 0.9)
KNOWN = (150, 500, 2_000, 20_000)  # labels if probabilities are known
FRESH = 20_000  # further pairs, to measure on
QUESTION = "Is the passage relevant to the query? Answer with one word, yes or no."
_SECONDS = 120.0

PAGE = """\
# Decision models before a strong judge

Made by `python bench/decide.py --data DIR --write docs/figures/decide.md`, {when}. Pairs of a query and a
passage with human labels (relevant or not) and recorded answers of gpt-4o. What a stand-in for a decision
model may decide alone is learned on one half of the pairs, with a promise of at most {excess:.0%} more errors
than gpt-4o at 95 % confidence, and measured on the other half; means of {splits} splits. With a fixed
threshold, what is surer is final. *Decided at quick*: the pairs that never reach
gpt-4o; the last column is what that saves of its cost.

{tables}
"""


class Pair(NamedTuple):
    """One pair: the probability of yes, the label, the strong judge's outcome, and its cost."""

    id: str
    yes: float
    label: Outcome
    strong: Outcome | None
    cost_usd: float

    @property
    def sample(self) -> Sample:
        outcome: Outcome = "accept" if self.yes >= 0.5 else "reject"  # noqa: PLR2004 - even odds
        leaning = round(self.yes - 0.5, 4)
        quick = TierEvidence(outcome, abs(leaning), leaning=leaning)
        voices = {"quick": quick, "deep": TierEvidence(self.strong, 1.0)}
        return Sample(self.id, self.label, voices, has_binary_labels=True)  # type: ignore[arg-type]  # names of tiers


class Way(NamedTuple):
    """One way to judge on the second half: accuracy, share decided at quick, US dollars saved of the cost."""

    accuracy: float
    decided: float
    saved: float


def auc(pairs: Sequence[Pair]) -> float:
    """Return the share of pairs whose relevant passage is likelier than the other one; ties count half."""
    good = sorted(pair.yes for pair in pairs if pair.label == "accept")
    bad = sorted(pair.yes for pair in pairs if pair.label == "reject")
    wins = 0.0
    for yes in good:
        wins += sum(other < yes for other in bad) + sum(other == yes for other in bad) / 2
    return wins / (len(good) * len(bad))


def by_strong(pairs: Sequence[Pair]) -> Way:
    return Way(fmean(pair.strong == pair.label for pair in pairs), 0.0, 0.0)


def by_threshold(pairs: Sequence[Pair], threshold: float) -> Way:
    """Judge with every opinion final that is surer than a threshold."""
    right = 0
    final = []
    for pair in pairs:
        is_sure = max(pair.yes, 1 - pair.yes) > threshold
        if is_sure:
            final.append(pair)
        outcome = pair.sample.outcome("quick") if is_sure else pair.strong
        right += outcome == pair.label
    return _way(pairs, right, final)


def by_labels(pairs: Sequence[Pair], rules: EscalationRules) -> Way:
    """Judge with the gates that labels allow."""
    right = 0
    final = []
    for pair in pairs:
        walked = walk(pair.sample, rules)
        right += walked.is_right is True
        if walked.is_ended_by_gate:
            final.append(pair)
    return _way(pairs, right, final)


def _way(pairs: Sequence[Pair], right: int, final: Sequence[Pair]) -> Way:
    cost = sum(pair.cost_usd for pair in pairs)
    saved = sum(pair.cost_usd for pair in final) / cost if cost else 0.0
    return Way(right / len(pairs), len(final) / len(pairs), saved)


def learned(pairs: Sequence[Pair]) -> EscalationRules:
    """Return the rules that these labels allow; without any gate all goes to the strong judge."""
    promise = Promise(rate=EXCESS, confidence=0.95, reference="deep")
    choice = choose_rules([pair.sample for pair in pairs], ("quick", "deep"), promise)
    return EscalationRules("accept", ("quick", "deep"), finality=choice.finality)


def table(title: str, pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return the figures of one stand-in."""
    ways: dict[str, list[Way]] = defaultdict(list)
    kept = 0
    empty = 0
    for seed in range(SPLITS):
        some, rest = halves(pairs, seed)
        strong = by_strong(rest)
        rules = learned(some)
        own = by_labels(rest, rules)
        empty += not (rules.finality and rules.finality.rules)
        kept += own.accuracy >= strong.accuracy - EXCESS
        ways["learned from labels"].append(own)
        for threshold in FIXED:
            ways[f"fixed at {threshold:g}"].append(by_threshold(rest, threshold))
        ways[f"{STRONG} alone"].append(strong)
    rows = {name: Way(*map(fmean, zip(*found, strict=True))) for name, found in ways.items()}
    return {
        "title": title,
        "pairs": len(pairs),
        "auc": auc(pairs),
        "kept": kept,
        "empty": empty,
        "rows": {name: way._asdict() for name, way in rows.items()},
    }


# --- The stand-ins


def strong_answers(folder: Path) -> Iterator[Pair]:
    """Yield the labelled pairs with the strong judge's outcome; the probability isn't known yet."""
    answers = {}
    for line in lines(folder / "responses_utility.jsonl"):
        if line["judge"] == STRONG:
            answers[line["item_id"]] = (grade(line["O"]), line.get("cost_usd") or 0.0)
    for item in lines(folder / "items.jsonl"):
        if item["human"] is None or item["item_id"] not in answers:
            continue
        found, cost = answers[item["item_id"]]
        strong: Outcome | None = None
        if found is not None:
            strong = "accept" if found >= 1 else "reject"
        label: Outcome = "accept" if item["human"] >= 1 else "reject"
        yield Pair(item["item_id"], 0.5, label, strong, cost)


def by_five(folder: Path) -> list[Pair]:
    """Return pairs with the share of five cheap judges that say yes, asked for one number."""
    said: dict[str, list[bool]] = defaultdict(list)
    for line in lines(folder / "responses_basic.jsonl"):
        found = grade(line["O"])
        if line["judge"] in CHEAP and found is not None:
            said[line["item_id"]].append(found >= 1)
    pairs = strong_answers(folder)
    return [pair._replace(yes=fmean(said[pair.id])) for pair in pairs if said[pair.id]]


def recorded_pairs(file: Path) -> dict[str, float]:
    """Return the recorded probabilities of yes by pair; empty if there's no file."""
    if not file.is_file():
        return {}
    return {line["item_id"]: line["yes"] for line in lines(file)}


def append(file: Path, item_id: str, yes: float) -> None:
    with file.open("a", encoding="utf-8") as recording:
        recording.write(json.dumps({"item_id": item_id, "yes": yes}) + "\n")


def by_local(folder: Path, recorded: Path) -> list[Pair]:
    """Return the pairs that a local model was asked about."""
    yes = recorded_pairs(recorded)
    return [pair._replace(yes=yes[pair.id]) for pair in strong_answers(folder) if pair.id in yes]


def with_known_probabilities(count: int, seed: int) -> list[Pair]:
    """Return pairs whose labels are drawn by their probabilities, half of which are near 0 or 1."""
    chance = random.Random(seed)  # noqa: S311 - a simulation
    pairs = []
    for number in range(count):
        yes = chance.betavariate(0.5, 0.5)
        label: Outcome = "accept" if chance.random() < yes else "reject"
        pairs.append(Pair(f"known-{number}", yes, label, label, 0.0))
    return pairs


def in_hindsight(pairs: Sequence[Pair]) -> float:
    """Return the share that the best thresholds decide: the widest whose expected errors keep the promise."""
    best = 0.0
    for side in ("accept", "reject"):
        chances = [pair.yes if side == "accept" else 1 - pair.yes for pair in pairs]
        expected = 0.0
        widest = 0
        for count, chance in enumerate(sorted(chances, reverse=True), 1):
            expected += 1 - chance
            if expected <= EXCESS * count:
                widest = count
        best += widest / len(pairs)
    return best


def known_table() -> list[dict[str, float]]:
    """Return for some numbers of labels the share that is decided at the promised rate, and its errors."""
    rows = []
    promise = Promise(rate=EXCESS, confidence=0.95)
    fresh = with_known_probabilities(FRESH, seed=0)
    for labels in KNOWN:
        shares = []
        errors = []
        for seed in range(1, SPLITS + 1):
            some = [pair.sample for pair in with_known_probabilities(labels, seed)]
            rules = choose_rules(some, ("quick", "deep"), promise).finality
            final = []
            for pair in fresh:
                outcome = rules.find_decided_outcome("quick", pair.sample.leanings)
                if outcome is not None:
                    final.append(outcome == pair.label)
            shares.append(len(final) / len(fresh))
            errors.append(1 - fmean(final) if final else 0.0)
        rows.append({"labels": labels, "decided": fmean(shares), "wrong": fmean(errors)})
    return rows


async def ask_local(folder: Path, most: int, recorded: Path) -> None:
    """Append the local model's probability of yes for up to `most` pairs that are not recorded yet."""
    known = recorded_pairs(recorded)
    environ = {**os.environ, "JUDGEKIT_LOCAL_MODEL": LOCAL_MODEL}
    (endpoint,) = resolve(PanelRequest(allowed_providers=["local"]), environ).endpoints["quick"]
    items = shuffled(lines(folder / "items.jsonl"), 0)
    async with aclosing(open_gateway({})) as gateway:
        for item in items:
            if item["human"] is None or item["item_id"] in known:
                continue
            if len(known) >= most:
                break
            points = PointwiseQuestions(
                system="You decide whether a passage answers a query.",
                context=f"Query: {item['query']}\n\nPassage: {item['passage']}",
                questions={"relevant": QUESTION},
                tokens=("yes", "no"),
                call_key=CallKey(item["item_id"], "relevance@1.0.0", "quick"),
            )
            answer = await ask_pointwise(Session(gateway, _SECONDS), endpoint, points, _SECONDS)
            if answer.value is None:
                print(f"{item['item_id']}: {answer.failure}", file=sys.stderr)
                continue
            known[item["item_id"]] = round(answer.value["relevant"]["yes"], 4)
            append(recorded, item["item_id"], known[item["item_id"]])


# --- The page


def page_of(
    figures: Sequence[Mapping[str, Any]], known: Sequence[Mapping[str, float]], best: float
) -> str:
    parts = [table_text(found) for found in figures]
    rows = ["| labels | decided at quick | wrong of these |", "| --- | --- | --- |"]
    for row in known:
        rows.append(f"| {row['labels']:,} | {row['decided']:.1%} | {row['wrong']:.1%} |")
    about = f"Promised: at most {EXCESS:.0%} of what is final is wrong; measured on {FRESH:,} other pairs."
    hindsight = (
        f"The best thresholds in hindsight, by the probabilities themselves, decide {best:.1%}."
    )
    parts.append("\n".join(["## Known probabilities", "", about, hindsight, "", *rows]))
    when = datetime.now(UTC).date()
    tables = "\n\n".join(parts)
    return PAGE.format(when=when, excess=EXCESS, splits=SPLITS, tables=tables)


def table_text(found: Mapping[str, Any]) -> str:
    columns = ["judged by", "accuracy", "decided at quick", "saved of the cost"]
    rows = [f"| {' | '.join(columns)} |", "| --- | --- | --- | --- |"]
    for name, way in found["rows"].items():
        cells = [name, f"{way['accuracy']:.3f}", f"{way['decided']:.0%}", f"{way['saved']:.0%}"]
        rows.append(f"| {' | '.join(cells)} |")
    kept = f"Not below {STRONG} by more than the promise in {found['kept']} of {SPLITS} splits"
    kept += f"; nothing could be promised in {found['empty']}."
    head = f"## {found['title']}, {found['pairs']:,} pairs, AUC {found['auc']:.2f}"
    return "\n".join([head, "", *rows, "", kept])


def main() -> int:
    """Measure the data that is there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", type=Path, help="a Markdown file for the tables")
    parser.add_argument("--local", type=Path, default=RECORDED, help="answers of the local model")
    parser.add_argument("--record", type=int, default=0, help="ask the local model so often first")
    options = parser.parse_args()
    folder = options.data / "judge" / "alaofi_relevance"
    if options.record:
        asyncio.run(ask_local(folder, options.record, options.local))
    figures = []
    if local := by_local(folder, options.local):
        figures.append(table(f"{LOCAL_MODEL}, one token", local))
    figures.append(table("The share of five cheap judges that say yes", by_five(folder)))
    known = known_table()
    best = in_hindsight(with_known_probabilities(FRESH, seed=0))
    page = page_of(figures, known, best)
    if options.write:
        options.write.write_text(page, encoding="utf-8")
    found = {"stand_ins": figures, "known": known, "hindsight": best}
    print(json.dumps(found, indent=2) if options.json else page)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
