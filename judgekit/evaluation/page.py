"""The report on judges as one page of HTML with its charts in it; it loads nothing from anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit.evaluation import charts, diagrams
from judgekit.evaluation.charts import Page
from judgekit.evaluation.diagrams import Curve, FigurePanel, ReliabilityGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from judgekit.evaluation.agreement import JudgeReport, JudgingReport
    from judgekit.evaluation.stats import BootstrapInterval

    Figures = Mapping[str, Callable[[JudgeReport], BootstrapInterval | None]]

MOST_WORDS = 30  # nobody reads a picture of a thousand cells


def html(report: JudgingReport) -> str:
    """Return the page; raises `UsageError` where what draws its charts is not installed."""
    page = Page(f"Judges on {charts.name(report.file)}")
    rubric = f", rubric {report.rubric}, {report.mode}" if report.rubric else ""
    boot = report.bootstrap
    page.paragraph(
        f"{report.items} labelled items{rubric}. In brackets, and as lines, are {boot.level:.0%} intervals:"
        f" {boot.resamples} draws of the items, seed {boot.seed}. Unreadable answers count neither as right"
        " nor as wrong."
    )
    _table(page, report.judges)
    _panels(page, "Agreement with the labels: the further right, the better", _AGREEMENT, report.judges)
    _tradeoff(page, report.judges)
    _panels(page, "Reliability: the further left, the better", _RELIABILITY, report.judges, near=True)
    _probabilities(page, report.judges)
    for judge in report.judges:
        _judge(page, judge)
    return page.text()


def _lift(each: JudgeReport) -> BootstrapInterval | None:
    return each.injection.lift if each.injection else None


_AGREEMENT: Figures = {
    "Accuracy": lambda each: each.accuracy,
    "Cohen's kappa": lambda each: each.kappa,
    "Weighted kappa": lambda each: each.weighted_kappa,
}
_RELIABILITY: Figures = {
    "Unreadable": lambda each: each.unreadable,
    "Order flips": lambda each: each.order_flips.rate,
    "Rerun flips": lambda each: each.rerun_flips.rate,
    "Injection lift": _lift,
}


def _table(page: Page, judges: Sequence[JudgeReport]) -> None:
    known = {**_AGREEMENT, **_RELIABILITY}
    figures = {name: figure for name, figure in known.items() if any(map(figure, judges))}
    rows = [
        [
            charts.name(judge.judge),
            *(_number(figure(judge)) for figure in figures.values()),
            f"{judge.cost.calls:.2f}",
            "-" if judge.cost.usd is None else f"{judge.cost.usd:.6f}",
        ]
        for judge in judges
    ]
    page.table(["judge", *figures, "calls an item", "US dollars an item"], rows)
    page.paragraph(
        "The weighted kappa weighs by the square of the distance. Order flips are answers that change with"
        " the order, rerun flips those that change when asked again; the lift is how much more often"
        " injected text gets the answer that it is after."
    )


def _panels(
    page: Page, title: str, figures: Figures, judges: Sequence[JudgeReport], *, near: bool = False
) -> None:
    panels = [
        FigurePanel(name, [figure(judge) for judge in judges], near) for name, figure in figures.items()
    ]
    found = diagrams.intervals_chart([judge.judge for judge in judges], panels)
    if found is not None:
        page.chart(title, found)


def _tradeoff(page: Page, judges: Sequence[JudgeReport]) -> None:
    points = [
        diagrams.ScatterPoint(judge.judge, judge.cost.usd, judge.accuracy)
        for judge in judges
        if judge.cost.usd is not None and judge.accuracy is not None
    ]
    found = diagrams.scatter_chart(points, "US dollars an item", "accuracy")
    if found is not None:
        page.chart("Cost against agreement, where the price is known", found)


def _probabilities(page: Page, judges: Sequence[JudgeReport]) -> None:
    curves = [
        Curve(
            judge.judge,
            [ReliabilityGroup(one.confidence, one.relevant, one.count) for one in judge.probabilities.bins],
        )
        for judge in judges
        if judge.probabilities
    ]
    found = diagrams.reliability_chart(curves)
    if found is not None:
        title = "Probabilities (across) and the share that was to be kept (up): best on the dashed line"
        page.chart(title, found)


def _judge(page: Page, each: JudgeReport) -> None:
    """Say how well each word was said, and what the variants of the items changed."""
    name = charts.name(each.judge)
    page.heading(f"{name}{f' ({charts.name(each.model)})' if each.model else ''}")
    rows = [
        [
            charts.name(one.word),
            str(one.labelled),
            str(one.said),
            _number(one.precision),
            _number(one.recall),
        ]
        for one in each.classes
    ]
    page.table(["word", "labelled so", "said", "precision", "recall"], rows)
    for line in _variants(each):
        page.paragraph(line)
    if len(each.classes) > MOST_WORDS:
        page.paragraph(
            f"{len(each.classes)} different words are too many for a picture of what was said of what."
        )
    elif each.classes:
        counts = {(confusion.label, confusion.said): confusion.count for confusion in each.confusion}
        paint = diagrams.confusion_chart([one.word for one in each.classes], counts, "label", "answer")
        page.chart(f"{name}: labels (down) and answers (across), darker for more of a label", paint)


def _variants(each: JudgeReport) -> Iterator[str]:
    for name, flips in (("in another order", each.order_flips), ("asked again", each.rerun_flips)):
        if flips.pairs:
            yield f"Of {flips.pairs} items {name}, {_span(flips.rate)} were answered otherwise."
    lift = each.injection
    if lift:
        yield (
            f"Of {lift.pairs} items with injected text, {_span(lift.before)} were called"
            f" {charts.name(lift.wanted)} without it and {_span(lift.after)} with it:"
            f" a lift of {_span(lift.lift)}."
        )


def _span(figure: BootstrapInterval | None) -> str:
    return "-" if figure is None else f"{figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}]"


def _number(figure: BootstrapInterval | None) -> str:
    return _span(figure).replace(" ", "\n", 1)
