"""Runs coroutines where no event loop can, and long work where none should."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

Value = TypeVar("Value")


def run(coroutine: Coroutine[Any, Any, Value]) -> Value:
    """Return what the coroutine returns; inside a running loop it gets a thread and a loop of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(copy_context().run, asyncio.run, coroutine).result()


async def aside(work: Callable[[], Value]) -> Value:
    """Return what `work` returns, done in a thread with the caller's context while the event loop goes on.

    Neither the end of the loop nor that of the process waits for it: who gives it up is free at once.
    """
    loop, context = asyncio.get_running_loop(), copy_context()
    done: asyncio.Future[Value] = loop.create_future()

    def settle(value: Value | None, error: BaseException | None) -> None:
        if done.done():  # given up
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(value)  # type: ignore[arg-type]  # without an error it is what `work` returned

    def run() -> None:
        value, error = None, None
        try:
            value = context.run(work)
        except BaseException as raised:  # noqa: BLE001 - raised again where somebody waits
            error = raised
        with suppress(RuntimeError):  # given up, and the loop is gone
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=run, name="judgekit-aside", daemon=True).start()
    return await done
