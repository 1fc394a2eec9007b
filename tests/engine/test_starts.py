from __future__ import annotations

import asyncio
from functools import wraps
from typing import TYPE_CHECKING

import pytest

from judgekit.engine import judges
from judgekit.engine.judges import Starts
from judgekit.providers.gateway import before_asking

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import ParamSpec

    Given = ParamSpec("Given")

LONG = 10.0  # seconds after which a test is broken


def in_a_loop(test: Callable[Given, Awaitable[None]]) -> Callable[Given, None]:
    """Run an asynchronous test."""

    @wraps(test)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(LONG):
                await test(*args, **kwargs)

        asyncio.run(bounded())

    return run


def about_to_ask() -> None:
    told = before_asking.get()
    assert told is not None
    told()


@in_a_loop
async def test_the_next_begins_when_the_one_before_asks() -> None:
    turns, seen = Starts(), list[str]()
    answered = asyncio.Event()

    async def work(name: str) -> None:
        async with turns.one():
            for step in range(3):
                seen.append(f"{name}{step}")
                await asyncio.sleep(0)
            about_to_ask()
            seen.append(f"{name} asks")
            await answered.wait()
            about_to_ask()  # of the next tier: nothing is left to be given back
            seen.append(f"{name} ends")

    works = [asyncio.create_task(work(name)) for name in "abc"]
    for _ in range(100):
        await asyncio.sleep(0)
    assert seen == [f"{name}{what}" for name in "abc" for what in ("0", "1", "2", " asks")]
    answered.set()
    await asyncio.gather(*works)
    assert sorted(seen[12:]) == ["a ends", "b ends", "c ends"]
    assert before_asking.get() is None


@in_a_loop
async def test_a_call_from_within_a_task_of_the_work_counts() -> None:
    turns, answered = Starts(), asyncio.Event()

    async def call() -> None:
        about_to_ask()
        await answered.wait()

    async def jury() -> None:
        async with turns.one():
            await asyncio.gather(call(), call())

    task = asyncio.create_task(jury())
    async with turns.one():
        assert not task.done()
    answered.set()
    await task


def fails() -> None:
    raise ValueError("of the work")


@pytest.mark.parametrize("ends", [lambda: None, fails])
@in_a_loop
async def test_the_next_begins_when_the_one_before_ends(ends: Callable[[], None]) -> None:
    turns = Starts()
    try:
        async with turns.one():
            ends()
    except ValueError:
        pass
    async with turns.one():
        pass


@in_a_loop
async def test_who_asks_nobody_does_not_keep_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judges, "LONGEST", 0.0)
    turns, forever = Starts(), asyncio.Event()

    async def waits_for_something_else() -> None:
        async with turns.one():
            await forever.wait()

    slow = asyncio.create_task(waits_for_something_else())
    await asyncio.sleep(0)
    async with turns.one():
        assert not slow.done()
    forever.set()
    await slow


@in_a_loop
async def test_who_goes_leaves_no_turn_behind() -> None:
    turns, forever = Starts(), asyncio.Event()

    async def work() -> None:
        async with turns.one():
            await forever.wait()

    begun, waiting = asyncio.create_task(work()), asyncio.create_task(work())
    await asyncio.sleep(0)
    waiting.cancel()
    begun.cancel()
    await asyncio.gather(begun, waiting, return_exceptions=True)
    async with turns.one():
        pass
