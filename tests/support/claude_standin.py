"""A loopback stand-in for Anthropic's Messages API: the real Claude Code client talks to it, offline.

It answers every message with one fixed text, streamed or not, and keeps what it was sent; a script of tool
calls may come first. Given to a client as its HTTPS proxy as well, it refuses and records every attempt to
connect elsewhere.
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
    """One request as it came: its method, its path without the query, and its JSON body, if any."""

    method: str
    path: str
    body: Any


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

    def strays(self) -> list[str]:
        """Return the hosts that a client tried to reach through this stand-in as its proxy."""
        return [request.path for request in self.requests if request.method == "CONNECT"]

    def messages(self) -> list[dict[str, Any]]:
        """Return the bodies of the calls that asked for a message, in the order they came."""
        return [
            request.body
            for request in self.requests
            if (request.method, request.path) == ("POST", "/v1/messages")
        ]

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


def message(model: str, reply: str | ToolCall) -> dict[str, Any]:
    """Return a finished reply as the API words it."""
    return {
        "id": "msg_standin",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [_block(reply)],
        "stop_reason": _reason(reply),
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }


def events(model: str, reply: str | ToolCall) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the same reply as the API streams it: names and data of the server-sent events."""
    yield "message_start", {"message": message(model, "") | {"content": [], "stop_reason": None}}
    if isinstance(reply, ToolCall):
        block = _block(reply) | {"input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(reply.input)}
    else:
        block, delta = _block(""), {"type": "text_delta", "text": reply}
    yield "content_block_start", {"index": 0, "content_block": block}
    yield "content_block_delta", {"index": 0, "delta": delta}
    yield "content_block_stop", {"index": 0}
    yield (
        "message_delta",
        {"delta": {"stop_reason": _reason(reply), "stop_sequence": None}, "usage": {"output_tokens": 5}},
    )
    yield "message_stop", {}


def _block(reply: str | ToolCall) -> dict[str, Any]:
    if isinstance(reply, str):
        return {"type": "text", "text": reply}
    return {
        "type": "tool_use",
        "id": f"toolu_{secrets.token_hex(8)}",
        "name": reply.name,
        "input": reply.input,
    }


def _reason(reply: str | ToolCall) -> str:
    return "tool_use" if isinstance(reply, ToolCall) else "end_turn"


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
        self._send(404, "application/json", _error("not_found_error", f"no {self.path} here"))

    def do_HEAD(self) -> None:
        self._record(None)
        self._send(200, "application/json", b"")

    def do_CONNECT(self) -> None:
        self._standin.requests.append(Recorded("CONNECT", self.path, None))
        self._send(403, "text/plain", b"")

    def do_POST(self) -> None:
        body = self._body()
        path = self._record(body)
        if path == "/v1/messages/count_tokens":
            self._send(200, "application/json", b'{"input_tokens": 10}')
        elif path != "/v1/messages" or not isinstance(body, dict):
            self._send(404, "application/json", _error("not_found_error", f"no {path} here"))
        elif body.get("stream"):
            self._send(200, "text/event-stream", self._streamed(body))
        else:
            whole = message(str(body.get("model")), self._standin.next_reply(body))
            self._send(200, "application/json", json.dumps(whole).encode())

    @property
    def _standin(self) -> Standin:
        standin: Standin = self.server.standin  # type: ignore[attr-defined]  # set by `serve`
        return standin

    def _streamed(self, body: dict[str, Any]) -> bytes:
        reply = self._standin.next_reply(body)
        lines = (
            f"event: {name}\ndata: {json.dumps({'type': name} | data)}\n\n"
            for name, data in events(str(body.get("model")), reply)
        )
        return "".join(lines).encode()

    def _body(self) -> object:
        length = min(int(self.headers.get("Content-Length") or 0), LARGEST)
        raw = self.rfile.read(length)
        try:
            body: object = json.loads(raw)
        except ValueError:
            return None
        return body

    def _record(self, body: object) -> str:
        path = urlsplit(self.path).path
        self._standin.requests.append(Recorded(self.command, path, body))
        return path

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in http.server
        """Say nothing: the requests are recorded."""


def _error(kind: str, text: str) -> bytes:
    return json.dumps({"type": "error", "error": {"type": kind, "message": text}}).encode()
