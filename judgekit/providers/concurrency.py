"""Does the same work for many things at a time, such as documents or rows."""

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

AHEAD = 4  # times as many things as are worked on at a time are held, so that a slow one holds up no others


async def map_concurrently(
    work: Callable[[Thing], Awaitable[Value]],
    things: Iterable[Thing],
    limit: int,
    *,
    in_order: bool = True,
    is_ready: bool = False,
) -> AsyncGenerator[tuple[Thing, Value], None]:
    """Yield each thing with its result, up to `limit` worked on at a time: in order, or as they are complete.

    A thing is taken when there is room for it; if things are `is_ready`, such as rows of a file on this
    machine, without a thread, whose start and end take longer than a row's reading. The first error is
    raised, and cancels what is under way, as closing does.
    """
    room = asyncio.Semaphore(AHEAD * limit if in_order else limit)
    numbered = enumerate(things)
    taking = asyncio.Lock()
    complete = asyncio.Queue[tuple[int, Thing, Value] | asyncio.Task[None]]()

    take = partial(next, numbered, None)

    async def work_on_things() -> None:
        while await room.acquire():
            if is_ready:
                taken = take()
            else:
                async with taking:
                    # In a thread: a pipe may keep it waiting.
                    taken = await running.run_in_thread(take)
            if taken is None:
                return
            number, thing = taken
            complete.put_nowait((number, thing, await work(thing)))

    workers = [asyncio.create_task(work_on_things()) for _ in range(limit)]
    for worker in workers:
        worker.add_done_callback(complete.put_nowait)
    results = {}
    count = 0
    ended = 0
    try:
        while ended < limit:
            item = await complete.get()
            if isinstance(item, asyncio.Task):
                item.result()
                ended += 1
                continue
            number, thing, value = item
            results[number if in_order else count] = thing, value
            while count in results:
                yield results.pop(count)
                count += 1
                room.release()
    finally:
        for worker in workers:
            worker.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*workers, return_exceptions=True)
