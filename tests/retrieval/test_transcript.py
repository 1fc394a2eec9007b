from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from judgekit.retrieval import transcript

if TYPE_CHECKING:
    from pathlib import Path


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
    assert transcript.last_turns(str(file), 2) == ("user: question 7", "user: question 8")
    assert transcript.last_turns(str(file), 0) == ()
    blocks = [{"type": "text", "text": "I look."}, {"type": "tool_use", "input": {"path": "x"}}]
    file.write_text(entry("assistant", blocks))
    assert transcript.last_turns(str(file), 5) == ("assistant: I look.",)
    for line in NO_TURNS:
        file.write_text(f"{line}\n{entry('user', 'real')}\n{line}\n")
        assert transcript.last_turns(str(file), 5) == ("user: real",), line[:60]
    file.write_bytes(b"\xff\xfe\x00\n" + entry("user", "real").encode() + b'\n{"type":')
    assert transcript.last_turns(str(file), 5) == ("user: real",)
    file.write_text("\n".join([entry("user", "x" * 5000) for _ in range(200)] + [entry("user", "last")]))
    assert transcript.last_turns(str(file), 1) == ("user: last",)  # only the end is read


def test_no_other_file_is_read_but_in_the_clients_own_folder(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside.jsonl"
    outside.write_text(entry("user", "private"))
    (file.parent / "linked.jsonl").symlink_to(outside)
    (file.parent / "folder.jsonl").mkdir()
    (file.parent / "wrong.txt").write_text(entry("user", "private"))
    names = ("linked.jsonl", "folder.jsonl", "wrong.txt", "missing.jsonl", "a\0b.jsonl")
    for path in (outside, *(file.parent / name for name in names)):
        assert transcript.last_turns(str(path), 5) == (), path
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    path = tmp_path / "projects" / "p" / "s.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(entry("user", "hello"))
    assert transcript.last_turns(str(path), 5) == ("user: hello",)


def test_when_a_conversation_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    path = tmp_path / "projects" / "p" / "s.jsonl"
    path.parent.mkdir(parents=True)
    lines = ['{"type": "summary"}', "no JSON", '{"timestamp": 3}', '{"timestamp": "soon"}']
    path.write_text("\n".join(lines))
    assert transcript.started(str(path)) is None
    path.write_text(
        "\n".join([*lines, '{"timestamp": "2026-03-20T12:00:00.500Z"}', '{"timestamp": "2027-01-01"}'])
    )
    assert transcript.started(str(path)) == 1774008000.5
    assert transcript.started(str(tmp_path / "elsewhere.jsonl")) is None
    assert transcript.started("\0") is None
