"""The page of judges: it opens offline, is complete, and nothing runs over its edge or into each other."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from scripted import scores

from judgekit import library
from judgekit.calibrate import labelled
from judgekit.evaluation import judge, judge_page

if TYPE_CHECKING:
    from pathlib import Path

GOOD, BAD = scores(5, 5, 5), scores(1, 1, 1)
SVG = "{http://www.w3.org/2000/svg}"


def line(name: str, label: str, reply: str, **more: object) -> dict[str, Any]:
    said = {"model": "a-model", "reply": reply}
    return {"id": name, "text": name, "label": label, "judges": {"quick": said, "deep": said}, **more}


@pytest.fixture
def page(tmp_path: Path) -> str:
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
    loaded = library.find_rubric("kls")
    return judge_page.html(judge.report(labelled.read(path), path.name, loaded, "strict"))


class Page(HTMLParser):
    """The tags and attributes of a page, and whether what is opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def pictures(page: str) -> list[ET.Element]:
    return [ET.fromstring(each) for each in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def test_it_is_well_formed_and_loads_nothing(page: str) -> None:
    found = Page(page)
    assert found.open == []
    assert {tag for tag, _ in found.tags}.isdisjoint({"script", "link", "img", "iframe", "object", "embed"})
    assert not any({"src", "href", "srcset", "onload"} & set(attributes) for _, attributes in found.tags)
    assert "url(" not in page
    assert "default-src 'none'" in page


def test_every_figure_is_in_it(page: str) -> None:
    text = re.sub(r"<[^>]+>", " ", page)
    for part in ("0.889", "precision", "recall", "Cohen's kappa", "quick (a-model)", "18 labelled items"):
        assert part in text, part
    assert "Of 1 items asked again, 1.000 [1.000, 1.000] were answered otherwise." in text
    assert "Of 1 items in another order, 0.000 [0.000, 0.000] were answered otherwise." in text
    assert "with injected text, 0.000 [0.000, 0.000] were called accept without it and 1.000" in text


def test_pictures_have_a_name_and_keep_within_their_edges(page: str) -> None:
    found = pictures(page)
    assert len(found) >= 8
    for picture in found:
        width, height = float(picture.attrib["width"]), float(picture.attrib["height"])
        assert picture.attrib["viewBox"] == f"0 0 {width:g} {height:g}"
        assert picture.attrib["aria-label"]
        for each in picture.iter():
            for name, most in (("x", width), ("x1", width), ("x2", width), ("cx", width), ("y", height)):
                assert 0 <= float(each.attrib.get(name, 0)) <= most, (name, each.attrib)
            if each.tag == f"{SVG}rect":
                assert float(each.attrib["x"]) + float(each.attrib["width"]) <= width
                assert float(each.attrib["y"]) + float(each.attrib["height"]) <= height


def test_no_text_runs_into_another(page: str) -> None:
    """Texts on one line are apart by the width of their letters, 7 pixels each at this size."""
    for picture in pictures(page):
        spans: dict[str, list[tuple[float, float]]] = {}
        for each in picture.iter(f"{SVG}text"):
            width = 7 * len(each.text or "")
            x = float(each.attrib["x"]) - (width / 2 if each.attrib["text-anchor"] == "middle" else 0)
            spans.setdefault(each.attrib["y"], []).append((x, x + width))
        for line_ in spans.values():
            ordered = sorted(line_)
            assert all(left[1] <= right[0] for left, right in pairwise(ordered))


def test_a_dot_stands_where_its_value_is(page: str) -> None:
    """Accuracy 16 of 18, on an axis from 190 (0) to 610 (1)."""
    dots = [float(each.attrib["cx"]) for each in pictures(page)[0].iter(f"{SVG}circle")]
    assert dots == [pytest.approx(190 + 420 * 16 / 18, abs=0.1)] * 2


def test_a_dark_cell_has_a_light_number(page: str) -> None:
    cells = pictures(page)[-1]
    light = {each.text for each in cells.iter(f"{SVG}text") if each.attrib["class"] == "on"}
    assert light == {"8"}
