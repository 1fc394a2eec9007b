"""`--until`: how often its answer is wrong, and how many rows it needs.

python bench/until.py --data DIR [--draws N] [--orders N] [--write FILE]

The first part draws the order of made rows, of which a known share is accepted, and has 64 of them judged at
a time. A rejection takes five times as long as an acceptance on average, so that what is finished first looks
better than it is. An answer may be wrong in 50 of 1,000 draws; up to 67 are within chance. Beside it stands
the same procedure if rows counted as they finish.

The second part takes recorded judges: DIR/judge/alaofi_relevance has pairs of a query and a passage, and what
nine models answered. A condition is settled in several orders: by one row at a time, which is what the test
needs, and by 32 and 64, where rows that are at work when the answer is there are paid for, too.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import sys
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.judged.relevance import grade
from bench.judged.tables import lines
from judgekit.data.until import choose_wave
from judgekit.evaluation.conditions import parse_condition
from judgekit.evaluation.until import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SIZES = (50, 1_000, 20_000)
TRUTHS = (0.7, 0.89, 0.9, 0.95)
LIMIT = 0.9
LIMITS = (0.7, 0.8, 0.9)
AT_ONCE = 64
SECONDS = {"accept": 1.0, "reject": 5.0}  # on average


class Settled(NamedTuple):
    """How a run ended."""

    holds: bool | None
    judged: int
    """How many rows were judged, with those that were at work when the answer was there."""


def settle(words: Sequence[str], limit: float, rng: random.Random, *, at_once: int) -> Settled:
    """Judge rows that are in a drawn order as `judgekit.data.until` does."""
    answer = new_answer(limit, len(words))
    started = 0
    now = 0.0
    while started < len(words) and answer.holds is None:
        end = min(len(words), started + choose_wave(answer.counted_rows, at_once))
        at_work: list[tuple[float, int]] = []
        while at_work or started < end:
            while len(at_work) < at_once and started < end and answer.holds is None:
                seconds = rng.expovariate(1 / SECONDS[words[started]])
                heapq.heappush(at_work, (now + seconds, started))
                started += 1
            if not at_work:
                break
            now, done = heapq.heappop(at_work)
            answer.note(done, words[done])
    return Settled(answer.holds, started)


def settle_as_they_finish(words: Sequence[str], limit: float, rng: random.Random) -> bool | None:
    """Answer from rows in the order in which they finish."""
    answer = new_answer(limit, len(words))
    at_work: list[tuple[float, str]] = []
    now = 0.0
    for word in words:
        if len(at_work) == AT_ONCE:
            now, done = heapq.heappop(at_work)
            answer.note(answer.counted_rows, done)
        if answer.holds is not None:
            return answer.holds
        heapq.heappush(at_work, (now + rng.expovariate(1 / SECONDS[word]), word))
    for _, done in sorted(at_work):
        answer.note(answer.counted_rows, done)
        if answer.holds is not None:
            break
    return answer.holds


def new_answer(limit: float, rows: int) -> Answer:
    return Answer(parse_condition(f"accept >= {limit}", "judge", "limit"), rows)


def make_rows(share: float, count: int, rng: random.Random) -> list[str]:
    """Make rows of which this share, rounded to whole rows, is accepted, in a drawn order."""
    accepted = round(share * count)
    words = ["accept"] * accepted + ["reject"] * (count - accepted)
    rng.shuffle(words)
    return words


def validity(draws: int) -> Iterator[str]:
    """Yield a line for each share and size."""
    for size in SIZES:
        for share in TRUTHS:
            wrong = 0
            wrong_as_finished = 0
            judged = []
            for seed in range(draws):
                rng = random.Random(f"{share} {size} {seed}")  # noqa: S311 - a simulation
                words = make_rows(share, size, rng)
                truth = words.count("accept") >= math.ceil(LIMIT * size)
                settled = settle(words, LIMIT, rng, at_once=AT_ONCE)
                wrong += settled.holds is not truth
                judged.append(settled.judged)
                wrong_as_finished += settle_as_they_finish(words, LIMIT, rng) is not truth
            counts = f"{median(judged):,.0f} | {fmean(judged):,.0f}"
            line = f"| {size:,} | {share:g} | {wrong} | {wrong_as_finished} | {counts} |"
            print(line, file=sys.stderr, flush=True)
            yield line


def read_judges(folder: Path) -> dict[str, list[str]]:
    """Read the verdicts of each recorded judge; one without a grade is left out."""
    words = defaultdict(list)
    for line in lines(folder / "responses_utility.jsonl"):
        found = grade(line["O"])
        if found is not None:
            words[line["judge"]].append("accept" if found >= 1 else "reject")
    return words


def worth(folder: Path, orders: int) -> Iterator[str]:
    """Yield a line for each recorded judge, and one for all."""
    shares: dict[int, list[float]] = {1: [], 32: [], AT_ONCE: []}
    wrong = 0
    for judge, words in read_judges(folder).items():
        truth_by_limit = {limit: math.ceil(limit * len(words)) for limit in LIMITS}
        cells = []
        for limit, enough in truth_by_limit.items():
            counts = []
            for seed in range(orders):
                rng = random.Random(f"{judge} {limit} {seed}")  # noqa: S311 - a simulation
                drawn = rng.sample(words, len(words))
                for at_once, found in shares.items():
                    settled = settle(drawn, limit, rng, at_once=at_once)
                    found.append(settled.judged / len(words))
                    wrong += settled.holds is not (words.count("accept") >= enough)
                    if at_once == 1:
                        counts.append(settled.judged)
            cells.append(f"{median(counts):,.0f}")
        accepted = words.count("accept") / len(words)
        yield f"| {judge} | {len(words):,} | {accepted:.3f} | {' | '.join(cells)} |"
    yield ""
    for at_once, found in shares.items():
        share = f"median {median(found):.1%}, mean {fmean(found):.1%}"
        yield f"- Share of the rows that are judged, {at_once} at a time: {share}."
    runs = sum(len(found) for found in shares.values())
    yield f"- Wrong answers: {wrong} in {runs:,} runs."


PAGE = """\
# Stopping early

Made by `python bench/until.py --data DIR --write docs/figures/until.md`, {date}.

## Is the answer right?

`--until 'accept >= {limit:g}'` on made rows, {at_once} at a time, {draws:,} draws each; a rejection takes
five times as long as an acceptance. At 95 % confidence up to 50 of 1,000 answers may be wrong, and up to 67
are within chance. *Counted as they finish* is the same without waiting for the rows that were drawn before.
The rows judged are all that are paid for, with those at work when the answer is there.

| rows | accepted | wrong answers | wrong if counted as they finish | rows judged, median | mean |
| --- | --- | --- | --- | --- | --- |
{validity}

## How many rows does it take?

Nine recorded judges on pairs of a query and a passage: the rows that the test needs for three limits, median
over {orders} orders, one row at a time.

| judge | rows | accepted | `accept >= 0.7` | `accept >= 0.8` | `accept >= 0.9` |
| --- | --- | --- | --- | --- | --- |
{worth}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder with outside data")
    parser.add_argument("--draws", type=int, default=1_000)
    parser.add_argument("--orders", type=int, default=40)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    page = PAGE.format(
        date=datetime.now(UTC).date(),
        limit=LIMIT,
        at_once=AT_ONCE,
        draws=arguments.draws,
        orders=arguments.orders,
        validity="\n".join(validity(arguments.draws)),
        worth="\n".join(worth(arguments.data / "judge" / "alaofi_relevance", arguments.orders)),
    )
    print(page)
    if arguments.write:
        arguments.write.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
