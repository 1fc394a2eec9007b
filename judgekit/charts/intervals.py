"""Figures with their intervals: a row for each name, a panel for each figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from judgekit.charts import layout
from judgekit.charts.layout import BLUE, FAINT, NAMES, WIDTH
from judgekit.charts.library import INK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from judgekit.charts.library import Paint

_ROW, _ABOVE, _BELOW = 24, 30, 28  # pixels
_BESIDE, _GAP, _EDGE = 40, 24, 16  # for the figure beside a panel, between panels, at the edges of an axis
_TOPS = (0.1, 0.2, 0.5)  # where an axis may end below 1


class Spread(Protocol):
    """A figure and the interval around it."""

    @property
    def value(self) -> float:
        """The figure."""

    @property
    def low(self) -> float:
        """The lower end."""

    @property
    def high(self) -> float:
        """The upper end."""


class Panel(NamedTuple):
    """One figure of each name; None where it is not known.

    The axis goes up to 1, unless all that is shown lies far below and `near` asks for a closer look.
    """

    title: str
    spreads: Sequence[Spread | None]
    near: bool = False


def chart(names: Sequence[str], panels: Sequence[Panel]) -> Paint | None:
    """Return a chart of all panels with any figure, None where none has."""
    known = [panel for panel in panels if any(panel.spreads)]
    if not known:
        return None

    def paint(figure: Figure) -> None:
        height = _ROW * len(names)
        layout.resize(figure, WIDTH, _ABOVE + height + _BELOW)
        labels = [layout.fitted(figure, each, NAMES) for each in names]
        left = layout.widest(figure, labels) + _EDGE
        each_width = (WIDTH - left) / len(known)
        for place, panel in enumerate(known):
            width = each_width - _BESIDE - _GAP
            axes = layout.axes(figure, left + place * each_width, _ABOVE, width, height)
            _draw(axes, panel)
            axes.set_yticks(range(len(names)), labels if place == 0 else [""] * len(names))

    return paint


def bounds(panel: Panel) -> tuple[float, float]:
    """Return where the axis of a panel begins and ends: it holds all intervals, and 0."""
    known = [each for each in panel.spreads if each is not None]
    highest = max(each.high for each in known)
    lowest = min(each.low for each in known)
    low = next((-top for top in (0.0, *_TOPS) if -top <= lowest), -1.0)
    high = next((top for top in _TOPS if highest <= top), 1.0) if panel.near else 1.0
    return low, high


def _draw(axes: Axes, panel: Panel) -> None:
    rows = [(place, each) for place, each in enumerate(panel.spreads) if each is not None]
    low, high = bounds(panel)
    axes.set_xlim(low, high)
    axes.set_ylim(len(panel.spreads) - 0.5, -0.5)
    axes.set_xticks([low, 0, high] if low else [0, high / 2, high])
    axes.xaxis.set_major_formatter("{x:g}")
    axes.grid(axis="both", color=INK, alpha=FAINT, linewidth=1)
    axes.set_title(panel.title, loc="left", fontsize=12, fontweight="bold", color=INK)
    places = [place for place, _ in rows]
    axes.hlines(
        places, [one.low for _, one in rows], [one.high for _, one in rows], BLUE, linewidth=3, clip_on=False
    )
    axes.plot([one.value for _, one in rows], places, "o", color=BLUE, markersize=9, clip_on=False)
    for place, one in rows:
        axes.annotate(
            f"{one.value:.2f}",
            (1, place),
            (_BESIDE, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="right",
            va="center",
            color=INK,
        )
