from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from judgekit.retrieval import compiled
from judgekit.retrieval.sources import auto_memory, markdown

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.retrieval.sources.base import Entry

PROFILES = compiled.Profiles(compiled.bundled()).by_kind


def document(folder: Path, text: str | bytes, name: str = "a.md") -> Entry:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    entry = markdown.read(str(folder.resolve()), name, PROFILES["markdown"], None)
    assert entry is not None
    return entry


def topic(folder: Path, text: str, name: str = "topic.md", hint: str | None = None) -> Entry | None:
    (folder / name).write_text(text, encoding="utf-8")
    return auto_memory.read(str(folder.resolve()), name, PROFILES["claude-auto-memory"], hint)


@pytest.mark.parametrize(
    ("text", "title", "tags"),
    [
        ("# A heading\n\nText", "A heading", ()),
        ("---\ntitle: From the header\ntags: [a, 'b c']\n---\n# Other\n", "From the header", ("a", "b c")),
        ('---\ntitle: "Quoted: yes"\ntags: a, b\n---\nText', "Quoted: yes", ("a", "b")),
        ("---\ntitle: X\ntags:\n  - a\n  - b\n---\n", "X", ("a", "b")),
        ("---\nkeywords: [k]\n---\n## Second level ##\n", "Second level", ("k",)),
        ("```\n# no heading\n```\n# Heading", "Heading", ()),
        ("#hashtag\nno heading", "a", ()),
        ("---\nnever closed\n# H", "H", ()),
        ("", "a", ()),
        ("\ufeff# With a mark", "With a mark", ()),
        ("---\r\ntitle: Windows\r\n---\r\nText", "Windows", ()),
    ],
)
def test_title_and_tags(tmp_path: Path, text: str, title: str, tags: tuple[str, ...]) -> None:
    entry = document(tmp_path, text)
    assert (entry.title, entry.tags) == (title, tags)


def test_the_id_is_the_path_and_the_header_is_no_text(tmp_path: Path) -> None:
    entry = document(tmp_path, "---\ntitle: T\n---\nThe text", "deep/er/b.md")
    assert entry.id == "deep/er/b.md"
    assert entry.body == "The text"
    assert entry.category == "document"


@pytest.mark.parametrize("content", [b"\x00\x01", "caf\xe9".encode("latin-1")])
def test_an_unreadable_document_is_found_by_its_name(tmp_path: Path, content: bytes) -> None:
    entry = document(tmp_path, content, "rate-limits.md")
    assert (entry.title, entry.body) == ("rate-limits", "")
    assert entry.problem is not None


def test_of_a_long_document_the_beginning_is_read(tmp_path: Path) -> None:
    entry = document(tmp_path, "# T\n" + "ä" * 5_000_000)
    assert 0 < len(entry.body) <= PROFILES["markdown"].max_bytes
    assert entry.problem is None


@pytest.mark.parametrize("status", ["status: retired", "record_status: Archived"])
def test_a_retired_document_does_not_come_out(tmp_path: Path, status: str) -> None:
    (tmp_path / "a.md").write_text(f"---\n{status}\n---\nText")
    assert markdown.read(str(tmp_path.resolve()), "a.md", PROFILES["markdown"], None) is None


def test_a_topic_of_auto_memory(tmp_path: Path) -> None:
    header = "name: Testing style\ndescription: prefers real git\nmetadata:\n  type: feedback"
    entry = topic(tmp_path, f"---\n{header}\n---\nUse tmp repos.")
    assert entry is not None
    assert (entry.id, entry.title, entry.category) == ("topic", "Testing style", "feedback")
    assert entry.body.split() == ["prefers", "real", "git", "Use", "tmp", "repos."]


def test_a_topic_of_an_unknown_type_is_a_memory(tmp_path: Path) -> None:
    entry = topic(tmp_path, "---\ntype: odd\n---\nText", hint="From the list")
    assert entry is not None
    assert (entry.title, entry.category) == ("From the list", "memory")


def test_the_list_names_the_topics(tmp_path: Path) -> None:
    (tmp_path / "MEMORY.md").write_text(
        "- [Debugging](debug.md) - tips\n- [Gone](gone.md)\n- [Out](../out.md)\n"
    )
    found, notes = auto_memory.read_hints(str(tmp_path.resolve()), {"MEMORY.md": 1, "debug.md": 1})
    assert (found, notes) == ({"debug.md": "Debugging"}, [])


def test_the_list_itself_is_found_by_what_it_says_beyond_its_links(tmp_path: Path) -> None:
    entry = topic(tmp_path, "# Memory\n- [Debugging](debug.md)\nBuilds need pnpm.\n", "MEMORY.md")
    assert entry is not None
    assert "pnpm" in entry.body
    assert "Debugging" not in entry.body
    assert topic(tmp_path, "# Memory\n- [Debugging](debug.md)\n", "MEMORY.md") is None


def test_auto_memory_lies_where_the_client_keeps_it(isolated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "-home-me-my-app-v1-2"
    assert auto_memory.folder("/home/me/my_app.v1 2") == f"{isolated}/.claude/projects/{name}/memory"
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/elsewhere")
    assert auto_memory.folder("/home/me/my_app.v1 2") == f"/elsewhere/projects/{name}/memory"


def test_a_header_of_odd_lines_is_no_crash() -> None:
    fields, body = markdown.split("---\n- lonely\n: x\n# comment: y\na: |\nb: [\nc\n---\nText")
    assert fields == {"": ["x"], "a": [], "b": ["["]}
    assert body == "Text"
