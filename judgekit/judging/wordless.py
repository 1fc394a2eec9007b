"""Tells verdicts that were decided in probabilities, without a word, from those with reasons."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def is_wordless(verdict: Mapping[str, Any]) -> bool:
    """Whether all opinions of the tier that settled a verdict's record are those of decision models."""
    opinions = []
    for row in verdict.get("rounds") or ():
        if row["tier"] == verdict.get("judge_tier") and row["opinion"]:
            opinions.append(row["opinion"])
    return bool(opinions) and all("probabilities" in opinion for opinion in opinions)
