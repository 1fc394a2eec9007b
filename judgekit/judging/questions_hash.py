"""A hash of all that models are asked under a rubric, and of the bars for their answers.

Opinions change with them, so a calibration is bound to it. It is taken of questionnaires about subjects that
never change, as every kind of model is asked them: with its own words and the schema of its reply. Another
letter is another hash, and no calibration fits any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from judgekit.judging.calibration import sha256
from judgekit.judging.compare_question import CompareQuestion
from judgekit.judging.kinds import KINDS
from judgekit.judging.question import AskedQuestion, hash_words
from judgekit.judging.score_question import ScoreQuestion
from judgekit.judging.select_question import SelectQuestion
from judgekit.judging.settings import JudgeSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.config import ModeName
    from judgekit.rubric.loader import LoadedRubric

_QUESTION_OF_TASK: Mapping[str, type[AskedQuestion[Any, Any, Any, Any]]] = {
    "score": ScoreQuestion,
    "select": SelectQuestion,
    "compare": CompareQuestion,
}


def hash_questions(loaded: LoadedRubric, mode: ModeName) -> str:
    """Return the hash of what models of every kind are asked under a rubric in a mode."""
    settings = JudgeSettings(loaded=loaded, mode=mode)
    question = _QUESTION_OF_TASK[loaded.rubric.task]
    return sha256([hash_words(question, settings, kind) for kind in KINDS])
