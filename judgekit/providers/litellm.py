"""Reaches models through litellm; the only module that imports it, and only when a model is called.

Says what an address offers when the model that was asked for is gone, and reads what a model answered out of
litellm's response object.
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
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit.errors import CallUsage, CostSource, FailureKind, GatewayError
from judgekit.providers import base, bounded, failures, running
from judgekit.providers.base import Reply, extra_arguments, secret_values
from judgekit.providers.pace import Pace, Paces, no_turn
from judgekit.providers.registry import LitellmProfile, OutputMode, by_beginning
from judgekit.text import one_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from judgekit.providers.base import Endpoint, Request

SHOWN = 5  # models that an address offers, where one is gone
ATTEMPTS = 3
_NEWER = "max_completion_tokens"
_CONCESSIONS = 5  # as many as a style has: the limit's name, temperature, probabilities, the format twice
_MOST_SAID = 64_000  # characters of what an error of litellm's says
_LEAST_LOGPROB = -7.0  # one in a thousand: a less likely alternative of a whole reply is not kept
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


async def loaded() -> Any:  # noqa: ANN401 - a module that is not typed strictly
    """Import litellm beside the event loop, so that the deadline holds from the first call on."""
    return _load() if _load.cache_info().currsize else await running.aside(load)


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


class _Tokenizer:
    """Stands for the tokenizer that litellm gives to every client, until one makes use of it.

    It takes 40 MB, to count the tokens of replies whose provider does not say how many they were.
    """

    def __init__(self, main: Any) -> None:  # noqa: ANN401 - a module that is not typed strictly
        self._main = main

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a tokenizer has
        return getattr(self._main.__getattr__("encoding"), name)


_left: list[object] = []


def _forked() -> None:
    """Leave the connections alone that this process has of the one it was forked from, and keep no lock."""
    global _LOCK  # noqa: PLW0603 - one for the process
    _LOCK = threading.Lock()
    if _load.cache_info().currsize:
        litellm = _load()
        _left.append(litellm.in_memory_llm_clients_cache)
        litellm.in_memory_llm_clients_cache = type(litellm.in_memory_llm_clients_cache)()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class CallStyle(NamedTuple):
    """How a model is asked; weakened where it turns out that an address does not take the usual way."""

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
        if request.schema is not None and self.mode in base.WEAKER and failures.rejects_format(failure):
            return self._replace(mode=base.WEAKER[self.mode])
        return None


class LitellmGateway:
    """Any API that litellm knows, and every OpenAI-compatible server."""

    def __init__(self) -> None:
        self._learned: dict[tuple[str | None, str], CallStyle] = {}
        self._paces = Paces()

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        """Return the reply, as `Gateway.complete` says; retries and fallbacks live inside the deadline."""
        pace, end, begun = self._paces.of(endpoint), time.monotonic() + request.timeout, False

        async def in_turn(style: CallStyle) -> Reply:
            nonlocal begun
            async with pace.turn(end):
                begun = True
                try:
                    reply = await _call(endpoint, request, style, end, pace)
                except GatewayError as failure:
                    if failure.kind is FailureKind.RATE_LIMIT:
                        pace.was_too_much(failure.retry_after)
                    elif failure.kind is FailureKind.OVERLOADED:
                        pace.is_away(failure.retry_after)
                    raise
                pace.went_well()
                return reply

        try:
            async with asyncio.timeout(request.timeout):
                return await running.inside(lambda: self._persistently(endpoint, request, end, in_turn))
        except TimeoutError:
            if not begun:
                raise no_turn(request) from None
            message = f"no reply within {request.timeout:.3g} s"
            raise GatewayError(FailureKind.TIMEOUT, message) from None

    async def aclose(self) -> None:
        """Nothing is closed before the process ends: others may be asking on the same connections."""

    async def _persistently(
        self, endpoint: Endpoint, request: Request, end: float, ask: Callable[[CallStyle], Awaitable[Reply]]
    ) -> Reply:
        """Ask again after a passing failure, and in a weaker style, to be remembered, after a rejected one.

        It waits for what the provider asked for, else half a second and then a whole one.
        """
        place = endpoint.api_base, endpoint.model
        style = self._learned.get(place, CallStyle(endpoint.output))
        attempt = concessions = 0
        while True:
            attempt += 1
            try:
                return await ask(style)
            except GatewayError as failure:
                pause = 0.5 * attempt if failure.retry_after is None else failure.retry_after
                in_time = time.monotonic() + pause < end
                if not (failure.kind.retryable and attempt < ATTEMPTS and in_time):
                    weaker = style.adapted(failure, request)
                    if weaker is None or concessions == _CONCESSIONS:
                        raise
                    style = self._learned[place] = weaker
                    attempt, concessions, pause = 0, concessions + 1, 0.0
            await asyncio.sleep(pause)


async def _call(endpoint: Endpoint, request: Request, style: CallStyle, end: float, pace: Pace) -> Reply:
    profile = endpoint.profile
    if not isinstance(profile, LitellmProfile):
        raise GatewayError(FailureKind.BAD_REQUEST, f"{profile.provider} does not use litellm")
    if endpoint.api_key is None and not endpoint.parameters:
        raise GatewayError(FailureKind.AUTHENTICATION, f"no key: set {' or '.join(profile.key) or 'one'}")
    try:
        litellm = await loaded()
    except Exception as error:  # noqa: BLE001 - the boundary: whatever an import raises
        problem = f"litellm cannot be loaded ({type(error).__name__}: {error}); reinstall judgekit"
        raise GatewayError(FailureKind.BAD_REQUEST, one_line(problem, 300), usage=CallUsage()) from None
    try:
        with bounded.replies():
            response = await litellm.acompletion(**_arguments(endpoint, profile, request, style, end))
        hidden = getattr(response, "_hidden_params", None) or {}
        headers = hidden.get("additional_headers") or {}
        pace.heard({str(name).removeprefix("llm_provider-"): str(value) for name, value in headers.items()})
        return reply_of(response, endpoint, request, _cost(litellm, response, endpoint), style.mode)
    except Exception as error:  # noqa: BLE001 - the boundary: whatever litellm raises becomes a failure
        failure = failures.failure_of(error, secret_values(endpoint))
    if failure.kind is not FailureKind.NOT_FOUND:
        raise failure
    problem = f"{endpoint.api_base or profile.title} has no model {endpoint.model}"
    names = await _offered(endpoint, profile, min(2.0, end - time.monotonic()))
    if not names:
        raise GatewayError(FailureKind.NOT_FOUND, f"{problem}; name another in the configuration")
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    raise GatewayError(FailureKind.NOT_FOUND, f"{problem}; it offers {', '.join(names[:SHOWN])}{more}")


def _arguments(
    endpoint: Endpoint, profile: LitellmProfile, request: Request, style: CallStyle, end: float
) -> dict[str, Any]:
    bare = profile.bare_name(endpoint.model)
    messages = []
    for message in base.with_schema(request.messages, request.schema, style.mode):
        content: Any = message.content
        if profile.prompt_caching and 0 < message.stable < len(content):  # what many prompts share
            marked = {"cache_control": {"type": "ephemeral"}}
            content = [
                {"type": "text", "text": content[: message.stable], **marked},
                {"type": "text", "text": content[message.stable :]},
            ]
        messages.append({"role": message.role, "content": content})
    arguments = {
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
        **extra_arguments(profile, endpoint.model),
        **base.schema_arguments(request.schema, style.mode),
    }
    limit = request.max_tokens + by_beginning(profile.thinking, bare, 0)
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


async def _offered(endpoint: Endpoint, profile: LitellmProfile, seconds: float) -> list[str]:
    """Return the models that the address lists, those with the nearest names first; empty when it does not.

    `seconds` bounds the whole question.
    """
    import httpx  # noqa: PLC0415 - comes with litellm, and is as heavy

    if profile.models_path is None or endpoint.api_base is None or seconds <= 0:
        return []
    url = endpoint.api_base.rstrip("/") + profile.models_path
    headers = {"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
    try:
        with bounded.replies():
            async with asyncio.timeout(seconds), httpx.AsyncClient(timeout=seconds) as client:
                names = [
                    str(model["id"]) for model in (await client.get(url, headers=headers)).json()["data"]
                ]
    except (GatewayError, httpx.HTTPError, TimeoutError, ValueError, KeyError, TypeError, RecursionError):
        return []
    near = difflib.get_close_matches(profile.bare_name(endpoint.model), names, n=SHOWN, cutoff=0.3)
    return [*near, *(name for name in names if name not in near)]


class CallCost(NamedTuple):
    """What a call cost in US dollars, and who says so."""

    usd: float | None = None
    source: CostSource | None = None


def _cost(litellm: Any, response: Any, endpoint: Endpoint) -> CallCost:  # noqa: ANN401 - litellm's objects
    """Return what the call cost by the reply, else by litellm's table for the model that was asked.

    A price that cannot be told is none: the reply is there, and paid for.
    """
    hidden = getattr(response, "_hidden_params", None) or {}
    headers = hidden.get("additional_headers") or {}
    usage = getattr(response, "usage", None)
    prices: list[tuple[CostSource, Any]] = [
        ("provider", headers.get("llm_provider-x-litellm-response-cost")),
        ("litellm", hidden.get("response_cost")),
    ]
    with contextlib.suppress(Exception):  # whatever litellm raises
        if endpoint.model in litellm.model_cost and usage is not None:
            by_table = litellm.cost_per_token(model=endpoint.model, usage_object=usage)
            prices.append(("litellm", sum(by_table)))
    for source, price in prices:
        with contextlib.suppress(TypeError, ValueError):
            usd = float(price)
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
    usage = _usage(response, endpoint, cost)
    choices = getattr(response, "choices", None) or []
    if not choices:
        raise GatewayError(FailureKind.INVALID_REPLY, "the reply has no choices", usage=usage)
    message, reason = choices[0].message, getattr(choices[0], "finish_reason", None)
    content = getattr(message, "content", None)
    if reason == "content_filter":
        raise GatewayError(
            FailureKind.CONTENT_FILTER, "the provider's content filter stopped the reply", usage=usage
        )
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
    text = text or str(getattr(message, "reasoning_content", None) or "")
    logprobs, tokens = _logprobs(choices[0], request)
    if not text and (request.schema is not None or not logprobs):
        raise GatewayError(FailureKind.INVALID_REPLY, "the reply is empty", usage=usage)
    model = getattr(response, "model", None) or endpoint.model
    return Reply(text, model, usage, logprobs, tokens, held and request.schema is not None)


def _logprobs(choice: Any, request: Request) -> tuple[tuple[dict[str, float], ...], tuple[str, ...]]:  # noqa: ANN401 - litellm's object
    """Return the alternatives of each token, and the tokens; nothing where they are not as they should be.

    A whole reply has hundreds of tokens: of these, alternatives that hardly ever come are left out. A
    character that is spread over several tokens belongs to the last of them.
    """
    content = getattr(getattr(choice, "logprobs", None), "content", None) or []
    least = float("-inf") if request.schema is None else _LEAST_LOGPROB
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    try:
        alternatives = tuple(
            {
                each.token: float(each.logprob)
                for each in (*(token.top_logprobs or ()), token)
                if math.isfinite(each.logprob) and (each is token or each.logprob >= least)
            }
            for token in content
        )
        if all(isinstance(getattr(token, "bytes", None), list) for token in content):
            return alternatives, tuple(decoder.decode(bytes(token.bytes)) for token in content)
        return alternatives, tuple(str(token.token) for token in content)
    except (AttributeError, TypeError, ValueError):
        return (), ()


def _usage(response: Any, endpoint: Endpoint, cost: CallCost) -> CallUsage:  # noqa: ANN401 - litellm's object
    usage = getattr(response, "usage", None)
    details = getattr(usage, "prompt_tokens_details", None)
    read = int(getattr(usage, "prompt_tokens", 0) or 0)
    written = int(getattr(usage, "completion_tokens", 0) or 0)
    cached = int(getattr(details, "cached_tokens", 0) or 0)
    stored = int(getattr(details, "cache_creation_tokens", 0) or 0)
    if endpoint.price is not None:
        cost = CallCost(endpoint.price.of(read, written, cached, stored), "profile")
    return CallUsage(read, written, cost.usd, cost.source, cached, stored).of_call()
