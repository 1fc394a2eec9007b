"""Runs the same work on many items at once, such as documents or rows."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from judgekit.providers import running

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence

Item = TypeVar("Item")
Value = TypeVar("Value")

AHEAD = 4  # items per worker that can be taken and not yielded yet, so that a slow one doesn't block others

Result: TypeAlias = tuple[int, Item, Value]
"""An item's position, the item and its result."""


async def map_concurrently(
    work: Callable[[Item], Awaitable[Value]],
    items: Iterable[Item],
    limit: int,
    *,
    in_order: bool = True,
    never_blocks: bool = False,
) -> AsyncGenerator[tuple[Item, Value], None]:
    """Run `work` on each item, up to `limit` at once, and yield the items with their results.

    Set `never_blocks` if getting the next item never waits, so that it needs no thread. The first error
    cancels all work, and so does closing the generator.
    """
    # A worker takes a slot before each item, and it's released when the item's result is yielded. If results
    # must be in order, one slow item holds up the finished ones after it, so the workers need more slots to
    # go on.
    slots = asyncio.Semaphore(AHEAD * limit if in_order else limit)
    take_item = _make_item_taker(items, never_blocks=never_blocks)
    # Receives each result, and each worker's task when the worker ends.
    events = asyncio.Queue[Result[Item, Value] | asyncio.Task[None]]()

    async def work_until_empty() -> None:
        """Work on one item after another until there are no more."""
        while True:
            await slots.acquire()
            indexed_item = await take_item()
            if indexed_item is None:
                return  # keeps its slot, but there's at least one for each other worker
            index, item = indexed_item
            value = await work(item)
            events.put_nowait((index, item, value))

    workers = [asyncio.create_task(work_until_empty()) for _ in range(limit)]
    for worker in workers:
        worker.add_done_callback(events.put_nowait)
    waiting_line = _Line[Item, Value]()
    running_workers = limit
    try:
        while running_workers > 0:
            result = await _receive_result(events)
            if result is None:  # a worker has ended
                running_workers -= 1
                continue
            results_to_yield = waiting_line.add_and_take(result) if in_order else [result]
            for _, item, value in results_to_yield:
                yield item, value
                slots.release()
    finally:
        await _cancel(workers)


async def _receive_result(
    finished: asyncio.Queue[Result[Item, Value] | asyncio.Task[None]],
) -> Result[Item, Value] | None:
    """Wait for the next result. Returns None if a worker has ended instead, or raises the worker's error."""
    result_or_worker = await finished.get()
    if isinstance(result_or_worker, asyncio.Task):
        result_or_worker.result()  # raises the worker's error, if any
        return None
    return result_or_worker


def _make_item_taker(
    items: Iterable[Item], *, never_blocks: bool
) -> Callable[[], Awaitable[tuple[int, Item] | None]]:
    """Make a function that takes the next item with its position, or returns None if there are no more.

    With `never_blocks`, getting the next item needs no thread.
    """
    indexed_items = enumerate(items)
    take_lock = asyncio.Lock()

    def take_next() -> tuple[int, Item] | None:
        return next(indexed_items, None)

    async def take_item() -> tuple[int, Item] | None:
        if never_blocks:
            return take_next()
        # Getting the next item can block, for example on a pipe, so do it in a thread. With the lock, two
        # threads never use the iterator at once.
        async with take_lock:
            return await running.run_in_thread(take_next)

    return take_item


class _Line(Generic[Item, Value]):
    """Results that came early and wait for those before them."""

    def __init__(self) -> None:
        self._waiting: dict[int, Result[Item, Value]] = {}
        self._next_index = 0

    def add_and_take(self, result: Result[Item, Value]) -> Iterator[Result[Item, Value]]:
        """Add a result, and yield the waiting results that come next in the order of the items.

        A result waits until all earlier ones have been yielded.
        """
        index, _, _ = result
        self._waiting[index] = result
        while self._next_index in self._waiting:
            yield self._waiting.pop(self._next_index)
            self._next_index += 1


async def _cancel(workers: Sequence[asyncio.Task[None]]) -> None:
    """Cancel all workers, and wait until they've ended."""
    for worker in workers:
        worker.cancel()
    # The caller can be cancelled while it waits here. That mustn't hide the error for which it cancels.
    with suppress(asyncio.CancelledError):
        await asyncio.gather(*workers, return_exceptions=True)
