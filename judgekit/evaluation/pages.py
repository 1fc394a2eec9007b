"""The pages about judges on labelled cases and about the gate's KPIs."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING

from judgekit import environment
from judgekit.evaluation.page import Cell, Chart, Figure, Row, Section, Table, page, shares
from judgekit.ledger import kpi
from judgekit.ledger.rates import Interval

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from judgekit.evaluation.page import Point
    from judgekit.evaluation.report import JudgeReport, JudgingReport, Probabilities
    from judgekit.ledger.kpi import Evidence, Kpi, Limit

MOST_WORDS = 30  # nobody reads a table of a thousand columns
_FIGURES: dict[str, Callable[[JudgeReport], Interval | None]] = {
    "accuracy": lambda judge: judge.accuracy,
    "Cohen's kappa": lambda judge: judge.kappa,
    "weighted kappa": lambda judge: judge.weighted_kappa,
    "unreadable": lambda judge: judge.unreadable,
    "order flips": lambda judge: judge.order_flips.rate,
    "rerun flips": lambda judge: judge.rerun_flips.rate,
    "spread of the distance": lambda judge: judge.spread.distance if judge.spread else None,
    "injection lift": lambda judge: judge.injection.lift if judge.injection else None,
    "mean error of scores": lambda judge: judge.scores.mean_error if judge.scores else None,
    "Spearman's correlation": lambda judge: judge.scores.spearman if judge.scores else None,
    "less accurate than the best": lambda judge: judge.behind,
}
_TEXTS: dict[str, str] = environment.table(__file__, "pages.toml")


def judging_page(report: JudgingReport) -> str:
    if report.rubric:
        rubric = f", rubric {report.rubric}, {report.mode}"
    else:
        rubric = ""
    judges = report.judges
    about = _TEXTS["judges"].format(items=report.items, rubric=rubric, boot=report.bootstrap)
    sections = [Section("Judges", [judges_table(report)])]
    for name, intervals in _intervals(judges).items():
        sections.append(Section(name.capitalize(), [_figures(judges, intervals)]))
    curves = []
    for judge in judges:
        if judge.probabilities:
            curves.append(_reliability_curve(judge.title, judge.probabilities))
    if curves:
        sections.append(Section("Reliability", [_TEXTS["reliability"], curves]))
    if report.outcomes:
        sections.append(Section("Items", [outcomes_table(report)]))
    for judge in judges:
        counts: dict[str, dict[str, int]] = {}
        for each in judge.confusion:
            counts.setdefault(each.label, {})[each.said] = each.count
        if len(judge.classes) > MOST_WORDS:
            many = f"{len(judge.classes)} different words are too many for a table."
            sections.append(Section(judge.title, [many]))
        elif counts:
            sections.append(
                Section(f"{judge.title}: labels and answers", [shares("labelled", counts)])
            )
    return page(f"Judges on {report.file}", about, sections)


def _reliability_curve(title: str, probabilities: Probabilities) -> Chart:
    points = []
    for group in probabilities.bins:
        share = Interval(group.relevant, low=group.relevant, high=group.relevant)
        points.append((group.confidence, share))
    note = f"ECE {probabilities.ece:.3f}"
    return Chart(title, points, ends=("0", "1"), diagonal=True, note=note)


def _intervals(judges: Sequence[JudgeReport]) -> dict[str, list[Interval | None]]:
    """Return each figure that some judge has, with that of every judge."""
    figures = {}
    for name, figure in _FIGURES.items():
        intervals = [figure(judge) for judge in judges]
        if any(intervals):
            figures[name] = intervals
    return figures


def judges_table(report: JudgingReport) -> Table:
    known = _intervals(report.judges)
    rows: list[Row] = []
    for at, judge in enumerate(report.judges):
        cells = []
        for intervals in known.values():
            interval = intervals[at]
            cells.append(Cell(interval.text, share=interval.value) if interval else None)
        cost = judge.cost
        if cost.usd is None:
            usd = None
        else:
            usd = f"{cost.usd:.6f}"
        milliseconds = "cached" if cost.milliseconds is None else round(cost.milliseconds)
        name = Cell(judge.title, "" if judge.model == judge.judge else judge.model)
        rows.append([name, *cells, cost.calls, usd, milliseconds])
    return Table(["judge", *known, "calls", "USD", "ms"], rows)


def outcomes_table(report: JudgingReport, *, disputed: bool = False) -> Table:
    """Return the table of what each judge said of each item, or of those alone that they disagree about."""
    names = [judge.judge for judge in report.judges]
    titles = [judge.title for judge in report.judges]
    listed = [each for each in report.outcomes if each.is_disputed or not disputed]
    words = {True: "differ", False: "agree"}
    rows = []
    for each in listed:
        rows.append([each.id, words[each.is_disputed], each.label, *map(each.said.get, names)])
    return Table(["item", "judges", "label", *titles], rows)


def _figures(judges: Sequence[JudgeReport], intervals: Sequence[Interval | None]) -> list[Figure]:
    is_signed = any(interval.low < 0 for interval in intervals if interval)
    least = -1.0 if is_signed else 0.0
    figures = []
    for judge, interval in zip(judges, intervals, strict=True):
        if interval:
            figures.append(Figure(judge.title, interval.value, interval, least=least))
    return figures


def kpi_page(evidence: Evidence) -> str:
    over_time = Section(_TEXTS["days"], [kpi_charts(evidence)])
    sections = [Section("All verdicts", [_kpi_table(evidence)]), over_time]
    for group in kpi.by_rubric_and_model(evidence):
        sections += [
            Section(name, [_kpi_table(part)]) for name, part in group.items() if len(group) > 1
        ]
    labelled = sum(map(evidence.sure, evidence.verdicts))
    about = _TEXTS["kpis"].format(verdicts=len(evidence.verdicts), labelled=labelled)
    return page("The gate's KPIs", about, sections)


def _kpi_table(evidence: Evidence) -> Table:
    rows: list[Row] = []
    for one in [*kpi.measure(evidence), *kpi.reliance(evidence)]:
        limit = one.limit
        span = limit.range_text(one.interval) if one.interval else None
        value = None if one.value is None else limit.text(one.value)
        rows.append([limit.title, value, span, one.total, str(limit), one.state])
    return Table(["KPI", "value", "95% interval", "out of", "limit", "state"], rows)


def kpi_days(evidence: Evidence) -> dict[date, list[Kpi]]:
    """Return the measures over the seven days up to the end of each day, from the first verdict's on."""
    dates = sorted(verdict.timestamp.astimezone(UTC).date() for verdict in evidence.verdicts)
    days = {}
    for count in range((dates[-1] - dates[0]).days + 1 if dates else 0):
        day = dates[0] + timedelta(days=count)
        end = datetime.combine(day + timedelta(days=1), time(), UTC)
        within = []
        for each in evidence.verdicts:
            if end - timedelta(days=7) <= each.timestamp < end:
                within.append(each)
        days[day] = kpi.measure(evidence.only(within))
    return days


def kpi_charts(evidence: Evidence) -> list[Chart]:
    days = kpi_days(evidence)
    dates = [day.isoformat() for day in days] or [""]
    ends = (dates[0], dates[-1] if len(dates) > 1 else "")
    charts = []
    for at, name in enumerate(name for name in kpi.LIMITS if name not in kpi.RELIANCE):
        charts.append(_kpi_chart(kpi.LIMITS[name], [kpis[at] for kpis in days.values()], ends))
    return charts


def _kpi_chart(limit: Limit, kpis: Sequence[Kpi], ends: tuple[str, str]) -> Chart:
    """Return a chart of one measure, day by day."""
    top = 1.0
    if limit.unit == "seconds":
        top = max([2 * (limit.high or 1), *(each.value for each in kpis if each.value)])
    points: list[Point | None] = []
    for place, each in enumerate(kpis):
        if each.value is None:
            points.append(None)
        else:
            left = place / max(1, len(kpis) - 1)
            points.append((left, _height(each.value, each.interval, top)))
    guides = []
    for edge in (limit.low, limit.high):
        if edge is not None:
            guides.append((edge / top, limit.text(edge)))
    note = ""
    if kpis and kpis[-1].value is not None:
        note = f"last {limit.text(kpis[-1].value)}"
    return Chart(limit.title, points, ends, guides, note=note)


def _height(value: float, interval: Interval | None, top: float) -> Interval:
    """Return a value and its bounds as parts of the greatest height."""
    low, high = interval.bounds if interval else (value, value)
    return Interval(min(value / top, 1.0), low=min(low / top, 1.0), high=min(high / top, 1.0))
