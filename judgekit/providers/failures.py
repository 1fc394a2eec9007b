"""Says what kind of failure an exception of a model call is. Knows litellm's classes by name only."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

from judgekit.errors import FailureKind, GatewayError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# Every class of litellm.exceptions; a test fails when a release brings one that is not here.
KINDS: Final[Mapping[str, FailureKind]] = {
    "APIConnectionError": FailureKind.CONNECTION,
    "APIError": FailureKind.SERVER_ERROR,
    "APIResponseValidationError": FailureKind.INVALID_REPLY,
    "AuthenticationError": FailureKind.AUTHENTICATION,
    "BadGatewayError": FailureKind.SERVER_ERROR,
    "BadRequestError": FailureKind.BAD_REQUEST,
    "BlockedPiiEntityError": FailureKind.CONTENT_FILTER,
    "BudgetExceededError": FailureKind.BUDGET,
    "ContentPolicyViolationError": FailureKind.CONTENT_FILTER,
    "ContextWindowExceededError": FailureKind.CONTEXT_WINDOW,
    "GuardrailRaisedException": FailureKind.CONTENT_FILTER,
    "ImageFetchError": FailureKind.BAD_REQUEST,
    "InternalServerError": FailureKind.SERVER_ERROR,
    "InvalidRequestError": FailureKind.BAD_REQUEST,
    "JSONSchemaValidationError": FailureKind.INVALID_REPLY,
    "LiteLLMUnknownProvider": FailureKind.BAD_REQUEST,
    "MidStreamFallbackError": FailureKind.SERVER_ERROR,
    "MockException": FailureKind.SERVER_ERROR,
    "ModelNotMappedError": FailureKind.BAD_REQUEST,
    "ModifyResponseException": FailureKind.CONTENT_FILTER,
    "NotFoundError": FailureKind.NOT_FOUND,
    "OpenAIError": FailureKind.SERVER_ERROR,
    "PaymentRequiredError": FailureKind.PERMISSION,
    "PermissionDeniedError": FailureKind.PERMISSION,
    "RateLimitError": FailureKind.RATE_LIMIT,
    "RejectedRequestError": FailureKind.CONTENT_FILTER,
    "SensitiveDataRouteException": FailureKind.CONTENT_FILTER,
    "ServiceUnavailableError": FailureKind.OVERLOADED,
    "Timeout": FailureKind.TIMEOUT,
    "UnprocessableEntityError": FailureKind.BAD_REQUEST,
    "UnsupportedParamsError": FailureKind.BAD_REQUEST,
    "VectorStoreSearchError": FailureKind.BAD_REQUEST,
}
_BY_STATUS: Final[Mapping[int, FailureKind]] = {
    401: FailureKind.AUTHENTICATION,
    402: FailureKind.PERMISSION,
    403: FailureKind.PERMISSION,
    404: FailureKind.NOT_FOUND,
    408: FailureKind.TIMEOUT,
    409: FailureKind.SERVER_ERROR,
    413: FailureKind.CONTEXT_WINDOW,
    429: FailureKind.RATE_LIMIT,
    503: FailureKind.OVERLOADED,
    504: FailureKind.TIMEOUT,
    529: FailureKind.OVERLOADED,
}
# The classes that say little: the same one stands for a full disk, a refused connection and a broken reply.
_VAGUE = frozenset(
    {"APIConnectionError", "APIError", "InternalServerError", "OpenAIError", "BadRequestError"}
)
_BY_TEXT: Final = (
    (re.compile(r"insufficient_quota|exceeded your current quota|credit balance"), FailureKind.PERMISSION),
    (re.compile(r"(?i)api[ _]key (?:is )?(?:not valid|invalid|not found)"), FailureKind.AUTHENTICATION),
    (re.compile(r"(?i)context (?:length|window|size)|prompt is too long"), FailureKind.CONTEXT_WINDOW),
    (re.compile(r"(?i)overloaded"), FailureKind.OVERLOADED),
)
# What an exception came from, by the names that aiohttp, httpx, openai and Python give it.
_BY_CAUSE: Final = (
    (FailureKind.BAD_REQUEST, frozenset({"ModuleNotFoundError"})),
    (
        FailureKind.TIMEOUT,
        frozenset({"APITimeoutError", "ConnectTimeout", "PoolTimeout", "ReadTimeout", "TimeoutError"}),
    ),
    (
        FailureKind.CONNECTION,
        frozenset(
            {
                "BrokenPipeError",
                "ClientConnectorDNSError",
                "ClientConnectorError",
                "ClientOSError",
                "ClientPayloadError",
                "CloseError",
                "ConnectError",
                "ConnectionRefusedError",
                "ConnectionResetError",
                "ProxyError",
                "ReadError",
                "RemoteProtocolError",
                "ServerDisconnectedError",
                "WriteError",
                "gaierror",
            }
        ),
    ),
)
_BROKEN_REPLY = frozenset(
    {"AttributeError", "IndexError", "JSONDecodeError", "KeyError", "RecursionError", "TypeError"}
)
_REJECTED_FORMAT = re.compile(
    r"response_?(?:format|schema|json_?schema|mime)|output_?(?:format|config)|json_(?:schema|object|mode)"
    r"|structured.?output|grammar|tool_?choice|\btools?\b|function.?call|additionalProperties",
    re.IGNORECASE,
)
MAX_MESSAGE = 300
_MOST_READ = 20_000  # characters of what an exception says


def failure_of(error: BaseException, secrets: Iterable[str] = ()) -> GatewayError:
    """Return the failure that an exception of a call means; none of the `secrets` is in its message."""
    own = next((cause for cause in _causes(error) if isinstance(cause, GatewayError)), None)
    if own is not None:
        return own
    message = without_values(_one_line(error), secrets)
    return GatewayError(_kind(error), message, retry_after=_retry_after(error))


def rejects_format(failure: GatewayError) -> bool:
    """Whether the provider refused the structured output that was asked for, rather than the request."""
    return failure.kind is FailureKind.BAD_REQUEST and bool(_REJECTED_FORMAT.search(failure.message))


def without_values(text: str, secrets: Iterable[str]) -> str:
    """Return `text` without any of the `secrets`, also where a provider shows a key's beginning or end.

    An end of fewer than four characters stays.
    """
    for secret in secrets:
        if len(secret) >= 6:  # noqa: PLR2004 - shorter ones are no keys, and would blank out words
            text = text.replace(secret, "[key]")
            text = re.sub(rf"{re.escape(secret[:6])}[\w*…-]*|(?<![\w-])[\w-]*+\*{{3,}}[\w*-]*", "[key]", text)
            text = _without_end(text, secret)
    return text


def _without_end(text: str, secret: str) -> str:
    """Return `text` without the words that are the end of a secret: four characters or more of it."""
    ends = "|".join(re.escape(secret[-length:]) for length in range(len(secret) - 1, 3, -1))
    return re.sub(rf"(?<![^\W_])(?:{ends})(?![^\W_])", "[key]", text)


def _kind(error: BaseException) -> FailureKind:
    names = [type(cause).__name__ for cause in _causes(error)]
    for kind, causes in _BY_CAUSE:
        if causes.intersection(names):
            return kind
    known = next((base.__name__ for base in type(error).__mro__ if base.__name__ in KINDS), None)
    if known is not None and known not in _VAGUE:
        return _by_text(error) or KINDS[known]
    if _is_broken(error, names):
        return FailureKind.INVALID_REPLY
    return _by_text_and_status(error, KINDS.get(known or "", FailureKind.SERVER_ERROR))


def _is_broken(error: BaseException, names: list[str]) -> bool:
    """Whether a reply came, but not one that litellm could read."""
    if "HTTPStatusError" not in names and ("JSONDecodeError" in names or names[-1] in _BROKEN_REPLY):
        return True
    return re.search(r"no 'choices'|'choices' that is not", str(error)) is not None


def _by_text_and_status(error: BaseException, default: FailureKind) -> FailureKind:
    status = getattr(error, "status_code", None)
    return _by_text(error) or (_BY_STATUS.get(status, default) if isinstance(status, int) else default)


def _by_text(error: BaseException) -> FailureKind | None:
    text = str(error)
    return next((kind for pattern, kind in _BY_TEXT if pattern.search(text)), None)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and what led to it; bounded, since a chain may be a ring."""
    current: BaseException | None = error
    for _ in range(12):
        if current is None:
            return
        yield current
        current = current.__cause__ or current.__context__


def _one_line(error: BaseException) -> str:
    text = str(error)[:_MOST_READ].split("Traceback (most recent call last)")[0]
    text = _inner_message(text) or text
    text = re.sub(r"(?:litellm\.)?\b[A-Za-z]+Error: |\b\w+Exception - ", "", text)
    text = re.sub(r"\. Handle with `litellm\.\w+`\.?", "", text)
    text = re.sub(r" ssl:<[^<>]*>| \[Connect call failed [^][]*\]", "", text)
    text = " ".join(text.split()).strip(" |") or type(error).__name__
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


def _inner_message(text: str) -> str | None:
    """Return the provider's own words where the text carries its JSON."""
    start = text.find("{")
    if start < 0:
        return None
    try:
        data, _ = json.JSONDecoder().raw_decode(text[start:])
    except (ValueError, RecursionError):
        return None
    found: Any = data.get("error", data) if isinstance(data, dict) else None
    words = found.get("message") if isinstance(found, dict) else found
    return f"{text[:start]}{words}" if isinstance(words, str) else None


def _retry_after(error: BaseException) -> float | None:
    for headers in (
        getattr(getattr(error, "response", None), "headers", None),
        getattr(error, "litellm_response_headers", None),
    ):
        value = headers.get("retry-after") if headers else None
        if value:
            return _seconds(str(value))
    return None


def _seconds(value: str) -> float | None:
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None
