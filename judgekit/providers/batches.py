"""A provider's files and batches: what a request is in a batch, how one is submitted and collected.

A request is made, and its answer read, by the very code of an ordinary call, whose connection is replaced:
a batch asks what the call would have asked, and failures are told in the same words.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from judgekit.errors import FailureKind, GatewayError, Usage, free, usage_of_failed_call
from judgekit.providers import failures, litellm, running, servers
from judgekit.providers.base import MAX_MESSAGE, NO_KEY, is_local, secret_values, without_values
from judgekit.providers.pace import Pace
from judgekit.providers.registry import LitellmProfile
from judgekit.text import short_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

    from judgekit.providers.base import Endpoint, Reply, Request
    from judgekit.providers.style import CallStyle

MOST_REQUESTS = 50_000  # of a batch, and
MOST_BYTES = 200_000_000  # of its file: OpenAI's limits
_MOST_ANSWERED = 1_000_000_000  # bytes
_SECONDS = 60.0
_FILE_SECONDS = 900.0  # for one call, and for one that sends or fetches a file
_STATUSES = {  # https://platform.openai.com/docs/api-reference/batch/object
    *("validating", "failed", "in_progress", "finalizing", "completed"),
    *("expired", "cancelling", "cancelled"),
}
WINDOW_SECONDS = 24 * 3600  # in which a batch is to end, as it is asked for
_PAGES = 100  # of the list of batches, a hundred on each
_TAG = "judgekit"  # in a batch's metadata
_PROXY = (
    "litellm_proxy/"  # it routes a file, and the batches of it, by the model that a header names
)
_ABOUT_LIMIT = re.compile(
    r"token_limit|enqueued|queue.{0,20}(?:full|limit)|too many batches", re.IGNORECASE
)
# Headers, from variables that mean OpenAI alone.
_OF_OPENAI = (
    "openai-organization",
    "openai-project",
)
_TOO_MANY = 429
_SERVER_ERROR = 500
CHARS_PER_TOKEN = 4  # as estimates go
_LONGEST = ("max_tokens", "max_completion_tokens", "max_output_tokens")


class BatchAnswer(NamedTuple):
    """What a line of a batch's output says: an HTTP status and a body."""

    status: int
    body: Any


class Batch(NamedTuple):
    """A batch as its provider shows it: the ids of its files, and a `problem` in the provider's words.

    `deadline` is the time by which the provider meant to end it; None if it does not say.
    """

    status: str
    files: tuple[str, ...]
    answered: int
    total: int
    problem: str
    deadline: float | None = None


def refusal(endpoint: Endpoint) -> str | None:
    """Return why a model cannot be asked in batches; None where it can."""
    profile = endpoint.profile
    if endpoint.decides:
        return f"{endpoint.model} decides, and decision models have no batches"
    if not isinstance(profile, LitellmProfile) or profile.batches is None:
        return f"{profile.provider} has no batches that judgekit can use; `batches` in its profile says so"
    if endpoint.pointwise:
        return f"{endpoint.model} is asked one question after another, each in a batch of its own"
    if endpoint.api_key:
        return None
    return f"no key: set {' or '.join(profile.key) or 'one'}"


def is_limit(problem: str) -> bool:
    """Whether a batch was refused because too much waits at the provider already."""
    return bool(_ABOUT_LIMIT.search(problem))


def price(endpoint: Endpoint, read: int, written: int) -> float | None:
    """Return what tokens of a prompt and of a reply cost in a batch, in US dollars; None without a price."""
    if is_local(endpoint):
        return 0.0
    usual = litellm.price_of(endpoint.model, read, written)
    if endpoint.price is not None:
        usual = endpoint.price.of(read, written)
    return _at_batch_price(Usage(cost_usd=usual), endpoint).cost_usd


def estimate(endpoint: Endpoint, body: bytes) -> float:
    """Return what a request may cost: a token for four characters, and the longest reply."""
    arguments = json.loads(body)
    longest = next((arguments[name] for name in _LONGEST if arguments.get(name)), 0)
    return price(endpoint, len(body) // CHARS_PER_TOKEN, longest) or 0.0


def _at_batch_price(usage: Usage, endpoint: Endpoint) -> Usage:
    if is_local(endpoint):
        usage = free(usage)
    share = getattr(endpoint.profile, "batches", None)
    if usage.cost_usd and share is not None:
        return replace(usage, cost_usd=usage.cost_usd * share)
    return usage


async def body_of(endpoint: Endpoint, request: Request, style: CallStyle) -> tuple[str, bytes]:
    """Return the path and the body that an ordinary call would send; nothing is sent."""
    sent = []

    def catch(http_request: httpx.Request) -> None:
        base = urlsplit(endpoint.api_base or "").path.rstrip("/")
        sent.append((http_request.url.path.removeprefix(base), http_request.content))

    try:
        await _call(endpoint, request, style, BatchAnswer(200, {"choices": []}), catch)
    except GatewayError as failure:  # of course it cannot be read
        if not sent:
            raise failure from None
    return sent[0]


async def reply(
    endpoint: Endpoint, request: Request, style: CallStyle, answer: BatchAnswer
) -> Reply:
    """Return the reply that an answer is, at the batch's price; raises `GatewayError` as a call does."""
    try:
        usual = await _call(endpoint, request, style, answer, lambda _: None)
    except GatewayError as failure:
        failure.usage = _at_batch_price(usage_of_failed_call(failure), endpoint)
        raise
    return replace(usual, usage=_at_batch_price(usual.usage, endpoint))


async def _call(
    endpoint: Endpoint,
    request: Request,
    style: CallStyle,
    answer: BatchAnswer,
    catch: Callable[[httpx.Request], None],
) -> Reply:
    import httpx  # noqa: PLC0415 - as heavy as litellm, with which it comes

    def carry(sent: httpx.Request) -> httpx.Response:
        catch(sent)
        return httpx.Response(answer.status, json=answer.body, request=sent)

    with servers.carried(carry):
        end = time.monotonic() + _SECONDS
        work = partial(litellm.call, endpoint, request, style, end, Pace())
        return await running.inside(work)


@dataclass(frozen=True)
class BatchCalls:
    """The calls of one address about files and batches; each raises `GatewayError`, and none is repeated."""

    endpoint: Endpoint

    async def upload(self, name: str, content: bytes) -> str:
        """Return the id of a new file."""
        model = self.endpoint.model
        file = (name, content, "application/jsonl")
        routed: dict[str, Any] = {}
        if model.startswith(_PROXY):
            routed["extra_headers"] = {"x-litellm-model": model.removeprefix(_PROXY)}
        made = await self._do(
            "acreate_file", seconds=_FILE_SECONDS, file=file, purpose="batch", **routed
        )
        return str(made.id)

    async def find_file(self, name: str) -> str | None:
        """Find an uploaded file by its name. Returns its id, or None if there is no such file."""
        page = await self._do("afile_list", purpose="batch")
        for file in page.data or ():
            if file.filename == name:
                return str(file.id)
        return None

    async def create(self, file: str, path: str, tag: str) -> str:
        arguments: dict[str, Any] = {"completion_window": "24h", "endpoint": f"/v1{path}"}
        made = await self._do(
            "acreate_batch", input_file_id=file, metadata={_TAG: tag}, **arguments
        )
        return str(made.id)

    async def find(self, tag: str, file: str) -> str | None:
        """Return the id of the batch with this tag or this file, if the provider has one."""
        after: dict[str, Any] = {}
        for _ in range(_PAGES):
            page = await self._do("alist_batches", limit=100, **after)
            for batch in page.data or ():
                if batch.input_file_id == file or (batch.metadata or {}).get(_TAG) == tag:
                    return str(batch.id)
            if not page.data or not getattr(page, "has_more", False):
                break
            after = {"after": page.data[-1].id}
        return None

    async def retrieve(self, batch_id: str) -> Batch:
        # Or litellm would fetch the output, too, for a cost of its own.
        quiet: dict[str, Any] = {"litellm_metadata": {"batch_ignore_default_logging": True}}
        statuses: list[str] = []

        def know_status(body: bytes) -> bytes:
            # litellm refuses a status that OpenAI does not have.
            return _with_known_status(body, statuses)

        batch = await self._do("aretrieve_batch", reread=know_status, batch_id=batch_id, **quiet)
        counts = getattr(batch, "request_counts", None)
        errors = getattr(batch, "errors", None)
        problems = []
        for error in getattr(errors, "data", None) or ():
            problems.append(f"{error.message or ''} ({error.code})")
        files = tuple(filter(None, (batch.output_file_id, batch.error_file_id)))
        answered = 0
        for name in ("completed", "failed"):
            answered += getattr(counts, name, 0) or 0
        total = getattr(counts, "total", 0) or 0
        deadline = getattr(batch, "expires_at", None)
        if not deadline and batch.created_at:
            deadline = batch.created_at + WINDOW_SECONDS
        status = statuses[-1] if statuses else batch.status
        return Batch(status, files, answered, total, "; ".join(problems), deadline)

    async def content(self, file: str) -> Iterator[tuple[str, BatchAnswer | None]]:
        """Return the lines of a batch's file: a custom id, and the answer where the model was asked."""
        response = await self._do("afile_content", seconds=_FILE_SECONDS, file_id=file)
        return _lines(response.content)

    async def delete(self, file: str) -> None:
        await self._do("afile_delete", file_id=file)

    async def _do(  # what comes is litellm's
        self,
        name: str,
        *,
        seconds: float = _SECONDS,
        reread: Callable[[bytes], bytes] = bytes,
        **arguments: Any,  # noqa: ANN401 - as above
    ) -> Any:  # noqa: ANN401 - as above
        is_openai = self.endpoint.model.startswith("openai/")
        endpoint = self.endpoint
        arguments["api_key"] = endpoint.api_key or NO_KEY
        arguments["api_base"] = endpoint.api_base
        arguments["max_retries"] = 0
        arguments["custom_llm_provider"] = "openai" if is_openai else "hosted_vllm"
        arguments["timeout"] = seconds

        def change(request: httpx.Request) -> None:
            # Each call has a client of its own, which nobody closes.
            request.headers["connection"] = "close"
            for header in () if is_openai else _OF_OPENAI:
                request.headers.pop(header, None)

        try:
            call = partial(getattr(await litellm.loaded(), name), **arguments)
            with servers.bounded(_MOST_ANSWERED), servers.carried(change, reread):
                async with asyncio.timeout(seconds):
                    return await running.inside(call)
        except TimeoutError:
            failure = GatewayError(FailureKind.TIMEOUT, f"no reply within {seconds:g} s")
        except Exception as error:  # noqa: BLE001 - the boundary: whatever litellm raises becomes a failure
            failure = failures.classify_exception(error, secrets := secret_values(endpoint))
            words = getattr(error, "body", None)
            if isinstance(words, dict) and isinstance(words.get("message"), str):
                failure.message = without_values(short_line(words["message"], MAX_MESSAGE), secrets)
        failure.message = f"{endpoint.api_base}: {failure.message}"
        raise failure


def _with_known_status(body: bytes, statuses: list[str]) -> bytes:
    """Return a batch as JSON with a status that OpenAI has; the one that it has is added to `statuses`."""
    try:
        batch = json.loads(body)
        status = batch["status"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return body
    if not isinstance(status, str) or status in _STATUSES:
        return body
    statuses.append(status)
    return json.dumps({**batch, "status": "in_progress"}).encode()


def _lines(content: bytes) -> Iterator[tuple[str, BatchAnswer | None]]:
    for line in content.split(b"\n"):
        try:
            row = json.loads(line)
            custom_id = str(row["custom_id"])
            response = row.get("response")
            answer = None
            if response:
                answer = BatchAnswer(int(response["status_code"]), response["body"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue  # what is missing then is asked again
        # A failure that passes is as good as no answer: the next call may succeed.
        if answer and (answer.status == _TOO_MANY or answer.status >= _SERVER_ERROR):
            answer = None
        yield custom_id, answer
