"""How fast a provider is asked: turns for all, learned from what it answers; also on the wire."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from asking import custom, request
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback import SILENT, Answer, Asked, Loopback, fails, says
from making import call_usage

from judgekit.errors import FailureKind, GatewayError
from judgekit.providers.litellm import LitellmGateway
from judgekit.providers.pace import Pace, Paces, caller, seconds_of
from judgekit.providers.registry import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from judgekit.providers.base import Reply


USED_UP = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "100s"}


class Flights:
    """Counts calls that are made at a time, and by whom in which order."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.order: list[str] = []

    async def call(self, pace: Pace, name: str = "", seconds: float = 0.001) -> None:
        caller.set(name)
        async with pace.turn():
            self.order.append(name)
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                await asyncio.sleep(seconds)
            finally:
                self.now -= 1


def test_no_more_at_a_time_than_the_limit() -> None:
    async def run() -> Flights:
        flights, pace = Flights(), Pace(3)
        await asyncio.gather(*(flights.call(pace) for _ in range(20)))
        return flights

    flights = asyncio.run(run())
    assert flights.most == 3
    assert len(flights.order) == 20


def test_callers_take_turns_however_much_one_of_them_wants() -> None:
    async def run() -> list[str]:
        flights, pace = Flights(), Pace(1)
        many = [asyncio.create_task(flights.call(pace, "many")) for _ in range(20)]
        await asyncio.sleep(0)
        few = [asyncio.create_task(flights.call(pace, "few")) for _ in range(3)]
        await asyncio.gather(*many, *few)
        return flights.order

    order = asyncio.run(run())
    assert [place for place, name in enumerate(order) if name == "few"][-1] < 8


def test_as_many_as_got_through_may_fly_and_success_brings_more() -> None:
    async def run() -> tuple[int, int]:
        pace, flights = Pace(16), Flights()
        tasks = [asyncio.create_task(flights.call(pace, seconds=0.01)) for _ in range(16)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for _ in range(11):
            pace.was_too_much(0.02)
        left = pace.limit
        await asyncio.gather(*tasks)
        for _ in range(2_000):
            pace.went_well({})
        return left, pace.limit

    assert asyncio.run(run()) == (5, 16)


def test_what_was_learned_is_forgotten_with_time() -> None:
    now = 1000.0
    pace = Pace(32, clock=lambda: now)
    for _ in range(40):
        pace.was_too_much(0)
    assert pace.limit == 1
    now += 1
    for _ in range(20):
        pace.went_well({})
    assert pace.limit <= 3
    now += 60
    for _ in range(40):
        pace.went_well({})
    assert pace.limit == 32


def test_a_provider_that_is_away_bears_as_much_when_it_is_back() -> None:
    pace = Pace(8)
    for _ in range(40):
        pace.pause(0, FailureKind.OVERLOADED)
    assert pace.limit == 8


def test_one_call_at_a_time_is_always_allowed() -> None:
    pace = Pace(4)
    for _ in range(10):
        pace.was_too_much(0)
    assert pace.limit == 1


def test_a_pause_holds_for_everyone() -> None:
    async def run() -> list[str]:
        pace, flights = Pace(4), Flights()
        pace.was_too_much(0.05)
        tasks = [asyncio.create_task(flights.call(pace, name)) for name in "ab"]
        await asyncio.sleep(0.01)
        early = list(flights.order)
        await asyncio.gather(*tasks)
        return early

    assert asyncio.run(run()) == []


def test_what_is_used_up_is_waited_for() -> None:
    async def run() -> tuple[list[str], int]:
        pace, flights = Pace(4), Flights()
        pace.went_well({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "60ms"})
        task = asyncio.create_task(flights.call(pace, "a"))
        await asyncio.sleep(0.01)
        early = list(flights.order)
        await task
        return early, len(flights.order)

    assert asyncio.run(run()) == ([], 1)


def test_plenty_left_is_no_reason_to_wait() -> None:
    async def run() -> None:
        pace = Pace(1)
        pace.went_well({"x-ratelimit-remaining-requests": "59", "x-ratelimit-reset-requests": "1h"})
        async with asyncio.timeout(5), pace.turn():
            pass

    asyncio.run(run())


def test_no_more_in_a_minute_than_the_provider_bears() -> None:
    async def run() -> tuple[int, int]:
        now = 1000.0
        pace, flights = Pace(10, per_minute=3, clock=lambda: now), Flights()
        tasks = [asyncio.create_task(flights.call(pace)) for _ in range(5)]
        await asyncio.sleep(0.02)
        first = len(flights.order)
        now += 61
        pace._advance()
        await asyncio.gather(*tasks)
        return first, len(flights.order)

    assert asyncio.run(run()) == (3, 5)


@pytest.mark.parametrize(
    ("tell", "kind"),
    [
        (lambda pace: pace.was_too_much(100), FailureKind.RATE_LIMIT),
        (lambda pace: pace.pause(100, FailureKind.OVERLOADED), FailureKind.OVERLOADED),
        (lambda pace: pace.went_well(USED_UP), FailureKind.RATE_LIMIT),
    ],
    ids=["too much", "away", "used up"],
)
@pytest.mark.parametrize("waits_already", [False, True])
def test_who_would_wait_in_vain_is_told_at_once(
    tell: Callable[[Pace], None], kind: FailureKind, *, waits_already: bool
) -> None:
    async def run() -> tuple[GatewayError, int]:
        pace = Pace(1)
        async with pace.turn():
            if not waits_already:
                tell(pace)
            short = asyncio.create_task(takes(pace, seconds=20))
            long = asyncio.create_task(takes(pace, seconds=200))
            await asyncio.sleep(0)
            if waits_already:
                tell(pace)
            with pytest.raises(GatewayError) as exception_info:
                await asyncio.wait_for(short, 5)
            waiting = pace.waiting
            long.cancel()
            await asyncio.gather(long, return_exceptions=True)
            return exception_info.value, waiting

    error, waiting = asyncio.run(run())
    assert (error.kind, waiting) == (kind, 1)
    assert error.retry_after == pytest.approx(100, abs=5)
    assert error.usage == call_usage()


async def takes(pace: Pace, seconds: float) -> None:
    async with pace.turn(time.monotonic() + seconds):
        pass


def test_a_minute_that_is_used_up_is_not_waited_for_in_vain() -> None:
    async def run() -> GatewayError:
        pace = Pace(10, per_minute=2)
        await asyncio.gather(*(takes(pace, 20) for _ in range(2)))
        with pytest.raises(GatewayError) as exception_info:
            await takes(pace, 20)
        return exception_info.value

    error = asyncio.run(run())
    assert error.kind is FailureKind.RATE_LIMIT
    assert error.message.startswith("2 calls were made in a minute: no model was asked")


def test_one_who_is_told_and_gives_up_at_the_same_moment_takes_no_turn_along() -> None:
    async def run() -> None:
        pace = Pace(1)
        async with pace.turn():
            task = asyncio.create_task(takes(pace, 20))
            await asyncio.sleep(0)
            pace.pause(100, FailureKind.OVERLOADED)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert (pace.waiting, pace._flying) == (0, 1)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("limits", "same"), [({"concurrency": 2}, True), ({"requests_per_minute": 9}, True), ({}, False)]
)
def test_what_a_profile_bounds_is_bounded_for_its_models_together(
    limits: dict[str, int], *, same: bool
) -> None:
    whom = custom("http://127.0.0.1:1/v1")
    whom = replace(whom, profile=whom.profile.model_copy(update={"limits": Limits(**limits)}))
    paces = Paces()
    assert (paces.of(whom) is paces.of(replace(whom, model="openai/another"))) is same
    assert paces.of(whom) is not paces.of(replace(whom, api_key="another"))
    assert paces.of(whom) is not paces.of(replace(whom, api_base="http://127.0.0.1:2/v1"))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=30))
def test_a_turn_that_is_given_up_is_not_lost(cancelled: list[bool]) -> None:
    async def run() -> None:
        pace, flights = Pace(2), Flights()
        tasks = [asyncio.create_task(flights.call(pace, str(place % 3))) for place in range(len(cancelled))]
        await asyncio.sleep(0)
        for task, gives_up in zip(tasks, cancelled, strict=True):
            if gives_up:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert pace.waiting == 0
        async with asyncio.timeout(5), pace.turn(), pace.turn():  # both turns are free again
            pass

    asyncio.run(run())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("20", 20), ("6m0s", 360), ("120ms", 0.12), ("1h2m3.5s", 3723.5), ("1s", 1), ("", None), ("soon", None)],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


def test_a_time_of_day() -> None:
    later = datetime.now(UTC) + timedelta(seconds=30)
    assert seconds_of(later.isoformat()) == pytest.approx(30, abs=5)
    assert seconds_of("2020-01-01T00:00:00Z") == 0


class Modest:
    """Answers a few calls at a time and refuses what is more."""

    def __init__(self, most: int) -> None:
        self.refused = 0
        self._free = threading.Semaphore(most)

    def __call__(self, asked: Asked) -> Answer:
        if not self._free.acquire(blocking=False):
            self.refused += 1
            return fails(429, retry_after=0.2)
        try:
            time.sleep(0.05)
            return says('{"reasoning": "fine", "score": 4}')
        finally:
            self._free.release()


def test_a_modest_provider_answers_everyone() -> None:
    modest = Modest(6)

    async def run(base: str) -> list[Reply]:
        gateway = LitellmGateway()
        whom = custom(base)
        try:
            return await asyncio.gather(*(gateway.complete(whom, request(timeout=60)) for _ in range(40)))
        finally:
            await gateway.aclose()

    with Loopback(modest) as server:
        replies = asyncio.run(run(server.base))
    assert len(replies) == 40
    assert modest.refused > 0


def test_what_is_used_up_is_not_asked_for() -> None:
    spent = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "400ms"}
    times: list[float] = []

    def answer(asked: Asked) -> Answer:
        times.append(time.monotonic())
        return says('{"score": 4}', headers=spent if len(times) == 1 else {})

    async def run(base: str) -> None:
        gateway = LitellmGateway()
        try:
            for _ in range(2):
                await gateway.complete(custom(base), request(timeout=60))
        finally:
            await gateway.aclose()

    with Loopback(answer) as server:
        asyncio.run(run(server.base))
    assert times[1] - times[0] >= 0.35


def test_a_pause_that_outlasts_the_deadline_is_told_at_once_and_nobody_is_asked() -> None:
    async def run(base: str) -> list[GatewayError]:
        gateway, found = LitellmGateway(), []
        try:
            for _ in range(2):
                with pytest.raises(GatewayError) as exception_info:
                    await gateway.complete(custom(base), request(timeout=20))
                found.append(exception_info.value)
        finally:
            await gateway.aclose()
        return found

    start = time.monotonic()
    with Loopback(fails(429, retry_after=100)) as server:
        first, second = asyncio.run(run(server.base))
        assert len(server.requests) == 1
    assert (first.kind, second.kind) == (FailureKind.RATE_LIMIT, FailureKind.RATE_LIMIT)
    assert "no model was asked" in second.message
    assert time.monotonic() - start < 20


def test_who_never_had_a_turn_was_not_given_no_reply() -> None:
    async def run(base: str) -> GatewayError:
        gateway, whom = LitellmGateway(), custom(base)
        whom = replace(whom, profile=whom.profile.model_copy(update={"limits": Limits(concurrency=1)}))
        first = asyncio.create_task(gateway.complete(whom, request(timeout=60)))
        await asyncio.sleep(0)
        try:
            with pytest.raises(GatewayError) as exception_info:
                await gateway.complete(whom, request(timeout=0.2))
            return exception_info.value
        finally:
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            await gateway.aclose()

    with Loopback(SILENT) as server:
        error = asyncio.run(run(server.base))
    assert (error.kind, error.usage) == (FailureKind.TIMEOUT, call_usage())
    assert error.message == "no turn within 0.2 s: other calls came first"
