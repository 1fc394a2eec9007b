"""Asks servers for their models, and bounds any server's reply over HTTP.

No server is trusted to end its reply or to keep a request to itself: keys and texts would follow its
redirects anywhere. Every query here is bounded in bytes and time, and starts no model.
"""

from __future__ import annotations

import asyncio
import difflib
import functools
import json
import re
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from judgekit.errors import FailureKind, GatewayError
from judgekit.providers import chat, running
from judgekit.providers.base import NO_KEY, Endpoint, is_loopback
from judgekit.providers.registry import ApiProfile

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    import httpx

MOST = 4_000_000  # in a reply, both compressed and decompressed
_MAX_UNCHECKED = 64_000  # bytes in an error, or in a reply that needn't be JSON
_BODY_HEADERS = ("content-encoding", "content-length", "transfer-encoding")
SHOWN = 5  # models to suggest if the one asked for is gone
SECONDS = 0.3
LIST_BYTES = 1_000_000
_NO_CHAT = re.compile(
    r"embed|rerank|whisper|(?:^|[/_-])(?:bge|e5|gte|minilm|tts)(?:[-_:]|$)", re.IGNORECASE
)
_max_bytes: ContextVar[int | None] = ContextVar("most", default=None)
_kept_bodies: ContextVar[list[bytes] | None] = ContextVar("bodies", default=None)
_carry: ContextVar[Callable[[httpx.Request], httpx.Response | None] | None] = ContextVar(
    "carrier", default=None
)
_rewrite_body: ContextVar[Callable[[bytes], bytes]] = ContextVar("reread", default=bytes)


# Bounds on any server's reply


@contextmanager
def bounded(most: int = MOST) -> Iterator[None]:
    """Limit the replies to this task's requests to `most` bytes each, inside the `with` block.

    The limit holds for httpx, and for the transports that were given to `bound`. A successful reply that's
    longer than `_MAX_UNCHECKED` must also be a JSON object, unless `most` is above `MOST` (see `_read_body`).
    """
    import httpx  # noqa: PLC0415 - as heavy as litellm, with which it comes

    bound(httpx.AsyncHTTPTransport)
    token = _max_bytes.set(most)
    try:
        yield
    finally:
        _max_bytes.reset(token)


@contextmanager
def kept_bodies(bodies: list[bytes]) -> Iterator[None]:
    """Append to `bodies` the body of each successful reply that this task gets inside `bounded`."""
    token = _kept_bodies.set(bodies)
    try:
        yield
    finally:
        _kept_bodies.reset(token)


@contextmanager
def carried(
    carry: Callable[[httpx.Request], httpx.Response | None],
    reread: Callable[[bytes], bytes] = bytes,
) -> Iterator[None]:
    """Let `carry` see, and change or answer, this task's requests inside the `with` block.

    If `carry` returns a response, that's the answer, and the request is never sent. If it returns None, the
    request is sent. `reread` may rewrite the body of a server's answer.
    """
    carrier_token = _carry.set(carry)
    reread_token = _rewrite_body.set(reread)
    try:
        yield
    finally:
        _carry.reset(carrier_token)
        _rewrite_body.reset(reread_token)


@functools.cache
def bound(transport: type[httpx.AsyncBaseTransport]) -> None:
    """Change a class of transports, so that replies to requests inside `bounded` are limited.

    Requests outside `bounded` aren't affected.
    """
    unbounded: Callable[..., Awaitable[httpx.Response]] = transport.handle_async_request

    async def handle(self: Any, request: httpx.Request) -> httpx.Response:  # noqa: ANN401 - of that class
        """Answer a request. If its task has a limit, the whole reply is read and checked first."""
        carrier = _carry.get()
        if carrier is not None:
            await request.aread()
            own_response = carrier(request)
            if own_response is not None:
                return _standardize(own_response)
        most_bytes = _max_bytes.get()
        send = functools.partial(unbounded, self)
        if most_bytes is None:
            return await send(request)
        return _standardize(await _send_bounded(send, request, most_bytes))

    transport.handle_async_request = handle  # type: ignore[method-assign]


async def _send_bounded(
    send: Callable[[httpx.Request], Awaitable[httpx.Response]], request: httpx.Request, most: int
) -> httpx.Response:
    """Send a request, and return the response with its whole body, of at most `most` bytes.

    Raises `GatewayError` for a redirect to another address, and for a body that `_read_body` refuses.
    """
    import httpx  # noqa: PLC0415 - as heavy as litellm, with which it comes

    request.headers["accept-encoding"] = "identity"  # a few compressed bytes may hide gigabytes
    response = await send(request)
    try:
        if response.has_redirect_location:
            _check_origin(request.url, response.headers["location"])
        body = await _read_body(response, most)
    finally:
        await response.aclose()
    if response.is_error:
        body = body[:_MAX_UNCHECKED]
    else:
        rewrite_body = _rewrite_body.get()
        body = rewrite_body(body)
    # A new response, since the body of `response` was read from its stream, and may be another now.
    return httpx.Response(
        response.status_code,
        headers=_list_lasting_headers(response),
        content=body,
        request=request,
        extensions=response.extensions,
    )


def _list_lasting_headers(response: httpx.Response) -> list[tuple[str, str]]:
    """List a response's headers, without those that describe its body: that may have been changed."""
    headers = response.headers.multi_items()
    return [(name, value) for name, value in headers if name not in _BODY_HEADERS]


def _standardize(response: httpx.Response) -> httpx.Response:
    """Return a chat completion in the standard form, and any other response unchanged.

    The body of a successful response is also kept for `kept_bodies`.
    """
    import httpx  # noqa: PLC0415 - as heavy as litellm, with which it comes

    bodies = _kept_bodies.get()
    if bodies is not None and response.is_success:
        bodies.append(response.content)
    request = response.request
    is_chat = request.method == "POST" and request.url.path.endswith(chat.PATH)
    if not is_chat or not response.is_success:
        return response
    status, content = chat.usual(response.status_code, response.content)
    if content is response.content:
        return response
    headers = _list_lasting_headers(response)
    return httpx.Response(status, headers=headers, content=content, request=request)


def _check_origin(here: httpx.URL, location: str) -> None:
    """Raise `GatewayError` for a redirect to another address, so that no key is sent there."""
    import httpx  # noqa: PLC0415 - seconds of CPU, only when used

    target = "not an address"  # unless `location` can be parsed
    with suppress(httpx.InvalidURL, ValueError):
        url = here.join(location)
        if (url.scheme, url.host, url.port) == (here.scheme, here.host, here.port):
            return
        target = f"{url.scheme}://{url.netloc.decode()}"
    problem = f"it redirects to another address ({target}), which is not followed"
    remedy = "configure that address if it is right"
    raise GatewayError(FailureKind.BAD_REQUEST, f"{problem}; {remedy}")


async def _read_body(response: httpx.Response, most: int) -> bytes:
    """Read the body of a reply.

    Raises `GatewayError` if it's larger than `most` bytes, if it's compressed although we asked for no
    compression, or if it's long and not a JSON object.
    """
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        problem = f"the reply has an encoding that was not asked for ({encoding[:40]!r})"
        raise GatewayError(FailureKind.INVALID_REPLY, problem)
    body = bytearray()
    async for part in response.stream:  # type: ignore[union-attr]  # of an asynchronous transport
        body += part
        if len(body) > most:
            problem = f"the reply is larger than {most / 1_000_000:g} MB"
            raise GatewayError(FailureKind.INVALID_REPLY, problem)
    may_be_file = most > MOST
    must_be_object = response.is_success and len(body) > _MAX_UNCHECKED and not may_be_file
    if must_be_object and not _is_json_object(body):
        problem = f"the reply of {len(body):,} bytes is not a JSON object"
        raise GatewayError(FailureKind.INVALID_REPLY, problem)
    return bytes(body)


def _is_json_object(body: bytes | bytearray) -> bool:
    try:
        return isinstance(json.loads(body), dict)
    except (ValueError, RecursionError):
        return False


# The models that servers offer


def models(bases: Sequence[str], seconds: float = SECONDS) -> list[list[str] | None]:
    """List the chat models at each of several OpenAI-compatible addresses.

    The list of an address is None if it isn't on this machine, or doesn't list its models.
    """

    async def ask(base: str) -> list[str] | None:
        """List the chat models at one address; None if it isn't on this machine, or has no list."""
        if urlsplit(base).scheme != "http" or not is_loopback(base):
            return None
        try:
            models = await listed(f"{base.rstrip('/')}/models", None, seconds, LIST_BYTES)
            names = []
            for model in models:
                if isinstance(model, dict) and model.get("id"):
                    names.append(str(model["id"]))
        except Exception:  # noqa: BLE001 - whatever a stranger's server does
            return None
        return [name for name in names if not _NO_CHAT.search(name)]

    async def ask_all() -> list[list[str] | None]:
        return await asyncio.gather(*map(ask, bases))

    return running.run(ask_all())


async def offered(endpoint: Endpoint, seconds: float) -> list[str]:
    """List the models at an endpoint's address, those with names like the endpoint's model first.

    The list is empty if the address doesn't list its models within `seconds`.
    """
    profile = endpoint.profile
    if not isinstance(profile, ApiProfile) or not profile.models_path or not endpoint.api_base:
        return []
    list_url = endpoint.api_base.rstrip("/") + profile.models_path
    try:
        names = []
        for model in await listed(list_url, endpoint.api_key, seconds, MOST):
            names.append(str(model["id"]))
    except Exception:  # noqa: BLE001 - whatever a stranger's server does
        return []
    bare_name = endpoint.model.removeprefix(profile.prefix)
    similar_names = difflib.get_close_matches(bare_name, names, n=SHOWN, cutoff=0.3)
    other_names = [name for name in names if name not in similar_names]
    return [*similar_names, *other_names]


async def address_beside(endpoint: Endpoint, seconds: float) -> str | None:
    """Find an address near the configured one that lists models; None if there isn't one.

    It's the configured one without `/chat/completions`, or with `/v1`.
    """
    profile = endpoint.profile
    if not isinstance(profile, ApiProfile) or not profile.models_path or not endpoint.api_base:
        return None
    base = endpoint.api_base.rstrip("/")
    shorter_base = base.removesuffix(chat.PATH)
    for address in (shorter_base, f"{shorter_base}/v1"):
        if address == base:
            continue
        try:
            await listed(address + profile.models_path, endpoint.api_key, seconds / 2, MOST)
        except Exception:  # noqa: BLE001, S112 - whatever a stranger's server does
            continue
        return address
    return None


async def listed(url: str, key: str | None, seconds: float, most: int) -> list[Any]:
    """Fetch a URL, and return the list `data` in its JSON; raises any error if that fails."""
    import httpx  # noqa: PLC0415 - as heavy as litellm, with which it comes

    headers = {}
    if key and key != NO_KEY:
        headers["Authorization"] = f"Bearer {key}"
    # A server on this machine needs no proxy, and no certificates, which take long to load.
    is_local = url.startswith("http:") and is_loopback(url)
    client = httpx.AsyncClient(timeout=seconds, trust_env=not is_local, verify=not is_local)
    with bounded(most):
        async with asyncio.timeout(seconds), client:
            response = await client.get(url, headers=headers)
            response.raise_for_status()
            models: list[Any] = response.json()["data"]
            return models
