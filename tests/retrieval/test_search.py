"""Search as its callers see it, and the index behind it: it follows its store and stays private."""

from __future__ import annotations

import copy
import json
import os
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from indexing import CONTENT, content, databases, opened
from memory_store import MemoryStore, jwt_store

from judgekit import environment, outputs
from judgekit.retrieval import compiled, index, index_file
from judgekit.retrieval import search as api

if TYPE_CHECKING:
    from judgekit.retrieval.search import RankedCandidates


ROOT = ".claude/memory"
QUESTION = "How do we refresh the JWT?"


def search(
    store: MemoryStore | Path,
    text: str = QUESTION,
    *roots: str,
    **options: Any,  # noqa: ANN401 - as search takes them
) -> RankedCandidates:
    project = store if isinstance(store, Path) else store.project
    return api.search(text, roots or [ROOT], project=str(project), limit=10, **options)


def ids(ranked: RankedCandidates) -> list[str]:
    return [candidate.id for candidate in ranked.candidates]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("fillers", [0, 2, 29, 499])
def test_the_memory_that_answers_is_high_in_stores_of_any_size(
    tmp_path: Path, fillers: int
) -> None:
    store = jwt_store(tmp_path, fillers)
    ranked = search(store)
    assert (ranked.candidates[0].id, ranked.candidates[0].confidence_label) == ("jwt", "high")
    assert [candidate.confidence_label for candidate in ranked.candidates[1:]].count("high") == 0
    assert (ranked.notes, ranked.fallback_reason) == ([], None)
    for text in (
        "Write a haiku about the sea",
        "What is the weather in Paris?",
        "thanks, that looks good",
    ):
        assert not any(candidate.worth_mentioning for candidate in search(store, text).candidates)
    if fillers == 29:
        assert (
            len(
                api.search(
                    "invoice avatar backup", [ROOT], project=str(tmp_path), limit=4
                ).candidates
            )
            == 4
        )
        lot = search(
            store, "Should the cookie of the Kubernetes ingress carry the Zipkin trace context?"
        )
        assert (ids(lot)[0], lot.candidates[0].confidence_label) == ("jwt", "low")


def test_an_edit_in_place_that_keeps_size_and_time_is_seen(store: MemoryStore) -> None:
    record = store.root / "decisions" / "jwt.json"
    os.utime(record, (1, 1))  # long ago, so that its stamp is trusted
    assert ids(search(store)) == ["jwt"]
    time.sleep(0.02)  # a tick of the file system
    text = record.read_text()
    with record.open("r+") as file:
        file.write(text.replace('"active"', '"retird"'))
    os.utime(record, (1, 1))
    assert '"retird"' in record.read_text()
    assert len(record.read_text()) == len(text)
    assert ids(search(store)) == []


def test_no_record_outside_comes_out_and_broken_ones_are_named(
    store: MemoryStore, tmp_path: Path
) -> None:
    secret = tmp_path / "outside" / "secret.json"
    write(
        secret, json.dumps({"title": "JWT refresh secret", "content": {"context": "refresh JWT"}})
    )
    (store.root / "decisions" / "linked.json").symlink_to(secret)
    ranked = search(store)
    assert ids(ranked) == ["jwt"]
    assert any("outside" in note for note in ranked.notes)
    for number, raw in enumerate([b"{", b"\x00", b"\xff", b"[]", b'"x"']):
        (store.root / "decisions" / f"broken-{number}.json").write_bytes(raw)
    ranked = search(store)
    assert ids(ranked) == ["jwt"]
    assert len(ranked.notes) == api.MAX_NOTES + 1
    assert ranked.notes[-1] == "and 3 more files with problems"
    assert all("\n" not in note for note in ranked.notes)


def test_a_folder_of_markdown_and_the_clients_own_memory(tmp_path: Path, isolated: Path) -> None:
    write(tmp_path / "docs" / "auth" / "refresh.md", "# Refreshing a JWT\n\nAsk for a new one.")
    write(tmp_path / "docs" / "other.md", "# Colours\n\nBlue.")
    (candidate,) = search(tmp_path, QUESTION, "docs").candidates
    assert (candidate.id, candidate.path) == ("auth/refresh.md", "docs/auth/refresh.md")
    assert (candidate.title, candidate.category) == ("Refreshing a JWT", "document")
    assert api.read_body(candidate, 1000).startswith("# Refreshing a JWT")
    folder = Path(api.resolve_root("claude:auto", str(tmp_path)))
    assert folder.is_relative_to(isolated / ".claude" / "projects")
    write(folder / "MEMORY.md", "- [JWT refresh](jwt.md) - how\n")
    write(folder / "jwt.md", "---\nname: JWT refresh\ntype: project\n---\nRotating cookies.")
    for root in ("claude:auto", str(folder)):
        (candidate,) = search(tmp_path, QUESTION, root, trusted=[root]).candidates
        assert (candidate.id, candidate.title, candidate.category) == (
            "jwt",
            "JWT refresh",
            "project",
        )
        assert candidate.path == str(folder.resolve() / "jwt.md")


def test_roots_may_start_at_home_or_be_links_inside(store: MemoryStore, isolated: Path) -> None:
    assert api.resolve_root("~/notes", "/p") == str(isolated / "notes")
    (store.project / "linked").symlink_to(store.root)
    assert ids(search(store, QUESTION, "linked")) == ["jwt"]
    (isolated / "alias").symlink_to(store.project)
    assert ids(search(isolated / "alias", QUESTION, "\0", ROOT)) == ["jwt"]


LEADS_OUT = (
    "outside the project, so it is not searched; only your own configuration may name such a root"
)


@pytest.mark.parametrize(
    ("root", "by_trust"),
    [
        (ROOT, False),  # named for every project: what it is in this one, the project says
        ("docs", False),
        ("./docs", False),
        ("../clone-2/.claude/memory", True),
        ("docs/../../clone-2/.claude/memory", True),
        ("claude:auto", True),
        ("~/notes", True),
        ("/", True),
    ],
)
def test_roots_that_lead_out_need_trust(
    tmp_path: Path, isolated: Path, root: str, *, by_trust: bool
) -> None:
    other, project = jwt_store(tmp_path / "clone-2"), tmp_path / "clone"
    (project / ".claude").mkdir(parents=True)
    own = Path(api.resolve_root("claude:auto", str(project)))
    own.parent.mkdir(parents=True)
    for link in (project / ROOT, project / "docs", own, isolated / "notes"):
        link.symlink_to(other.root)
    root = str(other.root) if root == "/" else root
    ranked = search(project, QUESTION, root)
    assert (ranked.candidates, ranked.notes) == ([], [f"{root}: {LEADS_OUT}"])
    trusted = search(project, QUESTION, root, trusted=[root])
    assert (ids(trusted), trusted.notes) == (
        (["jwt"], []) if by_trust else ([], [f"{root}: {LEADS_OUT}"])
    )


def test_a_folder_above_the_store_that_leads_out_is_no_way_round(tmp_path: Path) -> None:
    other = jwt_store(tmp_path / "other")
    (tmp_path / "clone").mkdir()
    (tmp_path / "clone" / ".claude").symlink_to(other.project / ".claude")
    assert ids(search(tmp_path / "clone")) == []


def test_several_stores_are_merged(store: MemoryStore) -> None:
    write(store.project / "docs" / "jwt.md", "# JWT refresh\n\nBy a cookie.")
    write(store.project / "docs" / "inner" / "refresh.md", "# Refresh of the screen\n\nF5.")
    alone = {
        root: {
            Path(hit.file).name: hit.confidence for hit in search(store, QUESTION, root).candidates
        }
        for root in ("docs", "docs/inner")
    }
    for roots in (
        ("docs", "docs/inner"),
        ("docs/inner", "docs"),
        ("docs", "./docs", "docs", "missing"),
    ):
        hits = search(store, QUESTION, *roots).candidates
        assert sorted(Path(hit.file).name for hit in hits) == ["jwt.md", "refresh.md"]
        assert hits == sorted(hits, key=lambda hit: -hit.confidence)
        if "docs/inner" in roots:
            (inner,) = [hit for hit in hits if hit.file.endswith("refresh.md")]
            assert inner.confidence == max(found["refresh.md"] for found in alone.values())


def test_a_body_is_read_anew_and_checked_again(store: MemoryStore, tmp_path: Path) -> None:
    (candidate,) = search(store).candidates
    assert api.read_body(candidate, 13) == "Access tokens"
    store.add("jwt", "JWT token refresh flow", "changed", listed=False)
    assert api.read_body(candidate, 100) == "changed"
    store.add("jwt", "JWT", "x", listed=False, record_status="retired")
    assert api.read_body(candidate, 100) == ""
    path = Path(candidate.file)
    path.unlink()
    assert api.read_body(candidate, 100) == ""
    write(tmp_path / "outside.json", json.dumps({"content": {"context": "secret"}}))
    path.symlink_to(tmp_path / "outside.json")
    assert api.read_body(candidate, 100) == ""


def test_a_projects_profile_is_used_and_the_store_is_left_untouched(store: MemoryStore) -> None:
    before = {path: path.stat().st_mtime_ns for path in store.project.rglob("*")}
    data = copy.deepcopy(compiled.get_bundled_data())
    data["profiles"]["claude-memory"]["labels"] = {"high": 1.0, "medium": 1.0, "mention": 1.0}
    (candidate,) = search(store, profiles=compiled.Profiles(data), snippets=True).candidates
    assert (candidate.confidence_label, candidate.worth_mentioning) == ("low", False)
    assert {path: path.stat().st_mtime_ns for path in store.project.rglob("*")} == before
    store.root.chmod(0o500)
    try:
        assert ids(search(store)) == ["jwt"]
    finally:
        store.root.chmod(0o700)


@pytest.mark.parametrize("scorer", ["fts5", "keyword"])
def test_a_damaged_record_is_never_high(store: MemoryStore, scorer: str) -> None:
    (candidate,) = search(store, scorer=scorer).candidates
    assert (candidate.is_damaged, candidate.confidence_label) == (False, "high")
    damaged = Path(candidate.file).rename(store.root / "decisions" / "jwt-token-refresh-flow.json")
    damaged.write_bytes(b"{")
    (candidate,) = search(store, scorer=scorer).candidates
    found = (candidate.is_damaged, candidate.confidence_label, candidate.worth_mentioning)
    assert found == (True, "medium", True)


def test_a_passage_is_text_as_it_was_written_from_nowhere_outside_the_store(tmp_path: Path) -> None:
    store, query = MemoryStore(tmp_path / "project"), "refreshing the JWT"
    body = "Access tokens live briefly. " * 40 + "They were refreshed by a rotating cookie."
    store.add("jwt", "JWT token refresh", body)
    store.add("title", "JWT signing", "Keys are kept in the vault.")
    store.write_index()
    passages = {hit.id: hit.snippet for hit in search(store, query, snippets=True).candidates}
    assert "were refreshed by a rotating cookie." in passages["jwt"]
    assert passages["title"] == "Keys are kept in the vault."
    assert all(len(passage) <= api.SNIPPET_CHARS for passage in passages.values())
    found = search(store, query).candidates  # they can be made later
    assert [candidate.snippet for candidate in found] == ["", ""]
    made = api.list_passages(query, found)
    assert [passage for passage, _ in made] == [passages[candidate.id] for candidate in found]
    assert all(
        text == api.read_body(hit, 10_000) for hit, (_, text) in zip(found, made, strict=True)
    )
    assert api.list_passages("", found)[0][0].startswith(
        "Access tokens"
    )  # without terms the beginning
    (tmp_path / "outside.json").write_bytes((store.root / found[0].relative_path).read_bytes())
    (store.root / "decisions" / "link.json").symlink_to(tmp_path / "outside.json")
    out = ("../../../outside.json", "decisions/../../../../outside.json")
    for found[0].relative_path in (*out, "decisions/link.json", "decisions/gone.json"):
        assert api.list_passages(query, found[:1]) == [("", "")]


@pytest.mark.usefixtures("later")
def test_nothing_is_written_when_nothing_changed_and_only_the_owner_can_read_it(
    store: MemoryStore,
) -> None:
    opened(store).close()
    before = {path: path.read_bytes() for path in databases()}
    opened(store).close()
    assert {path: path.read_bytes() for path in databases()} == before
    held = opened(store)
    for path in databases()[0].parent.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    cache = Path(environment.cache_home())
    for folder in (cache, cache / environment.INDEXES.name, databases()[0].parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    held.close()


def test_a_reader_of_a_replaced_index_is_not_disturbed(store: MemoryStore) -> None:
    reader = opened(store)
    rows = reader.connection.execute(CONTENT).fetchall()
    opened(store, anew=True).close()
    assert reader.connection.execute(CONTENT).fetchall() == rows
    reader.close()
    data = copy.deepcopy(compiled.get_bundled_data())
    data["profiles"]["claude-memory"]["categories"]["decision"]["body"] = ["rationale"]
    before = content(opened(store))
    assert content(index.open_index(str(store.root.resolve()), compiled.Profiles(data))) != before
    assert content(opened(store)) == before


def test_what_a_killed_process_left_is_swept_away_after_a_while(store: MemoryStore) -> None:
    opened(store).close()
    (path,) = databases()
    old, young, other = (path.with_name(name) for name in ("1.making", "2.making", "v1.0.sqlite"))
    for each in (old, young, other):
        each.write_bytes(b"half")
    os.utime(old, (1, 1))
    os.utime(other, (1, 1))
    opened(store, anew=True).close()
    assert [each.exists() for each in (old, young, other)] == [False, True, False]


def test_the_kind_of_store_is_found_anew_when_it_changes(tmp_path: Path) -> None:
    record = tmp_path / "decisions" / "x.json"
    steps: list[tuple[Path, str | None, str]] = [
        (tmp_path / "a.md", "# A", "markdown"),
        (tmp_path / "MEMORY.md", "- [A](a.md)", "claude-auto-memory"),
        (record.with_name("x.txt"), "", "claude-auto-memory"),
        (record, '{"title": "X"}', "claude-memory"),
        (record, None, "claude-auto-memory"),
        (tmp_path / "MEMORY.md", None, "markdown"),
        (tmp_path / "index.md", "- [DECISION] X -> decisions/x.json", "claude-memory"),
        (tmp_path / "index.md", "# Docs", "markdown"),
    ]
    for path, text, kind in steps:
        path.parent.mkdir(exist_ok=True)
        path.unlink() if text is None else path.write_text(text)
        found = opened(tmp_path)
        found.close()
        assert found.kind == kind, path


@pytest.mark.usefixtures("later")
def test_all_is_listed_anew_after_some_queries(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = index_file.read_stamp

    def unchanged(path: str, *, folder: bool = False) -> index_file.Stamp | None:
        return (1, 1, 1) if folder and Path(path).is_dir() else look(path)

    monkeypatch.setattr(index_file, "read_stamp", unchanged)
    opened(store).close()
    store.add("new", "New memory", "about something")
    sizes = []
    for _ in range(index.QUERIES_PER_LAP + 1):
        found = opened(store)
        sizes.append(found.entry_count)
        found.close()
    assert (sizes[0], sizes[-1]) == (1, 2)


@pytest.mark.usefixtures("later")
def test_a_tree_of_many_folders_is_looked_at_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "FOLDERS_PER_QUERY", 4)

    def size_with(name: str, folders: range) -> int:
        for number in folders:
            path = tmp_path / f"topic-{number}" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text("# A")
        found = opened(tmp_path)
        found.close()
        return found.entry_count

    assert size_with("a.md", range(10)) == 10
    assert max(size_with("b.md", range(0 if turn else 10)) for turn in range(11 // 4 + 1)) == 20
    assert size_with("a.md", range(10, 11)) == 21


def test_the_cache_is_private_and_tells_paths_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = ("/a/b", "/a-b", "/a/b/", "/A/b", "/x" * 500, "/y" * 500)
    names = {environment.make_file_name(path) for path in paths}
    assert (len(names), all(len(name) < 80 for name in names)) == (6, True)
    assert environment.make_file_name("/srv/é/\udcff").isascii()
    monkeypatch.chdir(tmp_path)
    Path("shared").mkdir(mode=0o755)
    for _ in range(2):
        assert environment.make_private_folder("shared/home/cache/") == "shared/home/cache/"
        outputs.write_atomically("file", "x", private=True)
    made = ("shared", "shared/home", "shared/home/cache", "file")
    assert [stat.S_IMODE(Path(each).stat().st_mode) for each in made] == [
        0o755,
        0o700,
        0o700,
        0o600,
    ]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "shared"]
    with pytest.raises(OSError, match="file"):
        environment.make_private_folder("file/inner")
