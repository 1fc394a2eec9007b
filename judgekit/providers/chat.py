"""Reads chat completions as servers really write them: content in parts, errors sent as success, odd types.

A reply counts only if every part of its answer has the right type. A count beside the answer is dropped if
it isn't one.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from judgekit.errors import FailureKind, GatewayError
from judgekit.providers.failures import error_in_success, status_of
from judgekit.text import short_line

PATH = "/chat/completions"
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
    """Convert a server's chat completion to OpenAI's form.

    If a server sends an error with a success status, the result has the error's status. A body that isn't
    JSON is returned unchanged. Raises `GatewayError` (`INVALID_REPLY`) if a part of the body has the wrong
    type.
    """
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return Body(status, content)
    if not isinstance(body, dict):
        raise _build_type_error("the reply", "an object", body)

    error = error_in_success(body, has_answer=bool(body.get("choices")))
    if error:
        return Body(status_of(error), json.dumps({"error": error}).encode())
    _check_answer(body)
    return Body(status, json.dumps(body).encode())


def _build_type_error(field: str, expected: str, value: object) -> GatewayError:
    quoted_value = short_line(json.dumps(value), _QUOTED_CHARS)
    return GatewayError(FailureKind.INVALID_REPLY, f"{field} is not {expected} but {quoted_value}")


def _check_answer(body: dict[str, Any]) -> None:
    """Check and normalise the body of a chat completion, and remove fields that aren't needed.

    Raises `GatewayError` if a part has the wrong type. Unneeded fields are removed rather than checked,
    because a malformed one does no harm.
    """
    for name in ("error", *_UNREAD_BODY_FIELDS):
        body.pop(name, None)
    if not isinstance(body.get("model"), str | None):
        raise _build_type_error("`model` of the reply", "a text", body["model"])
    if "usage" in body:
        body["usage"] = _clean_counts(body["usage"])

    # A missing list of choices becomes an empty one.
    choices = body.get("choices")
    if choices is None:
        body["choices"] = choices = []
    if not isinstance(choices, list):
        raise _build_type_error("`choices` of the reply", "a list", choices)
    for choice in choices:
        if not isinstance(choice, dict):
            raise _build_type_error("a choice of the reply", "an object", choice)
        if not isinstance(choice.get("finish_reason"), str | None):
            raise _build_type_error(
                "`finish_reason` of the reply", "a text", choice["finish_reason"]
            )
        message = choice.get("message")
        if not isinstance(message, dict):
            raise _build_type_error("`message` of the reply", "an object", message)
        _check_message(message)


def _check_message(message: dict[str, Any]) -> None:
    """Normalise a message: join the parts of its content and thoughts, and remove fields that aren't needed.

    Raises `GatewayError` if a part has the wrong type.
    """
    message["role"] = "assistant"
    for name in _UNREAD_MESSAGE_FIELDS:
        message.pop(name, None)
    _check_calls(message)

    for name in ("reasoning_content", "reasoning"):
        if name in message:
            message[name] = _join_thoughts(message[name]) or None

    content = message.get("content")
    if isinstance(content, list):
        _join_parts(message, content)
    elif not isinstance(content, str | None):
        raise _build_type_error("`content` of the reply", "a text", content)
    if not isinstance(message.get("refusal"), str | None):
        raise _build_type_error("`refusal` of the reply", "a text", message["refusal"])


def _check_calls(message: dict[str, Any]) -> None:
    """Raise `GatewayError` if a message's tool calls are malformed."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list | None):
        raise _build_type_error("`tool_calls` of the reply", "a list", calls)

    functions = []  # the called functions, with name and arguments
    for call in calls or []:
        if not isinstance(call, dict):
            raise _build_type_error("a tool call of the reply", "an object", call)
        functions.append(call.get("function"))
    if message.get("function_call") is not None:
        functions.append(message["function_call"])  # the older form of a tool call

    for function in functions:
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise _build_type_error("a tool call of the reply", "a named function", function)
        if not isinstance(function.get("arguments"), str | dict | None):
            raise _build_type_error("`arguments` of a tool call", "a text", function["arguments"])


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
    if isinstance(value, str):
        is_number = value.isascii() and value.isdecimal()
        if not is_number or len(value) >= _MAX_DIGITS:
            return None
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 <= value <= MAX_TOKENS:  # also excludes NaN
        return None
    if value != int(value):
        return None
    return int(value)


def _join_parts(message: dict[str, Any], parts: list[Any]) -> None:
    """Set `content` to the joined answer in `parts`, and `reasoning_content` to the joined thoughts.

    A refusal among the parts is set as `refusal`. Raises `GatewayError` if a part has the wrong type.
    """
    answer_texts: list[str] = []
    thoughts: list[str] = []
    for part in parts:
        if isinstance(part, str):
            answer_texts.append(part)
        elif not isinstance(part, dict):
            raise _build_type_error("a part of the reply's content", "a text or an object", part)
        elif _is_answer(part):
            answer_texts.append(part["text"])
        elif _is_thought(part):
            thoughts.append(_join_thoughts(part))
        elif part.get("type") == "refusal" and not message.get("refusal"):
            message["refusal"] = part.get("refusal")

    message["content"] = "".join(answer_texts)
    if any(thoughts) and not message.get("reasoning_content"):
        message["reasoning_content"] = "".join(thoughts)


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
    for name in ("channel", "phase"):
        if part.get(name) and not str(part[name]).lower().startswith("final"):
            return True
    for name, value in part.items():
        # Only `true` counts, because answers can have a string such as `thought_signature`.
        if value is True and any(word in name.lower() for word in _THINKING_WORDS):
            return True
    # Under the key `thought` itself, any value that isn't empty counts.
    return bool(part.get("thought"))


def _join_thoughts(value: Any) -> str:  # noqa: ANN401 - any JSON
    """Join thoughts, which can be a string, an object, or a list of these. Return "" for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        value = [value.get(name) for name in _THOUGHT_KEYS]
    if not isinstance(value, list):
        return ""
    return "".join(map(_join_thoughts, value))
