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
from memory_store import MemoryStore, jwt_store

from judgekit import environment
from judgekit.hooks import claude_code, context, explain

QUESTION = "How do we refresh the JWT?"


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return jwt_store(tmp_path / "project", 20)


@pytest.fixture
def switched_on(isolated: Path) -> Path:
    path = isolated / "judgekit" / "config.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text("retrieval: {log: true}\n")
    return path


def ask(store: MemoryStore, prompt: str = QUESTION) -> None:
    claude_code.answer({"prompt": prompt, "cwd": str(store.project)})


def lines() -> list[dict[str, object]]:
    return [json.loads(line) for line in Path(explain.file()).read_text(encoding="utf-8").splitlines()]


def test_only_the_user_can_switch_it_on(store: MemoryStore) -> None:
    ask(store)
    assert (
        "log: off (set retrieval.log: true in your own configuration to log each injection"
        in explain.report(QUESTION, str(store.project))
    )
    path = store.project / ".judgekit" / "config.yaml"
    path.parent.mkdir()
    path.write_text("retrieval: {log: true}\n")
    _, (note,) = claude_code.answer({"prompt": QUESTION, "cwd": str(store.project)})
    assert "only the user's configuration may" in note
    assert not Path(explain.file()).exists()


@pytest.mark.usefixtures("switched_on")
def test_a_line_a_prompt(store: MemoryStore) -> None:
    ask(store)
    ask(store, "invoice avatar or what? " + "x" * 500 + "\nsecret at the end")
    first, second = lines()
    assert first["injected"] == [
        {
            "path": ".claude/memory/decisions/jwt.json",
            "title": "JWT token refresh flow",
            "confidence": pytest.approx(0.9, abs=0.5),
        }
    ]
    assert (first["prompt"], first["project"], first["judge"]) == (QUESTION, str(store.project), "off")
    assert len(str(second["prompt"])) <= explain.PROMPT_CHARS
    assert "secret" not in str(second)


@pytest.mark.usefixtures("switched_on")
@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_only_the_owner_can_read_it(store: MemoryStore) -> None:
    ask(store)
    assert stat.S_IMODE(Path(explain.file()).stat().st_mode) == 0o600
    assert stat.S_IMODE(Path(explain.file()).parent.stat().st_mode) == 0o700
    assert explain.file().startswith(environment.state_home())


@pytest.mark.usefixtures("switched_on")
def test_it_is_bounded(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "MAX_BYTES", 1_000)
    for _ in range(12):
        ask(store)
    sizes = [path.stat().st_size for path in Path(explain.file()).parent.iterdir()]
    assert 1 <= len(sizes) <= 2
    assert max(sizes) < 2_000
    assert len(explain.last(QUESTION, str(store.project))) == 3


@pytest.mark.usefixtures("switched_on")
def test_a_folder_that_cannot_be_written_costs_no_answer(store: MemoryStore, isolated: Path) -> None:
    (isolated / "judgekit" / "state").write_text("in the way")
    text, notes = claude_code.answer({"prompt": QUESTION, "cwd": str(store.project)})
    assert "JWT token refresh flow" in text
    assert notes == []


@pytest.mark.usefixtures("switched_on")
def test_explain_reads_it(store: MemoryStore) -> None:
    assert "this prompt is not in the log" in explain.report(QUESTION, str(store.project))
    ask(store)
    ask(store, "something else entirely")
    with Path(explain.file()).open("a", encoding="utf-8") as file:
        file.write('{"cut off')
    report = explain.report(QUESTION, str(store.project))
    assert "injected JWT token refresh flow; mentioned nothing" in report
    assert report.count("Z: injected") == 1


@pytest.mark.usefixtures("switched_on")
def test_hooks_at_once_do_not_mix_their_lines(store: MemoryStore) -> None:
    payload = json.dumps({"prompt": QUESTION, "cwd": str(store.project)}).encode()
    command = [sys.executable, "-m", "judgekit", "hook"]
    running = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) for _ in range(5)]
    for process in running:
        process.communicate(payload, timeout=120)
    assert len(lines()) == 5


# Notices


def test_a_notice_is_due_once_a_day() -> None:
    now = 1_000_000.0
    assert context.due("/p", ["a", "b"], now) == ["a", "b"]
    assert context.due("/p", ["b", "c"], now + 60) == ["c"]
    assert context.due("/other", ["a"], now + 60) == ["a"]
    assert context.due("/p", ["a", "b", "c"], now + context.AGAIN + 1) == ["a", "b"]
    assert context.due("/p", ["a"], now) == ["a"], "a clock that was put back does not silence anything"


def test_notices_that_cannot_be_remembered_are_said(isolated: Path) -> None:
    assert context.due("/p", ["a"]) == ["a"]
    (kept,) = Path(environment.cache_home(), context.FOLDER).iterdir()
    for content in ("", "{", "[]", '{"a": "x"}'):
        kept.write_text(content)
        assert context.due("/p", ["a"]) == ["a"]
        assert context.due("/p", ["a"]) == []
    shutil.rmtree(environment.cache_home())
    (isolated / "judgekit" / "cache").write_text("in the way")
    assert context.due("/p", ["a"]) == ["a"]
    assert context.due("/p", ["a"]) == ["a"]


def test_what_is_wrong_with_a_store_is_said_once(store: MemoryStore) -> None:
    (store.root / "decisions" / "broken.json").write_bytes(b"\xff{")
    payload = {"prompt": QUESTION, "cwd": str(store.project)}
    first, second = claude_code.answer(payload), claude_code.answer(payload)
    assert first[0] == second[0]
    assert [len(notes) for _, notes in (first, second)] == [1, 0]
    assert "broken.json" in explain.report(QUESTION, str(store.project))


@pytest.mark.usefixtures("switched_on")
def test_a_project_named_with_a_line_separator_has_its_lines(tmp_path: Path) -> None:
    store = jwt_store(tmp_path / "pro\u2028ject\x85", 20)
    ask(store)
    (line,) = explain.last(QUESTION, str(store.project))
    assert line["project"] == str(store.project)
