"""Retries: in one module, with some chance, as the other side asks, within the deadline."""

from __future__ import annotations

import ast
import asyncio
from typing import TYPE_CHECKING

import pytest
from asking import ask, custom, failure, request
from loopback import Loopback, fails, says
from package import PACKAGE, trees

from judgekit.errors import FailureKind, GatewayError
from judgekit.providers import retrying
from judgekit.providers.litellm import ATTEMPTS, LitellmGateway
from judgekit.providers.retrying import Tries

if TYPE_CHECKING:
    from collections.abc import Callable

# Loops that look whether something is there by now, or beat a pulse: nothing failed that they repeat.
LOOKING = {
    "data/batches.py": "rows that settle",
    "data/broker.py": "a worker's pulse",
    "engine/client.py": "an engine that begins, on the standard library alone",
    "engine/process.py": "an engine that begins, on the standard library alone",
    "engine/replicas.py": "a replica's pulse",
}


def test_one_module_knows_how_to_try_again() -> None:
    knowing, waiting = set(), set()
    for path, tree in trees().items():
        place = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom | ast.Import) and "tenacity" in ast.unparse(node):
                knowing.add(place)
            if isinstance(node, ast.While | ast.For | ast.AsyncFor) and is_waiting_after_failures(
                node
            ):
                waiting.add(place)
    assert knowing == {"providers/retrying.py"}
    assert waiting == set(LOOKING)


def is_waiting_after_failures(loop: ast.AST) -> bool:
    inside = list(ast.walk(loop))
    catches = any(isinstance(node, ast.Try) and node.handlers for node in inside)
    called = [
        node.func.attr
        for node in inside
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    return catches and bool({"sleep", "wait"}.intersection(called))


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the pauses that are made, which take no time."""
    made: list[float] = []

    async def sleep(seconds: float) -> None:
        made.append(seconds)

    class Quick:
        """Stands for asyncio in that one module."""

    Quick.sleep = staticmethod(sleep)  # type: ignore[attr-defined]  # made for the test
    monkeypatch.setattr(retrying, "asyncio", Quick)
    return made


def test_pauses_grow_and_no_two_callers_make_the_same(pauses: list[float]) -> None:
    for _ in range(3):
        with Loopback(fails(500)) as server:
            error = failure(LitellmGateway(), custom(server.base), request())
        assert (error.kind, len(server.requests)) == (FailureKind.SERVER_ERROR, ATTEMPTS)
    firsts, seconds = pauses[::2], pauses[1::2]
    assert all(0.5 <= pause <= 0.75 for pause in firsts)
    assert all(1.0 <= pause <= 1.25 for pause in seconds)
    assert len({*pauses}) == 6


def test_the_pause_that_a_provider_asks_for_is_kept_to(pauses: list[float]) -> None:
    with Loopback(fails(500, retry_after=2.5), says("good")) as server:
        assert ask(LitellmGateway(), custom(server.base), request()).text == "good"
    assert len(pauses) == 1
    assert 2.5 <= pauses[0] <= 3.5


def test_nothing_is_tried_again_that_the_deadline_would_cut(pauses: list[float]) -> None:
    with Loopback(fails(500, retry_after=10)) as server:
        error = failure(LitellmGateway(), custom(server.base), request(timeout=10))
    assert (error.kind, len(server.requests), pauses) == (FailureKind.SERVER_ERROR, 1, [])


def test_what_does_not_pass_is_tried_once(pauses: list[float]) -> None:
    for answer in (fails(400), fails(401), fails(404), says("")):
        with Loopback(answer) as server:
            failure(LitellmGateway(), custom(server.base), request())
        assert len(server.requests) == 1
    assert pauses == []


def raising(*errors: BaseException) -> Callable[[], str]:
    waiting = list(errors)

    def work() -> str:
        if waiting:
            raise waiting.pop(0)
        return "good"

    return work


def passes(error: Exception, _: int) -> bool:
    return isinstance(error, GatewayError)


BUSY = GatewayError(FailureKind.OVERLOADED, "busy", retry_after=30)


def test_a_thread_sleeps_as_it_likes_and_the_last_failure_is_raised_as_it_is() -> None:
    slept: list[float] = []
    tries = Tries(3, (0.1,), longest_pause=1.0)
    found = retrying.call_in_thread(
        raising(BUSY, BUSY), tries, should_retry=passes, sleep=slept.append
    )
    assert (found, len(slept)) == ("good", 2)
    assert all(1.0 <= pause <= 1.25 for pause in slept)
    with pytest.raises(GatewayError) as caught:
        retrying.call_in_thread(
            raising(*[BUSY] * 3), tries, should_retry=passes, sleep=slept.append
        )
    assert caught.value is BUSY
    with pytest.raises(ValueError, match="other"):
        retrying.call_in_thread(
            raising(ValueError("other")), tries, should_retry=passes, sleep=slept.append
        )


def test_a_cancellation_is_never_tried_again() -> None:
    count = 0

    async def work() -> str:
        nonlocal count
        count += 1
        raise asyncio.CancelledError

    async def run() -> None:
        await retrying.call(work, Tries(5, (0.0,)), should_retry=lambda *_: True)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
    assert count == 1


def test_a_result_that_is_not_final_is_asked_for_again_and_the_last_is_returned(
    pauses: list[float],
) -> None:
    results = iter(range(10))

    async def work() -> int:
        return next(results)

    async def run() -> list[int]:
        tries = Tries(3, (5.0, 15.0))
        first = await retrying.call_until(work, tries, is_final=lambda value: value == 1)
        return [first, await retrying.call_until(work, tries, is_final=lambda _: False)]

    assert asyncio.run(run()) == [1, 4]
    assert [
        round(pause) in range(low, low + 2) for pause, low in zip(pauses, (5, 5, 15), strict=True)
    ]
