"""What each kind of store reads from its files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from memory_store import MemoryStore, listed

from judgekit.retrieval import compiled
from judgekit.retrieval.sources import Unreadable, auto_memory, claude_memory, contained, markdown

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.retrieval.sources import Entry

PROFILES = compiled.Profiles(compiled.bundled())
PROFILE = PROFILES.by_kind["claude-memory"]
JWT = "decisions/jwt.json"


def read(store: MemoryStore, relative: str = JWT, hint: str | None = None) -> Entry | None:
    return claude_memory.read(str(store.root.resolve()), relative, PROFILE, hint)


def entry(store: MemoryStore, relative: str = JWT, hint: str | None = None) -> Entry:
    found = read(store, relative, hint)
    assert found is not None
    return found


def hints(store: MemoryStore) -> tuple[dict[str, str], list[str]]:
    files = listed(store.root, claude_memory.NAME).files
    return claude_memory.read_hints(str(store.root.resolve()), files, lambda _: False)


def test_a_record_becomes_an_entry(store: MemoryStore) -> None:
    found = entry(store)
    assert (found.id, found.title, found.category) == ("jwt", "JWT token refresh flow", "decision")
    assert found.tags == ("auth", "jwt")
    assert "rotating cookie" in found.body
    assert found.updated == 1768467600.0
    assert found.problem is None


@pytest.mark.parametrize(
    ("category", "content", "words"),
    [
        (
            "session_summary",
            {"goal": "alpha", "completed": ["beta"], "key_changes": ["gamma"]},
            "alpha beta gamma",
        ),
        ("decision", {"decision": "alpha", "consequences": ["beta", "gamma"]}, "alpha beta gamma"),
        (
            "runbook",
            {"steps": [{"action": "alpha", "note": "beta"}], "root_cause": "gamma"},
            "alpha beta gamma",
        ),
        ("constraint", {"rule": "alpha", "workarounds": ["beta"]}, "alpha beta"),
        ("tech_debt", {"description": "alpha", "acceptance_criteria": ["beta"]}, "alpha beta"),
        ("preference", {"topic": "alpha", "value": "beta", "reason": "gamma"}, "alpha beta gamma"),
        ("decision", {"decision": 7, "context": None, "rationale": [1, ["beta"]], "other": "x"}, "beta"),
        ("decision", "no object", ""),
    ],
)
def test_the_body_is_the_categorys_fields(
    store: MemoryStore, category: str, content: object, words: str
) -> None:
    path = store.add("other", "Other", category=category, content=content)
    assert entry(store, f"{path.parent.name}/other.json").body.split() == words.split()


@pytest.mark.parametrize("status", ["retired", "archived", "Retired", "draft", 3, None])
def test_only_active_records_come_out(store: MemoryStore, status: object) -> None:
    store.add("old", "Old", record_status=status)
    assert read(store, "decisions/old.json", "Old|") is None


BROKEN = {
    "empty": b"",
    "cut off": b'{"record_status": "active", ',
    "no JSON": b"{",
    "no object": b"[1]",
    "binary": b"\x00\x01\x02",
    "not UTF-8": '{"title": "caf\xe9"}'.encode("latin-1"),
    "deep": b"[" * 100_000,
    "long": b'{"title": "' + b"x" * 300_000,
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_broken_record_is_found_by_its_line(store: MemoryStore, content: bytes) -> None:
    (store.root / JWT).write_bytes(content)
    found = entry(store, hint="JWT token refresh flow|auth,jwt")
    assert (found.title, found.tags, found.category) == (
        "JWT token refresh flow",
        ("auth", "jwt"),
        "decision",
    )
    assert found.problem is not None
    assert found.problem.endswith("found by title only")
    with pytest.raises(Unreadable):
        read(store)


STATUS = '"record_status": "retired"'


@pytest.mark.parametrize(
    "content",
    [
        f"{{{STATUS}".encode(),
        f"{{{STATUS}}}".encode("utf-16"),
        f'{{"title": "caf\xe9", {STATUS}}}'.encode("latin-1"),
        b'{"record_status" :\n "archived", ',
        b"{'record_status': 'retired'}",
        b'{"record_status": ',
        b'{"record_status": "active", "content": {}, "record_status": "retired"',
        b'{"title": "' + b"x" * 300_000 + b'", "record_status": "retired", ',
    ],
)
def test_a_broken_record_that_says_it_is_retired_never_comes_out(store: MemoryStore, content: bytes) -> None:
    (store.root / JWT).write_bytes(content)
    with pytest.raises(Unreadable):
        read(store, hint="JWT token refresh flow|auth,jwt")


def test_of_a_long_record_the_beginning_is_searched(store: MemoryStore) -> None:
    store.add("long", "Long", "alpha " + "x" * PROFILE.max_bytes + " omega")
    found = entry(store, "decisions/long.json", "Another title|")
    assert (found.title, found.problem, len(found.body)) == ("Long", None, PROFILE.max_bytes)
    assert found.body.startswith("alpha ")
    assert "omega" not in found.body


def test_a_record_too_large_to_look_into_never_comes_out(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claude_memory, "MAX_RECORD", 400_000)
    store.add("huge", "Huge", "x" * 400_000)
    with pytest.raises(Unreadable, match="larger than 400,000 bytes"):
        read(store, "decisions/huge.json", "Huge|")


@pytest.mark.parametrize("title", [None, "", "  ", 7, ["x"]])
def test_a_record_without_a_title_takes_the_lines(store: MemoryStore, title: object) -> None:
    path = store.add("odd", "replaced")
    path.write_text(json.dumps({"title": title}))
    assert entry(store, "decisions/odd.json", "From the index|").title == "From the index"
    assert entry(store, "decisions/odd.json").title == "odd"


@pytest.mark.parametrize(
    ("moment", "seconds"),
    [
        ("2026-01-15T09:00:00Z", 1768467600.0),
        ("2026-01-15T10:00:00+01:00", 1768467600.0),
        ("2026-01-15T09:00:00", 1768467600.0),
        ("2026-01-15", 1768435200.0),
        ("soon", 0.0),
        (12, 0.0),
    ],
)
def test_moments_are_read_as_utc(store: MemoryStore, moment: object, seconds: float) -> None:
    store.add("dated", "Dated", updated_at=moment)
    assert entry(store, "decisions/dated.json").updated == seconds


def test_lines_with_and_without_tags_are_read(store: MemoryStore) -> None:
    store.add("plain", "A -> B [sic]", tags=[])
    found, notes = hints(store.write_index())
    assert found == {JWT: "JWT token refresh flow|auth,jwt", "decisions/plain.json": "A -> B [sic]|"}
    assert notes == []


@pytest.mark.parametrize(
    "path",
    [
        ".claude/memory/decisions/gone.json",
        "../../etc/passwd",
        ".claude/memory/../../../decisions/jwt.json",
        "/etc/passwd",
        "decisions/../../jwt.json",
        "decisions",
        "decisions/ jwt.json",
    ],
)
def test_a_line_that_lies_is_reported_and_not_followed(store: MemoryStore, path: str) -> None:
    store.list("Lie", path)
    found, notes = hints(store.write_index())
    assert found == {JWT: "JWT token refresh flow|auth,jwt"}
    (note,) = notes
    assert note.endswith("not a record of this store; ignored")


@pytest.mark.parametrize("content", [b"\x00", b"\xff\xfe"])
def test_an_index_that_is_no_text_is_reported_and_the_records_stand(
    store: MemoryStore, content: bytes
) -> None:
    (store.root / "index.md").write_bytes(content)
    found, notes = hints(store)
    assert found == {}
    assert notes[0].endswith("using only the records")
    assert entry(store).title == "JWT token refresh flow"


def test_an_index_that_is_a_link_out_is_not_read(store: MemoryStore, tmp_path: Path) -> None:
    (tmp_path / "index.md").write_text("- [DECISION] From outside -> decisions/jwt.json")
    (store.root / "index.md").unlink()
    (store.root / "index.md").symlink_to(tmp_path / "index.md")
    found, notes = hints(store)
    assert found == {}
    assert notes == ["index.md: outside its store; using only the records"]


def test_many_lies_are_one_line(store: MemoryStore) -> None:
    for number in range(20):
        store.list("Lie", f".claude/memory/decisions/gone-{number}.json")
    _, notes = hints(store.write_index())
    assert len(notes) == 1
    assert "and 19 more" in notes[0]


@pytest.mark.parametrize("text", ["", "no list", "- [X]", "- [X] ->", "- [A](b.md)", "\x00\x01", "- [] -> x"])
def test_an_index_of_another_shape_is_no_crash(store: MemoryStore, text: str) -> None:
    (store.root / "index.md").write_text(text)
    assert hints(store)[0] == {}


@pytest.mark.parametrize("separator", ["\u2028", "\x85", "\v", "\x1c"])
def test_a_line_of_the_index_ends_at_a_line_feed(store: MemoryStore, separator: str) -> None:
    text = f"- [A] One{separator}- [A] Two -> b.json -> decisions/a.json\r\n- [A] Three -> decisions/c.json"
    (store.root / "index.md").write_bytes(text.encode())
    files = {"decisions/a.json": 1, "decisions/c.json": 1}
    found, notes = claude_memory.read_hints(str(store.root.resolve()), files, lambda _: False)
    assert ([*found], notes) == ([*files], [])


def test_strings_come_in_their_order_however_deep() -> None:
    content = {"a": ["one", {"x": ["two", ["three"]], "y": "four"}, 5, None], "b": "five"}
    assert (
        claude_memory.body_text({"content": content}, ["a", "b", "c"], 100) == "one\ntwo\nthree\nfour\nfive"
    )
    assert claude_memory.body_text({"content": content}, ["a", "b"], 9) == "one\ntwo\nt"


def document(folder: Path, text: str | bytes, name: str = "a.md") -> Entry:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    entry = markdown.read(str(folder.resolve()), name, PROFILES.by_kind["markdown"], None)
    assert entry is not None
    return entry


def topic(folder: Path, text: str, name: str = "topic.md", hint: str | None = None) -> Entry | None:
    (folder / name).write_text(text, encoding="utf-8")
    return auto_memory.read(str(folder.resolve()), name, PROFILES.by_kind["claude-auto-memory"], hint)


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
    assert 0 < len(entry.body) <= PROFILES.by_kind["markdown"].max_bytes
    assert entry.problem is None


@pytest.mark.parametrize("status", ["status: retired", "record_status: Archived"])
def test_a_retired_document_does_not_come_out(tmp_path: Path, status: str) -> None:
    (tmp_path / "a.md").write_text(f"---\n{status}\n---\nText")
    assert markdown.read(str(tmp_path.resolve()), "a.md", PROFILES.by_kind["markdown"], None) is None


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
    found, notes = auto_memory.read_hints(str(tmp_path.resolve()), {"MEMORY.md": 1, "debug.md": 1}, None)
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


@pytest.mark.parametrize("relative", ["../x", "a/../../x", "/etc/passwd", ".", "", "../store-2/x"])
def test_nothing_outside_is_contained(tmp_path: Path, relative: str) -> None:
    (tmp_path / "store-2").mkdir()
    root = tmp_path.resolve() / "store"
    assert contained(str(root), relative) is None
    assert contained(str(root), "a/../b") == str(root / "b")
