"""Asks for a reply that follows a JSON Schema, as strongly as an endpoint can be asked."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

from judgekit.providers.base import Message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.providers.profile import OutputMode

NAME: Final = "opinion"
WEAKER: Final[Mapping[OutputMode, OutputMode]] = {
    "json_schema": "json_object",
    "tool": "text",
    "json_object": "text",
}


def arguments(schema: dict[str, Any] | None, mode: OutputMode) -> dict[str, Any]:
    """Return the arguments of an OpenAI-style call that hold its reply to `schema`."""
    if schema is None or mode == "text":
        return {}
    if mode == "json_object":
        return {"response_format": {"type": "json_object"}}
    schema = deepcopy(schema)  # a client makes it what its provider takes, in place
    if mode == "json_schema":
        form = {"name": NAME, "strict": True, "schema": schema}
        return {"response_format": {"type": "json_schema", "json_schema": form}}
    function = {"name": NAME, "description": "Give your answer.", "parameters": schema}
    return {
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": NAME}},
    }


def told(
    messages: tuple[Message, ...], schema: dict[str, Any] | None, mode: OutputMode
) -> tuple[Message, ...]:
    """Return the messages with the schema in the system message, where the call itself cannot carry it."""
    if schema is None or mode in ("json_schema", "tool"):
        return messages
    words = "Answer with one JSON object and nothing else. It follows this JSON Schema:\n" + json.dumps(
        schema, ensure_ascii=False
    )
    if messages and messages[0].role == "system":
        return (messages[0]._replace(content=f"{messages[0].content}\n\n{words}"), *messages[1:])
    return (Message("system", words), *messages)
