"""Panels of comparisons by the names of their models, and what a comparison came to."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from scripted import scripted_endpoint

from judgekit.providers.base import models_by_tier

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.judging.verdict import Comparison
    from judgekit.providers.base import Endpoint

    Tiers = Mapping[str, str | Endpoint | Sequence[str]]

THREE = {"quick": "q", "deep": "d", "tiebreaker": "t"}
TWO = {"quick": "q", "deep": "d"}
OWN = {"quick": "anthropic/m", "deep": "openai/m"}


def endpoint(name: str, **changes: Any) -> Endpoint:  # noqa: ANN401 - passed on
    """Return a model whose family stands before the slash; without one the family is not known."""
    family, _, _ = name.rpartition("/")
    return dataclasses.replace(scripted_endpoint(name), family=family or "unknown", **changes)


def panel_of(by_tier: Tiers) -> dict[Any, tuple[Endpoint, ...]]:
    told: Any = {
        tier: endpoint(own)
        if isinstance(own, str)
        else list(map(endpoint, own))
        if isinstance(own, list)
        else own
        for tier, own in by_tier.items()
    }
    return dict(models_by_tier(told))


def ended(comparison: Comparison) -> tuple[str, str | None, str]:
    return comparison.verdict, comparison.judge_tier, comparison.consensus
