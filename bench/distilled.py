"""How many verdicts of a judge a classifier could give that learned from its verdicts, on recorded answers.

python bench/distilled.py --data DIR [--json] [--write FILE]

DIR/judge/alaofi_relevance has pairs of a query and a passage, and what real judges answered. A logistic
regression over words, and over how many words of the query a passage has, learns one judge's verdicts
(relevant or not) on 60 % of the queries. On 20 % its threshold is chosen: from the surest tenth of the pairs
on, a tenth more at a time, for as long as the upper 95 % bound (Clopper and Pearson) on its disagreements
with the judge keeps the promise. Testing in this fixed order, and ending at the first failure, keeps the
bound valid (Angelopoulos et al., "Learn then Test", 2021). The last 20 % of the queries say what that is
worth. No query is in two parts. The figures are of `SPLITS` ways to part them.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import sys
import zlib
from collections import Counter, defaultdict
from datetime import UTC, datetime
from itertools import chain, pairwise
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.judged.relevance import grade
from bench.judged.tables import lines
from judgekit.judging.binomial import compute_upper_bound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

JUDGES = ("gpt-4o", "claude-3-haiku")
PROMISES = (0.05, 0.10, 0.20)
LEVEL = 0.05
SPLITS, EPOCHS, BUCKETS = 10, 12, 1 << 18
RATE, DECAY = 0.15, 1e-5
_WORD = re.compile(r"[a-z0-9]+")

TABLE = """\
# A classifier in place of a judge

A classifier learned a judge's verdicts (relevant or not) from {pairs:,} recorded pairs of query and passage.
{when}; {splits} ways to part the queries: 60 % to learn, 20 % to choose a threshold, 20 % to measure.

| judge | promise | rows decided | disagreements there | on all rows | most frequent verdict |
| --- | --- | --- | --- | --- | --- |
{rows}

- *promise*: of the rows that the classifier decides, so many may be decided otherwise than the judge would.
- *rows decided*: the share above the threshold that keeps the promise; the judge still answers the others.
- *on all rows*: the disagreements where the classifier decides everything.
- *most frequent verdict*: its share of the judge's verdicts; always giving it needs no classifier.

The classifier is a logistic regression over words, the simplest there is. A better one decides more rows; its
error is bounded in the same way."""


class Pair(NamedTuple):
    """A pair as the classifier sees it, with the judge's verdict."""

    query: str
    features: dict[int, float]
    relevant: bool


def features(query: str, passage: str) -> dict[int, float]:
    """Return weights of hashed words of the passage, and how much of the query it has."""
    asked, said = set(_WORD.findall(query.lower())), Counter(_WORD.findall(passage.lower()))
    found = {zlib.crc32(word.encode()) % BUCKETS: 0.1 for word in said}
    shared = [word for word in asked if word in said]
    found[BUCKETS] = 1.0
    found[BUCKETS + 1] = len(shared) / max(1, len(asked))
    found[BUCKETS + 2] = sum(map(len, shared)) / max(1, sum(map(len, asked)))
    found[BUCKETS + 3] = math.log1p(sum(said[word] for word in shared)) / 3
    found[BUCKETS + 4] = math.log1p(len(said)) / 5
    return found


def probability(weights: Mapping[int, float], pair: Pair) -> float:
    """Return the probability that the judge finds the passage relevant."""
    odds = sum(weights.get(name, 0.0) * value for name, value in pair.features.items())
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))


def learned(pairs: Sequence[Pair], chance: random.Random) -> dict[int, float]:
    """Return the weights of a logistic regression, by stochastic gradient descent."""
    weights: dict[int, float] = defaultdict(float)
    order = list(pairs)
    for epoch in range(EPOCHS):
        chance.shuffle(order)
        rate = RATE / (1 + epoch)
        for pair in order:
            error = pair.relevant - probability(weights, pair)
            for name, value in pair.features.items():
                weights[name] += rate * (error * value - DECAY * weights[name])
    return weights


def judged(weights: Mapping[int, float], pairs: Sequence[Pair]) -> list[tuple[float, bool]]:
    """Return for each pair how sure the classifier is, from 0.5 to 1, and whether it disagrees."""
    likely = [(probability(weights, pair), pair.relevant) for pair in pairs]
    return [(max(chance, 1 - chance), (chance >= 0.5) != relevant) for chance, relevant in likely]  # noqa: PLR2004 - even odds


def threshold(found: Sequence[tuple[float, bool]], promise: float) -> float:
    """Return the lowest confidence above which disagreements surely keep the promise; infinity for none."""
    ordered, best = sorted(found, reverse=True), math.inf
    for tenth in range(1, 11):
        count = len(ordered) * tenth // 10
        if compute_upper_bound(sum(wrong for _, wrong in ordered[:count]), count, LEVEL) > promise:
            break
        best = ordered[count - 1][0]
    return best


def split(pairs: Sequence[Pair], chance: random.Random) -> list[list[Pair]]:
    """Return three parts with different queries: 60, 20 and 20 %."""
    queries = sorted({pair.query for pair in pairs})
    chance.shuffle(queries)
    cuts = [0, len(queries) * 6 // 10, len(queries) * 8 // 10, len(queries)]
    parts = [set(queries[low:high]) for low, high in pairwise(cuts)]
    return [[pair for pair in pairs if pair.query in part] for part in parts]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", type=Path, help="a Markdown file for the table")
    options = parser.parse_args()
    folder = options.data / "judge" / "alaofi_relevance"
    items = {each["item_id"]: each for each in lines(folder / "items.jsonl")}
    known = {name: features(each["query"], each["passage"]) for name, each in items.items()}
    results = []
    for judge in JUDGES:
        replies = (
            each for each in lines(folder / "responses_basic.jsonl") if each["judge"] == judge
        )
        graded = [
            (each["item_id"], found) for each in replies if (found := grade(each["O"])) is not None
        ]
        results += measured(
            judge, [Pair(items[name]["query"], known[name], found > 0) for name, found in graded]
        )
    print(json.dumps(results) if options.json else report(results, len(items)))
    if options.write:
        options.write.write_text(report(results, len(items)) + "\n", encoding="utf-8")
    return 0


def measured(judge: str, pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """Return for each promise the share of rows that are decided, and how many of them otherwise."""
    taken: dict[float, list[list[bool]]] = {promise: [] for promise in PROMISES}
    overall, count = [], 0
    for seed in range(SPLITS):
        chance = random.Random(seed)  # noqa: S311 - no secret
        learn, choose, held = split(pairs, chance)
        weights = learned(learn, chance)
        chosen, found = judged(weights, choose), judged(weights, held)
        overall += [wrong for _, wrong in found]
        count += len(found)
        for promise, each in taken.items():
            sure = threshold(chosen, promise)
            each.append([wrong for confidence, wrong in found if confidence >= sure])
    return [
        {
            "judge": judge,
            "promise": promise,
            "decided": sum(map(len, each)) / count,
            "disagreements": fmean(wrong) if (wrong := list(chain(*each))) else None,
            "overall": fmean(overall),
            "alike": max(share := fmean(pair.relevant for pair in pairs), 1 - share),
        }
        for promise, each in taken.items()
    ]


def report(results: Sequence[dict[str, Any]], pairs: int) -> str:
    """Return the figures as Markdown."""
    rows = []
    for each in results:
        there = "" if each["disagreements"] is None else f"{each['disagreements']:.1%}"
        shares = [f"{each[name]:.1%}" for name in ("overall", "alike")]
        cells = [each["judge"], f"{each['promise']:.0%}", f"{each['decided']:.1%}", there, *shares]
        rows.append(f"| {' | '.join(cells)} |")
    when = f"{datetime.now(UTC):%Y-%m-%d}"
    return TABLE.format(pairs=pairs, when=when, splits=SPLITS, rows="\n".join(rows))


if __name__ == "__main__":
    sys.exit(main())
