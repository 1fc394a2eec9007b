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
# Idle threads to keep, because starting a thread for each call would block the calling loop.
_MAX_IDLE_THREADS = 8


class _Home:
    """The event loop in which this process calls models, with its own thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(
            target=self.loop.run_forever, name="judgekit-models", daemon=True
        )
        self.thread.start()


class _Process:
    """This process's home loop, shared gateways by kind, and idle threads."""

    def __init__(self) -> None:
        self.gateways: dict[str, Any] = {}
        # The job queues of idle threads. Changes to a list are atomic.
        self.idle_queues: list[Jobs] = []
        self._home: _Home | None = None
        self._lock = threading.Lock()

    def start_home(self) -> _Home:
        """Return the home loop, starting it if necessary."""
        with self._lock:
            if self._home is None:
                self._home = _Home()
            return self._home

    def find_home(self) -> _Home | None:
        """Return the home loop, or None if it was never started."""
        return self._home


_process = PerProcess(_Process)
close_functions: list[Callable[[], Coroutine[Any, Any, None]]] = []
"""Functions that close connections, to await in the loop when the process ends."""


def shared_gateways() -> dict[str, Any]:
    """Return the process's shared gateways by kind, a dict to which new ones are added."""
    return _process.get().gateways


def run(coroutine: Coroutine[Any, Any, Value]) -> Value:
    """Run a coroutine and return its result. This blocks, but also works inside a running event loop."""
    if not _is_inside_a_loop():
        return _run_in_new_loop(coroutine)
    # A thread can only run one loop, so use another thread.
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(copy_context().run, _run_in_new_loop, coroutine).result()


def _run_in_new_loop(coroutine: Coroutine[Any, Any, Value]) -> Value:
    """Run a coroutine in its own event loop, without a traceback on Ctrl-C."""
    with asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(_report_unless_interrupted)
        return runner.run(coroutine)


def _report_unless_interrupted(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error that nothing awaits, unless it's Ctrl-C, which needs no traceback."""
    if not isinstance(context.get("exception"), KeyboardInterrupt):
        loop.default_exception_handler(context)


def _is_inside_a_loop() -> bool:
    """Whether the caller is running inside an event loop."""
    # This check is a separate function, so that tracebacks of later errors don't mention the `RuntimeError`.
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def run_in_thread(work: Callable[[], Value]) -> Value:
    """Run `work` in a daemon thread with the caller's context variables, and return the result.

    If the caller is cancelled, the work goes on, because a thread can't be stopped.
    """
    context = copy_context()
    future: Future[Value] = Future()
    # A running future can't be cancelled. So the thread can set the outcome even if the caller is cancelled.
    future.set_running_or_notify_cancel()

    def job() -> Callable[[], None]:
        """Do the work, and return a function that delivers the outcome to the caller."""
        try:
            result = context.run(work)
        except BaseException as error:  # noqa: BLE001 - raised again for the caller
            return partial(future.set_exception, error)
        return partial(future.set_result, result)

    jobs = _take_queue(_process.get().idle_queues)
    jobs.put(job)
    return await asyncio.wrap_future(future)


def _take_queue(idle_queues: list[Jobs]) -> Jobs:
    """Take the job queue of an idle thread. If no thread is idle, start one."""
    try:
        return idle_queues.pop()
    except IndexError:
        jobs: Jobs = SimpleQueue()

    thread = threading.Thread(
        target=_do_jobs, args=(jobs, idle_queues), name="judgekit-worker", daemon=True
    )
    thread.start()
    return jobs


def _do_jobs(jobs: Jobs, idle_queues: list[Jobs]) -> None:
    """Do the jobs in a worker thread's queue, until enough other threads are idle.

    A job does its work, and returns a function that delivers the outcome. `idle_queues` are the queues of
    the idle threads.
    """
    is_needed = True
    while is_needed:
        do_work = jobs.get()
        deliver_outcome = do_work()
        # Mark this thread as idle before delivering the outcome, so that the caller's next job can use it.
        is_needed = len(idle_queues) < _MAX_IDLE_THREADS
        if is_needed:
            idle_queues.append(jobs)
        deliver_outcome()
        del do_work, deliver_outcome  # free their memory while waiting for the next job


async def run_in_home_loop(
    work: Callable[[], Coroutine[Any, Any, Value]], patience: float = 0.0
) -> Value:
    """Run `work` in the home loop, and return its result.

    The home loop is the event loop in which this process makes all calls to models. If the caller is
    cancelled, `work` is also cancelled, and has `patience` seconds to end.
    """
    home_loop = _process.get().start_home().loop
    if home_loop is asyncio.get_running_loop():
        return await work()
    has_ended = threading.Event()

    async def work_and_note_end() -> Value:
        try:
            return await work()
        finally:
            has_ended.set()

    future = asyncio.run_coroutine_threadsafe(work_and_note_end(), home_loop)
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        # The cancellation has been passed on to `work` by `wrap_future`, but takes time in the other loop.
        if patience:
            await asyncio.to_thread(has_ended.wait, patience)
        raise


def end() -> None:
    """Cancel everything in the home loop, close connections, and stop the loop, within a few seconds.

    The home loop is the event loop for all calls to models.
    """
    home = _process.get().find_home()
    if home is None:
        return
    loop = home.loop
    thread = home.thread

    async def close_all() -> None:
        """Cancel all other tasks, and then close connections, ignoring errors."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for close in close_functions:
            with suppress(Exception):
                await close()

    with suppress(Exception):
        asyncio.run_coroutine_threadsafe(close_all(), loop).result(END_SECONDS)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(END_SECONDS)


atexit.register(end)
