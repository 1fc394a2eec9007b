"""Charts and pages: draws with matplotlib, which is imported late and quietly, and writes SVG and HTML."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import math
import os
import re
import warnings
from datetime import UTC, date, datetime, time, timedelta
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, TypeAlias

from judgekit import environment
from judgekit.config import files
from judgekit.errors import UsageError
from judgekit.ledger import kpi
from judgekit.text import escaped, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from judgekit.evaluation.report import JudgeReport, JudgingReport
    from judgekit.evaluation.stats import Bin, BootstrapInterval
    from judgekit.ledger.kpi import Evidence, Kpi

Paint: TypeAlias = "Callable[[Figure], None]"
"""What puts a chart on an empty figure and gives the figure its size."""

INK = "#000000"  # replaced by the colour of the text around the picture, light on dark or dark on light
BLUE, RED = "#4477aa", "#cc3311"  # both have a contrast of 3 with white and with black paper
WIDTH = 860  # pixels: of a chart that fills the page
INCH = 72  # pixels: a length in matplotlib's points is one in pixels then
_FAINT = 0.16  # opacity of lines that only guide the eye, as that of a grid in charts.mplstyle
_LONGEST = 32  # characters of a name in a chart
_HERE = Path(__file__).parent  # with the settings of matplotlib and the skeleton of a page


@functools.cache
def load() -> ModuleType:
    """Import matplotlib, whose files lie in our cache or in `MPLCONFIGDIR`; raises `UsageError`."""
    logging.getLogger("matplotlib").addHandler(logging.NullHandler())
    os.environ.setdefault("MPL_IGNORE_SYSTEM_FONTS", "1")
    try:
        if "MPLCONFIGDIR" not in os.environ:
            with contextlib.suppress(OSError):  # it finds a place of its own then
                os.environ["MPLCONFIGDIR"] = environment.cache_folder("matplotlib")
        import matplotlib as mpl  # noqa: PLC0415 - half a second that only a chart is worth
        import matplotlib.backends.backend_svg  # noqa: PLC0415 - the same
        import matplotlib.figure  # noqa: PLC0415 - the same
    except (ImportError, OSError, ValueError) as error:  # a settings file in no encoding is a ValueError
        raise UsageError(f"pictures need matplotlib ({error}); run {files.install_extra('report')}") from None
    return mpl


def name(text: str) -> str:
    """Return a name as one line of what can be seen; escaped where that is nothing, - for an empty one."""
    text = text[:400]
    return " ".join(visible(text).split()) or escaped(text).strip() or "-"


def short(text: str, longest: int = _LONGEST) -> str:
    """Return a name without its middle where it is too long: names of models differ at their ends."""
    text = name(text)
    if len(text) <= longest:
        return text
    return f"{text[: longest // 2].rstrip()}…{text[len(text) - longest // 2 :].lstrip()}"


NAMESPACE = "http://www.w3.org/2000/svg"


def element(paint: Paint, title: str, *, name: str, description: str = "", style: str = "") -> str:
    """Return a chart as an `svg` element, drawn under our settings alone; all its ids begin with `name`."""
    mpl, out = load(), io.StringIO()
    shipped = {name: value for name, value in mpl.rcParamsDefault.items() if name != "backend"}
    settings = mpl.rc_params_from_file(_HERE / "charts.mplstyle", use_default_template=False)
    with mpl.rc_context(shipped | settings), warnings.catch_warnings():
        # Browsers have fonts for the letters that the one for measuring lacks.
        warnings.filterwarnings("ignore", r"(?s)Glyph .* missing from font", UserWarning)
        figure = mpl.figure.Figure(dpi=INCH, layout="constrained")
        mpl.backends.backend_svg.FigureCanvasSVG(figure)
        paint(figure)
        figure.savefig(out, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    width, height = (round(float(side) * INCH) for side in figure.get_size_inches())
    drawn = re.search(r"<svg[^>]*>(.*)</svg>", out.getvalue(), re.DOTALL)
    bare = re.sub(r"(?s)<(metadata|style).*?</\1>", "", drawn[1] if drawn else "")

    def own(tag: re.Match[str]) -> str:  # in texts there is no `<`
        ids = re.sub(r'( id="|url\(#|xlink:href="#)', rf"\g<1>{name}-", tag[0])
        return ids.replace("xlink:href", "href").replace(INK, "currentColor")

    described = f' aria-describedby="{name}-desc"' if description else ""
    desc = f'<desc id="{name}-desc">{escape(description)}</desc>' if description else ""
    return (
        f'<svg xmlns="{NAMESPACE}" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        f' fill="currentColor" stroke-linejoin="round" role="img" aria-labelledby="{name}-title"'
        f'{described}{style}><title id="{name}-title">{escape(title)}</title>{desc}'
        f"{re.sub('<[^>]*>', own, bare)}</svg>"
    )


def document(paint: Paint, title: str, description: str = "") -> str:
    style = ' style="color-scheme: light dark"'
    return element(paint, title, name="chart", description=description, style=style) + "\n"


def page(
    title: str, parts: Sequence[str], charts: Sequence[tuple[str, Paint | None]], description: str = ""
) -> str:
    drawn = [(caption, paint) for caption, paint in charts if paint is not None]
    figures = [
        f"<figure><figcaption>{escape(caption)}</figcaption>"
        f"{element(paint, caption, name=f'chart{number}', description=description)}</figure>"
        for number, (caption, paint) in enumerate(drawn, 1)
    ]
    whole = Template((_HERE / "page.html").read_text(encoding="utf-8"))
    return whole.substitute(title=escape(title), body="\n".join([*parts, *figures]))


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table, its heading first; what follows a line break in a cell stands smaller below."""
    lines = []
    for kind, cells in zip(["th", *["td"] * len(rows)], rows, strict=False):
        texts = [escape(text).partition("\n") for text in cells]
        shown = [first + (f"<small>{below}</small>" if below else "") for first, _, below in texts]
        lines.append(f"<tr>{''.join(f'<{kind}>{text}</{kind}>' for text in shown)}</tr>")
    return f'<div class="wide"><table>{"".join(lines)}</table></div>'


def _axes(figure: Figure, height: float, count: int, columns: int, width: float = WIDTH) -> list[Axes]:
    """Return the `count` axes of a figure, whose size is given in pixels; `height` is that of a row."""
    rows = math.ceil(count / columns)
    figure.set_size_inches(width / INCH, rows * height / INCH)
    every = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in every[count:]:
        axes.remove()
    return every[:count]


def intervals_chart(
    names: Sequence[str], figures: Mapping[str, Sequence[BootstrapInterval | None]], *, near: bool = False
) -> Paint | None:
    """Return a chart with a panel a figure, None without any; with `near` an axis ends at the values."""
    panels = {title: spreads for title, spreads in figures.items() if any(spreads)}
    beside: dict[str, Any] = {"xytext": (8, 0), "textcoords": "offset points", "va": "center"}

    def paint(figure: Figure) -> None:
        all_axes = _axes(figure, 24 * len(names) + 60, len(panels), len(panels))
        for axes, (title, spreads) in zip(all_axes, panels.items(), strict=True):
            axes.set_title(title, fontweight="bold")
            lowest = min(spread.low for spread in spreads if spread)
            axes.set_xlim(min(0.0, lowest), None if near else 1.0)
            axes.locator_params(axis="x", nbins=3)
            axes.set_ylim(len(names) - 0.5, -0.5)
            axes.set_yticks(range(len(names)), [short(name) for name in names])
            axes.tick_params(labelleft=axes is all_axes[0])
            for row, spread in enumerate(spreads):
                if spread is not None:
                    axes.hlines(row, spread.low, spread.high, BLUE, linewidth=3, clip_on=False)
                    axes.plot(spread.value, row, "o", color=BLUE, markersize=9, clip_on=False)
                    place = ("axes fraction", "data")
                    axes.annotate(f"{spread.value:.2f}", (1, row), xycoords=place, **beside)

    return paint if panels else None


_NONE, _ALL = (0.92, 0.945, 0.97), (0.12, 0.3, 0.49)  # red, green, blue of a cell for none or all of its row
_DARK = 0.73  # from this share of a row on white is easier to read than black: both have a contrast of 4.5


def confusion_chart(
    words: Sequence[str], counts: Mapping[tuple[str, str], int], down: str, across: str
) -> Paint:
    labels, places = [short(word, 16) for word in words], range(len(words))
    longest = 9 * max(map(len, labels))

    def paint(figure: Figure) -> None:
        width = max(56, longest) * len(words) + longest + 60
        (axes,) = _axes(figure, 40 * len(words) + 60, 1, 1, width)
        axes.grid(visible=False)
        axes.set(xlim=(-0.5, len(words) - 0.5), ylim=(len(words) - 0.5, -0.5))
        axes.xaxis.tick_top()
        axes.xaxis.set_label_position("top")
        axes.set_xlabel(across, style="italic")
        axes.set_ylabel(down, style="italic")
        axes.set_xticks(places, labels)
        axes.set_yticks(places, labels)
        for row, label in enumerate(words):
            total = max(1, sum(counts.get((label, other), 0) for other in words))
            for column, other in enumerate(words):
                count = counts.get((label, other), 0)
                colour = [
                    none + (every - none) * count / total for none, every in zip(_NONE, _ALL, strict=True)
                ]
                axes.bar(column, -0.95, 0.97, row + 0.475, color=[colour], clip_on=False)
                # Not INK: a cell is the same on light and on dark paper.
                ink = "#ffffff" if count / total > _DARK else "#010101"
                axes.text(column, row, str(count), ha="center", va="center", color=ink)

    return paint


def reliability_chart(curves: Mapping[str, Sequence[Bin]]) -> Paint | None:
    """Return a diagram for each name that has any bin, the least likely first; None where none has."""
    known = {name: bins for name, bins in curves.items() if bins}

    def paint(figure: Figure) -> None:
        for axes, (name, bins) in zip(_axes(figure, 270, len(known), 4), known.items(), strict=True):
            axes.set_title(short(name, 20))
            axes.set(box_aspect=1, xlim=(0, 1), ylim=(0, 1), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
            axes.plot([0, 1], [0, 1], color=INK, alpha=0.4, linewidth=1, linestyle="dashed")
            across, up = [each.confidence for each in bins], [each.relevant for each in bins]
            most = max(each.count for each in bins)
            sizes = [max(25, 200 * each.count / most) for each in bins]  # square pixels
            axes.plot(across, up, color=BLUE, linewidth=1.5, clip_on=False)
            axes.scatter(across, up, s=sizes, color=BLUE, alpha=0.75, linewidth=0, clip_on=False)

    return paint if known else None


def scatter_chart(
    points: Mapping[str, tuple[float, BootstrapInterval]], across: str, up: str
) -> Paint | None:
    """Return a chart of names by cost and figure, None of fewer than two: there is nothing to compare."""

    def paint(figure: Figure) -> None:
        (axes,) = _axes(figure, max(320, 24 * len(points)), 1, 1)
        for place, (name, (cost, good)) in enumerate(points.items()):
            axes.vlines(cost, good.low, good.high, BLUE, linewidth=3, alpha=0.5, clip_on=False)
            # A legend tells points apart by their shape; there are ten shapes in two colours.
            shape, colour = "osD^v<>PX*"[place % 10], (BLUE, RED)[place // 10 % 2]
            axes.plot(cost, good.value, shape, color=colour, markersize=8, label=short(name), clip_on=False)
        costs = [cost for cost, _ in points.values()]
        if min(costs) > 0 and max(costs) / min(costs) >= 20:  # noqa: PLR2004 - times; then their ratios are shown
            axes.set_xscale("log")
        else:
            axes.set_xlim(0, (max(costs) or 1) * 1.08)
        lowest = min(good.low for _, good in points.values())
        axes.set_ylim(max(-1.0, math.floor(lowest * 10) / 10), 1)
        axes.set_xlabel(across, style="italic")
        axes.set_ylabel(up, style="italic")
        axes.xaxis.set_major_formatter(lambda cost, _: f"{cost:.9f}".rstrip("0").rstrip("."))
        axes.minorticks_off()
        figure.legend(loc="outside right upper")

    return paint if len(points) > 1 else None


# --- The gate's KPIs

_ROLLING = timedelta(days=7)
_KPI_TITLE = "KPIs of the gate over the preceding seven days"


def kpi_drawing(evidence: Evidence, *, as_page: bool) -> str:
    days = kpi_days(evidence)
    words = "; ".join(map(str, list(days.values())[-1])) if days else "nothing measured yet"
    if as_page:
        return page("The gate's KPIs", [], [(_KPI_TITLE, kpi_chart(days))], words)
    return document(kpi_chart(days), _KPI_TITLE, words)


def kpi_days(evidence: Evidence) -> dict[date, list[Kpi]]:
    """Return the measures over the seven days up to the end of each day, from the first verdict's on."""
    dates = sorted(verdict.timestamp.astimezone(UTC).date() for verdict in evidence.verdicts)
    days = {}
    for count in range((dates[-1] - dates[0]).days + 1 if dates else 0):
        day = dates[0] + timedelta(days=count)
        end = datetime.combine(day + timedelta(days=1), time(), UTC)
        within = [verdict for verdict in evidence.verdicts if end - _ROLLING <= verdict.timestamp < end]
        days[day] = kpi.measure(evidence.only(within))
    return days


def kpi_chart(days: Mapping[date, Sequence[Kpi]]) -> Paint:
    limits = [limit for name, limit in kpi.LIMITS.items() if name not in kpi.RELIANCE]
    last, ends = max(1, len(days) - 1), [day.isoformat() for day in days]

    def paint(figure: Figure) -> None:
        for place, axes in enumerate(_axes(figure, 186, len(limits), 2)):
            axes.grid(visible=False)
            axes.spines[["bottom", "top"]].set(visible=True, alpha=_FAINT)
            axes.set_xlim(0, last)
            axes.set_xticks([0, last][: len(ends)], [*ends[:1], *ends[1:][-1:]])
            _kpi_panel(axes, limits[place], [kpis[place] for kpis in days.values()], last)

    return paint


def _kpi_panel(axes: Axes, limit: kpi.Limit, kpis: Sequence[Kpi], last: int) -> None:
    edges, top = [edge for edge in (limit.low, limit.high) if edge is not None], 1.0
    if limit.unit == "seconds":
        top = max([2 * (limit.high or 1), *(each.value or 0 for each in kpis)])
    axes.set_ylim(0, top)
    axes.set_yticks(edges, [f"{edge:.0f} s" if limit.unit == "seconds" else f"{edge:.0%}" for edge in edges])
    axes.hlines(edges, 0, last, RED, linestyles="dashed", linewidth=1)
    axes.set_title(limit.title, fontweight="bold")
    if kpis and (value := kpis[-1].value) is not None:
        axes.set_title(f"last {limit.text(value)}", loc="right")
    if all(each.value is None for each in kpis):
        axes.text(last / 2, top / 2, "nothing measured", ha="center", va="center")
        return
    # Where there is no value, or no interval, there is no point and no line to it.
    moments = [(each.value, *(each.interval or (None, None))) for each in kpis]
    points = [[math.nan if value is None else min(value, top) for value in moment] for moment in moments]
    values, lows, highs = zip(*points, strict=True)
    around: dict[str, Any] = {"color": BLUE, "alpha": 0.25, "linewidth": 0, "clip_on": False}
    axes.fill_between(range(len(values)), lows, highs, **around)
    axes.plot(values, "o-", color=BLUE, markersize=5, linewidth=2, clip_on=False)


# --- The page about judges

MOST_WORDS = 30  # nobody reads a picture of a thousand cells
_FIGURES: dict[str, Callable[[JudgeReport], BootstrapInterval | None]] = {
    "Accuracy": lambda judge: judge.accuracy,
    "Cohen's kappa": lambda judge: judge.kappa,
    "Weighted kappa": lambda judge: judge.weighted_kappa,
    "Unreadable": lambda judge: judge.unreadable,
    "Order flips": lambda judge: judge.order_flips.rate,
    "Rerun flips": lambda judge: judge.rerun_flips.rate,
    "Injection lift": lambda judge: judge.injection.lift if judge.injection else None,
}
_AGREEMENT = 3  # of the figures: the others say how reliable a judge is


def judging_page(report: JudgingReport) -> str:
    """Return the page; raises `UsageError` where what draws its charts is not installed."""
    rubric = f", rubric {report.rubric}, {report.mode}" if report.rubric else ""
    boot, judges = report.bootstrap, report.judges
    figures = {title: [figure(judge) for judge in judges] for title, figure in _FIGURES.items()}
    known = {title: spreads for title, spreads in figures.items() if any(spreads)}
    rows = [["judge", *known, "calls an item", "US dollars an item"]]
    for at, judge in enumerate(judges):
        usd = "-" if judge.cost.usd is None else f"{judge.cost.usd:.6f}"
        who = f"{name(judge.judge)}{f' ({name(judge.model)})' if judge.model else ''}"
        own = [spreads[at] for spreads in known.values()]
        spans = [f"{one.value:.3f}\n[{one.low:.3f}, {one.high:.3f}]" if one else "-" for one in own]
        rows.append([who, *spans, f"{judge.cost.calls:.2f}", usd])
    drawn = f"{boot.level:.0%} intervals: {boot.resamples} draws of the items, seed {boot.seed}"
    about = (
        f"{report.items} labelled items{rubric}. In brackets, and as lines, are {drawn}. Unreadable answers"
        " count neither as right nor as wrong. The weighted kappa weighs by the square of the distance. Order"
        " flips are answers that change with the order, rerun flips those that change when asked again; the"
        " lift is how much more often injected text gets the answer that it is after."
    )
    parts = [paragraph(about), table(rows)]
    names, both = [judge.judge for judge in judges], list(figures.items())
    points = {
        judge.judge: (judge.cost.usd, judge.accuracy)
        for judge in judges
        if judge.cost.usd is not None and judge.accuracy is not None
    }
    curves = {judge.judge: judge.probabilities.bins for judge in judges if judge.probabilities}
    reliability = "Probabilities (across) and the share that was to be kept (up): best on the dashed line"
    cost = scatter_chart(points, "US dollars an item", "accuracy")
    agreement, others = (dict(part) for part in (both[:_AGREEMENT], both[_AGREEMENT:]))
    charts = [
        ("Agreement with the labels: the further right, the better", intervals_chart(names, agreement)),
        ("Cost against agreement, where the price is known", cost),
        ("Reliability: the further left, the better", intervals_chart(names, others, near=True)),
        (reliability, reliability_chart(curves)),
    ]
    for judge in judges:
        words, shown = [one.word for one in judge.classes], name(judge.judge)
        if len(words) > MOST_WORDS:
            parts.append(paragraph(f"{shown}: {len(words)} different words are too many for a picture."))
        elif words:
            counts = {(confusion.label, confusion.said): confusion.count for confusion in judge.confusion}
            chart = confusion_chart(words, counts, "label", "answer")
            charts.append((f"{shown}: labels (down) and answers (across), darker for more of a label", chart))
    return page(f"Judges on {name(report.file)}", parts, charts)
