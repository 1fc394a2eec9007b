"""The six KPIs over time as a picture: SVG, alone or in a page of HTML."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, NamedTuple

from judgekit.charts import series, svg
from judgekit.charts.page import Page
from judgekit.charts.series import Moment, Series
from judgekit.ledger import kpi
from judgekit.ledger.standing import number, said

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.charts.library import Paint
    from judgekit.ledger.kpi import Evidence, Kpi
    from judgekit.ledger.records import VerdictLine

ROLLING = timedelta(days=7)
TITLE = "KPIs of the gate, each over the seven days before"


class Point(NamedTuple):
    """The measures over the `ROLLING` days up to the end of `day`."""

    day: datetime
    kpis: list[Kpi]


def drawing(found: Evidence) -> str:
    """Return an SVG with a panel a KPI: its value over seven days, its interval, its limits.

    Raises `UsageError` where what draws it is not installed; so does `html`.
    """
    points = points_of(found)
    return svg.document(_paint(points), TITLE, _words(points))


def html(found: Evidence) -> str:
    """Return a page with the picture in it."""
    points = points_of(found)
    page = Page("The gate's KPIs")
    page.chart(TITLE, _paint(points), _words(points))
    return page.text()


def points_of(found: Evidence) -> list[Point]:
    """Return a point for each day from the first verdict to the last."""
    days = sorted({each.timestamp.astimezone(UTC).date() for each in found.verdicts})
    if not days:
        return []
    ends = [
        datetime.combine(days[0] + timedelta(days=number + 1), time(), UTC)
        for number in range((days[-1] - days[0]).days + 1)
    ]
    return [Point(end, kpi.measure(found.only(_within(found, end)))) for end in ends]


def _within(found: Evidence, end: datetime) -> Sequence[VerdictLine]:
    return [each for each in found.verdicts if end - ROLLING <= each.timestamp < end]


def _words(points: Sequence[Point]) -> str:
    """Return in words what the picture shows of the last day."""
    return "; ".join(said(each) for each in points[-1].kpis) if points else "nothing measured yet"


def _paint(points: Sequence[Point]) -> Paint:
    days = [(each.day - timedelta(days=1)).date().isoformat() for each in points]
    found = [_series(limit, [each.kpis[place] for each in points]) for place, limit in enumerate(_LIMITS)]
    return series.chart(days, found)


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
