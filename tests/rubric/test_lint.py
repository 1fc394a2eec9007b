"""What is said about a rubric and its cases before any model is asked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from judgekit.rubric import lint, loader
from judgekit.rubric.loader import read_cases
from judgekit.rubric.schema import ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def scored(name: str, strict: str = "accept", lenient: str = "accept", **more: object) -> dict[str, object]:
    label = {"strict": strict, "lenient": lenient}
    return {"id": name, "text": f"Text of {name}.", "why": "So.", "label": label, **more}


def said(path: Path) -> list[str]:
    loaded = loader.load_rubric(path)
    return [str(remark) for remark in lint.remarks(loaded, read_cases(loaded))]


GOOD = [scored(f"good-{number}") for number in range(5)]
BAD = [scored(f"bad-{number}", "reject", "reject") for number in range(5)]
TEN = [*GOOD, scored("fair", "improve", "accept"), *BAD]


@pytest.mark.parametrize("loaded", list(loader.rubrics()), ids=lambda each: each.rubric.ref)
def test_nothing_is_wrong_with_bundled_rubrics_nor_to_be_said_of_the_newer(
    loaded: loader.LoadedRubric,
) -> None:
    remarks = lint.remarks(loaded, read_cases(loaded))
    assert [remark for remark in remarks if remark.wrong] == []
    newer = {"answer-quality", "groundedness", "code-review", "commit-message", "agent-task"}
    assert loaded.rubric.rubric not in newer or remarks == []


@pytest.mark.parametrize(
    ("cases", "remarks"),
    [
        (TEN, []),
        ([], ["ours@1.0.0.cases.jsonl: no labelled cases"]),
        ([GOOD[0], BAD[0]], ["2 cases: agreement is not meaningful below 10"]),
        (
            [scored("good-3"), *TEN],
            ["ours@1.0.0.cases.jsonl:5: id: line 1 has the id 'good-3' already; give"],
        ),
        (
            [scored("odd", "reject", "accept"), *TEN],
            ["cases.jsonl:1: label: odd: no scores give reject in strict and accept in lenient; change"],
        ),
        (
            [scored("odd", "improve"), *(scored(f"good-{number}") for number in range(11))],
            [
                (
                    "11 of 12 should be accepted in strict: a judge that always gives the same verdict would "
                    "look good"
                ),
                (
                    "12 of 12 should be accepted in lenient: a judge that always gives the same verdict "
                    "would look good"
                ),
            ],
        ),
        ([*GOOD, *BAD], ["strict and lenient agree on every case; add a case where they differ"]),
    ],
)
def test_what_is_said_of_cases(
    own: Callable[..., Path], cases: list[dict[str, object]], remarks: list[str]
) -> None:
    found = said(own(*cases))
    assert len(found) == len(remarks)
    assert all(remark in line for remark, line in zip(remarks, found, strict=True))


def test_what_a_case_lacks_is_wrong(own: Callable[..., Path]) -> None:
    given = "given: {sources: The sources, needs: [sources, description]}\nscale:"
    cases = [scored("with", files={"a": "A."}, description="For us."), scored("without", description=" ")]
    found = [line for line in said(own(*cases, **{"scale:": given})) if ":2: " in line]
    assert [line.partition(":2: ")[2].partition(": ")[0] for line in found] == ["files", "description"]


TERMS = "    terms: [structure, format, order, section, heading, reference, link, complete]\n"


@pytest.mark.parametrize(
    ("before", "after", "remark"),
    [
        (
            "    accept: {each: 3, mean: 3.5}",
            "    accept: {each: 3}",
            "strict and lenient decide the same; make them differ",
        ),
        (
            "    accept: {each: 3}\n",
            "    accept: {each: 5}\n",
            "lenient should accept whatever strict accepts",
        ),
        ("order, section, heading", "order, domain, heading", "other dimensions have domain too"),
        (TERMS, "", "no terms"),
    ],
)
def test_odd_rubrics(own: Callable[..., Path], before: str, after: str, remark: str) -> None:
    assert remark in "\n".join(said(own(*TEN, **{before: after})))


def test_modes_that_do_not_go_together_are_said(own: Callable[..., Path], tmp_path: Path) -> None:
    path = own(*TEN)
    text = path.read_text(encoding="utf-8")
    for before, after in (("accept", "x"), ("reject", "accept"), ("x", "reject")):
        text = text.replace(f"confirm: {before}", f"confirm: {after}")
    path.write_text(text, encoding="utf-8")
    (only,) = said(path)
    assert "strict confirms rejections and lenient confirms acceptances; is that reversed?" in only
    lines = loader.find_rubric("memory-relevance").path.read_text(encoding="utf-8").splitlines()
    lenient = next(line for line in lines if line.startswith("    lenient: Is this"))
    strict = lenient.replace("lenient", "strict")
    text = "\n".join(strict if "    strict: Is" in line else line for line in lines)
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace("rubric: memory-relevance", "rubric: mine"), encoding="utf-8")
    assert any("strict and lenient are the same; make them differ" in line for line in said(path))


def test_every_pair_of_outcomes_that_scores_can_give() -> None:
    rubric = loader.score_rubric("kls").rubric
    assert isinstance(rubric, ScoreRubric)
    assert lint.outcomes(rubric) == {
        ("accept", "accept"),
        ("improve", "accept"),
        ("improve", "improve"),
        ("reject", "reject"),
    }
    (dimension, *_) = rubric.dimensions.values()
    many = rubric.model_copy(update={"dimensions": {f"d{number}": dimension for number in range(9)}})
    assert lint.outcomes(many) is None  # too many to go through


def compared(tmp_path: Path, labels: str, before: str = "", after: str = "", b: str = "b") -> list[str]:
    """Return what is said of a rubric that compares and of cases with these labels: A, B, T for a tie."""
    path = tmp_path / "ours@1.0.0.yaml"
    text = loader.find_rubric("answer-preference").path.read_text(encoding="utf-8")
    path.write_text(text.replace("rubric: answer-preference", "rubric: ours").replace(before, after))
    pair = {"prompt": "p", "a": "a", "b": b, "why": "w"}
    named = [dict.fromkeys(lint.MODES, {"T": "tie"}.get(letter, letter)) for letter in labels]
    cases = [{"id": str(number), **pair, "label": label} for number, label in enumerate(named)]
    path.with_name("ours@1.0.0.cases.jsonl").write_text("".join(f"{json.dumps(case)}\n" for case in cases))
    return said(path)


def test_what_is_said_of_pairs(tmp_path: Path) -> None:
    assert compared(tmp_path, "AABBABABTT") == []
    first, second = compared(tmp_path, "AAAAAAAATT")
    assert "in strict 8 labels are A and 0 are B: swap some of the texts" in first
    assert "in lenient" in second
    assert len(compared(tmp_path, "TTTTTTTTTT")) == 2
    wrong, _ = compared(tmp_path, "AT", b="a")
    assert "1: label: 0: a and b are the same text, which is always a tie" in wrong
    (only,) = compared(tmp_path, "AABBABABTT", "lenient: {confirm: reject}", "lenient: {confirm: accept}")
    assert "strict and lenient confirm the same" in only
