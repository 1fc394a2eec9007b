"""Chooses a rubric's question: the only module of judging that asks for a rubric's kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from judgekit.judging.compare_question import CompareQuestion
from judgekit.judging.question import AskedQuestion
from judgekit.judging.score_question import ScoreQuestion
from judgekit.judging.select_question import SelectQuestion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.rubric.schema import Rubric

AnyQuestion: TypeAlias = AskedQuestion[Any, Any, Any, Any]
_QUESTION_BY_TASK: Mapping[str, type[AnyQuestion]] = {
    "score": ScoreQuestion,
    "select": SelectQuestion,
    "compare": CompareQuestion,
}


def get_question_class(rubric: Rubric) -> type[AnyQuestion]:
    """Return the question class for a rubric's task."""
    return _QUESTION_BY_TASK[rubric.task]
