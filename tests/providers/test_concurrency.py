"""The scheduler of judging: order, how much is held in memory, and the state after an error or the end."""

from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from judgekit.providers.concurrency import AHEAD, map_concurrently

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize("in_order", [True, False])
def test_a_slow_one_holds_up_no_others_unless_they_are_wanted_in_order(*, in_order: bool) -> None:
    at_work, most, taken = 0, 0, 0

    def things() -> Iterator[int]:
        nonlocal taken
        while taken < 100:
            taken += 1
            yield taken

    async def run() -> list[int]:
        others = asyncio.Semaphore(0)

        async def judge(thing: int) -> int:
            nonlocal at_work, most
            at_work += 1
            most = max(most, at_work)
            if thing == 1:
                for _ in range(5):
                    await others.acquire()
            others.release()
            await asyncio.sleep(0.002)
            at_work -= 1
            return -thing

        found: list[int] = []
        async with aclosing(map_concurrently(judge, things(), 3, in_order=in_order)) as stream:
            async for thing, result in stream:
                assert result == -thing
                assert taken - len(found) <= AHEAD * 3 + 1
                found.append(thing)
        return found

    found = asyncio.run(asyncio.wait_for(run(), 30))
    assert sorted(found) == [*range(1, 101)]
    assert (found == sorted(found)) == in_order
    assert 1 < most <= 3


def test_a_thing_that_is_ready_is_taken_when_the_results_before_it_were_seen() -> None:
    seen = 0
    unseen = []

    def things() -> Iterator[int]:
        for number in range(40):
            unseen.append(number - seen)
            yield number

    async def judge(thing: int) -> int:
        await asyncio.sleep(0)
        return thing

    async def run() -> None:
        nonlocal seen
        stream = map_concurrently(judge, things(), 4, in_order=False, never_blocks=True)
        async with aclosing(stream):
            async for _ in stream:
                seen += 1

    asyncio.run(run())
    assert max(unseen) < 4


def test_results_come_while_the_next_thing_is_awaited_and_an_error_ends_the_rest() -> None:
    more, cancelled = threading.Event(), list[str]()

    def things() -> Iterator[str]:
        yield from ("slow", "quick")
        assert more.wait(20), "no result came before the next thing"
        yield "wrong"

    async def judge(thing: str) -> str:
        try:
            await asyncio.sleep(60 if thing == "slow" else 0)
        except asyncio.CancelledError:
            cancelled.append(thing)
            raise
        if thing == "wrong":
            raise ValueError(thing)
        return thing

    async def run() -> None:
        async with aclosing(map_concurrently(judge, things(), 4, in_order=False)) as stream:
            async for thing, _ in stream:
                assert thing == "quick"
                more.set()

    with pytest.raises(ValueError, match="wrong"):
        asyncio.run(run())
    assert cancelled == ["slow"]
