"""The process of the team's server: it listens, hangs up on slow clients, and ends in order."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from contextlib import nullcontext, suppress
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from judgekit import environment
from judgekit.config import settings as configuration
from judgekit.engine import lifecycle
from judgekit.engine.admission import error_body, user_tokens
from judgekit.engine.app import JSON
from judgekit.engine.judges import Service
from judgekit.engine.process import Log
from judgekit.engine.replicas import joined
from judgekit.engine.team import create_team_app
from judgekit.errors import ConfigError, Exit, UsageError
from judgekit.judging import panel
from judgekit.judging.service import check_prices
from judgekit.judging.shared import is_loopback
from judgekit.rubric import loader

if TYPE_CHECKING:
    from collections.abc import Callable


_NO_REQUEST = "no request of HTTP, or one whose headers are longer than 16 KB"


HEAD_SECONDS = 15.0  # for the head of a request, the wait for it included


BODY_SECONDS = 60.0  # for the rest of it


# For a client to read everything that's waiting for it, or a full buffer (48 KB).
WRITE_SECONDS = 30.0


MOST_CONNECTIONS = 800  # beyond that, the connection that's been idle longest makes room


DRAIN_SECONDS = 60  # for running requests when it's told to stop


_LOOK = 2.5


_SEND_BYTES = 131_072  # of an unread answer that the system keeps, for each connection


_DESCRIPTORS = 4096  # for connections, calls to providers and files


class PatientProtocol(H11Protocol):
    """uvicorn's protocol with timeouts; uvicorn itself waits forever."""

    _looking: asyncio.TimerHandle | None = None
    _state: object = None
    since = 0.0  # when its state changed last
    _owing: float | None = None  # since when the client has something to read

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look()
        if len(self.connections) > MOST_CONNECTIONS:
            open_ = []
            for connection in self.connections:
                if (
                    isinstance(connection, PatientProtocol)
                    and not connection.transport.is_closing()
                ):
                    open_.append(connection)
            idle = [connection for connection in open_ if connection.is_idle()]
            if idle and len(open_) > MOST_CONNECTIONS:
                longest_idle = min(idle, key=lambda connection: connection.since)
                longest_idle.transport.abort()

    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        cycle = self.cycle
        # uvicorn declares the cycle of a request as always there
        return cycle is None or cycle.response_complete  # type: ignore[redundant-expr]

    def resume_writing(self) -> None:
        super().resume_writing()
        self._owing = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._looking is not None:
            self._looking.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's words
        """Answer malformed HTTP, or too long a head, in the same form as other errors."""
        body = error_body("input", _NO_REQUEST, Exit.BAD_INPUT)
        headers = [
            ("content-type", JSON),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        response = h11.Response(
            status_code=HTTPStatus.BAD_REQUEST, headers=headers, reason=b"Bad Request"
        )
        for event in (response, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _look(self) -> None:
        """Hang up when the client has sent, or left unread, the same thing for too long."""
        now = time.monotonic()
        state = (self.conn.their_state, self.cycle)
        if state != self._state:
            self._state = state
            self.since = now
        if self.transport.get_write_buffer_size():
            self._owing = self._owing or now
        else:
            self._owing = None
        limits = {h11.IDLE: HEAD_SECONDS, h11.SEND_BODY: BODY_SECONDS}
        unsent = now - self.since > limits.get(self.conn.their_state, float("inf"))
        if unsent or (self._owing is not None and now - self._owing > WRITE_SECONDS):
            self.transport.abort()
            return
        self._looking = self.loop.call_later(_LOOK, self._look)


def serve(
    host: str,
    port: int,
    project: Path | None = None,
    *,
    certificate: Path | None = None,
    key: Path | None = None,
    begun: Callable[[str], None],
) -> None:
    """Serve until a signal ends it; `begun` gets a line once it listens; may raise `UsageError` before."""
    _check_tls(host, certificate, key)
    settings = configuration.load(project)
    folder = environment.SERVER.make()
    log = Log(str(Path(folder) / "log"))
    replica = joined(settings, log)
    if not (user_tokens() if replica is None else replica.tokens).all():
        raise ConfigError(
            "there is no token yet; create one with: judgekit serve token create NAME"
        )
    loader.configured_rubric("judge", settings.judge.rubric, project)
    models_by_tier, who = panel.resolve_panel(settings, project)
    if not models_by_tier:
        raise ConfigError(f"no model to judge with: {who}")
    check_prices(models_by_tier, settings.judge.max_cost_usd, project, asked=False)
    listener = _listener(host, port)
    scheme = "https" if certificate else "http"
    name = f"[{host}]" if ":" in host else host
    url = f"{scheme}://{name}:{listener.getsockname()[1]}"
    tls = {"ssl_certfile": certificate, "ssl_keyfile": key}
    server = uvicorn.Server(lifecycle.settings(PatientProtocol, DRAIN_SECONDS, **tls))

    async def live() -> None:
        service = Service()
        logging.getLogger().addHandler(log)  # or uvicorn's errors would go to stderr
        server.config.app = create_team_app(service, log, replica or user_tokens(), project)
        await service.prepare()  # it never raises: its failure is the answer to each request
        try:
            async with nullcontext() if replica is None else replica.living():
                begun(f"judging at {url}: {who}")
                await server.serve([listener])
        finally:
            await service.gateway.aclose()

    with listener:
        asyncio.run(live())


def _check_tls(host: str, certificate: Path | None, key: Path | None) -> None:
    """Raise `UsageError` if others could read the traffic, `ConfigError` for a damaged certificate."""
    if bool(certificate) != bool(key):
        raise UsageError("--tls-cert and --tls-key must be given together")
    if certificate is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
        except OSError:  # among them errors of TLS
            raise ConfigError(
                f"{certificate}, {key}: no certificate and its key; expected PEM"
            ) from None
    elif not is_loopback(host):
        remedy = "give --tls-cert and --tls-key, or listen on 127.0.0.1 behind a TLS proxy"
        raise UsageError(
            f"{host}: without TLS others on the network could read tokens and texts; {remedy}"
        )


def _listener(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, place = found[0]
        listener = socket.create_server(place[:2], family=family, backlog=512)
    except OSError as error:
        problem = f"cannot listen on {host}:{port} ({error.strerror or error})"
        raise ConfigError(f"{problem}; choose another --host or --port") from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)  # connections inherit it
    with suppress(ImportError, ValueError):  # Windows; a system that allows fewer
        import resource  # noqa: PLC0415 - not on Windows

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if 0 <= soft < _DESCRIPTORS:
            if hard < 0:
                most = _DESCRIPTORS
            else:
                most = min(hard, _DESCRIPTORS)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return listener
