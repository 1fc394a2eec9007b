"""A chart as SVG: text stays text, nothing is loaded, ids are its own, colours are the page's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from drawn import NAMES, SVG, references, texts

from judgekit.evaluation import charts, diagrams
from judgekit.evaluation.stats import BootstrapInterval

if TYPE_CHECKING:
    from judgekit.evaluation.charts import Paint


def paint(*names: str) -> Paint:
    found = diagrams.intervals_chart(
        names, [diagrams.FigurePanel("Accuracy", [BootstrapInterval(0.5, 0.2, 0.9)] * len(names))]
    )
    assert found is not None
    return found


def shown(*names: str) -> ET.Element:
    return ET.fromstring(charts.document(paint(*names), "A chart"))


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_name_is_a_text_whatever_is_in_it(name: str) -> None:
    (label,) = set(texts(shown(name))) - {"0", "0.5", "1", "0.50", "Accuracy"}
    head, dots, tail = label.partition("…")
    assert charts.name(name).startswith(head.rstrip())
    assert charts.name(name).endswith(tail.lstrip())
    assert dots or label == charts.name(name)
    assert label.isprintable()


@pytest.mark.parametrize("name", ["markup", "mathematics", "entities", "arabic"])
def test_a_short_name_is_shown_as_it_is(name: str) -> None:
    assert NAMES[name] in texts(shown(NAMES[name]))


def test_what_is_markup_in_a_name_is_none_in_the_file() -> None:
    text = charts.document(paint(NAMES["markup"]), NAMES["markup"], NAMES["markup"])
    assert "<script" not in text
    assert text.count("&lt;script&gt;") == 3


def test_nothing_is_loaded_and_nothing_is_dated() -> None:
    text = charts.document(paint("one"), "A chart")
    assert set(re.findall(r"https?:[^\"' ]+", text)) == {charts.NAMESPACE}
    assert re.findall(r"<!|<\?|<metadata|<script|<image|<style|<foreignObject|@import|data:", text) == []
    assert set(re.findall(r"url\((.)", text)) | set(re.findall(r"href=\"(.)", text)) == {"#"}
    assert re.findall(r"\d{4}-\d\d-\d\d", text) == []


def test_ids_begin_with_the_name_and_all_references_lead_somewhere() -> None:
    root = ET.fromstring(ET.tostring(charts.element(paint("one", "two"), "A chart", name="here")))
    ids = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    assert len(ids) == len(set(ids))
    assert set(references(root)) == set(ids)
    assert len(ids) > 1
    assert all(each.startswith("here-") for each in ids)


def test_it_has_a_name_and_a_description() -> None:
    root = ET.fromstring(charts.document(paint("one"), "Agreement", "one: 0.5"))
    assert root.attrib["role"] == "img"
    by_id = {element.attrib["id"]: element.text for element in root.iter() if "id" in element.attrib}
    assert by_id[root.attrib["aria-labelledby"]] == "Agreement"
    assert by_id[root.attrib["aria-describedby"]] == "one: 0.5"
    assert root[0].tag == f"{SVG}title"
    assert "aria-describedby" not in shown("one").attrib


def test_texts_and_guides_have_the_colour_of_the_page_around() -> None:
    root = shown("one")
    assert root.attrib["fill"] == "currentColor"
    assert "currentColor" in ET.tostring(root, encoding="unicode").split("<title", 1)[0]
    styles = " ".join(element.attrib.get("style", "") for element in root.iter())
    assert "stroke: currentColor" in styles
    assert "#000000" not in styles
    assert all("fill" not in element.attrib["style"] for element in root.iter(f"{SVG}text"))


def test_there_is_no_background() -> None:
    fills = set(re.findall(r"fill: ([^;\"]+)", charts.document(paint("one"), "A chart")))
    assert fills == {"none", charts.BLUE}


def test_alone_it_is_dark_where_its_reader_is() -> None:
    assert 'style="color-scheme: light dark"' in charts.document(paint("one"), "A chart")


def test_its_size_is_in_pixels() -> None:
    root = shown("one")
    width, height = root.attrib["width"], root.attrib["height"]
    assert root.attrib["viewBox"] == f"0 0 {width} {height}"
    assert (int(width), int(height) < 100) == (charts.WIDTH, True)


def test_the_same_chart_has_the_same_bytes() -> None:
    counts = {("a", "a"): 3, ("a", "b"): 1}
    again = [
        charts.document(diagrams.confusion_chart(["a", "b"], counts, "down", "across"), "A chart")
        for _ in range(2)
    ]
    assert again[0] == again[1]
