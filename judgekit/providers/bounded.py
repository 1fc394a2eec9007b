"""What servers answer over HTTP, as far as it is borne: so much of it, and from nobody but who was asked.

No server is trusted to end its reply, or to keep a request for itself: keys and texts would go wherever it
points to.
"""

from __future__ import annotations

import functools
import json
import zlib
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import httpx

from judgekit.errors import FailureKind, GatewayError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

MOST = 4_000_000  # bytes of a reply, as it is sent and as it is read
_MOST_SAID = 64_000  # bytes of what an error says, and of a reply that need not be JSON
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
_ENCODINGS = {"": False, "identity": False, "gzip": True, "x-gzip": True, "deflate": True}
_OF_THE_BODY = ("content-encoding", "content-length", "transfer-encoding")
_PORTS = {"http": 80, "https": 443}

_most: ContextVar[int | None] = ContextVar("most", default=None)


@contextmanager
def replies(most: int = MOST) -> Iterator[None]:
    """While it is entered, each reply to this task's requests is bounded, to so many bytes.

    It is what httpx sends, and what goes through the transports given to `bound`. Requests raise
    `GatewayError` then.
    """
    bound(httpx.AsyncHTTPTransport)
    before = _most.set(most)
    try:
        yield
    finally:
        _most.reset(before)


@functools.cache
def bound(transport: type[httpx.AsyncBaseTransport]) -> None:
    """Have a class of transports bound what answers requests made within `replies`, and no others."""
    unbounded: Callable[..., Awaitable[httpx.Response]] = transport.handle_async_request

    async def handle(self: Any, request: httpx.Request) -> httpx.Response:  # noqa: ANN401 - of that class
        most = _most.get()
        if most is None:
            return await unbounded(self, request)
        request.headers["accept-encoding"] = "gzip"
        response = await unbounded(self, request)
        try:
            _check_origin(request, response)
            body = await _body(response, most)
        finally:
            await response.aclose()
        headers = [item for item in response.headers.multi_items() if item[0] not in _OF_THE_BODY]
        return httpx.Response(
            response.status_code,
            headers=headers,
            content=body[:_MOST_SAID] if response.is_error else body,
            request=request,
            extensions=response.extensions,
        )

    transport.handle_async_request = handle  # type: ignore[method-assign]


def _too_much(problem: str) -> GatewayError:
    return GatewayError(FailureKind.INVALID_REPLY, problem)


def _check_origin(request: httpx.Request, response: httpx.Response) -> None:
    """Raise `GatewayError` where a reply points to another server."""
    if not response.has_redirect_location:
        return
    try:
        there = request.url.join(response.headers["location"])
        origin = there.scheme, there.host, there.port or _PORTS.get(there.scheme)
        address = f"{origin[0]}://{origin[1]}:{origin[2]}"
    except (httpx.InvalidURL, ValueError):
        origin, address = ("", "", None), "not an address"
    here = request.url
    if origin != (here.scheme, here.host, here.port or _PORTS.get(here.scheme)):
        problem = (
            f"it redirects to another address ({address}), which is not followed; configure that address "
            "if it is right"
        )
        raise GatewayError(FailureKind.BAD_REQUEST, problem)


async def _body(response: httpx.Response, most: int) -> bytes:
    """Return the body, unpacked; raises `GatewayError` where it is too large or packed otherwise than asked.

    Libraries look through a reply at length: a large one that is no JSON object is refused, too.
    """
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in _ENCODINGS:
        raise _too_much(f"the reply has an unexpected encoding ({encoding[:40]!r})")
    packed = zlib.decompressobj(_GZIP_OR_ZLIB) if _ENCODINGS[encoding] else None
    body, sent = bytearray(), 0
    async for part in response.stream:  # type: ignore[union-attr]  # of an asynchronous transport
        sent += len(part)
        try:
            # One more than is left, which shows that there is more.
            body += part if packed is None else packed.decompress(part, most - len(body) + 1)
        except zlib.error:
            raise _too_much("the reply cannot be decompressed") from None
        if max(sent, len(body)) > most:
            raise _too_much(f"the reply is larger than {most / 1_000_000:g} MB")
    if response.is_success and len(body) > _MOST_SAID:
        try:
            is_object = isinstance(json.loads(body), dict)
        except (ValueError, RecursionError):
            is_object = False
        if not is_object:
            raise _too_much(f"the reply of {len(body):,} bytes is not a JSON object")
    return bytes(body)
