"""Reports on narrow terminals and in pipes: texts shrink; names, counts and intervals stay whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from judgekit.cli import layout

if TYPE_CHECKING:
    from outcome import Outcome, Run

pytestmark = pytest.mark.usefixtures("project")
NAME = "answers-of-the-second-model-of-may.jsonl"
REASON = "The answer names no date, although the question asks for one. " * 5
SCORES = {"semantic": 2, "pragmatic": 3, "syntactic": 4}


@pytest.fixture
def results() -> str:
    lines = []
    for number in range(60):
        row = {
            "id": f"a-rather-long-name-{number}",
            "verdict": "accept" if number % 3 else "reject",
            "scores": SCORES,
            "reasoning": REASON,
            "topic": f"topic {number % 2}",
            "answer": "日本語のとても長い文です。" * 9,
        }
        lines.append(json.dumps(row, ensure_ascii=False))
    Path(NAME).write_text("\n".join(lines), encoding="utf-8")
    labels = [{"id": f"a-rather-long-name-{number}", "label": "accept"} for number in range(20)]
    Path("labels.jsonl").write_text("\n".join(map(json.dumps, labels)))
    return NAME


def report(judgekit: Run, results: str) -> Outcome:
    return judgekit("report", results, results, "--labels", "labels.jsonl", "--by", "topic")


@pytest.fixture(params=[30, 40, 60, 80, 100])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    columns: int = request.param
    monkeypatch.setattr(layout, "get_terminal_width", lambda: columns)
    return columns


@pytest.mark.usefixtures("width")
@pytest.mark.parametrize(
    "whole",
    [
        "a-rather-long-name-27",
        "semantic 2, pragmatic 3, syntactic 4",
        "0.667 [0.",
        "+0.0 points [-",
        f" minus {NAME.removesuffix('.jsonl')}"[-20:],
        "and 10 more",
    ],
)
def test_names_counts_and_intervals_are_whole(judgekit: Run, results: str, whole: str) -> None:
    assert whole in report(judgekit, results).out


@pytest.mark.usefixtures("width")
def test_no_interval_is_cut(judgekit: Run, results: str) -> None:
    lines = report(judgekit, results).out.split("\n")
    with_interval = [line for line in lines if " [" in line and "0." in line]
    assert with_interval
    assert [line for line in with_interval if "]" not in line] == []


def test_texts_fit_into_the_terminal(judgekit: Run, results: str, width: int) -> None:
    lines = report(judgekit, results).out.split("\n")
    cut = [line for line in lines if "…" in line]
    assert cut
    assert [line for line in cut if len(line) > width] == []


def test_what_is_piped_is_not_cut(judgekit: Run, results: str) -> None:
    out = report(judgekit, results).out
    assert max(map(len, out.split("\n"))) > 400
    assert " ".join(REASON.split()) in out
