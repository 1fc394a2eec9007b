"""The routes of the team's server: documents in, verdicts out; ledger lines in, and out again.

A token is checked before a request's body is read.
"""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import suppress
from http import HTTPStatus
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import BaseModel, Field, StringConstraints
from starlette.exceptions import HTTPException

from judgekit import environment
from judgekit.config import ModeName
from judgekit.config.yamlfile import Strict
from judgekit.engine import app as local
from judgekit.engine.admission import HOLDER_KEY, AdmissionMiddleware, Tokens
from judgekit.engine.metrics import METRICS_TYPE, Metrics
from judgekit.engine.replicas import Replica
from judgekit.environment import __version__
from judgekit.judging import verdict as records
from judgekit.judging.request import JudgeRequest
from judgekit.judging.service import check_prices
from judgekit.judging.verdict import Verdict
from judgekit.ledger import Ledger, LineFilter, Record, store
from judgekit.ledger.database import explain_refusal
from judgekit.ledger.labels import sign_record
from judgekit.rubric import loader
from judgekit.text import find_unstorable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator

    from judgekit.engine.judges import Service
    from judgekit.engine.process import Log
    from judgekit.judging.score import DocumentJudge
    from judgekit.rubric.loader import LoadedRubric

_CHUNK_SIZE = 32_768  # bytes
_OPEN_PATHS = ("/healthz", "/openapi.json")
_AUTHORIZATION_HINT = "send a token of this server: Authorization: Bearer jk_…"

RubricId = Annotated[
    str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,63}(@\d{1,6}\.\d{1,6}\.\d{1,6})?$")
]


class TeamDocument(local.DocumentBody):
    files: list[local.FileBody] = Field(min_length=1, max_length=100)


class TeamRequest(Strict):
    """What a member of the team may ask for: a rubric of the server, and lower limits than its own."""

    # Only an id: a path would be one on the server.
    rubric: RubricId | None = None
    mode: ModeName | None = None
    deadline: float | None = Field(default=None, gt=0, le=3600)
    max_cost_usd: float | None = Field(default=None, ge=0)
    cache: bool = True
    rubric_sha256: local.Sha256 | None = None
    model: None = None  # the server chooses
    explain: bool = False


# Fields of a request that `judge` below applies itself.
_LIMIT_FIELDS = {"deadline", "max_cost_usd", "rubric_sha256"}


class TeamBody(Strict):
    document: TeamDocument
    request: TeamRequest = Field(default=TeamRequest(), alias="wish")


class LinesBody(Strict):
    lines: list[dict[str, Any]] = Field(min_length=1, max_length=1000)


class Kept(BaseModel):
    taken: int
    refused: dict[int, str] = {}


class ErrorBody(BaseModel):
    """The body of every answer that is an error: `kind`, `message` for a person, and `exit_code`."""

    error: dict[str, str | int]


_ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    "default": {"model": ErrorBody, "description": "An error"}
}


class CheckedRoute(APIRoute):
    """Refuses a request with a character that no ledger can hold, wherever in it, before it is looked at."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Build a handler that refuses text which can't be stored, such as NUL, with status 400."""
        handle = super().get_route_handler()

        async def check_and_handle(request: Request) -> Response:
            problem = find_unstorable(dict(request.query_params))
            if not problem and await request.body():
                # Ignore malformed JSON here. `handle` refuses it with a better message.
                with suppress(ValueError, RecursionError):
                    problem = find_unstorable(await request.json())
            if problem:
                raise HTTPException(HTTPStatus.BAD_REQUEST, problem)
            return await handle(request)

        return check_and_handle


_bearer = Depends(HTTPBearer(auto_error=False, description="judgekit serve token create NAME"))
public = APIRouter(tags=["operation"])
router = APIRouter(
    prefix="/v1", dependencies=[_bearer], responses=_ERROR_RESPONSES, route_class=CheckedRoute
)


def create_team_app(
    service: Service, log: Log, tokens: Tokens | Replica, project: Path | None = None
) -> Metrics:
    """Build the team server's ASGI application, which admits clients by token and counts requests.

    `tokens` is the `Replica` if the server shares a store with others, because the replica then looks up the
    tokens.
    """
    app = FastAPI(title="judgekit", version=__version__, docs_url=None, redoc_url=None)
    app.include_router(router)
    app.include_router(public)
    local.report_errors(app, log)

    # The open paths, such as the health check, need no token, and are answered even if the server is full.
    app_with_admission = AdmissionMiddleware(
        app,
        log,
        tokens.find_holder,
        uncounted_paths=_OPEN_PATHS,
        open_paths=_OPEN_PATHS,
        hint=_AUTHORIZATION_HINT,
    )
    app_with_metrics = Metrics(app_with_admission)
    app.state.service = service
    app.state.metrics = app_with_metrics
    app.state.project = project
    app.state.replica = tokens if isinstance(tokens, Replica) else None
    return app_with_metrics


@public.head("/healthz", include_in_schema=False)
@public.get("/healthz", responses=_ERROR_RESPONSES)
async def healthz(request: Request) -> dict[str, str]:
    """Report that the server works. If it has a store, first check that the store responds."""
    replica = request.app.state.replica
    if replica is not None:
        await replica.refresh_tokens()  # raises `StoreError` if the store doesn't respond
    return {"status": "ok", "version": __version__}


@public.get(
    "/metrics", dependencies=[_bearer], responses=_ERROR_RESPONSES, response_class=PlainTextResponse
)
async def metrics(request: Request) -> Response:
    """Return figures for monitoring."""
    return Response(request.app.state.metrics.text(), media_type=METRICS_TYPE)


@router.get("/rubrics")
def rubrics(request: Request) -> list[dict[Literal["id", "version", "sha256", "title"], str]]:
    """Return the rubrics by which this server can judge."""
    rows: list[dict[Literal["id", "version", "sha256", "title"], str]] = []
    for loaded in loader.load_rubrics(request.app.state.project):
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


_IDEMPOTENCY_KEY_HEADER = Header(
    min_length=1, max_length=200, description="Of a retry: that of the request. With a store only."
)


_READS_ON_HEADER = Header(
    alias=records.READS_ON_HEADER,
    description=f"{records.READS_ON}: the client ignores fields of a verdict that it doesn't know.",
)


@router.post("/judge", response_model=Verdict)
async def judge(
    request: Request,
    body: TeamBody,
    idempotency_key: Annotated[str | None, _IDEMPOTENCY_KEY_HEADER] = None,
    unknown_fields: Annotated[str | None, _READS_ON_HEADER] = None,
) -> Response:
    """Return the verdict on one document. The client can lower the server's limits, but not raise them."""

    async def judge_document() -> bytes:
        verdict = await _judge_document(request, body, idempotency_key)
        ignores_unknown_fields = unknown_fields == records.READS_ON
        if ignores_unknown_fields:
            return verdict
        # An older client refuses a verdict with fields that it doesn't know.
        return _drop_later_fields(verdict)

    # Judge in the server's environment and folder. The holders of tokens take turns.
    environ = dict(environment.environ())
    holder = request.scope[HOLDER_KEY]
    server_body = local.CallerBody(environ=environ, cwd=str(Path.cwd()), client=holder)
    return await local.run_and_answer(request, server_body, judge_document)


async def _judge_document(request: Request, body: TeamBody, idempotency_key: str | None) -> bytes:
    """Judge the document, or reuse the verdict stored for this request. Returns JSON."""
    state = request.app.state
    service: Service = state.service
    replica: Replica | None = state.replica
    limited_judge = await _get_limited_judge(service, state.project, body.request)
    document = body.document.to_document()

    async def judge_and_count(judge: DocumentJudge) -> Verdict:
        verdict = await service.run_judge(judge, document)
        state.metrics.count(verdict)
        return verdict

    if replica is None:
        verdict = await judge_and_count(limited_judge)
        return verdict.model_dump_json(by_alias=True).encode()

    # Another version of the server could serialise `body` differently, so replicas identify a request by its
    # original text.
    raw_body = await request.body()
    text = raw_body.decode("utf-8", "surrogateescape")
    holder = request.scope[HOLDER_KEY]
    # The replica calls `judge_and_count` with a judge that also adds up the cost.
    return await replica.answer(
        holder, idempotency_key, text, judge=limited_judge, run_judge=judge_and_count
    )


async def _get_limited_judge(
    service: Service, project: Path | None, client_request: TeamRequest
) -> DocumentJudge:
    """Return the server's judge for a client's request, with the limits that the client lowered."""
    # Leave the limits out, so that requests with other limits can use the same judge.
    fields_without_limits = client_request.model_dump(exclude=_LIMIT_FIELDS)
    server_judge = await service.get_judge(project, JudgeRequest(**fields_without_limits))
    return _limit_judge(server_judge, client_request)


def _limit_judge(judge: DocumentJudge, limits: TeamRequest) -> DocumentJudge:
    """Return a copy of the judge with the lower of the server's and the client's limits.

    Raises `OtherRubricError` if the client's rubric differs from the server's, and `UsageError` if a cost
    limit can't be enforced because a price is unknown.
    """
    settings = judge.settings
    _check_rubric(settings.loaded_rubric, limits.rubric_sha256)
    check_prices(settings.models_by_tier, limits.max_cost_usd, set_by_caller=True)

    # Both are durations in seconds.
    timeout = settings.timeout
    if limits.deadline is not None:
        timeout = min(timeout, limits.deadline)
    costs = [cost for cost in (settings.max_cost_usd, limits.max_cost_usd) if cost is not None]
    max_cost_usd = min(costs) if costs else None
    return judge.with_settings(timeout=timeout, max_cost_usd=max_cost_usd)


def _check_rubric(server_rubric: LoadedRubric, client_sha256: str | None) -> None:
    """Raise `OtherRubricError` if the client means another version of the rubric. None means any."""
    if client_sha256 is None or client_sha256 == server_rubric.sha256:
        return
    problem = f"is a different rubric on this server: {server_rubric.sha256}"
    raise local.OtherRubricError(f"{server_rubric.rubric.ref} {problem}")


def _drop_later_fields(verdict: bytes) -> bytes:
    """Remove fields from a JSON verdict that an older client wouldn't accept."""
    record = json.loads(verdict)
    records.drop_later_fields(record)
    return json.dumps(record, ensure_ascii=False).encode()


@router.post("/ledger")
def keep(request: Request, body: LinesBody) -> Kept:
    """Keep the lines that a client sends from its ledger. A line that's sent again is kept only once.

    Labels and overrides get the name of the token's holder.
    """
    replica = request.app.state.replica
    holder = request.scope[HOLDER_KEY]
    # Both functions explain why a record can't be stored. A database accepts less than a ledger file. For
    # example, it can't store long ids.
    find_problem = store.explain_misplaced if replica is None else explain_refusal

    raw_lines = [json.dumps(line).encode() for line in body.lines]
    accepted_records, reasons = store.parse_accepted(raw_lines, find_problem)
    signed_records = [sign_record(record, holder) for record in accepted_records]
    if replica is None:
        _add_to_ledgers(signed_records)
    else:
        replica.database.add(signed_records, holder)
    return Kept(taken=len(signed_records), refused=reasons)


def _add_to_ledgers(records: Iterable[Record]) -> None:
    """Add records to their projects' ledgers on this machine."""
    records_by_project = defaultdict(list)
    for record in records:
        records_by_project[record.project].append(record)
    for project, records_of_project in records_by_project.items():
        Ledger(store.get_ledgers_folder() / project, project).add(*records_of_project)


@router.get(
    "/ledger",
    response_class=StreamingResponse,
    responses={200: {"content": {local.JSON_LINES_MEDIA_TYPE: {}}}},
)
def lines(
    request: Request,
    since: Annotated[
        str, Query(max_length=40, description="14d, 36h, 2w, a date or a time")
    ] = "14d",
    project: Annotated[
        str, Query(max_length=80, description="The name of a ledger, or all")
    ] = "all",
    kind: Annotated[
        str, Query(max_length=40, description="verdict, label, override, …, or all")
    ] = "all",
) -> StreamingResponse:
    """Return the lines of the team's ledger, one JSON object a line."""
    project_name = None if project == "all" else project
    line_filter = LineFilter(since=store.parse_time(since), project=project_name)
    raw_lines = _read_raw_lines(request.app.state.replica, line_filter)
    chunks = _join_lines(_filter_kind(raw_lines, kind))

    # Most failures happen at the first chunk. Read it before the response begins, while the status can still
    # become an error. If a later chunk fails, the response is cut off, which the client notices.
    first_chunk = next(chunks)  # there's always one, but it can be empty
    return StreamingResponse(chain([first_chunk], chunks), media_type=local.JSON_LINES_MEDIA_TYPE)


def _read_raw_lines(replica: Replica | None, line_filter: LineFilter) -> Iterator[bytes]:
    """Read lines from the replicas' store, or from the ledgers on this machine if there's no store."""
    if replica is not None:
        return replica.database.read_lines(line_filter.since, line_filter.project)
    return (entry.raw for entry in store.read_entries([store.get_ledgers_folder()], line_filter))


def _filter_kind(raw_lines: Iterator[bytes], kind: str) -> Iterator[bytes]:
    """Select the lines of one kind, such as "verdict". "all" selects all lines."""
    if kind == "all":
        return raw_lines
    # A verdict's line contains its schema, "judgekit/verdict@1". Searching for the start of the schema is
    # faster than parsing every line.
    schema_start = f'"judgekit/{kind}@'.encode()
    return (raw for raw in raw_lines if schema_start in raw)


def _join_lines(raw_lines: Iterable[bytes]) -> Iterator[bytes]:
    """Join lines into chunks of `_CHUNK_SIZE` bytes. The last chunk can be shorter or empty."""
    buffer = bytearray()
    for raw in raw_lines:
        buffer += raw + b"\n"
        while len(buffer) >= _CHUNK_SIZE:
            yield bytes(buffer[:_CHUNK_SIZE])
            del buffer[:_CHUNK_SIZE]
    yield bytes(buffer)
