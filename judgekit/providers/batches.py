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

from judgekit.errors import FailureKind, GatewayError, Usage, set_local_cost, usage_of_failed_call
from judgekit.providers import failures, litellm, running, servers
from judgekit.providers.base import MAX_MESSAGE_CHARS, NO_KEY, hide_secrets, is_local, list_secrets
from judgekit.providers.pace import Pace
from judgekit.providers.registry import LitellmProfile
from judgekit.text import shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

    from judgekit.providers.base import Endpoint, Reply, Request
    from judgekit.providers.style import CallStyle

MAX_REQUESTS = 50_000  # requests in one batch: OpenAI's limit
MAX_BYTES = 200_000_000  # bytes of a batch's file: OpenAI's limit
_MAX_ANSWER_BYTES = 1_000_000_000  # bytes
_CALL_SECONDS = 60.0
_FILE_SECONDS = 900.0  # for a call that sends or fetches a file
_KNOWN_STATUSES = {  # https://platform.openai.com/docs/api-reference/batch/object
    *("validating", "failed", "in_progress", "finalizing", "completed"),
    *("expired", "cancelling", "cancelled"),
}
WINDOW_SECONDS = 24 * 3600  # OpenAI's completion window for a batch
_MAX_PAGES = 100  # of the list of batches, with 100 batches each
_TAG_KEY = "judgekit"  # in a batch's metadata
_PROXY_MODEL_PREFIX = "litellm_proxy/"  # the prefix of a model behind litellm's proxy
_QUEUE_LIMIT_PATTERN = re.compile(
    r"token_limit|enqueued|queue.{0,20}(?:full|limit)|too many batches", re.IGNORECASE
)
# litellm sets these headers from environment variables that are meant for OpenAI only.
_OPENAI_HEADERS = (
    "openai-organization",
    "openai-project",
)
_TOO_MANY_REQUESTS_STATUS = 429
_SERVER_ERROR = 500
CHARS_PER_TOKEN = 4  # a rough average, for estimates
_REPLY_LIMIT_NAMES = ("max_tokens", "max_completion_tokens", "max_output_tokens")


class BatchAnswer(NamedTuple):
    """One line of a batch's output: an HTTP status and a body."""

    status: int
    body: Any


class Batch(NamedTuple):
    """A batch as its provider describes it. `file_ids` are the ids of its output and error files.

    `problem` is the provider's error message. `deadline` is None if the provider doesn't give one.
    """

    status: str
    file_ids: tuple[str, ...]
    answered_count: int
    total_count: int
    problem: str
    deadline: float | None = None


def explain_missing_batches(endpoint: Endpoint) -> str | None:
    """Explain why a model can't be queried in batches, or return None if it can."""
    profile = endpoint.profile
    if endpoint.decides:
        return f"{endpoint.model} decides, and decision models have no batches"
    if not isinstance(profile, LitellmProfile) or profile.batches is None:
        return f"{profile.provider} has no batches that judgekit can use; `batches` in its profile says so"
    if endpoint.is_pointwise:
        # Each question waits for the answer to the one before, and a batch can take a day.
        return f"{endpoint.model} is asked one question after another, each in a batch of its own"
    if not endpoint.api_key:
        key_variables = " or ".join(profile.key)
        return f"no key: set {key_variables or 'one'}"
    return None


def is_limit(problem: str) -> bool:
    """Whether a provider's message says that it has too much queued already."""
    return bool(_QUEUE_LIMIT_PATTERN.search(problem))


def compute_price(endpoint: Endpoint, prompt_tokens: int, reply_tokens: int) -> float | None:
    """Compute the cost of a batched request in US dollars, or None if no price is known."""
    if is_local(endpoint):
        return 0.0
    if endpoint.price is not None:
        full_price: float | None = endpoint.price.compute_cost(prompt_tokens, reply_tokens)
    else:
        full_price = litellm.price_of(endpoint.model, prompt_tokens, reply_tokens)
    discounted_usage = _apply_discount(Usage(cost_usd=full_price), endpoint)
    return discounted_usage.cost_usd


def estimate(endpoint: Endpoint, body: bytes) -> float:
    """Estimate the maximum cost of a batched request in US dollars, or 0 if no price is known.

    This assumes the longest reply that the request allows.
    """
    arguments = json.loads(body)
    reply_tokens = 0
    for name in _REPLY_LIMIT_NAMES:
        if arguments.get(name):
            reply_tokens = arguments[name]
            break
    prompt_tokens = len(body) // CHARS_PER_TOKEN
    return compute_price(endpoint, prompt_tokens, reply_tokens) or 0.0


def _apply_discount(usage: Usage, endpoint: Endpoint) -> Usage:
    """Reduce a call's cost to its cost in a batch. A local model without a known cost costs nothing."""
    if is_local(endpoint):
        usage = set_local_cost(usage)
    price_factor = getattr(endpoint.profile, "batches", None)  # such as 0.5
    if price_factor is None or not usage.cost_usd:
        return usage
    return replace(usage, cost_usd=usage.cost_usd * price_factor)


async def build_request(
    endpoint: Endpoint, request: Request, style: CallStyle
) -> tuple[str, bytes]:
    """Build the HTTP request that an ordinary call would send, and return its path and body."""
    captured: list[tuple[str, bytes]] = []

    def capture(http_request: httpx.Request) -> None:
        base_path = urlsplit(endpoint.api_base or "").path.rstrip("/")
        path = http_request.url.path.removeprefix(base_path)
        captured.append((path, http_request.content))

    empty_answer = BatchAnswer(200, {"choices": []})
    try:
        await _call_without_sending(endpoint, request, style, empty_answer, capture)
    except GatewayError as failure:
        # The empty answer always makes the call fail. That's fine once the request is captured.
        if not captured:
            raise failure from None
    return captured[0]


async def read_reply(
    endpoint: Endpoint, request: Request, style: CallStyle, answer: BatchAnswer
) -> Reply:
    """Convert a batch's answer to a reply that costs what batches cost.

    Raises the same `GatewayError` that an ordinary call with this answer would raise.
    """

    def ignore_request(_: httpx.Request) -> None: ...

    try:
        # litellm reads an answer only as part of a call. So repeat the call, and give it this answer.
        reply = await _call_without_sending(endpoint, request, style, answer, ignore_request)
    except GatewayError as failure:
        failure.usage = _apply_discount(usage_of_failed_call(failure), endpoint)
        raise
    return replace(reply, usage=_apply_discount(reply.usage, endpoint))


async def _call_without_sending(
    endpoint: Endpoint,
    request: Request,
    style: CallStyle,
    answer: BatchAnswer,
    note_request: Callable[[httpx.Request], None],
) -> Reply:
    """Make a call with litellm, but respond with `answer` instead of sending the HTTP request.

    `note_request` is called with that HTTP request. Returns the reply that litellm reads from `answer`.
    """
    import httpx  # noqa: PLC0415 - imported lazily because it's slow

    def respond(http_request: httpx.Request) -> httpx.Response:
        note_request(http_request)
        return httpx.Response(answer.status, json=answer.body, request=http_request)

    with servers.intercept_requests(respond):
        deadline = time.monotonic() + _CALL_SECONDS
        call = partial(litellm.call, endpoint, request, style, deadline, Pace())
        # The home loop is the event loop in which this process makes all its calls to models.
        return await running.run_in_home_loop(call)


@dataclass(frozen=True)
class BatchCalls:
    """Manages files and batches at an endpoint. Every call can raise `GatewayError`, and none is retried."""

    endpoint: Endpoint

    async def upload(self, name: str, content: bytes) -> str:
        """Upload a file and return its id."""
        file = (name, content, "application/jsonl")
        arguments: dict[str, Any] = {"purpose": "batch"}
        model = self.endpoint.model
        if model.startswith(_PROXY_MODEL_PREFIX):
            # A proxy finds the right provider for a file and its batches by the model in this header.
            proxied_model = model.removeprefix(_PROXY_MODEL_PREFIX)
            arguments["extra_headers"] = {"x-litellm-model": proxied_model}
        uploaded = await self._call_litellm(
            "acreate_file", seconds=_FILE_SECONDS, file=file, **arguments
        )
        return str(uploaded.id)

    async def find_file(self, name: str) -> str | None:
        """Return the id of the uploaded file with this name, or None."""
        page = await self._call_litellm("afile_list", purpose="batch")
        for file in page.data or ():
            if file.filename == name:
                return str(file.id)
        return None

    async def create(self, file: str, path: str, tag: str) -> str:
        """Create a batch from the requests in an uploaded file, and return its id."""
        batch = await self._call_litellm(
            "acreate_batch",
            input_file_id=file,
            endpoint=f"/v1{path}",
            completion_window="24h",
            metadata={_TAG_KEY: tag},
        )
        return str(batch.id)

    async def find(self, tag: str, file: str) -> str | None:
        """Return the id of the batch with this tag or file, or None."""
        page_start: dict[str, Any] = {}
        for _ in range(_MAX_PAGES):
            page = await self._call_litellm("alist_batches", limit=100, **page_start)
            batches = page.data or []
            for batch in batches:
                if batch.input_file_id == file or _has_tag(batch, tag):
                    return str(batch.id)
            has_next_page = batches and getattr(page, "has_more", False)
            if not has_next_page:
                break
            last_batch = batches[-1]
            page_start = {"after": last_batch.id}
        return None

    async def retrieve(self, batch_id: str) -> Batch:
        """Fetch a batch's current state."""
        # litellm rejects a status that OpenAI doesn't have. So replace it in the response, and keep it here.
        replaced_statuses: list[str] = []

        def replace_unknown_status(body: bytes) -> bytes:
            return _replace_unknown_status(body, replaced_statuses)

        # Without this argument, litellm would also download the batch's output to log its cost.
        no_logging: dict[str, Any] = {"litellm_metadata": {"batch_ignore_default_logging": True}}
        batch = await self._call_litellm(
            "aretrieve_batch", edit_body=replace_unknown_status, batch_id=batch_id, **no_logging
        )
        status = replaced_statuses[-1] if replaced_statuses else batch.status
        return _read_batch(batch, status)

    async def fetch_answers(self, file: str) -> Iterator[tuple[str, BatchAnswer | None]]:
        """Fetch a batch's file, and yield the custom id and the answer in each line.

        The answer is None if the request must be repeated.
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
        seconds: float = _CALL_SECONDS,
        edit_body: Callable[[bytes], bytes] = bytes,  # which changes nothing
        **arguments: Any,  # noqa: ANN401 - litellm's arguments
    ) -> Any:  # noqa: ANN401 - one of litellm's objects
        """Call a litellm function by name, and return its result. Raises `GatewayError` if the call fails.

        `edit_body` can change the response body before litellm reads it.
        """
        arguments |= self._build_connection_arguments(seconds)
        change_headers = partial(_change_headers, is_openai=self._is_openai)
        try:
            function = getattr(await litellm.load_in_thread(), name)
            call = partial(function, **arguments)
            with (
                servers.limited_reply_size(_MAX_ANSWER_BYTES),
                servers.intercept_requests(change_headers, edit_body),
            ):
                async with asyncio.timeout(seconds):
                    return await running.run_in_home_loop(call)
        except TimeoutError:
            failure = GatewayError(FailureKind.TIMEOUT, f"no reply within {seconds:g} s")
        except Exception as error:  # noqa: BLE001 - the boundary: whatever litellm raises becomes a failure
            failure = _build_failure(error, self.endpoint)
        failure.message = f"{self.endpoint.api_base}: {failure.message}"
        # Raised outside the handlers, so that litellm's error, which can quote the key, isn't attached to it.
        raise failure

    def _build_connection_arguments(self, seconds: float) -> dict[str, Any]:
        """Build litellm's arguments for the server to call and the time to wait for it."""
        return {
            "api_key": self.endpoint.api_key or NO_KEY,
            "api_base": self.endpoint.api_base,
            "max_retries": 0,
            # All other servers fit litellm's client for vLLM, whose interface is like OpenAI's.
            "custom_llm_provider": "openai" if self._is_openai else "hosted_vllm",
            "timeout": seconds,
        }

    @property
    def _is_openai(self) -> bool:
        """Whether the server is OpenAI's."""
        return self.endpoint.model.startswith("openai/")


def _has_tag(batch: Any, tag: str) -> bool:  # noqa: ANN401 - litellm's object
    """Whether a batch was created with this tag."""
    metadata = batch.metadata or {}
    return bool(metadata.get(_TAG_KEY) == tag)


def _change_headers(request: httpx.Request, *, is_openai: bool) -> None:
    """Change the headers of litellm's request."""
    # litellm makes a client for each call and never closes it, so ask the server to close the connection.
    request.headers["connection"] = "close"
    # Other servers may reject OpenAI's headers.
    if not is_openai:
        for header in _OPENAI_HEADERS:
            request.headers.pop(header, None)


def _build_failure(error: Exception, endpoint: Endpoint) -> GatewayError:
    """Build a call's failure, with the provider's own message if there is one."""
    secrets = list_secrets(endpoint)
    failure = failures.classify_exception(error, secrets)
    body = getattr(error, "body", None)
    if isinstance(body, dict) and isinstance(body.get("message"), str):
        message = shorten_to_line(body["message"], MAX_MESSAGE_CHARS)
        failure.message = hide_secrets(message, secrets)
    return failure


def _read_batch(batch: Any, status: str) -> Batch:  # noqa: ANN401 - litellm's object
    """Convert litellm's batch object to a `Batch`. Missing fields become 0, "" or None."""
    file_ids = (batch.output_file_id, batch.error_file_id)
    files = tuple(file_id for file_id in file_ids if file_id)

    counts = getattr(batch, "request_counts", None)
    succeeded = getattr(counts, "completed", 0) or 0
    failed = getattr(counts, "failed", 0) or 0
    total = getattr(counts, "total", 0) or 0
    answered = succeeded + failed

    return Batch(status, files, answered, total, _join_errors(batch), _read_deadline(batch))


def _join_errors(batch: Any) -> str:  # noqa: ANN401 - litellm's object
    """Join the messages and codes of a batch's errors. Without errors, the result is ""."""
    errors = getattr(batch, "errors", None)
    problems = []
    for error in getattr(errors, "data", None) or ():
        problems.append(f"{error.message or ''} ({error.code})")
    return "; ".join(problems)


def _read_deadline(batch: Any) -> float | None:  # noqa: ANN401 - litellm's object
    """Read a batch's deadline in Unix seconds. If there's none, assume the usual time for a batch."""
    deadline: float | None = getattr(batch, "expires_at", None)
    if not deadline and batch.created_at:
        deadline = batch.created_at + WINDOW_SECONDS
    return deadline


def _replace_unknown_status(body: bytes, replaced_statuses: list[str]) -> bytes:
    """Replace the status in a batch's JSON with "in_progress" if OpenAI has no such status.

    The original status is appended to `replaced_statuses`. If there's none to replace, `body` is returned
    unchanged.
    """
    try:
        batch = json.loads(body)
        status = batch["status"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return body
    if not isinstance(status, str) or status in _KNOWN_STATUSES:
        return body
    replaced_statuses.append(status)
    return json.dumps({**batch, "status": "in_progress"}).encode()


def _read_lines(content: bytes) -> Iterator[tuple[str, BatchAnswer | None]]:
    """Yield the custom id and the answer in each line of a batch's output file.

    The answer is None if it's missing or a temporary failure, and invalid lines are skipped. In all these
    cases, the request will be repeated.
    """
    for line in content.split(b"\n"):
        try:
            custom_id, answer = _read_line(line)
        except (ValueError, OverflowError, KeyError, TypeError, AttributeError, RecursionError):
            continue
        if answer and _is_temporary_failure(answer):
            answer = None
        yield custom_id, answer


def _read_line(line: bytes) -> tuple[str, BatchAnswer | None]:
    """Read the custom id and the answer, if any, from a line of JSON.

    Raises `ValueError`, `OverflowError`, `KeyError`, `TypeError`, `AttributeError` or `RecursionError` if the
    line is invalid.
    """
    row = json.loads(line)
    custom_id = str(row["custom_id"])
    response = row.get("response")
    if not response:
        return custom_id, None
    return custom_id, BatchAnswer(int(response["status_code"]), response["body"])


def _is_temporary_failure(answer: BatchAnswer) -> bool:
    """Whether the same request may succeed later: there were too many, or the server failed."""
    return answer.status == _TOO_MANY_REQUESTS_STATUS or answer.status >= _SERVER_ERROR
