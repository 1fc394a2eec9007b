"""The real Claude Code client runs the prompt hook, offline; what reaches its API is what counts."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from claude_standin import REPLY
from sample_store import JWT, MEMORIES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from claude_client import Client

pytestmark = [pytest.mark.slow, pytest.mark.real_client]

QUESTION = "How do we refresh the JWT?"
UNRELATED = "Write a haiku about the sea"


def ask(client: Client, prompt: str) -> None:
    """Send a prompt and see that it arrived, was answered, and that nothing else was reached."""
    answer = client.ask(prompt)
    assert answer.code == 0, answer
    assert answer.stdout.strip() == REPLY
    assert prompt in client.api.user_text()
    assert client.api.strays == []


def sent(client: Client) -> str:
    """Return everything that the API was sent, system prompts and tools too."""
    return json.dumps(client.api.messages(), ensure_ascii=False)


def assert_nothing_injected(client: Client) -> None:
    everything = sent(client)
    assert "<memory-context" not in everything
    assert "<memory-nudge" not in everything
    assert not [memory.title for memory in MEMORIES if memory.title in everything]


def test_without_the_hook_no_memory_reaches_the_request(client: Client) -> None:
    ask(client, QUESTION)
    assert_nothing_injected(client)


def test_output_of_a_hook_reaches_the_request(client: Client, tmp_path: Path) -> None:
    script = tmp_path / "hook.py"
    script.write_text("import json, sys\nprint('I was given:', json.load(sys.stdin)['prompt'][::-1])\n")
    client.install_hook(sys.executable, str(script))
    ask(client, QUESTION)
    assert f"I was given: {QUESTION[::-1]}" in client.api.user_text()


def test_memory_reaches_the_request(client: Client) -> None:
    client.install_hook()
    ask(client, QUESTION)
    text = client.api.user_text()
    assert "<memory-context" in text
    assert JWT.title in text
    assert f"{JWT.folder}/{JWT.id}.json" in text
    unrelated = [memory.title for memory in MEMORIES if memory is not JWT and memory.title in text]
    assert unrelated == []


@pytest.mark.parametrize("prompt", [UNRELATED, "go on"])
def test_other_prompts_inject_nothing(client: Client, prompt: str) -> None:
    code = client.install_watched_hook()
    ask(client, prompt)
    assert_nothing_injected(client)
    assert code.read_text() == "0\n"


def test_project_without_a_store_injects_nothing(client: Client) -> None:
    (client.project / ".claude" / "memory").rename(client.project / "elsewhere")
    code = client.install_watched_hook()
    ask(client, QUESTION)
    assert_nothing_injected(client)
    assert code.read_text() == "0\n"


def test_the_switch_silences_the_hook(client: Client) -> None:
    client.install_hook("/usr/bin/env", "JUDGEKIT_DISABLE=1", sys.executable, "-m", "judgekit", "hook")
    ask(client, QUESTION)
    assert_nothing_injected(client)


def broken_index(project: Path) -> None:
    (project / ".claude/memory/index.md").write_bytes(
        b"\xff\xfe\x00- [DECISION] \x80 -> ../../etc/passwd\n" * 50
    )


def lying_index(project: Path) -> None:
    (project / ".claude/memory/index.md").write_text(
        f"- [DECISION] {QUESTION} -> .claude/memory/no/such.json\n"
    )


def broken_memories(project: Path) -> None:
    for path in (project / ".claude/memory").glob("*/*.json"):
        path.write_text('{"title": "JWT')


def store_is_a_file(project: Path) -> None:
    store = project / ".claude/memory"
    store.rename(project / "elsewhere")
    store.write_text("not a folder")


def store_settings_are_broken(project: Path) -> None:
    (project / ".claude/memory/memory-config.json").write_text('{"retrieval": {"max_inject": "many"')


def config_of_wrong_type(project: Path) -> None:
    (project / ".judgekit").mkdir()
    (project / ".judgekit/config.yaml").write_text("retrieval: {max_inject: many}\n")


def config_is_not_yaml(project: Path) -> None:
    (project / ".judgekit").mkdir()
    (project / ".judgekit/config.yaml").write_bytes(b"retrieval: [\x00\xff")


@pytest.mark.parametrize(
    "damage",
    [broken_index, lying_index, broken_memories, store_is_a_file],
)
def test_a_broken_store_does_not_disturb_the_client(client: Client, damage: Callable[[Path], None]) -> None:
    damage(client.project)
    code = client.install_watched_hook()
    ask(client, QUESTION)
    assert code.read_text() == "0\n"


@pytest.mark.parametrize("damage", [config_of_wrong_type, config_is_not_yaml, store_settings_are_broken])
def test_a_broken_config_leaves_the_memory(client: Client, damage: Callable[[Path], None]) -> None:
    damage(client.project)
    code = client.install_watched_hook()
    ask(client, QUESTION)
    assert code.read_text() == "0\n"
    assert JWT.title in client.api.user_text()
