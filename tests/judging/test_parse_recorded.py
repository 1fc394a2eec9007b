"""Answers that real judges gave, where the test data is at hand: all are read, and none is made up."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel, Field

from judgekit.errors import FailureKind, InvalidReply
from judgekit.judging.extract import extract
from judgekit.judging.round import cause

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = (
    Path(os.environ.get("JUDGEKIT_TEST_DATA", "/nonexistent")) / "judge" / "parse_fixtures" / "fixtures.jsonl"
)
pytestmark = pytest.mark.skipif(
    not DATA.is_file(), reason="JUDGEKIT_TEST_DATA names no folder with judge/parse_fixtures"
)


class Overall(BaseModel):
    overall: int = Field(ge=0, le=3, alias="O")


class Relevant(BaseModel):
    relevance: int = Field(ge=0, le=3)


class Quality(BaseModel):
    quality: str


MODELS: dict[str, type[BaseModel]] = {"json": Relevant, "broken-json": Relevant, "utility": Overall}


def _answers() -> Iterator[tuple[dict[str, Any], type[BaseModel]]]:
    with DATA.open(encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            if row["format"] in MODELS:
                yield row, MODELS[row["format"]]


def _read(raw: str, model: type[BaseModel]) -> int | None:
    try:
        return int(next(iter(extract(raw, model).model_dump().values())))
    except InvalidReply:
        return None


def test_recorded_json_answers() -> None:
    """Each answer with a stated value gives that value, and each without one gives none."""
    rows = list(_answers())
    stated = [
        (int(row["expected"]), _read(row["raw"], model)) for row, model in rows if row["expected"] is not None
    ]
    silent = [_read(row["raw"], model) for row, model in rows if row["expected"] is None]
    assert stated
    assert silent
    assert [pair for pair in stated if pair[0] != pair[1]] == []
    assert [value for value in silent if value is not None] == []


def test_recorded_answers_of_other_formats_hold_no_number() -> None:
    """Prose, labels and bare numbers are no objects: none may turn into one."""
    with DATA.open(encoding="utf-8") as lines:
        rows = [row for row in map(json.loads, lines) if row["format"] not in MODELS]
    assert rows
    assert [
        row["raw"] for row in rows for model in (Relevant, Overall) if _read(row["raw"], model) is not None
    ] == []


def test_recorded_labels() -> None:
    """A label that a JSON value states is read as it stands, prose behind the object or not."""
    with DATA.open(encoding="utf-8") as lines:
        rows = [row for row in map(json.loads, lines) if row["format"] == "quality-label broken json"]
    stated = [row for row in rows if row["expected"] is not None]
    assert stated
    for row in stated:
        assert extract(row["raw"], Quality).quality.lower().startswith(row["expected"])


def test_recorded_refusals_are_told_apart() -> None:
    """No answer that its authors could read counts as a refusal, and some that they could not do."""
    with DATA.open(encoding="utf-8") as lines:
        rows = list(map(json.loads, lines))
    refused = [row for row in rows if cause(row["raw"]) is FailureKind.REFUSAL]
    assert refused
    assert [row["raw"] for row in refused if row["expected"] is not None] == []
