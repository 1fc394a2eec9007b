"""Charts: matplotlib leaves no trace, texts stay texts, nothing is loaded, values stand where they are."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from itertools import pairwise
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from drawn import NAMES, SVG, references, texts, without_matplotlib
from drawn import charts as charts_of

from judgekit.errors import UsageError
from judgekit.evaluation import charts
from judgekit.evaluation.charts import KpiPoint, Page
from judgekit.evaluation.stats import Bin, BootstrapInterval
from judgekit.ledger import kpi, rates

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from judgekit.evaluation.charts import Paint

MIDDLE = BootstrapInterval(0.5, 0.2, 0.9)
LISTS = {
    "one": ["a"],
    "twelve": [f"provider/model-{number}, the best of its family" for number in range(12)],
    "names": list(NAMES.values()),
}
_DRAWS = """
import json, os, sys

from judgekit.evaluation import charts
from judgekit.evaluation.stats import BootstrapInterval

before = dict(os.environ)
early = "matplotlib" in sys.modules
figures = {"Accuracy": [BootstrapInterval(0.5, 0.2, 0.9), None]}
text = charts.document(charts.intervals_chart(["one", "\\u4e8c"], figures), "A chart")
print(json.dumps([text, early, "matplotlib.pyplot" in sys.modules, dict(os.environ) == before]))
"""


def agreement(*names: str, spreads: Sequence[BootstrapInterval | None] = ()) -> Paint:
    found = charts.intervals_chart(names, {"Accuracy": spreads or [MIDDLE] * len(names)})
    assert found is not None
    return found


def svg(paint: Paint | None) -> ET.Element:
    assert paint is not None
    return ET.fromstring(charts.document(paint, "A chart"))


def marks(chart: ET.Element) -> list[tuple[float, float]]:
    """Where the dots are, from the upper left corner."""
    return [(float(element.attrib["x"]), float(element.attrib["y"])) for element in chart.iter(f"{SVG}use")]


# matplotlib


def drawn(folder: Path, **variables: str) -> str:
    """Draw in a process of its own, in which every warning is an error, and return the SVG."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _DRAWS],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "TMPDIR": str(folder), **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    text, early, pyplot, same = json.loads(done.stdout)
    assert (early, pyplot, same) == (False, False, True)
    return str(text)


def test_it_leaves_nothing_behind_and_draws_the_same_bytes_everywhere(tmp_path: Path) -> None:
    """Without a home, with another hash seed, with fonts, and with settings that a folder brings."""
    home, work, other = (tmp_path / name for name in ("home", "work", "other"))
    for folder in (home, work, other):
        folder.mkdir()
    first = drawn(work, HOME=str(home), PYTHONHASHSEED="1")
    assert sorted(tmp_path.rglob("*")) == [home, other, work]
    (other / "matplotlibrc").write_text("font.size: 40\ntext.color: red\nsvg.fonttype: path\nnonsense\n")
    assert drawn(other, HOME=str(other / "matplotlibrc" / "no-folder"), PYTHONHASHSEED="2") == first
    drawn(work, HOME="/nonexistent", MPLCONFIGDIR=str(tmp_path / "chosen"))
    assert [path.name[:8] for path in (tmp_path / "chosen").iterdir()] == ["fontlist"]


def test_settings_are_as_before_afterwards() -> None:
    mpl = charts.load()
    before = dict(mpl.rcParams.copy())
    charts.document(agreement("one"), "A chart")
    assert dict(mpl.rcParams.copy()) == before


def test_where_it_cannot_be_loaded_one_line_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        without_matplotlib(),
        pytest.raises(UsageError, match=r"need matplotlib .*pip install.*\[report\]") as caught,
    ):
        charts.load()
    assert "\n" not in str(caught.value)
    (tmp_path / "matplotlibrc").write_bytes(b"font.size: \xff\xfe")
    code = (
        "from judgekit.evaluation import charts\n"
        "try:\n    charts.load()\nexcept charts.UsageError as error:\n    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.startswith("pictures need matplotlib ('utf-8' codec")
    assert done.stderr == ""

    def refuse(**_: object) -> None:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", refuse)
    charts.load.cache_clear()
    with pytest.raises(UsageError, match="No usable temporary directory"):
        charts.load()
    charts.load.cache_clear()


# Names, SVG and pages


def test_a_name_is_one_line_that_can_be_seen_and_differs_at_its_end() -> None:
    for text, shown in {
        "plain": "plain",
        "two\nlines\t and  spaces": "two lines and spaces",
        "a\x00b\x1b[0m\u202ec": "ab[0mc",
        "\u200b": "\\u200b",
        "\ud800": "\\ud800",
        "": "-",
    }.items():
        assert charts.name(text) == charts.short(text) == shown
    found = [charts.short(f"provider/a-family-of-models-with-a-name-2026-0{month}") for month in (1, 2)]
    assert found == [f"provider/a-famil…h-a-name-2026-0{month}" for month in (1, 2)]


def test_a_name_is_a_text_whatever_is_in_it() -> None:
    for name in NAMES.values():
        shown = texts(svg(agreement(name)))
        (label,) = [each for each in shown if each != "Accuracy" and not re.fullmatch(r"[\d.]+", each)]
        assert label == charts.short(name)
        assert label.isprintable()
        text = charts.document(agreement(name), name, name)
        assert "<script" not in text
        assert name != NAMES["markup"] or text.count("&lt;script&gt;") == 3


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
    root = ET.fromstring(text)
    by_id = {element.attrib["id"]: element.text for element in root.iter() if "id" in element.attrib}
    assert (root.attrib["role"], root.attrib["fill"], root[0].tag) == ("img", "currentColor", f"{SVG}title")
    assert by_id[root.attrib["aria-labelledby"]] == "Agreement"
    assert by_id[root.attrib["aria-describedby"]] == "one: 0.5"
    assert root.attrib["viewBox"] == f"0 0 {root.attrib['width']} {root.attrib['height']}"
    assert "aria-describedby" not in svg(agreement("one")).attrib


class Tags(HTMLParser):
    """The tags and attributes of a page, and whether what is opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open += [tag] * (tag != "meta")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_page_is_well_formed_loads_nothing_and_keeps_its_charts_apart() -> None:
    page = Page(NAMES["markup"])
    page.add("h2", NAMES["markup"])
    page.add("p", NAMES["entities"])
    page.table(["name", "value"], [[NAMES["markup"], "0.5\n[0.1, 0.9]"]])
    page.chart("none", None)
    for _ in range(3):
        chart = charts.confusion_chart([NAMES["markup"], "b"], {}, NAMES["markup"], NAMES["entities"])
        page.chart(NAMES["markup"], chart, NAMES["entities"])
    text = page.text()
    assert "<td>0.5<small>[0.1, 0.9]</small></td>" in text
    tags = Tags(text)
    assert tags.open == []
    never = {"script", "link", "img", "image", "iframe", "object", "embed", "base", "foreignobject"}
    assert {tag for tag, _ in tags.tags}.isdisjoint(never)
    for tag, attributes in tags.tags:
        assert not any(name.startswith("on") or name in ("src", "srcset") for name in attributes), tag
        assert (attributes.get("href") or "#").startswith("#")
        assert tag != "svg" or (attributes["role"] == "img" and attributes["aria-labelledby"])
    assert (
        [tag for tag, _ in tags.tags].count("svg") == [tag for tag, _ in tags.tags].count("figcaption") == 3
    )
    assert set(re.findall(r"url\((.)", text)) <= {"#"}
    assert set(re.findall(r"https?:[^\"' ]+", text)) == {charts.NAMESPACE}
    assert "default-src 'none'" in text
    style = text.partition("<style>")[2].partition("</style>")[0]
    assert style.startswith(":root{color-scheme:light dark}")
    assert not re.search(r"[{;](color|background)[^-]*:", style)
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    for number, drawing in enumerate(charts_of(text), 1):
        own = {element.attrib["id"] for element in drawing.iter() if "id" in element.attrib}
        assert set(references(drawing)) <= own
        assert all(each.startswith(f"chart{number}-") for each in own)


# Kinds of charts


@pytest.mark.parametrize("names", LISTS.values(), ids=LISTS)
def test_every_kind_draws_any_names(names: list[str]) -> None:
    figures = dict.fromkeys(("Accuracy", "Kappa", "Lift", "Flips"), [MIDDLE] * len(names))
    assert set(map(charts.short, names)) <= set(texts(svg(charts.intervals_chart(names, figures))))
    words = texts(svg(charts.confusion_chart(names, {(names[0], names[0]): 12345}, "label", "answer")))
    assert {"12345", "label", "answer", *(charts.short(name, 16) for name in names)} <= set(words)
    bins = [Bin(0.0, 0.1, 3, 0.0, 1.0), Bin(0.9, 1.0, 1, 1.0, 0.0)]
    shown = texts(svg(charts.reliability_chart(dict.fromkeys(names, bins))))
    assert {charts.short(name, 20) for name in names} <= set(shown)
    for factor in (0.0, 1.0, 3.0):
        points = {name: (0.0001 * factor**number, MIDDLE) for number, name in enumerate(names)}
        chart = charts.scatter_chart(points, "US dollars an item", "accuracy")
        assert (chart is None) == (len(names) == 1)  # nothing to compare
        assert chart is None or set(map(charts.short, names)) <= set(texts(svg(chart)))


def test_a_dot_stands_where_its_value_is() -> None:
    low, high = BootstrapInterval(0.25, 0, 1), BootstrapInterval(1, 1, 1)
    (one, upper), (two, lower) = marks(svg(agreement("a", "b", spreads=[low, high])))
    (middle, _), (three, _) = marks(svg(agreement("a", "b", spreads=[MIDDLE, high])))
    assert (two - one) / (three - middle) == pytest.approx(1.5, abs=0.01)
    assert lower > upper


def test_what_is_not_known_has_no_dot_and_what_nobody_knows_no_chart() -> None:
    unknown: dict[str, list[BootstrapInterval | None]] = {"Lift": [None, None]}
    chart = svg(charts.intervals_chart(["a", "b"], {"Accuracy": [None, MIDDLE], **unknown}))
    assert (len(marks(chart)), "Lift" in texts(chart)) == (1, False)
    assert charts.intervals_chart(["a"], unknown) is None
    assert charts.reliability_chart({"a": []}) is None
    zero = svg(agreement("a", spreads=[BootstrapInterval(0, 0, 0)]))
    assert ("0.00" in texts(zero), len(marks(zero))) == (True, 1)


def luminance(colour: str) -> float:
    """The relative luminance, 0 to 1 (WCAG 2.2)."""
    red, green, blue = (
        math.pow((int(colour[at : at + 2], 16) / 255 + 0.055) / 1.055, 2.4) for at in (1, 3, 5)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def test_colours_can_be_told_apart() -> None:
    """3 is enough for graphics, 4.5 for text (WCAG 2.2, 1.4.11 and 1.4.3)."""
    papers = ("#ffffff", "#121212")
    assert all(contrast(colour, paper) >= 3 for colour in (charts.BLUE, charts.RED) for paper in papers)
    # A hundred counts of each share: darker for more, and readable on it.
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
    shades = [contrast(fill, "#ffffff") for fill in fills[::21]]
    assert all(one < other for one, other in pairwise(shades))


def test_a_point_stands_at_its_cost_and_its_height_and_costs_are_written_out() -> None:
    points = {"cheap": (0.001, MIDDLE), "dear": (0.002, BootstrapInterval(1, 0.9, 1))}
    chart = svg(charts.scatter_chart(points, "US dollars an item", "accuracy"))
    (one, low), (two, high), *legend = marks(chart)
    assert (one < two, high < low, len(legend)) == (True, True, 2)
    table = [((0.0002, 0.004), {"0.001"}), ((0.0001, 1), {"0.0001", "1"}), ((0.0, 0.0), {"0", "1"})]
    for costs, ticks in table:
        points = {f"point {number}": (cost, MIDDLE) for number, cost in enumerate(costs)}
        assert ticks <= set(texts(svg(charts.scatter_chart(points, "US dollars", "accuracy"))))


def moments(*values: float | None) -> list[KpiPoint]:
    """Return a point a day at which every measure with a limit has the same value."""
    names = [name for name in kpi.LIMITS if name not in kpi.RELIANCE]
    return [
        KpiPoint(
            datetime(2026, 3, 1, tzinfo=UTC) + timedelta(days=day),
            [kpi.Kpi(name, value, rates.Interval(0.1, 900.0), 9) for name in names],
        )
        for day, value in enumerate(values)
    ]


def test_figures_over_time() -> None:
    for days in (0, 1, 2, 400):
        values = [None if number == 1 else number % 7 / 6 for number in range(days)]
        chart = svg(charts.kpi_chart(moments(*values)))
        assert texts(chart).count("90%") == 1
        assert (days == 0) == ("nothing measured" in texts(chart))
        dots = [each for each in chart.iter(f"{SVG}use") if "opacity" not in each.attrib["style"]]
        assert len(dots) == (len(kpi.LIMITS) - len(kpi.RELIANCE)) * (days - (days > 1))
        assert all(y >= 0 for _, y in marks(chart))  # none above its axis
    # A gap is no line: the lone point begins none.
    chart = svg(charts.kpi_chart(moments(0.2, None, 0.4, 0.6)))
    paths = [each for each in chart.iter(f"{SVG}path") if "fill: none" in each.attrib.get("style", "")]
    (line, *_) = [each.attrib["d"] for each in paths if f"stroke: {charts.BLUE}" in each.attrib["style"]]
    assert (line.count("M"), line.count("L")) == (2, 1)
