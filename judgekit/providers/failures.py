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
from judgekit.providers.base import MAX_MESSAGE_CHARS, hide_secrets
from judgekit.providers.pace import parse_retry_after

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ROW_BY_FAILURE_KIND: dict[str, Any] = environment.read_toml(__file__, "failures.toml")
# Patterns of messages; the rest has a row for each kind of failure.
_MESSAGE_PATTERNS = _ROW_BY_FAILURE_KIND.pop("texts")
Patterns: TypeAlias = list[tuple[re.Pattern[str], FailureKind]]


def _read_kinds(column: str) -> dict[Any, FailureKind]:
    """Map the values in one column of `_ROW_BY_FAILURE_KIND` to their rows' kinds of failure."""
    kind_by_value = {}
    for kind, row in _ROW_BY_FAILURE_KIND.items():
        values = row.get(column, ())
        if isinstance(values, str):  # words separated by blanks
            values = values.split()
        for value in values:
            kind_by_value[value] = FailureKind(kind)
    return kind_by_value


def _compile_patterns(section: str) -> Patterns:
    return [(re.compile(text), FailureKind(kind)) for kind, text in _MESSAGE_PATTERNS[section]]


_KIND_BY_CAUSE = _read_kinds("causes")
_KIND_BY_STATUS = _read_kinds("statuses")
KIND_BY_CLASS = _read_kinds("classes")
# Classes that can mean anything from a full disk to a refused connection or a broken reply
_VAGUE = {"APIConnectionError", "APIError", "InternalServerError", "OpenAIError", "BadRequestError"}
_KIND_PATTERNS = _compile_patterns("kinds")
_FINISH_REASON_PATTERNS = _compile_patterns("endings")
_PATTERN_BY_OBJECTION = {
    name: re.compile(text) for name, text in _MESSAGE_PATTERNS["objections"].items()
}
# Objections that decide the kind of failure whatever the status is: the output didn't fit the requested
# format, or the model's template lacks a role.
_KIND_BY_OBJECTION = {"unfit": FailureKind.INVALID_REPLY, "system": FailureKind.BAD_REQUEST}
_CONTEXT_LIMIT_PATTERNS = list(map(re.compile, _MESSAGE_PATTERNS["room"]))
_REPLY_LIMIT_PATTERNS = list(map(re.compile, _MESSAGE_PATTERNS["cap"]))
_BROKEN_REPLY = {
    "AttributeError",
    "IndexError",
    "JSONDecodeError",
    "KeyError",
    "RecursionError",
    "TypeError",
}
# Where an error keeps its message and its status, the most trusted key first.
_MESSAGE_KEYS = (
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
_DEFAULT_STATUS = 500
_IDENTIFYING_KEYS = ("code", "type", "param")
_MAX_ERROR_CHARS = 20_000  # characters read of an exception's text
_MAX_CAUSES = 12
_MAX_PROBLEMS = 5  # quoted in one message


_EXCEPTION_NAME_PATTERN = re.compile(r"(?:litellm\.)?\b[A-Za-z]+Error: |\b\w+Exception - ")
_PROGRAMMER_ADVICE_PATTERN = re.compile(r"\. Handle with `litellm\.\w+`\.?")
_CONNECTION_DETAILS_PATTERN = re.compile(r" ssl:<[^<>]*>| \[Connect call failed [^][]*\]")


class ErrorText(NamedTuple):
    """The text of a provider's error: its `message`, and the `signs` from which to classify it.

    The signs are one text: the message, codes and the error's keys.
    """

    message: str
    signs: str


def classify_exception(error: BaseException, secrets: Iterable[str] = ()) -> GatewayError:
    """Convert a call's exception to a `GatewayError` with the failure's kind and the provider's message.

    `secrets` are hidden in the message. If the exception or one of its causes is a `GatewayError`, returns
    that unchanged.
    """
    causes = _list_causes(error)
    for cause in causes:  # the first one is the exception itself
        if isinstance(cause, GatewayError):
            return cause

    text = _read_error_text(str(error)[:_MAX_ERROR_CHARS])
    message = _clean_message(text.message) or type(error).__name__
    safe_message = hide_secrets(_shorten(message), secrets)
    kind = _classify(causes, text.signs)
    failure = GatewayError(kind, safe_message)
    failure.retry_after = _read_retry_after(error)
    _note_objections(failure, text.signs)
    return failure


def _shorten(message: str) -> str:
    """Cut a message to `MAX_MESSAGE_CHARS` characters. The last one is an ellipsis if something was cut."""
    if len(message) <= MAX_MESSAGE_CHARS:
        return message
    return message[: MAX_MESSAGE_CHARS - 1] + "…"


def _read_retry_after(error: BaseException) -> float | None:
    """Read the seconds to wait from a failed response's headers, or None."""
    litellm_headers = getattr(error, "litellm_response_headers", None) or {}
    response = getattr(error, "response", None)
    response_headers = getattr(response, "headers", None) or {}
    headers = {**litellm_headers, **response_headers}
    return parse_retry_after(str(headers.get("retry-after") or ""))


def _list_causes(error: BaseException) -> list[BaseException]:
    """List an exception, its cause, its cause's cause, and so on."""
    causes = [error]
    while len(causes) < _MAX_CAUSES:  # exceptions can cause each other in a cycle
        cause = causes[-1].__cause__ or causes[-1].__context__
        if cause is None:
            break
        causes.append(cause)
    return causes


def _clean_message(message: str) -> str:
    """Remove what doesn't help a user, such as `litellm.BadRequestError: `, and put the rest on one line."""
    for pattern in (
        _EXCEPTION_NAME_PATTERN,
        _PROGRAMMER_ADVICE_PATTERN,
        _CONNECTION_DETAILS_PATTERN,
    ):
        message = pattern.sub("", message)
    line = " ".join(message.split())
    return line.strip(" |")


def find_json_error(body: dict[str, Any], *, has_answer: bool) -> Any:  # noqa: ANN401 - any JSON
    """Find an error in the body of a response with a success status. Returns None if there's no error.

    `has_answer` means that the body also contains an answer.
    """
    # An explicit error counts even if there's an answer, because that answer can't be trusted.
    error = body.get("error")
    if isinstance(error, dict | list | str) and error:
        return error
    if body.get("success") is False and body.get("errors"):
        return {"message": _find_message(body) or "the provider gave an error"}

    # Valid bodies can also have fields such as `message`, so these only count if there's no answer.
    if has_answer:
        return None
    error_body = body
    if isinstance(body.get("base_resp"), dict):  # the form of MiniMax's errors
        error_body = body["base_resp"]
    message = _find_message(error_body)
    if message is None:
        return None
    return {"message": message, "code": status_of(error_body)}


def classify_json_error(error: Any) -> GatewayError:  # noqa: ANN401 - any JSON
    """Convert an error in a response body to a `GatewayError` with the provider's message."""
    # Write the error as it would end an exception's text, because `_read_error_text` takes only text.
    body = json.dumps({"error": error}, ensure_ascii=False)
    text = _read_error_text(body[:_MAX_ERROR_CHARS])
    kind = _classify_words(text.signs) or _classify_status(status_of(error))
    failure = GatewayError(kind, _shorten_to_line(text.message))
    _note_objections(failure, text.signs)
    return failure


def _shorten_to_line(message: str) -> str:
    """Put a provider's message on one line, and cut it to `MAX_MESSAGE_CHARS`. An empty one is replaced."""
    line = " ".join(message.split())
    return line[:MAX_MESSAGE_CHARS] or "the provider gave an error and no answer"


def status_of(error: Any) -> int:  # noqa: ANN401 - any JSON
    """Return the HTTP status that a JSON error contains as a number or a word. The default is 500."""
    if not isinstance(error, dict):
        return _DEFAULT_STATUS
    return _find_status_number(error) or _find_status_word(error) or _DEFAULT_STATUS


def _find_status_number(error: dict[str, Any]) -> int | None:
    """Return the first error status in the code fields, such as 429, or None."""
    for name in _CODES:
        try:
            status = int(error[name])
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
        is_error_status = 400 <= status <= 599  # noqa: PLR2004 - the range of errors
        if is_error_status:
            return status
    return None


def _find_status_word(error: dict[str, Any]) -> int | None:
    """Return the status for the first known word in the code fields or `type`, such as "rate_limit"."""
    for name in (*_CODES, "type"):
        text = str(error.get(name, "")).lower()
        for word, status in _STATUS_BY_WORD.items():
            if word in text:
                return status
    return None


def _classify_status(status: int) -> FailureKind:
    """Classify a failure by its HTTP status. Unknown ones below 500 are the client's fault."""
    if status in _KIND_BY_STATUS:
        return _KIND_BY_STATUS[status]
    is_client_error = status < 500  # noqa: PLR2004 - as HTTP divides its statuses
    return FailureKind.BAD_REQUEST if is_client_error else FailureKind.SERVER_ERROR


def classify_finish_reason(finish_reason: str | None) -> FailureKind | None:
    """Classify a provider's finish reason. A normal or missing one gives None."""
    if not finish_reason:
        return None
    return _first_match(_FINISH_REASON_PATTERNS, finish_reason)


def _first_match(patterns: Patterns, text: str) -> FailureKind | None:
    """Return the kind of the first pattern found in a text, or None."""
    for pattern, kind in patterns:
        if pattern.search(text):
            return kind
    return None


def _read_error_text(text: str) -> ErrorText:
    """Read an exception's text: its message for the user, and the signs by which the failure is classified.

    The text often ends with a JSON error. If it doesn't, the whole text is both the message and the signs.
    """
    # Drop a traceback, because its words aren't the provider's.
    text, _, _ = text.partition("Traceback (most recent call last)")
    text_before_json, brace, rest = text.partition("{")
    data = _parse_object(brace + rest)
    if data is None:
        return ErrorText(text, text)

    error = data.get("error", data)
    message = _find_message(error) or _find_message(data)
    if message is None:
        return ErrorText(text, text)
    signs = [text_before_json, message, *_list_codes_and_keys(error)]
    return ErrorText(f"{text_before_json}{message}", " ".join(signs))


def _parse_object(text: str) -> dict[str, Any] | None:
    """Parse the JSON object at the start of a text, or return None if there's none."""
    try:
        data, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _list_codes_and_keys(error: object) -> list[str]:
    """List an error's codes and its keys, but no other values, because those can quote the model's output."""
    if not isinstance(error, dict):
        return []
    codes = [str(error[name]) for name in _IDENTIFYING_KEYS if error.get(name) is not None]
    keys = [str(key) for key in error]
    return codes + keys


def _find_message(error: Any) -> str | None:  # noqa: ANN401 - any JSON
    """Return the message in a JSON error, or None if there's none.

    The error can be a string, an object, or a list of these.
    """
    if isinstance(error, str):
        return error
    if isinstance(error, list):
        return _join_messages(error)
    if not isinstance(error, dict):
        return None
    for name in _MESSAGE_KEYS:
        value = error.get(name)
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, list):
            message = _join_messages(value)
            if message:
                return message
    return None


def _join_messages(errors: list[Any]) -> str | None:
    """Join the messages in a list of errors, or return None if there are none."""
    problems = []
    for error in errors[:_MAX_PROBLEMS]:
        problem = _describe_problem(error)
        if problem is not None:
            problems.append(problem)
    return "; ".join(problems) or None


def _describe_problem(error: Any) -> str | None:  # noqa: ANN401 - any JSON
    """Return an error's message. If the error names a field, put that first, as in `body.messages: …`."""
    message = _find_message(error)
    if message is None or not isinstance(error, dict):
        return message
    location = error.get("loc")  # such as ["body", "messages"]
    if not isinstance(location, list) or not location:
        return message
    field = ".".join(map(str, location))
    return f"{field}: {message}"


def _note_objections(failure: GatewayError, signs: str) -> None:
    """Set a failure's `objections` and `max_reply_tokens`, from the signs in its message.

    Objections name the parts of the request that the provider refuses.
    """
    objections = {name for name, pattern in _PATTERN_BY_OBJECTION.items() if pattern.search(signs)}
    tokens_left = _read_tokens_left(signs)
    if tokens_left is not None:
        failure.max_reply_tokens = tokens_left  # in the context, beside this prompt
    else:
        limit_of_model = _read_reply_limit(signs)
        failure.max_reply_tokens = limit_of_model
        if limit_of_model is not None:
            # "cap" says that the limit is the model's own, and so the same for all requests.
            objections.add("cap")
    failure.objections = frozenset(objections)


def _read_tokens_left(signs: str) -> int | None:
    """Read from an error how many tokens the context has left for a reply, or None if it doesn't say.

    For example, "maximum context length is 4096, you used 3000" gives 1096.
    """
    for pattern in _CONTEXT_LIMIT_PATTERNS:
        match = pattern.search(signs)
        if match:
            numbers = match.groupdict()
            limit = _parse_number(numbers["limit"])
            used = _parse_number(numbers.get("used") or "0")
            return max(0, limit - used)
    return None


def _read_reply_limit(signs: str) -> int | None:
    """Read from an error how many tokens a model's replies can have, or None if it doesn't say.

    For example, "less than 4097" gives 4096.
    """
    for pattern in _REPLY_LIMIT_PATTERNS:
        match = pattern.search(signs)
        if match:
            return _get_limit(match.groupdict())
    return None


def _get_limit(numbers: dict[str, Any]) -> int:
    """Return the limit from a match's groups, which are either `below`, as in "less than 4097", or `most`."""
    below = numbers.get("below")
    if below is not None:
        return _parse_number(below) - 1
    return _parse_number(numbers["most"])


def _parse_number(digits: str) -> int:
    """Parse a number that may have commas, as in `128,000`."""
    return int(digits.replace(",", ""))


def _classify_words(signs: str) -> FailureKind | None:
    """Classify a failure by the provider's words, or return None if they match no known kind."""
    for name, kind in _KIND_BY_OBJECTION.items():
        if _PATTERN_BY_OBJECTION[name].search(signs):
            return kind
    return _first_match(_KIND_PATTERNS, signs)


def _classify(causes: Sequence[BaseException], signs: str) -> FailureKind:
    """Classify an exception by its causes, the provider's words, and the exception's class and HTTP status.

    `causes` starts with the exception itself, then its cause, and so on. `signs` are the provider's words,
    such as error codes.
    """
    error = causes[0]
    cause_names = [type(cause).__name__ for cause in causes]
    for name, kind in _KIND_BY_CAUSE.items():
        if name in cause_names:
            return kind

    known_class = _find_known_class(error)
    is_specific = known_class != "" and known_class not in _VAGUE  # such as a class for rate limits
    # A vague class can mean that litellm couldn't read a reply. Check this before the words, because the
    # error may quote the reply.
    if not is_specific and _is_broken_reply(error, cause_names):
        return FailureKind.INVALID_REPLY

    kind_by_words = _classify_words(signs)
    if kind_by_words is not None:
        return kind_by_words
    if is_specific:
        return KIND_BY_CLASS[known_class]
    return _classify_by_status(error, known_class)


def _find_known_class(error: BaseException) -> str:
    """Return the first class name in `KIND_BY_CLASS` among an exception's class and its bases, or ""."""
    for base in type(error).__mro__:
        if base.__name__ in KIND_BY_CLASS:
            return base.__name__
    return ""


def _is_broken_reply(error: BaseException, cause_names: Sequence[str]) -> bool:
    """Whether a reply arrived, but litellm couldn't read it.

    `cause_names` are the class names of the error, its cause, and so on.
    """
    lacks_choices = re.search(r"no 'choices'|'choices' that is not", str(error)) is not None
    if lacks_choices:
        return True
    if "HTTPStatusError" in cause_names:
        return False  # the server answered with an error, not with a reply
    root_cause = cause_names[-1]
    return "JSONDecodeError" in cause_names or root_cause in _BROKEN_REPLY


def _classify_by_status(error: BaseException, class_name: str) -> FailureKind:
    """Classify an exception by its HTTP status. If that doesn't tell the kind, use the name of its class.

    This is for classes such as `APIError`, which say less than the status.
    """
    status = getattr(error, "status_code", None)
    if status in _KIND_BY_STATUS:
        return _KIND_BY_STATUS[status]
    is_client_error = isinstance(status, int) and 400 <= status < 500  # noqa: PLR2004 - as HTTP has it
    if is_client_error:
        return FailureKind.BAD_REQUEST
    return KIND_BY_CLASS.get(class_name, FailureKind.SERVER_ERROR)
