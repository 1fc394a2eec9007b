"""`judgekit report`: what results say, for people, for programs and as a page."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from judgekit.cli.options import AsJson, HtmlOption, OutOption
from judgekit.cli.output import emit, say
from judgekit.cli.output_files import unread, write_file
from judgekit.cli.row_options import Id, Map
from judgekit.errors import InputError, UsageError
from judgekit.evaluation.page import Cell, Figure, Part, Row, Section, Table, page, shares, shown
from judgekit.text import counted, escaped, lines_of, short_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from judgekit.data.labels import Columns, LabelSheet, ResultFile
    from judgekit.data.report import Group, ResultsReport, Shown, Unmatched, WinRate

_MOST_ROWS = 10  # of a table, in a terminal
_TIERS = [
    "tier",
    "rows decided",
    "calls answered",
    "calls failed",
    "seconds of calls",
    "USD",
    "unpriced",
]
_WIDTH = 120
_COLUMN = 24  # characters of a line where there is no terminal, and of a column at least

_RESULTS = Argument(metavar="RESULTS [RESULTS2]", help="One or two files of results, any format.")
_LABELS = Option(metavar="FILE", help="What people say of a random sample: id and label.")
_SAMPLE = Option(min=1, metavar="N", help="Draw N rows for you to label, into --labels FILE.")
_BY = Option(metavar="COLUMN", help="Also report the rows with each value of this column.")


def report(
    results: Annotated[list[str], _RESULTS],
    labels: Annotated[str | None, _LABELS] = None,
    sample: Annotated[int | None, _SAMPLE] = None,
    by: Annotated[str | None, _BY] = None,
    map_: Map = None,
    id_: Id = None,
    html: HtmlOption = None,
    as_json: AsJson = False,
    _out: OutOption = None,
) -> None:
    """Sum up results: verdicts, agreement with labels, and a rate corrected for the judge's errors."""
    from judgekit.data import fields
    from judgekit.data import labels as files
    from judgekit.data.report import summarise
    from judgekit.data.rows import open_rows

    if len(results) > 2:  # noqa: PLR2004 - as the help says
        raise UsageError(f"expected one or two files of results, got {len(results)}")
    columns = files.Columns(id_, fields.parse_map(map_ or ()))
    first = files.results(open_rows(results[0], sys.stdin.buffer), columns)
    if sample is not None:
        sheet = labels or f"{Path(first.name).with_suffix('')}.labels.csv"
        unread(Path(sheet))
        added, total = files.add_sample(first, sheet, sample, columns)
        say(escaped(f"{sheet}: {counted(added, 'row', 'rows')} added, {total} in all"))
        say("Write accept, improve or reject into the column label of each row. Then run:")
        say(escaped(f"  judgekit report {results[0]} --labels {sheet}"))
        return
    label_sheet = _labels(labels, first, columns)
    if id_ and not first.has_id_column and not (label_sheet and label_sheet.has_id_column):
        raise UsageError(f"--id {id_}: neither the results nor the labels have such a column")
    second = None
    if results[1:]:
        others = files.results(open_rows(results[1], sys.stdin.buffer), columns)
        second = others.name, {row.row_id: row.word for row in others}
    found = summarise(
        first,
        first.name,
        labels=label_sheet.words if label_sheet else None,
        column=by,
        second=second,
        left_out=label_sheet.left_out if label_sheet else None,
    )
    sections = _sections(found)
    if html is not None:
        write_file(html, page(f"Results of {found.file}", _about(found), sections))
    if as_json:
        emit(found.model_dump_json(by_alias=True))
        return
    say(escaped(f"{found.file}: {_about(found)}"))
    text = "".join(f"\n{section.title}\n{parts_text(section.parts)}\n" for section in sections)
    has_intervals = "[0" in text or "[-" in text
    say(f"{text}\nIn brackets 95% intervals" if has_intervals else text.rstrip())


def _labels(path: str | None, results: ResultFile, columns: Columns) -> LabelSheet | None:
    """Return the labels of a file; raises `InputError` where all are blank."""
    from judgekit.data.labels import read_labels
    from judgekit.data.rows import open_rows

    if path is None:
        return None
    sheet = read_labels(open_rows(path, sys.stdin.buffer), results.task, columns)
    if not sheet.words and not sheet.left_out.unknown:
        raise InputError(
            f"{path}: no row has a label; write accept, improve or reject into the column"
        )
    return sheet


def _about(found: ResultsReport) -> str:
    words = ", ".join(f"{count:,} {word}" for word, count in found.verdicts.items())
    left = ""
    if found.undetermined:
        verb = "is" if found.undetermined == 1 else "are"
        left = f"; {found.undetermined:,} without a verdict {verb} left out of all rates"
    cost = "; cost unknown" if found.tiers else ""
    if found.cost_usd is not None:
        least = "" if found.cost_complete else "at least "
        cost = f"; {least}{found.cost_usd:.4f} USD"
    return f"{counted(found.rows, 'row', 'rows')}: {words}{left}{cost}"


def _sections(found: ResultsReport) -> list[Section]:
    sections = [Section("Rates", [_figures(found), *_notes(found)])]
    labelled = found.labelled
    if labelled and labelled.confusion:
        sections.append(Section("Labels and verdicts", [shares("labelled", labelled.confusion)]))
    if found.matrix:
        title = "How often the text of the row is better than that of the column"
        sections.append(Section(title, [_win_table(found)]))
    if found.groups:
        columns = [found.column or "", "rows", "as judged", "corrected", *found.verdicts]
        groups = [_group(group, found.verdicts) for group in found.groups]
        sections.append(Section(f"By {found.column}", [Table(columns, groups, total=found.values)]))
    if found.dimensions:
        sections.append(Section("Scores", [shares("dimension", found.dimensions)]))
    if found.tiers:
        tiers: list[Row] = [[name, *tier.values()] for name, tier in found.tiers.items()]
        sections.append(Section("Tiers", [Table(_TIERS, tiers)]))
    if labelled and labelled.wrong:
        title = "Verdicts that differ from the label"
        sections.append(Section(title, [_table(labelled.wrong, labelled.differing)]))
    apart = found.difference
    if apart and apart.rows_that_differ:
        title = "Verdicts that differ between the results"
        sections.append(Section(title, [_table(apart.rows_that_differ, apart.differing)]))
    if found.worst:
        sections.append(Section("The worst rows", [_table(found.worst, found.not_accepted)]))
    return sections


def _win_table(found: ResultsReport) -> Table:
    """Return how often each text is better than each other."""
    letters = list(found.win_rates)
    rows: list[Row] = []
    for letter, rates in found.matrix.items():
        rows.append([letter, *(_win_cell(rates.get(other)) for other in letters)])
    return Table(["", *letters], rows)


def _figures(found: ResultsReport) -> list[Figure]:
    figures = []
    if rate := found.accept_rate:
        figures.append(Figure("accept rate, as judged", rate.judged))
        if rate.corrected is not None:
            note = f"with {counted(rate.labels, 'label', 'labels')}"
            figures.append(Figure("accept rate, corrected", rate.corrected, rate.interval, note))
    for letter, win in found.win_rates.items():
        figures.append(Figure(f"{letter} wins", win.rate, win.interval, note=_counts(win)))
    if labelled := found.labelled:
        agreement = {"agreement with labels": labelled.accuracy, "Cohen's kappa": labelled.kappa}
        note = f"of {counted(labelled.labels, 'label', 'labels')}"
        for name, interval in agreement.items():
            if interval:
                least = min(0.0, interval.low)
                figures.append(Figure(name, interval.value, interval, note, least=least))
    apart = found.difference
    if apart and apart.value is not None:
        name = f"{short_line(apart.file, 40)}: rate above the first"
        note = f"of {counted(apart.rows, 'row', 'rows')} in both"
        figures.append(Figure(name, apart.value, apart.interval, note, least=-1.0))
    return figures


def _counts(win: WinRate) -> str:
    return f"{win.wins} won, {win.ties} tied, {win.losses} lost"


def _notes(found: ResultsReport) -> list[str]:
    notes = []
    if found.needs:
        notes.append(f"No corrected rate: {found.needs}.")
    labelled = found.labelled
    if labelled and labelled.is_binary:
        notes.append("No label says improve, so agreement and kappa count an improve as a reject.")
    if labelled and labelled.not_compared.told():
        notes.append(f"Labels left out: {labelled.not_compared.told()}.")
    if labelled and labelled.unmatched:
        notes.append(_no_match(labelled.unmatched, "labels"))
    elif labelled and labelled.left_out:
        notes.append(f"{labelled.left_out} labels left out: no row with this id has a verdict.")
    apart = found.difference
    if apart and apart.unmatched:
        notes.append(_no_match(apart.unmatched, "second results"))
    elif apart and apart.only_first + apart.only_second:
        first = f"{apart.only_first} rows that only the first results have"
        notes.append(f"Left out of the difference: {first}, {apart.only_second} of the second.")
    for judge, count in found.judged_by.items():
        notes.append(f"Judged by {judge}: {counted(count, 'row', 'rows')}.")
    for error, count in found.errors.items():
        notes.append(f"No verdict for {counted(count, 'row', 'rows')}: {error}.")
    return notes


def _no_match(unmatched: Unmatched, other: str) -> str:
    ours = ", ".join(unmatched.results)
    theirs = ", ".join(unmatched.others)
    ids = f"those of the results begin with {ours}, those of the {other} with {theirs}"
    return (
        f"No id of the {other} is in the results: {ids}. Name the column of ids with --id COLUMN."
    )


def _win_cell(win: WinRate | None) -> Cell | None:
    if win:
        return Cell(win.interval.text, below=_counts(win), share=win.rate)
    return None


def _group(group: Group, words: Iterable[str]) -> Row:
    rate = group.rate
    corrected = group.needs
    if rate and rate.interval:
        corrected = rate.interval.text
    counts = [group.verdicts.get(word, 0) for word in words]
    return [group.value, group.rows, rate.judged if rate else None, corrected, *counts]


def _table(rows: Sequence[Shown], total: int) -> Table:
    """Return a table of rows, with the columns that any of them has."""
    scores: list[str | float | None] = []
    for row in rows:
        scores.append(", ".join(f"{name} {score:g}" for name, score in row.scores.items()))
    columns: dict[str, list[str | float | None]] = {
        "id": [row.id for row in rows],
        "label": [row.label for row in rows],
        "verdict": [row.verdict for row in rows],
        "second verdict": [row.second for row in rows],
        "scores": scores,
        "reasoning": [row.reasoning for row in rows],
        "text": [row.text for row in rows],
    }
    filled = {name: cells for name, cells in columns.items() if any(cells)}
    return Table(list(filled), list(zip(*filled.values(), strict=True)), total=total)


def parts_text(parts: Sequence[Part]) -> str:
    """Return the parts of a page for a terminal; of a long table the first rows."""
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    out = io.StringIO()
    width = shutil.get_terminal_size((_WIDTH, 20)).columns - 2
    console = Console(file=out, width=width, color_system=None)
    for part in parts:
        if isinstance(part, str):
            console.print(Text(escaped(part)), soft_wrap=True)
            continue
        is_table = isinstance(part, Table)
        grid = Grid(box=None, show_header=is_table, pad_edge=False, header_style="")
        rows: list[Sequence[str]] = []
        if isinstance(part, Table):
            rows = [[shown(cell) for cell in row] for row in part.rows[:_MOST_ROWS]]
            for name, most in _column_widths(part, rows, width):
                grid.add_column(
                    Text(escaped(name)), no_wrap=True, overflow="ellipsis", max_width=most
                )
        else:
            for figure in part:
                if isinstance(figure, Figure):
                    rows.append([figure.name, figure.text, figure.note])
        for row in rows:
            grid.add_row(*(Text(escaped(cell)) for cell in row))
        console.print(grid)
        if isinstance(part, Table):
            total = max(part.total, len(part.rows))
            if total > _MOST_ROWS:
                first = "" if total == len(part.rows) else f" the first {len(part.rows)} of"
                more = total - _MOST_ROWS
                console.print(f"and {more} more; --html FILE shows{first} them")
    return "\n".join(f"  {line.rstrip()}" for line in lines_of(out.getvalue()))


def _column_widths(
    table: Table, rows: Iterable[Sequence[str]], width: int
) -> Iterator[tuple[str, int | None]]:
    """Yield each column with the width that a longer one may have; None for a short one."""
    lengths = []
    for column in zip(table.columns, *rows, strict=True):
        lengths.append(max(map(len, column)))
    short = [length for length in lengths if length <= _COLUMN]
    left = width - sum(short) - 2 * len(lengths)
    for_each_long = max(_COLUMN // 2, left // max(1, len(lengths) - len(short)))
    for name, length in zip(table.columns, lengths, strict=True):
        yield name, for_each_long if length > _COLUMN else None
