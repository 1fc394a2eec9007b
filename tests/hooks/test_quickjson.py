from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgekit.retrieval import quickjson

TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
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
        quickjson.written(value),
        f" \n{json.dumps(value)}\t",
    ):
        assert repr(quickjson.loads(text)) == repr(value)
    assert json.loads(quickjson.written(value)) == value


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


def test_single_values_are_extracted() -> None:
    event = (
        '{"prompt": "Why?", "yes": true, "no": null, "tool": {"path": "a", "deep": {"b": [1, true]}}, "n": 1}'
    )
    places = ["prompt", "yes", "no", "missing", "tool.path", "tool.deep", "prompt.deep", "n"]
    expected = ["Why?", True, None, None, "a", {"b": [1, True]}, None, 1]
    assert quickjson.extract(event, places) == expected
    assert quickjson.extract("[1]", places) is None
    assert quickjson.extract("3", places) is None
    with pytest.raises(ValueError, match="not valid JSON"):
        quickjson.extract('{"prompt": ', places)


def test_bytes_of_a_path_that_is_not_utf_8_are_written_as_ascii() -> None:
    assert quickjson.written({"cwd": "/tmp/\udcff"}).encode() == b'{"cwd":"/tmp/\\udcff"}'


START = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
ALONE = """
from judgekit.retrieval import quickjson
assert quickjson.loads('[1, {"a": null}]') == [1, {"a": None}] and quickjson.written("é") == '"\\\\u00e9"'
for broken in ("{", "NaN", "1 2", "[" * 50_000):
    try:
        sys.exit(f"read {quickjson.loads(broken)}")
    except ValueError:
        pass
print("fine")
"""
WITHOUT_C = 'sys.modules["_json"] = None' + ALONE
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


@pytest.mark.parametrize(
    "code", [ALONE, WITHOUT_C, LEAN], ids=["json", "json without C", "sqlite without functools"]
)
def test_what_is_imported_in_place_of_the_usual_modules(code: str) -> None:
    """A stand-in serves `_sqlite3`; nobody who imports functools later may meet it."""
    command = [sys.executable, "-I", "-S", "-c", START + code]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert (done.stdout.decode().split(), done.stderr) == (["fine"], b"")
