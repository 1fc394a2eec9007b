"""Whether the probabilities of a judge can be taken at their word, on candidates with labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit.evaluation import reliability
from judgekit.evaluation.judge_report import Probabilities

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from judgekit.calibrate.labelled import Case
    from judgekit.calibrate.reading import Reader


def measured(cases: Sequence[Case], judge: str, reader: Reader | None) -> Probabilities | None:
    """Return how far a judge's probabilities that a candidate is to be kept are right; None without any.

    Of the originals, as agreement is.
    """
    known = list(_known(cases, judge, reader)) if reader else []
    said, right = [probability for probability, _ in known], [kept for _, kept in known]
    brier, ece = reliability.brier(said, right), reliability.ece(said, right)
    if brier is None or ece is None:
        return None
    return Probabilities(answers=len(known), brier=brier, ece=ece, bins=reliability.table(said, right))


def _known(cases: Sequence[Case], judge: str, reader: Reader) -> Iterator[tuple[float, bool]]:
    for case in cases:
        said = case.judges.get(judge)
        if said is None or said.probabilities is None or case.variant != "original" or not case.candidates:
            continue
        labels = reader.labels(case)
        for each in case.candidates:
            if each.id in said.probabilities:
                yield said.probabilities[each.id], labels[each.id] == "accept"
