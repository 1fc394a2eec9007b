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
from judgekit.text import replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Mapping

_MESSAGE_KEYS = ("messages", "contents", "turns")
_REQUEST_KEYS = (*_MESSAGE_KEYS, "input", "inputText", "prompt")
_INSTRUCTION_KEYS = ("system", "instructions", "systemInstruction", "system_instruction")


def read_reply(value: object) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Extract a model's answer from an API reply, such as an object with `choices`.

    Conversations and plain values are returned unchanged. All other lists and objects become JSON text.
    """
    if conversation.is_conversation(value):
        return value
    answer = _find_answer(value)
    if answer is not None:
        return answer
    return _render_as_text(value)  # leaves plain values unchanged


def _find_answer(value: object) -> str | None:
    """Find the answer in a reply's content blocks, or in its message. None if there's none."""
    if isinstance(value, list):
        return _read_blocks(value)
    if not isinstance(value, dict):
        return None
    message = _find_message(value)
    return message if isinstance(message, str) else _read_answer(message)


def read_request(value: object) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Extract the question from an API request, or from its JSON text. Other text is returned unchanged.

    Lists and objects without a known question are returned as JSON text.
    """
    request = value
    if isinstance(value, str):
        may_be_json = value.lstrip().startswith(("[", "{"))
        if not may_be_json:
            return value
        request = parse_json(value)  # still a text if it isn't JSON after all

    question = _find_question(request)
    if question is None:
        return _render_as_text(value)
    return question


def _find_question(value: object) -> str | None:
    """Find the question in a list or an object, and put any instructions above it. None if there's none."""
    if isinstance(value, list):
        return _find_question_in_list(value)
    if isinstance(value, dict):
        return _find_question_in_object(value)
    return None


def _find_question_in_list(items: list[Any]) -> str | None:
    """Join a list of texts to one question, or read the question from a list of messages."""
    is_list_of_texts = bool(items) and all(isinstance(item, str) for item in items)
    if is_list_of_texts:
        return "\n".join(items)
    return _read_messages(items)


def _find_question_in_object(request: Mapping[str, Any]) -> str | None:
    """Find an object's question, and put its instructions above it. None if there's no question."""
    inner = _find_inner_question(request)
    if inner is None:
        return None
    question = read_request(inner)
    if not isinstance(question, str):
        return None
    instructions = _read_instructions(request)
    return f"{instructions}\n\n{question}" if instructions else question


def _find_inner_question(request: Mapping[str, Any]) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Find the question in an object: under an API's key, under a common name, or as the only value."""
    for key in _REQUEST_KEYS:
        if request.get(key):
            return request[key]

    for key in _list_question_keys(request):
        value = request[key]
        if value and isinstance(value, str | list):  # a text, or a list of messages
            return value

    if len(request) != 1:
        return None
    (only_value,) = request.values()
    # Under an unknown key, there can be a text or another request.
    return only_value if isinstance(only_value, str | dict) else None


def _list_question_keys(request: Mapping[str, Any]) -> list[str]:
    """List the keys with a common name for a question, the likeliest first."""
    # `fields.toml` lists the common names for a question under our field "description".
    keys = [key for key in request if is_usual_name(key, ("description",))]
    # But a key "description" next to a question describes the test case, so it's tried last.
    other_keys = [key for key in keys if key.casefold() != "description"]
    description_keys = [key for key in keys if key.casefold() == "description"]
    return other_keys + description_keys


def _read_instructions(request: Mapping[str, Any]) -> str:
    """Read the instructions that some APIs have next to the messages. Returns `system: TEXT`, or ""."""
    for key in _INSTRUCTION_KEYS:
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
    """Render a list of messages, or of content blocks, as text. Returns None if one can't be read."""
    if not conversation.is_conversation(value):
        return _read_blocks(value)
    try:
        turns = conversation.read_turns(value)
    except NotUnderstoodError:
        return None
    if len(turns) == 1:
        return turns[0].content  # a single message is rendered without its speaker
    return conversation.render_turns(turns)


def _find_message(reply: Mapping[str, Any]) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Find the message in an API reply from OpenAI, Anthropic, Gemini, Bedrock, Ollama and others.

    Depending on the API, it's an object, a list of messages or content blocks, or a text. None if there's
    none.
    """
    if "role" in reply:  # the reply is a message
        return reply

    # OpenAI has the message in a list `choices`, and Gemini in a list `candidates`.
    for key in ("choices", "candidates"):
        choices = reply.get(key)
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            first_choice = choices[0]
            return (
                first_choice.get("message")
                or first_choice.get("content")
                or first_choice.get("text")
            )

    # Bedrock has it under `output.message`.
    output = reply.get("output")
    if isinstance(output, dict) and isinstance(output.get("message"), dict):
        return output["message"]

    # Anthropic and the Responses API have a list of content blocks or messages.
    for key in ("output", "content", "messages"):
        value = reply.get(key)
        if isinstance(value, list) and all(isinstance(item, dict) for item in value):
            return value

    # Ollama has it under `message`.
    message = reply.get("message")
    return message if isinstance(message, dict) else None


def _read_answer(message: object) -> str | None:
    """Read the answer in a message, a list of messages or a list of content blocks. None if we can't."""
    messages = message
    if isinstance(message, dict):
        messages = [{"role": ASSISTANT, **message}]  # a message without a role is the assistant's
    if not isinstance(messages, list):
        return None
    if not conversation.is_conversation(messages):
        return _read_blocks(messages)
    return _find_last_answer(messages)


def _read_blocks(blocks: list[Any]) -> str | None:
    """Read the text in a message's content blocks, or in items of the Responses API.

    None for anything else.
    """
    are_objects = all(isinstance(block, dict) for block in blocks)
    if not blocks or not are_objects:
        return None
    message = {"role": ASSISTANT, "content": blocks}
    text = _find_last_answer([message])
    if text is not None:
        return text
    return _find_last_answer(blocks)  # the items can be messages themselves


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
        return replace_surrogates(json.dumps(value, ensure_ascii=False))
    return value
