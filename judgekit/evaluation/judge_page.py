"""The report on judges as one page of HTML with its pictures in it; it loads nothing from anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from judgekit.evaluation.bootstrap import Interval
    from judgekit.evaluation.judge_report import JudgeReport, JudgingReport

_ROW, _LEFT, _WIDTH, _CELL = 26, 190, 420, 64
_STYLE = (
    "body{font:15px sans-serif;color:#222;margin:2em auto;max-width:60em}table{border-collapse:collapse}"
    "td,th{border:1px solid #ccc;padding:.3em .6em;text-align:right}figure{margin:1.5em 0}"
    "td:first-child,th:first-child{text-align:left}text{font:12px sans-serif;fill:#333}"
    ".axis{stroke:#bbb}.span{stroke:#4477aa;stroke-width:2}.dot{fill:#4477aa}svg{max-width:100%;height:auto}"
    "svg text.on{fill:#fff}"
)
_NOTHING_LOADED = "default-src 'none'; style-src 'unsafe-inline'"
_APART = 0.1  # ticks that are nearer would run into each other
_DARK = 0.55  # a share from which on a cell is so dark that its number is white


def html(report: JudgingReport) -> str:
    """Return the page."""
    page = ET.Element("html", {"lang": "en"})
    head, body = ET.SubElement(page, "head"), ET.SubElement(page, "body")
    ET.SubElement(head, "meta", {"charset": "utf-8"})
    ET.SubElement(head, "meta", {"http-equiv": "Content-Security-Policy", "content": _NOTHING_LOADED})
    ET.SubElement(head, "meta", {"name": "viewport", "content": "width=device-width"})
    ET.SubElement(head, "title").text = f"judges on {report.file}"
    ET.SubElement(head, "style").text = _STYLE
    ET.SubElement(body, "h1").text = f"Judges on {report.file}"
    rubric = f", rubric {report.rubric}, {report.mode}" if report.rubric else ""
    boot = report.bootstrap
    ET.SubElement(body, "p").text = (
        f"{report.items} labelled items{rubric}. Lines are {boot.level:.0%} intervals: {boot.resamples} draws"
        f" of the items, seed {boot.seed}. Unreadable answers count neither as right nor as wrong."
    )
    _table(body, report.judges)
    for title, figure in _FIGURES.items():
        _dots(body, title, [(each.judge, figure(each)) for each in report.judges])
    for each in report.judges:
        _classes(body, each)
        _confusion(body, each)
    return "<!doctype html>\n" + ET.tostring(page, encoding="unicode", method="html") + "\n"


def _lift(each: JudgeReport) -> Interval | None:
    return each.injection.lift if each.injection else None


_FIGURES: dict[str, Callable[[JudgeReport], Interval | None]] = {
    "Accuracy": lambda each: each.accuracy,
    "Cohen's kappa": lambda each: each.kappa,
    "Quadratically weighted kappa": lambda each: each.weighted_kappa,
    "Unreadable answers": lambda each: each.unreadable,
    "Answers that change with the order": lambda each: each.order_flips.rate,
    "Answers that change when asked again": lambda each: each.rerun_flips.rate,
    "Lift of injected text": _lift,
}


def _table(body: ET.Element, judges: Sequence[JudgeReport]) -> None:
    table = ET.SubElement(body, "table")
    _cells(table, "th", ["judge", *_FIGURES, "calls an item", "US dollars an item"])
    for each in judges:
        figures = [_number(figure(each)) for figure in _FIGURES.values()]
        usd = "-" if each.cost.usd is None else f"{each.cost.usd:.6f}"
        _cells(table, "td", [each.judge, *figures, f"{each.cost.calls:.2f}", usd])


def _classes(body: ET.Element, each: JudgeReport) -> None:
    """Say how well each word was said, and what the variants of the items changed."""
    ET.SubElement(body, "h2").text = f"{each.judge}{f' ({each.model})' if each.model else ''}"
    table = ET.SubElement(body, "table")
    _cells(table, "th", ["word", "labelled so", "said", "precision", "recall"])
    for one in each.classes:
        counts = (str(one.labelled), str(one.said))
        _cells(table, "td", [one.word, *counts, _number(one.precision), _number(one.recall)])
    for line in _variants(each):
        ET.SubElement(body, "p").text = line


def _variants(each: JudgeReport) -> Iterator[str]:
    for name, flips in (("in another order", each.order_flips), ("asked again", each.rerun_flips)):
        if flips.pairs:
            yield f"Of {flips.pairs} items {name}, {_span(flips.rate)} were answered otherwise."
    found = each.injection
    if found:
        yield (
            f"Of {found.pairs} items with injected text, {_span(found.before)} were called {found.wanted}"
            f" without it and {_span(found.after)} with it: a lift of {_span(found.lift)}."
        )


def _span(figure: Interval | None) -> str:
    return "-" if figure is None else f"{figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}]"


def _cells(table: ET.Element, kind: str, texts: Sequence[str]) -> None:
    row = ET.SubElement(table, "tr")
    for text in texts:
        ET.SubElement(row, kind).text = text


def _number(figure: Interval | None) -> str:
    return "-" if figure is None else f"{figure.value:.3f}"


def _dots(body: ET.Element, title: str, rows: Sequence[tuple[str, Interval | None]]) -> None:
    """Draw a dot with its interval for each judge, on an axis from 0 (or the least bound) to 1."""
    known = [(name, figure) for name, figure in rows if figure is not None]
    if not known:
        return
    least = min(0.0, *(figure.low for _, figure in known))

    def x(value: float) -> str:
        return f"{_LEFT + (value - least) / (1 - least) * _WIDTH:.1f}"

    svg = _figure(body, title, _LEFT + _WIDTH + 70, _ROW * (len(known) + 1))
    ticks = {0.0, 0.25, 0.5, 0.75, 1.0} | ({least} if least < -_APART else set())
    for tick in sorted(ticks):
        ends = {"x1": x(tick), "x2": x(tick), "y1": "0", "y2": str(_ROW * len(known))}
        ET.SubElement(svg, "line", {"class": "axis", **ends})
        _text(svg, x(tick), _ROW * len(known) + 16, f"{tick:.2f}", anchor="middle")
    for place, (name, figure) in enumerate(known):
        y = str(_ROW * place + _ROW // 2)
        _text(svg, "0", int(y) + 4, name[:28])
        ET.SubElement(
            svg, "line", {"class": "span", "x1": x(figure.low), "x2": x(figure.high), "y1": y, "y2": y}
        )
        dot = ET.SubElement(svg, "circle", {"class": "dot", "cx": x(figure.value), "cy": y, "r": "4"})
        ET.SubElement(dot, "title").text = _span(figure)


def _confusion(body: ET.Element, each: JudgeReport) -> None:
    """Draw the labels against what was said: the darker, the larger the share of its label."""
    words = [one.word for one in each.classes]
    counts = {(one.label, one.said): one.count for one in each.confusion}
    labelled = {one.word: max(1, one.labelled) for one in each.classes}
    side = _CELL * len(words)
    svg = _figure(body, f"{each.judge}: labels (down) and answers (across)", 120 + side, 30 + side)
    for down, label in enumerate(words):
        _text(svg, "0", 30 + down * _CELL + _CELL // 2, label[:16])
        _text(svg, str(120 + down * _CELL + _CELL // 2), 20, label[:10], anchor="middle")
        for across, said in enumerate(words):
            count = counts.get((label, said), 0)
            x, y = 120 + across * _CELL, 30 + down * _CELL
            box = {"x": str(x), "y": str(y), "width": str(_CELL - 2), "height": str(_CELL - 2)}
            share = count / labelled[label]
            shade = {"fill": "#4477aa", "fill-opacity": f"{0.08 + 0.82 * share:.2f}"}
            ET.SubElement(svg, "rect", {**box, **shade})
            kind = "on" if share > _DARK else ""
            _text(svg, str(x + _CELL // 2), y + _CELL // 2 + 4, str(count), anchor="middle", kind=kind)


def _figure(body: ET.Element, title: str, width: int, height: int) -> ET.Element:
    figure = ET.SubElement(body, "figure")
    ET.SubElement(figure, "figcaption").text = title
    size = {"width": str(width), "height": str(height), "viewBox": f"0 0 {width} {height}"}
    # The serializer leaves < in attributes, which browsers bear and a strict reader does not.
    shown = {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "aria-label": title.replace("<", "(")}
    return ET.SubElement(figure, "svg", {**shown, **size})


def _text(svg: ET.Element, x: str, y: int, text: str, *, anchor: str = "start", kind: str = "") -> None:
    ET.SubElement(svg, "text", {"x": x, "y": str(y), "text-anchor": anchor, "class": kind}).text = text
