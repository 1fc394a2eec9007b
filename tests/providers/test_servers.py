"""Servers that are not trusted: endless replies, redirects elsewhere, and lists of models that are none."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import time
import zlib
from typing import TYPE_CHECKING

import httpx
import pytest
from asking import KEY, ask, custom, failure, request
from loopback import DRIP, RESET, SILENT, Answer, Asked, Loopback, fails, says, sends

from judgekit.errors import FailureKind
from judgekit.providers import servers
from judgekit.providers.litellm import LitellmGateway

if TYPE_CHECKING:
    from collections.abc import Callable

GZIP, ZLIB = zlib.MAX_WBITS | 16, zlib.MAX_WBITS


def packed(body: bytes, how: int = GZIP) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, how)
    return packer.compress(body) + packer.flush()


def encoded(body: bytes, name: str) -> Answer:
    return sends(body, headers={"Content-Encoding": name})


BOMB = b"[" * 60_000_000
TOO_MUCH = {
    "plain": sends(b"[" * 20_000_000),
    "gzip": encoded(packed(BOMB), "gzip"),
    "deflate": encoded(packed(BOMB, ZLIB), "deflate"),
    "an error": sends(b"[" * 20_000_000, status=500),
    "packed twice": encoded(packed(packed(BOMB)), "gzip, gzip"),
    "an unknown way": encoded(b"abc", "br"),
    "not what it says": encoded(b"abc", "gzip"),
    "no JSON": sends(b"[" * 3_000_000),
    "without end": Answer(options="endless"),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_reply_that_is_too_much_is_no_reply(name: str) -> None:
    with Loopback(TOO_MUCH[name]) as server:
        error = failure(LitellmGateway(), custom(server.base), request(timeout=60))
        assert (error.kind, len(server.requests)) == (FailureKind.INVALID_REPLY, 1)
        if name == "without end":  # the server counts what it could send of a chunked reply
            assert server.gone.wait(20)
            assert server.sent < 3 * servers.MOST  # what fits into sockets was on its way
    assert "the reply" in error.message


def test_a_packed_reply_and_one_just_below_the_limit_are_read() -> None:
    for how, name in ((GZIP, "gzip"), (ZLIB, "deflate"), (GZIP, "x-gzip")):
        with Loopback(encoded(packed(says("fine").body, how), name)) as server:
            assert ask(LitellmGateway(), custom(server.base), request()).text == "fine"
            assert server.requests[0].headers["accept-encoding"] == "gzip"
    text = "a" * (servers.MOST - 1000)
    with Loopback(says(text)) as server:
        assert ask(LitellmGateway(), custom(server.base), request(timeout=60)).text == text


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_to_another_server_is_followed(status: int) -> None:
    def answer(_: Asked) -> Answer:
        names = {"other": f"127.0.0.1:{other.port}", "same": f"127.0.0.1:{server.port}"}
        return Answer(b"", status, {"Location": elsewhere.format(**names)})

    for elsewhere in (
        "http://{other}/v1/chat/completions",
        "//{other}/",
        "https://{same}/v1",
        "http://[::1/",
    ):
        with Loopback(says("mine now")) as other, Loopback(answer) as server:
            error = failure(LitellmGateway(), custom(server.base), request())
            assert (error.kind, other.requests) == (FailureKind.BAD_REQUEST, []), elsewhere
        assert "redirects to another address" in error.message, elsewhere


def test_a_redirect_on_the_same_server_is_followed() -> None:
    def answer(asked: Asked) -> Answer:
        moved = asked.path.endswith("/moved")
        return says("here") if moved else Answer(b"", 307, {"Location": "/v1/moved"})

    with Loopback(answer) as server:
        assert ask(LitellmGateway(), custom(server.base), request()).text == "here"
        assert [asked.headers["authorization"] for asked in server.requests] == [f"Bearer {KEY}"] * 2


def test_an_error_that_holds_a_whole_reply_is_told_in_a_line() -> None:
    deep = b'{"error": {"message": ' + b"[" * 50_000
    long = json.dumps({"choices": [{"message": "A" * 3_000_000}]}).encode()
    for answer in (sends(deep, status=400), sends(long)):
        with Loopback(answer) as server:
            error = failure(LitellmGateway(), custom(server.base), request(timeout=60))
        assert error.kind in (FailureKind.BAD_REQUEST, FailureKind.INVALID_REPLY)
        assert len(error.message) <= 300


def test_other_clients_in_the_process_are_left_alone() -> None:
    """Whoever uses the same libraries beside judgekit gets what servers send."""

    async def read(base: str) -> int:
        async with httpx.AsyncClient() as client:
            return len((await client.post(base, content=b"{}")).content)

    with Loopback(encoded(gzip.compress(b"x" * (servers.MOST + 1)), "gzip")) as server:
        assert asyncio.run(read(server.base)) == servers.MOST + 1


# Lists of models


def listing(*names: str) -> Answer:
    return sends({"object": "list", "data": [{"id": name} for name in names]})


@pytest.mark.parametrize(
    "listed",
    [
        lambda _: sends(b"[" * 20_000_000),
        lambda _: sends(b'{"data":' + b"[" * 900_000),
        lambda _: encoded(packed(BOMB), "gzip"),
        lambda other: Answer(b"", 302, {"Location": f"http://127.0.0.1:{other.port}/v1/models"}),
    ],
    ids=["large", "deep", "packed", "elsewhere"],
)
def test_a_list_of_models_is_not_trusted_either(listed: Callable[[Loopback], Answer]) -> None:
    """It is asked for when a model is gone, and when a local server is looked for."""
    missing = fails(404, "no such model")
    with Loopback(says("")) as other, Loopback(missing, listing=lambda _: listed(other)) as server:
        error = failure(LitellmGateway(), custom(server.base), request(timeout=30))
        assert error.kind is FailureKind.NOT_FOUND
        assert servers.models(server.base, 5) is None
        assert other.listed == []


def test_a_name_that_is_gone_is_answered_with_what_is_offered() -> None:
    with Loopback(fails(404), models=("other", "stand-in-2", "stand-in-3")) as server:
        error = failure(LitellmGateway(), custom(server.base, "stand-in-1"), request())
    assert "has no model custom/stand-in-1; it offers stand-in-" in error.message
    assert "other" in error.message


def test_models_come_in_the_servers_order_without_those_that_cannot_chat() -> None:
    no_chat = ("nomic-embed-text", "bge-m3", "text-embedding-x", "whisper-1", "rerank-2")
    with Loopback(listing=listing(*no_chat[:2], "qwen2.5:7b", *no_chat[2:], "llama-3")) as server:
        assert servers.models(server.base) == ["qwen2.5:7b", "llama-3"]
    with Loopback(listing=listing()) as server:
        assert servers.models(server.base) == []


@pytest.mark.parametrize(
    "answer",
    [
        fails(404),
        fails(500),
        RESET,
        SILENT,
        DRIP,
        sends(b"<html>"),
        sends([1]),
        sends({"models": []}),
        sends({"data": 3}),
        sends(b"\xff\xfe"),
        sends(b" " * 3_000_000),
    ],
)
def test_what_is_no_model_server_is_none_in_time(answer: Answer) -> None:
    start = time.monotonic()
    with Loopback(listing=answer) as server:
        assert servers.models(server.base, 0.3) is None
    assert time.monotonic() - start < 3


def test_several_are_asked_at_once_and_only_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nothing = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    with Loopback(listing=SILENT) as one, Loopback(listing=SILENT) as two, Loopback(models=("a",)) as three:
        start = time.monotonic()
        bases = [one.base, nothing, two.base, three.base]
        assert servers.models_of_all(bases, 0.5) == [None, None, None, ["a"]]
    assert time.monotonic() - start < 3
    assert servers.models_of_all([]) == []
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: pytest.fail("asked"))
    for base in (
        "https://127.0.0.1/v1",
        "http://a.example.org/v1",
        "http://127.0.0.1.example.org/v1",
        "x",
        "",
    ):
        assert servers.models(base) is None
