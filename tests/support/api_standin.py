"""A loopback stand-in for the APIs that command-line programs of other makers talk to.

It answers OpenAI's Responses and Chat Completions and Gemini's generateContent with one fixed text, as
events where those are asked for, and keeps what it was sent. Given to a program as its HTTPS proxy as well,
it refuses and records every attempt to connect elsewhere.
"""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGEST = 50_000_000  # bytes of one request


@dataclass
class ApiStandin:
    """A running stand-in: its address, and what came: bodies of calls, hosts it was asked to connect to."""

    url: str
    reply: str
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)


@contextmanager
def serve(reply: str) -> Iterator[ApiStandin]:
    """Run a stand-in on a free port of 127.0.0.1 for as long as the context is open."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    standin = ApiStandin(f"http://127.0.0.1:{server.server_address[1]}", reply)
    server.standin = standin  # type: ignore[attr-defined]  # how a handler finds what it serves
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield standin
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)


def _responses(text: str) -> list[dict[str, Any]]:
    message = {"type": "message", "role": "assistant", "id": "m", "content": [_output(text)]}
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 40},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 120,
    }
    return [
        {"type": "response.created", "response": {"id": "r"}},
        {"type": "response.output_item.done", "item": message},
        {"type": "response.completed", "response": {"id": "r", "usage": usage}},
    ]


def _output(text: str) -> dict[str, str]:
    return {"type": "output_text", "text": text}


def _chunks(text: str) -> list[dict[str, Any]]:
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    delta = {"role": "assistant", "content": text}
    return [
        head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        head | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage},
    ]


def _completion(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }


def _content(text: str) -> dict[str, Any]:
    content = {"parts": [{"text": text}], "role": "model"}
    usage = {"promptTokenCount": 100, "candidatesTokenCount": 20, "totalTokenCount": 120}
    return {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": usage,
        "modelVersion": "m",
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30  # seconds; a program that stops sending must not keep a thread

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name it overrides
        """Say nothing."""

    def do_GET(self) -> None:
        self._send(404, "application/json", b'{"error": {"message": "nothing here"}}')

    def do_CONNECT(self) -> None:
        self._standin.strays.append(self.path)
        self._send(403, "text/plain", b"")

    def do_POST(self) -> None:
        raw = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), LARGEST))
        body = json.loads(raw or b"{}")
        self._standin.bodies.append(body)
        self._standin.headers.append({name.lower(): value for name, value in self.headers.items()})
        text = self._standin.reply
        if self.path.startswith("/v1/responses"):
            self._stream(_responses(text))
        elif self.path.startswith("/v1/chat/completions") and body.get("stream"):
            self._stream(_chunks(text))
        elif self.path.startswith("/v1/chat/completions"):
            self._send(200, "application/json", json.dumps(_completion(text)).encode())
        elif ":streamGenerateContent" in self.path:
            self._stream([_content(text)])
        else:
            self.do_GET()

    @property
    def _standin(self) -> ApiStandin:
        api_standin: ApiStandin = self.server.standin  # type: ignore[attr-defined]  # set by `serve`
        return api_standin

    def _stream(self, events: list[dict[str, Any]]) -> None:
        named = [
            (f"event: {event['type']}\n" if "type" in event else "", json.dumps(event)) for event in events
        ]
        text = "".join(f"{name}data: {data}\n\n" for name, data in named)
        self._send(200, "text/event-stream", text.encode())

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
