"""A provider's files and batches: write a request for a batch, submit the batch, collect its answers.

The code of an ordinary call writes the request and reads the answer, with its connection swapped out. So a
batch asks exactly what the call would have asked, and failures read the same.
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

MOST_REQUESTS = 50_000  # requests in one batch: OpenAI's limit
MOST_BYTES = 200_000_000  # bytes of a batch's file: OpenAI's limit
_MOST_ANSWERED = 1_000_000_000  # bytes
_SECONDS = 60.0
_FILE_SECONDS = 900.0  # for a call that sends or fetches a file
_STATUSES = {  # https://platform.openai.com/docs/api-reference/batch/object
    *("validating", "failed", "in_progress", "finalizing", "completed"),
    *("expired", "cancelling", "cancelled"),
}
WINDOW_SECONDS = 24 * 3600  # OpenAI's completion window for a batch
_PAGES = 100  # of the list of batches, 100 batches each
_TAG = "judgekit"  # in a batch's metadata
_PROXY = "litellm_proxy/"  # routes a file and its batches by the model named in a header
_ABOUT_LIMIT = re.compile(
    r"token_limit|enqueued|queue.{0,20}(?:full|limit)|too many batches", re.IGNORECASE
)
# litellm sets these headers from variables that are meant for OpenAI only.
_OPENAI_HEADERS = (
    "openai-organization",
    "openai-project",
)
_TOO_MANY = 429
_SERVER_ERROR = 500
CHARS_PER_TOKEN = 4  # a rough average, for estimates
_LONGEST = ("max_tokens", "max_completion_tokens", "max_output_tokens")


class BatchAnswer(NamedTuple):
    """One line of a batch's output: an HTTP status and a body."""

    status: int
    body: Any


class Batch(NamedTuple):
    """A batch as its provider describes it: the ids of its files, and a `problem` in the provider's words.

    `deadline` is when the provider means to have finished it, or None if it doesn't say.
    """

    status: str
    files: tuple[str, ...]
    answered: int
    total: int
    problem: str
    deadline: float | None = None


def refusal(endpoint: Endpoint) -> str | None:
    """Explain why a model can't be asked in batches; None if it can be."""
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
    """Whether the provider's words say that a batch was refused because too much is queued already."""
    return bool(_ABOUT_LIMIT.search(problem))


def price(endpoint: Endpoint, read: int, written: int) -> float | None:
    """Compute the cost in US dollars of a request in a batch, or None if no price is known.

    `read` is the number of the prompt's tokens, and `written` that of the reply's.
    """
    if is_local(endpoint):
        return 0.0
    call_price = litellm.price_of(endpoint.model, read, written)
    if endpoint.price is not None:
        call_price = endpoint.price.of(read, written)
    return _reduce_to_batch_price(Usage(cost_usd=call_price), endpoint).cost_usd


def estimate(endpoint: Endpoint, body: bytes) -> float:
    """Estimate the highest possible cost of a request in US dollars; 0 if no price is known.

    The prompt's tokens are estimated from its length. The reply is taken to be as long as it may be.
    """
    arguments = json.loads(body)
    reply_tokens = 0
    for name in _LONGEST:
        if arguments.get(name):
            reply_tokens = arguments[name]
            break
    prompt_tokens = len(body) // CHARS_PER_TOKEN
    return price(endpoint, prompt_tokens, reply_tokens) or 0.0


def _reduce_to_batch_price(usage: Usage, endpoint: Endpoint) -> Usage:
    """Return the usage of a call, with its cost reduced to what the call costs in a batch."""
    if is_local(endpoint):
        usage = free(usage)
    share = getattr(endpoint.profile, "batches", None)
    if usage.cost_usd and share is not None:
        return replace(usage, cost_usd=usage.cost_usd * share)
    return usage


async def body_of(endpoint: Endpoint, request: Request, style: CallStyle) -> tuple[str, bytes]:
    """Build the path and the body of the HTTP request that an ordinary call would send.

    Nothing is sent: the call gets an empty answer instead.
    """
    requests = []

    def catch(http_request: httpx.Request) -> None:
        base_path = urlsplit(endpoint.api_base or "").path.rstrip("/")
        path = http_request.url.path.removeprefix(base_path)
        requests.append((path, http_request.content))

    empty_answer = BatchAnswer(200, {"choices": []})
    try:
        await _call_without_sending(endpoint, request, style, empty_answer, catch)
    except GatewayError as failure:  # expected, as the empty answer holds no reply
        if not requests:  # it failed before it had built a request
            raise failure from None
    return requests[0]


async def reply(
    endpoint: Endpoint, request: Request, style: CallStyle, answer: BatchAnswer
) -> Reply:
    """Read a batch's answer to a request as a reply, with its cost at the batch's price.

    Raises the `GatewayError` that an ordinary call would raise for this answer.
    """
    try:
        reply = await _call_without_sending(endpoint, request, style, answer, lambda _: None)
    except GatewayError as failure:
        failure.usage = _reduce_to_batch_price(usage_of_failed_call(failure), endpoint)
        raise
    return replace(reply, usage=_reduce_to_batch_price(reply.usage, endpoint))


async def _call_without_sending(
    endpoint: Endpoint,
    request: Request,
    style: CallStyle,
    answer: BatchAnswer,
    catch: Callable[[httpx.Request], None],
) -> Reply:
    """Make a call that sends nothing, and read `answer` as if the server had sent it.

    `catch` is called with the HTTP request that would have been sent.
    """
    import httpx  # noqa: PLC0415 - as heavy as litellm, with which it comes

    def carry(http_request: httpx.Request) -> httpx.Response:
        catch(http_request)
        return httpx.Response(answer.status, json=answer.body, request=http_request)

    with servers.carried(carry):
        deadline = time.monotonic() + _SECONDS
        work = partial(litellm.call, endpoint, request, style, deadline, Pace())
        return await running.inside(work)


@dataclass(frozen=True)
class BatchCalls:
    """Calls to one address about files and batches. Each may raise `GatewayError`. No call is retried."""

    endpoint: Endpoint

    async def upload(self, name: str, content: bytes) -> str:
        """Upload a file and return its id."""
        model = self.endpoint.model
        file = (name, content, "application/jsonl")
        arguments: dict[str, Any] = {"purpose": "batch"}
        if model.startswith(_PROXY):
            arguments["extra_headers"] = {"x-litellm-model": model.removeprefix(_PROXY)}
        uploaded = await self._call_litellm(
            "acreate_file", seconds=_FILE_SECONDS, file=file, **arguments
        )
        return str(uploaded.id)

    async def find_file(self, name: str) -> str | None:
        """Find an uploaded file by its name. Returns its id, or None if there is no such file."""
        page = await self._call_litellm("afile_list", purpose="batch")
        for file in page.data or ():
            if file.filename == name:
                return str(file.id)
        return None

    async def create(self, file: str, path: str, tag: str) -> str:
        """Create a batch of the requests in an uploaded file, and return its id."""
        batch = await self._call_litellm(
            "acreate_batch",
            input_file_id=file,
            endpoint=f"/v1{path}",
            completion_window="24h",
            metadata={_TAG: tag},
        )
        return str(batch.id)

    async def find(self, tag: str, file: str) -> str | None:
        """Find the batch with this tag or this file. Returns its id, or None if there's none."""
        start: dict[str, Any] = {}  # where the next page starts; the first page needs nothing
        for _ in range(_PAGES):
            page = await self._call_litellm("alist_batches", limit=100, **start)
            for batch in page.data or ():
                metadata = batch.metadata or {}
                if batch.input_file_id == file or metadata.get(_TAG) == tag:
                    return str(batch.id)
            if not page.data or not getattr(page, "has_more", False):
                break
            last_batch = page.data[-1]
            start = {"after": last_batch.id}
        return None

    async def retrieve(self, batch_id: str) -> Batch:
        """Fetch a batch's current state."""
        # Without this argument, litellm would also download the batch's output, to log its cost.
        quiet: dict[str, Any] = {"litellm_metadata": {"batch_ignore_default_logging": True}}
        statuses: list[str] = []

        def know_status(body: bytes) -> bytes:
            # litellm rejects a status that OpenAI doesn't have, so replace it before litellm reads it.
            return _replace_unknown_status(body, statuses)

        batch = await self._call_litellm(
            "aretrieve_batch", reread=know_status, batch_id=batch_id, **quiet
        )
        # A status that OpenAI doesn't have was replaced before litellm read it: take the original one.
        status = statuses[-1] if statuses else batch.status
        return _read_batch(batch, status)

    async def content(self, file: str) -> Iterator[tuple[str, BatchAnswer | None]]:
        """Fetch a batch's file, and yield the custom id and the answer of each line.

        The answer is None if the model must be asked again.
        """
        response = await self._call_litellm("afile_content", seconds=_FILE_SECONDS, file_id=file)
        return _read_lines(response.content)

    async def delete(self, file: str) -> None:
        """Delete an uploaded file."""
        await self._call_litellm("afile_delete", file_id=file)

    async def _call_litellm(
        self,
        name: str,
        *,
        seconds: float = _SECONDS,
        reread: Callable[[bytes], bytes] = bytes,
        **arguments: Any,  # noqa: ANN401 - litellm's arguments
    ) -> Any:  # noqa: ANN401 - one of litellm's objects
        """Call the function of litellm with this `name`, and return its result.

        `reread` may rewrite the body of the server's answer. Raises `GatewayError` if the call fails.
        """
        endpoint = self.endpoint
        is_openai = endpoint.model.startswith("openai/")
        arguments["api_key"] = endpoint.api_key or NO_KEY
        arguments["api_base"] = endpoint.api_base
        arguments["max_retries"] = 0
        arguments["custom_llm_provider"] = "openai" if is_openai else "hosted_vllm"
        arguments["timeout"] = seconds

        change_headers = partial(_change_headers, is_openai=is_openai)
        try:
            call = partial(getattr(await litellm.loaded(), name), **arguments)
            with servers.bounded(_MOST_ANSWERED), servers.carried(change_headers, reread):
                async with asyncio.timeout(seconds):
                    return await running.inside(call)
        except TimeoutError:
            failure = GatewayError(FailureKind.TIMEOUT, f"no reply within {seconds:g} s")
        except Exception as error:  # noqa: BLE001 - the boundary: whatever litellm raises becomes a failure
            failure = _build_failure(error, endpoint)
        failure.message = f"{endpoint.api_base}: {failure.message}"
        raise failure


def _change_headers(request: httpx.Request, *, is_openai: bool) -> None:
    """Adapt the headers of a request that litellm is about to send."""
    # Each call has a client of its own, which nobody closes, so let the server close the connection.
    request.headers["connection"] = "close"
    if not is_openai:
        for header in _OPENAI_HEADERS:
            request.headers.pop(header, None)


def _build_failure(error: Exception, endpoint: Endpoint) -> GatewayError:
    """Build the failure of a call, in the provider's own words if the error holds them."""
    secrets = secret_values(endpoint)
    failure = failures.classify_exception(error, secrets)
    body = getattr(error, "body", None)
    if isinstance(body, dict) and isinstance(body.get("message"), str):
        message = short_line(body["message"], MAX_MESSAGE)
        failure.message = without_values(message, secrets)
    return failure


def _read_batch(batch: Any, status: str) -> Batch:  # noqa: ANN401 - litellm's object
    """Read a batch's state; fields that a provider leaves out count as 0 or as not known."""
    errors = getattr(batch, "errors", None)
    problems = []
    for error in getattr(errors, "data", None) or ():
        problems.append(f"{error.message or ''} ({error.code})")
    files = tuple(filter(None, (batch.output_file_id, batch.error_file_id)))

    counts = getattr(batch, "request_counts", None)
    answered_requests = 0
    for name in ("completed", "failed"):
        answered_requests += getattr(counts, name, 0) or 0
    total = getattr(counts, "total", 0) or 0

    deadline = getattr(batch, "expires_at", None)
    if not deadline and batch.created_at:
        deadline = batch.created_at + WINDOW_SECONDS
    return Batch(status, files, answered_requests, total, "; ".join(problems), deadline)


def _replace_unknown_status(body: bytes, statuses: list[str]) -> bytes:
    """Replace a status that OpenAI doesn't have by "in_progress" in a batch's JSON.

    The replaced status is appended to `statuses`. A body with a known status, or without one, is returned
    unchanged.
    """
    try:
        batch = json.loads(body)
        status = batch["status"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return body
    if not isinstance(status, str) or status in _STATUSES:
        return body
    statuses.append(status)
    return json.dumps({**batch, "status": "in_progress"}).encode()


def _read_lines(content: bytes) -> Iterator[tuple[str, BatchAnswer | None]]:
    """Yield the custom id and the answer of each line that can be read.

    The answer is None if the line has none, or if it's a temporary failure.
    """
    for line in content.split(b"\n"):
        try:
            row = json.loads(line)
            custom_id = str(row["custom_id"])
            response = row.get("response")
            answer = None
            if response:
                answer = BatchAnswer(int(response["status_code"]), response["body"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue  # the request that this line answers is asked again
        # A temporary failure counts as no answer: the next call may succeed.
        if answer and (answer.status == _TOO_MANY or answer.status >= _SERVER_ERROR):
            answer = None
        yield custom_id, answer
