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
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from judgekit.errors import FailureKind, GatewayError
from judgekit.providers import chat, running
from judgekit.providers.base import NO_KEY, Endpoint, is_loopback
from judgekit.providers.registry import ApiProfile

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

    import httpx

MAX_REPLY_BYTES = 4_000_000  # in a reply, both compressed and decompressed
_MAX_UNCHECKED_BYTES = 64_000  # bytes of an error, or of a reply that isn't checked for JSON
_BODY_HEADERS = ("content-encoding", "content-length", "transfer-encoding")
MAX_SUGGESTED_MODELS = 5  # models to suggest if the requested one is missing
LIST_TIMEOUT_SECONDS = 0.3
LIST_BYTES = 1_000_000
_NON_CHAT_MODEL_PATTERN = re.compile(
    r"embed|rerank|whisper|(?:^|[/_-])(?:bge|e5|gte|minilm|tts)(?:[-_:]|$)", re.IGNORECASE
)
_max_bytes: ContextVar[int | None] = ContextVar("most", default=None)
_collected_bodies: ContextVar[list[bytes] | None] = ContextVar("bodies", default=None)
_intercept: ContextVar[Callable[[httpx.Request], httpx.Response | None] | None] = ContextVar(
    "carrier", default=None
)
_edit_body: ContextVar[Callable[[bytes], bytes]] = ContextVar("reread", default=bytes)


# Bounds on any server's reply


@contextmanager
def limited_reply_size(max_bytes: int = MAX_REPLY_BYTES) -> Iterator[None]:
    """Limit the size of replies to this task's requests to `max_bytes`, inside the `with` block.

    Requests are limited if they use httpx or a transport passed to `patch_transport`. A long reply must also
    be a JSON object, unless the limit is above the default, as for a download.
    """
    import httpx  # noqa: PLC0415 - imported lazily because it's slow

    patch_transport(httpx.AsyncHTTPTransport)
    token = _max_bytes.set(max_bytes)
    try:
        yield
    finally:
        _max_bytes.reset(token)


@contextmanager
def collect_bodies(bodies: list[bytes]) -> Iterator[None]:
    """Append the bodies of successful replies to `bodies`, inside the `with` block.

    This applies to the requests of this task whose reply size is limited.
    """
    token = _collected_bodies.set(bodies)
    try:
        yield
    finally:
        _collected_bodies.reset(token)


@contextmanager
def intercept_requests(
    intercept: Callable[[httpx.Request], httpx.Response | None],
    edit_body: Callable[[bytes], bytes] = bytes,  # which changes nothing
) -> Iterator[None]:
    """Let `intercept` change or answer this task's requests inside the `with` block.

    If `intercept` returns None, the request is sent, and `edit_body` can change the body of the response.
    """
    intercept_token = _intercept.set(intercept)
    edit_token = _edit_body.set(edit_body)
    try:
        yield
    finally:
        _intercept.reset(intercept_token)
        _edit_body.reset(edit_token)


@functools.cache  # so that a class is patched only once
def patch_transport(transport: type[httpx.AsyncBaseTransport]) -> None:
    """Patch an HTTP transport class, so that a task can intercept its requests and limit the responses' size.

    A task does so with the context managers `limited_reply_size`, `collect_bodies` and `intercept_requests`.
    """
    send_without_limit: Callable[..., Awaitable[httpx.Response]] = transport.handle_async_request

    async def handle(self: Any, request: httpx.Request) -> httpx.Response:  # noqa: ANN401 - an instance of `transport`
        """Answer a request as the current task wants: intercepted, limited in size, or unchanged."""
        substitute = await _intercept_request(request)
        if substitute is not None:
            return _normalise_chat(substitute)

        max_bytes = _max_bytes.get()
        if max_bytes is None:  # the task has no limit
            return await send_without_limit(self, request)
        send = functools.partial(send_without_limit, self)
        response = await _send_with_limit(send, request, max_bytes)
        return _normalise_chat(response)

    transport.handle_async_request = handle  # type: ignore[method-assign]


async def _intercept_request(request: httpx.Request) -> httpx.Response | None:
    """Let the task change or answer its request. Returns None if the request should be sent."""
    intercept = _intercept.get()
    if intercept is None:
        return None
    await request.aread()  # so that `intercept` can read the body
    return intercept(request)


async def _send_with_limit(
    send: Callable[[httpx.Request], Awaitable[httpx.Response]],
    request: httpx.Request,
    max_bytes: int,
) -> httpx.Response:
    """Send a request, and return the response with its complete body, which the task may edit.

    Raises `GatewayError` for a redirect to another address, and for a body that `_read_body` refuses, such as
    one that's larger than `max_bytes`.
    """
    # Don't accept compressed replies, because a few bytes could expand to gigabytes.
    request.headers["accept-encoding"] = "identity"
    response = await send(request)
    try:
        if response.has_redirect_location:
            _check_redirect(request.url, response.headers["location"])
        body = await _read_body(response, max_bytes)
    finally:
        await response.aclose()

    if response.is_error:
        # `_read_body` hasn't checked it, so keep no more of it than of an unchecked reply. It's only quoted
        # in a message.
        body = body[:_MAX_UNCHECKED_BYTES]
    else:
        edit_body = _edit_body.get()  # by default, it changes nothing
        body = edit_body(body)
    return _rebuild_response(response, request, body)


def _rebuild_response(
    response: httpx.Response, request: httpx.Request, body: bytes
) -> httpx.Response:
    """Build a new response with a body, because the original's stream is consumed."""
    import httpx  # noqa: PLC0415 - imported lazily because it's slow

    # Headers such as `content-length` are about the original body, and may not fit this one.
    headers = _list_headers_not_about_body(response)
    return httpx.Response(
        response.status_code,
        headers=headers,
        content=body,
        request=request,
        extensions=response.extensions,
    )


def _list_headers_not_about_body(response: httpx.Response) -> list[tuple[str, str]]:
    headers = response.headers.multi_items()
    return [(name, value) for name, value in headers if name not in _BODY_HEADERS]


def _normalise_chat(response: httpx.Response) -> httpx.Response:
    """Convert a successful chat completion to OpenAI's form. Other responses are returned as they are."""
    import httpx  # noqa: PLC0415 - imported lazily because it's slow

    # If the task collects bodies, it gets them as the provider sent them.
    _collect_body(response)
    request = response.request
    is_for_chat = request.method == "POST" and request.url.path.endswith(chat.CHAT_PATH)
    if not is_for_chat or not response.is_success:
        return response

    status, content = chat.normalise(response.status_code, response.content)
    is_unchanged = content is response.content  # `normalise` returns the same object then
    if is_unchanged:
        return response
    headers = _list_headers_not_about_body(response)
    return httpx.Response(status, headers=headers, content=content, request=request)


def _collect_body(response: httpx.Response) -> None:
    """Add a successful response's body to the list given to `collect_bodies`, if that block is running."""
    bodies = _collected_bodies.get()
    if bodies is not None and response.is_success:
        bodies.append(response.content)


def _check_redirect(origin: httpx.URL, location: str) -> None:
    """Raise `GatewayError` for a redirect to another address, so that no key is sent there."""
    import httpx  # noqa: PLC0415 - imported lazily because it's slow

    try:
        url = origin.join(location)
        if _has_same_address(url, origin):
            return
        target = f"{url.scheme}://{url.netloc.decode()}"
    except (httpx.InvalidURL, ValueError):
        target = "not an address"

    problem = f"it redirects to another address ({target}), which is not followed"
    remedy = "configure that address if it is right"
    raise GatewayError(FailureKind.BAD_REQUEST, f"{problem}; {remedy}")


def _has_same_address(url: httpx.URL, other: httpx.URL) -> bool:
    """Whether two URLs have the same scheme, host and port."""
    return (url.scheme, url.host, url.port) == (other.scheme, other.host, other.port)


async def _read_body(response: httpx.Response, max_bytes: int) -> bytes:
    """Read a response's body.

    Raises `GatewayError` if the body is compressed or larger than `max_bytes`, or if it's a long reply that
    isn't a JSON object.
    """
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        problem = f"the reply has an encoding that was not asked for ({encoding[:40]!r})"
        raise GatewayError(FailureKind.INVALID_REPLY, problem)

    body = bytearray()
    async for part in response.stream:  # type: ignore[union-attr]  # of an asynchronous transport
        body += part
        if len(body) > max_bytes:
            problem = f"the reply is larger than {max_bytes / 1_000_000:g} MB"
            raise GatewayError(FailureKind.INVALID_REPLY, problem)

    # Only a download has a higher limit than a reply. It can be something other than JSON.
    is_download = max_bytes > MAX_REPLY_BYTES
    if response.is_success and not is_download:
        _refuse_long_non_json(body)
    return bytes(body)


def _refuse_long_non_json(body: bytearray) -> None:
    """Raise `GatewayError` if a reply is long and isn't a JSON object."""
    # If the client can't read a reply, its error can contain all of it.
    is_long = len(body) > _MAX_UNCHECKED_BYTES
    if is_long and not _is_json_object(body):
        problem = f"the reply of {len(body):,} bytes is not a JSON object"
        raise GatewayError(FailureKind.INVALID_REPLY, problem)


def _is_json_object(body: bytes | bytearray) -> bool:
    try:
        return isinstance(json.loads(body), dict)
    except (ValueError, RecursionError):
        return False


# The models that servers offer


def list_models(
    bases: Sequence[str], seconds: float = LIST_TIMEOUT_SECONDS
) -> list[list[str] | None]:
    """List the chat models at each of the given OpenAI-compatible addresses.

    The result has a list for each address. It's None for an address that isn't on this machine, or that
    doesn't list its models.
    """

    async def list_all() -> list[list[str] | None]:
        return await asyncio.gather(*[_list_chat_models(base, seconds) for base in bases])

    return running.run(list_all())


async def _list_chat_models(base: str, seconds: float) -> list[str] | None:
    """List the chat models at an address on this machine.

    Returns None if the address is elsewhere, or if it doesn't list models within `seconds`.
    """
    if urlsplit(base).scheme != "http" or not is_loopback(base):
        return None

    url = f"{base.rstrip('/')}/models"
    try:
        listed = await fetch_list(url, key=None, seconds=seconds, max_bytes=LIST_BYTES)
        names = _read_names(listed)
    except Exception:  # noqa: BLE001 - any server can be at this address
        return None
    return [name for name in names if not _NON_CHAT_MODEL_PATTERN.search(name)]


def _read_names(listed: Iterable[Any]) -> list[str]:
    """Read the ids of the models that a server lists, without malformed entries."""
    names = []
    for model in listed:
        if isinstance(model, dict) and model.get("id"):
            names.append(str(model["id"]))
    return names


async def list_offered(endpoint: Endpoint, seconds: float) -> list[str]:
    """List the models at an endpoint's address. Names similar to the endpoint's model come first.

    Returns [] if the address doesn't list its models within `seconds`.
    """
    profile = endpoint.profile
    if not isinstance(profile, ApiProfile) or not profile.models_path or not endpoint.api_base:
        return []
    list_url = endpoint.api_base.rstrip("/") + profile.models_path
    try:
        names = []
        for model in await fetch_list(list_url, endpoint.api_key, seconds, MAX_REPLY_BYTES):
            names.append(str(model["id"]))
    except Exception:  # noqa: BLE001 - any server can be at this address
        return []

    bare_name = endpoint.model.removeprefix(profile.prefix)
    similar_names = difflib.get_close_matches(bare_name, names, n=MAX_SUGGESTED_MODELS, cutoff=0.3)
    other_names = [name for name in names if name not in similar_names]
    return [*similar_names, *other_names]


async def find_similar_address(endpoint: Endpoint, seconds: float) -> str | None:
    """Find the address that the user probably meant, if the endpoint's is wrong.

    Tries the address without `/chat/completions`, and then that with `/v1` added. Returns None if neither
    lists models.
    """
    profile = endpoint.profile
    if not isinstance(profile, ApiProfile) or not profile.models_path or not endpoint.api_base:
        return None
    base = endpoint.api_base.rstrip("/")
    shorter_base = base.removesuffix(chat.CHAT_PATH)
    for address in (shorter_base, f"{shorter_base}/v1"):
        if address == base:  # which is wrong
            continue
        list_url = address + profile.models_path
        try:
            # Each of the two addresses gets half the time.
            await fetch_list(list_url, endpoint.api_key, seconds / 2, MAX_REPLY_BYTES)
        except Exception:  # noqa: BLE001, S112 - any server can be at this address
            continue
        return address
    return None


async def fetch_list(url: str, key: str | None, seconds: float, max_bytes: int) -> list[Any]:
    """Fetch a URL, and return the list under the key `data` in its JSON. Can raise any error."""
    import httpx  # noqa: PLC0415 - imported lazily because it's slow

    headers = {}
    if key and key != NO_KEY:
        headers["Authorization"] = f"Bearer {key}"
    # A server on this machine needs neither a proxy nor certificates, which take long to load.
    is_local = url.startswith("http:") and is_loopback(url)
    client = httpx.AsyncClient(timeout=seconds, trust_env=not is_local, verify=not is_local)
    with limited_reply_size(max_bytes):
        async with asyncio.timeout(seconds), client:
            response = await client.get(url, headers=headers)
            response.raise_for_status()
            models: list[Any] = response.json()["data"]
            return models
