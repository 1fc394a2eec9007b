"""`judgekit report`: sums up results for people, for programs and as a page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from typer import Argument, Option

from judgekit.cli import formats, report_page
from judgekit.cli.formats.row_results import WORST_ROWS, RowResults
from judgekit.cli.options import AsJson, HtmlOption, OutOption
from judgekit.cli.output import note, say, warn
from judgekit.cli.output_files import refuse_input, write_file
from judgekit.cli.row_options import Id, Map
from judgekit.errors import Exit, InputError, UsageError
from judgekit.evaluation.page import Cell, Figure, Row, Section, Table, build_share_table
from judgekit.text import escape_name, format_count, replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.data.labels import LabelSheet, NamedColumns, ResultFile
    from judgekit.data.page_rows import PageRows
    from judgekit.data.report import (
        CorrectedRate,
        Difference,
        Group,
        Labelled,
        ResultsReport,
        Shown,
        Unmatched,
        WinRate,
    )
    from judgekit.data.rows import Rows
    from judgekit.evaluation.conditions import Condition, Operator
    from judgekit.evaluation.page import Part

_TIER_COLUMNS = [
    "tier",
    "rows decided",
    "calls answered",
    "calls failed",
    "seconds of calls",
    "USD",
    "unpriced",
]
_RATES = "Rates"
_WRONG_ROWS_TITLE = "Verdicts that differ from the label"
_CHANGED_ROWS_TITLE = "Verdicts that differ between the results"
# A page shows these rows in a single list.
_ROW_LIST_TITLES = (
    _WRONG_ROWS_TITLE,
    _CHANGED_ROWS_TITLE,
    WORST_ROWS,
)

_RESULTS_ARGUMENT = Argument(
    metavar="RESULTS [RESULTS2]", help="One or two files of results, any format."
)
_LABELS_OPTION = Option(metavar="FILE", help="What people say of a random sample: id and label.")
_SAMPLE_OPTION = Option(
    min=1, metavar="N", help="Draw N rows for you to label, into --labels FILE."
)
_MIN_ACCEPT_OPTION = Option(
    min=0, max=1, metavar="SHARE", help="Exit with 1 if fewer of all rows are accepted."
)
_MAX_REJECT_OPTION = Option(
    min=0, max=1, metavar="SHARE", help="Exit with 1 if more of all rows are, or may be, rejected."
)
_MAX_UNDETERMINED_OPTION = Option(
    min=0, max=1, metavar="SHARE", help="Exit with 1 if more of all rows have no verdict."
)
_FAIL_IF_WORSE_OPTION = Option(
    metavar="BASE[:POINTS]",
    help="Exit with 1 if the accept rate is below that of other results, by more points.",
)
_DATA_OPTION = Option(
    metavar="FILE", help="With --html: take texts that the results lack from what was judged."
)
_BY_OPTION = Option(metavar="COLUMN", help="Also report the rows with each value of this column.")


def report(
    results: Annotated[list[str], _RESULTS_ARGUMENT],
    labels: Annotated[str | None, _LABELS_OPTION] = None,
    sample: Annotated[int | None, _SAMPLE_OPTION] = None,
    by: Annotated[str | None, _BY_OPTION] = None,
    map_: Map = None,
    id_: Id = None,
    html: HtmlOption = None,
    data: Annotated[str | None, _DATA_OPTION] = None,
    format_: formats.FormatOption = "table",
    also: formats.AlsoOption = None,
    worst: formats.WorstOption = None,
    as_json: AsJson = False,
    min_accept: Annotated[float | None, _MIN_ACCEPT_OPTION] = None,
    max_reject: Annotated[float | None, _MAX_REJECT_OPTION] = None,
    max_undetermined: Annotated[float | None, _MAX_UNDETERMINED_OPTION] = None,
    fail_if_worse: Annotated[str | None, _FAIL_IF_WORSE_OPTION] = None,
    _out: OutOption = None,
) -> int:
    """Sum up results: verdicts, agreement with labels, and a rate corrected for the judge's errors."""
    from judgekit.data import fields
    from judgekit.data import labels as files
    from judgekit.data.report import summarise
    from judgekit.judging.documents import STDIN

    if len(results) > 2:  # noqa: PLR2004 - as the help says
        raise UsageError(f"expected one or two files of results, got {len(results)}")

    # Check the options.
    columns = files.NamedColumns(id_, fields.parse_map(map_ or ()))
    columns_of_data = columns
    if data is not None:
        if html is None:
            raise UsageError("--data takes texts for a page; name it with --html FILE.html")
        columns, columns_of_data = report_page.split_columns(columns)

    limits = _Limits(min_accept, max_reject, max_undetermined, fail_if_worse)
    limits.check(results[0], sample)
    if as_json and format_ not in ("table", "json"):
        raise UsageError(f"--json and --format {format_} do not go together; give one of the two")

    also_files = formats.read_also(also)

    # Open the results.
    first = files.open_results(_open_rows(results[0]), columns)
    if also_files or format_ not in ("table", "json"):
        first.keep_stream()
    if sample is not None:
        _draw_sample(results[0], first, labels, sample, columns)
        return Exit.ACCEPTED

    # Open the labels. They can be a column of the results.
    if labels is None and not {"label", "winner"}.isdisjoint(columns.column_by_field):
        if results[0] == STDIN:
            raise UsageError("--map label: standard input is read once; name the file, or --labels")
        labels = results[0]  # these rows contain both

    label_sheet = _read_labels(labels, first, columns)
    if id_ and not first.has_id_column and not (label_sheet and label_sheet.has_id_column):
        raise UsageError(f"--id {id_}: neither the results nor the labels have such a column")

    # Open what the page shows, and the second results.
    second_path = results[1] if results[1:] else None
    page_rows = None
    if html is not None:
        source = report_page.PageSource(
            results=first,
            second_path=second_path,
            data_path=data,
            columns=columns,
            columns_of_data=columns_of_data,
        )
        page_rows = report_page.open_page_rows(source, _open_rows)

    second = _read_second(second_path, page_rows, columns)
    if by and f"row.{by}" in first.column_names:
        note(f"--by {by}: that column is judgekit's own; the rows' is row.{by}")

    summary = summarise(
        first,
        first.name,
        labels=label_sheet.label_by_id if label_sheet else None,
        column=by,
        second=second,
        left_out=label_sheet.left_out if label_sheet else None,
        page_rows=page_rows,
    )

    # Write the page.
    about = _describe_results(summary)
    sections = _build_sections(summary)
    if html is not None and page_rows is not None:
        page_sections = _adapt_sections_to_page(summary, sections)
        notes = _write_notes(summary)
        page = report_page.write_page(summary, about, page_sections, page_rows.finish(), notes)
        write_file(html, page)

    # Check the limits, and print everything.
    missed = limits.find_missed(summary, results[0], columns)
    row_results = RowResults(
        rows=first,
        summary=summary,
        about=about,
        sections=sections,
        missed_limits=missed,
        has_limits=limits != _NO_LIMITS,
        worst_row_count=worst,
    )

    formats.write_also(also_files, lambda renderer: renderer.render_report(row_results))
    formats.print_report("json" if as_json else format_, row_results)
    for line in missed:
        warn(escape_name(line))
    return Exit.REJECTED if missed else Exit.ACCEPTED


def summarise_results(rows: ResultFile, *, worst: int | None) -> RowResults:
    """Summarise results as the `report` command does without options."""
    from judgekit.data.report import summarise

    summary = summarise(rows, rows.name)
    return RowResults(
        rows=rows,
        summary=summary,
        about=_describe_results(summary),
        sections=_build_sections(summary),
        worst_row_count=worst,
    )


class _Limits(NamedTuple):
    """Limits that results must keep for exit code 0."""

    min_accept: float | None
    max_reject: float | None
    max_undetermined: float | None
    fail_if_worse: str | None

    def check(self, file: str, sample: int | None) -> None:
        """Raise `UsageError` if limits can't be used with `--sample` or with standard input."""
        from judgekit.judging.documents import STDIN

        has_limits = self != _NO_LIMITS
        if sample is not None and has_limits:
            raise UsageError("--sample draws rows to label; give limits without it")

        # The comparison for --fail-if-worse reads the file a second time.
        reads_standard_input = file == STDIN
        if self.fail_if_worse is not None and reads_standard_input:
            raise UsageError("--fail-if-worse: standard input is read once; name the file")

    def find_missed(self, summary: ResultsReport, file: str, columns: NamedColumns) -> list[str]:
        """Describe each limit that the results in `file` miss, in a line.

        `summary` sums them up, and its `file` is their name in messages. Raises `UsageError` if a limit is
        about accepted documents, but texts were compared.
        """
        from judgekit.data.limits import describe_missed

        if summary.task == "compare":
            self._refuse_limits_on_documents()

        missed = describe_missed(self._build_conditions(), summary.verdicts, summary.file)
        if self.fail_if_worse is not None:
            worse = _describe_worsening(self.fail_if_worse, summary.file, file, columns)
            if worse is not None:
                missed.append(worse)
        return missed

    def _refuse_limits_on_documents(self) -> None:
        """Raise `UsageError` for the first given limit that's about accepted or rejected documents."""
        limits_on_documents = {
            "--min-accept": self.min_accept,
            "--max-reject": self.max_reject,
            "--fail-if-worse": self.fail_if_worse,
        }
        for option, limit in limits_on_documents.items():
            if limit is not None:
                problem = "in these results texts were compared, and none is accepted"
                raise UsageError(f"{option}: {problem}; leave it out")

    def _build_conditions(self) -> list[Condition]:
        """Build a condition for each given limit."""
        from judgekit.evaluation.conditions import Condition, read_share

        limits: list[tuple[str, Operator, float | None]] = [
            ("accept", ">=", self.min_accept),
            ("reject", "<=", self.max_reject),
            ("undetermined", "<=", self.max_undetermined),
        ]
        conditions = []
        for word, operator, limit in limits:
            if limit is None:
                continue
            exact_share = read_share(str(limit), word)  # 0.9 as 9/10, which the float isn't quite
            conditions.append(Condition(word, operator, exact_share))
        return conditions


_NO_LIMITS = _Limits(None, None, None, None)


def _open_rows(path: str) -> Rows:
    """Open a file of results or labels.

    For a table of results, this opens the JSON lines it was made from, which are complete.
    """
    from judgekit.data.results import find_complete_results
    from judgekit.data.rows import open_rows
    from judgekit.data.sources import Reading

    complete_path = find_complete_results(path)
    # `note` prints remarks on how the file is read, such as its encoding or its sheet.
    rows = open_rows(complete_path, sys.stdin.buffer, Reading(listener=note))
    if complete_path != path:
        rows.name = replace_surrogates(path)  # messages name the given file
    return rows


def _describe_worsening(base_file: str, name: str, file: str, columns: NamedColumns) -> str | None:
    """Describe how the results in `file` are worse than the base results; None if they aren't.

    `base_file` is `BASE[:POINTS]`. The description calls the results `name`.
    """
    from judgekit.data.limits import describe_worse, read_base

    base = read_base(base_file)
    verdicts = _read_words(file, columns)
    base_verdicts = _read_words(base.path, columns)
    return describe_worse(verdicts, base_verdicts, name, base)


def _read_words(path: str, columns: NamedColumns) -> dict[str, str]:
    """Read the verdicts in a results file, by row id."""
    from judgekit.data.labels import open_results

    rows = open_results(_open_rows(path), columns)
    return {row.row_id: row.verdict for row in rows}


def _read_second(
    path: str | None, page_rows: PageRows | None, columns: NamedColumns
) -> tuple[str, Mapping[str, str]] | None:
    """Return the second results' name and their verdicts by id; None if there are none."""
    from judgekit.data.labels import open_results

    # Standard input can only be read once, so use the second results that were read for a page.
    if page_rows is not None and page_rows.second_results is not None:
        return page_rows.second_results.file, page_rows.second_results.verdict_by_id
    if path is None:
        return None
    rows = open_results(_open_rows(path), columns)
    return rows.name, {row.row_id: row.verdict for row in rows}


def _draw_sample(
    file: str, results: ResultFile, labels: str | None, count: int, columns: NamedColumns
) -> None:
    """Draw rows to label into a label sheet, and print the next steps.

    Without `labels`, the sheet of results.jsonl is results.labels.csv.
    """
    from judgekit.data.labels import add_sample

    sheet = labels or _name_label_sheet(results.name)
    # Don't write the sheet over a file that the command reads.
    refuse_input(Path(sheet))
    added, total = add_sample(results, sheet, count, columns)
    say(escape_name(f"{sheet}: {format_count(added, 'row', 'rows')} added, {total} in all"))
    say("Write accept, improve or reject into the column label of each row. Then run:")
    say(escape_name(f"  judgekit report {file} --labels {sheet}"))


def _name_label_sheet(results_name: str) -> str:
    """Name the label sheet next to a file of results."""
    path_without_ending = Path(results_name).with_suffix("")
    return f"{path_without_ending}.labels.csv"


def _read_labels(path: str | None, results: ResultFile, columns: NamedColumns) -> LabelSheet | None:
    """Read the labels in a file; raises `InputError` if all are blank."""
    from judgekit.data.labels import read_labels

    if path is None:
        return None

    sheet = read_labels(_open_rows(path), results.task, columns, results.max_text_count)
    not_understood = sheet.left_out.unknown  # these labels aren't blank
    has_labels = bool(sheet.label_by_id or not_understood)
    if not has_labels:
        raise InputError(
            f"{path}: no row has a label; write accept, improve or reject into the column"
        )
    return sheet


def _describe_results(results: ResultsReport) -> str:
    """Describe the number of rows with each verdict, and the cost."""
    words = ", ".join(f"{count:,} {word}" for word, count in results.verdicts.items())
    parts = [f"{format_count(results.rows, 'row', 'rows')}: {words}"]
    if results.undetermined:
        # As in `2 without a verdict are left out of all rates`.
        count = format_count(results.undetermined, "without a verdict is", "without a verdict are")
        parts.append(f"{count} left out of all rates")

    has_calls = bool(results.tiers)
    if results.cost_usd is not None:
        at_least = "" if results.cost_complete else "at least "
        parts.append(f"{at_least}{results.cost_usd:.4f} USD")
    elif has_calls:
        parts.append("cost unknown")
    return "; ".join(parts)


def _adapt_sections_to_page(results: ResultsReport, sections: Sequence[Section]) -> list[Section]:
    """Adapt sections to the page."""
    adapted = []
    for section in sections:
        if section.title in _ROW_LIST_TITLES:
            continue  # the page shows these rows in its own list
        parts = _adapt_parts_to_page(results, section)
        adapted.append(section._replace(parts=parts))
    return adapted


def _adapt_parts_to_page(results: ResultsReport, section: Section) -> list[Part]:
    """Choose a section's parts for the page: rates without notes, and groups with figures."""
    if section.title == _RATES:
        figures, *_notes = section.parts  # the notes go into the foot
        return [figures]
    if section.title == f"By {results.column}":
        return [_build_group_figures(results.groups), *section.parts]
    return list(section.parts)


def _build_group_figures(groups: Sequence[Group]) -> list[Figure]:
    """Build the chart of groups' rates, without groups that have no verdicts."""
    figures = []
    for group in groups:
        rate = group.rate
        if rate is None:
            continue

        name = group.value or "(no value)"
        note = f"of {format_count(group.rows, 'row', 'rows')}, as judged"
        figures.append(Figure(name, rate.judged, rate.judged_interval, note))
        if rate.corrected is not None:
            note = f"corrected, with {format_count(rate.labels, 'label', 'labels')}"
            figures.append(Figure(name, rate.corrected, rate.interval, note))

    return figures


def _build_sections(results: ResultsReport) -> list[Section]:
    """Build the sections of a report, starting with the rates; those without content are omitted."""
    sections = [Section(_RATES, [_build_figures(results), *_write_notes(results)])]
    labelled = results.labelled
    if labelled and labelled.confusion:
        sections.append(
            Section("Labels and verdicts", [build_share_table("labelled", labelled.confusion)])
        )
    if results.matrix:
        title = "How often the text of the row is better than that of the column"
        sections.append(Section(title, [_build_win_table(results)]))
    if results.groups:
        sections.append(Section(f"By {results.column}", [_build_group_table(results)]))
    if results.dimensions:
        sections.append(Section("Scores", [build_share_table("dimension", results.dimensions)]))
    if results.tiers:
        sections.append(Section("Tiers", [_build_tier_table(results)]))
    return sections + _build_row_sections(results)


def _build_win_table(results: ResultsReport) -> Table:
    """Build a table of how often each text beats each other."""
    letters = list(results.win_rates)
    rows: list[Row] = []
    for letter, rates in results.matrix.items():
        cells = [_build_win_cell(rates.get(other)) for other in letters]
        rows.append([letter, *cells])
    return Table(["", *letters], rows)


def _build_figures(results: ResultsReport) -> list[Figure]:
    """Build the figures for rates, including those from labels and second results."""
    figures = []
    if results.accept_rate:
        figures += _build_accept_figures(results.accept_rate)
    for letter, win in results.win_rates.items():
        figures.append(Figure(f"{letter} wins", win.rate, win.interval, note=_count_wins(win)))
    if results.labelled:
        figures += _build_agreement_figures(results.labelled)
    if results.difference:
        figures += _build_second_figures(results, results.difference)
    return figures


def _build_accept_figures(rate: CorrectedRate) -> list[Figure]:
    """Build the figures of the accept rate: as judged, and corrected by labels if there are any."""
    figures = [Figure("accept rate, as judged", rate.judged, rate.judged_interval)]
    if rate.corrected is not None:
        note = f"with {format_count(rate.labels, 'label', 'labels')}"
        figures.append(Figure("accept rate, corrected", rate.corrected, rate.interval, note))
    return figures


def _build_agreement_figures(labelled: Labelled, prefix: str = "") -> list[Figure]:
    """Build the figures for agreement with labels, with a `prefix` for their names."""
    agreement = {"agreement with labels": labelled.accuracy, "Cohen's kappa": labelled.kappa}
    note = f"of {format_count(labelled.labels, 'label', 'labels')}"
    figures = []
    for name, interval in agreement.items():
        if interval:
            # Kappa can be negative.
            minimum = min(0.0, interval.low)
            figures.append(Figure(prefix + name, interval.value, interval, note, minimum=minimum))
    return figures


def _count_wins(win: WinRate) -> str:
    return f"{win.wins} won, {win.ties} tied, {win.losses} lost"


def _build_second_figures(results: ResultsReport, difference: Difference) -> list[Figure]:
    """Build the figures about second results: their agreement with labels, and the difference."""
    figures = []
    if results.labelled_second:
        _, second_name = report_page.shorten_names(results.file, difference.file)
        figures += _build_agreement_figures(results.labelled_second, f"{second_name}: ")
    if difference.interval:
        note = f"of {format_count(difference.rows, 'row', 'rows')} in both"
        figures.append(report_page.build_difference(results.file, difference, note))
    return figures


def _write_notes(results: ResultsReport) -> list[str]:
    """Write the notes below the rates: about omitted rows and labels, and about the judges."""
    notes = []
    if results.agreement:
        notes += [f"{line}." for line in results.agreement.describe()]
    if results.needs:
        notes.append(f"No corrected rate: {results.needs}.")
    if results.labelled:
        notes += _write_label_notes(results.labelled)
    if results.difference:
        notes += _write_difference_notes(results.difference)

    for judge, count in results.judged_by.items():
        notes.append(f"Judged by {judge}: {format_count(count, 'row', 'rows')}.")
    for error, count in results.errors.items():
        notes.append(f"No verdict for {format_count(count, 'row', 'rows')}: {error}.")
    return notes


def _write_label_notes(labelled: Labelled) -> list[str]:
    """Write the notes about labels: how they're counted, and how many are omitted."""
    notes = []
    if labelled.is_binary:
        notes.append("No label says improve, so agreement and kappa count an improve as a reject.")
    not_compared = labelled.not_compared.describe()
    if not_compared:
        notes.append(f"Labels left out: {not_compared}.")

    if labelled.unmatched:
        notes.append(_describe_mismatch(labelled.unmatched, "labels"))
    elif labelled.left_out:
        left_out = format_count(labelled.left_out, "label", "labels")
        notes.append(f"{left_out} left out: no row with this id has a verdict.")
    return notes


def _describe_mismatch(unmatched: Unmatched, other: str) -> str:
    """Describe that two files have no ids in common, and how to fix that."""
    first_ids = ", ".join(unmatched.results)
    first_other_ids = ", ".join(unmatched.others)
    ids = (
        f"those of the results begin with {first_ids}, those of the {other} with {first_other_ids}"
    )
    remedy = "Name the column of ids with --id COLUMN."
    return f"No id of the {other} is in the results: {ids}. {remedy}"


def _write_difference_notes(difference: Difference) -> list[str]:
    """Write a note about the rows that only one of two results has, if there are any."""
    if difference.unmatched:
        return [_describe_mismatch(difference.unmatched, "second results")]

    has_unpaired_rows = bool(difference.only_first or difference.only_second)
    if not has_unpaired_rows:
        return []
    rows = format_count(difference.only_first, "row", "rows")
    only_first = f"{rows} that only the first results have"
    return [f"Left out of the difference: {only_first}, {difference.only_second} of the second."]


def _build_win_cell(win: WinRate | None) -> Cell | None:
    if win:
        return Cell(win.interval.text, below=_count_wins(win), share=win.rate)
    return None


def _build_group_table(results: ResultsReport) -> Table:
    """Build a table of the groups, one for each value of the column given by `--by`."""
    columns = [results.column or "", "rows", "as judged", "corrected", *results.verdicts]
    rows = [_build_group_row(group, results.verdicts) for group in results.groups]
    return Table(columns, rows, total=results.values)


def _build_group_row(group: Group, words: Iterable[str]) -> Row:
    """Build a group's table row. `words` are the verdicts that have a column."""
    rate = group.rate
    corrected = group.needs  # without a corrected rate, show what's missing for it
    if rate and rate.interval:
        corrected = rate.interval.text
    counts = [group.verdicts.get(word, 0) for word in words]
    return [
        group.value or "(no value)",
        group.rows,
        rate.judged if rate else None,
        corrected,
        *counts,
    ]


def _build_tier_table(results: ResultsReport) -> Table:
    """Build a table of each tier's decisions, calls, time and cost."""
    rows: list[Row] = [[name, *tier.values()] for name, tier in results.tiers.items()]
    return Table(_TIER_COLUMNS, rows)


def _build_row_sections(results: ResultsReport) -> list[Section]:
    """Build the sections that list rows: wrong by their label, changed in the second results, and worst."""
    # Each table has a total, because it can leave rows out.
    sections = []
    labelled = results.labelled
    if labelled and labelled.wrong:
        wrong_rows = _build_row_table(labelled.wrong, labelled.differing)
        sections.append(Section(_WRONG_ROWS_TITLE, [wrong_rows]))

    difference = results.difference
    if difference and difference.rows_that_differ:
        changed_rows = _build_row_table(difference.rows_that_differ, difference.differing)
        sections.append(Section(_CHANGED_ROWS_TITLE, [changed_rows]))

    if results.worst:
        worst_rows = _build_row_table(results.worst, results.not_accepted)
        sections.append(Section(WORST_ROWS, [worst_rows]))
    return sections


def _build_row_table(rows: Sequence[Shown], total: int) -> Table:
    """Build a table of rows, without columns that are empty.

    `total` can be more than the rows given: it also counts those left out of the table.
    """
    columns: dict[str, list[str | float | None]] = {
        "id": [row.id for row in rows],
        "label": [row.label for row in rows],
        "verdict": [row.verdict for row in rows],
        "second verdict": [row.second for row in rows],
        "scores": [_list_scores(row) for row in rows],
        "reasoning": [row.reasoning for row in rows],
        "text": [row.text for row in rows],
    }
    filled_columns = {name: cells for name, cells in columns.items() if any(cells)}
    table_rows = list(zip(*filled_columns.values(), strict=True))
    # A page has all these rows in its own list, so the note about rows that are left out can point there.
    return Table(list(filled_columns), table_rows, total=total, is_in_list=True)


def _list_scores(row: Shown) -> str:
    """List a row's scores, such as `clarity 4, accuracy 3.5`."""
    return ", ".join(f"{name} {score:g}" for name, score in row.scores.items())
