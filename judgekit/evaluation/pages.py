"""The pages about judges on labelled cases and about the gate's KPIs."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

from judgekit import environment
from judgekit.evaluation.page import (
    Cell,
    Chart,
    Figure,
    Foot,
    Section,
    Table,
    format_cell,
    page,
    shares,
)
from judgekit.evaluation.row_views import Column, RowList, filled, scores_text, shown_text
from judgekit.ledger import kpi
from judgekit.ledger.rates import Interval
from judgekit.text import counted, short_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.evaluation.cases import Case
    from judgekit.evaluation.page import Point
    from judgekit.evaluation.report import JudgeReport, JudgingReport, Outcome, Probabilities
    from judgekit.evaluation.row_views import RowView, ShownRows
    from judgekit.ledger.kpi import Evidence, Kpi, Limit

MAX_WORDS = 30  # nobody reads a table of a thousand columns
CHANGES_WITH_ORDER = "verdict changes with another order"
CHANGES_WHEN_ASKED_AGAIN = "verdict changes when asked again"
LIFT = "effect of injected text"
GAP = "accuracy gap to the best"
NO_FOOT = Foot()
_NAME_CHARS = 40
_TABLE: dict[str, Any] = environment.read_toml(__file__, "pages.toml")
_TEXTS: dict[str, str] = _TABLE["texts"]
_EXPLANATIONS: dict[str, str] = _TABLE["figures"]


def judging_page(report: JudgingReport, cases: Sequence[Case] = (), foot: Foot = NO_FOOT) -> str:
    """Render the page that compares judges on labelled cases. `cases` contains the texts to show."""
    # the description and the tables of figures
    rubric = f", rubric {report.rubric}, {report.mode}" if report.rubric else ""
    judges = report.judges
    about = f"{counted(report.items, 'labelled item', 'labelled items')}{rubric}."
    table = judges_table(report)
    sections = [Section("Judges", [table, *_explain_figures(table, report)])]
    for name, intervals in _collect_intervals(judges).items():
        sections.append(Section(name.capitalize(), [_build_figures(judges, intervals)]))

    # curves that compare the judges' probabilities with the labels
    curves = []
    for judge in judges:
        if judge.probabilities:
            curves.append(_draw_reliability(judge.title, judge.probabilities))
    if curves:
        sections.append(Section("Reliability", [_TEXTS["reliability"], curves]))

    # tables of how often each label got each answer
    for judge in judges:
        if len(judge.classes) > MAX_WORDS:
            note = f"{len(judge.classes)} different words are too many for a table."
            sections.append(Section(judge.title, [note]))
        elif judge.confusion:
            sections.append(_build_confusion_section(judge))

    return page(
        f"Judges on {report.file}",
        about,
        sections,
        headline=_describe_judges(judges),
        rows=list_outcomes(report, cases) if report.outcomes else None,
        foot=foot,
    )


def _describe_judges(judges: Sequence[JudgeReport]) -> str:
    """Describe the most accurate judge in one line. Returns "" if no accuracy is known."""
    measured = [judge for judge in judges if judge.accuracy]
    if not measured:
        return ""
    best = max(measured, key=lambda judge: judge.accuracy.value if judge.accuracy else 0)
    assert best.accuracy is not None  # noqa: S101 - it's one of `measured`
    low, high = (f"{100 * bound:.0f}" for bound in best.accuracy.bounds)
    text = f"{100 * best.accuracy.value:.1f} % ({low} to {high})"
    if len(judges) == 1:
        return f"accuracy {text}"
    return f"most accurate: {short_line(best.title, _NAME_CHARS)}, {text}"


def _explain_figures(table: Table, report: JudgingReport) -> list[str]:
    """List notes that explain the figures in a table's columns."""
    notes = [_TEXTS["intervals"].format(boot=report.bootstrap)]
    for name, explanation in _EXPLANATIONS.items():
        if name in table.columns:
            notes.append(f"{name.capitalize()}: {explanation}")
    return notes


def list_outcomes(report: JudgingReport, cases: Sequence[Case]) -> ShownRows:
    """List each judged item with its texts and each judge's answer, for the searchable list on the page.

    An item is a case, or a candidate of a case.
    """
    columns = [Column("item", "id")]
    for judge_number, judge in enumerate(report.judges):
        columns.append(Column(short_line(judge.title, _NAME_CHARS), f"said {judge_number}"))
    columns += [Column("label", "label"), Column("judges", "flags"), Column("text", "text")]
    rows = RowList(columns)

    case_by_id = {case.id: case for case in cases if case.variant == "original"}
    for outcome in report.outcomes:
        case = case_by_id.get(outcome.id)
        candidate = None
        if case is None:  # The item is a candidate, with an id such as CASE/CANDIDATE.
            case_id, _, candidate = outcome.id.partition("/")
            case = case_by_id.get(case_id)

        named_texts = []
        if case is not None:
            for name, text in case.texts(candidate).items():
                named_texts.append([name, [shown_text(text)]])

        view = filled(
            id=shown_text(outcome.id), label=format_cell(outcome.label), texts=named_texts
        )
        view["judged"] = [_describe_answer(outcome, judge, case) for judge in report.judges]
        if len(report.judges) > 1:
            view["flags"] = ["differ" if outcome.is_disputed else "agree"]
        rows.add(view)
    return rows.finish()


def _describe_answer(outcome: Outcome, judge: JudgeReport, case: Case | None) -> RowView:
    """Describe a judge's answer about an item, with the recorded scores, or why there's no answer."""
    answer = outcome.said.get(judge.judge)
    view = {
        "by": shown_text(judge.title),
        "said": "" if answer is None else shown_text(format_cell(answer)),
    }
    recorded = case.judges.get(judge.judge) if case else None
    if recorded is None:
        return view
    error = ""
    if answer is None:
        error = recorded.failure or "unreadable"
    return {**view, **filled(scores=scores_text(recorded.scores or {}), error=shown_text(error))}


def _build_confusion_section(judge: JudgeReport) -> Section:
    """Build the section with a table of a judge's answers by label."""
    counts: dict[str, dict[str, int]] = {}
    for pair in judge.confusion:
        counts.setdefault(pair.label, {})[pair.said] = pair.count
    title = f"{judge.title}: labels and answers"
    return Section(title, [shares("labelled", counts)])


def _draw_reliability(title: str, probabilities: Probabilities) -> Chart:
    """Draw a judge's reliability diagram: the fraction of relevant items at each confidence."""
    points = []
    for group in probabilities.bins:
        fraction = Interval(group.relevant, low=group.relevant, high=group.relevant)
        points.append((group.confidence, fraction))
    note = f"ECE {probabilities.ece:.3f}"
    return Chart(title, points, ends=("0", "1"), diagonal=True, note=note)


def _collect_intervals(judges: Sequence[JudgeReport]) -> dict[str, list[Interval | None]]:
    """Collect each figure's intervals, one per judge.

    The interval is None for a judge without that figure.
    """
    figures: dict[str, list[Interval | None]] = {}
    for judge in judges:
        for name, interval in _map_intervals(judge).items():
            figures.setdefault(name, []).append(interval)
    return {name: intervals for name, intervals in figures.items() if any(intervals)}


def _map_intervals(judge: JudgeReport) -> dict[str, Interval | None]:
    """Map each figure's title to the judge's interval, or to None if the judge lacks that figure."""
    spread = None
    if judge.spread:
        spread = judge.spread.distance
    lift = None
    if judge.injection:
        lift = judge.injection.lift
    mean_error = None
    correlation = None
    if judge.scores:
        mean_error = judge.scores.mean_error
        correlation = judge.scores.spearman

    return {
        "accuracy": judge.accuracy,
        "Cohen's kappa": judge.kappa,
        "weighted kappa": judge.weighted_kappa,
        "unreadable": judge.unreadable,
        CHANGES_WITH_ORDER: judge.order_flips.rate,
        CHANGES_WHEN_ASKED_AGAIN: judge.rerun_flips.rate,
        "spread of the distance": spread,
        LIFT: lift,
        "mean error of scores": mean_error,
        "Spearman's correlation": correlation,
        GAP: judge.behind,
    }


def judges_table(report: JudgingReport) -> Table:
    """Build a table with a row for each judge: its figures, calls and cost per case, and median latency."""
    figures = _collect_intervals(report.judges)
    rows = []
    for number, judge in enumerate(report.judges):
        cells = []
        for intervals in figures.values():
            interval = intervals[number]
            cells.append(Cell(interval.text, share=interval.value) if interval else None)

        cost = judge.cost
        usd = None if cost.usd is None else f"{cost.usd:.6f}"
        milliseconds = "cached" if cost.milliseconds is None else round(cost.milliseconds)
        model = "" if judge.model == judge.judge else judge.model
        name = Cell(judge.title, below=model)
        rows.append([name, *cells, cost.calls, usd, milliseconds])
    return Table(["judge", *figures, "calls", "USD", "ms"], rows)


def outcomes_table(report: JudgingReport, *, disputed: bool = False) -> Table:
    """Build a table of the judges' answers about each item. If `disputed`, omit items on which they agree."""
    titles = [judge.title for judge in report.judges]
    rows = []
    for outcome in report.outcomes:
        if disputed and not outcome.is_disputed:
            continue
        agreement = "differ" if outcome.is_disputed else "agree"
        answers = [outcome.said.get(judge.judge) for judge in report.judges]
        rows.append([outcome.id, agreement, outcome.label, *answers])
    return Table(["item", "judges", "label", *titles], rows)


def _build_figures(
    judges: Sequence[JudgeReport], intervals: Sequence[Interval | None]
) -> list[Figure]:
    """Build a figure for each judge that has an interval, on a common scale."""
    minimum = 0.0
    if any(interval and interval.low < 0 for interval in intervals):
        minimum = -1.0
    figures = []
    for judge, interval in zip(judges, intervals, strict=True):
        if interval:
            figures.append(Figure(judge.title, interval.value, interval, minimum=minimum))
    return figures


def kpi_page(evidence: Evidence, foot: Foot = NO_FOOT) -> str:
    """Render the page about the gate's KPIs, for all verdicts, by day, by rubric and by model."""
    over_time = Section(_TEXTS["days"], [kpi_charts(evidence)])
    sections = [Section("All verdicts", [_build_kpi_table(evidence)]), over_time]
    for evidence_by_name in kpi.split_by_rubric_and_model(evidence):
        if len(evidence_by_name) > 1:  # a single part would repeat the table for all verdicts
            for name, evidence_part in evidence_by_name.items():
                sections.append(Section(name, [_build_kpi_table(evidence_part)]))
    labelled = sum(map(evidence.has_clear_label, evidence.verdicts))
    about = _TEXTS["kpis"].format(verdicts=len(evidence.verdicts), labelled=labelled)
    headline = _describe_kpis(kpi.measure_kpis(evidence))
    return page("The gate's KPIs", about, sections, headline=headline, foot=foot)


def _describe_kpis(kpis: Sequence[Kpi]) -> str:
    """Describe in one line how many KPIs hold, and which are missed."""
    holding = [measure for measure in kpis if measure.state == "holds"]
    missed = [measure.limit.title for measure in kpis if measure.state == "missed"]
    text = f"{len(holding)} of {len(kpis)} KPIs hold"
    if missed:
        text += f"; missed: {', '.join(missed)}"
    return text


def _build_kpi_table(evidence: Evidence) -> Table:
    """Build the table of KPIs with their values, intervals and limits."""
    rows = []
    for measure in [*kpi.measure_kpis(evidence), *kpi.measure_reliance(evidence)]:
        limit = measure.limit
        span = limit.range_text(measure.interval) if measure.interval else None
        value = None if measure.value is None else limit.text(measure.value)
        rows.append([limit.title, value, span, measure.total, str(limit), measure.state])
    return Table(["KPI", "value", "95% interval", "out of", "limit", "state"], rows)


def kpi_days(evidence: Evidence) -> dict[date, list[Kpi]]:
    """Measure the KPIs for each day, over the seven days that end with it.

    The days are in UTC, from the day of the first verdict to the day of the latest.
    """
    days: dict[date, list[Kpi]] = {}
    if not evidence.verdicts:
        return days

    moments = [verdict.timestamp for verdict in evidence.verdicts]
    day = min(moments).astimezone(UTC).date()
    last_day = max(moments).astimezone(UTC).date()
    while day <= last_day:
        tomorrow = day + timedelta(days=1)
        end = datetime.combine(tomorrow, time(), UTC)
        start = end - timedelta(days=7)
        verdicts_of_week = [
            verdict for verdict in evidence.verdicts if start <= verdict.timestamp < end
        ]
        days[day] = kpi.measure_kpis(evidence.restrict_to(verdicts_of_week))
        day = tomorrow
    return days


def kpi_charts(evidence: Evidence) -> list[Chart]:
    """Draw a chart of each KPI by day. The axis is labelled with the first and last day."""
    days = kpi_days(evidence)
    dates = list(map(str, days)) or [""]
    last_date = dates[-1] if len(dates) > 1 else ""  # don't repeat a single day
    names = [name for name in kpi.LIMITS if name not in kpi.RELIANCE]
    charts = []
    for index, name in enumerate(names):  # `measure_kpis` returns the KPIs in this order
        daily = [measures[index] for measures in days.values()]
        charts.append(_draw_kpi_chart(kpi.LIMITS[name], daily, (dates[0], last_date)))
    return charts


def _draw_kpi_chart(limit: Limit, kpis: Sequence[Kpi], ends: tuple[str, str]) -> Chart:
    """Draw a chart of a KPI by day. A day without a value interrupts the line.

    `kpis` contains a measure for each day, and `ends` are the labels at the ends of the time axis.
    """
    top = 1.0  # the value at full height
    if limit.unit == "seconds":
        values = [measure.value or 0.0 for measure in kpis]
        top = max([2 * (limit.high or 1), *values])  # so that the limit is at half height or below

    points: list[Point | None] = []
    for day_number, measure in enumerate(kpis):
        if measure.value is None:
            points.append(None)
        else:
            position = day_number / max(1, len(kpis) - 1)
            height = _scale_to_height(measure.value, measure.interval, top)
            points.append((position, height))

    # lines across the chart that show the limits
    guides = []
    for edge in (limit.low, limit.high):
        if edge is not None:
            guides.append((edge / top, limit.text(edge)))

    note = ""
    if kpis and kpis[-1].value is not None:
        note = f"last {limit.text(kpis[-1].value)}"
    return Chart(limit.title, points, ends, guides, note=note)


def _scale_to_height(value: float, interval: Interval | None, top: float) -> Interval:
    """Scale a value and its bounds to fractions of the chart's height. `top` is the value at full height."""

    def scale(value_or_bound: float) -> float:
        return min(value_or_bound / top, 1.0)

    low_value, high_value = interval.bounds if interval else (value, value)
    return Interval(scale(value), scale(low_value), scale(high_value))
