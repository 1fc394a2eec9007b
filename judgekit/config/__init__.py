"""Settings and their files; the names that all rooms share; checks of what Python callers pass."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from judgekit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

ModeName: TypeAlias = Literal["strict", "lenient"]
TierName: TypeAlias = Literal["quick", "deep", "tiebreaker"]
TIERS: tuple[TierName, ...] = ("quick", "deep", "tiebreaker")
Outcome: TypeAlias = Literal["accept", "improve", "reject"]


def check(call: str, **values: object) -> None:
    """Check arguments, any of which may be None; raises `UsageError` that names the call and the argument."""
    require(call, **{name: value for name, value in values.items() if value is not None})


def require(call: str, **values: object) -> None:
    """Check arguments, none of which may be None; raises as `check` does."""
    for name, value in values.items():
        expected, is_sound = _EXPECTED.get(name, ("a text (str)", lambda value: isinstance(value, str)))
        if not is_sound(value):
            got = value.__name__ if isinstance(value, type) else f"{type(value).__name__} {value!r:.40}"
            raise UsageError(f"{call}: {name} must be {expected}, got {got}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_PATH = ("a str or a Path", lambda value: isinstance(value, os.PathLike | str))
# What each argument must be; any other one must be a text.
_EXPECTED: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "mode": (" or ".join(map(repr, get_args(ModeName))), lambda value: value in get_args(ModeName)),
    "deadline": ("a number of seconds above 0", lambda value: _is_number(value) and value > 0),
    "max_cost_usd": ("a number of dollars from 0", lambda value: _is_number(value) and value >= 0),
    "limit": ("a whole number from 1", lambda value: type(value) is int and value > 0),
    "files": ("one path or more", bool),
    "a path": _PATH,
    "project": _PATH,
    "roots": ("a list of folders", lambda value: isinstance(value, list | tuple)),
    "texts": ("a mapping of names to texts", lambda value: isinstance(value, Mapping) and bool(value)),
    "payload": ("a mapping", lambda value: isinstance(value, Mapping)),
}
