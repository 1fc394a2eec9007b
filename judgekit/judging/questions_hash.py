"""A hash of everything models are asked under a rubric, and of the thresholds for their answers.

Opinions change with them, so a calibration is bound to this hash. It's computed from questionnaires about
fixed subjects, as each kind of model is asked them, with its own words and its reply's schema. If one letter
changes, so does the hash, and calibrations no longer fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit.judging.calibration import hash_json
from judgekit.judging.kinds import KINDS
from judgekit.judging.question import hash_words
from judgekit.judging.questions import get_question_class
from judgekit.judging.settings import JudgeSettings

if TYPE_CHECKING:
    from judgekit.config import ModeName
    from judgekit.rubric.loader import LoadedRubric


def hash_questions(loaded: LoadedRubric, mode: ModeName) -> str:
    """Hash the questions to all kinds of models under a rubric and a mode."""
    settings = JudgeSettings(loaded_rubric=loaded, mode=mode)
    question = get_question_class(loaded.rubric)
    return hash_json([hash_words(question, settings, kind) for kind in KINDS])
