"""The application for local clients, who is let in, and the state of an engine between requests."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import httpx
import pytest
from asking import custom, request
from engine_processes import body
from loopback import Loopback
from looped import looped
from making import reply

from judgekit.engine import admission, judges
from judgekit.engine.admission import AdmissionMiddleware
from judgekit.engine.app import CallerBody, DocumentBody, create_app, on_behalf_of
from judgekit.engine.judges import Service, run_in_thread
from judgekit.engine.process import Log
from judgekit.environment import OverrideEnviron
from judgekit.errors import ConfigError
from judgekit.judging import service
from judgekit.judging.documents import Author, Document, TaskDescription, make_file
from judgekit.judging.request import JudgeRequest
from judgekit.providers import litellm, running
from judgekit.providers.gateway import open_gateway
from judgekit.providers.pace import caller
from judgekit.redaction import secret_search

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from loopback import Loopback
    from starlette.types import Receive, Scope, Send

    from judgekit.judging.score import DocumentJudge
    from judgekit.providers.base import Endpoint, Reply, Request

GATE = json.dumps({"environ": {}, "cwd": "/", "base": "HEAD"}).encode()
HEADERS = {"Content-Type": "application/json"}
NEW = {"reference", "shown"}


def test_a_document_goes_over_the_wire_as_it_is_and_an_old_server_is_sent_no_new_key() -> None:
    plain = Document(
        (make_file("a.md", "One."),),
        "T-1",
        TaskDescription("A guide", "Covers it"),
        Author(family="google"),
    )
    files = (replace(plain.files[0], alias="text"), make_file("b.md", "Two."))
    for document, new in (
        (plain, set()),
        (replace(plain, files=files, task=TaskDescription(reference="One")), NEW),
    ):
        sent = json.loads(json.dumps(document.build_body()))
        assert DocumentBody.model_validate(sent).to_document() == document
        assert ({*sent} | {*sent["files"][0]}) & NEW == new


# Who is let in, and how many at once.


class Inside:
    """An application behind the door: it holds requests until a test releases them."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.entered = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.entered += 1
        await self.go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})


def door(
    inside: Inside, max_requests: int = admission.MAX_REQUESTS, token: str = ""
) -> AdmissionMiddleware:
    """Return a door that lets in everybody, by name, or the one with the token."""

    def holder_of(found: str) -> str | None:
        return found if not token else "" if found == token else None

    return AdmissionMiddleware(inside, cast("Log", None), holder_of, max_requests=max_requests)


async def ask(
    at: AdmissionMiddleware,
    path: str = "/v1/judge",
    size: str | None = "2",
    holder: str = "",
    **headers: str,
) -> asyncio.Task[Any]:
    """Send a request's head; the task returns its status and, if it's refused, its headers and error."""
    length = {} if size is None else {"content-length": size}
    sent = httpx.Headers({"authorization": f"Bearer {holder}"} | length | headers, encoding="utf-8")

    async def unread() -> AsyncIterator[bytes]:
        pytest.fail("a body was read")
        yield b""

    async def call() -> Any:  # noqa: ANN401 - a status, or a refusal
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(at), base_url="http://judgekit"
        ) as client:
            answer = await client.post(path, headers=sent, content=unread())
        if answer.status_code == 200:
            return 200
        error = answer.json()["error"]
        assert error["message"]
        assert answer.headers["connection"] == "close"
        return answer.status_code, error["kind"], answer.headers.get("retry-after")

    task = asyncio.create_task(call())
    await asyncio.sleep(0)
    return task


@looped
async def test_a_full_queue_sends_away_and_says_for_how_long() -> None:
    inside = Inside()
    at = door(inside, max_requests=2)
    waiting, gone = [await ask(at)], await ask(at)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)  # who hangs up makes room
    waiting.append(await ask(at))
    assert await (await ask(at)) == (503, "busy", "1")
    assert at.active_requests.total() == 2
    at.is_shutting_down = True
    assert await (await ask(at)) == (503, "leaving", "0")
    inside.go.set()
    assert [await task for task in waiting] == [200, 200]
    assert (at.active_requests.total(), at.request_count) == (0, 3)
    at.is_shutting_down = False
    assert await (await ask(at)) == 200


@looped
async def test_a_token_is_asked_for_everywhere_and_bodies_of_no_or_too_great_a_size_are_not_read(
    tmp_path: Path,
) -> None:
    app = create_app(Service(), Log(str(tmp_path / "log")), token="right")
    for path in ("/v1/judge", *admission.UNCOUNTED_PATHS):
        for given in ("Bearer wrong", "right", "", "Bearer rightly", "Basic right", "Bearer é"):
            assert (await (await ask(app, path, authorization=given)))[:2] == (401, "token")
    inside = Inside()
    at = door(inside, 0, "right")
    large = (str(admission.MAX_BODY_BYTES + 1), (413, "size"))
    for size, refused in (large, ("-1", (411, "input")), ("many", (411, "input"))):
        assert (await (await ask(at, size=size, holder="right")))[:2] == refused
    chunked = await ask(at, size=None, holder="right")
    assert (await chunked)[:2] == (411, "input")
    assert inside.entered == 0
    inside.go.set()
    at.is_shutting_down = True
    for path in admission.UNCOUNTED_PATHS:  # how it is can always be asked, and is not counted
        assert await (await ask(at, path, "0", authorization="bearer right")) == 200
    assert at.request_count == 0


@looped
async def test_nobody_has_more_than_is_left_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = Inside()
    at = door(inside, max_requests=12)
    greedy = [await ask(at, holder="ada") for _ in range(12)]
    assert inside.entered == 6
    others = [await ask(at, holder=name) for name in ("bob", "bob", "bob", "bob", "eve")]
    assert inside.entered == 6 + 3 + 1
    inside.go.set()
    answered = [await task for task in [*greedy, *others]]
    assert (answered.count(200), answered.count((503, "busy", "1"))) == (10, 7)
    assert await (await ask(at, holder="ada")) == 200
    monkeypatch.setattr(admission, "MAX_TOTAL_BODY_BYTES", 100)
    inside = Inside()
    at = door(inside)
    rows = [
        ("ada", 30, 1),
        ("ada", 30, 1),
        ("ada", 20, 2),
        ("bob", 40, 3),
        ("", 11, 3),
        ("", 10, 4),
    ]
    for holder, size, entered in rows:
        await ask(at, size=str(size), holder=holder)
        assert inside.entered == entered, (holder, size)
    inside.go.set()


class Client(httpx.AsyncClient):
    """A client of the application in this process, and its service."""

    service: Service

    async def judge(self, content: bytes, path: str = "/v1/judge") -> tuple[int, dict[str, Any]]:
        """Return the status of an answer, and the error or the verdict in it."""
        answer = await self.post(path, content=content, timeout=60)
        return answer.status_code, answer.json().get("error", answer.json())

    async def waiting(self) -> None:
        while not (await self.get("/v1/health")).json()["waiting"]:  # noqa: ASYNC110 - as a client would
            await asyncio.sleep(0.01)


@asynccontextmanager
async def opened(log: Path, *, ready: bool = True) -> AsyncIterator[Client]:
    service = Service(lambda _: pytest.fail("stopped"))
    if ready:
        service.ready.set()
    transport = httpx.ASGITransport(create_app(service, Log(str(log))), raise_app_exceptions=False)
    async with Client(transport=transport, base_url="http://judgekit", headers=HEADERS) as client:
        client.service = service
        yield client
    await service.gateway.aclose()


def changed(**keys: object) -> bytes:
    return json.dumps(json.loads(body()) | keys).encode()


@looped
async def test_who_cannot_be_served_is_told_at_once(
    tmp_path: Path, model: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever keeps what judging needs from being loaded: those who wait hear of it, and those who come."""
    beginning = asyncio.Event()

    async def loaded() -> None:
        await beginning.wait()
        raise RecursionError("it is broken")

    monkeypatch.setattr(litellm, "load_in_thread", loaded)
    monkeypatch.setattr(secret_search, "load_format_rules", lambda: 1 / 0)  # nor can this be loaded
    async with opened(tmp_path / "log", ready=False) as client:
        preparing = asyncio.create_task(client.service.prepare())
        waits = asyncio.create_task(client.judge(body()))
        await client.waiting()
        beginning.set()
        for status, said in (
            await client.judge(body()),
            await client.judge(GATE, "/v1/gate"),
            await waits,
        ):
            assert (status, said["kind"]) == (503, "not_ready")
            assert said["message"].startswith("not ready: RecursionError")
        health = (await client.get("/v1/health")).json()
        assert (health["ready"], "RecursionError" in health["failure"]) == (False, True)
        await preparing
    assert model.requests == []


WRONG = [
    (b"{}", "input", "environ"),
    (b"not JSON", "input", ""),
    (changed(extra=1), "input", "extra"),
    (changed(environ={"KEY": "sk-secret", "A": 1}), "input", "environ"),
    (changed(document={"files": [], "task_id": "a"}), "input", "document.files"),
    (changed(document={"files": [{}] * 1001, "task_id": "a"}), "size", "document.files"),
    (changed(wish={"deadline": 0}), "input", "wish.deadline"),
]


@looped
async def test_what_makes_no_sense_is_said_in_one_line(tmp_path: Path) -> None:
    async with opened(tmp_path / "log") as client:
        for content, kind, where in WRONG:
            status, error = await client.judge(content)
            assert (status, error["kind"], error["exit_code"]) == (422, kind, 65), content
            assert error["message"].startswith(where), error
            assert "\n" not in error["message"]
            assert "sk-secret" not in error["message"]


@looped
async def test_a_fault_of_its_own_is_said_without_its_words(
    tmp_path: Path, model: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("sk-secret")

    monkeypatch.setattr(Service, "run_judge", broken)
    async with opened(tmp_path / "log") as client:
        status, error = await client.judge(body())
    assert (status, error["kind"], error["exit_code"]) == (500, "internal", 70)
    text = (tmp_path / "log").read_text()
    assert "fault: RuntimeError at test_app.py:" in text
    assert "RuntimeError" in error["message"]
    assert "sk-secret" not in error["message"] + text


# What an engine keeps: judges, turns at a provider, and a gateway that is lent to threads.

MODEL = {"JUDGEKIT_API_BASE": "http://127.0.0.1:9/v1", "JUDGEKIT_MODEL": "stand-in"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".judgekit").mkdir()
    return tmp_path


class Kept(Service):
    async def of(
        self, project: Path | None, variables: Mapping[str, str] = MODEL, **request: object
    ) -> DocumentJudge:
        with OverrideEnviron({**os.environ, **variables}):
            return await self.get_judge(project, JudgeRequest(**cast("dict[str, Any]", request)))


@looped
async def test_the_same_judge_is_made_once_and_another_anew(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    make = service.build_document_judge

    def counted(*given: Any) -> object:  # noqa: ANN401 - handed on as it came
        made.append(given)
        return make(*given)

    monkeypatch.setattr(service, "build_document_judge", counted)
    kept = Kept()
    gone = asyncio.create_task(kept.of(project))
    await asyncio.sleep(0)
    gone.cancel()  # a client that leaves doesn't end another one's judge
    first, *others = await asyncio.gather(*(kept.of(project) for _ in range(20)))
    assert all(other is first for other in others)
    assert len(made) == 1
    assert await kept.of(project, {**MODEL, "PWD": "/elsewhere", "SHLVL": "7"}) is first
    other = await kept.of(project, {**MODEL, "JUDGEKIT_MODEL": "another"})
    ((endpoint, *_), *_) = other.models_by_tier.values()
    assert endpoint.model.endswith("another")
    await kept.of(project, {**MODEL, "JUDGEKIT_API_KEY": "sk-of-somebody"})
    monkeypatch.setattr(
        judges, "MAX_JUDGE_AGE_SECONDS", -1.0
    )  # old ones are let go, with the keys in them
    assert await kept.of(project) is not first
    assert "sk-of-somebody" not in repr(kept.cached_judges)


@looped
async def test_a_change_of_configuration_is_seen_at_once(project: Path, isolated: Path) -> None:
    own, config = isolated / "judgekit/config.yaml", project / ".judgekit/config.yaml"
    own.parent.mkdir()
    kept = Kept()
    assert (await kept.of(project)).settings.mode == "strict"
    config.write_text("judge: {mode: gentle}\n")
    for _ in range(2):  # an error is named each time
        with pytest.raises(ConfigError, match=r"judge\.mode"):
            await kept.of(project)
    config.write_text("judge: {mode: lenient}\n")
    assert (await kept.of(project)).settings.mode == "lenient"
    own.write_text("judge: {deadline: 7}\n")
    assert (await kept.of(project)).settings.timeout == 7


class Counting:
    models_by_tier: dict[str, tuple[object, ...]] = {}

    def __init__(self) -> None:
        self.now = self.max_requests = 0

    async def judge(self, _: object) -> str:
        self.now += 1
        self.max_requests = max(self.max_requests, self.now)
        await asyncio.sleep(0.001)
        self.now -= 1
        return "verdict"


@looped
async def test_one_document_does_not_wait_for_a_thousand_of_another_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two at a time: the last to come is judged after those under way, and at most one turn later."""
    monkeypatch.setattr(service, "max_concurrency", lambda *_: 2)
    own, judge = Service(), Counting()
    finished: list[str] = []

    async def ask(client: str) -> None:
        with on_behalf_of(CallerBody(environ={}, cwd="/", client=client)):
            await own.run_judge(cast("DocumentJudge", judge), cast("Document", None))
        finished.append(client)

    many = [asyncio.create_task(ask("many")) for _ in range(1000)]
    while judge.now < 2:  # noqa: ASYNC110 - until both turns are taken, and all others wait
        await asyncio.sleep(0)
    await ask("one")
    assert finished.index("one") <= 4
    await asyncio.gather(*many)
    assert len(finished) == 1001


class Held:
    """A gateway that answers in the thread it was made for, or not at all."""

    def __init__(self, *, silent: bool = False) -> None:
        self.seen: list[tuple[int, str]] = []
        self.asked = threading.Event()
        self.closed = self.cancelled = False
        self._silent = silent

    async def complete(self, endpoint: Endpoint, _: Request) -> Reply:
        self.seen.append((threading.get_ident(), caller.get()))
        self.asked.set()
        try:
            await asyncio.sleep(60 if self._silent else 0)
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return reply("{}", endpoint.model)

    async def aclose(self) -> None:
        self.closed = True


def flow() -> str:
    """Ask twice, as a flow does: with a gateway of its own, in an event loop of its own."""

    async def run() -> str:
        async with aclosing(open_gateway({})) as gateway:
            await gateway.complete(custom("http://127.0.0.1:1/v1"), request())
            return (await gateway.complete(custom("http://127.0.0.1:1/v1"), request())).model

    return running.run(run())


@looped
async def test_a_flow_uses_the_gateway_of_the_loop_that_lends_it_in_the_turns_of_its_client() -> (
    None
):
    gateway = Held()
    caller.set("4711")
    assert (await run_in_thread(gateway, flow)).endswith("stand-in")
    assert gateway.seen == [(threading.get_ident(), "4711")] * 2
    assert not gateway.closed
    assert not isinstance(open_gateway({}), Held)  # nothing is lent beyond the flow


@looped
async def test_a_flow_nobody_waits_for_ends() -> None:
    gateway, ended = Held(silent=True), threading.Event()

    def work() -> None:
        try:
            flow()
        finally:
            ended.set()

    task = asyncio.create_task(run_in_thread(gateway, work))
    await asyncio.to_thread(gateway.asked.wait, 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(ended.wait, 20)
    assert (gateway.cancelled, len(gateway.seen)) == (True, 1)
