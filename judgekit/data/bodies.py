"""Reads bodies of requests and replies that programs keep: those of models' APIs, and other JSON.

Only exports of known tools are read like this. In anybody else's rows, an object in place of a text is an
error, because half of it mustn't be judged as if it were the whole.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from judgekit.data import conversation
from judgekit.data.columns import is_usual_name
from judgekit.data.conversation import ASSISTANT, NotUnderstoodError
from judgekit.data.values import parse_json
from judgekit.text import encodable

if TYPE_CHECKING:
    from collections.abc import Mapping

_MESSAGES = ("messages", "contents", "turns")
_REQUEST_KEYS = (*_MESSAGES, "input", "inputText", "prompt")
_INSTRUCTIONS = ("system", "instructions", "systemInstruction", "system_instruction")


def read_reply(value: object) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Extract a model's answer from an API reply, such as an object with `choices`.

    Conversations and plain values are returned unchanged. All other lists and objects become JSON text.
    """
    if conversation.is_conversation(value):
        return value

    answer = None
    if isinstance(value, list):
        answer = _read_blocks(value)
    elif isinstance(value, dict):
        message = _find_message(value)
        if isinstance(message, str):
            return message
        answer = _read_answer(message)
    return _render_as_text(value) if answer is None else answer


def read_request(value: object) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Extract the question from an API request: a string, messages or an object, or JSON of these.

    Unknown lists and objects are returned as JSON text.
    """
    original = value
    if isinstance(value, str):
        may_be_json = value.lstrip().startswith(("[", "{"))
        if not may_be_json:
            return value
        value = parse_json(value)
    question = _find_question(value)
    return _render_as_text(original) if question is None else question


def _find_question(value: object) -> str | None:
    """Find the question in a list or an object, and put any instructions above it. None if there's none."""
    if isinstance(value, list):
        if value and all(isinstance(item, str) for item in value):
            return "\n".join(value)
        return _read_messages(value)
    if not isinstance(value, dict):
        return None

    inner = _find_inner_question(value)
    if inner is None:
        return None
    question = read_request(inner)
    if not isinstance(question, str):
        return None
    instructions = _read_instructions(value)
    return f"{instructions}\n\n{question}" if instructions else question


def _find_inner_question(request: Mapping[str, Any]) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Find the question in an object: under a known or common key, or as the only value."""
    for key in _REQUEST_KEYS:
        if request.get(key):
            return request[key]

    question_keys = [key for key in request if is_usual_name(key, ("description",))]
    # A `description` next to a question describes the test case, so try it last.
    for key in sorted(question_keys, key=lambda name: name.casefold() == "description"):
        if request[key] and isinstance(request[key], str | list):
            return request[key]

    if len(request) == 1:
        (value,) = request.values()
        return value if isinstance(value, str | dict) else None
    return None


def _read_instructions(request: Mapping[str, Any]) -> str:
    """Read the instructions that some APIs have next to the messages. Returns `system: TEXT`, or ""."""
    for key in _INSTRUCTIONS:
        value = request.get(key)
        if isinstance(value, str):
            return f"system: {value}"
        if isinstance(value, dict) and isinstance(value.get("parts"), list):
            value = value["parts"]  # as in Gemini's API
        if isinstance(value, list) and value:
            text = _read_blocks(value)
            return f"system: {text}" if text else ""
    return ""


def _read_messages(value: list[Any]) -> str | None:
    """Render a list of messages as text. Returns None if a message can't be read."""
    if not conversation.is_conversation(value):
        return _read_blocks(value)
    try:
        turns = conversation.read_turns(value)
    except NotUnderstoodError:
        return None
    if len(turns) == 1:
        return turns[0].content  # a single message is rendered without its speaker
    return conversation.rendered(turns)


def _find_message(reply: Mapping[str, Any]) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Find the message in an API reply from OpenAI, Anthropic, Gemini, Bedrock, Ollama and others."""
    if "role" in reply:  # it's the message itself
        return reply

    # OpenAI and Gemini have a list of choices.
    for key in ("choices", "candidates"):
        choices = reply.get(key)
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            first_choice = choices[0]
            return (
                first_choice.get("message")
                or first_choice.get("content")
                or first_choice.get("text")
            )

    # Bedrock has the message in an object.
    output = reply.get("output")
    if isinstance(output, dict) and isinstance(output.get("message"), dict):
        return output["message"]

    # Anthropic and the Responses API have a list of content blocks or messages.
    for key in ("output", "content", "messages"):
        value = reply.get(key)
        if isinstance(value, list) and all(isinstance(item, dict) for item in value):
            return value

    # Ollama has the message itself.
    message = reply.get("message")
    return message if isinstance(message, dict) else None


def _read_answer(message: object) -> str | None:
    """Read the answer in a message, a list of messages or a list of content blocks. None if we can't."""
    if isinstance(message, dict):
        message = [{"role": ASSISTANT, **message}]
    if not isinstance(message, list):
        return None
    if not conversation.is_conversation(message):
        return _read_blocks(message)
    return _find_last_answer(message)


def _read_blocks(blocks: list[Any]) -> str | None:
    """Read the text in a message's content blocks, or in items of the Responses API.

    None for anything else.
    """
    if not blocks or not all(isinstance(block, dict) for block in blocks):
        return None
    as_message = [{"role": ASSISTANT, "content": blocks}]
    text = _find_last_answer(as_message)
    if text is not None:
        return text
    return _find_last_answer(blocks)


def _find_last_answer(messages: list[Any]) -> str | None:
    """Return the assistant's last message. Returns None if there's none, or if any message can't be read."""
    try:
        turns = conversation.read_turns(messages)
    except NotUnderstoodError:
        return None
    for turn in reversed(turns):
        if turn.speaker == ASSISTANT:
            return turn.content
    return None


def _render_as_text(value: object) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Render a list or an object as JSON, and return any other value unchanged."""
    if isinstance(value, list | dict):
        return encodable(json.dumps(value, ensure_ascii=False))
    return value
