"""Reaches models through litellm; the only module that imports it, and only when a model is called.

Says how a request is sent, tried again and weakened, and reads the reply out of litellm's response object.
"""

from __future__ import annotations

import asyncio
import atexit
import codecs
import gc
import logging
import math
import os
import re
import sys
import threading
import time
import warnings
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from judgekit.errors import CostSource, FailureKind, GatewayError, Usage, usage_of_failed_call
from judgekit.providers import (
    chat,
    decision_bodies,
    decisions,
    proxies,
    remembered,
    retrying,
    running,
    servers,
)
from judgekit.providers.base import Reply, secret_values, with_schema
from judgekit.providers.failures import classify_exception, ending, stated_failure
from judgekit.providers.importing import import_whole
from judgekit.providers.pace import Pace, Paces, Turn
from judgekit.providers.per_process import PerProcess, was_forked
from judgekit.providers.registry import ApiProfile, DecisionsProfile, LitellmProfile
from judgekit.providers.style import (
    MOST_CHANGES,
    NEWER_LIMIT,
    THINKING_TOKENS,
    WEAKER,
    CallStyle,
    without_system,
)
from judgekit.text import short_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from judgekit.providers.base import Endpoint, Request
    from judgekit.providers.registry import OutputMode

ATTEMPTS = 3
_PAUSES = (0.5, 1.0)  # seconds between them, where the provider does not ask for others
_PAGE = re.compile(r"Original Response: \s*<(?:!doctype|html)", re.IGNORECASE)  # a page for people
_LOOK_SECONDS = 2.0  # for what an address offers, where something is missing
_LEAST_COUNT = 1_000  # tokens that a server says it read
_MOST_CHARS_PER_TOKEN = 8  # of a text; English has 4 to 5, other scripts and code have fewer
# Chinese, Japanese and Korean have a token for one or two characters.
_WEIGHT_OF_DENSE = 2.5
_DENSE = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")
_RUN = re.compile(r"(.)\1{3,}", re.DOTALL)
SCHEMA_NAME = "opinion"
MAX_REASON = 60  # characters of a provider's word for what happened
_SHARE_OF_PROXY = 0.25  # of a call's time, for the question whether a model thinks
_MOST_SAID = 64_000  # characters of an error of litellm's
_LEAST_LOGPROB = -7.0  # one in a thousand: a less likely alternative of a whole reply is not kept
_ENVIRONMENT = {
    # Without these, litellm fetches a price list at import and beta headers at the first Anthropic call,
    # and reads the .env files of the folders above.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_MODE": "PRODUCTION",
}


# Whether anybody reads the price that litellm computes for the reply to the current task's call.
_reads_price: ContextVar[bool] = ContextVar("reads_price", default=True)
# Where a program that uses litellm, too, registers what is told of calls.
_LISTENERS = (
    *("callbacks", "input_callback", "success_callback", "failure_callback"),
    *("_async_input_callback", "_async_success_callback", "_async_failure_callback"),
)


class _Litellm:
    """Whether this process may use litellm yet, and the lock of the thread that sees to it."""

    def __init__(self) -> None:
        self.module: Any = None
        self.lock = threading.RLock()


_litellm = PerProcess(_Litellm)
_imported: list[Any] = []  # the module, also of a process that this one was forked from
_inherited: list[object] = []  # connections, which are the parent's to close


async def loaded() -> Any:  # noqa: ANN401 - a module that is not typed strictly
    """Import litellm beside the event loop, so that the deadline holds from the first call on."""
    module = _litellm.get().module
    return await running.run_in_thread(load) if module is None else module


def load() -> Any:  # noqa: ANN401 - a module that is not typed strictly
    """Import litellm, once a process: quiet, offline, and without garbage collections, which take 0.6 s."""
    own = _litellm.get()
    if own.module is not None:
        return own.module
    with own.lock:
        if own.module is None:
            if _imported:
                _leave_connections(_imported[0])
            else:
                _imported.append(_import_quietly())
            own.module = _imported[0]
        return own.module


def _leave_connections(litellm: Any) -> None:  # noqa: ANN401 - the same
    """Have a forked process make connections of its own, and leave its parent's alone."""
    _inherited.append(litellm.in_memory_llm_clients_cache)
    litellm.in_memory_llm_clients_cache = type(litellm.in_memory_llm_clients_cache)()


def _import_quietly() -> Any:  # noqa: ANN401 - the same
    spec = getattr(sys.modules.get("litellm"), "__spec__", None)
    if was_forked() and getattr(spec, "_initializing", False):
        # The thread that imports it wasn't copied by the fork, so Python would wait for it for ever.
        raise ImportError(
            "forked while another thread imported it; import judgekit.api before forking"
        )
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
    # It makes the coroutine of a call in a thread. If the call is cancelled meanwhile, nobody awaits it.
    warnings.filterwarnings(
        "ignore", r"coroutine '.*completion\w*' was never awaited", category=RuntimeWarning
    )
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
    calculate_price = litellm.response_cost_calculator
    vars(litellm)["response_cost_calculator"] = partial(_calculate_read_price, calculate_price)
    servers.bound(aiohttp_transport.LiteLLMAiohttpTransport)
    running.closing.append(vars(litellm)["close_litellm_async_clients"])
    # Registered last, it is called first: litellm may tidy up, too.
    atexit.unregister(running.end)
    atexit.register(running.end)
    return litellm


def _import_litellm() -> Any:  # noqa: ANN401 - a module that is not typed strictly
    import litellm  # noqa: PLC0415 - seconds of CPU

    litellm.ModelResponse()  # builds pydantic's models now, with the warnings they give
    return litellm


def _calculate_read_price(calculate: Callable[..., Any], **call: Any) -> Any:  # noqa: ANN401 - as litellm has them
    """Return the price of a reply; None if nobody reads it, because it takes as long as half a call."""
    return calculate(**call) if _reads_price.get() else None


@contextmanager
def _without_bookkeeping(litellm: Any, endpoint: Endpoint) -> Iterator[None]:  # noqa: ANN401 - the same
    """Have litellm leave out what nobody reads of this task's call: its price, and its record for logs."""
    from litellm._internal_context import is_internal_call  # noqa: PLC0415 - the same

    has_listener = bool(litellm.max_budget)
    for name in _LISTENERS:
        listeners = getattr(litellm, name, None) or ()
        # A cache that litellm makes for some providers enters itself, and keeps streams alone.
        has_listener |= any(listener != "cache" for listener in listeners)
    reads_price = endpoint.price is None and not endpoint.decides
    price_token = _reads_price.set(reads_price or has_listener)
    # What litellm does for its own calls: they are logged by the call that they are a part of.
    log_token = is_internal_call.set(is_internal_call.get() or not has_listener)
    try:
        yield
    finally:
        is_internal_call.reset(log_token)
        _reads_price.reset(price_token)


class _Tokenizer:
    """Stands for the tokenizer of every client, 40 MB, until one counts tokens that no provider counted."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a tokenizer has
        return getattr(load().main.__getattr__("encoding"), name)


def price_of(model: str, read: int, written: int) -> float | None:
    """Return what tokens of a prompt and of a reply cost in US dollars, by litellm's table."""
    try:
        return float(
            sum(load().cost_per_token(model=model, prompt_tokens=read, completion_tokens=written))
        )
    except Exception:  # noqa: BLE001 - litellm raises one of many where it knows none
        return None


def cost_of(endpoint: Endpoint, read: int, written: int) -> float | None:
    """Return what tokens of a prompt and of a reply of a model cost in US dollars, if that is known."""
    if endpoint.price is not None:
        return endpoint.price.of(read, written)
    profile = endpoint.profile
    if not isinstance(profile, DecisionsProfile):
        return price_of(endpoint.model, read, written)
    bare = endpoint.model.removeprefix(profile.prefix)
    table: dict[str, dict[str, Any]] = load().model_cost
    entry = table.get(f"{profile.client}/{bare}") or table.get(endpoint.model) or {}
    if not entry and profile.client == "openai":
        entry = table.get(bare, {})
    # What a model costs that chats, too, says nothing of its decisions.
    chats = entry.get("mode") == "chat"
    usual = None if chats else entry.get("input_cost_per_token")
    price = entry.get("input_cost_per_token_decisions", usual)
    return None if price is None else float(price) * read


@dataclass(eq=False)
class LitellmGateway:
    _paces: Paces = field(default_factory=Paces)

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        return await self._paces.call(endpoint, request, partial(self._adapting, endpoint, request))

    async def aclose(self) -> None:
        """Nothing is closed before the process ends: others may be asking on the same connections."""

    async def _adapting(
        self, endpoint: Endpoint, request: Request, turn: Turn, end: float
    ) -> Reply:
        """Ask in the style that the address takes; where it turns out not to take it, in another one."""
        if endpoint.decides:  # there is one way only
            return await self._persistently(
                endpoint, request, CallStyle(endpoint.output), turn, end
            )
        style = await _style_of(endpoint, end)
        spent = Usage()
        is_again = False
        changes = 0
        while True:
            try:
                reply = await self._persistently(endpoint, request, style, turn, end)
                break
            except GatewayError as failure:
                is_cut = "thinking" in failure.objections
                if "unfit" in failure.objections and not is_cut and not is_again:
                    is_again = True  # what a model wrote once is not what it can
                    spent = spent.plus(usage_of_failed_call(failure))
                    continue
                other = style.adapted(failure, endpoint, request)
                if other is None or changes == MOST_CHANGES:
                    if spent != Usage():
                        failure.usage = spent.plus(usage_of_failed_call(failure))
                    raise
                spent = spent.plus(usage_of_failed_call(failure))
            _remember_changes(endpoint, style, other)
            style = other
            changes += 1
        reply = replace(reply, usage=spent.plus(reply.usage) if spent != Usage() else reply.usage)
        if request.schema is None:
            return reply
        distrust = partial(_weaken, endpoint, style)
        if not _is_heeded(reply, style.mode):
            distrust()
        if reply.schema_enforced and style.mode == "json_schema":
            return replace(reply, distrust=distrust)
        return reply

    async def _persistently(
        self, endpoint: Endpoint, request: Request, style: CallStyle, turn: Turn, end: float
    ) -> Reply:
        """Ask again after a passing failure."""

        async def ask() -> Reply:
            async with turn():
                return await call(endpoint, request, style, end, self._paces.of(endpoint))

        tries = retrying.Tries(ATTEMPTS, _PAUSES)
        return await retrying.call(ask, tries, passes=_passes, seconds=end - time.monotonic())


def _passes(failure: Exception, _: int) -> bool:
    return isinstance(failure, GatewayError) and failure.kind.retryable


async def _style_of(endpoint: Endpoint, end: float) -> CallStyle:
    """Return how a model is asked: the usual way, but for what was seen, or is said by a proxy."""
    style = _remembered(endpoint)
    is_known = (
        style.thinking_tokens(endpoint) or endpoint.profile.limits.thinking_tokens is not None
    )
    if is_known or not proxies.may_be_proxy(endpoint):
        return style
    is_thinking = proxies.thinks_as_said(endpoint)
    if is_thinking is None:
        with suppress(TimeoutError):
            async with asyncio.timeout((end - time.monotonic()) * _SHARE_OF_PROXY):
                is_thinking = await running.run_in_thread(partial(proxies.thinks, endpoint))
    return style._replace(thinking=THINKING_TOKENS) if is_thinking else style


def _remembered(endpoint: Endpoint) -> CallStyle:
    return remembered.find(endpoint) or CallStyle(endpoint.output)


def _remember_changes(endpoint: Endpoint, style: CallStyle, other: CallStyle) -> None:
    """Remember in what a style differs from another one, beside what other calls have learned meanwhile."""
    before = style._asdict()
    after = other.lasting()._asdict()
    changes = {}
    for name, value in after.items():
        if value != before[name]:
            changes[name] = value
    changes.pop("room", None)
    now = _remembered(endpoint)
    if now._replace(**changes) != now:
        remembered.keep(endpoint, now._replace(**changes))


def _weaken(endpoint: Endpoint, style: CallStyle) -> None:
    """Remember that a model does not heed the format of a style: it is asked in a weaker one from now on."""
    now = _remembered(endpoint)
    if now.mode == style.mode and style.mode in WEAKER:
        remembered.keep(endpoint, now._replace(mode=WEAKER[style.mode]))


def _is_heeded(reply: Reply, mode: OutputMode) -> bool:
    """Whether a reply has the form that was asked for."""
    if mode in ("json_schema", "tool"):
        return reply.schema_enforced
    return mode == "text" or _is_object(reply.text)


def _is_object(text: str) -> bool:
    """Whether a reply begins as an object does, behind its thoughts and the mark of a block of code."""
    if text.lstrip().startswith("<think>"):
        text = text.partition("</think>")[2]
    text = text.strip("\ufeff \t\r\n")
    if text.startswith("```"):
        text = text.partition("\n")[2].lstrip()
    return text.startswith("{")


async def call(
    endpoint: Endpoint, request: Request, style: CallStyle, end: float, pace: Pace
) -> Reply:
    """Return the reply to one call in a `style`, by the `end` (monotonic); raises `GatewayError`."""
    profile = endpoint.profile
    if not isinstance(profile, LitellmProfile | DecisionsProfile):
        raise GatewayError(FailureKind.BAD_REQUEST, f"{profile.provider} does not use litellm")
    if endpoint.api_key is None and not endpoint.parameters:
        raise GatewayError(
            FailureKind.AUTHENTICATION, f"no key: set {' or '.join(profile.key) or 'one'}"
        )
    _check_key(endpoint)
    try:
        litellm = await loaded()
    except Exception as error:  # noqa: BLE001 - the boundary: whatever an import raises
        problem = f"litellm cannot be loaded ({type(error).__name__}: {error}); reinstall judgekit"
        raise GatewayError(
            FailureKind.NOT_LOADED, short_line(problem, 300), usage=Usage()
        ) from None
    try:
        # What restores the environment of a process, as tests do, takes them away.
        os.environ.update(_ENVIRONMENT)
        with servers.bounded(), _without_bookkeeping(litellm, endpoint):
            if isinstance(profile, DecisionsProfile):
                reply = await _decide(litellm, endpoint, profile, request, end)
            else:
                arguments = _arguments(endpoint, profile, request, style, end)
                response = await litellm.acompletion(**arguments)
                reply = reply_of(response, endpoint, request, style)
            _refuse_cut_prompt(reply, request)
    except Exception as error:  # noqa: BLE001 - the boundary: whatever litellm raises becomes a failure
        failure = classify_exception(error, secret_values(endpoint))
    else:
        pace.went_well()
        return reply
    if failure.kind is FailureKind.RATE_LIMIT:
        pace.was_too_much(failure.retry_after)
    elif failure.kind is FailureKind.OVERLOADED:
        pace.pause(failure.retry_after, FailureKind.OVERLOADED)
    elif _PAGE.search(failure.message) and await _address_beside(endpoint, end):
        failure.kind = FailureKind.NOT_FOUND
    if failure.kind is FailureKind.NOT_FOUND:
        failure.message = await _what_is_missing(endpoint, profile, failure.message, end)
    raise failure


def _check_key(endpoint: Endpoint) -> None:
    """Raise `GatewayError` for a key that no header can carry, before anything is sent."""
    for place, char in enumerate(endpoint.api_key or "", 1):
        if not "!" <= char <= "~":
            variables = " or ".join(getattr(endpoint.profile, "key", ())) or "its variable"
            problem = (
                f"the key in {variables} has U+{ord(char):04X} at place {place}, which no key has"
            )
            raise GatewayError(
                FailureKind.AUTHENTICATION, f"{problem}; copy it again", usage=Usage()
            )


def _refuse_cut_prompt(reply: Reply, request: Request) -> None:
    """Raise `GatewayError` if a server says that it read far less than was sent: it cut the text in silence.

    A small count or none proves nothing: some servers don't count what they have in a cache.
    """
    usage = reply.usage
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    tokens = usage.input_tokens
    if cached > tokens:  # they are counted apart
        tokens += cached
    if tokens < _LEAST_COUNT:
        return
    sent = "\n".join(message.content for message in request.messages)
    most = tokens * _MOST_CHARS_PER_TOKEN
    if len(sent) * _WEIGHT_OF_DENSE <= most:
        return
    shortened = _RUN.sub(r"\1", sent)  # of blanks and rules a single token has many
    dense = 0 if shortened.isascii() else len(_DENSE.findall(shortened))
    if len(shortened) + dense * (_WEIGHT_OF_DENSE - 1) <= most:
        return
    problem = (
        f"the server read {tokens:,} tokens of {len(sent):,} characters, so it cut the text: its context "
        f"has about {tokens:,} tokens; give it a larger one (Ollama: num_ctx; llama.cpp: --ctx-size), or set "
        "limits.context_chars in its profile"
    )
    raise GatewayError(FailureKind.CONTEXT_WINDOW, problem, usage=usage)


async def _decide(
    litellm: Any,  # noqa: ANN401 - a module that is not typed strictly
    endpoint: Endpoint,
    profile: DecisionsProfile,
    request: Request,
    end: float,
) -> Reply:
    """Return a decision model's answers as the text of a reply; raises whatever litellm does.

    They are read from the body: litellm goes by the order of answers, whatever questions they name, and puts
    zeros where there is none.
    """
    bodies: list[bytes] = []
    try:
        with servers.kept_bodies(bodies):
            await litellm.adecisions(
                **_transport_arguments(endpoint, profile, end),
                input="\n\n".join(message.content for message in request.messages),
                questions=decisions.sent_questions(request.questions),
            )
    except Exception:
        # It takes bodies in one form only; what stands there may be an answer in another one.
        if not bodies:
            raise
    if not bodies:
        raise GatewayError(FailureKind.INVALID_REPLY, "the reply has no body", usage=Usage())
    said = decision_bodies.read_body(bodies[-1], request.questions)
    return Reply(
        text=decisions.write_answers(said.answers),
        model=said.model or endpoint.model,
        usage=_usage_of_decisions(said, endpoint, profile),
    )


def _usage_of_decisions(
    said: decision_bodies.DecisionReply, endpoint: Endpoint, profile: DecisionsProfile
) -> Usage:
    """Return the tokens that a decision model read, and what they cost: as it says, or by a table."""
    tokens = said.input_tokens
    if endpoint.price is None and profile.states_cost and said.cost_usd is not None:
        return Usage(tokens, 0, said.cost_usd, "provider")
    cost = cost_of(endpoint, tokens, 0)
    if cost is None or not tokens:
        return Usage(tokens, 0).of_call()
    return Usage(tokens, 0, cost, "litellm" if endpoint.price is None else "profile")


async def _address_beside(endpoint: Endpoint, end: float) -> str | None:
    """Return the address with an interface, where the one that is configured lists no models and has none."""
    seconds = min(_LOOK_SECONDS, end - time.monotonic())
    if await servers.offered(endpoint, seconds):
        return None
    return await servers.address_beside(endpoint, seconds)


async def _what_is_missing(endpoint: Endpoint, profile: ApiProfile, words: str, end: float) -> str:
    """Say what an address does not have: the model, or an interface at that place; with what to do."""
    where = endpoint.api_base or profile.title
    bare = endpoint.model.removeprefix(profile.prefix)
    names = await servers.offered(endpoint, min(_LOOK_SECONDS, end - time.monotonic()))
    if names and bare not in names:
        if len(names) > servers.SHOWN:
            more = f" and {len(names) - servers.SHOWN} more"
        else:
            more = ""
        offers = f"it offers {', '.join(names[: servers.SHOWN])}{more}"
        return f"{where} has no model {endpoint.model}; {offers}"
    if names or not endpoint.api_base:
        return f"{where}: {words}"
    variable = next(iter(profile.address_variables), "the address")
    if right := await _address_beside(endpoint, end):
        return f"{where} has no chat interface ({words}), {right} has: set {variable} to {right}"
    if bare in words or "model" in words.lower():
        return f"{where} has no model {endpoint.model}; name another in the configuration ({words})"
    ends = f"{variable} ends where {chat.PATH} begins, most often with /v1"
    return f"{where} has no chat interface ({words}); {ends}"


def _transport_arguments(endpoint: Endpoint, profile: ApiProfile, end: float) -> dict[str, Any]:
    """Return litellm's arguments for who is asked, where and for how long."""
    bare = endpoint.model.removeprefix(profile.prefix)
    if profile.client:
        model = f"{profile.client}/{bare}"
    else:
        model = endpoint.model
    return {
        # A timeout of litellm's is one for each read, never the deadline; it only lets go of a dead socket.
        "timeout": max(0.1, end - time.monotonic()),
        "drop_params": True,
        "num_retries": 0,
        "max_retries": 0,
        # Given even when empty, or litellm would look for the key of whomever the model's name suggests.
        "api_key": endpoint.api_key,
        "api_base": endpoint.api_base,
        **endpoint.parameters,
        "model": model,
    }


def _arguments(
    endpoint: Endpoint, profile: LitellmProfile, request: Request, style: CallStyle, end: float
) -> dict[str, Any]:
    messages = []
    told = with_schema(request.messages, request.schema, style.mode)
    for message in told if style.system else without_system(told):
        content: Any = message.content
        if profile.prompt_caching and 0 < message.stable < len(content):  # what many prompts share
            cut = message.stable
            shared = {"type": "text", "text": content[:cut]}
            shared["cache_control"] = {"type": "ephemeral"}
            content = [shared, {"type": "text", "text": content[cut:]}]
        messages.append({"role": message.role, "content": content})
    limit = style.reply_tokens(endpoint, request)
    arguments = {
        **_transport_arguments(endpoint, profile, end),
        # With tools, litellm would import a package for tool servers that is not among its requirements.
        "_skip_mcp_handler": True,
        "messages": messages,
        **profile.of_model(profile.arguments, endpoint.model, {}),
    }
    schema = deepcopy(request.schema)  # a client makes it what its provider takes, in place
    if schema is not None and style.mode == "json_object":
        arguments["response_format"] = {"type": "json_object"}
    elif schema is not None and style.mode == "json_schema":
        form = {"name": SCHEMA_NAME, "strict": True, "schema": schema}
        arguments["response_format"] = {"type": "json_schema", "json_schema": form}
    elif schema is not None and style.mode == "tool":
        function = {"name": SCHEMA_NAME, "description": "Give your answer.", "parameters": schema}
        arguments["tools"] = [{"type": "function", "function": function}]
        arguments["tool_choice"] = {"type": "function", "function": {"name": SCHEMA_NAME}}
    if style.max_tokens == NEWER_LIMIT:
        # In the body as it is: the client would rename it to what the address has just rejected.
        arguments["extra_body"] = {**arguments.get("extra_body", {}), NEWER_LIMIT: limit}
    else:
        arguments["max_tokens"] = limit
    if request.top_logprobs and (style.logprobs or request.schema is None):
        arguments |= {"logprobs": True, "top_logprobs": request.top_logprobs}
    if style.temperature:  # dropped by litellm for models that are known to refuse it
        arguments["temperature"] = int(request.sample > 0)
    return arguments


def reply_of(response: Any, endpoint: Endpoint, request: Request, style: CallStyle) -> Reply:  # noqa: ANN401 - litellm's object, as its version shapes it
    """Return the reply; raises `GatewayError` with the cost of a refused, filtered, cut or empty one."""
    usage = _usage(response, endpoint)
    choices = getattr(response, "choices", None) or []
    if not choices:
        raise GatewayError(FailureKind.INVALID_REPLY, "the reply has no choices", usage=usage)
    choice = choices[0]
    message = choices[0].message
    content = getattr(message, "content", None)
    if isinstance(content, str) and content.strip():
        text = content
    else:
        text = ""
    thoughts = _thoughts(response, message, text)
    _refuse_ending(choice, text, usage)
    called, other = _called(message)
    # A call that is answered in probabilities wants the first token only, and is cut on purpose.
    if _is_cut(choice) and (request.schema is not None or not request.top_logprobs):
        is_thinking = thoughts or not (text or called)
        raise _cut(endpoint, request, style, usage, is_thinking=is_thinking)
    schema_enforced = style.mode == "json_schema" and _is_object(text)
    if called and (style.mode == "tool" or not text):
        text = called
        schema_enforced = style.mode == "tool"
    if not text and getattr(endpoint.profile, "reads_reasoning", False):
        text = str(getattr(message, "reasoning_content", None) or "")
    logprobs, tokens = _logprobs(choice, request)
    if not text and (request.schema is not None or not logprobs):
        raise _empty(endpoint, usage, other, is_thinking=thoughts)
    model = getattr(response, "model", None) or endpoint.model
    return Reply(
        text, model, usage, logprobs, tokens, schema_enforced and request.schema is not None
    )


def _refuse_ending(choice: Any, text: str, usage: Usage) -> None:  # noqa: ANN401 - litellm's object
    """Raise `GatewayError` where a reply ended in an error, a filter or a refusal."""
    message = choice.message
    reason = getattr(choice, "finish_reason", None)
    native = getattr(choice, "provider_specific_fields", None) or {}
    if native.get("error"):
        failure = stated_failure(native["error"])
        failure.usage = usage
        raise failure
    fields = getattr(message, "provider_specific_fields", None) or {}
    refusal = getattr(message, "refusal", None) or fields.get("refusal")
    stated = native.get("native_finish_reason")
    kind = ending(stated if isinstance(stated, str) else reason)
    if (refusal and not text) or kind is FailureKind.REFUSAL:
        words = " ".join(str(refusal or "").split())[:200]
        problem = f"the model refused: {words}" if words else "the model refused to answer"
        raise GatewayError(FailureKind.REFUSAL, problem, usage=usage)
    if reason == "content_filter" or kind is FailureKind.CONTENT_FILTER:
        if isinstance(stated, str):
            why = f" ({short_line(stated, MAX_REASON)})"
        else:
            why = ""
        problem = f"the provider's content filter stopped the reply{why}"
        raise GatewayError(FailureKind.CONTENT_FILTER, problem, usage=usage)
    if kind in (FailureKind.OVERLOADED, FailureKind.SERVER_ERROR):
        problem = f"the provider ended the reply: {short_line(str(stated or reason), MAX_REASON)}"
        raise GatewayError(kind, problem, usage=usage)


def _is_cut(choice: Any) -> bool:  # noqa: ANN401 - litellm's object
    native = getattr(choice, "provider_specific_fields", None) or {}
    stated = native.get("native_finish_reason")
    is_stated = isinstance(stated, str) and ending(stated) is FailureKind.TRUNCATED
    return is_stated or getattr(choice, "finish_reason", None) == "length"


def _thoughts(response: Any, message: Any, text: str) -> bool:  # noqa: ANN401 - litellm's objects
    """Whether a model spent tokens on thoughts, which a reply shows or counts."""
    details = getattr(getattr(response, "usage", None), "completion_tokens_details", None)
    fields = getattr(message, "provider_specific_fields", None) or {}
    shown = getattr(message, "reasoning_content", None) or fields.get("reasoning")
    is_open = text.lstrip().startswith("<think>") and "</think>" not in text
    # Some send empty thoughts where a model is told not to think.
    is_shown = bool(str(shown or "").strip())
    return bool(getattr(details, "reasoning_tokens", None)) or is_shown or is_open


def _called(message: Any) -> tuple[str, str]:  # noqa: ANN401 - litellm's object
    """Return the arguments of the calls of our tool, and the name of another one that was called."""
    functions = [
        getattr(call, "function", None) for call in getattr(message, "tool_calls", None) or []
    ]
    functions.append(getattr(message, "function_call", None))
    called = []
    other = ""
    for function in functions:
        if function is None:
            continue
        if function.name == SCHEMA_NAME:
            called.append(str(function.arguments or ""))
        else:
            other = str(function.name)
    return "\n".join(filter(None, called)), other


def _cut(
    endpoint: Endpoint, request: Request, style: CallStyle, usage: Usage, *, is_thinking: bool
) -> GatewayError:
    """Return the failure of a reply that was cut, with the number of tokens that it could have."""
    most = style.reply_tokens(endpoint, request)
    thinking = style.thinking_tokens(endpoint)
    problem = f"the reply was cut at {most} tokens"
    if thinking:
        problem += f" ({thinking} of them for thinking)"
    if style.room is not None and most == style.room:
        problem += ", which is all that the model's context leaves beside the prompt"
    elif style.most_tokens is not None and most == style.most_tokens:
        problem += ", the most that the model writes"
    elif is_thinking or thinking:
        problem += f"; {_how_to_add(endpoint)}"
    failure = GatewayError(FailureKind.TRUNCATED, problem, usage=usage)
    failure.objections = frozenset({"thinking"} if is_thinking else ())
    return failure


def _empty(endpoint: Endpoint, usage: Usage, other: str, *, is_thinking: bool) -> GatewayError:
    """Return the failure of a reply without an answer."""
    problem = "the reply is empty"
    if other:
        problem = (
            f"the model called another tool ({short_line(other, MAX_REASON)}) and gave no answer"
        )
    elif is_thinking:
        problem = f"the model thought and gave no answer; {_how_to_add(endpoint)}"
        if not getattr(endpoint.profile, "reads_reasoning", False):
            problem += (
                ", or set reads_reasoning: true there if its answers stand among its thoughts"
            )
    failure = GatewayError(FailureKind.INVALID_REPLY, problem, usage=usage)
    failure.objections = frozenset({"thinking"} if is_thinking else ())
    return failure


def _how_to_add(endpoint: Endpoint) -> str:
    name = endpoint.profile.provider
    file = f"providers/{name}.yaml in your configuration folder"
    return f"raise limits.thinking_tokens in the profile of {name} ({file})"


def _logprobs(
    choice: Any,  # noqa: ANN401 - litellm's object
    request: Request,
) -> tuple[tuple[dict[str, float], ...], tuple[str, ...]]:
    """Return likely alternatives of each token, and the tokens; nothing where they are of another shape."""
    content = getattr(getattr(choice, "logprobs", None), "content", None) or []
    least = -math.inf if request.schema is None else _LEAST_LOGPROB
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    alternatives = []
    try:
        for token in content:
            likely = {}
            for other in (*(token.top_logprobs or ()), token):
                is_likely = other is token or other.logprob >= least
                if math.isfinite(other.logprob) and is_likely:
                    likely[other.token] = float(other.logprob)
            alternatives.append(likely)
        if all(isinstance(getattr(token, "bytes", None), list) for token in content):
            tokens = [decoder.decode(bytes(token.bytes)) for token in content]
        else:
            tokens = [str(token.token) for token in content]
        return tuple(alternatives), tuple(tokens)
    except (AttributeError, TypeError, ValueError):
        return (), ()


def _count(usage: object, name: str) -> int:
    return chat.count_in(getattr(usage, name, 0)) or 0


def _usage(response: Any, endpoint: Endpoint) -> Usage:  # noqa: ANN401 - litellm's object
    """Return the tokens of a call and its cost: by the profile, the reply, or litellm's table, else none."""
    usage = getattr(response, "usage", None)
    hidden = getattr(response, "_hidden_params", None) or {}
    details = getattr(usage, "prompt_tokens_details", None)
    read = _count(usage, "prompt_tokens")
    written = _count(usage, "completion_tokens")
    cached = _count(details, "cached_tokens")
    stored = _count(details, "cache_creation_tokens")
    if endpoint.price is not None:
        cost = endpoint.price.of(read, written, cached, stored)
        return Usage(read, written, cost, "profile", cached, stored)
    stated = (hidden.get("additional_headers") or {}).get("llm_provider-x-litellm-response-cost")
    source: CostSource = "provider"
    usd = _amount(stated)
    if usd is None:
        source = "litellm"
        usd = _amount(hidden.get("response_cost"))
    if usd is None:
        usd = _amount(_price_by_table(endpoint, usage))
    if usd is None:
        return Usage(read, written, None, None, cached, stored).of_call()
    return Usage(read, written, usd, source, cached, stored)


def _amount(price: Any) -> float | None:  # noqa: ANN401 - whatever a header or litellm says
    """Return a price as a number; None if it's no amount of money."""
    with suppress(TypeError, ValueError):
        usd = float(price)
        if math.isfinite(usd) and usd >= 0:
            return usd
    return None


def _price_by_table(endpoint: Endpoint, usage: Any) -> float | None:  # noqa: ANN401 - litellm's object
    """Price a call by litellm's table, if the table has the model's name as it is."""
    with suppress(Exception):  # whatever litellm raises
        if endpoint.model in load().model_cost and usage is not None:
            return float(sum(load().cost_per_token(model=endpoint.model, usage_object=usage)))
    return None
