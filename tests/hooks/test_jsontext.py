"""Editing JSON as text: what is not edited stays byte for byte, and an edit can be undone."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgekit.hooks import entries


def names(text: str) -> list[str | None]:
    return [child.key for child in entries.parse(text).children]


def trail(text: str, *keys: str) -> entries.Trail:
    value = entries.parse(text)
    way = []
    for key in keys:
        child = entries.member(value, key)
        assert child is not None
        way.append((value, child))
        value = child.value
    return way


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        ' {"a" : [1, -2.5e+3, true, false, null, "x\\u00e9\\"", {}]}\r\n',
        '"only a string"',
        "0",
        "\ufeff{}",
        '{"a": 1, "a": 2}',
        '"\\ud800"',
    ],
)
def test_valid_json_is_read_to_its_end(text: str) -> None:
    value = entries.parse(text)
    assert text[: value.start].strip("\ufeff \r\n\t") == ""
    assert text[value.end :].strip() == ""
    assert entries.plain(text, value) == json.loads(text.removeprefix("\ufeff"))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("{", 1),
        ("[1, 2", 1),
        ('{"a": 1,}', 1),
        ("[1,\n2,\n]", 3),
        ('{"a"\n 1}', 2),
        ("{a: 1}", 1),
        ("{'a': 1}", 1),
        ('{"a": 1} {}', 1),
        ('{\n // a comment\n "a": 1}', 2),
        ("[01]", 1),
        ("[1.]", 1),
        ("[.5]", 1),
        ("[+1]", 1),
        ("[NaN]", 1),
        ("[Infinity]", 1),
        ("[-]", 1),
        ("[\u0661]", 1),
        ('["a\nb"]', 1),
        ('["\\x"]', 1),
        ('["open]', 1),
        ("[1\u00a0]", 1),
        ("nul", 1),
        ("\ufeff\ufeff{}", 1),
    ],
)
def test_invalid_json_is_refused_with_its_line(text: str, line: int) -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        entries.parse(text)
    assert caught.value.lineno == line


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_depth_is_bounded(opening: str, closing: str) -> None:
    fits = entries.MAX_DEPTH
    entries.parse(opening * fits + "1" + closing * fits)
    with pytest.raises(json.JSONDecodeError, match="deep"):
        entries.parse(opening * (fits + 1) + "1" + closing * (fits + 1))
    with pytest.raises(json.JSONDecodeError, match="deep"):
        entries.parse("[" * 1_000_000)


def test_the_last_of_two_equal_keys_counts() -> None:
    text = '{"a": 1, "\\u0061": 2}'
    child = entries.member(entries.parse(text), "a")
    assert child is not None
    assert entries.plain(text, child.value) == 2
    assert entries.member(entries.parse(text), "b") is None
    assert entries.member(entries.parse("[1]"), "a") is None


@pytest.mark.parametrize(
    ("text", "blank"), [("", True), (" \r\n\t", True), ("\ufeff", True), ("{}", False), ("\u00a0", False)]
)
def test_blank(text: str, *, blank: bool) -> None:
    assert entries.is_blank(text) is blank


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{\n  "a": 1\n}\n', '{\n  "a": 1,\n  "k": {\n    "x": 1\n  }\n}\n'),
        ('{\n\t"a": 1\n}', '{\n\t"a": 1,\n\t"k": {\n\t\t"x": 1\n\t}\n}'),
        ('{\r\n    "a": 1\r\n}', '{\r\n    "a": 1,\r\n    "k": {\r\n        "x": 1\r\n    }\r\n}'),
        ('{"a": 1}', '{"a": 1, "k": {\n  "x": 1\n}}'),
        ('{"a":1,"b":2}', '{"a":1,"b":2, "k": {\n  "x": 1\n}}'),
        ("{ }", '{ "k": {\n  "x": 1\n}}'),
        ('{\n  "a": 1,\n\n  "b": 2 }', '{\n  "a": 1,\n\n  "b": 2,\n  "k": {\n    "x": 1\n  } }'),
    ],
)
def test_a_new_member_is_laid_out_like_the_others(text: str, expected: str) -> None:
    assert entries.appended(text, entries.parse(text), {"x": 1}, "k") == expected


@pytest.mark.parametrize(
    ("text", "keys", "expected"),
    [
        ('{"a": 1, "b": 2, "c": 3}', ["a"], '{"b": 2, "c": 3}'),
        ('{"a": 1, "b": 2, "c": 3}', ["b"], '{"a": 1, "c": 3}'),
        ('{"a": 1 , "b": 2 }', ["b"], '{"a": 1 }'),
        ('{ "a": 1}', ["a"], "{ }"),
        ('{"o": { "a": 1}, "b": 2}', ["o", "a"], '{"o": { }, "b": 2}'),
        ('{"b": 2, "o": {"a": 1\n}}', ["o", "a"], '{"b": 2}'),
        ('{"o": {"a": 1\n}}', ["o", "a"], "{}"),
        (' {"o": {"a": 1\n}\n}\n', ["o", "a"], " "),
        ('{"o": {"p": {"a": 1 } } }', ["o", "p", "a"], ""),
    ],
)
def test_a_member_goes_with_what_was_made_for_it(text: str, keys: list[str], expected: str) -> None:
    assert entries.without(text, trail(text, *keys)) == expected


spaces = st.text(" \t\n\r", max_size=3)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
)


@st.composite
def written(draw: st.DrawFn, value: object) -> str:
    """Write a value as JSON with whitespace anywhere, keys twice, and any letter perhaps escaped."""

    def word(text: str) -> str:
        return json.dumps(text, ensure_ascii=draw(st.booleans()))

    def space() -> str:
        return draw(spaces)

    if isinstance(value, dict):
        parts = [
            f"{space()}{word(key)}{space()}:{space()}{draw(written(item))}{space()}"
            for key, item in value.items()
            for _ in range(draw(st.sampled_from([1, 1, 1, 2])))
        ]
        return "{" + (",".join(parts) or space()) + "}"
    if isinstance(value, list):
        return "[" + (",".join(f"{space()}{draw(written(item))}{space()}" for item in value) or space()) + "]"
    return word(value) if isinstance(value, str) else json.dumps(value)


values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
)


@settings(deadline=None)
@given(st.data())
def test_what_is_read_is_what_python_reads(data: st.DataObject) -> None:
    text = data.draw(spaces) + data.draw(written(data.draw(values))) + data.draw(spaces)
    assert entries.plain(text, entries.parse(text)) == json.loads(text)


@settings(deadline=None)
@given(st.text(' \n{}[]:,"\\u0123456789aeEtrufalsn.+-', max_size=12))
def test_what_is_refused_is_what_python_refuses(text: str) -> None:
    try:
        expected = json.loads(text, parse_constant=_refused)
    except ValueError:
        with pytest.raises(json.JSONDecodeError):
            entries.parse(text)
    else:
        found = entries.plain(text, entries.parse(text))
        assert found == expected or (isinstance(found, float) and math.isinf(found))


def _refused(name: str) -> float:
    raise ValueError(name)


@settings(deadline=None)
@given(st.data())
def test_appending_is_undone(data: st.DataObject) -> None:
    container = data.draw(st.one_of(st.dictionaries(st.text(max_size=4), values), st.lists(values)))
    text = data.draw(spaces) + data.draw(written(container)) + data.draw(spaces)
    key = "a new key" if isinstance(container, dict) else None
    content = data.draw(values)
    longer = entries.appended(text, entries.parse(text), content, key)
    read = json.loads(longer)
    if isinstance(container, dict):
        assert read == {**json.loads(text), "a new key": content}
    else:
        assert read == [*json.loads(text), content]
    root = entries.parse(longer)
    assert entries.without(longer, [(root, root.children[-1])]) == text
