"""What a page with charts, or a chart in it, consists of."""

from __future__ import annotations

import contextlib
import re
import sys
from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree as ET

import pytest

from judgekit.evaluation.charts import INCH, load, painted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.text import Text

    from judgekit.evaluation.charts import Paint

SVG = "{http://www.w3.org/2000/svg}"
# Names that people, models and attackers give: each breaks something that a naive picture does.
NAMES = {
    "markup": "<script>alert(1)</script>",
    "entities": "a & b \"c\" 'd' &lt;",
    "mathematics": r"$x_1$ \$ $\frac{",
    "long": "provider/a-model-with-a-very-long-name-that-ends-in-a-date-2026-11-22" * 3,
    "wide": "W" * 120,
    "chinese": "\u5f88\u957f\u7684\u6a21\u578b\u540d\u79f0" * 8,
    "arabic": "\u0646\u0645\u0648\u0630\u062c \u0639\u0631\u0628\u064a",
    "emoji": "\U0001f600 model \U0001f9d1\u200d\U0001f52c",
    "controls": "\x00\x1b[31m two\nlines\r\tand \u202e more",
    "surrogate": "lone \ud800 half",
    "unseen": "\u200b",
    "empty": "",
}


@contextlib.contextmanager
def without_matplotlib() -> Iterator[None]:
    """Pretend that the extra is not installed."""
    load.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib", None)
        yield
    load.cache_clear()


class Box(NamedTuple):
    """Where a text is on a figure, in pixels from its lower left corner."""

    text: str
    left: float
    bottom: float
    right: float
    top: float

    def overlaps(self, other: Box) -> bool:
        """Whether the two have any place in common, a hair's breadth aside."""
        across = min(self.right, other.right) - max(self.left, other.left)
        up = min(self.top, other.top) - max(self.bottom, other.bottom)
        return across > 1 and up > 1


class Painted(NamedTuple):
    """A figure's size in pixels, and its texts."""

    width: float
    height: float
    boxes: list[Box]


def measured(paint: Paint) -> Painted:
    """Draw a chart and return what is on it."""
    with painted(paint) as figure:
        from matplotlib.text import Text  # noqa: PLC0415 - on import it looks for folders, which `painted` gives

        figure.draw_without_rendering()
        width, height = (float(side) * INCH for side in figure.get_size_inches())
        shown = [text for text in figure.findobj(Text) if text.get_visible()]
        return Painted(width, height, [_box(text) for text in shown if text.get_text()])


def _box(text: Text) -> Box:
    extent = text.get_window_extent()
    return Box(text.get_text(), extent.x0, extent.y0, extent.x1, extent.y1)


def faults(paint: Paint) -> list[str]:
    """Return which texts of a chart run over its edge or into each other."""
    found = measured(paint)
    over = [
        f"{box} is over the edge of {found.width} x {found.height}"
        for box in found.boxes
        if box.left < 0 or box.bottom < -1 or box.right > found.width or box.top > found.height + 1
    ]
    pairs = [
        f"{box.text!r} is on {other.text!r}"
        for number, box in enumerate(found.boxes)
        for other in found.boxes[number + 1 :]
        if box.overlaps(other)
    ]
    return over + pairs


def charts(page: str) -> list[ET.Element]:
    """Return the charts of a page, each read by itself as XML."""
    return [ET.fromstring(each) for each in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def texts(svg: ET.Element) -> list[str]:
    """Return the texts of a chart in their order."""
    return [element.text or "" for element in svg.iter(f"{SVG}text")]


def references(svg: ET.Element) -> Iterator[str]:
    """Yield the ids that a chart refers to."""
    for part in svg.iter():
        for name, value in part.attrib.items():
            if name.startswith("aria-"):
                yield value
            yield from re.findall(r"url\(#([^)]+)\)", value)
            if name.endswith("href"):
                yield value.removeprefix("#")
