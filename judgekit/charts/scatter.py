"""What something costs against how good it is: a point for each name, with its name beside the picture."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit.charts import layout
from judgekit.charts.layout import BLUE, FAINT, NAMES, WIDTH
from judgekit.charts.library import INK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from judgekit.charts.intervals import Spread
    from judgekit.charts.library import Paint

_ROW, _ABOVE, _BELOW, _LEFT, _EDGE = 20, 28, 50, 44, 12  # pixels
_LEAST = 240  # pixels: how high it is at least
_LEADER = 28  # pixels: from a point's height at the edge to its name
_STEPS, _MOST_LINES = (0.1, 0.2, 0.5), 6
_MARGIN = 1.5  # times: beside the first and the last cost
_FAR, _VERY_FAR = 20, 100  # times: costs that are so far apart are shown by their ratios


class Point(NamedTuple):
    """A name, what it costs, and how good it is."""

    name: str
    cost: float
    good: Spread


def chart(points: Sequence[Point], across: str, up: str) -> Paint | None:
    """Return a chart of some points, None of fewer than two: there is nothing to compare."""
    if len(points) < 2:  # noqa: PLR2004 - what a comparison takes
        return None

    def paint(figure: Figure) -> None:
        height = max(_LEAST, _ROW * len(points))
        layout.resize(figure, WIDTH, _ABOVE + height + _BELOW)
        labels = [layout.fitted(figure, point.name, NAMES) for point in points]
        right = layout.widest(figure, labels) + _LEADER + _EDGE
        layout.write(figure, 2, _ABOVE / 2, up, italic=True)
        axes = layout.axes(figure, _LEFT, _ABOVE, WIDTH - _LEFT - right, height)
        _scales(axes, points, across)
        _points(axes, points)
        _names(axes, points, labels)

    return paint


def _scales(axes: Axes, points: Sequence[Point], across: str) -> None:
    least, most = min(point.cost for point in points), max(point.cost for point in points)
    if least > 0 and most / least >= _FAR:
        axes.set_xscale("log")
        axes.set_xlim(least / _MARGIN, most * _MARGIN)
        axes.set_xticks(round_costs(least / _MARGIN, most * _MARGIN))
    else:
        axes.set_xlim(0, (most or 1) * 1.08)
    low = max(-1.0, math.floor(min(point.good.low for point in points) * 10) / 10)
    axes.set_ylim(low, 1)
    step = next(step for step in _STEPS if (1 - low) / step <= _MOST_LINES)
    axes.set_yticks([1 - step * number for number in range(int((1 - low) / step + step) + 1)])
    axes.yaxis.set_major_formatter("{x:.1f}")
    axes.set_xlabel(across, style="italic")
    axes.xaxis.set_major_formatter(lambda cost, _: f"{cost:.9f}".rstrip("0").rstrip("."))
    axes.minorticks_off()
    axes.grid(color=INK, alpha=FAINT, linewidth=1)


def round_costs(low: float, high: float) -> list[float]:
    """Return the powers of ten from `low` to `high`, with twice and five times each where there is room."""
    factors = (1, 2, 5) if high / low <= _VERY_FAR * _MARGIN**2 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [cost for power in powers for factor in factors if low <= (cost := factor * 10**power) <= high]


def _points(axes: Axes, points: Sequence[Point]) -> None:
    costs = [point.cost for point in points]
    lows, highs = [point.good.low for point in points], [point.good.high for point in points]
    axes.vlines(costs, lows, highs, BLUE, linewidth=3, alpha=0.5, clip_on=False)
    axes.plot(costs, [point.good.value for point in points], "o", color=BLUE, markersize=9, clip_on=False)


def _names(axes: Axes, points: Sequence[Point], labels: Sequence[str]) -> None:
    """Write the names at the right, as high as their points where there is room, with a line from each."""
    box = axes.get_window_extent()
    order = sorted(range(len(points)), key=lambda place: points[place].good.value)
    heights = [axes.transLimits.transform((0, points[place].good.value))[1] for place in order]
    _, end = axes.get_xlim()
    thin: dict[str, Any] = {"color": INK, "alpha": 0.3, "linewidth": 1, "clip_on": False}
    for place, height, beside in zip(order, heights, apart(heights, _ROW / box.height), strict=True):
        _, cost, good = points[place]
        axes.plot([cost, end], [good.value, good.value], zorder=1, **thin)
        edge = [1.0, 1 + _LEADER / box.width]
        axes.plot(edge, [height, beside], transform=axes.transAxes, **thin)
        axes.text(
            1 + (_LEADER + 4) / box.width,
            beside,
            labels[place],
            transform=axes.transAxes,
            va="center",
            color=INK,
        )


def apart(places: Sequence[float], least: float) -> list[float]:
    """Return ascending places between 0 and 1, moved where they are less than `least` from each other."""
    found: list[float] = []
    for place in places:
        found.append(max(place, found[-1] + least) if found else place)
    above = 1 + least
    for at in reversed(range(len(found))):
        found[at] = above = min(found[at], above - least)
    return found
