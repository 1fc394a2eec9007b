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
    """Read a model's words from the reply of its API, such as an object with `choices`.

    A list of messages stays as it is, since it's a conversation. A list or an object that isn't understood
    becomes JSON text, and any other value stays as it is.
    """
    if conversation.is_conversation(value):
        return value
    if isinstance(value, list):
        words = _read_blocks(value)
        return _render_as_text(value) if words is None else words
    if isinstance(value, dict):
        message = _find_message(value)
        if isinstance(message, str):
            return message
        words = None if message is None else _read_last_words(message)
        return _render_as_text(value) if words is None else words
    return value


def read_request(value: object) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Read the question that a model was asked: a text, a list of messages, or an object that has either.

    A text may hold messages or such an object as JSON; otherwise the text itself is the question. A value
    that isn't understood becomes its text.
    """
    original = value
    if isinstance(value, str):
        if not value.lstrip().startswith(("[", "{")):
            return value
        value = parse_json(value)
    question = _find_question(value)
    return _render_as_text(original) if question is None else question


def _find_question(value: object) -> str | None:
    """Read the question in a list of messages or in an object; None if there's none."""
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
    """Find the question in an object; None if there's none.

    It's the messages, else a value whose name is usual for a question, else the object's only value.
    """
    for key in _REQUEST_KEYS:
        if request.get(key):
            return request[key]
    usual_keys = [key for key in request if is_usual_name(key, ("description",))]
    # `description` itself comes last: beside a question, it's about the test case.
    for key in sorted(usual_keys, key=lambda name: name.casefold() == "description"):
        if request[key] and isinstance(request[key], str | list):
            return request[key]
    if len(request) == 1:
        (value,) = request.values()
        return value if isinstance(value, str | dict) else None
    return None


def _read_instructions(request: Mapping[str, Any]) -> str:
    """Read the instructions that some APIs take beside the messages, as `system: WORDS`.

    "" if there are none.
    """
    for key in _INSTRUCTIONS:
        value = request.get(key)
        if isinstance(value, str):
            return f"system: {value}"
        if isinstance(value, dict) and isinstance(value.get("parts"), list):
            value = value["parts"]
        if isinstance(value, list) and value:
            words = _read_blocks(value)
            return f"system: {words}" if words else ""
    return ""


def _read_messages(value: list[Any]) -> str | None:
    """Render a list of messages as text.

    None if they aren't understood. A single message is only its words.
    """
    if not conversation.is_conversation(value):
        return _read_blocks(value)
    try:
        turns = conversation.read_turns(value)
    except NotUnderstoodError:
        return None
    if len(turns) == 1:
        return turns[0].content
    return conversation.rendered(turns)


def _find_message(reply: Mapping[str, Any]) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Find the message in the reply of an API (OpenAI, Anthropic, Gemini, Bedrock, Ollama and others).

    None if there's none.
    """
    if "role" in reply:  # it's the message itself
        return reply

    # OpenAI and Gemini.
    for key in ("choices", "candidates"):
        choices = reply.get(key)
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            first_choice = choices[0]  # if there are several, the first counts
            return (
                first_choice.get("message")
                or first_choice.get("content")
                or first_choice.get("text")
            )

    # Bedrock.
    output = reply.get("output")
    if isinstance(output, dict) and isinstance(output.get("message"), dict):
        return output["message"]

    # A list of a message's parts, or of messages.
    for key in ("output", "content", "messages"):
        value = reply.get(key)
        if isinstance(value, list) and all(isinstance(item, dict) for item in value):
            return value

    # Ollama.
    message = reply.get("message")
    return message if isinstance(message, dict) else None


def _read_last_words(message: object) -> str | None:
    """Read the words of a message, or of the assistant's last message in a list; None if not understood."""
    if isinstance(message, dict):
        message = [{"role": ASSISTANT, **message}]
    if not isinstance(message, list):
        return None
    if not conversation.is_conversation(message):
        return _read_blocks(message)
    return _find_last_answer(message)


def _read_blocks(blocks: list[Any]) -> str | None:
    """Read the words in a list of a message's parts, or of an API's items.

    None if it's neither kind of list.
    """
    if not blocks or not all(isinstance(block, dict) for block in blocks):
        return None
    as_message = [{"role": ASSISTANT, "content": blocks}]
    words = _find_last_answer(as_message)
    if words is not None:
        return words
    return _find_last_answer(blocks)


def _find_last_answer(messages: list[Any]) -> str | None:
    """Read the assistant's last message; None if there's none, or if a message isn't understood."""
    try:
        turns = conversation.read_turns(messages)
    except NotUnderstoodError:
        return None
    for turn in reversed(turns):
        if turn.speaker == ASSISTANT:
            return turn.content
    return None


def _render_as_text(value: object) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Return a value as it is if it's a text, a number or nothing; else its JSON."""
    if isinstance(value, list | dict):
        return encodable(json.dumps(value, ensure_ascii=False))
    return value
