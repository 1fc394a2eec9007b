"""A page of HTML with charts in it, whole in one file: it loads nothing from anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from judgekit.charts import svg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.charts.library import Paint

_NOTHING_LOADED = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:15px/1.5 sans-serif;margin:2em auto;max-width:66em;padding:0 1em}"
    "h2{margin-top:2em}table{border-collapse:collapse}th,td{border-bottom:1px solid #8886;padding:.3em .5em;"
    "text-align:right;vertical-align:top}th{border-bottom-width:2px}"
    "th:first-child,td:first-child{text-align:left;min-width:7em;overflow-wrap:anywhere}"
    "small{display:block;font-size:11px;opacity:.7;white-space:nowrap}"
    "figure,.wide{margin:1.5em 0;overflow-x:auto}"
    "figcaption{margin-bottom:.5em}svg{display:block}"
)


class Page:
    """A page that grows from its top to its bottom; all texts are put in as texts, whatever is in them."""

    def __init__(self, title: str) -> None:
        self._html = ET.Element("html", {"lang": "en"})
        head = ET.SubElement(self._html, "head")
        ET.SubElement(head, "meta", {"charset": "utf-8"})
        ET.SubElement(head, "meta", {"http-equiv": "Content-Security-Policy", "content": _NOTHING_LOADED})
        ET.SubElement(head, "meta", {"name": "viewport", "content": "width=device-width"})
        ET.SubElement(head, "title").text = title
        ET.SubElement(head, "style").text = _STYLE
        self._body = ET.SubElement(self._html, "body")
        ET.SubElement(self._body, "h1").text = title
        self._charts = 0

    def heading(self, text: str) -> None:
        """Begin a section."""
        ET.SubElement(self._body, "h2").text = text

    def paragraph(self, text: str) -> None:
        """Add a paragraph."""
        ET.SubElement(self._body, "p").text = text

    def table(self, heading: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a table; what follows a line break in a cell stands smaller below."""
        table = ET.SubElement(ET.SubElement(self._body, "div", {"class": "wide"}), "table")
        for kind, cells in (("th", heading), *(("td", row) for row in rows)):
            row = ET.SubElement(table, "tr")
            for text in cells:
                cell = ET.SubElement(row, kind)
                cell.text, _, below = text.partition("\n")
                if below:
                    ET.SubElement(cell, "small").text = below

    def chart(self, title: str, paint: Paint, description: str = "") -> None:
        """Add a chart under its title."""
        self._charts += 1
        figure = ET.SubElement(self._body, "figure")
        ET.SubElement(figure, "figcaption").text = title
        figure.append(svg.element(paint, title, name=f"chart{self._charts}", description=description))

    def text(self) -> str:
        """Return the page."""
        return "<!doctype html>\n" + ET.tostring(self._html, encoding="unicode", method="html") + "\n"
