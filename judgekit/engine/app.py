"""The application behind the engine's socket: its operations, and the form of requests and errors.

An operation waits until the engine is ready, and is cancelled if its caller disconnects.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from pydantic import Field, StringConstraints
from starlette.exceptions import HTTPException

from judgekit.config import ModeName
from judgekit.config.yamlfile import Strict, explain_first_error
from judgekit.engine.admission import AdmissionMiddleware, build_error_body
from judgekit.engine.client import PROTOCOL
from judgekit.engine.judges import Service, rss_bytes, run_in_thread
from judgekit.environment import OverrideEnviron, __version__
from judgekit.errors import InputError, JudgekitError, StoreError, UsageError
from judgekit.gate import Run, github, push, tasks
from judgekit.gate.commits import RefUpdate
from judgekit.git import Repository
from judgekit.judging import documents
from judgekit.judging import search as retrieval
from judgekit.judging.request import DEFAULT_REQUEST, JudgeRequest, Raw
from judgekit.providers.pace import caller
from judgekit.retrieval.confidence import Candidate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence

    from judgekit.engine.process import Log
    from judgekit.providers.base import Gateway

JSON_MEDIA_TYPE = "application/json"
JSON_LINES_MEDIA_TYPE = "application/x-ndjson"
ALIVE_SECONDS = 2.0  # between keep-alive events while nothing else happens
_CLIENT_GONE_STATUS = 499  # status for the log when the client has hung up; no client sees it
_NO_BODY = "body, with Content-Type: application/json"
router = APIRouter(prefix="/v1")

# Events of an answer, for a client that reads them as they arrive; None after the last one.
EventQueue: TypeAlias = asyncio.Queue[dict[str, Any] | None]

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
Words = Annotated[str, StringConstraints(max_length=documents.CONTEXT_CHARS)]


class FileBody(Strict):
    path: Name
    text: Annotated[str, StringConstraints(max_length=documents.CONTEXT_CHARS)]
    sha256: Sha256
    total_chars: int = Field(ge=0, alias="total")
    alias: str = Field(default="", alias="shown", max_length=4096)


def _make_files(bodies: list[FileBody]) -> tuple[documents.File, ...]:
    return tuple(documents.File(**body.model_dump()) for body in bodies)


class AuthorBody(Strict):
    name: Annotated[str, StringConstraints(max_length=1000)] | None = None
    family: Annotated[str, StringConstraints(max_length=64)] | None = None


class DocumentBody(Strict):
    files: list[FileBody] = Field(min_length=1, max_length=1000)
    task_id: Name
    description: Words = ""
    acceptance: Words = ""
    reference: Words = ""
    author: AuthorBody = AuthorBody()
    commit: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{7,64}$")] | None = None

    def to_document(self) -> documents.Document:
        task = documents.TaskDescription(self.description, self.acceptance, self.reference)
        author = documents.Author(**self.author.model_dump())
        return documents.Document(_make_files(self.files), self.task_id, task, author, self.commit)


class ComparisonBody(Strict):
    prompt: Words
    files: list[FileBody] = Field(min_length=documents.MIN_TEXTS, max_length=documents.MAX_TEXTS)
    authors: list[Annotated[str, StringConstraints(max_length=64)] | None] = []

    def to_input(self) -> documents.ComparisonInput:
        return documents.ComparisonInput(self.prompt, _make_files(self.files), tuple(self.authors))


class CallerBody(Strict):
    """The base of a local client's requests; `client` identifies the callers that share turns fairly."""

    environ: dict[Raw, Raw]
    cwd: Raw
    project: Raw | None = None
    client: Raw = ""

    @property
    def folder(self) -> Path | None:
        return Path(self.project) if self.project else None


class StopBody(Strict):
    idle_seconds: float = Field(default=0, ge=0)


class RequestBody(CallerBody):
    request: JudgeRequest = Field(default=DEFAULT_REQUEST, alias="wish")

    def judge_request(self) -> JudgeRequest:
        """Return the judge request, with a relative rubric path resolved against the caller's folder."""
        rubric = self.request.rubric
        if rubric is None:
            return self.request
        if not rubric.endswith((".yaml", ".yml")):  # a rubric id
            return self.request
        return self.request.model_copy(update={"rubric": str(Path(self.cwd) / rubric)})


class JudgeBody(RequestBody):
    document: DocumentBody


class CompareBody(RequestBody):
    comparison: ComparisonBody


class SearchBody(CallerBody):
    query: Raw
    roots: list[Raw] | None = None
    mode: ModeName | None = None
    judge: bool = False
    limit: Annotated[int, Field(ge=1, le=100)] = retrieval.RESULTS


class CandidateBody(Strict):
    id: Raw
    title: Raw
    category: Raw
    tags: list[Raw] = []
    root: Raw
    place: Raw
    kind: Raw
    text: Raw = ""  # a document from a user's program


class SelectBody(CallerBody):
    prompt: Raw
    transcript_path: Raw = ""
    candidates: Annotated[list[CandidateBody], Field(min_length=1, max_length=1000)]
    parts: Annotated[
        list[Raw], Field(max_length=1000)
    ] = []  # of the prompt, the best candidate's first


class GateBody(CallerBody):
    updates: list[tuple[Raw, Raw, Raw, Raw]] = []
    remote: Raw = ""
    url: Raw = ""
    base: Raw | None = None
    run: Raw = ""
    mode: Literal["advisory", "blocking"] | None = None


def create_app(service: Service, log: Log, *, token: str = "") -> AdmissionMiddleware:
    """Build the engine's ASGI application. If `token` isn't empty, clients have to send it."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.include_router(router)
    report_errors(app, log)

    def find_holder(sent_token: str) -> str | None:
        """Return the name of the token's holder, or None if the token is wrong."""
        if secrets.compare_digest(sent_token.encode(), token.encode()):
            return ""  # the engine has a single user, who needs no name
        return None

    if token:
        admission = AdmissionMiddleware(app, log, find_holder)
    else:
        admission = AdmissionMiddleware(app, log)  # admits everybody
    app.state.service = service
    app.state.admission = admission
    return admission


@router.get("/health")
async def health(request: Request) -> dict[str, object]:
    """Report the engine's version, process, readiness, requests and memory."""
    service = request.app.state.service
    admission = request.app.state.admission
    # `service.ready` is also set after a failure.
    is_ready = service.ready.is_set() and not service.failure
    return {
        "protocol": PROTOCOL,
        "version": __version__,
        "pid": os.getpid(),
        "since": service.started_at.isoformat(timespec="seconds"),
        "ready": is_ready,
        "failure": service.failure or None,
        "leaving": admission.is_shutting_down,
        "requests": admission.request_count,
        "waiting": admission.active_requests.total(),
        "rss_bytes": rss_bytes(),
    }


@router.post("/stop")
async def stop(request: Request, body: StopBody | None = None) -> Response:
    """Stop the engine now, or after it has been idle for the seconds in the body."""
    idle_seconds = body.idle_seconds if body else 0
    request.app.state.service.stop(idle_seconds)
    return Response(b'{"leaving":true}', 202, media_type=JSON_MEDIA_TYPE)


@router.post("/judge")
async def judge(request: Request, body: JudgeBody) -> Response:
    """Judge a document, and answer with its verdict."""
    service: Service = request.app.state.service

    async def work() -> bytes:
        judge = await service.get_judge(body.folder, body.judge_request())
        verdict = await service.run_judge(judge, body.document.to_document())
        return verdict.model_dump_json(by_alias=True).encode()

    return await run_and_answer(request, body, work)


@router.post("/compare")
async def compare(request: Request, body: CompareBody) -> Response:
    """Compare texts, and answer with the result."""
    service: Service = request.app.state.service

    async def work() -> bytes:
        texts = body.comparison.to_input()
        judge = await service.get_comparison_judge(texts, body.folder, body.judge_request())
        result = await service.run_judge(judge, texts)
        return result.model_dump_json(by_alias=True).encode()

    return await run_and_answer(request, body, work)


@router.post("/task")
async def task(request: Request, body: JudgeBody) -> Response:
    """Judge a task, and answer with its verdict and notes for the user.

    If the configuration asks for it, also notifies a person and opens an issue.
    """

    def work() -> bytes:
        folder = body.folder or Path(body.cwd)
        document = body.document.to_document()
        verdict, notes = tasks.judge_task(document, folder, body.judge_request())
        notes += github.notify_and_open_issues([verdict], folder)
        return _encode_json({"verdict": verdict.record(), "notes": notes})

    return await _answer_in_thread(request, body, work)


@router.post("/search")
async def search(request: Request, body: SearchBody) -> Response:
    """Search the documents, and answer with the results."""
    # The other fields describe the caller, not the search.
    arguments = body.model_dump(exclude={"environ", "cwd", "client"})

    def work() -> bytes:
        return retrieval.search(**arguments).model_dump_json().encode()

    return await _answer_in_thread(request, body, work)


@router.post("/select")
async def select(request: Request, body: SelectBody) -> Response:
    """Choose the candidates that fit a prompt, and answer with their indexes, or why none could be chosen."""
    return await _answer_in_thread(request, body, partial(_judge_candidates, body))


def _judge_candidates(body: SelectBody) -> bytes:
    """Let models choose the search results that fit the prompt, and return their indexes as JSON.

    If no model could choose, the JSON has only the field "nobody", with the reason.
    """
    candidates = _make_candidates(body.candidates)
    # `let_models_choose` needs no other field of the prompt hook's event.
    event = {"transcript_path": body.transcript_path}
    project = body.project or body.cwd
    prompt_parts = body.parts
    choice_or_reason = retrieval.let_models_choose(
        body.prompt, candidates, prompt_parts, event, project
    )
    if isinstance(choice_or_reason, str):  # no model could choose
        return _encode_json({"nobody": choice_or_reason})
    return _encode_json(_describe_choice(choice_or_reason, candidates))


def _make_candidates(bodies: list[CandidateBody]) -> list[Candidate]:
    """Build the candidates that a request describes."""
    candidates = []
    for body in bodies:
        fields = body.model_dump(exclude={"text"})
        fields["tags"] = tuple(body.tags)
        # The request doesn't contain the time of the last change, because models aren't shown it.
        candidate = Candidate(**fields, updated=0.0)
        # The constructor takes no text. The body has one if a search program of the user found the document.
        candidate.text = body.text
        candidates.append(candidate)
    return candidates


def _describe_choice(
    choice: retrieval.HookChoice, candidates: Sequence[Candidate]
) -> dict[str, Any]:
    """Describe the choice as JSON fields, with each candidate's index in the client's request."""
    # Look up an index by identity, because two candidates can be equal.
    index_by_id = {id(candidate): index for index, candidate in enumerate(candidates)}
    answer: dict[str, Any] = {
        "kept": [index_by_id[id(candidate)] for candidate in choice.kept],
        "undecided": [index_by_id[id(candidate)] for candidate in choice.undecided],
        "degraded": choice.selection.degraded,
        "only_drops": choice.only_drops,
    }
    if choice.probabilities:
        # Send pairs, because these keys are numbers, and a JSON object's keys must be strings.
        answer["likely"] = list(choice.probabilities.items())
    return answer


@router.post("/gate")
async def gate(request: Request, body: GateBody) -> Response:
    """Judge the changed files in a push, and stream events as lines of JSON.

    A file's "passed" event is sent once its verdict is in the ledger. The last event is "end" or "error".
    """
    service: Service = request.app.state.service
    await service.wait_until_ready()
    return StreamingResponse(_stream_push(service.gateway, body), media_type=JSON_LINES_MEDIA_TYPE)


async def _stream_push(gateway: Gateway, body: GateBody) -> AsyncIterator[bytes]:
    """Judge the push in a thread, and yield each event as a line of JSON."""
    loop = asyncio.get_running_loop()
    event_queue = EventQueue()

    def send_event(name: str, fields: Mapping[str, Any]) -> None:
        """Queue an event. Called in the thread that judges."""
        loop.call_soon_threadsafe(event_queue.put_nowait, {"event": name, **fields})

    work = partial(_judge_push, body, send_event)
    # A task keeps the context in which it was created, so this block can end before the task does.
    with on_behalf_of(body):
        task = asyncio.create_task(run_in_thread(gateway, work))
    # None follows the last event.
    task.add_done_callback(lambda _: event_queue.put_nowait(None))
    try:
        while True:
            event = await _next_event(event_queue)
            if event is None:
                return
            yield _encode_json(event) + b"\n"
    finally:
        task.cancel()  # in case the client has disconnected


def _judge_push(body: GateBody, send_event: Callable[[str, Mapping[str, Any]], None]) -> None:
    """Judge a push. Sends events for each file, and finally an "end" or "error" event."""
    run = Run(
        mode=body.mode,
        on_start=partial(send_event, "begin"),
        # Sent after every verdict, good or bad.
        on_verdict=partial(send_event, "passed"),
        id=body.run,
    )
    updates = [RefUpdate(*update) for update in body.updates]
    try:
        repository = Repository(Path(body.cwd))
        report = push.judge_push(repository, updates, body.remote, body.url, body.base, run)
        send_event("end", report._asdict())
    except Exception as error:  # noqa: BLE001 - any error is reported to the client
        # The event has the same fields as the response that other requests get for this error.
        response = answer_to(error)
        send_event("error", json.loads(bytes(response.body)))


async def _next_event(event_queue: EventQueue) -> dict[str, Any] | None:
    """Return the next event, or None after the last. If none arrives in time, return an "alive" event."""
    try:
        return await asyncio.wait_for(event_queue.get(), ALIVE_SECONDS)
    except TimeoutError:
        # Without any events, the client would assume that the engine hangs.
        return {"event": "alive"}


async def run_and_answer(
    request: Request, body: CallerBody, work: Callable[[], Awaitable[bytes]]
) -> Response:
    """Run `work` once the engine is ready, and respond with the JSON that `work` returns.

    If the client disconnects, `work` is cancelled.
    """

    async def work_once_ready() -> bytes:
        await request.app.state.service.wait_until_ready()
        with on_behalf_of(body):
            return await work()

    async def wait_for_disconnect() -> None:
        # The body is already read, so the next message is normally the disconnect.
        message = await request.receive()
        while message["type"] != "http.disconnect":
            message = await request.receive()

    task = asyncio.create_task(work_once_ready())
    watcher = asyncio.create_task(wait_for_disconnect())
    try:
        # Wait for whichever comes first: the result or the disconnect.
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            return Response(status_code=_CLIENT_GONE_STATUS)
        return Response(task.result(), media_type=JSON_MEDIA_TYPE)
    finally:
        task.cancel()
        watcher.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


async def _answer_in_thread(
    request: Request, body: CallerBody, work: Callable[[], bytes]
) -> Response:
    """Run `work` in a thread with the engine's gateway, and respond with the JSON that `work` returns."""
    gateway = request.app.state.service.gateway
    return await run_and_answer(request, body, lambda: run_in_thread(gateway, work))


@contextmanager
def on_behalf_of(body: CallerBody) -> Iterator[None]:
    """In this block, use the caller's environment variables, and call models in the caller's turns."""
    reset_token = caller.set(body.client)
    try:
        with OverrideEnviron(body.environ):
            yield
    finally:
        caller.reset(reset_token)


def _encode_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


class OtherRubricError(UsageError):
    """The client means a different rubric with the same name."""

    status = 409


_EXPECTED_ERRORS = (JudgekitError, RequestValidationError, HTTPException)


def report_errors(app: FastAPI, log: Log) -> None:
    """Make an application respond to every error with JSON, and log unexpected errors."""

    async def respond(_: Request, error: Exception) -> Response:
        if not isinstance(error, _EXPECTED_ERRORS):
            log.add_error(error)
        return answer_to(error)

    for error_class in (*_EXPECTED_ERRORS, Exception):
        app.add_exception_handler(error_class, respond)


def answer_to(error: Exception) -> Response:
    """Build the HTTP response for an error, with its name, message, and an exit code for the client."""
    headers: dict[str, str] = {}
    if isinstance(error, JudgekitError):
        wire_name = error.wire_name
        status = error.status
        exit_code = error.exit_code
        message = str(error)
        if isinstance(error, StoreError):
            headers["retry-after"] = f"{error.retry_after:.0f}"
    elif isinstance(error, RequestValidationError):
        wire_name, message = _find_body_problem(error)
        status = InputError.status
        exit_code = InputError.exit_code
    elif isinstance(error, HTTPException):
        wire_name = InputError.wire_name
        status = error.status_code
        exit_code = InputError.exit_code
        message = str(error.detail)
        headers.update(error.headers or {})  # such as the allowed methods
    else:
        # Don't send an unexpected error's message, which may quote private texts.
        wire_name = JudgekitError.wire_name
        status = JudgekitError.status
        exit_code = JudgekitError.exit_code
        message = f"internal error ({type(error).__name__}); see the engine's log"

    return Response(
        build_error_body(wire_name, message, int(exit_code)),
        status,
        headers,
        media_type=JSON_MEDIA_TYPE,
    )


def _find_body_problem(error: RequestValidationError) -> tuple[str, str]:
    """Return an invalid request's error name, and a message such as `document.files.0.path: …`."""
    details = error.errors()
    first_problem = explain_first_error(details, _collect_data_by_part(error))
    # A location starts with a part of the request, such as "body". The keys in that part follow.
    keys = first_problem.location[1:]
    dotted_keys = ".".join(str(key) for key in keys) or _NO_BODY

    first_detail = details[0]
    is_too_long = first_detail["type"].endswith("too_long")
    wire_name = "size" if is_too_long else InputError.wire_name
    return wire_name, f"{dotted_keys}: {first_problem.text}"


def _collect_data_by_part(error: RequestValidationError) -> dict[Any, Any]:
    """Return the data of each part of an invalid request, such as body or query.

    An error's location, such as (body, document, files, 0, path), can contain keys and type names.
    `explain_first_error` looks them up in this data to tell which are keys.
    """
    data_by_part: dict[Any, Any] = {}
    for detail in error.errors():
        # `error` contains only the body's data. For other parts, treat everything in the location as a key.
        part, *keys = detail["loc"]
        data_by_part[part] = dict.fromkeys(keys)
    data_by_part["body"] = error.body
    return data_by_part
