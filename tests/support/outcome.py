"""What a command did: its exit code and what it printed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


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
