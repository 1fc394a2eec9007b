"""What the bundled profile makes of the real Claude Code client: a model and nothing else."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import replace
from pathlib import Path

import claude_client
import claude_standin
import pytest
from asking import ask, failure, request
from loopback import SILENT, Loopback

from judgekit.errors import FailureKind
from judgekit.providers import registry
from judgekit.providers.base import endpoint
from judgekit.providers.command import CommandGateway

pytestmark = [pytest.mark.slow, pytest.mark.real_client]


@pytest.fixture
def client() -> Path:
    path = claude_client.find()
    if path is None:
        pytest.skip(f"no Claude Code client; {claude_client.VARIABLE} may name one")
    return path


def test_it_has_no_tools_and_runs_reads_and_keeps_nothing(client: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    settings = home / ".claude"
    settings.mkdir(parents=True)
    mark = tmp_path / "hooked"
    hook = {"hooks": [{"type": "command", "command": f"touch {mark}"}]}
    hooks = {"SessionStart": [hook], "UserPromptSubmit": [hook], "Stop": [hook]}
    (settings / "settings.json").write_text(json.dumps({"hooks": hooks}))
    (settings / "CLAUDE.md").write_text("a private note")
    with claude_standin.serve('{"score": 4}') as api:
        environ = {
            "PATH": f"{client.parent}:/usr/bin:/bin",
            "HOME": str(home),
            "ANTHROPIC_BASE_URL": api.url,
            "ANTHROPIC_AUTH_TOKEN": "a-token-that-opens-nothing",
            "HTTPS_PROXY": api.url,
            "NO_PROXY": "127.0.0.1",
        }
        there = endpoint(registry.find("claude-code"), "claude-haiku-5-5", environ)
        reply = ask(CommandGateway(), there, request("the subject", timeout=60))
        bodies = api.messages()
        strays = api.strays()
    assert reply.text == '{"score": 4}'
    assert reply.usage[:2] == (10, 5)
    assert reply.usage.cost_source == "provider"  # the client's JSON states it
    assert [body["model"] for body in bodies] == ["claude-haiku-5-5"]
    assert bodies[0].get("tools", []) == []
    assert "You judge." in json.dumps(bodies[0]["system"])
    assert "the subject" in json.dumps(bodies[0]["messages"])
    assert "a private note" not in json.dumps(bodies)
    assert not mark.exists()
    assert list(home.rglob("*.jsonl")) == []
    assert strays == []


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
def test_it_is_killed_with_all_that_it_started_when_its_api_is_silent(client: Path, tmp_path: Path) -> None:
    with Loopback(SILENT) as api:
        environ = {
            "PATH": f"{client.parent}:/usr/bin:/bin",
            "HOME": str(tmp_path / "a-home-of-its-own"),
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{api.port}",
            "ANTHROPIC_AUTH_TOKEN": "a-token-that-opens-nothing",
            "HTTPS_PROXY": f"http://127.0.0.1:{api.port}",
            "NO_PROXY": "127.0.0.1",
        }
        there = endpoint(registry.find("claude-code"), "claude-haiku-5-5", environ)
        error = failure(CommandGateway(), there, request("the subject", timeout=8))
        assert error.kind is FailureKind.TIMEOUT
        assert [asked.path.partition("?")[0] for asked in api.requests] == ["/v1/messages"]
    deadline = time.monotonic() + 5
    while _living(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _living(tmp_path) == []


def _living(home: Path) -> list[str]:
    """Return the processes that were given a home below a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"HOME={home}".encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


def test_an_account_that_is_not_signed_in_is_told(client: Path, tmp_path: Path) -> None:
    environ = {
        "PATH": f"{client.parent}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "HTTPS_PROXY": "http://127.0.0.1:9",
    }
    there = endpoint(registry.find("claude-code"), "claude-haiku-5-5", environ)
    error = failure(CommandGateway(), replace(there), request(timeout=60))
    assert error.kind is FailureKind.COMMAND_FAILED
    assert "log" in error.message.lower()
