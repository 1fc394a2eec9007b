"""The gain from several families in tiers and panels, on recorded answers: accuracy, calls and cost.

python bench/panels.py --data DIR [--json] [--write FILE] [--review [N]]

DIR/judge/alaofi_relevance holds the answers of nine judges of four families. The escalation is the judge's
own, over their recorded outcomes. Nothing is chosen on the data: every family and every order of three
families is counted. With --review two local models also judge and review 20 documents, or N.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from datetime import UTC, datetime
from itertools import combinations, permutations
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Literal, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.judged import reviewing
from bench.judged.relevance import PROMPT, grade
from bench.judged.tables import lines
from judgekit.config import TIERS
from judgekit.judging.escalation import decide
from judgekit.judging.evidence import TierEvidence
from judgekit.judging.steps import Ask, EscalationRules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from judgekit.config import ModeName, Outcome, TierName

# Of each family the models of its quick tier, deep tier and tiebreaker, as far as there are answers of them.
FAMILIES = {
    "anthropic": ("claude-3-haiku", "claude-3-opus", "claude-3-opus"),
    "cohere": ("command-r", "command-r-plus", "command-r-plus"),
    "meta": ("llama3-8b", "llama3-70b", "llama3-70b"),
    "openai": ("gpt-3.5-turbo-1106", "gpt-4-0613", "gpt-4o"),
}
CONFIRM: dict[ModeName, Literal["accept", "reject"]] = {"strict": "accept", "lenient": "reject"}
HEAD = """# Panels and peer review, measured

Made by `python bench/panels.py --data DIR --write docs/figures/panels.md{more}` on {day}, from answers
of real models (recorded in 2024) about {count} pairs of a query and a passage: is it related? People labelled
them. Each row is the mean over all families, or over all choices of different families; in brackets are the
worst and the best of them. Nothing was chosen on the data. *Wrong accepts* and *wrong rejects* are shares of
the unrelated and of the related passages. *Left to a person* counts as wrong.
"""


class Way(NamedTuple):
    """The result of one way to judge: shares, calls of an item, and US dollars of 1,000 items."""

    accuracy: float
    accepts: float
    rejects: float
    left: float
    calls: float
    usd: float


class Answers(NamedTuple):
    """The label of each item, and of each model its grade and cost by item."""

    labels: dict[str, bool]
    grades: dict[str, dict[str, int | None]]
    costs: dict[str, dict[str, float]]

    def outcome(self, model: str, item: str) -> Outcome | None:
        """Return the outcome of a model's grade under the rubric of bench/judging.py."""
        found = self.grades[model].get(item)
        return None if found is None else "accept" if found >= 1 else "reject"


def read(folder: Path) -> Answers:
    """Return the recorded answers."""
    items = lines(folder / "items.jsonl")
    labels = {line["item_id"]: line["human"] >= 1 for line in items if line["human"] is not None}
    grades: dict[str, dict[str, int | None]] = defaultdict(dict)
    costs: dict[str, dict[str, float]] = defaultdict(dict)
    for line in lines(folder / f"responses_{PROMPT}.jsonl"):
        grades[line["judge"]][line["item_id"]] = grade(line["O"])
        costs[line["judge"]][line["item_id"]] = line["cost_usd"] or 0.0
    return Answers(labels, grades, costs)


def course(
    answers: Answers, models: dict[TierName, str], mode: ModeName
) -> Callable[[str], tuple[str, list[str]]]:
    """Return a function from an item to the verdict of the tiers and the models they asked."""
    rules = EscalationRules(CONFIRM[mode], models={tier: {model} for tier, model in models.items()})

    def judged(item: str) -> tuple[str, list[str]]:
        seen: dict[TierName, TierEvidence] = {}
        while isinstance(step := decide(seen, rules), Ask):
            seen[step.tier] = TierEvidence(answers.outcome(models[step.tier], item))
        return step.verdict, [models[tier] for tier in seen]

    return judged


def panel(answers: Answers, models: Iterable[str]) -> Callable[[str], tuple[str, list[str]]]:
    """Return a function from an item to the verdict of a jury, by the mean of its grades, and its models."""
    asked = list(models)

    def judged(item: str) -> tuple[str, list[str]]:
        known = [found for model in asked if (found := answers.grades[model].get(item)) is not None]
        if 2 * len(known) <= len(asked):
            return "undetermined", asked
        return "accept" if fmean(known) >= 1 else "reject", asked

    return judged


def measured(answers: Answers, judged: Callable[[str], tuple[str, list[str]]]) -> Way:
    """Measure a way to judge on all items."""
    found = [(label, item, *judged(item)) for item, label in answers.labels.items()]
    good = [word for label, _, word, _ in found if label]
    bad = [word for label, _, word, _ in found if not label]
    return Way(
        fmean(word == ("accept" if label else "reject") for label, _, word, _ in found),
        fmean(word == "accept" for word in bad),
        fmean(word == "reject" for word in good),
        fmean(word not in ("accept", "reject") for _, _, word, _ in found),
        fmean(len(asked) for *_, asked in found),
        1_000
        * fmean(
            sum(answers.costs[model].get(item, 0.0) for model in asked)
            for _, item, _, asked in found
        ),
    )


def ways(answers: Answers) -> dict[str, list[Way]]:
    """Return each way to judge, by every family or every choice of families."""
    found: dict[str, list[Way]] = {}
    for mode in CONFIRM:
        for kind, chosen in (
            ("one family", [(name,) * 3 for name in FAMILIES]),
            ("three families", permutations(FAMILIES, 3)),
        ):
            panels = [
                {
                    tier: FAMILIES[name][at]
                    for at, (tier, name) in enumerate(zip(TIERS, names, strict=True))
                }
                for names in chosen
            ]
            found[f"tiers, {mode}, {kind}"] = [
                measured(answers, course(answers, each, mode)) for each in panels
            ]
    found["the deep model of one family, alone"] = [
        measured(answers, panel(answers, [models[1]])) for models in FAMILIES.values()
    ]
    found["panel of three families"] = [
        measured(answers, panel(answers, [FAMILIES[name][1] for name in names]))
        for names in combinations(FAMILIES, 3)
    ]
    return found


def table(found: dict[str, list[Way]]) -> str:
    """Return the ways as a table."""
    rows = [
        "| judged by | accuracy | wrong accepts | wrong rejects | left to a person | calls | USD per 1,000 |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, each in found.items():
        means = [fmean(column) for column in zip(*each, strict=True)]
        worst, best = min(way.accuracy for way in each), max(way.accuracy for way in each)
        shares = " | ".join(
            [
                f"{means[0]:.3f} ({worst:.3f} to {best:.3f})",
                *(f"{share:.3f}" for share in means[1:4]),
            ]
        )
        rows.append(f"| {name} | {shares} | {means[4]:.2f} | {means[5]:.2f} |")
    return "\n".join(rows)


def main() -> int:
    """Measure and print the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    parser.add_argument(
        "--review", type=int, nargs="?", const=20, metavar="N", help="also review N texts, 20"
    )
    parser.add_argument(
        "--second", default="smollm2-135m", metavar="MODEL", help="the other local model"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", type=Path, metavar="FILE")
    given = parser.parse_args()
    folder = given.data / "judge" / "alaofi_relevance"
    if not folder.is_dir():
        parser.error(f"there is no {folder}")
    answers = read(folder)
    found = ways(answers)
    more = " --review" if given.review else ""
    page = (
        HEAD.format(more=more, day=f"{datetime.now(UTC):%Y-%m-%d}", count=len(answers.labels))
        + "\n"
        + table(found)
        + "\n"
    )
    if given.review:
        page += "\n" + reviewing.page(given.review, given.second)
    if given.write:
        given.write.write_text(page, encoding="utf-8")
    print(
        json.dumps({name: [way._asdict() for way in each] for name, each in found.items()})
        if given.json
        else page
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
