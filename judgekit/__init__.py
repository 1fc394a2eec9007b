"""A judge made of language models, for content that a person or an agent is about to trust.

Everything public is loaded when it is first used: `import judgekit` costs nothing, and neither models nor
their libraries are touched before something is judged.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing for it would cost the prompt hook more than all that stands here
if TYPE_CHECKING:
    from judgekit.api import compare, extract, find_rubric, hook, judge, judge_texts, rubrics, search
    from judgekit.environment import __version__
    from judgekit.errors import (
        ConfigError,
        InputError,
        InvalidReply,
        JudgekitError,
        UsageError,
    )
    from judgekit.judging.search import Result, SearchResult
    from judgekit.judging.verdict import Comparison, Finding, Round, Verdict
    from judgekit.rubric.loader import LoadedRubric
    from judgekit.rubric.schema import CompareRubric, ScoreRubric, SelectRubric

__all__ = [
    "CompareRubric",
    "Comparison",
    "ConfigError",
    "Finding",
    "InputError",
    "InvalidReply",
    "JudgekitError",
    "LoadedRubric",
    "Result",
    "Round",
    "ScoreRubric",
    "SearchResult",
    "SelectRubric",
    "UsageError",
    "Verdict",
    "__version__",
    "compare",
    "extract",
    "find_rubric",
    "hook",
    "judge",
    "judge_texts",
    "rubrics",
    "search",
]

_HOMES = dict.fromkeys(("ConfigError", "InputError", "InvalidReply", "JudgekitError", "UsageError"), "errors")
_HOMES["__version__"] = "environment"


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'judgekit' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only when something public is asked for

    return getattr(import_module(f"judgekit.{_HOMES.get(name, 'api')}"), name)
