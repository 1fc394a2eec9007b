"""Reaches models through litellm; the only module that imports it, and only when a model is called.

Says what an address offers when the model that was asked for is gone.

Reads what a model answered out of litellm's response object.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import difflib
import functools
import gc
import logging
import math
import os
import threading
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, stop_before_delay

from judgekit.errors import CallUsage, CostSource, FailureKind, GatewayError
from judgekit.providers import base, bounded, failures, running
from judgekit.providers.base import Endpoint, Reply, Request, extra_arguments, secret_values
from judgekit.providers.pace import Pace, Paces, no_turn
from judgekit.providers.registry import LitellmProfile, OutputMode, by_beginning
from judgekit.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from judgekit.errors import CostSource
    from judgekit.providers.base import Endpoint, Message, Request
    from judgekit.providers.registry import OutputMode


SHOWN = 5


async def offered(endpoint: Endpoint, profile: LitellmProfile, seconds: float) -> list[str]:
    """Return the models that the address lists, those with the nearest names first; empty when it does not.

    `seconds` bounds the whole question.
    """
    import asyncio  # noqa: PLC0415 - on the way of a failure only

    import httpx  # noqa: PLC0415 - comes with litellm, and is as heavy

    if profile.models_path is None or endpoint.api_base is None or seconds <= 0:
        return []
    url = endpoint.api_base.rstrip("/") + profile.models_path
    headers = {"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
    try:
        with bounded.replies():
            async with asyncio.timeout(seconds), httpx.AsyncClient(timeout=seconds) as client:
                listed = (await client.get(url, headers=headers)).json()["data"]
                names = [str(each["id"]) for each in listed]
    except (GatewayError, httpx.HTTPError, TimeoutError, ValueError, KeyError, TypeError, RecursionError):
        return []
    bare = profile.bare_name(endpoint.model)
    near = difflib.get_close_matches(bare, names, n=SHOWN, cutoff=0.3)
    return [*near, *(name for name in names if name not in near)]


def gone(endpoint: Endpoint, names: list[str]) -> str:
    """Return the sentence for a model that is not there."""
    place = endpoint.api_base or endpoint.profile.title
    words = f"{place} has no model {endpoint.model}"
    if not names:
        return f"{words}; name another in the configuration"
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{words}; it offers {', '.join(names[:SHOWN])}{more}"


_LEAST_LOGPROB = -7.0  # one in a thousand: a less likely alternative of a whole reply is not kept


class CallCost(NamedTuple):
    """What a call cost in US dollars, and who says so."""

    usd: float | None = None
    source: CostSource | None = None


def reply_of(
    response: Any,  # noqa: ANN401 - litellm's object, as its version shapes it
    endpoint: Endpoint,
    request: Request,
    cost: CallCost,
    mode: OutputMode,
) -> Reply:
    """Return the reply; raises `GatewayError`, with its cost, for a refusal, a filter, a cut or an empty one.

    The text is the content, else the arguments of the tool calls, else the reasoning, where some servers put
    JSON by mistake. If the `mode` asks for a tool call, its arguments come first: the content is commentary.
    """
    usage = _usage(response, endpoint, cost).of_call()
    choices = getattr(response, "choices", None) or []
    if not choices:
        raise GatewayError(FailureKind.INVALID_REPLY, "the reply has no choices", usage=usage)
    choice = choices[0]
    message = choice.message
    problem = _problem(choice, message, request)
    if problem is not None:
        raise GatewayError(*problem, usage=usage)
    text, held = _text(message, mode)
    logprobs, tokens = _logprobs(choice, request)
    if not text and (request.schema is not None or not logprobs):
        raise GatewayError(FailureKind.INVALID_REPLY, "the reply is empty", usage=usage)
    return Reply(
        text,
        getattr(response, "model", None) or endpoint.model,
        usage,
        logprobs,
        tokens,
        held and request.schema is not None,
    )


def _problem(choice: Any, message: Any, request: Request) -> tuple[FailureKind, str] | None:  # noqa: ANN401 - litellm's objects
    """Return why a reply with a choice is no answer, or None when it may be one."""
    reason = getattr(choice, "finish_reason", None)
    if reason == "content_filter":
        return FailureKind.CONTENT_FILTER, "the provider's filter stopped the reply"
    refusal = getattr(message, "refusal", None) or _extra(message, "refusal")
    if (refusal and not getattr(message, "content", None)) or reason == "refusal":
        said = " ".join(str(refusal or "").split())[:200]
        return FailureKind.REFUSAL, f"the model refused: {said}"
    # A call that is answered in probabilities wants the first token only, and is cut on purpose.
    if reason == "length" and (request.schema is not None or not request.top_logprobs):
        return FailureKind.TRUNCATED, f"the reply was cut at {request.max_tokens} tokens"
    return None


def _text(message: Any, mode: OutputMode) -> tuple[str, bool]:  # noqa: ANN401 - litellm's object
    """Return the text of a reply, and whether it stands where the provider holds it to a schema."""
    content = getattr(message, "content", None)
    said = content if isinstance(content, str) and content.strip() else ""
    calls = [getattr(each, "function", None) for each in getattr(message, "tool_calls", None) or []]
    called = "\n".join(str(call.arguments) for call in calls if call is not None and call.arguments)
    if called and (mode == "tool" or not said):
        return called, mode == "tool"
    return said or str(getattr(message, "reasoning_content", None) or ""), bool(
        said
    ) and mode == "json_schema"


def _extra(message: Any, name: str) -> Any:  # noqa: ANN401 - litellm's object
    return (getattr(message, "provider_specific_fields", None) or {}).get(name)


def _logprobs(choice: Any, request: Request) -> tuple[tuple[dict[str, float], ...], tuple[str, ...]]:  # noqa: ANN401 - litellm's object
    """Return the alternatives of each token, and the tokens; nothing where they are not as they should be.

    A whole reply has hundreds of tokens: of these, alternatives that hardly ever come are left out.
    """
    content = getattr(getattr(choice, "logprobs", None), "content", None) or []
    least = float("-inf") if request.schema is None else _LEAST_LOGPROB
    try:
        found = tuple(
            {
                each.token: float(each.logprob)
                for each in (*(token.top_logprobs or ()), token)
                if math.isfinite(each.logprob) and (each is token or each.logprob >= least)
            }
            for token in content
        )
        return found, tuple(_pieces(content))
    except (AttributeError, TypeError, ValueError):
        return (), ()


def _pieces(content: Any) -> list[str]:  # noqa: ANN401 - litellm's objects
    """Return the tokens as text; a character that is spread over several belongs to the last of them."""
    if not all(isinstance(getattr(token, "bytes", None), list) for token in content):
        return [str(token.token) for token in content]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return [decoder.decode(bytes(token.bytes)) for token in content]


def _usage(response: Any, endpoint: Endpoint, cost: CallCost) -> CallUsage:  # noqa: ANN401 - litellm's object
    usage = getattr(response, "usage", None)
    read = int(getattr(usage, "prompt_tokens", 0) or 0)
    written = int(getattr(usage, "completion_tokens", 0) or 0)
    details = getattr(usage, "prompt_tokens_details", None)
    cached = int(getattr(details, "cached_tokens", 0) or 0)
    stored = int(getattr(details, "cache_creation_tokens", 0) or 0)
    if endpoint.price is not None:
        cost = CallCost(endpoint.price.of(read, written, cached, stored), "profile")
    return CallUsage(read, written, cost.usd, cost.source, cached, stored)


ATTEMPTS = 3
_NEWER = "max_completion_tokens"
_CONCESSIONS = 5  # as many as a style has: the limit's name, temperature, probabilities, the format twice
_MOST_SAID = 64_000  # characters of what an error of litellm's says
_LOCK = threading.Lock()
_ENVIRONMENT = {
    # Without these, litellm fetches a price list at import and beta headers at the first Anthropic call,
    # and reads the .env files of the folders above.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_MODE": "PRODUCTION",
}


def load() -> Any:  # noqa: ANN401 - a module that is not typed strictly
    """Import litellm, once: quiet, offline, and with the garbage collector out of its way."""
    with _LOCK, running.not_to_be_forked():
        return _load()


@functools.cache
def _load() -> Any:  # noqa: ANN401 - a module that is not typed strictly
    """Import litellm.

    The import makes millions of objects that live on; a collection during it costs 0.6 s and one at exit
    as much, so they are moved out of the collector's sight.
    """
    os.environ.update(_ENVIRONMENT)
    collecting = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import litellm  # noqa: PLC0415 - seconds of CPU

            litellm.ModelResponse()  # builds pydantic's models now, with the warnings they give
    finally:
        gc.freeze()
        if collecting:
            gc.enable()
    litellm.suppress_debug_info = True
    litellm.telemetry = False
    vars(litellm.main)["encoding"] = _Tokenizer(litellm.main)
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [logging.NullHandler()]
        logger.propagate = False
    from litellm.litellm_core_utils import secret_redaction  # noqa: PLC0415 - the same
    from litellm.llms.custom_httpx.aiohttp_transport import LiteLLMAiohttpTransport  # noqa: PLC0415 - the same

    # It looks for secrets in what an error says, which may hold a whole reply: seconds for each megabyte.
    redact = secret_redaction.python_redact_string
    secret_redaction.python_redact_string = lambda value: redact(value[:_MOST_SAID])
    bounded.bound(LiteLLMAiohttpTransport)
    running.close_at_exit(vars(litellm)["close_litellm_async_clients"])
    return litellm


def _forked() -> None:
    """Leave the connections alone that this process has of the one it was forked from, and keep no lock."""
    global _LOCK  # noqa: PLW0603 - one for the process
    _LOCK = threading.Lock()
    if _load.cache_info().currsize:
        litellm = _load()
        _left.append(litellm.in_memory_llm_clients_cache)
        litellm.in_memory_llm_clients_cache = type(litellm.in_memory_llm_clients_cache)()


_left: list[object] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class _Tokenizer:
    """Stands for the tokenizer that litellm gives to every client, until one makes use of it.

    It takes 40 MB, to count the tokens of replies whose provider does not say how many they were.
    """

    def __init__(self, main: Any) -> None:  # noqa: ANN401 - a module that is not typed strictly
        self._main = main

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a tokenizer has
        return getattr(self._main.__getattr__("encoding"), name)


class CallStyle(NamedTuple):
    """How a model is asked; weakened where it turns out that an address does not take the usual way."""

    mode: OutputMode
    temperature: bool = True
    max_tokens: str = "max_tokens"
    logprobs: bool = True

    def adapted(self, failure: GatewayError, request: Request) -> CallStyle | None:
        """Return the style to try after a failure, or None when another one would not help."""
        # Without a schema they are the answer.
        if self.logprobs and request.top_logprobs and request.schema and _is_about_logprobs(failure):
            return self._replace(logprobs=False)
        if failure.kind is not FailureKind.BAD_REQUEST:
            return None
        if self.max_tokens != _NEWER and _NEWER in failure.message:
            return self._replace(max_tokens=_NEWER)
        if self.temperature and "temperature" in failure.message:
            return self._replace(temperature=False)
        if request.schema is not None and self.mode in base.WEAKER and failures.rejects_format(failure):
            return self._replace(mode=base.WEAKER[self.mode])
        return None


def _is_about_logprobs(failure: GatewayError) -> bool:
    """Whether a failure may come of having asked for probabilities: refused, or given in some odd form."""
    if failure.kind is FailureKind.BAD_REQUEST:
        return "logprobs" in failure.message
    return "Invalid response object" in failure.message  # what litellm says of all that it cannot read


@dataclass(slots=True)
class _Work:
    """One request, its end by the monotonic clock, and whether a model was asked yet."""

    endpoint: Endpoint
    request: Request
    end: float
    begun: bool = False


class LitellmGateway:
    """Any API that litellm knows, and every OpenAI-compatible server."""

    def __init__(self) -> None:
        self._learned: dict[tuple[str | None, str], CallStyle] = {}
        self._paces = Paces()

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        """Return the reply, as `Gateway.complete` says; retries and fallbacks live inside the deadline."""
        work = _Work(endpoint, request, time.monotonic() + request.timeout)
        try:
            async with asyncio.timeout(request.timeout):
                return await running.inside(lambda: self._in_a_manner_that_is_taken(work))
        except TimeoutError:
            if not work.begun:
                raise no_turn(request) from None
            message = f"no reply within {request.timeout:.3g} s"
            raise GatewayError(FailureKind.TIMEOUT, message) from None

    async def aclose(self) -> None:
        """Nothing is closed before the process ends: others may be asking on the same connections."""

    async def _in_a_manner_that_is_taken(self, work: _Work) -> Reply:
        """Ask; where the address rejects the style, ask in weaker ones and remember what it rejected."""
        place = (work.endpoint.api_base, work.endpoint.model)
        style = self._learned.get(place, CallStyle(work.endpoint.output))
        for _ in range(_CONCESSIONS):
            try:
                return await self._with_retries(work, style)
            except GatewayError as failure:
                weaker = style.adapted(failure, work.request)
                if weaker is None:
                    raise
            style = self._learned[place] = weaker
        return await self._with_retries(work, style)

    async def _with_retries(self, work: _Work, style: CallStyle) -> Reply:
        left = max(0.0, work.end - time.monotonic())
        attempts = AsyncRetrying(
            retry=retry_if_exception(lambda error: isinstance(error, GatewayError) and error.kind.retryable),
            stop=stop_after_attempt(ATTEMPTS) | stop_before_delay(left),
            wait=_pause,
            reraise=True,
        )
        return await attempts(self._in_turn, work, style)

    async def _in_turn(self, work: _Work, style: CallStyle) -> Reply:
        pace = self._paces.of(work.endpoint)
        async with pace.turn(work.end):
            work.begun = True
            try:
                reply = await _call(work.endpoint, work.request, style, work.end, pace)
            except GatewayError as failure:
                if failure.kind is FailureKind.RATE_LIMIT:
                    pace.was_too_much(failure.retry_after)
                elif failure.kind is FailureKind.OVERLOADED:
                    pace.is_away(failure.retry_after)
                raise
            pace.went_well()
            return reply


async def loaded() -> Any:  # noqa: ANN401 - a module that is not typed strictly
    """Import litellm beside the event loop, so that the deadline holds from the first call on."""
    return load() if _load.cache_info().currsize else await running.aside(load)


def _pause(state: RetryCallState) -> float:
    """Return the seconds to wait: what the provider asked for, else half a second and then a whole one."""
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after if isinstance(error, GatewayError) else None
    return asked if asked is not None else 0.5 * state.attempt_number


async def _call(endpoint: Endpoint, request: Request, style: CallStyle, end: float, pace: Pace) -> Reply:
    profile = endpoint.profile
    if not isinstance(profile, LitellmProfile):
        raise GatewayError(FailureKind.BAD_REQUEST, f"{profile.provider} is not reached through litellm")
    if endpoint.api_key is None and not endpoint.parameters:
        raise GatewayError(FailureKind.AUTHENTICATION, f"no key: set {' or '.join(profile.key) or 'one'}")
    try:
        litellm = await loaded()
    except Exception as error:  # noqa: BLE001 - the boundary: whatever an import raises
        told = f"litellm cannot be loaded ({type(error).__name__}: {error}); reinstall judgekit"
        raise GatewayError(FailureKind.BAD_REQUEST, one_line(told, 300), usage=CallUsage()) from None
    try:
        with bounded.replies():
            response = await litellm.acompletion(**_arguments(endpoint, request, style, end))
        pace.heard(_headers(response))
        return reply_of(response, endpoint, request, _cost(litellm, response, endpoint), style.mode)
    except Exception as error:  # noqa: BLE001 - the boundary: whatever litellm raises becomes a failure
        failure = failures.failure_of(error, secret_values(endpoint))
    if failure.kind is FailureKind.NOT_FOUND:
        names = await offered(endpoint, profile, min(2.0, end - time.monotonic()))
        raise GatewayError(FailureKind.NOT_FOUND, gone(endpoint, names))
    raise failure


def _headers(response: Any) -> dict[str, str]:  # noqa: ANN401 - litellm's objects
    """Return the headers of an answer by the names that the provider gave them."""
    hidden = getattr(response, "_hidden_params", None) or {}
    found = hidden.get("additional_headers") or {}
    return {str(name).removeprefix("llm_provider-"): str(value) for name, value in found.items()}


def _arguments(endpoint: Endpoint, request: Request, style: CallStyle, end: float) -> dict[str, Any]:
    return {
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
        **_asked(endpoint, request, style),
        # Dropped by litellm for models that are known to refuse it.
        **({"temperature": int(request.sample > 0)} if style.temperature else {}),
    }


def _asked(endpoint: Endpoint, request: Request, style: CallStyle) -> dict[str, Any]:
    """Return the model, the messages and what the reply should be like."""
    profile = endpoint.profile
    assert isinstance(profile, LitellmProfile)  # noqa: S101 - checked where the call begins
    bare = profile.bare_name(endpoint.model)
    limit = request.max_tokens + by_beginning(profile.thinking, bare, 0)
    arguments = {
        "model": f"{profile.client}/{bare}" if profile.client else endpoint.model,
        "messages": [
            _message(message, profile)
            for message in base.with_schema(request.messages, request.schema, style.mode)
        ],
        **extra_arguments(profile, endpoint.model),
        **base.schema_arguments(request.schema, style.mode),
    }
    if style.max_tokens == _NEWER:
        # In the body as it is: the client would rename it to what the address has just rejected.
        arguments["extra_body"] = {**arguments.get("extra_body", {}), _NEWER: limit}
    else:
        arguments["max_tokens"] = limit
    if request.top_logprobs and (style.logprobs or request.schema is None):
        arguments |= {"logprobs": True, "top_logprobs": request.top_logprobs}
    return arguments


def _message(message: Message, profile: LitellmProfile) -> dict[str, Any]:
    """Return a message as litellm takes it, what many prompts share marked for the provider's cache."""
    content: Any = message.content
    if profile.prompt_caching and 0 < message.stable < len(content):
        shared = {"type": "text", "text": content[: message.stable], "cache_control": {"type": "ephemeral"}}
        content = [shared, {"type": "text", "text": content[message.stable :]}]
    return {"role": message.role, "content": content}


def _cost(litellm: Any, response: Any, endpoint: Endpoint) -> CallCost:  # noqa: ANN401 - litellm's objects
    """Return what the call cost by the reply, else by litellm's table for the model that was asked.

    A price that cannot be told is none: the reply is there, and paid for.
    """
    hidden = getattr(response, "_hidden_params", None) or {}
    headers = hidden.get("additional_headers") or {}
    found: Sequence[tuple[CostSource, Callable[[], Any]]] = (
        ("provider", lambda: headers.get("llm_provider-x-litellm-response-cost")),
        ("litellm", lambda: hidden.get("response_cost")),
        ("litellm", lambda: _by_table(litellm, response, endpoint)),
    )
    for source, told in found:
        with contextlib.suppress(Exception):  # whatever litellm raises; the next one may know
            usd = float(told())
            if math.isfinite(usd) and usd >= 0:
                return CallCost(usd, source)
    return CallCost()


def has_price(model: str) -> bool:
    """Whether litellm's table has a price for a model."""
    try:
        load().cost_per_token(model=model, prompt_tokens=1, completion_tokens=1)
    except Exception:  # noqa: BLE001 - litellm raises one of many where it knows none
        return False
    return True


def _by_table(litellm: Any, response: Any, endpoint: Endpoint) -> float | None:  # noqa: ANN401 - litellm's objects
    usage = getattr(response, "usage", None)
    if endpoint.model not in litellm.model_cost or usage is None:
        return None
    read, written = litellm.cost_per_token(model=endpoint.model, usage_object=usage)
    return float(read + written)
