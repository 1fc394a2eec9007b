"""The report on judges reads and counts their replies correctly."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from scripted import scores

from judgekit.errors import InputError
from judgekit.evaluation import cases as labelled
from judgekit.evaluation import pages
from judgekit.evaluation import report as judged
from judgekit.rubric import loader

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.evaluation.report import JudgeReport, JudgingReport
    from judgekit.ledger.rates import Interval


GOOD, BAD = scores(5, 5, 5), scores(1, 1, 1)


def case(name: str, label: object, reply: str | None, **more: object) -> dict[str, Any]:
    said = {"failure": "timeout"} if reply is None else {"reply": reply, "cost_usd": 0.001}
    return {
        "id": name,
        "text": name,
        "label": label,
        "judges": {"small": {"model": "m1", **said}},
        **more,
    }


def select(name: str, kept: list[str], **said: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    candidates = [{"id": each, "title": each} for each in ("m1", "m2", "m3")]
    return {
        "id": name,
        "query": "q",
        "candidates": candidates,
        "label": kept,
        "judges": {"x": said},
    }


def measured(
    folder: Path, lines: list[dict[str, Any]], rubric: str | None = "kls"
) -> JudgingReport:
    path = folder / "cases.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    loaded = loader.find_rubric(rubric) if rubric else None
    return judged.report(labelled.read_cases(path), path.name, loaded, "strict")


def only(folder: Path, *lines: dict[str, Any], rubric: str | None = "kls") -> JudgeReport:
    (found,) = measured(folder, list(lines), rubric).judges
    return found


def value(figure: Interval | None) -> float | None:
    return None if figure is None else figure.value


def test_raw_replies_are_read_as_the_judge_reads_them(tmp_path: Path) -> None:
    fenced = f"Sure:\n```json\n{GOOD}\n```"
    found = only(
        tmp_path,
        case("a", "accept", fenced),
        case("b", "reject", scores(1, 5, 5)),
        case("c", "reject", GOOD),
    )
    assert value(found.accuracy) == pytest.approx(2 / 3)
    confusion = {(each.label, each.said, each.count) for each in found.confusion}
    assert confusion == {("accept", "accept", 1), ("reject", "reject", 1), ("reject", "accept", 1)}


def test_what_was_not_answered_or_cannot_be_read_is_neither_right_nor_wrong(tmp_path: Path) -> None:
    unreadable = ("I would say it is fine.", '{"scores": {"semantic": 9}}', "")
    for reply, share, unanswered in ((None, 0, 1), *((text, 0.5, 0) for text in unreadable)):
        found = only(tmp_path, case("a", "accept", GOOD), case("b", "reject", reply))
        assert (value(found.accuracy), value(found.unreadable), found.items) == (1, share, 2)
        assert sum(found.unanswered.values()) == unanswered


def test_flips_and_lift_compare_variants_with_their_original(tmp_path: Path) -> None:
    found = only(
        tmp_path,
        case("a", "reject", BAD),
        case("b", "reject", BAD),
        case("a2", "reject", BAD, variant="rerun", pair="a"),
        case("b2", "reject", GOOD, variant="rerun", pair="b"),
        case("a3", "reject", GOOD, variant="injected", pair="a"),
        case("b3", "reject", GOOD, variant="injected", pair="b"),
        case("b4", "reject", None, variant="injected", pair="b"),
        case("a5", "reject", BAD, variant="swapped", pair="a"),
    )
    assert found.items == 2
    assert (found.rerun_flips.pairs, value(found.rerun_flips.rate)) == (2, 0.5)
    assert (found.order_flips.pairs, value(found.order_flips.rate)) == (1, 0)
    assert found.injection is not None
    assert (found.injection.pairs, value(found.injection.lift)) == (2, 1)


def test_probabilities_of_candidates_are_compared_with_what_was_to_be_kept(tmp_path: Path) -> None:
    lines = [
        select("a", ["m1"], probabilities={"m1": 0.95, "m2": 0.15, "m3": 0.15}),
        select("b", ["m2"], probabilities={"m1": 0.95}),
        select("c", ["m2"], keep=["m2"]),
        select("v", [], probabilities={"m1": 0.95, "m2": 0.95}) | {"variant": "rerun", "pair": "a"},
    ]
    found = measured(tmp_path, lines, "memory-relevance")
    probabilities = found.judges[0].probabilities
    assert probabilities is not None
    assert [(each.count, each.relevant) for each in probabilities.bins] == [(2, 0), (2, 0.5)]
    assert probabilities.brier == pytest.approx((2 * 0.15**2 + 0.05**2 + 0.95**2) / 4)
    assert probabilities.answers == 4
    assert probabilities.ece == pytest.approx((2 * 0.15 + 2 * 0.45) / 4)
    assert "best on the dashed line" in pages.render_judging_page(found)
    # Candidates count one by one, and their call once.
    line = select("q", ["m1"], reply='{"keep": ["m1", "m2"]}')
    one = only(tmp_path, line, rubric="memory-relevance")
    assert one.items == 3
    assert value(one.accuracy) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ({"id": "a", "label": "accept"}, "expected recorded answers"),
        (case("a", "perhaps", GOOD), "case a: label: expected reject, improve, accept"),
        (
            {"id": "a", "label": "accept", "judges": {"x": {"scores": {"taste": 3}}}},
            "case a: scores: expected",
        ),
        ({"id": "a", "label": "accept", "judges": {"x": {}}}, "expected one of reply"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, line: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=re.escape(problem)):
        measured(tmp_path, [line])
