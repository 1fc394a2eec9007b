"""Provider profiles: the bundled ones, whose models judge, which are listed and tried."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from asking import KEY
from loopback import Loopback, fails, says
from scripted import scores

from judgekit import environment
from judgekit.cli import app
from judgekit.config import TIERS, files, settings, yamlfile
from judgekit.errors import ConfigError, UsageError
from judgekit.providers import litellm, local, registry
from judgekit.providers import resolve as module
from judgekit.providers import servers as lists
from judgekit.providers.base import build_endpoint
from judgekit.providers.registry import CommandProfile, LitellmProfile, ProfileFile
from judgekit.providers.resolve import (
    CUSTOM_PROVIDER,
    Panel,
    PanelRequest,
    fill,
    find_profile,
    resolve,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.config import TierName
    from judgekit.providers.base import Endpoint

FILES = sorted(files.get_data_folder("providers").glob("*.yaml"))
# The files themselves: what a developer's own folder holds is not what ships.
BUNDLED = {path.stem: yamlfile.read_model(path, ProfileFile).root for path in FILES}
LITELLM = [each for each in BUNDLED.values() if isinstance(each, LitellmProfile)]
WANTED = {
    *(
        "anthropic",
        "openai",
        "gemini",
        "groq",
        "cerebras",
        "mistral",
        "deepseek",
        "xai",
        "openrouter",
    ),
    *("azure", "bedrock", "vertex", "ollama", "openai-compatible", "lm-studio", "llama-server"),
    *("litellm-proxy", "local", "replay"),
    *("openai-decisions", "typesafe", "perplexity", "openrouter-decisions", "cloudflare"),
    *("databricks", "azure-decisions", "vllm-decisions", "litellm-proxy-decisions"),
    *("claude-code", "codex", "gemini-cli", "opencode", "llm"),
}
MINIMAL = """\
provider: mine
title: Mine
kind: litellm
prefix: mine/
detect: {env: [[MINE_API_KEY]]}
output: json_schema
"""
COMMAND = """\
provider: mine
title: Mine
kind: command
detect: {command: mine}
argv: [mine, "--model={model}"]
output: text
"""


def known(profile: LitellmProfile, model: str) -> dict[str, Any]:
    """Return litellm's entry for a model, or nothing.

    OpenRouter's models are not in litellm's table; each must be there under its maker's name.
    """
    table: dict[str, dict[str, Any]] = litellm.load().model_cost
    bare = model.removeprefix(profile.prefix)
    maker, _, name = bare.partition("/")
    if profile.provider == "openrouter":
        return table.get({"openai": "", "google": "gemini/", "x-ai": "xai/"}[maker] + name, {})
    return table.get(model) or table.get(bare) or {}


def write(name: str, text: str) -> Path:
    file = Path(environment.config_home()) / "providers" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def test_the_bundled_profiles_are_those_that_are_promised_in_a_certain_order() -> None:
    assert {path.stem for path in FILES} == WANTED
    for path in FILES:
        assert path.read_text(encoding="utf-8").startswith(f"provider: {path.stem}\n")
    profiles = registry.list_profiles()
    ranks = [profile.rank for profile in profiles]
    assert ranks == sorted(set(ranks))
    kinds = [profile.kind for profile in profiles]  # commands are tried last
    assert kinds[0] == "replay"
    assert kinds.index("decisions") == kinds.count("litellm") + 1
    assert kinds.index("command") == kinds.count("litellm") + kinds.count("decisions") + 1
    modest = {profile.provider for profile in profiles if profile.limits.concurrency}
    commands = {profile.provider for profile in profiles if profile.kind == "command"}
    assert modest == {"llama-server", "lm-studio", "ollama", "local", *commands}


@pytest.mark.parametrize("profile", LITELLM, ids=lambda profile: profile.provider)
def test_a_profile_speaks_of_its_own_models_keys_and_address(profile: LitellmProfile) -> None:
    for model in profile.models.by_tier.values():
        assert known(profile, model).get("mode") == "chat", model
        assert model.startswith(profile.prefix)
        assert build_endpoint(profile, model, {}).family != registry.UNKNOWN_FAMILY
    if model := profile.models.quick or "":  # one that thinks before it answers is not quick
        arguments: dict[str, Any] = profile.look_up_model(profile.arguments, model, {})
        entry = known(profile, model)
        thinks = (
            entry.get("supports_reasoning", False) and entry.get("thinking_always_on") is not False
        )
        assert (
            not thinks or arguments.get("extra_body", arguments).get("reasoning_effort") == "none"
        )
    # An address that is not given would be litellm's to choose, from variables of its own.
    regional = profile.provider in ("bedrock", "vertex")
    assert regional or profile.embedded or profile.base or profile.base_env
    others = {variable for other in LITELLM if other is not profile for variable in other.key}
    assert not others.intersection(profile.key)
    for table in (
        profile.outputs,
        profile.arguments,
        profile.thinking,
        profile.price,
        profile.families,
    ):
        assert not [key for key in table if key.startswith(profile.prefix)]
    assert not [key for key in profile.price if known(profile, profile.prefix + key)]


def test_a_name_tells_the_family() -> None:
    families = {
        "anthropic.claude-3": "anthropic",
        "meta-llama/Llama-3.3-70B": "meta",
        "hf.co/bartowski/Qwen2.5-7B-GGUF": "alibaba",
        "/models/claude/SmolLM2-135M.gguf": "huggingface",
        "ministral-14b-latest": "mistral",
        "deepseek-r1-distill-llama-70b": "meta",
        "gpt-oss:20b": "openai",
        "o3-mini": "openai",
        "gemma3:4b": "google",
        "amazon.nova-micro-v1:0": "amazon",
        "solo3": "unknown",
        "": "unknown",
    }
    assert {model: registry.guess_family(model) for model in families} == families


def test_a_user_may_add_and_replace_profiles_and_a_project_may_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ".judgekit" / "providers"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(MINIMAL)
    monkeypatch.chdir(tmp_path)
    assert "mine" not in [profile.provider for profile in registry.list_profiles()]
    write("mine.yaml", MINIMAL + "rank: 15\n")
    write("openai.yaml", MINIMAL.replace("provider: mine", "provider: openai"))
    names = [profile.provider for profile in registry.list_profiles()]
    assert names.index("anthropic") < names.index("mine") < names.index("gemini")
    assert registry.find("openai").title == "Mine"
    assert names.count("openai") == 1
    assert registry.find("custom").provider == "openai-compatible"
    with pytest.raises(UsageError, match=r"no provider 'nobody'; there are: .*anthropic"):
        registry.find("nobody")


PATH = "expected a path inside the run's folder, such as home/settings.json"
LINK = "begins neither with ~/ nor with a variable of keep_env"
WRONG = [
    (MINIMAL + "colour: red\n", 7, "unknown key"),
    (MINIMAL.replace("provider: mine", "provider: other"), None, "name the file other.yaml"),
    (MINIMAL.replace("provider: mine\n", ""), 1, "not a provider file"),
    (MINIMAL.replace("kind: litellm", "kind: magic"), 3, "kind: expected one of"),
    (MINIMAL + "limits: {concurrency: 0}\n", 7, "a number above 0"),
    (COMMAND.replace("{command: mine}", "{port: 1}"), None, "detect.command"),
    (COMMAND + "reply: jsonl\n", None, "reply_key"),
    (COMMAND + "reply_key: text\n", None, "need reply: json or jsonl"),
    (
        COMMAND + "set_env: {MINE: '{model} {modle}'}\n",
        None,
        "no placeholder {modle}; there are model,",
    ),
    (COMMAND + "files: {../evil: x}\n", 7, PATH),
    (COMMAND + "links: {a/../../b: [~/x]}\n", 7, PATH),
    (COMMAND + "links: {a: [/etc/passwd]}\n", None, f"'/etc/passwd' {LINK}"),
]


@pytest.mark.parametrize(("text", "line", "problem"), WRONG)
def test_a_wrong_profile_is_one_line_with_its_place(
    text: str, line: int | None, problem: str
) -> None:
    file = write("mine.yaml", text)
    with pytest.raises(ConfigError) as caught:
        registry.list_profiles()
    assert str(file) in str(caught.value)
    assert problem in str(caught.value)
    assert caught.value.line == line
    assert "\n" not in str(caught.value)


def test_the_program_of_ones_own_in_the_guide_is_a_sound_profile() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "providers.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```yaml\n(provider: .*?)^```", guide, re.MULTILINE | re.DOTALL)
    write("my-judge.yaml", example)
    profile = registry.find("my-judge")
    assert isinstance(profile, CommandProfile)
    assert set(CommandProfile.model_fields) - profile.model_fields_set == {
        *("rank", "family", "families", "outputs", "price", "notes", "reply_file")
    }


@pytest.fixture(autouse=True)
def servers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, list[str] | None]:
    """No server of this machine is asked; a test says which addresses answer with which models."""
    answers: dict[str, list[str] | None] = {}
    monkeypatch.setattr(
        lists, "list_models", lambda bases, seconds=0.3: list(map(answers.get, bases))
    )
    monkeypatch.chdir(tmp_path)
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
    (PanelRequest(), {"GEMINI_API_KEY": KEY}, "gemini", "gemini/gemini-3.5-flash-lite"),
    (PanelRequest(), {"OPENROUTER_API_KEY": KEY}, "openrouter", "openrouter/openai/gpt-6-luna"),
    (
        PanelRequest(),
        {"AZURE_API_KEY": KEY, "AZURE_API_BASE": "https://x"},
        "azure",
        "azure/gpt-6-luna",
    ),
    (
        PanelRequest(),
        {"AWS_BEARER_TOKEN_BEDROCK": KEY, "AWS_REGION": "eu-west-1"},
        "bedrock",
        BEDROCK,
    ),
    (PanelRequest(), OPENAI | ANTHROPIC, "anthropic", HAIKU),
    (PanelRequest(), OPENAI | {"ANTHROPIC_API_KEY": "  "}, "openai", LUNA),
    # Order and allow are the user's.
    (PanelRequest(provider_order=["groq", "openai"]), THREE, "groq", "groq/qwen/qwen3.8-27b"),
    (
        PanelRequest(allowed_providers=["openai", "groq"], provider_order=["groq"]),
        THREE,
        "groq",
        "groq/qwen/qwen3.8-27b",
    ),
    # An address of one's own comes before keys, and has its own key.
    (
        PanelRequest(),
        {**HERE, **OPENAI, "JUDGEKIT_API_KEY": KEY, "JUDGEKIT_MODEL": "m"},
        CUSTOM_PROVIDER,
        "custom/m",
    ),
    (PanelRequest(), {**PROXY, "JUDGEKIT_MODEL": "team"}, "litellm-proxy", "litellm_proxy/team"),
    (PanelRequest({"deep": "other"}), PROXY, "litellm-proxy", "litellm_proxy/other"),
    # A model of the environment is a named one.
    (
        PanelRequest(),
        {**OPENAI, **ANTHROPIC, "JUDGEKIT_MODEL": "openai/gpt-4.1"},
        "openai",
        "openai/gpt-4.1",
    ),
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
    (PanelRequest(), {"ANTHROPIC_API_KEY": ""}, "judgekit provider list"),
    (PanelRequest(), AWS, "judgekit provider list"),
    (PanelRequest(allowed_providers=["xai"]), THREE, "xai"),
    (PanelRequest({"quick": "openai/gpt-4.1"}), {}, "set OPENAI_API_KEY"),
    (PanelRequest({"quick": "openai/gpt-4.1"}, allowed_providers=["anthropic"]), OPENAI, NOBODY),
    (PanelRequest({"quick": "claude-code/x"}), {"PATH": "/bin"}, NOBODY),
    (
        PanelRequest({"quick": "claude-code/x"}, allowed_providers=["claude-code"]),
        {"PATH": "/bin"},
        "no command claude",
    ),
    (
        PanelRequest({"quick": "claude-code/x"}, project_named_tiers=frozenset({"quick"})),
        {"PATH": "/bin"},
        NOBODY,
    ),
    # A jury is found whole or not at all.
    (PanelRequest({"quick": [LUNA, HAIKU]}), OPENAI, "claude-haiku-5-5 is configured (quick)"),
    (
        PanelRequest(),
        {"JUDGEKIT_API_BASE": "notaurl", "JUDGEKIT_MODEL": "m"},
        (
            "the address of openai-compatible (JUDGEKIT_API_BASE) is 'notaurl': expected an address with "
            "http:// or https://, such as https://notaurl/v1"
        ),
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


def test_general_credentials_count_when_the_user_asks_for_the_provider_and_not_for_a_project() -> (
    None
):
    panel = resolve(PanelRequest(allowed_providers=["bedrock"]), AWS)
    assert panel.provider == "bedrock"
    assert one(panel).parameters["aws_region_name"] == "eu-west-1"
    assert one(panel).api_key is None
    named = resolve(PanelRequest({"quick": NOVA}), AWS)
    assert (one(named).model, one(named).family) == (NOVA, "amazon")
    listed = PanelRequest({"quick": NOVA}, project_named_tiers=frozenset({"quick"}))
    refused = resolve(listed, AWS)
    assert refused.endpoints == {}
    assert "add bedrock to providers.allow in your own configuration" in refused.reason
    assert "\n" not in refused.reason
    allowed = resolve(replace(listed, allowed_providers=["bedrock"]), AWS)
    assert one(allowed).parameters["aws_region_name"] == "eu-west-1"
    keyed = resolve(listed, {**AWS, "AWS_BEARER_TOKEN_BEDROCK": KEY})
    assert (one(keyed).api_key, keyed.reason) == (KEY, "named by the project")
    # A project that names one tier takes nothing from the user's own.
    both: dict[TierName, str | None] = {"quick": "openai/gpt-4.1", "deep": NOVA}
    assert (
        resolve(PanelRequest(both, project_named_tiers=frozenset({"deep"})), AWS | OPENAI).endpoints
        == {}
    )
    panel = resolve(PanelRequest(both, project_named_tiers=frozenset({"quick"})), AWS | OPENAI)
    assert (models(panel)["deep"], panel.reason) == (NOVA, "named by the user")
    # Nor does it hide a model of the environment.
    environ = {**AWS, "JUDGEKIT_MODEL": NOVA}
    assert (
        resolve(PanelRequest(project_named_tiers=frozenset(TIERS)), environ).provider == "bedrock"
    )


def test_an_address_of_ones_own_gets_no_other_key_and_may_have_a_model_a_tier() -> None:
    panel = resolve(PanelRequest(), {**HERE, **OPENAI, "JUDGEKIT_MODEL": "qwen2.5"})
    endpoint = one(panel)
    assert (endpoint.api_base, endpoint.api_key, endpoint.family) == (
        "https://x/v1",
        "no-key",
        "alibaba",
    )
    assert set(models(panel).values()) == {"custom/qwen2.5"}
    panel = resolve(
        PanelRequest(), {**HERE, "JUDGEKIT_QUICK_MODEL": "small", "JUDGEKIT_DEEP_MODEL": "large"}
    )
    assert models(panel) == {
        "quick": "custom/small",
        "deep": "custom/large",
        "tiebreaker": "custom/large",
    }
    panel = resolve(PanelRequest(), {**HERE, "JUDGEKIT_MODEL": "c", "JUDGEKIT_QUICK_MODEL": "a,b"})
    assert [endpoint.model for endpoint in panel.endpoints["quick"]] == ["custom/a", "custom/b"]
    assert [endpoint.model for endpoint in panel.endpoints["deep"]] == ["custom/c"]


def test_an_address_without_a_model_is_asked_if_it_is_here_and_never_guessed(
    servers: dict[str, list[str] | None],
) -> None:
    environ = {"JUDGEKIT_API_BASE": "http://127.0.0.1:9/v1", **OPENAI}
    lost = resolve(PanelRequest(), environ)
    assert (lost.endpoints, "JUDGEKIT_MODEL" in lost.reason) == ({}, True)
    servers["http://127.0.0.1:9/v1"] = ["served"]
    assert models(resolve(PanelRequest(), environ))["quick"] == "custom/served"


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
    assert resolve(PanelRequest(allowed_providers=["ollama"]), {}).endpoints == {}
    servers.clear()
    monkeypatch.setattr(module, "is_importable", lambda name: True)
    panel = resolve(PanelRequest(), environ)
    assert (panel.provider, one(panel).is_pointwise, one(panel).family) == (
        "local",
        True,
        "alibaba",
    )
    assert one(panel).model == "local//models/Qwen2.5.gguf"
    monkeypatch.setattr(module, "is_importable", lambda name: False)
    assert resolve(PanelRequest(), environ).endpoints == {}


@pytest.fixture
def signed_in(tmp_path: Path) -> dict[str, str]:
    command = tmp_path / "claude"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o700)
    return {
        "PATH": str(tmp_path),
        "HOME": "/home/x",
        "CLAUDE_CODE_OAUTH_TOKEN": "t",
        "GITHUB_TOKEN": "no",
    }


def test_a_command_is_last_and_only_if_the_user_allows_it(signed_in: dict[str, str]) -> None:
    assert resolve(PanelRequest(), signed_in).endpoints == {}
    panel = resolve(PanelRequest(allowed_providers=["claude-code", "openai"]), signed_in)
    assert (panel.provider, models(panel)["quick"]) == ("claude-code", "claude-haiku-5-5")
    assert "GITHUB_TOKEN" not in one(panel).parameters
    assert one(panel).parameters["CLAUDE_CODE_OAUTH_TOKEN"] == "t"
    with_key = {**signed_in, "OPENAI_API_KEY": KEY}
    assert (
        resolve(PanelRequest(allowed_providers=["claude-code", "openai"]), with_key).provider
        == "openai"
    )
    within = {**signed_in, "JUDGEKIT_INSIDE": "1"}  # it does not run itself
    assert resolve(PanelRequest(allowed_providers=["claude-code"]), within).endpoints == {}


def test_tiers_without_a_model_take_the_nearest_deeper_one(signed_in: dict[str, str]) -> None:
    panel = resolve(PanelRequest(), {"DEEPSEEK_API_KEY": KEY})
    quick, deep = one(panel), one(panel, "deep")
    assert one(panel, "tiebreaker") is deep
    assert fill({"quick": (quick, deep)})["tiebreaker"] == (quick, deep)
    assert fill({"quick": (quick,), "tiebreaker": (deep,)})["deep"] == (deep,)


def test_a_name_says_whose_a_model_is() -> None:
    providers = {
        "anthropic/claude-x": "anthropic",
        "openrouter/anthropic/claude-x": "openrouter",
        "openai-compatible/llama": "openai-compatible",
        "vertex_ai/gemini-x": "vertex",
        "vertex/gemini-x": "vertex",
        "nobody/llama": None,
    }
    for name, provider in providers.items():
        profile, _ = find_profile(name, registry.list_profiles())
        assert (profile.provider if profile else None) == provider


def allow(names: str) -> None:
    file = settings.get_user_config_path()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"providers: {{allow: {names}}}\n")


def test_the_alias_of_a_provider_is_as_good_as_its_name(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUDGEKIT_MODEL", "stand-in")
    with Loopback(says(scores(4, 4, 4))) as server:
        monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
        for allowed, name in (("custom", "openai-compatible"), ("openai-compatible", "custom")):
            allow(f"[{allowed}]")
            assert app.run(["provider", "check", name]) == 0
            assert "custom/stand-in: answered in" in capfd.readouterr().out
        assert len(server.requests) == 2  # one call each
    monkeypatch.setenv("JUDGEKIT_MODEL", "judge-4")
    with Loopback(fails(404), models=("tts", "judge-5", "judge-5-mini")) as server:
        monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
        assert app.run(["provider", "check"]) == 2
    said = capfd.readouterr().out
    assert "has no model custom/judge-4; it offers judge-5, judge-5-mini, tts" in said


def test_a_model_that_is_here_is_not_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []
    monkeypatch.setattr(local, "fetch", lambda name, _: fetched.append(name))
    monkeypatch.setenv("JUDGEKIT_LOCAL_MODEL", "smollm2-135m")
    monkeypatch.setenv("JUDGEKIT_MODELS", str(tmp_path))
    allow("[openai]")  # nothing is to be run here
    app.run(["provider", "check", "--fetch"])
    assert fetched == ["smollm2-135m"]
    with (tmp_path / "smollm2-135m.gguf").open("wb") as file:
        file.truncate(sum(local.find_model("smollm2-135m").sizes))
    app.run(["provider", "check", "--fetch"])
    assert fetched == ["smollm2-135m"]


PROGRAM = """#!{python}
import json, os, sys
open({started!r}, "w").close()
prompt = sys.stdin.read()
assert sys.argv[1:] in ([], ["--model=large"]), sys.argv
assert os.environ["JUDGEKIT_INSIDE"] and "OPENAI_API_KEY" not in os.environ
if "--model=large" in sys.argv:
    sys.exit("large is gone; there are: small")
print(json.dumps({{"said": {answer!r}, "by": "small-2026", "usd": 0.000125}}))
"""
PROFILE = f"""{COMMAND.replace("mine", "my-program")}models: {{quick: default, deep: large}}
reply: json
reply_key: said
model_key: by
usage: {{cost: usd}}
"""


def test_a_program_of_ones_own_is_listed_and_tried_with_every_model_once_it_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "my-program"
    started, answer = str(tmp_path / "started"), scores(4, 4, 4)
    program.write_text(PROGRAM.format(python=sys.executable, started=started, answer=answer))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-another-provider")
    allow("[my-program]")
    for folder in (tmp_path / ".judgekit" / "providers", tmp_path / "providers"):
        folder.mkdir(parents=True)
        (folder / "my-program.yaml").write_text(PROFILE)
    assert app.run(["provider", "check", "my-program"]) == 64  # a project brings no program
    assert "no provider 'my-program'" in capfd.readouterr().err
    own = settings.get_user_config_path().parent / "providers"
    own.mkdir()
    (own / "my-program.yaml").write_text(PROFILE)
    for allowed in ("null", "[openai]"):
        allow(allowed)
        assert app.run(["provider", "check", "my-program"]) == 64
        assert (
            f"add my-program to providers.allow in {settings.get_user_config_path()}"
            in capfd.readouterr().err
        )
    assert not (tmp_path / "started").exists()
    allow("[my-program]")
    app.run(["provider", "list"])
    listed = next(
        line for line in capfd.readouterr().out.splitlines() if line.startswith("my-program")
    )
    assert listed.split(maxsplit=2)[1:] == ["usable", "my-program is on PATH; default, large"]
    assert app.run(["provider", "check", "my-program"]) == 2
    good, bad = capfd.readouterr().out.splitlines()
    cost = r"\$0\.000125 \(as the provider reports\)"
    assert re.fullmatch(rf"my-program         default: answered in \d+ ms, {cost}", good)
    assert bad == (
        "my-program         large: command_failed: my-program exited with 1: large is gone; there are: small"
    )
