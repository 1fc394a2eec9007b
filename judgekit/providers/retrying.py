"""Waits and retries, within limits on tries, pauses and time; the only module that knows tenacity.

The caller decides which failures are retried. A pause that the other side asks for (`retry_after` of an
error) is respected. Each pause gets a random extra, so that calls that failed together don't return
together.
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

# The random extra of a pause is at most
_MAX_EXTRA_FRACTION = 0.25  # of the pause, and
_MAX_EXTRA_SECONDS = 1.0


class Tries(NamedTuple):
    """The total number of tries, and the pauses between them in seconds; the last pause repeats.

    A failure can suggest another pause (`retry_after`), which is used within `shortest_pause` and
    `longest_pause`, unless `uses_suggested_pause` is false.
    """

    max_tries: float
    pauses: tuple[float, ...]
    shortest_pause: float = 0.0
    longest_pause: float = inf
    uses_suggested_pause: bool = True


async def call(
    work: Callable[[], Awaitable[Value]],
    tries: Tries,
    *,
    should_retry: Callable[[Exception, int], bool],
    seconds: float = inf,
) -> Value:
    """Await `work` and return its result, retrying it if it fails.

    `should_retry` is called with a failure and the number of tries so far. Raises the last failure if it
    returns False, if there are no tries left, or if the next try would start after `seconds`.
    """
    started = time.monotonic()
    # Most calls succeed immediately, so make the first try without tenacity, which is a fifth faster.
    try:
        return await work()
    except Exception as failure:  # noqa: BLE001 - raised again in `attempt`
        first_failure = [failure]  # a list, so that `attempt` can take it out

    from tenacity import AsyncRetrying  # noqa: PLC0415 - imported lazily because it takes 0.05 s

    async def attempt() -> Value:
        # tenacity must count the try above, so its first attempt only raises that failure.
        if first_failure:
            raise first_failure.pop()
        return await work()

    seconds_left = seconds - (time.monotonic() - started)
    rules = _build_rules(tries, should_retry, seconds_left)
    retrying = AsyncRetrying(sleep=asyncio.sleep, **rules)
    return await retrying(attempt)


async def call_until(
    work: Callable[[], Awaitable[Value]], tries: Tries, *, is_final: Callable[[Value], bool]
) -> Value:
    """Repeat `work` until its result is final or there are no tries left, and return the last result.

    A failure isn't retried.
    """
    from tenacity import AsyncRetrying, retry_if_result  # noqa: PLC0415 - imported lazily because it takes 0.05 s

    def is_not_final(value: Value) -> bool:
        return not is_final(value)

    rules = _build_rules(tries, _never_retry, seconds=inf)
    # `_build_rules` can only retry failures, so put a rule about the result in place of its rule.
    rules["retry"] = retry_if_result(is_not_final)
    retrying = AsyncRetrying(sleep=asyncio.sleep, **rules)
    return await retrying(work)


def _never_retry(_failure: Exception, _number: int) -> bool:
    return False


def call_in_thread(
    work: Callable[[], Value],
    tries: Tries,
    *,
    should_retry: Callable[[Exception, int], bool],
    seconds: float = inf,
    sleep: Callable[[float], object] = time.sleep,
) -> Value:
    """Call `work`, which blocks, and retry it if it fails, like `call`."""
    from tenacity import Retrying  # noqa: PLC0415 - imported lazily because it takes 0.05 s

    def pause(pause_seconds: float) -> None:
        # tenacity's types want a function that returns None, but `sleep` may return something.
        sleep(pause_seconds)

    rules = _build_rules(tries, should_retry, seconds)
    retrying = Retrying(sleep=pause, **rules)
    return retrying(work)


def pause_after(failure: BaseException | None, number: int, tries: Tries) -> float:
    """Return the seconds to pause after a failed try. `number` counts the tries, starting with 1.

    A failure can suggest a pause (`retry_after`). Otherwise, `tries` has a pause for each number.
    """
    suggested_pause = None
    if tries.uses_suggested_pause:
        suggested_pause = getattr(failure, "retry_after", None)
    if suggested_pause is not None:
        pause = float(suggested_pause)
    elif number <= len(tries.pauses):
        pause = tries.pauses[number - 1]
    else:
        pause = tries.pauses[-1]
    pause = min(max(pause, tries.shortest_pause), tries.longest_pause)

    # Add a random time, so that clients that failed together don't all return at the same moment.
    longest_extra = min(pause * _MAX_EXTRA_FRACTION, _MAX_EXTRA_SECONDS)
    return pause + random.uniform(0, longest_extra)  # noqa: S311 - no secret


def _build_rules(
    tries: Tries, should_retry: Callable[[Exception, int], bool], seconds: float
) -> dict[str, Any]:
    """Build the options for tenacity, the library that repeats failed calls.

    `should_retry` is called with a failure and the number of tries. `seconds` limits the total time.
    """
    from tenacity import stop_after_attempt, stop_any, stop_before_delay  # noqa: PLC0415 - imported lazily because it takes 0.05 s

    def has_retryable_failure(state: RetryCallState) -> bool:
        failure = _get_failure(state)
        # A cancellation isn't an `Exception`, and is never retried.
        return isinstance(failure, Exception) and should_retry(failure, state.attempt_number)

    def compute_pause(state: RetryCallState) -> float:
        return pause_after(_get_failure(state), state.attempt_number, tries)

    def return_or_raise(state: RetryCallState) -> Any:  # noqa: ANN401 - the result of the work
        """Return the last result or raise the last error, instead of tenacity's `RetryError`."""
        return state.outcome.result() if state.outcome else None

    stops: list[stop_base] = []
    if tries.max_tries != inf:
        stops.append(stop_after_attempt(int(tries.max_tries)))
    if seconds != inf:
        stops.append(stop_before_delay(max(0.0, seconds)))
    return {
        "retry": has_retryable_failure,
        "wait": compute_pause,
        "stop": stop_any(*stops),
        "retry_error_callback": return_or_raise,
    }


def _get_failure(state: RetryCallState) -> BaseException | None:
    """Return the failure of the last try, or None if it succeeded."""
    if state.outcome and state.outcome.failed:
        return state.outcome.exception()
    return None
