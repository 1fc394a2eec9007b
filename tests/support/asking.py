"""Endpoints, requests and calls for tests of the gateway."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from judgekit.errors import GatewayError
from judgekit.providers import registry
from judgekit.providers.base import (
    CallKey,
    Endpoint,
    Gateway,
    Message,
    Reply,
    Request,
    build_endpoint,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY = "jk-test-0123456789abcdef"
SLACK = 3.0  # a first call imports and connects; a hang would be the server's 60 seconds
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"reasoning": {"type": "string"}, "score": {"type": "integer"}},
    "required": ["reasoning", "score"],
    "additionalProperties": False,
}


def custom(base: str, model: str = "stand-in") -> Endpoint:
    environ = {"JUDGEKIT_API_BASE": base, "JUDGEKIT_API_KEY": KEY}
    return build_endpoint(registry.find("openai-compatible"), model, environ)


def bundled(provider: str, model: str, environ: Mapping[str, str]) -> Endpoint:
    return build_endpoint(registry.find(provider), model, environ)


def request(
    text: str = "Is it good?",
    *,
    timeout: float = 10,
    schema: dict[str, Any] | None = None,
    top: int = 0,
) -> Request:
    messages = (Message("system", "You judge."), Message("user", text))
    return Request(messages, CallKey("a" * 64, "kls@1.0.0", "quick"), timeout, 64, schema, top)


def ask(gateway: Gateway, endpoint: Endpoint, request: Request) -> Reply:

    async def run() -> Reply:
        try:
            return await gateway.complete(endpoint, request)
        finally:
            await gateway.aclose()

    return asyncio.run(run())


def failure(gateway: Gateway, endpoint: Endpoint, request: Request) -> GatewayError:
    """Make a call that must fail, and must be back by its deadline; return the failure."""
    start = time.monotonic()
    with pytest.raises(GatewayError) as caught:
        ask(gateway, endpoint, request)
    assert time.monotonic() - start < request.timeout + SLACK
    assert KEY not in str(caught.value)
    assert KEY not in repr(caught.value)
    assert "\n" not in caught.value.message
    return caught.value
