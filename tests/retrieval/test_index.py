from __future__ import annotations

import copy
import os
import sqlite3
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from judgekit import environment
from judgekit.retrieval import compiled, index, index_file, update

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_store import MemoryStore

    from judgekit.retrieval.index_file import Index

PROFILES = compiled.Profiles(compiled.bundled())
FRESH = "SELECT path, size, mtime, inode, hint, live, problem, id, file.title, category, file.tags, updated, "
CONTENT = f"{FRESH} text.title, text.tags, body, parts FROM file LEFT JOIN text ON number = text.rowid"


def opened(store: MemoryStore, *, anew: bool = False) -> Index:
    return index.open_index(str(store.root.resolve()), PROFILES, anew=anew)


def content(found: Index) -> list[Any]:
    live = found.connection.execute("SELECT path FROM file WHERE live").fetchall()
    index.recheck(found, [path for (path,) in live])
    rows = [*sorted(found.connection.execute(CONTENT).fetchall()), found.notes()]
    found.close()
    return rows


def files() -> list[Path]:
    return sorted(
        path for path in Path(environment.cache_home(), index_file.FOLDER).rglob("*") if path.is_file()
    )


def databases() -> list[Path]:
    return [file for file in files() if file.suffix == ".sqlite"]


def fresh(store: MemoryStore) -> list[Any]:
    return content(update.in_memory(str(store.root.resolve()), PROFILES))


def add(store: MemoryStore) -> None:
    store.add("new", "New memory", "about something")


def change(store: MemoryStore) -> None:
    store.add("jwt", "JWT token renewal", "changed text", listed=False)


def remove(store: MemoryStore) -> None:
    (store.root / "decisions" / "jwt.json").unlink()


def rename(store: MemoryStore) -> None:
    path = store.root / "decisions" / "jwt.json"
    path.rename(path.with_name("jwt-2.json"))


def retire(store: MemoryStore) -> None:
    store.add("jwt", "JWT token refresh flow", record_status="retired", listed=False)


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


def same_size(store: MemoryStore) -> None:
    path = store.root / "decisions" / "jwt.json"
    path.write_text(path.read_text().replace("JWT", "XYZ"))


CHANGES = [add, change, remove, rename, retire, spoil, relist, unlist, lie, same_size]


@pytest.mark.parametrize("step", CHANGES)
def test_an_updated_index_is_what_a_fresh_one_would_be(
    store: MemoryStore, step: Callable[[MemoryStore], None]
) -> None:
    store.fill(6).write_index()
    before = content(opened(store))
    step(store)
    after = content(opened(store))
    assert after == fresh(store)
    assert after != before
    assert len(databases()) == 1


def test_any_order_of_changes_ends_in_the_same_index(store: MemoryStore) -> None:
    for step in [add, relist, change, unlist, retire, lie, remove]:
        step(store)
        opened(store).close()
    assert content(opened(store)) == fresh(store)


def test_nothing_is_written_when_nothing_changed(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_file, "clock", lambda: time.time_ns() + 3600 * 10**9)
    opened(store).close()
    before = {path: path.read_bytes() for path in databases()}
    opened(store).close()
    assert {path: path.read_bytes() for path in databases()} == before


def test_only_the_owner_can_read_it(store: MemoryStore) -> None:
    held = opened(store)
    for path in files():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for folder in (
        Path(environment.cache_home()),
        Path(environment.cache_home(), index_file.FOLDER),
        databases()[0].parent,
    ):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    held.close()


def spoiled(path: Path, how: str) -> None:
    if how == "empty":
        path.write_bytes(b"")
    elif how == "garbage":
        path.write_bytes(b"no database at all" * 1000)
    elif how == "truncated":
        path.write_bytes(path.read_bytes()[:8192])
    else:
        connection = sqlite3.connect(path)
        connection.execute("DROP TABLE file")
        connection.close()


@pytest.mark.parametrize("how", ["empty", "garbage", "truncated", "other tables"])
def test_a_damaged_index_is_replaced_by_the_next_generation(store: MemoryStore, how: str) -> None:
    whole = content(opened(store))
    (path,) = databases()
    spoiled(path, how)
    try:
        rows = content(opened(store))
    except sqlite3.DatabaseError:  # damage that shows only where it is read
        rows = content(opened(store, anew=True))
    assert rows == whole
    (path,) = databases()
    assert path.name.endswith(".1.sqlite")
    assert content(opened(store)) == whole


@pytest.mark.parametrize("blocked", ["cache", "cache/index"])
def test_without_a_cache_folder_it_is_built_in_memory(
    store: MemoryStore, isolated: Path, blocked: str
) -> None:
    path = isolated / "judgekit" / blocked
    path.parent.mkdir(parents=True)
    path.write_text("a file where a folder should be")
    assert content(opened(store)) == fresh(store)


def test_a_full_disk_is_no_obstacle(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", refuse)
    assert content(opened(store)) == fresh(store)
    assert files() == []


def test_another_process_that_writes_is_waited_for_and_then_passed_by(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(opened(store))
    monkeypatch.setattr(index_file, "BUSY_SECONDS", 0.05)
    (path,) = databases()
    writer = sqlite3.connect(path)
    writer.execute("BEGIN IMMEDIATE")
    add(store)
    assert content(opened(store)) == before
    writer.rollback()
    writer.close()
    assert content(opened(store)) == fresh(store)


def test_a_reader_of_a_replaced_index_is_not_disturbed(store: MemoryStore) -> None:
    reader = opened(store)
    before = reader.connection.execute(CONTENT).fetchall()
    opened(store, anew=True).close()
    assert reader.connection.execute(CONTENT).fetchall() == before
    reader.close()


def test_a_change_of_what_is_read_makes_a_new_index(store: MemoryStore) -> None:
    data = copy.deepcopy(compiled.bundled())
    data["profiles"]["claude-memory"]["categories"]["decision"]["body"] = ["rationale"]
    changed = compiled.Profiles(data)
    before = content(opened(store))
    assert content(index.open_index(str(store.root.resolve()), changed)) != before
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
    (store.root / ".judgekitignore").write_text("draft.json\n")
    found = opened(store)
    assert found.notes() == []
    assert found.size == 1
    found.close()
    (store.root / ".judgekitignore").write_text("")
    found = opened(store)
    assert found.size == 2
    found.close()


def test_the_kind_of_store_is_found_anew_when_it_changes(tmp_path: Path) -> None:
    def kind() -> str:
        found = index.open_index(str(tmp_path.resolve()), PROFILES)
        found.close()
        return found.kind

    (tmp_path / "a.md").write_text("# A")
    assert kind() == "markdown"
    (tmp_path / "MEMORY.md").write_text("- [A](a.md)")
    assert kind() == "claude-auto-memory"
    (tmp_path / "decisions").mkdir()
    assert kind() == "claude-auto-memory"
    (tmp_path / "decisions" / "x.json").write_text('{"title": "X"}')
    assert kind() == "claude-memory"
    (tmp_path / "decisions" / "x.json").unlink()
    (tmp_path / "MEMORY.md").unlink()
    assert kind() == "markdown"
    (tmp_path / "index.md").write_text("- [DECISION] X -> decisions/x.json")
    assert kind() == "claude-memory"
    (tmp_path / "index.md").write_text("# Docs")
    assert kind() == "markdown"


@pytest.mark.parametrize("name", ["MEMORY.md", "index.md"])
def test_the_stores_own_files_are_read_anew_at_once_where_they_are_entries_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(index_file, "clock", lambda: time.time_ns() + 3600 * 10**9)
    monkeypatch.setattr(index, "SLICE", 1)

    def digest() -> int:
        found = index.open_index(str(tmp_path.resolve()), PROFILES)
        (value,) = found.connection.execute("SELECT digest FROM file WHERE path = ?", (name,)).fetchone()
        found.close()
        return int(value)

    for number in range(9):
        (tmp_path / f"{number}.md").write_text(f"# Topic {number}")
    (tmp_path / name).write_text("Builds need pnpm.")
    before = digest()
    (tmp_path / name).write_text("Builds need cargo.")
    assert digest() != before


def test_everything_is_listed_anew_after_some_queries_whatever_folder_times_say(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "clock", lambda: time.time_ns() + 3600 * 10**9)
    look = index_file.look
    monkeypatch.setattr(
        index_file,
        "look",
        lambda path, folder=False: (1, 1, 1) if folder and Path(path).is_dir() else look(path),
    )
    opened(store).close()
    add(store)
    sizes = []
    for _ in range(index.LAP + 1):
        found = opened(store)
        sizes.append(found.size)
        found.close()
    assert (sizes[0], sizes[-1]) == (1, 2)


def test_a_tree_of_many_folders_is_looked_at_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_file, "clock", lambda: time.time_ns() + 3600 * 10**9)
    monkeypatch.setattr(index, "FOLDERS", 4)
    for number in range(10):
        (tmp_path / f"topic-{number}").mkdir()
        (tmp_path / f"topic-{number}" / "a.md").write_text("# A")

    def size() -> int:
        found = index.open_index(str(tmp_path.resolve()), PROFILES)
        found.close()
        return found.size

    assert size() == 10
    for number in range(10):
        (tmp_path / f"topic-{number}" / "b.md").write_text("# B")
    assert max(size() for _ in range(11 // 4 + 1)) == 20
    (tmp_path / "topic-10").mkdir()
    (tmp_path / "topic-10" / "a.md").write_text("# A")
    assert size() == 21


def test_names_in_the_cache_tell_paths_apart() -> None:
    names = {
        environment.file_name_for(path) for path in ("/a/b", "/a-b", "/a/b/", "/A/b", "/x" * 500, "/y" * 500)
    }
    assert len(names) == 6
    assert all(len(name) < 80 for name in names)
    assert environment.file_name_for("/srv/é/\udcff").isascii()


def test_a_private_file_is_whole_or_absent(tmp_path: Path) -> None:
    path = tmp_path / "file"
    environment.write_private(str(path), "one")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    environment.write_private(str(path), "two")
    assert path.read_text() == "two"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    with pytest.raises(OSError, match="directory"):
        environment.write_private(str(tmp_path / "none" / "file"), "x")
