"""What an index does where files are damaged, disks are full and nothing can be written."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from memory_store import MemoryStore, jwt_store

from judgekit import environment
from judgekit.retrieval import compiled, confidence, index, index_file, update
from judgekit.retrieval import search as api

if TYPE_CHECKING:
    from judgekit.retrieval.index_file import Index

PROFILES = compiled.Profiles(compiled.bundled())
JWT = "decisions/jwt.json"
SECOND = "Refresh of the JWT signing keys"


def opened(store: MemoryStore, **options: Any) -> Index:  # noqa: ANN401 - as open_index takes them
    return index.open_index(str(store.root.resolve()), PROFILES, **options)


def live(found: Index) -> set[str]:
    with closing(found):
        return {path for (path,) in found.connection.execute("SELECT path FROM file WHERE live").fetchall()}


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an hour pass between the last change of the store and every look at it."""
    monkeypatch.setattr(index_file, "clock", lambda: time.time_ns() + 3600 * 10**9)


def database() -> Path:
    (path,) = Path(environment.cache_home(), index_file.FOLDER).rglob("*.sqlite")
    return path


def change(statement: str) -> None:
    with closing(sqlite3.connect(database())) as connection:
        connection.execute(statement)
        connection.commit()


def search(store: MemoryStore, text: str = "How do we refresh the JWT?") -> list[str]:
    ranked = api.search(text, [".claude/memory"], project=str(store.project), limit=10)
    return [candidate.id for candidate in ranked.candidates]


class Failing:
    """A connection whose statements that begin so fail as SQLite would."""

    def __init__(self, connection: sqlite3.Connection, start: str, code: int) -> None:
        self._connection, self._start, self._code = connection, start, code

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a connection has
        return getattr(self._connection, name)

    def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:  # noqa: ANN401 - parameters
        if statement.startswith(self._start):
            error = sqlite3.OperationalError("as if")
            error.sqlite_errorcode = self._code
            raise error
        return self._connection.execute(statement, *arguments)


def failing(monkeypatch: pytest.MonkeyPatch, start: str, code: int, only: str | None = None) -> None:
    """Let statements fail on files of indexes, or on the one at a path."""
    connect = index_file.connect

    def refuse(path: str, **options: Any) -> Any:  # noqa: ANN401 - a connection in all that matters
        connection = connect(path, **options)
        fails = path != ":memory:" and only in (None, path)
        return Failing(connection, start, code) if fails else connection

    monkeypatch.setattr(index_file, "connect", refuse)


IOERR_LOCK, PROTOCOL, FULL, READ_ONLY, IOERR, CANNOT_OPEN = 3850, 15, 13, 8, 10, 14


@pytest.mark.parametrize("code", [IOERR_LOCK, PROTOCOL, FULL, READ_ONLY, IOERR])
@pytest.mark.parametrize("statement", ["BEGIN", "SELECT", "CREATE", "PRAGMA journal_mode = WAL", "INSERT"])
def test_where_sqlite_cannot_work_the_answer_comes_from_memory(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, statement: str, code: int
) -> None:
    failing(monkeypatch, statement, code)
    assert search(store) == ["jwt"]
    store.add("second", SECOND)
    assert set(search(store)) == {"jwt", "second"}


@pytest.mark.parametrize("statement", ["BEGIN", "COMMIT", "INSERT", "DELETE", "UPDATE"])
def test_an_index_that_cannot_be_brought_up_to_date_is_not_the_answer(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    assert search(store) == ["jwt"]
    store.add("second", SECOND)
    store.add("jwt", "JWT token refresh flow", record_status="retired", listed=False)
    with monkeypatch.context() as patch:
        failing(patch, statement, FULL)
        assert search(store) == ["second"]
    assert search(store) == ["second"]


def test_a_disk_that_is_full_for_real(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    assert search(store) == ["jwt"]
    connect = index_file.connect

    def tight(path: str, **options: Any) -> Any:  # noqa: ANN401 - a connection
        connection = connect(path, **options)
        if path != ":memory:":
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    store.fill(40).write_index()
    for number in range(20):
        store.add(f"jwt-{number}", "JWT refresh " * 800)
    with monkeypatch.context() as patch:
        patch.setattr(index_file, "connect", tight)
        assert len(live(opened(store))) == 61
    assert len(live(opened(store))) == 61


def test_of_a_large_store_an_old_index_is_worth_more_than_a_part(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "MEMORY_FILES", 5)
    store.fill(20).write_index()
    assert len(live(opened(store))) == 21
    store.add("second", SECOND)
    with monkeypatch.context() as patch:
        failing(patch, "BEGIN", FULL)
        found = opened(store)
        assert found.notes()[0].endswith("the index cannot be updated: as if")
        assert len(live(found)) == 21
    assert len(live(opened(store))) == 22
    # In memory the newest of many files are searched.
    for path in store.root.rglob("filler-*.json"):
        os.utime(path, (1, 1))
    shutil.rmtree(environment.cache_home())
    Path(environment.cache_home()).write_text("a file where a folder should be")
    found = opened(store)
    most = "only the newest 5 files are searched, because no index can be stored"
    assert found.notes() == [f"{found.root}: {most}"]
    assert JWT in live(found)


@pytest.mark.usefixtures("later")
def test_a_read_only_cache_is_read(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    assert search(store) == ["jwt"]
    path = str(database())
    failing(monkeypatch, "SELECT key", CANNOT_OPEN, only=path)
    found = opened(store)
    assert found.path == path
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        found.connection.execute("DELETE FROM file")
    found.close()
    store.add("second", SECOND)
    assert set(search(store)) == {"jwt", "second"}


def test_half_a_log_is_no_harm(store: MemoryStore) -> None:
    found = opened(store)
    store.fill(30).write_index()
    opened(store).close()
    path = database()
    copies = {suffix: (path.parent / (path.name + suffix)).read_bytes() for suffix in ("", "-wal")}
    found.close()
    for size in (0, 31, len(copies["-wal"]) // 3, len(copies["-wal"]) // 2, len(copies["-wal"]) - 1):
        for suffix in ("", "-wal", "-shm"):
            (path.parent / (path.name + suffix)).unlink(missing_ok=True)
        path.write_bytes(copies[""])
        (path.parent / (path.name + "-wal")).write_bytes(copies["-wal"][:size])
        assert len(live(opened(store))) == 31
        path = max(path.parent.glob("*.sqlite"))


@pytest.mark.parametrize("at", [0, 100, 4096, 5000, 8192, 12_000, 20_000])
def test_damage_anywhere_costs_no_answer(tmp_path: Path, at: int) -> None:
    store = jwt_store(tmp_path / "project", 30)
    assert search(store)[0] == "jwt"
    path = database()
    content = bytearray(path.read_bytes())
    content[at : at + 600] = b"\xa5" * 600
    path.write_bytes(content)
    assert search(store)[0] == "jwt"
    store.add("second", "JWT refresh tokens and signing keys")
    assert {"jwt", "second"} <= set(search(store))


VALUES = (
    "UPDATE about SET value = '/elsewhere' WHERE key = 'root'",
    "DELETE FROM about WHERE key = 'size'",
    "DROP TABLE watch",
    "DROP TABLE text_idx",
    "ALTER TABLE file DROP COLUMN digest",
    "UPDATE about SET value = CAST(x'ff80' AS TEXT) WHERE key = 'read_by'",
    "UPDATE about SET key = CAST(x'ff80' AS TEXT) WHERE key = 'kind'",
    "UPDATE about SET value = 'many' WHERE key = 'folders'",
    "UPDATE about SET value = 'none of ours' WHERE key = 'kind'",
    "UPDATE watch SET path = x'ff80' WHERE path = 'decisions'",
    "UPDATE file SET path = 'nowhere/jwt.json'",
    "UPDATE file SET path = CAST(x'ff80' AS TEXT)",
    "UPDATE file SET tags = 7",
    "UPDATE text_content SET c0 = 7",
    "UPDATE text_content SET c2 = x'ff80'",
    "UPDATE term SET entries = 'many'",
)


@pytest.mark.parametrize("statement", VALUES)
def test_spoilt_values_cost_no_answer_and_an_edit_beside_them_is_silent(
    store: MemoryStore, statement: str
) -> None:
    assert search(store) == ["jwt"]
    change(statement)
    assert search(store) == ["jwt"]
    second = store.add("second", SECOND)
    assert set(search(store)) == {"jwt", "second"}
    second.unlink()
    assert search(store) == ["jwt"]
    change(statement)
    path = store.add("jwt", "JWT tokens are opaque", listed=False)
    index.refresh_file(str(path), PROFILES)
    assert search(store, "Are JWT tokens opaque?") == ["jwt"]


@pytest.mark.parametrize("code", [IOERR, 5])
def test_a_sound_index_that_is_out_of_reach_is_kept(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    assert search(store) == ["jwt"]
    before = database()
    with monkeypatch.context() as patch:
        failing(patch, "SELECT group_concat", code)
        assert search(store) == ["jwt"]
    assert database() == before
    assert search(store) == ["jwt"]


def test_the_cache_is_removed_meanwhile(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    found = opened(store)
    shutil.rmtree(environment.cache_home())
    store.add("jwt", "JWT token renewal", listed=False)
    index.recheck(found, [JWT])
    found.close()
    assert live(opened(store)) == {JWT}
    make = environment.cache_folder

    def vanish(*names: str) -> str:
        folder = make(*names)
        shutil.rmtree(environment.cache_home())
        return folder

    shutil.rmtree(environment.cache_home())
    monkeypatch.setattr(environment, "cache_folder", vanish)
    assert live(opened(store)) == {JWT}


def test_a_shown_entry_that_cannot_be_read_anew_is_named(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(store).close()
    store.add("jwt", "JWT token refresh flow", record_status="retired", listed=False)
    monkeypatch.setattr(index_file, "BUSY_SECONDS", 0.05)
    with closing(sqlite3.connect(database())) as writer:
        writer.execute("BEGIN IMMEDIATE")
        found = opened(store)
        assert index.recheck(found, [JWT]) is False
        assert found.outdated == {JWT}
        assert search(store) == []
        writer.rollback()
    for changed, outdated in ((True, {JWT}), (False, set[str]())):
        assert index.recheck(found, [JWT]) is changed
        assert found.outdated == outdated
    found.close()


def test_what_changes_all_the_time_is_not_shown(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    assert search(store) == ["jwt"]
    order, rounds = confidence.order, iter(range(1, 10))

    def meanwhile(*arguments: Any) -> Any:  # noqa: ANN401 - as it is
        candidates = order(*arguments)
        number = next(rounds)
        status = "retired" if number == api.MAX_ROUNDS else "active"
        store.add("jwt", "JWT token refresh flow", f"version {number}", record_status=status, listed=False)
        return candidates

    monkeypatch.setattr(confidence, "order", meanwhile)
    assert search(store) == []
    assert next(rounds) == api.MAX_ROUNDS + 1


def test_an_edited_file_reaches_every_index_that_holds_it_and_makes_none(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = store.root / "decisions" / "new.json"
    new.write_text('{"title": "Written by the client"}')
    assert index.refresh_file(str(new), PROFILES) == []
    assert not Path(environment.cache_home(), index_file.FOLDER).exists()
    roots = [str(store.root.resolve()), str(store.project.resolve())]
    for root in roots:
        index.open_index(root, PROFILES).close()
    new.write_text('{"title": "Edited by the client"}')
    assert index.refresh_file(str(new), PROFILES) == roots
    with closing(sqlite3.connect(Path(index_file.path_of(roots[0]) or ""))) as connection:
        titles = connection.execute("SELECT title FROM file WHERE path = 'decisions/new.json'").fetchall()
    assert titles == [("Edited by the client",)]
    failing(monkeypatch, "SELECT key", IOERR)
    monkeypatch.setattr(update, "in_memory", lambda *_: pytest.fail("built"))
    assert index.refresh_file(str(new), PROFILES) == []


@pytest.mark.usefixtures("later")
def test_reading_goes_on_where_it_was_cut_off_and_an_edit_waits_for_no_first_build(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update, "BATCH", 8)
    monkeypatch.setattr(index, "EDIT_PATIENCE", 0)
    read: list[str] = []
    found = update.ReadFile

    def count(root: str, place: str, *rest: Any) -> Any:  # noqa: ANN401 - as it is
        read.append(place)
        return found(root, place, *rest)

    monkeypatch.setattr(update, "ReadFile", count)
    store.fill(40).write_index()
    os.utime(store.root / JWT, (2e9, 2e9))  # the newest is read first
    first = opened(store, patience=0)
    assert first.pending == 25
    assert JWT in read
    assert first.notes()[0].endswith("25 files not read yet; the next query continues")
    first.close()
    assert index.refresh_file(str(store.root / JWT), PROFILES) == []
    progress: list[tuple[int, int]] = []
    second = opened(store, progress=lambda done, total: progress.append((done, total)))
    assert (second.pending, second.size) == (0, 41)
    second.close()
    assert len(read) == len(set(read)) == 41
    assert (progress[0][0], progress[-1]) == (0, (17, 17))
    assert index.refresh_file(str(store.root / JWT), PROFILES) == [str(store.root.resolve())]


def test_what_another_process_reads_is_waited_for_and_not_read_twice(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update, "BATCH", 8)
    monkeypatch.setattr(update, "OTHERS_SECONDS", 0.01)
    store.fill(40).write_index()
    first = opened(store, patience=0)
    first.connection.execute("UPDATE about SET value = ? WHERE key = 'builder'", (os.getppid(),))
    first.close()
    assert opened(store).pending == 25
    monkeypatch.setattr(update, "_STALLED", -1.0)
    assert opened(store).pending == 0
