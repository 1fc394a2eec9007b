"""HTTP for clients that may be slow, or mean to be: a client that holds things up for long is hung up on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

HEAD_SECONDS = 15.0  # for the head of a request, the wait for it included
BODY_SECONDS = 60.0  # for the rest of it
WRITE_SECONDS = 30.0  # in which a client reads all that waits for it, or as much as a full buffer (48 KB)
MOST_CONNECTIONS = 800  # above it, the one that has been idle for the longest makes room
_LOOK = 2.5


class PatientProtocol(H11Protocol):
    """uvicorn's, which itself waits for ever."""

    _looking: asyncio.TimerHandle | None = None
    _state: object = None
    since = 0.0  # when its state changed last
    _owing: float | None = None  # since when the client has something to read

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to look at the time. Above the most connections, hang up on one that does nothing."""
        super().connection_made(transport)
        self._look()
        if len(self.connections) > MOST_CONNECTIONS:
            open_ = [each for each in self.connections if not each.transport.is_closing()]
            idle = [each for each in open_ if isinstance(each, PatientProtocol) and each.idle]
            if idle and len(open_) > MOST_CONNECTIONS:
                min(idle, key=lambda each: each.since).transport.abort()

    def resume_writing(self) -> None:
        """Note that the client has read a good part."""
        super().resume_writing()
        self._owing = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        """Hang up when the client has sent, or left unread, the same thing for too long."""
        now = time.monotonic()
        state = (self.conn.their_state, self.cycle)
        if state != self._state:
            self._state, self.since = state, now
        self._owing = (self._owing or now) if self.transport.get_write_buffer_size() else None
        limits = {h11.IDLE: HEAD_SECONDS, h11.SEND_BODY: BODY_SECONDS}
        unsent = now - self.since > limits.get(self.conn.their_state, float("inf"))
        if unsent or (self._owing is not None and now - self._owing > WRITE_SECONDS):
            self.transport.abort()
            return
        self._looking = self.loop.call_later(_LOOK, self._look)

    @property
    def idle(self) -> bool:
        """Whether no request is under way."""
        cycle: RequestResponseCycle | None = self.cycle  # which uvicorn declares as always there
        return cycle is None or cycle.response_complete
