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
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from judgekit import environment
from judgekit.errors import FailureKind, GatewayError, Usage
from judgekit.providers import running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from judgekit.providers.base import Endpoint, Reply, Request

AT_ONCE = 64
_FIRST_PAUSE = 0.5  # seconds, if an overloaded provider doesn't say how long to wait
_LONGEST_PAUSE = 120.0
_CAREFUL = 5.0  # seconds after a refusal in which the limit grows only rarely
_ROUNDS = 10  # of answers without a refusal, until it grows
_MINUTE = 60.0
PAUSED = "the provider asked for a pause"

caller: ContextVar[str] = ContextVar("caller", default="")
"""The caller that the current task asks for; callers in one process get equal numbers of turns."""

Turn: TypeAlias = "Callable[[], AbstractAsyncContextManager[None]]"
Work: TypeAlias = "Callable[[Turn, float], Coroutine[None, None, Reply]]"


class Whom(NamedTuple):
    """A provider, or one of its models, with its own pace and limits; `key` stands for a user's key."""

    provider: str
    address: str | None
    model: str
    key: str
    most: int | None
    per_minute: int | None


class Pace:
    """The turns to ask one provider: so many calls at once and, if given, so many a minute."""

    def __init__(
        self,
        most: int = AT_ONCE,
        per_minute: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = self._limit = float(most)
        self._per_minute = per_minute
        self._clock = clock
        self._in_flight = 0
        self._begun: deque[float] = deque()
        self._paused_until = 0.0
        self._refused_at = -inf  # never yet
        self._reason = FailureKind.RATE_LIMIT
        self._why = PAUSED
        # The waiting calls by caller: each a future, and the clock time until which it can wait.
        self._queues: dict[str, deque[tuple[asyncio.Future[None], float]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def turn(self, end: float = inf) -> AsyncIterator[None]:
        """Wait for a turn, and hold it inside the `async with` block.

        Raises `GatewayError` as soon as it's clear that no turn can come before `end`, on the pace's clock.
        """
        turn = asyncio.get_running_loop().create_future()
        self._queues.setdefault(caller.get(), deque()).append((turn, end))
        self._advance()
        try:
            await turn
            yield
        finally:
            # If a turn was handed out, hand it back. It may have come at the very moment of a cancellation.
            was_handed_out = turn.done() and not turn.cancelled() and turn.exception() is None
            if was_handed_out:
                self._in_flight -= 1
            self._advance()

    def went_well(self) -> None:
        """Learn that a call succeeded, and let the limit grow a little.

        It grows slowly in the seconds after a refusal, and faster the longer ago the last refusal is.
        """
        seconds_since_refusal = self._clock() - self._refused_at
        if seconds_since_refusal < _CAREFUL:
            rounds = float(_ROUNDS)
        else:
            rounds = 1 / seconds_since_refusal
        # A round is as many calls as the limit allows at once. After `rounds` of them, it has grown by one.
        calls = max(1.0, rounds * self._limit)
        self._limit = min(self._most, self._limit + 1 / calls)

    def was_too_much(self, seconds: float | None) -> None:
        """Learn that the provider refused a call since there were too many: lower the limit, and pause.

        `seconds` is the pause that the provider asked for, or None.
        """
        # Of calls made together, several may be refused. The first refusal sets the limit to the number of
        # calls under way, and begins a pause; the others each lower the limit by one.
        if self._clock() >= self._paused_until:
            self._limit = min(self._limit, self._in_flight)
        self._limit = max(1.0, self._limit - 1)
        self._refused_at = self._clock()
        self.pause(seconds)

    def pause(
        self, seconds: float | None, reason: FailureKind = FailureKind.RATE_LIMIT, why: str = PAUSED
    ) -> None:
        """Start no calls for `seconds`, or half a second if that's None; never more than two minutes."""
        if seconds is None:
            seconds = _FIRST_PAUSE
        pause_end = self._clock() + min(seconds, _LONGEST_PAUSE)
        if pause_end > self._paused_until:
            self._paused_until = pause_end
            self._reason = reason
            self._why = why
            self._advance()

    def limit(self) -> int:
        """Return the number of calls allowed at once."""
        return int(self._limit)

    def wait(self) -> tuple[float, FailureKind, str]:
        """Return the seconds until the next turn is allowed, and the reason for the wait: its kind and words.

        0 seconds means now, or as soon as one of the calls under way ends.
        """
        now = self._clock()
        while self._begun and self._begun[0] <= now - _MINUTE:
            self._begun.popleft()
        allowed_at = now  # by the limit of calls per minute
        if self._per_minute is not None and len(self._begun) >= self._per_minute:
            # Once the call at this place from the end is a minute old, one more is allowed.
            allowed_at = self._begun[-self._per_minute] + _MINUTE
        seconds = max(0.0, self._paused_until - now, allowed_at - now)
        if self._paused_until >= allowed_at:
            return seconds, self._reason, self._why
        return seconds, FailureKind.RATE_LIMIT, f"{self._per_minute} calls were made in a minute"

    def take(self, most: int) -> int:
        """Take up to `most` turns without waiting, and return the number of turns taken.

        They must be handed back with `give`.
        """
        turns_taken = 0
        while turns_taken < most and self._in_flight < self.limit():
            seconds, _, _ = self.wait()
            if seconds > 0:
                break
            self._in_flight += 1
            self._begun.append(self._clock())
            turns_taken += 1
        return turns_taken

    def give(self, turns: int) -> None:
        """Hand back turns whose calls have ended."""
        self._in_flight -= turns

    def _advance(self) -> None:
        """Hand out the free turns to waiting calls; refuse calls that can't get one before their deadline.

        If calls are still waiting, this runs again when the next turn is allowed.
        """
        self._hand_out_turns()
        seconds, reason, words = self.wait()
        if seconds == 0 or not self._queues:
            return
        problem = f"the next call is allowed in {seconds:.3g} s, after the deadline"
        message = f"{words}: no model was asked, because {problem}"
        for turn, end in chain.from_iterable(self._queues.values()):
            comes_too_late = self._clock() + seconds >= end
            if comes_too_late and not turn.done():
                # Raised by the call's `turn()`.
                failure = GatewayError(reason, message, retry_after=seconds, usage=Usage())
                turn.set_exception(failure)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._advance)

    def _hand_out_turns(self) -> None:
        """Hand out the free turns to waiting calls, of one caller after another."""
        while self._queues:
            name, queue = next(iter(self._queues.items()))  # the caller at the front of the line
            turn, _ = queue[0]
            # A call that was cancelled or refused meanwhile gets no turn, and only leaves the queue.
            if not turn.done():
                if self.take(1) == 0:
                    break
                turn.set_result(None)
            queue.popleft()
            del self._queues[name]
            if queue:
                self._queues[name] = queue  # to the back of the line


class Paces(dict[Whom, Pace]):
    def of(self, endpoint: Endpoint) -> Pace:
        """Find the pace of an endpoint.

        If its profile sets limits, all models of the provider share a pace, since they share the limits.
        Otherwise each model has its own.
        """
        limits = endpoint.profile.limits
        concurrency = limits.concurrency
        per_minute = limits.requests_per_minute
        model = "" if concurrency or per_minute else endpoint.model
        # A provider's limits belong to a user's key, which is stored only as a digest.
        key = environment.digest(endpoint.api_key or "")
        # The limits are part of the key: if the user changes them while an engine runs, there's a new pace.
        whom = Whom(
            endpoint.profile.provider, endpoint.api_base, model, key, concurrency, per_minute
        )
        pace = self.get(whom)
        if pace is None:
            # This is one atomic operation, so all threads get the same pace even if several made one.
            pace = self.setdefault(whom, self.make_pace(whom))
        return pace

    def make_pace(self, whom: Whom) -> Pace:
        """Make a new pace. A subclass that shares paces between processes makes its own kind."""
        return Pace(whom.most or AT_ONCE, whom.per_minute)

    async def call(
        self,
        endpoint: Endpoint,
        request: Request,
        work: Work,
        late: str = "no reply",
        patience: float = 0.0,
    ) -> Reply:
        """Run `work` and return its reply, or raise `GatewayError` at the request's deadline.

        `work` gets two arguments: `turn`, a context manager inside which it may ask the provider, and the
        deadline on the monotonic clock. `late` is the beginning of the message if the deadline passes. After
        that, `work` is cancelled, and has `patience` seconds to end.
        """
        end = time.monotonic() + request.timeout
        has_begun = False

        @asynccontextmanager
        async def turn() -> AsyncIterator[None]:
            nonlocal has_begun
            async with self.of(endpoint).turn(end):
                has_begun = True
                yield

        try:
            async with asyncio.timeout(request.timeout):
                return await running.inside(partial(work, turn, end), patience)
        except TimeoutError:
            limit = f"within {request.timeout:.3g} s"
            if has_begun:  # the model was asked, so the cost is unknown: no usage is given
                raise GatewayError(FailureKind.TIMEOUT, f"{late} {limit}") from None
            problem = f"no turn {limit}: other calls came first"
            raise GatewayError(FailureKind.TIMEOUT, problem, usage=Usage()) from None


def seconds_of(retry_after: str) -> float | None:
    """Convert a `Retry-After` header to seconds from now; None if it's neither a number nor a date."""
    with suppress(ValueError):
        return max(0.0, float(retry_after))
    with suppress(ValueError):
        date = parsedate_to_datetime(retry_after).astimezone(UTC)
        return max(0.0, (date - datetime.now(UTC)).total_seconds())
    return None
