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
from judgekit.providers.base import Reply, add_schema, list_secrets
from judgekit.providers.failures import (
    classify_exception,
    classify_finish_reason,
    classify_json_error,
)
from judgekit.providers.importing import import_whole
from judgekit.providers.pace import Pace, Paces, Turn
from judgekit.providers.per_process import PerProcess, was_forked
from judgekit.providers.registry import ApiProfile, DecisionsProfile, LitellmProfile
from judgekit.providers.style import (
    MAX_CHANGES,
    NEWER_TOKEN_LIMIT_FIELD,
    THINKING_TOKENS,
    WEAKER,
    CallStyle,
    merge_system_messages,
)
from judgekit.text import shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from judgekit.providers.base import Endpoint, Message, Request
    from judgekit.providers.registry import OutputMode

ATTEMPTS = 3
_PAUSES = (0.5, 1.0)  # seconds between tries, unless the provider asks for another pause
_HTML_REPLY_PATTERN = re.compile(r"Original Response: \s*<(?:!doctype|html)", re.IGNORECASE)
_LISTING_SECONDS = 2.0  # to list an address's models when something is missing
_MIN_COUNT = 1_000  # a smaller token count from a server proves nothing
_MAX_CHARS_PER_TOKEN = 8  # English has 4 to 5; code and other scripts have fewer
# Chinese, Japanese and Korean need a token for every one or two characters.
_DENSE_WEIGHT = 2.5
_DENSE_CHAR_PATTERN = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")
_REPEATED_CHAR_PATTERN = re.compile(r"(.)\1{3,}", re.DOTALL)
SCHEMA_NAME = "opinion"
MAX_REASON_CHARS = 60  # characters quoted of a provider's finish reason
_MAX_REFUSAL_CHARS = 200  # characters quoted of a model's refusal
_PROXY_TIME_FRACTION = 0.25  # of a call's time, to ask a proxy if its model thinks
_MAX_ERROR_CHARS = 64_000  # of a litellm error
_MIN_LOGPROB = -7.0  # 1 in 1,000: less likely alternatives of a whole reply are dropped
# The objection that makes the next call allow more tokens for thinking
_NEEDS_MORE_THINKING = frozenset({"thinking"})
_LITELLM_VARIABLES = {
    # Without these, litellm fetches a price list on import and beta headers on the first Anthropic call, and
    # reads .env files in parent folders.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_MODE": "PRODUCTION",
}


# Whether litellm needs to compute the price of the current task's call
_needs_price: ContextVar[bool] = ContextVar("reads_price", default=True)
# litellm's attributes with the callbacks of a program that also uses it
_CALLBACK_LISTS = (
    *("callbacks", "input_callback", "success_callback", "failure_callback"),
    *("_async_input_callback", "_async_success_callback", "_async_failure_callback"),
)


class _LoadState:
    """litellm's module, once this process has set it up, and a lock for the thread that does so."""

    def __init__(self) -> None:
        self.module: Any = None
        self.lock = threading.RLock()


_load_state = PerProcess(_LoadState)
_imported: list[Any] = []  # the module; a forked process inherits it
_inherited_caches: list[object] = []  # the parent's connections, which only the parent may close


async def load_in_thread() -> Any:  # noqa: ANN401 - a module that is not typed strictly
    """Return litellm, which is imported first if necessary."""
    module = _load_state.get().module
    if module is None:
        # The import takes seconds. In a thread, it doesn't block the event loop, so deadlines still hold.
        module = await running.run_in_thread(load)
    return module


def load() -> Any:  # noqa: ANN401 - a module that is not typed strictly
    """Return litellm. The first call imports it, which takes seconds."""
    state = _load_state.get()
    if state.module is not None:
        return state.module
    with state.lock:
        if state.module is None:  # another thread may have imported it meanwhile
            state.module = _import_or_inherit()
        return state.module


def _import_or_inherit() -> Any:  # noqa: ANN401 - a module that is not typed strictly
    """Import litellm, or use the parent process's import if this process was forked after it."""
    if _imported:
        # This process hasn't got here before, so its parent has filled the list.
        module = _imported[0]
        _replace_connections(module)  # the parent's connections must not be shared
        return module
    module = _import_quietly()
    _imported.append(module)
    return module


def _replace_connections(litellm: Any) -> None:  # noqa: ANN401 - a module that is not typed strictly
    """Give litellm a new cache of connections after a fork."""
    # The parent's connections stay referenced, because collecting them would close them.
    _inherited_caches.append(litellm.in_memory_llm_clients_cache)
    litellm.in_memory_llm_clients_cache = type(litellm.in_memory_llm_clients_cache)()


def _import_quietly() -> Any:  # noqa: ANN401 - a module that is not typed strictly
    """Import litellm without output and warnings, change its settings, and return the module."""
    _refuse_half_import()
    os.environ.update(_LITELLM_VARIABLES)
    with _pause_garbage_collection():
        litellm = import_whole("litellm", _import_litellm)
    _change_settings(litellm)
    _close_at_exit(litellm)
    return litellm


def _refuse_half_import() -> None:
    """Raise `ImportError` if another thread was importing litellm when this process was forked."""
    # That thread doesn't exist in this process, so Python would wait for it forever.
    spec = getattr(sys.modules.get("litellm"), "__spec__", None)
    if was_forked() and getattr(spec, "_initializing", False):
        raise ImportError(
            "forked while another thread imported it; import judgekit.api before forking"
        )


@contextmanager
def _pause_garbage_collection() -> Iterator[None]:
    """Inside the `with` block, collect no garbage, which makes an import faster."""
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # the imported objects stay in memory, so the collector needn't visit them
        if was_collecting:
            gc.enable()


def _change_settings(litellm: Any) -> None:  # noqa: ANN401 - a module that is not typed strictly
    """Change litellm's settings, so that it's quiet, faster, and limits the size of replies."""
    _silence(litellm)
    _skip_token_counts_and_prices(litellm)
    _limit_redacted_text()
    from litellm.llms.custom_httpx import aiohttp_transport  # noqa: PLC0415 - imported lazily because it's slow

    # `servers.limited_reply_size` needs this.
    servers.patch_transport(aiohttp_transport.LiteLLMAiohttpTransport)


def _silence(litellm: Any) -> None:  # noqa: ANN401 - a module that is not typed strictly
    """Switch off litellm's output, logs, telemetry and a warning."""
    litellm.suppress_debug_info = True
    litellm.telemetry = False
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [logging.NullHandler()]
        logger.propagate = False
    # litellm creates a call's coroutine in a thread. If the call is cancelled meanwhile, the coroutine is
    # never awaited, and Python would warn.
    warnings.filterwarnings(
        "ignore", r"coroutine '.*completion\w*' was never awaited", category=RuntimeWarning
    )


def _skip_token_counts_and_prices(litellm: Any) -> None:  # noqa: ANN401 - a module that is not typed strictly
    """Let litellm count tokens and compute prices only if that's needed."""
    vars(litellm.main)["encoding"] = _Tokenizer()
    calculate_price = litellm.response_cost_calculator
    vars(litellm)["response_cost_calculator"] = partial(_calculate_price_if_needed, calculate_price)


def _limit_redacted_text() -> None:
    """Shorten error messages before litellm searches them for secrets.

    A message can contain an entire reply, and the search takes seconds per megabyte.
    """
    from litellm.litellm_core_utils import secret_redaction  # noqa: PLC0415 - imported lazily because it's slow

    redact = secret_redaction.python_redact_string
    secret_redaction.python_redact_string = lambda value: redact(value[:_MAX_ERROR_CHARS])


def _close_at_exit(litellm: Any) -> None:  # noqa: ANN401 - a module that is not typed strictly
    """Close litellm's connections when this process ends."""
    running.close_functions.append(litellm.close_litellm_async_clients)
    # Functions registered last run first, so register `running.end` again to run before litellm's clean-up.
    atexit.unregister(running.end)
    atexit.register(running.end)


def _import_litellm() -> Any:  # noqa: ANN401 - a module that is not typed strictly
    import litellm  # noqa: PLC0415 - imported lazily because it's slow

    litellm.ModelResponse()  # builds pydantic's models now, with their warnings
    return litellm


def _calculate_price_if_needed(calculate: Callable[..., Any], **call: Any) -> Any:  # noqa: ANN401 - as litellm has them
    """Compute a call's price with litellm's `calculate`, or return None if it isn't needed."""
    # Computing a price takes half as long as the rest of a call.
    if not _needs_price.get():
        return None
    return calculate(**call)


@contextmanager
def _skip_bookkeeping(litellm: Any, endpoint: Endpoint) -> Iterator[None]:  # noqa: ANN401 - a module that is not typed strictly
    """Inside the `with` block, litellm only computes prices and writes logs if someone needs them."""
    from litellm._internal_context import is_internal_call  # noqa: PLC0415 - imported lazily because it's slow

    user_needs_prices_and_logs = _has_budget_or_callback(litellm)
    # Without the profile's price, we use litellm's. The price of a decision is computed elsewhere.
    we_need_price = endpoint.price is None and not endpoint.decides
    price_token = _needs_price.set(user_needs_prices_and_logs or we_need_price)

    # litellm doesn't log its internal calls, so present ours as internal unless the user needs the logs.
    is_internal = is_internal_call.get() or not user_needs_prices_and_logs
    log_token = is_internal_call.set(is_internal)
    try:
        yield
    finally:
        is_internal_call.reset(log_token)
        _needs_price.reset(price_token)


def _has_budget_or_callback(litellm: Any) -> bool:  # noqa: ANN401 - a module that is not typed strictly
    """Whether the user has set a budget or a callback in litellm, which need its prices and logs."""
    if litellm.max_budget:
        return True
    for name in _CALLBACK_LISTS:
        for callback in getattr(litellm, name, None) or ():
            # litellm's own callback "cache" only reads streams, which we don't request.
            if callback != "cache":
                return True
    return False


class _Tokenizer:
    """Loads litellm's tokenizer (40 MB) only when it's used, which is when a provider counts no tokens."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a tokenizer has
        return getattr(load().main.__getattr__("encoding"), name)


def price_of(model: str, prompt_tokens: int, reply_tokens: int) -> float | None:
    """Compute a call's cost in US dollars from litellm's price table, or None if the model isn't in it."""
    try:
        prompt_usd, reply_usd = load().cost_per_token(
            model=model, prompt_tokens=prompt_tokens, completion_tokens=reply_tokens
        )
        return float(prompt_usd + reply_usd)
    except Exception:  # noqa: BLE001 - litellm can raise anything
        return None


def compute_cost(endpoint: Endpoint, prompt_tokens: int, reply_tokens: int) -> float | None:
    """Compute a call's cost in US dollars, or return None if the price is unknown.

    A price in the profile takes precedence over the one in litellm's table.
    """
    if endpoint.price is not None:
        return endpoint.price.compute_cost(prompt_tokens, reply_tokens)
    profile = endpoint.profile
    if isinstance(profile, DecisionsProfile):
        # Decision models write nothing, so only the prompt costs something.
        token_price = _find_decisions_price(endpoint, profile)
        return None if token_price is None else token_price * prompt_tokens
    return price_of(endpoint.model, prompt_tokens, reply_tokens)


def _find_decisions_price(endpoint: Endpoint, profile: DecisionsProfile) -> float | None:
    """Look up a decision model's price per prompt token in litellm's price table, or return None."""
    entry = _find_table_entry(endpoint, profile)
    if "input_cost_per_token_decisions" in entry:
        price = entry["input_cost_per_token_decisions"]
    elif entry.get("mode") == "chat":
        price = None  # a price for chat doesn't apply to decisions
    else:
        price = entry.get("input_cost_per_token")
    return None if price is None else float(price)


def _find_table_entry(endpoint: Endpoint, profile: DecisionsProfile) -> dict[str, Any]:
    """Find a model's entry in litellm's price table, under any of its names there, or return {}."""
    table: dict[str, dict[str, Any]] = load().model_cost
    bare_name = endpoint.model.removeprefix(profile.prefix)
    names = [f"{profile.client}/{bare_name}", endpoint.model]
    if profile.client == "openai":
        names.append(bare_name)  # the table has OpenAI's models without a prefix
    for name in names:
        entry = table.get(name)
        if entry:
            return entry
    return {}


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
        """Ask a model, changing the style of the request until the model accepts it.

        Changes are remembered for later calls. The usage includes that of the failed calls.
        """
        if endpoint.decides:
            # A decision model's answers aren't text, so there's only one style to ask for them.
            only_style = CallStyle(endpoint.output_mode)
            return await self._ask_with_retries(endpoint, request, only_style, turn, end)

        first_style = await _choose_style(endpoint, end)
        reply, style = await self._ask_until_accepted(endpoint, request, first_style, turn, end)
        if request.schema is None:
            return reply
        return _check_format(reply, endpoint, style)

    async def _ask_until_accepted(
        self, endpoint: Endpoint, request: Request, style: CallStyle, turn: Turn, end: float
    ) -> tuple[Reply, CallStyle]:
        """Call a model, changing the style until it's accepted. Returns the reply and the accepted style.

        Raises the last failure if there's no other style to try, or after `MAX_CHANGES` changes.
        """
        failed_usage = Usage()  # of failed calls
        was_repeated = False
        changes = 0
        while True:
            try:
                reply = await self._ask_with_retries(endpoint, request, style, turn, end)
                return _add_failed_usage(reply, failed_usage), style
            except GatewayError as failure:
                next_style: CallStyle | None
                # Repeat one call that may succeed in the same style.
                should_repeat = _may_succeed_unchanged(failure) and not was_repeated
                if should_repeat:
                    was_repeated = True
                    next_style = style
                else:
                    next_style = style.adapt_to_failure(failure, endpoint, request)
                    changes += 1
                if next_style is None or changes > MAX_CHANGES:
                    _add_earlier_usage(failure, failed_usage)
                    raise
                failed_usage = failed_usage.plus(usage_of_failed_call(failure))

            if next_style != style:
                _remember_changes(endpoint, style, next_style)
                style = next_style

    async def _ask_with_retries(
        self, endpoint: Endpoint, request: Request, style: CallStyle, turn: Turn, end: float
    ) -> Reply:
        """Call a model, and retry temporary failures until the deadline `end`."""

        async def ask() -> Reply:
            # A turn is the permission for one call. Each try waits for its own, so that none is held during
            # the pauses between tries.
            async with turn():
                return await call(endpoint, request, style, end, self._paces.get_pace(endpoint))

        tries = retrying.Tries(ATTEMPTS, _PAUSES)
        return await retrying.call(
            ask, tries, should_retry=_is_temporary, seconds=end - time.monotonic()
        )


def _is_temporary(failure: Exception, _: int) -> bool:
    return isinstance(failure, GatewayError) and failure.kind.retryable


def _may_succeed_unchanged(failure: GatewayError) -> bool:
    """Whether the same call may succeed the next time, because only the reply's format was wrong."""
    has_wrong_format = "unfit" in failure.objections
    # If thinking has used up the tokens, the same call would fail again.
    has_used_up_tokens = "thinking" in failure.objections
    return has_wrong_format and not has_used_up_tokens


def _add_failed_usage(reply: Reply, failed_usage: Usage) -> Reply:
    """Add the usage of earlier failed calls, if any, to a reply's usage."""
    if failed_usage == Usage():
        return reply
    return replace(reply, usage=failed_usage.plus(reply.usage))


def _add_earlier_usage(failure: GatewayError, earlier_usage: Usage) -> None:
    """Add the usage of earlier calls, if any, to a failure's usage."""
    if earlier_usage != Usage():
        failure.usage = earlier_usage.plus(usage_of_failed_call(failure))


async def _choose_style(endpoint: Endpoint, end: float) -> CallStyle:
    """Choose the style of a call: the one that worked for the model before, or the default one.

    If a proxy reports that the model thinks, the style includes tokens for thinking. `end` is the deadline.
    """
    style = _recall_style(endpoint)
    if _knows_thinking_tokens(endpoint, style) or not proxies.may_be_proxy(endpoint):
        return style
    thinks = proxies.thinks_if_known(endpoint)
    if thinks is None:
        thinks = await _ask_if_thinking(endpoint, end)
    return style._replace(thinking=THINKING_TOKENS) if thinks else style


def _knows_thinking_tokens(endpoint: Endpoint, style: CallStyle) -> bool:
    """Whether the profile or an earlier call tells the number of tokens for thinking."""
    is_fixed = endpoint.profile.limits.thinking_tokens is not None
    return is_fixed or style.thinking_tokens(endpoint) > 0


async def _ask_if_thinking(endpoint: Endpoint, end: float) -> bool | None:
    """Ask a proxy if its model thinks, but only for a small part of the time until the deadline `end`."""
    seconds = (end - time.monotonic()) * _PROXY_TIME_FRACTION
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await running.run_in_thread(partial(proxies.thinks, endpoint))
    return None


def _recall_style(endpoint: Endpoint) -> CallStyle:
    """Return the style remembered for a model, or the default one."""
    return remembered.find(endpoint) or CallStyle(endpoint.output_mode)


def _remember_changes(endpoint: Endpoint, old_style: CallStyle, new_style: CallStyle) -> None:
    """Remember the changes between two styles for a model."""
    changes = _find_lasting_changes(old_style, new_style)
    # Only apply the changes, because other calls may have changed the remembered style meanwhile.
    remembered_style = _recall_style(endpoint)
    merged_style = remembered_style._replace(**changes)
    if merged_style != remembered_style:
        remembered.keep(endpoint, merged_style)


def _find_lasting_changes(old_style: CallStyle, new_style: CallStyle) -> dict[str, Any]:
    """Map the fields that differ to their new values. `room` only applies to one prompt, so it's left out."""
    old_values = old_style._asdict()
    changes = {}
    for name, value in new_style._asdict().items():
        if name != "room" and value != old_values[name]:
            changes[name] = value
    return changes


def _remember_weaker_format(endpoint: Endpoint, style: CallStyle) -> None:
    """Remember to use the next weaker output mode for a model, because it ignored the mode of `style`."""
    # Another call may have changed the mode already.
    remembered_style = _recall_style(endpoint)
    is_current_mode = remembered_style.mode == style.mode
    if is_current_mode and style.mode in WEAKER:
        remembered.keep(endpoint, remembered_style._replace(mode=WEAKER[style.mode]))


def _check_format(reply: Reply, endpoint: Endpoint, style: CallStyle) -> Reply:
    """Use a weaker output mode from now on if a reply doesn't have the requested format.

    Returns the reply. Its reader can call `reply.distrust` to do the same if the reply doesn't fit the
    schema.
    """
    use_weaker_format = partial(_remember_weaker_format, endpoint, style)
    if not _has_format(reply, style.mode):
        use_weaker_format()
    # Some providers accept a schema but don't enforce it. We can't notice that here.
    should_fit_schema = reply.schema_enforced and style.mode == "json_schema"
    if should_fit_schema:
        return replace(reply, distrust=use_weaker_format)
    return reply


def _has_format(reply: Reply, mode: OutputMode) -> bool:
    """Whether a reply has the format that an output mode demands."""
    if mode in ("json_schema", "tool"):
        return reply.schema_enforced
    return mode == "text" or _is_object(reply.text)


def _is_object(text: str) -> bool:
    """Whether a reply starts like a JSON object, possibly after `<think>…</think>` or in a code block."""
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
    """Make one call in a `style`, before the deadline `end` on the monotonic clock.

    Raises `GatewayError`. The `pace` learns from the outcome.
    """
    profile = _check_profile(endpoint)
    _check_has_key(endpoint, profile)
    _check_key(endpoint)
    litellm = await _load_for_call()

    try:
        reply = await _ask(litellm, endpoint, profile, request, style, end)
    except Exception as error:  # noqa: BLE001 - the boundary: whatever litellm raises becomes a failure
        failure = classify_exception(error, list_secrets(endpoint))
    else:
        pace.note_success()
        return reply

    await _react_to_failure(failure, endpoint, profile, end, pace)
    # Raised outside the handler, so that litellm's error, which can quote the key, isn't attached to it.
    raise failure


def _check_profile(endpoint: Endpoint) -> LitellmProfile | DecisionsProfile:
    """Return the endpoint's profile; raises `GatewayError` if it isn't for litellm."""
    profile = endpoint.profile
    if not isinstance(profile, LitellmProfile | DecisionsProfile):
        raise GatewayError(FailureKind.BAD_REQUEST, f"{profile.provider} does not use litellm")
    return profile


def _check_has_key(endpoint: Endpoint, profile: LitellmProfile | DecisionsProfile) -> None:
    """Raise `GatewayError` if there are no credentials for the call."""
    # Some providers have no API key. Their credentials are parameters, such as a cloud account's.
    has_credentials = endpoint.api_key is not None or bool(endpoint.parameters)
    if has_credentials:
        return
    key_variables = " or ".join(profile.key)
    raise GatewayError(FailureKind.AUTHENTICATION, f"no key: set {key_variables or 'one'}")


async def _react_to_failure(
    failure: GatewayError,
    endpoint: Endpoint,
    profile: LitellmProfile | DecisionsProfile,
    end: float,
    pace: Pace,
) -> None:
    """Slow down if the provider refused a call for its rate or is overloaded.

    For other failures, find out if the model or the address is missing, and add that to the message.
    """
    if failure.kind is FailureKind.RATE_LIMIT:
        pace.note_refusal(failure.retry_after)
    elif failure.kind is FailureKind.OVERLOADED:
        pace.pause(failure.retry_after, FailureKind.OVERLOADED)
    else:
        await _explain_if_missing(failure, endpoint, profile, end)


async def _load_for_call() -> Any:  # noqa: ANN401 - a module that is not typed strictly
    """Return litellm; raises `GatewayError` if it can't be imported."""
    try:
        return await load_in_thread()
    except Exception as error:  # noqa: BLE001 - the boundary: whatever an import raises
        problem = f"litellm cannot be loaded ({type(error).__name__}: {error}); reinstall judgekit"
        raise GatewayError(
            FailureKind.NOT_LOADED, shorten_to_line(problem, 300), usage=Usage()
        ) from None


async def _ask(
    litellm: Any,  # noqa: ANN401 - a module that is not typed strictly
    endpoint: Endpoint,
    profile: LitellmProfile | DecisionsProfile,
    request: Request,
    style: CallStyle,
    end: float,
) -> Reply:
    """Send the request to the model with litellm, and read the reply. Can raise any error."""
    # Set litellm's variables again, in case other code has restored an older environment.
    os.environ.update(_LITELLM_VARIABLES)
    with servers.limited_reply_size(), _skip_bookkeeping(litellm, endpoint):
        if isinstance(profile, DecisionsProfile):
            reply = await _decide(litellm, endpoint, profile, request, end)
        else:
            arguments = _build_arguments(endpoint, profile, request, style, end)
            response = await litellm.acompletion(**arguments)
            reply = read_response(response, endpoint, request, style)
        _refuse_cut_prompt(reply, request)
    return reply


async def _explain_if_missing(
    failure: GatewayError, endpoint: Endpoint, profile: ApiProfile, end: float
) -> None:
    """If the address or the model wasn't found, explain that in the failure's message."""
    is_web_page = _HTML_REPLY_PATTERN.search(failure.message) is not None
    if is_web_page and await _find_better_address(endpoint, end):
        failure.kind = FailureKind.NOT_FOUND  # the API is at another address
    if failure.kind is FailureKind.NOT_FOUND:
        failure.message = await _explain_missing(endpoint, profile, failure.message, end)


def _check_key(endpoint: Endpoint) -> None:
    """Raise `GatewayError` if the API key has a character that can't be in an HTTP header."""
    for position, char in enumerate(endpoint.api_key or "", 1):
        is_visible_ascii = "!" <= char <= "~"
        if not is_visible_ascii:
            raise _make_key_error(endpoint, char, position)


def _make_key_error(endpoint: Endpoint, char: str, position: int) -> GatewayError:
    """Build the failure for a wrong character in the API key, without quoting the key."""
    names = getattr(endpoint.profile, "key", ())
    variables = " or ".join(names) or "its variable"
    character = f"U+{ord(char):04X} at place {position}"
    problem = f"the key in {variables} has {character}, which no key has"
    return GatewayError(FailureKind.AUTHENTICATION, f"{problem}; copy it again", usage=Usage())


def _refuse_cut_prompt(reply: Reply, request: Request) -> None:
    """Raise `GatewayError` if the server must have truncated the prompt.

    That's the case if it reports too few tokens for a prompt of this length.
    """
    tokens = _count_prompt_tokens(reply.usage)
    if tokens < _MIN_COUNT:  # the server may not count cached tokens at all
        return
    prompt = "\n".join(message.content for message in request.messages)
    if _can_fit(prompt, tokens):
        return
    problem = (
        f"the server read {tokens:,} tokens of {len(prompt):,} characters, so it cut the text: its context "
        f"has about {tokens:,} tokens; give it a larger one (Ollama: num_ctx; llama.cpp: --ctx-size), or set "
        "limits.context_chars in its profile"
    )
    raise GatewayError(FailureKind.CONTEXT_WINDOW, problem, usage=reply.usage)


def _count_prompt_tokens(usage: Usage) -> int:
    """Return the number of tokens that the server read, including those from its cache."""
    cached_tokens = usage.cache_read_tokens + usage.cache_write_tokens
    excludes_cached_tokens = cached_tokens > usage.input_tokens
    return usage.input_tokens + cached_tokens if excludes_cached_tokens else usage.input_tokens


def _can_fit(prompt: str, tokens: int) -> bool:
    """Whether a prompt can consist of so few tokens. Dense characters, such as Chinese ones, take more."""
    most_chars = tokens * _MAX_CHARS_PER_TOKEN
    # Most prompts would fit even if all their characters were dense, so there's no need to count those.
    fits_if_all_are_dense = len(prompt) * _DENSE_WEIGHT <= most_chars
    return fits_if_all_are_dense or _weigh_chars(prompt) <= most_chars


def _weigh_chars(prompt: str) -> float:
    """Return a prompt's length, weighted for an estimate of its tokens.

    A dense character, such as a Chinese one, weighs `_DENSE_WEIGHT`. A long row of spaces or dashes weighs as
    much as a single one.
    """
    shortened = _REPEATED_CHAR_PATTERN.sub(r"\1", prompt)
    if shortened.isascii():  # no dense characters
        return len(shortened)
    dense_chars = len(_DENSE_CHAR_PATTERN.findall(shortened))
    other_chars = len(shortened) - dense_chars
    return other_chars + dense_chars * _DENSE_WEIGHT


async def _decide(
    litellm: Any,  # noqa: ANN401 - a module that is not typed strictly
    endpoint: Endpoint,
    profile: DecisionsProfile,
    request: Request,
    end: float,
) -> Reply:
    """Ask a decision model, and return its answers as the reply's text.

    Raises `GatewayError` if the answers can't be read, and any error of litellm.
    """
    arguments = {
        **_build_transport_arguments(endpoint, profile, end),
        "input": "\n\n".join(message.content for message in request.messages),
        "questions": decisions.build_question_arguments(request.questions),
    }
    body = await _fetch_decisions(litellm, arguments)
    decision_reply = decision_bodies.read_body(body, request.questions)
    return Reply(
        text=decisions.write_answers(decision_reply.answers),
        model=decision_reply.model or endpoint.model,
        usage=_read_decisions_usage(decision_reply, endpoint, profile),
    )


async def _fetch_decisions(litellm: Any, arguments: dict[str, Any]) -> bytes:  # noqa: ANN401 - a module that is not typed strictly
    """Call a decision model with litellm, and return the raw body of the response.

    Raises `GatewayError` if there's no body, and any error of litellm.
    """
    # Don't use litellm's own result: it assigns the answers to the questions by position instead of by name,
    # and replaces missing answers with zeros.
    bodies: list[bytes] = []
    try:
        with servers.collect_bodies(bodies):  # only those of successful responses
            await litellm.adecisions(**arguments)
    except Exception:
        # If litellm can't read a body, we may still be able to.
        if not bodies:
            raise
    if not bodies:
        raise GatewayError(FailureKind.INVALID_REPLY, "the reply has no body", usage=Usage())
    return bodies[-1]


def _read_decisions_usage(
    reply: decision_bodies.DecisionReply, endpoint: Endpoint, profile: DecisionsProfile
) -> Usage:
    """Return a decision model's tokens and their cost.

    The cost comes from the profile's price, the reply, or litellm's price table, in this order.
    """
    tokens = reply.input_tokens
    has_profile_price = endpoint.price is not None
    has_stated_cost = profile.states_cost and reply.cost_usd is not None
    if has_stated_cost and not has_profile_price:
        return Usage(tokens, 0, reply.cost_usd, "provider")

    cost = compute_cost(endpoint, tokens, 0)  # by the profile's price, or else litellm's table
    # Every question has tokens, so 0 means that the reply doesn't state them. Then the cost is unknown.
    is_unknown_cost = cost is None or tokens <= 0
    if is_unknown_cost:
        return Usage(tokens, 0).count_as_call()  # counts it as a call of unknown cost
    source: CostSource = "profile" if has_profile_price else "litellm"
    return Usage(tokens, 0, cost, source)


async def _find_better_address(endpoint: Endpoint, end: float) -> str | None:
    """Find an address that has an API and is similar to the endpoint's, such as with `/v1` added.

    Return None if there isn't one, or if the endpoint's own address works.
    """
    seconds = min(_LISTING_SECONDS, end - time.monotonic())
    if await servers.list_offered(endpoint, seconds):
        return None
    return await servers.find_similar_address(endpoint, seconds)


async def _explain_missing(
    endpoint: Endpoint, profile: ApiProfile, call_message: str, end: float
) -> str:
    """Explain why a call got a "not found" error, and suggest a remedy.

    `call_message` is the call's error message, and `end` is the deadline.
    """
    address = endpoint.api_base or profile.title
    bare_name = endpoint.model.removeprefix(profile.prefix)
    seconds = min(_LISTING_SECONDS, end - time.monotonic())
    offered_names = await servers.list_offered(endpoint, seconds)
    if offered_names and bare_name not in offered_names:
        return f"{address} has no model {endpoint.model}; it offers {_join_names(offered_names)}"

    # A configured address that lists no models may not be the address of an API.
    may_lack_api = endpoint.api_base and not offered_names
    if may_lack_api:
        return await _explain_missing_api(endpoint, profile, call_message, end)
    return f"{address}: {call_message}"


def _join_names(names: Sequence[str]) -> str:
    """Join the first names, and add the number of the others, as in "a, b and 7 more"."""
    shown_names = ", ".join(names[: servers.MAX_SUGGESTED_MODELS])
    if len(names) > servers.MAX_SUGGESTED_MODELS:
        shown_names += f" and {len(names) - servers.MAX_SUGGESTED_MODELS} more"
    return shown_names


async def _explain_missing_api(
    endpoint: Endpoint, profile: ApiProfile, call_message: str, end: float
) -> str:
    """Explain a "not found" error at an address that lists no models.

    Either the address has no chat API, or `call_message`, the call's error message, is about the model.
    """
    address = endpoint.api_base
    no_api = f"{address} has no chat interface ({call_message})"
    variable = next(iter(profile.address_variables), "the address")
    better_address = await _find_better_address(endpoint, end)
    if better_address:
        return f"{no_api}, {better_address} has: set {variable} to {better_address}"

    # A server that says something about the model does have an API.
    bare_name = endpoint.model.removeprefix(profile.prefix)
    is_about_model = bare_name in call_message or "model" in call_message.lower()
    if is_about_model:
        remedy = f"name another in the configuration ({call_message})"
        return f"{address} has no model {endpoint.model}; {remedy}"
    return f"{no_api}; {variable} ends where {chat.CHAT_PATH} begins, most often with /v1"


def _build_transport_arguments(
    endpoint: Endpoint, profile: ApiProfile, end: float
) -> dict[str, Any]:
    """Build the litellm arguments that every call needs: model, address, key and timeout.

    `end` is the deadline.
    """
    # litellm chooses its client by the prefix of the model's name.
    model = endpoint.model
    if profile.client:
        bare_name = endpoint.model.removeprefix(profile.prefix)
        model = f"{profile.client}/{bare_name}"
    return {
        # This limits each read of the socket. The deadline of the entire call is checked elsewhere.
        "timeout": max(0.1, end - time.monotonic()),
        "drop_params": True,
        "num_retries": 0,
        "max_retries": 0,
        # Pass the key even if it's None. Otherwise litellm guesses a provider and uses its key.
        "api_key": endpoint.api_key,
        "api_base": endpoint.api_base,
        # The profile's parameters can replace everything above, but not the model.
        **endpoint.parameters,
        "model": model,
    }


def _build_arguments(
    endpoint: Endpoint, profile: LitellmProfile, request: Request, style: CallStyle, end: float
) -> dict[str, Any]:
    """Build the litellm arguments for a chat request.

    `style` contains the options that the model accepts, and `end` is the deadline.
    """
    messages = add_schema(request.messages, request.schema, style.mode)
    if not style.system:  # the model accepts no system messages
        messages = merge_system_messages(messages)
    # The profile's own arguments for this model, by default none.
    model_arguments = profile.look_up_model(profile.arguments, endpoint.model, {})
    arguments = {
        **_build_transport_arguments(endpoint, profile, end),
        # Without this, litellm imports an MCP package for tools, which may not be installed.
        "_skip_mcp_handler": True,
        "messages": [_build_message(message, profile) for message in messages],
        **model_arguments,
    }
    if request.schema is not None:
        arguments |= _build_schema_arguments(request.schema, style.mode)
    _add_token_limit(arguments, style, style.reply_tokens(endpoint, request))
    return arguments | _build_sampling_arguments(request, style)


def _build_message(message: Message, profile: LitellmProfile) -> dict[str, Any]:
    """Build the litellm argument for a message.

    If the provider has a prompt cache, ask it to cache the start of the message, which other messages share.
    """
    content = message.content
    shared_chars = message.stable_chars
    has_both_parts = 0 < shared_chars < len(content)
    should_cache = profile.prompt_caching and has_both_parts
    if not should_cache:
        return {"role": message.role, "content": content}
    shared_part = {
        "type": "text",
        "text": content[:shared_chars],
        "cache_control": {"type": "ephemeral"},
    }
    own_part = {"type": "text", "text": content[shared_chars:]}
    return {"role": message.role, "content": [shared_part, own_part]}


def _build_schema_arguments(schema: dict[str, Any], mode: OutputMode) -> dict[str, Any]:
    """Build the litellm arguments that request a schema in the given output mode."""
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
    return {}  # for "text", the schema is in the prompt


def _add_token_limit(arguments: dict[str, Any], style: CallStyle, token_limit: int) -> None:
    """Add the token limit to litellm's arguments, under the name that the model accepts."""
    limit_field = style.max_tokens  # a name, not a number
    if limit_field == NEWER_TOKEN_LIMIT_FIELD:
        # litellm would rename the newer argument to `max_tokens`, which this model has rejected, so put it
        # into the raw body.
        arguments["extra_body"] = {
            **arguments.get("extra_body", {}),
            NEWER_TOKEN_LIMIT_FIELD: token_limit,
        }
    else:
        arguments["max_tokens"] = token_limit


def _build_sampling_arguments(request: Request, style: CallStyle) -> dict[str, Any]:
    """Build the litellm arguments for log probabilities and the temperature."""
    arguments: dict[str, Any] = {}
    # Some models can't return log probabilities together with a schema. Their style has `logprobs` False.
    can_have_logprobs = style.logprobs or request.schema is None
    if request.top_logprobs and can_have_logprobs:
        arguments |= {"logprobs": True, "top_logprobs": request.top_logprobs}
    # litellm drops the temperature for models that it knows to refuse it. The style knows of others.
    accepts_temperature = style.temperature
    if accepts_temperature:
        # Replies to a repeated question should differ.
        is_repeated = request.sample > 0
        arguments["temperature"] = 1 if is_repeated else 0
    return arguments


def read_response(response: Any, endpoint: Endpoint, request: Request, style: CallStyle) -> Reply:  # noqa: ANN401 - litellm's object, as its version shapes it
    """Convert litellm's response to a reply.

    Raises `GatewayError`, with the call's usage, if the reply was refused, filtered or cut, or is empty.
    """
    usage = _read_usage(response, endpoint)
    choice = _get_first_choice(response, usage)
    message = choice.message
    content = _read_content(message)
    has_thoughts = _has_thoughts(response, message, content)
    _check_finish_reason(choice, content, usage)

    tool_text, other_tool = _read_tool_calls(message)
    if _is_cut_too_early(choice, request):
        # A reply that was cut before its answer was probably thinking, even if it doesn't show thoughts.
        has_answer = bool(content or tool_text)
        is_thinking = has_thoughts or not has_answer
        raise _make_cut_error(endpoint, request, style, usage, is_thinking=is_thinking)

    answer, is_enforced = _choose_answer(content, tool_text, style)
    if not answer:
        # Some models write their answer among their thoughts.
        answer = _read_answer_in_thoughts(message, endpoint)
    logprobs, tokens = _read_logprobs(choice, request)
    # Without a schema, the log probabilities are the answer, so the text can be empty.
    is_answered_by_logprobs = request.schema is None and bool(logprobs)
    if answer == "" and not is_answered_by_logprobs:
        raise _make_empty_error(endpoint, usage, other_tool, is_thinking=has_thoughts)
    return Reply(
        answer,
        model=getattr(response, "model", None) or endpoint.model,
        usage=usage,
        logprobs=logprobs,
        tokens=tokens,
        schema_enforced=is_enforced and request.schema is not None,
    )


def _get_first_choice(response: Any, usage: Usage) -> Any:  # noqa: ANN401 - litellm's objects
    """Return the first choice in a response; raises `GatewayError` if there's none."""
    choices = getattr(response, "choices", None) or []
    if not choices:
        raise GatewayError(FailureKind.INVALID_REPLY, "the reply has no choices", usage=usage)
    return choices[0]


def _read_content(message: Any) -> str:  # noqa: ANN401 - litellm's object
    """Return a message's content, or "" if it's blank or not a string."""
    content = getattr(message, "content", None)
    return content if isinstance(content, str) and content.strip() else ""


def _is_cut_too_early(choice: Any, request: Request) -> bool:  # noqa: ANN401 - litellm's object
    """Whether a reply ended at a token limit, except one that's cut on purpose after its first token."""
    # Without a schema, only the probabilities of the first token are needed.
    needs_only_first_token = request.schema is None and request.top_logprobs > 0
    return _is_cut(choice) and not needs_only_first_token


def _read_answer_in_thoughts(message: Any, endpoint: Endpoint) -> str:  # noqa: ANN401 - litellm's object
    """Return a model's thoughts if its profile says that answers can be in them, or else ""."""
    if not getattr(endpoint.profile, "reads_reasoning", False):
        return ""
    return str(getattr(message, "reasoning_content", None) or "")


def _check_finish_reason(choice: Any, text: str, usage: Usage) -> None:  # noqa: ANN401 - litellm's object
    """Raise `GatewayError` if a reply ended by a refusal, a content filter or an error of the provider.

    `text` is the reply's answer, or "".
    """
    choice_fields = getattr(choice, "provider_specific_fields", None) or {}
    if choice_fields.get("error"):
        failure = classify_json_error(choice_fields["error"])
        failure.usage = usage
        raise failure

    # The provider's own reason is more precise than litellm's, so it decides if there is one.
    reason = getattr(choice, "finish_reason", None)
    native_reason: Any = choice_fields.get("native_finish_reason")
    kind = classify_finish_reason(native_reason if isinstance(native_reason, str) else reason)

    _check_refusal(choice, text, kind, usage)
    # litellm's own "content_filter" counts even if the provider's reason is of another kind.
    is_filtered = reason == "content_filter" or kind is FailureKind.CONTENT_FILTER
    if is_filtered:
        raise _make_filter_error(native_reason, usage)
    if kind in (FailureKind.OVERLOADED, FailureKind.SERVER_ERROR):
        shown_reason = shorten_to_line(str(native_reason or reason), MAX_REASON_CHARS)
        problem = f"the provider ended the reply: {shown_reason}"
        raise GatewayError(kind, problem, usage=usage)


def _make_filter_error(native_reason: object, usage: Usage) -> GatewayError:
    """Build the failure for a filtered reply, with the provider's own reason if there is one."""
    problem = "the provider's content filter stopped the reply"
    if isinstance(native_reason, str):
        problem += f" ({shorten_to_line(native_reason, MAX_REASON_CHARS)})"
    return GatewayError(FailureKind.CONTENT_FILTER, problem, usage=usage)


def _check_refusal(
    choice: Any,  # noqa: ANN401 - litellm's object
    text: str,
    kind: FailureKind | None,
    usage: Usage,
) -> None:
    """Raise `GatewayError` if the reply ended with a refusal, or has nothing but one."""
    refusal = _get_refusal(choice.message)
    is_refusal_only = refusal and not text
    if is_refusal_only or kind is FailureKind.REFUSAL:
        raise _make_refusal_error(refusal, usage)


def _get_refusal(message: Any) -> Any:  # noqa: ANN401 - litellm's object
    """Return the refusal in a message, or None. Some providers put it into a field of their own."""
    message_fields = getattr(message, "provider_specific_fields", None) or {}
    return getattr(message, "refusal", None) or message_fields.get("refusal")


def _make_refusal_error(refusal: object, usage: Usage) -> GatewayError:
    """Build the failure for a model's refusal, with the model's words if there are any."""
    line = " ".join(str(refusal or "").split())
    words = line[:_MAX_REFUSAL_CHARS]
    problem = f"the model refused: {words}" if words else "the model refused to answer"
    return GatewayError(FailureKind.REFUSAL, problem, usage=usage)


def _is_cut(choice: Any) -> bool:  # noqa: ANN401 - litellm's object
    """Whether a reply ended because it reached a token limit."""
    if getattr(choice, "finish_reason", None) == "length":
        return True
    fields = getattr(choice, "provider_specific_fields", None) or {}
    native_reason = fields.get("native_finish_reason")
    return (
        isinstance(native_reason, str)
        and classify_finish_reason(native_reason) is FailureKind.TRUNCATED
    )


def _has_thoughts(response: Any, message: Any, text: str) -> bool:  # noqa: ANN401 - litellm's objects
    """Whether a model wrote thoughts, judging by the reply's token counts or its text."""
    usage = getattr(response, "usage", None)
    details = getattr(usage, "completion_tokens_details", None)
    if getattr(details, "reasoning_tokens", None):
        return True
    fields = getattr(message, "provider_specific_fields", None) or {}
    thoughts = getattr(message, "reasoning_content", None) or fields.get("reasoning")
    if str(thoughts or "").strip():  # some servers send empty thoughts when told not to think
        return True
    # The reply may have been truncated in the middle of a thought.
    return text.lstrip().startswith("<think>") and "</think>" not in text


def _read_tool_calls(message: Any) -> tuple[str, str]:  # noqa: ANN401 - litellm's object
    """Read the answer from a message's tool calls. Some models answer by calling a tool that we offer.

    Returns the arguments of all calls to our tool, one call per line, and the name of any other called tool.
    Both are "" if there are no such calls.
    """
    arguments = []
    other_tool = ""
    for function in _list_called_functions(message):
        if function.name != SCHEMA_NAME:
            other_tool = str(function.name)
        elif function.arguments:
            arguments.append(str(function.arguments))
    return "\n".join(arguments), other_tool


def _list_called_functions(message: Any) -> list[Any]:  # noqa: ANN401 - litellm's objects
    """List the functions in a message's tool calls, and in the field `function_call` of some providers."""
    functions = []
    for call in getattr(message, "tool_calls", None) or []:
        functions.append(getattr(call, "function", None))
    functions.append(getattr(message, "function_call", None))
    return [function for function in functions if function is not None]


def _choose_answer(content: str, tool_text: str, style: CallStyle) -> tuple[str, bool]:
    """Choose the message's content or our tool's arguments as the answer.

    Also returns whether the provider seems to have enforced the schema.
    """
    if tool_text and style.mode == "tool":
        return tool_text, True
    # In other modes, a call of our tool only counts if there's no content.
    if tool_text and not content:
        return tool_text, False
    # A text that isn't an object shows that the provider ignored the schema.
    is_enforced = style.mode == "json_schema" and _is_object(content)
    return content, is_enforced


def _make_cut_error(
    endpoint: Endpoint, request: Request, style: CallStyle, usage: Usage, *, is_thinking: bool
) -> GatewayError:
    """Build the failure for a reply that was truncated at its token limit. The message explains the limit."""
    reply_limit = style.reply_tokens(endpoint, request)
    thinking_tokens = style.thinking_tokens(endpoint)
    problem = f"the reply was cut at {reply_limit} tokens"
    if thinking_tokens:
        problem += f" ({thinking_tokens} of them for thinking)"

    if reply_limit == style.room:
        problem += ", which is all that the model's context leaves beside the prompt"
    elif reply_limit == style.most_tokens:
        problem += ", the most that the model writes"
    elif is_thinking or thinking_tokens:
        problem += f"; {_suggest_more_thinking(endpoint)}"

    failure = GatewayError(FailureKind.TRUNCATED, problem, usage=usage)
    if is_thinking:
        failure.objections = _NEEDS_MORE_THINKING
    return failure


def _make_empty_error(
    endpoint: Endpoint, usage: Usage, other_tool: str, *, is_thinking: bool
) -> GatewayError:
    """Build the failure for a reply without an answer.

    `is_thinking` means that the reply contains thoughts. `other_tool` is the name of a tool that the model
    called instead of ours, or "".
    """
    if other_tool:
        tool = shorten_to_line(other_tool, MAX_REASON_CHARS)
        problem = f"the model called another tool ({tool}) and gave no answer"
    elif is_thinking:
        problem = _explain_thoughts_only(endpoint)
    else:
        problem = "the reply is empty"

    failure = GatewayError(FailureKind.INVALID_REPLY, problem, usage=usage)
    if is_thinking:
        # The next try allows more tokens for thinking.
        failure.objections = _NEEDS_MORE_THINKING
    return failure


def _explain_thoughts_only(endpoint: Endpoint) -> str:
    """Explain that a reply has thoughts but no answer, and suggest the settings that can help."""
    problem = f"the model thought and gave no answer; {_suggest_more_thinking(endpoint)}"
    if getattr(endpoint.profile, "reads_reasoning", False):
        return problem
    # "There" is in the profile that the suggestion names.
    return f"{problem}, or set reads_reasoning: true there if its answers stand among its thoughts"


def _suggest_more_thinking(endpoint: Endpoint) -> str:
    name = endpoint.profile.provider
    file = f"providers/{name}.yaml in your configuration folder"
    return f"raise limits.thinking_tokens in the profile of {name} ({file})"


def _read_logprobs(
    choice: Any,  # noqa: ANN401 - litellm's object
    request: Request,
) -> tuple[tuple[dict[str, float], ...], tuple[str, ...]]:
    """Read the log probabilities and the tokens of a reply.

    For each token, there's a dict with the log probabilities of the token itself and its likely alternatives.
    Returns these dicts and the tokens. Both are empty if they're missing or malformed.
    """
    choice_logprobs = getattr(choice, "logprobs", None)
    content = getattr(choice_logprobs, "content", None) or []
    # Without a schema, the answer is computed from the probabilities of the alternatives, so keep them all.
    least_logprob = -math.inf if request.schema is None else _MIN_LOGPROB
    try:
        logprobs = tuple(_list_alternatives(token, least_logprob) for token in content)
        return logprobs, _decode_tokens(content)
    except (AttributeError, TypeError, ValueError):
        return (), ()


def _list_alternatives(
    token: Any,  # noqa: ANN401 - litellm's object
    least_logprob: float,
) -> dict[str, float]:
    """Map a token and its alternatives to their log probabilities, without the unlikely and infinite ones."""
    logprobs = {}
    for alternative in token.top_logprobs or ():
        is_likely = alternative.logprob >= least_logprob
        if is_likely and math.isfinite(alternative.logprob):
            logprobs[alternative.token] = float(alternative.logprob)
    if math.isfinite(token.logprob):
        # The token itself counts even if it's unlikely.
        logprobs[token.token] = float(token.logprob)
    return logprobs


def _decode_tokens(content: Any) -> tuple[str, ...]:  # noqa: ANN401 - litellm's objects
    """Return the text of each token."""
    have_bytes = all(isinstance(getattr(token, "bytes", None), list) for token in content)
    if not have_bytes:
        return tuple(str(token.token) for token in content)
    # A character's bytes can be split between tokens. This decoder adds the character to the last of them.
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return tuple(decoder.decode(bytes(token.bytes)) for token in content)


def _read_count(usage: object, name: str) -> int:
    """Read a token count in a reply's usage. A missing or invalid one gives 0."""
    return chat.parse_count(getattr(usage, name, 0)) or 0


def _read_usage(response: Any, endpoint: Endpoint) -> Usage:  # noqa: ANN401 - litellm's object
    """Read a call's tokens and cost from litellm's response.

    The cost comes from the profile's price, a proxy's header, or litellm's price table, in this order.
    """
    usage = getattr(response, "usage", None)
    details = getattr(usage, "prompt_tokens_details", None)
    prompt_tokens = _read_count(usage, "prompt_tokens")
    reply_tokens = _read_count(usage, "completion_tokens")
    cache_read = _read_count(details, "cached_tokens")
    cache_write = _read_count(details, "cache_creation_tokens")

    cost: float | None
    source: CostSource | None
    if endpoint.price is not None:
        cost = endpoint.price.compute_cost(prompt_tokens, reply_tokens, cache_read, cache_write)
        source = "profile"
    else:
        cost, source = _find_cost(response, endpoint)
    usage_and_cost = Usage(prompt_tokens, reply_tokens, cost, source, cache_read, cache_write)
    # If there's no cost, this counts as a call of unknown cost.
    return usage_and_cost.count_as_call()


def _find_cost(response: Any, endpoint: Endpoint) -> tuple[float | None, CostSource | None]:  # noqa: ANN401 - litellm's object
    """Find a call's cost in US dollars, and its source. Both are None if it's unknown."""
    hidden = getattr(response, "_hidden_params", None) or {}
    headers = hidden.get("additional_headers") or {}
    cost_by_proxy = _read_amount(headers.get("llm_provider-x-litellm-response-cost"))
    if cost_by_proxy is not None:
        return cost_by_proxy, "provider"

    cost = _read_amount(hidden.get("response_cost"))
    if cost is None:
        cost = _read_amount(_price_by_table(endpoint, getattr(response, "usage", None)))
    if cost is None:
        return None, None
    return cost, "litellm"


def _read_amount(price: Any) -> float | None:  # noqa: ANN401 - whatever a header or litellm says
    """Return a price as a number, or None if it isn't an amount of money."""
    with suppress(TypeError, ValueError):
        usd = float(price)
        if math.isfinite(usd) and usd >= 0:
            return usd
    return None


def _price_by_table(endpoint: Endpoint, usage: Any) -> float | None:  # noqa: ANN401 - litellm's object
    """Price a call with litellm's table. Return None if the table doesn't have exactly this model name."""
    with suppress(Exception):  # litellm can raise anything
        litellm = load()
        if endpoint.model in litellm.model_cost and usage is not None:
            prompt_usd, reply_usd = litellm.cost_per_token(model=endpoint.model, usage_object=usage)
            return float(prompt_usd + reply_usd)
    return None
