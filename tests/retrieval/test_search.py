"""Search as its callers see it: `judgekit.retrieval.search`."""

from __future__ import annotations

import copy
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from memory_store import MemoryStore, jwt_store

from judgekit.retrieval import compiled, index_file, update
from judgekit.retrieval import search as api

if TYPE_CHECKING:
    from judgekit.retrieval.search import RankedCandidates

ROOT = ".claude/memory"
QUESTION = "How do we refresh the JWT?"


def search(store: MemoryStore, text: str = QUESTION, **options: Any) -> RankedCandidates:  # noqa: ANN401 - as search takes them
    return api.search(text, options.pop("roots", [ROOT]), project=str(store.project), limit=10, **options)


def ids(ranked: RankedCandidates) -> list[str]:
    return [candidate.id for candidate in ranked.candidates]


@pytest.mark.parametrize("fillers", [0, 2, 29, 499])
def test_the_memory_that_answers_is_high_in_stores_of_any_size(tmp_path: Path, fillers: int) -> None:
    ranked = search(jwt_store(tmp_path, fillers))
    first = ranked.candidates[0]
    assert (first.id, first.confidence_label) == ("jwt", "high")
    assert [candidate.confidence_label for candidate in ranked.candidates[1:]].count("high") == 0
    assert (ranked.notes, ranked.fallback) == ([], None)


@pytest.mark.parametrize("fillers", [0, 2, 29, 499])
@pytest.mark.parametrize(
    "prompt", ["Write a haiku about the sea", "What is the weather in Paris?", "thanks, that looks good"]
)
def test_an_unrelated_prompt_finds_nothing_worth_mentioning(
    tmp_path: Path, fillers: int, prompt: str
) -> None:
    ranked = search(jwt_store(tmp_path, fillers), prompt)
    assert not any(candidate.worth_mentioning for candidate in ranked.candidates)


def test_the_best_of_a_bad_lot_is_low(tmp_path: Path) -> None:
    store = jwt_store(tmp_path, 8)
    ranked = search(store, "Should the cookie of the Kubernetes ingress carry the Zipkin trace context?")
    assert ids(ranked)[0] == "jwt"
    assert ranked.candidates[0].confidence_label == "low"


def test_a_candidate_says_all_that_callers_print(store: MemoryStore) -> None:
    (candidate,) = search(store, snippets=True).candidates
    assert (candidate.id, candidate.title, candidate.category) == (
        "jwt",
        "JWT token refresh flow",
        "decision",
    )
    assert candidate.tags == ("auth", "jwt")
    assert candidate.path == ".claude/memory/decisions/jwt.json"
    assert candidate.file == str(store.root.resolve() / "decisions" / "jwt.json")
    assert candidate.root == str(store.root.resolve())
    assert "fifteen minutes" in candidate.snippet
    assert candidate.bm25 > 0
    assert 0 < candidate.confidence < 1


def test_what_stands_in_the_body_alone_is_found_with_less_confidence(store: MemoryStore) -> None:
    by_body = search(store, "rotating cookie").candidates[0]
    by_title = search(store, "refresh token").candidates[0]
    assert by_body.id == by_title.id == "jwt"
    assert by_body.confidence < by_title.confidence


def test_a_missing_and_an_empty_store_are_silent(tmp_path: Path) -> None:
    assert api.search(QUESTION, [ROOT], project=str(tmp_path), limit=5).candidates == []
    empty = MemoryStore(tmp_path / "empty")
    for store in (empty, empty.write_index()):
        ranked = search(store)
        assert (ranked.candidates, ranked.notes) == ([], [])


@pytest.mark.parametrize("prompt", ["", "the of and", "🙂", '"', "\ud800"])
def test_a_prompt_without_terms_finds_nothing(store: MemoryStore, prompt: str) -> None:
    assert search(store, prompt).candidates == []


def test_changes_are_seen_by_the_next_search(store: MemoryStore) -> None:
    assert ids(search(store)) == ["jwt"]
    store.add("second", "Refresh of the JWT signing keys")
    assert set(ids(search(store))) == {"jwt", "second"}
    (store.root / "decisions" / "jwt.json").rename(store.root / "decisions" / "renamed.json")
    assert set(ids(search(store))) == {"renamed", "second"}
    (store.root / "decisions" / "second.json").unlink()
    assert ids(search(store)) == ["renamed"]


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


def test_a_record_outside_never_comes_out(store: MemoryStore, tmp_path: Path) -> None:
    secret = tmp_path / "outside" / "secret.json"
    secret.parent.mkdir()
    secret.write_text(json.dumps({"title": "JWT refresh secret", "content": {"context": "refresh JWT"}}))
    (store.root / "decisions" / "linked.json").symlink_to(secret)
    for path in ("../../../outside/secret.json", str(secret), ".claude/memory/decisions/linked.json"):
        store.list("JWT refresh secret", path)
    ranked = search(store.write_index())
    assert ids(ranked) == ["jwt"]
    assert any("outside" in note for note in ranked.notes)
    assert any("not a record of this store; ignored" in note for note in ranked.notes)


def test_broken_files_are_named_and_the_rest_is_found(store: MemoryStore) -> None:
    for number, content in enumerate([b"{", b"\x00", b"\xff", b"[]", b'"x"']):
        (store.root / "decisions" / f"broken-{number}.json").write_bytes(content)
    ranked = search(store)
    assert ids(ranked) == ["jwt"]
    assert len(ranked.notes) == api.MAX_NOTES + 1
    assert ranked.notes[-1] == "and 2 more files with problems"
    assert all("\n" not in note for note in ranked.notes)


def test_without_fts5_titles_and_tags_are_matched(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update, "LAYOUT", ["CREATE VIRTUAL TABLE text USING fts5_that_is_missing(a)"])
    ranked = search(store)
    assert ids(ranked) == ["jwt"]
    assert ranked.fallback == "keyword"
    assert len(ranked.notes) == 1
    assert "titles and tags only" in ranked.notes[0]


def test_without_sqlite_titles_and_tags_are_matched(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "sqlite", None)
    assert not index_file.available()
    assert search(store).fallback == "keyword"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_a_folder_of_markdown(tmp_path: Path) -> None:
    write(tmp_path / "docs" / "auth" / "refresh.md", "# Refreshing a JWT\n\nAsk for a new one.")
    write(tmp_path / "docs" / "other.md", "# Colours\n\nBlue.")
    (candidate,) = api.search(QUESTION, ["docs"], project=str(tmp_path), limit=5, snippets=True).candidates
    assert (candidate.id, candidate.path) == ("auth/refresh.md", "docs/auth/refresh.md")
    assert (candidate.title, candidate.category) == ("Refreshing a JWT", "document")
    assert api.body(candidate, 1000).startswith("# Refreshing a JWT")


def test_the_clients_own_memory(tmp_path: Path, isolated: Path) -> None:
    project = tmp_path / "app"
    project.mkdir()
    folder = Path(api.resolve("claude:auto", str(project)))
    assert folder.is_relative_to(isolated / ".claude" / "projects")
    write(folder / "MEMORY.md", "- [JWT refresh](jwt.md) - how\n")
    write(folder / "jwt.md", "---\ntype: project\n---\nRotating cookies.")
    for root in ("claude:auto", str(folder)):
        (candidate,) = api.search(QUESTION, [root], project=str(project), limit=5, trusted=[root]).candidates
        assert (candidate.id, candidate.title, candidate.category) == ("jwt", "JWT refresh", "project")
        assert candidate.path == str(folder.resolve() / "jwt.md")


def test_roots_may_start_at_home_or_be_absolute(store: MemoryStore, isolated: Path) -> None:
    assert api.resolve("~/notes", "/p") == str(isolated / "notes")
    assert api.resolve("/abs/../x", "/p") == "/x"
    assert api.resolve("a/b", "/p") == "/p/a/b"
    assert ids(search(store, roots=[str(store.root)])) == ["jwt"]


def test_several_stores_are_merged_by_confidence(store: MemoryStore) -> None:
    write(store.project / "docs" / "a.md", "# The cookie jar\n\nIt may refresh.")
    ranked = search(store, roots=["docs", ROOT, "missing"])
    assert ids(ranked) == ["jwt", "a.md"]
    assert ranked.candidates[0].confidence > ranked.candidates[1].confidence


LEADS_OUT = "outside the project, so it is not searched; only your own configuration may name such a root"


@pytest.mark.parametrize("root", [ROOT, "../clone-2/.claude/memory", "docs", "claude:auto"])
def test_a_root_that_leads_out_is_searched_only_when_the_user_named_it(tmp_path: Path, root: str) -> None:
    other = jwt_store(tmp_path / "clone-2")
    project = tmp_path / "clone"
    (project / ".claude").mkdir(parents=True)
    for link in (ROOT, "docs"):
        (project / link).symlink_to(other.root)
    own = Path(api.resolve("claude:auto", str(project)))
    own.parent.mkdir(parents=True)
    own.symlink_to(other.root)
    ranked = api.search(QUESTION, [root], project=str(project), limit=5)
    assert (ranked.candidates, ranked.notes) == ([], [f"{root}: {LEADS_OUT}"])
    trusted = api.search(QUESTION, [root], project=str(project), limit=5, trusted=[root])
    if root in (ROOT, "docs"):  # named for every project: what it is in this one, the project says
        assert (trusted.candidates, trusted.notes) == ([], [f"{root}: {LEADS_OUT}"])
    else:
        assert (ids(trusted), trusted.notes) == (["jwt"], [])


@pytest.mark.parametrize("root", ["~/notes", "/", "docs/../../other/.claude/memory", "./docs"])
def test_a_trusted_root_may_lead_out_by_what_it_says_alone(tmp_path: Path, isolated: Path, root: str) -> None:
    other = jwt_store(tmp_path / "other")
    (isolated / "notes").symlink_to(other.root)
    project = tmp_path / "clone"
    project.mkdir()
    (project / "docs").symlink_to(other.root)
    root = str(other.root) if root == "/" else root
    ranked_candidates = api.search(QUESTION, [root], project=str(project), limit=5, trusted=[root])
    assert ids(ranked_candidates) == ([] if root == "./docs" else ["jwt"])


def test_a_folder_above_the_store_that_leads_out_is_no_way_round(tmp_path: Path) -> None:
    other = jwt_store(tmp_path / "other")
    (tmp_path / "clone").mkdir()
    (tmp_path / "clone" / ".claude").symlink_to(other.project / ".claude")
    assert ids(api.search(QUESTION, [ROOT], project=str(tmp_path / "clone"), limit=5)) == []


def test_links_inside_the_project_and_to_it_are_followed(store: MemoryStore, tmp_path: Path) -> None:
    (store.project / "linked").symlink_to(store.root)
    (tmp_path / "alias").symlink_to(store.project)
    assert ids(search(store, roots=["linked"])) == ["jwt"]
    assert ids(api.search(QUESTION, [ROOT], project=str(tmp_path / "alias"), limit=5)) == ["jwt"]


def test_a_file_of_several_roots_is_listed_once_with_its_best_confidence(store: MemoryStore) -> None:
    write(store.project / "docs" / "jwt.md", "# JWT refresh\n\nBy a cookie.")
    write(store.project / "docs" / "inner" / "refresh.md", "# Refresh of the screen\n\nF5.")
    alone = {
        root: {candidate.id: candidate.confidence for candidate in search(store, roots=[root]).candidates}
        for root in ("docs", "docs/inner")
    }
    for roots in (["docs", "docs/inner"], ["docs/inner", "docs"], ["docs", "./docs", "docs"]):
        ranked = search(store, roots=roots)
        files = [Path(candidate.file).name for candidate in ranked.candidates]
        assert sorted(files) == ["jwt.md", "refresh.md"]
        if "docs/inner" in roots:
            hit = next(candidate for candidate in ranked.candidates if candidate.file.endswith("refresh.md"))
            assert hit.confidence == max(alone["docs"]["inner/refresh.md"], alone["docs/inner"]["refresh.md"])


def test_a_root_that_is_no_path_is_empty(store: MemoryStore) -> None:
    assert ids(search(store, roots=["\0", ROOT])) == ["jwt"]


def test_the_limit_holds(tmp_path: Path) -> None:
    store = jwt_store(tmp_path, 60)
    ranked = api.search("invoice avatar backup", [ROOT], project=str(store.project), limit=4)
    assert len(ranked.candidates) == 4


def test_a_body_is_read_anew_and_checked_again(store: MemoryStore, tmp_path: Path) -> None:
    (candidate,) = search(store).candidates
    assert api.body(candidate, 13) == "Access tokens"
    store.add("jwt", "JWT token refresh flow", "changed", listed=False)
    assert api.body(candidate, 100) == "changed"
    store.add("jwt", "JWT", "x", listed=False, record_status="retired")
    assert api.body(candidate, 100) == ""
    path = Path(candidate.file)
    path.unlink()
    assert api.body(candidate, 100) == ""
    (tmp_path / "outside.json").write_text(json.dumps({"content": {"context": "secret"}}))
    path.symlink_to(tmp_path / "outside.json")
    assert api.body(candidate, 100) == ""


def test_a_projects_profile_is_used(store: MemoryStore) -> None:
    data = copy.deepcopy(compiled.bundled())
    data["profiles"]["claude-memory"]["labels"] = {"high": 1.0, "medium": 1.0, "mention": 1.0}
    (candidate,) = search(store, profiles=compiled.Profiles(data)).candidates
    assert (candidate.confidence_label, candidate.worth_mentioning) == ("low", False)


def test_a_search_leaves_the_store_untouched(store: MemoryStore) -> None:
    before = {path: path.stat().st_mtime_ns for path in store.project.rglob("*")}
    search(store, snippets=True)
    assert {path: path.stat().st_mtime_ns for path in store.project.rglob("*")} == before


def test_the_store_may_be_read_only(store: MemoryStore) -> None:
    store.root.chmod(0o500)
    try:
        assert ids(search(store)) == ["jwt"]
    finally:
        store.root.chmod(0o700)


@pytest.mark.parametrize("scorer", ["fts5", "keyword"])
def test_a_damaged_record_is_never_high(store: MemoryStore, scorer: str) -> None:
    (candidate,) = search(store, scorer=scorer).candidates
    assert (candidate.damaged, candidate.confidence_label) == (False, "high")
    Path(candidate.file).write_bytes(b"{")
    (candidate,) = search(store, scorer=scorer).candidates
    assert (candidate.damaged, candidate.confidence_label, candidate.worth_mentioning) == (
        True,
        "medium",
        True,
    )


@pytest.mark.parametrize("name", ["MEMORY.md", "other.md"])
@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_document_that_is_no_text_is_at_most_medium_and_never_a_retired_one(
    tmp_path: Path, name: str, encoding: str
) -> None:
    write(tmp_path / "docs" / name, "# Colours\n\nBlue.")
    path = tmp_path / "docs" / "jwt-refresh.md"
    for status, found in (("active", ["medium"]), ("retired", []), ("archived", [])):
        path.write_bytes(f"---\nstatus: {status}\n---\n# JWT caf\xe9\n".encode(encoding))
        ranked = api.search(QUESTION, ["docs"], project=str(tmp_path), limit=5)
        assert [candidate.confidence_label for candidate in ranked.candidates] == found


@pytest.fixture
def memories(tmp_path: Path) -> MemoryStore:
    store = MemoryStore(tmp_path / "project")
    store.add(
        "jwt",
        "JWT token refresh",
        "Access tokens live briefly. " * 40 + "They were refreshed by a rotating cookie.",
    )
    store.add("title", "JWT signing", "Keys are kept in the vault.")
    store.write_index()
    return store


def test_a_passage_is_text_as_it_was_written(memories: MemoryStore) -> None:
    found = api.search(
        "refreshing the JWT", [".claude/memory"], project=str(memories.project), limit=5, snippets=True
    ).candidates
    passages = {candidate.id: candidate.snippet for candidate in found}
    assert "were refreshed by a rotating cookie." in passages["jwt"]
    assert passages["title"] == "Keys are kept in the vault."
    assert all(len(passage) <= api.SNIPPET_LIMIT for passage in passages.values())


def test_passages_can_be_made_later_and_elsewhere(memories: MemoryStore) -> None:
    query, project = "refreshing the JWT", str(memories.project)
    asked = api.search(query, [".claude/memory"], project=project, limit=5, snippets=True).candidates
    found = api.search(query, [".claude/memory"], project=project, limit=5).candidates
    assert [candidate.snippet for candidate in found] == ["", ""]
    made = api.passages(query, found)
    assert [passage for passage, _ in made] == [candidate.snippet for candidate in asked]
    assert all(body == api.body(hit, 10_000) for hit, (_, body) in zip(found, made, strict=True))
    assert api.passages("", found)[0][0].startswith("Access tokens")  # without terms the beginning


@pytest.mark.parametrize(
    "place",
    [
        "../../../outside.json",
        "decisions/link.json",
        "decisions/../../../../outside.json",
        "decisions/gone.json",
    ],
)
def test_nothing_outside_a_store_is_read_for_a_passage(memories: MemoryStore, place: str) -> None:
    query, project = "refreshing the JWT", str(memories.project)
    found = api.search(query, [".claude/memory"], project=project, limit=1).candidates
    inside = memories.root / found[0].place
    (memories.project.parent / "outside.json").write_bytes(inside.read_bytes())
    (memories.root / "decisions" / "link.json").symlink_to(memories.project.parent / "outside.json")
    found[0].place = place
    assert api.passages(query, found) == [("", "")]
