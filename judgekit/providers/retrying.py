"""Waits and tries again: how often, how long after, and until when; the only module that knows tenacity.

Whoever calls says what is tried again. A pause that the other side asks for (`retry_after` of an error) is
kept to. Some time is added to each by chance, so that those who failed together do not come back together.
"""

from __future__ import annotations

import asyncio
import random
import time
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tenacity import RetryCallState
    from tenacity.stop import stop_base

Value = TypeVar("Value")

_SHARE_ADDED = 0.25  # of a pause, at most, and
_MOST_ADDED = 1.0  # seconds


class Tries(NamedTuple):
    """How often something is tried in all, and the pauses between, in seconds: the last one is repeated.

    A pause has `shortest` to `longest` seconds, whatever the other side asks for. `keeps_to_request`: what it
    asks for counts.
    """

    most: float
    pauses: tuple[float, ...]
    shortest: float = 0.0
    longest: float = inf
    keeps_to_request: bool = True


async def call(
    work: Callable[[], Awaitable[Value]],
    tries: Tries,
    *,
    passes: Callable[[Exception, int], bool],
    seconds: float = inf,
) -> Value:
    """Return what `work` returns; tried again after a failure that `passes`, as long as `seconds` allow.

    `passes` is given the failure and how often was tried. The last failure is raised as it is.
    """
    started = time.monotonic()
    failures: list[Exception] = []
    # Most calls succeed at once, and take a fifth less without tenacity.
    try:
        return await work()
    except Exception as failure:  # noqa: BLE001 - raised again by the first attempt below
        failures.append(failure)
    from tenacity import AsyncRetrying  # noqa: PLC0415 - a twentieth of a second, when something has failed

    async def attempt() -> Value:
        if failures:
            raise failures.pop()
        return await work()

    seconds_left = seconds - (time.monotonic() - started)
    retrying = AsyncRetrying(sleep=asyncio.sleep, **_rules(tries, passes, seconds_left))
    return await retrying(attempt)


async def call_until(
    work: Callable[[], Awaitable[Value]], tries: Tries, *, is_final: Callable[[Value], bool]
) -> Value:
    """Return what `work` returns when that is final, or at last."""
    from tenacity import AsyncRetrying, retry_if_result  # noqa: PLC0415 - the same

    async def attempt() -> Value:
        return await work()

    rules = _rules(tries, lambda *_: False, inf)
    rules["retry"] = retry_if_result(lambda value: not is_final(value))
    return await AsyncRetrying(sleep=asyncio.sleep, **rules)(attempt)


def call_in_thread(
    work: Callable[[], Value],
    tries: Tries,
    *,
    passes: Callable[[Exception, int], bool],
    seconds: float = inf,
    sleep: Callable[[float], object] = time.sleep,
) -> Value:
    """Return what `work` returns, as `call` does, for a thread."""
    from tenacity import Retrying  # noqa: PLC0415 - the same

    def pause(pause_seconds: float) -> None:
        sleep(pause_seconds)

    return Retrying(sleep=pause, **_rules(tries, passes, seconds))(work)


def pause_after(failure: BaseException | None, number: int, tries: Tries) -> float:
    """Return the seconds to wait after the `number`th try: as asked for, else by the table; and some more."""
    if tries.keeps_to_request:
        asked = getattr(failure, "retry_after", None)
    else:
        asked = None
    if asked is None:
        pause = tries.pauses[min(number, len(tries.pauses)) - 1]
    else:
        pause = float(asked)
    pause = min(max(pause, tries.shortest), tries.longest)
    return pause + random.uniform(0, min(pause * _SHARE_ADDED, _MOST_ADDED))  # noqa: S311 - no secret


def _rules(
    tries: Tries, passes: Callable[[Exception, int], bool], seconds: float
) -> dict[str, Any]:
    """Return tenacity's options; a cancellation is no failure, and is never tried again."""
    from tenacity import stop_after_attempt, stop_any, stop_before_delay  # noqa: PLC0415 - the same

    def is_tried_again(state: RetryCallState) -> bool:
        failure = _failure_in(state)
        return isinstance(failure, Exception) and passes(failure, state.attempt_number)

    def pause(state: RetryCallState) -> float:
        return pause_after(_failure_in(state), state.attempt_number, tries)

    def outcome(state: RetryCallState) -> Any:  # noqa: ANN401 - what the work returns
        return state.outcome.result() if state.outcome else None

    stops: list[stop_base] = []
    if tries.most != inf:
        stops.append(stop_after_attempt(int(tries.most)))
    if seconds != inf:
        stops.append(stop_before_delay(max(0.0, seconds)))
    return {
        "retry": is_tried_again,
        "wait": pause,
        "stop": stop_any(*stops),
        "retry_error_callback": outcome,
    }


def _failure_in(state: RetryCallState) -> BaseException | None:
    if state.outcome and state.outcome.failed:
        return state.outcome.exception()
    return None
