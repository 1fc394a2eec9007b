"""Flows that block, in threads, with one gateway for all."""

from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest
from asking import custom, request
from making import reply

from judgekit.engine.judges import ThreadGateway, in_thread
from judgekit.providers import running
from judgekit.providers.gateway import open_gateway
from judgekit.providers.pace import caller

if TYPE_CHECKING:
    from judgekit.providers.base import Endpoint, Reply, Request


class Held:
    """A gateway that answers in the thread it was made for, or not at all."""

    def __init__(self, *, silent: bool = False) -> None:
        self.threads: list[int] = []
        self.asked = threading.Event()
        self.closed = self.cancelled = False
        self._silent = silent

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        self.threads.append(threading.get_ident())
        self.asked.set()
        try:
            await asyncio.sleep(60 if self._silent else 0)
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return reply("{}", endpoint.model)

    async def aclose(self) -> None:
        self.closed = True


def flow() -> str:
    """Ask twice, as a flow does: with a gateway of its own, in an event loop of its own."""

    async def run() -> str:
        async with aclosing(open_gateway({})) as gateway:
            await gateway.complete(custom("http://127.0.0.1:1/v1"), request())
            return (await gateway.complete(custom("http://127.0.0.1:1/v1"), request())).model

    return running.run(run())


def test_a_flow_uses_the_gateway_of_the_loop_that_lends_it() -> None:
    gateway = Held()
    assert asyncio.run(in_thread(gateway, flow)).endswith("stand-in")
    assert gateway.threads == [threading.get_ident()] * 2
    assert not gateway.closed


def test_a_flow_asks_in_the_turns_of_its_client() -> None:
    class OnVerdict(Held):
        async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
            heard.append(caller.get())
            return await super().complete(endpoint, request)

    heard: list[str] = []

    async def run() -> None:
        caller.set("4711")
        await in_thread(OnVerdict(), flow)

    asyncio.run(run())
    assert heard == ["4711"] * 2


def test_nothing_is_lent_beyond_the_flow() -> None:
    asyncio.run(in_thread(Held(), flow))
    assert not isinstance(open_gateway({}), Held)


def test_a_flow_nobody_waits_for_ends() -> None:
    gateway = Held(silent=True)
    ended = threading.Event()

    def work() -> None:
        try:
            flow()
        finally:
            ended.set()

    async def run() -> None:
        task = asyncio.create_task(in_thread(gateway, work))
        await asyncio.to_thread(gateway.asked.wait, 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(ended.wait, 20)

    asyncio.run(run())
    assert ended.is_set()
    assert gateway.cancelled
    assert len(gateway.threads) == 1


def test_a_call_that_is_made_while_the_gateway_is_taken_back_is_cancelled_too() -> None:
    """Who takes back looks through the calls at the very moment at which one is being noted down."""

    async def run() -> None:
        lent = ThreadGateway(Held(silent=True), asyncio.get_running_loop())

        class TakenBackMeanwhile(set[Any]):
            def add(self, call: Any) -> None:  # noqa: ANN401 - as in a set
                lent.take_back()
                super().add(call)

        lent._calls = TakenBackMeanwhile()
        with pytest.raises(asyncio.CancelledError):
            await lent.complete(custom("http://127.0.0.1:1/v1"), request())

    asyncio.run(run())
