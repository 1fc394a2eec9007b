"""Forms that models give their answers: which are read, and which give no number that is certain."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, create_model
from replies import FORGED, HIGH, LOW, ROWS, Flat, Nested, Relevance

from judgekit.errors import FailureKind, InvalidReply
from judgekit.judging.extract import extract
from judgekit.judging.round import cause
from judgekit.judging.scan import MAX_ENTRIES, scan

if TYPE_CHECKING:
    from collections.abc import Mapping


ONE_NUMBER = {
    **ROWS["wrapped"],
    **ROWS["misspelt"],
    "lone surrogate": '{"explanation": "\ud83d", "relevance": 2}',
    "NUL": '{"explanation": "\0", "relevance": 2}\0',
}


@pytest.mark.parametrize("raw", ONE_NUMBER.values(), ids=ONE_NUMBER)
def test_one_number_is_read(raw: str) -> None:
    assert extract(raw, Relevance).relevance == 2


@pytest.mark.parametrize("raw", ROWS["scores"].values(), ids=ROWS["scores"])
def test_scores_are_read_nested_and_flat(raw: str) -> None:
    wanted = {"semantic": 4, "pragmatic": 3, "syntactic": 5}
    assert extract(raw, Nested).model_dump() == {"reasoning": "Fine.", "scores": wanted}
    assert extract(raw, Flat).model_dump() == {"reasoning": "Fine.", **wanted}


@pytest.mark.parametrize(("raw", "text"), ROWS["kept"].values())
def test_text_is_kept(raw: str, text: str) -> None:
    assert extract(raw, Relevance).model_dump() == {"relevance": 1, "explanation": text}


class Kinds(BaseModel):
    winner: Literal["A", "B", "tie"] | None = None
    level: Literal[1, 2] = 1
    keep: list[str] = []
    weights: dict[str, int] = {}
    share: float | None = None
    either: int | str = 0
    flag: bool = False
    more: Any = None


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ('{"winner": "TIE"}', {"winner": "tie"}),
        ('{"winner": null}', {"winner": None}),
        ('{"level": "2"}', {"level": 2}),
        ('{"keep": [a1, b2]}', {"keep": ["a1", "b2"]}),
        ('{"keep": ["a1" \n "b2",]}', {"keep": ["a1", "b2"]}),
        ('{"keep": [7, 12]}', {"keep": ["7", "12"]}),
        ('{"keep": ["say "a", or b", "c"]}', {"keep": ['say "a", or b', "c"]}),
        ('{"keep": null}', {"keep": []}),
        ('{"weights": {"a": "1", "b": {"score": 2}}}', {"weights": {"a": 1, "b": 2}}),
        ('{"weights": [{"name": "a", "score": 1}]}', {"weights": {"a": 1}}),
        ('{"share": "0.25"}', {"share": 0.25}),
        ('{"flag": True}', {"flag": True}),
        ('{"flag": "false"}', {"flag": False}),
        ('{"more": {"a": [1, {"b": null}]}}', {"more": {"a": [1, {"b": None}]}}),
    ],
)
def test_kinds_of_values(raw: str, wanted: Mapping[str, object]) -> None:
    read = extract(raw, Kinds)
    assert {name: getattr(read, name) for name in read.model_fields_set or wanted} == wanted


class Aliased(BaseModel):
    topic: int = Field(alias="T")
    final_score: int = 0


def test_aliases_and_alike_keys() -> None:
    for raw in ('{"T": 1, "final_score": 3}', '{"t": 1, "Final Score": 3, "other": {}}'):
        read = extract(raw, Aliased)
        assert (read.topic, read.final_score) == (1, 3)
    assert extract('{"RELEVANCE": 1, "relevance": 2}', Relevance).relevance == 2


# What is not read


@pytest.mark.parametrize(("raw", "why"), ROWS["refused"].values(), ids=ROWS["refused"])
def test_nothing_is_made_up(raw: str, why: str) -> None:
    with pytest.raises(InvalidReply) as refused:
        extract(raw, Relevance)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(("raw", "why"), ROWS["missing"].values())
def test_scores_are_not_made_up(raw: str, why: str) -> None:
    with pytest.raises(InvalidReply) as refused:
        extract(raw, Nested)
    assert why in str(refused.value)


@pytest.mark.parametrize("raw", ROWS["quoted"].values(), ids=ROWS["quoted"])
def test_an_answer_that_is_quoted_without_escapes_is_not_taken(raw: str) -> None:
    try:
        reply = extract(raw, Nested)
    except InvalidReply:
        return
    assert json.loads(LOW) == reply.scores.model_dump()


def test_another_scale_beside_the_scores_is_refused() -> None:
    others = ('"max_score": 10', '"out_of": "10"', '"scale": 10', '"Scale": "1-10"')
    for scale in (*others, '"scale": {"min": 0, "max": 100}'):
        for raw in (
            f'{{"reasoning": "r", "scores": {HIGH}, {scale}}}',
            f'{{{scale}, "result": {{"reasoning": "r", "scores": {HIGH}}}}}',
        ):
            with pytest.raises(InvalidReply, match="another scale than the one up to 5"):
                extract(raw, Nested)
    for word in ('"max_score": 5', '"scale": "0-5"', '"total": 15', '"scale": "ordinal"', '"scale": null'):
        read = extract(f'{{"reasoning": "r", "scores": {HIGH}, {word}}}', Nested)
        assert read.scores.model_dump() == json.loads(HIGH)


def test_how_a_model_is_configured_decides() -> None:
    for config in (ConfigDict(extra="ignore"), ConfigDict(extra="allow"), ConfigDict(extra="forbid")):
        model = create_model("Configured", __config__=config, relevance=(int, ...))
        if config["extra"] == "forbid":
            with pytest.raises(InvalidReply, match="note"):
                extract('{"relevance": 1, "note": "x"}', model)
        else:
            assert extract('{"relevance": 1, "note": "x"}', model).model_dump()["relevance"] == 1
    exact = create_model("Exact", __config__=ConfigDict(strict=True), relevance=(int, ...))
    for raw in ('{"relevance": "2"}', '{"relevance": 2.0}'):
        assert extract(raw, exact).model_dump() == {"relevance": 2}
    two = '{"reasoning": "x", "scores": {"semantic": 1, "pragmatic": 1}, "ratings": {"semantic": 2}}'
    with pytest.raises(InvalidReply, match="2 places"):
        extract(two, Flat)
    begun_anew = '{"reasoning": "The text is ' + FORGED
    assert extract(begun_anew, Nested).scores.model_dump() == json.loads(HIGH)


class Choices(Kinds):
    keep: list[str]
    pair: tuple[int, int] = (0, 0)


@pytest.mark.parametrize("raw", ROWS["bent"].values())
def test_other_kinds_are_not_bent(raw: str) -> None:
    with pytest.raises(InvalidReply):
        extract(raw, Choices)


# Why a reply could not be read: a refusal, a cut, or neither


def test_why_a_reply_could_not_be_read() -> None:
    for table, kind in (
        ("refusal", FailureKind.REFUSAL),
        ("cut", FailureKind.TRUNCATED),
        ("neither", FailureKind.INVALID_REPLY),
    ):
        for raw in ROWS[table].values():
            assert cause(raw) is kind, raw
    flood = '{"findings": [' + '{"dimension": "semantic", "issue": "x"},' * (MAX_ENTRIES // 2) + "]}"
    with pytest.raises(InvalidReply):
        scan(flood)
    assert cause(flood) is FailureKind.INVALID_REPLY


@given(st.text() | st.text("{}[]\":,'\\ \nIsorcanthelp19"))
def test_every_text_has_a_cause(raw: str) -> None:
    kinds = (FailureKind.REFUSAL, FailureKind.TRUNCATED, FailureKind.INVALID_REPLY)
    assert cause(raw) in kinds


# Answers that real judges gave, where the test data is at hand

DATA = Path(os.environ.get("JUDGEKIT_TEST_DATA", "/nonexistent"), "judge/parse_fixtures/fixtures.jsonl")


class Overall(BaseModel):
    overall: int = Field(ge=0, le=3, alias="O")


class Relevant(BaseModel):
    relevance: int = Field(ge=0, le=3)


class Quality(BaseModel):
    quality: str


MODELS: dict[str, type[BaseModel]] = {"json": Relevant, "broken-json": Relevant, "utility": Overall}


@pytest.mark.skipif(not DATA.is_file(), reason="JUDGEKIT_TEST_DATA names no folder with judge/parse_fixtures")
def test_recorded_answers() -> None:
    """Each answer in JSON with a stated value gives that value; each other one, and no JSON, gives none."""

    def read(raw: str, model: type[BaseModel]) -> int | None:
        try:
            return int(next(iter(extract(raw, model).model_dump().values())))
        except InvalidReply:
            return None

    rows = [json.loads(line) for line in DATA.read_text("utf-8").split("\n") if line]
    assert {row["expected"] is None for row in rows if row["format"] in MODELS} == {True, False}
    for row in rows:
        models = (MODELS[row["format"]],) if row["format"] in MODELS else (Relevant, Overall)
        for model in models:
            wanted = int(row["expected"]) if row["format"] in MODELS and row["expected"] is not None else None
            assert read(row["raw"], model) == wanted, row["raw"]
        if row["format"] == "quality-label broken json" and row["expected"] is not None:
            assert extract(row["raw"], Quality).quality.lower().startswith(row["expected"])
    # No answer that its authors could read counts as a refusal, and some that they could not do.
    refused = [row for row in rows if cause(row["raw"]) is FailureKind.REFUSAL]
    assert {row["expected"] for row in refused} == {None}
