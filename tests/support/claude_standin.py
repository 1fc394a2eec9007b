"""A loopback stand-in for the APIs that clients of models talk to: Anthropic's, OpenAI's and Gemini's.

It answers every message with one fixed text, as events if those are asked for, and keeps the requests;
a script of tool calls may come first. Given to a client as its HTTPS proxy as well, it refuses and records
every attempt to connect elsewhere.
"""

from __future__ import annotations

import dataclasses
import json
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from loopback import Answer, Asked, Loopback, sends

if TYPE_CHECKING:
    from collections.abc import Iterator

REPLY = "The stand-in has read this."


class ToolCall(NamedTuple):
    """A tool that the stand-in asks the client to use."""

    name: str
    input: dict[str, Any]


class Standin(Loopback):
    """A stand-in: its address, the requests so far, and the tools it will ask for.

    Each message that offers tools takes the first of `script`; after the last one the reply is `reply`.
    """

    def __init__(self, reply: str = REPLY) -> None:
        super().__init__()
        self.url, self.reply = f"http://127.0.0.1:{self.port}", reply
        self.script: list[ToolCall] = []

    def next_reply(self, body: dict[str, Any]) -> str | ToolCall:
        return self.script.pop(0) if self.script and body.get("tools") else self.reply

    @property
    def strays(self) -> list[str]:
        return [request.path for request in self.requests if request.method == "CONNECT"]

    def messages(self, path: str = "/v1/messages") -> list[dict[str, Any]]:
        """Return the bodies of the calls that asked for a message, in the order they came."""
        return [each.body for each in self.posts if each.path == path]

    @property
    def posts(self) -> list[Asked]:
        return [request for request in self.requests if request.method == "POST"]

    def user_text(self) -> str:
        return "\n".join(text for body in self.messages() for text in _texts(body.get("messages")))

    def answer(self, asked: Asked) -> Answer:
        if asked.method != "CONNECT":
            asked = dataclasses.replace(asked, path=urlsplit(asked.path).path)
        self.requests.append(asked)
        path, body = asked.path, asked.body
        whole: dict[str, Any] = {}
        events: list[dict[str, Any]] = []
        if asked.method != "POST":
            return Answer(status={"HEAD": 200, "CONNECT": 403}.get(asked.method, 404))
        if path == "/v1/messages/count_tokens":
            whole = {"input_tokens": 10}
        elif path == "/v1/messages":
            whole, events = _anthropic(str(body.get("model")), self.next_reply(body))
        elif path == "/v1/responses":
            events = _responses(self.next_reply(body))
        elif path == "/v1/chat/completions":
            whole, events = _chat(self.reply)
        elif ":streamGenerateContent" in path:
            events = _gemini(self.next_reply(body))
        if events and (body.get("stream") or not whole):
            text = ""
            for event in events:
                text += f"event: {event['type']}\n" if "type" in event else ""
                text += f"data: {json.dumps(event)}\n\n"
            return Answer(text.encode(), headers={"Content-Type": "text/event-stream"})
        error = {
            "type": "error",
            "error": {"type": "not_found_error", "message": f"no {path} here"},
        }
        return sends(whole or error, status=200 if whole else 404)


def _anthropic(model: str, reply: str | ToolCall) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if isinstance(reply, ToolCall):
        block = {"type": "tool_use", "id": f"toolu_{secrets.token_hex(8)}", **reply._asdict()}
        first = block | {"input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(reply.input)}
    else:
        block, first = {"type": "text", "text": reply}, {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": reply}
    ended = {
        "stop_reason": "tool_use" if isinstance(reply, ToolCall) else "end_turn",
        "stop_sequence": None,
    }
    message: dict[str, Any] = {
        "id": "msg_standin",
        "type": "message",
        "role": "assistant",
        "model": model,
    }
    message |= {"content": [block], **ended, "usage": {"input_tokens": 10, "output_tokens": 5}}
    return message, [
        {"type": "message_start", "message": message | {"content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": first},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]


def _responses(reply: str | ToolCall) -> list[dict[str, Any]]:
    message: dict[str, Any] = {"type": "message", "role": "assistant", "id": "m"}
    message["content"] = [{"type": "output_text", "text": reply}]
    if isinstance(reply, ToolCall):
        arguments = {"name": reply.name, "arguments": json.dumps(reply.input)}
        message = {"type": "function_call", "id": "f", "call_id": secrets.token_hex(8), **arguments}
    usage: dict[str, Any] = {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
    usage |= {
        "input_tokens_details": {"cached_tokens": 40},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    return [
        {"type": "response.created", "response": {"id": "r"}},
        {"type": "response.output_item.done", "item": message},
        {"type": "response.completed", "response": {"id": "r", "usage": usage}},
    ]


def _chat(text: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    head = {"id": "c", "created": 1, "model": "m"}
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    whole = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}
    parts = ({"delta": message, "finish_reason": None}, {"delta": {}, "finish_reason": "stop"})
    chunk = head | {"object": "chat.completion.chunk"}
    chunks = [chunk | {"choices": [{"index": 0, **part}]} for part in parts]
    return head | {"object": "chat.completion"} | whole, [chunks[0], chunks[1] | {"usage": usage}]


def _gemini(reply: str | ToolCall) -> list[dict[str, Any]]:
    part: dict[str, Any] = {"text": reply}
    if isinstance(reply, ToolCall):
        part = {"functionCall": {"name": reply.name, "args": reply.input}}
    candidate = {"content": {"parts": [part], "role": "model"}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 100, "candidatesTokenCount": 20, "totalTokenCount": 120}
    return [{"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m"}]


def _texts(value: object) -> Iterator[str]:
    """Yield every string that stands under a `text` or `content` key, at any depth."""
    if isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for key in ("text", "content"):
            inner = value.get(key)
            if isinstance(inner, str):
                yield inner
            else:
                yield from _texts(inner)
