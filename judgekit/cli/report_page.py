"""The page of `judgekit report`: its headline, its rows and its foot."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from judgekit.cli.page_foot import build_foot
from judgekit.evaluation.page import INTERVALS, Section, format_points, render_page
from judgekit.evaluation.page import Difference as DifferenceFigure
from judgekit.text import format_count, shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from judgekit.data.labels import NamedColumns, ResultFile
    from judgekit.data.page_rows import Beside, PageRows, RowStore
    from judgekit.data.report import CorrectedRate, Difference, ResultsReport, WinRate
    from judgekit.data.rows import Rows
    from judgekit.evaluation.row_views import ShownRows

_RESULT_FIELDS = ("verdict", "label", "winner")  # the other ones are read from the judged file
_NAME_CHARS = 40


def shorten_names(first: str, second: str) -> tuple[str, str]:
    """Name two result files by their stems, or in full if the stems are equal."""
    first_name = PurePath(first).stem
    second_name = PurePath(second).stem
    if first_name == second_name:
        first_name = first
        second_name = second
    return shorten_to_line(first_name, _NAME_CHARS), shorten_to_line(second_name, _NAME_CHARS)


class PageSource(NamedTuple):
    """The sources of a page's rows: results, and the paths of second ones and of the judged file."""

    results: ResultFile
    second_path: str | None
    data_path: str | None
    columns: NamedColumns
    columns_of_data: NamedColumns


def split_columns(columns: NamedColumns) -> tuple[NamedColumns, NamedColumns]:
    """Split named columns into those of the results file and those of the judged file."""
    result_columns = {}
    data_columns = {}
    for field, column in columns.column_by_field.items():
        if field in _RESULT_FIELDS:
            result_columns[field] = column
        else:
            data_columns[field] = column
    return columns._replace(column_by_field=result_columns), columns._replace(
        column_by_field=data_columns
    )


def open_page_rows(source: PageSource, open_rows: Callable[[str], Rows]) -> PageRows:
    """Prepare the rows of a page. Second results and the judged file are read right away, if given."""
    from judgekit.data import page_rows

    first_name, second_results = _read_second_results(source, open_rows)
    texts = _read_judged_texts(source, open_rows)
    return page_rows.PageRows(source.results, first_name, beside=second_results, texts=texts)


def _read_second_results(
    source: PageSource, open_rows: Callable[[str], Rows]
) -> tuple[str, Beside | None]:
    """Read the second results, if given. Returns a short name for the first results, and the second.

    The name tells the two apart on the page, so it's "" without second results.
    """
    from judgekit.data import page_rows
    from judgekit.data.labels import open_results

    if source.second_path is None:
        return "", None
    second_rows = open_results(open_rows(source.second_path), source.columns)
    first_name, second_name = shorten_names(source.results.name, second_rows.name)
    return first_name, page_rows.read_second_results(second_rows, second_name)


def _read_judged_texts(source: PageSource, open_rows: Callable[[str], Rows]) -> RowStore | None:
    """Read the texts in the judged file, if it's given."""
    from judgekit.data import page_rows
    from judgekit.data.labels import read_texts

    if source.data_path is None:
        return None
    rows = open_rows(source.data_path)
    judged_texts = read_texts(rows, source.results.task, source.columns_of_data)
    return page_rows.store_texts(judged_texts)


def write_page(
    summary: ResultsReport,
    about: str,
    sections: Sequence[Section],
    rows: ShownRows,
    notices: Sequence[str],
) -> str:
    """Write the page of a report."""
    return render_page(
        f"Results of {summary.file}",
        about,
        sections,
        headline=describe_headline(summary),
        rows=rows,
        foot=build_foot([*notices, INTERVALS]),
    )


def build_difference(first: str, difference: Difference, note: str = "") -> DifferenceFigure:
    """Build the figure for the difference between the rates of second and first results."""
    assert difference.interval is not None  # noqa: S101 - the caller has checked it
    first_name, second_name = shorten_names(first, difference.file)
    return DifferenceFigure.of(f"{second_name} minus {first_name}", difference.interval, note)


def describe_headline(summary: ResultsReport) -> str:
    """Summarise results in a line, such as: accepted 86.5 %, corrected 84 to 89; 12 undetermined."""
    parts = []
    rate = summary.accept_rate
    if rate is not None:
        parts.append(_describe_rate(rate))
    elif summary.win_rates:
        parts.append(_describe_wins(summary.win_rates))

    difference = summary.difference
    if difference is not None and difference.interval is not None:
        figure = build_difference(summary.file, difference)
        low, high = map(format_points, difference.interval.bounds)
        parts.append(f"{figure.name}: {format_points(figure.value)} points ({low} to {high})")

    if summary.undetermined:
        parts.append(f"{summary.undetermined:,} undetermined")
    return "; ".join(parts) or format_count(summary.rows, "row", "rows")


def _describe_wins(win_rates: Mapping[str, WinRate]) -> str:
    """Describe how often each text wins, with intervals."""
    wins = []
    for letter, win in win_rates.items():
        bounds = f"{100 * win.low:.0f} to {100 * win.high:.0f}"
        wins.append(f"{letter} wins {100 * win.rate:.1f} % ({bounds})")
    return ", ".join(wins)


def _describe_rate(rate: CorrectedRate) -> str:
    """Describe the accept rate with its interval, corrected by labels if possible."""
    text = f"accepted {100 * rate.judged:.1f} %"
    if rate.interval is not None:
        low, high = rate.interval.bounds
        return f"{text}, corrected {100 * low:.0f} to {100 * high:.0f}"
    if rate.judged_interval is not None:
        low, high = rate.judged_interval.bounds
        return f"{text} ({100 * low:.0f} to {100 * high:.0f})"
    return text
