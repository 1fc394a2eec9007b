from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from engine_processes import body
from loopback import SILENT, Loopback
from looped import looped

from judgekit.engine.app import JudgeBody, create_app
from judgekit.engine.judges import Service
from judgekit.engine.log import Log
from judgekit.providers import litellm

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

GATE = json.dumps({"environ": {}, "cwd": "/", "base": "HEAD"}).encode()
HEADERS = {"Content-Type": "application/json"}


class Client(httpx.AsyncClient):
    """A client of the application in this process, and its service."""

    service: Service

    async def judge(self, content: bytes, path: str = "/v1/judge") -> tuple[int, dict[str, Any]]:
        """Return the status of an answer, and the error or the verdict in it."""
        answer = await self.post(path, content=content, timeout=60)
        return answer.status_code, answer.json().get("error", answer.json())

    async def waiting(self) -> None:
        """Return as soon as a request waits."""
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
    await service.aclose()


def changed(**keys: object) -> bytes:
    return json.dumps(json.loads(body()) | keys).encode()


@looped
async def test_requests_wait_until_it_is_ready(tmp_path: Path, model: Loopback) -> None:
    async with opened(tmp_path / "log", ready=False) as client:
        asking = asyncio.create_task(client.judge(body()))
        await client.waiting()
        health = (await client.get("/v1/health")).json()
        assert (health["ready"], health["waiting"], asking.done()) == (False, 1, False)
        client.service.ready.set()
        assert (await asking)[1]["verdict"] == "accept"


@pytest.mark.parametrize("error", [ImportError, MemoryError, SyntaxError, KeyError, RecursionError])
@looped
async def test_who_cannot_be_served_is_told_at_once(
    tmp_path: Path, model: Loopback, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """Whatever keeps what judging needs from being loaded: those who wait hear of it, and those who come."""
    beginning = asyncio.Event()

    async def loaded() -> None:
        await beginning.wait()
        raise error("it is broken")

    monkeypatch.setattr(litellm, "loaded", loaded)
    async with opened(tmp_path / "log", ready=False) as client:
        preparing = asyncio.create_task(client.service.prepare())
        waits = asyncio.create_task(client.judge(body()))
        await client.waiting()
        beginning.set()
        for status, said in (await client.judge(body()), await client.judge(GATE, "/v1/gate"), await waits):
            assert (status, said["kind"]) == (503, "not_ready")
            assert said["message"].startswith(f"not ready: {error.__name__}")
        health = (await client.get("/v1/health")).json()
        assert (health["ready"], error.__name__ in health["failure"]) == (False, True)
        await preparing
    assert model.requests == []


@pytest.mark.parametrize(
    ("content", "kind", "where"),
    [
        (b"{}", "input", "environ"),
        (b"[]", "input", ""),
        (b"not JSON", "input", ""),
        (changed(extra=1), "input", "extra"),
        (changed(environ={"KEY": "sk-secret", "A": 1}), "input", "environ"),
        (changed(environ="sk-secret"), "input", "environ"),
        (changed(cwd=None), "input", "cwd"),
        (changed(document={"files": [], "task_id": "a"}), "input", "document.files"),
        (changed(document={"files": [{}] * 1001, "task_id": "a"}), "size", "document.files"),
        (changed(wish={"deadline": 0}), "input", "wish.deadline"),
        (changed(wish={"deadline": 1e9}), "input", "wish.deadline"),
    ],
)
@looped
async def test_what_makes_no_sense_is_said_in_one_line(
    tmp_path: Path, content: bytes, kind: str, where: str
) -> None:
    async with opened(tmp_path / "log") as client:
        status, error = await client.judge(content)
    assert (status, error["kind"], error["exit_code"]) == (422, kind, 65)
    assert error["message"].startswith(where)
    assert "\n" not in error["message"]
    assert "sk-secret" not in error["message"]


@looped
async def test_a_fault_of_its_own_is_said_without_its_words(
    tmp_path: Path, model: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("sk-secret")

    monkeypatch.setattr(Service, "judged", broken)
    async with opened(tmp_path / "log") as client:
        status, error = await client.judge(body())
    assert (status, error["kind"], error["exit_code"]) == (500, "internal", 70)
    text = (tmp_path / "log").read_text()
    assert "fault: RuntimeError at test_engine_app.py:" in text
    assert "RuntimeError" in error["message"]
    assert "sk-secret" not in error["message"] + text


@looped
async def test_names_that_are_not_utf_8_travel(tmp_path: Path, model: Loopback) -> None:
    given = json.loads(body())
    given["environ"]["ODD"] = given["cwd"] = "/tmp/\udcff"
    async with opened(tmp_path / "log") as client:
        assert (await client.judge(json.dumps(given).encode()))[1]["verdict"] == "accept"


def test_a_rubric_is_looked_for_where_the_caller_works(tmp_path: Path) -> None:
    for rubric, meant in (("my.yaml", str(tmp_path / "my.yaml")), ("kls@1.0.0", "kls@1.0.0")):
        given = JudgeBody.model_validate_json(changed(cwd=str(tmp_path), wish={"rubric": rubric}))
        assert given.judge_request().rubric == meant


@looped
async def test_work_for_a_caller_that_is_gone_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, gone = Service(lambda _: None), asyncio.Event()
    service.ready.set()
    app = create_app(service, Log(str(tmp_path / "log")))
    sent: list[bool] = []

    async def receive() -> dict[str, Any]:
        if not sent:
            sent.append(True)
            return {"type": "http.request", "body": content, "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(_: object) -> None: ...

    scope = {"type": "http", "method": "POST", "path": "/v1/judge", "query_string": b""}
    with Loopback(SILENT) as server:
        monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
        monkeypatch.setenv("JUDGEKIT_MODEL", "stand-in")
        content = body("# Nobody waits\n")
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        asking = asyncio.create_task(app(scope | {"headers": headers}, receive, send))
        while not server.requests:  # noqa: ASYNC110 - filled by a thread
            await asyncio.sleep(0.01)
        assert app.inside == 1
        gone.set()
        await asking
        assert app.inside == 0
        await service.aclose()
