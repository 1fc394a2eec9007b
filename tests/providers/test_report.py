"""What `judgekit provider list` and `provider check` are made of."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from asking import KEY, custom
from loopback import Loopback, fails, says

from judgekit.errors import FailureKind
from judgekit.providers import served_models
from judgekit.providers.litellm import LitellmGateway
from judgekit.providers.report import Checked, ProviderState, check, provider_report
from judgekit.providers.resolve import PanelRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.providers.base import Endpoint


@pytest.fixture(autouse=True)
def servers(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str] | None]:
    answers: dict[str, list[str] | None] = {}
    monkeypatch.setattr(served_models, "models", lambda base, seconds=0.3: answers.get(base))
    return answers


def states(environ: Mapping[str, str], wanted: PanelRequest | None = None) -> dict[str, ProviderState]:
    return {provider_state.name: provider_state for provider_state in provider_report(environ, wanted)}


def checked(endpoint: Endpoint) -> Checked:
    async def run() -> Checked:
        gateway = LitellmGateway()
        try:
            return await check(gateway, endpoint, 5)
        finally:
            await gateway.aclose()

    return asyncio.run(run())


def test_each_provider_says_what_makes_it_usable_or_what_is_lacking(
    servers: dict[str, list[str] | None],
) -> None:
    servers["http://127.0.0.1:11434/v1"] = ["qwen2.5:7b"]
    servers["http://127.0.0.1:1234/v1"] = []
    found = states({"ANTHROPIC_API_KEY": KEY, "PATH": "/nowhere"})
    assert (found["anthropic"].usable, found["anthropic"].why) == (True, "ANTHROPIC_API_KEY set")
    assert (found["gemini"].usable, found["gemini"].why) == (False, "set GEMINI_API_KEY or GOOGLE_API_KEY")
    assert found["azure"].why == "set AZURE_API_KEY with AZURE_API_BASE"
    assert found["ollama"].why == "answers at http://127.0.0.1:11434/v1"
    assert found["ollama"].models["deep"] == "qwen2.5:7b"
    assert found["lm-studio"].why == "it has no model that can chat"
    assert found["llama-server"].why == "nothing answers on port 8080"
    assert found["claude-code"].why == (
        "not allowed: add claude-code to providers.allow in your own configuration; no command claude on PATH"
    )
    assert KEY not in str(found)


def test_the_order_is_the_order_of_choice() -> None:
    names = list(states({}))
    assert (
        names.index("anthropic") < names.index("openai") < names.index("ollama") < names.index("claude-code")
    )


def test_what_is_not_allowed_is_said_to_be() -> None:
    found = states({"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY}, PanelRequest(allow=["openai"]))
    assert (found["anthropic"].usable, found["openai"].usable) == (False, True)
    assert "not allowed" in found["anthropic"].why


def test_a_check_is_one_tiny_call() -> None:
    with Loopback(says("yes")) as server:
        result = checked(custom(server.base))
        asked = server.requests
    assert (result.ok, result.failure, result.provider) == (True, None, "openai-compatible")
    assert result.latency_ms >= 0
    assert len(asked) == 1
    assert asked[0].body["max_tokens"] == 16


def test_a_check_that_fails_says_why() -> None:
    with Loopback(fails(401)) as server:
        result = checked(custom(server.base))
    assert (result.ok, result.failure) == (False, FailureKind.AUTHENTICATION)
    assert "it went wrong" in result.message


def test_a_model_that_is_cut_short_did_answer() -> None:
    with Loopback(says("Yes, of course, because", finish="length")) as server:
        assert checked(custom(server.base)).ok
