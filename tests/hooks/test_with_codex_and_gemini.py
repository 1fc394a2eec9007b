"""The real Codex and Gemini CLI run the hook, offline; the requests to their APIs are checked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeAlias

import pytest
import sample_store
from claude_client import judgekit
from claude_standin import REPLY
from git_repo import GitRepo
from hooking import QUESTION
from loopback import Loopback, says
from npm_clients import VARIABLE, Codex, Gemini
from sample_store import JWT, MEMORIES
from scripted import finding, scores

if TYPE_CHECKING:
    from pathlib import Path

    from claude_standin import Standin

pytestmark = [pytest.mark.slow, pytest.mark.real_client]
Either: TypeAlias = Codex | Gemini


@pytest.fixture(params=[Codex, Gemini])
def client(request: pytest.FixtureRequest, api: Standin, tmp_path: Path) -> Either:
    kind: type[Either] = request.param
    if (program := kind.find()) is None:
        pytest.skip(
            f"no {kind.table.title}: name npm's folder in {VARIABLE}, or run .ci/run, which fetches it"
        )
    client = kind(program, tmp_path, api)
    client.project.mkdir()
    sample_store.write(client.project)
    client.setup()
    return client


def ask(client: Either, prompt: str = QUESTION, *, bypass: bool = True) -> str:
    """Send a prompt, check that it's answered and no other host is reached; return the API's requests."""
    before = len(client.sent())
    trusting = ["--dangerously-bypass-hook-trust"] if bypass and isinstance(client, Codex) else []
    answer = client.ask(prompt, *trusting)
    assert answer.code == 0, answer
    assert REPLY in answer.stdout
    assert client.api.strays == []
    sent = json.dumps(client.sent()[before:], ensure_ascii=False)
    assert prompt in sent
    return sent


def titles(sent: str) -> list[str]:
    return [memory.title for memory in MEMORIES if memory.title in sent]


@pytest.mark.parametrize("scope", ["user", "project"])
def test_memory_arrives_until_the_hook_is_taken_out(client: Either, scope: str) -> None:
    before = client.settings.read_bytes() if client.settings.exists() else None
    judgekit(client, "install", client.table.command, "--scope", scope)
    assert titles(ask(client)) == [JWT.title]
    assert titles(ask(client, "Write a haiku about the sea")) == []
    judgekit(client, "uninstall", client.table.command, "--scope", scope)
    assert (client.settings.read_bytes() if client.settings.exists() else None) == before
    assert titles(ask(client)) == []


def test_a_hook_that_the_kernel_ends_costs_no_prompt(client: Either) -> None:
    judgekit(client, "install", client.table.command, "--scope", "user")
    text = client.settings.read_text(encoding="utf-8")
    assert "; run()" in text
    ended = text.replace("; run()", "; import os; os.kill(os.getpid(), 14)")
    client.settings.write_text(ended, encoding="utf-8")
    assert titles(ask(client)) == []


@pytest.mark.parametrize("client", [Codex], indirect=True)
def test_codex_runs_what_is_trusted_and_doctor_knows(client: Codex) -> None:
    judgekit(client, "install", "codex")
    assert titles(ask(client, bypass=False)) == []
    assert "not trusted yet" in judgekit(client, "doctor")
    client.trust_all()
    assert titles(ask(client, bypass=False)) == [JWT.title]
    assert "not trusted yet" not in judgekit(client, "doctor")


def test_findings_keep_the_agent_going_once(client: Either) -> None:
    repository = GitRepo(client.project)
    repository("init", "--quiet", "--initial-branch=main")
    repository.commit("first")
    judgekit(client, "install", client.table.command)
    client.api.script.append(client.writes("guide.md", "# Guide to the deployment\n"))
    folder = client.folder / "home" / ".config" / "judgekit"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text('stop: {judge: "on", deadline: 20}\n')
    with Loopback(says(scores(2, 1, 3, findings=[finding()]))) as judge:
        client.variables.update({"JUDGEKIT_API_BASE": judge.base, "JUDGEKIT_MODEL": "stand-in"})
        sent = ask(client, "Write a guide to the deployment, please.")
    assert "(guide.md) were judged under kls@1.0.0, strict: reject" in sent
    assert "no way back is given (suggested: say how to roll back)" in sent
    assert len(judge.requests) == 1  # the second stop is not judged
