"""Asks a server on this machine which models it serves; quick, bounded, and it never starts or pulls one."""

from __future__ import annotations

import json
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Sequence

SECONDS = 0.3
_MAX_BYTES = 1_000_000
_NO_CHAT = re.compile(r"embed|rerank|whisper|(?:^|[/_-])(?:bge|e5|gte|minilm|tts)(?:[-_:]|$)", re.IGNORECASE)


def models(base: str, seconds: float = SECONDS) -> list[str] | None:
    """Return the models that can chat at an OpenAI-compatible address on this machine.

    None when nothing there answers like such a server within `seconds`. Only loopback addresses are asked.
    """
    url = urlsplit(base)
    if url.scheme != "http" or not is_loopback(base):
        return None
    try:
        body = _get(url.hostname or "", url.port or 80, url.path.rstrip("/") + "/models", seconds)
        return [name for name in _names(json.loads(body)) if not _NO_CHAT.search(name)]
    except (OSError, ValueError, RecursionError):
        return None


def models_of_all(bases: Sequence[str], seconds: float = SECONDS) -> list[list[str] | None]:
    """Ask several servers at once: the slowest decides how long it takes, not their sum."""
    if not bases:
        return []
    with ThreadPoolExecutor(len(bases), thread_name_prefix="judgekit-probe") as pool:
        return list(pool.map(lambda base: models(base, seconds), bases))


def is_loopback(base: str) -> bool:
    """Whether an address is on this machine."""
    return urlsplit(base).hostname in ("127.0.0.1", "::1", "localhost")


def _get(host: str, port: int, path: str, seconds: float) -> bytes:
    # HTTP/1.0 ends with the connection, so there is no chunked body to decode; a socket of our own, since
    # the timeout of http.client is one for each read and a slow drip would never end.
    end = time.monotonic() + seconds
    with socket.create_connection((host, port), timeout=seconds) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: {host}:{port}\r\n\r\n".encode())
        answer = b""
        while len(answer) < _MAX_BYTES and not _complete(answer):
            connection.settimeout(max(0.001, end - time.monotonic()))
            received = connection.recv(65536)
            if not received:
                break
            answer += received
            if time.monotonic() > end:
                raise TimeoutError
    head, _, body = answer.partition(b"\r\n\r\n")
    if not re.match(rb"HTTP/1\.[01] 200\b", head):
        raise ValueError("not the answer of a model server")
    return body


def _complete(answer: bytes) -> bool:
    head, separator, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"(?im)^content-length:\s*(\d+)", head)
    return bool(separator and length and len(body) >= int(length[1]))


def _names(data: Any) -> list[str]:  # noqa: ANN401 - what any server may send
    listed = data.get("data") if isinstance(data, dict) else None
    if not isinstance(listed, list):
        raise ValueError("not a list of models")  # noqa: TRY004 - one error for any answer that is not one
    return [str(each["id"]) for each in listed if isinstance(each, dict) and each.get("id")]
