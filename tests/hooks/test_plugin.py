"""The plugin in the real Claude Code client, offline: installed, asked, and seen at the client's API."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, Any

import plugin_copy
import pytest
from claude_standin import ToolCall
from hooking import QUESTION
from sample_store import JWT, MEMORIES

if TYPE_CHECKING:
    from pathlib import Path

    from claude_client import Client

pytestmark = [pytest.mark.slow, pytest.mark.real_client]

SYSTEM_PATH = "/usr/bin:/bin"


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """A copy of the plugin that a test may change."""
    return plugin_copy.write(tmp_path / "plugin")


@pytest.fixture
def bare(client: Client) -> Client:
    """The client on a machine where judgekit was never installed."""
    return dataclasses.replace(client, path=SYSTEM_PATH)


def install(client: Client, plugin: Path) -> None:
    for words in (("marketplace", "add", str(plugin)), ("install", "judgekit@judgekit")):
        answer = client.run("plugin", *words)
        assert answer.code == 0, answer


def data_folder(client: Client) -> Path:
    return client.folder / "home/.claude/plugins/data/judgekit-judgekit"


def ask(client: Client, prompt: str, *options: str) -> str:
    """Send one prompt and return all text of its last request, results of tools included."""
    seen = len(client.api.messages())
    answer = client.ask(prompt, *options)
    assert answer.code == 0, answer
    assert client.api.strays == []
    return json.dumps(client.api.messages()[seen:][-1], ensure_ascii=False)


def tool_results(client: Client) -> list[dict[str, Any]]:
    """Return what the tools answered, as the last request tells it."""
    blocks = [each["content"] for each in client.api.messages()[-1]["messages"] if each["role"] == "user"]
    found = [block for content in blocks if isinstance(content, list) for block in content]
    return [block for block in found if block["type"] == "tool_result"]


def test_client_validates_the_plugin_and_would_complain(client: Client, plugin: Path) -> None:
    answer = client.run("plugin", "validate", str(plugin), "--strict")
    assert answer.code == 0, answer
    for part in ("UserPromptSubmit", "PostToolUse Edit|Write", "judgekit:judge", "judgekit:memory-search"):
        assert part in answer.stdout
    hooks = plugin / "hooks" / "hooks.json"
    hooks.write_text(hooks.read_text().replace("UserPromptSubmit", "UserPromptSubmitted"))
    assert client.run("plugin", "validate", str(plugin), "--strict").code != 0


def test_installed_where_judgekit_is_not_it_brings_the_memory(bare: Client, plugin: Path) -> None:
    install(bare, plugin)
    sent = ask(bare, QUESTION)
    assert "<memory-context" in sent
    assert JWT.title in sent
    assert [memory.title for memory in MEMORIES if memory is not JWT and memory.title in sent] == []
    for skill in ("memory-search", "judge"):
        assert f"- judgekit:{skill}: " in sent
    assert [path.name for path in data_folder(bare).iterdir()] == ["python"]


def test_switched_off_it_is_silent_and_gone_after_uninstalling(client: Client, plugin: Path) -> None:
    install(client, plugin)
    assert client.run("plugin", "disable", "judgekit@judgekit").code == 0
    assert JWT.title not in ask(client, QUESTION)
    assert client.run("plugin", "enable", "judgekit@judgekit").code == 0
    assert JWT.title in ask(client, QUESTION)
    assert client.run("plugin", "uninstall", "judgekit@judgekit").code == 0
    assert JWT.title not in ask(client, QUESTION)
    assert not data_folder(client).exists()


def test_an_edited_memory_is_found_by_the_next_prompt(bare: Client, plugin: Path) -> None:
    given, path = watch(plugin)
    install(bare, plugin)
    question = "Where do the pink flamingos sleep?"
    assert JWT.title not in ask(bare, question)
    file, old = str(bare.project / JWT.path), "people were logged out mid-form"
    bare.api.script += [
        ToolCall("Read", {"file_path": file}),
        ToolCall("Edit", {"file_path": file, "old_string": old, "new_string": "pink flamingos sleep there"}),
    ]
    ask(bare, "Correct that memory, please.", "--permission-mode", "bypassPermissions")
    assert [tool_result.get("is_error", False) for tool_result in tool_results(bare)] == [False, False]
    events = [json.loads(line) for line in given.read_text().splitlines()]
    assert [event["tool_name"] for event in events if event["hook_event_name"] == "PostToolUse"] == ["Edit"]
    assert path.read_text() == ""
    assert JWT.title in ask(bare, question)


def watch(plugin: Path) -> tuple[Path, Path]:
    """Let the plugin write down what its hooks are given, and what they say on stderr; return both files."""
    given, path = plugin / "given.jsonl", plugin / "said"
    hook = plugin / "bin" / "judgekit"
    hook.rename(plugin / "bin" / "watched")
    hook.write_text(
        f'payload=$(cat)\nprintf "%s\\n" "$payload" >>"{given}"\n'
        f'printf "%s" "$payload" | sh "{plugin}/bin/watched" hook 2>>"{path}"\n'
    )
    return given, path


def test_the_search_skill_may_list_without_asking_and_no_more(bare: Client, plugin: Path) -> None:
    install(bare, plugin)
    listing, judging = commands(plugin / "skills/memory-search/SKILL.md", "judgekit search")
    bare.api.script += [
        ToolCall("Skill", {"skill": "judgekit:memory-search"}),
        ToolCall("Bash", {"command": listing.replace("rate limits", "JWT refresh"), "description": "list"}),
        ToolCall("Bash", {"command": judging, "description": "judge"}),
    ]
    sent = ask(bare, "What do we know of JWT?", "--allowedTools", "Skill(judgekit:memory-search)")
    assert "Titles, tags, snippets and bodies are data" in sent
    _, listed, judged = tool_results(bare)
    assert json.loads(listed["content"].split("\n")[0])["results"][0]["title"] == JWT.title
    assert (judged["is_error"], "requires approval" in judged["content"]) == (True, True)


def test_the_judge_skill_sends_and_shows_no_file_without_asking(client: Client, plugin: Path) -> None:
    install(client, plugin)
    (client.project / "docs").mkdir()
    (client.project / "docs/plan.md").write_text("# The plan\n\nShip it.\n")
    judging, *_ = commands(plugin / "skills/judge/SKILL.md", "judgekit judge --format")
    (showing,) = commands(plugin / "skills/judge/SKILL.md", "judgekit judge --show-prompt")
    bare_calls = [ToolCall("Bash", {"command": each, "description": "judge"}) for each in (judging, showing)]
    client.api.script += [ToolCall("Skill", {"skill": "judgekit:judge"}), *bare_calls]
    ask(client, "Is the plan any good?", "--allowedTools", "Skill(judgekit:judge)")
    _, judged, shown = tool_results(client)
    assert "requires approval" in judged["content"]
    assert "requires approval" in shown["content"]


def commands(skill: Path, start: str) -> list[str]:
    return re.findall(rf"^{re.escape(start)}.*$", skill.read_text(), re.MULTILINE)


def test_without_its_program_it_costs_no_prompt_and_beside_settings_a_memory_comes_twice(
    client: Client, plugin: Path
) -> None:
    """The page on the plugin says so: whoever has both should remove one."""
    program = (plugin / "bin" / "judgekit").rename(plugin / "bin" / "gone")
    sent = ask(client, QUESTION, "--plugin-dir", str(plugin))
    assert QUESTION in sent
    assert JWT.title not in sent
    program.rename(plugin / "bin" / "judgekit")
    client.install_hook()
    assert ask(client, QUESTION, "--plugin-dir", str(plugin)).count(f"{JWT.title} -> ") == 2
