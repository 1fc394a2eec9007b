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

MAX_RSS = (
    800_000_000  # bytes; a fresh engine has a quarter of it. Above, it leaves as soon as it is idle
)
DRAIN_SECONDS = 300  # for running requests when it's told to go
_SHORT_IDLE_S = (
    30.0  # seconds without a request; for an engine with a successor, or that can't judge
)
_INITIAL_IDLE_S = 86_400.0  # seconds; until the user's configuration has been read
_KEEP_ALIVE_S = 75  # seconds that a client may keep a connection without asking
_LATECOMER_SECONDS = (
    0.05  # seconds in which clients that connected just before the socket went are refused
)
_TICKS_BETWEEN_LOOKS = 10  # ticks of 0.1 s between two looks around


def build_server_settings(
    protocol: type[asyncio.Protocol],
    drain_seconds: int,
    **more: Any,  # noqa: ANN401 - uvicorn's own settings
) -> uvicorn.Config:
    """Build uvicorn's settings for a server that doesn't log. The caller sets `app` later."""
    return uvicorn.Config(
        "",  # the application, which the caller sets
        http=protocol,
        timeout_graceful_shutdown=drain_seconds,
        loop="asyncio",
        ws="none",
        lifespan="off",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        log_config=None,
        **more,
    )


class _Protocol(H11Protocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or close it if it's from another user's process."""
        # Even before an abort, because `connection_lost` needs the transport that this sets.
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if not _is_unix_socket(connection):  # on a TCP port, each request needs a token instead
            return
        if not client.is_own_process(connection):
            transport.abort()


def _is_unix_socket(connection: Any) -> bool:  # noqa: ANN401 - asyncio's wrapper of a socket, or None
    if not connection:
        return False
    # Systems without Unix sockets lack this constant, and no connection has the family None.
    unix_family = getattr(_socket, "AF_UNIX", None)
    is_unix: bool = connection.family == unix_family
    return is_unix


class Engine(uvicorn.Server):
    def __init__(self, engine_lock: process.EngineLock, log: process.Log) -> None:
        """Create a server for the lock's listening socket.

        `serve_until_leaving` then builds the server's application.
        """
        config = build_server_settings(
            _Protocol,
            DRAIN_SECONDS,
            date_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            # asyncio can leak context variables between tasks. Without this, a request could see those of
            # another request, such as its caller's environment.
            reset_contextvars=True,
        )
        super().__init__(config)
        self._engine_lock = engine_lock
        self._log = log
        self._last_request_at = time.monotonic()
        self._last_request_count = 0
        self._reason = "stopped by a signal"  # unless `_leave` sets another reason
        self._idle_limit_s = _INITIAL_IDLE_S
        self._admission: AdmissionMiddleware  # set by `serve_until_leaving`

    async def serve_until_leaving(self) -> None:
        """Serve requests until the engine leaves, then close the connections to model providers."""
        lock = self._engine_lock
        service = Service(stop=self.leave)
        self._admission = create_app(service, self._log, token=lock.token)
        self.config.app = self._admission
        preparing = asyncio.create_task(self._prepare(service))
        await self.serve([lock.listener])
        preparing.cancel()
        await service.gateway.aclose()
        self._log.add(f"gone: {self._reason}")

    async def _prepare(self, service: Service) -> None:
        """Load everything that judging needs, then ask engines of other versions to leave."""
        await service.prepare()
        if service.failure:
            self._log.add(f"not ready: {service.failure}")
            await self._leave_soon()
            return

        self._log.add(f"ready, {rss_bytes() // 1_000_000} MB")
        configured_limit_s = await self._load_idle_limit()
        # The limit can already be shorter, because a newer engine has asked this one to leave.
        self._idle_limit_s = min(self._idle_limit_s, configured_limit_s)
        await asyncio.to_thread(process.dismiss_others, self._engine_lock.address, _SHORT_IDLE_S)

    async def _leave_soon(self) -> None:
        """Make this engine leave soon, because it can't judge and a new one may succeed."""
        self._idle_limit_s = _SHORT_IDLE_S
        # While this file is recent, the prompt hook starts no engine. Otherwise every prompt would start one.
        tried_file = Path(self._engine_lock.address.tried_path)
        await asyncio.to_thread(tried_file.touch, 0o600)

    async def _load_idle_limit(self) -> float:
        """Return the configured idle limit in seconds, or the default if the configuration is broken."""
        try:
            config = await asyncio.to_thread(configuration.load, None)
            minutes = config.engine.idle_minutes
        except JudgekitError:  # every request will report this
            minutes = configuration.EngineConfig().idle_minutes
        return minutes * 60

    async def on_tick(self, counter: int) -> bool:
        """Call `leave_if_unneeded` once a second. Uvicorn calls this method ten times a second."""
        if counter % _TICKS_BETWEEN_LOOKS == 0 and not self.should_exit:
            self.leave_if_unneeded()
        return await super().on_tick(counter)

    def leave_if_unneeded(self) -> None:
        """Shut down if the engine is idle too long, uses too much memory, or has lost its socket.

        The engine never shuts down while a request is running. This is called regularly.
        """
        now = time.monotonic()
        active_count = self._admission.active_requests.total()
        # A request may also have started and ended since the last call.
        has_new_requests = self._admission.request_count != self._last_request_count
        if active_count or has_new_requests:
            self._last_request_count = self._admission.request_count
            self._last_request_at = now
        if active_count:
            return

        memory = rss_bytes()
        if now - self._last_request_at > self._idle_limit_s:
            self._leave("idle")
        elif memory > MAX_RSS:
            self._leave(f"grown to {memory // 1_000_000} MB")
        elif self._engine_lock.is_unreachable():
            self._leave("its socket is gone")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let another engine take over the address, then finish the requests that are still running."""
        active_count = self._admission.active_requests.total()
        self._log.add(f"stopping: {self._reason}; {active_count} requests to finish")
        self._admission.is_shutting_down = True  # from now on, new requests are refused
        self._engine_lock.release()
        # Some clients have already connected to the old socket. Stay long enough to refuse their requests, so
        # that they connect to the next engine.
        await asyncio.sleep(_LATECOMER_SECONDS)
        await super().shutdown(sockets)

    def leave(self, idle_seconds: float = 0) -> None:
        """Make the engine leave once it has been idle for `idle_seconds`. With 0, it leaves now."""
        if idle_seconds:
            self._idle_limit_s = min(self._idle_limit_s, idle_seconds)
        else:
            self._leave("asked to stop")

    def _leave(self, reason: str) -> None:
        self._reason = reason
        self.should_exit = True


def run(engine_lock: process.EngineLock, log: process.Log) -> None:
    logging.getLogger().addHandler(log)
    asyncio.run(Engine(engine_lock, log).serve_until_leaving())
