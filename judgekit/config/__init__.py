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
KEYS_BY_SECTION = {
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
    """Check a Python call's arguments against `EXPECTED_BY_ARGUMENT`, ignoring those that are None.

    Raises `UsageError` with the call, the argument and the expected value.
    """
    for name, value in values.items():
        if value is not None:
            require(call, **{name: value})


def require(call: str, **values: object) -> None:
    """Check a Python call's arguments against `EXPECTED_BY_ARGUMENT`. None isn't valid here.

    Raises `UsageError` with the call, the argument and the expected value.
    """
    for name, value in values.items():
        # Any argument that isn't listed must be text.
        expected, is_valid = EXPECTED_BY_ARGUMENT.get(name, _TEXT)
        if not is_valid(value):
            raise UsageError(f"{call}: {name} must be {expected}, got {_describe(value)}")


# The limit of any number. None of ours needs to be larger, and a huge `int` can't become a `float`.
_MAX_NUMBER = 1e12


def _describe(value: object) -> str:
    """Describe a wrong argument by its type and shortened value."""
    if isinstance(value, type):
        return value.__name__
    try:
        return f"{type(value).__name__} {value!r:.40}"
    except Exception:  # noqa: BLE001 - the `repr` of a caller's object, or of an integer with 5,000 digits
        return type(value).__name__


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MAX_NUMBER
    )


def _is_positive_int(value: object, most: float = _MAX_NUMBER) -> bool:
    """Whether a value is a whole number from 1 to `most`."""
    return type(value) is int and 0 < value <= most  # unlike `isinstance`, this excludes True


def _is_path(value: object) -> bool:
    return isinstance(value, os.PathLike | str) and _is_text(os.fspath(value))


def _is_filled(value: object) -> bool:
    return isinstance(value, Mapping) and bool(value)


def _are_rows(value: object) -> bool:
    return isinstance(value, Iterable) and not _is_text(value)  # a text iterates, too


def _are_fields(value: object) -> bool:
    return isinstance(value, Mapping) and all(map(_is_text, (*value, *value.values())))


Expected: TypeAlias = tuple[str, Callable[[Any], bool]]


def _expect_one_of(words: Iterable[str]) -> Expected:
    """Make the `EXPECTED_BY_ARGUMENT` entry of an argument that must be one of `words`."""
    return " or ".join(map(repr, words)), lambda value: _is_text(value) and value in words


MIN_AGREE = 0.5
MAX_AGREE = 0.999
"""The limits of `agree`, the fraction of rows for which agreement is promised."""


def _is_agreement(value: object) -> bool:
    return _is_number(value) and MIN_AGREE <= value <= MAX_AGREE  # type: ignore[operator]  # it's a number


_TEXT = "a text (str)", _is_text
_FLAG = "True or False", lambda value: isinstance(value, bool)
_PATH = "a str or a Path", _is_path
EXPECTED_BY_ARGUMENT: dict[str, Expected] = {
    "rubric": _TEXT,
    "mode": _expect_one_of(MODES),
    "model": (
        "a model such as 'openai/gpt-6-luna'",
        lambda value: _is_text(value) and value.strip(),
    ),
    "deadline": ("a number of seconds above 0", lambda value: _is_number(value) and value > 0),
    "max_cost_usd": ("a number of dollars from 0", lambda value: _is_number(value) and value >= 0),
    "depth": _expect_one_of(get_args(AnyDepth)),
    "limit": ("a whole number from 1", _is_positive_int),
    "concurrency": ("a whole number from 1 to 256", lambda value: _is_positive_int(value, 256)),
    "cache": _FLAG,
    "files": ("one path or more", bool),
    "a path": _PATH,
    "project": _PATH,
    "roots": ("a list of folders", lambda value: isinstance(value, list | tuple)),
    "texts": ("a mapping of names to texts", _is_filled),
    "rows": ("rows, each a mapping of columns", _are_rows),
    "fields": ("a mapping of fields to columns", _are_fields),
    "as_completed": _FLAG,
    "task": _expect_one_of(("judge", "compare")),
    "judge_turn": _expect_one_of(("last", "all")),
    "agree": (f"a share from {MIN_AGREE} to {MAX_AGREE}", _is_agreement),
    "agree_on": _expect_one_of(("verdict", "accepted")),
    "always_confirm": _expect_one_of(("accept",)),
    "payload": ("a mapping", lambda value: isinstance(value, Mapping)),
}
"""The expected value of each argument, in words and as a check. Arguments not listed must be strings."""
