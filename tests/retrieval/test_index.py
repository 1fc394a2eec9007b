"""An index follows its store, is replaced where it is unfit, and stays private."""

from __future__ import annotations

import copy
import os
import sqlite3
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from memory_store import MemoryStore, jwt_store

from judgekit import environment
from judgekit.retrieval import compiled, index, index_file, update

if TYPE_CHECKING:
    from collections.abc import Callable

    from judgekit.retrieval.index_file import Index

PROFILES = compiled.Profiles(compiled.bundled())
FRESH = "SELECT path, size, mtime, inode, hint, live, problem, id, file.title, category, file.tags, updated, "
CONTENT = f"{FRESH} text.title, text.tags, body, parts FROM file LEFT JOIN text ON number = text.rowid"


def opened(store: MemoryStore, **options: Any) -> Index:  # noqa: ANN401 - as open_index takes them
    return index.open_index(str(store.root.resolve()), PROFILES, **options)


def content(found: Index) -> list[Any]:
    live = found.connection.execute("SELECT path FROM file WHERE live").fetchall()
    index.recheck(found, [path for (path,) in live])
    terms = found.connection.execute("SELECT term, entries FROM term").fetchall()
    rows = [*sorted(found.connection.execute(CONTENT).fetchall()), sorted(terms), found.notes()]
    found.close()
    return rows


def fresh(store: MemoryStore) -> list[Any]:
    return content(update.in_memory(str(store.root.resolve()), PROFILES))


def files() -> list[Path]:
    folder = Path(environment.cache_home(), index_file.FOLDER)
    return sorted(path for path in folder.rglob("*") if path.is_file())


def databases() -> list[Path]:
    return [file for file in files() if file.suffix == ".sqlite"]


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an hour pass between the last change of the store and every look at it."""
    monkeypatch.setattr(index_file, "clock", lambda: time.time_ns() + 3600 * 10**9)


def spoil(store: MemoryStore) -> None:
    (store.root / "decisions" / "jwt.json").write_text("{")


def relist(store: MemoryStore) -> None:
    spoil(store)
    store.lines = []
    store.list("Renamed in the index", ".claude/memory/decisions/jwt.json")
    store.write_index()


def unlist(store: MemoryStore) -> None:
    spoil(store)
    (store.root / "index.md").unlink()


def lie(store: MemoryStore) -> None:
    store.list("Lie", "decisions/none.json")
    store.write_index()


def rename(store: MemoryStore) -> None:
    path = store.root / "decisions" / "jwt.json"
    path.rename(path.with_name("jwt-2.json"))


def same_size(store: MemoryStore) -> None:
    path = store.root / "decisions" / "jwt.json"
    path.write_text(path.read_text().replace("JWT", "XYZ"))


CHANGES: dict[str, Callable[[MemoryStore], object]] = {
    "add": lambda store: store.add("new", "New memory", "about something"),
    "relist": relist,
    "change": lambda store: store.add("jwt", "JWT token renewal", "changed text", listed=False),
    "unlist": unlist,
    "retire": lambda store: store.add("jwt", "JWT flow", record_status="retired", listed=False),
    "lie": lie,
    "remove": lambda store: (store.root / "decisions" / "jwt.json").unlink(),
    "rename": rename,
    "spoil": spoil,
    "same size": same_size,
}


def test_an_updated_index_is_what_a_fresh_one_would_be(tmp_path: Path) -> None:
    for count, (name, step) in enumerate(CHANGES.items(), 1):
        store = jwt_store(tmp_path / name, 6)
        before = content(opened(store))
        step(store)
        after = content(opened(store))
        assert after == fresh(store), name
        assert after != before, name
        assert len(databases()) == count
    store = jwt_store(tmp_path / "all")
    for name in ("add", "relist", "change", "unlist", "retire", "lie", "remove"):
        CHANGES[name](store)
        opened(store).close()
    assert content(opened(store)) == fresh(store)


@pytest.mark.usefixtures("later")
def test_nothing_is_written_when_nothing_changed_and_only_the_owner_can_read_it(store: MemoryStore) -> None:
    opened(store).close()
    before = {path: path.read_bytes() for path in databases()}
    opened(store).close()
    assert {path: path.read_bytes() for path in databases()} == before
    held = opened(store)
    for path in files():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    cache = Path(environment.cache_home())
    for folder in (cache, cache / index_file.FOLDER, databases()[0].parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    held.close()


SPOILT: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(b"no database at all" * 1000),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:8192]),
    "other tables": lambda path: sqlite3.connect(path).execute("DROP TABLE file").connection.close(),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_damaged_index_is_replaced_by_the_next_generation(store: MemoryStore, how: str) -> None:
    whole = content(opened(store))
    (path,) = databases()
    SPOILT[how](path)
    try:
        rows = content(opened(store))
    except sqlite3.DatabaseError:  # damage that shows only where it is read
        rows = content(opened(store, anew=True))
    assert rows == whole
    (path,) = databases()
    assert path.name.endswith(".1.sqlite")
    assert content(opened(store)) == whole


@pytest.mark.parametrize("blocked", ["cache", "cache/index", None])
def test_where_nothing_can_be_kept_it_is_built_in_memory(
    store: MemoryStore, isolated: Path, monkeypatch: pytest.MonkeyPatch, blocked: str | None
) -> None:
    def refuse(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    if blocked is None:
        monkeypatch.setattr(os, "link", refuse)
    else:
        path = isolated / "judgekit" / blocked
        path.parent.mkdir(parents=True)
        path.write_text("a file where a folder should be")
    assert content(opened(store)) == fresh(store)
    assert databases() == []


def test_another_process_that_writes_is_waited_for_and_then_passed_by(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(opened(store))
    monkeypatch.setattr(index_file, "BUSY_SECONDS", 0.05)
    (path,) = databases()
    writer = sqlite3.connect(path)
    writer.execute("BEGIN IMMEDIATE")
    CHANGES["add"](store)
    assert content(opened(store)) == before
    writer.rollback()
    writer.close()
    assert content(opened(store)) == fresh(store)


def test_a_reader_of_a_replaced_index_is_not_disturbed_and_what_is_read_makes_another(
    store: MemoryStore,
) -> None:
    reader = opened(store)
    rows = reader.connection.execute(CONTENT).fetchall()
    opened(store, anew=True).close()
    assert reader.connection.execute(CONTENT).fetchall() == rows
    reader.close()
    data = copy.deepcopy(compiled.bundled())
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


def test_what_is_ignored_is_no_problem_of_the_index(store: MemoryStore) -> None:
    store.add("draft", "Draft")
    store.write_index()
    for text, size in (("draft.json\n", 1), ("", 2)):
        (store.root / ".judgekitignore").write_text(text)
        found = opened(store)
        assert (found.notes(), found.size) == ([], size)
        found.close()


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
        found = index.open_index(str(tmp_path.resolve()), PROFILES)
        found.close()
        assert found.kind == kind, path


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("name", ["MEMORY.md", "index.md"])
def test_the_stores_own_files_are_read_anew_at_once_where_they_are_entries_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(index, "SLICE", 1)
    digests = set()
    for number in range(9):
        (tmp_path / f"{number}.md").write_text(f"# Topic {number}")
    for text in ("Builds need pnpm.", "Builds need cargo."):
        (tmp_path / name).write_text(text)
        found = index.open_index(str(tmp_path.resolve()), PROFILES)
        digests.add(found.connection.execute("SELECT digest FROM file WHERE path = ?", (name,)).fetchone())
        found.close()
    assert len(digests) == 2


@pytest.mark.usefixtures("later")
def test_everything_is_listed_anew_after_some_queries_whatever_folder_times_say(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = index_file.look

    def unchanged(path: str, *, folder: bool = False) -> index_file.Stamp | None:
        return (1, 1, 1) if folder and Path(path).is_dir() else look(path)

    monkeypatch.setattr(index_file, "look", unchanged)
    opened(store).close()
    CHANGES["add"](store)
    sizes = []
    for _ in range(index.LAP + 1):
        found = opened(store)
        sizes.append(found.size)
        found.close()
    assert (sizes[0], sizes[-1]) == (1, 2)


@pytest.mark.usefixtures("later")
def test_a_tree_of_many_folders_is_looked_at_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "FOLDERS", 4)

    def size_with(name: str, folders: range) -> int:
        for number in folders:
            path = tmp_path / f"topic-{number}" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text("# A")
        found = index.open_index(str(tmp_path.resolve()), PROFILES)
        found.close()
        return found.size

    assert size_with("a.md", range(10)) == 10
    assert max(size_with("b.md", range(0 if turn else 10)) for turn in range(11 // 4 + 1)) == 20
    assert size_with("a.md", range(10, 11)) == 21


def test_names_in_the_cache_tell_paths_apart_and_a_private_file_is_whole_or_absent(tmp_path: Path) -> None:
    paths = ("/a/b", "/a-b", "/a/b/", "/A/b", "/x" * 500, "/y" * 500)
    names = {environment.file_name_for(path) for path in paths}
    assert len(names) == 6
    assert all(len(name) < 80 for name in names)
    assert environment.file_name_for("/srv/é/\udcff").isascii()
    path = tmp_path / "file"
    for text in ("one", "two"):
        environment.write_private(str(path), text)
        assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == (text, 0o600)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    with pytest.raises(OSError, match="directory"):
        environment.write_private(str(tmp_path / "none" / "file"), "x")
