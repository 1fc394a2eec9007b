"""The application behind both doors: the local socket, and the shared judge of a team."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError

from judgekit.engine import flows, schemas
from judgekit.engine.admission import AdmissionMiddleware
from judgekit.engine.judges import NotReady
from judgekit.errors import JudgekitError

if TYPE_CHECKING:
    from judgekit.engine.judges import Service
    from judgekit.engine.log import Log

JSON = "application/json"
router = APIRouter(prefix="/v1")


def create_app(service: Service, log: Log, *, token: str = "") -> AdmissionMiddleware:
    """Return the application for local clients; with a `token` it answers only to who knows it."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.state.service = service
    app.include_router(router)
    app.include_router(flows.router)
    for kind in (JudgekitError, NotReady, flows.Gone, RequestValidationError):
        app.add_exception_handler(kind, _said)
    app.add_exception_handler(Exception, flows.Faults(log))
    door = AdmissionMiddleware(app, token=token)
    app.state.door = door
    return door


@router.get("/health")
async def health(request: Request) -> Response:
    """Say how the engine is."""
    state = request.app.state
    told = state.service.health(state.door.requests, state.door.inside, leaving=state.door.leaving)
    return Response(json.dumps(told, separators=(",", ":")), media_type=JSON)


@router.post("/stop")
async def stop(request: Request, given: schemas.StopBody | None = None) -> Response:
    """Leave, after finishing what has been begun."""
    request.app.state.service.stop(given.idle_seconds if given else 0)
    return Response(b'{"leaving":true}', 202, media_type=JSON)


@router.post("/judge")
async def judge(request: Request, given: schemas.JudgeBody) -> Response:
    """Return the verdict on one document."""
    service: Service = request.app.state.service

    async def work() -> bytes:
        judge = await service.judges.get(given.folder, given.meant())
        verdict = await service.judged(judge, given.document.document())
        return verdict.model_dump_json(by_alias=True).encode()

    return Response(await flows.done(request, service, given, work), media_type=JSON)


async def _said(_: Request, error: Exception) -> Response:
    return flows.said(error)
