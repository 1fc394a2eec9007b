"""What a command did: its exit code and what it printed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

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
