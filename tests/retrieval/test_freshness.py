"""Queries on a changing store, compared with a newly built index, over random histories.

Time is the test's own: files and folders get the times that a file system with coarse or fine ticks would
give them.
"""

from __future__ import annotations

import json
import os
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from indexing import PROFILES, opened
from memory_store import jwt_store, listed

from judgekit.retrieval import compiled, index, index_file, update

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.retrieval.index_file import Index, Stamp

CLAUDE_MEMORY, AUTO_MEMORY, MARKDOWN = compiled.KINDS
SECOND = 1_000_000_000
TICKS = {"two seconds": 2 * SECOND, "ten milliseconds": SECOND // 100}
SLICE = 3
ROWS = """SELECT path, pending, size, mtime, inode, live, problem, id, file.title, category,
    file.tags, updated, text.title, text.tags, body, parts
    FROM file LEFT JOIN text ON number = text.rowid ORDER BY path"""
FOLDERS = {
    CLAUDE_MEMORY: ["decisions", "runbooks", "elsewhere", "constraints"],
    AUTO_MEMORY: ["", "sub"],
    MARKDOWN: ["", "a", "a/b", "a/b/c", "decisions"],
}
OWN = {CLAUDE_MEMORY: "index.md", AUTO_MEMORY: "MEMORY.md", MARKDOWN: "index.md"}


class World:
    """A store and its clock. Edits in place may be seen later; `edited` names the files."""

    def __init__(self, root: Path, kind: str, tick: int) -> None:
        self.tick = tick
        self.root, self.kind = Path(os.path.realpath(root)), kind
        self.now = 1_800_000_000 * SECOND
        self.times: dict[str, int] = {}
        self.edited: set[str] = set()
        self.root.mkdir(parents=True)
        self.own(0)
        self.write(0, 0, 0)

    def touch(self, path: Path) -> None:
        """Give a file or folder the present time, in ticks; fine ones never fall on full seconds here."""
        self.times[str(path)] = self.now - self.now % self.tick + (1 if self.tick < SECOND else 0)

    def look(self, path: str, *, folder: bool = False) -> Stamp | None:
        try:
            found = Path(path).stat()
        except OSError:
            return None
        time = self.times.get(path, 0)
        return time if folder else found.st_size, time, found.st_ino

    def place(self, folder: int, name: int) -> Path:
        folders = FOLDERS[self.kind]
        ending = "json" if self.kind == CLAUDE_MEMORY else "md"
        return self.root / folders[folder % len(folders)] / f"f{name}.{ending}"

    def folder(self, path: Path) -> None:
        missing = [each for each in (path, *path.parents) if not each.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for each in missing:
            self.touch(each)
            self.touch(each.parent)

    def write(self, folder: int, name: int, text: int) -> None:
        """Add a file, or edit it in place."""
        path = self.place(folder, name)
        self.folder(path.parent)
        if path.exists():
            self.edited.add(path.relative_to(self.root).as_posix())
        else:
            self.touch(path.parent)
        path.write_text(self.content(text), encoding="utf-8")
        self.touch(path)

    def content(self, text: int) -> str:
        word = ("apple", "grape", "melon", "longer")[text % 4]  # three of them of the same length
        status = (
            ("drafts" if self.kind == CLAUDE_MEMORY else "retired") if text % 5 == 4 else "active"
        )
        if text % 7 == 6:
            return f"{{{word}"
        if self.kind == CLAUDE_MEMORY:
            return json.dumps(
                {"title": word, "record_status": status, "content": {"context": word}}
            )
        return f"---\nstatus: {status}\n---\n# {word}\ntext of {word}"

    def delete(self, folder: int, name: int) -> None:
        path = self.place(folder, name)
        if path.exists():
            path.unlink()
            self.times.pop(str(path))
            self.edited.discard(path.relative_to(self.root).as_posix())
            self.touch(path.parent)

    def replace(self, folder: int, name: int, text: int) -> None:
        """Remove a file and add another one in its place, which may well get the same inode."""
        self.delete(folder, name)
        self.write(folder, name, text)

    def rename(self, folder: int, name: int, to_folder: int, to_name: int) -> None:
        """Move a file, over any that is there."""
        old, new = self.place(folder, name), self.place(to_folder, to_name)
        if old.exists() and old != new:
            self.folder(new.parent)
            old.replace(new)
            self.edited.discard(new.relative_to(self.root).as_posix())
            self.times[str(new)] = self.times.pop(str(old))
            self.touch(old.parent)
            self.touch(new.parent)

    def rename_folder(self, folder: int, to_folder: int) -> None:
        old, new = self.place(folder, 0).parent, self.place(to_folder, 0).parent
        if old == self.root or not old.exists() or new.exists() or new.is_relative_to(old):
            return
        self.folder(new.parent)
        old.rename(new)
        for path in [
            time_ for time_ in self.times if time_ == str(old) or time_.startswith(f"{old}/")
        ]:
            self.times[str(new) + path[len(str(old)) :]] = self.times.pop(path)
        self.touch(old.parent)
        self.touch(new.parent)

    def own(self, text: int) -> None:
        path = self.root / OWN[self.kind]
        if text % 4 == 3:
            path.unlink(missing_ok=True)
            self.times.pop(str(path), None)
            self.touch(self.root)
            return
        if not path.exists():
            self.touch(self.root)
        word = ("first", "other", "third")[text % 4]
        lines = [f"- [DECISION] {word} {n} -> decisions/f{n}.json #tags:{word}" for n in range(3)]
        if self.kind != CLAUDE_MEMORY:
            lines = [f"- [{word} {n}](f{n}.md)" for n in range(3)]
        path.write_text("\n".join([f"# Index {word}", *lines]), encoding="utf-8")
        self.touch(path)

    def ignore(self, text: int) -> None:
        path = self.root / ".judgekitignore"
        if not path.exists():
            self.touch(self.root)
        path.write_text(["", "f1.*\n", "decisions/\n", "f2.*\n!f2.md"][text % 4], encoding="utf-8")
        self.touch(path)

    def wait(self, halves: int) -> None:
        self.now += halves * self.tick // 2


@pytest.fixture
def world_of(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 - a function
    monkeypatch.setattr(index, "FILES_PER_QUERY", SLICE)
    monkeypatch.setattr(index, "QUERIES_PER_LAP", 10**9)

    def make(kind: str, tick: int) -> World:
        world = World(tmp_path_factory.mktemp("world") / "store", kind, tick)
        monkeypatch.setattr(index_file, "get_time_ns", lambda: world.now)
        monkeypatch.setattr(index_file, "read_stamp", world.look)
        return world

    return make


def rows(found: Index) -> dict[str, tuple[Any, ...]]:
    return {row[0]: row for row in found.connection.execute(ROWS)}


@contextmanager
def both(world: World) -> Iterator[tuple[Index, Index]]:
    """Open the index of a store, and one built afresh."""
    with (
        closing(opened(world.root)) as found,
        closing(update.build_in_memory(str(world.root), PROFILES)) as whole,
    ):
        yield found, whole


def check_at_once(world: World) -> None:
    """The changes that the very next query must see."""
    with both(world) as (found, whole):
        expected = rows(whole)
        seen = rows(found)
        assert found.kind == whole.kind
        assert expected.keys() == listed(world.root, found.kind).files.keys()
        assert seen.keys() == expected.keys()
        assert {path: row for path, row in seen.items() if path not in world.edited} == {
            path: row for path, row in expected.items() if path not in world.edited
        }
        shown = [path for path, row in seen.items() if row[5]]
        index.recheck_files(found, shown)
        index.recheck_files(found, shown)
        assert found.outdated_paths == set()
        seen = rows(found)
        assert {path: seen.get(path) for path in shown} == {
            path: expected.get(path) for path in shown
        }
        assert found.entry_count == sum(row[5] for row in seen.values())
        own = world.root / OWN[world.kind]
        if own.exists() and own.name in expected:
            assert seen[own.name] == expected[own.name]


def check_after_a_lap(world: World) -> None:
    """After the promised number of queries, every change is seen."""
    with closing(update.build_in_memory(str(world.root), PROFILES)) as whole:
        files = len(rows(whole))
    for _ in range(files // SLICE + 1):
        opened(world.root).close()
    with both(world) as (found, whole):
        assert rows(found) == rows(whole)
        terms = [
            set(each.connection.execute("SELECT term, entries FROM term"))
            for each in (found, whole)
        ]
        assert terms[0] == terms[1]
        assert sorted(found.describe_problems()) == sorted(whole.describe_problems())
        assert found.entry_count == whole.entry_count
        world.edited.clear()


NUMBERS = st.integers(0, 7)
STEPS = st.one_of(
    st.tuples(st.just("write"), NUMBERS, NUMBERS, st.integers(0, 40)),
    st.tuples(st.just("delete"), NUMBERS, NUMBERS),
    st.tuples(st.just("rename"), NUMBERS, NUMBERS, NUMBERS, NUMBERS),
    st.tuples(st.just("rename_folder"), NUMBERS, NUMBERS),
    st.tuples(st.just("own"), NUMBERS),
    st.tuples(st.just("ignore"), NUMBERS),
    st.tuples(st.just("wait"), st.sampled_from([1, 1, 2, 5, 30])),
    # Again and again the same few files, which is where a tick hides something.
    st.tuples(st.just("write"), st.just(0), st.just(0), st.integers(0, 40)),
    st.tuples(st.just("replace"), st.just(0), st.just(0), st.integers(0, 40)),
)
HISTORIES = st.lists(
    st.tuples(
        st.lists(STEPS, max_size=4),
        st.sampled_from(
            [check_at_once, check_after_a_lap, lambda world: opened(world.root).close()]
        ),
    ),
    min_size=1,
    max_size=10,
)


@pytest.mark.slow
@pytest.mark.parametrize("tick", TICKS)
@pytest.mark.parametrize("kind", [CLAUDE_MEMORY, AUTO_MEMORY, MARKDOWN])
@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(history=HISTORIES)
def test_a_query_sees_what_it_must(world_of: Any, kind: str, tick: str, history: list[Any]) -> None:  # noqa: ANN401 - a fixture
    world = world_of(kind, TICKS[tick])
    opened(world.root).close()
    for steps, check in history:
        for name, *arguments in steps:
            getattr(world, name)(*arguments)
        check(world)
    check_after_a_lap(world)


def test_what_was_read_too_soon_is_not_sure() -> None:
    second, coarse, fine = 10 * SECOND, 2 * SECOND, SECOND // 10
    for changed, sure_after in ((second, coarse), (second + 1, fine), (SECOND // 2, fine)):
        assert not index_file.is_sure(changed, changed)
        assert not index_file.is_sure(changed, changed + sure_after - 1)
        assert index_file.is_sure(changed, changed + sure_after)
    now = 1_800_000_000 * SECOND  # a time ahead is now, unless no clock can be so wrong
    assert not index_file.is_sure(now + 3600 * SECOND, now)
    assert index_file.is_sure(now + 2 * 86_400 * SECOND, now)


def test_a_spoiled_turn_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "FILES_PER_QUERY", 5)
    root = str(jwt_store(tmp_path, 20).root.resolve())
    opened(Path(root)).close()
    turn = Path(f"{index_file.find_index_file(root)}.turn")
    for text in ("", "1 2", "x y z", "1 2 3 4", "\0" * 40):
        turn.write_text(text)
        seen = []
        for _ in range(2):
            opened(Path(root)).close()
            seen.append(turn.read_text().split())
        assert seen == [["5", "0", "1"], ["10", "0", "2"]]
    turn.unlink()
    turn.mkdir()
    opened(Path(root)).close()
