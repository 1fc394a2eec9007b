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


PROXY_SECONDS = 2.0  # for the whole question
MOST_BYTES = 1_000_000
KEPT_SECONDS = 86_400.0
FAILED_SECONDS = 600.0  # before one that gave no answer is asked again
FOLDER = "proxies"
_lock = threading.Lock()
_asked: dict[str, tuple[float, dict[str, str]]] = {}


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
        told = _families(endpoint.api_base, endpoint.api_key)
    family = told.get(bare) or next(
        (told[each] for each in told if each.endswith("*") and bare.startswith(each[:-1])), None
    )
    return replace(endpoint, family=family) if family else endpoint


def _families(base: str, key: str | None) -> dict[str, str]:
    name = hashlib.sha256(f"{base}\0{key}".encode()).hexdigest()
    path = Path(environment.cache_home()) / FOLDER / f"{name}.json"
    at, known = _asked.get(str(path)) or _kept(path)
    if abs(time.time() - at) < (KEPT_SECONDS if known else FAILED_SECONDS):
        return known
    import asyncio  # noqa: PLC0415 - for a proxy alone

    with suppress(Exception):  # whatever a stranger's server does; the families stay as they are
        known = _families_in(asyncio.run(_get_info(base, key)))
    _asked[str(path)] = time.time(), known
    _keep(path, known)
    return known


async def _get_info(base: str, key: str | None) -> bytes:
    import asyncio  # noqa: PLC0415 - for a proxy alone

    import httpx  # noqa: PLC0415 - comes with litellm, and is as heavy

    url = f"{base.rstrip('/').removesuffix('/v1')}/v1/model/info"
    headers = {"Accept-Encoding": "identity"}
    if key and key != NO_KEY:
        headers["Authorization"] = f"Bearer {key}"
    said = b""
    async with (
        asyncio.timeout(PROXY_SECONDS),
        httpx.AsyncClient(timeout=PROXY_SECONDS) as client,
        client.stream("GET", url, headers=headers) as answer,
    ):
        answer.raise_for_status()
        async for part in answer.aiter_raw():
            said += part
            if len(said) > MOST_BYTES:
                raise ValueError("too long")
    return said


def _families_in(said: bytes) -> dict[str, str]:
    """Return the family behind each name in what a proxy says of its models."""
    found: dict[str, set[str]] = {}
    for each in json.loads(said)["data"]:
        behind: Any = (each.get("model_info") or {}).get("base_model") or each["litellm_params"]["model"]
        found.setdefault(str(each["model_name"]), set()).add(family_by_name(str(behind)))
    return {
        name: families.pop() if len(families) == 1 else UNKNOWN_FAMILY
        for name, families in found.items()
        if families != {UNKNOWN_FAMILY}
    }


def _kept(path: Path) -> tuple[float, dict[str, str]]:
    try:
        found = json.loads(path.read_bytes())
        return float(found["at"]), {str(name): str(family) for name, family in found["families"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return 0.0, {}


def _keep(path: Path, known: dict[str, str]) -> None:
    temporary = path.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        environment.private_folder(str(path.parent))
        temporary.write_text(json.dumps({"at": time.time(), "families": known}), encoding="utf-8")
        temporary.replace(path)
