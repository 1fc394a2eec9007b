"""The pages about judges on labelled cases and about the gate's KPIs."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING

from judgekit import environment
from judgekit.evaluation.page import Cell, Chart, Figure, Row, Section, Table, page, shares
from judgekit.ledger import kpi

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from judgekit.evaluation.report import JudgeReport, JudgingReport
    from judgekit.evaluation.stats import BootstrapInterval
    from judgekit.ledger.kpi import Evidence, Kpi

MOST_WORDS = 30  # nobody reads a table of a thousand columns
_FIGURES: dict[str, Callable[[JudgeReport], BootstrapInterval | None]] = {
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
    sections += [
        Section(name.capitalize(), [_spreads(judges, own)]) for name, own in _known(judges).items()
    ]
    curves = []
    for judge in judges:
        if found := judge.probabilities:
            points = []
            for one in found.bins:
                points.append((one.confidence, one.relevant, one.relevant, one.relevant))
            curves.append(
                Chart(judge.title, points, ("0", "1"), diagonal=True, note=f"ECE {found.ece:.3f}")
            )
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


def _known(judges: Sequence[JudgeReport]) -> dict[str, list[BootstrapInterval | None]]:
    figures = {}
    for name, figure in _FIGURES.items():
        figures[name] = [figure(judge) for judge in judges]
    return {name: spreads for name, spreads in figures.items() if any(spreads)}


def judges_table(report: JudgingReport) -> Table:
    known = _known(report.judges)
    rows: list[Row] = []
    for at, judge in enumerate(report.judges):
        spans = [spreads[at] for spreads in known.values()]
        cost = judge.cost
        cells = []
        for one in spans:
            cells.append(
                Cell(f"{one.value:.3f} [{one.low:.3f}, {one.high:.3f}]", share=one.value)
                if one
                else None
            )
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


def _spreads(
    judges: Sequence[JudgeReport], spreads: Sequence[BootstrapInterval | None]
) -> list[Figure]:
    least = min((spread.low for spread in spreads if spread), default=0.0)
    return [
        Figure(judge.title, spread.value, spread.low, spread.high, least=-1.0 if least < 0 else 0.0)
        for judge, spread in zip(judges, spreads, strict=True)
        if spread
    ]


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
        if one.interval:
            span = " to ".join(map(limit.text, one.interval))
        else:
            span = None
        if one.value is None:
            value = None
        else:
            value = limit.text(one.value)
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
    charts: list[Chart] = []
    ends = [day.isoformat() for day in days] or [""]
    for at, limit in enumerate(
        limit for name, limit in kpi.LIMITS.items() if name not in kpi.RELIANCE
    ):
        measures = [kpis[at] for kpis in days.values()]
        top = 1.0
        points = []
        if limit.unit == "seconds":
            top = max([2 * (limit.high or 1), *(each.value for each in measures if each.value)])
        for place, each in enumerate(measures):
            if each.value is None:
                span = []
            else:
                span = [each.value, *(each.interval or [each.value] * 2)]
            where = place / max(1, len(days) - 1)
            points.append((where, *(min(one / top, 1.0) for one in span)) if span else None)
        guides = []
        for edge in (limit.low, limit.high):
            if edge is not None:
                guides.append((edge / top, limit.text(edge)))
        if measures:
            last = measures[-1].value
        else:
            last = None
        if last is None:
            note = ""
        else:
            note = f"last {limit.text(last)}"
        sides = (ends[0], ends[-1] if len(ends) > 1 else "")
        charts.append(Chart(limit.title, points, sides, guides, note=note))
    return charts
