"""Provider profiles: the data that ships, and what a user's own may be."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from judgekit import environment
from judgekit.config import TIERS, files
from judgekit.errors import ConfigError, UsageError
from judgekit.providers import litellm, registry
from judgekit.providers.base import endpoint
from judgekit.providers.registry import CommandProfile, LitellmProfile, Models, Price

FILES = sorted(files.folder("providers").glob("*.yaml"))
# The files themselves: what a developer's own folder holds is not what ships.
LITELLM = [each for each in map(registry.load, FILES) if isinstance(each, LitellmProfile)]
WANTED = {
    *("anthropic", "openai", "gemini", "groq", "cerebras", "mistral", "deepseek", "xai", "openrouter"),
    *("azure", "bedrock", "vertex", "ollama", "openai-compatible", "lm-studio", "llama-server"),
    *("litellm-proxy", "local", "replay"),
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
    bare = profile.bare_name(model)
    makers = (
        {"openai/": "", "google/": "gemini/", "x-ai/": "xai/"} if profile.provider == "openrouter" else {}
    )
    for maker, prefix in makers.items():
        if bare.startswith(maker):
            return table.get(prefix + bare.removeprefix(maker), {})
    return table.get(model) or table.get(bare) or {}


def write(name: str, text: str) -> Path:
    file = Path(environment.config_home()) / "providers" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def test_the_bundled_profiles_are_those_that_are_promised_in_a_certain_order() -> None:
    assert {path.stem for path in FILES} == WANTED
    for path in FILES:
        assert registry.load(path).provider == path.stem
        assert path.read_text(encoding="utf-8").startswith(f"provider: {path.stem}\n")
    profiles = registry.profiles()
    ranks = [profile.rank for profile in profiles]
    assert ranks == sorted(set(ranks))
    kinds = [profile.kind for profile in profiles]  # commands are tried last
    assert kinds[0] == "replay"
    assert kinds.index("command") == kinds.count("litellm") + 1
    modest = {profile.provider for profile in profiles if profile.limits.concurrency}
    commands = {profile.provider for profile in profiles if profile.kind == "command"}
    assert modest == {"llama-server", "lm-studio", "ollama", "local", *commands}


@pytest.mark.parametrize("profile", LITELLM, ids=lambda profile: profile.provider)
def test_a_profile_speaks_of_its_own_models_keys_and_address(profile: LitellmProfile) -> None:
    for model in profile.models.by_tier.values():
        assert known(profile, model).get("mode") == "chat", model
        assert model.startswith(profile.prefix)
        assert endpoint(profile, model, {}).family != registry.UNKNOWN_FAMILY
    if model := profile.models.quick or "":  # one that thinks before it answers is not quick
        arguments: dict[str, Any] = profile.of_model(profile.arguments, model, {})
        entry = known(profile, model)
        thinks = entry.get("supports_reasoning", False) and entry.get("thinking_always_on") is not False
        assert not thinks or arguments.get("extra_body", arguments).get("reasoning_effort") == "none"
    # An address that is not given would be litellm's to choose, from variables of its own.
    regional = profile.provider in ("bedrock", "vertex")
    assert regional or profile.embedded or profile.base or profile.base_env
    others = {variable for other in LITELLM if other is not profile for variable in other.key}
    assert not others.intersection(profile.key)
    for table in (profile.outputs, profile.arguments, profile.thinking, profile.price, profile.families):
        assert not [key for key in table if key.startswith(profile.prefix)]
    assert not [key for key in profile.price if known(profile, profile.prefix + key)]


def test_a_name_tells_the_family() -> None:
    families = {
        "claude-haiku-4-5": "anthropic",
        "anthropic.claude-3": "anthropic",
        "meta-llama/Llama-3.3-70B": "meta",
        "hf.co/bartowski/Qwen2.5-7B-GGUF": "alibaba",
        "/models/claude/SmolLM2-135M.gguf": "huggingface",
        "ministral-14b-latest": "mistral",
        "mixtral-8x7b": "mistral",
        "codestral": "mistral",
        "deepseek-r1-distill-llama-70b": "meta",
        "gpt-oss:20b": "openai",
        "o3-mini": "openai",
        "gemma3:4b": "google",
        "grok-4": "xai",
        "phi-4": "microsoft",
        "glm-5": "zhipu",
        "kimi-k2": "moonshot",
        "amazon.nova-micro-v1:0": "amazon",
        "something-else": "unknown",
        "solo3": "unknown",
        "": "unknown",
    }
    assert {model: registry.family_by_name(model) for model in families} == families


def test_a_user_may_add_and_replace_profiles_and_a_project_may_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ".judgekit" / "providers"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(MINIMAL)
    monkeypatch.chdir(tmp_path)
    assert "mine" not in [profile.provider for profile in registry.profiles()]
    write("mine.yaml", MINIMAL + "rank: 15\n")
    write("openai.yaml", MINIMAL.replace("provider: mine", "provider: openai"))
    names = [profile.provider for profile in registry.profiles()]
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
    (MINIMAL.replace("kind: litellm", "kind: magic"), None, "to be one of"),
    (MINIMAL.replace("MINE_API_KEY", "mine-key"), 5, "pattern"),
    (MINIMAL.replace("{env: [[MINE_API_KEY]]}", "{}"), 5, "name at least one of"),
    (MINIMAL.replace("json_schema", "xml"), 6, "json_schema"),
    (MINIMAL + "limits: {concurrency: 0}\n", 7, "a number above 0"),
    (MINIMAL + "limits: {max_output_tokens: 9}\n", 7, "unknown key"),
    (MINIMAL + "argv: [x]\n", 7, "unknown key"),
    (COMMAND.replace("{command: mine}", "{port: 1}"), None, "detect.command"),
    (COMMAND + "reply: jsonl\n", None, "reply_key"),
    (COMMAND + "reply_key: text\n", None, "need reply: json or jsonl"),
    (COMMAND + "usage: {cost: cost}\n", None, "need reply: json or jsonl"),
    (COMMAND + "set_env: {MINE: '{model} {modle}'}\n", None, "no placeholder {modle}; there are model,"),
    (COMMAND + "files: {../evil: x}\n", 7, PATH),
    (COMMAND + "files: {/etc/evil: x}\n", 7, PATH),
    (COMMAND + "links: {a/../../b: [~/x]}\n", 7, PATH),
    (COMMAND + "links: {a: [/etc/passwd]}\n", None, f"'/etc/passwd' {LINK}"),
    (COMMAND + "links: {a: [$HOME_OF_MINE/x]}\n", None, LINK),
    (COMMAND + "keep_env: [lower]\n", 7, "keep_env"),
    (COMMAND + "colour: red\n", 7, "colour"),
]


@pytest.mark.parametrize(("text", "line", "problem"), WRONG)
def test_a_wrong_profile_is_one_line_with_its_place(text: str, line: int | None, problem: str) -> None:
    file = write("mine.yaml", text)
    with pytest.raises(ConfigError) as caught:
        registry.profiles()
    assert str(file) in str(caught.value)
    assert problem in str(caught.value)
    assert caught.value.line == line
    assert "\n" not in str(caught.value)


def test_tables_are_read_by_the_longest_beginning_of_a_bare_name() -> None:
    openai, groq = registry.find("openai"), registry.find("groq")
    assert [endpoint(openai, name, {}).model for name in ("gpt-x", "openai/gpt-x")] == ["openai/gpt-x"] * 2
    assert openai.bare_name("openai/gpt-x") == openai.bare_name("gpt-x") == "gpt-x"
    table = {"gpt-": 1, "gpt-4": 2, "": 0}
    assert [openai.of_model(table, name, None) for name in ("gpt-4.1", "openai/gpt-5", "x")] == [2, 1, 0]
    assert openai.of_model({"a": 1}, "b", None) is None
    assert endpoint(groq, "groq/openai/gpt-oss-120b", {}).output == "json_schema"
    assert endpoint(groq, "groq/llama-3.3-70b", {}).output == "tool"
    assert Models(quick="a", tiebreaker="c").by_tier == {"quick": "a", "tiebreaker": "c"}
    assert tuple(Models(quick="a", deep="b", tiebreaker="c").by_tier) == TIERS


def test_a_price_tells_cached_tokens_apart() -> None:
    for price, calls, cost in (
        (Price(input=2, output=10), (100, 10, 40, 20), 300),
        (Price(input=2, output=10, cache_read=0.2), (100, 10, 40, 20), 228),
        (Price(input=2, output=10, cache_read=0.2, cache_write=2.5), (100, 10, 40, 20), 238),
        (Price(input=2, output=10, cache_read=0), (40, 0, 40, 0), 0),
    ):
        assert price.of(*calls) == pytest.approx(cost / 1e6)


def test_the_program_of_ones_own_in_the_guide_is_a_sound_profile() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "providers.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```yaml\n(provider: .*?)^```", guide, re.MULTILINE | re.DOTALL)
    write("my-judge.yaml", example)
    profile = registry.find("my-judge")
    assert isinstance(profile, CommandProfile)
    assert set(CommandProfile.model_fields) - profile.model_fields_set == {
        *("rank", "family", "families", "outputs", "price", "notes", "reply_file")
    }
