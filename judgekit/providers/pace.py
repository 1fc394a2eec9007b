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
    from collections.abc import AsyncIterator, Callable, Mapping

    from judgekit.providers.base import Endpoint, Request

AT_ONCE = 64
_FIRST_PAUSE = 0.5  # seconds, where a provider that is asked too much does not say how long to wait
_LONGEST_PAUSE = 120.0
_CAREFUL = 5.0  # seconds after a refusal, in which one more at a time is tried only now and then
_ROUNDS = 10  # of nothing but answers, until then
_MINUTE = 60.0
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:([\d.]+)s)?(?:([\d.]+)ms)?")
# What is left of a minute's requests and tokens, and when there is more: OpenAI's names, then Anthropic's.
_BUDGETS = (
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
)

caller: ContextVar[str] = ContextVar("caller", default="")
"""On whose behalf the current task asks; callers of one process get turns in the same measure."""


class _Waiter(NamedTuple):
    """A call that waits for a turn, and until when by the pace's clock."""

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
        name, mine = caller.get(), _Waiter(asyncio.get_running_loop().create_future(), end)
        queue = self._waiting.setdefault(name, deque())
        queue.append(mine)
        self._dismiss()
        self._give()
        try:
            await mine.turn
            yield
        finally:
            # A turn may also come at the very moment of a cancellation.
            if mine.turn.done() and not mine.turn.cancelled() and mine.turn.exception() is None:
                self._flying -= 1
                self._give()
            elif mine in queue:
                queue.remove(mine)
                if not queue and self._waiting.get(name) is queue:
                    del self._waiting[name]

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
        self._pause(seconds, FailureKind.RATE_LIMIT)

    def is_away(self, seconds: float | None) -> None:
        """Tell that the provider cannot answer anybody just now, and for how long it asked to wait."""
        self._pause(seconds, FailureKind.OVERLOADED)

    def heard(self, headers: Mapping[str, str]) -> None:
        """Tell what headers came with an answer: where nothing is left, all wait until there is again."""
        for left, reset in _BUDGETS:
            if headers.get(left, "").strip() == "0":
                self._pause(seconds_of(headers.get(reset, "")) or None, FailureKind.RATE_LIMIT)

    def _pause(self, seconds: float | None, reason: FailureKind) -> None:
        until = self._clock() + min(_FIRST_PAUSE if seconds is None else seconds, _LONGEST_PAUSE)
        if until > self._paused_until:
            self._paused_until, self._reason = until, reason
            self._dismiss()

    def _next_turn(self) -> tuple[float, bool]:
        """Return the seconds until a call may be made, and whether a pause is what it waits for."""
        now = self._clock()
        while self._begun and self._begun[0] <= now - _MINUTE:
            self._begun.popleft()
        minute = now
        if self._per_minute is not None and len(self._begun) >= self._per_minute:
            minute = self._begun[-self._per_minute] + _MINUTE
        return max(self._paused_until, minute) - now, self._paused_until >= minute

    def _dismiss(self) -> None:
        """Refuse the calls that wait in vain, since no turn comes before their end."""
        later, is_paused = self._next_turn()
        if later <= 0:
            return
        why = f"{self._per_minute} calls were made in a minute"
        why = "the provider asked for a pause" if is_paused else why
        message = (
            f"{why}: no model was asked, because the next call is allowed in {later:.3g} s, after the "
            "deadline"
        )
        reason = self._reason if is_paused else FailureKind.RATE_LIMIT
        for waiter in (waiter for queue in self._waiting.values() for waiter in queue):
            if self._clock() + later >= waiter.end and not waiter.turn.done():
                error = GatewayError(reason, message, retry_after=later, usage=CallUsage())
                waiter.turn.set_exception(error)

    def _give(self) -> None:
        """Give turns to those who wait, one caller after another, as far as there are any."""
        while self._waiting and self._flying < self.limit:
            later, _ = self._next_turn()
            if later > 0:
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = asyncio.get_running_loop().call_later(later, self._give)
                return
            name, queue = self._waiting.popitem(last=False)
            turn = queue.popleft().turn
            if queue:
                self._waiting[name] = queue  # behind all others
            if not turn.done():
                self._flying += 1
                self._begun.append(self._clock())
                turn.set_result(None)


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


def no_turn(request: Request) -> GatewayError:
    """Return the failure of a call that was never made: others were asking all the time it had."""
    message = f"no turn within {request.timeout:.3g} s: other calls came first"
    return GatewayError(FailureKind.TIMEOUT, message, usage=CallUsage())


def seconds_of(text: str) -> float | None:
    """Return the seconds that a provider means by "20", "6m0s", "120ms" or a time; None if unreadable."""
    from datetime import UTC, datetime  # noqa: PLC0415 - one provider alone says a time

    text = text.strip()
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    parts = _DURATION.fullmatch(text)
    if text and parts:
        hours, minutes, seconds, thousandths = (float(part or 0) for part in parts.groups())
        return hours * 3600 + minutes * 60 + seconds + thousandths / 1000
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return max(0.0, (moment.astimezone(UTC) - datetime.now(UTC)).total_seconds())
