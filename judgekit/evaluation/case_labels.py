"""Reads the labels of cases: each one's meaning depends on all labels, and on the task."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from judgekit.config import TIE
from judgekit.evaluation import labels
from judgekit.evaluation.tasks import choose_task
from judgekit.judging.documents import LEAST_TEXTS, LETTERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.config import ModeName
    from judgekit.evaluation.cases import Case, Label
    from judgekit.evaluation.labels import LeftOut
    from judgekit.rubric.schema import Rubric


def with_understood_labels(
    cases: Sequence[Case], rubric: Rubric | None, mode: ModeName, left_out: LeftOut
) -> list[Case]:
    """Keep the cases whose label means something to the rubric, and replace each label by its meaning.

    The other cases are counted in `left_out`. Raises `InputError` if all cases are left out.
    """
    labelled = []
    for case in cases:
        if labels.is_no_label(case.right(mode)):
            left_out.blank += 1
        else:
            labelled.append(case)
    if rubric is None or choose_task(rubric, mode).label_kind == "candidates":
        meaningful = labelled
    else:
        readings = _Readings.of(labelled, rubric, mode)
        meaningful = []
        for case in labelled:
            label = readings.translate(case, rubric, mode)
            if label is None:
                left_out.add_unknown(case.right(mode))
            else:
                meaningful.append(case.model_copy(update={"label": label}))
    if labelled and not meaningful:
        raise labelled[0].label_error()
    if cases and not meaningful:
        raise cases[0].wrong(f"label: expected a label in some case; left out: {left_out.told()}")
    return meaningful


class _Readings(NamedTuple):
    """The meanings of labels, by `labels.key_of`: of documents, unless they `are_scores`, and of winners."""

    are_scores: bool
    outcomes: Mapping[str, str]
    winners: Mapping[str, str]

    @classmethod
    def of(cls, cases: Sequence[Case], rubric: Rubric, mode: ModeName) -> _Readings:
        """Find the meanings of all cases' labels; raises `UsageError` if labels can be read in two ways."""
        outcome_counts = Counter[str]()
        winner_counts = Counter[str]()
        text_count = LEAST_TEXTS
        for case in cases:
            label = case.right(mode)
            if isinstance(label, list):
                continue
            if choose_task(rubric, mode, case).label_kind == "winner":
                winner_counts[labels.key_of(label)] += 1
                text_count = max(text_count, len(case.subjects))
            else:
                outcome_counts[labels.key_of(label)] += 1
        return cls(
            labels.are_scores(outcome_counts),
            labels.read_outcomes(outcome_counts),
            labels.read_winners(winner_counts, text_count),
        )

    def translate(self, case: Case, rubric: Rubric, mode: ModeName) -> Label | float | None:
        """Translate a label to a winner, a score or an outcome; None if the label means none of these."""
        label = case.right(mode)
        if isinstance(label, list):
            return label  # for candidates; the code that reads the answers refuses it
        key = labels.key_of(label)
        if choose_task(rubric, mode, case).label_kind == "winner":
            letter = self.winners.get(key)
            text_count = len(case.subjects) or LEAST_TEXTS  # a pair has no `subjects`
            names_text_or_tie = letter in (TIE, *LETTERS[:text_count])
            return letter if names_text_or_tie else None
        if self.are_scores:
            return labels.number_of(label)
        return self.outcomes.get(key)
