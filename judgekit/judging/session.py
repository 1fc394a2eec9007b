"""One judging: the gateway it asks through, and what it may still take in seconds and US dollars."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from judgekit.errors import CallUsage, FailureKind, GatewayError, of_failure
from judgekit.judging import cache as reply_cache
from judgekit.judging.fence import Fence
from judgekit.providers import running

if TYPE_CHECKING:
    from collections.abc import Callable

    from judgekit.judging.cache import Cache
    from judgekit.providers.base import Endpoint, Gateway, Message, Reply, Request

Value = TypeVar("Value")
INEXACT = 1e-9  # a share by less than which sums of the same amounts, added otherwise, differ
_LONG = 8_000  # characters, for which a change of threads takes less than the work
_LEAST_SECONDS = 0.05  # below this no provider answers: say so instead of asking

Remembered: TypeAlias = "dict[tuple[str, tuple[Message, ...]], Reply]"
"""What models answered to which messages."""


@dataclass(slots=True)
class Session:
    """The limits of one judging, from now on; `call_seconds` bounds each call beside its tier's timeout.

    Pointwise questions share one `fence`, so that a small model reads what they have in common once, and
    what it answered is `remembered`: a deeper tier of the same model may ask the very same. `cache` holds
    replies of earlier sessions.
    """

    gateway: Gateway
    seconds: float
    max_cost_usd: float | None = None
    call_seconds: float | None = None
    spent_usd: float = 0.0
    unpriced: bool = False
    started: float = field(default_factory=time.monotonic)
    fence: Fence = field(default_factory=Fence)
    remembered: Remembered = field(default_factory=dict)
    cache: Cache | None = None

    def call_timeout(self, tier_timeout: float) -> float:
        """Return the seconds that a call of a tier may take now; raises `GatewayError` if none."""
        seconds = min(tier_timeout, self.left(), self.call_seconds or tier_timeout)
        if seconds < _LEAST_SECONDS:
            raise GatewayError(FailureKind.TIMEOUT, "no time was left to ask it", usage=CallUsage())
        self.afford()
        return seconds

    def afford(self) -> None:
        """Raise `GatewayError` of kind `BUDGET` when the limit of cost is reached: no call may begin then."""
        if self.max_cost_usd is not None and self.spent_usd >= self.max_cost_usd * (1 - INEXACT):
            spent = f"{self.spent_usd:.4f} of {self.max_cost_usd:g} US dollars are spent"
            raise GatewayError(FailureKind.BUDGET, spent, usage=CallUsage())
        if self.max_cost_usd is not None and self.unpriced:
            told = f"nobody says what a call cost, so the limit of {self.max_cost_usd:g} US dollars ends it"
            raise GatewayError(FailureKind.BUDGET, told, usage=CallUsage())

    def left(self) -> float:
        """Return the seconds that are left, negative when the deadline is over."""
        return self.started + self.seconds - time.monotonic()

    async def aside(self, work: Callable[[], Value], size: int) -> Value:
        """Return what `work` makes of texts of `size` characters; the event loop does not wait for long ones.

        Raises `GatewayError` when the deadline comes first; the work may go on then, and nobody hears of it.
        """
        if size < _LONG:
            return work()
        try:
            async with asyncio.timeout(max(0.0, self.left())):
                return await running.aside(work)
        except TimeoutError:
            told = "the deadline came while its text was being prepared"
            raise GatewayError(FailureKind.TIMEOUT, told, usage=CallUsage()) from None

    async def found(self, endpoint: Endpoint, request: Request) -> Reply | None:
        """Return what was replied to the same request in an earlier session, None where that is not kept."""
        if (cache := self.cache) is None:
            return None
        return await reply_cache.aside(lambda wait: cache.find(endpoint, request, wait=wait))

    async def keep(self, endpoint: Endpoint, request: Request, reply: Reply) -> None:
        """Keep a reply for later sessions."""
        if (cache := self.cache) is not None:
            await reply_cache.aside(lambda wait: cache.keep(endpoint, request, reply, wait=wait))

    def spend(self, usage: CallUsage) -> None:
        """Count the cost of a call that failed; one that nobody states cannot be counted."""
        self.spent_usd += usage.cost_usd or 0.0

    def pay(self, usage: CallUsage) -> None:
        """Count the cost of a reply; where nobody states it, no limit can be kept any more."""
        self.spend(usage)
        self.unpriced |= usage.cost_usd is None


class Paid:
    """The gateway of a session that begins no call which it cannot afford, and counts what each one cost."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        """Return the model's reply, as `Gateway.complete` says."""
        self._session.afford()
        try:
            reply = await self._session.gateway.complete(endpoint, request)
        except GatewayError as error:
            self._session.spend(of_failure(error))
            raise
        self._session.pay(reply.usage)
        return reply

    async def aclose(self) -> None:
        """Close nothing: the gateway is the session's."""


class Stopwatch:
    """Milliseconds since it was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    @property
    def ms(self) -> int:
        """Whole milliseconds so far."""
        return round((time.perf_counter() - self._start) * 1000)
