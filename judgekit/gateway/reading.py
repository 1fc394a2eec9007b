"""Reads what a model answered out of litellm's response object."""

from __future__ import annotations

import codecs
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit.errors import FailureKind, GatewayError
from judgekit.gateway.base import Endpoint, Reply, Request
from judgekit.usage import CostSource, Usage

if TYPE_CHECKING:
    from judgekit.provider import OutputMode

_LEAST_LOGPROB = -7.0  # one in a thousand: a less likely alternative of a whole reply is not kept


class Cost(NamedTuple):
    """What a call cost in US dollars, and who says so."""

    usd: float | None = None
    source: CostSource | None = None


def reply_of(
    response: Any,  # noqa: ANN401 - litellm's object, as its version shapes it
    endpoint: Endpoint,
    request: Request,
    cost: Cost,
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
    called = "\n".join(str(each.arguments) for each in calls if each is not None and each.arguments)
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


def _usage(response: Any, endpoint: Endpoint, cost: Cost) -> Usage:  # noqa: ANN401 - litellm's object
    usage = getattr(response, "usage", None)
    read = int(getattr(usage, "prompt_tokens", 0) or 0)
    written = int(getattr(usage, "completion_tokens", 0) or 0)
    details = getattr(usage, "prompt_tokens_details", None)
    cached = int(getattr(details, "cached_tokens", 0) or 0)
    stored = int(getattr(details, "cache_creation_tokens", 0) or 0)
    if endpoint.price is not None:
        cost = Cost(endpoint.price.of(read, written, cached, stored), "profile")
    return Usage(read, written, cost.usd, cost.source, cached, stored)
