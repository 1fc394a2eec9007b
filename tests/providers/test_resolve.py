"""Who judges: the order of choice, and what never happens on the way."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from asking import KEY
from loopback import Loopback

from judgekit.config.names import TIERS
from judgekit.providers import registry, served_models
from judgekit.providers.registry import LitellmProfile
from judgekit.providers.resolve import Panel, PanelRequest, detect, fill, profile_of, resolve

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from judgekit.config.names import TierName
    from judgekit.providers.base import Endpoint


@pytest.fixture(autouse=True)
def servers(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str] | None]:
    """No server of this machine is asked; a test says which addresses answer with which models."""
    answers: dict[str, list[str] | None] = {}
    monkeypatch.setattr(served_models, "models", lambda base, seconds=0.3: answers.get(base))
    return answers


def models(panel: Panel) -> dict[str, str]:
    return {tier: endpoints[0].model for tier, endpoints in panel.endpoints.items()}


def one(panel: Panel, tier: TierName = "quick") -> Endpoint:
    return panel.endpoints[tier][0]


@pytest.mark.parametrize(
    ("environ", "provider", "quick"),
    [
        ({"ANTHROPIC_API_KEY": KEY}, "anthropic", "anthropic/claude-haiku-5-5"),
        ({"OPENAI_API_KEY": KEY}, "openai", "openai/gpt-6-luna"),
        ({"GEMINI_API_KEY": KEY}, "gemini", "gemini/gemini-3.5-flash-lite"),
        ({"GOOGLE_API_KEY": KEY}, "gemini", "gemini/gemini-3.5-flash-lite"),
        ({"MISTRAL_API_KEY": KEY}, "mistral", "mistral/ministral-14b-latest"),
        ({"DEEPSEEK_API_KEY": KEY}, "deepseek", "deepseek/deepseek-v4-flash"),
        ({"XAI_API_KEY": KEY}, "xai", "xai/grok-4.20-non-reasoning"),
        ({"GROQ_API_KEY": KEY}, "groq", "groq/qwen/qwen3.8-27b"),
        ({"CEREBRAS_API_KEY": KEY}, "cerebras", "cerebras/gemma-4-31b"),
        ({"OPENROUTER_API_KEY": KEY}, "openrouter", "openrouter/openai/gpt-6-luna"),
        ({"AZURE_API_KEY": KEY, "AZURE_API_BASE": "https://x"}, "azure", "azure/gpt-6-luna"),
        (
            {"AWS_BEARER_TOKEN_BEDROCK": KEY, "AWS_REGION": "eu-west-1"},
            "bedrock",
            "bedrock/global.anthropic.claude-haiku-5-5",
        ),
        ({"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}, "anthropic", "anthropic/claude-haiku-5-5"),
        ({"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": "  "}, "openai", "openai/gpt-6-luna"),
    ],
)
def test_a_key_chooses_its_provider(environ: Mapping[str, str], provider: str, quick: str) -> None:
    panel = resolve(PanelRequest(), environ)
    assert (panel.provider, models(panel)["quick"], one(panel).api_key) == (provider, quick, KEY)
    assert set(panel.endpoints) == set(TIERS)
    assert KEY not in repr(panel)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"ANTHROPIC_API_KEY": ""},
        {"AZURE_API_KEY": KEY},
        {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_REGION": "z"},
    ],
)
def test_without_a_whole_key_there_is_no_panel_but_a_reason(environ: Mapping[str, str]) -> None:
    panel = resolve(PanelRequest(), environ)
    assert (panel.endpoints, panel.provider) == ({}, None)
    assert "judgekit provider list" in panel.reason
    assert "\n" not in panel.reason


def test_general_credentials_count_when_the_provider_is_asked_for() -> None:
    environ = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_REGION": "eu-west-1"}
    panel = resolve(PanelRequest(allow=["bedrock"]), environ)
    assert panel.provider == "bedrock"
    assert one(panel).parameters["aws_region_name"] == "eu-west-1"
    assert one(panel).api_key is None
    named = resolve(PanelRequest({"quick": "bedrock/amazon.nova-micro-v1:0"}), environ)
    assert (one(named).model, one(named).family) == ("bedrock/amazon.nova-micro-v1:0", "amazon")


def test_a_project_does_not_lend_general_credentials_to_the_model_it_names() -> None:
    environ = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_REGION": "eu-west-1"}
    listed = PanelRequest({"quick": "bedrock/amazon.nova-micro-v1:0"}, listed_only=frozenset({"quick"}))
    refused = resolve(listed, environ)
    assert refused.endpoints == {}
    assert "add bedrock to providers.allow in your own configuration" in refused.reason
    assert "\n" not in refused.reason
    allowed = resolve(replace(listed, allow=["bedrock"]), environ)
    assert one(allowed).parameters["aws_region_name"] == "eu-west-1"
    keyed = resolve(listed, {**environ, "AWS_BEARER_TOKEN_BEDROCK": KEY})
    assert (one(keyed).api_key, keyed.reason) == (KEY, "named by the project")


def test_a_project_that_names_one_tier_takes_nothing_from_the_users_own() -> None:
    environ = {
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "y",
        "AWS_REGION": "z",
        "OPENAI_API_KEY": KEY,
    }
    both: dict[TierName, str | None] = {"quick": "openai/gpt-4.1", "deep": "bedrock/amazon.nova-pro-v1:0"}
    assert resolve(PanelRequest(both, listed_only=frozenset({"deep"})), environ).endpoints == {}
    panel = resolve(PanelRequest(both, listed_only=frozenset({"quick"})), environ)
    assert (models(panel)["deep"], panel.reason) == ("bedrock/amazon.nova-pro-v1:0", "named by the user")


def test_a_project_does_not_hide_a_model_of_the_environment() -> None:
    environ = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_REGION": "z"}
    environ["JUDGEKIT_MODEL"] = "bedrock/amazon.nova-pro-v1:0"
    assert resolve(PanelRequest(listed_only=frozenset(TIERS)), environ).provider == "bedrock"


def test_a_project_cannot_start_a_program() -> None:
    listed = PanelRequest({"quick": "claude-code/x"}, listed_only=frozenset({"quick"}))
    assert "no allowed provider" in resolve(listed, {"PATH": "/bin"}).reason


def test_order_and_allow_are_the_users() -> None:
    environ = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY, "GROQ_API_KEY": KEY}
    assert resolve(PanelRequest(order=["groq", "openai"]), environ).provider == "groq"
    assert resolve(PanelRequest(allow=["openai", "groq"]), environ).provider == "openai"
    assert resolve(PanelRequest(allow=["openai", "groq"], order=["groq"]), environ).provider == "groq"
    nothing = resolve(PanelRequest(allow=["xai"]), environ)
    assert (nothing.endpoints, "xai" in nothing.reason) == ({}, True)


def test_an_address_of_ones_own_comes_before_keys_and_gets_no_other_key() -> None:
    environ = {"JUDGEKIT_API_BASE": "https://x/v1", "JUDGEKIT_MODEL": "qwen2.5", "OPENAI_API_KEY": KEY}
    panel = resolve(PanelRequest(), environ)
    assert panel.provider == "openai-compatible"
    assert (one(panel).api_base, one(panel).api_key, one(panel).family) == (
        "https://x/v1",
        "no-key",
        "alibaba",
    )
    assert set(models(panel).values()) == {"custom/qwen2.5"}


def test_an_address_of_ones_own_may_have_a_model_a_tier() -> None:
    environ = {
        "JUDGEKIT_API_BASE": "https://x/v1",
        "JUDGEKIT_API_KEY": KEY,
        "JUDGEKIT_QUICK_MODEL": "small",
        "JUDGEKIT_DEEP_MODEL": "large",
    }
    panel = resolve(PanelRequest(), environ)
    assert models(panel) == {"quick": "custom/small", "deep": "custom/large", "tiebreaker": "custom/large"}
    assert one(panel).api_key == KEY


def test_an_address_without_a_model_is_asked_if_it_is_here_and_never_guessed(
    servers: dict[str, list[str] | None],
) -> None:
    environ = {"JUDGEKIT_API_BASE": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": KEY}
    lost = resolve(PanelRequest(), environ)
    assert (lost.endpoints, "JUDGEKIT_MODEL" in lost.reason) == ({}, True)
    servers["http://127.0.0.1:9/v1"] = ["served"]
    assert models(resolve(PanelRequest(), environ))["quick"] == "custom/served"


def test_a_proxy_serves_the_models_that_are_named() -> None:
    proxy = {"LITELLM_PROXY_API_BASE": "https://proxy", "LITELLM_PROXY_API_KEY": KEY}
    panel = resolve(PanelRequest(), {**proxy, "JUDGEKIT_MODEL": "team"})
    assert (panel.provider, models(panel)["deep"]) == ("litellm-proxy", "litellm_proxy/team")
    named = resolve(PanelRequest({"deep": "other"}), proxy)
    assert models(named)["quick"] == "litellm_proxy/other"


def test_named_models_come_first() -> None:
    environ = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY, "JUDGEKIT_MODEL": "gemini/x"}
    panel = resolve(PanelRequest({"quick": "openai/gpt-4.1-mini"}), environ)
    assert models(panel) == {
        "quick": "openai/gpt-4.1-mini",
        "deep": "openai/gpt-6-sol",
        "tiebreaker": "openai/gpt-6.1-sol",
    }


def test_named_models_may_be_of_several_providers() -> None:
    environ = {"OPENAI_API_KEY": "one-key", "ANTHROPIC_API_KEY": "two-key"}
    panel = resolve(PanelRequest({"quick": "openai/gpt-4.1", "deep": "anthropic/claude-opus-5-5"}), environ)
    assert one(panel).api_key == "one-key"
    assert (one(panel, "deep").api_key, one(panel, "deep").family) == ("two-key", "anthropic")
    assert one(panel, "tiebreaker").model == "anthropic/claude-opus-5-5"


@pytest.mark.parametrize(
    ("wanted", "environ", "words"),
    [
        (PanelRequest({"quick": "openai/gpt-4.1"}), {}, "set OPENAI_API_KEY"),
        (PanelRequest({"deep": "no-such"}), {"OPENAI_API_KEY": KEY}, "no allowed provider"),
        (
            PanelRequest({"quick": "openai/gpt-4.1"}, allow=["anthropic"]),
            {"OPENAI_API_KEY": KEY},
            "no allowed provider",
        ),
        (PanelRequest({"quick": "claude-code/x"}), {"PATH": "/bin"}, "no allowed provider"),
        (
            PanelRequest({"quick": "claude-code/x"}, allow=["claude-code"]),
            {"PATH": "/bin"},
            "no command claude",
        ),
    ],
)
def test_a_named_model_that_cannot_be_had_is_not_replaced(
    wanted: PanelRequest, environ: Mapping[str, str], words: str
) -> None:
    panel = resolve(wanted, environ)
    assert panel.endpoints == {}
    assert words in panel.reason


def test_a_model_of_the_environment_is_a_named_one() -> None:
    panel = resolve(
        PanelRequest(), {"JUDGEKIT_MODEL": "openai/gpt-4.1", "OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}
    )
    assert set(models(panel).values()) == {"openai/gpt-4.1"}


def test_a_local_server_comes_after_keys_and_only_if_it_answers(servers: dict[str, list[str] | None]) -> None:
    servers["http://127.0.0.1:1234/v1"] = ["qwen2.5-7b", "other"]
    assert resolve(PanelRequest(), {"OPENAI_API_KEY": KEY}).provider == "openai"
    panel = resolve(PanelRequest(), {})
    assert (panel.provider, set(models(panel).values())) == ("lm-studio", {"lm-studio/qwen2.5-7b"})
    assert one(panel).api_key == "no-key"
    servers["http://127.0.0.1:11434/v1"] = []
    assert resolve(PanelRequest(), {}).provider == "lm-studio"
    assert resolve(PanelRequest(allow=["ollama"]), {}).endpoints == {}


def test_the_embedded_model_comes_after_servers(
    servers: dict[str, list[str] | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from judgekit.providers import resolve as module  # noqa: PLC0415 - patched here

    monkeypatch.setattr(module, "importable", lambda name: True)
    environ = {"JUDGEKIT_LOCAL_MODEL": "/models/Qwen2.5.gguf"}
    panel = resolve(PanelRequest(), environ)
    assert (panel.provider, one(panel).pointwise, one(panel).family) == ("local", True, "alibaba")
    assert one(panel).model == "local//models/Qwen2.5.gguf"
    servers["http://127.0.0.1:8080/v1"] = ["served"]
    assert resolve(PanelRequest(), environ).provider == "llama-server"
    monkeypatch.setattr(module, "importable", lambda name: False)
    servers.clear()
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


def test_a_command_is_not_run_from_within_itself(signed_in: dict[str, str]) -> None:
    panel = resolve(PanelRequest(allow=["claude-code"]), {**signed_in, "JUDGEKIT_INSIDE": "1"})
    assert panel.endpoints == {}


def test_tiers_without_a_model_take_the_nearest_deeper_one(signed_in: dict[str, str]) -> None:
    panel = resolve(PanelRequest(), {"DEEPSEEK_API_KEY": KEY})
    quick, deep = one(panel), one(panel, "deep")
    assert one(panel, "tiebreaker") is deep
    assert fill({"deep": (deep,)})["quick"] == (deep,)
    assert fill({"quick": (quick, deep)})["tiebreaker"] == (quick, deep)
    assert fill({"quick": (quick,), "tiebreaker": (deep,)})["deep"] == (deep,)
    assert fill({}) == {}


@pytest.mark.parametrize(
    ("name", "provider"),
    [
        ("anthropic/claude-x", "anthropic"),
        ("openrouter/anthropic/claude-x", "openrouter"),
        ("custom/llama", "openai-compatible"),
        ("openai-compatible/llama", "openai-compatible"),
        ("lm-studio/llama", "lm-studio"),
        ("vertex_ai/gemini-x", "vertex"),
        ("vertex/gemini-x", "vertex"),
        ("litellm_proxy/x", "litellm-proxy"),
        ("llama", None),
        ("nobody/llama", None),
    ],
)
def test_a_name_says_whose_a_model_is(name: str, provider: str | None) -> None:
    profile, _ = profile_of(name, registry.profiles())
    assert (profile.provider if profile else None) == provider


def test_addresses_of_the_environment_are_used(servers: dict[str, list[str] | None]) -> None:
    environ = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": "https://gateway.example.org"}
    assert one(resolve(PanelRequest(), environ)).api_base == "https://gateway.example.org"


def test_vertex_needs_its_package() -> None:
    profile = registry.find("vertex")
    assert isinstance(profile, LitellmProfile)
    problem = detect(profile, {"VERTEXAI_PROJECT": "p"})
    assert problem in (None, "the Python package google.auth is not installed")


def test_a_real_server_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with Loopback(models=("text-embedding-3", "judge-7b")) as server:
        environ = {"JUDGEKIT_API_BASE": server.base}
        assert models(resolve(PanelRequest(), environ))["quick"] == "custom/judge-7b"


def test_an_address_that_is_none_is_said_at_once() -> None:
    panel = resolve(PanelRequest(), {"JUDGEKIT_API_BASE": "notaurl", "JUDGEKIT_MODEL": "m"})
    assert panel.endpoints == {}
    assert panel.reason == (
        "the address of openai-compatible is 'notaurl': expected an address such as http://127.0.0.1:8080/v1"
    )


NAMED = ["openai/gpt-4.1", "anthropic/claude-haiku-5-5"]


@pytest.mark.parametrize(
    ("wanted", "variables"),
    [
        (PanelRequest({"quick": [*NAMED, NAMED[0]]}), {}),
        (PanelRequest({"quick": ", ".join(NAMED)}), {}),
        (PanelRequest(), {"JUDGEKIT_QUICK_MODEL": f"{NAMED[0]}, {NAMED[1]},"}),
    ],
)
def test_a_tier_may_hold_several_models(wanted: PanelRequest, variables: dict[str, str]) -> None:
    panel = resolve(wanted, {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY} | variables)
    jury = [(endpoint.model, endpoint.family) for endpoint in panel.endpoints["quick"]]
    assert jury == [(NAMED[0], "openai"), (NAMED[1], "anthropic")]
    assert panel.endpoints["deep"] == panel.endpoints["quick"]


def test_a_jury_is_found_whole_or_not_at_all() -> None:
    panel = resolve(PanelRequest({"quick": NAMED}), {"OPENAI_API_KEY": KEY})
    assert panel.endpoints == {}
    assert "claude-haiku-5-5 was asked for (quick)" in panel.reason


def test_an_address_of_the_users_own_may_have_a_jury() -> None:
    environ = {"JUDGEKIT_API_BASE": "http://127.0.0.1:9", "JUDGEKIT_MODEL": "c"}
    panel = resolve(PanelRequest(), environ | {"JUDGEKIT_QUICK_MODEL": "a,b"})
    assert [endpoint.model for endpoint in panel.endpoints["quick"]] == ["custom/a", "custom/b"]
    assert [endpoint.model for endpoint in panel.endpoints["deep"]] == ["custom/c"]
