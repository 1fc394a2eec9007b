"""A hash of all that models are asked under a rubric, and of the bars for their answers.

Opinions change with them, so a calibration is bound to it. It is taken of questionnaires about subjects that
never change, as every kind of model is asked them: with its own words and the schema of its reply. Another
letter is another hash, and no calibration fits any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit.judging.calibration import sha256
from judgekit.judging.kinds import KINDS
from judgekit.judging.question import hash_words
from judgekit.judging.questions import question_of
from judgekit.judging.settings import JudgeSettings

if TYPE_CHECKING:
    from judgekit.config import ModeName
    from judgekit.rubric.loader import LoadedRubric


def hash_questions(loaded: LoadedRubric, mode: ModeName) -> str:
    """Return the hash of what models of every kind are asked under a rubric in a mode."""
    settings = JudgeSettings(loaded=loaded, mode=mode)
    question = question_of(loaded.rubric)
    return sha256([hash_words(question, settings, kind) for kind in KINDS])
