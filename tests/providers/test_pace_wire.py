"""A provider that bears little is asked as much as it bears, and everyone is answered."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from asking import custom, request
from loopback import SILENT, Answer, Asked, Loopback, fails, says
from making import call_usage

from judgekit.errors import FailureKind, GatewayError
from judgekit.providers.litellm import LitellmGateway
from judgekit.providers.registry import Limits

if TYPE_CHECKING:
    from judgekit.providers.base import Reply


class Modest:
    """Answers a few calls at a time and refuses what is more."""

    def __init__(self, most: int) -> None:
        self.refused = 0
        self._free = threading.Semaphore(most)

    def __call__(self, asked: Asked) -> Answer:
        if not self._free.acquire(blocking=False):
            self.refused += 1
            return fails(429, retry_after=0.2)
        try:
            time.sleep(0.05)
            return says('{"reasoning": "fine", "score": 4}')
        finally:
            self._free.release()


def test_a_modest_provider_answers_everyone() -> None:
    modest = Modest(6)

    async def run(base: str) -> list[Reply]:
        gateway = LitellmGateway()
        whom = custom(base)
        try:
            return await asyncio.gather(*(gateway.complete(whom, request(timeout=60)) for _ in range(40)))
        finally:
            await gateway.aclose()

    with Loopback(modest) as server:
        replies = asyncio.run(run(server.base))
    assert len(replies) == 40
    assert modest.refused > 0


def test_what_is_used_up_is_not_asked_for() -> None:
    spent = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "400ms"}
    times: list[float] = []

    def answer(asked: Asked) -> Answer:
        times.append(time.monotonic())
        return says('{"score": 4}', headers=spent if len(times) == 1 else {})

    async def run(base: str) -> None:
        gateway = LitellmGateway()
        try:
            for _ in range(2):
                await gateway.complete(custom(base), request(timeout=60))
        finally:
            await gateway.aclose()

    with Loopback(answer) as server:
        asyncio.run(run(server.base))
    assert times[1] - times[0] >= 0.35


def test_a_pause_that_outlasts_the_deadline_is_told_at_once_and_nobody_is_asked() -> None:
    async def run(base: str) -> list[GatewayError]:
        gateway, found = LitellmGateway(), []
        try:
            for _ in range(2):
                with pytest.raises(GatewayError) as exception_info:
                    await gateway.complete(custom(base), request(timeout=20))
                found.append(exception_info.value)
        finally:
            await gateway.aclose()
        return found

    start = time.monotonic()
    with Loopback(fails(429, retry_after=100)) as server:
        first, second = asyncio.run(run(server.base))
        assert len(server.requests) == 1
    assert (first.kind, second.kind) == (FailureKind.RATE_LIMIT, FailureKind.RATE_LIMIT)
    assert "nobody was asked" in second.message
    assert time.monotonic() - start < 20


def test_who_never_had_a_turn_was_not_given_no_reply() -> None:
    async def run(base: str) -> GatewayError:
        gateway, whom = LitellmGateway(), custom(base)
        whom = replace(whom, profile=whom.profile.model_copy(update={"limits": Limits(concurrency=1)}))
        first = asyncio.create_task(gateway.complete(whom, request(timeout=60)))
        await asyncio.sleep(0)
        try:
            with pytest.raises(GatewayError) as exception_info:
                await gateway.complete(whom, request(timeout=0.2))
            return exception_info.value
        finally:
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            await gateway.aclose()

    with Loopback(SILENT) as server:
        error = asyncio.run(run(server.base))
    assert (error.kind, error.usage) == (FailureKind.TIMEOUT, call_usage())
    assert error.message == "no turn within 0.2 s: other calls were made first"
