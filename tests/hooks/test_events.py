"""Events other than a prompt: an edited file is read, a session starts the engine, the rest is silence."""

from __future__ import annotations

import io
import json
import sqlite3
import sys
from typing import TYPE_CHECKING, Any

import pytest
import sample_store
from memory_store import MemoryStore, jwt_store

from judgekit.engine import client
from judgekit.hooks import claude_code
from judgekit.retrieval import index_file

if TYPE_CHECKING:
    from pathlib import Path

QUESTION = "How do we refresh the JWT?"


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    made = jwt_store(tmp_path / "project", 20)
    claude_code.answer({"prompt": QUESTION, "cwd": str(made.project)})
    return made


def send(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, payload: object
) -> tuple[str, str]:
    raw = json.dumps(payload).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8"))
    assert claude_code.main([]) == 0
    out, err = capfd.readouterr()
    return out, err


def titles(store: MemoryStore) -> set[str]:
    """Return the titles in the index as it is, without bringing it up to date."""
    path = index_file.path_of(str(store.root.resolve()))
    assert path is not None
    connection = sqlite3.connect(path)
    try:
        return {title for (title,) in connection.execute("SELECT title FROM file WHERE live")}
    finally:
        connection.close()


def edit(store: MemoryStore, path: Path | str, tool: str = "Edit", key: str = "file_path") -> dict[str, Any]:
    return {
        "hook_event_name": "PostToolUse",
        "tool_name": tool,
        "tool_input": {key: str(path)},
        "tool_response": {"filePath": str(path)},
        "cwd": str(store.project),
    }


def test_an_edited_memory_is_read_at_once(
    store: MemoryStore, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for tool in claude_code.TOOLS:
        path = store.add("jwt", f"JWT tokens, by {tool}", listed=False)
        assert f"JWT tokens, by {tool}" not in titles(store)
        named = path if tool == "Edit" else path.relative_to(store.project)
        key = "notebook_path" if tool == "NotebookEdit" else "file_path"
        assert send(capfd, monkeypatch, edit(store, named, tool, key)) == ("", "")
        assert f"JWT tokens, by {tool}" in titles(store)
    path = store.add("new", "Brand new", listed=False)
    assert send(capfd, monkeypatch, edit(store, path, "Write")) == ("", "")
    assert "Brand new" in titles(store)
    path.unlink()
    assert send(capfd, monkeypatch, edit(store, path)) == ("", "")
    assert "Brand new" not in titles(store)


@pytest.mark.parametrize(
    "change",
    [
        {"tool_name": "Bash"},
        {"tool_name": None},
        {"tool_input": {"file_path": 7}},
        {"tool_input": {"file_path": "a\0b.json"}},
        {"tool_input": "x"},
        {"tool_input": None},
        {"hook_event_name": "PreToolUse"},
        {"hook_event_name": "SessionStart", "source": "startup"},
        {"hook_event_name": "Unheard of", "prompt": QUESTION},
        {"hook_event_name": ["UserPromptSubmit"], "prompt": QUESTION},
    ],
)
def test_everything_else_is_silence(
    store: MemoryStore,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, object],
) -> None:
    path = store.add("jwt", "JWT tokens are opaque now", listed=False)
    assert send(capfd, monkeypatch, edit(store, path) | change) == ("", "")
    assert "JWT tokens are opaque now" not in titles(store)


@pytest.mark.parametrize("name", ["src/main.py", "/etc/hostname", "elsewhere.json", "gone/away.md", ".."])
def test_files_of_no_store_are_left_alone(
    store: MemoryStore, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    before = titles(store)
    assert send(capfd, monkeypatch, edit(store, name)) == ("", "")
    assert titles(store) == before


def test_where_nothing_was_indexed_no_index_is_made(
    tmp_path: Path, isolated: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = jwt_store(tmp_path / "other", 3)
    assert send(capfd, monkeypatch, edit(made, made.root / "decisions" / "jwt.json")) == ("", "")
    assert not (isolated / "judgekit" / "cache" / "index").exists()


def test_switched_off_nothing_is_read(
    store: MemoryStore, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (store.root / "memory-config.json").write_text('{"retrieval": {"enabled": false}}')
    path = store.add("jwt", "JWT tokens are opaque now", listed=False)
    assert send(capfd, monkeypatch, edit(store, path)) == ("", "")
    assert "JWT tokens are opaque now" not in titles(store)


def test_in_a_folder_that_was_deleted_there_is_silence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert send(capfd, monkeypatch, {"prompt": QUESTION}) == ("", "")


# A session's start: the engine is started where prompts are judged, and nowhere else.


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    found: list[bool] = []
    monkeypatch.setattr(client, "start", lambda _: found.append(True))
    monkeypatch.delenv("JUDGEKIT_ENGINE")
    return found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    sample_store.write(tmp_path)
    return tmp_path


def test_where_prompts_are_judged_it_is_started(
    project: Path, started: list[bool], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUDGEKIT_RETRIEVAL_JUDGE", "on")
    for _ in range(3):  # what was in vain lately is left alone
        claude_code.begin(str(project))
    assert started == [True]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"JUDGEKIT_RETRIEVAL_JUDGE": "on", "JUDGEKIT_ENGINE": "0"},
        {"JUDGEKIT_RETRIEVAL_JUDGE": "on", "JUDGEKIT_RETRIEVAL_ENABLED": "false"},
    ],
    ids=json.dumps,
)
def test_elsewhere_it_is_not(
    project: Path, started: list[bool], monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    claude_code.begin(str(project))
    assert started == []


def test_a_project_alone_starts_nothing(project: Path, started: list[bool]) -> None:
    (project / ".judgekit").mkdir(exist_ok=True)
    (project / ".judgekit" / "config.yaml").write_text("retrieval: {judge: on}\n")
    claude_code.begin(str(project))
    assert started == []
