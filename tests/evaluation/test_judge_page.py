"""The page of judges: complete, the same for the same answers, and good for any names and any number."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from drawn import NAMES, charts, texts
from scripted import scores

from judgekit.evaluation import judges as judge
from judgekit.evaluation import labelled
from judgekit.evaluation.judges import MOST_WORDS, html
from judgekit.rubric import loader

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.evaluation.agreement import JudgingReport

GOOD, BAD = scores(5, 5, 5), scores(1, 1, 1)


def line(name: str, label: str, reply: str, **more: object) -> dict[str, Any]:
    quick, deep = ({"model": "a-model", "reply": reply, "cost_usd": usd} for usd in (0.001, 0.05))
    return {"id": name, "text": name, "label": label, "judges": {"quick": quick, "deep": deep}, **more}


@pytest.fixture
def report(tmp_path: Path) -> JudgingReport:
    lines = [line(str(number), "accept", GOOD) for number in range(8)]
    lines += [line(f"r{number}", "reject", BAD) for number in range(8)]
    lines += [line(f"w{number}", "reject", GOOD) for number in range(2)]
    lines += [
        line(f"i{number}", "reject", GOOD, variant="injected", pair=f"r{number}") for number in range(3)
    ]
    lines += [line("again", "accept", BAD, variant="rerun", pair="0")]
    lines += [line("turned", "accept", GOOD, variant="swapped", pair="0")]
    path = tmp_path / "cases.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return judge.report(labelled.read(path), path.name, loader.find_rubric("kls"), "strict")


@pytest.fixture
def page(report: JudgingReport) -> str:
    return html(report)


def test_every_figure_is_in_it(page: str) -> None:
    text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    for part in ("0.889 [", "precision", "recall", "Cohen's kappa", "quick (a-model)", "18 labelled items"):
        assert part in text, part
    assert "Of 1 items asked again, 1.000 [1.000, 1.000] were answered otherwise." in text
    assert "Of 1 items in another order, 0.000 [0.000, 0.000] were answered otherwise." in text
    assert "with injected text, 0.000 [0.000, 0.000] were called accept without it and 1.000" in text


def test_the_charts_are_agreement_cost_reliability_and_a_matrix_each(page: str) -> None:
    assert re.findall("<figcaption>(.*?)[:,<]", page) == [
        "Agreement with the labels",
        "Cost against agreement",
        "Reliability",
        "quick",
        "deep",
    ]
    agreement, cost, reliability, quick, deep = map(texts, charts(page))
    assert {"Accuracy", "Cohen's kappa", "Weighted kappa", "quick", "deep", "0.89"} <= set(agreement)
    assert {"quick", "deep", "accuracy", "US dollars an item", "0.001", "0.01"} <= set(cost)
    assert {"Unreadable", "Order flips", "Rerun flips", "Injection lift", "1.00"} <= set(reliability)
    assert (
        sorted(quick)
        == sorted(deep)
        == sorted(["label", "answer", *2 * ["accept", "reject"], "8", "2", "0", "8"])
    )


def test_it_loads_nothing_and_its_ids_stand_once(page: str) -> None:
    assert set(re.findall(r"https?:[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}
    assert re.findall(r"<(?:script|link|img|image|iframe)|@import|src=|data:", page) == []
    assert set(re.findall(r"(?:url\(|href=\")(.)", page)) == {"#"}
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids)) > 5


def test_the_same_report_is_the_same_page(report: JudgingReport) -> None:
    assert html(report) == html(report)


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_names_are_names_whatever_is_in_them(report: JudgingReport, name: str) -> None:
    judges = [
        judge_report.model_copy(update={"judge": name, "model": name}) for judge_report in report.judges
    ]
    classes = [judges[0].classes[0]._replace(word=name), *judges[0].classes[1:]]
    judges[0] = judges[0].model_copy(update={"classes": classes})
    page = html(report.model_copy(update={"file": name, "judges": judges}))
    page.encode()
    assert "<script" not in page
    assert len(charts(page)) == 5
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202a-\u202e]", page)


@pytest.mark.parametrize("count", [1, 12])
def test_one_judge_and_a_dozen(report: JudgingReport, count: int) -> None:
    judges = [report.judges[0].model_copy(update={"judge": f"judge {number}"}) for number in range(count)]
    page = html(report.model_copy(update={"judges": judges}))
    assert len(charts(page)) == count + (2 if count == 1 else 3)  # one has nothing to compare its cost with
    assert page.count("<h2>judge ") == count


def test_free_answers_are_not_drawn_against_each_other(tmp_path: Path) -> None:
    lines = [
        {"id": str(number), "label": f"word {number}", "judges": {"x": {"choice": f"word {number}"}}}
        for number in range(MOST_WORDS + 1)
    ]
    path = tmp_path / "cases.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    page = html(judge.report(labelled.read(path), path.name, None, "strict"))
    assert "31 different words are too many for a picture" in page
    assert "labels (down)" not in page
    assert page.count("<td>word ") == 31


def test_what_was_not_measured_is_not_drawn(tmp_path: Path) -> None:
    """No answer could be read, no price is known, and there are no variants."""
    path = tmp_path / "cases.jsonl"

    def drawn(failure: str) -> str:
        judges = {"quick": {"failure": failure}}
        path.write_text(json.dumps({"id": "a", "text": "a", "label": "accept", "judges": judges}) + "\n")
        report = judge.report(labelled.read(path), path.name, loader.find_rubric("kls"), "strict")
        return html(report)

    assert charts(drawn("timeout")) == []
    page = drawn("invalid_reply")
    (only,) = charts(page)
    assert "Unreadable" in texts(only)
    assert "Order flips" not in texts(only)
    assert "<th>calls an item</th>" in page
    assert "<th>Accuracy</th>" not in page
