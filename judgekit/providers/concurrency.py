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
    """Yield each thing with its result, working on up to `limit` at once: in order, or as they complete.

    A thing is taken when there's room for it. Taking runs in a thread, unless the things are `is_ready`:
    reading a row from a local file takes less time than starting a thread. The first error is raised and
    cancels the work under way, as does closing the generator.
    """
    room = asyncio.Semaphore(AHEAD * limit if in_order else limit)
    take_next = partial(next, enumerate(things), None)
    lock = asyncio.Lock()
    # Workers put results here, and at last themselves.
    complete = asyncio.Queue[tuple[int, Thing, Value] | asyncio.Task[None]]()

    async def work_on_things() -> None:
        """Take one thing after another and work on it, until there are no more."""
        while True:
            await room.acquire()
            if is_ready:
                numbered_thing = take_next()
            else:
                async with lock:
                    # In a thread, because a pipe may block.
                    numbered_thing = await running.run_in_thread(take_next)
            if numbered_thing is None:
                return
            number, thing = numbered_thing
            complete.put_nowait((number, thing, await work(thing)))

    workers = [asyncio.create_task(work_on_things()) for _ in range(limit)]
    for worker in workers:
        worker.add_done_callback(complete.put_nowait)
    results = {}
    next_number = 0
    workers_ended = 0
    try:
        while workers_ended < limit:
            item = await complete.get()
            if isinstance(item, asyncio.Task):
                item.result()  # raises the worker's error
                workers_ended += 1
                continue
            number, thing, value = item
            if not in_order:
                number = next_number
            results[number] = thing, value
            while next_number in results:
                yield results.pop(next_number)
                next_number += 1
                room.release()
    finally:
        for worker in workers:
            worker.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*workers, return_exceptions=True)
