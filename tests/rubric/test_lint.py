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
    loaded_rubric = loader.load_rubric(path)
    return [str(remark) for remark in lint.remarks(loaded_rubric, read_cases(loaded_rubric))]


def ten(*special: dict[str, object]) -> list[dict[str, object]]:
    """Return enough cases of all kinds, some of them special."""
    plain = [scored(f"good-{number}") for number in range(5)]
    plain += [
        scored("fair", "improve", "accept"),
        *(scored(f"bad-{n}", "reject", "reject") for n in range(5)),
    ]
    return [*special, *plain]


def test_nothing_is_said_about_a_sound_rubric(own: Callable[..., Path]) -> None:
    assert said(own(*ten())) == []


@pytest.mark.parametrize("loaded_rubric", list(loader.rubrics()), ids=lambda each: each.rubric.ref)
def test_nothing_is_wrong_with_bundled_rubrics(loaded_rubric: loader.LoadedRubric) -> None:
    assert [
        str(remark) for remark in lint.remarks(loaded_rubric, read_cases(loaded_rubric)) if remark.wrong
    ] == []


@pytest.mark.parametrize(
    "name", ["answer-quality", "groundedness", "code-review", "commit-message", "agent-task"]
)
def test_there_is_nothing_to_say_about_the_newer_ones(name: str) -> None:
    assert said(loader.find_rubric(name).path) == []


def test_no_cases_are_said(own: Callable[..., Path]) -> None:
    (only,) = said(own())
    assert "ours@1.0.0.cases.jsonl: no labelled cases" in only


def test_few_cases_are_said(own: Callable[..., Path]) -> None:
    (only,) = said(own(scored("a"), scored("b", "reject", "reject")))
    assert "2 cases: a share of agreement says little below 10" in only


def test_an_id_that_was_given_before_is_wrong(own: Callable[..., Path]) -> None:
    (only,) = said(own(*ten(scored("good-3"))))
    assert "ours@1.0.0.cases.jsonl:5: id: line 1 has the id 'good-3' already; give" in only


def test_labels_that_no_scores_give_are_wrong(own: Callable[..., Path]) -> None:
    (only,) = said(own(*ten(scored("odd", "reject", "accept"))))
    assert "cases.jsonl:1: label: odd: no scores give reject in strict and accept in lenient; mend" in only


def test_labels_on_one_side_are_said(own: Callable[..., Path]) -> None:
    cases = [scored(f"good-{number}", "improve" if number == 0 else "accept") for number in range(12)]
    assert [line.partition("label: ")[2] for line in said(own(*cases))] == [
        "11 of 12 should be accepted in strict: a judge that always says the same would look good",
        "12 of 12 should be accepted in lenient: a judge that always says the same would look good",
    ]


def test_labels_that_are_alike_in_both_modes_are_said(own: Callable[..., Path]) -> None:
    cases = [scored(f"{word}-{number}", word, word) for word in ("accept", "reject") for number in range(5)]
    (only,) = said(own(*cases))
    assert "no case shows what they differ in" in only


def test_what_a_case_lacks_is_wrong(own: Callable[..., Path]) -> None:
    given = "given: {sources: The sources, needs: [sources, description]}\nscale:"
    cases = ten(scored("with", files={"a": "A."}, description="For us."), scored("without", description=" "))
    found = [line for line in said(own(*cases[:2], **{"scale:": given})) if ":2: " in line]
    assert [line.partition(":2: ")[2].partition(": ")[0] for line in found] == ["files", "description"]


@pytest.mark.parametrize(
    ("before", "after", "remark"),
    [
        ("    accept: {each: 3, mean: 3.5}", "    accept: {each: 3}", "decide alike"),
        ("    accept: {each: 3}\n", "    accept: {each: 5}\n", "lenient should accept whatever strict does"),
        ("order, section, heading", "order, domain, heading", "other dimensions have domain too"),
        (
            "    terms: [structure, format, order, section, heading, reference, link, complete]\n",
            "",
            "no terms",
        ),
    ],
)
def test_odd_rubrics(own: Callable[..., Path], before: str, after: str, remark: str) -> None:
    assert remark in "\n".join(said(own(*ten(), **{before: after})))


def test_a_mode_that_confirms_the_cheap_error_is_said(own: Callable[..., Path]) -> None:
    path = own(*ten())
    text = path.read_text(encoding="utf-8")
    for before, after in (("accept", "x"), ("reject", "accept"), ("x", "reject")):
        text = text.replace(f"confirm: {before}", f"confirm: {after}")
    path.write_text(text, encoding="utf-8")
    (only,) = said(path)
    assert "the wrong way round?" in only


def test_selecting_alike_in_both_modes_is_said(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    lines = loader.find_rubric("memory-relevance").path.read_text(encoding="utf-8").splitlines()
    lenient = next(line for line in lines if line.startswith("    lenient: Is this"))
    text = "\n".join(
        line if "    strict: Is" not in line else lenient.replace("lenient", "strict") for line in lines
    )
    path.write_text(text.replace("rubric: memory-relevance", "rubric: mine"), encoding="utf-8")
    assert any("strict and lenient ask and keep the same" in line for line in said(path))


def test_every_pair_of_outcomes_that_scores_can_give() -> None:
    rubric = loader.score_rubric("kls").rubric
    assert isinstance(rubric, ScoreRubric)
    assert lint.outcomes(rubric) == {
        ("accept", "accept"),
        ("improve", "accept"),
        ("improve", "improve"),
        ("reject", "reject"),
    }


def test_too_many_scores_are_not_gone_through() -> None:
    rubric = loader.score_rubric("kls").rubric
    assert isinstance(rubric, ScoreRubric)
    (dimension, *_) = rubric.dimensions.values()
    many = rubric.model_copy(update={"dimensions": {f"d{number}": dimension for number in range(9)}})
    assert lint.outcomes(many) is None


def compared(tmp_path: Path, labels: str, before: str = "", after: str = "", b: str = "b") -> list[str]:
    """Return what is said of a rubric that compares and of cases with these labels: A, B, T for a tie."""
    path = tmp_path / "ours@1.0.0.yaml"
    text = loader.find_rubric("answer-preference").path.read_text(encoding="utf-8")
    path.write_text(text.replace("rubric: answer-preference", "rubric: ours").replace(before, after))
    words = {"A": "A", "B": "B", "T": "tie"}
    cases = [
        {
            "id": str(number),
            "prompt": "p",
            "a": "a",
            "b": b,
            "why": "w",
            "label": dict.fromkeys(lint.MODES, words[each]),
        }
        for number, each in enumerate(labels)
    ]
    path.with_name("ours@1.0.0.cases.jsonl").write_text("".join(f"{json.dumps(case)}\n" for case in cases))
    return said(path)


def test_pairs_whose_winner_has_always_the_same_place_are_said(tmp_path: Path) -> None:
    assert compared(tmp_path, "AABBABABTT") == []
    first, second = compared(tmp_path, "AAAAAAAATT")
    assert "in strict 8 labels are A and 0 are B: swap some of the texts" in first
    assert "in lenient" in second
    assert len(compared(tmp_path, "TTTTTTTTTT")) == 2


def test_the_same_text_twice_is_a_tie(tmp_path: Path) -> None:
    *wrong, _ = compared(tmp_path, "AT", b="a")
    assert ["1: label: 0: a and b are the same text, and that is always a tie" in each for each in wrong] == [
        True
    ]


def test_modes_that_confirm_alike_are_said(tmp_path: Path) -> None:
    (only,) = compared(tmp_path, "AABBABABTT", "lenient: {confirm: reject}", "lenient: {confirm: accept}")
    assert "strict and lenient confirm the same" in only
