"""Reads what servers write in a chat completion beside what the interface says: parts, errors as success."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from judgekit.providers.failures import status_of

PATH = "/chat/completions"
_PARTS = re.compile(rb'"content"\s*:\s*\[')
_CHOICES = re.compile(rb'"choices"\s*:')
_THOUGHTS = ("thinking", "reasoning")


class Body(NamedTuple):
    """A status of HTTP and a body, as they should have been."""

    status: int
    content: bytes


def usual(status: int, content: bytes) -> Body:
    """Return a chat completion with texts for contents, and an error with the status that it names."""
    has_parts = _PARTS.search(content) is not None
    if has_parts or not _CHOICES.search(content):
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):
            return Body(status, content)
        if isinstance(body, dict):
            if error := _error_in(body):
                return Body(status_of(error), json.dumps({"error": error}).encode())
            if has_parts and _join_parts(body):
                return Body(status, json.dumps(body).encode())
    return Body(status, content)


def _error_in(body: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON
    """Return the error that a body is, in the place of an answer."""
    if body.get("choices"):
        return None
    if body.get("object") == "error":
        return body
    return body.get("error")


def _join_parts(body: dict[str, Any]) -> bool:
    """Make one text of the parts of each message; return whether there were any."""
    is_changed = False
    choices = body.get("choices")
    for choice in choices if isinstance(choices, list) else []:
        message = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(message, dict) or not isinstance(message.get("content"), list):
            continue
        texts: list[str] = []
        thoughts: list[str] = []
        for part in message["content"]:
            is_thought = isinstance(part, dict) and part.get("type") in _THOUGHTS
            (thoughts if is_thought else texts).append(_text_of(part))
        message["content"] = "".join(texts)
        if any(thoughts) and not message.get("reasoning_content"):
            message["reasoning_content"] = "".join(thoughts)
        is_changed = True
    return is_changed


def _text_of(part: Any) -> str:  # noqa: ANN401 - any JSON
    """Return the text of a part, which may itself have parts; "" for an image and the like."""
    if isinstance(part, str):
        return part
    if isinstance(part, list):
        return "".join(map(_text_of, part))
    if not isinstance(part, dict):
        return ""
    for name in ("text", *_THOUGHTS, "content"):
        if isinstance(part.get(name), (str, list)):
            return _text_of(part[name])
    return ""
