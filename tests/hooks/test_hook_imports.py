"""What the hook imports, to the module: each costs a hundredth of starting Python, on every prompt."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from hooking import QUESTION, TITLE, payload
from memory_store import MemoryStore, jwt_store

from judgekit import programs
from judgekit.hooks import entries
from judgekit.retrieval import index_file

if TYPE_CHECKING:
    from pathlib import Path

# What Python itself loads at its start differs between versions; beyond that, these and no others.
STANDARD = {"__future__", "_json", "_sqlite3", "gc", "math", "time"}
# `os` and what it imports are loaded by `site` at a usual start, and by us without it.
OS = {"_collections_abc", "_stat", "genericpath", "ntpath", "os", "os.path", "posixpath", "stat"}
EDGE = {
    "judgekit",
    "judgekit.hooks",
    "judgekit.hooks.claude_code",
}
SETTINGS = {"compiled"}
SEARCH = {"bm25", "confidence", "index", "index_file", "search", "terms"}
SHOWN = {"judgekit.hooks.context", "judgekit.text"}


def _retrieval(names: set[str]) -> set[str]:
    return {f"judgekit.retrieval.{name}" for name in names}


SILENT = EDGE | {"judgekit.retrieval", "judgekit.retrieval.quickjson"}
CONFIGURED = (
    SILENT
    | {"judgekit.environment", "judgekit.hooks.settings"}
    | {"judgekit.retrieval"}
    | _retrieval(SETTINGS)
)
ANSWERED = CONFIGURED | _retrieval(SEARCH) | SHOWN

PROBE = """
import sys
before = set(sys.modules)
sys.path.insert(0, {root!r})
from judgekit.hooks.claude_code import main
del sys.path[0]
code = main([])
print("\\n".join(sorted(set(sys.modules) - before)), file=sys.stderr)
sys.exit(code)
"""


def imported(payload: dict[str, object]) -> tuple[str, set[str]]:
    """Return what the hook prints, and the modules that it has imported by then."""
    done = subprocess.run(
        [sys.executable, *entries.OPTIONS, PROBE.format(root=programs.ROOT)],
        input=json.dumps(payload).encode(),
        capture_output=True,
        timeout=120,
        check=True,
    )
    return done.stdout.decode(), set(done.stderr.decode().split())


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    """Return a store that is indexed, and old enough for its files' times to tell every change."""
    made = jwt_store(tmp_path / "project", 50)
    settle(made)
    return made


def settle(store: MemoryStore) -> None:
    """Index the store once its files' times tell every change: how soon depends on the file system's tick."""
    paths = [store.root, *store.root.rglob("*")]
    for _ in range(100):
        changed = [stamp for path in paths for stamp in (path.stat().st_mtime_ns, path.stat().st_ctime_ns)]
        if all(index_file.is_sure(each, index_file.clock()) for each in changed):
            break
        time.sleep(0.05)
    imported(payload(store))


def ours(modules: set[str]) -> set[str]:
    return {name for name in modules if name.partition(".")[0] == "judgekit"}


def test_an_answer_imports_what_it_needs_and_nothing_else(store: MemoryStore) -> None:
    out, modules = imported(payload(store))
    assert TITLE in out
    assert ours(modules) <= ANSWERED
    assert modules - ours(modules) <= STANDARD | OS
    assert len(ours(modules)) <= 17, "each module more is a hundredth of starting Python more: merge or defer"


def test_a_compiled_configuration_and_a_missing_store_cost_no_import(
    store: MemoryStore, tmp_path: Path
) -> None:
    (store.root / "memory-config.json").write_text('{"retrieval": {"max_inject": 2}}')
    settle(store)
    out, modules = imported(payload(store))
    assert TITLE in out
    assert modules <= ANSWERED | STANDARD | OS
    (tmp_path / "bare").mkdir()
    out, modules = imported({"prompt": QUESTION, "cwd": str(tmp_path / "bare")})
    assert out == ""
    assert modules - ANSWERED - OS - STANDARD == set()


def test_silence_does_not_even_look_for_the_store(store: MemoryStore) -> None:
    changes: list[tuple[dict[str, object], set[str]]] = [
        ({"prompt": "yes"}, SILENT),
        ({"hook_event_name": "SessionStart"}, CONFIGURED),
        ({"hook_event_name": "Unheard of"}, SILENT),
        ({"hook_event_name": "PostToolUse", "tool_name": "Bash"}, SILENT),
    ]
    for change, most in changes:
        out, modules = imported(payload(store) | change)
        assert out == ""
        assert modules - OS - STANDARD <= most | {"judgekit.environment"}, change
        assert "_sqlite3" not in modules
