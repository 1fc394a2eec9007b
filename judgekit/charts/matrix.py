"""A confusion matrix as a heat map: the darker a cell, the larger its share of its row."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

from judgekit.charts import layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from judgekit.charts.library import Paint

_HIGH, _NARROW, _WIDE = 40, 56, 130  # pixels: of a cell
_ABOVE, _EDGE, _GAP = 44, 14, 2
_TITLES, _WORDS = 12, 34  # how far below the upper edge the lines of the heading stand

Colour: TypeAlias = tuple[float, float, float]
"""Red, green and blue, 0 to 1 each."""

_NONE, _ALL = (0.92, 0.945, 0.97), (0.12, 0.3, 0.49)  # of a cell for none and for all of its row
# On cells, which are the same on light and on dark paper.
_BLACK, _WHITE = (0.004, 0.004, 0.004), (1.0, 1.0, 1.0)


def chart(words: Sequence[str], counts: Mapping[tuple[str, str], int], down: str, across: str) -> Paint:
    """Return a chart of how often what is `down` came with what is `across`, by pairs of words."""

    def paint(figure: Figure) -> None:
        labels = [layout.fitted(figure, each, _WIDE - _EDGE) for each in words]
        longest = layout.widest(figure, labels)
        cell = max(_NARROW, longest + _EDGE)
        left = max(longest, layout.width_of(figure, down)) + _EDGE
        width, height = cell * len(words), _HIGH * len(words)
        layout.resize(figure, left + max(width, layout.width_of(figure, across) + 2), _ABOVE + height)
        layout.write(figure, 2, _WORDS, down, italic=True)
        layout.write(figure, left, _TITLES, across, italic=True)
        axes = layout.axes(figure, left, _ABOVE, width, height)
        axes.set_xlim(-0.5, len(words) - 0.5)
        axes.set_ylim(len(words) - 0.5, -0.5)
        axes.xaxis.tick_top()
        axes.set_xticks(range(len(words)), labels)
        axes.set_yticks(range(len(words)), labels)
        for row, label in enumerate(words):
            _row(axes, row, [counts.get((label, said), 0) for said in words], 1 - _GAP / cell)

    return paint


def _row(axes: Axes, row: int, counts: Sequence[int], width: float) -> None:
    total = max(1, sum(counts))
    colours = [shade(count / total) for count in counts]
    axes.bar(range(len(counts)), _GAP / _HIGH - 1, width, row + 0.5, color=colours, clip_on=False)
    for column, (count, colour) in enumerate(zip(counts, colours, strict=True)):
        axes.text(column, row, str(count), ha="center", va="center", color=readable_on(colour))


def shade(share: float) -> Colour:
    """Return the colour of a cell with a share of its row."""
    red, green, blue = (none + (every - none) * share for none, every in zip(_NONE, _ALL, strict=True))
    return red, green, blue


def readable_on(paper: Colour) -> Colour:
    """Return black or white, whichever is easier to read on a colour."""
    return max(_BLACK, _WHITE, key=lambda ink: contrast(ink, paper))


def contrast(one: Colour, other: Colour) -> float:
    """Return the contrast of two colours, 1 to 21; 4.5 is enough for text (WCAG 2.2, 1.4.3)."""
    dark, light = sorted(map(_luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: Colour) -> float:
    """Return the relative luminance, 0 to 1, by the formula of WCAG 2.2 for all but the darkest colours."""
    red, green, blue = (math.pow((part + 0.055) / 1.055, 2.4) for part in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
