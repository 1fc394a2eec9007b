"""Promises of agreement: whether they're kept, and how many rows the first judge decides under them.

python bench/promise.py --data DIR [--draws N] [--seeds N] [--write FILE]

The first part draws samples over made rows: a first judge that knows its probabilities, one that is too sure,
one that is no use, and one whose disagreements stand where the test is tightest, in three sizes and both
modes. A promise is missed if fewer rows than the promised share have the strong judge's verdict; at the level
of 95 % that may happen in 50 of 1,000 draws, and with 1,000 draws 67 are within its chance.

The second part takes recorded judges. DIR/judge/alaofi_relevance has pairs of a query and a passage, and what
real judges answered: a local model of 1.5B and five cheap ones stand before gpt-4o. Beside judgekit stand a
fixed threshold, chosen on nothing, and the cascade of LOTUS (arXiv 2407.11418, section 4): a sample drawn by
the square root of the score, half of it evenly, and two thresholds, for recall and precision, by normal
bounds. Every call of the strong judge counts, the sample's included.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.judged.relevance import grade
from bench.judged.tables import lines
from judgekit.evaluation import agreement
from judgekit.evaluation.agreement import FirstOpinion, Promise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from judgekit.config import Outcome
    from judgekit.judging.verdict import VerdictWord

STRONG = "gpt-4o"
CHEAP = ("claude-3-haiku", "command-r", "gpt-3.5-turbo-1106", "llama3-8b", "command-r-plus")
RECORDED = Path(__file__).parent / "judged" / "relevance-local.jsonl"
SIZES = (50, 1_000, 20_000)
SHARES = (0.95, 0.9, 0.85)
FIXED = 0.8
EVEN = 0.5  # a probability that says nothing
SHARE_OF_LARGEST = 0.1  # of the draws: one of 20,000 rows takes a third of a second
LOTUS_SAMPLE = 0.1  # of the rows, as its authors have it
LOTUS_EVEN = 0.5
LOTUS_DELTA = 0.05


class Pair(NamedTuple):
    """A row: the probability of acceptance by the first judge, and the word of the strong one."""

    probability: float
    strong: VerdictWord

    @property
    def first(self) -> Outcome:
        return "accept" if self.probability >= EVEN else "reject"

    @property
    def sureness(self) -> float:
        return abs(self.probability - EVEN)


class Outcomes(NamedTuple):
    """The result of one run over rows."""

    decided: float
    """The share of rows that the strong judge wasn't asked about."""
    is_missed: bool


# --- Ways to choose the rows that the first judge decides


def judgekit(pairs: Sequence[Pair], share: float, rng: random.Random) -> Outcomes:
    return _promised(pairs, Promise(share, on="accepted"), rng)


def judgekit_strict(pairs: Sequence[Pair], share: float, rng: random.Random) -> Outcomes:
    return _promised(pairs, Promise(share, on="accepted", strict=True), rng)


def _promised(pairs: Sequence[Pair], promise: Promise, rng: random.Random) -> Outcomes:
    opinions = []
    for number, pair in enumerate(pairs):
        opinion = FirstOpinion(number, pair.first, pair.sureness, rng.random(), rng.random())
        opinions.append(opinion)
    plan = agreement.plan(opinions, len(pairs), promise)
    strong_verdicts = {number: pairs[number].strong for number in plan.sampled}
    final = agreement.settle(plan, strong_verdicts).final
    return Outcomes(len(final) / len(pairs), is_missed=_is_missed(pairs, final, promise))


def _is_missed(pairs: Sequence[Pair], final: frozenset[int], promise: Promise) -> bool:
    wrong = 0
    accepted = 0
    wrong_accepted = 0
    for number in final:
        pair = pairs[number]
        is_wrong = not promise.holds_for(pair.first, pair.strong)
        wrong += is_wrong
        if pair.first == "accept":
            accepted += 1
            wrong_accepted += is_wrong
    if promise.strict and wrong_accepted > promise.budget(accepted):
        return True
    return wrong > promise.budget(len(pairs))


def fixed(pairs: Sequence[Pair], share: float, _: random.Random) -> Outcomes:
    """Let the first judge decide every row of which it's at least this sure."""
    decided = [pair for pair in pairs if max(pair.probability, 1 - pair.probability) >= FIXED]
    wrong = sum(pair.first != pair.strong for pair in decided)
    return Outcomes(len(decided) / len(pairs), is_missed=wrong > (1 - share) * len(pairs))


def lotus(pairs: Sequence[Pair], share: float, rng: random.Random) -> Outcomes:
    """Learn two thresholds, for `share` as recall and as precision, by normal bounds over a sample."""
    roots = [math.sqrt(pair.probability) for pair in pairs]
    total = sum(roots)
    weights = [(1 - LOTUS_EVEN) * root / total + LOTUS_EVEN / len(pairs) for root in roots]
    size = int(LOTUS_SAMPLE * len(pairs))
    numbers = rng.choices(range(len(pairs)), weights, k=size)
    sample = []
    for number in numbers:
        factor = 1 / len(pairs) / weights[number]
        sample.append((pairs[number].probability, pairs[number].strong == "accept", factor))
    sample.sort(reverse=True)
    lower = _lotus_lower(sample, share)
    upper = max(lower, _lotus_upper(sample, share))
    asked = set(numbers)
    wrong = 0
    decided = 0
    for number, pair in enumerate(pairs):
        if number in asked or lower < pair.probability < upper:
            continue
        decided += 1
        wrong += (pair.probability >= upper) != (pair.strong == "accept")
    return Outcomes(decided / len(pairs), is_missed=wrong > (1 - share) * len(pairs))


def _lotus_lower(sample: Sequence[tuple[float, bool, float]], recall: float) -> float:
    """Return the threshold below which rows are rejected: the recall of the others must be high enough."""
    threshold = _threshold_for_recall(sample, recall)
    kept = [positive * factor for score, positive, factor in sample if score >= threshold]
    lost = [positive * factor for score, positive, factor in sample if score < threshold]
    radius = math.sqrt(2 * math.log(2 / LOTUS_DELTA) / len(sample))
    most = (fmean(kept) + pstdev(kept) * radius) if kept else 0.0
    least = (fmean(lost) - pstdev(lost) * radius) if lost else 0.0
    corrected = min(1.0, most / (most + least)) if most + least else 1.0
    return _threshold_for_recall(sample, corrected)


def _threshold_for_recall(sample: Sequence[tuple[float, bool, float]], recall: float) -> float:
    total = sum(positive * factor for _, positive, factor in sample)
    lost = 0.0
    best = 0.0
    for score, positive, factor in sorted(sample):
        lost += positive * factor
        if total and 1 - lost / total < recall:
            break
        best = score
    return best


def _lotus_upper(sample: Sequence[tuple[float, bool, float]], precision: float) -> float:
    """Return the threshold from which rows are accepted, the lowest whose lower bound is high enough."""
    best = 1.0
    positives = 0
    for count, (score, positive, _) in enumerate(sample, 1):
        positives += positive
        mean = positives / count
        deviation = math.sqrt(mean * (1 - mean))
        radius = math.sqrt(2 * math.log(len(sample) / LOTUS_DELTA) / count)
        if mean - deviation * radius > precision:
            best = min(best, score)
    return best


# --- Rows


def known(count: int, rng: random.Random) -> list[Pair]:
    """Make rows for which the first judge knows the probability that the strong one accepts."""
    return [_drawn(rng.betavariate(0.5, 0.5), rng) for _ in range(count)]


def too_sure(count: int, rng: random.Random) -> list[Pair]:
    """Make rows whose true probabilities are much nearer to one half than it says."""
    pairs = []
    for pair in known(count, rng):
        true_probability = 0.5 + (pair.probability - 0.5) * 0.6
        pairs.append(Pair(pair.probability, _drawn(true_probability, rng).strong))
    return pairs


def useless(count: int, rng: random.Random) -> list[Pair]:
    """Make rows on which it knows nothing."""
    return [Pair(rng.random(), _drawn(0.5, rng).strong) for _ in range(count)]


def adversarial(count: int, rng: random.Random) -> list[Pair]:
    """Make rows that agree, the surest first, then rows that don't: the test is tightest there."""
    pairs = []
    for number in range(count):
        probability = 1 - 0.49 * number / count
        strong: VerdictWord = "accept" if number < 0.7 * count else "reject"
        pairs.append(Pair(probability, strong))
    rng.shuffle(pairs)
    return pairs


def _drawn(probability: float, rng: random.Random) -> Pair:
    return Pair(probability, "accept" if rng.random() < probability else "reject")


MADE = {
    "knows its probabilities": known,
    "too sure": too_sure,
    "no use": useless,
    "all wrong from a place on": adversarial,
}


def recorded(folder: Path) -> Iterator[tuple[str, list[Pair]]]:
    """Yield the recorded judges before gpt-4o."""
    answers: dict[str, dict[str, int | None]] = defaultdict(dict)
    for line in lines(folder / "responses_utility.jsonl"):
        answers[line["judge"]][line["item_id"]] = grade(line["O"])
    strong = {item: _word(found) for item, found in answers[STRONG].items()}
    local = {line["item_id"]: line["yes"] for line in lines(RECORDED)}
    both = [item for item in local if item in strong]
    yield "a local model of 1.5B, one token", [Pair(local[item], strong[item]) for item in both]
    votes = []
    for item, word in strong.items():
        said = [answers[judge].get(item) for judge in CHEAP]
        grades = [found for found in said if found is not None]
        if grades:
            votes.append(Pair(fmean(found >= 1 for found in grades), word))
    yield "the share of five cheap judges that say yes", votes
    for judge in CHEAP:
        graded = []
        for item, word in strong.items():
            found = answers[judge].get(item)
            if found is not None:
                graded.append(Pair((0.4, 0.6, 0.8, 1.0)[found], word))
        yield f"{judge}, grades 0 to 3", graded


def _word(found: int | None) -> VerdictWord:
    if found is None:
        return "undetermined"
    return "accept" if found >= 1 else "reject"


# --- The tables


def validity(draws: int) -> Iterator[str]:
    """Yield a line for each kind of rows, size and mode: how often the promise was missed."""
    for name, make in MADE.items():
        for size in SIZES:
            count = draws if size < max(SIZES) else round(draws * SHARE_OF_LARGEST)
            for way in (judgekit, judgekit_strict):
                outcomes = []
                for seed in range(count):
                    rng = random.Random(f"{name} {size} {seed}")  # noqa: S311 - a simulation
                    outcomes.append(way(make(size, rng), SHARES[0], rng))
                missed = sum(outcome.is_missed for outcome in outcomes)
                decided = fmean(outcome.decided for outcome in outcomes)
                mode = "strict" if way is judgekit_strict else "lenient"
                yield f"| {name} | {size:,} | {mode} | {missed} of {count} | {decided:.2f} |"


def worth(folder: Path, seeds: int) -> Iterator[str]:
    """Yield a line for each recorded judge, share and way: how much is decided, and how often it's missed."""
    ways = {
        "judgekit": judgekit,
        "judgekit, strict": judgekit_strict,
        f"fixed at {FIXED:g}": fixed,
        "LOTUS": lotus,
    }
    for name, pairs in recorded(folder):
        for share in SHARES:
            for way_name, way in ways.items():
                outcomes = []
                for seed in range(seeds):
                    rng = random.Random(f"{name} {share} {seed}")  # noqa: S311 - a simulation
                    outcomes.append(way(pairs, share, rng))
                decided = fmean(outcome.decided for outcome in outcomes)
                missed = sum(outcome.is_missed for outcome in outcomes)
                row = f"| {name}, {len(pairs):,} | {share:g} | {way_name} "
                yield f"{row}| {decided:.3f} | {missed} of {seeds} |"


PAGE = """\
# Promises of agreement

Made by `python bench/promise.py --data DIR --write docs/figures/promise.md`, {date}. *Decided*: the share of
rows that the strong judge is not asked about, the sample counted as asked. *Missed*: fewer rows than promised
have its verdict (in strict mode also: fewer of the final acceptances); one draw in twenty may.

## Is it kept?

A promise of {share:g}, over rows that were made. With 1,000 draws up to 67 misses are within chance, with
100 draws up to 11.

| first judge | rows | mode | missed | decided |
| --- | --- | --- | --- | --- |
{validity}

## What is it worth?

Recorded judges before {strong}; accepted or not. Means over {seeds} draws, by a rule that was fixed before.
LOTUS promises recall and precision, both set to the share here.

| first judge, rows | promise | way | decided | missed |
| --- | --- | --- | --- | --- |
{worth}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder with outside data")
    parser.add_argument("--draws", type=int, default=1_000)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    page = PAGE.format(
        date=datetime.now(UTC).date(),
        share=SHARES[0],
        strong=STRONG,
        seeds=arguments.seeds,
        validity="\n".join(validity(arguments.draws)),
        worth="\n".join(worth(arguments.data / "judge" / "alaofi_relevance", arguments.seeds)),
    )
    print(page)
    if arguments.write:
        arguments.write.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
