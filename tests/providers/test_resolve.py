"""Who judges: the order of choice, and what never happens on the way."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from asking import KEY
from loopback import Loopback

from judgekit.config import TIERS
from judgekit.providers import registry
from judgekit.providers import resolve as module
from judgekit.providers import servers as lists
from judgekit.providers.resolve import CUSTOM, Panel, PanelRequest, detect, fill, profile_of, resolve

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from judgekit.config import TierName
    from judgekit.providers.base import Endpoint


@pytest.fixture(autouse=True)
def servers(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str] | None]:
    """No server of this machine is asked; a test says which addresses answer with which models."""
    answers: dict[str, list[str] | None] = {}
    monkeypatch.setattr(lists, "models", lambda base, seconds=0.3: answers.get(base))
    return answers


def models(panel: Panel) -> dict[str, str]:
    return {tier: endpoints[0].model for tier, endpoints in panel.endpoints.items()}


def one(panel: Panel, tier: TierName = "quick") -> Endpoint:
    return panel.endpoints[tier][0]


HERE = {"JUDGEKIT_API_BASE": "https://x/v1"}
PROXY = {"LITELLM_PROXY_API_BASE": "https://proxy", "LITELLM_PROXY_API_KEY": KEY}
AWS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_REGION": "eu-west-1"}
OPENAI, ANTHROPIC = {"OPENAI_API_KEY": KEY}, {"ANTHROPIC_API_KEY": KEY}
THREE = OPENAI | ANTHROPIC | {"GROQ_API_KEY": KEY}
HAIKU, LUNA = "anthropic/claude-haiku-5-5", "openai/gpt-6-luna"
NOVA = "bedrock/amazon.nova-pro-v1:0"
BEDROCK = "bedrock/global.anthropic.claude-haiku-5-5"
CHOSEN: list[tuple[PanelRequest, Mapping[str, str], str, str]] = [
    (PanelRequest(), ANTHROPIC, "anthropic", HAIKU),
    (PanelRequest(), OPENAI, "openai", LUNA),
    (PanelRequest(), {"GEMINI_API_KEY": KEY}, "gemini", "gemini/gemini-3.5-flash-lite"),
    (PanelRequest(), {"GOOGLE_API_KEY": KEY}, "gemini", "gemini/gemini-3.5-flash-lite"),
    (PanelRequest(), {"MISTRAL_API_KEY": KEY}, "mistral", "mistral/ministral-14b-latest"),
    (PanelRequest(), {"DEEPSEEK_API_KEY": KEY}, "deepseek", "deepseek/deepseek-v4-flash"),
    (PanelRequest(), {"XAI_API_KEY": KEY}, "xai", "xai/grok-4.20-non-reasoning"),
    (PanelRequest(), {"GROQ_API_KEY": KEY}, "groq", "groq/qwen/qwen3.8-27b"),
    (PanelRequest(), {"CEREBRAS_API_KEY": KEY}, "cerebras", "cerebras/gemma-4-31b"),
    (PanelRequest(), {"OPENROUTER_API_KEY": KEY}, "openrouter", "openrouter/openai/gpt-6-luna"),
    (PanelRequest(), {"AZURE_API_KEY": KEY, "AZURE_API_BASE": "https://x"}, "azure", "azure/gpt-6-luna"),
    (PanelRequest(), {"AWS_BEARER_TOKEN_BEDROCK": KEY, "AWS_REGION": "eu-west-1"}, "bedrock", BEDROCK),
    (PanelRequest(), OPENAI | ANTHROPIC, "anthropic", HAIKU),
    (PanelRequest(), OPENAI | {"ANTHROPIC_API_KEY": "  "}, "openai", LUNA),
    # Order and allow are the user's.
    (PanelRequest(order=["groq", "openai"]), THREE, "groq", "groq/qwen/qwen3.8-27b"),
    (PanelRequest(allow=["openai", "groq"]), THREE, "openai", LUNA),
    (PanelRequest(allow=["openai", "groq"], order=["groq"]), THREE, "groq", "groq/qwen/qwen3.8-27b"),
    # An address of one's own comes before keys, and has its own key.
    (PanelRequest(), {**HERE, **OPENAI, "JUDGEKIT_API_KEY": KEY, "JUDGEKIT_MODEL": "m"}, CUSTOM, "custom/m"),
    (PanelRequest(), {**PROXY, "JUDGEKIT_MODEL": "team"}, "litellm-proxy", "litellm_proxy/team"),
    (PanelRequest({"deep": "other"}), PROXY, "litellm-proxy", "litellm_proxy/other"),
    # A model of the environment is a named one.
    (PanelRequest(), {**OPENAI, **ANTHROPIC, "JUDGEKIT_MODEL": "openai/gpt-4.1"}, "openai", "openai/gpt-4.1"),
    (
        PanelRequest({"quick": "openai/gpt-4.1-mini"}),
        {**THREE, "JUDGEKIT_MODEL": "gemini/x"},
        "openai",
        "openai/gpt-4.1-mini",
    ),
]


@pytest.mark.parametrize(("wanted", "environ", "provider", "quick"), CHOSEN)
def test_what_is_wished_and_set_chooses_the_models(
    wanted: PanelRequest, environ: Mapping[str, str], provider: str, quick: str
) -> None:
    panel = resolve(wanted, environ)
    assert (panel.provider, models(panel)["quick"], one(panel).api_key) == (provider, quick, KEY)
    assert set(panel.endpoints) == set(TIERS)
    assert KEY not in repr(panel)


NOBODY = "no allowed provider"
NOT_CHOSEN: list[tuple[PanelRequest, Mapping[str, str], str]] = [
    (PanelRequest(), {}, "judgekit provider list"),
    (PanelRequest(), {"ANTHROPIC_API_KEY": ""}, "judgekit provider list"),
    (PanelRequest(), {"AZURE_API_KEY": KEY}, "judgekit provider list"),
    (PanelRequest(), AWS, "judgekit provider list"),
    (PanelRequest(allow=["xai"]), THREE, "xai"),
    (PanelRequest(allow=["ollama"]), {}, "ollama"),
    (PanelRequest({"quick": "openai/gpt-4.1"}), {}, "set OPENAI_API_KEY"),
    (PanelRequest({"deep": "no-such"}), OPENAI, NOBODY),
    (PanelRequest({"quick": "openai/gpt-4.1"}, allow=["anthropic"]), OPENAI, NOBODY),
    (PanelRequest({"quick": "claude-code/x"}), {"PATH": "/bin"}, NOBODY),
    (PanelRequest({"quick": "claude-code/x"}, allow=["claude-code"]), {"PATH": "/bin"}, "no command claude"),
    (PanelRequest({"quick": "claude-code/x"}, listed_only=frozenset({"quick"})), {"PATH": "/bin"}, NOBODY),
    # A jury is found whole or not at all.
    (PanelRequest({"quick": [LUNA, HAIKU]}), OPENAI, "claude-haiku-5-5 is configured (quick)"),
    (
        PanelRequest(),
        {"JUDGEKIT_API_BASE": "notaurl", "JUDGEKIT_MODEL": "m"},
        "the address of openai-compatible is 'notaurl': expected an address such as http://127.0.0.1:8080/v1",
    ),
]


@pytest.mark.parametrize(("wanted", "environ", "reason"), NOT_CHOSEN)
def test_without_models_there_is_no_panel_but_a_reason(
    wanted: PanelRequest, environ: Mapping[str, str], reason: str
) -> None:
    panel = resolve(wanted, environ)
    assert (panel.endpoints, panel.provider) == ({}, None)
    assert reason in panel.reason
    assert "\n" not in panel.reason


def test_general_credentials_count_when_the_user_asks_for_the_provider_and_not_for_a_project() -> None:
    panel = resolve(PanelRequest(allow=["bedrock"]), AWS)
    assert panel.provider == "bedrock"
    assert one(panel).parameters["aws_region_name"] == "eu-west-1"
    assert one(panel).api_key is None
    named = resolve(PanelRequest({"quick": NOVA}), AWS)
    assert (one(named).model, one(named).family) == (NOVA, "amazon")
    listed = PanelRequest({"quick": NOVA}, listed_only=frozenset({"quick"}))
    refused = resolve(listed, AWS)
    assert refused.endpoints == {}
    assert "add bedrock to providers.allow in your own configuration" in refused.reason
    assert "\n" not in refused.reason
    allowed = resolve(replace(listed, allow=["bedrock"]), AWS)
    assert one(allowed).parameters["aws_region_name"] == "eu-west-1"
    keyed = resolve(listed, {**AWS, "AWS_BEARER_TOKEN_BEDROCK": KEY})
    assert (one(keyed).api_key, keyed.reason) == (KEY, "named by the project")
    # A project that names one tier takes nothing from the user's own.
    both: dict[TierName, str | None] = {"quick": "openai/gpt-4.1", "deep": NOVA}
    assert resolve(PanelRequest(both, listed_only=frozenset({"deep"})), AWS | OPENAI).endpoints == {}
    panel = resolve(PanelRequest(both, listed_only=frozenset({"quick"})), AWS | OPENAI)
    assert (models(panel)["deep"], panel.reason) == (NOVA, "named by the user")
    # Nor does it hide a model of the environment.
    environ = {**AWS, "JUDGEKIT_MODEL": NOVA}
    assert resolve(PanelRequest(listed_only=frozenset(TIERS)), environ).provider == "bedrock"


def test_an_address_of_ones_own_gets_no_other_key_and_may_have_a_model_a_tier() -> None:
    panel = resolve(PanelRequest(), {**HERE, **OPENAI, "JUDGEKIT_MODEL": "qwen2.5"})
    endpoint = one(panel)
    assert (endpoint.api_base, endpoint.api_key, endpoint.family) == ("https://x/v1", "no-key", "alibaba")
    assert set(models(panel).values()) == {"custom/qwen2.5"}
    panel = resolve(PanelRequest(), {**HERE, "JUDGEKIT_QUICK_MODEL": "small", "JUDGEKIT_DEEP_MODEL": "large"})
    assert models(panel) == {"quick": "custom/small", "deep": "custom/large", "tiebreaker": "custom/large"}
    panel = resolve(PanelRequest(), {**HERE, "JUDGEKIT_MODEL": "c", "JUDGEKIT_QUICK_MODEL": "a,b"})
    assert [endpoint.model for endpoint in panel.endpoints["quick"]] == ["custom/a", "custom/b"]
    assert [endpoint.model for endpoint in panel.endpoints["deep"]] == ["custom/c"]
    environ = {**ANTHROPIC, "ANTHROPIC_BASE_URL": "https://gateway.example.org"}
    assert one(resolve(PanelRequest(), environ)).api_base == "https://gateway.example.org"


def test_an_address_without_a_model_is_asked_if_it_is_here_and_never_guessed(
    servers: dict[str, list[str] | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"JUDGEKIT_API_BASE": "http://127.0.0.1:9/v1", **OPENAI}
    lost = resolve(PanelRequest(), environ)
    assert (lost.endpoints, "JUDGEKIT_MODEL" in lost.reason) == ({}, True)
    servers["http://127.0.0.1:9/v1"] = ["served"]
    assert models(resolve(PanelRequest(), environ))["quick"] == "custom/served"
    monkeypatch.undo()
    with Loopback(models=("text-embedding-3", "judge-7b")) as server:  # a real one
        panel = resolve(PanelRequest(), {"JUDGEKIT_API_BASE": server.base})
        assert models(panel)["quick"] == "custom/judge-7b"


def test_named_models_may_be_of_several_providers_and_others_fill_the_tiers() -> None:
    environ = {"OPENAI_API_KEY": "one-key", "ANTHROPIC_API_KEY": "two-key"}
    panel = resolve(PanelRequest({"quick": "openai/gpt-4.1", "deep": "anthropic/claude-opus-5-5"}), environ)
    assert one(panel).api_key == "one-key"
    assert (one(panel, "deep").api_key, one(panel, "deep").family) == ("two-key", "anthropic")
    assert one(panel, "tiebreaker").model == "anthropic/claude-opus-5-5"
    assert models(resolve(PanelRequest({"quick": "openai/gpt-4.1-mini"}), environ)) == {
        "quick": "openai/gpt-4.1-mini",
        "deep": "openai/gpt-6-sol",
        "tiebreaker": "openai/gpt-6.1-sol",
    }


def test_a_local_server_comes_after_keys_and_the_embedded_model_after_it(
    servers: dict[str, list[str] | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    servers["http://127.0.0.1:1234/v1"] = ["qwen2.5-7b", "other"]
    assert resolve(PanelRequest(), OPENAI).provider == "openai"
    panel = resolve(PanelRequest(), {})
    assert (panel.provider, set(models(panel).values())) == ("lm-studio", {"lm-studio/qwen2.5-7b"})
    assert one(panel).api_key == "no-key"
    servers["http://127.0.0.1:11434/v1"] = []
    environ = {"JUDGEKIT_LOCAL_MODEL": "/models/Qwen2.5.gguf"}
    assert resolve(PanelRequest(), environ).provider == "lm-studio"
    assert resolve(PanelRequest(allow=["ollama"]), {}).endpoints == {}
    servers.clear()
    monkeypatch.setattr(module, "importable", lambda name: True)
    panel = resolve(PanelRequest(), environ)
    assert (panel.provider, one(panel).pointwise, one(panel).family) == ("local", True, "alibaba")
    assert one(panel).model == "local//models/Qwen2.5.gguf"
    monkeypatch.setattr(module, "importable", lambda name: False)
    assert resolve(PanelRequest(), environ).endpoints == {}


@pytest.fixture
def signed_in(tmp_path: Path) -> dict[str, str]:
    command = tmp_path / "claude"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o700)
    return {"PATH": str(tmp_path), "HOME": "/home/x", "CLAUDE_CODE_OAUTH_TOKEN": "t", "GITHUB_TOKEN": "no"}


def test_a_command_is_last_and_only_if_the_user_allows_it(signed_in: dict[str, str]) -> None:
    assert resolve(PanelRequest(), signed_in).endpoints == {}
    panel = resolve(PanelRequest(allow=["claude-code", "openai"]), signed_in)
    assert (panel.provider, models(panel)["quick"]) == ("claude-code", "claude-haiku-5-5")
    assert "GITHUB_TOKEN" not in one(panel).parameters
    assert one(panel).parameters["CLAUDE_CODE_OAUTH_TOKEN"] == "t"
    with_key = {**signed_in, "OPENAI_API_KEY": KEY}
    assert resolve(PanelRequest(allow=["claude-code", "openai"]), with_key).provider == "openai"
    within = {**signed_in, "JUDGEKIT_INSIDE": "1"}  # it does not run itself
    assert resolve(PanelRequest(allow=["claude-code"]), within).endpoints == {}


def test_tiers_without_a_model_take_the_nearest_deeper_one(signed_in: dict[str, str]) -> None:
    panel = resolve(PanelRequest(), {"DEEPSEEK_API_KEY": KEY})
    quick, deep = one(panel), one(panel, "deep")
    assert one(panel, "tiebreaker") is deep
    assert fill({"deep": (deep,)})["quick"] == (deep,)
    assert fill({"quick": (quick, deep)})["tiebreaker"] == (quick, deep)
    assert fill({"quick": (quick,), "tiebreaker": (deep,)})["deep"] == (deep,)
    assert fill({}) == {}


def test_a_name_says_whose_a_model_is() -> None:
    providers = {
        "anthropic/claude-x": "anthropic",
        "openrouter/anthropic/claude-x": "openrouter",
        "custom/llama": "openai-compatible",
        "openai-compatible/llama": "openai-compatible",
        "lm-studio/llama": "lm-studio",
        "vertex_ai/gemini-x": "vertex",
        "vertex/gemini-x": "vertex",
        "litellm_proxy/x": "litellm-proxy",
        "llama": None,
        "nobody/llama": None,
    }
    for name, provider in providers.items():
        profile, _ = profile_of(name, registry.profiles())
        assert (profile.provider if profile else None) == provider
    problem = detect(registry.find("vertex"), {"VERTEXAI_PROJECT": "p"})
    assert problem in (None, "the Python package google.auth is not installed")


def test_a_tier_may_hold_several_models() -> None:
    variables = {"JUDGEKIT_QUICK_MODEL": f"{LUNA}, {HAIKU},"}
    for wanted, environ in (
        (PanelRequest({"quick": [LUNA, HAIKU, LUNA]}), {}),
        (PanelRequest({"quick": f"{LUNA}, {HAIKU}"}), {}),
        (PanelRequest(), variables),
    ):
        panel = resolve(wanted, OPENAI | ANTHROPIC | environ)
        jury = [(endpoint.model, endpoint.family) for endpoint in panel.endpoints["quick"]]
        assert jury == [(LUNA, "openai"), (HAIKU, "anthropic")]
        assert panel.endpoints["deep"] == panel.endpoints["quick"]
