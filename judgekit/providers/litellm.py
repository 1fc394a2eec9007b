"""Reaches models through litellm; the only module that imports it, and only when a model is called.

Says how a request is sent, tried again and weakened, reads the reply out of litellm's response object, and
says what kind of failure an exception is.
"""

from __future__ import annotations

import asyncio
import atexit
import codecs
import gc
import json
import logging
import math
import os
import re
import threading
import time
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from judgekit import environment
from judgekit.errors import CostSource, FailureKind, GatewayError, Usage
from judgekit.providers import running, servers
from judgekit.providers.base import MAX_MESSAGE, Reply, secret_values, with_schema, without_values
from judgekit.providers.importing import import_whole
from judgekit.providers.pace import Pace, Paces, Turn, seconds_of
from judgekit.providers.registry import LitellmProfile, OutputMode
from judgekit.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from judgekit.providers.base import Endpoint, Request

ATTEMPTS = 3
_NEWER = "max_completion_tokens"
_CONCESSIONS = 5  # as many as a style has: the limit's name, temperature, probabilities, the format twice
_WEAKER: dict[OutputMode, OutputMode] = {"json_schema": "json_object", "tool": "text", "json_object": "text"}
_SCHEMA_NAME = "opinion"
_MOST_SAID = 64_000  # characters of an error of litellm's
_LEAST_LOGPROB = -7.0  # one in a thousand: a less likely alternative of a whole reply is not kept
_ENVIRONMENT = {
    # Without these, litellm fetches a price list at import and beta headers at the first Anthropic call,
    # and reads the .env files of the folders above.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_MODE": "PRODUCTION",
}
_TABLE: Final[dict[str, Any]] = environment.table(__file__, "failures.toml")
_TEXTS: Final = _TABLE.pop("texts")
_BY_CAUSE = {name: FailureKind(key) for key, row in _TABLE.items() for name in row.get("causes", "").split()}
_BY_STATUS = {status: FailureKind(kind) for kind, row in _TABLE.items() for status in row.get("statuses", ())}
KINDS: Final = {name: FailureKind(kind) for kind, row in _TABLE.items() for name in row["classes"].split()}
# The classes that say little: the same one stands for a full disk, a refused connection and a broken reply.
_VAGUE = {"APIConnectionError", "APIError", "InternalServerError", "OpenAIError", "BadRequestError"}
_BY_TEXT: Final = [(re.compile(text), FailureKind(kind)) for kind, text in _TEXTS["kinds"]]
_BROKEN_REPLY = {"AttributeError", "IndexError", "JSONDecodeError", "KeyError", "RecursionError", "TypeError"}
_REJECTED_FORMAT = re.compile(_TEXTS["rejected_format"])
_MOST_READ = 20_000  # characters of what an exception says
_MOST_CAUSES = 12
_lock = threading.RLock()  # of whoever loads litellm; a fork waits for it
_loaded: list[Any] = []  # the module, when it is imported
_left: list[object] = []


async def loaded() -> Any:  # noqa: ANN401 - a module that is not typed strictly
    """Import litellm beside the event loop, so that the deadline holds from the first call on."""
    return _loaded[0] if _loaded else await running.aside(load)


def load() -> Any:  # noqa: ANN401 - a module that is not typed strictly
    """Import litellm, once: quiet, offline, and without garbage collections, which take 0.6 s."""
    with _lock:
        if _loaded:
            return _loaded[0]
        os.environ.update(_ENVIRONMENT)
        collecting = gc.isenabled()
        gc.disable()
        try:
            litellm = import_whole("litellm", _import_litellm)
        finally:
            gc.freeze()
            if collecting:
                gc.enable()
        litellm.suppress_debug_info = True
        litellm.telemetry = False
        vars(litellm.main)["encoding"] = _Tokenizer()
        for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
            logger = logging.getLogger(name)
            logger.handlers[:] = [logging.NullHandler()]
            logger.propagate = False
        from litellm.litellm_core_utils import secret_redaction  # noqa: PLC0415 - the same
        from litellm.llms.custom_httpx import aiohttp_transport  # noqa: PLC0415 - the same

        # It looks for secrets in an error's text, which may hold a whole reply: seconds for each megabyte.
        redact = secret_redaction.python_redact_string
        secret_redaction.python_redact_string = lambda value: redact(value[:_MOST_SAID])
        servers.bound(aiohttp_transport.LiteLLMAiohttpTransport)
        running.closing.append(vars(litellm)["close_litellm_async_clients"])
        atexit.unregister(running.end)  # registered last, it is called first: litellm may tidy up, too
        atexit.register(running.end)
        _loaded.append(litellm)
        return litellm


def _import_litellm() -> Any:  # noqa: ANN401 - a module that is not typed strictly
    import litellm  # noqa: PLC0415 - seconds of CPU

    litellm.ModelResponse()  # builds pydantic's models now, with the warnings they give
    return litellm


class _Tokenizer:
    """Stands for the tokenizer of every client, 40 MB, until one counts tokens that no provider counted."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a tokenizer has
        return getattr(load().main.__getattr__("encoding"), name)


def _forked() -> None:
    """Leave the connections alone that this process has of the one it was forked from."""
    _lock.release()
    for litellm in _loaded:
        _left.append(litellm.in_memory_llm_clients_cache)
        litellm.in_memory_llm_clients_cache = type(litellm.in_memory_llm_clients_cache)()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_forked)


def price_of(model: str, read: int, written: int) -> float | None:
    """Return what tokens of a prompt and of a reply cost in US dollars, by litellm's table."""
    try:
        return float(sum(load().cost_per_token(model=model, prompt_tokens=read, completion_tokens=written)))
    except Exception:  # noqa: BLE001 - litellm raises one of many where it knows none
        return None


class CallStyle(NamedTuple):
    """How a model is asked; weakened where an address turns out not to take the usual way."""

    mode: OutputMode
    temperature: bool = True
    max_tokens: str = "max_tokens"
    logprobs: bool = True

    def adapted(self, failure: GatewayError, request: Request) -> CallStyle | None:
        """Return the style to try after a failure, or None when another one would not help."""
        is_refused = failure.kind is FailureKind.BAD_REQUEST
        # Refused, or given in some odd form: what litellm says of all that it cannot read.
        about_logprobs = "logprobs" if is_refused else "Invalid response object"
        # Without a schema they are the answer.
        if self.logprobs and request.top_logprobs and request.schema and about_logprobs in failure.message:
            return self._replace(logprobs=False)
        if not is_refused:
            return None
        if self.max_tokens != _NEWER and _NEWER in failure.message:
            return self._replace(max_tokens=_NEWER)
        if self.temperature and "temperature" in failure.message:
            return self._replace(temperature=False)
        is_format = _REJECTED_FORMAT.search(failure.message)
        if request.schema is not None and self.mode in _WEAKER and is_format:
            return self._replace(mode=_WEAKER[self.mode])
        return None


@dataclass(eq=False)
class LitellmGateway:
    _learned: dict[tuple[str | None, str], CallStyle] = field(default_factory=dict)
    _paces: Paces = field(default_factory=Paces)

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        return await self._paces.call(endpoint, request, partial(self._persistently, endpoint, request))

    async def aclose(self) -> None:
        """Nothing is closed before the process ends: others may be asking on the same connections."""

    async def _persistently(self, endpoint: Endpoint, request: Request, turn: Turn, end: float) -> Reply:
        """Ask again after a passing failure, and after a rejected one in a weaker style, to be remembered."""
        place = endpoint.api_base, endpoint.model
        style = self._learned.get(place, CallStyle(endpoint.output))
        attempt = concessions = 0
        while True:
            attempt += 1
            try:
                async with turn():
                    return await call(endpoint, request, style, end, self._paces.of(endpoint))
            except GatewayError as failure:
                pause = 0.5 * attempt if failure.retry_after is None else failure.retry_after
                if not (failure.kind.retryable and attempt < ATTEMPTS and time.monotonic() + pause < end):
                    weaker = style.adapted(failure, request)
                    if weaker is None or concessions == _CONCESSIONS:
                        raise
                    style = self._learned[place] = weaker
                    attempt, concessions, pause = 0, concessions + 1, 0.0
            await asyncio.sleep(pause)


async def call(endpoint: Endpoint, request: Request, style: CallStyle, end: float, pace: Pace) -> Reply:
    """Return the reply to one call in a `style`, by the `end` (monotonic); raises `GatewayError`."""
    profile = endpoint.profile
    if not isinstance(profile, LitellmProfile):
        raise GatewayError(FailureKind.BAD_REQUEST, f"{profile.provider} does not use litellm")
    if endpoint.api_key is None and not endpoint.parameters:
        raise GatewayError(FailureKind.AUTHENTICATION, f"no key: set {' or '.join(profile.key) or 'one'}")
    try:
        litellm = await loaded()
    except Exception as error:  # noqa: BLE001 - the boundary: whatever an import raises
        problem = f"litellm cannot be loaded ({type(error).__name__}: {error}); reinstall judgekit"
        raise GatewayError(FailureKind.NOT_LOADED, one_line(problem, 300), usage=Usage()) from None
    try:
        # What restores the environment of a process, as tests do, takes them away.
        os.environ.update(_ENVIRONMENT)
        with servers.bounded():
            response = await litellm.acompletion(**_arguments(endpoint, profile, request, style, end))
        pace.went_well()
        return reply_of(response, endpoint, request, style.mode)
    except Exception as error:  # noqa: BLE001 - the boundary: whatever litellm raises becomes a failure
        failure = failure_of(error, secret_values(endpoint))
    if failure.kind is FailureKind.RATE_LIMIT:
        pace.was_too_much(failure.retry_after)
    elif failure.kind is FailureKind.OVERLOADED:
        pace.pause(failure.retry_after, FailureKind.OVERLOADED)
    elif failure.kind is FailureKind.NOT_FOUND:
        names = await servers.offered(endpoint, min(2.0, end - time.monotonic()))
        more = f" and {len(names) - servers.SHOWN} more" if len(names) > servers.SHOWN else ""
        offers = f"it offers {', '.join(names[: servers.SHOWN])}{more}"
        problem = f"{endpoint.api_base or profile.title} has no model {endpoint.model}"
        problem += f"; {offers if names else 'name another in the configuration'}"
        raise GatewayError(FailureKind.NOT_FOUND, problem)
    raise failure


def _arguments(
    endpoint: Endpoint, profile: LitellmProfile, request: Request, style: CallStyle, end: float
) -> dict[str, Any]:
    messages = []
    for message in with_schema(request.messages, request.schema, style.mode):
        content: Any = message.content
        if profile.prompt_caching and 0 < message.stable < len(content):  # what many prompts share
            cut = message.stable
            content = [{"type": "text", "text": content[:cut]}, {"type": "text", "text": content[cut:]}]
            content[0]["cache_control"] = {"type": "ephemeral"}
        messages.append({"role": message.role, "content": content})
    bare, limit = endpoint.model.removeprefix(profile.prefix), request.max_tokens
    arguments: dict[str, Any] = {
        # A timeout of litellm's is one for each read, never the deadline; it only lets go of a dead socket.
        "timeout": max(0.1, end - time.monotonic()),
        "drop_params": True,
        "num_retries": 0,
        "max_retries": 0,
        # Given even when empty, or litellm would look for the key of whomever the model's name suggests.
        "api_key": endpoint.api_key,
        "api_base": endpoint.api_base,
        # With tools, litellm would import a package for tool servers that is not among its requirements.
        "_skip_mcp_handler": True,
        **endpoint.parameters,
        "model": f"{profile.client}/{bare}" if profile.client else endpoint.model,
        "messages": messages,
        **profile.of_model(profile.arguments, endpoint.model, {}),
    }
    schema = deepcopy(request.schema)  # a client makes it what its provider takes, in place
    if schema is not None and style.mode == "json_object":
        arguments["response_format"] = {"type": "json_object"}
    elif schema is not None and style.mode == "json_schema":
        form = {"name": _SCHEMA_NAME, "strict": True, "schema": schema}
        arguments["response_format"] = {"type": "json_schema", "json_schema": form}
    elif schema is not None and style.mode == "tool":
        function = {"name": _SCHEMA_NAME, "description": "Give your answer.", "parameters": schema}
        arguments["tools"] = [{"type": "function", "function": function}]
        arguments["tool_choice"] = {"type": "function", "function": {"name": _SCHEMA_NAME}}
    limit += profile.of_model(profile.thinking, endpoint.model, 0)
    if style.max_tokens == _NEWER:
        # In the body as it is: the client would rename it to what the address has just rejected.
        arguments["extra_body"] = {**arguments.get("extra_body", {}), _NEWER: limit}
    else:
        arguments["max_tokens"] = limit
    if request.top_logprobs and (style.logprobs or request.schema is None):
        arguments |= {"logprobs": True, "top_logprobs": request.top_logprobs}
    if style.temperature:  # dropped by litellm for models that are known to refuse it
        arguments["temperature"] = int(request.sample > 0)
    return arguments


def reply_of(response: Any, endpoint: Endpoint, request: Request, mode: OutputMode) -> Reply:  # noqa: ANN401 - litellm's object, as its version shapes it
    """Return the reply; raises `GatewayError` with the cost of a refused, filtered, cut or empty one."""
    usage = _usage(response, endpoint)
    choices = getattr(response, "choices", None) or []
    if not choices:
        raise GatewayError(FailureKind.INVALID_REPLY, "the reply has no choices", usage=usage)
    message, reason = choices[0].message, getattr(choices[0], "finish_reason", None)
    content = getattr(message, "content", None)
    if reason == "content_filter":
        problem = "the provider's content filter stopped the reply"
        raise GatewayError(FailureKind.CONTENT_FILTER, problem, usage=usage)
    fields = getattr(message, "provider_specific_fields", None) or {}
    refusal = getattr(message, "refusal", None) or fields.get("refusal")
    if (refusal and not content) or reason == "refusal":
        words = " ".join(str(refusal or "").split())[:200]
        raise GatewayError(FailureKind.REFUSAL, f"the model refused: {words}", usage=usage)
    # A call that is answered in probabilities wants the first token only, and is cut on purpose.
    if reason == "length" and (request.schema is not None or not request.top_logprobs):
        problem = f"the reply was cut at {request.max_tokens} tokens"
        raise GatewayError(FailureKind.TRUNCATED, problem, usage=usage)
    text = content if isinstance(content, str) and content.strip() else ""
    calls = [getattr(call, "function", None) for call in getattr(message, "tool_calls", None) or []]
    called = "\n".join(str(call.arguments) for call in calls if call is not None and call.arguments)
    held = mode == "json_schema" and bool(text)
    if called and (mode == "tool" or not text):
        text, held = called, mode == "tool"
    text = text or str(getattr(message, "reasoning_content", None) or "")  # some servers put JSON there
    logprobs, tokens = _logprobs(choices[0], request)
    if not text and (request.schema is not None or not logprobs):
        raise GatewayError(FailureKind.INVALID_REPLY, "the reply is empty", usage=usage)
    model = getattr(response, "model", None) or endpoint.model
    return Reply(text, model, usage, logprobs, tokens, held and request.schema is not None)


def _logprobs(choice: Any, request: Request) -> tuple[tuple[dict[str, float], ...], tuple[str, ...]]:  # noqa: ANN401 - litellm's object
    """Return likely alternatives of each token, and the tokens; nothing where they are of another shape."""
    content = getattr(getattr(choice, "logprobs", None), "content", None) or []
    least = float("-inf") if request.schema is None else _LEAST_LOGPROB
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    try:
        alternatives = tuple(
            {
                other.token: float(other.logprob)
                for other in (*(token.top_logprobs or ()), token)
                if math.isfinite(other.logprob) and (other is token or other.logprob >= least)
            }
            for token in content
        )
        if all(isinstance(getattr(token, "bytes", None), list) for token in content):
            return alternatives, tuple(decoder.decode(bytes(token.bytes)) for token in content)
        return alternatives, tuple(str(token.token) for token in content)
    except (AttributeError, TypeError, ValueError):
        return (), ()


def _usage(response: Any, endpoint: Endpoint) -> Usage:  # noqa: ANN401 - litellm's object
    """Return the tokens of a call and its cost: by the profile, the reply, or litellm's table, else none."""
    usage, hidden = getattr(response, "usage", None), getattr(response, "_hidden_params", None) or {}
    details = getattr(usage, "prompt_tokens_details", None)
    names = ("prompt_tokens", "completion_tokens"), ("cached_tokens", "cache_creation_tokens")
    read, written = (int(getattr(usage, name, 0) or 0) for name in names[0])
    cached, stored = (int(getattr(details, name, 0) or 0) for name in names[1])
    if endpoint.price is not None:
        cost = endpoint.price.of(read, written, cached, stored)
        return Usage(read, written, cost, "profile", cached, stored)
    stated = (hidden.get("additional_headers") or {}).get("llm_provider-x-litellm-response-cost")
    prices: list[tuple[CostSource, Any]] = [("provider", stated), ("litellm", hidden.get("response_cost"))]
    with suppress(Exception):  # whatever litellm raises
        if endpoint.model in load().model_cost and usage is not None:
            prices.append(("litellm", sum(load().cost_per_token(model=endpoint.model, usage_object=usage))))
    for source, price in prices:
        with suppress(TypeError, ValueError):
            if math.isfinite(usd := float(price)) and usd >= 0:
                return Usage(read, written, usd, source, cached, stored)
    return Usage(read, written, None, None, cached, stored).of_call()


# What kind of failure an exception is


def failure_of(error: BaseException, secrets: Iterable[str] = ()) -> GatewayError:
    """Return the failure that an exception of a call means, in the provider's words without the `secrets`."""
    causes: list[BaseException] = [error]
    while len(causes) < _MOST_CAUSES and (cause := causes[-1].__cause__ or causes[-1].__context__):
        causes.append(cause)  # a chain may be a ring
    if own := next((cause for cause in causes if isinstance(cause, GatewayError)), None):
        return own
    text = str(error)[:_MOST_READ].split("Traceback (most recent call last)")[0]
    head, brace, rest = text.partition("{")
    try:
        data, _ = json.JSONDecoder().raw_decode(brace + rest)
    except (ValueError, RecursionError):
        data = None
    words = data.get("error", data) if isinstance(data, dict) else None
    words = words.get("message") if isinstance(words, dict) else words
    text = f"{head}{words}" if isinstance(words, str) else text
    text = re.sub(r"(?:litellm\.)?\b[A-Za-z]+Error: |\b\w+Exception - ", "", text)
    text = re.sub(r"\. Handle with `litellm\.\w+`\.?", "", text)
    text = re.sub(r" ssl:<[^<>]*>| \[Connect call failed [^][]*\]", "", text)
    text = " ".join(text.split()).strip(" |") or type(error).__name__
    text = text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"
    own_headers = getattr(getattr(error, "response", None), "headers", None) or {}
    headers = {**(getattr(error, "litellm_response_headers", None) or {}), **own_headers}
    seconds = seconds_of(str(headers.get("retry-after") or ""))
    return GatewayError(_kind(causes), without_values(text, secrets), retry_after=seconds)


def _kind(causes: Sequence[BaseException]) -> FailureKind:
    error, names, text = causes[0], [type(cause).__name__ for cause in causes], str(causes[0])
    if cause := next((cause for cause in _BY_CAUSE if cause in names), None):
        return _BY_CAUSE[cause]
    by_text = next((kind for pattern, kind in _BY_TEXT if pattern.search(text)), None)
    known = next((base.__name__ for base in type(error).__mro__ if base.__name__ in KINDS), "")
    if known and known not in _VAGUE:
        return by_text or KINDS[known]
    # A reply came, but not one that litellm could read.
    is_broken = "HTTPStatusError" not in names and ("JSONDecodeError" in names or names[-1] in _BROKEN_REPLY)
    if is_broken or re.search(r"no 'choices'|'choices' that is not", text):
        return FailureKind.INVALID_REPLY
    by_class = KINDS.get(known, FailureKind.SERVER_ERROR)
    return by_text or _BY_STATUS.get(getattr(error, "status_code", None), by_class)
