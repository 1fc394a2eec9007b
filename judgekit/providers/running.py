"""The one event loop in which this process asks models, and how coroutines and long work run beside it."""

from __future__ import annotations

import _imp
import asyncio
import atexit
import importlib._bootstrap
import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Jobs: TypeAlias = "SimpleQueue[Callable[[], Callable[[], None]]]"

Value = TypeVar("Value")
_END_SECONDS = 2.0  # for what is cancelled as the process ends, which takes milliseconds
# Seconds that a fork waits for imports; litellm takes three of CPU, on a busy machine more than ten.
_MOST_IMPORTING = 30.0
_MOST_IDLE = (
    8  # threads that wait for work: to start one for each call holds up the loop that calls
)

_lock = threading.Lock()
_home: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None
lasting: dict[str, Any] = {}
"""The gateways that all callers of this process share, by their kind."""
closing: list[Callable[[], Coroutine[Any, Any, None]]] = []
"""What is awaited in the loop when the process ends."""
_idle: list[
    Jobs
] = []  # what the threads wait on that have nothing to do; changed by single operations
_left: list[
    object
] = []  # of the process that this one was forked from, whose sockets are not ours to close


def run(coroutine: Coroutine[Any, Any, Value]) -> Value:
    """Return what the coroutine returns; inside a running loop it gets a thread and a loop of its own."""
    if not _is_inside_a_loop():
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(copy_context().run, asyncio.run, coroutine).result()


def _is_inside_a_loop() -> bool:
    # What is raised later must not seem to come from this.
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def run_in_thread(work: Callable[[], Value]) -> Value:
    """Return what `work` returns, done in a thread with the caller's context; nothing waits for it to end."""
    context = copy_context()
    future: Future[Value] = Future()
    future.set_running_or_notify_cancel()  # its caller may be cancelled, the work cannot

    def settle() -> Callable[[], None]:
        try:
            return partial(future.set_result, context.run(work))
        except BaseException as error:  # noqa: BLE001 - raised again where the caller waits
            return partial(future.set_exception, error)

    try:
        jobs = _idle.pop()
    except IndexError:
        jobs = SimpleQueue()
        threading.Thread(target=_serve, args=(jobs,), name="judgekit-worker", daemon=True).start()
    jobs.put(settle)
    return await asyncio.wrap_future(future)


def _serve(jobs: Jobs) -> None:
    """Do one job after another, until enough other threads are idle."""
    is_kept = True
    while is_kept:
        hand_over = jobs.get()()
        is_kept = len(_idle) < _MOST_IDLE
        if is_kept:
            _idle.append(jobs)  # before the caller goes on, who may have more work at once
        hand_over()
        del hand_over  # and what it holds


async def inside(work: Callable[[], Coroutine[Any, Any, Value]], patience: float = 0.0) -> Value:
    """Return what `work` returns in the process's loop; a cancelled caller waits `patience` s for its end."""
    global _home  # noqa: PLW0603 - one for the process
    with _lock:
        if _home is None:
            loop = asyncio.new_event_loop()
            _home = (
                loop,
                threading.Thread(target=loop.run_forever, name="judgekit-models", daemon=True),
            )
            _home[1].start()
        loop = _home[0]
    if loop is asyncio.get_running_loop():
        return await work()
    over = threading.Event()

    async def to_its_end() -> Value:
        try:
            return await work()
        finally:
            over.set()

    try:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(to_its_end(), loop))
    except asyncio.CancelledError:
        if patience:
            await asyncio.to_thread(over.wait, patience)
        raise


def end() -> None:
    """Cancel what is under way, close what asked to be closed, and stop; within seconds."""
    if _home is None:
        return
    loop, thread = _home

    async def close_all() -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for close in closing:
            with suppress(Exception):
                await close()

    with suppress(Exception):
        asyncio.run_coroutine_threadsafe(close_all(), loop).result(_END_SECONDS)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(_END_SECONDS)


def _before_fork() -> None:
    """Wait until no other thread imports, and let none begin: nobody would end its import in the child."""
    deadline = time.monotonic() + _MOST_IMPORTING
    own = threading.get_ident()
    _imp.acquire_lock()
    while time.monotonic() < deadline:
        locks = list(getattr(importlib._bootstrap, "_module_locks", {}).values())  # noqa: SLF001 - told nowhere else
        if {getattr(lock(), "owner", None) for lock in locks} <= {None, own}:
            return
        _imp.release_lock()
        time.sleep(0.005)
        _imp.acquire_lock()


def _in_child() -> None:
    global _home, _lock  # noqa: PLW0603 - one for the process
    _imp.release_lock()
    _lock = threading.Lock()
    _left.extend((_home, dict(lasting)))
    _home = None
    lasting.clear()
    _idle.clear()  # their threads are the parent's


atexit.register(end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_imp.release_lock, after_in_child=_in_child
    )
