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
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

AT_ONCE = 64
_FIRST_PAUSE = 0.5  # seconds, where a provider that is asked too much does not say how long to wait
_LONGEST_PAUSE = 120.0
_CAREFUL = 5.0  # seconds after a refusal, in which one more at a time is tried only now and then
_ROUNDS = 10  # of nothing but answers, until then
_MINUTE = 60.0
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:([\d.]+)s)?(?:([\d.]+)ms)?")

caller: ContextVar[str] = ContextVar("caller", default="")
"""On whose behalf the current task asks; callers of one process get turns in the same measure."""


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
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
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
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, and hold it for the block."""
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        name = caller.get()
        self._waiting.setdefault(name, deque()).append(mine)
        self._give()
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():  # it came at the very moment of the cancellation
                self._end()
            else:
                self._forget(name, mine)
            raise
        try:
            yield
        finally:
            self._end()

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
        self._pause(_FIRST_PAUSE if seconds is None else seconds)

    def is_away(self, seconds: float | None) -> None:
        """Tell that the provider cannot answer anybody just now, and for how long it asked to wait."""
        self._pause(_FIRST_PAUSE if seconds is None else seconds)

    def heard(self, headers: Mapping[str, str]) -> None:
        """Tell what headers came with an answer: where nothing is left, all wait until there is again."""
        for left, reset in _BUDGETS:
            if headers.get(left, "").strip() == "0":
                self._pause(seconds_of(headers.get(reset, "")) or _FIRST_PAUSE)

    def _pause(self, seconds: float) -> None:
        until = self._clock() + min(seconds, _LONGEST_PAUSE)
        self._paused_until = max(self._paused_until, until)

    def _give(self) -> None:
        """Give turns to those who wait, one caller after another, as far as there are any."""
        while self._waiting and self._flying < self.limit:
            now = self._clock()
            later = max(self._paused_until, self._next_in_minute(now)) - now
            if later > 0:
                self._give_in(later)
                return
            name, queue = self._waiting.popitem(last=False)
            mine = queue.popleft()
            if queue:
                self._waiting[name] = queue  # behind all others
            if not mine.done():
                self._flying += 1
                self._begun.append(now)
                mine.set_result(None)

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

    def _forget(self, name: str, mine: asyncio.Future[None]) -> None:
        queue = self._waiting.get(name)
        if queue is not None and mine in queue:
            queue.remove(mine)
            if not queue:
                del self._waiting[name]


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
