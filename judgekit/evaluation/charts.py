"""Charts: loads matplotlib quietly when something is drawn, places texts, writes SVG and HTML pages."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
import tempfile
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from xml.etree import ElementTree as ET

from judgekit.config import checkout
from judgekit.errors import UsageError
from judgekit.text import escaped, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from matplotlib.axes import Axes
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


NAMESPACE = "http://www.w3.org/2000/svg"
_NOT_DRAWN = ("metadata", "style")
_UNDATED = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def element(paint: Paint, title: str, *, name: str, description: str = "") -> ET.Element:
    """Return a chart as an `svg` element.

    `title` says to who cannot see it what it shows, `description` the figures, where nothing else on the page
    does. `name` is unlike that of any other chart on the page: ids begin with it. Lines and texts have the
    colour of the text around, the background is the page's.
    """
    with painted(paint) as figure:
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata=_UNDATED)
        width, height = (round(float(side) * INCH) for side in figure.get_size_inches())
    drawn = ET.fromstring(out.getvalue())  # noqa: S314 - matplotlib wrote it a moment ago
    _tidy(drawn, name)
    size = {"width": str(width), "height": str(height), "viewBox": f"0 0 {width} {height}"}
    svg = ET.Element("svg", {"xmlns": NAMESPACE, **size, **_STYLE, **_named(name, description)})
    ET.SubElement(svg, "title", id=f"{name}-title").text = title
    if description:
        ET.SubElement(svg, "desc", id=f"{name}-desc").text = description
    svg.extend(drawn)
    return svg


_STYLE = {"fill": "currentColor", "stroke-linejoin": "round", "stroke-linecap": "butt"}


def document(paint: Paint, title: str, description: str = "") -> str:
    """Return a chart as the text of an SVG file, which is dark where the reader's programs are."""
    svg = element(paint, title, name="chart", description=description)
    svg.set("style", "color-scheme: light dark")
    return ET.tostring(svg, encoding="unicode") + "\n"


def _named(name: str, description: str) -> dict[str, str]:
    described = {"aria-describedby": f"{name}-desc"} if description else {}
    return {"role": "img", "aria-labelledby": f"{name}-title", **described}


def _tag(each: ET.Element) -> str:
    return each.tag.rpartition("}")[2]


def _tidy(drawn: ET.Element, name: str) -> None:
    """Leave tags without a namespace, ids that something refers to, and ink in the colour of the text."""
    for above in list(drawn.iter()):
        for part in [part for part in above if _tag(part) in _NOT_DRAWN]:
            above.remove(part)
    parts = list(drawn.iter())
    wanted = {reference for part in parts for reference in _references(part)}
    for part in parts:
        part.tag, part.tail = _tag(part), None
        if part.tag != "text":
            part.text = None
        attributes = {key.rpartition("}")[2]: value for key, value in part.attrib.items()}
        if attributes.get("id") not in wanted:
            attributes.pop("id", None)
        part.attrib.clear()
        part.attrib.update({key: _renamed(key, value, name) for key, value in attributes.items()})


def _references(part: ET.Element) -> Iterator[str]:
    for value in part.attrib.values():
        for before in ("#", "url(#"):
            if value.startswith(before):
                yield value.removeprefix(before).removesuffix(")")


def _renamed(key: str, value: str, name: str) -> str:
    if key == "id":
        return f"{name}-{value}"
    if value.startswith("url(#"):
        return value.replace("#", f"#{name}-", 1)
    if key == "href":
        return f"#{name}-{value[1:]}"
    return value.replace(INK, "currentColor") if key == "style" else value


_NOTHING_LOADED = "default-src 'none'; style-src 'unsafe-inline'"
_PAGE_STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:15px/1.5 sans-serif;margin:2em auto;max-width:66em;padding:0 1em}"
    "h2{margin-top:2em}table{border-collapse:collapse}th,td{border-bottom:1px solid #8886;padding:.3em .5em;"
    "text-align:right;vertical-align:top}th{border-bottom-width:2px}"
    "th:first-child,td:first-child{text-align:left;min-width:7em;overflow-wrap:anywhere}"
    "small{display:block;font-size:11px;opacity:.7;white-space:nowrap}"
    "figure,.wide{margin:1.5em 0;overflow-x:auto}"
    "figcaption{margin-bottom:.5em}svg{display:block}"
)


class Page:
    """A page that grows from its top to its bottom; all texts are put in as texts, whatever is in them."""

    def __init__(self, title: str) -> None:
        self._html = ET.Element("html", {"lang": "en"})
        head = ET.SubElement(self._html, "head")
        ET.SubElement(head, "meta", {"charset": "utf-8"})
        ET.SubElement(head, "meta", {"http-equiv": "Content-Security-Policy", "content": _NOTHING_LOADED})
        ET.SubElement(head, "meta", {"name": "viewport", "content": "width=device-width"})
        ET.SubElement(head, "title").text = title
        ET.SubElement(head, "style").text = _PAGE_STYLE
        self._body = ET.SubElement(self._html, "body")
        ET.SubElement(self._body, "h1").text = title
        self._charts = 0

    def heading(self, text: str) -> None:
        """Begin a section."""
        ET.SubElement(self._body, "h2").text = text

    def paragraph(self, text: str) -> None:
        """Add a paragraph."""
        ET.SubElement(self._body, "p").text = text

    def table(self, heading: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a table; what follows a line break in a cell stands smaller below."""
        table = ET.SubElement(ET.SubElement(self._body, "div", {"class": "wide"}), "table")
        for kind, cells in (("th", heading), *(("td", row) for row in rows)):
            row = ET.SubElement(table, "tr")
            for text in cells:
                cell = ET.SubElement(row, kind)
                cell.text, _, below = text.partition("\n")
                if below:
                    ET.SubElement(cell, "small").text = below

    def chart(self, title: str, paint: Paint, description: str = "") -> None:
        """Add a chart under its title."""
        self._charts += 1
        figure = ET.SubElement(self._body, "figure")
        ET.SubElement(figure, "figcaption").text = title
        figure.append(element(paint, title, name=f"chart{self._charts}", description=description))

    def text(self) -> str:
        """Return the page."""
        return "<!doctype html>\n" + ET.tostring(self._html, encoding="unicode", method="html") + "\n"
