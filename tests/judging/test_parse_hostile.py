"""Replies made to be slow, deep or large: read or refused, in linear time."""

from __future__ import annotations

import time
import tracemalloc
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from replies import ROWS

from judgekit.errors import InvalidReply
from judgekit.judging.extract import extract
from judgekit.judging.scan import MAX_ENTRIES, MAX_OBJECTS, scan

if TYPE_CHECKING:
    from pydantic import BaseModel

HOSTILE = ROWS["hostile"]
OPENINGS = {
    "": [*HOSTILE["units"], "\ud800"],
    **dict.fromkeys(HOSTILE["openings"], HOSTILE["inside"]),
    '{"relevance":1}': HOSTILE["beside"],
}
SIZE = 300_000
DEADLINE = 3.0
"""Seconds of CPU for so many characters: ten times what they take, a hundredth of a square's."""


def _attempt(raw: str, model: type[BaseModel]) -> None:
    began = time.process_time()
    with suppress(InvalidReply):
        extract(raw, model)
    assert time.process_time() - began < DEADLINE, raw[:60]


@pytest.mark.parametrize("opening", OPENINGS)
def test_a_long_reply_does_not_hang(opening: str, relevance: type[BaseModel]) -> None:
    for unit in OPENINGS[opening]:
        flood = unit * (SIZE // len(unit))
        _attempt(opening + flood, relevance)
        if opening == '{"relevance":1}':
            _attempt(f"{opening[:-1]},{flood}", relevance)
            _attempt(f"{flood}\n{opening}", relevance)


def test_many_repeated_keys_do_not_hang(relevance: type[BaseModel]) -> None:
    keys = ",".join(f'"k{number}":1' for number in range(50_000))
    _attempt(f"{{{keys},{keys.replace(':1', ':2')}}}", relevance)


@pytest.mark.parametrize("depth", [10, 63, 64, 65, 10_000])
@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ('{"a":[', "]}")])
def test_depth_is_no_recursion(depth: int, opening: str, closing: str, relevance: type[BaseModel]) -> None:
    _attempt(opening * depth + '{"relevance": 1}' + closing * depth, relevance)
    deep = extract(opening * depth + "1" + closing * depth + '\n{"relevance": 2}', relevance)
    assert deep.model_dump() == {"relevance": 2, "explanation": ""}


def test_objects_kept_are_bounded(relevance: type[BaseModel]) -> None:
    raw = '{"relevance": 1}' + "{}" * (MAX_ENTRIES - 2)
    tracemalloc.start()
    try:
        assert len(scan(raw)) == MAX_OBJECTS
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
    with pytest.raises(InvalidReply, match="without"):
        extract(raw, relevance)


@pytest.mark.parametrize(
    "raw",
    ["{}" * (MAX_ENTRIES + 1), f'{{"a": [{"1," * MAX_ENTRIES}', '{"a":' * MAX_ENTRIES],
)
def test_a_flood_is_no_reply(raw: str, relevance: type[BaseModel]) -> None:
    with pytest.raises(InvalidReply, match="more than 50000 objects"):
        extract(raw + '\n{"relevance": 2}', relevance)


@pytest.mark.parametrize("noise", ["\0", "\ud800", "\udfff\ud800", "\u202e", "\x1b[31m"])
def test_strange_characters_are_text(noise: str, relevance: type[BaseModel]) -> None:
    raw = f'{noise}{{"{noise}": 1, "explanation": "a{noise}b", "relevance": 2}}{noise}'
    read = extract(raw, relevance).model_dump()
    assert read["relevance"] == 2
    assert read["explanation"].encode()
