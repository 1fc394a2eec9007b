"""The use of injected memories, counted from the log and the clients' transcripts."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hooking import QUESTION, TITLE, by_user, payload

from judgekit.hooks import stats
from judgekit.judging import search

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import TypeAlias

    from memory_store import MemoryStore

    Ask: TypeAlias = Callable[..., None]
    Run: TypeAlias = Callable[..., tuple[str, list[str]]]

SESSION = "07ceeb40-bed1-473a-bef1-c31afe9609ee"
CODEX = SESSION.replace("ee", "ff")
HAIKU = "Write a haiku about the sea"
WORDS = "The access tokens live fifteen minutes; a rotating cookie brings the next."


def claude(kind: str, content: object, **more: object) -> dict[str, object]:
    return {"type": kind, "message": {"role": kind, "content": content}, **more}


def uses(name: str, **given: str) -> dict[str, object]:
    return claude("assistant", [{"type": "tool_use", "name": name, "input": given}])


BROKEN = [
    *(
        '{"type": "assistant"',
        "[]",
        "7",
        {"type": "assistant", "message": [7]},
        {"type": "gemini", "toolCalls": 7},
    ),
    *(claude("assistant", content) for content in (None, 7, [7, None, {"type": "tool_use"}])),
    {"type": "gemini", "toolCalls": [7, {}]},
    {"type": "response_item", "payload": {"type": "function_call", "arguments": 7}},
]


def write(home: Path, name: str, entries: list[Any]) -> None:
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [entry if isinstance(entry, str) else json.dumps(entry) for entry in entries]
    path.write_text("\n".join(lines), encoding="utf-8")


def claude_file(home: Path, *entries: object, session: str = SESSION) -> None:
    write(home, f".claude/projects/-p/{session}.jsonl", list(entries))


@pytest.fixture
def ask(store: MemoryStore, run: Run) -> Ask:
    by_user("retrieval: {log: true}\n")

    def call(*prompts: str, session: str = SESSION) -> None:
        for prompt in prompts:
            _, errors = run(payload(store, prompt, session_id=session))
            assert errors == []

    return call


def some(store: MemoryStore, names: str) -> list[Any]:
    found = json.loads(stats.report_use(str(store.project), as_json=True))
    return [found[name] for name in names.split()]


def test_the_log_is_joined_with_the_transcript(
    store: MemoryStore, ask: Ask, isolated: Path
) -> None:
    again = "Where is the JWT token refresh flow tested?"
    ask(QUESTION, again, HAIKU, "How does the JWT refresh work?")
    claude_file(
        isolated,
        claude("user", "go on"),
        uses("Read", file_path=str(store.root / "decisions" / "jwt.json")),
        claude("user", QUESTION),
        claude("assistant", [{"type": "text", "text": WORDS}]),
        "not json",
        claude("user", [{"type": "tool_result", "content": "x"}]),
        claude("user", again),
        claude("assistant", WORDS, isSidechain=True),
        uses("Bash", command="cat .claude/memory/decisions/jwt.json"),
        claude("user", HAIKU),
        claude("assistant", WORDS),
    )
    assert some(store, "source prompts answered_prompts sessions transcripts") == [
        "log",
        4,
        3,
        1,
        1,
    ]
    assert some(store, "injections injected_prompts repeats_avoided") == [2, 2, 1]
    assert some(store, "answered_injections opened came_back can_come_back used") == [2, 1, 1, 2, 2]
    assert some(store, "memories") == [[{"title": TITLE, "injected": 2, "used": 2}]]


@pytest.mark.parametrize(
    ("call", "followed"),
    [
        (uses("Bash", command='judgekit search "avatar invoice rule"'), 1),
        (uses("Skill", skill="memory-search"), 1),
        (uses("Read", file_path="/p/.claude/memory/constraints/filler-1.json"), 1),
        (uses("Read", file_path="/p/.claude/memory/constraints/filler-7.json"), 0),
        (claude("user", "judgekit search"), 0),
    ],
)
def test_nudges(
    store: MemoryStore, ask: Ask, isolated: Path, call: dict[str, object], followed: int
) -> None:
    ask("invoice avatar or what?")
    claude_file(isolated, claude("user", "invoice avatar or what?"), call)
    assert some(store, "nudges answered_nudges nudges_followed") == [1, 1, followed]


def test_codex_and_gemini_write_it_otherwise(store: MemoryStore, ask: Ask, isolated: Path) -> None:
    ask(QUESTION, session=CODEX)
    ask(QUESTION, session="of-gemini")
    file = ".claude/memory/decisions/jwt.json"
    words = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": WORDS}],
    }
    asked = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": QUESTION}],
    }
    call = {
        "type": "function_call",
        "name": "shell",
        "arguments": json.dumps({"command": f"cat {file}"}),
    }
    entries: list[Any] = [
        {"type": "response_item", "payload": each} for each in (asked, call, words)
    ]
    write(isolated, f".codex/sessions/2026/11/rollout-x-{CODEX}.jsonl", entries)
    typed = {
        "content": [{"text": QUESTION}, {"text": "<hook_context>"}],
        "displayContent": [{"text": QUESTION}],
    }
    read = {
        "type": "gemini",
        "content": "",
        "toolCalls": [{"name": "read_file", "args": {"file_path": file}}],
    }
    entries = [
        {"sessionId": "of-gemini"},
        {"type": "user"} | typed,
        read,
        {"type": "gemini", "content": WORDS},
    ]
    write(isolated, ".gemini/tmp/p/chats/session-x.jsonl", entries)
    assert some(store, "answered_prompts opened came_back transcripts") == [2, 2, 2, 2]


def test_what_is_known_without_a_log(store: MemoryStore, ask: Ask, isolated: Path) -> None:
    by_user("")
    names = "source prompts injections nudges searches opened answered_injections transcripts"
    assert some(store, names) == ["sessions", 0, 0, 0, 0, 0, 0, 0]
    ask(QUESTION, HAIKU, "invoice avatar or what?")
    assert some(store, names) == ["sessions", 3, 1, 1, 0, 0, 0, 0]
    read = uses("Read", file_path=str(store.root / "decisions" / "jwt.json"))
    search = uses("Bash", command="judgekit search x")
    claude_file(
        isolated, claude("user", QUESTION), *BROKEN, read, claude("user", HAIKU), search, search
    )
    assert some(store, names) == ["sessions", 3, 1, 1, 1, 1, 1, 1]
    text = stats.report_use(str(store.project))
    assert "log: off (to switch it on: retrieval: {log: true} in " in text
    assert "opened: 1 of 1 injections" in text.split("\n")


def test_lines_or_json(
    store: MemoryStore, ask: Ask, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(QUESTION)
    monkeypatch.chdir(store.root)
    text, errors = run(None, "--stats")
    assert (errors, len(text.rstrip().split("\n"))) == ([], 13)
    found, errors = run(None, "--stats", "--json")
    assert (errors, json.loads(found)["project"]) == ([], str(store.project))


def test_what_was_added_to_prompts_and_how_long_it_took(store: MemoryStore, run: Run) -> None:
    by_user("retrieval: {log: true}\n")
    text, _ = run(payload(store))
    run(payload(store, HAIKU))
    assert some(store, "measured_prompts characters") == [2, len(text.rstrip("\n"))]
    figures = stats.report_use(str(store.project))
    assert f"added: {len(text.rstrip())} characters and " in figures
    assert " ms to 2 prompts; " in figures


@pytest.mark.parametrize(("prompts", "is_noticed"), [(4, False), (5, True)])
@pytest.mark.parametrize("keeps", [0, 1])
def test_a_judge_that_drops_everything_is_noticed(
    store: MemoryStore,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    *,
    prompts: int,
    is_noticed: bool,
    keeps: int,
) -> None:
    by_user("retrieval: {judge: on, log: true, repeat_after: 0}\n")
    selection: Any = SimpleNamespace(degraded=None)

    def keep_some(_: str, hits: list[Any], *__: object) -> search.HookChoice:
        return search.HookChoice(hits[:keeps], [], selection, {}, only_drops=False)

    monkeypatch.setattr(search, "let_models_choose", keep_some)
    for _ in range(prompts):
        run(payload(store, "invoice or avatar or backup?"))
    judged, dropped = some(store, "judged dropped")
    assert judged - dropped == keeps * prompts
    assert some(store, "judged_prompts all_dropped") == [prompts, prompts * (1 - keeps)]
    text = stats.report_use(str(store.project))
    assert f"judge: {prompts} prompts; it dropped {dropped} of {judged} memories" in text
    assert ("the judge dropped every memory" in text) == (is_noticed and not keeps)
