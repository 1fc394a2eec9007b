"""A chart as SVG that can stand beside others in one page, or alone in a file."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from judgekit.charts.library import INCH, INK, painted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.charts.library import Paint

NAMESPACE = "http://www.w3.org/2000/svg"
_NOT_DRAWN = ("metadata", "style")
_UNDATED = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def element(paint: Paint, title: str, *, name: str, description: str = "") -> ET.Element:
    """Return a chart as an `svg` element.

    `title` says to who cannot see it what it shows, `description` the figures, where nothing else on the page
    does. `name` is unlike that of any other chart on the page: ids begin with it. Lines and texts have the
    colour of the text around, the background is the page's.
    """
    with painted(paint) as figure:
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata=_UNDATED)
        width, height = (round(float(side) * INCH) for side in figure.get_size_inches())
    drawn = ET.fromstring(out.getvalue())  # noqa: S314 - matplotlib wrote it a moment ago
    _tidy(drawn, name)
    size = {"width": str(width), "height": str(height), "viewBox": f"0 0 {width} {height}"}
    svg = ET.Element("svg", {"xmlns": NAMESPACE, **size, **_STYLE, **_named(name, description)})
    ET.SubElement(svg, "title", id=f"{name}-title").text = title
    if description:
        ET.SubElement(svg, "desc", id=f"{name}-desc").text = description
    svg.extend(drawn)
    return svg


_STYLE = {"fill": "currentColor", "stroke-linejoin": "round", "stroke-linecap": "butt"}


def document(paint: Paint, title: str, description: str = "") -> str:
    """Return a chart as the text of an SVG file, which is dark where the reader's programs are."""
    svg = element(paint, title, name="chart", description=description)
    svg.set("style", "color-scheme: light dark")
    return ET.tostring(svg, encoding="unicode") + "\n"


def _named(name: str, description: str) -> dict[str, str]:
    described = {"aria-describedby": f"{name}-desc"} if description else {}
    return {"role": "img", "aria-labelledby": f"{name}-title", **described}


def _tag(each: ET.Element) -> str:
    return each.tag.rpartition("}")[2]


def _tidy(drawn: ET.Element, name: str) -> None:
    """Leave tags without a namespace, ids that something refers to, and ink in the colour of the text."""
    for above in list(drawn.iter()):
        for part in [part for part in above if _tag(part) in _NOT_DRAWN]:
            above.remove(part)
    parts = list(drawn.iter())
    wanted = {reference for part in parts for reference in _references(part)}
    for part in parts:
        part.tag, part.tail = _tag(part), None
        if part.tag != "text":
            part.text = None
        attributes = {key.rpartition("}")[2]: value for key, value in part.attrib.items()}
        if attributes.get("id") not in wanted:
            attributes.pop("id", None)
        part.attrib.clear()
        part.attrib.update({key: _renamed(key, value, name) for key, value in attributes.items()})


def _references(part: ET.Element) -> Iterator[str]:
    for value in part.attrib.values():
        for before in ("#", "url(#"):
            if value.startswith(before):
                yield value.removeprefix(before).removesuffix(")")


def _renamed(key: str, value: str, name: str) -> str:
    if key == "id":
        return f"{name}-{value}"
    if value.startswith("url(#"):
        return value.replace("#", f"#{name}-", 1)
    if key == "href":
        return f"#{name}-{value[1:]}"
    return value.replace(INK, "currentColor") if key == "style" else value
