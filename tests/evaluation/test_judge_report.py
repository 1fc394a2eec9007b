"""Judges on labelled cases: recorded replies, variants, cost, and the page."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from scripted import scores

from judgekit.errors import InputError
from judgekit.evaluation import judges, labelled
from judgekit.rubric import loader

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.evaluation.agreement import JudgingReport


def case(name: str, label: object, reply: str | None, **more: object) -> dict[str, Any]:
    said = {"failure": "timeout"} if reply is None else {"reply": reply, "cost_usd": 0.001}
    return {"id": name, "text": name, "label": label, "judges": {"small": {"model": "m1", **said}}, **more}


def measured(
    path: Path, lines: list[dict[str, Any]], rubric: str | None = "kls", **options: str
) -> JudgingReport:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    loaded = loader.find_rubric(rubric) if rubric else None
    return judges.report(labelled.read(path), path.name, loaded, "strict", **options)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cases.jsonl"


def test_raw_replies_are_read_as_the_judge_reads_them(file: Path) -> None:
    fenced = f"Sure:\n```json\n{scores(5, 5, 5)}\n```"
    lines = [
        case("a", "accept", fenced),
        case("b", "reject", scores(1, 5, 5)),
        case("c", "reject", scores(5, 5, 5)),
    ]
    (judge_report,) = measured(file, lines).judges
    assert judge_report.accuracy is not None
    assert judge_report.accuracy.value == pytest.approx(2 / 3)
    assert {(confusion.label, confusion.said): confusion.count for confusion in judge_report.confusion} == {
        ("accept", "accept"): 1,
        ("reject", "reject"): 1,
        ("reject", "accept"): 1,
    }
    assert judge_report.cost.calls == 1
    assert judge_report.cost.usd == pytest.approx(0.001)


def test_what_no_model_answered_is_counted_apart(file: Path) -> None:
    lines = [case("a", "accept", scores(5, 5, 5)), case("b", "accept", None)]
    (judge_report,) = measured(file, lines).judges
    assert judge_report.accuracy is not None
    assert judge_report.unreadable is not None
    assert (judge_report.accuracy.value, judge_report.unreadable.value, judge_report.items) == (1, 0, 2)
    assert sum(judge_report.unanswered.values()) == 1


@pytest.mark.parametrize("reply", ["I would say it is fine.", '{"scores": {"semantic": 9}}', ""])
def test_what_cannot_be_read_is_neither_right_nor_wrong(file: Path, reply: str) -> None:
    for label in ("accept", "reject"):
        lines = [case("a", "accept", scores(5, 5, 5)), case("b", label, reply)]
        (judge_report,) = measured(file, lines).judges
        assert judge_report.accuracy is not None
        assert judge_report.unreadable is not None
        assert (judge_report.accuracy.value, judge_report.unreadable.value, judge_report.items) == (1, 0.5, 2)


def test_flips_and_lift_compare_variants_with_their_original(file: Path) -> None:
    good, bad = scores(5, 5, 5), scores(1, 1, 1)
    lines = [
        case("a", "reject", bad),
        case("b", "reject", bad),
        case("a2", "reject", bad, variant="rerun", pair="a"),
        case("b2", "reject", good, variant="rerun", pair="b"),
        case("a3", "reject", good, variant="injected", pair="a"),
        case("b3", "reject", good, variant="injected", pair="b"),
        case("b4", "reject", None, variant="injected", pair="b"),
        case("a5", "reject", bad, variant="swapped", pair="a"),
    ]
    (judge_report,) = measured(file, lines).judges
    assert judge_report.items == 2
    assert judge_report.rerun_flips.rate is not None
    assert (judge_report.rerun_flips.pairs, judge_report.rerun_flips.rate.value) == (2, 0.5)
    assert judge_report.order_flips.rate is not None
    assert (judge_report.order_flips.pairs, judge_report.order_flips.rate.value) == (1, 0)
    assert judge_report.injection is not None
    assert judge_report.injection.lift is not None
    assert (judge_report.injection.pairs, judge_report.injection.lift.value) == (2, 1)


def test_choices_need_no_rubric(file: Path) -> None:
    lines = [
        {"id": str(place), "label": label, "judges": {"x": {"choice": said}}}
        for place, (label, said) in enumerate([("0", "0"), ("3", "2"), ("1", "1"), ("2", "0")])
    ]
    (judge_report,) = measured(file, lines, rubric=None).judges
    assert judge_report.accuracy is not None
    assert judge_report.accuracy.value == 0.5
    assert judge_report.weighted_kappa is not None
    assert [each.word for each in judge_report.classes] == ["0", "1", "2", "3"]


def test_candidates_count_one_by_one_and_their_call_once(file: Path) -> None:
    candidates = [{"id": name, "title": name} for name in ("m1", "m2", "m3")]
    reply = '{"keep": ["m1", "m2"]}'
    line = {"id": "q", "query": "q", "candidates": candidates, "label": ["m1"]}
    (judge_report,) = measured(file, [{**line, "judges": {"x": {"reply": reply}}}], "memory-relevance").judges
    assert judge_report.items == 3
    assert judge_report.cost.calls == pytest.approx(1 / 3)
    assert judge_report.accuracy is not None
    assert judge_report.accuracy.value == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ({"id": "a", "label": "accept"}, "expected recorded answers"),
        (case("a", "perhaps", scores(5, 5, 5)), "case a: label: expected reject, improve, accept"),
        (
            {"id": "a", "label": "accept", "judges": {"x": {"scores": {"taste": 3}}}},
            "case a: scores: expected",
        ),
        ({"id": "a", "label": "accept", "judges": {"x": {}}}, "expected one of reply"),
        ({"id": "a", "label": "accept", "verdict": 1}, "cases.jsonl:1: verdict"),
    ],
)
def test_what_is_wrong_is_named(file: Path, line: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=re.escape(problem)):
        measured(file, [line])


def test_a_choice_without_a_rubric_is_asked_for(file: Path) -> None:
    with pytest.raises(InputError, match="name the --rubric"):
        measured(file, [case("a", "accept", scores(5, 5, 5))], rubric=None)


def test_ids_stand_once(file: Path) -> None:
    with pytest.raises(InputError, match="stands there twice"):
        measured(file, [case("a", "accept", None)] * 2)
