"""Who judges here: the models that a configuration and an environment come to."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from judgekit.gateway.resolve import Wanted, resolve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.config import Config
    from judgekit.gateway.base import Endpoint
    from judgekit.rubric import TierName


def seats(config: Config, environ: Mapping[str, str] = os.environ) -> tuple[dict[TierName, Endpoint], str]:
    """Return the model of each tier (none when no provider is configured) and why, in one line."""
    wanted = Wanted(config.judge.tiers.model_dump(), config.providers.allow, config.providers.order)
    panel = resolve(wanted, environ)
    return {tier: endpoints[0] for tier, endpoints in panel.endpoints.items()}, panel.reason
