"""HTTP for clients that may be slow, or mean to be: who sends nothing for long is hung up on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

HEAD_SECONDS = 15.0  # for the head of a request, the wait for it included
BODY_SECONDS = 60.0  # for the rest of it
_LOOK = 2.5


class PatientProtocol(H11Protocol):
    """uvicorn's, which itself waits for ever."""

    _looking: asyncio.TimerHandle | None = None
    _state: object = None
    _since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to look at the time."""
        super().connection_made(transport)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        """Hang up when the client has been in the same state of sending for too long."""
        now = time.monotonic()
        state = (self.conn.their_state, id(self.cycle))
        if state != self._state:
            self._state, self._since = state, now
        limits = {h11.IDLE: HEAD_SECONDS, h11.SEND_BODY: BODY_SECONDS}
        if now - self._since > limits.get(self.conn.their_state, float("inf")):
            self.transport.abort()
            return
        self._looking = self.loop.call_later(_LOOK, self._look)
