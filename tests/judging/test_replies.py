"""Reply models and their schemas, from rubrics."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from judgekit.errors import InvalidReply
from judgekit.judging.extract import extract
from judgekit.judging.replies import (
    MAX_FINDINGS,
    MAX_REASONING,
    MAX_TEXT,
    ScoreReply,
    SelectReply,
    json_schema,
    score_reply_model,
    select_reply_model,
)
from judgekit.rubric import loader
from judgekit.rubric.schema import ScoreRubric, SelectRubric

TEXTS = {"system": "s", "instructions": {"quick": "q", "deep": "d", "tiebreaker": "t"}}
MODE = {"accept": {"each": 3}, "reject": {"any_below": 2}, "confirm": "accept"}
OWN = {"rubric": "own", "version": "1.0.0", "title": "Own", "prompt": TEXTS}
LABELS = ["k7", "Qx", "m4"]
SCORES = {"accuracy": 4, "copy": 3, "json": 5}
BAD = (6, 0, 4.5, True, None, "good")
NOTHING_SAID = {"dimension": "", "location": "", "suggestion": "", "quote": ""}


@pytest.fixture
def rubric() -> ScoreRubric:
    """A rubric whose dimensions have the names of pydantic's methods."""
    scale = {"min": 1, "max": 5, "labels": dict.fromkeys(range(1, 6), "label")}
    dimensions = {name: {"question": "?"} for name in SCORES}
    modes = {"strict": MODE, "lenient": MODE}
    own = {**OWN, "task": "score", "scale": scale, "dimensions": dimensions, "modes": modes}
    return ScoreRubric.model_validate(own)


def selecting(*criteria: str) -> SelectRubric:
    mode = {"keep": "all", "confirm": "accept"}
    worded = {name: {"strict": "?", "lenient": "?"} for name in criteria}
    own = {**OWN, "task": "select", "criteria": worded, "modes": {"strict": mode, "lenient": mode}}
    return SelectRubric.model_validate(own)


def read(rubric: ScoreRubric, **reply: Any) -> ScoreReply:  # noqa: ANN401 - any JSON
    return extract(json.dumps({"reasoning": "Fine.", "scores": SCORES} | reply), score_reply_model(rubric))


def findings(rubric: ScoreRubric, given: object) -> list[dict[str, str]]:
    found: list[dict[str, str]] = read(rubric, findings=given).model_dump()["findings"]
    return found


def test_a_score_reply_as_asked(rubric: ScoreRubric) -> None:
    finding = {"dimension": "json", "location": "line 3", "issue": "x", "suggestion": "y", "quote": "z"}
    reply = {"reasoning": "Fine.", "scores": SCORES, "findings": [finding]}
    jsonschema.validate(reply, json_schema(score_reply_model(rubric)))
    assert read(rubric, findings=[finding]).model_dump() == reply | {"verdict": None}


def test_score_replies_in_other_forms(rubric: ScoreRubric) -> None:
    for raw in (
        '{"reasoning": "Fine.", "accuracy": 4, "copy": "3", "json": 5.0}',
        '{"reasoning": "Fine.", "scores": {"Accuracy": {"score": 4}, "copy": {"score": 3}, "JSON": 5}}',
        '{"scores": {"accuracy": 4, "copy": 3, "json": 5}, "reasoning": "Fine.", "findings": [{"issue": "th',
        '{"reasoning": "Fine.", "scores": {"accuracy": 4, "copy": 3, "json": 5}, "findings": null}',
    ):
        said = extract(raw, score_reply_model(rubric)).model_dump()
        assert said == {"reasoning": "Fine.", "scores": SCORES, "findings": [], "verdict": None}


def test_verdict_and_reasoning_in_other_forms(rubric: ScoreRubric) -> None:
    words: list[tuple[object, str | None]] = [
        ("accept", "accept"),
        (" GO ", "GO"),
        (None, None),
        (True, None),
    ]
    for given, word in [*words, ({"a": 1}, None), ("x" * 999, "x" * 80)]:
        assert read(rubric, verdict=given).verdict == word
    for reasoning, text in (
        ({"accuracy": "Sound.", "json": "Neat."}, "accuracy: Sound.\njson: Neat."),
        (["Sound.", "Neat."], "Sound.\nNeat."),
        (None, ""),
        ("x" * 99_999, "x" * MAX_REASONING),
    ):
        assert read(rubric, reasoning=reasoning).reasoning == text
    for scores in ({}, 4, {"accuracy": 4, "copy": 3}, *({**SCORES, "json": bad} for bad in BAD)):
        with pytest.raises(InvalidReply):
            read(rubric, scores=scores)


@pytest.mark.parametrize(
    ("given", "issues"),
    [
        ([], []),
        ("none", []),
        ("It has no end.", ["It has no end."]),
        (["One.", "  ", "Two.", None, 3], ["One.", "Two."]),
        ({"issue": "One."}, ["One."]),
        ([{"issue": "One.", "severity": "high"}, {}, {"quote": "x"}], ["One."]),
        ([{"suggestion": "Mend it."}], ["Mend it."]),
        ([{"issue": ["One.", "Two."]}], ["One.\nTwo."]),
        (["x" * 5000], ["x" * MAX_TEXT]),
        (["x"] * 99, ["x"] * MAX_FINDINGS),
    ],
)
def test_findings_in_other_forms(given: object, issues: list[str], rubric: ScoreRubric) -> None:
    assert findings(rubric, given) == [
        {**NOTHING_SAID, "issue": issue} | ({"suggestion": issue} if "suggestion" in str(given) else {})
        for issue in issues
    ]


def test_findings_by_dimension(rubric: ScoreRubric) -> None:
    found = findings(rubric, {"json": ["One.", {"issue": "Two.", "quote": "q"}], "copy": "Three."})
    shown = [(each["dimension"], each["issue"], each["quote"]) for each in found]
    assert shown == [("json", "One.", ""), ("json", "Two.", "q"), ("copy", "Three.", "")]


def kept(raw: str, *criteria: str) -> SelectReply:
    return extract(raw, select_reply_model(selecting(*(criteria or ("relevant",))), LABELS))


@pytest.mark.parametrize(
    ("raw", "keep"),
    [
        ('{"keep": ["k7", "m4"]}', ["k7", "m4"]),
        ('{"keep": []}', []),
        ('{"keep": [" K7 ", "qX", "[m4]"]}', ["k7", "Qx", "m4"]),
        ('{"keep": ["m4", "k7", "M4"]}', ["m4", "k7"]),
        ('{"keep": [k7, m4]}', ["k7", "m4"]),
        ('{"keep": "k7"}', ["k7"]),
        ("Two of them:\n```json\n{'keep': ['k7', 'm4',]}\n```", ["k7", "m4"]),
    ],
)
def test_labels_are_read_as_they_were_offered(raw: str, keep: list[str]) -> None:
    select_reply = kept(raw)
    assert select_reply.model_dump() == {"keep": keep}
    assert select_reply.unknown == 0


def test_invalid_selections() -> None:
    values = ('["z9"]', '["<label>"]', "[0, 2]", '["k7, m4"]', "null", "true", '"all"', '""')
    for raw in (
        *(f'{{"keep": {value}}}' for value in values),
        '{"keep": ["k7", "m4"',
        '{"kept": ["k7"]}',
        "k7",
    ):
        with pytest.raises(InvalidReply):
            kept(raw)


def test_several_criteria() -> None:
    select_reply = kept('{"useful": [], "Relevant": ["k7", "z9"], "keep": ["m4"]}', "relevant", "useful")
    assert select_reply.model_dump() == {"relevant": ["k7"], "useful": []}
    assert select_reply.unknown == 1
    for raw in ('{"relevant": ["k7"]}', '{"relevant": ["k7"], "useful": ["z9"]}'):  # each needs its list
        with pytest.raises(InvalidReply):
            kept(raw, "relevant", "useful")
    some = kept('{"keep": ["z9", "k7", "k77", ""]}')
    assert (some.model_dump(), some.unknown) == ({"keep": ["k7"]}, 3)
    for labels in ([], ["k7", "K7"]):
        with pytest.raises(ValueError, match="differ in more than case"):
            select_reply_model(selecting("relevant"), labels)


@pytest.mark.parametrize("name", ["memory-relevance", "memory-two-criteria"])
def test_select_schemas_of_the_bundled_rubrics(name: str) -> None:
    rubric = loader.select_rubric(name).rubric
    assert isinstance(rubric, SelectRubric)
    schema = json_schema(select_reply_model(rubric, LABELS))
    keys = ["keep"] if len(rubric.criteria) == 1 else list(rubric.criteria)
    assert list(schema["properties"]) == schema["required"] == keys
    jsonschema.validate({key: ["k7"] for key in keys}, schema)
    with pytest.raises(jsonschema.ValidationError, match="is not one of"):
        jsonschema.validate({key: ["z9"] for key in keys}, schema)


def _parts(schema: dict[str, Any]) -> list[dict[str, Any]]:
    inner = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    return [schema, *(part for each in inner for part in _parts(each))]


def test_schemas_use_only_what_strict_providers_bear(rubric: ScoreRubric) -> None:
    models = [score_reply_model(rubric), select_reply_model(selecting("a", "b"), LABELS)]
    for part in [part for model in models for part in _parts(json_schema(model))]:
        assert set(part) <= {"type", "properties", "required", "additionalProperties", "items", "enum"}
        assert part["type"] in ("object", "array", "string", "integer")
        if part["type"] == "object":
            assert part["additionalProperties"] is False
            assert part["required"] == list(part["properties"])
    jsonschema.Draft202012Validator.check_schema(json_schema(models[0]))
