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
    build_share_table,
    format_cell,
    render_page,
)
from judgekit.evaluation.row_views import Column, RowList, clean_text, drop_empty, format_scores
from judgekit.ledger import kpi
from judgekit.ledger.rates import Interval
from judgekit.text import format_count, shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.evaluation.cases import Case
    from judgekit.evaluation.page import Point, Row
    from judgekit.evaluation.report import JudgeReport, JudgingReport, Outcome, Probabilities
    from judgekit.evaluation.row_views import RowView, ShownRows
    from judgekit.ledger.kpi import Evidence, Kpi, Limit

MAX_TABLE_CLASSES = 30  # nobody reads a table of a thousand columns
CHANGES_WITH_ORDER = "verdict changes with another order"
CHANGES_WHEN_ASKED_AGAIN = "verdict changes when asked again"
LIFT = "effect of injected text"
GAP = "accuracy gap to the best"
NO_FOOT = Foot()
_NAME_CHARS = 40
_PAGE_TEXTS_TABLE: dict[str, Any] = environment.read_toml(__file__, "pages.toml")
_TEXTS: dict[str, str] = _PAGE_TEXTS_TABLE["texts"]
_EXPLANATIONS: dict[str, str] = _PAGE_TEXTS_TABLE["figures"]


def render_judging_page(
    report: JudgingReport, cases: Sequence[Case] = (), foot: Foot = NO_FOOT
) -> str:
    """Render the page that compares judges on labelled cases. `cases` contains the texts to show."""
    judges = report.judges
    rubric = f", rubric {report.rubric}, {report.mode}" if report.rubric else ""
    about = f"{format_count(report.items, 'labelled item', 'labelled items')}{rubric}."
    sections = [
        *_build_figure_sections(report),
        *_build_reliability_sections(judges),
        *_build_answer_sections(judges),
    ]
    return render_page(
        f"Judges on {report.file}",
        about,
        sections,
        headline=_describe_judges(judges),
        rows=list_outcomes(report, cases) if report.outcomes else None,
        foot=foot,
    )


def _build_figure_sections(report: JudgingReport) -> list[Section]:
    """Build a section with a table of all figures, then a section for each figure with its drawings."""
    table = build_judges_table(report)
    sections = [Section("Judges", [table, *_explain_figures(table, report)])]
    for name, intervals in _collect_intervals(report.judges).items():
        drawings = _build_figures(report.judges, intervals)
        sections.append(Section(name.capitalize(), [drawings]))
    return sections


def _build_reliability_sections(judges: Sequence[JudgeReport]) -> list[Section]:
    """Build the section with curves that compare the judges' probabilities with the labels.

    Returns [] if no judge gave probabilities.
    """
    curves = []
    for judge in judges:
        if judge.probabilities:
            curves.append(_draw_reliability(judge.title, judge.probabilities))
    if not curves:
        return []
    return [Section("Reliability", [_TEXTS["reliability"], curves])]


def _build_answer_sections(judges: Sequence[JudgeReport]) -> list[Section]:
    """Build a section for each judge, with a table of how often each label got each answer."""
    sections = []
    for judge in judges:
        if len(judge.classes) > MAX_TABLE_CLASSES:
            note = f"{len(judge.classes)} different words are too many for a table."
            sections.append(Section(judge.title, [note]))
        elif judge.confusion:
            sections.append(_build_confusion_section(judge))
    return sections


def _describe_judges(judges: Sequence[JudgeReport]) -> str:
    """Describe the most accurate judge in one line. Returns "" if no accuracy is known."""
    best_title = ""
    best_accuracy = None
    for judge in judges:
        if judge.accuracy is None:
            continue
        if best_accuracy is None or judge.accuracy.value > best_accuracy.value:
            best_title = judge.title
            best_accuracy = judge.accuracy
    if best_accuracy is None:
        return ""

    text = _format_accuracy(best_accuracy)
    if len(judges) == 1:
        return f"accuracy {text}"
    return f"most accurate: {shorten_to_line(best_title, _NAME_CHARS)}, {text}"


def _format_accuracy(accuracy: Interval) -> str:
    """Format an accuracy in percent, such as 91.5 % (88 to 94)."""
    low, high = accuracy.bounds
    return f"{100 * accuracy.value:.1f} % ({100 * low:.0f} to {100 * high:.0f})"


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
    rows = RowList(_list_columns(report.judges))
    # The outcomes are only about original cases, not about variants such as reruns.
    case_by_id = {case.id: case for case in cases if case.variant == "original"}
    for outcome in report.outcomes:
        case, candidate = _find_case(outcome.id, case_by_id)
        view = drop_empty(
            id=clean_text(outcome.id),
            label=format_cell(outcome.label),
            texts=_list_texts(case, candidate),
        )
        view["judged"] = [_describe_answer(outcome, judge, case) for judge in report.judges]
        if len(report.judges) > 1:
            view["flags"] = ["differ" if outcome.is_disputed else "agree"]
        rows.add(view)
    return rows.finish()


def _list_columns(judges: Sequence[JudgeReport]) -> list[Column]:
    """List the columns: the item, each judge's answer, the label, if the judges agree, and the text."""
    columns = [Column("item", "id")]
    for judge_number, judge in enumerate(judges):
        title = shorten_to_line(judge.title, _NAME_CHARS)
        columns.append(Column(title, f"said {judge_number}"))
    columns.append(Column("label", "label"))
    columns.append(Column("judges", "flags"))
    columns.append(Column("text", "text"))
    return columns


def _find_case(item_id: str, case_by_id: Mapping[str, Case]) -> tuple[Case | None, str | None]:
    """Find an item's case and candidate. Only an item with an id such as CASE/CANDIDATE has a candidate."""
    # Try the entire id first, because a case's own id can contain a slash.
    if item_id in case_by_id:
        return case_by_id[item_id], None
    case_id, _, candidate = item_id.partition("/")
    return case_by_id.get(case_id), candidate


def _list_texts(case: Case | None, candidate: str | None) -> list[list[Any]]:
    """List a case's texts, each with its heading. Returns [] if the case isn't known."""
    if case is None:
        return []
    named_texts = []
    for name, text in case.collect_texts(candidate).items():
        # The page expects a text in segments, every other one a quote. Here, nothing is quoted.
        segments = [clean_text(text)]
        named_texts.append([name, segments])
    return named_texts


def _describe_answer(outcome: Outcome, judge: JudgeReport, case: Case | None) -> RowView:
    """Describe a judge's answer about an item, with the recorded scores, or why there's no answer."""
    answer = outcome.said.get(judge.judge)
    said = "" if answer is None else clean_text(format_cell(answer))
    view = {"by": clean_text(judge.title), "said": said}

    recorded = case.judges.get(judge.judge) if case else None
    if recorded is None:
        return view

    error = ""
    if answer is None:
        error = recorded.failure or "unreadable"
    scores = format_scores(recorded.scores or {})
    details = drop_empty(scores=scores, error=clean_text(error))
    return {**view, **details}


def _build_confusion_section(judge: JudgeReport) -> Section:
    """Build the section with a table of a judge's answers by label."""
    counts: dict[str, dict[str, int]] = {}
    for pair in judge.confusion:
        counts.setdefault(pair.label, {})[pair.said] = pair.count
    title = f"{judge.title}: labels and answers"
    return Section(title, [build_share_table("labelled", counts)])


def _draw_reliability(title: str, probabilities: Probabilities) -> Chart:
    """Draw a judge's reliability diagram: the fraction of items labelled "accept" at each probability."""
    points = []
    for group in probabilities.bins:
        accepted_fraction = group.relevant
        # A chart's points need an interval, but none was computed for these.
        height = Interval(accepted_fraction, low=accepted_fraction, high=accepted_fraction)
        points.append((group.confidence, height))
    note = f"ECE {probabilities.ece:.3f}"
    return Chart(title, points, ends=("0", "1"), diagonal=True, note=note)


def _collect_intervals(judges: Sequence[JudgeReport]) -> dict[str, list[Interval | None]]:
    """Collect each figure's intervals, one per judge, or None for a judge without that figure.

    Figures that no judge has are omitted.
    """
    intervals_by_figure: dict[str, list[Interval | None]] = {}
    for judge in judges:
        for figure, interval in _map_intervals(judge).items():
            intervals_by_figure.setdefault(figure, []).append(interval)
    return {
        figure: intervals for figure, intervals in intervals_by_figure.items() if any(intervals)
    }


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
    gap_to_best = judge.behind

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
        GAP: gap_to_best,
    }


def build_judges_table(report: JudgingReport) -> Table:
    """Build a table with a row for each judge: its figures, calls and cost per case, and median latency."""
    figures = _collect_intervals(report.judges)
    rows = []
    for number, judge in enumerate(report.judges):
        judge_intervals = [intervals[number] for intervals in figures.values()]
        rows.append(_build_judge_row(judge, judge_intervals))
    return Table(["judge", *figures, "calls", "USD", "ms"], rows)


def _build_judge_row(judge: JudgeReport, intervals: Sequence[Interval | None]) -> Row:
    """Build a judge's row, with None for a figure that it lacks."""
    # A judge that's named after its model already shows the model in its title.
    is_named_after_model = judge.judge == judge.model
    name = Cell(judge.title, below="" if is_named_after_model else judge.model)
    cells = []
    for interval in intervals:
        cells.append(Cell(interval.text, share=interval.value) if interval else None)

    cost = judge.cost
    usd = None if cost.usd is None else f"{cost.usd:.6f}"
    # Without a latency, all replies came from the cache.
    milliseconds = "cached" if cost.milliseconds is None else round(cost.milliseconds)
    return [name, *cells, cost.calls, usd, milliseconds]


def build_outcomes_table(report: JudgingReport, *, disputed: bool = False) -> Table:
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
    """Build a drawing of each judge's interval. A judge without an interval gets none."""
    # All drawings have the same scale, so that they can be compared.
    scale_start = 0.0
    if any(interval and interval.low < 0 for interval in intervals):
        scale_start = -1.0
    figures = []
    for judge, interval in zip(judges, intervals, strict=True):
        if interval:
            figures.append(Figure(judge.title, interval.value, interval, minimum=scale_start))
    return figures


def render_kpi_page(evidence: Evidence, foot: Foot = NO_FOOT) -> str:
    """Render the page about the gate's KPIs, for all verdicts, by day, by rubric and by model."""
    sections = [
        Section("All verdicts", [_build_kpi_table(evidence)]),
        Section(_TEXTS["days"], [draw_kpi_charts(evidence)]),
        *_build_part_sections(evidence),
    ]
    labelled = sum(evidence.has_clear_label(verdict) for verdict in evidence.verdicts)
    about = _TEXTS["kpis"].format(verdicts=len(evidence.verdicts), labelled=labelled)
    headline = _describe_kpis(kpi.measure_kpis(evidence))
    return render_page("The gate's KPIs", about, sections, headline=headline, foot=foot)


def _build_part_sections(evidence: Evidence) -> list[Section]:
    """Build a section with the KPIs of each rubric and of each model."""
    sections = []
    for evidence_by_name in kpi.split_by_rubric_and_model(evidence):
        if len(evidence_by_name) == 1:
            continue  # a single part would repeat the table for all verdicts
        for name, evidence_part in evidence_by_name.items():
            sections.append(Section(name, [_build_kpi_table(evidence_part)]))
    return sections


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
        value = None if measure.value is None else limit.format_value(measure.value)
        rows.append([limit.title, value, span, measure.sample_size, str(limit), measure.state])
    return Table(["KPI", "value", "95% interval", "out of", "limit", "state"], rows)


def measure_kpis_by_day(evidence: Evidence) -> dict[date, list[Kpi]]:
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


def draw_kpi_charts(evidence: Evidence) -> list[Chart]:
    """Draw a chart of each KPI by day. The axis is labelled with the first and last day."""
    measures_by_day = measure_kpis_by_day(evidence)
    ends = _label_ends([str(day) for day in measures_by_day])
    # Each day's measures are in the order of `LIMITS`, without the KPIs of reliance.
    names = [name for name in kpi.LIMITS if name not in kpi.RELIANCE_KPIS]
    charts = []
    for index, name in enumerate(names):
        daily_measures = [measures[index] for measures in measures_by_day.values()]
        charts.append(_draw_kpi_chart(kpi.LIMITS[name], daily_measures, ends))
    return charts


def _label_ends(dates: Sequence[str]) -> tuple[str, str]:
    """Label the axis with the first and last date. A single date isn't repeated at the other end."""
    if not dates:
        return "", ""
    if len(dates) == 1:
        return dates[0], ""
    return dates[0], dates[-1]


def _draw_kpi_chart(limit: Limit, kpis: Sequence[Kpi], ends: tuple[str, str]) -> Chart:
    """Draw a chart of a KPI by day. A day without a value interrupts the line.

    `kpis` contains a measure for each day, and `ends` are the labels at the ends of the time axis.
    """
    top = _choose_top(limit, kpis)
    points = _place_points(kpis, top)
    guides = _list_guides(limit, top)
    note = ""
    if kpis and kpis[-1].value is not None:
        note = f"last {limit.format_value(kpis[-1].value)}"
    return Chart(limit.title, points, ends, guides, note=note)


def _choose_top(limit: Limit, kpis: Sequence[Kpi]) -> float:
    """Choose the value at the chart's full height: 1 for a share, or enough seconds for all values."""
    if limit.unit != "seconds":
        return 1.0
    values = [measure.value or 0.0 for measure in kpis]
    twice_limit = 2 * (limit.high or 1)  # so that the limit is at half height or below
    return max([twice_limit, *values])


def _place_points(kpis: Sequence[Kpi], top: float) -> list[Point | None]:
    """Return each day's point in the chart, or None for a day without a value."""
    last_day_number = max(1, len(kpis) - 1)  # at least 1, because it's a divisor
    points: list[Point | None] = []
    for day_number, measure in enumerate(kpis):
        if measure.value is None:
            points.append(None)
            continue
        fraction_of_width = day_number / last_day_number
        height = _scale_to_height(measure.value, measure.interval, top)
        points.append((fraction_of_width, height))
    return points


def _scale_to_height(value: float, interval: Interval | None, top: float) -> Interval:
    """Scale a value and its bounds to fractions of the chart's height. `top` is the value at full height."""

    def scale(value_or_bound: float) -> float:
        return min(value_or_bound / top, 1.0)

    low_value, high_value = interval.bounds if interval else (value, value)
    return Interval(scale(value), scale(low_value), scale(high_value))


def _list_guides(limit: Limit, top: float) -> list[tuple[float, str]]:
    """List the lines across the chart that show the limits, by their heights and texts."""
    guides = []
    for edge in (limit.low, limit.high):
        if edge is not None:
            guides.append((edge / top, limit.format_value(edge)))
    return guides
