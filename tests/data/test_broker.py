"""One budget and one pace for all workers: what a dead one gives back, what slows all, what none spends."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from inspect import isawaitable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from looped import looped

from judgekit.data import broker as module
from judgekit.data.broker import SILENT, Broker, BrokerClient
from judgekit.errors import FailureKind, GatewayError, Usage
from judgekit.providers.pace import Whom

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

WHOM = Whom("p", None, "m", "", most=2, per_minute=None)


@asynccontextmanager
async def clients(broker: Broker, count: int) -> AsyncIterator[list[BrokerClient]]:
    """Yield the sides of so many workers, which beat."""

    async def ask(name: str, *values: object) -> Any:  # noqa: ANN401 - what it returns
        found = getattr(broker, name)(*values)
        return await found if isawaitable(found) else found

    made = [BrokerClient(ask, f"place{number} process") for number in range(count)]
    for number in range(count):
        broker.begin(f"place{number} process")
    beating = [asyncio.create_task(each.beats()) for each in made]
    try:
        yield made
    finally:
        for task in beating:
            task.cancel()


async def two_workers() -> tuple[Broker, asyncio.Task[Any]]:
    """Let one worker hold all turns and reserve a half of 10 dollars, and another wait for a turn."""
    broker = Broker(10.0, workers=2)
    for name in ("a 1", "b 1"):
        broker.begin(name)
    for number in range(2):
        assert await broker.turn("a 1", number, WHOM, 900) is None
    broker.beat("a 1", 1.0, 5.0)
    waiting = asyncio.create_task(broker.turn("b 1", 1, WHOM, 900))
    assert spendable(broker, "b 1") == pytest.approx(2)  # another 2 are lent to the first
    assert not waiting.done()
    return broker, waiting


def spendable(broker: Broker, worker: str) -> float:
    """Spend all that a worker may, until it may spend no more."""
    spent = 0.0
    for _ in range(60):
        spent = broker.beat(worker, spent, 0.0).cap_usd
    return spent


@looped
async def test_a_worker_that_says_nothing_gives_back_its_turns_and_its_reservation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker, waiting = await two_workers()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + SILENT))
    assert spendable(broker, "b 1") == pytest.approx(9)  # all but what was spent
    assert await waiting is None
    assert broker.alive() == ["b 1"]


@looped
async def test_a_worker_in_the_place_of_a_dead_one_drops_what_that_held() -> None:
    broker, waiting = await two_workers()
    broker.begin("a 2")
    assert await waiting is None
    assert spendable(broker, "b 1") == pytest.approx(9)
    assert broker.spent() == pytest.approx(1 + 9)


@looped
async def test_one_refusal_slows_all_workers() -> None:
    async with clients(Broker(workers=2), 2) as (one, other):
        refused, pace = (each.paces.made(WHOM) for each in (one, other))
        other.paces[WHOM] = pace
        async with refused.turn(), pace.turn():
            refused.was_too_much(100.0)
        while not pace.refusals:  # noqa: ASYNC110 - nothing tells when it has heard
            await asyncio.sleep(0.01)
        for each in (refused, pace):
            with pytest.raises(GatewayError, match="asked for a pause") as caught:
                async with each.turn(time.monotonic() + 60):
                    pass
            assert caught.value.kind is FailureKind.RATE_LIMIT


@looped
async def test_workers_together_pass_the_budget_by_no_more_than_a_call_of_each_slot() -> None:
    async def slot(client: BrokerClient, seconds: float) -> None:
        while True:
            try:
                await client.reserve()
            except GatewayError:
                return
            await asyncio.sleep(seconds)
            client.settle(Usage(cost_usd=1.0))

    broker = Broker(40.0, workers=3)
    async with clients(broker, 3) as made:
        await asyncio.gather(*(slot(each, 0.01 * at) for at in range(4) for each in made))
        assert 40 <= sum(each.spent_usd for each in made) <= 40 + 3 * 4
        assert all(each.is_over for each in made)
