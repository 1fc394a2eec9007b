"""A page is one file: well formed, with all texts as texts, and loading nothing."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from drawn import NAMES, charts, references

from judgekit.evaluation import diagrams
from judgekit.evaluation.charts import Page

NEVER_CLOSED = {"meta"}


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
        if tag not in NEVER_CLOSED:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page() -> str:
    made = Page(NAMES["markup"])
    made.heading(NAMES["markup"])
    made.paragraph(NAMES["entities"])
    made.table(["name", "value"], [[NAMES["markup"], "0.5\n[0.1, 0.9]"]])
    for _ in range(3):
        paint = diagrams.confusion_chart([NAMES["markup"], "b"], {}, NAMES["markup"], NAMES["entities"])
        made.chart(NAMES["markup"], paint, NAMES["entities"])
    return made.text()


def test_it_is_well_formed_and_loads_nothing() -> None:
    text = page()
    tags = Tags(text)
    assert tags.open == []
    never = {"script", "link", "img", "image", "iframe", "object", "embed", "base", "foreignobject"}
    assert {tag for tag, _ in tags.tags}.isdisjoint(never)
    for tag, attributes in tags.tags:
        assert not any(name.startswith("on") or name in ("src", "srcset") for name in attributes), tag
        assert (attributes.get("href") or "#").startswith("#")
    assert set(re.findall(r"url\((.)", text)) <= {"#"}
    assert set(re.findall(r"https?:[^\"' ]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in text


def test_ids_stand_once_on_the_page_and_references_stay_in_their_chart() -> None:
    text = page()
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    for chart in charts(text):
        own = {element.attrib["id"] for element in chart.iter() if "id" in element.attrib}
        assert set(references(chart)) <= own


def test_every_chart_has_a_caption_and_a_name() -> None:
    found = Tags(page()).tags
    named = [attributes for tag, attributes in found if tag == "svg"]
    assert len(named) == 3
    assert all(each["role"] == "img" and each["aria-labelledby"] for each in named)
    assert sum(tag == "figcaption" for tag, _ in found) == 3


def test_what_follows_a_line_break_stands_smaller() -> None:
    assert "<td>0.5<small>[0.1, 0.9]</small></td>" in page()


def test_it_is_light_or_dark_as_its_reader_wants() -> None:
    text = page()
    assert ":root{color-scheme:light dark}" in text
    style = text.partition("<style>")[2].partition("</style>")[0]
    assert not re.search(r"[{;](color|background)[^-]*:", style)
