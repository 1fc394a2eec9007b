"""The six KPIs over time as a picture: SVG, alone or in a page of HTML."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree as ET

from judgekit.ledger import kpi
from judgekit.ledger.standing import number, said

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.ledger.kpi import Evidence, Kpi
    from judgekit.ledger.records import VerdictLine

ROLLING = timedelta(days=7)
_WIDTH, _HEIGHT, _LEFT, _TOP = 420, 130, 60, 34  # of one panel's curve, and the space before it
_PANEL = (_WIDTH + _LEFT + 30, _HEIGHT + _TOP + 34)
_STYLE = (
    "text{font:12px sans-serif;fill:#333}.t{font-weight:bold}.band{fill:#4477aa;opacity:.2}"
    ".line{fill:none;stroke:#4477aa;stroke-width:2}.dot{fill:#4477aa}"
    ".limit{stroke:#cc3311;stroke-dasharray:4 3}"
    ".frame{fill:none;stroke:#bbb}"
)


class Point(NamedTuple):
    """The measures over the `ROLLING` days up to the end of `day`."""

    day: datetime
    kpis: list[Kpi]


def svg(found: Evidence) -> str:
    """Return an SVG with a panel a KPI: its value over seven days, its interval, its limits."""
    points = _points(found)
    columns, rows = 2, 3
    size = {"width": str(columns * _PANEL[0]), "height": str(rows * _PANEL[1])}
    root = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **size})
    ET.SubElement(root, "title").text = "KPIs of the gate, each over the seven days before"
    ET.SubElement(root, "style").text = _STYLE
    for index, name in enumerate(kpi.LIMITS):
        x, y = index % columns * _PANEL[0], index // columns * _PANEL[1]
        panel = ET.SubElement(root, "g", transform=f"translate({x + _LEFT},{y + _TOP})")
        _draw(panel, [(each.day, each.kpis[index]) for each in points], kpi.LIMITS[name])
    return ET.tostring(root, encoding="unicode")


def html(found: Evidence) -> str:
    """Return a page with the picture in it."""
    head = '<!doctype html><meta charset="utf-8"><title>judgekit kpi</title>'
    return f"{head}\n{svg(found)}\n"


def _points(found: Evidence) -> list[Point]:
    days = sorted({each.timestamp.astimezone(UTC).date() for each in found.verdicts})
    if not days:
        return []
    ends = [
        datetime.combine(days[0] + timedelta(days=number + 1), time(), UTC)
        for number in range((days[-1] - days[0]).days + 1)
    ]
    return [Point(end, kpi.measure(found.only(_within(found, end)))) for end in ends]


def _within(found: Evidence, end: datetime) -> Sequence[VerdictLine]:
    return [each for each in found.verdicts if end - ROLLING <= each.timestamp < end]


def _draw(panel: ET.Element, points: list[tuple[datetime, Kpi]], limit: kpi.Limit) -> None:
    shown = [(index, each) for index, (_, each) in enumerate(points) if each.value is not None]
    top = (
        1.0
        if limit.unit == "share"
        else max([2 * (limit.high or 1), *(each.value or 0 for _, each in shown)])
    )
    step = _WIDTH / max(1, len(points) - 1)
    ET.SubElement(panel, "rect", {"class": "frame", "width": str(_WIDTH), "height": str(_HEIGHT)})
    _text(panel, 0, -10, limit.title, kind="t")
    for edge in (limit.low, limit.high):
        if edge is not None:
            height = _height(edge, top)
            ends = {"x1": "0", "x2": str(_WIDTH), "y1": height, "y2": height}
            ET.SubElement(panel, "line", {"class": "limit", **ends})
            _text(
                panel,
                -_LEFT + 6,
                float(height) + 4,
                f"{edge:.0f} s" if limit.unit == "seconds" else f"{edge:.0%}",
            )
    for index, each in ((0, points[:1]), (len(points) - 1, points[1:][-1:])):
        for day, _ in each:
            label = (day - timedelta(days=1)).date().isoformat()
            _text(panel, index * step - (60 if index else 0), _HEIGHT + 16, label)
    if not shown:
        _text(panel, 10, _HEIGHT / 2, "nothing measured")
        return
    _curve(panel, shown, step, top)


def _curve(panel: ET.Element, shown: list[tuple[int, Kpi]], step: float, top: float) -> None:
    spans = [(index * step, each.interval) for index, each in shown if each.interval]
    upper = [f"{x:.1f},{_height(span.high, top)}" for x, span in spans]
    lower = [f"{x:.1f},{_height(span.low, top)}" for x, span in reversed(spans)]
    ET.SubElement(panel, "polygon", {"class": "band", "points": " ".join(upper + lower)})
    line = [f"{index * step:.1f},{_height(each.value or 0, top)}" for index, each in shown]
    ET.SubElement(panel, "polyline", {"class": "line", "points": " ".join(line)})
    for (_, each), at in zip(shown, line, strict=True):
        x, y = at.split(",")
        dot = ET.SubElement(panel, "circle", {"class": "dot", "cx": x, "cy": y, "r": "3"})
        ET.SubElement(dot, "title").text = said(each)
    last = shown[-1][1]
    _text(panel, _WIDTH - 90, -10, f"last {number(last, last.value or 0)}")


def _height(value: float, top: float) -> str:
    return f"{_HEIGHT * (1 - min(value, top) / top):.1f}"


def _text(panel: ET.Element, x: float, y: float, text: str, kind: str = "") -> None:
    ET.SubElement(panel, "text", {"x": f"{x:.1f}", "y": f"{y:.1f}", "class": kind}).text = text
