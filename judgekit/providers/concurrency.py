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

AHEAD = 4  # things per worker that can be taken and not yielded yet, so that a slow one doesn't block others


async def map_concurrently(
    work: Callable[[Thing], Awaitable[Value]],
    things: Iterable[Thing],
    limit: int,
    *,
    in_order: bool = True,
    is_ready: bool = False,
) -> AsyncGenerator[tuple[Thing, Value], None]:
    """Yield each thing with the result of `work` on it, running up to `limit` at once.

    If `is_ready`, taking the next thing never blocks, so it needs no thread. The first error, or closing the
    generator, cancels all work.
    """
    slots = asyncio.Semaphore(AHEAD * limit if in_order else limit)
    take_next = partial(next, enumerate(things), None)
    take_lock = asyncio.Lock()
    # Workers put their results here, and finally their own task.
    finished = asyncio.Queue[tuple[int, Thing, Value] | asyncio.Task[None]]()

    async def work_until_empty() -> None:
        while True:
            await slots.acquire()
            if is_ready:
                indexed_thing = take_next()
            else:
                async with take_lock:
                    # In a thread, because reading the next thing from a pipe can block.
                    indexed_thing = await running.run_in_thread(take_next)
            if indexed_thing is None:
                return
            index, thing = indexed_thing
            finished.put_nowait((index, thing, await work(thing)))

    workers = [asyncio.create_task(work_until_empty()) for _ in range(limit)]
    for worker in workers:
        worker.add_done_callback(finished.put_nowait)

    results = {}  # not yielded yet, by position
    next_position = 0
    finished_workers = 0
    try:
        while finished_workers < limit:
            item = await finished.get()
            if isinstance(item, asyncio.Task):
                item.result()  # raises the worker's error
                finished_workers += 1
                continue
            index, thing, value = item
            # Unless `in_order`, any result is the next one to yield.
            position = index if in_order else next_position
            results[position] = thing, value
            while next_position in results:
                yield results.pop(next_position)
                next_position += 1
                slots.release()
    finally:
        for worker in workers:
            worker.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*workers, return_exceptions=True)
