"""The event loop in which this process asks models: one, in a thread of its own, whoever asks from wherever.

Connections, locks and queues belong to the event loop in which they came into being, and the client library
keeps them for the whole process. So they all come into being here, in a loop that lasts until the process
ends. Callers come from any number of threads and loops of their own. A process that is forked gets a new one.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

Value = TypeVar("Value")
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
