"""Makes the messages about a subject that models would get, without asking one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgekit.judging.compare_question import CompareQuestion
from judgekit.judging.documents import Candidates, Document
from judgekit.judging.fence import Fence
from judgekit.judging.score_question import ScoreQuestion
from judgekit.judging.select_question import SelectQuestion
from judgekit.judging.settings import JudgeSettings
from judgekit.rubric.loader import LoadedRubric

if TYPE_CHECKING:
    from judgekit.config import ModeName, TierName
    from judgekit.judging.documents import ComparisonInput
    from judgekit.providers.base import Endpoint, Messages
    from judgekit.rubric.schema import Rubric


def question_about(
    rubric: Rubric,
    subject: Document | Candidates | ComparisonInput,
    tier: TierName = "quick",
    mode: ModeName = "strict",
    **more: Any,  # noqa: ANN401 - what else the question of a task has
) -> ScoreQuestion | SelectQuestion | CompareQuestion:
    loaded = LoadedRubric(rubric, Path("rubric.yaml"), "0" * 64, "path")
    settings = JudgeSettings(loaded_rubric=loaded, mode=mode)
    if isinstance(subject, Document):
        return ScoreQuestion(settings, subject, tier, **more)
    if isinstance(subject, Candidates):
        return SelectQuestion(settings, subject, tier, **more)
    return CompareQuestion(settings, subject, tier, **more)


def first_prompt(
    rubric: Rubric,
    subject: Document | Candidates | ComparisonInput,
    tier: TierName = "quick",
    *,
    endpoint: Endpoint | None = None,
    **more: Any,  # noqa: ANN401 - what else the question of a task has
) -> Messages:
    """Return the first prompt about a subject: to a model that writes, unless another is named."""
    question = question_about(rubric, subject, tier, **more)
    return question.build_prompts(endpoint, Fence("0"))[0]
