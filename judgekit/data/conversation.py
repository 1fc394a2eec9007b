"""How a conversation reads as text: turn after turn, calls of tools and their results among them.

It understands the messages of OpenAI (`role`, `content`, `tool_calls`), the content blocks of Anthropic, and
ShareGPT (`from`, `value`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit.text import encodable, one_line, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ASSISTANT = "assistant"
NAME_CHARS = 80
_EXPECTED = "expected a list of messages with role and content"
_TOOL = "tool"
_SPEAKERS = {
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys((ASSISTANT, "gpt", "chatgpt", "model", "ai", "bot"), ASSISTANT),
    **dict.fromkeys((_TOOL, "function", "observation", "ipython"), _TOOL),
}
_KINDS = {list: "a list", dict: "an object", str: "a text", bool: "true or false", type(None): "nothing"}


class Turn(NamedTuple):
    speaker: str
    text: str
    calls: Sequence[str] = ()

    @property
    def content(self) -> str:
        return "\n".join(filter(None, (self.text, *(f"calls {call}" for call in self.calls))))


def kind(value: object) -> str:
    return "a number" if type(value) in (int, float) else _KINDS.get(type(value), type(value).__name__)


def rendered(turns: Sequence[Turn]) -> str:
    """Return turns as text. Further lines are moved in: no content passes for another turn."""
    lines = []
    for speaker, text, calls in turns:
        if text or not calls:
            lines.append(f"{speaker}: {text}")
        lines += [f"{speaker} calls {call}" for call in calls]
    return "\n".join(visible(line).strip().replace("\n", "\n  ") for line in lines)


def read(value: object) -> list[Turn]:
    """Return the turns of a list of messages, or of one as JSON text; raises `ValueError` in plain words."""
    try:
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                raise ValueError(f"{_EXPECTED}, got the text {one_line(str(value), 40)!r}") from None
        if isinstance(value, dict):
            value = value.get("messages", value)
        if not isinstance(value, list):
            raise ValueError(f"{_EXPECTED}, got {kind(value)}")  # noqa: TRY004 - what callers turn into a message
        tools: dict[str, str] = {}
        turns: list[Turn] = []
        for number, message in enumerate(value, 1):
            turns += _turns(message, tools, f"message {number}")
    except RecursionError:
        raise ValueError(f"{_EXPECTED}, got values nested too deeply") from None
    return turns


def _turns(message: object, tools: dict[str, str], where: str) -> Iterator[Turn]:
    """Yield the results of tools that a message holds, and then what it says; `tools` has names by call."""
    if not isinstance(message, dict):
        raise ValueError(f"{_EXPECTED}; {where} is {kind(message)}")  # noqa: TRY004 - as above
    role = message.get("role", message.get("from"))
    if not isinstance(role, str):
        raise ValueError(f"{_EXPECTED}; {where} has no role")  # noqa: TRY004 - as above
    speaker = _SPEAKERS.get(role.casefold(), one_line(role, NAME_CHARS))
    content = next((message[key] for key in ("content", "value") if key in message), None)
    said, used = list[str](), list[dict[str, Any]]()
    for block in content if isinstance(content, list) else [content]:
        if isinstance(block, dict) and block.get("type") == "tool_use":
            used.append(block)
        elif isinstance(block, dict) and block.get("type") == "tool_result":
            inner = block.get("content")
            told = [_words(each, where) for each in (inner if isinstance(inner, list) else [inner])]
            yield Turn(_tool(None, block.get("tool_use_id"), tools), "\n".join(filter(None, told)))
        else:
            said.append(_words(block, where))
    asked = message.get("tool_calls") or [message.get("function_call")]
    for call in asked if isinstance(asked, list) else [asked]:
        inner = call.get("function", call) if isinstance(call, dict) else call
        if isinstance(inner, dict):
            used.append({"name": inner.get("name"), "input": inner.get("arguments"), "id": call.get("id")})
        elif inner is not None:
            raise ValueError(f"{where}: expected an object with name and arguments, got {kind(inner)}")
    calls = []
    for call in used:
        name, given = _name(call.get("name")), call.get("input")
        tools[str(call.get("id"))] = name
        given = given if isinstance(given, str) else json.dumps(given or {}, ensure_ascii=False)
        calls.append(f"{name}({encodable(given)})")
    if speaker == _TOOL:
        speaker = _tool(message.get("name"), message.get("tool_call_id"), tools)
    if said or calls:
        yield Turn(speaker, "\n".join(filter(None, said)), tuple(calls))


def _words(block: Any, where: str) -> str:  # noqa: ANN401 - whatever JSON can hold
    """Return the text of a content block; of one without a text, its type in brackets."""
    if isinstance(block, dict):
        text = block.get("text")
        return encodable(text) if isinstance(text, str) else f"[{_name(block.get('type'))}]"
    if block is not None and not isinstance(block, str):
        raise ValueError(f"{where}: expected a text or a list of parts as content, got {kind(block)}")
    return encodable(block or "")


def _name(value: object) -> str:
    return encodable(one_line(value, NAME_CHARS)) if isinstance(value, str) and value else "unknown"


def _tool(name: object, call: object, tools: dict[str, str]) -> str:
    known = _name(name) if name else tools.get(str(call), "")
    return f"{_TOOL} {known}".strip()
