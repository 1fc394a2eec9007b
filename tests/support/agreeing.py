"""Rows on which a cheap model and a strong one are known to agree or not, and a server that is both."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING

from loopback import Asked, Loopback, fails, says
from scripted import scores

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from loopback import Answer

SMALL, LARGE = "small", "large"
_MARKS = re.compile(r"row (\d+) small=(\d) large=(\d|x)")


def write_rows(path: Path, opinions: Iterable[tuple[int, int | str]]) -> None:
    """Write a row for each pair of points: the small model's and the large one's ("x": it fails)."""
    lines = []
    for number, (small, large) in enumerate(opinions):
        row = {"id": f"r{number}", "answer": f"This is row {number} small={small} large={large}."}
        lines.append(json.dumps(row) + "\n")
    path.write_text("".join(lines), encoding="utf-8")


class TwoModels(Loopback):
    """Answers as both models; `asked` has the numbers of the rows that each was asked about."""

    def __init__(self) -> None:
        super().__init__(self.judge, models=(SMALL, LARGE))
        self.asked: dict[str, Counter[int]] = {SMALL: Counter(), LARGE: Counter()}
        self.most_calls: int | None = None
        """After so many calls of the large model it fails."""

    def judge(self, asked: Asked) -> Answer:
        model = asked.body["model"]
        found = _MARKS.search(asked.text)
        assert found is not None, asked.text
        number, small, large = found.groups()
        self.asked[model][int(number)] += 1
        points = small if model == SMALL else large
        is_worn_out = self.most_calls is not None and self.asked[LARGE].total() > self.most_calls
        if points == "x" or (model == LARGE and is_worn_out):
            return fails(400, "this row is refused")
        return says(scores(*[float(points)] * 3), model=model)

    @property
    def calls(self) -> dict[str, int]:
        return {model: counter.total() for model, counter in self.asked.items()}
