"""Decides how long an engine lives: until it's idle, told to go, too large, or unreachable."""

from __future__ import annotations

import _socket
import asyncio
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from judgekit.config import settings as configuration
from judgekit.engine import client, process
from judgekit.engine.app import create_app
from judgekit.engine.judges import Service, rss_bytes
from judgekit.errors import JudgekitError

if TYPE_CHECKING:
    import socket

    from judgekit.engine.admission import AdmissionMiddleware

MOST_RSS = (
    800_000_000  # bytes; a fresh engine has a quarter of it. Above, it leaves as soon as it is idle
)
DRAIN_SECONDS = 300  # for running requests when it's told to go
_SUCCEEDED = 30.0  # seconds without a request before an engine with a successor leaves
_LONGEST = 86_400.0  # seconds; until the user's configuration has been read
_KEEP_ALIVE = 75  # seconds that a client may keep a connection without asking
_LATECOMERS = (
    0.05  # seconds in which clients that connected just before the socket went are refused
)
_LOOK = 10  # ticks of 0.1 s between two looks around


def settings(protocol: type[asyncio.Protocol], drain_seconds: int, **more: Any) -> uvicorn.Config:  # noqa: ANN401 - uvicorn's own
    more |= dict.fromkeys(("access_log", "proxy_headers", "server_header"), False)
    more |= {"log_config": None, "timeout_graceful_shutdown": drain_seconds}
    return uvicorn.Config("", loop="asyncio", http=protocol, ws="none", lifespan="off", **more)


class _Protocol(H11Protocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        peer = transport.get_extra_info("socket")
        if peer and peer.family == getattr(_socket, "AF_UNIX", None) and not client.ours(peer):
            transport.abort()


class Engine(uvicorn.Server):
    def __init__(self, engine_lock: process.EngineLock, log: process.Log) -> None:
        more = {"date_header": False, "timeout_keep_alive": _KEEP_ALIVE, "reset_contextvars": True}
        super().__init__(settings(_Protocol, DRAIN_SECONDS, **more))
        self._engine_lock = engine_lock
        self._log = log
        self._asked = time.monotonic()
        self._seen = 0
        self._why = "stopped by a signal"
        self._idle = _LONGEST
        self._door: AdmissionMiddleware

    async def live(self) -> None:
        """Serve requests until it's time to leave."""
        lock = self._engine_lock
        service = Service(self.leave)
        self.config.app = self._door = create_app(service, self._log, token=lock.token)
        preparing = asyncio.create_task(self._prepare(service))
        await self.serve([lock.listener])
        preparing.cancel()
        await service.gateway.aclose()
        self._log.add(f"gone: {self._why}")

    async def _prepare(self, service: Service) -> None:
        await service.prepare()
        if service.failure:  # the next one may fare better, but don't try one for every prompt
            self._log.add(f"not ready: {service.failure}")
            self._idle = _SUCCEEDED
            await asyncio.to_thread(Path(self._engine_lock.place.tried).touch, 0o600)
            return
        self._log.add(f"ready, {rss_bytes() // 1_000_000} MB")
        try:
            minutes = (await asyncio.to_thread(configuration.load, None)).engine.idle_minutes
        except JudgekitError:  # reported with each request
            minutes = configuration.EngineConfig().idle_minutes
        self._idle = min(self._idle, minutes * 60)
        await asyncio.to_thread(process.dismiss, self._engine_lock.place, _SUCCEEDED)

    async def on_tick(self, counter: int) -> bool:
        if counter % _LOOK == 0 and not self.should_exit:
            self.look_around()
        return await super().on_tick(counter)

    def look_around(self) -> None:
        """Check whether it's time to leave: idle, too large, or its socket gone."""
        now = time.monotonic()
        inside = self._door.inside.total()
        if inside or self._door.requests != self._seen:
            self._seen = self._door.requests
            self._asked = now
        if inside:
            return
        if now - self._asked > self._idle:
            self._leave("idle")
        elif (rss := rss_bytes()) > MOST_RSS:
            self._leave(f"grown to {rss // 1_000_000} MB")
        elif self._engine_lock.taken_away():
            self._leave("its socket is gone")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let another engine take over at once, and finish running requests."""
        self._log.add(f"stopping: {self._why}; {self._door.inside.total()} requests to finish")
        self._door.leaving = True
        self._engine_lock.leave()
        await asyncio.sleep(_LATECOMERS)
        await super().shutdown(sockets)

    def leave(self, idle_seconds: float = 0) -> None:
        if idle_seconds:
            self._idle = min(self._idle, idle_seconds)
        else:
            self._leave("asked to stop")

    def _leave(self, why: str) -> None:
        self._why = why
        self.should_exit = True


def run(engine_lock: process.EngineLock, log: process.Log) -> None:
    logging.getLogger().addHandler(log)
    asyncio.run(Engine(engine_lock, log).live())
