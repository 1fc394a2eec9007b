"""Asks a LiteLLM proxy which models stand behind its names: their families decide who is independent.

Only where somebody is known to have written a text, so never while a prompt waits. A proxy is asked once a
day; what it says is bounded in bytes and time, and a proxy that says nothing leaves a family as it was.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgekit import environment
from judgekit.providers.endpoints import NO_KEY
from judgekit.providers.profile import LitellmProfile, by_beginning
from judgekit.providers.registry import UNKNOWN_FAMILY, family_by_name
from judgekit.providers.resolve import is_addressed

if TYPE_CHECKING:
    from judgekit.providers.base import Endpoint

SECONDS = 2.0  # for the whole question
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
    if not isinstance(profile, LitellmProfile) or not is_addressed(profile) or not endpoint.api_base:
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
    with suppress(Exception):  # whatever a stranger's server does; the families stay as they are
        known = _read(asyncio.run(_get(base, key)))
    _asked[str(path)] = time.time(), known
    _keep(path, known)
    return known


async def _get(base: str, key: str | None) -> bytes:
    import httpx  # noqa: PLC0415 - comes with litellm, and is as heavy

    url = f"{base.rstrip('/').removesuffix('/v1')}/v1/model/info"
    headers = {"Accept-Encoding": "identity"}
    if key and key != NO_KEY:
        headers["Authorization"] = f"Bearer {key}"
    said = b""
    async with (
        asyncio.timeout(SECONDS),
        httpx.AsyncClient(timeout=SECONDS) as client,
        client.stream("GET", url, headers=headers) as answer,
    ):
        answer.raise_for_status()
        async for part in answer.aiter_raw():
            said += part
            if len(said) > MOST_BYTES:
                raise ValueError("too long")
    return said


def _read(said: bytes) -> dict[str, str]:
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
