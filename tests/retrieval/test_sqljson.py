from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgekit.retrieval import sqljson

TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
@settings(deadline=None)
def test_it_reads_what_json_reads(value: object) -> None:
    assert sqljson.loads(json.dumps(value)) == value
    assert sqljson.loads(sqljson.dumps(value)) == value


def test_truth_values_are_no_numbers() -> None:
    assert (
        repr(sqljson.loads('{"a": true, "b": [false, null, 1, 1.5]}'))
        == "{'a': True, 'b': [False, None, 1, 1.5]}"
    )


@pytest.mark.parametrize("text", ["", "{", '{"a": }', "nope", '{"a": "x" "b"}', "[" * 5000])
def test_what_is_no_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="not valid JSON"):
        sqljson.loads(text)


def test_half_a_surrogate_pair_becomes_text_that_can_be_printed() -> None:
    found = sqljson.loads('{"a": "x\\ud83dy", "b": "\\ud83d\\ude00"}')
    assert found["b"] == "😀"
    assert found["a"].encode("utf-8")
    assert found["a"][0] + found["a"][-1] == "xy"


def test_raw_surrogates_and_nuls_do_not_cut_a_text_short() -> None:
    assert sqljson.loads('["a\ud800b"]')[0][0::2] == "ab"
    assert sqljson.loads('["a\\u0000b"]') == ["a b"]


def test_without_sqlite_the_standard_library_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqljson, "sqlite", None)
    value: dict[str, Any] = {"a": [1, True, None, "x"]}
    assert sqljson.loads(json.dumps(value)) == value
    with pytest.raises(ValueError, match="Expecting"):
        sqljson.loads("{")


EVENT = '{"prompt": "Why?", "yes": true, "no": null, "tool": {"path": "a", "deep": {"b": [1, true]}}, "n": 1}'


@pytest.mark.parametrize("reader", ["sqlite", "json", "sqlite without JSON"])
def test_single_values_are_extracted(reader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if reader == "json":
        monkeypatch.setattr(sqljson, "sqlite", None)
    if reader == "sqlite without JSON":
        monkeypatch.setattr(sqljson, "_TREE", "SELECT 1, 2 FROM json_tree_that_is_missing(?)")
        monkeypatch.setattr(sqljson, "_ONE", "json_extract_that_is_missing(?1, ?), json_type(?1, ?)")
    places = ["prompt", "yes", "no", "missing", "tool.path", "tool.deep", "prompt.deep", "n"]
    found = sqljson.extract(EVENT, places)
    assert found == ["Why?", True, None, None, "a", {"b": [1, True]}, None, 1]
    assert sqljson.extract("[1]", places) is None
    assert sqljson.extract("3", places) is None
    assert sqljson.extract('{"prompt": "a\\u0000b\\ud83d"}', ["prompt"])[0][:3] == "a b"  # type: ignore[index]
    with pytest.raises(ValueError, match=r"not valid JSON|Expecting"):
        sqljson.extract('{"prompt": ', places)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(ANY)
def test_what_is_written_is_read_by_others(value: object) -> None:
    assert json.loads(sqljson.written(value)) == value


def test_bytes_of_a_path_that_is_not_utf_8_are_written_as_ascii() -> None:
    written = sqljson.written({"cwd": "/tmp/\udcff"})
    assert written.encode() == b'{"cwd":"/tmp/\\udcff"}'


LEAN = """
import sys
from judgekit.retrieval import sqljson
assert "functools" not in sys.modules and "collections" not in sys.modules, sorted(sys.modules)
assert sqljson.loads('[1, {"a": null}]') == [1, {"a": None}]
connection = sqljson.sqlite.connect(":memory:", cached_statements=2)
for number in [1, 2, 3, 1, 2, 3]:
    assert connection.execute(f"SELECT {number}").fetchone() == (number,)
connection.close()
import functools, sqlite3
assert functools.lru_cache(maxsize=1)(len)("ab") == 2 and functools.partial(len, "abc")() == 3
assert sqlite3.connect(":memory:").execute("SELECT 4").fetchone() == (4,)
print("fine")
"""


def test_sqlite_is_imported_without_functools_which_stays_whole_for_others() -> None:
    """A stand-in serves `_sqlite3`; nobody who imports functools later may meet it."""
    start = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", start + LEAN], capture_output=True, timeout=60, check=False
    )
    assert (done.stdout.decode().split(), done.stderr) == (["fine"], b"")
