"""Checks what Python callers pass before anything is done with it; each function names call and argument.

All raise `UsageError`, which says what was expected.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, get_args

from judgekit.config.names import ModeName
from judgekit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence


def shown(value: object) -> str:
    """Return a value in a few characters."""
    return value.__name__ if isinstance(value, type) else f"{type(value).__name__} {value!r:.40}"


def options(
    call: str,
    rubric: object = None,
    mode: object = None,
    author_family: object = None,
    deadline: object = None,
    max_cost_usd: object = None,
) -> None:
    """Check what the calls that judge have in common."""
    texts(call, rubric=rubric, author_family=author_family)
    if mode is not None and mode not in get_args(ModeName):
        wanted = " or ".join(map(repr, get_args(ModeName)))
        raise UsageError(f"{call}: mode must be {wanted}, got {shown(mode)}")
    for name, value, wanted in (
        ("deadline", deadline, "a number of seconds above 0"),
        ("max_cost_usd", max_cost_usd, "a number of dollars from 0"),
    ):
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        is_sound = is_number and value >= 0 and (value or name == "max_cost_usd")  # type: ignore[operator]
        if value is not None and not is_sound:
            raise UsageError(f"{call}: {name} must be {wanted}, got {shown(value)}")


def texts(call: str, **values: object) -> None:
    """Check arguments that are texts, or None."""
    required(call, **{name: value for name, value in values.items() if value is not None})


def required(call: str, **values: object) -> None:
    """Check arguments that are texts."""
    for name, value in values.items():
        if not isinstance(value, str):
            raise UsageError(f"{call}: {name} must be a text (str), got {shown(value)}")


def mapping(call: str, texts: object) -> None:
    """Check a mapping of names to texts that has something in it."""
    if not isinstance(texts, Mapping):
        raise UsageError(f"{call}: expected a mapping of names to texts, got {shown(texts)}")
    if not texts:
        raise UsageError(f"{call}: expected one text or more, got an empty mapping")
    for name, text in texts.items():
        required(call, **{"a name": name, f"the text of {name!r:.40}": text})


def paths(call: str, values: Sequence[object]) -> None:
    """Check that there are paths."""
    if not values:
        raise UsageError(f"{call}: expected one path or more, got none")
    for value in values:
        if value is None:
            raise UsageError(f"{call}: a path must be a str or a Path, got None")
        folder(call, **{"a path": value})


def folder(call: str, **values: object) -> None:
    """Check arguments that are paths, or None."""
    for name, value in values.items():
        if value is not None and not isinstance(value, os.PathLike | str):
            raise UsageError(f"{call}: {name} must be a str or a Path, got {shown(value)}")


def roots(call: str, values: object) -> None:
    """Check a list of folders, or None."""
    if values is not None and not isinstance(values, list | tuple):
        raise UsageError(f"{call}: roots must be a list of folders, got {shown(values)}")
    for value in values or ():
        required(call, **{"a root": value})


def families(call: str, names: object) -> None:
    """Check one name of a family of models, a list of such with None between, or None."""
    for name in names if isinstance(names, list | tuple) else [names]:
        texts(call, author_family=name)


def payload(call: str, value: object) -> None:
    """Check a mapping of any kind."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{call}: expected the payload as a mapping, got {shown(value)}")
