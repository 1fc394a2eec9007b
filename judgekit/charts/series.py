"""Figures over time, a panel each: the line, the interval around it, and the limits it should keep."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from judgekit.charts import layout
from judgekit.charts.layout import BLUE, FAINT, RED, WIDTH
from judgekit.charts.library import INK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from judgekit.charts.library import Paint

_COLUMNS, _LEFT, _RIGHT, _ABOVE, _HIGH, _BELOW = 2, 56, 24, 36, 110, 40  # pixels, the columns aside
_NAN = math.nan  # no point here, and no line to it


class Moment(NamedTuple):
    """A figure at one time; None where there was nothing to measure, or too little for an interval."""

    value: float | None
    low: float | None = None
    high: float | None = None


class Series(NamedTuple):
    """One figure over time: what it is called, what it is last, its limits, and how a value is written."""

    title: str
    last: str
    moments: Sequence[Moment]
    limits: Sequence[float]
    top: float
    written: Callable[[float], str]


def chart(times: Sequence[str], many: Sequence[Series]) -> Paint:
    """Return a chart of some series, which all have a moment for each of the times."""

    def paint(figure: Figure) -> None:
        row = _ABOVE + _HIGH + _BELOW
        layout.resize(figure, WIDTH, row * math.ceil(len(many) / _COLUMNS))
        column = WIDTH / _COLUMNS
        width = column - _LEFT - _RIGHT
        for place, series in enumerate(many):
            left, top = place % _COLUMNS * column + _LEFT, place // _COLUMNS * row + _ABOVE
            axes = layout.axes(figure, left, top, width, _HIGH)
            _draw(axes, times, series)

    return paint


def _draw(axes: Axes, times: Sequence[str], series: Series) -> None:
    last = max(1, len(times) - 1)
    axes.set_xlim(0, last)
    axes.set_ylim(0, series.top)
    axes.set_title(series.title, loc="left", fontsize=12, fontweight="bold", color=INK, pad=10)
    axes.set_title(series.last, loc="right", fontsize=12, color=INK, pad=10)
    axes.spines[["bottom", "top"]].set(visible=True, color=INK, alpha=FAINT)
    axes.set_yticks(series.limits, [series.written(each) for each in series.limits])
    axes.hlines(series.limits, 0, last, RED, linestyles="dashed", linewidth=1)
    axes.set_xticks([0, last][: len(times)], [*times[:1], *times[1:][-1:]])
    for label in axes.get_xticklabels()[:1]:
        label.set_horizontalalignment("left")
    for label in axes.get_xticklabels()[1:]:
        label.set_horizontalalignment("right")
    values = [_NAN if each.value is None else each.value for each in series.moments]
    if all(map(math.isnan, values)):
        axes.text(last / 2, series.top / 2, "nothing measured", ha="center", va="center", color=INK)
        return
    lows = [_NAN if each.low is None else each.low for each in series.moments]
    highs = [_NAN if each.high is None else min(each.high, series.top) for each in series.moments]
    axes.fill_between(range(len(values)), lows, highs, color=BLUE, alpha=0.25, linewidth=0, clip_on=False)
    axes.plot(values, "o-", color=BLUE, markersize=5, linewidth=2, clip_on=False)
