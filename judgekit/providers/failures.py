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


def _read_kinds(column: str) -> dict[Any, FailureKind]:
    """Map each value in a column of the table to the kind of failure that its row is about."""
    kinds = {}
    for kind, row in _TABLE.items():
        values = row.get(column, ())
        if isinstance(values, str):  # words are written as one text, numbers as a list
            values = values.split()
        for value in values:
            kinds[value] = FailureKind(kind)
    return kinds


def _compile_patterns(section: str) -> Patterns:
    return [(re.compile(text), FailureKind(kind)) for kind, text in _TEXTS[section]]


_BY_CAUSE = _read_kinds("causes")
_BY_STATUS = _read_kinds("statuses")
KINDS = _read_kinds("classes")
# These classes say little: the same one covers a full disk, a refused connection and a broken
# reply.
_VAGUE = {"APIConnectionError", "APIError", "InternalServerError", "OpenAIError", "BadRequestError"}
_BY_TEXT = _compile_patterns("kinds")
_ENDINGS = _compile_patterns("endings")
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
    """Build the failure that an exception of a call means.

    It has a kind and the provider's message, in which `secrets` are replaced. If the exception is or was
    caused by a `GatewayError`, that's returned as it is.
    """
    causes = _list_causes(error)
    for cause in causes:
        if isinstance(cause, GatewayError):
            return cause
    words = _split_words(str(error)[:_MOST_READ])
    message = _shorten_message(words.message) or type(error).__name__
    if len(message) > MAX_MESSAGE:
        message = message[: MAX_MESSAGE - 1] + "…"  # `MAX_MESSAGE` characters in all
    failure = GatewayError(_classify(causes, words.signs), without_values(message, secrets))
    failure.retry_after = _read_retry_after(error)
    _note_objections(failure, words.signs)
    return failure


def _read_retry_after(error: BaseException) -> float | None:
    """Read the seconds to wait from the headers of a failed call's response; None if they don't say."""
    headers_by_litellm = getattr(error, "litellm_response_headers", None) or {}
    response = getattr(error, "response", None)
    own_headers = getattr(response, "headers", None) or {}
    headers = {**headers_by_litellm, **own_headers}
    return seconds_of(str(headers.get("retry-after") or ""))


def _list_causes(error: BaseException) -> list[BaseException]:
    """List an exception, its cause, the cause of its cause, and so on.

    The list has a limit, since exceptions can be each other's causes.
    """
    causes = [error]
    while len(causes) < _MOST_CAUSES:
        cause = causes[-1].__cause__ or causes[-1].__context__
        if cause is None:
            break
        causes.append(cause)
    return causes


def _shorten_message(message: str) -> str:
    """Remove the names of exceptions, litellm's advice to programmers and details of a connection."""
    message = re.sub(r"(?:litellm\.)?\b[A-Za-z]+Error: |\b\w+Exception - ", "", message)
    message = re.sub(r"\. Handle with `litellm\.\w+`\.?", "", message)
    message = re.sub(r" ssl:<[^<>]*>| \[Connect call failed [^][]*\]", "", message)
    return " ".join(message.split()).strip(" |")


def error_in_success(body: dict[str, Any], *, has_answer: bool) -> Any:  # noqa: ANN401 - any JSON
    """Find the error in a body that a provider sent with a success status; None if it holds no error.

    If the body has an answer, too, an explicit `error` still counts, since such an answer can't be trusted.
    Fields like `message`, which valid bodies may also have, count as an error only without an answer.
    """
    error = body.get("error")
    if isinstance(error, dict | list | str) and error:
        return error
    if body.get("success") is False and body.get("errors"):
        return {"message": _find_message(body) or "the provider gave an error"}
    if has_answer:
        return None
    if isinstance(body.get("base_resp"), dict):  # MiniMax
        body = body["base_resp"]
    message = _find_message(body)
    if message is None:
        return None
    return {"message": message, "code": status_of(body)}


def stated_failure(error: Any) -> GatewayError:  # noqa: ANN401 - any JSON
    """Build the failure for an error that was found in a reply, with or without an answer."""
    words = _split_words(json.dumps({"error": error}, ensure_ascii=False)[:_MOST_READ])
    message = " ".join(words.message.split())[:MAX_MESSAGE]
    code = status_of(error)
    kind = _classify_words(words.signs) or _BY_STATUS.get(code, _guess_kind_by_status(code))
    failure = GatewayError(kind, message or "the provider gave an error and no answer")
    _note_objections(failure, words.signs)
    return failure


def status_of(error: Any) -> int:  # noqa: ANN401 - any JSON
    """Read the HTTP status that an error in JSON names, as a number or as a word; 500 if it names none."""
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
    """Classify a provider's own word for why a reply ended. None: a normal end, or no reason is given."""
    if not native:
        return None
    return _first_match(_ENDINGS, native)


def _first_match(patterns: Patterns, text: str) -> FailureKind | None:
    """Return the kind of the first pattern found in a text, or None."""
    for pattern, kind in patterns:
        if pattern.search(text):
            return kind
    return None


def _guess_kind_by_status(status: int) -> FailureKind:
    is_of_the_client = status < 500  # noqa: PLR2004 - as HTTP divides its statuses
    return FailureKind.BAD_REQUEST if is_of_the_client else FailureKind.SERVER_ERROR


def _split_words(text: str) -> Words:
    """Find the provider's message in an exception's text, and the words that identify the kind of error.

    The text may end with an error in JSON. Without one, the whole text is both.
    """
    text, _, _ = text.partition("Traceback (most recent call last)")
    head, brace, rest = text.partition("{")
    try:
        data, _ = json.JSONDecoder().raw_decode(brace + rest)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        return Words(text, text)
    error = data.get("error", data)
    message = _find_message(error) or _find_message(data)
    if message is None:
        return Words(text, text)
    signs = [head, message]
    if isinstance(error, dict):
        signs += [str(error[name]) for name in _NAMING if error.get(name) is not None]
        signs += map(str, error)  # keys only: a value may quote the model's output
    return Words(f"{head}{message}", " ".join(signs))


def _find_message(error: Any) -> str | None:  # noqa: ANN401 - any JSON
    """Find the message in a JSON error: a text, an object, or a list of either. None if there's none."""
    if isinstance(error, str):
        return error
    if isinstance(error, list):
        return _join_messages(error)
    if not isinstance(error, dict):
        return None
    for name in _MESSAGES:
        value = error.get(name)
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, list):
            message = _join_messages(value)
            if message:
                return message
    return None


def _join_messages(errors: list[Any]) -> str | None:
    """Join the messages of the errors in a list; None if there's none.

    An error with a location is shown as `body.messages: …`, after the part of the request that it's about.
    """
    problems = []
    for error in errors[:_MOST_PROBLEMS]:
        message = _find_message(error)
        if message is None:
            continue
        location = error.get("loc") if isinstance(error, dict) else None
        if isinstance(location, list) and location:
            field = ".".join(map(str, location))
            message = f"{field}: {message}"
        problems.append(message)
    return "; ".join(problems) or None


def _note_objections(failure: GatewayError, signs: str) -> None:
    """Set a failure's `objections` to the request, and its `room`: the tokens left for a reply.

    The room may also be the most tokens that the model ever writes; then "cap" is one of the objections.
    """
    objections = {name for name, pattern in _OBJECTIONS.items() if pattern.search(signs)}
    room = _read_room(signs)
    if room is None:
        room = _read_cap(signs)
        if room is not None:
            objections.add("cap")
    failure.room = room
    failure.objections = frozenset(objections)


def _read_room(signs: str) -> int | None:
    """Read how many tokens a model's context leaves for a reply; None if the words don't say that."""
    for pattern in _ROOM:
        match = pattern.search(signs)
        if match:
            numbers = match.groupdict()
            room = _parse_number(numbers["limit"]) - _parse_number(numbers.get("used") or "0")
            return max(0, room)
    return None


def _read_cap(signs: str) -> int | None:
    """Read how many tokens a model's reply may have at most; None if the words don't say that."""
    for pattern in _CAP:
        match = pattern.search(signs)
        if match:
            numbers = match.groupdict()
            # If the words were "less than" a number, the number itself is too high.
            if numbers.get("below") is not None:
                return _parse_number(numbers["below"]) - 1
            return _parse_number(numbers["most"])
    return None


def _parse_number(digits: str) -> int:
    """Read a number that may be written with commas: `128,000`."""
    return int(digits.replace(",", ""))


def _classify_words(signs: str) -> FailureKind | None:
    """Classify a failure by the provider's words; None if they don't tell."""
    for name, kind in _MEANING.items():
        if _OBJECTIONS[name].search(signs):
            return kind
    return _first_match(_BY_TEXT, signs)


def _classify(causes: Sequence[BaseException], signs: str) -> FailureKind:
    """Find the kind of failure that an exception (`causes[0]`) means.

    The first of these that tells decides: the classes of its causes, the provider's words, its own class, and
    the HTTP status.
    """
    error = causes[0]
    cause_names = [type(cause).__name__ for cause in causes]
    for name, kind in _BY_CAUSE.items():
        if name in cause_names:
            return kind
    kind_by_words = _classify_words(signs)
    # The most specific class comes first.
    known_classes = [base.__name__ for base in type(error).__mro__ if base.__name__ in KINDS]
    known_class = known_classes[0] if known_classes else ""
    if known_class and known_class not in _VAGUE:
        return kind_by_words or KINDS[known_class]
    if _is_broken_reply(error, cause_names):
        return FailureKind.INVALID_REPLY
    kind_by_class = KINDS.get(known_class, FailureKind.SERVER_ERROR)
    status = getattr(error, "status_code", None)
    is_of_the_client = isinstance(status, int) and 400 <= status < 500  # noqa: PLR2004 - as HTTP has it
    if is_of_the_client:
        kind_by_class = FailureKind.BAD_REQUEST
    return kind_by_words or _BY_STATUS.get(status, kind_by_class)


def _is_broken_reply(error: BaseException, cause_names: Sequence[str]) -> bool:
    """Whether a reply arrived, but litellm couldn't read it."""
    if re.search(r"no 'choices'|'choices' that is not", str(error)):
        return True
    if "HTTPStatusError" in cause_names:
        return False
    return "JSONDecodeError" in cause_names or cause_names[-1] in _BROKEN_REPLY
