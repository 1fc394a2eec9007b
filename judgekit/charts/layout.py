"""Places on a figure in pixels from its upper left corner, and texts that fit into them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit.charts.library import FONT_SIZE, INCH, INK
from judgekit.text import escaped, visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 860  # pixels: of a chart that fills the page
NAMES = 250  # pixels: the most that a column of names takes
BLUE, RED = "#4477aa", "#cc3311"  # both three times as light or dark as white and as black paper
FAINT = 0.16  # opacity of lines that only guide the eye
_LONGEST = 400  # characters that are looked at


def resize(figure: Figure, width: float, height: float) -> None:
    """Give a figure its size."""
    figure.set_size_inches(width / INCH, height / INCH)


def axes(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Add axes without a frame at a place on a figure that has its size."""
    all_width, all_height = (float(side) * INCH for side in figure.get_size_inches())
    bottom = all_height - top - height
    place = (left / all_width, bottom / all_height, width / all_width, height / all_height)
    added = figure.add_axes(place)
    added.spines[:].set_visible(False)
    added.tick_params(length=0, pad=8, colors=INK)
    added.set_axisbelow(True)
    return added


def width_of(figure: Figure, text: str, size: float = FONT_SIZE) -> float:
    """Return how wide a line of text is, in pixels; in letters that the font lacks, at least as wide."""
    drawn = figure.text(0, 0, text, fontsize=size)
    width = float(drawn.get_window_extent().width)
    drawn.remove()
    return width


def widest(figure: Figure, texts: Iterable[str]) -> float:
    """Return how wide the widest of some texts is, in pixels; 0 without any."""
    return max((width_of(figure, text) for text in texts), default=0.0)


def name(text: str) -> str:
    """Return a name as one line of what can be seen; escaped where that is nothing, - for an empty one."""
    return " ".join(visible(text[:_LONGEST]).split()) or escaped(text[:_LONGEST]).strip() or "-"


def fitted(figure: Figure, text: str, width: float) -> str:
    """Return a name that is at most so wide: names of models differ at the end, so the middle is left out."""
    text = name(text)
    if width_of(figure, text) <= width:
        return text
    fits, too_long = 0, len(text)
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if width_of(figure, _without_middle(text, middle)) <= width:
            fits = middle
        else:
            too_long = middle
    return _without_middle(text, fits)


def _without_middle(text: str, kept: int) -> str:
    head = (kept + 1) // 2
    tail = kept - head
    return f"{text[:head].rstrip()}…{text[len(text) - tail :].lstrip()}"


def write(figure: Figure, left: float, baseline: float, text: str, *, italic: bool = False) -> None:
    """Write a line of text, its baseline so far below the upper edge of a figure that has its size."""
    width, height = (float(side) * INCH for side in figure.get_size_inches())
    style = "italic" if italic else "normal"
    figure.text(left / width, 1 - baseline / height, text, color=INK, fontstyle=style)
