"""The team's server: documents in, verdicts out; ledger lines in, and out again; metrics for monitoring.

A token is checked before a request's body is read, and slow clients are hung up on.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import h11
import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from fastapi.security import HTTPBearer
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from pydantic import Field, StringConstraints
from starlette.concurrency import run_in_threadpool
from uvicorn.protocols.http.h11_impl import H11Protocol

from judgekit import environment
from judgekit.config import settings as configuration
from judgekit.config.yamlfile import Strict
from judgekit.engine import lifecycle
from judgekit.engine.admission import HOLDER, AdmissionMiddleware, refuse
from judgekit.engine.app import (
    JSON,
    LINES,
    Carried,
    DocumentBody,
    FileBody,
    OtherRubricError,
    RequestBody,
    Sha256,
    done,
    say_errors,
)
from judgekit.engine.judges import Service
from judgekit.engine.log import Handler, Log
from judgekit.engine.tokens import user_tokens
from judgekit.environment import __version__
from judgekit.errors import ConfigError, JudgekitError, UsageError
from judgekit.judging import panel
from judgekit.judging.service import JudgeRequest, check_prices
from judgekit.judging.shared import is_loopback
from judgekit.judging.verdict import Verdict
from judgekit.ledger import Ledger, LineFilter, store
from judgekit.ledger.labels import signed
from judgekit.rubric import loader

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from starlette.types import ASGIApp, Message, Receive, Scope, Send
    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

    from judgekit.engine.tokens import Tokens
    from judgekit.ledger import Record

_PART = 32_768  # bytes
_FIRST, _LAST = 2000, 2200  # years; the first and last there are cannot be told in another zone
_DAMAGED_SECONDS = 30  # until somebody may have mended the file of tokens
_OPEN = ("/healthz", "/openapi.json")


class TeamDocument(DocumentBody):
    """What is to be judged as one."""

    files: list[FileBody] = Field(min_length=1, max_length=100)


class TeamRequest(RequestBody):
    """How it is to be judged; absent: as the server is set up. `rubric_sha256` says which rubric is meant."""

    # An id alone: a path would be one of the server's.
    rubric: (
        Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,63}(@\d{1,6}\.\d{1,6}\.\d{1,6})?$")]
        | None
    ) = None
    rubric_sha256: Sha256 | None = None


class TeamBody(Strict):
    """`POST /v1/judge`."""

    document: TeamDocument
    wish: TeamRequest = TeamRequest()


class LinesBody(Strict):
    """`POST /v1/ledger`: lines of a client's ledger, each as it stands there."""

    lines: list[dict[str, Any]] = Field(min_length=1, max_length=1000)


class Kept(Strict):
    """How many lines the ledger has taken, and why it has not taken the others, by their place."""

    taken: int
    refused: dict[int, str] = {}


class ErrorDetail(Strict):
    """What went wrong: its kind, one line for a person, the exit code of a command that comes upon it."""

    kind: str
    message: str
    exit_code: int


class ErrorBody(Strict):
    """The body of every answer that is an error."""

    error: ErrorDetail


class RubricBody(Strict):
    """A rubric that the server has."""

    id: str
    version: str
    sha256: str
    title: str


def _errors(**told: str) -> dict[int | str, dict[str, Any]]:
    return {int(status[1:]): {"model": ErrorBody, "description": text} for status, text in told.items()}


_ERRORS = _errors(
    _400="The body is no JSON",
    _401="Missing or unknown token",
    _411="Body without Content-Length",
    _413="Body too large",
    _422="The request cannot be processed; the message says why",
    _503="Too busy, or stopping; retry after Retry-After seconds",
)
_bearer = Depends(HTTPBearer(auto_error=False, description="judgekit serve token create NAME"))
public = APIRouter(tags=["operation"])
router = APIRouter(prefix="/v1", dependencies=[_bearer], responses=_ERRORS)


def create_team_app(service: Service, log: Log, tokens: Tokens, project: Path | None = None) -> Guard:
    """Return the application of a shared judge, for whoever holds one of the `tokens`."""
    metrics = Metrics()
    app = FastAPI(title="judgekit", version=__version__, docs_url=None, redoc_url=None)
    app.state.service, app.state.metrics, app.state.project = service, metrics, project
    app.include_router(router)
    app.include_router(public)
    say_errors(app, log)
    return Guard(AdmissionMiddleware(app, always=_OPEN), tokens, metrics, _OPEN, log)


@public.head("/healthz", include_in_schema=False)
@public.get("/healthz")
async def healthz() -> dict[str, str]:
    """Say that the server answers."""
    return {"status": "ok", "version": __version__}


@public.get("/metrics", dependencies=[_bearer], responses=_ERRORS, response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Return figures for monitoring."""
    text = generate_latest(request.app.state.metrics.registry)
    return Response(text, media_type=CONTENT_TYPE_LATEST)


@router.get("/rubrics")
async def rubrics(request: Request) -> list[RubricBody]:
    """Return the rubrics by which this server can judge."""
    loaded = await run_in_threadpool(lambda: list(loader.rubrics(request.app.state.project)))
    return [
        RubricBody(
            id=each.rubric.rubric, version=each.rubric.version, sha256=each.sha256, title=each.rubric.title
        )
        for each in loaded
    ]


@router.post("/judge", response_model=Verdict, responses=_errors(_409="Another rubric"))
async def judge(request: Request, given: TeamBody) -> Response:
    """Return the verdict on one document; the client may lower the server's limits, and not raise them."""
    state, wish = request.app.state, given.wish
    service: Service = state.service

    async def work() -> Verdict:
        asked = JudgeRequest(wish.rubric, wish.mode, cache=wish.cache)
        judge = await service.judges.get(state.project, asked)
        if wish.rubric_sha256 not in (None, judge.loaded.sha256):
            raise OtherRubricError(
                f"{judge.loaded.rubric.ref} is a different rubric on this server: {judge.loaded.sha256}"
            )
        check_prices(judge.panel, wish.max_cost_usd, asked=True)
        costs = [each for each in (judge.max_cost_usd, wish.max_cost_usd) if each is not None]
        seconds = min(judge.deadline, wish.deadline or judge.deadline)
        limited = replace(judge, deadline=seconds, max_cost_usd=min(costs, default=None))
        return await service.judged(limited, given.document.document())

    # What a local client would bring along is the server's own; holders get turns alike.
    holder = Carried(environ=dict(environment.environ()), cwd=str(Path.cwd()), client=request.scope[HOLDER])
    verdict = await done(request, holder, work)
    state.metrics.count(verdict)
    return Response(verdict.model_dump_json(by_alias=True), media_type=JSON)


@router.post("/ledger")
async def keep(request: Request, given: LinesBody) -> Kept:
    """Take lines of a client's ledger into the team's; a line that is there already changes nothing.

    A line that says who acted (a label, an override) says the name of the token that brought it.
    """
    return await run_in_threadpool(keep_lines, given.lines, request.scope[HOLDER])


@router.get("/ledger", response_class=StreamingResponse, responses={200: {"content": {LINES: {}}}})
def lines(
    since: Annotated[str, Query(max_length=40, description="14d, 36h, 2w, a date or a time")] = "14d",
    project: Annotated[str, Query(max_length=80, description="The name of a ledger, or all")] = "all",
) -> StreamingResponse:
    """Return the lines of the team's ledger, one JSON object a line."""
    return StreamingResponse(kept_lines(since, project), media_type=LINES)


def keep_lines(lines: Sequence[dict[str, Any]], holder: str) -> Kept:
    """Add lines to the ledgers that they name, as acts of `holder` whatever they say.

    Raises `LedgerError` when the disk does not take them.
    """
    refused: dict[int, str] = {}
    by_name: dict[str, list[Record]] = {}
    for place, each in enumerate(lines):
        found = store.parse(json.dumps(each).encode())
        if isinstance(found, str):
            refused[place] = found
        elif not store.is_project_name(found.project):
            refused[place] = "project: expected the name of a ledger"
        elif not _FIRST <= found.timestamp.year <= _LAST:
            refused[place] = "timestamp: not a time of a verdict"
        else:
            by_name.setdefault(found.project, []).append(signed(found, holder))
    for name, records in by_name.items():
        Ledger(store.home() / name, name).add(*records)
    return Kept(taken=sum(map(len, by_name.values())), refused=refused)


def kept_lines(since: str, name: str) -> Iterator[bytes]:
    """Yield the lines of a ledger, or of all, each once, in parts of one size.

    Raises `UsageError` for a time that is none.
    """
    wanted = LineFilter(since=store.point(since), project=None if name == "all" else name)
    places = [store.home()] if store.exists(store.home()) else []
    return _parts(read_line.raw + b"\n" for read_line in store.entries(places, wanted))


def _parts(lines: Iterator[bytes]) -> Iterator[bytes]:
    held = bytearray()
    for line in lines:
        held += line
        while len(held) >= _PART:
            yield bytes(held[:_PART])
            del held[:_PART]
    if held:
        yield bytes(held)


class Metrics:
    """The figures of one server, from its start on."""

    def __init__(self) -> None:
        own = self.registry = CollectorRegistry()
        self.requests = Counter("judgekit_requests", "Requests answered.", ["route", "status"], registry=own)
        self.inside = Gauge("judgekit_requests_inside", "Requests without a response yet.", registry=own)
        self._verdicts = Counter("judgekit_verdicts", "Verdicts given.", ["verdict", "rubric"], registry=own)
        self._seconds = Histogram(
            "judgekit_judging_seconds",
            "Seconds for a verdict.",
            buckets=(0.1, 0.3, 1, 3, 10, 30, 60, 120, 300),
            registry=own,
        )
        self._rounds = Counter("judgekit_rounds", "Rounds of judging.", ["tier", "failure"], registry=own)
        self._cost = Counter("judgekit_cost_usd", "US dollars spent, where the price is known.", registry=own)

    def count(self, verdict: Verdict) -> None:
        """Count a verdict and what led to it."""
        self._verdicts.labels(verdict.verdict, f"{verdict.rubric.id}@{verdict.rubric.version}").inc()
        self._seconds.observe(verdict.duration_ms / 1000)
        self._cost.inc(verdict.cost_usd or 0)
        for each in verdict.rounds:
            self._rounds.labels(each.tier, each.failure.kind.value if each.failure else "").inc()


class Guard:
    """An ASGI application before another one: 401 without a token, but for the paths in `free`."""

    def __init__(
        self, app: ASGIApp, tokens: Tokens, metrics: Metrics, free: Collection[str], log: Log
    ) -> None:
        self._app, self._tokens, self._metrics, self._free, self._log = app, tokens, metrics, free, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or say that its token is nobody's."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with self._metrics.inside.track_inprogress():
            try:
                free = scope["path"] in self._free
                scope[HOLDER] = None if free else self._holder(dict(scope["headers"]))
            except JudgekitError as error:
                self._log.fault(error)
                await refuse(noting, 503, "config", "the server cannot read its token file", _DAMAGED_SECONDS)
            else:
                if free or scope[HOLDER] is not None:
                    await self._app(scope, receive, noting)
                else:
                    told = "send a token of this server: Authorization: Bearer jk_…"
                    await refuse(noting, 401, "token", told, 0)
        # Named by what is there: a stranger's paths are no labels.
        route = getattr(scope.get("route"), "path", "other")
        self._metrics.requests.labels(route, str(status)).inc()

    def _holder(self, headers: dict[bytes, bytes]) -> str | None:
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        return self._tokens.holder(token.decode("latin-1").strip()) if scheme.lower() == b"bearer" else None


HEAD_SECONDS = 15.0  # for the head of a request, the wait for it included
BODY_SECONDS = 60.0  # for the rest of it
WRITE_SECONDS = 30.0  # in which a client reads all that waits for it, or as much as a full buffer (48 KB)
MOST_CONNECTIONS = 800  # above it, the one that has been idle for the longest makes room
_LOOK = 2.5
DRAIN_SECONDS = 60  # for what has been begun when it is told to stop
_SEND_BYTES = 131_072  # that the system keeps of an answer that is not read, for each connection
_DESCRIPTORS = 4096  # for connections, calls to providers and files


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
            open_ = [connection for connection in self.connections if not connection.transport.is_closing()]
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
        raise ConfigError("there is no token yet; create one with: judgekit serve token create NAME")
    settings = configuration.load(project)
    loader.configured_rubric("judge", settings.judge.rubric, project)
    models_by_tier, who = panel.resolve_panel(settings, project)
    if not models_by_tier:
        raise ConfigError(f"no model to judge with: {who}")
    check_prices(models_by_tier, settings.judge.max_cost_usd, project, asked=False)
    _raise_descriptors()
    with _listening(address) as listener:
        server = _Server(address, lambda url: begun(f"{url}: {who}"))
        asyncio.run(server.live(listener, project))


class _Server(uvicorn.Server):
    def __init__(self, address: Address, begun: Callable[[str], None]) -> None:
        self._address, self._begun = address, begun
        tls = {"ssl_certfile": address.certificate, "ssl_keyfile": address.key}
        super().__init__(lifecycle.settings(PatientProtocol, DRAIN_SECONDS, **tls))

    async def live(self, listener: socket.socket, project: Path | None) -> None:
        folder = environment.private_folder(str(Path(environment.state_home()) / "serve"))
        log = Log(str(Path(folder) / "log"))
        logging.getLogger().addHandler(Handler(log))  # else uvicorn's words of errors would go to stderr
        service = Service(lambda _: None)
        self.config.app = create_team_app(service, log, user_tokens(), project)
        await service.prepare()
        if service.failure:
            raise JudgekitError(
                f"the modules for judging cannot be loaded ({service.failure}); reinstall judgekit"
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
        where, why = f"{address.host}:{address.port}", error.strerror or error
        problem = f"cannot listen on {where} ({why}); choose another --host or --port"
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
    certificate, key = address.certificate, address.key
    if bool(certificate) != bool(key):
        raise UsageError("--tls-cert and --tls-key must be given together")
    if certificate is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
        except OSError:  # among them errors of TLS
            raise ConfigError(f"{certificate}, {key}: no certificate and its key; expected PEM") from None
    elif not is_loopback(address.host):
        raise UsageError(
            f"{address.host}: without TLS others on the network could read tokens and texts; give "
            "--tls-cert and --tls-key, or listen on 127.0.0.1 behind a TLS proxy"
        )
