"""The log of injections, and notices that are not repeated."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hooking import QUESTION, TITLE, by_project, by_user, payload
from memory_store import MemoryStore, jwt_store

from judgekit import environment
from judgekit.hooks import claude_code, context, explain


@pytest.fixture
def logged(store: MemoryStore) -> MemoryStore:
    by_user("retrieval: {log: true}\n")
    return store


def ask(store: MemoryStore, prompt: str = QUESTION) -> tuple[str, list[str]]:
    return claude_code.answer(payload(store, prompt))


def lines() -> list[dict[str, object]]:
    return [json.loads(line) for line in Path(explain.file()).read_text(encoding="utf-8").splitlines()]


def test_only_the_user_can_switch_it_on(store: MemoryStore) -> None:
    ask(store)
    off = "log: off (set retrieval.log: true in your own configuration to log each injection"
    assert off in explain.report(QUESTION, str(store.project))
    by_project(store.project, "retrieval: {log: true}\n")
    _, (note,) = ask(store)
    assert "only the user's configuration may" in note
    assert not Path(explain.file()).exists()


def test_a_line_a_prompt_that_its_owner_alone_can_read(logged: MemoryStore) -> None:
    assert "this prompt is not in the log" in explain.report(QUESTION, str(logged.project))
    ask(logged)
    ask(logged, "invoice avatar or what? " + "x" * 500 + "\nsecret at the end")
    first, second = lines()
    assert first["injected"] == [
        {
            "path": ".claude/memory/decisions/jwt.json",
            "title": TITLE,
            "confidence": pytest.approx(0.9, abs=0.5),
        }
    ]
    assert (first["prompt"], first["project"], first["judge"]) == (QUESTION, str(logged.project), "off")
    assert len(str(second["prompt"])) <= explain.PROMPT_CHARS
    assert "secret" not in str(second)
    assert explain.file().startswith(environment.state_home())
    if os.name == "posix":
        assert stat.S_IMODE(Path(explain.file()).stat().st_mode) == 0o600
        assert stat.S_IMODE(Path(explain.file()).parent.stat().st_mode) == 0o700
    with Path(explain.file()).open("a", encoding="utf-8") as file:
        file.write('{"cut off')
    report = explain.report(QUESTION, str(logged.project))
    assert "injected JWT token refresh flow; mentioned nothing" in report
    assert report.count("Z: injected") == 1


def test_it_is_bounded(logged: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "MAX_BYTES", 1_000)
    for _ in range(12):
        ask(logged)
    sizes = [path.stat().st_size for path in Path(explain.file()).parent.iterdir()]
    assert 1 <= len(sizes) <= 2
    assert max(sizes) < 2_000
    assert len(explain.last(QUESTION, str(logged.project))) == 3


def test_a_folder_that_cannot_be_written_costs_no_answer(logged: MemoryStore, isolated: Path) -> None:
    (isolated / "judgekit" / "state").write_text("in the way")
    text, notes = ask(logged)
    assert TITLE in text
    assert notes == []


def test_hooks_at_once_do_not_mix_their_lines(logged: MemoryStore) -> None:
    command = [sys.executable, "-m", "judgekit", "hook"]
    running = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) for _ in range(5)]
    for process in running:
        process.communicate(json.dumps(payload(logged)).encode(), timeout=120)
    assert len(lines()) == 5


def test_a_project_named_with_a_line_separator_has_its_lines(logged: MemoryStore, tmp_path: Path) -> None:
    store = jwt_store(tmp_path / "pro\u2028ject\x85", 20)
    ask(store)
    (line,) = explain.last(QUESTION, str(store.project))
    assert line["project"] == str(store.project)


def test_a_notice_is_due_once_a_day(isolated: Path) -> None:
    now = 1_000_000.0
    assert context.due("/p", ["a", "b"], now) == ["a", "b"]
    assert context.due("/p", ["b", "c"], now + 60) == ["c"]
    assert context.due("/other", ["a"], now + 60) == ["a"]
    assert context.due("/p", ["a", "b", "c"], now + context.AGAIN + 1) == ["a", "b"]
    assert context.due("/p", ["a"], now) == ["a"], "a clock that was put back does not silence anything"
    shutil.rmtree(environment.cache_home())
    assert context.due("/p", ["a"]) == ["a"]
    (kept,) = Path(environment.cache_home(), context.FOLDER).iterdir()
    for content in ("", "{", "[]", '{"a": "x"}'):
        kept.write_text(content)
        assert context.due("/p", ["a"]) == ["a"]
        assert context.due("/p", ["a"]) == []
    shutil.rmtree(environment.cache_home())
    (isolated / "judgekit" / "cache").write_text("in the way")
    for _ in range(2):  # what cannot be remembered is said
        assert context.due("/p", ["a"]) == ["a"]
