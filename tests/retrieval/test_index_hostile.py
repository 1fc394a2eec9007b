"""The index with damaged or unwritable files, and with many processes at once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from indexing import JWT, PROFILES, content, databases, live, opened
from memory_store import MemoryStore, jwt_store

from judgekit import environment
from judgekit.retrieval import confidence, index, index_file, update
from judgekit.retrieval import search as api
from judgekit.retrieval.sources import claude_memory

if TYPE_CHECKING:
    from judgekit.retrieval.compiled import Profile
    from judgekit.retrieval.sources import Entry

SECOND = "Refresh of the JWT signing keys"


def database() -> Path:
    (path,) = databases()
    return path


def change(statement: str) -> None:
    with closing(sqlite3.connect(database())) as connection:
        connection.execute(statement)
        connection.commit()


def search(store: MemoryStore, text: str = "How do we refresh the JWT?") -> list[str]:
    ranked = api.search(text, [".claude/memory"], project=str(store.project), limit=10)
    return [candidate.id for candidate in ranked.candidates]


def failing(
    monkeypatch: pytest.MonkeyPatch, start: str, code: int, only: str | None = None
) -> None:
    """Let statements that begin so fail on files of indexes, or on the one at a path."""

    class Connection(sqlite3.Connection):
        def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:  # noqa: ANN401 - parameters
            if statement.startswith(start):
                error = sqlite3.OperationalError("as if")
                error.sqlite_errorcode = code
                raise error
            return super().execute(statement, *arguments)

    def connect(path: str, *, uri: bool = False) -> sqlite3.Connection:
        fails = path != ":memory:" and only in (None, path)
        kind = Connection if fails else sqlite3.Connection
        return sqlite3.connect(path, timeout=0.3, isolation_level=None, uri=uri, factory=kind)

    monkeypatch.setattr(index_file, "connect", connect)


IOERR_LOCK, PROTOCOL, FULL, READ_ONLY, IOERR, CANNOT_OPEN = 3850, 15, 13, 8, 10, 14


FAILING = (
    "BEGIN",
    "COMMIT",
    "SELECT",
    "CREATE",
    "PRAGMA journal_mode = WAL",
    "INSERT",
    "DELETE",
    "UPDATE",
)


@pytest.mark.parametrize("statement", FAILING)
def test_sqlite_that_cannot_work(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """Also where an index was built before, which cannot be brought up to date."""
    for code in (IOERR_LOCK, PROTOCOL, FULL, READ_ONLY, IOERR, CANNOT_OPEN):
        with monkeypatch.context() as patch:
            failing(patch, statement, code)
            assert search(store) == ["jwt"], code
            second = store.add("second", SECOND)
            assert set(search(store)) == {"jwt", "second"}, code
        second.unlink()
        shutil.rmtree(environment.cache_home(), ignore_errors=True)
    assert search(store) == ["jwt"]
    store.add("second", SECOND)
    store.add("jwt", "JWT token refresh flow", record_status="retired")
    with monkeypatch.context() as patch:
        failing(patch, statement, FULL)
        assert search(store) == ["second"]
    assert search(store) == ["second"]


@pytest.mark.parametrize("blocked", ["cache", "cache/index", None])
def test_where_nothing_can_be_kept_it_is_built_in_memory(
    store: MemoryStore, isolated: Path, monkeypatch: pytest.MonkeyPatch, blocked: str | None
) -> None:
    def refuse(source: str, target: str) -> None:
        raise OSError(FULL, "No space left on device")

    if blocked is None:
        monkeypatch.setattr(os, "link", refuse)
    else:
        path = isolated / "judgekit" / blocked
        path.parent.mkdir(parents=True)
        path.write_text("a file where a folder should be")
    monkeypatch.setattr(index_file, "MAX_MEMORY_FILES", 5)  # the newest of many files are searched
    for number in range(9):
        old = store.add(f"old-{number}", f"JWT refresh {number}")
        os.utime(old, (1, 1))
    found = opened(store)
    most = "only the newest 5 files are searched, because no index can be stored"
    assert found.describe_problems() == [f"{found.root}: {most}"]
    assert JWT in live(found)
    assert [*Path(isolated).rglob("*.sqlite")] == []


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


def test_damage_anywhere_costs_no_answer(tmp_path: Path) -> None:
    for at in (0, 100, 4096, 5000, 8192, 12_000, 20_000):
        store = jwt_store(tmp_path / f"project {at}", 30)
        assert search(store)[0] == "jwt"
        path = database()
        content = bytearray(path.read_bytes())
        content[at : at + 600] = b"\xa5" * 600
        path.write_bytes(content)
        assert search(store)[0] == "jwt", at
        store.add("second", "JWT refresh tokens and signing keys")
        assert {"jwt", "second"} <= set(search(store)), at
        shutil.rmtree(environment.cache_home())


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


def test_spoilt_values_cost_no_answer_and_an_edit_beside_them_is_silent(tmp_path: Path) -> None:
    for number, statement in enumerate(VALUES):
        store = jwt_store(tmp_path / str(number))
        assert search(store) == ["jwt"]
        change(statement)
        assert search(store) == ["jwt"], statement
        second = store.add("second", SECOND)
        assert set(search(store)) == {"jwt", "second"}, statement
        second.unlink()
        assert search(store) == ["jwt"]
        change(statement)
        index.refresh_file(str(store.add("jwt", "JWT tokens are opaque")), PROFILES)
        assert search(store, "Are JWT tokens opaque?") == ["jwt"], statement
        shutil.rmtree(environment.cache_home())


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("path", ["nowhere/jwt.json", "decisions/other.json", "", "../jwt.json"])
def test_a_wrong_path_in_the_index_hides_no_memory(store: MemoryStore, path: str) -> None:
    """Also when nothing in the store has changed for long."""
    store.fill(100).write_index()
    assert search(store)[0] == "jwt"
    change(f"UPDATE file SET path = '{path}' WHERE path = '{JWT}'")
    assert search(store)[0] == "jwt"


@pytest.mark.usefixtures("later")
def test_a_wrong_path_that_no_query_finds_is_noticed_in_turn(store: MemoryStore) -> None:
    assert search(store) == ["jwt"]
    change("UPDATE file SET path = 'decisions/gone.json', title = 'Nothing'")
    change("UPDATE text_content SET c0 = '', c1 = '', c2 = '', c3 = ''")
    assert search(store) == ["jwt"]


def test_a_sound_index_out_of_reach_is_kept(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert search(store) == ["jwt"]
    before = database()
    for code in (IOERR, 5):
        with monkeypatch.context() as patch:
            failing(patch, "SELECT group_concat", code)
            assert search(store) == ["jwt"]
        assert database() == before


def test_the_cache_is_removed_meanwhile(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = opened(store)
    shutil.rmtree(environment.cache_home())
    store.add("jwt", "JWT token renewal")
    index.recheck_files(found, [JWT])
    found.close()
    assert live(opened(store)) == {JWT}
    make = environment.make_private_folder

    def vanish(path: str) -> str:
        folder = make(path)
        shutil.rmtree(environment.cache_home())
        return folder

    shutil.rmtree(environment.cache_home())
    monkeypatch.setattr(environment, "make_private_folder", vanish)
    assert live(opened(store)) == {JWT}


def test_another_writer_is_passed_by(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(store).close()
    store.add("jwt", "JWT token refresh flow", record_status="retired")
    store.add("second", SECOND)
    monkeypatch.setattr(index_file, "BUSY_SECONDS", 0.05)
    with closing(sqlite3.connect(database())) as writer:
        writer.execute("BEGIN IMMEDIATE")
        found = opened(store)
        assert index.recheck_files(found, [JWT]) is False
        assert found.outdated_paths == {JWT}
        assert search(store) == []
        writer.rollback()
    for changed, outdated in ((True, {JWT}), (False, set[str]())):
        assert index.recheck_files(found, [JWT]) is changed
        assert found.outdated_paths == outdated
    found.close()
    assert search(store) == ["second"]


def test_what_changes_all_the_time_is_not_shown(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert search(store) == ["jwt"]
    rank_hits, rounds = confidence.rank_hits, iter(range(1, 10))

    def meanwhile(*arguments: Any) -> Any:  # noqa: ANN401 - as it is
        candidates = rank_hits(*arguments)
        number = next(rounds)
        status = "retired" if number == api.MAX_ROUNDS else "active"
        store.add(
            "jwt", "JWT token refresh flow", f"version {number}", record_status=status, listed=False
        )
        return candidates

    monkeypatch.setattr(confidence, "rank_hits", meanwhile)
    assert search(store) == []
    assert next(rounds) == api.MAX_ROUNDS + 1


def test_an_edit_reaches_every_index_it_is_in(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = store.root / "decisions" / "new.json"
    new.write_text('{"title": "Written by the client"}')
    assert index.refresh_file(str(new), PROFILES) == []
    assert not Path(environment.INDEXES.path()).exists()
    roots = [str(store.root.resolve()), str(store.project.resolve())]
    for root in roots:
        index.open_index(root, PROFILES).close()
    new.write_text('{"title": "Edited by the client"}')
    assert index.refresh_file(str(new), PROFILES) == roots
    with closing(sqlite3.connect(Path(index_file.find_index_file(roots[0]) or ""))) as connection:
        titles = connection.execute(
            "SELECT title FROM file WHERE path = 'decisions/new.json'"
        ).fetchall()
    assert titles == [("Edited by the client",)]
    failing(monkeypatch, "SELECT key", IOERR)
    monkeypatch.setattr(update, "build_in_memory", lambda *_: pytest.fail("built"))
    assert index.refresh_file(str(new), PROFILES) == []


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    places: list[str] = []
    real = update.ReadFile

    def count(root: str, place: str, *rest: Any) -> Any:  # noqa: ANN401 - as it is
        places.append(place)
        return real(root, place, *rest)

    monkeypatch.setattr(update, "ReadFile", count)
    return places


@pytest.mark.usefixtures("later")
def test_reading_is_taken_up(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, read: list[str]
) -> None:
    monkeypatch.setattr(update, "BATCH_FILES", 8)
    monkeypatch.setattr(index, "EDIT_SECONDS", 0)
    store.fill(40).write_index()
    os.utime(store.root / JWT, (2e9, 2e9))  # the newest is read first
    first = opened(store, patience=0)
    assert first.pending_count == 25
    assert JWT in read
    assert first.describe_problems()[0].endswith("25 files not read yet; the next query continues")
    first.close()
    assert index.refresh_file(str(store.root / JWT), PROFILES) == []
    second = opened(store)
    assert (second.pending_count, second.entry_count) == (0, 41)
    second.close()
    assert len(read) == len(set(read)) == 41
    assert index.refresh_file(str(store.root / JWT), PROFILES) == [str(store.root.resolve())]


# Many processes on one store: while it is read for the first time, while it changes, when one is killed.

PROCESSES, QUERIES = 12, 4
DEADLINE = 120  # seconds

QUERYING = """
import json, sys
from judgekit.retrieval import compiled, index, search
root, project, queries = sys.argv[1], sys.argv[2], int(sys.argv[3])
for _ in range(queries):
    ranked = search.search("JWT token refresh", [root], project=project, limit=15)
    assert ranked.fallback_reason is None
found = index.open_index(root, compiled.Profiles(compiled.get_bundled_data()))
assert found.path is not None
assert found.connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
found.close()
print(json.dumps([each.id for each in ranked.candidates]))
"""

BUILDING = """
import os, signal, sys
from judgekit.retrieval import compiled, index, update
update.BATCH_FILES, read, numbers = 8, update.ReadFile, iter(range(100))
def killed(*arguments):
    if next(numbers) == 30:
        os.kill(os.getpid(), signal.SIGKILL)
    return read(*arguments)
update.ReadFile = killed
index.open_index(sys.argv[1], compiled.Profiles(compiled.get_bundled_data()))
"""


def start(*arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("built", [True, False])
def test_many_query_while_another_edits(store: MemoryStore, *, built: bool) -> None:
    store.fill(40).write_index()
    root = str(store.root.resolve())
    if built:
        index.open_index(root, PROFILES).close()
    arguments = (QUERYING, root, str(store.project), str(QUERIES))
    running = [start(*arguments) for _ in range(PROCESSES)]
    for number in range(30):
        store.add(f"late-{number}", f"Late {number}")
        store.add(f"filler-{number}", f"Edited {number}", listed=False, category="decision")
        if number % 3 == 0:
            (store.root / "decisions" / f"late-{number}.json").unlink()
        store.write_index()
    outputs = [process.communicate(timeout=DEADLINE) for process in running]
    assert [
        (error, process.returncode) for (_, error), process in zip(outputs, running, strict=True)
    ] == [(b"", 0)] * PROCESSES
    # On a slow machine a process may find that another one has not read that far.
    allowed = [["jwt"]] if built else [["jwt"], []]
    assert [output for output, _ in outputs if json.loads(output) not in allowed] == []
    kept = content(opened(store))
    assert [path for path in database().parent.iterdir() if "making" in path.name] == []
    opened(store, anew=True).close()
    assert kept == content(opened(store))


def test_what_a_killed_process_has_read_is_not_read_again(
    store: MemoryStore, read: list[str]
) -> None:
    store.fill(60).write_index()
    root = str(store.root.resolve())
    for each in store.root.rglob("*.json"):
        os.utime(each, (10**9, 10**9))
    process = start(BUILDING, root)
    _, error = process.communicate(timeout=DEADLINE)
    assert (process.returncode, error) == (-signal.SIGKILL, b"")
    path = database()
    found = opened(store)
    assert (found.pending_count, found.entry_count) == (0, 61)
    found.close()
    assert len(read) == 61 - 24
    assert database() == path


YEAR_2400, YEAR_1600 = 13_569_465_600, -11_676_096_000  # seconds since the epoch


@pytest.mark.parametrize("seconds", [YEAR_2400, YEAR_1600])
@pytest.mark.parametrize("place", ["decisions/second.json", "decisions", ".", "index.md"])
def test_a_time_that_does_not_fit_into_the_index_costs_nothing(
    store: MemoryStore, seconds: int, place: str
) -> None:
    store.add("second", SECOND)
    store.write_index()
    os.utime(store.root / place, (seconds, seconds))
    for _ in range(2):
        assert set(search(store)) == {"jwt", "second"}
    (store.root / "decisions/second.json").unlink()
    assert search(store) == ["jwt"]


def test_a_file_whose_reader_fails_costs_itself_alone(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = claude_memory.read

    def failing_read(root: str, relative: str, profile: Profile) -> Entry | None:
        if "second" in relative:
            raise OverflowError("too large for a C long")
        return read(root, relative, profile)

    store.add("second", SECOND)
    monkeypatch.setattr(claude_memory, "read", failing_read)
    ranked = api.search("refresh the JWT", [".claude/memory"], project=str(store.project), limit=10)
    assert [candidate.id for candidate in ranked.candidates] == ["jwt"]
    assert ranked.notes == [
        "decisions/second.json: cannot be read (OverflowError: too large for a C long); skipped"
    ]
