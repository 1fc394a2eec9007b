"""matplotlib, imported when something is drawn: quietly, leaving nothing in the user's folders."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import tempfile
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from judgekit import checkout
from judgekit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

INK = "#000000"  # what takes the colour of the text around the picture, light on dark or dark on light
INCH = 72  # pixels: a length in matplotlib's points is one in pixels then
FONT_SIZE = 12.0  # pixels

Paint: TypeAlias = "Callable[[Figure], None]"
"""What puts a chart on an empty figure and gives the figure its size."""

_VARIABLES = {"MPL_IGNORE_SYSTEM_FONTS": "1"}  # the fonts that matplotlib brings are enough to measure texts
_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",  # a text stays one: it can be searched, copied and read aloud
    "svg.hashsalt": "judgekit",  # the same chart has the same bytes
    "text.parse_math": False,  # a name with dollar signs is a name
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": FONT_SIZE,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}


class Library(NamedTuple):
    """What is used of matplotlib.

    Under `settings` its own are as it ships them, whatever a matplotlibrc says, with ours on top.
    """

    figure: type[Figure]
    canvas: type[FigureCanvasSVG]
    settings: Callable[[], contextlib.AbstractContextManager[None]]


@functools.cache
def load() -> Library:
    """Import matplotlib; raises `UsageError` where it is not installed or cannot be imported.

    On import it makes a folder for settings and one for a list of the fonts it finds, and on its first run
    says that it does. Both lie in a temporary folder here that is gone afterwards; a folder that the user has
    chosen for them (`MPLCONFIGDIR`) is used.
    """
    logging.getLogger("matplotlib").addHandler(logging.NullHandler())
    try:
        with tempfile.TemporaryDirectory(prefix="judgekit-") as folder, _variables(folder):
            import matplotlib as mpl  # noqa: PLC0415 - half a second that only a chart is worth
            from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415 - the same
            from matplotlib.figure import Figure  # noqa: PLC0415 - the same
    except (ImportError, OSError, ValueError) as error:  # a settings file in no encoding is a ValueError
        raise UsageError(f"pictures need matplotlib ({error}); {checkout.install('report')}") from None
    shipped: dict[Any, Any] = {
        name: value for name, value in mpl.rcParamsDefault.items() if name != "backend"
    }
    return Library(Figure, FigureCanvasSVG, lambda: mpl.rc_context(shipped | _SETTINGS))


@contextlib.contextmanager
def painted(paint: Paint) -> Iterator[Figure]:
    """Yield a figure with a chart on it; matplotlib's settings are ours until the end and then as before."""
    library = load()
    with library.settings(), warnings.catch_warnings():
        # Browsers have fonts for the letters that the one for measuring lacks.
        warnings.filterwarnings("ignore", r"(?s)Glyph .* missing from font", UserWarning)
        figure = library.figure(dpi=INCH)
        library.canvas(figure)
        paint(figure)
        yield figure


@contextlib.contextmanager
def _variables(folder: str) -> Iterator[None]:
    """Set the variables that matplotlib reads on import, unless the user did, for as long as it takes."""
    ours = {"MPLCONFIGDIR": folder, **_VARIABLES}
    added = [name for name in ours if name not in os.environ]
    os.environ.update({name: ours[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
