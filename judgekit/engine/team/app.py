"""The shared judge's application: documents in, verdicts out; ledger lines in, and out again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, StreamingResponse
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from judgekit import environment, library
from judgekit.engine import working
from judgekit.engine.asked import Carried
from judgekit.engine.door import HOLDER, Door, error_body
from judgekit.engine.team import book
from judgekit.engine.team.asked import ErrorSaid, JudgeSent, Kept, LinesSent, RubricSaid
from judgekit.engine.team.guard import Guard
from judgekit.engine.team.metrics import CONTENT_TYPE, Metrics
from judgekit.environment import __version__
from judgekit.errors import Exit, JudgekitError, UsageError
from judgekit.ledger import LedgerError
from judgekit.verdict import Verdict

if TYPE_CHECKING:
    from judgekit.engine.log import Log
    from judgekit.engine.service import Service
    from judgekit.engine.team.tokens import Tokens
JSON = "application/json"
LINES = "application/x-ndjson"
OPEN = ("/healthz", "/openapi.json")
_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorSaid, "description": "The body is no JSON"},
    401: {"model": ErrorSaid, "description": "No token, or nobody's"},
    411: {"model": ErrorSaid, "description": "A body without its length"},
    413: {"model": ErrorSaid, "description": "A body that is too large"},
    422: {"model": ErrorSaid, "description": "The request makes no sense here; the message says why"},
    503: {
        "model": ErrorSaid,
        "description": "Too much to do, or leaving; Retry-After says when to come again",
    },
}
_bearer = HTTPBearer(auto_error=False, description="judgekit serve token create NAME")
router = APIRouter(prefix="/v1", dependencies=[Depends(_bearer)], responses=_ERRORS)


def create_team_app(service: Service, log: Log, tokens: Tokens, project: Path | None = None) -> Guard:
    """Return the application of a shared judge, for whoever holds one of the `tokens`."""
    metrics = Metrics()
    app = FastAPI(title="judgekit", version=__version__, docs_url=None, redoc_url=None)
    app.state.service, app.state.metrics, app.state.project = service, metrics, project
    app.include_router(router)
    app.get("/healthz", tags=["operation"])(healthz)
    app.head("/healthz", include_in_schema=False)(healthz)
    guarded = app.get(
        "/metrics",
        tags=["operation"],
        dependencies=[Depends(_bearer)],
        responses=_ERRORS,
        response_class=PlainTextResponse,
    )
    guarded(scraped)
    for kind in (JudgekitError, working.Gone, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, said)
    app.add_exception_handler(Exception, working.Faults(log))
    return Guard(Door(app, always=OPEN), tokens, metrics, OPEN, log)


async def healthz() -> dict[str, str]:
    """Say that the server answers."""
    return {"status": "ok", "version": __version__}


async def scraped(request: Request) -> Response:
    """Return figures for monitoring."""
    return Response(request.app.state.metrics.text(), media_type=CONTENT_TYPE)


@router.get("/rubrics")
async def rubrics(request: Request) -> list[RubricSaid]:
    """Return the rubrics by which this server can judge."""
    project: Path | None = request.app.state.project
    found = await run_in_threadpool(lambda: list(library.rubrics(project)))
    return [
        RubricSaid(
            id=each.rubric.rubric, version=each.rubric.version, sha256=each.sha256, title=each.rubric.title
        )
        for each in found
    ]


@router.post(
    "/judge", response_model=Verdict, responses={409: {"model": ErrorSaid, "description": "Another rubric"}}
)
async def judge(request: Request, given: JudgeSent) -> Response:
    """Return the verdict on one document."""
    state = request.app.state
    service: Service = state.service

    async def work() -> Verdict:
        made = await service.judges.get(state.project, given.wish.wish())
        wanted = given.wish.rubric_sha256
        if wanted is not None and wanted != made.loaded.sha256:
            raise _OtherRubricError(f"{made.loaded.rubric.ref} is another rubric here: {made.loaded.sha256}")
        return await service.judged(book.limited(made, given.wish), given.document.document())

    verdict = await working.done(request, service, _mine(request.scope[HOLDER]), work)
    state.metrics.count(verdict)
    return Response(verdict.model_dump_json(by_alias=True), media_type=JSON)


@router.post("/ledger")
async def keep(request: Request, given: LinesSent) -> Kept:
    """Take lines of a client's ledger into the team's; a line that is there already changes nothing.

    A line that says who acted (a label, an override) says the name of the token that brought it.
    """
    return await run_in_threadpool(book.keep, given.lines, request.scope[HOLDER])


@router.get("/ledger", response_class=StreamingResponse, responses={200: {"content": {LINES: {}}}})
def lines(
    since: Annotated[str, Query(max_length=40, description="14d, 36h, 2w, a date or a time")] = "14d",
    project: Annotated[str, Query(max_length=80, description="The name of a ledger, or all")] = "all",
) -> StreamingResponse:
    """Return the lines of the team's ledger, one JSON object a line."""
    return StreamingResponse(book.lines(since, project), media_type=LINES)


def _mine(holder: str) -> Carried:
    """Return what a local client would bring along: the server's own; holders get turns alike."""
    return Carried(environ=dict(environment.environ()), cwd=str(Path.cwd()), client=holder)


class _OtherRubricError(UsageError):
    """The client means another rubric of the same name."""


async def said(_: Request, error: Exception) -> Response:
    """Return the answer that an error becomes."""
    if isinstance(error, HTTPException):
        body = error_body("input", str(error.detail), Exit.BAD_INPUT)
        return Response(body, error.status_code, media_type=JSON)
    if isinstance(error, _OtherRubricError):
        return Response(error_body("usage", str(error), Exit.USAGE), 409, media_type=JSON)
    if isinstance(error, LedgerError):
        return Response(error_body("ledger", str(error), error.exit_code), 503, media_type=JSON)
    return working.said(error)
