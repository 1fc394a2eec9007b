"""A model server on this machine that answers by a script: well, badly, slowly or not at all.

    with Loopback(fails(429, retry_after=0), says('{"keep": []}')) as server:
        ...  # server.base is the address of an OpenAI-compatible API, server.requests what was asked

Answers are given in their order and the last one repeats; a function gives an answer per request. Every wait
ends when the server is closed.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

Manner = Literal["answer", "silent", "drip", "reset", "endless"]


@dataclass(frozen=True)
class Asked:
    """A request as the server received it."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    raw: bytes = b""

    @property
    def text(self) -> str:
        return "\n".join(str(message["content"]) for message in self.body.get("messages", []))


@dataclass(frozen=True)
class Answer:
    """An answer and its way: at once, never, a byte a second, with a broken connection, or without end."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    options: Manner = "answer"


Script: TypeAlias = Answer | Callable[[Asked], Answer]


def says(
    text: str | None,
    *,
    model: str = "stand-in",
    finish: str = "stop",
    logprobs: list[dict[str, float]] | None = None,
    usage: tuple[int, int] = (11, 7),
    headers: dict[str, str] | None = None,
    **message: object,
) -> Answer:
    """Answer with a chat completion; `message` holds further keys of it (refusal, tool_calls, ...)."""
    choice: dict[str, Any] = {
        "index": 0,
        "finish_reason": finish,
        "message": {"role": "assistant", "content": text, **message},
    }
    if logprobs is not None:
        choice["logprobs"] = {"content": [_token(logprob) for logprob in logprobs]}
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [choice],
        "usage": {
            "prompt_tokens": usage[0],
            "completion_tokens": usage[1],
            "total_tokens": sum(usage),
        },
    }
    return sends(body, headers=headers)


def calls(arguments: str) -> Answer:
    function = {"name": "opinion", "arguments": arguments}
    return says(
        None,
        finish="tool_calls",
        tool_calls=[{"id": "1", "type": "function", "function": function}],
    )


def sends(body: object, *, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    return Answer(
        body if isinstance(body, bytes) else json.dumps(body).encode(), status, headers or {}
    )


def fails(
    status: int, message: str = "it went wrong", *, retry_after: float | None = None
) -> Answer:
    headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
    return sends(
        {"error": {"message": message, "type": "error", "code": None}},
        status=status,
        headers=headers,
    )


SILENT = Answer(options="silent")
DRIP = Answer(options="drip")
RESET = Answer(options="reset")


class Loopback:
    """The server; it lists `models`, unless `listing` is its answer to that.

    Of an endless answer `sent` bytes could be sent until the client was `gone`.
    """

    def __init__(
        self,
        *script: Script,
        models: tuple[str, ...] = ("stand-in",),
        listing: Script | None = None,
    ) -> None:
        self.requests: list[Asked] = []
        self.listed: list[Asked] = []
        self.sent, self.gone = 0, threading.Event()
        self._lists = listing
        self.closing = threading.Event()
        self._script = script or (says("{}"),)
        self._models = models
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join(5)
        self._server.server_close()

    def answer(self, asked: Asked) -> Answer:
        if asked.method == "GET":
            self.listed.append(asked)
            if self._lists is not None:
                return self._lists if isinstance(self._lists, Answer) else self._lists(asked)
            return sends(
                {
                    "object": "list",
                    "data": [{"id": name, "object": "model"} for name in self._models],
                }
            )
        with self._lock:
            self.requests.append(asked)
            place = min(len(self.requests), len(self._script)) - 1
        script = self._script[place]
        return script if isinstance(script, Answer) else script(asked)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = (
        128  # of the usual 5, what is more than that is connected after seconds, or never
    )

    def __init__(self, address: tuple[str, int], loopback: Loopback) -> None:
        super().__init__(address, _Handler)
        self.loopback = loopback

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: the tests let clients leave on purpose."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name it overrides
        """Say nothing."""

    def do_GET(self) -> None:
        self._respond({})

    def do_HEAD(self) -> None:
        self._respond({})

    def do_CONNECT(self) -> None:
        self._respond({})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = {}
        with contextlib.suppress(ValueError):  # no JSON
            body = json.loads(raw or b"{}")
        self._respond(body, raw)

    def do_DELETE(self) -> None:
        self._respond({})

    def _respond(self, body: dict[str, Any], raw: bytes = b"") -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.server.loopback.answer(Asked(self.command, self.path, headers, body, raw))
        with contextlib.suppress(OSError):
            getattr(self, f"_{answer.options}")(answer)

    def _head(self, answer: Answer, length: int) -> bytes:
        headers = {
            "Content-Type": "application/json",
            "Content-Length": str(length),
            **answer.headers,
        }
        lines = [
            f"HTTP/1.1 {answer.status} Status",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        return "\r\n".join([*lines, "", ""]).encode()

    def _answer(self, answer: Answer) -> None:
        self.wfile.write(self._head(answer, len(answer.body)) + answer.body)

    def _silent(self, _: Answer) -> None:
        self.close_connection = True
        self.server.loopback.closing.wait(60)

    def _drip(self, answer: Answer) -> None:
        self.close_connection = True
        self.wfile.write(self._head(answer, 100_000))
        for _ in range(60):
            self.wfile.write(b" ")
            if self.server.loopback.closing.wait(1):
                return

    def _endless(self, _: Answer) -> None:
        self.close_connection = True
        loopback = self.server.loopback
        self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(OSError):
            while not loopback.closing.is_set():
                self.wfile.write(b"8000\r\n" + b"[" * 0x8000 + b"\r\n")
                loopback.sent += 0x8000
        loopback.gone.set()

    def _reset(self, _: Answer) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.rfile.close()
        self.connection.close()


def _token(alternatives: dict[str, float]) -> dict[str, Any]:
    listed = [
        {"token": token, "logprob": value, "bytes": None} for token, value in alternatives.items()
    ]
    return {**listed[0], "top_logprobs": listed}
