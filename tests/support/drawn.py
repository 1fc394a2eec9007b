"""What a page with charts, or a chart in it, consists of."""

from __future__ import annotations

import contextlib
import re
import sys
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from judgekit.evaluation.charts import load

if TYPE_CHECKING:
    from collections.abc import Iterator

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
