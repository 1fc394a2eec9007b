"""Classifies litellm's exceptions, and finds the part of a request that a provider objects to.

Providers say the same thing in many ways; `failures.toml` lists them. Only the provider's own message and
its codes are read, since an error may also repeat the judged text or the model's output.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from judgekit import environment
from judgekit.errors import FailureKind, GatewayError
from judgekit.providers.base import MAX_MESSAGE, without_values
from judgekit.providers.pace import seconds_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_TABLE: dict[str, Any] = environment.table(__file__, "failures.toml")
_TEXTS = _TABLE.pop("texts")
Patterns: TypeAlias = list[tuple[re.Pattern[str], FailureKind]]


def _kinds_by(column: str) -> dict[Any, FailureKind]:
    """Map each word or number in a column of the table to its kind of failure."""
    kinds = {}
    for kind, row in _TABLE.items():
        values = row.get(column, ())
        for value in values.split() if isinstance(values, str) else values:
            kinds[value] = FailureKind(kind)
    return kinds


def _patterns(section: str) -> Patterns:
    return [(re.compile(text), FailureKind(kind)) for kind, text in _TEXTS[section]]


_BY_CAUSE = _kinds_by("causes")
_BY_STATUS = _kinds_by("statuses")
KINDS = _kinds_by("classes")
# These classes say little: the same one covers a full disk, a refused connection and a broken
# reply.
_VAGUE = {"APIConnectionError", "APIError", "InternalServerError", "OpenAIError", "BadRequestError"}
_BY_TEXT = _patterns("kinds")
_ENDINGS = _patterns("endings")
_OBJECTIONS = {name: re.compile(text) for name, text in _TEXTS["objections"].items()}
# These words decide whatever the status is: the output didn't fit the requested format, or the
# model's template lacks a role.
_MEANING = {"unfit": FailureKind.INVALID_REPLY, "system": FailureKind.BAD_REQUEST}
_ROOM = list(map(re.compile, _TEXTS["room"]))
_CAP = list(map(re.compile, _TEXTS["cap"]))
_BROKEN_REPLY = {
    "AttributeError",
    "IndexError",
    "JSONDecodeError",
    "KeyError",
    "RecursionError",
    "TypeError",
}
# Where an error keeps its message and its status, the most trusted key first.
_MESSAGES = (
    *("message", "detail", "details", "msg", "error_msg", "error_message", "errorMessage"),
    *("status_msg", "errors"),
)
_CODES = ("code", "status", "status_code", "error_code")
# Statuses that some servers give as a word, in a code or a type.
_STATUS_BY_WORD = {
    "invalid_request": 400,
    "invalid_argument": 400,
    "authentication": 401,
    "unauthenticated": 401,
    "insufficient": 402,
    "permission": 403,
    "not_found": 404,
    "rate_limit": 429,
    "resource_exhausted": 429,
    "overloaded": 529,
}
_UNNAMED = 500
_NAMING = ("code", "type", "param")  # keys of an error that identify the problem
_MOST_READ = 20_000  # characters read of an exception's text
_MOST_CAUSES = 12
_MOST_PROBLEMS = 5  # quoted from one request, in one message


class Words(NamedTuple):
    """A provider's error: its `message`, and the `signs` that identify the kind of error."""

    message: str
    signs: str


def classify_exception(error: BaseException, secrets: Iterable[str] = ()) -> GatewayError:
    """Classify an exception of a call, with the provider's message and without the `secrets`."""
    causes = [error]
    while len(causes) < _MOST_CAUSES and (cause := causes[-1].__cause__ or causes[-1].__context__):
        causes.append(cause)  # a chain of causes can be circular
    for cause in causes:
        if isinstance(cause, GatewayError):
            return cause
    words = _words(str(error)[:_MOST_READ])
    text = words.message
    text = re.sub(r"(?:litellm\.)?\b[A-Za-z]+Error: |\b\w+Exception - ", "", text)
    text = re.sub(r"\. Handle with `litellm\.\w+`\.?", "", text)
    text = re.sub(r" ssl:<[^<>]*>| \[Connect call failed [^][]*\]", "", text)
    text = " ".join(text.split()).strip(" |") or type(error).__name__
    if len(text) > MAX_MESSAGE:
        text = text[: MAX_MESSAGE - 1] + "…"
    own_headers = getattr(getattr(error, "response", None), "headers", None) or {}
    headers = {**(getattr(error, "litellm_response_headers", None) or {}), **own_headers}
    failure = GatewayError(_kind(causes, words.signs), without_values(text, secrets))
    failure.retry_after = seconds_of(str(headers.get("retry-after") or ""))
    _note_objections(failure, words.signs)
    return failure


def error_in_success(body: dict[str, Any], *, has_answer: bool) -> Any:  # noqa: ANN401 - any JSON
    """Find the error in a body that was sent with a success status; None if there isn't one.

    An error beside an answer counts, since such an answer can't be trusted. Words that also occur in healthy
    bodies count only if there's no answer.
    """
    error = body.get("error")
    if isinstance(error, dict | list | str) and error:
        return error
    if body.get("success") is False and body.get("errors"):
        return {"message": _message_in(body) or "the provider gave an error"}
    if has_answer:
        return None
    if isinstance(body.get("base_resp"), dict):  # MiniMax
        body = body["base_resp"]
    message = _message_in(body)
    if message is None:
        return None
    return {"message": message, "code": status_of(body)}


def stated_failure(error: Any) -> GatewayError:  # noqa: ANN401 - any JSON
    """Build the failure for an error found in a reply, whether instead of an answer or beside it."""
    words = _words(json.dumps({"error": error}, ensure_ascii=False)[:_MOST_READ])
    message = " ".join(words.message.split())[:MAX_MESSAGE]
    code = status_of(error)
    kind = _kind_in(words.signs) or _BY_STATUS.get(code, _by_class(code))
    failure = GatewayError(kind, message or "the provider gave an error and no answer")
    _note_objections(failure, words.signs)
    return failure


def status_of(error: Any) -> int:  # noqa: ANN401 - any JSON
    """Read the HTTP status of an error in JSON, given as a number or a word; 500 if there's none."""
    if not isinstance(error, dict):
        return _UNNAMED
    for name in _CODES:
        try:
            status = int(error[name])
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
        if 400 <= status <= 599:  # noqa: PLR2004 - the range of errors
            return status
    for name in (*_CODES, "type"):
        for word, status in _STATUS_BY_WORD.items():
            if word in str(error.get(name, "")).lower():
                return status
    return _UNNAMED


def ending(native: str | None) -> FailureKind | None:
    """Classify a provider's own reason for ending a reply; None for a normal end."""
    return _first_match(_ENDINGS, native) if native else None


def _first_match(patterns: Patterns, text: str) -> FailureKind | None:
    for pattern, kind in patterns:
        if pattern.search(text):
            return kind
    return None


def _by_class(status: int) -> FailureKind:
    is_of_the_client = status < 500  # noqa: PLR2004 - as HTTP divides its statuses
    return FailureKind.BAD_REQUEST if is_of_the_client else FailureKind.SERVER_ERROR


def _words(text: str) -> Words:
    """Split an exception's text, which may end with an error in JSON, into message and signs."""
    text = text.split("Traceback (most recent call last)", maxsplit=1)[0]
    head, brace, rest = text.partition("{")
    try:
        data, _ = json.JSONDecoder().raw_decode(brace + rest)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        return Words(text, text)
    error = data.get("error", data)
    message = _message_in(error) or _message_in(data)
    if message is None:
        return Words(text, text)
    signs = [head, message]
    if isinstance(error, dict):
        signs += [str(error[name]) for name in _NAMING if error.get(name) is not None]
        signs += map(str, error)  # keys only: a value may quote the model's output
    return Words(f"{head}{message}", " ".join(signs))


def _message_in(error: Any) -> str | None:  # noqa: ANN401 - any JSON
    """Find the message in a JSON error, or in a list of problems with the request."""
    if isinstance(error, str):
        return error
    if isinstance(error, list):
        return _message_in_list(error)
    if not isinstance(error, dict):
        return None
    for name in _MESSAGES:
        value = error.get(name)
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, list) and (message := _message_in_list(value)):
            return message
    return None


def _message_in_list(errors: list[Any]) -> str | None:
    """Join the messages of a list, each with the part of the request it's about."""
    problems = []
    for error in errors[:_MOST_PROBLEMS]:
        message = _message_in(error)
        if message is None:
            continue
        location = error.get("loc") if isinstance(error, dict) else None
        field = ".".join(map(str, location)) if isinstance(location, list) else ""
        problems.append(f"{field}: {message}" if field else message)
    return "; ".join(problems) or None


def _note_objections(failure: GatewayError, signs: str) -> None:
    """Note in a failure the provider's objections to the request, and the tokens left for a reply."""
    objections = {name for name, pattern in _OBJECTIONS.items() if pattern.search(signs)}
    for pattern in _ROOM:
        if match := pattern.search(signs):
            numbers = match.groupdict()
            room = _number(numbers["limit"]) - _number(numbers.get("used") or "0")
            failure.room = max(0, room)
            break
    for pattern in _CAP:
        if failure.room is None and (match := pattern.search(signs)):
            numbers = match.groupdict()
            is_exclusive = numbers.get("below") is not None
            failure.room = (
                _number(numbers["below"]) - 1 if is_exclusive else _number(numbers["most"])
            )
            objections.add("cap")
    failure.objections = frozenset(objections)


def _number(digits: str) -> int:
    return int(digits.replace(",", ""))


def _kind_in(signs: str) -> FailureKind | None:
    """Classify a failure by the provider's words; None if they don't tell."""
    for name, kind in _MEANING.items():
        if _OBJECTIONS[name].search(signs):
            return kind
    return _first_match(_BY_TEXT, signs)


def _kind(causes: Sequence[BaseException], signs: str) -> FailureKind:
    error = causes[0]
    names = [type(cause).__name__ for cause in causes]
    text = str(causes[0])
    for cause, kind in _BY_CAUSE.items():
        if cause in names:
            return kind
    by_text = _kind_in(signs)
    classes = [base.__name__ for base in type(error).__mro__]
    known = next((name for name in classes if name in KINDS), "")
    if known and known not in _VAGUE:
        return by_text or KINDS[known]
    # A reply arrived, but litellm couldn't read it.
    is_broken = "JSONDecodeError" in names or names[-1] in _BROKEN_REPLY
    is_broken = is_broken and "HTTPStatusError" not in names
    if is_broken or re.search(r"no 'choices'|'choices' that is not", text):
        return FailureKind.INVALID_REPLY
    by_class = KINDS.get(known, FailureKind.SERVER_ERROR)
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and 400 <= status < 500:  # noqa: PLR2004 - as HTTP divides its statuses
        by_class = FailureKind.BAD_REQUEST
    return by_text or _BY_STATUS.get(status, by_class)
