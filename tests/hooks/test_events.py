"""Events other than a prompt: an edited file is read, a session starts the engine, the rest is silence."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import pytest
from hooking import QUESTION, by_project, payload
from memory_store import MemoryStore, jwt_store

from judgekit.engine import client
from judgekit.hooks import claude_code
from judgekit.retrieval import index_file

if TYPE_CHECKING:
    from pathlib import Path

Run = Any


@pytest.fixture
def indexed(store: MemoryStore) -> MemoryStore:
    claude_code.answer(payload(store))
    return store


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


def test_an_edited_memory_is_read_at_once(indexed: MemoryStore, run: Run) -> None:
    for tool in claude_code.TOOLS:
        path = indexed.add("jwt", f"JWT tokens, by {tool}", listed=False)
        assert f"JWT tokens, by {tool}" not in titles(indexed)
        named = path if tool == "Edit" else path.relative_to(indexed.project)
        key = "notebook_path" if tool == "NotebookEdit" else "file_path"
        assert run(edit(indexed, named, tool, key)) == ("", [])
        assert f"JWT tokens, by {tool}" in titles(indexed)
    path = indexed.add("new", "Brand new", listed=False)
    assert run(edit(indexed, path, "Write")) == ("", [])
    assert "Brand new" in titles(indexed)
    path.unlink()
    assert run(edit(indexed, path)) == ("", [])
    assert "Brand new" not in titles(indexed)


def test_everything_else_is_silence(indexed: MemoryStore, run: Run) -> None:
    path = indexed.add("jwt", "JWT tokens are opaque now", listed=False)
    before = titles(indexed)
    changes: list[dict[str, object]] = [
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
    ]
    others = ["src/main.py", "/etc/hostname", "elsewhere.json", "gone/away.md", ".."]  # of no store
    for sent in (
        *(edit(indexed, path) | each for each in changes),
        *(edit(indexed, name) for name in others),
    ):
        assert run(sent) == ("", []), sent
        assert titles(indexed) == before, sent
    (indexed.root / "memory-config.json").write_text('{"retrieval": {"enabled": false}}')
    assert run(edit(indexed, path)) == ("", [])
    assert titles(indexed) == before


def test_where_nothing_was_indexed_no_index_is_made(tmp_path: Path, isolated: Path, run: Run) -> None:
    made = jwt_store(tmp_path / "other", 3)
    assert run(edit(made, made.root / "decisions" / "jwt.json")) == ("", [])
    assert not (isolated / "judgekit" / "cache" / "index").exists()


def test_in_a_folder_that_was_deleted_there_is_silence(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert run({"prompt": QUESTION}) == ("", [])


def test_a_session_starts_the_engine_where_the_user_has_prompts_judged(
    store: MemoryStore, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[bool] = []
    monkeypatch.setattr(client, "start", lambda _: started.append(True))
    monkeypatch.delenv("JUDGEKIT_ENGINE")
    begin = payload(store, hook_event_name="SessionStart")
    for variables in (
        {},
        {"JUDGEKIT_RETRIEVAL_JUDGE": "on", "JUDGEKIT_ENGINE": "0"},
        {"JUDGEKIT_RETRIEVAL_JUDGE": "on", "JUDGEKIT_RETRIEVAL_ENABLED": "false"},
    ):
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            assert run(begin) == ("", [])
            assert started == [], variables
    by_project(store.project, "retrieval: {judge: on}\n")
    run(begin)
    assert started == [], "a project alone starts nothing"
    monkeypatch.setenv("JUDGEKIT_RETRIEVAL_JUDGE", "on")
    for _ in range(3):  # what was in vain lately is left alone
        assert run(begin) == ("", [])
    assert started == [True]
