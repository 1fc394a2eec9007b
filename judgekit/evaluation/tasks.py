"""Chooses a case's task: the only module of evaluation that asks for a rubric's kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from judgekit.errors import InputError
from judgekit.evaluation.document_task import DocumentTask
from judgekit.evaluation.labels import is_binary
from judgekit.evaluation.pair_task import PairTask
from judgekit.evaluation.ranking_task import RankingTask
from judgekit.evaluation.samples import find_common_ways
from judgekit.evaluation.selection_task import SelectionTask
from judgekit.rubric.schema import CompareRubric, ScoreRubric, SelectRubric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.config import ModeName
    from judgekit.evaluation.cases import Case
    from judgekit.evaluation.samples import Sample
    from judgekit.evaluation.task import CaseTask
    from judgekit.rubric.schema import Rubric

AnyTask: TypeAlias = "CaseTask[Any, Any, Any, Any]"


def choose_task(rubric: Rubric, mode: ModeName, case: Case | None = None) -> AnyTask:
    """Choose the task for a case. Without a case, choose the task that the rubric is usually for."""
    if isinstance(rubric, CompareRubric):
        return PairTask(rubric, mode)
    if isinstance(rubric, SelectRubric):
        return SelectionTask(rubric, mode)
    if case is not None and case.subjects:
        return RankingTask(rubric, mode)
    return DocumentTask(rubric, mode)


def build_ranking_task(rubric: Rubric, mode: ModeName) -> RankingTask:
    """Build the task for cases that compare texts by score.

    Raises `InputError` if the rubric doesn't score.
    """
    if not isinstance(rubric, ScoreRubric):
        raise InputError(
            f"subjects are scored; name a rubric of the task 'score', got {rubric.ref}"
        )
    return RankingTask(rubric, mode)


def read_samples(cases: Sequence[Case], rubric: Rubric, mode: ModeName) -> list[Sample]:
    """Read the labelled documents, pairs or candidates in all cases as samples.

    Raises `InputError` if a label or an answer doesn't fit the rubric.
    """
    # A tier deviates in a case if another model answered than usual, or the answer was read in another way.
    deviating_tiers_by_case = find_common_ways(cases).deviating_tiers_by_case
    samples: list[Sample] = []
    for case, deviating_tiers in zip(cases, deviating_tiers_by_case, strict=True):
        task = choose_task(rubric, mode, case)
        samples.extend(task.build_samples(case, deviating_tiers))

    # A pair's "improve" means a tie, which never counts as a reject.
    are_pairs = choose_task(rubric, mode).label_kind == "winner"
    if are_pairs:
        return samples

    # If no label is "improve", the answer "improve" counts as a reject.
    if is_binary(sample.label for sample in samples):
        return [sample._replace(has_binary_labels=True) for sample in samples]
    return samples
