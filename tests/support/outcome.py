"""A command's result: its exit code and its output; configurations to run it under."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import hooking

if TYPE_CHECKING:
    from collections.abc import Callable

    from loopback import Asked


@dataclass(frozen=True)
class Outcome:
    """One run of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401 - any JSON
        return json.loads(self.out)


Run: TypeAlias = "Callable[..., Outcome]"
"""Runs a command, given its words."""
Use: TypeAlias = "Callable[..., None]"
"""Makes a server the model that judges; `model` or the names of tiers say how it is called."""
Served: TypeAlias = "Callable[..., tuple[Outcome, list[Asked]]]"
"""Runs a command with a server that answers as told; returns its outcome and what was asked."""


def by_project(text: str) -> Path:
    """Write the configuration of the project in the current folder, and return its file."""
    return hooking.by_project(Path.cwd(), text)
