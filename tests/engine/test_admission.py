from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from judgekit.engine import admission
from judgekit.engine.admission import HOLDER, AdmissionMiddleware

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send


class Inside:
    """What stands behind the door: it holds requests until it is told to go on."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.entered = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.entered += 1
        await self.go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})


def ask(
    at: AdmissionMiddleware,
    path: str = "/v1/judge",
    size: str | None = "2",
    holder: str | None = None,
    **headers: str,
) -> asyncio.Task[Any]:
    """Send a request's head and return the task whose result is status, headers and body."""
    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    if size is not None:
        given.append((b"content-length", size.encode()))
    told: list[Message] = []

    async def receive() -> Message:
        raise AssertionError("a body was read")

    async def send(message: Message) -> None:
        told.append(message)

    async def call() -> tuple[int, dict[bytes, bytes], bytes]:
        await at({"type": "http", "path": path, "headers": given, HOLDER: holder}, receive, send)
        return told[0]["status"], dict(told[0]["headers"]), told[1]["body"]

    return asyncio.create_task(call())


async def refused(task: asyncio.Task[Any]) -> tuple[int, str, dict[bytes, bytes]]:
    status, headers, body = await task
    error = json.loads(body)["error"]
    assert error["message"]
    assert headers[b"connection"] == b"close"
    return status, error["kind"], headers


def test_a_full_queue_sends_away_and_says_for_how_long() -> None:
    async def run() -> None:
        inside = Inside()
        at = AdmissionMiddleware(inside, most=2)
        waiting = [ask(at), ask(at)]
        await asyncio.sleep(0)
        status, kind, headers = await refused(ask(at))
        assert (status, kind, headers[b"retry-after"]) == (503, "busy", b"1")
        assert (at.inside, inside.entered) == (2, 2)
        inside.go.set()
        assert [(await task)[0] for task in waiting] == [200, 200]
        assert (await ask(at))[0] == 200
        assert (at.inside, at.requests) == (0, 3)

    asyncio.run(run())


def test_all_bodies_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        monkeypatch.setattr(admission, "MOST_BYTES", 100)
        inside = Inside()
        at = AdmissionMiddleware(inside)
        first = ask(at, size="60")
        await asyncio.sleep(0)
        assert (await refused(ask(at, size="60")))[:2] == (503, "busy")
        inside.go.set()
        await first
        assert (await ask(at, size="60"))[0] == 200

    asyncio.run(run())


def test_who_leaves_takes_nothing_new() -> None:
    async def run() -> None:
        inside = Inside()
        at = AdmissionMiddleware(inside)
        begun = ask(at)
        await asyncio.sleep(0)
        at.leaving = True
        assert (await refused(ask(at)))[:2] == (503, "leaving")
        inside.go.set()
        assert (await begun)[0] == 200

    asyncio.run(run())


@pytest.mark.parametrize("path", admission.ALWAYS)
def test_how_it_is_can_always_be_asked(path: str) -> None:
    async def run() -> None:
        inside = Inside()
        inside.go.set()
        at = AdmissionMiddleware(inside, most=0)
        at.leaving = True
        assert (await ask(at, path, None))[0] == 200
        assert at.requests == 0

    asyncio.run(run())


@pytest.mark.parametrize(
    ("size", "headers", "status"),
    [
        (str(admission.MOST_BODY + 1), {}, 413),
        ("-1", {}, 411),
        ("many", {}, 411),
        (None, {"transfer_encoding": "chunked"}, 411),
    ],
)
def test_bodies_of_no_or_too_great_a_size_are_not_read(
    size: str | None, headers: dict[str, str], status: int
) -> None:
    async def run() -> None:
        inside = Inside()
        assert (await refused(ask(AdmissionMiddleware(inside), size=size, **headers)))[:2] == (
            status,
            "size" if status == 413 else "input",
        )
        assert inside.entered == 0

    asyncio.run(run())


@pytest.mark.parametrize(
    ("given", "status"), [("Bearer right", 200), ("Bearer wrong", 401), ("right", 401), ("", 401)]
)
@pytest.mark.parametrize("path", ["/v1/judge", *admission.ALWAYS])
def test_a_token_is_asked_for_everywhere(path: str, given: str, status: int) -> None:
    async def run() -> None:
        inside = Inside()
        inside.go.set()
        assert (await ask(AdmissionMiddleware(inside, token="right"), path, authorization=given))[0] == status
        assert inside.entered == (status == 200)

    asyncio.run(run())


def test_who_hangs_up_makes_room() -> None:
    async def run() -> None:
        at = AdmissionMiddleware(Inside(), most=1)
        waiting = ask(at)
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert at.inside == 0

    asyncio.run(run())


async def held(at: AdmissionMiddleware, holder: str, size: str = "2") -> asyncio.Task[Any]:
    """Return a request of a holder that has got in, or was refused."""
    task = ask(at, size=size, holder=holder)
    await asyncio.sleep(0)
    return task


def test_nobody_has_more_than_is_left_for_the_others() -> None:
    async def run() -> None:
        inside = Inside()
        at = AdmissionMiddleware(inside, most=12)
        greedy = [await held(at, "ada") for _ in range(12)]
        assert inside.entered == 6
        others = [await held(at, name) for name in ("bob", "bob", "bob", "bob", "eve")]
        assert inside.entered == 6 + 3 + 1
        inside.go.set()
        statuses = [(await task)[0] for task in [*greedy, *others]]
        assert (statuses.count(200), statuses.count(503)) == (10, 7)
        assert (await (await held(at, "ada")))[0] == 200

    asyncio.run(run())


def test_nobody_has_more_bytes_than_are_left_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        monkeypatch.setattr(admission, "MOST_BYTES", 100)
        inside = Inside()
        at = AdmissionMiddleware(inside)
        for holder, size, entered in (("ada", "30", 1), ("ada", "30", 1), ("ada", "20", 2), ("bob", "40", 3)):
            await held(at, holder, size)
            assert inside.entered == entered
        inside.go.set()

    asyncio.run(run())
