from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from looped import looped

from judgekit.engine import admission
from judgekit.engine.admission import HOLDER, AdmissionMiddleware

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send


class Inside:
    """What stands behind the door: it holds requests until it is told to go on."""

    def __init__(self, *, go: bool = False) -> None:
        self.go = asyncio.Event()
        self.entered = 0
        if go:
            self.go.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.entered += 1
        await self.go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})


async def ask(
    at: AdmissionMiddleware,
    path: str = "/v1/judge",
    size: str | None = "2",
    holder: str | None = None,
    **headers: str,
) -> asyncio.Task[Any]:
    """Send a request's head; the task's result is its status, and headers and error where it is refused."""
    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    if size is not None:
        given.append((b"content-length", size.encode()))
    told: list[Message] = []

    async def receive() -> Message:
        raise AssertionError("a body was read")

    async def send(message: Message) -> None:
        told.append(message)

    async def call() -> Any:  # noqa: ANN401 - a status, or a refusal
        await at({"type": "http", "path": path, "headers": given, HOLDER: holder}, receive, send)
        status, answered = told[0]["status"], dict(told[0]["headers"])
        if status == 200:
            return status
        error = json.loads(told[1]["body"])["error"]
        assert error["message"]
        assert answered[b"connection"] == b"close"
        return status, error["kind"], answered.get(b"retry-after")

    task = asyncio.create_task(call())
    await asyncio.sleep(0)
    return task


@looped
async def test_a_full_queue_sends_away_and_says_for_how_long() -> None:
    inside = Inside()
    at = AdmissionMiddleware(inside, most=2)
    waiting, gone = [await ask(at)], await ask(at)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)  # who hangs up makes room
    waiting.append(await ask(at))
    assert await (await ask(at)) == (503, "busy", b"1")
    assert at.inside == 2
    at.leaving = True
    assert await (await ask(at)) == (503, "leaving", b"0")
    inside.go.set()
    assert [await task for task in waiting] == [200, 200]
    assert (at.inside, at.requests) == (0, 3)
    at.leaving = False
    assert await (await ask(at)) == 200


@looped
async def test_all_bodies_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MOST_BYTES", 100)
    inside = Inside()
    at = AdmissionMiddleware(inside)
    first = await ask(at, size="60")
    assert (await (await ask(at, size="60")))[:2] == (503, "busy")
    inside.go.set()
    await first
    assert await (await ask(at, size="60")) == 200


@pytest.mark.parametrize(
    ("size", "headers", "refused"),
    [
        (str(admission.MOST_BODY + 1), {}, (413, "size")),
        ("-1", {}, (411, "input")),
        ("many", {}, (411, "input")),
        (None, {"transfer_encoding": "chunked"}, (411, "input")),
    ],
)
@looped
async def test_bodies_of_no_or_too_great_a_size_are_not_read(
    size: str | None, headers: dict[str, str], refused: tuple[int, str]
) -> None:
    inside = Inside()
    assert (await (await ask(AdmissionMiddleware(inside), size=size, **headers)))[:2] == refused
    assert inside.entered == 0


@pytest.mark.parametrize("path", ["/v1/judge", *admission.ALWAYS])
@looped
async def test_a_token_is_asked_for_everywhere(path: str) -> None:
    for given in ("Bearer wrong", "right", ""):
        inside = Inside(go=True)
        refused = await (await ask(AdmissionMiddleware(inside, token="right"), path, authorization=given))
        assert (refused[0], inside.entered) == (401, 0)
    at = AdmissionMiddleware(Inside(go=True), token="right", most=0 if path in admission.ALWAYS else 1)
    at.leaving = path in admission.ALWAYS  # how it is can always be asked, and is not counted
    assert await (await ask(at, path, None, authorization="Bearer right")) == 200
    assert at.requests == (path not in admission.ALWAYS)


@looped
async def test_nobody_has_more_than_is_left_for_the_others() -> None:
    inside = Inside()
    at = AdmissionMiddleware(inside, most=12)
    greedy = [await ask(at, holder="ada") for _ in range(12)]
    assert inside.entered == 6
    others = [await ask(at, holder=name) for name in ("bob", "bob", "bob", "bob", "eve")]
    assert inside.entered == 6 + 3 + 1
    inside.go.set()
    answered = [await task for task in [*greedy, *others]]
    assert (answered.count(200), answered.count((503, "busy", b"1"))) == (10, 7)
    assert await (await ask(at, holder="ada")) == 200


@looped
async def test_nobody_has_more_bytes_than_are_left_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MOST_BYTES", 100)
    inside = Inside()
    at = AdmissionMiddleware(inside)
    for holder, size, entered in (("ada", "30", 1), ("ada", "30", 1), ("ada", "20", 2), ("bob", "40", 3)):
        await ask(at, size=size, holder=holder)
        assert inside.entered == entered
    inside.go.set()
