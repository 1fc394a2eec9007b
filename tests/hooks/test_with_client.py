"""The real Claude Code client runs the hook and the plugin, offline; what reaches its API is what counts."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, Any

import plugin_copy
import pytest
from claude_client import judgekit
from claude_standin import REPLY, ToolCall
from git_repo import GitRepo
from hooking import QUESTION
from loopback import Answer, Asked, Loopback, fails, says
from sample_store import JWT, MEMORIES
from scripted import scores

from judgekit.hooks import entries

if TYPE_CHECKING:
    from pathlib import Path

    from claude_client import Client


pytestmark = [pytest.mark.slow, pytest.mark.real_client]


def ask(client: Client, prompt: str = QUESTION, *options: str) -> str:
    """Send a prompt and see that it was answered; return all that the API was sent for it.

    Nothing but the API was reached, and the client complains about no settings.
    """
    before = len(client.api.messages())
    answer = client.ask(prompt, *options)
    assert answer.code == 0, answer
    assert answer.stdout.strip() == REPLY
    assert "settings" not in answer.stderr
    assert client.api.strays == []
    sent = json.dumps(client.api.messages()[before:], ensure_ascii=False)
    assert prompt in sent
    return sent


def assert_nothing_injected(sent: str) -> None:
    assert "<memory-context" not in sent
    assert "<memory-nudge" not in sent
    assert not [memory.title for memory in MEMORIES if memory.title in sent]


def test_memory_reaches_the_request_and_where_nothing_fits_nothing(client: Client) -> None:
    assert_nothing_injected(ask(client))
    client.install_hook()
    ask(client)
    text = client.api.user_text()
    assert "<memory-context" in text
    assert JWT.title in text
    assert f"{JWT.folder}/{JWT.id}.json" in text
    assert [memory.title for memory in MEMORIES if memory is not JWT and memory.title in text] == []
    code = client.install_watched_hook()
    for prompt in ("Write a haiku about the sea", "go on"):
        assert_nothing_injected(ask(client, prompt))
        assert code.read_text() == "0\n"
    (client.project / ".claude" / "memory").rename(client.project / "elsewhere")
    assert_nothing_injected(ask(client))
    assert code.read_text() == "0\n"


def test_what_became_of_a_memory_is_read_from_the_transcript(client: Client) -> None:
    client.install_hook()
    folder = client.folder / "home" / ".config" / "judgekit"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("retrieval: {log: true}\n")
    client.api.script += [ToolCall("Read", {"file_path": str(client.project / JWT.path)})]
    ask(client)
    found = json.loads(judgekit(client, "hook", "--stats", "--json"))
    assert [found[name] for name in ("answered_prompts", "injections", "opened", "came_back")] == [1, 1, 1, 0]


BROKEN = {
    ".claude/memory/index.md": b"\xff\xfe\x00- [DECISION] \x80 -> ../../etc/passwd\n" * 50,
    ".judgekit/config.yaml": b"retrieval: [\x00\xff",
    ".claude/memory/memory-config.json": b'{"retrieval": {"max_inject": "many"',
}


def test_a_broken_store_or_config_does_not_disturb_the_client(client: Client) -> None:
    code = client.install_watched_hook()
    for name, content in BROKEN.items():
        (client.project / name).parent.mkdir(exist_ok=True)
        (client.project / name).write_bytes(content)
        assert JWT.title in ask(client)
        assert code.read_text() == "0\n"
    store = client.project / ".claude" / "memory"
    for path in store.glob("*/*.json"):
        path.write_bytes(b'{"title": "JWT')
    ask(client)
    assert code.read_text() == "0\n"
    store.rename(client.project / "elsewhere")
    store.write_bytes(b"not a folder")
    ask(client)
    assert code.read_text() == "0\n"


# What `judgekit install` writes, and what `uninstall` leaves


def answers(client: Client) -> int:
    """Ask the question and return how often the memory reached the request."""
    sent = ask(client)
    assert ("<memory-context" in sent) == (JWT.title in sent)
    return sent.count("<memory-context")


def settings(client: Client) -> dict[str, bytes]:
    """Return the settings files of all scopes that exist."""
    found = [*client.project.glob(".claude/settings*"), *client.folder.glob("home/.claude/settings*")]
    return {str(path): path.read_bytes() for path in found}


@pytest.mark.parametrize("scope", ["user", "project", "local"])
def test_memory_arrives_until_the_hook_is_taken_out(client: Client, scope: str) -> None:
    (client.project / ".claude" / "settings.json").write_text('{"env": {"A": "b"}}')
    before = settings(client)
    judgekit(client, "install", "claude-code", "--scope", scope)
    assert answers(client) == 1
    judgekit(client, "uninstall", "claude-code", "--scope", scope)
    assert settings(client) == before
    assert answers(client) == 0


def repeating(client: Client) -> None:
    """Let a session be told a memory again, so that each answer shows."""
    path = client.project / ".judgekit" / "config.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text("retrieval: {repeat_after: 0}\n")


def test_equal_commands_are_one_answer_and_others_two_which_doctor_says(client: Client) -> None:
    repeating(client)
    judgekit(client, "install", "claude-code")
    judgekit(client, "install", "claude-code", "--scope", "local")
    assert answers(client) == 1
    assert "skipped" not in client.ask(QUESTION).stderr, "the client takes all events as they are"
    judgekit(client, "install", "claude-code", "--scope", "project")
    assert answers(client) == 2
    assert "each prompt is answered 2 times" in judgekit(client, "doctor")
    path = client.project / ".claude" / "settings.json"
    path.write_text('{"disableAllHooks": true}')
    assert answers(client) == 0
    assert "disableAllHooks" in judgekit(client, "doctor")


def test_settings_with_every_oddity_are_read_by_the_client(client: Client) -> None:
    """A byte order mark, carriage returns, keys twice: the client reads them, so we must leave them."""
    path = client.project / ".claude" / "settings.json"
    path.write_bytes('\ufeff{\r\n\t"hooks": {},\r\n\t"env": {"A": "é"},\r\n\t"hooks": { }\r\n}'.encode())
    before = path.read_bytes()
    judgekit(client, "install", "claude-code", "--scope", "project")
    assert answers(client) == 1
    judgekit(client, "uninstall", "claude-code", "--scope", "project")
    assert path.read_bytes() == before
    hook = entries.portable()
    hook["command"] = hook["command"].replace("judgekit", "judgekit-is-not-here")
    path.write_text(json.dumps({"hooks": {"UserPromptSubmit": [{"hooks": [hook]}]}}))
    answer = client.ask(QUESTION, "--output-format", "stream-json", "--verbose", "--include-hook-events")
    events = [json.loads(line) for line in answer.stdout.splitlines()]
    (event,) = [each for each in events if each.get("subtype") == "hook_response"]
    assert (event["exit_code"], event["outcome"], event["output"]) == (0, "success", "")


# An agent stops, and is asked once to go on because of what it left

GUIDE = "# Guide\n\nDeploy with one command.\n"
FINDING = {
    "dimension": "pragmatic",
    "location": "Deployment",
    "issue": "no way back is given",
    "suggestion": "say how to roll back",
    "quote": "",
}


def by_rollback(asked: Asked) -> Answer:
    """Reject what does not say how to roll back."""
    return says(scores(4, 4, 4) if "rolls back" in asked.text else scores(2, 1, 3, findings=[FINDING]))


@pytest.fixture
def work(client: Client) -> Client:
    """A project under git in which the hook is installed and the agent writes a guide."""
    repository = GitRepo(client.project)
    repository("init", "--quiet", "--initial-branch=main")
    repository.commit("first")
    judgekit(client, "install", "claude-code")
    client.api.script += [guide(client, GUIDE)]
    return client


def guide(client: Client, text: str) -> ToolCall:
    return ToolCall("Write", {"file_path": str(client.project / "guide.md"), "content": text})


def feedback(client: Client, base: str) -> list[str]:
    """Let the agent work, the hook judge; return what the last request says of hooks that kept it going."""
    folder = client.folder / "home" / ".config" / "judgekit"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text('stop: {judge: "on", deadline: 20}\n')
    path = client.folder / "home" / ".claude" / "settings.json"
    variables = {"JUDGEKIT_API_BASE": base, "JUDGEKIT_MODEL": "stand-in"}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"env": variables}))
    ask(client, "Write a guide to the deployment, please.", "--permission-mode", "bypassPermissions")
    blocks = [
        block["text"]
        for each in client.api.messages()[-1]["messages"]
        if each["role"] == "user" and isinstance(each["content"], list)
        for block in each["content"]
        if block["type"] == "text"
    ]
    return [text for text in blocks if text.startswith("Stop hook feedback:")]


@pytest.mark.parametrize("mends", [True, False], ids=["mends it", "mends nothing"])
def test_findings_keep_the_agent_going_once(
    work: Client, monkeypatch: pytest.MonkeyPatch, *, mends: bool
) -> None:
    usual = work.api.next_reply

    def reply(body: dict[str, object]) -> str | ToolCall:
        said = json.dumps(body["messages"])
        if mends and "Stop hook feedback" in said and "rolls back" not in said:
            return guide(work, f"{GUIDE}A second command rolls back.\n")
        return usual(body)

    monkeypatch.setattr(work.api, "next_reply", reply)
    with Loopback(by_rollback) as judge:
        (told,) = feedback(work, judge.base)
    assert "(guide.md) were judged under kls@1.0.0, strict: reject" in told
    assert "- pragmatic, Deployment: no way back is given (suggested: say how to roll back)" in told
    assert ("rolls back" in (work.project / "guide.md").read_text()) is mends
    assert len(judge.requests) == 1  # the second stop is not judged


def test_it_just_stops_where_no_model_answers(work: Client) -> None:
    with Loopback(lambda _: fails(503)) as judge:
        assert feedback(work, judge.base) == []
        assert judge.requests


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


def last_request(client: Client, prompt: str, *options: str) -> str:
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
    sent = last_request(bare, QUESTION)
    assert "<memory-context" in sent
    assert JWT.title in sent
    assert [memory.title for memory in MEMORIES if memory is not JWT and memory.title in sent] == []
    for skill in ("memory-search", "judge"):
        assert f"- judgekit:{skill}: " in sent
    assert [path.name for path in data_folder(bare).iterdir()] == ["python"]


def test_switched_off_it_is_silent_and_gone_after_uninstalling(client: Client, plugin: Path) -> None:
    install(client, plugin)
    for words, answers in (("disable", False), ("enable", True), ("uninstall", False)):
        assert client.run("plugin", words, "judgekit@judgekit").code == 0
        assert (JWT.title in last_request(client, QUESTION)) is answers
    assert not data_folder(client).exists()


def test_an_edited_memory_is_found_by_the_next_prompt(bare: Client, plugin: Path) -> None:
    given, path = watch(plugin)
    install(bare, plugin)
    question = "Where do the pink flamingos sleep?"
    assert JWT.title not in last_request(bare, question)
    file, old = str(bare.project / JWT.path), "people were logged out mid-form"
    bare.api.script += [
        ToolCall("Read", {"file_path": file}),
        ToolCall("Edit", {"file_path": file, "old_string": old, "new_string": "pink flamingos sleep there"}),
    ]
    last_request(bare, "Correct that memory, please.", "--permission-mode", "bypassPermissions")
    assert [tool_result.get("is_error", False) for tool_result in tool_results(bare)] == [False, False]
    events = [json.loads(line) for line in given.read_text().splitlines()]
    assert [event["tool_name"] for event in events if event["hook_event_name"] == "PostToolUse"] == ["Edit"]
    assert path.read_text() == ""
    assert JWT.title in last_request(bare, question)


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
    sent = last_request(bare, "What do we know of JWT?", "--allowedTools", "Skill(judgekit:memory-search)")
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
    last_request(client, "Is the plan any good?", "--allowedTools", "Skill(judgekit:judge)")
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
    sent = last_request(client, QUESTION, "--plugin-dir", str(plugin))
    assert QUESTION in sent
    assert JWT.title not in sent
    program.rename(plugin / "bin" / "judgekit")
    client.install_hook()
    repeating(client)
    assert last_request(client, QUESTION, "--plugin-dir", str(plugin)).count(f"{JWT.title} -> ") == 2
