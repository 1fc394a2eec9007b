"""Runs a flow that blocks in a thread, with the engine's own gateway and its open connections."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, TypeVar

from judgekit.providers.gateway import lending

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from judgekit.providers.base import Endpoint, Gateway, Reply, Request

Value = TypeVar("Value")

# Of flows, each of which mostly waits for models; the event loop's own threads are for short work.
_threads = ThreadPoolExecutor(64, thread_name_prefix="judgekit-flow")


class ThreadGateway:
    """The gateway of one event loop for a flow that runs in another thread, with an event loop of its own.

    When it is taken back, what the flow waits for is cancelled, and so the flow itself.
    """

    def __init__(self, gateway: Gateway, loop: asyncio.AbstractEventLoop) -> None:
        self._gateway, self._loop = gateway, loop
        self._calls: set[Future[Reply]] = set()
        self._is_back = False

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        """Return the model's reply, as `Gateway.complete` says."""
        if self._is_back:
            raise asyncio.CancelledError
        call = asyncio.run_coroutine_threadsafe(self._gateway.complete(endpoint, request), self._loop)
        self._calls.add(call)
        if self._is_back:  # since the line before the last: nobody else would cancel it
            call.cancel()
        try:
            return await asyncio.wrap_future(call)
        finally:
            self._calls.discard(call)

    async def aclose(self) -> None:
        """Leave open what others use."""

    def take_back(self) -> None:
        """Cancel all calls, those to come too."""
        self._is_back = True
        for call in list(self._calls):
            call.cancel()


async def in_thread(gateway: Gateway, work: Callable[[], Value]) -> Value:
    """Return what `work` returns, done in a thread with the caller's context and this gateway.

    When the caller is cancelled, so is what the work waits for.
    """
    loop = asyncio.get_running_loop()
    lent = ThreadGateway(gateway, loop)
    with lending(lent):
        context = copy_context()
    try:
        return await loop.run_in_executor(_threads, context.run, work)
    finally:
        lent.take_back()
