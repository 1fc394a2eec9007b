"""Reads the labels of cases: each one's meaning depends on all labels, and on the task."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from judgekit.config import TIE
from judgekit.evaluation import labels
from judgekit.evaluation.tasks import choose_task
from judgekit.judging.documents import LETTERS, MIN_TEXTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.config import ModeName
    from judgekit.evaluation.cases import Case, Label
    from judgekit.evaluation.labels import LeftOut
    from judgekit.rubric.schema import Rubric


def translate_labels(
    cases: Sequence[Case], rubric: Rubric | None, mode: ModeName, left_out: LeftOut
) -> list[Case]:
    """Translate the cases' labels to winners, scores or outcomes.

    Cases without a label that's understood are omitted, and counted in `left_out`. Raises `InputError` if all
    cases would be omitted.
    """
    labelled = _select_labelled(cases, mode, left_out)
    understood = _translate_labels(labelled, rubric, mode, left_out)
    are_all_omitted = bool(cases) and not understood
    if not are_all_omitted:
        return understood

    if labelled:
        raise labelled[0].label_error()
    raise cases[0].build_error(
        f"label: expected a label in some case; left out: {left_out.describe()}"
    )


def _select_labelled(cases: Sequence[Case], mode: ModeName, left_out: LeftOut) -> list[Case]:
    """Select the cases that have a label. The others are counted in `left_out`."""
    labelled = []
    for case in cases:
        if labels.is_no_label(case.get_label(mode)):
            left_out.blank += 1
        else:
            labelled.append(case)
    return labelled


def _translate_labels(
    labelled: list[Case], rubric: Rubric | None, mode: ModeName, left_out: LeftOut
) -> list[Case]:
    """Translate the labels to winners, scores or outcomes.

    Cases whose label isn't understood are omitted, and counted in `left_out`.
    """
    if rubric is None:
        return labelled
    if choose_task(rubric, mode).label_kind == "candidates":
        return labelled  # Candidate ids need no translation.

    meanings = _Meanings.of(labelled, rubric, mode)
    understood = []
    for case in labelled:
        label = meanings.translate(case, rubric, mode)
        if label is None:
            left_out.add_unknown(case.get_label(mode))
        else:
            understood.append(case.model_copy(update={"label": label}))
    return understood


class _Meanings(NamedTuple):
    """The meanings of document labels, unless they `are_scores`, and of winner labels.

    Both are by `labels.convert_to_key`.
    """

    are_scores: bool
    outcomes: Mapping[str, str]
    winners: Mapping[str, str]

    @classmethod
    def of(cls, cases: Sequence[Case], rubric: Rubric, mode: ModeName) -> _Meanings:
        """Find the meanings of all cases' labels. Raises `UsageError` if the labels are ambiguous."""
        # A label's meaning depends on how often other labels occur. Count outcomes and winners separately,
        # because a label such as 1 can be either.
        outcome_counts = Counter[str]()
        winner_counts = Counter[str]()
        most_texts = MIN_TEXTS
        for case in cases:
            label = case.get_label(mode)
            if isinstance(label, list):  # candidate ids, which need no meaning
                continue
            key = labels.convert_to_key(label)
            if choose_task(rubric, mode, case).label_kind == "winner":
                winner_counts[key] += 1
                most_texts = max(most_texts, len(case.subjects))
            else:
                outcome_counts[key] += 1

        return cls(
            are_scores=labels.are_scores(outcome_counts),
            outcomes=labels.read_outcomes(outcome_counts),
            winners=labels.read_winners(winner_counts, most_texts),
        )

    def translate(self, case: Case, rubric: Rubric, mode: ModeName) -> Label | float | None:
        """Translate a case's label to a winner, score or outcome. Returns None if it isn't understood."""
        label = case.get_label(mode)
        if isinstance(label, list):
            # Candidate ids need no translation. If the case has no candidates, a later check refuses them.
            return label

        key = labels.convert_to_key(label)
        if choose_task(rubric, mode, case).label_kind == "winner":
            return self._translate_winner(key, case)
        if self.are_scores:
            return labels.parse_number(label)
        return self.outcomes.get(key)

    def _translate_winner(self, key: str, case: Case) -> str | None:
        """Translate a label to "tie" or a text's letter. Returns None if the case has no such text."""
        text_count = len(case.subjects) or MIN_TEXTS  # a pair has no `subjects`
        possible_winners = (TIE, *LETTERS[:text_count])
        winner = self.winners.get(key)
        return winner if winner in possible_winners else None
