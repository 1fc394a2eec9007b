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
        self._refused_at = -inf
        self._reason = FailureKind.RATE_LIMIT
        self._why = PAUSED
        # The waiting calls by caller: each a future, and the clock time until which it can wait.
        self._queues: dict[str, deque[tuple[asyncio.Future[None], float]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def turn(self, end: float = inf) -> AsyncIterator[None]:
        """Wait for a turn and hold it for the block; raises `GatewayError` once none can come by `end`."""
        turn = asyncio.get_running_loop().create_future()
        self._queues.setdefault(caller.get(), deque()).append((turn, end))
        self._advance()
        try:
            await turn
            yield
        finally:
            # The turn may arrive at the very moment of a cancellation.
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._in_flight -= 1
            self._advance()

    def went_well(self) -> None:
        since = self._clock() - self._refused_at
        rounds = _ROUNDS if since < _CAREFUL else 1 / since
        self._limit = min(self._most, self._limit + 1 / max(1.0, rounds * self._limit))

    def was_too_much(self, seconds: float | None) -> None:
        """Learn that the provider refused a call as one too many, and asked for a pause of `seconds`."""
        if self._clock() >= self._paused_until:  # the first refusal among calls made together
            self._limit = min(self._limit, self._in_flight)
        self._limit = max(1.0, self._limit - 1)
        self._refused_at = self._clock()
        self.pause(seconds)

    def pause(
        self, seconds: float | None, reason: FailureKind = FailureKind.RATE_LIMIT, why: str = PAUSED
    ) -> None:
        """Hold all calls for `seconds`: half a second for None, at most two minutes."""
        until = self._clock() + min(_FIRST_PAUSE if seconds is None else seconds, _LONGEST_PAUSE)
        if until > self._paused_until:
            self._paused_until = until
            self._reason = reason
            self._why = why
            self._advance()

    def limit(self) -> int:
        """Return the number of calls allowed at once."""
        return int(self._limit)

    def wait(self) -> tuple[float, FailureKind, str]:
        """Return the seconds until the next turn (0: as soon as a call ends), and the reason to wait."""
        now = minute = self._clock()
        while self._begun and self._begun[0] <= now - _MINUTE:
            self._begun.popleft()
        if self._per_minute is not None and len(self._begun) >= self._per_minute:
            minute = self._begun[-self._per_minute] + _MINUTE
        later = max(0.0, self._paused_until - now, minute - now)
        if self._paused_until >= minute:
            return later, self._reason, self._why
        return later, FailureKind.RATE_LIMIT, f"{self._per_minute} calls were made in a minute"

    def take(self, most: int) -> int:
        """Take up to `most` turns that are free now, and return their number; hand them back with `give`."""
        taken = 0
        while taken < most and self._in_flight < int(self._limit) and not self.wait()[0]:
            self._in_flight += 1
            self._begun.append(self._clock())
            taken += 1
        return taken

    def give(self, turns: int) -> None:
        self._in_flight -= turns

    def _advance(self) -> None:
        """Hand out free turns, one caller after another; refuse calls that can't get one in time."""
        while self._queues:
            name = next(iter(self._queues))
            queue = self._queues[name]
            turn, _ = queue[0]
            if not turn.done():
                if not self.take(1):
                    break
                turn.set_result(None)
            queue.popleft()
            del self._queues[name]
            if queue:
                self._queues[name] = queue  # to the back of the line
        later, reason, why = self.wait()
        if not later or not self._queues:
            return
        why += f": no model was asked, because the next call is allowed in {later:.3g} s, after the deadline"
        for turn, end in (waiter for queue in self._queues.values() for waiter in queue):
            if self._clock() + later >= end and not turn.done():
                turn.set_exception(GatewayError(reason, why, retry_after=later, usage=Usage()))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(later, self._advance)


class Paces(dict[Whom, Pace]):
    def of(self, endpoint: Endpoint) -> Pace:
        """Find the pace of an endpoint's provider, or of its model alone if the profile sets no limit."""
        limits = endpoint.profile.limits
        most = limits.concurrency
        per_minute = limits.requests_per_minute
        model = "" if most or per_minute else endpoint.model
        # Limits belong to a key, which is stored only as a digest.
        key = environment.digest(endpoint.api_key or "")
        # The limits are part of the key, since a user may change them while an engine runs.
        whom = Whom(endpoint.profile.provider, endpoint.api_base, model, key, most, per_minute)
        return self.get(whom) or self.setdefault(whom, self.made(whom))

    def made(self, whom: Whom) -> Pace:
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
        """Give `work` its turn and the end (monotonic), and return its reply by the request's deadline."""
        end = time.monotonic() + request.timeout
        begun = False

        @asynccontextmanager
        async def turn() -> AsyncIterator[None]:
            nonlocal begun
            async with self.of(endpoint).turn(end):
                begun = True
                yield

        try:
            async with asyncio.timeout(request.timeout):
                return await running.inside(partial(work, turn, end), patience)
        except TimeoutError:
            seconds = f"within {request.timeout:.3g} s"
            usage = None if begun else Usage()
            if begun:
                problem = f"{late} {seconds}"
            else:
                problem = f"no turn {seconds}: other calls came first"
            raise GatewayError(FailureKind.TIMEOUT, problem, usage=usage) from None


def seconds_of(retry_after: str) -> float | None:
    """Convert a `Retry-After`, a number or a date, to seconds from now; None if it's unreadable."""
    with suppress(ValueError):
        return max(0.0, float(retry_after))
    with suppress(ValueError):
        date = parsedate_to_datetime(retry_after).astimezone(UTC)
        return max(0.0, (date - datetime.now(UTC)).total_seconds())
    return None
