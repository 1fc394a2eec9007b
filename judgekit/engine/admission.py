"""Who is let in, and how many at once: every request passes here before a byte of its body is read."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp, Receive, Scope, Send

MOST_REQUESTS = 512  # at work or waiting
MOST_BYTES = 64_000_000  # of all bodies at once
MOST_BODY = 16_000_000
HOLDER = "judgekit.holder"  # in a request's scope: the name of whose token came with it
ALWAYS = ("/v1/health", "/v1/stop")  # answered however much there is to do
Refusal: TypeAlias = tuple[int, str, str, float]  # status, kind, message, seconds until it may be otherwise


class AdmissionMiddleware:
    """An ASGI application before another one.

    It answers 401 without the `token`, where there is one; 411 or 413 for a body of unknown or too great a
    size; and 503 with `Retry-After` when the queue is full or the engine is leaving. Where requests have a
    holder, nobody has more of the queue, or of the bytes, than is left for the others.
    """

    def __init__(
        self, app: ASGIApp, *, token: str = "", most: int = MOST_REQUESTS, always: Collection[str] = ALWAYS
    ) -> None:
        self._app, self._token, self._most, self._always = app, token, most, always
        self.requests = 0  # that came in, ever
        self.inside = 0
        self.leaving = False
        self._bytes = 0
        self._requests_of: Counter[str] = Counter()
        self._bytes_of: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or say why not."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        size = int(length) if length.isdigit() and b"transfer-encoding" not in headers else -1
        always = scope["path"] in self._always
        holder: str | None = scope.get(HOLDER)
        token = headers.get(b"authorization", b"")
        refused: Refusal | None = None
        if self._token and not secrets.compare_digest(token, f"Bearer {self._token}".encode()):
            refused = 401, "token", "this engine requires its token", 0
        elif size < 0:
            refused = 411, "input", "send the Content-Length of the body", 0
        elif size > MOST_BODY:
            refused = 413, "size", f"larger than {MOST_BODY // 1_000_000} MB; judge a part of it", 0
        elif not always:
            refused = self._full(size) or (self._greedy(size, holder) if holder is not None else None)
        if refused is not None:
            await refuse(send, *refused)
            return
        self.requests += not always
        self._count(holder, not always, size)
        try:
            await self._app(scope, receive, send)
        finally:
            self._count(holder, -(not always), -size)

    def _count(self, holder: str | None, requests: int, size: int) -> None:
        self.inside += requests
        self._bytes += size
        if holder is not None:
            for counter, change in ((self._requests_of, requests), (self._bytes_of, size)):
                counter[holder] += change
                counter += Counter()  # drops who has nothing

    def _full(self, size: int) -> Refusal | None:
        if self.leaving:
            return 503, "leaving", "the engine is stopping", 0
        if self.inside >= self._most:
            return 503, "busy", f"{self.inside} requests are already waiting", 1
        if self._bytes + size > MOST_BYTES:
            return 503, "busy", f"{self._bytes // 1_000_000} MB of requests are already waiting", 1
        return None

    def _greedy(self, size: int, holder: str) -> Refusal | None:
        requests, size_of = self._requests_of[holder], self._bytes_of[holder]
        if requests and requests + 1 > self._most - self.inside - 1:
            return 503, "busy", f"{requests} of your requests are already waiting", 1
        if size_of and size_of + size > MOST_BYTES - self._bytes - size:
            return 503, "busy", f"{size_of // 1_000_000} MB of your requests are already waiting", 1
        return None


def error_body(kind: str, message: str, exit_code: int = 70) -> bytes:
    """Return the body of every answer that is an error."""
    return json.dumps({"error": {"kind": kind, "message": message, "exit_code": exit_code}}).encode()


async def refuse(send: Send, status: int, kind: str, message: str, retry_after: float) -> None:
    """Answer with an error, and hang up: what is left of the request is not read."""
    body = error_body(kind, message)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers.append((b"connection", b"close"))
    if status == 503:  # noqa: PLR2004 - the status of RFC 9110 for a server that cannot just now
        headers.append((b"retry-after", f"{retry_after:g}".encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
