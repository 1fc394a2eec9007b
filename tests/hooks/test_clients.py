"""The hook of Gemini CLI in this process, and the transcripts of all clients."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hooking import ANSWER, QUESTION, by_project, payload

from judgekit.retrieval import transcript

if TYPE_CHECKING:
    from pathlib import Path

    from memory_store import MemoryStore


Run = Any


def test_gemini_is_answered_in_json(store: MemoryStore, run: Run) -> None:
    out, err = run(payload(store, hook_event_name="BeforeAgent"))
    assert (json.loads(out).keys(), err) == ({"hookSpecificOutput"}, [])
    output = json.loads(out)["hookSpecificOutput"]
    assert output["hookEventName"] == "BeforeAgent"
    assert f'<result category="DECISION" confidence="high">{ANSWER}' in output["additionalContext"]
    for prompt in ("go on", "Write a haiku about the sea"):
        assert run(payload(store, prompt, hook_event_name="BeforeAgent")) == ("", [])
    by_project(store.project, "retrieval: {show: true}\n")
    out, _ = run(payload(store, hook_event_name="BeforeAgent"))
    assert json.loads(out)["systemMessage"] == "judgekit recalled: JWT token refresh flow"


def test_no_title_passes_for_a_tag_after_gemini_has_escaped_the_rest(
    store: MemoryStore, run: Run
) -> None:
    store.add("jwt", "JWT token refresh </memory-context> & so on", listed=False)
    out, _ = run(payload(store, QUESTION, hook_event_name="BeforeAgent"))
    text = json.loads(out)["hookSpecificOutput"]["additionalContext"]
    seen = text.replace("<", "&lt;").replace(">", "&gt;")  # as Gemini gives it to the model
    assert seen.count("&lt;/memory-context&gt;") == 1
    assert "refresh &amp;lt;/memory-context&amp;gt; &amp;amp; so on" in seen


def codex(role: str, kind: str, text: str) -> dict[str, object]:
    message = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
    return {"type": "response_item", "payload": message}


CODEX_LINES = [
    {"timestamp": "2026-03-20T12:00:00.500Z", "type": "session_meta", "payload": {"id": "x"}},
    *(
        codex("developer", "input_text", "a hook's"),
        codex("user", "input_text", "<environment_context>"),
    ),
    *(codex("user", "input_text", "question"), codex("assistant", "output_text", "answer")),
    {"type": "event_msg", "payload": {"type": "item_completed", "item": {"type": "UserMessage"}}},
]
GEMINI_LINES = [
    {"sessionId": "x", "startTime": "2026-03-20T12:00:00.500Z", "kind": "main"},
    {"$set": {"messages": [{"type": "user", "content": [{"text": "<session_context>"}]}]}},
    {"type": "user", "content": [{"text": "question"}]},
    {"type": "gemini", "content": "answer", "thoughts": []},
]


@pytest.mark.parametrize(
    ("variable", "folder", "lines"),
    [("CODEX_HOME", "sessions", CODEX_LINES), ("GEMINI_CLI_HOME", ".gemini/tmp", GEMINI_LINES)],
)
def test_transcripts_are_read_in_the_clients_own_folders(
    variable: str, folder: str, lines: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / folder / "x" / "session.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(map(json.dumps, lines)))
    assert transcript.read_last_turns(str(path), 5) == ()
    monkeypatch.setenv(variable, str(tmp_path))
    assert transcript.read_last_turns(str(path), 5) == ("user: question", "assistant: answer")
    assert transcript.read_start_time(str(path)) == 1774008000.5


@pytest.fixture
def file(isolated: Path) -> Path:
    folder = isolated / ".claude" / "projects" / "-home-me-project"
    folder.mkdir(parents=True)
    return folder / "session.jsonl"


def entry(kind: str, content: Any, **more: Any) -> str:  # noqa: ANN401 - any shape a client may write
    return json.dumps({"type": kind, "message": {"role": kind, "content": content}, **more})


NO_TURNS = [
    entry("user", "aside", isSidechain=True),
    entry("user", "meta", isMeta=True),
    entry("user", "<system-reminder>x</system-reminder>"),
    entry("system", "x"),
    entry("user", None),
    entry("user", [{"type": "tool_result", "content": "x"}]),
    entry("user", ["x", 3]),
    *('{"type": "user"}', '{"type": "user", "message": []}', "[]", "not json", "[" * 100_000, ""),
]


def test_the_last_turns_come_oldest_first_and_nothing_else(file: Path) -> None:
    file.write_text("\n".join(entry("user", f"question {number}") for number in range(9)))
    assert transcript.read_last_turns(str(file), 2) == ("user: question 7", "user: question 8")
    assert transcript.read_last_turns(str(file), 0) == ()
    blocks = [{"type": "text", "text": "I look."}, {"type": "tool_use", "input": {"path": "x"}}]
    file.write_text(entry("assistant", blocks))
    assert transcript.read_last_turns(str(file), 5) == ("assistant: I look.",)
    for line in NO_TURNS:
        file.write_text(f"{line}\n{entry('user', 'real')}\n{line}\n")
        assert transcript.read_last_turns(str(file), 5) == ("user: real",), line[:60]
    file.write_bytes(b"\xff\xfe\x00\n" + entry("user", "real").encode() + b'\n{"type":')
    assert transcript.read_last_turns(str(file), 5) == ("user: real",)
    file.write_text(
        "\n".join([entry("user", "x" * 5000) for _ in range(200)] + [entry("user", "last")])
    )
    assert transcript.read_last_turns(str(file), 1) == ("user: last",)  # only the end is read


def test_only_clients_files_are_read(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside.jsonl"
    outside.write_text(entry("user", "private"))
    (file.parent / "linked.jsonl").symlink_to(outside)
    (file.parent / "folder.jsonl").mkdir()
    (file.parent / "wrong.txt").write_text(entry("user", "private"))
    names = ("linked.jsonl", "folder.jsonl", "wrong.txt", "missing.jsonl", "a\0b.jsonl")
    for path in (outside, *(file.parent / name for name in names)):
        assert transcript.read_last_turns(str(path), 5) == (), path
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    path = tmp_path / "projects" / "p" / "s.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(entry("user", "hello"))
    assert transcript.read_last_turns(str(path), 5) == ("user: hello",)


def test_when_a_conversation_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    path = tmp_path / "projects" / "p" / "s.jsonl"
    path.parent.mkdir(parents=True)
    lines = ['{"type": "summary"}', "no JSON", '{"timestamp": 3}', '{"timestamp": "soon"}']
    path.write_text("\n".join(lines))
    assert transcript.read_start_time(str(path)) is None
    path.write_text(
        "\n".join(
            [*lines, '{"timestamp": "2026-03-20T12:00:00.500Z"}', '{"timestamp": "2027-01-01"}']
        )
    )
    assert transcript.read_start_time(str(path)) == 1774008000.5
    assert transcript.read_start_time(str(tmp_path / "elsewhere.jsonl")) is None
    assert transcript.read_start_time("\0") is None
