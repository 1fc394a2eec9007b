"""Forms that models give their answers: which are read, by which schema, and which give nothing certain."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, create_model
from replies import FORGED, HIGH, LOW, ROWS, Flat, Nested, Relevance

from judgekit.errors import FailureKind, InvalidReply
from judgekit.replies import forms as replies
from judgekit.replies.extract import extract
from judgekit.replies.forms import (
    make_compare_reply_model,
    make_score_reply_model,
    make_select_reply_model,
)
from judgekit.replies.reading import classify_failure
from judgekit.replies.scan import MAX_ENTRIES, scan

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


def test_kinds_of_values() -> None:
    cases: list[tuple[str, Mapping[str, object]]] = [
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
    ]
    for raw, wanted in cases:
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
    for word in (
        '"max_score": 5',
        '"scale": "0-5"',
        '"total": 15',
        '"scale": "ordinal"',
        '"scale": null',
    ):
        read = extract(f'{{"reasoning": "r", "scores": {HIGH}, {word}}}', Nested)
        assert read.scores.model_dump() == json.loads(HIGH)


def test_how_a_model_is_configured_decides() -> None:
    for config in (
        ConfigDict(extra="ignore"),
        ConfigDict(extra="allow"),
        ConfigDict(extra="forbid"),
    ):
        model = create_model("Configured", __config__=config, relevance=(int, ...))
        if config["extra"] == "forbid":
            with pytest.raises(InvalidReply, match="note"):
                extract('{"relevance": 1, "note": "x"}', model)
        else:
            assert extract('{"relevance": 1, "note": "x"}', model).model_dump()["relevance"] == 1
    exact = create_model("Exact", __config__=ConfigDict(strict=True), relevance=(int, ...))
    for raw in ('{"relevance": "2"}', '{"relevance": 2.0}'):
        assert extract(raw, exact).model_dump() == {"relevance": 2}
    two = (
        '{"reasoning": "x", "scores": {"semantic": 1, "pragmatic": 1}, "ratings": {"semantic": 2}}'
    )
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
            assert classify_failure(raw) is kind, raw
    flood = (
        '{"findings": [' + '{"dimension": "semantic", "issue": "x"},' * (MAX_ENTRIES // 2) + "]}"
    )
    with pytest.raises(InvalidReply):
        scan(flood)
    assert classify_failure(flood) is FailureKind.INVALID_REPLY


@given(st.text() | st.text("{}[]\":,'\\ \nIsorcanthelp19"))
def test_every_text_has_a_cause(raw: str) -> None:
    kinds = (FailureKind.REFUSAL, FailureKind.TRUNCATED, FailureKind.INVALID_REPLY)
    assert classify_failure(raw) in kinds


# Answers that real judges gave, where the test data is at hand

DATA = Path(
    os.environ.get("JUDGEKIT_TEST_DATA", "/nonexistent"), "judge/parse_fixtures/fixtures.jsonl"
)


class Overall(BaseModel):
    overall: int = Field(ge=0, le=3, alias="O")


class Relevant(BaseModel):
    relevance: int = Field(ge=0, le=3)


class Quality(BaseModel):
    quality: str


MODELS: dict[str, type[BaseModel]] = {"json": Relevant, "broken-json": Relevant, "utility": Overall}


@pytest.mark.skipif(
    not DATA.is_file(), reason="JUDGEKIT_TEST_DATA names no folder with judge/parse_fixtures"
)
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
            wanted = (
                int(row["expected"])
                if row["format"] in MODELS and row["expected"] is not None
                else None
            )
            assert read(row["raw"], model) == wanted, row["raw"]
        if row["format"] == "quality-label broken json" and row["expected"] is not None:
            assert extract(row["raw"], Quality).quality.lower().startswith(row["expected"])
    # No answer that its authors could read counts as a refusal, and some that they could not do.
    refused = [row for row in rows if classify_failure(row["raw"]) is FailureKind.REFUSAL]
    assert {row["expected"] for row in refused} == {None}


LABELS = ["k7", "Qx", "m4"]
SCORES = {"accuracy": 4, "copy": 3, "json": 5}  # names of pydantic's methods
MODEL = make_score_reply_model(tuple(SCORES), 1, 5)
BAD = (6, 0, 4.5, True, None, "good")
NOTHING_SAID = {"dimension": "", "location": "", "suggestion": "", "quote": ""}


def read(**reply: Any) -> replies.ScoreReply:  # noqa: ANN401 - any JSON
    return extract(json.dumps({"reasoning": "Fine.", "scores": SCORES} | reply), MODEL)


def findings(given: object) -> list[dict[str, str]]:
    found: list[dict[str, str]] = read(findings=given).model_dump()["findings"]
    return found


def test_score_replies() -> None:
    finding = {
        "dimension": "json",
        "location": "line 3",
        "issue": "x",
        "suggestion": "y",
        "quote": "z",
    }
    reply = {"reasoning": "Fine.", "scores": SCORES, "findings": [finding]}
    jsonschema.validate(reply, MODEL.sent)
    assert read(findings=[finding]).model_dump() == reply | {"verdict": ""}
    for raw in (
        '{"reasoning": "Fine.", "accuracy": 4, "copy": "3", "json": 5.0}',
        '{"reasoning": "Fine.", "scores": {"Accuracy": {"score": 4}, "copy": {"score": 3}, "JSON": 5}}',
        '{"scores": {"accuracy": 4, "copy": 3, "json": 5}, "reasoning": "Fine.", "findings": [{"issue": "th',
        '{"reasoning": "Fine.", "scores": {"accuracy": 4, "copy": 3, "json": 5}, "findings": null}',
    ):
        said = extract(raw, MODEL).model_dump()
        assert said == {"reasoning": "Fine.", "scores": SCORES, "findings": [], "verdict": ""}
    for told, word in (("accept", "accept"), (" GO ", "GO"), (None, ""), ("x" * 999, "x" * 80)):
        assert read(verdict=told).verdict == word
    for reasoning, text in (
        ({"accuracy": "Sound.", "json": "Neat."}, "accuracy: Sound.\njson: Neat."),
        (["Sound.", "Neat."], "Sound.\nNeat."),
        (None, ""),
        ("x" * 99_999, "x" * replies.MAX_REASONING),
    ):
        assert read(reasoning=reasoning).reasoning == text
    for scores in ({}, 4, {"accuracy": 4, "copy": 3}, *({**SCORES, "json": bad} for bad in BAD)):
        with pytest.raises(InvalidReply):
            read(scores=scores)


def test_findings_in_other_forms() -> None:
    cases: tuple[tuple[object, list[str]], ...] = (
        ([], []),
        ("none", []),
        ("It has no end.", ["It has no end."]),
        (["One.", "  ", "Two.", None, 3], ["One.", "", "Two."]),
        ({"issue": "One."}, ["One."]),
        ([{"issue": "One.", "severity": "high"}, {}], ["One.", ""]),
        ([{"issue": ["One.", "Two."]}], ["One.\nTwo."]),
        (["x" * 5000], ["x" * replies.MAX_TEXT]),
    )
    for told, issues in cases:
        assert findings(told) == [{**NOTHING_SAID, "issue": issue} for issue in issues], told
    found = findings({"json": ["One.", {"issue": "Two.", "quote": "q"}], "copy": "Three."})
    shown = [(each["dimension"], each["issue"], each["quote"]) for each in found]
    assert shown == [("json", "One.", ""), ("json", "Two.", "q"), ("copy", "Three.", "")]


def kept(raw: str, *criteria: str) -> dict[str, list[str]]:
    return extract(raw, make_select_reply_model(criteria or ("relevant",), LABELS)).model_dump()


def test_labels_are_read_as_they_were_offered() -> None:
    for raw, keep in (
        ('{"keep": ["k7", "m4"]}', ["k7", "m4"]),
        ('{"keep": []}', []),
        ('{"keep": [" K7 ", "qX", "[m4]"]}', ["k7", "Qx", "m4"]),
        ('{"keep": ["m4", "k7", "M4"]}', ["m4", "k7"]),
        ('{"keep": [k7, m4]}', ["k7", "m4"]),
        ('{"keep": "k7"}', ["k7"]),
        ("Two of them:\n```json\n{'keep': ['k7', 'm4',]}\n```", ["k7", "m4"]),
        ('{"keep": ["z9", "k7", "k77", ""]}', ["k7"]),
    ):
        assert kept(raw) == {"keep": keep}, raw
    two = kept('{"useful": [], "Relevant": ["k7", "z9"], "keep": ["m4"]}', "relevant", "useful")
    assert two == {"relevant": ["k7"], "useful": []}


def test_invalid_selections() -> None:
    values = ('["z9"]', '["<label>"]', "[0, 2]", '["k7, m4"]', "null", "true", '"all"', '""')
    one = [f'{{"keep": {value}}}' for value in values]
    for raw in (*one, '{"keep": ["k7", "m4"', '{"kept": ["k7"]}', "k7"):
        with pytest.raises(InvalidReply):
            kept(raw)
    for raw in (
        '{"relevant": ["k7"]}',
        '{"relevant": ["k7"], "useful": ["z9"]}',
    ):  # each needs its list
        with pytest.raises(InvalidReply):
            kept(raw, "relevant", "useful")


def _parts(schema: dict[str, Any]) -> list[dict[str, Any]]:
    inner = [
        *schema.get("properties", {}).values(),
        *([schema["items"]] if "items" in schema else []),
    ]
    return [schema, *(part for each in inner for part in _parts(each))]


def test_schemas_use_only_what_strict_providers_bear() -> None:
    two = make_select_reply_model(("a", "b"), LABELS)
    jsonschema.validate({"a": ["k7"], "b": []}, two.sent)
    with pytest.raises(jsonschema.ValidationError, match="is not one of"):
        jsonschema.validate({"a": ["z9"], "b": []}, two.sent)
    for model in (MODEL, two, make_compare_reply_model(["L", "R"])):
        jsonschema.Draft202012Validator.check_schema(model.sent)
        for part in _parts(model.sent):
            assert set(part) <= {
                "type",
                "properties",
                "required",
                "additionalProperties",
                "items",
                "enum",
            }
            assert part["type"] in ("object", "array", "string", "integer")
            if part["type"] == "object":
                assert part["additionalProperties"] is False
                assert part["required"] == list(part["properties"])
