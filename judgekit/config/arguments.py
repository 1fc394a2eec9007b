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
    _number(call, "deadline", deadline, "a number of seconds above 0", zero=False)
    _number(call, "max_cost_usd", max_cost_usd, "a number of dollars from 0", zero=True)


def texts(call: str, **given: object) -> None:
    """Check arguments that are texts, or None."""
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            raise UsageError(f"{call}: {name} must be a text (str), got {shown(value)}")


def required(call: str, **given: object) -> None:
    """Check arguments that are texts."""
    for name, value in given.items():
        if not isinstance(value, str):
            raise UsageError(f"{call}: {name} must be a text (str), got {shown(value)}")


def mapping(call: str, given: object) -> None:
    """Check a mapping of names to texts that has something in it."""
    if not isinstance(given, Mapping):
        raise UsageError(f"{call}: expected a mapping of names to texts, got {shown(given)}")
    if not given:
        raise UsageError(f"{call}: expected one text or more, got an empty mapping")
    for name, text in given.items():
        required(call, **{"a name": name, f"the text of {name!r:.40}": text})


def paths(call: str, given: Sequence[object]) -> None:
    """Check that there are paths."""
    if not given:
        raise UsageError(f"{call}: expected one path or more, got none")
    for each in given:
        if each is None:
            raise UsageError(f"{call}: a path must be a str or a Path, got None")
        folder(call, **{"a path": each})


def folder(call: str, **given: object) -> None:
    """Check arguments that are paths, or None."""
    for name, value in given.items():
        if value is not None and not isinstance(value, os.PathLike | str):
            raise UsageError(f"{call}: {name} must be a str or a Path, got {shown(value)}")


def roots(call: str, given: object) -> None:
    """Check a list of folders, or None."""
    if given is None:
        return
    if not isinstance(given, list | tuple):
        raise UsageError(f"{call}: roots must be a list of folders, got {shown(given)}")
    for each in given:
        required(call, **{"a root": each})


def families(call: str, given: object) -> None:
    """Check one name of a family of models, a list of such with None between, or None."""
    for each in given if isinstance(given, list | tuple) else [given]:
        texts(call, author_family=each)


def payload(call: str, given: object) -> None:
    """Check a mapping of any kind."""
    if not isinstance(given, Mapping):
        raise UsageError(f"{call}: expected the payload as a mapping, got {shown(given)}")


def _number(call: str, name: str, value: object, wanted: str, *, zero: bool) -> None:
    if value is None:
        return
    sound = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not sound or value < 0 or (value == 0 and not zero):  # type: ignore[operator]  # a number when sound
        raise UsageError(f"{call}: {name} must be {wanted}, got {shown(value)}")
