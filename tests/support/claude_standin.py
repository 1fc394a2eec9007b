"""A loopback stand-in for the APIs that clients of models talk to: Anthropic's, OpenAI's and Gemini's.

It answers every message with one fixed text, as events where those are asked for, and keeps what it was sent;
a script of tool calls may come first. Given to a client as its HTTPS proxy as well, it refuses and records
every attempt to connect elsewhere.
"""

from __future__ import annotations

import json
import secrets
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

REPLY = "The stand-in has read this."
LARGEST = 50_000_000  # bytes of one request; far above what a client sends, far below this machine's memory


class Recorded(NamedTuple):
    """One request as it came: its method, its path without the query, its JSON body, if any, its headers."""

    method: str
    path: str
    body: Any
    headers: dict[str, str]


class ToolCall(NamedTuple):
    """A tool that the stand-in asks the client to use."""

    name: str
    input: dict[str, Any]


@dataclass
class Standin:
    """A running stand-in: where it listens, what it has been sent so far, and the tools it will ask for.

    Each message that offers tools takes the first of `script`; after the last one the reply is `reply`.
    """

    url: str
    reply: str
    requests: list[Recorded] = field(default_factory=list)
    script: list[ToolCall] = field(default_factory=list)

    def next_reply(self, body: dict[str, Any]) -> str | ToolCall:
        """Return what answers a message."""
        return self.script.pop(0) if self.script and body.get("tools") else self.reply

    @property
    def strays(self) -> list[str]:
        """The hosts that a client tried to reach through this stand-in as its proxy."""
        return [request.path for request in self.requests if request.method == "CONNECT"]

    def messages(self, path: str = "/v1/messages") -> list[dict[str, Any]]:
        """Return the bodies of the calls that asked for a message, in the order they came."""
        return [each.body for each in self.requests if (each.method, each.path) == ("POST", path)]

    @property
    def posts(self) -> list[Recorded]:
        """All that was posted."""
        return [request for request in self.requests if request.method == "POST"]

    def user_text(self) -> str:
        """Return all text of all messages, system prompts aside, joined by newlines."""
        return "\n".join(text for body in self.messages() for text in _texts(body.get("messages")))


@contextmanager
def serve(reply: str = REPLY) -> Iterator[Standin]:
    """Run a stand-in on a free port of 127.0.0.1 for as long as the context is open."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    standin = Standin(url=f"http://127.0.0.1:{server.server_address[1]}", reply=reply)
    server.standin = standin  # type: ignore[attr-defined]  # how a handler finds what it serves
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield standin
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)


def _anthropic(model: str, reply: str | ToolCall) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a finished reply as the API words it, and the same as it streams it."""
    if isinstance(reply, ToolCall):
        block = {"type": "tool_use", "id": f"toolu_{secrets.token_hex(8)}", **reply._asdict()}
        first = block | {"input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(reply.input)}
    else:
        block, first = {"type": "text", "text": reply}, {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": reply}
    ended = {"stop_reason": "tool_use" if isinstance(reply, ToolCall) else "end_turn", "stop_sequence": None}
    message: dict[str, Any] = {"id": "msg_standin", "type": "message", "role": "assistant", "model": model}
    message |= {"content": [block], **ended, "usage": {"input_tokens": 10, "output_tokens": 5}}
    return message, [
        {"type": "message_start", "message": message | {"content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": first},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]


def _responses(text: str) -> list[dict[str, Any]]:
    """Return the events of OpenAI's Responses."""
    output = {"type": "output_text", "text": text}
    message = {"type": "message", "role": "assistant", "id": "m", "content": [output]}
    usage: dict[str, Any] = {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
    usage |= {"input_tokens_details": {"cached_tokens": 40}, "output_tokens_details": {"reasoning_tokens": 0}}
    return [
        {"type": "response.created", "response": {"id": "r"}},
        {"type": "response.output_item.done", "item": message},
        {"type": "response.completed", "response": {"id": "r", "usage": usage}},
    ]


def _chat(text: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a chat completion, and the same in chunks."""
    head = {"id": "c", "created": 1, "model": "m"}
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    whole = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}
    parts = ({"delta": message, "finish_reason": None}, {"delta": {}, "finish_reason": "stop"})
    chunk = head | {"object": "chat.completion.chunk"}
    chunks = [chunk | {"choices": [{"index": 0, **part}]} for part in parts]
    return head | {"object": "chat.completion"} | whole, [chunks[0], chunks[1] | {"usage": usage}]


def _gemini(text: str) -> list[dict[str, Any]]:
    candidate = {"content": {"parts": [{"text": text}], "role": "model"}, "finishReason": "STOP", "index": 0}
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


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30  # seconds; a client that stops sending must not keep a thread

    def do_GET(self) -> None:
        self._record(None)
        self._missing()

    def do_HEAD(self) -> None:
        self._record(None)
        self._send(200, "application/json", b"")

    def do_CONNECT(self) -> None:
        self._record(None)
        self._send(403, "text/plain", b"")

    def do_POST(self) -> None:
        raw = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), LARGEST))
        try:
            body = json.loads(raw or b"{}")
        except ValueError:
            body = None
        standin, path = self._record(body)
        asked = body if isinstance(body, dict) else {}
        whole: dict[str, Any] = {}
        events: list[dict[str, Any]] = []
        if path == "/v1/messages/count_tokens":
            whole = {"input_tokens": 10}
        elif path == "/v1/messages" and isinstance(body, dict):
            reply = standin.next_reply(body)
            whole, events = _anthropic(str(body.get("model")), reply)
        elif path == "/v1/responses":
            events = _responses(standin.reply)
        elif path == "/v1/chat/completions":
            whole, events = _chat(standin.reply)
        elif ":streamGenerateContent" in path:
            events = _gemini(standin.reply)
        if events and (asked.get("stream") or not whole):
            text = ""
            for event in events:
                text += f"event: {event['type']}\n" if "type" in event else ""
                text += f"data: {json.dumps(event)}\n\n"
            self._send(200, "text/event-stream", text.encode())
        elif whole:
            self._send(200, "application/json", json.dumps(whole).encode())
        else:
            self._missing()

    def _record(self, body: object) -> tuple[Standin, str]:
        standin: Standin = self.server.standin  # type: ignore[attr-defined]  # set by `serve`
        path = self.path if self.command == "CONNECT" else urlsplit(self.path).path
        headers = {name.lower(): value for name, value in self.headers.items()}
        standin.requests.append(Recorded(self.command, path, body, headers))
        return standin, path

    def _missing(self) -> None:
        error = {"type": "not_found_error", "message": f"no {self.path} here"}
        self._send(404, "application/json", json.dumps({"type": "error", "error": error}).encode())

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in http.server
        """Say nothing: the requests are recorded."""
