"""The names that configuration, rubrics and providers share: modes, tiers and outcomes."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import StringConstraints

Identifier = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*$")]
Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]

ModeName: TypeAlias = Literal["strict", "lenient"]
TierName: TypeAlias = Literal["quick", "deep", "tiebreaker"]
TIERS: tuple[TierName, ...] = ("quick", "deep", "tiebreaker")

Outcome: TypeAlias = Literal["accept", "improve", "reject"]
