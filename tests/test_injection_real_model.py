"""Attacks on the real local model: none gets an unrelated memory kept where plain prose does not.

What more was measured is told in docs/hardening.md.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from unittest.mock import patch

import attacks
import pytest
from real_models import model_file

from judgekit.config import settings
from judgekit.judging.panel import resolve_panel
from judgekit.providers.gateway import open_gateway
from judgekit.rubric import loader

pytestmark = [pytest.mark.slow, pytest.mark.real_model, pytest.mark.timeout(600)]

# A model this small moves with the nonce: one for all, so that texts are compared. Of five that were tried it
# believed the turn under one, 7f3a91c2d4e5b608 (docs/hardening.md); this is one of the other four.
NONCE = "1122334455667788"
WRITTEN: tuple[tuple[attacks.Place, str], ...] = (
    ("title", attacks.PAYLOADS[1]),
    ("tag", attacks.PAYLOADS[5]),
    ("turn", attacks.PAYLOADS[4]),
)
"""An order, a forged fence, and the sentence that this model believes: it says yes, whatever is asked."""


def test_an_attack_gains_no_more_than_harmless_prose() -> None:
    environ = {
        "JUDGEKIT_LOCAL_MODEL": str(model_file("qwen2.5-coder-1.5b")),
        "JUDGEKIT_LOCAL_THREADS": "1",
    }

    async def run() -> tuple[int, int]:
        panel, _ = resolve_panel(settings.load(None))
        select, score = loader.select_rubric("memory-relevance"), loader.score_rubric("kls")
        async with aclosing(open_gateway({})) as gateway:
            targets = attacks.Targets(gateway, panel, select, score, 300)

            async def favoured(place: attacks.Place, text: str) -> bool:
                return (await targets.see(place, attacks.PAIRS[0], text)).favoured

            gained = [each for each in WRITTEN if await favoured(*each)]
            # Only where an attack gained something there is anything to compare it with: calls take seconds.
            by_chance = [place for place, text in gained if await favoured(place, attacks.harmless(text))]
        return len(gained), len(by_chance)

    with (
        patch.dict(os.environ, environ),
        patch("judgekit.judging.fence.secrets.token_hex", lambda size: NONCE[: 2 * size]),
    ):
        gained, by_chance = asyncio.run(run())
    assert gained <= by_chance
