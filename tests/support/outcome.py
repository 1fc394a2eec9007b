"""What a command did: its exit code and what it printed; configurations to run it under."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from judgekit.config import settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from loopback import Asked, Loopback


@dataclass(frozen=True)
class Outcome:
    """One run of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401 - any JSON
        """What was printed, as JSON."""
        return json.loads(self.out)


Run: TypeAlias = "Callable[..., Outcome]"
"""Runs a command, given its words."""
Use: TypeAlias = "Callable[[Loopback | str], None]"
"""Makes a server the model that judges."""
Served: TypeAlias = "Callable[..., tuple[Outcome, list[Asked]]]"
"""Runs a command with a server that answers as told; returns its outcome and what was asked."""


def by_user(text: str) -> None:
    """Write the user's configuration."""
    settings.user_file().parent.mkdir(parents=True, exist_ok=True)
    settings.user_file().write_text(text, encoding="utf-8")


def by_project(text: str) -> Path:
    """Write the configuration of the project in the current folder, and return its file."""
    path = settings.project_file(Path.cwd())
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
