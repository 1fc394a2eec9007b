"""How fast a provider may be asked: learned from what it answers, and fair between those who ask.

Of calls that fly together and are refused together, as many as got through are made at a time from then on;
slowly it is one more again, and sooner the longer ago the last refusal is. A pause that the provider asks for
holds for everyone.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict, deque
from contextlib import asynccontextmanager
from contextvars import ContextVar
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from judgekit.errors import CallUsage, FailureKind, GatewayError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from judgekit.providers.base import Endpoint, Request

AT_ONCE = 64
_FIRST_PAUSE = 0.5  # seconds, where a provider that is asked too much does not say how long to wait
_LONGEST_PAUSE = 120.0
_CAREFUL = 5.0  # seconds after a refusal, in which one more at a time is tried only now and then
_ROUNDS = 10  # of nothing but answers, until then
_MINUTE = 60.0
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:([\d.]+)s)?(?:([\d.]+)ms)?")

caller: ContextVar[str] = ContextVar("caller", default="")
"""On whose behalf the current task asks; callers of one process get turns in the same measure."""


class _Waiter(NamedTuple):
    """Who waits for a turn, and until when by the pace's clock."""

    turn: asyncio.Future[None]
    end: float


class Pace:
    """The turns to ask one provider.

    At most `most` calls at a time, and where given `per_minute` calls in any minute.
    """

    def __init__(
        self,
        most: int = AT_ONCE,
        per_minute: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = self._limit = float(most)
        self._per_minute = per_minute
        self._clock = clock
        self._flying = 0
        self._begun: deque[float] = deque()
        self._paused_until = 0.0
        self._refused_at = -inf
        self._reason = FailureKind.RATE_LIMIT
        self._waiting: OrderedDict[str, deque[_Waiter]] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def limit(self) -> int:
        """How many calls may be made at a time now."""
        return max(1, int(self._limit))

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def turn(self, end: float = inf) -> AsyncIterator[None]:
        """Wait for a turn, and hold it for the block.

        Raises `GatewayError` as soon as it is known that none comes before `end`, a time by the pace's clock.
        """
        await self._wait(_Waiter(asyncio.get_running_loop().create_future(), end))
        try:
            yield
        finally:
            self._end()

    async def _wait(self, mine: _Waiter) -> None:
        name = caller.get()
        self._waiting.setdefault(name, deque()).append(mine)
        self._dismiss((mine,))
        self._give()
        try:
            await mine.turn
        except GatewayError:
            self._forget(name, mine)
            raise
        except asyncio.CancelledError:
            # It may have come at the very moment of the cancellation.
            if mine.turn.done() and not mine.turn.cancelled() and mine.turn.exception() is None:
                self._end()
            else:
                self._forget(name, mine)
            raise

    def went_well(self) -> None:
        """Tell that a call was answered."""
        since = self._clock() - self._refused_at
        rounds = _ROUNDS if since < _CAREFUL else 1 / since
        self._limit = min(self._most, self._limit + 1 / max(1.0, rounds * self._limit))

    def was_too_much(self, seconds: float | None) -> None:
        """Tell that the provider refused a call for being one too many, and for how long it asked to wait."""
        if self._clock() >= self._paused_until:  # the first refusal of those that flew together
            self._limit = min(self._limit, self._flying)
        self._limit = max(1.0, self._limit - 1)
        self._refused_at = self._clock()
        self._pause(_FIRST_PAUSE if seconds is None else seconds, FailureKind.RATE_LIMIT)

    def is_away(self, seconds: float | None) -> None:
        """Tell that the provider cannot answer anybody just now, and for how long it asked to wait."""
        self._pause(_FIRST_PAUSE if seconds is None else seconds, FailureKind.OVERLOADED)

    def heard(self, headers: Mapping[str, str]) -> None:
        """Tell what headers came with an answer: where nothing is left, all wait until there is again."""
        for left, reset in _BUDGETS:
            if headers.get(left, "").strip() == "0":
                self._pause(seconds_of(headers.get(reset, "")) or _FIRST_PAUSE, FailureKind.RATE_LIMIT)

    def _pause(self, seconds: float, reason: FailureKind) -> None:
        until = self._clock() + min(seconds, _LONGEST_PAUSE)
        if until > self._paused_until:
            self._paused_until, self._reason = until, reason
            self._dismiss([waiter for queue in self._waiting.values() for waiter in queue])

    def _dismiss(self, waiters: Iterable[_Waiter]) -> None:
        """Tell those who wait that they wait in vain, where no turn comes before their end."""
        now = self._clock()
        minute = self._next_in_minute(now)
        later = max(self._paused_until, minute) - now
        paused = self._paused_until >= minute
        for waiter in waiters:
            if now + later >= waiter.end and later > 0 and not waiter.turn.done():
                waiter.turn.set_exception(self._in_vain(later, paused=paused))

    def _in_vain(self, later: float, *, paused: bool) -> GatewayError:
        why = (
            "the provider asked for a pause" if paused else f"{self._per_minute} calls were made in a minute"
        )
        message = f"{why}: nobody was asked, since the deadline comes before the next turn in {later:.3g} s"
        reason = self._reason if paused else FailureKind.RATE_LIMIT
        return GatewayError(reason, message, retry_after=later, usage=CallUsage())

    def _give(self) -> None:
        """Give turns to those who wait, one caller after another, as far as there are any."""
        while self._waiting and self._flying < self.limit:
            now = self._clock()
            later = max(self._paused_until, self._next_in_minute(now)) - now
            if later > 0:
                self._give_in(later)
                return
            name, queue = self._waiting.popitem(last=False)
            turn = queue.popleft().turn
            if queue:
                self._waiting[name] = queue  # behind all others
            if not turn.done():
                self._flying += 1
                self._begun.append(now)
                turn.set_result(None)

    def _next_in_minute(self, now: float) -> float:
        while self._begun and self._begun[0] <= now - _MINUTE:
            self._begun.popleft()
        if self._per_minute is None or len(self._begun) < self._per_minute:
            return now
        return self._begun[-self._per_minute] + _MINUTE

    def _give_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._give)

    def _end(self) -> None:
        self._flying -= 1
        self._give()

    def _forget(self, name: str, mine: _Waiter) -> None:
        queue = self._waiting.get(name)
        if queue is not None and mine in queue:
            queue.remove(mine)
            if not queue:
                del self._waiting[name]


def no_turn(request: Request) -> GatewayError:
    """Return the failure of a call that was never made: others were asking all the time it had."""
    message = f"no turn within {request.timeout:.3g} s: other calls were made first"
    return GatewayError(FailureKind.TIMEOUT, message, usage=CallUsage())


class Paces:
    """The paces of all whom a gateway asks.

    What a provider's profile bounds is bounded for all of its models together; where it bounds nothing, each
    model has a pace of its own.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], Pace] = {}

    def of(self, endpoint: Endpoint) -> Pace:
        """Return the pace at which an endpoint is asked."""
        limits = endpoint.profile.limits
        most, per_minute = limits.concurrency, limits.requests_per_minute
        model = "" if most or per_minute else endpoint.model
        key = hash(endpoint.api_key)  # whose limits they are; the key itself is kept nowhere
        # With their limits, which a user may change while an engine runs.
        whom = (endpoint.profile.provider, endpoint.api_base, model, key, most, per_minute)
        if whom not in self._kept:
            self._kept[whom] = Pace(most or AT_ONCE, per_minute)
        return self._kept[whom]


# What is left of a minute's requests and tokens, and when there is more: OpenAI's names, then Anthropic's.
_BUDGETS = (
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
)


def seconds_of(text: str) -> float | None:
    """Return the seconds that a provider means by "20", "6m0s", "120ms" or a time; None if unreadable."""
    text = text.strip()
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    found = _DURATION.fullmatch(text)
    if text and found:
        hours, minutes, seconds, thousandths = (float(part or 0) for part in found.groups())
        return hours * 3600 + minutes * 60 + seconds + thousandths / 1000
    return _until(text)


def _until(text: str) -> float | None:
    from datetime import UTC, datetime  # noqa: PLC0415 - one provider alone says it like this

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return max(0.0, (moment.astimezone(UTC) - datetime.now(UTC)).total_seconds())
