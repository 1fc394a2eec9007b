"""The real Claude Code client runs the hook, offline; what reaches its API is what counts."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from claude_standin import REPLY, ToolCall
from git_repo import GitRepo
from hooking import QUESTION
from loopback import Answer, Asked, Loopback, fails, says
from sample_store import JWT, MEMORIES
from scripted import scores

from judgekit.hooks import entries

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from claude_client import Client

pytestmark = [pytest.mark.slow, pytest.mark.real_client]

UNRELATED = "Write a haiku about the sea"


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


def judgekit(client: Client, *words: str) -> str:
    """Run a command the way the client's user would: in the project, with the client's environment."""
    done = subprocess.run(
        [sys.executable, "-m", "judgekit", *words],
        cwd=client.project,
        env=client._environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done
    return done.stdout


def test_what_a_hook_prints_reaches_the_request(client: Client, tmp_path: Path) -> None:
    assert_nothing_injected(ask(client))
    script = tmp_path / "hook.py"
    script.write_text("import json, sys\nprint('I was given:', json.load(sys.stdin)['prompt'][::-1])\n")
    client.install_hook(sys.executable, str(script))
    assert f"I was given: {QUESTION[::-1]}" in ask(client)


def test_memory_reaches_the_request(client: Client) -> None:
    client.install_hook()
    ask(client)
    text = client.api.user_text()
    assert "<memory-context" in text
    assert JWT.title in text
    assert f"{JWT.folder}/{JWT.id}.json" in text
    assert [memory.title for memory in MEMORIES if memory is not JWT and memory.title in text] == []


def test_where_nothing_fits_nothing_is_injected(client: Client) -> None:
    code = client.install_watched_hook()
    for prompt in (UNRELATED, "go on"):
        assert_nothing_injected(ask(client, prompt))
        assert code.read_text() == "0\n"
    (client.project / ".claude" / "memory").rename(client.project / "elsewhere")
    assert_nothing_injected(ask(client))
    assert code.read_text() == "0\n"
    (client.project / "elsewhere").rename(client.project / ".claude" / "memory")
    client.install_hook("/usr/bin/env", "JUDGEKIT_DISABLE=1", sys.executable, "-m", "judgekit", "hook")
    assert_nothing_injected(ask(client))


BROKEN_STORES = {
    "index.md": b"\xff\xfe\x00- [DECISION] \x80 -> ../../etc/passwd\n" * 50,
    "lying index.md": f"- [DECISION] {QUESTION} -> .claude/memory/no/such.json\n".encode(),
    "memories": b'{"title": "JWT',
    "store": b"not a folder",
}


@pytest.mark.parametrize("damage", BROKEN_STORES)
def test_a_broken_store_does_not_disturb_the_client(client: Client, damage: str) -> None:
    store, content = client.project / ".claude" / "memory", BROKEN_STORES[damage]
    if damage == "store":
        store.rename(client.project / "elsewhere")
        store.write_bytes(content)
    elif damage == "memories":
        for path in store.glob("*/*.json"):
            path.write_bytes(content)
    else:
        (store / "index.md").write_bytes(content)
    code = client.install_watched_hook()
    ask(client)
    assert code.read_text() == "0\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (".judgekit/config.yaml", b"retrieval: {max_inject: many}\n"),
        (".judgekit/config.yaml", b"retrieval: [\x00\xff"),
        (".claude/memory/memory-config.json", b'{"retrieval": {"max_inject": "many"'),
    ],
)
def test_a_broken_config_leaves_the_memory(client: Client, name: str, content: bytes) -> None:
    (client.project / name).parent.mkdir(exist_ok=True)
    (client.project / name).write_bytes(content)
    code = client.install_watched_hook()
    assert JWT.title in ask(client)
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


def test_equal_commands_are_one_answer_and_others_two_which_doctor_says(client: Client) -> None:
    judgekit(client, "install", "claude-code")
    judgekit(client, "install", "claude-code", "--scope", "local")
    assert answers(client) == 1
    judgekit(client, "install", "claude-code", "--scope", "project")
    assert answers(client) == 2
    assert "each prompt is answered 2 times" in judgekit(client, "doctor")
    path = client.project / ".claude" / "settings.json"
    path.write_text('{"disableAllHooks": true}')
    assert answers(client) == 0
    assert "disableAllHooks" in judgekit(client, "doctor")


def test_the_client_takes_both_events_as_they_are(client: Client) -> None:
    """It names what it skips, as it does for an event that does not exist."""
    judgekit(client, "install", "claude-code")
    assert "skipped" not in client.ask(QUESTION).stderr
    path = client.folder / "home" / ".claude" / "settings.json"
    path.write_text(path.read_text().replace("PostToolUse", "PostToolUsed"))
    assert "skipped" in client.ask(QUESTION).stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="PATH of the client is fixed for Linux")
def test_the_portable_form_is_silent_where_judgekit_is_missing_and_a_plain_command_nags(
    client: Client,
) -> None:
    def event_of(hook: dict[str, object]) -> dict[str, object]:
        """Return what the client says of a hook on the prompt; the prompt itself has arrived."""
        path = client.project / ".claude" / "settings.json"
        path.write_text(json.dumps({"hooks": {"UserPromptSubmit": [{"hooks": [hook]}]}}))
        answer = client.ask(QUESTION, "--output-format", "stream-json", "--verbose", "--include-hook-events")
        assert answer.code == 0, answer
        assert QUESTION in client.api.user_text()
        lines = [json.loads(line) for line in answer.stdout.splitlines()]
        (event,) = [line for line in lines if line.get("subtype") == "hook_response"]
        return dict(event)

    event = event_of(
        entries.portable() | {"command": entries.PORTABLE.replace("judgekit", "judgekit-is-not-here")}
    )
    assert (event["exit_code"], event["outcome"], event["output"]) == (0, "success", "")
    plain: list[dict[str, object]] = [
        {"type": "command", "command": "judgekit-is-not-here", "args": ["hook"]},
        {"type": "command", "command": "judgekit-is-not-here hook"},
    ]
    for hook in plain:
        event = event_of(hook)
        assert event["outcome"] == "error"
        assert event["output"]


def test_settings_with_every_oddity_are_read_by_the_client(client: Client) -> None:
    """A byte order mark, carriage returns, keys twice: the client reads them, so we must leave them."""
    path = client.project / ".claude" / "settings.json"
    path.write_bytes('\ufeff{\r\n\t"hooks": {},\r\n\t"env": {"A": "é"},\r\n\t"hooks": { }\r\n}'.encode())
    before = path.read_bytes()
    judgekit(client, "install", "claude-code", "--scope", "project")
    assert answers(client) == 1
    judgekit(client, "uninstall", "claude-code", "--scope", "project")
    assert path.read_bytes() == before


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


def feedback(client: Client, base: str, stop: str = "on") -> list[str]:
    """Let the agent work, the hook judge; return what the last request says of hooks that kept it going."""
    folder = client.folder / "home" / ".config" / "judgekit"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f'stop: {{judge: "{stop}", deadline: 20}}\n')
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


@pytest.mark.parametrize(
    "script",
    [lambda _: fails(503), lambda _: says(scores(4, 4, 4)), lambda _: says("no JSON")],
    ids=["down", "good", "odd"],
)
def test_it_just_stops_otherwise(work: Client, script: Callable[[Asked], Answer]) -> None:
    with Loopback(script) as judge:
        assert feedback(work, judge.base) == []
        assert judge.requests


@pytest.mark.parametrize("stop", ["on", "off"])
def test_a_provider_that_is_gone_or_a_user_who_wants_none_lets_it_stop(work: Client, stop: str) -> None:
    with Loopback(by_rollback) as judge:
        if stop == "off":
            assert feedback(work, judge.base, stop) == []
        base = judge.base
    if stop == "on":
        assert feedback(work, base) == []
    assert judge.requests == []
