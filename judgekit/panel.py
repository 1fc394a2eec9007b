"""Who judges here: the models that a configuration and an environment come to."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from judgekit.gateway.resolve import Wanted, resolve
from judgekit.rubric import TIERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.config import Config
    from judgekit.gateway.base import Endpoint
    from judgekit.rubric import TierName


def wanted(config: Config) -> Wanted:
    """Return what a configuration asks of the choice of models."""
    named: dict[TierName, str | None] = {tier: getattr(config.judge.tiers, tier) for tier in TIERS}
    return Wanted(named, config.providers.allow, config.providers.order)


def seats(config: Config, environ: Mapping[str, str] = os.environ) -> tuple[dict[TierName, Endpoint], str]:
    """Return the model of each tier (none when no provider is configured) and why, in one line."""
    panel = resolve(wanted(config), environ)
    return {tier: endpoints[0] for tier, endpoints in panel.endpoints.items()}, panel.reason
