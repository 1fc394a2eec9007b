"""Pages: names stay names, nothing is loaded, and a browser can show, filter and sort them."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from ledger_lines import content, label, verdict
from pages_read import ReadPage

from judgekit.cli.app import run
from judgekit.evaluation import pages, stats
from judgekit.evaluation.cases import Case, Recorded
from judgekit.evaluation.page import Cell, Chart, Figure, Section, Table, render_page
from judgekit.evaluation.report import (
    Confusion,
    Flips,
    JudgeReport,
    JudgingReport,
    Lift,
    MeanCost,
    Outcome,
)
from judgekit.ledger import kpi
from judgekit.ledger.rates import Interval

if TYPE_CHECKING:
    from judgekit.judging.verdict import VerdictWord

# Names that people, models and attackers give: each breaks something that a naive page does.
NAMES = {
    "markup": "<script>alert(1)</script>",
    "attribute": "\" onload=alert(1) x='",
    "template": "{{ 7 * 7 }}{% raw %}",
    "long": "provider/a-model-with-a-very-long-name-that-ends-in-a-date-2026-11-22" * 3,
    "chinese": "\u5f88\u957f\u7684\u6a21\u578b\u540d\u79f0" * 8,
    "controls": "\x00\x1b[31m two\nlines\r\tand \u202e more",
    "surrogate": "lone \ud800 half",
    "empty": "",
}
EXAMPLES = Path(__file__).parents[2] / "examples" / "report"
MIDDLE = Interval(0.5, 0.2, 0.9)


def texts(html: str) -> str:
    """Return the text that a reader sees before any script runs."""
    shown = re.sub(r"(?s)<(style|script)\b[^>]*>.*?</\1>", " ", html)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", shown)).split())


def example() -> str:
    """Return a page that has every kind of part, with names of every kind in each."""
    chart = Chart(
        "curve",
        [(0, Interval(0.5, 0.4, 0.6)), None, (1, Interval(0.7, 0.6, 0.8))],
        ("0", "1"),
        [(0.9, "90 %")],
        diagonal=True,
    )
    sections = []
    for name in NAMES.values():
        cells = [[name, 3, 0.25, None, Cell(name, name, 0.5)] for _ in range(7)]
        figures = [
            Figure(name, 0.5, MIDDLE, name),
            Figure(name, 0.5),
            Figure(name, 0.1, Interval(0.1, -0.5, 0.6), minimum=-1),
        ]
        table = Table([name, "count", "share", "nothing", "shaded"], cells, name)
        charts = [chart._replace(title=name, note=name, ends=(name, name), guides=[(0.5, name)])]
        sections.append(Section(name, [name, figures, table, charts]))
    return render_page(NAMES["markup"], NAMES["attribute"], sections)


def judging() -> JudgingReport:
    judge = JudgeReport(
        judge="quick",
        model="a-model",
        items=18,
        unreadable=MIDDLE,
        accuracy=Interval(0.889, 0.7, 1.0),
        kappa=MIDDLE,
        weighted_kappa=MIDDLE,
        classes=stats.measure_words([("accept", "accept"), ("reject", "accept")]),
        confusion=[
            Confusion(label="accept", said="accept", count=8),
            Confusion(label="reject", said="accept", count=2),
        ],
        order_flips=Flips(pairs=3, rate=MIDDLE),
        rerun_flips=Flips(pairs=0, rate=None),
        injection=Lift(
            wanted="accept",
            pairs=3,
            before=MIDDLE,
            after=MIDDLE,
            lift=Interval(0.1, -0.2, 0.4),
        ),
        cost=MeanCost(calls=1.5, known=3, usd=0.001),
    )
    return JudgingReport(
        file="cases.jsonl",
        rubric="kls@1.0.0",
        mode="strict",
        items=18,
        judges=[judge, judge.model_copy(update={"judge": "deep"})],
    )


def evidence() -> kpi.Evidence:
    words: list[VerdictWord] = ["accept" if n % 4 else "reject" for n in range(20)]
    lines = [
        verdict(word, days=n / 2, name=f"v{n}", **content(str(n))) for n, word in enumerate(words)
    ]
    return kpi.collect_evidence([*lines, *(label(line, "go") for line in lines[:8])])


def test_a_page_loads_nothing_runs_only_its_own_script_and_keeps_names_names() -> None:
    html = example()
    html.encode()
    assert set(re.findall(r"https?:[^\"' ]+", html)) == {"http://www.w3.org/2000/svg"}
    assert (
        re.findall(r"<link|<img|<iframe|<object|<embed|<base|@import|data:|\ssrc=|url\(", html)
        == []
    )
    assert (html.count("<script"), "default-src 'none'" in html) == (1, True)
    assert re.search(r"script-src 'sha256-[\w+/]+='", html)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202a-\u202e]", html)
    unquoted = re.sub(r'"[^"]*"', '""', html.partition("<script>")[0])
    assert not re.search(r"<[^>]*\son\w+=", unquoted)
    shown = texts(html)
    for name in ("markup", "attribute", "template", "long", "chinese"):
        assert shown.count(NAMES[name]) > 5, name
    assert html == example()


def test_the_pages_have_every_figure() -> None:
    shown = texts(pages.render_judging_page(judging()))
    for part in (
        "0.889 [0.700, 1.000]",
        "quick a-model",
        "18 labelled items, rubric kls@1.0.0, strict",
        "Cohen's kappa",
        "Effect of injected text",
    ):
        assert part in shown, part
    assert pages.CHANGES_WHEN_ASKED_AGAIN not in shown
    html = pages.render_kpi_page(evidence())
    shown = texts(html)
    for one in kpi.measure_kpis(evidence()):
        assert one.limit.title in shown
        assert str(one.limit) in shown
    assert "last " in shown
    many = [
        Confusion(label=f"w{n}", said=f"w{n}", count=1) for n in range(pages.MAX_TABLE_CLASSES + 1)
    ]
    words = stats.measure_words([(each.label, each.said) for each in many])
    judge = judging().judges[0].model_copy(update={"confusion": many, "classes": words})
    shown = texts(pages.render_judging_page(judging().model_copy(update={"judges": [judge]})))
    assert "31 different words are too many for a table" in shown


def test_the_picture_has_a_panel_a_kpi_and_a_point_a_day() -> None:
    found = evidence()
    roots = [
        ET.fromstring(each)
        for each in re.findall(r"<svg.*?</svg>", pages.render_kpi_page(found), re.DOTALL)
    ]
    shown = [each.text for root in roots for each in root.iter() if each.tag.endswith("text")]
    assert {kpi.LIMITS[each.name].title for each in kpi.measure_kpis(found)} <= set(shown)
    days = pages.measure_kpis_by_day(found)
    assert [str(day) for day in days] == [f"2026-03-{day}" for day in range(11, 21)]
    dots = sum(each.tag.endswith("circle") for root in roots for each in root.iter())
    assert dots == sum(each.value is not None for kpis in days.values() for each in kpis)
    for little in ([], [verdict()]):
        assert "nothing measured" in pages.render_kpi_page(kpi.collect_evidence(little))


def test_a_point_lies_within_its_chart_and_a_gap_interrupts_the_line() -> None:
    chart = Chart("", [(0, MIDDLE), (0.5, MIDDLE), None, (1, MIDDLE)], ("", ""))
    assert [len(run) for run in chart.runs] == [2, 1]
    assert [Figure("", 0, minimum=-1).place(value) for value in (-2, -1, 0, 1, 2)] == [
        0,
        0,
        50,
        100,
        100,
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["example", "judges", "kpi", "report"])
def test_a_browser_shows_a_page_and_its_script_filters_and_sorts(tmp_path: Path, name: str) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is not installed")
    report = [
        "report",
        str(EXAMPLES / "results.csv"),
        "--labels",
        str(EXAMPLES / "labels.csv"),
        "--by",
        "topic",
    ]
    assert run([*report, "--html", str(tmp_path / "report.html")]) == 0
    made = {
        "report": (tmp_path / "report.html").read_text(encoding="utf-8"),
        "example": example(),
        "judges": pages.render_judging_page(judging()),
        "kpi": pages.render_kpi_page(evidence()),
    }
    acts = """
      const table = document.querySelector("table.rows"), before = table.rows.length;
      const column = Math.min(1, table.tHead.rows[0].cells.length - 1);
      table.tHead.rows[0].cells[column].querySelector("button").click();
      const field = table.parentElement.previousElementSibling?.querySelector("input[type=search]");
      if (field) { field.value = "no such word"; field.oninput(); }
      const hidden = [...table.tBodies[0].rows].filter(row => row.hidden).length;
      document.title = [before, hidden, table.tHead.rows[0].cells[column].ariaSort].join();
    """
    # The page's policy lets no script run but its own, by its hash; the test's script is allowed beside it.
    digest = base64.b64encode(hashlib.sha256(acts.encode()).digest()).decode()
    html = made[name].replace("script-src ", f"script-src 'sha256-{digest}' ")
    file = tmp_path / "page.html"
    file.write_text(html.replace("</body>", f"<script>{acts}</script></body>"), encoding="utf-8")

    def browse(*options: str) -> str:
        profile = f"--user-data-dir={tmp_path}/profile"
        command = [
            chromium,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            profile,
            *options,
            file.as_uri(),
        ]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=True
        ).stdout

    rows, hidden, order = re.findall(r"<title>(\d+),(\d+),(\w+)</title>", browse("--dump-dom"))[0]
    assert (int(hidden), order) == (int(rows) - 1 if int(rows) > 6 else 0, "ascending")
    browse("--window-size=1100,1400", f"--screenshot={tmp_path}/page.png")
    assert (tmp_path / "page.png").stat().st_size > 10_000


def test_figures_that_were_not_measured_are_not_explained() -> None:
    shown = texts(pages.render_judging_page(judging()))
    assert "Verdict changes with another order: " in shown
    assert "when asked again" not in shown


def test_the_page_about_judges_shows_the_texts_beside_the_answers() -> None:
    case = Case(
        id="a1",
        text="Because <b>.",
        description="Why?",
        reference="So.",
        label="accept",
        judges={"quick": Recorded(scores={"semantic": 2.0})},
    )
    outcome = Outcome(id="a1", label="accept", said={"quick": "reject", "deep": "accept"})
    report = judging().model_copy(update={"outcomes": [outcome]})
    page_read = ReadPage(pages.render_judging_page(report, [case]))
    assert page_read.rows == [
        {
            "id": "a1",
            "label": "accept",
            "flags": ["differ"],
            "texts": [["question", ["Why?"]], ["answer", ["Because <b>."]], ["expected", ["So."]]],
            "judged": [
                {"by": "quick", "said": "reject", "scores": "semantic 2"},
                {"by": "deep", "said": "accept"},
            ],
        }
    ]


@pytest.mark.parametrize(
    ("said", "headline"),
    [
        (0.889, "most accurate: quick, 88.9 % (70 to 100)"),
        (None, ""),
    ],
)
def test_the_page_about_judges_names_the_best(said: float | None, headline: str) -> None:
    report = judging()
    if said is None:
        judges = [judge.model_copy(update={"accuracy": None}) for judge in report.judges]
        report = report.model_copy(update={"judges": judges})
    found = ReadPage(pages.render_judging_page(report)).text("h1")
    assert found == (headline or "Judges on cases.jsonl")


def test_the_page_of_kpis_says_how_many_hold() -> None:
    headline = ReadPage(pages.render_kpi_page(evidence())).text("h1")
    assert re.fullmatch(r"\d of 6 KPIs hold.*", headline)
