"""The rows of a dataset: reads what's judged in each, and refuses wrong input before any model is asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from judgekit.data import fields as row_fields
from judgekit.data import seals
from judgekit.data.paths import is_path_into, read_cell
from judgekit.data.presets import Recogniser
from judgekit.data.results import ONLY_OURS, Ids, TakenNames
from judgekit.data.sources import DataRow, UnreadableRow
from judgekit.data.thoughts import Thoughts
from judgekit.data.values import NoJsonValueError, convert_row
from judgekit.errors import InputError, UsageError
from judgekit.evaluation import labels
from judgekit.judging.documents import (
    LETTERS,
    ComparisonInput,
    Document,
    TaskDescription,
    make_file,
)
from judgekit.judging.service import build_comparison_judge, build_document_judge
from judgekit.providers.gateway import open_gateway
from judgekit.rubric.schema import Given, ScoreRubric
from judgekit.text import format_count

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.data.fields import Fields, JudgeTurn, TaskName
    from judgekit.data.presets import Recognised
    from judgekit.data.rows import Rows
    from judgekit.data.seals import Fingerprint
    from judgekit.data.templates import Template
    from judgekit.judging.request import JudgeRequest
    from judgekit.judging.settings import JudgeSettings
    from judgekit.rubric.loader import LoadedRubric

    RowReader: TypeAlias = Callable[[DataRow, str], "ReadRow"]

EMPTY_FINGERPRINT = seals.Fingerprint(current="")
# Options of a request that don't change a row's result, or that other fields of the result cover.
_OPTIONS_NOT_IN_BASIS = {"rubric", "mode", "model", "deadline", "max_cost_usd", "cache"}
# Rows whose columns we look at to guess fields; in a stream only the first.
_MAX_EXAMINED_ROWS = 100


class ReadRow(NamedTuple):
    """A row's judged content, and the number of blocks of model thoughts that were dropped from it."""

    subject: Document | ComparisonInput
    thought_count: int = 0


class PendingRow(NamedTuple):
    """A row to judge: its content, or the error that prevents judging it.

    `thought_count` is as in `ReadRow`.
    """

    row: DataRow
    row_id: str | int
    fingerprint: Fingerprint
    subject: Document | ComparisonInput | None
    error: str | None = None
    thought_count: int = 0


def build_unreadable_error(name: str, first: UnreadableRow, more: int) -> InputError:
    """Build the error for an input's first unreadable row. `more` is the number of further ones."""
    position = f"row {first.number:,}" if first.number else "the header"
    if first.column:
        position = f"{position}, column {first.column}"
    others_text = ""
    if more:
        others_text = f" ({format_count(more, 'more row', 'more rows')} cannot be read)"
    return InputError(f"{name}: {position}: {first.problem}{others_text}")


def report_repeated_id(
    row_id: str | int, number: int, first_number: int, column: str
) -> UnreadableRow:
    """Build the error for row `number`, which has the same id as row `first_number`."""
    problem = f"row {first_number:,} has the same id {row_id!r:.80}; give each row its own"
    # The two ids may look different if one was normalised, so say which differences don't count.
    is_normalised = labels.normalise_id(row_id) != str(row_id)
    if is_normalised:
        problem += " (ids that differ only by blanks, as 17 and 17.0 do, or in the form of accents are one)"
    return UnreadableRow(number, column, problem)


class Survey(NamedTuple):
    """The first rows' columns, and a recogniser of other tools' exports that has seen these rows."""

    names: list[str]
    recogniser: Recogniser


def survey(rows: Rows | Mappings) -> tuple[Iterable[DataRow | UnreadableRow], Survey]:
    """Survey the first rows' columns. Returns an iterable over all rows, and the survey.

    Raises `InputError` if there are no rows, or if none of the first ones can be read.
    """
    stream = iter(rows)
    if rows.can_reread:
        # These rows can be read again, so don't keep any in memory. A small Parquet file can unpack to
        # gigabytes.
        first_rows = islice(stream, _MAX_EXAMINED_ROWS)
        return rows, _survey_head(first_rows, rows.name, rest=stream)

    # A stream can only be read once, so put its first row back. Don't wait for others, which may come late.
    head = list(islice(stream, 1))
    all_rows = chain(head, stream)
    return all_rows, _survey_head(head, rows.name, rest=stream)


def _survey_head(
    head: Iterable[DataRow | UnreadableRow], name: str, rest: Iterable[DataRow | UnreadableRow]
) -> Survey:
    """Survey the columns of the rows in `head`.

    Raises `InputError` if there are no rows, or if none in `head` can be read.
    """
    column_names: dict[str, None] = {}  # an ordered set
    recogniser = Recogniser()
    has_readable_row = False
    unreadable_rows = []
    for row in head:
        if isinstance(row, UnreadableRow):
            unreadable_rows.append(row)
        else:
            has_readable_row = True
            column_names.update(dict.fromkeys(row.columns))
            recogniser.note_row(row.columns)

    if has_readable_row:
        return Survey(list(column_names), recogniser)
    if not unreadable_rows:
        raise InputError(f"{name}: no rows; nothing to judge")
    # The error says how many rows can't be read, so count those in `rest`, too.
    more_in_head = len(unreadable_rows) - 1
    more_in_rest = sum(isinstance(row, UnreadableRow) for row in rest)
    raise build_unreadable_error(name, unreadable_rows[0], more=more_in_head + more_in_rest)


class Mappings:
    """Rows given by a Python program."""

    name = "rows"
    can_reread = False

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Check the rows if they're in a list. Raises `InputError` for an unreadable row."""
        self._rows = rows
        # An iterator can only be read once, so its rows are checked when they are judged.
        if isinstance(rows, list | tuple):
            self._check_rows()

    def _check_rows(self) -> None:
        """Raise `InputError` for the first unreadable row."""
        for row in self:
            if isinstance(row, UnreadableRow):
                raise build_unreadable_error(self.name, row, more=0)  # more aren't looked for

    def __iter__(self) -> Iterator[DataRow | UnreadableRow]:
        for number, columns in enumerate(self._rows, 1):
            if not isinstance(columns, Mapping):
                problem = f"expected a mapping of columns, got {type(columns).__name__}"
                yield UnreadableRow(number, "", problem)
                continue
            try:
                yield DataRow(number, convert_row(columns))
            except NoJsonValueError as error:
                yield UnreadableRow(number, "", str(error))


@dataclass(frozen=True)
class Dataset:
    """Rows, and how to read them. Iterating yields a `PendingRow` or an `UnreadableRow` for each."""

    rows: Iterable[DataRow | UnreadableRow]
    name: str
    read: RowReader
    """Reads a row's judged content. Raises `FieldError` and `Unjudgeable`."""
    fingerprint_basis: str
    """The part of each row's fingerprint that doesn't depend on its content."""
    id_column: str | None = None
    taken_names: TakenNames = ONLY_OURS
    """Names that input columns can't keep in results."""
    limit: int | None = None
    keeps_bad_rows: bool = False
    """Turn a row with an invalid cell into a `PendingRow` with an error, rather than an `UnreadableRow`."""
    make_ids: Callable[[], Ids] = Ids
    """Makes an `Ids`, which finds repeated ids."""
    other_readers: Sequence[RowReader] = ()
    """Other ways in which a row is judged, whose content its fingerprint must cover as well."""

    def __iter__(self) -> Iterator[PendingRow | UnreadableRow]:
        with closing(self.make_ids()) as ids:
            for row in islice(self.rows, self.limit):
                if isinstance(row, UnreadableRow):
                    yield row
                    continue
                pending = self._read_pending(row, ids)
                if isinstance(pending, UnreadableRow) and self.keeps_bad_rows:
                    pending = _keep_bad_row(row, pending)
                yield pending

    def _read_pending(self, row: DataRow, ids: Ids) -> PendingRow | UnreadableRow:
        """Read a row's id and content. If there's nothing to judge, the `PendingRow` has an error.

        Returns an `UnreadableRow` for an invalid or repeated id, or an invalid cell.
        """
        row_id = self._read_id(row, ids)
        if isinstance(row_id, UnreadableRow):
            return row_id
        try:
            subject, thought_count = self.read(row, str(row_id))
            contents = [
                row_fields.hash_content(subject),
                *self._read_other_contents(row, str(row_id)),
            ]
        except row_fields.FieldError as error:
            return UnreadableRow(row.number, error.column, error.problem)
        except row_fields.Unjudgeable as error:
            fingerprint = EMPTY_FINGERPRINT  # there's no content to compute it from
            return PendingRow(row, row_id, fingerprint, subject=None, error=str(error))
        fingerprint = seals.fingerprint_text("\0".join([self.fingerprint_basis, *contents]))
        return PendingRow(row, row_id, fingerprint, subject, thought_count=thought_count)

    def _read_id(self, row: DataRow, ids: Ids) -> str | int | UnreadableRow:
        """Read a row's id, or use its number if no column has ids.

        Returns an `UnreadableRow` if the id is invalid, or repeats an earlier one.
        """
        column = self.id_column or ""
        id_cell = read_cell(row.columns, column) if column else row.number
        row_id = labels.read_id(id_cell)
        if row_id is None:
            return UnreadableRow(row.number, column, _describe_expected_id(id_cell))
        # If an earlier row has the same id, `add` returns that row's number.
        first_number = ids.add(row_id, row.number)
        if first_number is not None:
            return report_repeated_id(row_id, row.number, first_number, column)
        return row_id

    def _read_other_contents(self, row: DataRow, row_id: str) -> list[str]:
        """Read a row with each of the `other_readers`, and return the contents."""
        contents = []
        for other_reader in self.other_readers:
            other_subject, _ = other_reader(row, row_id)
            contents.append(row_fields.hash_content(other_subject))
        return contents

    def check(self) -> int:
        """Read all rows, and count them. Raises `InputError` if any row can't be read."""
        count = 0
        first_unreadable = None
        more_unreadable = 0
        for row in self:
            count += 1
            if not isinstance(row, UnreadableRow):
                continue
            if first_unreadable is None:
                first_unreadable = row
            else:
                more_unreadable += 1
        if first_unreadable is not None:
            raise build_unreadable_error(self.name, first_unreadable, more=more_unreadable)
        return count


def _keep_bad_row(row: DataRow, unreadable: UnreadableRow) -> PendingRow:
    """Build a pending row that has an error instead of a subject."""
    error = f"{unreadable.column}: {unreadable.problem}"
    return PendingRow(row, row.number, fingerprint=EMPTY_FINGERPRINT, subject=None, error=error)


def _describe_expected_id(id_cell: object) -> str:
    """Describe what an id must be, and what to do if the cell is blank."""
    expected = f"expected a text of up to {labels.MAX_ID_CHARS:,} characters, or a number"
    if labels.is_no_label(id_cell):
        expected += ", got a blank; give each row an id, or name another column of ids"
    return expected


class RowOptions(NamedTuple):
    """A caller's options for rows: the columns of fields and ids, and defaults for missing values."""

    task: TaskName = "judge"
    column_by_field: Mapping[str, str] = MappingProxyType({})
    """Columns by field."""
    id_column: str | None = None
    default_task: TaskDescription = TaskDescription()
    """The default task. When comparing, its description is the default prompt."""
    author_families: Sequence[str | None] = ()
    judge_turn: JudgeTurn = "last"
    limit: int | None = None
    template: Template | None = None
    drops_thoughts: bool = False

    def build_reader(self, fields: Fields, loaded: LoadedRubric) -> RowReader:
        """Make the function that reads a row's judged content: a document, or texts to compare."""
        if self.task == "compare":
            return partial(self._read_comparison, fields)
        return partial(self._read_document, fields, _read_used_fields(loaded))

    def _read_comparison(self, fields: Fields, row: DataRow, _: str) -> ReadRow:
        """Read the texts to compare in a row, and count the thoughts that were dropped from them."""
        thoughts = Thoughts()
        subject = row_fields.read_comparison(
            fields,
            row,
            prompt=self.default_task.description,  # for a row without a prompt
            families=self.author_families,
            thoughts=thoughts if self.drops_thoughts else None,  # None keeps thoughts in the text
        )
        return ReadRow(subject, thoughts.count)

    def _read_document(self, fields: Fields, given: Given, row: DataRow, row_id: str) -> ReadRow:
        """Read a row as a document. `given` says which fields the rubric uses."""
        thoughts = Thoughts()
        # A document has a single author.
        family = self.author_families[0] if self.author_families else None
        subject = row_fields.read_document(
            fields,
            row,
            row_id,
            given,
            fixed=self.default_task,
            family=family,
            judge_turn=self.judge_turn,
            thoughts=thoughts if self.drops_thoughts else None,  # None keeps thoughts in the text
        )
        return ReadRow(subject, thoughts.count)

    def read_expected_label(self, fields: Fields, row: DataRow) -> str | None:
        """Return a row's normalised label, such as `accept`, or None if the rows have no labels."""
        return row_fields.read_label_key(fields, row, self.task)


def open_dataset(
    source: Rows | Mappings, options: RowOptions, project: Path, request: JudgeRequest
) -> tuple[Dataset, Fields, list[str]]:
    """Open a dataset. Also returns its fields, and a warning for each column that no model will see.

    Raises `InputError` if there are no rows, `UsageError` if a column or rubric is missing, and `ConfigError`
    if the configuration is invalid.
    """
    matched = match_columns(source, options)
    basis, loaded = rubric_basis(options.task, project, request)
    # The results have columns for scores, so an input column can't keep a name such as "score.A" there.
    taken_names = TakenNames(_list_score_columns(options.task, loaded), matched.id_column)
    dataset = Dataset(
        rows=matched.rows,
        name=source.name,
        read=options.build_reader(matched.fields, loaded),
        fingerprint_basis=basis,
        id_column=matched.id_column,
        taken_names=taken_names,
        limit=options.limit,
        keeps_bad_rows=isinstance(source, Mappings),  # a program gets a result for each of its rows
    )
    warnings = _describe_unseen(options.task, matched.fields, loaded)
    return dataset, matched.fields, warnings


class MatchedRows(NamedTuple):
    """Rows, the columns of their fields, and their id column, if any."""

    rows: Iterable[DataRow | UnreadableRow]
    fields: Fields
    id_column: str | None


def match_columns(source: Rows | Mappings, options: RowOptions) -> MatchedRows:
    """Find the columns of the fields and of the ids.

    Raises `InputError` if there are no rows, and `UsageError` for missing columns.
    """
    rows, (names, recogniser) = survey(source)
    given_columns = options.column_by_field
    if options.template is not None:
        given_columns = {**given_columns, **_disable_templated_field(options)}
        _check_template(options.template, names, source.name)

    # For a field without a given column, use the export's column, or one with a common name.
    export = recogniser.recognise(options.task, given_columns)
    naming = row_fields.Naming(is_python=isinstance(source, Mappings))
    fields = row_fields.choose_fields(
        options.task, names, given_columns, source.name, naming=naming, export=export
    )
    fields = fields._replace(template=options.template)

    id_column = _find_id_column(options.id_column, export, names, source.name, naming)
    return MatchedRows(rows, fields, id_column)


def _find_id_column(
    given: str | None,
    export: Recognised | None,
    names: Sequence[str],
    source_name: str,
    naming: row_fields.Naming,
) -> str | None:
    """Find the id column: the given one, the export's, or one with a common name. None if there's none.

    Raises `UsageError` if the given column doesn't exist, or if several have a common name.
    """
    if given:
        if not _has_column(given, names):
            problem = f"{source_name} has no such column; it has {', '.join(names)}"
            raise UsageError(f"{naming.format_id_option(given)}: {problem}")
        return given
    if export is not None and _has_column(export.id, names):
        return export.id
    return row_fields.find_id_column(names, source_name, naming)


def _disable_templated_field(options: RowOptions) -> dict[str, str]:
    """Return `{FIELD: ""}` for the field that the template fills, so that no column is searched for it.

    Raises `UsageError` if the caller also named a column for this field.
    """
    field = "prompt" if options.task == "compare" else "description"
    if options.column_by_field.get(field):
        raise UsageError(f"--template and --map {field}: give only one of them")
    return {field: ""}


def _check_template(template: Template, names: Sequence[str], name: str) -> None:
    """Raise `UsageError` if the template uses a missing column."""
    for column in template.columns:
        if not _has_column(column, names):
            raise row_fields.build_unknown_column_error(
                f"--template: {{{column}}}", column, names, name
            )


def _has_column(column: str, names: Collection[str]) -> bool:
    """Whether `column` is a column name, or a path that starts with one, such as `response.text`."""
    return column in names or is_path_into(column, names)


def _list_score_columns(task: TaskName, loaded: LoadedRubric) -> frozenset[str]:
    """List the results' score columns: one for each of a rubric's dimensions, or for each compared text."""
    names: Sequence[str] = LETTERS  # of the compared texts, as in `score.A`
    if task == "judge" and isinstance(loaded.rubric, ScoreRubric):
        names = loaded.rubric.questions
    return frozenset(f"score.{name}" for name in names)


def rubric_basis(task: TaskName, project: Path, request: JudgeRequest) -> tuple[str, LoadedRubric]:
    """Build the part of a fingerprint that all rows share: JSON of the judges' settings and the options.

    Also returns the first judge's rubric.
    """
    # These judges are only asked for their settings, so they need neither a cost limit nor a cache.
    request = request.model_copy(update={"max_cost_usd": None, "cache": False})
    settings = _list_judge_settings(task, project, request)
    basis_parts: list[object] = [_list_basis_of(judge_settings) for judge_settings in settings]
    options = request.model_dump(exclude=_OPTIONS_NOT_IN_BASIS, exclude_defaults=True)
    for option, value in options.items():
        # The depth is added without its name, to match the fingerprints in existing results.
        basis_parts.append(value if option == "depth" else [option, value])
    return json.dumps(basis_parts), settings[0].loaded_rubric


def _list_basis_of(settings: JudgeSettings) -> tuple[str, str, list[list[str]]]:
    """List a judge's part of the basis: its rubric's hash, its mode, and the names of each tier's models."""
    names_by_tier = []
    for models in settings.models_by_tier.values():
        names_by_tier.append([model.model for model in models])
    return settings.loaded_rubric.sha256, settings.mode, names_by_tier


def _list_judge_settings(
    task: TaskName, project: Path, request: JudgeRequest
) -> list[JudgeSettings]:
    """List the settings of every judge that the rows might need."""
    gateway = open_gateway({})  # no model is called, so there's nothing to record
    if task == "judge":
        judge, _ = build_document_judge(gateway, project, request)
        return [judge.settings]

    # The default rubric for two texts differs from the one for three or more.
    text_counts = [2, 3] if request.rubric is None else [2]
    settings = []
    for count in text_counts:
        # The settings only depend on the number of different texts, so the letters can stand for them.
        placeholders = tuple(make_file(letter, letter) for letter in LETTERS[:count])
        comparison = ComparisonInput("", placeholders)
        settings.append(build_comparison_judge(gateway, comparison, project, request).settings)
    return settings


def _describe_unseen(task: TaskName, fields: Fields, loaded: LoadedRubric) -> list[str]:
    """Build warnings if the rows have a reference or sources that the rubric doesn't use."""
    if task != "judge":
        return []
    used_fields = _read_used_fields(loaded)
    warnings = []
    for field in ("reference", "sources"):
        column = fields.column_by_field.get(field)
        is_used = bool(getattr(used_fields, field))
        if column and not is_used:
            warnings.append(f"{loaded.rubric.ref} takes no {field}: no model sees {column}")
    return warnings


def _read_used_fields(loaded: LoadedRubric) -> Given:
    """Return a rubric's `given`, which says if its questions use a reference and sources."""
    # Only rubrics that score texts can use them.
    if isinstance(loaded.rubric, ScoreRubric):
        return loaded.rubric.given
    return Given()
