"""Works begin one after another: of many that arrive together the first is not as late as the last."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from judgekit.gateway.open import before_asking

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LONGEST = 0.02  # seconds for which a work that asks no provider keeps others from beginning


class Starts:
    """The turns to begin: the next one comes when the work before it has asked a provider, or has ended.

    What an event loop is given at once it does in small steps of each, and all are done when the last is.
    Begun one by one, each asks its provider as early as it can, and their answers do not come all at once
    either. To be made inside the event loop that uses it.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Wait for the turn to begin a work, which is what is done inside."""
        await self._turn.acquire()
        given = _Given(self._turn)
        timer = asyncio.get_running_loop().call_later(LONGEST, given.back)
        before = before_asking.set(given.back)
        try:
            yield
        finally:
            before_asking.reset(before)
            timer.cancel()
            given.back()


class _Given:
    """A turn that was given, and can be given back once."""

    def __init__(self, turn: asyncio.Lock) -> None:
        self._turn: asyncio.Lock | None = turn

    def back(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.release()
