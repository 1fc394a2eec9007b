"""Reads chat completions as servers really write them: content in parts, errors sent as success, odd types.

A reply counts only if every part of its answer has the right type. A count beside the answer is dropped if
it isn't one.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from judgekit.errors import FailureKind, GatewayError
from judgekit.providers.failures import find_json_error, status_of
from judgekit.text import shorten_to_line

CHAT_PATH = "/chat/completions"
MAX_TOKENS = 10**12  # in one call; a larger number can't be a count
_MAX_DIGITS = 40  # of a count that's a string
_QUOTED_CHARS = 40  # of a value with the wrong type
# The types of content parts that form the answer, as opposed to thoughts, their summaries or images
_ANSWER_TYPES = ("text", "output_text")
_THINKING_WORDS = ("think", "thought", "reason", "summary")
_THOUGHT_KEYS = ("text", "thinking", "reasoning", "summary", "thought", "content")
# Fields that aren't needed, so their types don't matter
_UNREAD_BODY_FIELDS = ("id", "system_fingerprint", "service_tier")
_UNREAD_MESSAGE_FIELDS = ("annotations", "audio", "images", "thinking_blocks")


class Body(NamedTuple):
    """An HTTP status and a body, as the server should have sent them."""

    status: int
    content: bytes


def normalise(status: int, content: bytes) -> Body:
    """Convert a server's chat completion to OpenAI's form. A body that isn't JSON is returned unchanged.

    Raises `GatewayError` (`INVALID_REPLY`) if a part of the body has the wrong type.
    """
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return Body(status, content)
    if not isinstance(body, dict):
        raise _build_type_error("the reply", "an object", body)

    # Some servers send an error with status 200. It gets the status that fits the error instead.
    has_answer = bool(body.get("choices"))
    error = find_json_error(body, has_answer=has_answer)
    if error:
        return _build_body(status_of(error), {"error": error})
    _normalise_answer(body)
    return _build_body(status, body)


def _build_body(status: int, fields: dict[str, Any]) -> Body:
    """Build a body with the fields as JSON."""
    return Body(status, json.dumps(fields).encode())


def _build_type_error(field: str, expected: str, value: object) -> GatewayError:
    quoted_value = shorten_to_line(json.dumps(value), _QUOTED_CHARS)
    return GatewayError(FailureKind.INVALID_REPLY, f"{field} is not {expected} but {quoted_value}")


def _normalise_answer(body: dict[str, Any]) -> None:
    """Convert the body of a chat completion to OpenAI's form, in place.

    Raises `GatewayError` if a part that's needed has the wrong type.
    """
    # Remove the fields that aren't needed, so that a malformed one can't make litellm fail.
    for name in ("error", *_UNREAD_BODY_FIELDS):
        body.pop(name, None)
    if not isinstance(body.get("model"), str | None):
        raise _build_type_error("`model` of the reply", "a text", body["model"])
    if "usage" in body:
        body["usage"] = _clean_counts(body["usage"])
    if body.get("choices") is None:
        body["choices"] = []
    _normalise_choices(body["choices"])


def _normalise_choices(choices: object) -> None:
    """Normalise the choices of a chat completion in place. Raises `GatewayError` for a wrong type."""
    if not isinstance(choices, list):
        raise _build_type_error("`choices` of the reply", "a list", choices)
    for choice in choices:
        if not isinstance(choice, dict):
            raise _build_type_error("a choice of the reply", "an object", choice)
        finish_reason = choice.get("finish_reason")
        if not isinstance(finish_reason, str | None):
            raise _build_type_error("`finish_reason` of the reply", "a text", finish_reason)
        message = choice.get("message")
        if not isinstance(message, dict):
            raise _build_type_error("`message` of the reply", "an object", message)
        _normalise_message(message)


def _normalise_message(message: dict[str, Any]) -> None:
    """Normalise a message in place: join the parts of its content and thoughts, and remove unneeded fields.

    Raises `GatewayError` if a part has the wrong type.
    """
    message["role"] = "assistant"
    for name in _UNREAD_MESSAGE_FIELDS:
        message.pop(name, None)
    _check_calls(message)
    for name in ("reasoning_content", "reasoning"):
        if name in message:
            message[name] = _join_thoughts(message[name]) or None
    if isinstance(message.get("content"), list):
        _join_parts(message, message["content"])
    _check_text(message, "content")
    _check_text(message, "refusal")


def _check_text(message: dict[str, Any], name: str) -> None:
    """Raise `GatewayError` if a field of a message is neither a text nor missing."""
    value = message.get(name)
    if not isinstance(value, str | None):
        raise _build_type_error(f"`{name}` of the reply", "a text", value)


def _check_calls(message: dict[str, Any]) -> None:
    """Raise `GatewayError` if a message's tool calls are malformed."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list | None):
        raise _build_type_error("`tool_calls` of the reply", "a list", calls)

    functions = [_get_function(call) for call in calls or []]
    if message.get("function_call") is not None:
        functions.append(message["function_call"])  # the older form of a tool call
    for function in functions:
        _check_function(function)


def _get_function(call: object) -> object:
    """Return the function in a tool call, if any. Raises `GatewayError` if the call isn't an object."""
    if not isinstance(call, dict):
        raise _build_type_error("a tool call of the reply", "an object", call)
    return call.get("function")


def _check_function(function: object) -> None:
    """Raise `GatewayError` if a called function has no name, or arguments of the wrong type."""
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise _build_type_error("a tool call of the reply", "a named function", function)
    arguments = function.get("arguments")
    if not isinstance(arguments, str | dict | None):
        raise _build_type_error("`arguments` of a tool call", "a text", arguments)


def _clean_counts(usage: object) -> dict[str, Any] | None:
    """Remove malformed token counts from a reply's `usage`. Return None if it isn't an object."""
    if not isinstance(usage, dict):
        return None
    fields: dict[str, Any] = {}
    for name, value in usage.items():
        if name.endswith("tokens_details"):
            fields[name] = _clean_counts(value)
        elif name.endswith("tokens"):
            count = parse_count(value)
            if count is not None:
                fields[name] = count
        else:
            fields[name] = value
    return fields


def parse_count(value: object) -> int | None:
    """Parse a number of tokens, such as 12, 12.0 or "12". Return None for anything else."""
    number = _parse_digits(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    is_in_range = 0 <= number <= MAX_TOKENS  # false for NaN
    if not is_in_range:
        return None
    is_whole = number == int(number)
    return int(number) if is_whole else None


def _parse_digits(text: str) -> int | None:
    """Parse a text of ASCII digits. Return None for other characters or too many digits."""
    is_number = text.isascii() and text.isdecimal()
    is_short = len(text) < _MAX_DIGITS  # `int` refuses thousands of digits
    return int(text) if is_number and is_short else None


def _join_parts(message: dict[str, Any], parts: list[Any]) -> None:
    """Distribute `parts` to the message's `content`, `reasoning_content` and `refusal`.

    The last two aren't overwritten if the message already has them. Raises `GatewayError` if a part has the
    wrong type.
    """
    answer_texts: list[str] = []
    thought_texts: list[str] = []
    for part in parts:
        if isinstance(part, str):
            answer_texts.append(part)
        elif not isinstance(part, dict):
            raise _build_type_error("a part of the reply's content", "a text or an object", part)
        elif _is_answer(part):
            answer_texts.append(part["text"])
        elif _is_thought(part):
            thought_texts.append(_join_thoughts(part))
        elif part.get("type") == "refusal":
            _set_if_empty(message, "refusal", part.get("refusal"))
        # Other parts, such as images, are dropped.

    message["content"] = "".join(answer_texts)
    if any(thought_texts):
        _set_if_empty(message, "reasoning_content", "".join(thought_texts))


def _set_if_empty(message: dict[str, Any], name: str, value: object) -> None:
    """Set a field of a message, unless it already has a value."""
    if not message.get(name):
        message[name] = value


def _is_answer(part: dict[str, Any]) -> bool:
    """Whether a content part is text of the answer."""
    if part.get("type", "text") not in _ANSWER_TYPES or not isinstance(part.get("text"), str):
        return False
    return not _is_marked_as_thought(part)


def _is_thought(part: dict[str, Any]) -> bool:
    """Whether a content part is a thought, judging by its type or other keys."""
    type_name = str(part.get("type", "")).lower()
    return _is_marked_as_thought(part) or any(word in type_name for word in _THINKING_WORDS)


def _is_marked_as_thought(part: dict[str, Any]) -> bool:
    """Whether a key other than `type` marks a part as a thought, such as `"thought": true`."""
    if _is_in_thinking_channel(part) or _has_true_thinking_key(part):
        return True
    return bool(part.get("thought"))  # under this key, any value that isn't empty counts


def _is_in_thinking_channel(part: dict[str, Any]) -> bool:
    """Whether `channel` or `phase` has a value other than "final", such as "analysis"."""
    for name in ("channel", "phase"):
        value = str(part.get(name) or "")
        if value and not value.lower().startswith("final"):
            return True
    return False


def _has_true_thinking_key(part: dict[str, Any]) -> bool:
    """Whether a key about thinking is `true`.

    Other values don't count, because answers can have a string such as `thought_signature`.
    """
    true_names = [name.lower() for name, value in part.items() if value is True]
    return any(word in name for name in true_names for word in _THINKING_WORDS)


def _join_thoughts(value: Any) -> str:  # noqa: ANN401 - any JSON
    """Join thoughts, which can be a string, an object, or a list of these. Return "" for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        value = [value.get(name) for name in _THOUGHT_KEYS]
    if not isinstance(value, list):
        return ""
    return "".join(map(_join_thoughts, value))
