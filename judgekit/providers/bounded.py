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

_most: ContextVar[int | None] = ContextVar("most", default=None)


class TooMuchError(GatewayError):
    """A reply is larger than is borne, or cannot be unpacked."""

    def __init__(self, told: str) -> None:
        super().__init__(FailureKind.INVALID_REPLY, told)


class ElsewhereError(GatewayError):
    """A reply points to another server."""

    def __init__(self, origin: str) -> None:
        told = f"it redirects to another address ({origin}), which is not followed; set the one that is meant"
        super().__init__(FailureKind.BAD_REQUEST, told)


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
    given: Callable[..., Awaitable[httpx.Response]] = transport.handle_async_request

    async def handle(self: Any, request: httpx.Request) -> httpx.Response:  # noqa: ANN401 - of that class
        most = _most.get()
        if most is None:
            return await given(self, request)
        request.headers["accept-encoding"] = "gzip"
        return await _whole(request, await given(self, request), most)

    transport.handle_async_request = handle  # type: ignore[method-assign]


async def _whole(request: httpx.Request, response: httpx.Response, most: int) -> httpx.Response:
    """Return a reply with all of its body, unpacked; raises `GatewayError` where it is too much."""
    try:
        _check_origin(request, response)
        body = await _body(response, most)
        if response.is_error:
            body = body[:_MOST_SAID]
        elif response.is_success:
            _check_large(body)
    finally:
        await response.aclose()
    headers = [(name, value) for name, value in response.headers.multi_items() if name not in _OF_THE_BODY]
    return httpx.Response(
        response.status_code, headers=headers, content=body, request=request, extensions=response.extensions
    )


def _check_large(body: bytes) -> None:
    """Raise `GatewayError` for a large reply that is no JSON object: libraries look through it at length."""
    if len(body) <= _MOST_SAID:
        return
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise TooMuchError(f"the reply of {len(body):,} bytes is no JSON object")


def _check_origin(request: httpx.Request, response: httpx.Response) -> None:
    if not response.has_redirect_location:
        return
    try:
        there = request.url.join(response.headers["location"])
    except (httpx.InvalidURL, ValueError):
        raise ElsewhereError("not an address") from None
    if _origin(there) != _origin(request.url):
        scheme, host, port = _origin(there)
        raise ElsewhereError(f"{scheme}://{host}:{port}")


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    usual = {"http": 80, "https": 443}.get(url.scheme)
    return url.scheme, url.host, url.port or usual


async def _body(response: httpx.Response, most: int) -> bytes:
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in _ENCODINGS:
        raise TooMuchError(f"the reply is packed in a way that was not asked for ({encoding[:40]!r})")
    packed = zlib.decompressobj(_GZIP_OR_ZLIB) if _ENCODINGS[encoding] else None
    parts: list[bytes] = []
    read = sent = 0
    async for part in response.stream:  # type: ignore[union-attr]  # of an asynchronous transport
        sent += len(part)
        try:
            # One more than is left, which shows that there is more.
            found = part if packed is None else packed.decompress(part, most - read + 1)
        except zlib.error:
            raise TooMuchError("the reply cannot be unpacked") from None
        read += len(found)
        parts.append(found)
        if max(sent, read) > most:
            raise TooMuchError(f"the reply is larger than {most / 1_000_000:g} MB")
    return b"".join(parts)
