"""Opinions in records: read from any version, and written as they were said."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from ledger_lines import verdict

from judgekit.judging.verdict import Round
from judgekit.ledger import VerdictLine, records, store

if TYPE_CHECKING:
    from judgekit.judging.verdict import ScoreOpinion

SCORED = {"outcome": "reject", "scores": {"semantic": 1.0}}
FINDING = {"dimension": "", "location": "", "issue": "no port", "suggestion": "", "quote": ""}


def read(opinion: object) -> ScoreOpinion:
    """Read the opinion of a ledger line's one round."""
    line = json.loads(records.serialise_record(verdict("reject")))
    line["rounds"][0]["opinion"] = opinion
    parsed = store.parse(json.dumps(line).encode())
    assert isinstance(parsed, VerdictLine), parsed
    found = parsed.rounds[0].opinion
    assert found is not None
    return found


def rewrite(opinion: dict[str, Any]) -> str:
    record = Round(round=1, tier="quick", model="m", opinion=read(opinion)).record()
    return json.dumps(record["opinion"])


ODD: list[dict[str, Any]] = [
    {"scores": "high"},
    {"scores": {"semantic": "high"}},
    {"outcome": 1},
    {"findings": ["no port"]},
    {"findings": [{"quote": "x"}]},
    {"said": ["GO"]},
    {"samples": "three"},
    {"probabilities": [0.5]},
    {"dimensions": None},
]


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_a_line_is_read_whatever_shape_a_field_of_an_opinion_has(odd: dict[str, Any]) -> None:
    assert read({**SCORED, "reasoning": "said", **odd}).reasoning == "said"


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_of_a_field_with_another_shape_nothing_is_said(odd: dict[str, Any]) -> None:
    (name,) = odd
    assert name not in json.loads(rewrite({**SCORED, **odd}))


def test_an_opinion_on_candidates_in_a_verdict_is_read() -> None:
    assert read({"keep": ["a"], "unjudged": []}).outcome is None


@pytest.mark.parametrize(
    "opinion",
    [
        {},
        SCORED,
        {**SCORED, "scores": {"semantic": 4, "pragmatic": 2.75}},
        {**SCORED, "reasoning": "", "dimensions": [], "findings": [FINDING], "said": None},
        {**SCORED, "said": "GO", "samples": 3, "expected": ["semantic"]},
        {**SCORED, "probabilities": {"semantic": {"1": 1, "2": 0.0}}, "asked": "m-latest"},
    ],
    ids=str,
)
def test_an_opinion_of_an_earlier_line_is_written_as_it_was(opinion: dict[str, Any]) -> None:
    assert rewrite(opinion) == json.dumps(opinion)


def test_a_word_of_another_program_is_kept() -> None:
    assert read({**SCORED, "outcome": "escalate"}).outcome == "escalate"


@pytest.mark.parametrize("opinion", ["accept", ["accept"], 1])
def test_a_line_whose_opinion_is_no_object_is_damaged(opinion: object) -> None:
    line = json.loads(records.serialise_record(verdict("reject")))
    line["rounds"][0]["opinion"] = opinion
    assert isinstance(store.parse(json.dumps(line).encode()), str)


def test_a_ledger_line_has_no_reasoning_where_text_is_left_out() -> None:
    kept = records.make_verdict_line(verdict("reject"))
    assert "reasoning" not in json.loads(records.serialise_record(kept))["rounds"][0]["opinion"]
