"""Serves the shared judge on TCP, until it is told to stop."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import uvicorn

from judgekit import assess, library, panel, paths
from judgekit import config as configuration
from judgekit.engine import stack
from judgekit.engine.log import Handler, Log
from judgekit.engine.service import Service
from judgekit.engine.team.app import create_team_app
from judgekit.engine.team.protocol import PatientProtocol
from judgekit.engine.team.tokens import user_tokens
from judgekit.errors import ConfigError, JudgekitError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

DRAIN_SECONDS = 60  # for what has been begun when it is told to stop
_SEND_BYTES = 131_072  # that the system keeps of an answer that is not read, for each connection
_DESCRIPTORS = 4096  # for connections, calls to providers and files


class Address(NamedTuple):
    """Where a server listens, and the files of its certificate and key, where it has them."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None

    @property
    def url(self) -> str:
        """The address as a client names it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.certificate else 'http'}://{host}:{self.port}"


def serve(address: Address, project: Path | None, begun: Callable[[str], None]) -> None:
    """Serve until a signal ends it; `begun` is told where it listens and who judges, once it does.

    Raises `UsageError` for an address that would show tokens to a network, `ConfigError` when nobody could
    use the server or it has nothing to judge with, before it listens.
    """
    _refuse_open(address)
    if not user_tokens().all():
        raise ConfigError("nobody has a token; judgekit serve token create NAME makes one")
    settings = configuration.load(project)
    library.configured_rubric("judge", settings.judge.rubric, project)
    juries, who = panel.juries(settings, project)
    if not juries:
        raise ConfigError(f"nobody to judge with: {who}")
    assess.check_prices(juries, settings.judge.max_cost_usd, project, asked=False)
    _raise_descriptors()
    with _listening(address) as listener:
        server = _Server(address, lambda url: begun(f"{url}: {who}"))
        asyncio.run(server.live(listener, project))


class _Server(uvicorn.Server):
    def __init__(self, address: Address, begun: Callable[[str], None]) -> None:
        self._address, self._begun = address, begun
        tls = {"ssl_certfile": address.certificate, "ssl_keyfile": address.key}
        super().__init__(stack.settings(PatientProtocol, DRAIN_SECONDS, **tls))

    async def live(self, listener: socket.socket, project: Path | None) -> None:
        log = Log(str(Path(paths.private_folder(str(Path(paths.state_home()) / "serve"))) / "log"))
        logging.getLogger().addHandler(Handler(log))  # else uvicorn's words of errors would go to stderr
        service = Service(lambda _: None)
        self.config.app = create_team_app(service, log, user_tokens(), project)
        await service.prepare()
        if service.failure:
            raise JudgekitError(
                f"what judging needs cannot be loaded ({service.failure}); reinstall judgekit"
            )
        try:
            await self.serve([listener])
        finally:
            await service.aclose()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            port = next(iter(self.servers)).sockets[0].getsockname()[1]
            self._begun(self._address._replace(port=port).url)


def _listening(address: Address) -> socket.socket:
    """Return the socket to serve; raises `ConfigError` when the address cannot be had."""
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, place = found[0]
        made = socket.create_server(place[:2], family=family, backlog=512)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)  # connections inherit it
    except OSError as error:
        where = f"{address.host}:{address.port}"
        problem = (
            f"{where} cannot be listened on ({error.strerror or error}); choose another --host or --port"
        )
        raise ConfigError(problem) from None
    return made


def _raise_descriptors() -> None:
    """Let this process have as many connections as it serves at once, where the system allows it."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _refuse_open(address: Address) -> None:
    if bool(address.certificate) != bool(address.key):
        raise UsageError("--tls-cert and --tls-key belong together")
    for path in filter(None, (address.certificate, address.key)):
        if not path.is_file():
            raise UsageError(f"{path}: no such file")
    if address.certificate is not None and address.key is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(address.certificate, address.key)
        except (ssl.SSLError, OSError):
            files = f"{address.certificate}, {address.key}"
            raise ConfigError(f"{files}: no certificate and its key; expected PEM") from None
    if address.certificate is None and not _is_loopback(address.host):
        raise UsageError(
            f"{address.host}: without TLS everyone between would read tokens and texts; give --tls-cert and "
            "--tls-key, or listen on 127.0.0.1 behind a proxy that has them"
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
