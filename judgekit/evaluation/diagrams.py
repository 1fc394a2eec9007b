"""Diagrams: intervals, confusion matrices, reliability, cost against quality, figures over time."""

from __future__ import annotations

import math
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from judgekit.evaluation import charts
from judgekit.evaluation.charts import BLUE, FAINT, INK, NAMES, RED, WIDTH, Page
from judgekit.ledger import kpi
from judgekit.ledger.kpi import kpi_text, number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from judgekit.evaluation.charts import Paint
    from judgekit.ledger.kpi import Evidence, Kpi
    from judgekit.ledger.records import VerdictLine


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


class FigurePanel(NamedTuple):
    """One figure of each name; None where it is not known.

    The axis goes up to 1, unless all that is shown lies far below and `near` asks for a closer look.
    """

    title: str
    spreads: Sequence[Spread | None]
    near: bool = False


def intervals_chart(names: Sequence[str], panels: Sequence[FigurePanel]) -> Paint | None:
    """Return a chart of all panels with any figure, None where none has."""
    known = [panel for panel in panels if any(panel.spreads)]
    if not known:
        return None

    def paint(figure: Figure) -> None:
        height = _ROW * len(names)
        charts.resize(figure, WIDTH, _ABOVE + height + _BELOW)
        labels = [charts.fitted(figure, name, NAMES) for name in names]
        left = charts.widest(figure, labels) + _EDGE
        each_width = (WIDTH - left) / len(known)
        for place, panel in enumerate(known):
            width = each_width - _BESIDE - _GAP
            axes = charts.axes(figure, left + place * each_width, _ABOVE, width, height)
            _draw(axes, panel)
            axes.set_yticks(range(len(names)), labels if place == 0 else [""] * len(names))

    return paint


def bounds(panel: FigurePanel) -> tuple[float, float]:
    """Return where the axis of a panel begins and ends: it holds all intervals, and 0."""
    known = [spread for spread in panel.spreads if spread is not None]
    highest = max(spread.high for spread in known)
    lowest = min(spread.low for spread in known)
    low = next((-top for top in (0.0, *_TOPS) if -top <= lowest), -1.0)
    high = next((top for top in _TOPS if highest <= top), 1.0) if panel.near else 1.0
    return low, high


def _draw(axes: Axes, panel: FigurePanel) -> None:
    rows = [(place, spread) for place, spread in enumerate(panel.spreads) if spread is not None]
    low, high = bounds(panel)
    axes.set_xlim(low, high)
    axes.set_ylim(len(panel.spreads) - 0.5, -0.5)
    axes.set_xticks([low, 0, high] if low else [0, high / 2, high])
    axes.xaxis.set_major_formatter("{x:g}")
    axes.grid(axis="both", color=INK, alpha=FAINT, linewidth=1)
    axes.set_title(panel.title, loc="left", fontsize=12, fontweight="bold", color=INK)
    places = [place for place, _ in rows]
    axes.hlines(
        places,
        [spread.low for _, spread in rows],
        [one.high for _, one in rows],
        BLUE,
        linewidth=3,
        clip_on=False,
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


_HIGH, _NARROW, _WIDE = 40, 56, 130  # pixels: of a cell
_MATRIX_ABOVE, _MATRIX_EDGE, _MATRIX_GAP = 44, 14, 2
_TITLES, _WORDS = 12, 34  # how far below the upper edge the lines of the heading stand

Colour: TypeAlias = tuple[float, float, float]
"""Red, green and blue, 0 to 1 each."""

_NONE, _ALL = (0.92, 0.945, 0.97), (0.12, 0.3, 0.49)  # of a cell for none and for all of its row
# On cells, which are the same on light and on dark paper.
_BLACK, _WHITE = (0.004, 0.004, 0.004), (1.0, 1.0, 1.0)


def confusion_chart(
    words: Sequence[str], counts: Mapping[tuple[str, str], int], down: str, across: str
) -> Paint:
    """Return a chart of how often what is `down` came with what is `across`, by pairs of words."""

    def paint(figure: Figure) -> None:
        labels = [charts.fitted(figure, word, _WIDE - _MATRIX_EDGE) for word in words]
        longest = charts.widest(figure, labels)
        cell = max(_NARROW, longest + _MATRIX_EDGE)
        left = max(longest, charts.width_of(figure, down)) + _MATRIX_EDGE
        width, height = cell * len(words), _HIGH * len(words)
        charts.resize(figure, left + max(width, charts.width_of(figure, across) + 2), _MATRIX_ABOVE + height)
        charts.write(figure, 2, _WORDS, down, italic=True)
        charts.write(figure, left, _TITLES, across, italic=True)
        axes = charts.axes(figure, left, _MATRIX_ABOVE, width, height)
        axes.set_xlim(-0.5, len(words) - 0.5)
        axes.set_ylim(len(words) - 0.5, -0.5)
        axes.xaxis.tick_top()
        axes.set_xticks(range(len(words)), labels)
        axes.set_yticks(range(len(words)), labels)
        for row, label in enumerate(words):
            _row(axes, row, [counts.get((label, said), 0) for said in words], 1 - _MATRIX_GAP / cell)

    return paint


def _row(axes: Axes, row: int, counts: Sequence[int], width: float) -> None:
    total = max(1, sum(counts))
    colours = [shade(count / total) for count in counts]
    axes.bar(range(len(counts)), _MATRIX_GAP / _HIGH - 1, width, row + 0.5, color=colours, clip_on=False)
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


_COLUMNS, _SIDE, _LEFT, _RELIABILITY_ABOVE, _RELIABILITY_BELOW = (
    4,
    150,
    40,
    36,
    36,
)  # pixels, the columns aside
_SMALLEST, _LARGEST = 25, 200  # square pixels: of a dot for next to nothing, and for the most


class ReliabilityGroup(NamedTuple):
    """Answers of about the same probability: their mean, the share that came true, and how many they are."""

    probability: float
    share: float
    number: int


class Curve(NamedTuple):
    """The groups of one name, the least likely first."""

    name: str
    groups: Sequence[ReliabilityGroup]


def reliability_chart(curves: Sequence[Curve]) -> Paint | None:
    """Return a chart with a diagram for each curve that has any group, None where none has."""
    known = [curve for curve in curves if curve.groups]
    if not known:
        return None

    def paint(figure: Figure) -> None:
        row, column = _RELIABILITY_ABOVE + _SIDE + _RELIABILITY_BELOW, WIDTH / _COLUMNS
        charts.resize(figure, WIDTH, row * math.ceil(len(known) / _COLUMNS))
        for place, curve in enumerate(known):
            left, top = place % _COLUMNS * column + _LEFT, place // _COLUMNS * row + _RELIABILITY_ABOVE
            axes = charts.axes(figure, left, top, _SIDE, _SIDE)
            name = charts.fitted(figure, curve.name, _SIDE)
            axes.set_title(name, loc="left", fontsize=12, color=INK, pad=10)
            _reliability_draw(axes, curve.groups)

    return paint


def _reliability_draw(axes: Axes, groups: Sequence[ReliabilityGroup]) -> None:
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


_SCATTER_ROW, _SCATTER_ABOVE, _SCATTER_BELOW, _SCATTER_LEFT, _SCATTER_EDGE = 20, 28, 50, 44, 12  # pixels
_LEAST = 240  # pixels: how high it is at least
_LEADER = 28  # pixels: from a point's height at the edge to its name
_STEPS, _MOST_LINES = (0.1, 0.2, 0.5), 6
_MARGIN = 1.5  # times: beside the first and the last cost
_FAR, _VERY_FAR = 20, 100  # times: costs that are so far apart are shown by their ratios


class ScatterPoint(NamedTuple):
    """A name, what it costs, and how good it is."""

    name: str
    cost: float
    good: Spread


def scatter_chart(points: Sequence[ScatterPoint], across: str, up: str) -> Paint | None:
    """Return a chart of some points, None of fewer than two: there is nothing to compare."""
    if len(points) < 2:  # noqa: PLR2004 - what a comparison takes
        return None

    def paint(figure: Figure) -> None:
        height = max(_LEAST, _SCATTER_ROW * len(points))
        charts.resize(figure, WIDTH, _SCATTER_ABOVE + height + _SCATTER_BELOW)
        labels = [charts.fitted(figure, point.name, NAMES) for point in points]
        right = charts.widest(figure, labels) + _LEADER + _SCATTER_EDGE
        charts.write(figure, 2, _SCATTER_ABOVE / 2, up, italic=True)
        axes = charts.axes(figure, _SCATTER_LEFT, _SCATTER_ABOVE, WIDTH - _SCATTER_LEFT - right, height)
        _scales(axes, points, across)
        _points(axes, points)
        _names(axes, points, labels)

    return paint


def _scales(axes: Axes, points: Sequence[ScatterPoint], across: str) -> None:
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


def _points(axes: Axes, points: Sequence[ScatterPoint]) -> None:
    costs = [point.cost for point in points]
    lows, highs = [point.good.low for point in points], [point.good.high for point in points]
    axes.vlines(costs, lows, highs, BLUE, linewidth=3, alpha=0.5, clip_on=False)
    axes.plot(costs, [point.good.value for point in points], "o", color=BLUE, markersize=9, clip_on=False)


def _names(axes: Axes, points: Sequence[ScatterPoint], labels: Sequence[str]) -> None:
    """Write the names at the right, as high as their points where there is room, with a line from each."""
    box = axes.get_window_extent()
    order = sorted(range(len(points)), key=lambda place: points[place].good.value)
    heights = [axes.transLimits.transform((0, points[place].good.value))[1] for place in order]
    _, end = axes.get_xlim()
    thin: dict[str, Any] = {"color": INK, "alpha": 0.3, "linewidth": 1, "clip_on": False}
    for place, height, beside in zip(order, heights, apart(heights, _SCATTER_ROW / box.height), strict=True):
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


_SERIES_COLUMNS, _SERIES_LEFT, _RIGHT, _SERIES_ABOVE, _SERIES_HIGH, _SERIES_BELOW = (
    2,
    56,
    24,
    36,
    110,
    40,
)  # pixels, the columns aside
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


def series_chart(times: Sequence[str], many: Sequence[Series]) -> Paint:
    """Return a chart of some series, which all have a moment for each of the times."""

    def paint(figure: Figure) -> None:
        row = _SERIES_ABOVE + _SERIES_HIGH + _SERIES_BELOW
        charts.resize(figure, WIDTH, row * math.ceil(len(many) / _SERIES_COLUMNS))
        column = WIDTH / _SERIES_COLUMNS
        width = column - _SERIES_LEFT - _RIGHT
        for place, series in enumerate(many):
            left, top = (
                place % _SERIES_COLUMNS * column + _SERIES_LEFT,
                place // _SERIES_COLUMNS * row + _SERIES_ABOVE,
            )
            axes = charts.axes(figure, left, top, width, _SERIES_HIGH)
            _series_draw(axes, times, series)

    return paint


def _series_draw(axes: Axes, times: Sequence[str], series: Series) -> None:
    last = max(1, len(times) - 1)
    axes.set_xlim(0, last)
    axes.set_ylim(0, series.top)
    axes.set_title(series.title, loc="left", fontsize=12, fontweight="bold", color=INK, pad=10)
    axes.set_title(series.last, loc="right", fontsize=12, color=INK, pad=10)
    axes.spines[["bottom", "top"]].set(visible=True, color=INK, alpha=FAINT)
    axes.set_yticks(series.limits, [series.written(limit) for limit in series.limits])
    axes.hlines(series.limits, 0, last, RED, linestyles="dashed", linewidth=1)
    axes.set_xticks([0, last][: len(times)], [*times[:1], *times[1:][-1:]])
    for label in axes.get_xticklabels()[:1]:
        label.set_horizontalalignment("left")
    for label in axes.get_xticklabels()[1:]:
        label.set_horizontalalignment("right")
    values = [_NAN if moment.value is None else moment.value for moment in series.moments]
    if all(map(math.isnan, values)):
        axes.text(last / 2, series.top / 2, "nothing measured", ha="center", va="center", color=INK)
        return
    lows = [_NAN if moment.low is None else moment.low for moment in series.moments]
    highs = [_NAN if moment.high is None else min(moment.high, series.top) for moment in series.moments]
    axes.fill_between(range(len(values)), lows, highs, color=BLUE, alpha=0.25, linewidth=0, clip_on=False)
    axes.plot(values, "o-", color=BLUE, markersize=5, linewidth=2, clip_on=False)


ROLLING = timedelta(days=7)
TITLE = "KPIs of the gate, each over the seven days before"


class KpiPoint(NamedTuple):
    """The measures over the `ROLLING` days up to the end of `day`."""

    day: datetime
    kpis: list[Kpi]


def drawing(evidence: Evidence) -> str:
    """Return an SVG with a panel a KPI: its value over seven days, its interval, its limits.

    Raises `UsageError` where what draws it is not installed; so does `html`.
    """
    points = points_of(evidence)
    return charts.document(_paint(points), TITLE, _words(points))


def html(evidence: Evidence) -> str:
    """Return a page with the picture in it."""
    points = points_of(evidence)
    page = Page("The gate's KPIs")
    page.chart(TITLE, _paint(points), _words(points))
    return page.text()


def points_of(evidence: Evidence) -> list[KpiPoint]:
    """Return a point for each day from the first verdict to the last."""
    days = sorted({verdict.timestamp.astimezone(UTC).date() for verdict in evidence.verdicts})
    if not days:
        return []
    ends = [
        datetime.combine(days[0] + timedelta(days=number + 1), time(), UTC)
        for number in range((days[-1] - days[0]).days + 1)
    ]
    return [KpiPoint(end, kpi.measure(evidence.only(_within(evidence, end)))) for end in ends]


def _within(evidence: Evidence, end: datetime) -> Sequence[VerdictLine]:
    return [verdict for verdict in evidence.verdicts if end - ROLLING <= verdict.timestamp < end]


def _words(points: Sequence[KpiPoint]) -> str:
    """Return in words what the picture shows of the last day."""
    return "; ".join(kpi_text(each) for each in points[-1].kpis) if points else "nothing measured yet"


def _paint(points: Sequence[KpiPoint]) -> Paint:
    days = [(point.day - timedelta(days=1)).date().isoformat() for point in points]
    found = [_series(limit, [point.kpis[place] for point in points]) for place, limit in enumerate(_LIMITS)]
    return series_chart(days, found)


_LIMITS = [limit for name, limit in kpi.LIMITS.items() if name not in kpi.RELIANCE]


def _series(limit: kpi.Limit, kpis: Sequence[Kpi]) -> Series:
    last = kpis[-1] if kpis else None
    return Series(
        title=limit.title,
        last="" if last is None or last.value is None else f"last {number(last, last.value)}",
        moments=[Moment(each.value, *(each.interval or (None, None))) for each in kpis],
        limits=[edge for edge in (limit.low, limit.high) if edge is not None],
        top=_top(limit, kpis),
        written=lambda value: f"{value:.0f} s" if limit.unit == "seconds" else f"{value:.0%}",
    )


def _top(limit: kpi.Limit, kpis: Sequence[Kpi]) -> float:
    if limit.unit == "share":
        return 1.0
    return max([2 * (limit.high or 1), *(each.value or 0 for each in kpis)])
