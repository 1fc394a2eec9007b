from __future__ import annotations

import json
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from judgekit import paths
from judgekit.retrieval import cachefile, compiled, index, scan, schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_store import MemoryStore

    from judgekit.retrieval.index import Index

PROFILE = compiled.Profiles(compiled.bundled()).by_kind["claude-memory"]
FRESH = "SELECT path, size, mtime, inode, hint, live, problem, id, file.title, category, file.tags, updated, "
CONTENT = f"{FRESH} text.title, text.tags, body, parts FROM file LEFT JOIN text ON number = text.rowid"


def opened(store: MemoryStore, *, anew: bool = False) -> Index:
    return index.open_index(scan.scan(str(store.root), "claude-memory", PROFILE), PROFILE, anew=anew)


def content(found: Index) -> list[Any]:
    rows = sorted(found.connection.execute(CONTENT).fetchall())
    found.close()
    return rows


def files() -> list[Path]:
    return sorted(Path(paths.cache_home(), index.FOLDER).glob("*"))


def fresh(store: MemoryStore) -> list[Any]:
    found = scan.scan(str(store.root), "claude-memory", PROFILE)
    return content(index._fill(":memory:", found, PROFILE))


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
    assert len([path for path in files() if path.suffix == ".sqlite"]) == 1


def test_any_order_of_changes_ends_in_the_same_index(store: MemoryStore) -> None:
    for step in [add, relist, change, unlist, retire, lie, remove]:
        step(store)
        opened(store).close()
    assert content(opened(store)) == fresh(store)


def test_nothing_is_written_when_nothing_changed(store: MemoryStore) -> None:
    opened(store).close()
    before = {path: path.read_bytes() for path in files() if path.suffix == ".sqlite"}
    opened(store).close()
    assert {path: path.read_bytes() for path in files() if path.suffix == ".sqlite"} == before


def test_only_the_owner_can_read_it(store: MemoryStore) -> None:
    held = opened(store)
    for path in files():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for folder in (Path(paths.cache_home()), Path(paths.cache_home(), index.FOLDER)):
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
    (path,) = [path for path in files() if path.suffix == ".sqlite"]
    spoiled(path, how)
    try:
        rows = content(opened(store))
    except sqlite3.DatabaseError:  # damage that shows only where it is read
        rows = content(opened(store, anew=True))
    assert rows == whole
    (path,) = [path for path in files() if path.suffix == ".sqlite"]
    assert path.name.endswith(".1.sqlite")
    assert content(opened(store)) == whole


def test_an_index_of_another_root_is_replaced(store: MemoryStore) -> None:
    opened(store).close()
    (path,) = [path for path in files() if path.suffix == ".sqlite"]
    connection = sqlite3.connect(path)
    connection.execute("UPDATE about SET value = '/elsewhere' WHERE key = 'root'")
    connection.commit()
    connection.close()
    assert content(opened(store)) == fresh(store)


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
    monkeypatch.setattr(schema, "BUSY_SECONDS", 0.05)
    (path,) = [path for path in files() if path.suffix == ".sqlite"]
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


PROCESS = """
import json, sys
from judgekit.retrieval import compiled, index, scan
profile = compiled.Profiles(compiled.bundled()).by_kind["claude-memory"]
for _ in range(int(sys.argv[2])):
    found = index.open_index(scan.scan(sys.argv[1], "claude-memory", profile), profile)
    assert found.connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    size = found.size
    found.close()
print(json.dumps(size))
"""


def test_several_processes_at_once_build_one_sound_index(store: MemoryStore) -> None:
    store.fill(60).write_index()
    command = [sys.executable, "-c", PROCESS, str(store.root), "3"]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(5)]
    for number in range(5):
        store.add(f"late-{number}", f"Late {number}")
    outputs = [process.communicate(timeout=120) for process in running]
    assert [(error, process.returncode) for (_, error), process in zip(outputs, running, strict=True)] == [
        (b"", 0)
    ] * 5
    assert all(61 <= json.loads(output) <= 66 for output, _ in outputs)
    assert content(opened(store)) == fresh(store)
    assert len([path for path in files() if path.suffix == ".sqlite"]) == 1
    assert [path for path in files() if "building" in path.name] == []


def test_a_change_of_what_is_read_makes_a_new_index(store: MemoryStore) -> None:
    data = compiled.bundled()
    data["profiles"]["claude-memory"]["categories"]["decision"]["body"] = ["rationale"]
    changed = compiled.Profiles(data).by_kind["claude-memory"]
    opened(store).close()
    found = index.open_index(scan.scan(str(store.root), "claude-memory", changed), changed)
    assert "rotating" not in str(content(found))
    assert "rotating" in str(content(opened(store)))


def test_what_a_killed_process_left_is_swept_away_after_a_while(store: MemoryStore) -> None:
    opened(store).close()
    (path,) = [path for path in files() if path.suffix == ".sqlite"]
    base = path.name.partition(".v")[0]
    old, young = (path.with_name(f"{base}.{pid}.building") for pid in (1, 2))
    old.write_bytes(b"half")
    young.write_bytes(b"half")
    os.utime(old, (1, 1))
    opened(store, anew=True).close()
    assert not old.exists()
    assert young.exists()


def test_names_in_the_cache_tell_paths_apart() -> None:
    names = {cachefile.name_for(path) for path in ("/a/b", "/a-b", "/a/b/", "/A/b", "/x" * 500, "/y" * 500)}
    assert len(names) == 6
    assert all(len(name) < 80 for name in names)
    assert cachefile.name_for("/srv/é/\udcff").isascii()


def test_a_private_file_is_whole_or_absent(tmp_path: Path) -> None:
    path = tmp_path / "file"
    cachefile.write(str(path), "one")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    cachefile.write(str(path), "two")
    assert path.read_text() == "two"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    with pytest.raises(OSError, match="directory"):
        cachefile.write(str(tmp_path / "none" / "file"), "x")
