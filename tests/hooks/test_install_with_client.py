"""What `judgekit install` writes is what the real client runs; what `uninstall` leaves it does not run."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from sample_store import JWT

from judgekit.hooks import entries

if TYPE_CHECKING:
    from pathlib import Path

    from claude_client import Client

pytestmark = [pytest.mark.slow, pytest.mark.real_client]

QUESTION = "How do we refresh the JWT?"


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


def answers(client: Client, *options: str) -> int:
    """Ask the question and return how often the memory reached the request."""
    before = len(client.api.messages())
    answer = client.ask(QUESTION, *options)
    assert answer.code == 0, answer
    assert "settings" not in answer.stderr, "the client complains about what we wrote"
    sent = json.dumps(client.api.messages()[before:], ensure_ascii=False)
    assert QUESTION in sent
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


def test_user_and_local_are_one_answer(client: Client) -> None:
    judgekit(client, "install", "claude-code")
    judgekit(client, "install", "claude-code", "--scope", "local")
    assert answers(client) == 1


def test_user_and_project_are_two_answers_and_doctor_says_so(client: Client) -> None:
    judgekit(client, "install", "claude-code")
    judgekit(client, "install", "claude-code", "--scope", "project")
    assert answers(client) == 2
    assert "each prompt is answered 2 times" in judgekit(client, "doctor")


def test_the_client_takes_both_events_as_they_are(client: Client) -> None:
    """It names what it skips, as it does for an event that does not exist."""
    judgekit(client, "install", "claude-code")
    assert "skipped" not in client.ask(QUESTION).stderr
    path = client.folder / "home" / ".claude" / "settings.json"
    path.write_text(path.read_text().replace("PostToolUse", "PostToolUsed"))
    assert "skipped" in client.ask(QUESTION).stderr


def hook_event(client: Client, hook: dict[str, object]) -> dict[str, object]:
    """Return what the client says of a hook on the prompt; the prompt itself has arrived."""
    path = client.project / ".claude" / "settings.json"
    path.write_text(json.dumps({"hooks": {"UserPromptSubmit": [{"hooks": [hook]}]}}))
    answer = client.ask(QUESTION, "--output-format", "stream-json", "--verbose", "--include-hook-events")
    assert answer.code == 0, answer
    assert QUESTION in client.api.user_text()
    lines = [json.loads(line) for line in answer.stdout.splitlines()]
    (event,) = [line for line in lines if line.get("subtype") == "hook_response"]
    found: dict[str, object] = event
    return found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="PATH of the client is fixed for Linux")
def test_the_portable_form_is_silent_where_judgekit_is_missing(client: Client) -> None:
    hook = entries.portable() | {"command": entries.PORTABLE.replace("judgekit", "judgekit-is-not-here")}
    event = hook_event(client, hook)
    assert (event["exit_code"], event["outcome"], event["output"]) == (0, "success", "")


def test_a_plain_command_that_is_missing_would_nag(client: Client) -> None:
    """Why the portable form asks first."""
    hooks: list[dict[str, object]] = [
        {"type": "command", "command": "judgekit-is-not-here", "args": ["hook"]},
        {"type": "command", "command": "judgekit-is-not-here hook"},
    ]
    for hook in hooks:
        event = hook_event(client, hook)
        assert event["outcome"] == "error"
        assert event["output"]


def test_the_switch_for_all_hooks_silences_ours(client: Client) -> None:
    judgekit(client, "install", "claude-code", "--scope", "local")
    (client.project / ".claude" / "settings.json").write_text('{"disableAllHooks": true}')
    assert answers(client) == 0
    assert "disableAllHooks" in judgekit(client, "doctor")


def test_settings_with_every_oddity_are_read_by_the_client(client: Client, tmp_path: Path) -> None:
    """A byte order mark, carriage returns, keys twice: the client reads them, so we must leave them."""
    path = client.project / ".claude" / "settings.json"
    path.write_bytes('\ufeff{\r\n\t"hooks": {},\r\n\t"env": {"A": "é"},\r\n\t"hooks": { }\r\n}'.encode())
    before = path.read_bytes()
    judgekit(client, "install", "claude-code", "--scope", "project")
    assert answers(client) == 1
    judgekit(client, "uninstall", "claude-code", "--scope", "project")
    assert path.read_bytes() == before
