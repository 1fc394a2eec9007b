"""Asks servers which models they serve: one on this machine, and a LiteLLM proxy.

Every question is bounded in bytes and time, and starts no model. A proxy is asked which models stand behind
its names, since their families decide who is independent: once a day, and never while a prompt waits.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from judgekit import environment
from judgekit.providers.base import NO_KEY, is_loopback
from judgekit.providers.registry import UNKNOWN_FAMILY, LitellmProfile, by_beginning, family_by_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.providers.base import Endpoint


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
        listed = json.loads(
            _get(url.hostname or "", url.port or 80, url.path.rstrip("/") + "/models", seconds)
        )
        names = [str(model["id"]) for model in listed["data"] if isinstance(model, dict) and model.get("id")]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return [name for name in names if not _NO_CHAT.search(name)]


def models_of_all(bases: Sequence[str], seconds: float = SECONDS) -> list[list[str] | None]:
    """Ask several servers at once: the slowest decides how long it takes, not their sum."""
    if not bases:
        return []
    with ThreadPoolExecutor(len(bases), thread_name_prefix="judgekit-probe") as pool:
        return list(pool.map(lambda base: models(base, seconds), bases))


def _get(host: str, port: int, path: str, seconds: float) -> bytes:
    # HTTP/1.0 ends with the connection, so there is no chunked body to decode; a socket of our own, since
    # the timeout of http.client is one for each read and a slow drip would never end.
    end = time.monotonic() + seconds
    with socket.create_connection((host, port), timeout=seconds) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: {host}:{port}\r\n\r\n".encode())
        answer = head = body = b""
        length: re.Match[bytes] | None = None
        while len(answer) < _MAX_BYTES and not (length and len(body) >= int(length[1])):
            connection.settimeout(max(0.001, end - time.monotonic()))
            received = connection.recv(65536)
            if not received:
                break
            answer += received
            head, separator, body = answer.partition(b"\r\n\r\n")
            length = re.search(rb"(?im)^content-length:\s*(\d+)", head) if separator else None
            if time.monotonic() > end:
                raise TimeoutError
    if not re.match(rb"HTTP/1\.[01] 200\b", head):
        raise ValueError("not a response of a model server")
    return body


PROXY_SECONDS = 2.0  # for the whole question
KEPT_SECONDS = 86_400.0
FAILED_SECONDS = 600.0  # before one that gave no answer is asked again
FOLDER = "proxies"
_lock = threading.Lock()
_asked: dict[Path, tuple[float, dict[str, str]]] = {}


def with_family(endpoint: Endpoint) -> Endpoint:
    """Return a model with the family that its proxy tells; as it is where its profile says it, or no proxy.

    Where a name stands for models of several families, its family is unknown.
    """
    profile = endpoint.profile
    if not isinstance(profile, LitellmProfile) or not profile.is_addressed or not endpoint.api_base:
        return endpoint
    bare = profile.bare_name(endpoint.model)
    if by_beginning(profile.families, bare, profile.family):
        return endpoint
    with _lock:
        families = _families(endpoint.api_base, endpoint.api_key)
    patterns = (name for name in families if name.endswith("*") and bare.startswith(name[:-1]))
    family = families.get(bare) or families.get(next(patterns, ""))
    return replace(endpoint, family=family) if family else endpoint


def _families(base: str, key: str | None) -> dict[str, str]:
    """Return the family behind each name of a proxy, as it said within a day; none where it says nothing."""
    digest = hashlib.sha256(f"{base}\0{key}".encode()).hexdigest()
    path = Path(environment.cache_home()) / FOLDER / f"{digest}.json"
    at, known = 0.0, dict[str, str]()
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        kept = {} if path in _asked else json.loads(path.read_bytes())
        families = {str(name): str(family) for name, family in kept.get("families", {}).items()}
        at, known = _asked.get(path) or (float(kept["at"]), families)
    if abs(time.time() - at) < (KEPT_SECONDS if known else FAILED_SECONDS):
        return known
    with suppress(Exception):  # whatever a stranger's server does; the families stay as they are
        known = _asked_proxy(base, key)
    _asked[path] = time.time(), known
    temporary = path.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        environment.private_folder(str(path.parent))
        temporary.write_text(json.dumps({"at": time.time(), "families": known}), encoding="utf-8")
        temporary.replace(path)
    return known


def _asked_proxy(base: str, key: str | None) -> dict[str, str]:
    import asyncio  # noqa: PLC0415 - for a proxy alone

    import httpx  # noqa: PLC0415 - comes with litellm, and is as heavy

    from judgekit.providers import bounded  # noqa: PLC0415 - the same

    url = f"{base.rstrip('/').removesuffix('/v1')}/v1/model/info"
    headers = {"Authorization": f"Bearer {key}"} if key and key != NO_KEY else {}

    async def ask() -> list[Any]:
        with bounded.replies(_MAX_BYTES):
            async with asyncio.timeout(PROXY_SECONDS), httpx.AsyncClient(timeout=PROXY_SECONDS) as client:
                models: list[Any] = (await client.get(url, headers=headers)).raise_for_status().json()["data"]
                return models

    found: dict[str, set[str]] = {}
    for model in asyncio.run(ask()):
        behind = (model.get("model_info") or {}).get("base_model") or model["litellm_params"]["model"]
        found.setdefault(str(model["model_name"]), set()).add(family_by_name(str(behind)))
    return {
        name: families.pop() if len(families) == 1 else UNKNOWN_FAMILY
        for name, families in found.items()
        if families != {UNKNOWN_FAMILY}
    }
