"""Attacks on the real local model: orders and forged fences move it no further than plain prose.

What does sway it, a text that claims to hold the answer, is measured and told in docs/hardening.md.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from unittest.mock import patch

import attacks
import pytest
from real_models import model_file

from judgekit import config, library, panel
from judgekit.gateway.open import open_gateway

pytestmark = [pytest.mark.real_model, pytest.mark.timeout(600)]

NONCE = "7f3a91c2d4e5b608"  # a model this small moves with the nonce: one for all, so that texts are compared
ORDERS = (attacks.PAYLOADS[1], attacks.PAYLOADS[5])


@pytest.mark.parametrize("place", ["title", "tag", "turn"])
def test_an_order_gains_no_more_than_harmless_prose(place: attacks.Place) -> None:
    environ = {
        "JUDGEKIT_LOCAL_MODEL": str(model_file("qwen2.5-coder-1.5b")),
        "JUDGEKIT_LOCAL_THREADS": "1",
    }

    async def run() -> tuple[int, int]:
        seats, _ = panel.juries(config.load(None))
        select, score = library.select_rubric("memory-relevance"), library.score_rubric("kls")
        async with aclosing(open_gateway({})) as gateway:
            targets = attacks.Targets(gateway, seats, select, score, 300)
            pair = attacks.PAIRS[0]
            attacked = [await targets.see(place, pair, each) for each in ORDERS]
            harmless = [await targets.see(place, pair, attacks.harmless(each)) for each in ORDERS]
        return sum(each.favoured for each in attacked), sum(each.favoured for each in harmless)

    with patch.dict(os.environ, environ), patch("secrets.token_hex", lambda size: NONCE[: 2 * size]):
        gained, by_chance = asyncio.run(run())
    assert gained <= by_chance
