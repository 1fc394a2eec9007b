"""Asks servers which models they offer, and bounds what any server may answer over HTTP.

No server is trusted to end its reply, or to keep a request for itself: keys and texts would go wherever it
points to. Every question here is bounded in bytes and time, and starts no model.
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

MOST = 4_000_000  # bytes of a reply, as it is sent and as it is read
_MOST_SAID = 64_000  # bytes of an error, and of a reply that need not be JSON
_OF_THE_BODY = ("content-encoding", "content-length", "transfer-encoding")
SHOWN = 5  # models that an address offers, where one is gone
SECONDS = 0.3
LIST_BYTES = 1_000_000
_NO_CHAT = re.compile(
    r"embed|rerank|whisper|(?:^|[/_-])(?:bge|e5|gte|minilm|tts)(?:[-_:]|$)", re.IGNORECASE
)
_most: ContextVar[int | None] = ContextVar("most", default=None)
_bodies: ContextVar[list[bytes] | None] = ContextVar("bodies", default=None)
_carrier: ContextVar[Callable[[httpx.Request], httpx.Response | None] | None] = ContextVar(
    "carrier", default=None
)
_reread: ContextVar[Callable[[bytes], bytes]] = ContextVar("reread", default=bytes)


# What any server answers


@contextmanager
def bounded(most: int = MOST) -> Iterator[None]:
    """Bound replies to this task's requests by httpx and by transports given to `bound`, in bytes.

    A long one must be a JSON object, unless files are expected: with more than `MOST`.
    """
    import httpx  # noqa: PLC0415 - as heavy as litellm, with which it comes

    bound(httpx.AsyncHTTPTransport)
    before = _most.set(most)
    try:
        yield
    finally:
        _most.reset(before)


@contextmanager
def kept_bodies(bodies: list[bytes]) -> Iterator[None]:
    """Append to `bodies` what servers answer to this task's `bounded` requests, where they answer at all."""
    before = _bodies.set(bodies)
    try:
        yield
    finally:
        _bodies.reset(before)


@contextmanager
def carried(
    carry: Callable[[httpx.Request], httpx.Response | None],
    reread: Callable[[bytes], bytes] = bytes,
) -> Iterator[None]:
    """Have `carry` answer `bounded` requests, or change them: those that it answers leave no process.

    What a server answers is handed on as `reread` makes it.
    """
    before = _carrier.set(carry)
    before_reread = _reread.set(reread)
    try:
        yield
    finally:
        _carrier.reset(before)
        _reread.reset(before_reread)


@functools.cache
def bound(transport: type[httpx.AsyncBaseTransport]) -> None:
    """Have a class of transports bound the replies to requests made within `bounded`, and no others."""
    import httpx  # noqa: PLC0415 - the same

    unbounded: Callable[..., Awaitable[httpx.Response]] = transport.handle_async_request

    async def handle(self: Any, request: httpx.Request) -> httpx.Response:  # noqa: ANN401 - of that class
        carry = _carrier.get()
        if carry is not None:
            await request.aread()
            carried = carry(request)
            if carried is not None:
                return _usual(carried)
        most = _most.get()
        if most is None:
            return await unbounded(self, request)
        request.headers["accept-encoding"] = "identity"
        response = await unbounded(self, request)
        try:
            if response.has_redirect_location:
                _check_origin(request.url, response.headers["location"])
            body = await _body(response, most)
        finally:
            await response.aclose()
        headers = [item for item in response.headers.multi_items() if item[0] not in _OF_THE_BODY]
        content = body[:_MOST_SAID] if response.is_error else _reread.get()(body)
        answer = httpx.Response(
            response.status_code,
            headers=headers,
            content=content,
            request=request,
            extensions=response.extensions,
        )
        return _usual(answer)

    transport.handle_async_request = handle  # type: ignore[method-assign]


def _usual(response: httpx.Response) -> httpx.Response:
    """Return a response as it should be: a chat completion in the usual form, anything else as it is."""
    import httpx  # noqa: PLC0415 - the same

    bodies = _bodies.get()
    if bodies is not None and response.is_success:
        bodies.append(response.content)
    request = response.request
    is_chat = request.method == "POST" and request.url.path.endswith(chat.PATH)
    if not is_chat or not response.is_success:
        return response
    status, content = chat.usual(response.status_code, response.content)
    if content is response.content:
        return response
    headers = [item for item in response.headers.multi_items() if item[0] not in _OF_THE_BODY]
    return httpx.Response(status, headers=headers, content=content, request=request)


def _check_origin(here: httpx.URL, location: str) -> None:
    """Raise `GatewayError` for a redirect to another address: no key is sent there."""
    import httpx  # noqa: PLC0415 - seconds of CPU, only when used

    there = "not an address"  # what `location` may be
    with suppress(httpx.InvalidURL, ValueError):
        url = here.join(location)
        if (url.scheme, url.host, url.port) == (here.scheme, here.host, here.port):
            return
        there = f"{url.scheme}://{url.netloc.decode()}"
    problem = (
        f"it redirects to another address ({there}), which is not followed; configure that address"
    )
    raise GatewayError(FailureKind.BAD_REQUEST, f"{problem} if it is right")


async def _body(response: httpx.Response, most: int) -> bytes:
    """Return the body; raises `GatewayError` if it is too large, packed all the same, or no JSON."""
    invalid = functools.partial(GatewayError, FailureKind.INVALID_REPLY)
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise invalid(f"the reply has an encoding that was not asked for ({encoding[:40]!r})")
    body = bytearray()
    async for part in response.stream:  # type: ignore[union-attr]  # of an asynchronous transport
        body += part
        if len(body) > most:
            raise invalid(f"the reply is larger than {most / 1_000_000:g} MB")
    if response.is_success and len(body) > _MOST_SAID and most <= MOST:
        with suppress(ValueError, RecursionError):
            if isinstance(json.loads(body), dict):
                return bytes(body)
        raise invalid(f"the reply of {len(body):,} bytes is not a JSON object")
    return bytes(body)


# Which models servers offer


def models(bases: Sequence[str], seconds: float = SECONDS) -> list[list[str] | None]:
    """Return the chat models at OpenAI-compatible addresses of this machine, None for other answers."""

    async def ask(base: str) -> list[str] | None:
        if urlsplit(base).scheme != "http" or not is_loopback(base):
            return None
        try:
            found = await listed(f"{base.rstrip('/')}/models", None, seconds, LIST_BYTES)
            names = []
            for model in found:
                if isinstance(model, dict) and model.get("id"):
                    names.append(str(model["id"]))
        except Exception:  # noqa: BLE001 - whatever a stranger's server does
            return None
        return [name for name in names if not _NO_CHAT.search(name)]

    async def ask_all() -> list[list[str] | None]:
        return await asyncio.gather(*map(ask, bases))

    return running.run(ask_all())


async def offered(endpoint: Endpoint, seconds: float) -> list[str]:
    """Return the models that an address lists within `seconds`, those with the nearest names first."""
    profile = endpoint.profile
    if not isinstance(profile, ApiProfile) or not profile.models_path or not endpoint.api_base:
        return []
    url = endpoint.api_base.rstrip("/") + profile.models_path
    try:
        names = []
        for model in await listed(url, endpoint.api_key, seconds, MOST):
            names.append(str(model["id"]))
    except Exception:  # noqa: BLE001 - whatever a stranger's server does
        return []
    near = difflib.get_close_matches(
        endpoint.model.removeprefix(profile.prefix), names, n=SHOWN, cutoff=0.3
    )
    return [*near, *(name for name in names if name not in near)]


async def address_beside(endpoint: Endpoint, seconds: float) -> str | None:
    """Return the address with an interface where the one that is configured has none, if there is one."""
    profile = endpoint.profile
    if not isinstance(profile, ApiProfile) or not profile.models_path or not endpoint.api_base:
        return None
    base = endpoint.api_base.rstrip("/")
    shorter = base.removesuffix(chat.PATH)
    for address in dict.fromkeys([shorter, f"{shorter}/v1"]):
        if address == base:
            continue
        try:
            await listed(address + profile.models_path, endpoint.api_key, seconds / 2, MOST)
        except Exception:  # noqa: BLE001, S112 - whatever a stranger's server does
            continue
        return address
    return None


async def listed(url: str, key: str | None, seconds: float, most: int) -> list[Any]:
    """Return the `data` of a server's JSON; raises whatever httpx and a strange reply raise."""
    import httpx  # noqa: PLC0415 - as heavy as litellm, with which it comes

    if key and key != NO_KEY:
        headers = {"Authorization": f"Bearer {key}"}
    else:
        headers = {}
    # Without a proxy, and certificates take long to load.
    here = url.startswith("http:") and is_loopback(url)
    with bounded(most):
        async with (
            asyncio.timeout(seconds),
            httpx.AsyncClient(timeout=seconds, trust_env=not here, verify=not here) as client,
        ):
            models: list[Any] = (
                (await client.get(url, headers=headers)).raise_for_status().json()["data"]
            )
            return models
