"""Runs the same work on many things at once, such as documents or rows."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from judgekit.providers import running

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

Thing = TypeVar("Thing")
Value = TypeVar("Value")

AHEAD = 4  # things held for each worker, so that a slow one doesn't hold up the others


async def map_concurrently(
    work: Callable[[Thing], Awaitable[Value]],
    things: Iterable[Thing],
    limit: int,
    *,
    in_order: bool = True,
    is_ready: bool = False,
) -> AsyncGenerator[tuple[Thing, Value], None]:
    """Yield each thing with the result of `work` on it, working on up to `limit` things at once.

    The pairs come in the order of the things, or without `in_order` as the results do. Things are taken from
    the iterable only as needed. Taking one runs in a thread, since it may block, unless `is_ready` says that
    it's quick. The first error is raised and cancels the work under way. So does closing the generator.
    """
    room = asyncio.Semaphore(AHEAD * limit if in_order else limit)
    take_next = partial(next, enumerate(things), None)
    lock = asyncio.Lock()
    # Each worker puts its results here. When it ends, its own task is put here, too.
    complete = asyncio.Queue[tuple[int, Thing, Value] | asyncio.Task[None]]()

    async def work_on_things() -> None:
        """Take one thing after another and work on it, until there are no more."""
        while True:
            await room.acquire()
            if is_ready:
                numbered_thing = take_next()
            else:
                async with lock:
                    # In a thread, because reading the next thing from a pipe may block.
                    numbered_thing = await running.run_in_thread(take_next)
            if numbered_thing is None:
                return
            number, thing = numbered_thing
            complete.put_nowait((number, thing, await work(thing)))

    workers = [asyncio.create_task(work_on_things()) for _ in range(limit)]
    for worker in workers:
        worker.add_done_callback(complete.put_nowait)

    results = {}  # not yielded yet
    next_number = 0  # of the next one to yield
    workers_ended = 0
    try:
        while workers_ended < limit:
            item = await complete.get()
            if isinstance(item, asyncio.Task):
                item.result()  # raises the worker's error
                workers_ended += 1
                continue
            number, thing, value = item
            # Without an order, every result counts as the next one, so that it's yielded at once.
            position = number if in_order else next_number
            results[position] = thing, value
            while next_number in results:
                yield results.pop(next_number)
                next_number += 1
                room.release()
    finally:
        for worker in workers:
            worker.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*workers, return_exceptions=True)
