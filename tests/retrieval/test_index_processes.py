"""Many processes on one store: while it is read for the first time, while it changes, when one is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from judgekit import environment
from judgekit.retrieval import compiled, index, index_file, update

if TYPE_CHECKING:
    from memory_store import MemoryStore

PROFILES = compiled.Profiles(compiled.bundled())
PROCESSES, QUERIES = 12, 4
DEADLINE = 120  # seconds

QUERYING = """
import json, sys, time
from judgekit.retrieval import compiled, index, index_file, search
profiles = compiled.Profiles(compiled.bundled())
root, project, queries = sys.argv[1], sys.argv[2], int(sys.argv[3])
longest = 0
for _ in range(queries):
    started = time.monotonic()
    ranked = search.search("JWT token refresh", [root], project=project, limit=15, profiles=profiles)
    longest = max(longest, time.monotonic() - started)
    assert ranked.fallback is None
found = index.open_index(root, profiles)
assert found.path is not None
assert found.connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
found.close()
print(json.dumps([[each.id for each in ranked.candidates], longest]))
"""

BUILDING = """
import os, signal, sys
from judgekit.retrieval import compiled, index, index_file, update
update.BATCH = 8
def killed(done, total):
    if done >= 24:
        os.kill(os.getpid(), signal.SIGKILL)
index.open_index(sys.argv[1], compiled.Profiles(compiled.bundled()), progress=killed)
"""


def start(*arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def files() -> list[Path]:
    return [path for path in Path(environment.cache_home(), index_file.FOLDER).rglob("*") if path.is_file()]


def rows(root: str) -> list[Any]:
    found = index.open_index(root, PROFILES)
    index.recheck(found, [path for (path,) in found.connection.execute("SELECT path FROM file").fetchall()])
    query = "SELECT path, live, title FROM file ORDER BY path"
    content = found.connection.execute(query).fetchall()
    found.close()
    return content


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
    assert [(error, process.returncode) for (_, error), process in zip(outputs, running, strict=True)] == [
        (b"", 0)
    ] * PROCESSES
    # On a slow machine a process may find that another one has not read that far.
    allowed = [["jwt"]] if built else [["jwt"], []]
    assert [json.loads(output)[0] for output, _ in outputs if json.loads(output)[0] not in allowed] == []
    kept = rows(root)
    assert len([path for path in files() if path.suffix == ".sqlite"]) == 1
    assert [path for path in files() if "making" in path.name] == []
    index.open_index(root, PROFILES, anew=True).close()
    assert kept == rows(root)


def test_what_a_killed_process_has_read_is_not_read_again(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.fill(60).write_index()
    root = str(store.root.resolve())
    for each in store.root.rglob("*.json"):
        os.utime(each, (10**9, 10**9))
    process = start(BUILDING, root)
    _, error = process.communicate(timeout=DEADLINE)
    assert (process.returncode, error) == (-signal.SIGKILL, b"")
    path = index_file.path_of(root)
    assert path is not None
    read: list[str] = []
    found = update.ReadFile

    def count(root: str, place: str, *rest: Any) -> Any:  # noqa: ANN401 - as it is
        read.append(place)
        return found(root, place, *rest)

    monkeypatch.setattr(update, "ReadFile", count)
    content = index.open_index(root, PROFILES)
    assert content.pending == 0
    assert content.size == 61
    content.close()
    assert 0 < len(read) < 61
    assert index_file.path_of(root) == path
