"""Settings and their files; the names that all rooms share; checks of what Python callers pass."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias, get_args

from judgekit.errors import UsageError

ModeName: TypeAlias = Literal["strict", "lenient"]
MODES: tuple[ModeName, ...] = ("strict", "lenient")
TierName: TypeAlias = Literal["quick", "deep", "tiebreaker"]
TIERS: tuple[TierName, ...] = ("quick", "deep", "tiebreaker")
DepthName: TypeAlias = Literal["quick", "tiers", "panel", "peers"]  # the shallowest first
AnyDepth: TypeAlias = Literal["auto", DepthName]
Outcome: TypeAlias = Literal["accept", "improve", "reject"]
TIE = "tie"  # the verdict that no text is better

# The configuration's keys by section: here, too, because the models of `settings` take long to import.
KEYS = {
    "judge": "rubric mode tiers panel jury samples criteria margin author_family independence redact deadline"
    " max_cost_usd",
    "retrieval": "enabled roots command scorer inject max_inject pin judge rubric mode search_mode tiers pool"
    " deadline timeout fallback_top_k context_turns show hint_on_zero repeat_after log disabled_in"
    " inject_above",
    "gate": "mode paths authors rubric judge_mode budget undetermined override_without_terminal"
    " reviewers upstream review depth depth_limit",
    "escalate": "issues rejects labels text notify",
    "stop": "judge blocks max_files deadline",
    "server": "url token_file store budget_usd budget_per",
}


def check_arguments(call: str, **values: object) -> None:
    """Check the arguments of a Python call by the table `EXPECTED`; an argument that's None is fine.

    Raises `UsageError` naming the call, the argument and the expected value.
    """
    for name, value in values.items():
        if value is not None:
            require(call, **{name: value})


def require(call: str, **values: object) -> None:
    """Check the arguments of a Python call, of which None is wrong, too; raises as `check_arguments` does."""
    for name, value in values.items():
        expected, is_valid = EXPECTED.get(name, _TEXT)  # an argument that isn't listed is a text
        if not is_valid(value):
            raise UsageError(f"{call}: {name} must be {expected}, got {_describe(value)}")


# Of a number: none of ours is that large, and Python can't calculate with every larger one
_MOST = 1e12


def _describe(value: object) -> str:
    """Describe a wrong argument by its type and the beginning of its value.

    A class is described by its name.
    """
    if isinstance(value, type):
        return value.__name__
    try:
        return f"{type(value).__name__} {value!r:.40}"
    except Exception:  # noqa: BLE001 - the `repr` of a caller's object, or of an integer with 5,000 digits
        return type(value).__name__


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST


def _is_whole(value: object, most: float = _MOST) -> bool:
    """Whether a value is a whole number from 1 to `most`; True, an `int` to Python, is none."""
    return type(value) is int and 0 < value <= most


def _is_path(value: object) -> bool:
    return isinstance(value, os.PathLike | str) and _is_text(os.fspath(value))


def _is_filled(value: object) -> bool:
    return isinstance(value, Mapping) and bool(value)


def _are_rows(value: object) -> bool:
    return isinstance(value, Iterable) and not _is_text(value)  # a text iterates, too


def _are_fields(value: object) -> bool:
    return isinstance(value, Mapping) and all(map(_is_text, (*value, *value.values())))


Expected: TypeAlias = tuple[str, Callable[[Any], bool]]


def _one_of(words: Iterable[str]) -> Expected:
    """Make the entry of `EXPECTED` for an argument that must be one of some words."""
    return " or ".join(map(repr, words)), lambda value: _is_text(value) and value in words


LEAST_AGREE = 0.5
MOST_AGREE = 0.999
"""The limits of `agree`, the share of rows for which agreement is promised."""


def _is_share(value: object) -> bool:
    return _is_number(value) and LEAST_AGREE <= value <= MOST_AGREE  # type: ignore[operator]  # it's a number


_TEXT = "a text (str)", _is_text
_FLAG = "True or False", lambda value: isinstance(value, bool)
_PATH = "a str or a Path", _is_path
EXPECTED: dict[str, Expected] = {
    "rubric": _TEXT,
    "mode": _one_of(MODES),
    "model": (
        "a model such as 'openai/gpt-6-luna'",
        lambda value: _is_text(value) and value.strip(),
    ),
    "deadline": ("a number of seconds above 0", lambda value: _is_number(value) and value > 0),
    "max_cost_usd": ("a number of dollars from 0", lambda value: _is_number(value) and value >= 0),
    "depth": _one_of(get_args(AnyDepth)),
    "limit": ("a whole number from 1", _is_whole),
    "concurrency": ("a whole number from 1 to 256", lambda value: _is_whole(value, 256)),
    "cache": _FLAG,
    "files": ("one path or more", bool),
    "a path": _PATH,
    "project": _PATH,
    "roots": ("a list of folders", lambda value: isinstance(value, list | tuple)),
    "texts": ("a mapping of names to texts", _is_filled),
    "rows": ("rows, each a mapping of columns", _are_rows),
    "fields": ("a mapping of fields to columns", _are_fields),
    "as_completed": _FLAG,
    "task": _one_of(("judge", "compare")),
    "judge_turn": _one_of(("last", "all")),
    "agree": (f"a share from {LEAST_AGREE} to {MOST_AGREE}", _is_share),
    "agree_on": _one_of(("verdict", "accepted")),
    "always_confirm": _one_of(("accept",)),
    "payload": ("a mapping", lambda value: isinstance(value, Mapping)),
}
"""The expected value of each argument of a Python call, in words and as a check; others must be texts."""
