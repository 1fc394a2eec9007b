"""How often the interval of a corrected rate holds the truth, and its width beside that of the labels alone.

python bench/report.py --data DIR [--draws 500] [--json] [--write FILE]

DIR/judge/alaofi_relevance has relevance grades of people and the recorded answers of several models; accept
is grade 1 or more. Labels are drawn at random, many times, and every time the interval is computed anew.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from judgekit.evaluation import stats

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LABELS = (30, 60, 150)
HEAD = """# The corrected rate, measured

Made by `python bench/report.py --data DIR --write docs/figures/report.md` on {day}. Nine models graded pairs
of query and passage (Alaofi and others, "On the Use of LLMs for Relevance Labelling", 2026; prompt "basic"),
and people did, too; accept is grade 1 or more. {draws} times a random sample of labels was drawn. *Holds* is
how often the 95 % interval of [the corrected rate](../report.md) holds the share that people accept; *width*
is its mean width, as a ratio to the interval of the same labels alone (Wald), which uses no verdict. A ratio
below 1 is what the judge's verdicts are worth.

| judge | pairs | agrees | accepts (people: {truth:.0%}) | {heads} |
| --- | --- | --- | --- | {lines} |
"""


class Row(NamedTuple):
    judge: str
    pairs: int
    agrees: float
    accepts: float
    truth: float
    by_labels: dict[int, tuple[float, float]]


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with judge/alaofi_relevance"
    )
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()
    folder = asked.data / "judge" / "alaofi_relevance"
    people = {
        each["item_id"]: each["human"] >= 1
        for each in lines(folder / "items.jsonl")
        if each["human"] is not None
    }
    said: dict[str, dict[str, bool]] = {}
    for each in lines(folder / "responses_basic.jsonl"):
        if isinstance(each["O"], int) and each["item_id"] in people:
            said.setdefault(each["judge"], {})[each["item_id"]] = each["O"] >= 1
    rows = [measured(judge, words, people, asked.draws) for judge, words in sorted(said.items())]
    if asked.json:
        print(json.dumps([row._asdict() for row in rows]))
        return 0
    heads = " | ".join(f"{count} labels: holds, width" for count in LABELS)
    day = f"{datetime.now(UTC):%-d %B %Y}"
    text = HEAD.format(
        day=day,
        draws=asked.draws,
        truth=rows[0].truth,
        heads=heads,
        lines=" | ".join(["---"] * len(LABELS)),
    )
    for row in rows:
        cells = " | ".join(f"{holds:.1%}, {width:.2f}" for holds, width in row.by_labels.values())
        text += f"| {row.judge} | {row.pairs} | {row.agrees:.0%} | {row.accepts:.0%} | {cells} |\n"
    if asked.write:
        asked.write.write_text(text, encoding="utf-8")
    print(text)
    return 0


def lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def measured(judge: str, words: Mapping[str, bool], people: Mapping[str, bool], draws: int) -> Row:
    ids = sorted(words)
    truth, generator = fmean(people[each] for each in ids), Random(1)  # noqa: S311 - a simulation
    found = {}
    for count in LABELS:
        holds, widths, alone = 0, 0.0, 0.0
        for _ in range(draws):
            drawn = set(generator.sample(ids, count))
            pairs = [(float(words[each]), float(people[each])) for each in sorted(drawn)]
            others = [float(words[each]) for each in ids if each not in drawn]
            low, high = stats.corrected_mean(pairs, others).bounds
            share = fmean(right for _, right in pairs)
            holds += low <= truth <= high
            widths += high - low
            alone += 2 * 1.96 * (share * (1 - share) / count) ** 0.5
        found[count] = holds / draws, widths / alone
    agrees = fmean(words[each] == people[each] for each in ids)
    return Row(judge, len(ids), agrees, fmean(words.values()), truth, found)


if __name__ == "__main__":
    sys.exit(main())
