"""prometheus_gpt4x3: whether one judge agrees with itself."""

from __future__ import annotations

import itertools
from collections import Counter
from statistics import fmean
from typing import TYPE_CHECKING

from bench.judged.tables import Row, Table, lines
from judgekit.evaluation.stats import kappa, squared_distances

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def tables(folder: Path) -> Iterator[Table]:
    """Say how far three runs of one judge agree: there is no label of a person here."""
    runs = [line["gpt4_scores"] for line in lines(folder / "items.jsonl")]
    known = [run for run in runs if all(isinstance(score, int) for score in run)]
    two = [(str(a), str(b)) for each in known for a, b in itertools.combinations(each, 2)]
    weights = squared_distances([str(score) for score in range(1, 6)])
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
