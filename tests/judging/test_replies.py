"""Reply models and their schemas, from rubrics."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from judgekit.errors import InvalidReply
from judgekit.judging import replies
from judgekit.judging.extract import extract
from judgekit.judging.replies import compare_reply_model, score_reply_model, select_reply_model

LABELS = ["k7", "Qx", "m4"]
SCORES = {"accuracy": 4, "copy": 3, "json": 5}  # names of pydantic's methods
MODEL = score_reply_model(tuple(SCORES), 1, 5)
BAD = (6, 0, 4.5, True, None, "good")
NOTHING_SAID = {"dimension": "", "location": "", "suggestion": "", "quote": ""}


def read(**reply: Any) -> replies.ScoreReply:  # noqa: ANN401 - any JSON
    return extract(json.dumps({"reasoning": "Fine.", "scores": SCORES} | reply), MODEL)


def findings(given: object) -> list[dict[str, str]]:
    found: list[dict[str, str]] = read(findings=given).model_dump()["findings"]
    return found


def test_score_replies() -> None:
    finding = {"dimension": "json", "location": "line 3", "issue": "x", "suggestion": "y", "quote": "z"}
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
    for given, word in (("accept", "accept"), (" GO ", "GO"), (None, ""), ("x" * 999, "x" * 80)):
        assert read(verdict=given).verdict == word
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
    for given, issues in cases:
        assert findings(given) == [{**NOTHING_SAID, "issue": issue} for issue in issues], given
    found = findings({"json": ["One.", {"issue": "Two.", "quote": "q"}], "copy": "Three."})
    shown = [(each["dimension"], each["issue"], each["quote"]) for each in found]
    assert shown == [("json", "One.", ""), ("json", "Two.", "q"), ("copy", "Three.", "")]


def kept(raw: str, *criteria: str) -> dict[str, list[str]]:
    return extract(raw, select_reply_model(criteria or ("relevant",), LABELS)).model_dump()


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
    for raw in ('{"relevant": ["k7"]}', '{"relevant": ["k7"], "useful": ["z9"]}'):  # each needs its list
        with pytest.raises(InvalidReply):
            kept(raw, "relevant", "useful")


def _parts(schema: dict[str, Any]) -> list[dict[str, Any]]:
    inner = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    return [schema, *(part for each in inner for part in _parts(each))]


def test_schemas_use_only_what_strict_providers_bear() -> None:
    two = select_reply_model(("a", "b"), LABELS)
    jsonschema.validate({"a": ["k7"], "b": []}, two.sent)
    with pytest.raises(jsonschema.ValidationError, match="is not one of"):
        jsonschema.validate({"a": ["z9"], "b": []}, two.sent)
    for model in (MODEL, two, compare_reply_model(["L", "R"])):
        jsonschema.Draft202012Validator.check_schema(model.sent)
        for part in _parts(model.sent):
            assert set(part) <= {"type", "properties", "required", "additionalProperties", "items", "enum"}
            assert part["type"] in ("object", "array", "string", "integer")
            if part["type"] == "object":
                assert part["additionalProperties"] is False
                assert part["required"] == list(part["properties"])
