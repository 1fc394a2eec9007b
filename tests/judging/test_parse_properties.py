"""Properties of reading replies, over generated objects, prose and noise."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from judgekit.errors import AmbiguousReply, InvalidReply
from judgekit.judging.extract import extract
from judgekit.judging.scan import scan


class Finding(BaseModel):
    issue: str
    line: int = 0


class Single(BaseModel):
    score: float


class Reply(BaseModel):
    reasoning: str
    score: int = Field(ge=-99, le=99)
    share: float
    keep: list[str]
    findings: list[Finding]
    note: str | None = None


TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40)
TRICKY = st.lists(
    st.sampled_from(['"', "'", "“", "”", "{", "}", "[", "]", ",", ":", " ", "\n", "\\", "//", "/*", "#", "1",
                     "a", '"score": 3', '{"score": 3}', "</think>", "```"]),
    max_size=12,
).map("".join)  # fmt: skip
STRINGS = st.one_of(TEXT, TRICKY)
REPLIES = st.builds(
    Reply,
    reasoning=STRINGS,
    score=st.integers(-99, 99),
    share=st.floats(-1000, 1000, width=16),
    keep=st.lists(STRINGS, max_size=4),
    findings=st.lists(st.builds(Finding, issue=STRINGS, line=st.integers(0, 9999)), max_size=3),
    note=st.none() | STRINGS,
)
PROSE = st.text(alphabet=st.characters(exclude_characters='{"“”„', exclude_categories=["Cs"]), max_size=60)
STYLES = st.sampled_from(
    [{}, {"indent": 2}, {"ensure_ascii": False}, {"separators": (",", ":")}, {"indent": "\t"}]
)
WRAPPERS = st.sampled_from(
    ["{}", "```json\n{}\n```", "```\n{}\n```", "<think>hm</think>{}", "hm</think>\n{}", "[{}]", "[\n{},\n]"]
)


def _dumped(reply: Reply, style: dict[str, Any]) -> str:
    return json.dumps(reply.model_dump(), **style)


@given(REPLIES, STYLES, WRAPPERS, PROSE, PROSE)
def test_an_object_survives_what_is_put_around_it(
    reply: Reply, style: dict[str, Any], wrapper: str, before: str, after: str
) -> None:
    raw = before + wrapper.replace("{}", _dumped(reply, style)) + after
    assert extract(raw, Reply) == reply


@given(REPLIES, REPLIES, PROSE)
def test_two_answers_are_read_only_if_they_are_one(first: Reply, second: Reply, between: str) -> None:
    required = {"reasoning", "score", "share", "keep", "findings"}
    restated = first.model_copy(update={"note": second.note})
    assert extract(_dumped(first, {}) + between + _dumped(restated, {}), Reply) == restated
    if first.model_dump(include=required) != second.model_dump(include=required):
        with pytest.raises(AmbiguousReply):
            extract(_dumped(first, {}) + between + _dumped(second, {}), Reply)


@given(REPLIES, STYLES, st.data())
def test_a_prefix_never_gives_another_value(reply: Reply, style: dict[str, Any], data: st.DataObject) -> None:
    whole = _dumped(reply, style)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    try:
        read = extract(cut, Reply)
    except InvalidReply:
        return
    for name in read.model_fields_set:
        assert getattr(read, name) == getattr(reply, name), cut


class Last(BaseModel):
    score: int


@pytest.mark.parametrize("score", [1, 10, 100, -1, -10])
@pytest.mark.parametrize("style", [{}, {"indent": 2}])
def test_every_prefix_of_a_short_object(score: int, style: dict[str, Any]) -> None:
    whole = json.dumps({"score": score, "why": 'say "5", so', "more": [1, {"score": 7}]}, **style)
    assert extract(whole, Last).score == score
    whole = whole.replace('{"score": 7}', '{"level": 7}').replace('"score": 7\n', '"level": 7\n')
    read = 0
    for end in range(len(whole) + 1):
        try:
            assert extract(whole[:end], Last).score == score, whole[:end]
            read += 1
        except InvalidReply:
            assert end <= whole.index(str(score)) + len(str(score)), whole[:end]
    assert read > 20


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | STRINGS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(STRINGS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(STRINGS, JSON, max_size=4), STYLES)
@example({"a": "“x”}", "b": 1}, {"ensure_ascii": False})
@example({"a“b": 1}, {"ensure_ascii": False})
@example({"a": ['x"], "b": 1', '", "']}, {})
def test_json_is_read_exactly(value: dict[str, Any], style: dict[str, Any]) -> None:
    objects = scan(json.dumps(value, **style))
    assert len(objects) == 1
    assert objects[0] == value
    assert objects[0].closed


@given(st.text(max_size=300) | TRICKY | st.lists(TRICKY | TEXT, max_size=20).map('{"score":'.join))
def test_noise_is_read_or_refused(raw: str) -> None:
    for model in (Last, Reply):
        try:
            extract(raw, model)
        except InvalidReply:
            continue


@given(TRICKY, TRICKY, st.integers(0, 9))
def test_unescaped_text_never_changes_the_score(before: str, after: str, score: int) -> None:
    """What a judge copies from its subject without escaping it may cost the reply, not falsify it."""
    if "score" in before + after:
        return
    raw = f'{{"why": "{before}", "score": {score}, "more": "{after}"}}'
    with suppress(InvalidReply):
        assert extract(raw, Last).score == score


@example("+.1", '{{"score": {}}}')
@given(
    st.text("{}[]\":,'\\ \n0123456789.-+eE%/abkscore"),
    st.sampled_from(["{}", '{{"score": {}}}', "score: {}"]),
)
def test_a_number_that_is_read_stands_in_the_text(raw: str, form: str) -> None:
    """Whatever the text, a score is one of the numbers in it, digit for digit."""
    raw = form.format(raw)
    try:
        score = extract(raw, Single).score
    except InvalidReply:
        return
    written = re.findall(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", raw)
    assert score in [float(each) for each in written]
