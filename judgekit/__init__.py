"""A judge made of language models, for content that a person or an agent is about to trust.

Everything public is loaded at its first use: `import judgekit` costs nothing.
"""

from __future__ import annotations

TYPE_CHECKING = (
    False  # importing typing for it would cost the prompt hook more than all that stands here
)
if TYPE_CHECKING:
    from judgekit.api import (
        Text,
        acompare,
        ajudge,
        ajudge_rows,
        ajudge_texts,
        compare,
        find_rubric,
        hook,
        judge,
        judge_rows,
        judge_texts,
        rubrics,
    )
    from judgekit.environment import __version__
    from judgekit.errors import ConfigError, InputError, InvalidReply, JudgekitError, UsageError
    from judgekit.judging.search import Result, SearchResult, search
    from judgekit.judging.verdict import Comparison, Finding, Round, Verdict
    from judgekit.replies.extract import extract
    from judgekit.rubric.loader import LoadedRubric
    from judgekit.rubric.schema import CompareRubric, ScoreRubric, SelectRubric

__all__ = ["CompareRubric", "Comparison", "ConfigError", "Finding", "InputError", "InvalidReply"]
__all__ += [
    "JudgekitError",
    "LoadedRubric",
    "Result",
    "Round",
    "ScoreRubric",
    "SearchResult",
    "SelectRubric",
]
__all__ += ["Text", "UsageError", "Verdict", "__version__", "acompare", "ajudge", "ajudge_rows"]
__all__ += [
    "ajudge_texts",
    "compare",
    "extract",
    "find_rubric",
    "hook",
    "judge",
    "judge_rows",
    "judge_texts",
]
__all__ += ["rubrics", "search"]

_HOMES = {
    "judgekit.environment": ("__version__",),
    "judgekit.errors": ("ConfigError", "InputError", "InvalidReply", "JudgekitError", "UsageError"),
    "judgekit.replies.extract": ("extract",),
    "judgekit.judging.search": ("Result", "SearchResult", "search"),
    "judgekit.judging.verdict": ("Comparison", "Finding", "Round", "Verdict"),
    "judgekit.rubric.loader": ("LoadedRubric",),
    "judgekit.rubric.schema": ("CompareRubric", "ScoreRubric", "SelectRubric"),
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    """Import a public name when it's first used, so that `import judgekit` is fast."""
    if name not in __all__:
        raise AttributeError(f"module 'judgekit' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - needed here only

    home_module = "judgekit.api"
    for module, names in _HOMES.items():
        if name in names:
            home_module = module
            break
    return getattr(import_module(home_module), name)
