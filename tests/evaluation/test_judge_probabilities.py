"""Probabilities of candidates against their labels."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from judgekit.evaluation import judges, labelled
from judgekit.rubric import loader

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.evaluation.agreement import JudgingReport


def case(name: str, kept: list[str], said: dict[str, Any], **more: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    candidates = [{"id": each, "title": each} for each in ("m1", "m2", "m3")]
    return {"id": name, "query": "q", "candidates": candidates, "label": kept, "judges": {"x": said}, **more}


def measured(path: Path, *lines: dict[str, Any], rubric: str = "memory-relevance") -> JudgingReport:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return judges.report(labelled.read(path), path.name, loader.find_rubric(rubric), "strict")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cases.jsonl"


def test_they_are_compared_with_what_was_to_be_kept(file: Path) -> None:
    report = measured(
        file,
        case("a", ["m1"], {"probabilities": {"m1": 0.95, "m2": 0.15, "m3": 0.15}}),
        case("b", ["m2"], {"probabilities": {"m1": 0.95}}),
        case("c", ["m2"], {"keep": ["m2"]}),
        case("v", [], {"probabilities": {"m1": 0.95, "m2": 0.95}}, variant="rerun", pair="a"),
    )
    probabilities = report.judges[0].probabilities
    assert probabilities is not None
    assert probabilities.answers == 4
    assert [(each.count, each.relevant) for each in probabilities.bins] == [(2, 0), (2, 0.5)]
    assert probabilities.brier == pytest.approx((2 * 0.15**2 + 0.05**2 + 0.95**2) / 4)
    assert probabilities.ece == pytest.approx((2 * 0.15 + 2 * 0.45) / 4)
    assert "best on the dashed line" in judges.html(report)


def test_without_any_there_is_nothing_to_say(file: Path) -> None:
    report = measured(file, case("a", ["m1"], {"keep": ["m1"]}))
    assert report.judges[0].probabilities is None
    assert "dashed line" not in judges.html(report)


def test_shares_of_two_texts_are_no_probabilities_of_candidates(file: Path) -> None:
    line = {"id": "a", "prompt": "p", "a": "one", "b": "two", "label": "A"}
    report = measured(
        file, {**line, "judges": {"x": {"probabilities": {"A": 0.8, "B": 0.2}}}}, rubric="answer-preference"
    )
    assert report.judges[0].probabilities is None
