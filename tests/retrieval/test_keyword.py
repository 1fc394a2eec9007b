from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from judgekit.retrieval import compiled, keyword
from judgekit.retrieval import search as api

if TYPE_CHECKING:
    from pathlib import Path

    from memory_store import MemoryStore

LANGUAGE = compiled.Profiles(compiled.bundled()).by_kind["markdown"].language


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("How do we refresh the JWT?", ["jwt", "refresh"]),
        ("user_id, rate-limit", ["id", "limit", "rate", "user"]),
        ("a I 1 the", []),
        ("naïve café", ["caf", "na", "ve"]),
        ("\x00\ud800🙂", []),
        ("refresh " * 200_000, ["refresh"]),
    ],
)
def test_words_of_a_prompt(text: str, expected: list[str]) -> None:
    assert keyword.parse(text, LANGUAGE) == [word for word in expected if word not in LANGUAGE.stop]


@pytest.mark.parametrize(
    ("word", "points"), [("jwt", 3), ("token", 2), ("refr", 1), ("auth", 1), ("ref", 0), ("other", 0)]
)
def test_points(word: str, points: int) -> None:
    assert keyword.points(word, {"refresh", "token"}, {"jwt", "authentication"}) == points


def search(store: MemoryStore, text: str) -> list[str]:
    ranked = api.search(text, [".claude/memory"], project=str(store.project), limit=9, scorer="keyword")
    assert ranked.fallback is None
    return [candidate.id for candidate in ranked.candidates]


def test_titles_and_tags_are_searched_bodies_are_not(store: MemoryStore) -> None:
    store.add("tagged", "Something else", "nothing", tags=["refresh"])
    store.add("bodied", "Another thing", "refresh refresh")
    assert search(store, "refresh the session") == ["tagged", "jwt"]


def test_a_hit_is_rated_like_any_other(store: MemoryStore) -> None:
    store.fill(12)
    ranked = api.search(
        "refresh the JWT", [".claude/memory"], project=str(store.project), limit=9, scorer="keyword"
    )
    assert [(candidate.id, candidate.confidence_label) for candidate in ranked.candidates] == [
        ("jwt", "high")
    ]


def test_nothing_is_written(store: MemoryStore, isolated: Path) -> None:
    search(store, "refresh")
    assert not (isolated / "judgekit").exists()
