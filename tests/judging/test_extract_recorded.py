"""Answers that real judges gave, where the test data is at hand: all are read, and none is made up."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pydantic import BaseModel, Field

from judgekit.errors import FailureKind, InvalidReply
from judgekit.judging.extract import extract
from judgekit.judging.round import cause

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


def _read(raw: str, model: type[BaseModel]) -> int | None:
    try:
        return int(next(iter(extract(raw, model).model_dump().values())))
    except InvalidReply:
        return None


def test_recorded_answers() -> None:
    """Each answer in JSON with a stated value gives that value; each other one, and no JSON, gives none."""
    with DATA.open(encoding="utf-8") as lines:
        rows = list(map(json.loads, lines))
    assert {row["expected"] is None for row in rows if row["format"] in MODELS} == {True, False}
    for row in rows:
        models = (MODELS[row["format"]],) if row["format"] in MODELS else (Relevant, Overall)
        for model in models:
            wanted = int(row["expected"]) if row["format"] in MODELS and row["expected"] is not None else None
            assert _read(row["raw"], model) == wanted, row["raw"]
        if row["format"] == "quality-label broken json" and row["expected"] is not None:
            assert extract(row["raw"], Quality).quality.lower().startswith(row["expected"])
    # No answer that its authors could read counts as a refusal, and some that they could not do.
    refused = [row for row in rows if cause(row["raw"]) is FailureKind.REFUSAL]
    assert {row["expected"] for row in refused} == {None}
