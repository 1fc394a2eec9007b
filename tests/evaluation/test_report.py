"""Charts, and the report on judges: texts stay texts, nothing is loaded, figures and values are right."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from drawn import NAMES, SVG, references, texts
from drawn import charts as charts_of
from ledger_lines import content, label, verdict
from scripted import scores

from judgekit.errors import InputError
from judgekit.evaluation import cases as labelled
from judgekit.evaluation import charts
from judgekit.evaluation import report as judged
from judgekit.evaluation.stats import Bin, BootstrapInterval
from judgekit.ledger import kpi
from judgekit.rubric import loader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from judgekit.evaluation.charts import Paint
    from judgekit.evaluation.report import JudgeReport, JudgingReport
    from judgekit.judging.verdict import VerdictWord


MIDDLE = BootstrapInterval(0.5, 0.2, 0.9)
_DRAWS = """
import sys

from judgekit.evaluation import charts
from judgekit.evaluation.stats import BootstrapInterval

assert "matplotlib" not in sys.modules
figures = {"Accuracy": [BootstrapInterval(0.5, 0.2, 0.9), None]}
try:
    print(charts.document(charts.intervals_chart(["one", "\\u4e8c"], figures), "A chart"))
except charts.UsageError as error:
    print(error)
assert "matplotlib.pyplot" not in sys.modules
"""


def agreement(*names: str, spreads: Sequence[BootstrapInterval | None] = ()) -> Paint:
    found = charts.intervals_chart(names, {"Accuracy": spreads or [MIDDLE] * len(names)})
    assert found is not None
    return found


def svg(paint: Paint | None) -> ET.Element:
    assert paint is not None
    return ET.fromstring(charts.document(paint, "A chart"))


def drawn(folder: Path, home: str, seed: str) -> str:
    """Draw in a process of its own, in which every warning is an error, and return the SVG."""
    command = [sys.executable, "-W", "error", "-c", _DRAWS]
    env = {"PATH": os.environ["PATH"], "TMPDIR": str(folder), "HOME": home, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_it_draws_the_same_bytes_everywhere_and_keeps_its_files_in_the_cache(tmp_path: Path) -> None:
    """With another hash seed, with settings that a folder brings, and where there is no home."""
    home, other = tmp_path / "home", tmp_path / "other"
    for folder in (home, other):
        folder.mkdir()
    first = drawn(tmp_path, str(home), "1")
    assert [path.name for path in home.rglob("*")][:3] == [".cache", "judgekit", "matplotlib"]
    (other / "matplotlibrc").write_text("font.size: 40\ntext.color: red\nsvg.fonttype: path\nnonsense\n")
    assert drawn(other, str(other / "matplotlibrc" / "no-folder"), "2") == first
    (other / "matplotlibrc").write_bytes(b"font.size: \xff\xfe")
    assert drawn(other, str(home), "1").startswith("pictures need matplotlib ('utf-8' codec")


def test_a_chart_alone_loads_nothing_and_has_the_colours_of_its_reader() -> None:
    text = charts.document(agreement("one"), "Agreement", "one: 0.5")
    assert set(re.findall(r"https?:[^\"' ]+", text)) == {charts.NAMESPACE}
    assert re.findall(r"<!|<\?|<metadata|<script|<image|<style|<foreignObject|@import|data:", text) == []
    assert set(re.findall(r"url\((.)", text)) | set(re.findall(r"href=\"(.)", text)) == {"#"}
    assert re.findall(r"\d{4}-\d\d-\d\d", text) == []
    assert 'style="color-scheme: light dark"' in text
    assert "#000000" not in text
    assert "stroke: currentColor" in text
    assert set(re.findall(r"fill: ([^;\"]+)", text)) == {"none", charts.BLUE}


def test_a_page_is_well_formed_loads_nothing_and_keeps_its_charts_apart() -> None:
    shown = [
        charts.paragraph(NAMES["entities"]),
        charts.table([["name"], [NAMES["markup"], "0.5\n[0.1, 0.9]"]]),
    ]
    chart = charts.confusion_chart([NAMES["markup"], "b"], {}, NAMES["markup"], NAMES["entities"])
    drawings = [("none", None), *[(NAMES["markup"], chart)] * 3]
    text = charts.page(NAMES["markup"], shown, drawings, NAMES["entities"])
    assert "<td>0.5<small>[0.1, 0.9]</small></td>" in text
    closed = re.sub(r"<meta[^>]*>", "", text.removeprefix("<!doctype html>"))
    parts = [(each.tag.removeprefix(SVG), each.attrib) for each in ET.fromstring(closed).iter()]
    never = {"script", "link", "img", "image", "iframe", "object", "embed", "base", "foreignObject"}
    assert {tag for tag, _ in parts}.isdisjoint(never)
    for tag, attributes in parts:
        assert not any(name.startswith("on") or name in ("src", "srcset") for name in attributes), tag
        assert attributes.get("href", "#").startswith("#")
        assert tag != "svg" or (attributes["role"] == "img" and attributes["aria-labelledby"])
    tags = [tag for tag, _ in parts]
    assert tags.count("svg") == tags.count("figcaption") == 3
    assert set(re.findall(r"url\((.)", text)) <= {"#"}
    assert set(re.findall(r"https?:[^\"' ]+", text)) == {charts.NAMESPACE}
    assert "default-src 'none'" in text
    assert ":root{color-scheme:light dark}" in text
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    for number, drawing in enumerate(charts_of(text), 1):
        own = {element.attrib["id"] for element in drawing.iter() if "id" in element.attrib}
        assert set(references(drawing)) <= own
        assert all(each.startswith(f"chart{number}-") for each in own)


def test_every_kind_draws_any_names() -> None:
    names = list(NAMES.values())
    figures = dict.fromkeys(("Accuracy", "Kappa", "Lift", "Flips"), [MIDDLE] * len(names))
    bins = [Bin(0.0, 0.1, 3, 0.0, 1.0), Bin(0.9, 1.0, 1, 1.0, 0.0)]
    counts = {(names[0], names[0]): 12345}
    drawings = [
        (32, charts.intervals_chart(names, figures)),
        (16, charts.confusion_chart(names, counts, "label", "answer")),
        (20, charts.reliability_chart(dict.fromkeys(names, bins))),
    ]
    for factor in (0.0, 1.0, 3.0):
        points = {name: (0.0001 * factor**number, MIDDLE) for number, name in enumerate(names)}
        drawings.append((32, charts.scatter_chart(points, "US dollars an item", "accuracy")))
    for longest, paint in drawings:
        assert paint is not None
        text = charts.document(paint, names[0], names[-1])
        shown = texts(ET.fromstring(text))
        assert {charts.short(name, longest) for name in names} <= set(shown)
        assert "<script" not in text
        assert all(each.isprintable() for each in shown)


def dots(chart: ET.Element) -> int:
    return sum("opacity" not in element.attrib["style"] for element in chart.iter(f"{SVG}use"))


def contrast(*colours: str) -> float:
    """Return the contrast of two colours by their relative luminance (WCAG 2.2)."""
    parts = [[(int(colour[at : at + 2], 16) / 255 + 0.055) / 1.055 for at in (1, 3, 5)] for colour in colours]
    shares = (0.2126, 0.7152, 0.0722)
    dark, light = sorted(
        sum(map(math.prod, zip(shares, (p**2.4 for p in rgb), strict=True))) for rgb in parts
    )
    return (light + 0.05) / (dark + 0.05)


def test_colours_can_be_told_apart() -> None:
    """3 is enough for graphics, 4.5 for text (WCAG 2.2, 1.4.11 and 1.4.3)."""
    papers = ("#ffffff", "#121212")
    assert all(contrast(colour, paper) >= 3 for colour in (charts.BLUE, charts.RED) for paper in papers)
    words = [str(number) for number in range(21)]
    counts = {(word, other): 5 * int(word) if other == "0" else 0 for word in words for other in words}
    counts |= {(word, "1"): 100 - 5 * int(word) for word in words}
    chart = svg(charts.confusion_chart(words, counts, "label", "answer"))
    style = [element.attrib["style"] for element in chart.iter(f"{SVG}path")]
    fills = [found[1] for each in style if (found := re.search(r"fill: (#\w+)", each))]
    inks = [element.attrib["style"] for element in chart.iter(f"{SVG}text")][-len(fills) :]
    colours = [found[1] if (found := re.search(r"fill: (#\w+)", each)) else "#000000" for each in inks]
    assert len(fills) == 21 * 21
    assert all(contrast(fill, ink) >= 4.5 for fill, ink in zip(fills, colours, strict=True))


def test_the_picture_has_a_panel_a_kpi_and_a_point_a_day() -> None:
    words: list[VerdictWord] = ["accept" if n % 4 else "reject" for n in range(20)]
    lines = [verdict(word, days=n / 2, name=f"v{n}", **content(str(n))) for n, word in enumerate(words)]
    evidence = kpi.evidence([*lines, *(label(line, "go") for line in lines[:8])])
    root = ET.fromstring(charts.kpi_drawing(evidence, as_page=False))  # ours
    shown = texts(root)
    assert {kpi.LIMITS[each.name].title for each in kpi.measure(evidence)} <= set(shown)
    assert [each for each in shown if each in ("70%", "90%")] == ["70%", "90%"]
    days = charts.kpi_days(evidence)
    assert [str(day) for day in days] == [f"2026-03-{day}" for day in range(11, 21)]
    assert dots(root) == sum(each.value is not None for kpis in days.values() for each in kpis)
    description = root.findtext(f"{SVG}desc") or ""
    assert (description.count("; "), "false-positive rate " in description) == (5, True)
    page = charts.kpi_drawing(evidence, as_page=True)
    assert page.startswith("<!doctype html>")
    assert texts(charts_of(page)[0]) == shown
    for little in ([], [verdict()]):
        assert "nothing measured" in charts.kpi_drawing(kpi.evidence(little), as_page=False)


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
    assert "best on the dashed line" in charts.judging_page(found)
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
    page = charts.judging_page(judging)
    assert page == charts.judging_page(judging)
    text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    for part in ("0.889 [", "Cohen's kappa", "quick (a-model)", "18 labelled items"):
        assert part in text, part
    captions = ["Agreement with the labels", "Cost against agreement", "Reliability", "quick", "deep"]
    assert re.findall("<figcaption>(.*?)[:,<]", page) == captions
    agreement, cost, reliability, quick, deep = map(texts, charts_of(page))
    assert {"Accuracy", "Cohen's kappa", "Weighted kappa", "quick", "deep", "0.89"} <= set(agreement)
    assert {"quick", "deep", "accuracy", "US dollars an item", "0.001", "0.01"} <= set(cost)
    assert {"Unreadable", "Order flips", "Rerun flips", "Injection lift", "1.00"} <= set(reliability)
    matrix = ["label", "answer", *2 * ["accept", "reject"], "8", "2", "0", "8"]
    assert sorted(quick) == sorted(deep) == sorted(matrix)


def test_free_answers_are_not_drawn_against_each_other(tmp_path: Path) -> None:
    words = [f"word {number}" for number in range(charts.MOST_WORDS + 1)]
    lines = [{"id": word, "label": word, "judges": {"x": {"choice": word}}} for word in words]
    page = charts.judging_page(measured(tmp_path, lines, None))
    assert "31 different words are too many for a picture" in page
    assert "labels (down)" not in page


def test_names_are_names_and_only_what_was_measured_is_drawn(judging: JudgingReport, tmp_path: Path) -> None:
    """No answer could be read, no price is known, and there are no variants."""
    name = "".join(NAMES.values())
    judges = [each.model_copy(update={"judge": name, "model": name}) for each in judging.judges[:1]]
    page = charts.judging_page(judging.model_copy(update={"file": name, "judges": judges}))
    page.encode()
    assert ("<script" in page, len(charts_of(page))) == (False, 3)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202a-\u202e]", page)
    failed = {"id": "a", "text": "a", "label": "accept"}
    nothing = measured(tmp_path, [failed | {"judges": {"x": {"failure": "timeout"}}}])
    assert charts_of(charts.judging_page(nothing)) == []
    page = charts.judging_page(measured(tmp_path, [failed | {"judges": {"x": {"failure": "invalid_reply"}}}]))
    (chart,) = charts_of(page)
    assert "Unreadable" in texts(chart)
    assert "Order flips" not in texts(chart)
