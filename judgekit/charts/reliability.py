"""Reliability diagrams: what was said to be likely, against how often it was so."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from judgekit.charts import layout
from judgekit.charts.layout import BLUE, FAINT, WIDTH
from judgekit.charts.library import INK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from judgekit.charts.library import Paint

_COLUMNS, _SIDE, _LEFT, _ABOVE, _BELOW = 4, 150, 40, 36, 36  # pixels, the columns aside
_SMALLEST, _LARGEST = 25, 200  # square pixels: of a dot for next to nothing, and for the most


class Group(NamedTuple):
    """Answers of about the same probability: their mean, the share that came true, and how many they are."""

    probability: float
    share: float
    number: int


class Curve(NamedTuple):
    """The groups of one name, the least likely first."""

    name: str
    groups: Sequence[Group]


def chart(curves: Sequence[Curve]) -> Paint | None:
    """Return a chart with a diagram for each curve that has any group, None where none has."""
    known = [curve for curve in curves if curve.groups]
    if not known:
        return None

    def paint(figure: Figure) -> None:
        row, column = _ABOVE + _SIDE + _BELOW, WIDTH / _COLUMNS
        layout.resize(figure, WIDTH, row * math.ceil(len(known) / _COLUMNS))
        for place, curve in enumerate(known):
            left, top = place % _COLUMNS * column + _LEFT, place // _COLUMNS * row + _ABOVE
            axes = layout.axes(figure, left, top, _SIDE, _SIDE)
            name = layout.fitted(figure, curve.name, _SIDE)
            axes.set_title(name, loc="left", fontsize=12, color=INK, pad=10)
            _draw(axes, curve.groups)

    return paint


def _draw(axes: Axes, groups: Sequence[Group]) -> None:
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks([0, 0.5, 1])
        axis.set_major_formatter("{x:g}")
    axes.grid(color=INK, alpha=FAINT, linewidth=1)
    axes.plot([0, 1], [0, 1], color=INK, alpha=0.4, linewidth=1, linestyle="dashed")
    across, up = [group.probability for group in groups], [group.share for group in groups]
    most = max(group.number for group in groups)
    sizes = [max(_SMALLEST, _LARGEST * group.number / most) for group in groups]
    axes.plot(across, up, color=BLUE, linewidth=1.5, clip_on=False)
    axes.scatter(across, up, s=sizes, color=BLUE, alpha=0.75, linewidth=0, clip_on=False)
