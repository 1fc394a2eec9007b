"""The process of the team's server: it listens, hangs up on slow clients, and ends in order."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from contextlib import nullcontext, suppress
from http import HTTPStatus
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from judgekit import environment
from judgekit.config import settings as configuration
from judgekit.engine import lifecycle
from judgekit.engine.admission import build_error_body, open_user_tokens
from judgekit.engine.app import JSON_MEDIA_TYPE
from judgekit.engine.judges import Service
from judgekit.engine.process import Log
from judgekit.engine.replicas import join_store
from judgekit.engine.team import create_team_app
from judgekit.errors import ConfigError, Exit, UsageError
from judgekit.judging import panel
from judgekit.judging.service import check_prices
from judgekit.judging.shared import is_loopback
from judgekit.rubric import loader

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from judgekit.config.settings import Config
    from judgekit.engine.replicas import Replica


_NO_REQUEST_MESSAGE = "no request of HTTP, or one whose headers are longer than 16 KB"


HEAD_SECONDS = 15.0  # for the head of a request, the wait for it included


BODY_SECONDS = 60.0  # for the rest of it


# For a client to read everything that's waiting for it, or a full buffer (48 KB).
WRITE_SECONDS = 30.0


MAX_CONNECTIONS = 800  # beyond that, the connection that's been idle longest makes room


DRAIN_SECONDS = 60  # for running requests when it's told to stop


_CHECK_SECONDS = 2.5


_SEND_BYTES = 131_072  # of an unread answer that the system keeps, for each connection


_WANTED_DESCRIPTORS = 4096  # for connections, calls to providers and files


class PatientProtocol(H11Protocol):
    """uvicorn's protocol with timeouts. On its own, uvicorn waits forever."""

    _next_check: asyncio.TimerHandle | None = None
    _state: object = None
    state_changed_at = 0.0
    _unread_since: float | None = None  # None while the client has nothing to read

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Watch a new connection. If there are too many, close the one that has been idle longest."""
        super().connection_made(transport)
        self._check_progress()  # the method calls itself regularly from now on
        if len(self.connections) <= MAX_CONNECTIONS:
            return

        # Some of them may be about to close, and don't count.
        open_connections = self._list_open_connections()
        if len(open_connections) > MAX_CONNECTIONS:
            _abort_longest_idle(open_connections)

    def _list_open_connections(self) -> list[PatientProtocol]:
        """List the connections that aren't about to close."""
        open_connections = []
        for connection in self.connections:
            if not isinstance(connection, PatientProtocol):  # uvicorn's annotation allows others
                continue
            if not connection.transport.is_closing():
                open_connections.append(connection)
        return open_connections

    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        cycle = self.cycle
        # uvicorn sets `cycle` to None before the first request, although its annotation doesn't allow that.
        return cycle is None or cycle.response_complete  # type: ignore[redundant-expr]

    def resume_writing(self) -> None:
        """Restart the time limit for reading when the client has read part of its answer."""
        super().resume_writing()
        self._unread_since = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching the connection."""
        if self._next_check is not None:
            self._next_check.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - our message replaces uvicorn's
        """Refuse an invalid or oversized request head. Like every error, the response is JSON."""
        body = build_error_body("input", _NO_REQUEST_MESSAGE, Exit.BAD_INPUT)
        headers = [
            ("content-type", JSON_MEDIA_TYPE),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        response = h11.Response(
            status_code=HTTPStatus.BAD_REQUEST, headers=headers, reason=b"Bad Request"
        )
        for event in (response, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _check_progress(self) -> None:
        """Close the connection if the client sends or reads too slowly, otherwise check again later."""
        now = time.monotonic()
        self._note_progress(now)
        if self._sends_too_slowly(now) or self._reads_too_slowly(now):
            self.transport.abort()
            return
        self._next_check = self.loop.call_later(_CHECK_SECONDS, self._check_progress)

    def _note_progress(self, now: float) -> None:
        """Note when the connection's state last changed, and when the client fell behind in reading."""
        # Each request has a new cycle, so the next one on this connection counts as a change.
        state = (self.conn.their_state, self.cycle)
        if state != self._state:
            self._state = state
            self.state_changed_at = now

        # The transport's buffer holds what the client hasn't read yet.
        has_unread_response = self.transport.get_write_buffer_size() > 0
        if not has_unread_response:
            self._unread_since = None
        elif self._unread_since is None:
            self._unread_since = now

    def _sends_too_slowly(self, now: float) -> bool:
        """Whether the client takes too long to send the head or the body of a request."""
        time_limits = {h11.IDLE: HEAD_SECONDS, h11.SEND_BODY: BODY_SECONDS}
        # In any other state, the client is waiting for its response, which can take any time.
        time_limit = time_limits.get(self.conn.their_state, inf)
        seconds_in_state = now - self.state_changed_at
        return seconds_in_state > time_limit

    def _reads_too_slowly(self, now: float) -> bool:
        """Whether the client has left a part of its response unread for too long."""
        if self._unread_since is None:
            return False
        return now - self._unread_since > WRITE_SECONDS


def _abort_longest_idle(connections: list[PatientProtocol]) -> None:
    """Abort the connection that has been idle longest. Does nothing if none is idle."""
    idle_connections = [connection for connection in connections if connection.is_idle()]
    if idle_connections:
        # An idle connection's last change of state was when it became idle.
        longest_idle = min(idle_connections, key=lambda connection: connection.state_changed_at)
        longest_idle.transport.abort()


def serve(
    host: str,
    port: int,
    project: Path | None = None,
    *,
    certificate: Path | None = None,
    key: Path | None = None,
    on_start: Callable[[str], None],
) -> None:
    """Serve until a signal arrives. Once the server listens, call `on_start` with a message for the user.

    Raises `UsageError` or `ConfigError` if it can't start.
    """
    _check_tls(host, certificate, key)
    settings = configuration.load(project)
    folder = environment.SERVER.make()
    log = Log(str(Path(folder) / "log"))
    replica = join_store(settings, log)
    _require_token(replica)
    models = _check_judge(settings, project)

    listener = _open_listener(host, port)
    url = _build_url(host, listener, encrypted=certificate is not None)
    start_message = f"judging at {url}: {models}"
    tls = {"ssl_certfile": certificate, "ssl_keyfile": key}
    server = uvicorn.Server(lifecycle.build_server_settings(PatientProtocol, DRAIN_SECONDS, **tls))

    async def run_server() -> None:
        """Serve until a signal arrives, then close the connections to models."""
        service = Service()
        logging.getLogger().addHandler(log)  # otherwise uvicorn's errors would go to stderr
        tokens = replica or open_user_tokens()  # a replica reads the tokens from its store
        # `lifecycle.settings` has left the application empty.
        server.config.app = create_team_app(service, log, tokens, project)
        # If the preparation fails, the server starts anyway, and reports the failure to every client.
        await service.prepare()
        try:
            async with _stay_registered(replica):
                on_start(start_message)
                await server.serve([listener])
        finally:
            await service.gateway.aclose()

    with listener:
        asyncio.run(run_server())


def _check_tls(host: str, certificate: Path | None, key: Path | None) -> None:
    """Check that the server's traffic is either encrypted or stays on this machine.

    Raises `UsageError` if it doesn't, or if only one of `certificate` and `key` is given. Raises
    `ConfigError` if they can't be loaded.
    """
    if bool(certificate) != bool(key):
        raise UsageError("--tls-cert and --tls-key must be given together")
    if certificate is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
        except OSError:  # `ssl.SSLError` is a subclass
            raise ConfigError(
                f"{certificate}, {key}: no certificate and its key; expected PEM"
            ) from None
    elif not is_loopback(host):
        problem = "without TLS others on the network could read tokens and texts"
        remedy = "give --tls-cert and --tls-key, or listen on 127.0.0.1 behind a TLS proxy"
        raise UsageError(f"{host}: {problem}; {remedy}")


def _require_token(replica: Replica | None) -> None:
    """Raise `ConfigError` if there's no token yet, because then nobody could use the server."""
    tokens = open_user_tokens() if replica is None else replica.tokens
    if not tokens.all():
        raise ConfigError(
            "there is no token yet; create one with: judgekit serve token create NAME"
        )


def _check_judge(settings: Config, project: Path | None) -> str:
    """Check the configured rubric, models and cost limit, and return a description of the models.

    Raises `ConfigError` or `UsageError` if one of them can't be used.
    """
    loader.load_configured_rubric("judge", settings.judge.rubric, project)
    models_by_tier, description = panel.resolve_panel(settings, project)
    if not models_by_tier:
        raise ConfigError(f"no model to judge with: {description}")
    # A limit that a client sets is checked when its request arrives.
    check_prices(models_by_tier, settings.judge.max_cost_usd, project, set_by_caller=False)
    return description


def _open_listener(host: str, port: int) -> socket.socket:
    """Listen on the first address that `host` resolves to. Raises `ConfigError` if that fails."""
    try:
        listener = _listen_on_first_address(host, port)
    except OSError as error:
        problem = f"cannot listen on {host}:{port} ({error.strerror or error})"
        raise ConfigError(f"{problem}; choose another --host or --port") from None

    # Limit how much of an unread response the system keeps. The rest then waits in asyncio's transport, where
    # `_note_progress` sees that the client is slow. Connections inherit the option from the listener.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
    _increase_descriptor_limit()  # each connection needs a descriptor
    return listener


def _listen_on_first_address(host: str, port: int) -> socket.socket:
    """Listen on the first address that `host` resolves to. Raises `OSError` if that fails."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = addresses[0]
    host_and_port = address[:2]  # an IPv6 address has two more items
    return socket.create_server(host_and_port, family=family, backlog=512)


def _increase_descriptor_limit() -> None:
    """Let this process open `_WANTED_DESCRIPTORS` files and connections, or as many as the system allows."""
    try:
        import resource  # noqa: PLC0415 - doesn't exist on Windows
    except ImportError:
        return

    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_unlimited = soft_limit < 0
    if is_unlimited or soft_limit >= _WANTED_DESCRIPTORS:
        return

    new_limit = _WANTED_DESCRIPTORS
    has_hard_limit = hard_limit >= 0
    if has_hard_limit:
        new_limit = min(hard_limit, _WANTED_DESCRIPTORS)
    with suppress(ValueError):  # the system allows fewer after all
        resource.setrlimit(resource.RLIMIT_NOFILE, (new_limit, hard_limit))


def _build_url(host: str, listener: socket.socket, *, encrypted: bool) -> str:
    """Build the URL at which clients reach the server, such as `https://[::1]:8000`."""
    scheme = "https" if encrypted else "http"
    host_in_url = f"[{host}]" if ":" in host else host  # an IPv6 address has colons
    actual_port = listener.getsockname()[1]  # for port 0, the system has chosen one
    return f"{scheme}://{host_in_url}:{actual_port}"


def _stay_registered(replica: Replica | None) -> AbstractAsyncContextManager[None]:
    """Keep a replica registered in its store during the block. Does nothing if there's no replica."""
    if replica is None:
        return nullcontext()
    return replica.stay_registered()
