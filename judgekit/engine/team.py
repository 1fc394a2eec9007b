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
from judgekit.engine.admission import HOLDER, AdmissionMiddleware, Tokens
from judgekit.engine.metrics import METRICS_TYPE, Metrics
from judgekit.engine.replicas import Replica
from judgekit.environment import __version__
from judgekit.judging import verdict as records
from judgekit.judging.request import JudgeRequest
from judgekit.judging.service import check_prices
from judgekit.judging.verdict import Verdict
from judgekit.ledger import Ledger, LineFilter, Record, store
from judgekit.ledger.database import refusal
from judgekit.ledger.labels import sign_record
from judgekit.rubric import loader
from judgekit.text import find_unstorable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator

    from judgekit.engine.judges import Service
    from judgekit.engine.process import Log
    from judgekit.judging.score import DocumentJudge

_CHUNK_SIZE = 32_768  # bytes
_OPEN = ("/healthz", "/openapi.json")
_HINT = "send a token of this server: Authorization: Bearer jk_…"

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


_ERRORS: dict[int | str, dict[str, Any]] = {
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
    prefix="/v1", dependencies=[_bearer], responses=_ERRORS, route_class=CheckedRoute
)


def create_team_app(
    service: Service, log: Log, tokens: Tokens | Replica, project: Path | None = None
) -> Metrics:
    """Build the team server's ASGI application, which admits clients by token and counts requests.

    `tokens` is a replica if the server shares a store with others.
    """
    app = FastAPI(title="judgekit", version=__version__, docs_url=None, redoc_url=None)
    app.include_router(router)
    app.include_router(public)
    local.report_errors(app, log)
    metrics = Metrics(
        AdmissionMiddleware(
            app, log, tokens.holder, uncounted_paths=_OPEN, open_paths=_OPEN, hint=_HINT
        )
    )
    app.state.service = service
    app.state.metrics = metrics
    app.state.project = project
    app.state.replica = tokens if isinstance(tokens, Replica) else None
    return metrics


@public.head("/healthz", include_in_schema=False)
@public.get("/healthz", responses=_ERRORS)
async def healthz(request: Request) -> dict[str, str]:
    """Say that the server answers, and its store if it has one."""
    replica = request.app.state.replica
    if replica is not None:
        await replica.refresh_tokens()
    return {"status": "ok", "version": __version__}


@public.get("/metrics", dependencies=[_bearer], responses=_ERRORS, response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Return figures for monitoring."""
    return Response(request.app.state.metrics.text(), media_type=METRICS_TYPE)


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


_READS_ON = Header(
    alias=records.READS_ON_HEADER,
    description=f"{records.READS_ON}: the client ignores fields of a verdict that it doesn't know.",
)


@router.post("/judge", response_model=Verdict)
async def judge(
    request: Request,
    body: TeamBody,
    idempotency_key: Annotated[str | None, _KEY] = None,
    unknown_fields: Annotated[str | None, _READS_ON] = None,
) -> Response:
    """Return the verdict on one document; the client may lower the server's limits, and not raise them."""
    state = request.app.state
    limits = body.request
    service: Service = state.service
    replica: Replica | None = state.replica

    holder = request.scope[HOLDER]

    async def judge_document() -> bytes:
        """Judge the document, or reuse the verdict stored for this request. Returns JSON."""
        judge_request = JudgeRequest(**limits.model_dump(exclude=_LIMIT_FIELDS))
        server_judge = await service.get_judge(state.project, judge_request)
        limited_judge = _limit_judge(server_judge, limits)
        document = body.document.document()

        async def judge_and_count(metered_judge: DocumentJudge) -> Verdict:
            verdict = await service.run_judge(metered_judge, document)
            state.metrics.count(verdict)
            return verdict

        if replica is None:
            verdict = await judge_and_count(limited_judge)
            return verdict.model_dump_json(by_alias=True).encode()

        # Replicas identify a request by its original text, because another version of the server could
        # serialise `body` differently.
        text = (await request.body()).decode("utf-8", "surrogateescape")
        return await replica.answer(
            holder, idempotency_key, text, judge=limited_judge, run_judge=judge_and_count
        )

    async def work() -> bytes:
        verdict = await judge_document()
        may_have_later_fields = unknown_fields == records.READS_ON
        return verdict if may_have_later_fields else _drop_later_fields(verdict)

    # Judge in the server's environment and folder. Clients, told apart by token holder, take turns.
    environ = dict(environment.environ())
    server_body = local.CallerBody(environ=environ, cwd=str(Path.cwd()), client=holder)
    return await local.run_and_answer(request, server_body, work)


def _limit_judge(judge: DocumentJudge, limits: TeamRequest) -> DocumentJudge:
    """Return a copy of the judge with the lower of the server's and the client's limits.

    Raises `OtherRubricError` if the client's rubric differs from the server's, and `UsageError` if a cost
    limit can't be enforced because a price is unknown.
    """
    settings = judge.settings
    if limits.rubric_sha256 not in (None, settings.loaded.sha256):
        problem = f"is a different rubric on this server: {settings.loaded.sha256}"
        raise local.OtherRubricError(f"{settings.loaded.rubric.ref} {problem}")

    check_prices(settings.models_by_tier, limits.max_cost_usd, set_by_caller=True)
    costs = [cost for cost in (settings.max_cost_usd, limits.max_cost_usd) if cost is not None]
    return judge.with_settings(
        timeout=min(settings.timeout, limits.deadline or settings.timeout),
        max_cost_usd=min(costs) if costs else None,
    )


def _drop_later_fields(verdict: bytes) -> bytes:
    """Remove fields from a JSON verdict that an older client wouldn't accept."""
    record = json.loads(verdict)
    records.drop_later_fields(record)
    return json.dumps(record, ensure_ascii=False).encode()


@router.post("/ledger")
def keep(request: Request, body: LinesBody) -> Kept:
    """Take lines of a client's ledger, each once; labels and overrides get the name of the token's holder."""
    replica = request.app.state.replica
    holder = request.scope[HOLDER]
    raw_lines = [json.dumps(line).encode() for line in body.lines]
    find_problem = store.explain_misplaced
    if replica is not None:
        find_problem = refusal  # stricter: for example, a database can't store long ids
    accepted, reasons = store.parse_accepted(raw_lines, find_problem)
    signed_records = [sign_record(record, holder) for record in accepted]
    if replica is not None:
        replica.database.add(signed_records, holder)
    else:
        _add_to_ledgers(signed_records)
    return Kept(taken=len(signed_records), refused=reasons)


def _add_to_ledgers(records: Iterable[Record]) -> None:
    """Add records to their projects' ledgers on this machine."""
    records_by_project = defaultdict(list)
    for record in records:
        records_by_project[record.project].append(record)
    for project, records_of_project in records_by_project.items():
        Ledger(store.home() / project, project).add(*records_of_project)


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
    kind: Annotated[
        str, Query(max_length=40, description="verdict, label, override, …, or all")
    ] = "all",
) -> StreamingResponse:
    """Return the lines of the team's ledger, one JSON object a line."""
    line_filter = LineFilter(
        since=store.parse_time(since), project=None if project == "all" else project
    )
    # Searching for this marker is faster than parsing every line. An empty marker is in all lines.
    kind_marker = b"" if kind == "all" else f'"judgekit/{kind}@'.encode()
    replica: Replica | None = request.app.state.replica
    if replica is not None:
        raw_lines = replica.database.lines(line_filter.since, line_filter.project)
    else:
        raw_lines = (entry.raw for entry in store.read_entries([store.home()], line_filter))
    lines_of_kind = (raw for raw in raw_lines if kind_marker in raw)
    chunks = _join_lines(lines_of_kind)

    # Read the first chunk before responding, so that a failure gets a proper error response. If a later chunk
    # fails, the connection closes without the final chunk of the encoding, so the client notices.
    first_chunk = next(chunks)
    return StreamingResponse(chain([first_chunk], chunks), media_type=local.LINES)


def _join_lines(raw_lines: Iterable[bytes]) -> Iterator[bytes]:
    """Join lines into chunks of `_CHUNK_SIZE` bytes. The last chunk can be shorter or empty."""
    buffer = bytearray()
    for raw in raw_lines:
        buffer += raw + b"\n"
        while len(buffer) >= _CHUNK_SIZE:
            yield bytes(buffer[:_CHUNK_SIZE])
            del buffer[:_CHUNK_SIZE]
    yield bytes(buffer)
