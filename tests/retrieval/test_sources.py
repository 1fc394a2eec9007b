"""What each kind of store reads from its files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from memory_store import MemoryStore, listed

from judgekit.retrieval import compiled
from judgekit.retrieval.sources import Entry, Unreadable, auto_memory, claude_memory, contained, markdown

if TYPE_CHECKING:
    from pathlib import Path

PROFILES = compiled.Profiles(compiled.bundled()).by_kind
PROFILE = PROFILES["claude-memory"]
JWT = "decisions/jwt.json"
TITLE = "JWT token refresh flow"
LINE = f"{TITLE}|auth,jwt"


def read(store: MemoryStore, relative: str = JWT, hint: str | None = None) -> Entry | None:
    return claude_memory.read(str(store.root.resolve()), relative, PROFILE, hint)


def entry(store: MemoryStore, relative: str = JWT, hint: str | None = None) -> Entry:
    found = read(store, relative, hint)
    assert found is not None
    return found


def hints(store: MemoryStore) -> tuple[dict[str, str], list[str]]:
    files = listed(store.root, claude_memory.NAME).files
    return claude_memory.read_hints(str(store.root.resolve()), files, lambda _: False)


BODIES: list[tuple[str, object, str]] = [
    ("session_summary", {"goal": "one", "completed": ["two"], "key_changes": ["three"]}, "one two three"),
    ("decision", {"decision": "one", "consequences": ["two", "three"]}, "one two three"),
    ("runbook", {"steps": [{"action": "one", "note": "two"}], "root_cause": "three"}, "one two three"),
    ("constraint", {"rule": "one", "workarounds": ["two"]}, "one two"),
    ("tech_debt", {"description": "one", "acceptance_criteria": ["two"]}, "one two"),
    ("preference", {"topic": "one", "value": "two", "reason": "three"}, "one two three"),
    ("decision", {"decision": 7, "context": None, "rationale": [1, ["two"]], "other": "x"}, "two"),
    ("decision", "no object", ""),
]


def test_a_record_becomes_an_entry_and_its_body_is_the_categorys_fields(store: MemoryStore) -> None:
    found = entry(store)
    assert (found.id, found.title, found.category, found.tags) == ("jwt", TITLE, "decision", ("auth", "jwt"))
    assert "rotating cookie" in found.body
    assert (found.updated, found.problem) == (1768467600.0, None)
    for category, content, words in BODIES:
        path = store.add("other", "Other", category=category, content=content)
        assert entry(store, f"{path.parent.name}/other.json").body.split() == words.split(), content
    deep = {"a": ["one", {"x": ["two", ["three"]], "y": "four"}, 5, None], "b": "five"}
    assert claude_memory.body_text({"content": deep}, ["a", "b", "c"], 100) == "one\ntwo\nthree\nfour\nfive"
    assert claude_memory.body_text({"content": deep}, ["a", "b"], 9) == "one\ntwo\nt"


@pytest.mark.parametrize("status", ["retired", "archived", "Retired", "draft", 3, None])
def test_only_active_records_come_out(store: MemoryStore, status: object) -> None:
    store.add("old", "Old", record_status=status)
    assert read(store, "decisions/old.json", "Old|") is None


BROKEN = [
    b"",
    b'{"record_status": "active", ',
    b"{",
    b"[1]",
    b"\x00\x01\x02",
    '{"title": "caf\xe9"}'.encode("latin-1"),
    b"[" * 100_000,
    b'{"title": "' + b"x" * 300_000,
]
STATUS = '"record_status": "retired"'
RETIRED = [
    f"{{{STATUS}".encode(),
    f"{{{STATUS}}}".encode("utf-16"),
    f'{{"title": "caf\xe9", {STATUS}}}'.encode("latin-1"),
    b'{"record_status" :\n "archived", ',
    b"{'record_status': 'retired'}",
    b'{"record_status": ',
    b'{"record_status": "active", "content": {}, "record_status": "retired"',
    b'{"title": "' + b"x" * 300_000 + b'", "record_status": "retired", ',
]


def test_a_broken_record_is_found_by_its_line_unless_it_says_that_it_is_retired(store: MemoryStore) -> None:
    for content in BROKEN:
        (store.root / JWT).write_bytes(content)
        found = entry(store, hint=LINE)
        assert (found.title, found.tags, found.category) == (TITLE, ("auth", "jwt"), "decision"), content[:40]
        assert found.problem is not None
        assert found.problem.endswith("found by title only")
        with pytest.raises(Unreadable):
            read(store)
    for content in RETIRED:
        (store.root / JWT).write_bytes(content)
        with pytest.raises(Unreadable):
            read(store, hint=LINE)


def test_of_a_long_record_the_beginning_is_searched_and_a_huge_one_never_comes_out(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add("long", "Long", "alpha " + "x" * PROFILE.max_bytes + " omega")
    found = entry(store, "decisions/long.json", "Another title|")
    assert (found.title, found.problem, len(found.body)) == ("Long", None, PROFILE.max_bytes)
    assert found.body.startswith("alpha ")
    assert "omega" not in found.body
    monkeypatch.setattr(claude_memory, "MAX_RECORD", 400_000)
    store.add("huge", "Huge", "x" * 400_000)
    with pytest.raises(Unreadable, match="larger than 400,000 bytes"):
        read(store, "decisions/huge.json", "Huge|")


MOMENTS: dict[object, float] = {
    "2026-01-15T09:00:00Z": 1768467600.0,
    "2026-01-15T10:00:00+01:00": 1768467600.0,
    "2026-01-15T09:00:00": 1768467600.0,
    "2026-01-15": 1768435200.0,
    "soon": 0.0,
    12: 0.0,
}


def test_odd_titles_and_times(store: MemoryStore) -> None:
    path = store.add("odd", "replaced")
    for title in (None, "", "  ", 7, ["x"]):
        path.write_text(json.dumps({"title": title}))
        assert entry(store, "decisions/odd.json", "From the index|").title == "From the index"
        assert entry(store, "decisions/odd.json").title == "odd"
    for moment, seconds in MOMENTS.items():
        store.add("dated", "Dated", updated_at=moment)
        assert entry(store, "decisions/dated.json").updated == seconds, moment


LIES = (
    *(".claude/memory/decisions/gone.json", "../../etc/passwd", ".claude/memory/../../../decisions/jwt.json"),
    *("/etc/passwd", "decisions/../../jwt.json", "decisions", "decisions/ jwt.json"),
)


def test_lines_of_the_index_are_read_and_one_that_lies_is_reported_and_not_followed(
    store: MemoryStore,
) -> None:
    store.add("plain", "A -> B [sic]", tags=[])
    known = {JWT: LINE, "decisions/plain.json": "A -> B [sic]|"}
    assert hints(store.write_index()) == (known, [])
    lines = [*store.lines]
    for path in LIES:
        store.lines = [*lines]
        store.list("Lie", path)
        found, (note,) = hints(store.write_index())
        assert found == known
        assert note.endswith("not a record of this store; ignored")
    for number in range(19):
        store.list("Lie", f".claude/memory/decisions/gone-{number}.json")
    _, (note,) = hints(store.write_index())
    assert "and 19 more" in note


def test_an_index_that_is_no_text_or_no_list_is_no_crash(store: MemoryStore, tmp_path: Path) -> None:
    index = store.root / "index.md"
    for content in (b"\x00", b"\xff\xfe"):
        index.write_bytes(content)
        found, notes = hints(store)
        assert found == {}
        assert notes[0].endswith("using only the records")
    assert entry(store).title == TITLE
    for text in ("", "no list", "- [X]", "- [X] ->", "- [A](b.md)", "\x00\x01", "- [] -> x"):
        index.write_text(text)
        assert hints(store)[0] == {}, text
    files = {"decisions/a.json": 1, "decisions/c.json": 1}
    for separator in ("\u2028", "\x85", "\v", "\x1c"):  # a line ends at a line feed
        text = (
            f"- [A] One{separator}- [A] Two -> b.json -> decisions/a.json\r\n- [A] Three -> decisions/c.json"
        )
        index.write_bytes(text.encode())
        found, notes = claude_memory.read_hints(str(store.root.resolve()), files, lambda _: False)
        assert ([*found], notes) == ([*files], []), separator
    (tmp_path / "index.md").write_text("- [DECISION] From outside -> decisions/jwt.json")
    index.unlink()
    index.symlink_to(tmp_path / "index.md")
    assert hints(store) == ({}, ["index.md: outside its store; using only the records"])


def document(folder: Path, text: str | bytes, name: str = "a.md") -> Entry | None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return markdown.read(str(folder.resolve()), name, PROFILES["markdown"], None)


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
    found = document(tmp_path, text)
    assert found is not None
    assert (found.title, found.tags) == (title, tags)


def test_a_document(tmp_path: Path) -> None:
    found = document(tmp_path, "---\ntitle: T\n---\nThe text", "deep/er/b.md")
    assert found is not None
    assert (found.id, found.body, found.category) == ("deep/er/b.md", "The text", "document")
    for content in (b"\x00\x01", "caf\xe9".encode("latin-1")):
        found = document(tmp_path, content, "rate-limits.md")
        assert found is not None
        assert (found.title, found.body) == ("rate-limits", "")
        assert found.problem is not None
    found = document(tmp_path, "# T\n" + "ä" * 5_000_000)
    assert found is not None
    assert 0 < len(found.body) <= PROFILES["markdown"].max_bytes
    assert found.problem is None
    for status in ("status: retired", "record_status: Archived"):
        assert document(tmp_path, f"---\n{status}\n---\nText") is None
    fields, body = markdown.split("---\n- lonely\n: x\n# comment: y\na: |\nb: [\nc\n---\nText")
    assert (fields, body) == ({"": ["x"], "a": [], "b": ["["]}, "Text")


def test_topics_of_auto_memory_and_what_its_list_says(tmp_path: Path) -> None:
    header = "name: Testing style\ndescription: prefers real git\nmetadata:\n  type: feedback"
    found = topic(tmp_path, f"---\n{header}\n---\nUse tmp repos.")
    assert found is not None
    assert (found.id, found.title, found.category) == ("topic", "Testing style", "feedback")
    assert found.body.split() == ["prefers", "real", "git", "Use", "tmp", "repos."]
    found = topic(tmp_path, "---\ntype: odd\n---\nText", hint="From the list")
    assert found is not None
    assert (found.title, found.category) == ("From the list", "memory")
    found = topic(tmp_path, "# Memory\n- [Debugging](debug.md)\nBuilds need pnpm.\n", "MEMORY.md")
    assert found is not None
    assert "pnpm" in found.body
    assert "Debugging" not in found.body
    assert topic(tmp_path, "# Memory\n- [Debugging](debug.md)\n", "MEMORY.md") is None
    (tmp_path / "MEMORY.md").write_text(
        "- [Debugging](debug.md) - tips\n- [Gone](gone.md)\n- [Out](../out.md)\n"
    )
    files = {"MEMORY.md": 1, "debug.md": 1}
    assert auto_memory.read_hints(str(tmp_path.resolve()), files, None) == ({"debug.md": "Debugging"}, [])


def test_auto_memory_lies_where_the_client_keeps_it(isolated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "-home-me-my-app-v1-2"
    assert auto_memory.folder("/home/me/my_app.v1 2") == f"{isolated}/.claude/projects/{name}/memory"
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/elsewhere")
    assert auto_memory.folder("/home/me/my_app.v1 2") == f"/elsewhere/projects/{name}/memory"


@pytest.mark.parametrize("relative", ["../x", "a/../../x", "/etc/passwd", ".", "", "../store-2/x"])
def test_nothing_outside_is_contained(tmp_path: Path, relative: str) -> None:
    (tmp_path / "store-2").mkdir()
    root = tmp_path.resolve() / "store"
    assert contained(str(root), relative) is None
    assert contained(str(root), "a/../b") == str(root / "b")
