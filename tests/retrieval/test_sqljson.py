from __future__ import annotations

import json
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
