"""Runs coroutines where no event loop can, and long work where none should."""

from __future__ import annotations

import _imp
import asyncio
import importlib._bootstrap
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

Value = TypeVar("Value")
_MOST_IMPORTING = 10.0  # seconds that a fork waits


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


_unfinished: list[int] = []


@contextmanager
def not_to_be_forked() -> Iterator[None]:
    """While a thread is within, forks by other threads wait, up to ten seconds."""
    _unfinished.append(threading.get_ident())
    try:
        yield
    finally:
        _unfinished.remove(threading.get_ident())


def _forking() -> None:
    """Wait until no other thread imports, and let none begin: in the child nobody would end it."""
    end = time.monotonic() + _MOST_IMPORTING
    _imp.acquire_lock()
    while (_others_import() or set(_unfinished) - {threading.get_ident()}) and time.monotonic() < end:
        _imp.release_lock()
        time.sleep(0.005)
        _imp.acquire_lock()


def _in_child() -> None:
    _unfinished.clear()
    _imp.release_lock()


def _others_import() -> bool:
    own = threading.get_ident()
    locks = list(getattr(importlib._bootstrap, "_module_locks", {}).values())  # noqa: SLF001 - told nowhere else
    owners = [getattr(lock(), "owner", None) for lock in locks]
    return any(owner not in (None, own) for owner in owners)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_forking, after_in_parent=_imp.release_lock, after_in_child=_in_child)
