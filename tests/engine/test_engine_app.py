from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from engine_processes import body
from loopback import SILENT, Loopback

from judgekit.engine import app as schemas
from judgekit.engine.app import create_app
from judgekit.engine.judges import Service
from judgekit.engine.log import Log
from judgekit.providers import litellm

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from pathlib import Path

GATE = json.dumps({"environ": {}, "cwd": "/", "base": "HEAD"}).encode()
HEADERS = {"Content-Type": "application/json"}
LIMIT = 60.0


@asynccontextmanager
async def opened(log: Path, *, ready: bool = True) -> AsyncIterator[tuple[httpx.AsyncClient, Service]]:
    """Give a client of the application in this process, and its service."""
    stopped: list[float] = []
    service = Service(stopped.append)
    if ready:
        service.ready.set()
    transport = httpx.ASGITransport(create_app(service, Log(str(log))), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://judgekit", headers=HEADERS) as client:
        yield client, service
    await service.aclose()
    assert stopped == []


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, LIMIT))


def changed(**keys: object) -> bytes:
    return json.dumps(json.loads(body()) | keys).encode()


async def told(client: httpx.AsyncClient, content: bytes) -> tuple[int, dict[str, Any]]:
    answer = await client.post("/v1/judge", content=content, timeout=LIMIT)
    return answer.status_code, dict(answer.json()["error"])


def test_requests_wait_until_it_is_ready(tmp_path: Path, model: Loopback) -> None:
    async def work() -> None:
        async with opened(tmp_path / "log", ready=False) as (client, service):
            asking = asyncio.create_task(client.post("/v1/judge", content=body(), timeout=LIMIT))
            while not (health := (await client.get("/v1/health")).json())["waiting"]:  # noqa: ASYNC110 - as a client would
                await asyncio.sleep(0.01)
            assert (health["ready"], health["waiting"]) == (False, 1)
            assert not asking.done()
            service.ready.set()
            assert (await asking).json()["verdict"] == "accept"

    run(work())


@pytest.mark.parametrize("error", [ImportError, MemoryError, SyntaxError, KeyError, RecursionError])
def test_who_cannot_be_served_is_told_at_once(
    tmp_path: Path, model: Loopback, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """Whatever keeps what judging needs from being loaded: those who wait hear of it, and those who come."""
    beginning = asyncio.Event()

    async def loaded() -> None:
        await beginning.wait()
        raise error("it is broken")

    monkeypatch.setattr(litellm, "loaded", loaded)

    async def work() -> None:
        async with opened(tmp_path / "log", ready=False) as (client, service):
            preparing = asyncio.create_task(service.prepare())
            waits = asyncio.create_task(told(client, body()))
            while not (await client.get("/v1/health")).json()["waiting"]:  # noqa: ASYNC110 - as a client would
                await asyncio.sleep(0.01)
            beginning.set()
            comes = await told(client, body())
            gate = await client.post("/v1/gate", content=GATE)
            for status, said in (await waits, comes, (gate.status_code, gate.json()["error"])):
                assert (status, said["kind"]) == (503, "not_ready")
                assert said["message"].startswith(f"not ready: {error.__name__}")
            health = (await client.get("/v1/health")).json()
            assert (health["ready"], error.__name__ in health["failure"]) == (False, True)
            await preparing
        assert model.requests == []

    run(work())


@pytest.mark.parametrize(
    ("content", "where"),
    [
        (b"{}", "environ"),
        (b"[]", ""),
        (b"not JSON", ""),
        (changed(extra=1), "extra"),
        (changed(environ={"KEY": "sk-secret", "A": 1}), "environ"),
        (changed(environ="sk-secret"), "environ"),
        (changed(cwd=None), "cwd"),
        (changed(document={"files": [], "task_id": "a"}), "document.files"),
        (changed(wish={"deadline": 0}), "wish.deadline"),
        (changed(wish={"deadline": 1e9}), "wish.deadline"),
    ],
)
def test_what_makes_no_sense_is_said_in_one_line(tmp_path: Path, content: bytes, where: str) -> None:
    async def work() -> None:
        async with opened(tmp_path / "log") as (client, _):
            status, error = await told(client, content)
            assert (status, error["kind"], error["exit_code"]) == (422, "input", 65)
            assert error["message"].startswith(where)
            assert "\n" not in error["message"]
            assert "sk-secret" not in error["message"]

    run(work())


def test_a_fault_of_its_own_is_said_without_its_words(
    tmp_path: Path, model: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("sk-secret")

    monkeypatch.setattr(Service, "judged", broken)

    async def work() -> None:
        async with opened(tmp_path / "log") as (client, _):
            status, error = await told(client, body())
            assert (status, error["kind"], error["exit_code"]) == (500, "internal", 70)
            assert "RuntimeError" in error["message"]
            assert "sk-secret" not in error["message"]

    run(work())
    text = (tmp_path / "log").read_text()
    assert "fault: RuntimeError at test_engine_app.py:" in text
    assert "sk-secret" not in text


def test_names_that_are_not_utf_8_travel(tmp_path: Path, model: Loopback) -> None:
    async def work() -> None:
        async with opened(tmp_path / "log") as (client, _):
            given = json.loads(body())
            given["environ"]["ODD"] = given["cwd"] = "/tmp/\udcff"
            answer = await client.post("/v1/judge", content=json.dumps(given).encode(), timeout=LIMIT)
            assert answer.json()["verdict"] == "accept"

    run(work())


def test_a_rubric_is_looked_for_where_the_caller_works(tmp_path: Path) -> None:
    given = schemas.JudgeBody.model_validate_json(changed(cwd=str(tmp_path), wish={"rubric": "my.yaml"}))
    assert given.judge_request().rubric == str(tmp_path / "my.yaml")
    given = schemas.JudgeBody.model_validate_json(changed(cwd=str(tmp_path), wish={"rubric": "kls@1.0.0"}))
    assert given.judge_request().rubric == "kls@1.0.0"


def test_work_for_a_caller_that_is_gone_is_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(server: Loopback) -> None:
        service = Service(lambda _: None)
        service.ready.set()
        app = create_app(service, Log(str(tmp_path / "log")))
        gone, content = asyncio.Event(), body("# Nobody waits\n")
        sent: list[bool] = []

        async def receive() -> dict[str, Any]:
            if not sent:
                sent.append(True)
                return {"type": "http.request", "body": content, "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(_: object) -> None: ...

        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/judge",
            "headers": headers,
            "query_string": b"",
        }
        asking = asyncio.create_task(app(scope, receive, send))
        while not server.requests:  # noqa: ASYNC110 - filled by a thread
            await asyncio.sleep(0.01)
        assert app.inside == 1
        gone.set()
        await asking
        assert app.inside == 0
        await service.aclose()

    with Loopback(SILENT) as server:
        monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
        monkeypatch.setenv("JUDGEKIT_MODEL", "stand-in")
        run(work(server))
