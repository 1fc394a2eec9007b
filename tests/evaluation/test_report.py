"""Judges on labelled cases: recorded replies, variants, cost, probabilities, and the page."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from drawn import NAMES, charts, texts
from scripted import scores

from judgekit.errors import InputError
from judgekit.evaluation import cases as labelled
from judgekit.evaluation import charts as drawing
from judgekit.evaluation import report as judged
from judgekit.rubric import loader

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.evaluation.report import JudgeReport, JudgingReport
    from judgekit.evaluation.stats import BootstrapInterval

GOOD, BAD = scores(5, 5, 5), scores(1, 1, 1)


def case(name: str, label: object, reply: str | None, **more: object) -> dict[str, Any]:
    said = {"failure": "timeout"} if reply is None else {"reply": reply, "cost_usd": 0.001}
    return {"id": name, "text": name, "label": label, "judges": {"small": {"model": "m1", **said}}, **more}


def select(name: str, kept: list[str], **said: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    candidates = [{"id": each, "title": each} for each in ("m1", "m2", "m3")]
    return {"id": name, "query": "q", "candidates": candidates, "label": kept, "judges": {"x": said}}


def measured(
    folder: Path, lines: list[dict[str, Any]], rubric: str | None = "kls", **options: str
) -> JudgingReport:
    path = folder / "cases.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    loaded = loader.find_rubric(rubric) if rubric else None
    return judged.report(labelled.read(path), path.name, loaded, "strict", **options)


def only(folder: Path, *lines: dict[str, Any], rubric: str | None = "kls") -> JudgeReport:
    (found,) = measured(folder, list(lines), rubric).judges
    return found


def value(figure: BootstrapInterval | None) -> float | None:
    return None if figure is None else figure.value


def test_raw_replies_are_read_as_the_judge_reads_them(tmp_path: Path) -> None:
    fenced = f"Sure:\n```json\n{GOOD}\n```"
    found = only(
        tmp_path, case("a", "accept", fenced), case("b", "reject", scores(1, 5, 5)), case("c", "reject", GOOD)
    )
    assert value(found.accuracy) == pytest.approx(2 / 3)
    confusion = {(each.label, each.said, each.count) for each in found.confusion}
    assert confusion == {("accept", "accept", 1), ("reject", "reject", 1), ("reject", "accept", 1)}
    assert found.cost.calls == 1
    assert found.cost.usd == pytest.approx(0.001)


def test_what_was_not_answered_or_cannot_be_read_is_neither_right_nor_wrong(tmp_path: Path) -> None:
    unreadable = ("I would say it is fine.", '{"scores": {"semantic": 9}}', "")
    for reply, share, unanswered in ((None, 0, 1), *((text, 0.5, 0) for text in unreadable)):
        for label in ("accept", "reject"):
            found = only(tmp_path, case("a", "accept", GOOD), case("b", label, reply))
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


def test_choices_need_no_rubric(tmp_path: Path) -> None:
    answers = [("0", "0"), ("3", "2"), ("1", "1"), ("2", "0")]
    lines = [
        {"id": str(place), "label": label, "judges": {"x": {"choice": said}}}
        for place, (label, said) in enumerate(answers)
    ]
    found = only(tmp_path, *lines, rubric=None)
    assert value(found.accuracy) == 0.5
    assert found.weighted_kappa is not None
    assert [each.word for each in found.classes] == ["0", "1", "2", "3"]
    with pytest.raises(InputError, match="name the --rubric"):
        measured(tmp_path, [case("a", "accept", GOOD)], rubric=None)


def test_candidates_count_one_by_one_and_their_call_once(tmp_path: Path) -> None:
    line = select("q", ["m1"], reply='{"keep": ["m1", "m2"]}')
    found = only(tmp_path, line, rubric="memory-relevance")
    assert found.items == 3
    assert found.cost.calls == pytest.approx(1 / 3)
    assert value(found.accuracy) == pytest.approx(2 / 3)
    assert found.probabilities is None


def test_probabilities_are_compared_with_what_was_to_be_kept(tmp_path: Path) -> None:
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
    assert "best on the dashed line" in drawing.judging_page(found)
    pair = {"id": "a", "prompt": "p", "a": "one", "b": "two", "label": "A"}
    shares = pair | {"judges": {"x": {"probabilities": {"A": 0.8, "B": 0.2}}}}
    assert only(tmp_path, shares, rubric="answer-preference").probabilities is None


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([{"id": "a", "label": "accept"}], "expected recorded answers"),
        ([case("a", "perhaps", GOOD)], "case a: label: expected reject, improve, accept"),
        (
            [{"id": "a", "label": "accept", "judges": {"x": {"scores": {"taste": 3}}}}],
            "case a: scores: expected",
        ),
        ([{"id": "a", "label": "accept", "judges": {"x": {}}}], "expected one of reply"),
        ([{"id": "a", "label": "accept", "verdict": 1}], "cases.jsonl:1: verdict"),
        ([case("a", "accept", None)] * 2, "is there twice"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, lines: list[dict[str, Any]], problem: str) -> None:
    with pytest.raises(InputError, match=re.escape(problem)):
        measured(tmp_path, lines)


# The page


def line(name: str, label: str, reply: str, **more: object) -> dict[str, Any]:
    quick, deep = ({"model": "a-model", "reply": reply, "cost_usd": usd} for usd in (0.001, 0.05))
    return {"id": name, "text": name, "label": label, "judges": {"quick": quick, "deep": deep}, **more}


@pytest.fixture
def judging(tmp_path: Path) -> JudgingReport:
    lines = [line(str(number), "accept", GOOD) for number in range(8)]
    lines += [line(f"r{number}", "reject", BAD) for number in range(8)]
    lines += [line(f"w{number}", "reject", GOOD) for number in range(2)]
    lines += [
        line(f"i{number}", "reject", GOOD, variant="injected", pair=f"r{number}") for number in range(3)
    ]
    lines += [line("again", "accept", BAD, variant="rerun", pair="0")]
    lines += [line("turned", "accept", GOOD, variant="swapped", pair="0")]
    return measured(tmp_path, lines)


def test_the_page_has_every_figure_and_its_charts(judging: JudgingReport) -> None:
    page = drawing.judging_page(judging)
    assert page == drawing.judging_page(judging)
    text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    for part in ("0.889 [", "precision", "recall", "Cohen's kappa", "quick (a-model)", "18 labelled items"):
        assert part in text, part
    assert "Of 1 items asked again, 1.000 [1.000, 1.000] were answered otherwise." in text
    assert "Of 1 items in another order, 0.000 [0.000, 0.000] were answered otherwise." in text
    assert "with injected text, 0.000 [0.000, 0.000] were called accept without it and 1.000" in text
    captions = ["Agreement with the labels", "Cost against agreement", "Reliability", "quick", "deep"]
    assert re.findall("<figcaption>(.*?)[:,<]", page) == captions
    agreement, cost, reliability, quick, deep = map(texts, charts(page))
    assert {"Accuracy", "Cohen's kappa", "Weighted kappa", "quick", "deep", "0.89"} <= set(agreement)
    assert {"quick", "deep", "accuracy", "US dollars an item", "0.001", "0.01"} <= set(cost)
    assert {"Unreadable", "Order flips", "Rerun flips", "Injection lift", "1.00"} <= set(reliability)
    matrix = ["label", "answer", *2 * ["accept", "reject"], "8", "2", "0", "8"]
    assert sorted(quick) == sorted(deep) == sorted(matrix)


def test_names_are_names_whatever_is_in_them(judging: JudgingReport) -> None:
    name = "".join(NAMES.values())
    judges = [
        each.model_copy(update={"judge": f"{name}{number}", "model": name})
        for number, each in enumerate(judging.judges)
    ]
    classes = [judges[0].classes[0]._replace(word=name), *judges[0].classes[1:]]
    judges[0] = judges[0].model_copy(update={"classes": classes})
    page = drawing.judging_page(judging.model_copy(update={"file": name, "judges": judges}))
    page.encode()
    assert "<script" not in page
    assert len(charts(page)) == 5
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202a-\u202e]", page)


def test_free_answers_are_not_drawn_against_each_other(tmp_path: Path) -> None:
    words = [f"word {number}" for number in range(drawing.MOST_WORDS + 1)]
    lines = [{"id": word, "label": word, "judges": {"x": {"choice": word}}} for word in words]
    page = drawing.judging_page(measured(tmp_path, lines, None))
    assert "31 different words are too many for a picture" in page
    assert "labels (down)" not in page
    assert page.count("<td>word ") == 31


def test_what_was_not_measured_is_not_drawn(tmp_path: Path) -> None:
    """No answer could be read, no price is known, and there are no variants."""
    failed = {"id": "a", "text": "a", "label": "accept"}
    assert (
        charts(drawing.judging_page(measured(tmp_path, [failed | {"judges": {"x": {"failure": "timeout"}}}])))
        == []
    )
    page = drawing.judging_page(
        measured(tmp_path, [failed | {"judges": {"x": {"failure": "invalid_reply"}}}])
    )
    (chart,) = charts(page)
    assert "Unreadable" in texts(chart)
    assert "Order flips" not in texts(chart)
    assert "<th>calls an item</th>" in page
    assert "<th>Accuracy</th>" not in page
