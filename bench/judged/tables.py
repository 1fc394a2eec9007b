"""Shared by the measurements of judging: rows, tables, splits, and their page."""

from __future__ import annotations

import json
import random
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

Item = TypeVar("Item")

SPLITS = 10
EQUAL_WITHIN = 1e-9  # two means of the same numbers may differ by so much


class Row(NamedTuple):
    """One way to judge: accuracy, calls to the strong judge (or to all) an item, and remarks."""

    way: str
    accuracy: float
    calls: float
    note: str = ""


class Table(NamedTuple):
    """The rows of one set, and the goal."""

    title: str
    about: str
    calls: str
    rows: list[Row]
    target: str
    met: bool | None


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSONL file."""
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]


def halves(items: Sequence[Item], seed: int) -> tuple[list[Item], list[Item]]:
    """Return two halves of the items, drawn by a seed."""
    mixed = shuffled(items, seed)
    return mixed[: len(mixed) // 2], mixed[len(mixed) // 2 :]


def shuffled(items: Iterable[Item], seed: int) -> list[Item]:
    """Return the items in an order drawn by a seed."""
    mixed = list(items)
    random.Random(seed).shuffle(mixed)  # noqa: S311 - statistics
    return mixed


def averages(found: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Return the mean credit and the mean calls."""
    some = list(found)
    return fmean(each[0] for each in some), fmean(each[1] for each in some)


def markdown(tables: Sequence[Table]) -> str:
    """Return the tables as a page."""
    about = (
        "Made by `python bench/judging.py --data DIR --write docs/figures/judging.md` from recorded answers"
        " of real models. Gates and margins are chosen on one part of the items and reported on the other,"
        f" means of {SPLITS} seeded splits; every calibrated row is what the judge itself said and asked, its"
        " models' answers replayed. The excess is promised against the strong judge, with 95 % (llmbar: 90 %)"
        " confidence. Which judges fill the tiers and the promised rate were settled while looking at these"
        " very items, so other items are the better witness."
    )
    parts = ["# Judging, measured", about]
    for table in tables:
        rows = [
            f"| {row.way} | {row.accuracy:.3f} | {row.calls:.2f} | {row.note} |"
            for row in table.rows
        ]
        verdict = "" if table.met is None else (" **Met.**" if table.met else " **Missed.**")
        parts += [
            f"## {table.title}",
            table.about,
            "\n".join(
                [f"| judged by | accuracy | {table.calls} | |", "| --- | --- | --- | --- |", *rows]
            ),
            f"To reach: {table.target}.{verdict}",
        ]
    return "\n\n".join(parts) + "\n"
