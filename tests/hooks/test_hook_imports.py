"""The hook's imports (each module costs a hundredth of starting Python), and its own JSON reader."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hooking import TITLE, by_user, payload
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_store import MemoryStore, jwt_store

from judgekit import programs
from judgekit.hooks import entries
from judgekit.retrieval import index_file, quickjson

# Python's own modules at its start differ between versions; beyond those, these and no others.
STANDARD = {"__future__", "_json", "_sqlite3", "gc", "math", "time"}
# `os` and what it imports are loaded by `site` at a usual start, and by us without it.
OS = {"_collections_abc", "_stat", "genericpath", "ntpath", "os", "os.path", "posixpath", "stat"}
SILENT = {"judgekit", "judgekit.environment", "judgekit.hooks", "judgekit.hooks.claude_code"}
SILENT |= {"judgekit.retrieval", "judgekit.retrieval.quickjson"}
CONFIGURED = SILENT | {"judgekit.hooks.settings", "judgekit.retrieval.compiled"}
SEARCH = ("bm25", "confidence", "index", "index_file", "parts", "search", "terms")
ANSWERED = CONFIGURED | {f"judgekit.retrieval.{name}" for name in SEARCH}
ANSWERED |= {"judgekit.hooks.context", "judgekit.text"}

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
    """Return the hook's output and the modules that it imported to make it."""
    done = subprocess.run(
        [sys.executable, *entries.PYTHON_OPTIONS, PROBE.format(root=programs.ROOT)],
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
        changed = [
            stamp for path in paths for stamp in (path.stat().st_mtime_ns, path.stat().st_ctime_ns)
        ]
        if all(index_file.is_sure(each, index_file.get_time_ns()) for each in changed):
            break
        time.sleep(0.05)
    imported(payload(store))


def test_an_answer_imports_what_it_needs_and_nothing_else(store: MemoryStore) -> None:
    prompt = "UserPromptSubmit"
    for configured, event in ((False, prompt), (False, "BeforeAgent"), (True, prompt)):
        if configured:
            (store.root / "memory-config.json").write_text('{"retrieval": {"max_inject": 2}}')
            settle(store)
        out, modules = imported(payload(store, hook_event_name=event))
        assert TITLE in out
        ours = {name for name in modules if name.startswith("judgekit")}
        assert ours <= ANSWERED
        assert modules - ours <= STANDARD | OS
        assert len(ours) <= 17, (
            "each module more is a hundredth of starting Python more: merge or defer"
        )


def test_a_session_costs_two_modules_of_ours_and_one_of_pythons(store: MemoryStore) -> None:
    """A session's memories are kept between its prompts; other clients and people send no session id."""
    for expected in (True, False):
        out, modules = imported(payload(store, session_id="a-session"))
        assert (TITLE in out) is expected
        assert {"judgekit.hooks.repeats", "_blake2"} <= modules
        assert modules <= ANSWERED | STANDARD | OS | {
            "judgekit.hooks.repeats",
            "judgekit.outputs",
            "errno",
            "_blake2",
        }


def test_silence_does_not_even_look_for_the_store(store: MemoryStore) -> None:
    by_user("judge: {mode: lenient}\n")
    imported(payload(store, hook_event_name="SessionStart"))  # the first one compiles the settings
    changes: list[tuple[dict[str, object], set[str]]] = [
        ({"prompt": "yes"}, SILENT),
        ({"hook_event_name": "SessionStart"}, CONFIGURED),
        ({"hook_event_name": "Stop", "stop_hook_active": False}, CONFIGURED),
        ({"hook_event_name": "Unheard of"}, SILENT),
        ({"hook_event_name": "PostToolUse", "tool_name": "Bash"}, SILENT),
    ]
    for change, most in changes:
        out, modules = imported(payload(store) | change)
        assert out == ""
        assert modules - OS - STANDARD <= most, change
        assert "_sqlite3" not in modules
    shutil.rmtree(store.root)
    out, modules = imported(payload(store))
    assert out == ""
    assert modules <= ANSWERED | OS | STANDARD | {"judgekit.retrieval.worktree"}


TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
@settings(deadline=None)
def test_it_reads_and_writes_what_json_does(value: object) -> None:
    for text in (
        json.dumps(value),
        quickjson.dumps(value),
        quickjson.dumps_ascii(value),
        f" \n{json.dumps(value)}\t",
    ):
        assert repr(quickjson.loads(text)) == repr(value)
    assert json.loads(quickjson.dumps_ascii(value)) == value


def test_what_is_no_json_is_a_value_error() -> None:
    nested = ("[" * 50_000, '{"a":' * 50_000)
    broken = ("", "{", '{"a": }', "nope", '{"a": "x" "b"}', "1 2", "NaN", "[Infinity]")
    for text in (*nested, *broken, '"a\nb"', '"a\0b"', "\ufeff{}"):
        with pytest.raises(ValueError, match="not valid JSON"):
            quickjson.loads(text)


def test_text_can_be_printed_whatever_its_escapes_say() -> None:
    found = quickjson.loads('{"a": "x\\ud83dy", "b": ["\\ud83d\\ude00"], "\\uD800": 1}')
    assert (found["a"][0] + found["a"][-1], found["b"]) == ("xy", ["😀"])
    assert repr(found).encode("utf-8")
    assert quickjson.loads('["a\ud800b"]')[0][0::2] == "ab"
    assert quickjson.loads('["a\\u0000b"]') == ["a b"]


def test_bytes_of_a_path_that_is_not_utf_8_are_written_as_ascii() -> None:
    assert quickjson.dumps_ascii({"cwd": "/tmp/\udcff"}).encode() == b'{"cwd":"/tmp/\\udcff"}'


START = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
ALONE = """
from judgekit.retrieval import quickjson
assert quickjson.loads('[1, {"a": null}]') == [1, {"a": None}] and quickjson.dumps_ascii("é") == '"\\\\u00e9"'
for broken in ("{", "NaN", "1 2", "[" * 50_000):
    try:
        sys.exit(f"read {quickjson.loads(broken)}")
    except ValueError:
        pass
print("fine")
"""
LEAN = """
from judgekit.retrieval import index_file
assert "functools" not in sys.modules and "collections" not in sys.modules, sorted(sys.modules)
connection = index_file.connect(":memory:")
for number in [1, 2, 3, 1, 2, 3]:
    assert connection.execute(f"SELECT {number}").fetchone() == (number,)
connection.close()
import functools, sqlite3
assert functools.lru_cache(maxsize=1)(len)("ab") == 2 and functools.partial(len, "abc")() == 3
assert sqlite3.connect(":memory:").execute("SELECT 4").fetchone() == (4,)
print("fine")
"""


@pytest.mark.parametrize("code", [ALONE, LEAN], ids=["json", "sqlite without functools"])
def test_what_is_imported_in_place_of_the_usual_modules(code: str) -> None:
    """A stand-in serves `_sqlite3`; a later import of functools must not get it."""
    command = [sys.executable, "-I", "-S", "-c", START + code]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert (done.stdout.decode().split(), done.stderr) == (["fine"], b"")
