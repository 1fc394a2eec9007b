"""The single event loop in which this process asks models; coroutines and long work run beside it."""

from __future__ import annotations

import asyncio
import atexit
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from judgekit.providers.per_process import PerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Jobs: TypeAlias = "SimpleQueue[Callable[[], Callable[[], None]]]"

Value = TypeVar("Value")
END_SECONDS = 2.0  # for cancelled work when the process ends; it takes milliseconds
# Idle threads kept waiting: starting one for each call would hold up the calling loop.
_MOST_IDLE = 8


class _Home:
    """The loop in which this process asks models, with a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(
            target=self.loop.run_forever, name="judgekit-models", daemon=True
        )
        self.thread.start()


class _Process:
    """This process's means of asking models: its loop, shared gateways by kind, and idle threads."""

    def __init__(self) -> None:
        self.lasting: dict[str, Any] = {}
        # The queues of idle threads; each change is one atomic operation.
        self.idle: list[Jobs] = []
        self._home: _Home | None = None
        self._lock = threading.Lock()

    def start_home(self) -> _Home:
        """Start the loop unless it's running."""
        with self._lock:
            if self._home is None:
                self._home = _Home()
            return self._home

    def find_home(self) -> _Home | None:
        """Return the loop if it has been started."""
        return self._home


_process = PerProcess(_Process)
closing: list[Callable[[], Coroutine[Any, Any, None]]] = []
"""Closing functions to await in the loop when the process ends."""


def shared_gateways() -> dict[str, Any]:
    """Return the gateways that all callers in this process share, by kind; new ones are added there."""
    return _process.get().lasting


def run(coroutine: Coroutine[Any, Any, Value]) -> Value:
    """Run a coroutine to its end, and return its result.

    If the caller is inside a running event loop, the coroutine runs in another thread with its own loop, and
    the caller blocks until it has ended.
    """
    if not _is_inside_a_loop():
        return _run_in_new_loop(coroutine)
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(copy_context().run, _run_in_new_loop, coroutine).result()


def _run_in_new_loop(coroutine: Coroutine[Any, Any, Value]) -> Value:
    """Run a coroutine in a loop of its own, without a traceback on Ctrl-C."""
    with asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(_report_unless_interrupted)
        return runner.run(coroutine)


def _report_unless_interrupted(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handle an error that no code awaits: log it, unless it's Ctrl-C, which needs no traceback."""
    if not isinstance(context.get("exception"), KeyboardInterrupt):
        loop.default_exception_handler(context)


def _is_inside_a_loop() -> bool:
    """Whether the caller is running inside an event loop."""
    # A function of its own, so that an error raised later doesn't seem to come from this one.
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def run_in_thread(work: Callable[[], Value]) -> Value:
    """Run `work` in a thread with the caller's context variables, and return its result.

    The thread doesn't keep the process alive: the process may exit before `work` has ended.
    """
    context = copy_context()
    future: Future[Value] = Future()
    future.set_running_or_notify_cancel()  # its caller may be cancelled, but the work can't be

    def job() -> Callable[[], None]:
        """Do the work, and return a function that gives its outcome to the caller."""
        try:
            return partial(future.set_result, context.run(work))
        except BaseException as error:  # noqa: BLE001 - raised again where the caller waits
            return partial(future.set_exception, error)

    idle_threads = _process.get().idle
    try:
        jobs = idle_threads.pop()
    except IndexError:
        jobs = SimpleQueue()
        threading.Thread(
            target=_do_jobs, args=(jobs, idle_threads), name="judgekit-worker", daemon=True
        ).start()
    jobs.put(job)
    return await asyncio.wrap_future(future)


def _do_jobs(jobs: Jobs, idle_threads: list[Jobs]) -> None:
    """Do the jobs of a thread's queue. It ends after a job if enough other threads are idle."""
    is_needed = True
    while is_needed:
        job = jobs.get()
        hand_over = job()
        is_needed = len(idle_threads) < _MOST_IDLE
        if is_needed:
            # Be idle before the caller goes on: it may have another job at once, which this thread can do.
            idle_threads.append(jobs)
        hand_over()
        # Don't keep this job and its result in memory while waiting for the next job.
        del job, hand_over


async def inside(work: Callable[[], Coroutine[Any, Any, Value]], patience: float = 0.0) -> Value:
    """Run `work` in the event loop in which this process asks models, and return its result.

    If the caller is cancelled, `work` is cancelled, too. The caller then waits up to `patience` seconds until
    `work` has ended.
    """
    loop = _process.get().start_home().loop
    if loop is asyncio.get_running_loop():
        return await work()
    has_ended = threading.Event()

    async def work_and_note_end() -> Value:
        try:
            return await work()
        finally:
            has_ended.set()

    future = asyncio.run_coroutine_threadsafe(work_and_note_end(), loop)
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        if patience:
            await asyncio.to_thread(has_ended.wait, patience)
        raise


def end() -> None:
    """Stop the loop in which this process asks models: cancel its work, and close its connections.

    It takes some seconds at most. Nothing happens if the loop was never started.
    """
    home = _process.get().find_home()
    if home is None:
        return
    loop = home.loop
    thread = home.thread

    async def close_all() -> None:
        """Cancel all tasks but this one, and then close connections, whatever fails."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for close in closing:
            with suppress(Exception):
                await close()

    with suppress(Exception):
        asyncio.run_coroutine_threadsafe(close_all(), loop).result(END_SECONDS)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(END_SECONDS)


atexit.register(end)
