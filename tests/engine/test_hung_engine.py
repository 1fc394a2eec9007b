"""An engine that lives and does not answer: nobody waits for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from engine_processes import alive, end_all, private_folder
from loopback import Loopback, says
from memory_store import jwt_store
from scripted import scores

from judgekit.engine import client
from judgekit.hooks import claude_code, judged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

SECONDS = 60  # on a busy machine, litellm's import included; a hang would be an hour


@pytest.fixture
def home(isolated: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a home with an engine that is ready."""
    with private_folder() as path, Loopback(says(scores(4, 4, 4))) as model:
        monkeypatch.delenv("JUDGEKIT_ENGINE")
        monkeypatch.setenv("HOME", str(path))
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(path))
        monkeypatch.setenv("JUDGEKIT_API_BASE", model.base)
        monkeypatch.setenv("JUDGEKIT_MODEL", "stand-in")
        client.connect_or_start().close()
        assert client.wait_until_ready(60)
        try:
            yield path
        finally:
            end_all(path / "judgekit")


@contextmanager
def stopped(home: Path) -> Iterator[None]:
    """Stop the engine for the block, as a debugger or a machine without memory does."""
    (process,) = alive(home / "judgekit")
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "judgekit", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def test_commands_go_on_in_their_own_process(home: Path, tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / f"{name}.md").write_text(f"# {name}\n\nA sound document.\n")
    jwt_store(tmp_path, 3)
    judge = ("judge", "--mode", "lenient", "--no-cache", "--format", "jsonl")
    with stopped(home):
        many = run(tmp_path, *judge, *(f"{name}.md" for name in "abcd"))
        task = run(tmp_path, *judge, "a.md", "--task-id", "t")
        search = run(tmp_path, "search", "JWT token refresh", "--judge", "--json")
    assert [json.loads(line)["verdict"] for line in many.stdout.splitlines()] == ["accept"] * 4
    assert json.loads(task.stdout)["verdict"] == "accept"
    assert json.loads(search.stdout)["query"] == "JWT token refresh"
    for process in (many, task, search):
        assert process.stderr.count("continuing in this process") == 1


def test_a_prompt_does_not_wait_for_it(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jwt_store(tmp_path, 3)
    monkeypatch.setattr(client, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(client, "HEALTH_SECONDS", 0.05)
    monkeypatch.setenv("JUDGEKIT_RETRIEVAL_JUDGE", "on")
    monkeypatch.setenv("JUDGEKIT_RETRIEVAL_DEADLINE", "3600")
    monkeypatch.setattr(judged, "MOST_SECONDS", 3600.0)  # this test would never end
    payload = {
        "hook_event_name": "UserPromptSubmit",
        "prompt": "How do we refresh the JWT?",
        "cwd": str(tmp_path),
    }
    with stopped(home):
        text, notes = claude_code.answer(payload)
    assert "JWT token refresh flow" in text
    assert [note for note in notes if "did not respond in time" in note]


def test_what_is_too_large_for_an_engine_is_judged_here(home: Path, tmp_path: Path) -> None:
    assert alive(home / "judgekit")
    names = [f"{number}.md" for number in range(1001)]
    for name in names:
        (tmp_path / name).write_text("# A\n")
    task = run(
        tmp_path, "judge", ".", "--task-id", "t", "--mode", "lenient", "--format", "json", "--no-cache"
    )
    assert json.loads(task.stdout)[0]["verdict"] == "accept", task.stderr
    assert "continuing in this process" in task.stderr
