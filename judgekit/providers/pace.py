"""Limits how fast a provider is asked: learns from its refusals, and is fair to all callers.

If some of the calls made together are refused, as many as got through become the new limit. It then grows by
one at a time, faster the longer ago the last refusal was. A pause that the provider asks for applies to
everyone.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from judgekit import environment
from judgekit.errors import FailureKind, GatewayError, Usage
from judgekit.providers import running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from judgekit.providers.base import Endpoint, Reply, Request

AT_ONCE = 64
_FIRST_PAUSE_SECONDS = 0.5  # seconds, if an overloaded provider doesn't say how long to wait
_MAX_PAUSE_SECONDS = 120.0
_SLOW_GROWTH_SECONDS = 5.0  # after a refusal, during which the limit grows slowly
_SLOW_GROWTH_ROUNDS = 10  # of calls without a refusal, until the limit grows by one
_MINUTE = 60.0
PAUSED = "the provider asked for a pause"

caller: ContextVar[str] = ContextVar("caller", default="")
"""The caller that the current task asks for; callers in one process get equal numbers of turns."""

Turn: TypeAlias = "Callable[[], AbstractAsyncContextManager[None]]"
Work: TypeAlias = "Callable[[Turn, float], Coroutine[None, None, Reply]]"


class PaceKey(NamedTuple):
    """Identifies a provider, or one of its models, with its own pace. `key` is a digest of the API key."""

    provider: str
    address: str | None
    model: str
    key: str
    max_in_flight: int | None
    per_minute: int | None


class Pace:
    """Limits the calls to a provider: up to `max_in_flight` at once and, if given, `per_minute`."""

    def __init__(
        self,
        max_in_flight: int = AT_ONCE,
        per_minute: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_in_flight = float(max_in_flight)
        # Refusals lower this limit, and successful calls raise it again by fractions.
        self._limit = self._max_in_flight
        self._per_minute = per_minute
        self._clock = clock
        self._in_flight = 0
        self._start_times: deque[float] = deque()  # when the last minute's calls started
        self._refused_at = -inf  # no refusal yet
        # The end of the current pause, and the failure of calls that can't wait for it.
        self._paused_until = 0.0
        self._pause_kind = FailureKind.RATE_LIMIT
        self._pause_message = PAUSED
        # Each caller's waiting calls: a future, and the clock time until which the call can wait.
        self._queues: dict[str, deque[tuple[asyncio.Future[None], float]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def hold_turn(self, end: float = inf) -> AsyncIterator[None]:
        """Wait for a turn: the permission for a call. The turn lasts until the `async with` block ends.

        `end` is the deadline for getting the turn, on the pace's clock. Raises `GatewayError` as soon as it's
        certain to be missed.
        """
        granted = asyncio.get_running_loop().create_future()
        queue = self._queues.setdefault(caller.get(), deque())
        queue.append((granted, end))
        self._schedule()
        try:
            await granted
            yield
        finally:
            # Release the turn. It may have been granted just before the wait was cancelled.
            if _has_succeeded(granted):
                self._in_flight -= 1  # `take` has added it
            self._schedule()

    def note_success(self) -> None:
        """Raise the limit a little after a successful call.

        A round is as many calls as the limit. If it takes 2 rounds to raise a limit of 5 by one, each of the
        10 calls raises it by 1/10.
        """
        calls_per_round = self._limit
        calls_to_raise_by_one = max(1.0, self._count_rounds_to_raise() * calls_per_round)
        raised_limit = self._limit + 1 / calls_to_raise_by_one
        self._limit = min(self._max_in_flight, raised_limit)

    def _count_rounds_to_raise(self) -> float:
        """Count the rounds of successful calls that raise the limit by one.

        A round is as many calls as the limit. The longer ago the last refusal was, the fewer are needed.
        """
        seconds_since_refusal = self._clock() - self._refused_at
        was_refused_recently = seconds_since_refusal < _SLOW_GROWTH_SECONDS
        if was_refused_recently:
            return float(_SLOW_GROWTH_ROUNDS)
        return 1 / seconds_since_refusal  # for example, a tenth of a round after 10 s

    def note_refusal(self, seconds: float | None) -> None:
        """Lower the limit after a refused call, and pause for the `seconds` that the provider requests."""
        is_paused = self._clock() < self._paused_until
        if not is_paused:
            # This is the first refusal among calls made together. The calls now in flight are too many for
            # the provider, and can be far fewer than the limit.
            self._limit = min(self._limit, self._in_flight)
        self._limit = max(1.0, self._limit - 1)
        self._refused_at = self._clock()
        self.pause(seconds)

    def pause(
        self, seconds: float | None, reason: FailureKind = FailureKind.RATE_LIMIT, why: str = PAUSED
    ) -> None:
        """Pause all calls for `seconds`, by default half a second and at most two minutes.

        Calls that can't wait so long fail with the kind `reason` and a message that starts with `why`.
        """
        if seconds is None:
            seconds = _FIRST_PAUSE_SECONDS
        pause_end = self._clock() + min(seconds, _MAX_PAUSE_SECONDS)
        is_longer = pause_end > self._paused_until
        if is_longer:
            self._paused_until = pause_end
            self._pause_kind = reason
            self._pause_message = why
            self._schedule()  # refuses the calls that can't wait so long

    def limit(self) -> int:
        """Return the number of calls allowed at once."""
        return int(self._limit)

    def compute_wait(self) -> tuple[float, FailureKind, str]:
        """Return the seconds until pauses and the limit per minute allow a call, and the cause of the wait.

        The cause is a failure's kind and message. The limit of calls in flight is not considered here.
        """
        now = self._clock()
        self._forget_old_calls(now)
        allowed_at = self._find_time_by_minute_limit(now)
        seconds = max(0.0, self._paused_until - now, allowed_at - now)
        is_pause_longer = self._paused_until >= allowed_at
        if is_pause_longer:
            return seconds, self._pause_kind, self._pause_message
        return seconds, FailureKind.RATE_LIMIT, f"{self._per_minute} calls were made in a minute"

    def _forget_old_calls(self, now: float) -> None:
        """Forget the calls from more than a minute ago."""
        while self._start_times and self._start_times[0] <= now - _MINUTE:
            self._start_times.popleft()

    def _find_time_by_minute_limit(self, now: float) -> float:
        """Return the time at which the limit of calls per minute allows the next call, which can be `now`."""
        if self._per_minute is None or len(self._start_times) < self._per_minute:
            return now
        # With a limit of 10, the next call is allowed a minute after the tenth to last call.
        return self._start_times[-self._per_minute] + _MINUTE

    def take(self, max_turns: int) -> int:
        """Take the turns that are free now, up to `max_turns`, and return their number.

        The caller must release them with `give`.
        """
        turns_taken = 0
        while turns_taken < max_turns and self._is_turn_free():
            self._in_flight += 1
            self._start_times.append(self._clock())
            turns_taken += 1
        return turns_taken

    def _is_turn_free(self) -> bool:
        """Whether a call may start now: there are few enough in flight, and neither a pause nor a limit."""
        if self._in_flight >= self.limit():
            return False
        seconds_to_wait, _, _ = self.compute_wait()
        return seconds_to_wait <= 0

    def give(self, turns: int) -> None:
        """Release turns whose calls have ended."""
        self._in_flight -= turns

    def _schedule(self) -> None:
        """Let waiting calls start if the limits allow it, and refuse those that can't start in time."""
        self._grant_turns()
        seconds_to_wait, kind, cause = self.compute_wait()
        if seconds_to_wait == 0 or not self._queues:
            return  # calls that still wait are granted their turns when others end
        self._refuse_late_calls(seconds_to_wait, kind, cause)

        # Run this again when the next call is allowed.
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds_to_wait, self._schedule)

    def _grant_turns(self) -> None:
        """Grant free turns to waiting calls, alternating between callers."""
        while self._queues:
            caller_name, queue = next(iter(self._queues.items()))  # the first caller in line
            turn, _ = queue[0]
            was_cancelled_or_refused = turn.done()
            if not was_cancelled_or_refused:
                turns_taken = self.take(1)
                if turns_taken == 0:
                    return
                turn.set_result(None)
            queue.popleft()
            self._move_back_or_remove(caller_name)

    def _move_back_or_remove(self, caller_name: str) -> None:
        """Move a caller to the back of the line, or remove it if it has no waiting calls."""
        queue = self._queues.pop(caller_name)
        if queue:
            self._queues[caller_name] = queue

    def _refuse_late_calls(self, seconds: float, reason: FailureKind, why: str) -> None:
        """Let the waiting calls fail whose deadline is less than `seconds` away."""
        problem = f"the next call is allowed in {seconds:.3g} s, after the deadline"
        message = f"{why}: no model was asked, because {problem}"
        for queue in self._queues.values():
            for granted, deadline in queue:
                is_too_late = self._clock() + seconds >= deadline
                if is_too_late and not granted.done():
                    failure = GatewayError(reason, message, retry_after=seconds, usage=Usage())
                    # `hold_turn` raises it, which awaits this future.
                    granted.set_exception(failure)


def _has_succeeded(future: asyncio.Future[None]) -> bool:
    """Whether a future has a result, rather than an error or a cancellation."""
    if not future.done() or future.cancelled():
        return False
    return future.exception() is None


class Paces(dict[PaceKey, Pace]):
    def get_pace(self, endpoint: Endpoint) -> Pace:
        """Return the pace for an endpoint. Endpoints with the same provider, address and key share a pace."""
        key = _build_pace_key(endpoint)
        pace = self.get(key)
        if pace is None:
            # `setdefault` is atomic, so all threads get the same pace.
            pace = self.setdefault(key, self.make_pace(key))
        return pace

    def make_pace(self, key: PaceKey) -> Pace:
        """Make a new pace. A subclass can share it between processes."""
        return Pace(key.max_in_flight or AT_ONCE, key.per_minute)

    async def call(
        self,
        endpoint: Endpoint,
        request: Request,
        work: Work,
        late: str = "no reply",
        patience: float = 0.0,
    ) -> Reply:
        """Run `work` and return its reply, or raise `GatewayError` at the request's deadline.

        `work` gets a function `turn` and the deadline on the monotonic clock. It makes each call to the
        provider inside `async with turn():`. At the deadline, `work` is cancelled and has `patience` seconds
        to end. If a call was made by then, the error message starts with `late`.
        """
        deadline = time.monotonic() + request.timeout
        has_got_turn = False

        @asynccontextmanager
        async def turn() -> AsyncIterator[None]:
            nonlocal has_got_turn
            pace = self.get_pace(endpoint)
            async with pace.hold_turn(deadline):
                has_got_turn = True
                yield

        work_in_turns = partial(work, turn, deadline)
        try:
            async with asyncio.timeout(request.timeout):
                # The home loop is the event loop in which this process makes all its calls to models.
                return await running.run_in_home_loop(work_in_turns, patience)
        except TimeoutError:
            raise _make_timeout_error(late, request.timeout, has_called=has_got_turn) from None


def _build_pace_key(endpoint: Endpoint) -> PaceKey:
    """Build the key that endpoints with a shared pace have in common.

    It contains the profile's limits, so that a change of them while an engine runs creates a new pace.
    """
    limits = endpoint.profile.limits
    # A limit in the profile applies to all models of the provider together. Without one, each model has a
    # separate pace.
    has_shared_limit = limits.concurrency or limits.requests_per_minute
    return PaceKey(
        provider=endpoint.profile.provider,
        address=endpoint.api_base,
        model="" if has_shared_limit else endpoint.model,
        key=environment.digest(endpoint.api_key or ""),
        max_in_flight=limits.concurrency,
        per_minute=limits.requests_per_minute,
    )


def _make_timeout_error(late: str, seconds: float, *, has_called: bool) -> GatewayError:
    """Build the failure for a missed deadline."""
    limit = f"within {seconds:.3g} s"
    if has_called:
        # The failure's usage stays None, because nobody knows the cost of the call.
        return GatewayError(FailureKind.TIMEOUT, f"{late} {limit}")
    problem = f"no turn {limit}: other calls came first"
    no_usage = Usage()
    return GatewayError(FailureKind.TIMEOUT, problem, usage=no_usage)


def parse_retry_after(retry_after: str) -> float | None:
    """Convert a `Retry-After` header to seconds from now. Anything but a number or a date gives None."""
    with suppress(ValueError):
        return max(0.0, float(retry_after))
    with suppress(ValueError):
        date = parsedate_to_datetime(retry_after).astimezone(UTC)
        return max(0.0, (date - datetime.now(UTC)).total_seconds())
    return None
