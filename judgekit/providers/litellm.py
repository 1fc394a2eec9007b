"""Reaches models through litellm. The only module that imports it, and only when a model is called.

Sends, retries and simplifies requests, and reads the reply from litellm's response object.
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

    from judgekit.providers.base import Endpoint, Message, Request
    from judgekit.providers.registry import OutputMode

ATTEMPTS = 3
_PAUSES = (0.5, 1.0)  # seconds between tries, unless the provider asks for another pause
_PAGE = re.compile(r"Original Response: \s*<(?:!doctype|html)", re.IGNORECASE)  # an HTML page
_LOOK_SECONDS = 2.0  # to look for an address's models when something is missing
_LEAST_COUNT = 1_000  # below it, a server's token count proves nothing
_MOST_CHARS_PER_TOKEN = 8  # English has 4 to 5; code and other scripts have fewer
# Chinese, Japanese and Korean need a token for every one or two characters.
_WEIGHT_OF_DENSE = 2.5
_DENSE = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")
_RUN = re.compile(r"(.)\1{3,}", re.DOTALL)
SCHEMA_NAME = "opinion"
MAX_REASON = 60  # characters of a provider's own word for an outcome
_SHARE_OF_PROXY = 0.25  # of a call's time, to ask a proxy if its model thinks
_MOST_SAID = 64_000  # characters of a litellm error
_LEAST_LOGPROB = -7.0  # 1 in 1,000: less likely alternatives of a whole reply are dropped
_ENVIRONMENT = {
    # Without these, litellm fetches a price list on import and beta headers on the first Anthropic
    # call, and reads .env files in the parent folders.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_MODE": "PRODUCTION",
}


# Whether anything reads the price that litellm computes for the current task's call.
_reads_price: ContextVar[bool] = ContextVar("reads_price", default=True)
# Where a program that also uses litellm registers its callbacks.
_LISTENERS = (
    *("callbacks", "input_callback", "success_callback", "failure_callback"),
    *("_async_input_callback", "_async_success_callback", "_async_failure_callback"),
)


class _Litellm:
    """Whether this process has litellm set up yet, with a lock for the thread that does it."""

    def __init__(self) -> None:
        self.module: Any = None
        self.lock = threading.RLock()


_litellm = PerProcess(_Litellm)
_imported: list[Any] = []  # the module; a forked process inherits it
_inherited: list[object] = []  # the parent's connections, which only the parent may close


async def loaded() -> Any:  # noqa: ANN401 - a module that is not typed strictly
    """Import litellm in a thread if need be, and return the module.

    The import takes seconds. In a thread, it doesn't block the event loop, so deadlines hold meanwhile.
    """
    module = _litellm.get().module
    if module is None:
        module = await running.run_in_thread(load)
    return module


def load() -> Any:  # noqa: ANN401 - a module that is not typed strictly
    """Import litellm if this process hasn't, and return the module."""
    process_state = _litellm.get()
    if process_state.module is not None:
        return process_state.module
    with process_state.lock:
        if process_state.module is None:  # another thread may have imported it meanwhile
            if _imported:  # the process that this one was forked from had imported it
                _leave_connections(_imported[0])
            else:
                _imported.append(_import_quietly())
            process_state.module = _imported[0]
        return process_state.module


def _leave_connections(litellm: Any) -> None:  # noqa: ANN401 - a module that is not typed strictly
    """Give a forked process a new cache of connections.

    The parent's connections stay referenced, so that they aren't closed here.
    """
    _inherited.append(litellm.in_memory_llm_clients_cache)
    litellm.in_memory_llm_clients_cache = type(litellm.in_memory_llm_clients_cache)()


def _import_quietly() -> Any:  # noqa: ANN401 - a module that is not typed strictly
    """Import litellm and change its settings."""
    _refuse_half_import()
    os.environ.update(_ENVIRONMENT)
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        litellm = import_whole("litellm", _import_litellm)
    finally:
        gc.freeze()  # the imported objects stay, so the collector needn't visit them
        if was_collecting:
            gc.enable()
    _change_settings(litellm)
    running.closing.append(vars(litellm)["close_litellm_async_clients"])
    # Run `running.end` before litellm's own clean-up: atexit calls first what was registered last.
    atexit.unregister(running.end)
    atexit.register(running.end)
    return litellm


def _refuse_half_import() -> None:
    """Raise `ImportError` if another thread was importing litellm when this process was forked.

    That thread doesn't exist in this process, so Python would wait forever for it to finish.
    """
    spec = getattr(sys.modules.get("litellm"), "__spec__", None)
    if was_forked() and getattr(spec, "_initializing", False):
        raise ImportError(
            "forked while another thread imported it; import judgekit.api before forking"
        )


def _change_settings(litellm: Any) -> None:  # noqa: ANN401 - a module that is not typed strictly
    """Let litellm print and log nothing, not report its use, and not search long errors for secrets.

    It also computes only prices that are read, and limits servers' replies.
    """
    litellm.suppress_debug_info = True
    litellm.telemetry = False
    # litellm creates a call's coroutine in a thread. If the call is cancelled meanwhile, the coroutine is
    # never awaited, and Python would warn of that.
    warnings.filterwarnings(
        "ignore", r"coroutine '.*completion\w*' was never awaited", category=RuntimeWarning
    )
    vars(litellm.main)["encoding"] = _Tokenizer()
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [logging.NullHandler()]
        logger.propagate = False
    from litellm.litellm_core_utils import secret_redaction  # noqa: PLC0415 - seconds of CPU
    from litellm.llms.custom_httpx import aiohttp_transport  # noqa: PLC0415 - seconds of CPU

    # litellm scans an error's text for secrets. The text may hold a whole reply: seconds per
    # megabyte.
    redact = secret_redaction.python_redact_string
    secret_redaction.python_redact_string = lambda value: redact(value[:_MOST_SAID])
    calculate_price = litellm.response_cost_calculator
    vars(litellm)["response_cost_calculator"] = partial(_calculate_read_price, calculate_price)
    servers.bound(aiohttp_transport.LiteLLMAiohttpTransport)


def _import_litellm() -> Any:  # noqa: ANN401 - a module that is not typed strictly
    import litellm  # noqa: PLC0415 - seconds of CPU

    litellm.ModelResponse()  # builds pydantic's models now, with their warnings
    return litellm


def _calculate_read_price(calculate: Callable[..., Any], **call: Any) -> Any:  # noqa: ANN401 - as litellm has them
    """Compute a reply's price with litellm's `calculate`; None if nothing reads the current task's prices.

    Computing a price takes half as long as the rest of a call.
    """
    if not _reads_price.get():
        return None
    return calculate(**call)


@contextmanager
def _skip_bookkeeping(litellm: Any, endpoint: Endpoint) -> Iterator[None]:  # noqa: ANN401 - a module that is not typed strictly
    """Let litellm skip a call's price and log record, inside the `with` block, if nothing reads them."""
    from litellm._internal_context import is_internal_call  # noqa: PLC0415 - seconds of CPU

    has_listener = bool(litellm.max_budget)
    for name in _LISTENERS:
        listeners = getattr(litellm, name, None) or ()
        # litellm's own cache registers itself as "cache". It only reads streams, which we don't ask for.
        has_listener |= any(listener != "cache" for listener in listeners)
    reads_price = endpoint.price is None and not endpoint.decides
    price_token = _reads_price.set(reads_price or has_listener)
    # litellm marks its nested calls like this: the outer call logs them.
    log_token = is_internal_call.set(is_internal_call.get() or not has_listener)
    try:
        yield
    finally:
        is_internal_call.reset(log_token)
        _reads_price.reset(price_token)


class _Tokenizer:
    """Stands in for every client's tokenizer (40 MB) until one counts tokens that no provider counted."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a tokenizer has
        return getattr(load().main.__getattr__("encoding"), name)


def price_of(model: str, read: int, written: int) -> float | None:
    """Compute the cost in US dollars of `read` and `written` tokens by litellm's table of prices.

    None if the table has no price for the model.
    """
    try:
        prompt_usd, reply_usd = load().cost_per_token(
            model=model, prompt_tokens=read, completion_tokens=written
        )
        return float(prompt_usd + reply_usd)
    except Exception:  # noqa: BLE001 - litellm raises one of many if it has no price
        return None


def cost_of(endpoint: Endpoint, read: int, written: int) -> float | None:
    """Compute the cost in US dollars of a prompt of `read` and a reply of `written` tokens.

    It's by the profile's price or else by litellm's table; None if neither has a price.
    """
    if endpoint.price is not None:
        return endpoint.price.of(read, written)
    profile = endpoint.profile
    if not isinstance(profile, DecisionsProfile):
        return price_of(endpoint.model, read, written)
    price = _find_price_of_decisions(endpoint, profile)
    return None if price is None else price * read


def _find_price_of_decisions(endpoint: Endpoint, profile: DecisionsProfile) -> float | None:
    """Look up a decision model's price of a prompt's token in litellm's table; None if there's none."""
    bare_name = endpoint.model.removeprefix(profile.prefix)
    table: dict[str, dict[str, Any]] = load().model_cost
    entry = table.get(f"{profile.client}/{bare_name}") or table.get(endpoint.model) or {}
    if not entry and profile.client == "openai":
        entry = table.get(bare_name, {})
    price = None
    if entry.get("mode") != "chat":  # a model's price for chats doesn't apply to its decisions
        price = entry.get("input_cost_per_token")
    price = entry.get("input_cost_per_token_decisions", price)
    return None if price is None else float(price)


@dataclass(eq=False)
class LitellmGateway:
    _paces: Paces = field(default_factory=Paces)

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        return await self._paces.call(
            endpoint, request, partial(self._ask_adapting_style, endpoint, request)
        )

    async def aclose(self) -> None:
        """Do nothing: other callers share the connections until the process ends."""

    async def _ask_adapting_style(
        self, endpoint: Endpoint, request: Request, turn: Turn, end: float
    ) -> Reply:
        """Ask a model in the style that's known to work for it, and return its reply.

        If a failure shows that the model refuses something in the style, ask again in a changed style, and
        remember the change. A reply that doesn't have the requested form once leads to the same question
        again. The reply's usage, or the failure's, includes that of the failed calls.
        """
        if endpoint.decides:  # there's only one style for a decision model
            return await self._ask_with_retries(
                endpoint, request, CallStyle(endpoint.output), turn, end
            )
        style = await _choose_style(endpoint, end)
        failed_usage = Usage()  # by failed calls
        was_repeated = False
        changes = 0
        while True:
            try:
                reply = await self._ask_with_retries(endpoint, request, style, turn, end)
                break
            except GatewayError as failure:
                is_cut = "thinking" in failure.objections  # thinking used up the reply's tokens
                is_unfit = "unfit" in failure.objections and not is_cut
                if is_unfit and not was_repeated:
                    was_repeated = True  # one bad reply doesn't prove that the model can't do it
                    failed_usage = failed_usage.plus(usage_of_failed_call(failure))
                    continue
                next_style = style.adapted(failure, endpoint, request)
                if next_style is None or changes == MOST_CHANGES:
                    if failed_usage != Usage():
                        failure.usage = failed_usage.plus(usage_of_failed_call(failure))
                    raise
                failed_usage = failed_usage.plus(usage_of_failed_call(failure))
            _remember_changes(endpoint, style, next_style)
            style = next_style
            changes += 1
        if failed_usage != Usage():
            reply = replace(reply, usage=failed_usage.plus(reply.usage))
        if request.schema is None:
            return reply
        return _check_format(reply, endpoint, style)

    async def _ask_with_retries(
        self, endpoint: Endpoint, request: Request, style: CallStyle, turn: Turn, end: float
    ) -> Reply:
        """Ask a model in a style, each time when it's our turn; retry temporary failures until the `end`."""

        async def ask() -> Reply:
            async with turn():
                return await call(endpoint, request, style, end, self._paces.of(endpoint))

        tries = retrying.Tries(ATTEMPTS, _PAUSES)
        return await retrying.call(ask, tries, passes=_is_temporary, seconds=end - time.monotonic())


def _is_temporary(failure: Exception, _: int) -> bool:
    return isinstance(failure, GatewayError) and failure.kind.retryable


async def _choose_style(endpoint: Endpoint, end: float) -> CallStyle:
    """Choose the style for a model: the one remembered for it, or else the default style.

    If a LiteLLM proxy says that the model thinks, the style has tokens for that. The proxy is only asked if
    neither the profile nor the style says anything about thinking.
    """
    style = _recall_style(endpoint)
    is_fixed = endpoint.profile.limits.thinking_tokens is not None
    is_known = is_fixed or style.thinking_tokens(endpoint) > 0
    if is_known or not proxies.may_be_proxy(endpoint):
        return style
    is_thinking = proxies.thinks_as_said(endpoint)
    if is_thinking is None:
        # Most of the call's time is for the model.
        seconds = (end - time.monotonic()) * _SHARE_OF_PROXY
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                is_thinking = await running.run_in_thread(partial(proxies.thinks, endpoint))
    if is_thinking:
        return style._replace(thinking=THINKING_TOKENS)
    return style


def _recall_style(endpoint: Endpoint) -> CallStyle:
    """Return the style remembered for a model, or else the default one."""
    return remembered.find(endpoint) or CallStyle(endpoint.output)


def _remember_changes(endpoint: Endpoint, old_style: CallStyle, new_style: CallStyle) -> None:
    """Remember for a model the changes from one style to another.

    They're merged into the remembered style, which other calls may have changed meanwhile.
    """
    old_values = old_style._asdict()
    changes = {}
    for name, value in new_style.lasting()._asdict().items():
        if value != old_values[name]:
            changes[name] = value
    changes.pop("room", None)  # the room beside one prompt says nothing about the next
    remembered_style = _recall_style(endpoint)
    merged_style = remembered_style._replace(**changes)
    if merged_style != remembered_style:
        remembered.keep(endpoint, merged_style)


def _remember_weaker_format(endpoint: Endpoint, style: CallStyle) -> None:
    """Remember that a model ignores a style's way of demanding a format.

    From now on the model is asked in the next weaker way. Nothing changes if the remembered way isn't the
    style's any more, or if there's no weaker one.
    """
    remembered_style = _recall_style(endpoint)
    is_still_used = remembered_style.mode == style.mode
    if is_still_used and style.mode in WEAKER:
        remembered.keep(endpoint, remembered_style._replace(mode=WEAKER[style.mode]))


def _check_format(reply: Reply, endpoint: Endpoint, style: CallStyle) -> Reply:
    """Ask for the format in a weaker way from now on if a reply doesn't have it.

    Returns the reply, so that its reader can do the same (`distrust`) if the reply doesn't fit its schema.
    """
    distrust = partial(_remember_weaker_format, endpoint, style)
    if not _is_heeded(reply, style.mode):
        distrust()
    if reply.schema_enforced and style.mode == "json_schema":
        return replace(reply, distrust=distrust)
    return reply


def _is_heeded(reply: Reply, mode: OutputMode) -> bool:
    """Whether a reply has the form that was demanded by `mode`; plain text always has."""
    if mode in ("json_schema", "tool"):
        return reply.schema_enforced
    return mode == "text" or _is_object(reply.text)


def _is_object(text: str) -> bool:
    """Whether a reply starts like a JSON object.

    Thoughts in `<think>` and the first line of a code block may come before it.
    """
    if text.lstrip().startswith("<think>"):
        _, _, text = text.partition("</think>")
    text = text.strip("\ufeff \t\r\n")  # U+FEFF: a byte order mark
    if text.startswith("```"):
        _, _, code = text.partition("\n")
        text = code.lstrip()
    return text.startswith("{")


async def call(
    endpoint: Endpoint, request: Request, style: CallStyle, end: float, pace: Pace
) -> Reply:
    """Make one call in a `style`, and return its reply; raises `GatewayError`.

    `end` is the deadline on the monotonic clock. The `pace` learns how the call went.
    """
    profile = endpoint.profile
    if not isinstance(profile, LitellmProfile | DecisionsProfile):
        raise GatewayError(FailureKind.BAD_REQUEST, f"{profile.provider} does not use litellm")
    if endpoint.api_key is None and not endpoint.parameters:
        raise GatewayError(
            FailureKind.AUTHENTICATION, f"no key: set {' or '.join(profile.key) or 'one'}"
        )
    _check_key(endpoint)
    litellm = await _load_for_call()
    try:
        # Code that restores the environment, as tests do, removes these.
        os.environ.update(_ENVIRONMENT)
        with servers.bounded(), _skip_bookkeeping(litellm, endpoint):
            if isinstance(profile, DecisionsProfile):
                reply = await _decide(litellm, endpoint, profile, request, end)
            else:
                arguments = _build_arguments(endpoint, profile, request, style, end)
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
    elif _PAGE.search(failure.message) and await _find_better_address(endpoint, end):
        failure.kind = FailureKind.NOT_FOUND
    if failure.kind is FailureKind.NOT_FOUND:
        failure.message = await _explain_missing(endpoint, profile, failure.message, end)
    raise failure


async def _load_for_call() -> Any:  # noqa: ANN401 - a module that is not typed strictly
    """Import litellm if need be; raises `GatewayError` if that fails."""
    try:
        return await loaded()
    except Exception as error:  # noqa: BLE001 - the boundary: whatever an import raises
        problem = f"litellm cannot be loaded ({type(error).__name__}: {error}); reinstall judgekit"
        raise GatewayError(
            FailureKind.NOT_LOADED, short_line(problem, 300), usage=Usage()
        ) from None


def _check_key(endpoint: Endpoint) -> None:
    """Raise `GatewayError` if the API key has a character that can't be in an HTTP header."""
    for position, char in enumerate(endpoint.api_key or "", 1):
        is_visible_ascii = "!" <= char <= "~"
        if not is_visible_ascii:
            variables = " or ".join(getattr(endpoint.profile, "key", ())) or "its variable"
            character = f"U+{ord(char):04X} at place {position}"
            problem = f"the key in {variables} has {character}, which no key has"
            raise GatewayError(
                FailureKind.AUTHENTICATION, f"{problem}; copy it again", usage=Usage()
            )


def _refuse_cut_prompt(reply: Reply, request: Request) -> None:
    """Raise `GatewayError` if the server evidently cut the prompt: it counts far fewer tokens than were sent.

    A count below 1,000 proves nothing, since some servers don't count cached tokens.
    """
    usage = reply.usage
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    tokens = usage.input_tokens
    if cached > tokens:  # this server doesn't include cached tokens in the input tokens
        tokens += cached
    if tokens < _LEAST_COUNT:
        return
    prompt = "\n".join(message.content for message in request.messages)
    most_chars = tokens * _MOST_CHARS_PER_TOKEN
    # A quick check that most prompts pass: they'd be whole even if all characters were dense.
    if len(prompt) * _WEIGHT_OF_DENSE <= most_chars:
        return
    shortened = _RUN.sub(r"\1", prompt)  # a long run of spaces or dashes is a single token
    dense_chars = 0 if shortened.isascii() else len(_DENSE.findall(shortened))
    weighted_chars = len(shortened) + dense_chars * (_WEIGHT_OF_DENSE - 1)
    if weighted_chars <= most_chars:
        return
    problem = (
        f"the server read {tokens:,} tokens of {len(prompt):,} characters, so it cut the text: its context "
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
    """Ask a decision model, and return a reply whose text holds its answers; raises whatever litellm does.

    The answers are read from the raw body, and not from litellm's result. litellm ignores the answers' names,
    takes them in the order of the questions, and makes zeros of missing ones.
    """
    bodies: list[bytes] = []
    try:
        with servers.kept_bodies(bodies):
            await litellm.adecisions(
                **_build_transport_arguments(endpoint, profile, end),
                input="\n\n".join(message.content for message in request.messages),
                questions=decisions.sent_questions(request.questions),
            )
    except Exception:
        # litellm can read only one form of body. If there's a body, we read it ourselves below.
        if not bodies:
            raise
    if not bodies:
        raise GatewayError(FailureKind.INVALID_REPLY, "the reply has no body", usage=Usage())
    last_body = bodies[-1]
    decision_reply = decision_bodies.read_body(last_body, request.questions)
    return Reply(
        text=decisions.write_answers(decision_reply.answers),
        model=decision_reply.model or endpoint.model,
        usage=_read_usage_of_decisions(decision_reply, endpoint, profile),
    )


def _read_usage_of_decisions(
    reply: decision_bodies.DecisionReply, endpoint: Endpoint, profile: DecisionsProfile
) -> Usage:
    """Return a decision model's tokens and their cost.

    The cost is by the profile's price, or else as the reply states it, or else by litellm's table.
    """
    tokens = reply.input_tokens
    if endpoint.price is None and profile.states_cost and reply.cost_usd is not None:
        return Usage(tokens, 0, reply.cost_usd, "provider")
    cost = cost_of(endpoint, tokens, 0)
    if cost is None or not tokens:
        return Usage(tokens, 0).of_call()
    source: CostSource = "litellm" if endpoint.price is None else "profile"
    return Usage(tokens, 0, cost, source)


async def _find_better_address(endpoint: Endpoint, end: float) -> str | None:
    """Find an address near the configured one that has an API, such as one with `/v1` added.

    None if there isn't one, or if the configured address itself lists models.
    """
    seconds = min(_LOOK_SECONDS, end - time.monotonic())
    if await servers.offered(endpoint, seconds):
        return None
    return await servers.address_beside(endpoint, seconds)


async def _explain_missing(endpoint: Endpoint, profile: ApiProfile, words: str, end: float) -> str:
    """Explain what's missing at an address, the model or the API, and how the user can fix that.

    `words` is the message of the failed call.
    """
    address = endpoint.api_base or profile.title
    bare_name = endpoint.model.removeprefix(profile.prefix)
    seconds = min(_LOOK_SECONDS, end - time.monotonic())
    offered_names = await servers.offered(endpoint, seconds)
    if offered_names and bare_name not in offered_names:
        shown_names = ", ".join(offered_names[: servers.SHOWN])
        if len(offered_names) > servers.SHOWN:
            shown_names += f" and {len(offered_names) - servers.SHOWN} more"
        return f"{address} has no model {endpoint.model}; it offers {shown_names}"
    if offered_names or not endpoint.api_base:
        return f"{address}: {words}"

    variable = next(iter(profile.address_variables), "the address")
    better_address = await _find_better_address(endpoint, end)
    if better_address:
        remedy = f"{better_address} has: set {variable} to {better_address}"
        return f"{address} has no chat interface ({words}), {remedy}"
    if bare_name in words or "model" in words.lower():
        return (
            f"{address} has no model {endpoint.model}; name another in the configuration ({words})"
        )
    hint = f"{variable} ends where {chat.PATH} begins, most often with /v1"
    return f"{address} has no chat interface ({words}); {hint}"


def _build_transport_arguments(
    endpoint: Endpoint, profile: ApiProfile, end: float
) -> dict[str, Any]:
    """Build the arguments of litellm that every call needs: model, address, key and timeout."""
    model = endpoint.model
    if profile.client:
        bare_name = endpoint.model.removeprefix(profile.prefix)
        model = f"{profile.client}/{bare_name}"
    return {
        # litellm's timeout applies to each read, so it isn't the deadline; it only drops a dead socket.
        "timeout": max(0.1, end - time.monotonic()),
        "drop_params": True,
        "num_retries": 0,
        "max_retries": 0,
        # Passed even if empty, or litellm would guess a provider from the model's name and use its key.
        "api_key": endpoint.api_key,
        "api_base": endpoint.api_base,
        **endpoint.parameters,
        "model": model,
    }


def _build_arguments(
    endpoint: Endpoint, profile: LitellmProfile, request: Request, style: CallStyle, end: float
) -> dict[str, Any]:
    """Build litellm's arguments for a chat request in a style."""
    messages = with_schema(request.messages, request.schema, style.mode)
    if not style.system:
        messages = without_system(messages)
    token_limit = style.reply_tokens(endpoint, request)
    arguments = {
        **_build_transport_arguments(endpoint, profile, end),
        # Given tools, litellm would import an MCP package that isn't among its requirements.
        "_skip_mcp_handler": True,
        "messages": [_build_message(message, profile) for message in messages],
        **profile.of_model(profile.arguments, endpoint.model, {}),
    }
    if request.schema is not None:
        arguments |= _build_schema_arguments(request.schema, style.mode)
    # `style.max_tokens` is the limit's name on the wire. The newer name goes into the raw body, since litellm
    # would rename it to `max_tokens`, which the model has rejected.
    if style.max_tokens == NEWER_LIMIT:
        arguments["extra_body"] = {**arguments.get("extra_body", {}), NEWER_LIMIT: token_limit}
    else:
        arguments["max_tokens"] = token_limit
    # The style only says that a model gives no log probabilities beside a schema.
    may_give_logprobs = style.logprobs or request.schema is None
    if request.top_logprobs and may_give_logprobs:
        arguments |= {"logprobs": True, "top_logprobs": request.top_logprobs}
    if style.temperature:  # litellm drops it for models known to refuse it
        # If one question is asked several times, the replies are meant to differ.
        is_one_of_several = request.sample > 0
        arguments["temperature"] = 1 if is_one_of_several else 0
    return arguments


def _build_message(message: Message, profile: LitellmProfile) -> dict[str, Any]:
    """Build litellm's argument for a message.

    If the profile uses prompt caching, the beginning that many prompts share is marked for the cache.
    """
    content = message.content
    if not profile.prompt_caching or not 0 < message.stable < len(content):
        return {"role": message.role, "content": content}
    shared_part = {
        "type": "text",
        "text": content[: message.stable],
        "cache_control": {"type": "ephemeral"},
    }
    own_part = {"type": "text", "text": content[message.stable :]}
    return {"role": message.role, "content": [shared_part, own_part]}


def _build_schema_arguments(schema: dict[str, Any], mode: OutputMode) -> dict[str, Any]:
    """Build litellm's arguments that demand a reply with a schema, in the way that `mode` says.

    For "text" there are none, since the prompt holds the schema.
    """
    schema = deepcopy(schema)  # clients rewrite the schema in place
    if mode == "json_object":
        return {"response_format": {"type": "json_object"}}
    if mode == "json_schema":
        form = {"name": SCHEMA_NAME, "strict": True, "schema": schema}
        return {"response_format": {"type": "json_schema", "json_schema": form}}
    if mode == "tool":
        function = {"name": SCHEMA_NAME, "description": "Give your answer.", "parameters": schema}
        return {
            "tools": [{"type": "function", "function": function}],
            "tool_choice": {"type": "function", "function": {"name": SCHEMA_NAME}},
        }
    return {}


def reply_of(response: Any, endpoint: Endpoint, request: Request, style: CallStyle) -> Reply:  # noqa: ANN401 - litellm's object, as its version shapes it
    """Read litellm's response as a reply.

    Raises `GatewayError`, with the call's usage, if the reply was refused, filtered, cut or is empty.
    """
    usage = _read_usage(response, endpoint)
    choices = getattr(response, "choices", None) or []
    if not choices:
        raise GatewayError(FailureKind.INVALID_REPLY, "the reply has no choices", usage=usage)
    choice = choices[0]
    message = choice.message
    text = ""
    content = getattr(message, "content", None)
    if isinstance(content, str) and content.strip():
        text = content
    has_thoughts = _has_thoughts(response, message, text)
    _refuse_ending(choice, text, usage)

    tool_text, other_tool = _read_calls(message)
    # A call for probabilities needs only the first token, so it's cut on purpose.
    may_be_cut = request.schema is None and request.top_logprobs > 0
    if _is_cut(choice) and not may_be_cut:
        has_answer = bool(text or tool_text)
        is_thinking = has_thoughts or not has_answer
        raise _make_cut_error(endpoint, request, style, usage, is_thinking=is_thinking)

    schema_enforced = style.mode == "json_schema" and _is_object(text)
    if tool_text and (style.mode == "tool" or not text):
        text = tool_text
        schema_enforced = style.mode == "tool"
    if not text and getattr(endpoint.profile, "reads_reasoning", False):
        text = str(getattr(message, "reasoning_content", None) or "")

    logprobs, tokens = _read_logprobs(choice, request)
    may_be_empty = request.schema is None and logprobs
    if not text and not may_be_empty:
        raise _make_empty_error(endpoint, usage, other_tool, is_thinking=has_thoughts)
    return Reply(
        text,
        model=getattr(response, "model", None) or endpoint.model,
        usage=usage,
        logprobs=logprobs,
        tokens=tokens,
        schema_enforced=schema_enforced and request.schema is not None,
    )


def _refuse_ending(choice: Any, text: str, usage: Usage) -> None:  # noqa: ANN401 - litellm's object
    """Raise `GatewayError` if a reply ended with an error, a filter or a refusal."""
    choice_fields = getattr(choice, "provider_specific_fields", None) or {}
    if choice_fields.get("error"):
        failure = stated_failure(choice_fields["error"])
        failure.usage = usage
        raise failure

    message = choice.message
    message_fields = getattr(message, "provider_specific_fields", None) or {}
    refusal = getattr(message, "refusal", None) or message_fields.get("refusal")
    reason = getattr(choice, "finish_reason", None)
    # litellm translates the provider's reason, and loses some of its meaning, so the original comes first.
    native_reason = choice_fields.get("native_finish_reason")
    kind = ending(native_reason if isinstance(native_reason, str) else reason)
    if (refusal and not text) or kind is FailureKind.REFUSAL:
        words = " ".join(str(refusal or "").split())[:200]
        problem = f"the model refused: {words}" if words else "the model refused to answer"
        raise GatewayError(FailureKind.REFUSAL, problem, usage=usage)
    if reason == "content_filter" or kind is FailureKind.CONTENT_FILTER:
        problem = "the provider's content filter stopped the reply"
        if isinstance(native_reason, str):
            problem += f" ({short_line(native_reason, MAX_REASON)})"
        raise GatewayError(FailureKind.CONTENT_FILTER, problem, usage=usage)
    if kind in (FailureKind.OVERLOADED, FailureKind.SERVER_ERROR):
        shown_reason = short_line(str(native_reason or reason), MAX_REASON)
        problem = f"the provider ended the reply: {shown_reason}"
        raise GatewayError(kind, problem, usage=usage)


def _is_cut(choice: Any) -> bool:  # noqa: ANN401 - litellm's object
    """Whether a reply ended because it reached a limit of tokens."""
    if getattr(choice, "finish_reason", None) == "length":
        return True
    fields = getattr(choice, "provider_specific_fields", None) or {}
    native_reason = fields.get("native_finish_reason")
    return isinstance(native_reason, str) and ending(native_reason) is FailureKind.TRUNCATED


def _has_thoughts(response: Any, message: Any, text: str) -> bool:  # noqa: ANN401 - litellm's objects
    """Whether a model wrote thoughts, as the reply's counts of tokens or its texts show."""
    usage = getattr(response, "usage", None)
    details = getattr(usage, "completion_tokens_details", None)
    if getattr(details, "reasoning_tokens", None):
        return True
    fields = getattr(message, "provider_specific_fields", None) or {}
    thoughts = getattr(message, "reasoning_content", None) or fields.get("reasoning")
    if str(thoughts or "").strip():  # some servers send empty thoughts when told not to think
        return True
    # A text that begins with a thought and doesn't end it was cut in the middle of the thought.
    return text.lstrip().startswith("<think>") and "</think>" not in text


def _read_calls(message: Any) -> tuple[str, str]:  # noqa: ANN401 - litellm's object
    """Return the arguments with which our tool was called, and the name of another tool that was called.

    Either is "" if there was no such call. A model may call our tool several times: then the arguments are
    joined, one call a line.
    """
    functions = []
    for call in getattr(message, "tool_calls", None) or []:
        functions.append(getattr(call, "function", None))
    functions.append(getattr(message, "function_call", None))
    arguments = []
    other_tool = ""
    for function in functions:
        if function is None:
            continue
        if function.name != SCHEMA_NAME:
            other_tool = str(function.name)
        elif function.arguments:
            arguments.append(str(function.arguments))
    return "\n".join(arguments), other_tool


def _make_cut_error(
    endpoint: Endpoint, request: Request, style: CallStyle, usage: Usage, *, is_thinking: bool
) -> GatewayError:
    """Build the failure for a reply that was cut at its limit of tokens, and explain the limit."""
    reply_limit = style.reply_tokens(endpoint, request)
    thinking_tokens = style.thinking_tokens(endpoint)
    problem = f"the reply was cut at {reply_limit} tokens"
    if thinking_tokens:
        problem += f" ({thinking_tokens} of them for thinking)"
    if style.room is not None and reply_limit == style.room:
        problem += ", which is all that the model's context leaves beside the prompt"
    elif style.most_tokens is not None and reply_limit == style.most_tokens:
        problem += ", the most that the model writes"
    elif is_thinking or thinking_tokens:
        problem += f"; {_suggest_more_thinking(endpoint)}"
    failure = GatewayError(FailureKind.TRUNCATED, problem, usage=usage)
    failure.objections = frozenset({"thinking"} if is_thinking else ())
    return failure


def _make_empty_error(
    endpoint: Endpoint, usage: Usage, other_tool: str, *, is_thinking: bool
) -> GatewayError:
    """Build the failure for a reply without an answer.

    `other_tool` names a tool that the model called instead of ours, or is "".
    """
    problem = "the reply is empty"
    if other_tool:
        tool = short_line(other_tool, MAX_REASON)
        problem = f"the model called another tool ({tool}) and gave no answer"
    elif is_thinking:
        problem = f"the model thought and gave no answer; {_suggest_more_thinking(endpoint)}"
        if not getattr(endpoint.profile, "reads_reasoning", False):
            problem += (
                ", or set reads_reasoning: true there if its answers stand among its thoughts"
            )
    failure = GatewayError(FailureKind.INVALID_REPLY, problem, usage=usage)
    failure.objections = frozenset({"thinking"} if is_thinking else ())
    return failure


def _suggest_more_thinking(endpoint: Endpoint) -> str:
    name = endpoint.profile.provider
    file = f"providers/{name}.yaml in your configuration folder"
    return f"raise limits.thinking_tokens in the profile of {name} ({file})"


def _read_logprobs(
    choice: Any,  # noqa: ANN401 - litellm's object
    request: Request,
) -> tuple[tuple[dict[str, float], ...], tuple[str, ...]]:
    """Read the log probabilities of each token's likely alternatives, and the texts of the tokens.

    A token itself is among its alternatives. Both are empty if the reply has none, or in an unknown form.
    """
    choice_logprobs = getattr(choice, "logprobs", None)
    content = getattr(choice_logprobs, "content", None) or []
    # Without a schema, the alternatives are the answer, so all of them count.
    least_logprob = -math.inf if request.schema is None else _LEAST_LOGPROB
    logprobs = []
    try:
        for token in content:
            likely_logprobs = {}
            for alternative in (*(token.top_logprobs or ()), token):
                is_likely = alternative is token or alternative.logprob >= least_logprob
                if is_likely and math.isfinite(alternative.logprob):
                    likely_logprobs[alternative.token] = float(alternative.logprob)
            logprobs.append(likely_logprobs)
        return tuple(logprobs), _decode_tokens(content)
    except (AttributeError, TypeError, ValueError):
        return (), ()


def _decode_tokens(content: Any) -> tuple[str, ...]:  # noqa: ANN401 - litellm's objects
    """Return the text of each token.

    A character's bytes may be spread over several tokens. It's part of the text of the last of these.
    """
    if not all(isinstance(getattr(token, "bytes", None), list) for token in content):
        return tuple(str(token.token) for token in content)
    # This decoder holds back the first bytes of a character until the others come.
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return tuple(decoder.decode(bytes(token.bytes)) for token in content)


def _read_count(usage: object, name: str) -> int:
    """Read the count of tokens called `name` in a reply's usage; 0 if it's missing or invalid."""
    return chat.count_in(getattr(usage, name, 0)) or 0


def _read_usage(response: Any, endpoint: Endpoint) -> Usage:  # noqa: ANN401 - litellm's object
    """Read a call's tokens and its cost from litellm's response.

    The cost is by the profile's price, or else as a proxy states it, or else as litellm computes it.
    """
    usage = getattr(response, "usage", None)
    details = getattr(usage, "prompt_tokens_details", None)
    prompt_tokens = _read_count(usage, "prompt_tokens")
    reply_tokens = _read_count(usage, "completion_tokens")
    cache_read = _read_count(details, "cached_tokens")
    cache_write = _read_count(details, "cache_creation_tokens")
    if endpoint.price is not None:
        cost = endpoint.price.of(prompt_tokens, reply_tokens, cache_read, cache_write)
        return Usage(prompt_tokens, reply_tokens, cost, "profile", cache_read, cache_write)

    hidden = getattr(response, "_hidden_params", None) or {}
    headers = hidden.get("additional_headers") or {}
    source: CostSource = "provider"
    usd = _read_amount(headers.get("llm_provider-x-litellm-response-cost"))  # of a LiteLLM proxy
    if usd is None:
        source = "litellm"
        usd = _read_amount(hidden.get("response_cost"))
    if usd is None:
        usd = _read_amount(_price_by_table(endpoint, usage))
    if usd is None:
        return Usage(prompt_tokens, reply_tokens, None, None, cache_read, cache_write).of_call()
    return Usage(prompt_tokens, reply_tokens, usd, source, cache_read, cache_write)


def _read_amount(price: Any) -> float | None:  # noqa: ANN401 - whatever a header or litellm says
    """Read a price as a number; None if it isn't an amount of money."""
    with suppress(TypeError, ValueError):
        usd = float(price)
        if math.isfinite(usd) and usd >= 0:
            return usd
    return None


def _price_by_table(endpoint: Endpoint, usage: Any) -> float | None:  # noqa: ANN401 - litellm's object
    """Price a call by litellm's table, if it lists the model under exactly this name."""
    with suppress(Exception):  # anything litellm may raise
        litellm = load()
        if endpoint.model in litellm.model_cost and usage is not None:
            prompt_usd, reply_usd = litellm.cost_per_token(model=endpoint.model, usage_object=usage)
            return float(prompt_usd + reply_usd)
    return None
