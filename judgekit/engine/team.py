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
from contextlib import nullcontext, suppress
from http import HTTPStatus
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import h11
import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from pydantic import Field, StringConstraints
from starlette.exceptions import HTTPException
from uvicorn.protocols.http.h11_impl import H11Protocol

from judgekit import environment
from judgekit.config import ModeName
from judgekit.config import settings as configuration
from judgekit.config.yamlfile import Strict
from judgekit.engine import app as local
from judgekit.engine import lifecycle
from judgekit.engine.admission import HOLDER, AdmissionMiddleware, Tokens, error_body, user_tokens
from judgekit.engine.judges import Service
from judgekit.engine.process import Log
from judgekit.engine.replicas import Replica, joined
from judgekit.environment import __version__
from judgekit.errors import ConfigError, Exit, UsageError
from judgekit.judging import panel
from judgekit.judging.request import JudgeRequest
from judgekit.judging.service import check_prices
from judgekit.judging.shared import is_loopback
from judgekit.judging.verdict import Verdict
from judgekit.ledger import Ledger, LineFilter, store
from judgekit.ledger.database import refusal
from judgekit.ledger.labels import signed
from judgekit.rubric import loader
from judgekit.text import unstorable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from judgekit.judging.score import DocumentJudge

_PART = 32_768  # bytes
_OPEN = ("/healthz", "/openapi.json")
_NO_REQUEST = "no request of HTTP, or one whose headers are longer than 16 KB"
_HINT = "send a token of this server: Authorization: Bearer jk_…"

RubricId = Annotated[
    str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,63}(@\d{1,6}\.\d{1,6}\.\d{1,6})?$")
]


class TeamDocument(local.DocumentBody):
    files: list[local.FileBody] = Field(min_length=1, max_length=100)


class TeamRequest(Strict):
    """What a member of the team may ask for: a rubric of the server, and lower limits than its own."""

    # An id alone: a path would be one of the server's.
    rubric: RubricId | None = None
    mode: ModeName | None = None
    deadline: float | None = Field(default=None, gt=0, le=3600)
    max_cost_usd: float | None = Field(default=None, ge=0)
    cache: bool = True
    rubric_sha256: local.Sha256 | None = None
    model: None = None  # the server chooses


class TeamBody(Strict):
    document: TeamDocument
    wish: TeamRequest = TeamRequest()


class LinesBody(Strict):
    lines: list[dict[str, Any]] = Field(min_length=1, max_length=1000)


class Kept(Strict):
    taken: int
    refused: dict[int, str] = {}


class ErrorBody(Strict):
    """The body of every answer that is an error: `kind`, `message` for a person, and `exit_code`."""

    error: dict[str, str | int]


_ERRORS: dict[int | str, dict[str, Any]] = {
    "default": {"model": ErrorBody, "description": "An error"}
}


class CheckedRoute(APIRoute):
    """Refuses a request with a character that no ledger can hold, wherever in it, before it is looked at."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            problem = unstorable(dict(request.query_params))
            if not problem and await request.body():
                with suppress(ValueError, RecursionError):  # no JSON, which is said by who reads it
                    problem = unstorable(await request.json())
            if problem:
                raise HTTPException(HTTPStatus.BAD_REQUEST, problem)
            return await handle(request)

        return checked


_bearer = Depends(HTTPBearer(auto_error=False, description="judgekit serve token create NAME"))
public = APIRouter(tags=["operation"])
router = APIRouter(
    prefix="/v1", dependencies=[_bearer], responses=_ERRORS, route_class=CheckedRoute
)


def create_team_app(
    service: Service, log: Log, tokens: Tokens | Replica, project: Path | None = None
) -> Metrics:
    app = FastAPI(title="judgekit", version=__version__, docs_url=None, redoc_url=None)
    app.include_router(router)
    app.include_router(public)
    local.say_errors(app, log)
    metrics = Metrics(
        AdmissionMiddleware(app, log, tokens.holder, always=_OPEN, free=_OPEN, hint=_HINT)
    )
    app.state.service = service
    app.state.metrics = metrics
    app.state.project = project
    if isinstance(tokens, Replica):
        app.state.replica = tokens
    else:
        app.state.replica = None
    return metrics


@public.head("/healthz", include_in_schema=False)
@public.get("/healthz", responses=_ERRORS)
async def healthz(request: Request) -> dict[str, str]:
    """Say that the server answers, and its store if it has one."""
    replica = request.app.state.replica
    if replica is not None:
        await replica.look()
    return {"status": "ok", "version": __version__}


@public.get("/metrics", dependencies=[_bearer], responses=_ERRORS, response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Return figures for monitoring."""
    return Response(
        generate_latest(request.app.state.metrics.registry), media_type=CONTENT_TYPE_LATEST
    )


@router.get("/rubrics")
def rubrics(request: Request) -> list[dict[Literal["id", "version", "sha256", "title"], str]]:
    """Return the rubrics by which this server can judge."""
    rows: list[dict[Literal["id", "version", "sha256", "title"], str]] = []
    for loaded in loader.rubrics(request.app.state.project):
        rubric = loaded.rubric
        rows.append(
            {
                "id": rubric.rubric,
                "version": rubric.version,
                "sha256": loaded.sha256,
                "title": rubric.title,
            }
        )
    return rows


_KEY = Header(
    min_length=1, max_length=200, description="Of a retry: that of the request. With a store only."
)


@router.post("/judge", response_model=Verdict)
async def judge(
    request: Request, body: TeamBody, idempotency_key: Annotated[str | None, _KEY] = None
) -> Response:
    """Return the verdict on one document; the client may lower the server's limits, and not raise them."""
    state = request.app.state
    limits = body.wish
    service: Service = state.service
    replica: Replica | None = state.replica

    async def work() -> bytes:
        judge = await service.judge(
            state.project, JudgeRequest(rubric=limits.rubric, mode=limits.mode, cache=limits.cache)
        )
        settings = judge.settings
        if limits.rubric_sha256 not in (None, settings.loaded.sha256):
            there = f"is a different rubric on this server: {settings.loaded.sha256}"
            raise local.OtherRubricError(f"{settings.loaded.rubric.ref} {there}")
        check_prices(settings.models_by_tier, limits.max_cost_usd, asked=True)
        costs = [cost for cost in (settings.max_cost_usd, limits.max_cost_usd) if cost is not None]
        limited = judge.with_settings(
            timeout=min(settings.timeout, limits.deadline or settings.timeout),
            max_cost_usd=min(costs, default=None),
        )
        document = body.document.document()

        async def judged(judge: DocumentJudge) -> Verdict:
            verdict = await service.judged(judge, document)
            state.metrics.count(verdict)
            return verdict

        if replica is not None:
            # As it was sent: another version would write what it read in another way.
            sent = (await request.body()).decode("utf-8", "surrogateescape")
            return await replica.answer(who, idempotency_key, sent, limited, judged)
        return (await judged(limited)).model_dump_json(by_alias=True).encode()

    # A local client's environment and folder are here the server's own; holders take turns.
    environ = dict(environment.environ())
    who = request.scope[HOLDER]
    holder = local.Carried(environ=environ, cwd=str(Path.cwd()), client=who)
    return await local.done(request, holder, work)


@router.post("/ledger")
def keep(request: Request, body: LinesBody) -> Kept:
    """Take lines of a client's ledger, each once; labels and overrides get the name of the token's holder."""
    replica = request.app.state.replica
    holder = request.scope[HOLDER]
    raws = (json.dumps(line).encode() for line in body.lines)
    sent, refused = store.sort_out(raws, store.misplaced if replica is None else refusal)
    records = [signed(record, holder) for record in sent]
    if replica is not None:
        replica.database.add(records, holder)
    else:
        for name in dict.fromkeys(record.project for record in records):
            of_project = [record for record in records if record.project == name]
            Ledger(store.home() / name, name).add(*of_project)
    return Kept(taken=len(records), refused=refused)


@router.get(
    "/ledger", response_class=StreamingResponse, responses={200: {"content": {local.LINES: {}}}}
)
def lines(
    request: Request,
    since: Annotated[
        str, Query(max_length=40, description="14d, 36h, 2w, a date or a time")
    ] = "14d",
    project: Annotated[
        str, Query(max_length=80, description="The name of a ledger, or all")
    ] = "all",
) -> StreamingResponse:
    """Return the lines of the team's ledger, one JSON object a line."""
    wanted = LineFilter(since=store.point(since), project=None if project == "all" else project)
    replica: Replica | None = request.app.state.replica

    def parts() -> Iterator[bytes]:
        buffer = bytearray()
        if replica is not None:
            raws = replica.database.lines(wanted.since, wanted.project)
        else:
            raws = (entry.raw for entry in store.entries([store.home()], wanted))
        for raw in raws:
            buffer += raw + b"\n"
            while len(buffer) >= _PART:
                yield bytes(buffer[:_PART])
                del buffer[:_PART]
        yield bytes(buffer)

    # What fails before anything is sent is an error of its own. Later the connection ends without the last
    # chunk, so that the client knows that lines are missing.
    rest = parts()
    first = next(rest)
    return StreamingResponse(chain([first], rest), media_type=local.LINES)


class Metrics:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        registry = CollectorRegistry()
        self.registry = registry
        self._requests = Counter(
            "judgekit_requests", "Requests answered.", ["route", "status"], registry=registry
        )
        self._inside = Gauge(
            "judgekit_requests_inside", "Requests without a response yet.", registry=registry
        )
        self._verdicts = Counter(
            "judgekit_verdicts", "Verdicts given.", ["verdict", "rubric"], registry=registry
        )
        buckets = (0.1, 0.3, 1, 3, 10, 30, 60, 120, 300)
        name = "judgekit_judging_seconds"
        about = "Seconds for a verdict."
        self._seconds = Histogram(name, about, buckets=buckets, registry=registry)
        self._rounds = Counter(
            "judgekit_rounds", "Rounds of judging.", ["tier", "failure"], registry=registry
        )
        self._cost = Counter(
            "judgekit_cost_usd", "US dollars spent, where the price is known.", registry=registry
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0

        async def noting(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        with self._inside.track_inprogress():
            await self._app(scope, receive, noting)
        # Named by the route: the paths of strangers are no labels.
        self._requests.labels(getattr(scope.get("route"), "path", "other"), str(status)).inc()

    def count(self, verdict: Verdict) -> None:
        self._verdicts.labels(
            verdict.verdict, f"{verdict.rubric.id}@{verdict.rubric.version}"
        ).inc()
        self._seconds.observe(verdict.duration_ms / 1000)
        self._cost.inc(verdict.cost_usd or 0)
        for row in verdict.rounds:
            failure = row.failure.kind.value if row.failure else ""
            self._rounds.labels(row.tier, failure).inc()


HEAD_SECONDS = 15.0  # for the head of a request, the wait for it included
BODY_SECONDS = 60.0  # for the rest of it
# In which a client reads all that waits for it, or as much as a full buffer (48 KB).
WRITE_SECONDS = 30.0
MOST_CONNECTIONS = 800  # above it, the one that has been idle for the longest makes room
DRAIN_SECONDS = 60  # for running requests when it is told to stop
_LOOK = 2.5
_SEND_BYTES = 131_072  # of an unread answer that the system keeps, for each connection
_DESCRIPTORS = 4096  # for connections, calls to providers and files


class PatientProtocol(H11Protocol):
    """uvicorn's, which itself waits for ever."""

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
        """Answer a request that is no HTTP, or whose head is too long, as every other error is answered."""
        body = error_body("input", _NO_REQUEST, Exit.BAD_INPUT)
        headers = [
            ("content-type", local.JSON),
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
    if ":" in host:
        name = f"[{host}]"
    else:
        name = host
    url = f"{scheme}://{name}:{listener.getsockname()[1]}"
    tls = {"ssl_certfile": certificate, "ssl_keyfile": key}
    server = uvicorn.Server(lifecycle.settings(PatientProtocol, DRAIN_SECONDS, **tls))

    async def live() -> None:
        service = Service()
        logging.getLogger().addHandler(log)  # else uvicorn's words of errors would go to stderr
        server.config.app = create_team_app(service, log, replica or user_tokens(), project)
        await service.prepare()  # what fails is said to each request
        try:
            async with nullcontext() if replica is None else replica.living():
                begun(f"judging at {url}: {who}")
                await server.serve([listener])
        finally:
            await service.gateway.aclose()

    with listener:
        asyncio.run(live())


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
