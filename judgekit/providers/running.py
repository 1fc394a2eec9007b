"""Runs coroutines where no event loop can, and long work where none should.

The event loop in which this process asks models: one, in a thread of its own, whoever asks from wherever.
"""

from __future__ import annotations

import _imp
import asyncio
import atexit
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
    from typing import Any


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


Lasting = TypeVar("Lasting")
_END_SECONDS = 2.0  # for what is cancelled as the process ends, which takes milliseconds


class _Home:
    """A loop that runs in a thread, and what lasts as long as it does."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.lasting: dict[Callable[[], object], object] = {}
        self.closing: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._thread = threading.Thread(target=self._run, name="judgekit-models", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def end(self) -> None:
        """Cancel what is under way, close what asked to be closed, and stop; bounded."""
        if not self.loop.is_running():
            return
        with suppress(Exception):
            asyncio.run_coroutine_threadsafe(self._close(), self.loop).result(_END_SECONDS)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_END_SECONDS)

    async def _close(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for close in self.closing:
            with suppress(Exception):
                await close()


_lock = threading.Lock()
_home: _Home | None = None
_left: list[_Home] = []  # of the process that this one was forked from, whose sockets are not ours to close


def _here() -> _Home:
    global _home  # noqa: PLW0603 - one for the process
    with _lock:
        if _home is None:
            _home = _Home()
        return _home


def lasting(make: Callable[[], Lasting]) -> Lasting:
    """Return what `make` returns, made once and kept for all callers in this process."""
    kept = _here().lasting
    with _lock:
        if make not in kept:
            kept[make] = make()
        return kept[make]  # type: ignore[return-value]  # what this very function has made


def close_at_exit(close: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Have something closed, in the loop, when the process ends."""
    _here().closing.append(close)
    # Again: what is registered last is called first, and the library just imported may tidy up, too.
    atexit.unregister(_end)
    atexit.register(_end)


async def inside(work: Callable[[], Coroutine[Any, Any, Value]], patience: float = 0.0) -> Value:
    """Return what the coroutine returns that `work` makes, run in the loop with the caller's context.

    When the caller is cancelled, so is the work, for whose end it is waited up to `patience` seconds then.
    """
    loop, own = _here().loop, asyncio.get_running_loop()
    if loop is own:
        return await work()
    over: asyncio.Future[None] = own.create_future()
    begun: list[asyncio.Task[Value]] = []

    def settle() -> None:
        if not over.done():
            over.set_result(None)

    def begin() -> None:
        begun.append(loop.create_task(work()))
        begun[0].add_done_callback(tell)

    def tell(task: asyncio.Task[Value]) -> None:
        if not task.cancelled():
            task.exception()  # it is the caller's, who may have gone
        with suppress(RuntimeError):  # the caller's loop is closed
            own.call_soon_threadsafe(settle)

    loop.call_soon_threadsafe(begin)
    try:
        await asyncio.shield(over)
    except asyncio.CancelledError:
        loop.call_soon_threadsafe(lambda: begun[0].cancel())  # noqa: PLW0108 - it may not have begun yet
        await asyncio.wait([over], timeout=patience)
        raise
    return begun[0].result()


def _end() -> None:
    if _home is not None:
        _home.end()


def _forked() -> None:
    """Begin anew in a process that was forked: only the thread that forked is in it."""
    global _home, _lock  # noqa: PLW0603 - one for the process
    _lock = threading.Lock()
    if _home is not None:
        _left.append(_home)
    _home = None


atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
