"""Runs the same work on many items at once, such as documents or rows."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from judgekit.providers import running

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

Item = TypeVar("Item")
Value = TypeVar("Value")

AHEAD = 4  # items per worker that can be taken and not yielded yet, so that a slow one doesn't block others


async def map_concurrently(
    work: Callable[[Item], Awaitable[Value]],
    items: Iterable[Item],
    limit: int,
    *,
    in_order: bool = True,
    is_ready: bool = False,
) -> AsyncGenerator[tuple[Item, Value], None]:
    """Run `work` on each item, up to `limit` at once, and yield the items with their results.

    `is_ready` means that getting the next item never blocks, so it needs no thread. The first error cancels
    all work, and so does closing the generator.
    """
    slots = asyncio.Semaphore(AHEAD * limit if in_order else limit)
    take_next = partial(next, enumerate(items), None)
    take_lock = asyncio.Lock()
    # Workers put their results here, and finally their own task.
    finished = asyncio.Queue[tuple[int, Item, Value] | asyncio.Task[None]]()

    async def work_until_empty() -> None:
        while True:
            await slots.acquire()
            if is_ready:
                indexed_item = take_next()
            else:
                async with take_lock:
                    # Use a thread, because getting the next item can block, for example on a pipe.
                    indexed_item = await running.run_in_thread(take_next)
            if indexed_item is None:
                return
            index, item = indexed_item
            finished.put_nowait((index, item, await work(item)))

    workers = [asyncio.create_task(work_until_empty()) for _ in range(limit)]
    for worker in workers:
        worker.add_done_callback(finished.put_nowait)

    results = {}  # not yielded yet, by position
    next_position = 0
    finished_workers = 0
    try:
        while finished_workers < limit:
            outcome = await finished.get()
            if isinstance(outcome, asyncio.Task):
                outcome.result()  # raises the worker's error
                finished_workers += 1
                continue
            index, item, value = outcome
            # Unless `in_order`, any result is the next one to yield.
            position = index if in_order else next_position
            results[position] = item, value
            while next_position in results:
                yield results.pop(next_position)
                next_position += 1
                slots.release()
    finally:
        for worker in workers:
            worker.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*workers, return_exceptions=True)
