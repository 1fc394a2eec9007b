"""One budget and one pace for all workers: returns of dead ones, slowdowns of all, and limits for each."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from looped import looped

from judgekit.data import broker as module
from judgekit.data.broker import MAX_SILENT_SECONDS, Broker, BrokerClient, Orders, PaceReport
from judgekit.errors import FailureKind, GatewayError, Usage
from judgekit.providers.pace import PaceKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

WHOM = PaceKey("p", None, "m", "", max_in_flight=2, per_minute=None)


@asynccontextmanager
async def clients(broker: Broker, count: int) -> AsyncIterator[list[BrokerClient]]:
    """Yield this many workers' sides, which beat."""

    async def beat(*values: Any) -> Orders:  # noqa: ANN401 - a beat's
        return broker.beat(*values)

    made = [BrokerClient(beat, f"place{number} process") for number in range(count)]
    for number in range(count):
        broker.begin(f"place{number} process")
    beating = [asyncio.create_task(each.send_heartbeats()) for each in made]
    try:
        yield made
    finally:
        for task in beating:
            task.cancel()


def two_workers() -> Broker:
    """Let one worker hold all turns and reserve a half of 10 dollars, and another want a turn in vain."""
    broker = Broker(10.0, workers=2)
    for name in ("a 1", "b 1"):
        broker.begin(name)
    assert turns(broker, "a 1", 2, 1.0, 5.0) == 2
    assert turns(broker, "b 1", 1) == 0
    assert spendable(broker, "b 1") == pytest.approx(2)  # another 2 are lent to the first
    return broker


def turns(
    broker: Broker,
    worker: str,
    wanted: int,
    spent: float = 0.0,
    reserved: float = 0.0,
    *,
    held: int = 0,
) -> int:
    """Return the number of turns that a worker gets when it wants `wanted`."""
    return (
        broker.beat(worker, spent, reserved, {WHOM: PaceReport(wanted, held)})
        .turns[WHOM]
        .new_turn_count
    )


def spendable(broker: Broker, worker: str) -> float:
    """Spend all that a worker may, until it may spend no more."""
    spent = 0.0
    for _ in range(60):
        spent = broker.beat(worker, spent, 0.0, {}).cap_usd
    return spent


def test_a_worker_that_says_nothing_gives_back_its_turns_and_its_reservation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = two_workers()
    monkeypatch.setattr(
        module, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + MAX_SILENT_SECONDS)
    )
    assert spendable(broker, "b 1") == pytest.approx(9)  # all but what was spent
    assert turns(broker, "b 1", 1) == 1
    assert broker.list_live_workers() == ["b 1"]
    assert turns(broker, "a 1", 0, held=2) == 0  # it was slow, and uses its turns
    assert turns(broker, "b 1", 1, held=1) == 0
    assert turns(broker, "a 1", 0, held=0) == 0
    assert turns(broker, "b 1", 2, held=1) == 1


def test_a_worker_in_the_place_of_a_dead_one_drops_what_that_held() -> None:
    broker = two_workers()
    broker.begin("a 2")
    assert turns(broker, "b 1", 2) == 2
    assert spendable(broker, "b 1") == pytest.approx(9)
    assert broker.get_total_cost() == pytest.approx(1 + 9)


@looped
@pytest.mark.parametrize(("max_in_flight", "workers"), [(1, 3), (5, 2), (3, 3)])
async def test_workers_make_no_more_calls_at_a_time_than_there_may_be_and_none_waits_for_ever(
    max_in_flight: int, workers: int
) -> None:
    flying, highest, calls = 0, 0, Counter[int]()

    async def slot(number: int, client: BrokerClient) -> None:
        nonlocal flying, highest
        pace = client.paces.setdefault(whom, client.paces.make_pace(whom))
        while min(calls[each] for each in range(workers)) < 2:
            async with pace.hold_turn():
                flying += 1
                highest = max(highest, flying)
                await asyncio.sleep(0.02)
                calls[number] += 1
                flying -= 1

    whom = WHOM._replace(max_in_flight=max_in_flight)
    async with clients(Broker(workers=workers), workers) as made:
        await asyncio.gather(
            *(slot(number, each) for number, each in enumerate(made) for _ in range(4))
        )
    assert highest == max_in_flight


@looped
async def test_a_limit_for_each_minute_holds_for_all_workers_together() -> None:
    whom, begun = WHOM._replace(max_in_flight=None, per_minute=3), 0

    async def call(client: BrokerClient) -> None:
        nonlocal begun
        pace = client.paces.setdefault(whom, client.paces.make_pace(whom))
        async with pace.hold_turn(time.monotonic() + 50):
            begun += 1

    async with clients(Broker(workers=2), 2) as made:
        found = await asyncio.gather(*(call(each) for each in made * 3), return_exceptions=True)
    failures = [each for each in found if isinstance(each, GatewayError)]
    assert (begun, len(failures)) == (3, 3)
    assert all("3 calls were made in a minute" in each.message for each in failures)


@looped
async def test_one_refusal_slows_all_workers() -> None:
    async with clients(Broker(workers=2), 2) as (one, other):
        refused, pace = (
            each.paces.setdefault(WHOM, each.paces.make_pace(WHOM)) for each in (one, other)
        )
        async with refused.hold_turn(), pace.hold_turn():
            refused.note_refusal(100.0)
        while not pace.compute_wait()[0]:  # noqa: ASYNC110 - nothing tells when it has heard
            await asyncio.sleep(0.01)
        for each in (refused, pace):
            with pytest.raises(GatewayError, match="asked for a pause") as caught:
                async with each.hold_turn(time.monotonic() + 60):
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
        assert all(each.is_limit_reached for each in made)
