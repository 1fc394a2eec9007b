"""Replies that do not end, that unpack to more than is borne, and that point to another server."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import TYPE_CHECKING

import pytest
from asking import KEY, ask, custom, failure, request
from loopback import Answer, Asked, Loopback, says, sends

from judgekit.errors import FailureKind, GatewayError
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
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_reply_that_is_too_much_is_no_reply(name: str) -> None:
    with Loopback(TOO_MUCH[name]) as server:
        gateway_error = failure(LitellmGateway(), custom(server.base), request(timeout=60))
        assert (gateway_error.kind, len(server.requests)) == (FailureKind.INVALID_REPLY, 1)
    assert "the reply" in gateway_error.message


def test_of_a_reply_that_never_ends_only_the_limit_is_taken() -> None:
    """The server counts what it could send of a chunked reply."""
    with Loopback(Answer(options="endless")) as server:
        gateway_error = failure(LitellmGateway(), custom(server.base), request(timeout=60))
        assert server.gone.wait(20)
    assert gateway_error.kind is FailureKind.INVALID_REPLY
    assert server.sent < 3 * servers.MOST  # what fits into sockets was on its way


@pytest.mark.parametrize(("how", "name"), [(GZIP, "gzip"), (ZLIB, "deflate"), (GZIP, "x-gzip")])
def test_a_packed_reply_is_read(how: int, name: str) -> None:
    with Loopback(encoded(packed(says("fine").body, how), name)) as server:
        assert ask(LitellmGateway(), custom(server.base), request()).text == "fine"
        assert server.requests[0].headers["accept-encoding"] == "gzip"


def test_a_reply_just_below_the_limit_is_read() -> None:
    text = "a" * (servers.MOST - 1000)
    with Loopback(says(text)) as server:
        assert ask(LitellmGateway(), custom(server.base), request(timeout=60)).text == text


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "elsewhere", ["http://{other}/v1/chat/completions", "//{other}/", "https://{same}/v1"]
)
def test_no_redirect_to_another_server_is_followed(status: int, elsewhere: str) -> None:
    def answer(_: Asked) -> Answer:
        names = {"other": f"127.0.0.1:{other.port}", "same": f"127.0.0.1:{server.port}"}
        return Answer(b"", status, {"Location": elsewhere.format(**names)})

    with Loopback(says("mine now")) as other, Loopback(answer) as server:
        gateway_error = failure(LitellmGateway(), custom(server.base), request())
        assert (gateway_error.kind, other.requests) == (FailureKind.BAD_REQUEST, [])
    assert "redirects to another address" in gateway_error.message


def test_a_redirect_on_the_same_server_is_followed() -> None:
    def answer(asked: Asked) -> Answer:
        moved = asked.path.endswith("/moved")
        return says("here") if moved else Answer(b"", 307, {"Location": "/v1/moved"})

    with Loopback(answer) as server:
        assert ask(LitellmGateway(), custom(server.base), request()).text == "here"
        assert [asked.headers["authorization"] for asked in server.requests] == [f"Bearer {KEY}"] * 2


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
    missing = sends({"error": {"message": "no such model"}}, status=404)
    with Loopback(says("")) as other, Loopback(missing, listing=lambda _: listed(other)) as server:
        gateway_error = failure(LitellmGateway(), custom(server.base), request(timeout=30))
        assert gateway_error.kind is FailureKind.NOT_FOUND
        assert servers.models(server.base, 5) is None
        assert other.listed == []


def test_an_error_that_holds_a_whole_reply_is_told_in_a_line() -> None:
    deep = b'{"error": {"message": ' + b"[" * 50_000
    shapes: list[bytes] = [deep, json.dumps({"choices": [{"message": "A" * 3_000_000}]}).encode()]
    for shape in shapes:
        with Loopback(sends(shape, status=400 if shape is deep else 200)) as server:
            gateway_error = failure(LitellmGateway(), custom(server.base), request(timeout=60))
        assert isinstance(gateway_error, GatewayError)
        assert gateway_error.kind in (FailureKind.BAD_REQUEST, FailureKind.INVALID_REPLY)
        assert len(gateway_error.message) <= 300


def test_other_clients_in_the_process_are_left_alone() -> None:
    """Whoever uses the same libraries beside judgekit gets what servers send."""
    import asyncio  # noqa: PLC0415 - for this test alone

    import httpx  # noqa: PLC0415 - the same

    async def read(base: str) -> int:
        async with httpx.AsyncClient() as client:
            return len((await client.post(base, content=b"{}")).content)

    body = gzip.compress(b"x" * (servers.MOST + 1))
    with Loopback(encoded(body, "gzip")) as server:
        assert asyncio.run(read(server.base)) == servers.MOST + 1
