"""The engine's operations beside single documents: searches, the prompt hook's choice, tasks, the gate.

An operation waits until the engine is ready, and ends when its caller goes.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from pydantic import AfterValidator, Field

from judgekit.config.names import ModeName  # noqa: TC001 - pydantic reads it
from judgekit.config.yamlfile import Strict, problem
from judgekit.engine import schemas, thread_gateway
from judgekit.engine.admission import error_body
from judgekit.engine.judges import NotReady
from judgekit.engine.schemas import Carried, Raw
from judgekit.environment import Brought
from judgekit.errors import ConfigError, Exit, InputError, JudgekitError, UsageError
from judgekit.gate import github, push, tasks
from judgekit.gate.commits import UnknownCommit
from judgekit.gate.remotes import RefUpdate
from judgekit.git import Repository
from judgekit.judging import search as recall
from judgekit.providers.pace import caller
from judgekit.retrieval.compiled import KINDS
from judgekit.retrieval.confidence import Candidate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from fastapi import Request

    from judgekit.engine.judges import Service
    from judgekit.engine.log import Log
    from judgekit.gate.report import Begin, Report


Value = TypeVar("Value")
_NO_BODY = "body, with Content-Type: application/json"
NOBODY_WAITS = 499  # what servers note down when the client has hung up; nobody sees it
_KINDS = ((ConfigError, "config", 422), (UsageError, "usage", 422), (InputError, "input", 422))


class Gone(Exception):  # noqa: N818 - no error: the caller has hung up
    """Nobody waits for the answer any more."""


async def done(
    request: Request, service: Service, asked: Carried, work: Callable[[], Awaitable[Value]]
) -> Value:
    """Return what `work` returns, done with the caller's environment once the engine is ready.

    Raises `Gone` when the caller hangs up first; the work is cancelled then.
    """
    working = asyncio.create_task(_with_environment(service, asked, work))
    watching = asyncio.create_task(_hung_up(request))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise Gone
    finally:
        for task in (working, watching):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(working, watching, return_exceptions=True)


async def _with_environment(service: Service, asked: Carried, work: Callable[[], Awaitable[Value]]) -> Value:
    await service.usable()
    with on_behalf_of(asked):
        return await work()


@contextmanager
def on_behalf_of(asked: Carried) -> Iterator[None]:
    """Work with a caller's environment, and in its turns."""
    before = caller.set(asked.client)
    try:
        with Brought(asked.environ):
            yield
    finally:
        caller.reset(before)


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class Faults:
    """Answers for our own faults, and notes down where they are."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def __call__(self, _: Request, error: Exception) -> Response:
        """Note a fault down and answer for it."""
        self._log.fault(error)
        return said(error)


def said(error: Exception) -> Response:
    """Return the answer that an error becomes: its kind, its one line, and the exit code of a command."""
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        kind = "size" if first["type"] == "too_long" else "input"
        asked = {error["loc"][0]: dict.fromkeys(error["loc"][1:]) for error in error.errors()}
        asked["body"] = error.body
        told = problem(error.errors(), asked)
        where = ".".join(str(part) for part in told.location[1:]) or _NO_BODY
        return _response(422, kind, f"{where}: {told.text}", Exit.BAD_INPUT)
    if isinstance(error, Gone):
        return Response(status_code=NOBODY_WAITS)
    if isinstance(error, NotReady):
        return _response(503, "not_ready", str(error), Exit.INTERNAL)
    if not isinstance(error, JudgekitError):
        message = f"a fault of judgekit itself ({type(error).__name__}); the engine's log says where"
        return _response(500, "internal", message, 70)
    found = [(kind, status) for each, kind, status in _KINDS if isinstance(error, each)]
    kind, status = found[0] if found else ("internal", 500)
    return _response(status, kind, str(error), int(error.exit_code))


def _response(status: int, kind: str, message: str, exit_code: int) -> Response:
    return Response(error_body(kind, message, exit_code), status, media_type="application/json")


JSON = "application/json"
LINES = "application/x-ndjson"
ALIVE_SECONDS = 2.0  # between signs of life while nothing else is to be said
UNKNOWN_COMMIT = "commit"  # the kind of an error that whoever asked can mend
router = APIRouter(prefix="/v1")


class SearchRequest(Carried):
    """`POST /v1/search`; `roots` are absolute."""

    query: Raw
    roots: list[Raw] | None = None
    mode: ModeName | None = None
    judge: bool = False
    limit: Annotated[int, Field(ge=1, le=100)] = recall.RESULTS


def _kind(value: str) -> str:
    if value not in KINDS:
        raise ValueError(f"expected one of {', '.join(KINDS)}")
    return value


class CandidateGiven(Strict):
    """A candidate as the hook found it."""

    id: Raw
    title: Raw
    category: Raw
    tags: list[Raw] = []
    root: Raw
    place: Raw
    kind: Annotated[Raw, AfterValidator(_kind)]

    def candidate(self) -> Candidate:
        """Return it as retrieval knows it; what judging does not look at is left out."""
        return Candidate(
            self.id,
            self.title,
            self.category,
            tags=tuple(self.tags),
            updated=0.0,
            root=self.root,
            place=self.place,
            kind=self.kind,
        )


class SelectRequest(Carried):
    """`POST /v1/select`: `alone` are the places of the candidates that BM25 alone would inject."""

    prompt: Raw
    transcript_path: Raw = ""
    candidates: Annotated[list[CandidateGiven], Field(min_length=1, max_length=1000)]
    alone: list[Annotated[int, Field(ge=0)]] = []


class TaskRequest(schemas.JudgeBody):
    """`POST /v1/task`: the files of one task, judged as one; the verdict goes to the ledger."""


class GateRequest(Carried):
    """`POST /v1/gate`: a push, or the commits since a `base`; `run` is the id of its `push.Run`."""

    updates: list[tuple[Raw, Raw, Raw, Raw]] = []
    remote: Raw = ""
    url: Raw = ""
    base: Raw | None = None
    run: Raw = ""
    mode: Literal["advisory", "blocking"] | None = None

    def check(self, run: push.Run) -> Report:
        """Run the gate."""
        repository = Repository(Path(self.cwd))
        if self.base is not None:
            return push.check_since(repository, self.base, run)
        return push.check_push(
            repository, [RefUpdate(*update) for update in self.updates], self.remote, self.url, run
        )


@router.post("/search")
async def search(request: Request, given: SearchRequest) -> Response:
    """Return what is stored about a query."""
    service: Service = request.app.state.service

    def found() -> bytes:
        return (
            recall.search(
                given.query,
                roots=given.roots,
                project=given.project,
                mode=given.mode,
                judge=given.judge,
                limit=given.limit,
            )
            .model_dump_json()
            .encode()
        )

    return await _value(request, service, given, found)


@router.post("/select")
async def select(request: Request, given: SelectRequest) -> Response:
    """Return which of a prompt's candidates are kept, and which are left undecided, by their places."""
    service: Service = request.app.state.service

    def chosen() -> bytes:
        candidates = [candidate.candidate() for candidate in given.candidates]
        alone = [candidates[place] for place in given.alone if place < len(candidates)]
        payload = {"transcript_path": given.transcript_path}
        judged = recall.judged_hook(given.prompt, candidates, alone, payload, given.project or given.cwd)
        if isinstance(judged, str):
            return _json({"nobody": judged})
        places = {id(candidate): place for place, candidate in enumerate(candidates)}
        kept, undecided = (
            [places[id(candidate)] for candidate in part] for part in (judged.kept, judged.undecided)
        )
        return _json({"kept": kept, "undecided": undecided, "degraded": judged.degraded})

    return await _value(request, service, given, chosen)


@router.post("/task")
async def task(request: Request, given: TaskRequest) -> Response:
    """Return the verdict on a task, and lines for a person; issues are opened where that is configured."""
    service: Service = request.app.state.service

    def judged() -> bytes:
        folder = given.folder or Path(given.cwd)
        verdict, notes = tasks.judge(given.document.document(), folder, given.meant())
        notes = [*notes, *github.by_itself([verdict], github.IssueTarget(folder))]
        return _json({"verdict": verdict.record(), "notes": notes})

    return await _value(request, service, given, judged)


async def _value(request: Request, service: Service, given: Carried, work: Callable[[], bytes]) -> Response:
    async def value() -> bytes:
        return await thread_gateway.in_thread(service.gateway, work)

    return Response(await done(request, service, given, value), media_type=JSON)


@router.post("/gate")
async def gate(request: Request, given: GateRequest) -> Response:
    """Judge changed files and say of each what came of it, a line of JSON each."""
    service: Service = request.app.state.service
    await service.usable()
    return StreamingResponse(_gate(service, given), media_type=LINES)


async def _gate(service: Service, given: GateRequest) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    def tell(event: dict[str, Any] | None) -> None:
        loop.call_soon_threadsafe(events.put_nowait, event)

    def on_start(begin: Begin) -> None:
        tell({"event": "begin", **begin})

    def work() -> None:
        run = push.Run(given.mode, lambda row: tell({"event": "passed", **row}), on_start, id=given.run)
        try:
            tell({"event": "end", **given.check(run)._asdict()})
        except Exception as error:  # noqa: BLE001 - the boundary: whoever asked is told
            tell({"event": "error", **_error(error)})

    async def worked() -> None:
        with on_behalf_of(given):
            await thread_gateway.in_thread(service.gateway, work)

    working_on_it = asyncio.create_task(worked())
    working_on_it.add_done_callback(lambda _: events.put_nowait(None))
    try:
        while (event := await _next(events)) is not None:
            yield _json(event) + b"\n"
    finally:
        working_on_it.cancel()


async def _next(events: asyncio.Queue[dict[str, Any] | None]) -> dict[str, Any] | None:
    try:
        return await asyncio.wait_for(events.get(), ALIVE_SECONDS)
    except TimeoutError:
        return {"event": "alive"}


def _error(error: Exception) -> dict[str, Any]:
    if isinstance(error, UnknownCommit):
        return {"error": {"kind": UNKNOWN_COMMIT, "message": str(error)}}
    told: dict[str, Any] = json.loads(bytes(said(error).body))
    return told


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
