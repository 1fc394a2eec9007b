"""A session is told nothing twice, until it may have forgotten it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hooking import by_project, payload

from judgekit import environment
from judgekit.hooks import explain, repeats

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from memory_store import MemoryStore

    Run: TypeAlias = Callable[..., tuple[str, list[str]]]
    Told: TypeAlias = Callable[..., list[str]]

ASKED = "How does the JWT token refresh work?"
OTHER = "Write a haiku about the sea"


@pytest.fixture
def told(store: MemoryStore, run: Run) -> Told:

    def ask(prompt: str = ASKED, session: str | None = "one", **more: str) -> list[str]:
        out, err = run(payload(store, prompt) | {"session_id": session} | more)
        assert err == []
        return [
            line for line in out.splitlines() if line.startswith(("<result ", "<memory-nudge>"))
        ]

    return ask


def test_a_memory_comes_back_after_so_many_prompts(store: MemoryStore, told: Told) -> None:
    by_project(store.project, "retrieval: {repeat_after: 3}\n")
    assert [len(told(prompt)) for prompt in (ASKED, ASKED, OTHER, ASKED, ASKED)] == [1, 0, 0, 0, 1]


def test_what_holds_nothing_back(store: MemoryStore, told: Told) -> None:
    assert [len(told()), len(told())] == [1, 0]
    assert len(told(session="two")) == 1
    assert [len(told(session=None)), len(told(session=None))] == [1, 1]
    for named in ("decisions/jwt.json, token refresh", "JWT token refresh flow?"):
        assert len(told(named)) == 1, "the prompt names it"
    for odd in ("\ud800", "../x", " "):
        assert [len(told(session=odd)), len(told(session=odd))] == [1, 0], repr(odd)
    assert told("the JWT and its token refresh") == [], "an id of letters alone is a word"
    for settings in ("{repeat_after: 0}", "{inject: top_k}", "{pin: [jwt]}"):
        by_project(store.project, f"retrieval: {settings}\n")
        assert len(told()) >= 1, settings


def test_a_client_that_forgot_is_told_again(told: Told) -> None:
    assert len(told()) == 1
    for event, source, again in (
        ("SessionStart", "compact", 1),
        ("SessionStart", "clear", 1),
        ("SessionStart", "resume", 0),
        ("SessionStart", "startup", 0),
        ("PostCompact", "", 1),
        ("PreCompress", "manual", 1),
        ("PreCompress", "auto", 0),
    ):
        told(hook_event_name=event, source=source, trigger=source)
        assert len(told()) == again, (event, source)


def test_a_memory_is_mentioned_once_and_injected_all_the_same(
    store: MemoryStore, told: Told
) -> None:
    by_project(store.project, "retrieval: {max_inject: 0}\n")
    assert ["<memory-nudge>" in text for text in told()] == [True]
    assert told() == []
    by_project(store.project, "")
    assert ["<result" in text for text in told()] == [True]


def test_the_state_is_small_private_and_says_nothing(store: MemoryStore, told: Told) -> None:
    for number in range(repeats.MIN_SESSIONS + 50):
        session = repeats.HookSession(
            repeats.get_session_path(f"s{number}"), str(store.project), 20
        )
        session.add([], [])
        os.utime(repeats.get_session_path(f"s{number}"), (number, number))
    told()
    folder = Path(environment.state_home()) / "sessions"
    files = list(folder.iterdir())
    assert len(files) == repeats.MIN_SESSIONS
    (path,) = (file for file in files if file.stat().st_mtime > repeats.MIN_SESSIONS + 50)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text()
    assert "jwt" not in text.lower()
    assert b"one".hex() not in path.name, "a short id is hashed too"
    assert all(set(word) <= set("+?0123456789abcdef") for word in text.split())


def test_where_nothing_can_be_remembered_it_is_told_again(
    store: MemoryStore, run: Run, told: Told
) -> None:
    folder = Path(environment.state_home())
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("no folder")
    assert [len(told()), len(told())] == [1, 1]


def test_the_explanation_says_what_was_held_back(store: MemoryStore, told: Told) -> None:
    told()
    text = explain.explain_prompt(f"{ASKED} {OTHER}", str(store.project))
    assert "held back  JWT token refresh flow" in text
    assert "injected in the latest session, prompts ago: 1; it comes back after 20" in text
