"""Says what kind of failure an exception of a model call is. Knows litellm's classes by name only."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from judgekit.errors import FailureKind, GatewayError
from judgekit.providers.pace import seconds_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_TABLE: Final[Mapping[str, Mapping[str, Any]]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_bytes().decode()
)
_BY_CAUSE = {
    cause: FailureKind(kind) for kind, row in _TABLE.items() for cause in row.get("causes", "").split()
}
_BY_STATUS = {status: FailureKind(kind) for kind, row in _TABLE.items() for status in row.get("statuses", ())}
KINDS: Final = {name: FailureKind(kind) for kind, row in _TABLE.items() for name in row["classes"].split()}
# The classes that say little: the same one stands for a full disk, a refused connection and a broken reply.
_VAGUE = {"APIConnectionError", "APIError", "InternalServerError", "OpenAIError", "BadRequestError"}
_BY_TEXT: Final = (
    (re.compile(r"insufficient_quota|exceeded your current quota|credit balance"), FailureKind.PERMISSION),
    (re.compile(r"(?i)api[ _]key (?:is )?(?:not valid|invalid|not found)"), FailureKind.AUTHENTICATION),
    (re.compile(r"(?i)context (?:length|window|size)|prompt is too long"), FailureKind.CONTEXT_WINDOW),
    (re.compile(r"(?i)overloaded"), FailureKind.OVERLOADED),
)
_BROKEN_REPLY = {"AttributeError", "IndexError", "JSONDecodeError", "KeyError", "RecursionError", "TypeError"}
# Of a request that was refused for the structured output it asked for.
REJECTED_FORMAT = re.compile(
    r"response_?(?:format|schema|json_?schema|mime)|output_?(?:format|config)|json_(?:schema|object|mode)"
    r"|structured.?output|grammar|tool_?choice|\btools?\b|function.?call|additionalProperties",
    re.IGNORECASE,
)
MAX_MESSAGE = 300
_MOST_READ = 20_000  # characters of what an exception says
_MOST_CAUSES = 12


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


def without_values(text: str, secrets: Iterable[str]) -> str:
    """Return `text` without `secrets`, nor their beginnings, or ends of four characters and more."""
    for secret in secrets:
        if len(secret) < 6:  # noqa: PLR2004 - no key, and it would blank out words
            continue
        text = text.replace(secret, "[key]")
        text = re.sub(rf"{re.escape(secret[:6])}[\w*…-]*|(?<![\w-])[\w-]*+\*{{3,}}[\w*-]*", "[key]", text)
        ends = "|".join(re.escape(secret[-length:]) for length in range(len(secret) - 1, 3, -1))
        text = re.sub(rf"(?<![^\W_])(?:{ends})(?![^\W_])", "[key]", text)
    return text
