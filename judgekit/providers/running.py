"""The one event loop in which this process asks models, and how coroutines and long work run beside it."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from judgekit.providers import forking

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Jobs: TypeAlias = "SimpleQueue[Callable[[], Callable[[], None]]]"

Value = TypeVar("Value")
_END_SECONDS = 2.0  # for what is cancelled as the process ends, which takes milliseconds
_JOB_SECONDS = 5.0  # that a fork waits for jobs: one may wait for input or a name server
# Threads that wait for work: to start one for each call holds up the loop that calls.
_MOST_IDLE = 8


class _Jobs(ThreadPoolExecutor):
    """The threads to which libraries give work from the loop."""

    def submit(self, *work: Any, **options: Any) -> Future[Any]:  # noqa: ANN401 - whatever an executor takes
        future = super().submit(*work, **options)
        _note_job(future)
        return future


class _Home:
    """The loop in which this process asks models, in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(_Jobs(thread_name_prefix="judgekit-jobs"))
        self.thread = threading.Thread(
            target=self.loop.run_forever, name="judgekit-models", daemon=True
        )
        self.thread.start()

    def rest(self, resumed: threading.Event) -> None:
        """Hold the loop between two steps of its tasks until `resumed`."""
        if self.thread is threading.current_thread() or not self.thread.is_alive():
            return
        parked = threading.Event()

        def park() -> None:
            parked.set()
            resumed.wait()

        self.loop.call_soon_threadsafe(park)
        parked.wait(forking.MOST_SECONDS)


_lock = threading.Lock()
_home: _Home | None = None
lasting: dict[str, Any] = {}
"""The gateways that all callers of this process share, by their kind."""
closing: list[Callable[[], Coroutine[Any, Any, None]]] = []
"""What is awaited in the loop when the process ends."""
# What the threads wait on that have nothing to do; changed by single operations.
_idle: list[Jobs] = []
# Of the process that this one was forked from: its sockets are not ours to close.
_left: list[object] = []
# The jobs in threads, each with its thread, or 0.
_jobs: dict[Future[Any], int] = {}
_forking = threading.Lock()  # one fork at a time
_forked = threading.Event()  # what the loop waits for meanwhile


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
    """Return what `work` returns, done in a thread with the caller's context; the process may end before."""
    context = copy_context()
    future: Future[Value] = Future()
    future.set_running_or_notify_cancel()  # its caller may be cancelled, the work cannot
    _note_job(future)

    def settle() -> Callable[[], None]:
        _jobs[future] = threading.get_ident()
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


def _note_job(future: Future[Any]) -> None:
    _jobs[future] = 0
    future.add_done_callback(_forget_job)


def _forget_job(future: Future[Any]) -> None:
    _jobs.pop(future, None)


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
            _home = _Home()
        loop = _home.loop
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
    loop = _home.loop
    thread = _home.thread

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
    """Wait until neither the loop nor a job in a thread is at work.

    A lock of a library that one of them holds would stay locked in the child for ever.
    """
    _forking.acquire()
    if _home is not None:
        _forked.clear()
        _home.rest(_forked)
    own = threading.get_ident()
    others = [future for future, thread in list(_jobs.items()) if thread != own]
    futures.wait(others, _JOB_SECONDS)


def _in_parent() -> None:
    _forked.set()
    _forking.release()


def _in_child() -> None:
    """Begin anew: the loop, its threads and what lives in it are the parent's."""
    global _home, _lock, _forked  # noqa: PLW0603 - one for the process
    _forking.release()
    _lock = threading.Lock()
    # The parent's loop waits for the old event, and may have held its lock at the fork.
    _forked = threading.Event()
    _left.extend((_home, dict(lasting)))  # kept: closing them here would close the parent's
    _home = None
    lasting.clear()
    _idle.clear()
    _jobs.clear()


atexit.register(end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
