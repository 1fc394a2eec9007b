"""How far a decision model may be believed before a strong judge: learned from labels, and by fixed thresholds.

python bench/decide.py --data DIR [--json] [--write FILE] [--local FILE] [--record N]

DIR/judge/alaofi_relevance has pairs of a query and a passage, and what real judges answered. Three stand-ins
give the probability that a passage is relevant, before the recorded gpt-4o: a local model of 1.5B, asked for
one token (`--local` has its answers by pair, and `--record` asks for N of them first); the share of five cheap
judges that say yes; and one whose probabilities are known, with labels drawn by them. What may be final is
learned on one half of the pairs and measured on the other, in ten splits, beside fixed thresholds: what is
surer than the threshold is final, the rest goes to gpt-4o.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
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
from judgekit.evaluation.calibrate import choose_rules, walk
from judgekit.evaluation.samples import Sample, TierOpinion
from judgekit.judging.calibration import Promise
from judgekit.judging.escalation import EscalationRules
from judgekit.judging.pointwise import Points, ask_pointwise
from judgekit.judging.round import Session
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
KNOWN = 8_000  # pairs whose probabilities are known
STRONG_IS_RIGHT = 0.9  # of them
NEAR = 0.05  # of the best threshold in hindsight
_SECONDS = 120.0

PAGE = """\
# Decision models before a strong judge

Made by `python bench/decide.py --data DIR --write docs/figures/decide.md`, {when}. Pairs of a query and a passage
with human labels (relevant or not) and recorded answers of gpt-4o. What a stand-in for a decision model may
decide alone is learned on one half of the pairs, with a promise of at most {excess:.0%} more errors than gpt-4o at
95 % confidence, and measured on the other half; means of {splits} splits. With a fixed threshold, what is surer is
final. The second column says how many of the pairs never reach gpt-4o, the last what that saves of its cost.

{tables}
"""


class Pair(NamedTuple):
    """One pair: the probability of yes, what the label and the strong judge say, and the latter's cost."""

    id: str
    yes: float
    label: Outcome
    strong: Outcome | None
    cost_usd: float

    @property
    def sample(self) -> Sample:
        outcome: Outcome = "accept" if self.yes >= 0.5 else "reject"  # noqa: PLR2004 - even odds
        leaning = round(self.yes - 0.5, 4)
        quick = TierOpinion(outcome, abs(leaning), leaning=leaning)
        voices = {"quick": quick, "deep": TierOpinion(self.strong, 1.0)}
        return Sample(self.id, self.label, voices, binary=True)  # type: ignore[arg-type]  # names of tiers


class Way(NamedTuple):
    """One way to judge on the second half: accuracy, share decided at quick, US dollars saved of the cost."""

    accuracy: float
    decided: float
    saved: float


def auc(pairs: Sequence[Pair]) -> float:
    """Return how often a relevant passage has a higher probability than an irrelevant one; ties count half."""
    good = sorted(pair.yes for pair in pairs if pair.label == "accept")
    bad = sorted(pair.yes for pair in pairs if pair.label == "reject")
    wins = 0.0
    for yes in good:
        wins += sum(other < yes for other in bad) + sum(other == yes for other in bad) / 2
    return wins / (len(good) * len(bad))


def by_strong(pairs: Sequence[Pair]) -> Way:
    return Way(fmean(pair.strong == pair.label for pair in pairs), 0.0, 0.0)


def by_threshold(pairs: Sequence[Pair], threshold: float) -> Way:
    """Return what comes of taking every opinion as final that is surer than a threshold."""
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
    """Return what comes of the gates that labels allow."""
    right = 0
    final = []
    for pair in pairs:
        walked = walk(pair.sample, rules)
        right += walked.right is True
        if walked.by_gate:
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
    """Yield the labelled pairs with what the strong judge said; the probability is not known yet."""
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
    return [pair._replace(yes=fmean(said[pair.id])) for pair in strong_answers(folder) if said[pair.id]]


def by_local(folder: Path, recorded: Path) -> list[Pair]:
    """Return the pairs that a local model was asked about."""
    if not recorded.is_file():
        return []
    yes = {line["item_id"]: line["yes"] for line in lines(recorded)}
    return [pair._replace(yes=yes[pair.id]) for pair in strong_answers(folder) if pair.id in yes]


def with_known_probabilities() -> list[Pair]:
    """Return pairs whose labels are drawn by their probabilities: what is shown is the truth."""
    chance = random.Random(31)  # noqa: S311 - a simulation
    pairs = []
    for number in range(KNOWN):
        yes = chance.betavariate(0.5, 0.5)
        label: Outcome = "accept" if chance.random() < yes else "reject"
        other: Outcome = "reject" if label == "accept" else "accept"
        strong = label if chance.random() < STRONG_IS_RIGHT else other
        pairs.append(Pair(f"known-{number}", yes, label, strong, 0.001))
    return pairs


def in_hindsight(pairs: Sequence[Pair]) -> float:
    """Return the share that the best thresholds decide: the widest that keep the promise on these very pairs."""
    best = 0.0
    for side in ("accept", "reject"):
        surest = sorted(pairs, key=lambda pair: -pair.yes if side == "accept" else pair.yes)
        excess = 0
        widest = 0
        for count, pair in enumerate(surest, 1):
            excess += (pair.label != side) - (pair.label != pair.strong)
            if excess <= EXCESS * count and (side == "accept") == (pair.yes >= 0.5):  # noqa: PLR2004 - even odds
                widest = count
        best += widest / len(pairs)
    return best


async def ask_local(folder: Path, most: int, recorded: Path) -> None:
    """Append the local model's probability of yes for up to `most` pairs that are not recorded yet."""
    known = {line["item_id"] for line in lines(recorded)} if recorded.is_file() else set()
    environ = {**os.environ, "JUDGEKIT_LOCAL_MODEL": LOCAL_MODEL}
    (endpoint,) = resolve(PanelRequest(allow=["local"]), environ).endpoints["quick"]
    items = shuffled(lines(folder / "items.jsonl"), 0)
    async with aclosing(open_gateway({})) as gateway:
        for item in items:
            if item["human"] is None or item["item_id"] in known:
                continue
            if len(known) >= most:
                break
            points = Points(
                system="You decide whether a passage answers a query.",
                context=f"Query: {item['query']}\n\nPassage: {item['passage']}",
                questions={"relevant": "Is the passage relevant to the query? Answer with one word, yes or no."},
                tokens=("yes", "no"),
                call_key=CallKey(item["item_id"], "relevance@1.0.0", "quick"),
            )
            answer = await ask_pointwise(Session(gateway, _SECONDS), endpoint, points, _SECONDS)
            if answer.value is None:
                print(f"{item['item_id']}: {answer.failure}", file=sys.stderr)
                continue
            line = {"item_id": item["item_id"], "yes": round(answer.value["relevant"]["yes"], 4)}
            known.add(item["item_id"])
            with recorded.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


# --- The page


def page_of(figures: Sequence[Mapping[str, Any]]) -> str:
    parts = []
    for found in figures:
        head = f"## {found['title']}, {found['pairs']:,} pairs, AUC {found['auc']:.2f}"
        rows = ["| judged by | accuracy | decided at quick | saved of the cost |", "| --- | --- | --- | --- |"]
        for name, way in found["rows"].items():
            rows.append(
                f"| {name} | {way['accuracy']:.3f} | {way['decided']:.0%} | {way['saved']:.0%} |"
            )
        kept = f"Not below {STRONG} by more than the promise in {found['kept']} of {SPLITS} splits"
        kept += f"; nothing could be promised in {found['empty']}."
        lines_of_table = [head, "", *rows, "", kept]
        if "hindsight" in found:
            lines_of_table.append(
                f"The best thresholds in hindsight decide {found['hindsight']:.0%}."
            )
        parts.append("\n".join(lines_of_table))
    when = datetime.now(UTC).date()
    return PAGE.format(when=when, excess=EXCESS, splits=SPLITS, tables="\n\n".join(parts))


def main() -> int:
    """Measure what is there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", type=Path, help="a Markdown file for the tables")
    parser.add_argument("--local", type=Path, default=RECORDED, help="answers of the local model")
    parser.add_argument("--record", type=int, default=0, help="ask the local model about so many pairs first")
    options = parser.parse_args()
    folder = options.data / "judge" / "alaofi_relevance"
    if options.record:
        asyncio.run(ask_local(folder, options.record, options.local))
    figures = []
    if local := by_local(folder, options.local):
        figures.append(table(f"{LOCAL_MODEL}, one token", local))
    figures.append(table("The share of five cheap judges", by_five(folder)))
    known = with_known_probabilities()
    figures.append(table("Known probabilities", known))
    figures[-1]["hindsight"] = fmean(in_hindsight(halves(known, seed)[1]) for seed in range(SPLITS))
    if options.write:
        options.write.write_text(page_of(figures), encoding="utf-8")
    print(json.dumps(figures, indent=2) if options.json else page_of(figures))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
