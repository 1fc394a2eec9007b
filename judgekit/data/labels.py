"""Results and labels as files: reads them for a report, and draws the sample of rows that people label."""

from __future__ import annotations

import csv
import hashlib
import heapq
import io
import json
from collections import Counter
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit import outputs
from judgekit.config import TIE
from judgekit.data import fields, sniffing, tables
from judgekit.data.dataset import build_unreadable_error, survey
from judgekit.data.paths import is_path_into
from judgekit.data.presets import Recogniser
from judgekit.data.results import OUR_COLUMNS, Ids, lock_output, resolve_output_path
from judgekit.data.rows import Rows, open_rows
from judgekit.data.sources import JSON_LINES, DataRow, UnreadableRow
from judgekit.data.sources.delimited import DELIMITERS
from judgekit.data.values import parse_json
from judgekit.errors import InputError, UsageError
from judgekit.evaluation import labels
from judgekit.evaluation.cases import Case
from judgekit.evaluation.labels import LeftOut
from judgekit.evaluation.stats import OUTCOMES, UNDECIDED
from judgekit.judging.documents import LETTERS, MIN_TEXTS, TASK_ROLES
from judgekit.rubric.schema import Given
from judgekit.text import defuse_cell, restore_cell, shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from judgekit.data.fields import Fields, TaskName
    from judgekit.judging.documents import Document

# Read every field; the rubric decides later which of them models see.
_EVERYTHING_GIVEN = Given(reference="reference", sources="sources")
_GIVEN_TO_PEOPLE = Given(reference="reference")
_EXPECTED_VERDICTS = (
    "expected accept, improve, reject, pass, fail or undetermined (of a comparison: A, B or tie)"
)
_MIN_EXAMINED_ROWS = (
    100  # rows of a file whose columns we look at, at least; of a stream, one is enough
)
_MAX_COMPARED_CHARS = 400  # of each compared text of a row
_MAX_SOURCES = 5  # of each row on a page
_SOURCE_CHARS = 1000
_COMPARISON_SCHEMA_PREFIX = "judgekit/comparison@"
_SCORE_COLUMN_PREFIX = "score."  # the prefix of a score's column in a table


class NamedColumns(NamedTuple):
    """The columns that a caller names: the id column and, by field, those of verdicts, labels and texts."""

    id_column: str | None = None
    column_by_field: Mapping[str, str] = MappingProxyType({})

    def id_of(self, columns: Mapping[str, Any], name: str) -> str | None:
        """Return a row's id as a key (`labels.normalise_id`), or None if the row has no id.

        `name` is the file's name, for error messages.
        """
        column = self.id_column
        if column not in columns:
            column = fields.find_id_column(columns, name)
        row_id = labels.read_id(columns.get(column or ""))  # None if there's no id column, either
        return None if row_id is None else labels.normalise_id(row_id)

    def find_column(
        self, columns: Mapping[str, Any], field: str, names: Sequence[str]
    ) -> str | None:
        """Find a row's column for a field. If the caller named none, search for the common `names`."""
        if field not in self.column_by_field:
            return _find_column(columns, names)
        column = self.column_by_field[field]
        return column if column in columns else None


def _find_column(columns: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """Find a column by name, in order of preference.

    Exact matches precede those ignoring case and punctuation.
    """
    for name in names:
        if name in columns:
            return name

    columns_by_plain_name = {labels.normalise_name(column): column for column in columns}
    for name in names:
        column = columns_by_plain_name.get(labels.normalise_name(name))
        if column is not None:
            return column
    return None


USUAL_COLUMNS = NamedColumns()


class ResultRow(NamedTuple):
    """A result row, with `scores` by dimension, or by letter if texts were compared."""

    row_id: str
    verdict: str
    scores: Mapping[str, float]
    columns: Mapping[str, Any]

    @property
    def input_columns(self) -> dict[str, Any]:
        """The columns that the row had before it was judged."""
        scores = [f"{_SCORE_COLUMN_PREFIX}{name}" for name in self.scores]
        ours = {*OUR_COLUMNS, *scores}
        return {name: value for name, value in self.columns.items() if name not in ours}

    def values_of(self, column: str) -> list[str]:
        """List a cell's values as strings, without duplicates and blanks. Only a list can have several.

        The strings don't depend on the file format from which the row was read.
        """
        value = self.columns.get(column)
        if column not in self.columns and column.startswith(_SCORE_COLUMN_PREFIX):
            value = self.scores.get(column.removeprefix(_SCORE_COLUMN_PREFIX))
        if isinstance(value, str) and value.startswith("["):
            value = parse_json(value)  # in tables, lists are written as JSON
        elements = value if isinstance(value, list) else [value]

        distinct_values: dict[str, None] = {}  # an ordered set
        for element in elements:
            if not labels.is_no_label(element):  # leave out blanks, such as None, "" and NaN
                distinct_values[labels.normalise_id(tables.convert_to_text(element))] = None
        return list(distinct_values)

    def has(self, column: str) -> bool:
        """Whether the row has a column, even with an empty cell."""
        is_score = (
            column.startswith(_SCORE_COLUMN_PREFIX)
            and column.removeprefix(_SCORE_COLUMN_PREFIX) in self.scores
        )
        return is_score or column in self.columns


class _SurveyedRows(NamedTuple):
    """A summary of a results file's first rows."""

    task: TaskName | None
    """None if it isn't clear."""
    verdict_counts: Counter[str]
    """By `labels.convert_to_key`."""
    column_names: dict[str, None]
    """An ordered set."""


class ResultFile:
    """The rows of a results file, by us or another tool. `task` is "judge" or "compare".

    Making and iterating it raises `InputError` for a row without an id or a verdict, and `UsageError` for a
    missing column.
    """

    def __init__(self, rows: Rows, columns: NamedColumns = USUAL_COLUMNS) -> None:
        self.name = rows.name
        self._is_table = _is_table(rows)
        self._can_reread = rows.can_reread
        self._rows: Iterable[DataRow | UnreadableRow] = rows
        self._columns = columns
        self._latest_columns: tuple[str, ...] = ()  # the columns of the latest row
        self._fields: Fields | None = None
        self._words: Mapping[str, str] = {}  # meanings of verdicts, by `labels.convert_to_key`
        self.max_text_count = MIN_TEXTS  # the most texts that a row compares, updated by the survey
        surveyed = self._survey(rows)
        self.task: TaskName = "judge"  # until `_read_verdicts` sets it
        self._read_verdicts(surveyed.verdict_counts, surveyed.task)
        self.has_id_column = columns.id_column in surveyed.column_names
        self.column_names = frozenset(surveyed.column_names)
        self._check_named_columns(list(surveyed.column_names))

    def _survey(self, rows: Rows) -> _SurveyedRows:
        """Read as many rows as are needed to know what the verdicts mean.

        A few are enough for our own verdicts, but those of other tools are only clear from all rows.
        """
        task: TaskName | None = None
        verdict_counts = Counter[str]()
        first_rows = []  # only kept for a stream, which can't be read again
        column_names = dict[str, None]()
        # A stream's rows are kept in memory, so stop as early as possible.
        min_rows = _MIN_EXAMINED_ROWS if rows.can_reread else 1
        row_iterator: Any = iter(rows)  # a generator, so it has `close`
        for number, row in enumerate(row_iterator, 1):
            if not rows.can_reread:
                first_rows.append(row)
            if isinstance(row, DataRow):
                column_names.update(dict.fromkeys(row.columns))
                task = task or self._guess_task(row)
                column = self._columns.find_column(row.columns, "verdict", ["verdict"])
                verdict = row.columns.get(column or "")
                verdict_counts[labels.convert_to_key(verdict)] += 1
            has_own_verdicts = task is not None and "verdict" not in self._columns.column_by_field
            if has_own_verdicts and number >= min_rows:
                break

        if rows.can_reread:
            row_iterator.close()
        else:
            # A stream can only be read once, so put the first rows back.
            self._rows = chain(first_rows, row_iterator)
        return _SurveyedRows(task, verdict_counts, column_names)

    def keep_stream(self) -> None:
        """Keep a stream's rows in memory, so that they can be read again."""
        if not self._can_reread:
            self._rows = list(self._rows)

    def _check_named_columns(self, column_names: Sequence[str]) -> None:
        """Raise `UsageError` if the caller named an unknown field or a missing column."""
        known_fields = dict.fromkeys([*fields.USUAL_NAMES_BY_TASK[self.task], "verdict", "label"])
        for field, column in self._columns.column_by_field.items():
            option = f"--map {field}={column}"
            if field not in known_fields:
                raise UsageError(f"{option}: unknown field; use one of {', '.join(known_fields)}")
            may_be_in_another_file = field in ("label", "winner")
            if not column or may_be_in_another_file:
                continue
            # In results, an input column with the same name as a result column has the prefix `row.`
            has_column = column in column_names or f"row.{column}" in column_names
            if not has_column and not is_path_into(column, column_names):
                columns = fields.format_column_names(column_names)
                raise UsageError(f"{option}: {self.name} has no such column; it has {columns}")

    def __iter__(self) -> Iterator[ResultRow]:
        ids = Ids()
        with closing(ids):
            answers = _read_answers(
                self._rows,
                self.name,
                "verdict",
                ["verdict"],
                self._columns,
                is_table=self._is_table,
            )
            for row, row_id, value in answers:
                position = f"{self.name}: row {row.number}"
                verdict = self._translate_verdict(value)
                if not verdict:
                    got = shorten_to_line(str(value), 40)
                    raise InputError(f"{position}: unknown verdict {got!r}; {_EXPECTED_VERDICTS}")

                first = ids.add(row_id, row.number)
                if first is not None:
                    raise InputError(f"{position}: duplicate id {row_id!r} (row {first}); keep one")
                yield ResultRow(row_id, verdict, dict(_read_scores(row.columns)), row.columns)

    def _translate_verdict(self, value: object) -> str:
        """Translate a verdict into an outcome, a letter, "tie" or undecided. Returns "" for anything else."""
        if isinstance(value, str) and value.strip() in UNDECIDED:
            return value.strip()
        return self._words.get(labels.convert_to_key(value), "")

    def _guess_task(self, row: DataRow) -> TaskName | None:
        """Infer from the row's `judged` record, or else from its scores, which task the result is of.

        Returns None if that's unclear. If the scores are of compared texts, also counts these for
        `max_text_count`.
        """
        record = parse_object(row.columns.get("judged")) or {}
        schema = str(record.get("schema"))
        if schema.startswith("judgekit/"):
            return "compare" if schema.startswith(_COMPARISON_SCHEMA_PREFIX) else "judge"

        # A comparison scores each text, so its scores are named by letters.
        scores = dict(_read_scores(row.columns))
        are_scores_of_texts = all(len(name) == 1 and name in LETTERS for name in scores)
        if scores and are_scores_of_texts:
            self.max_text_count = max(self.max_text_count, len(scores))
            return "compare"
        return None

    def _read_verdicts(self, counts: Counter[str], task: TaskName | None) -> None:
        """Find the verdicts' meanings. If `task` is None, infer whether texts were judged or compared."""
        decided = Counter({key: count for key, count in counts.items() if key not in UNDECIDED})
        outcome_by_word = labels.read_outcomes(decided) if task != "compare" else {}
        winner_by_word = (
            labels.read_winners(decided, self.max_text_count) if task != "judge" else {}
        )
        if task is None:
            # Letters such as C and I can be winners, or mean correct and incorrect. They only count as
            # winners if an A, B or tie shows that texts were compared.
            has_clear_winner = not {"A", "B", TIE}.isdisjoint(winner_by_word.values())
            outcome_count = sum(decided[key] for key in outcome_by_word)
            winner_count = sum(decided[key] for key in winner_by_word)
            is_comparison = has_clear_winner and winner_count > outcome_count
            task = "compare" if is_comparison else "judge"
        self.task = task
        meaning_by_word = winner_by_word if task == "compare" else outcome_by_word
        our_words = (*OUTCOMES, TIE, *LETTERS) if task == "compare" else OUTCOMES
        for word in our_words:  # our own words always mean themselves
            meaning_by_word[word] = word
        self._words = meaning_by_word

    def text_of(self, row: ResultRow) -> str:
        """Return the judged text, or the beginnings of the compared texts. Returns "" if they're unknown."""
        row_fields = self._get_fields(row)
        if row_fields is None:
            return ""
        data_row = DataRow(0, row.input_columns)
        with suppress(InputError):
            if self.task == "judge":
                document = fields.read_document(row_fields, data_row, row.row_id, _EVERYTHING_GIVEN)
                return document.files[0].text
            files = fields.read_comparison(row_fields, data_row).files
            chars_per_text = _MAX_COMPARED_CHARS // len(files)
            return " ".join(
                f"{file.path}: {shorten_to_line(file.text, chars_per_text)}" for file in files
            )
        return ""

    def texts_of(self, row: ResultRow) -> dict[str, str]:
        """Collect a row's texts by name, as `collect_texts` does."""
        row_fields = self._get_fields(row)
        if row_fields is None:
            return {}
        return collect_texts(self.task, row_fields, row.input_columns)

    def _get_fields(self, row: ResultRow) -> Fields | None:
        """Return the columns of a row's fields, or None if no column has a text."""
        names = tuple(row.input_columns)
        if self._latest_columns != names:  # the row has different columns than the last one
            self._latest_columns = names
            self._fields = self._find_fields(names, row.input_columns)
        return self._fields

    def _find_fields(self, names: Sequence[str], input_columns: Mapping[str, Any]) -> Fields | None:
        """Find each field's column among a row's `input_columns`. `names` are the names of these.

        Returns None if no column has a text.
        """
        given_columns = {}
        for field, column in self._columns.column_by_field.items():
            if field == "verdict":  # its column isn't one of the input's
                continue
            is_left_out = not column  # "" means that the rows don't have this field
            if is_left_out or column in names or is_path_into(column, names):
                given_columns[field] = column
            elif f"row.{column}" in names:
                # In results, an input column with the same name as a result column has this prefix.
                given_columns[field] = f"row.{column}"

        # Exports of known tools have column names of their own.
        recogniser = Recogniser()
        recogniser.note_row(input_columns)
        export = recogniser.recognise(self.task, given_columns)
        with suppress(UsageError):  # for example, no column has a text
            return fields.choose_fields(self.task, names, given_columns, self.name, export=export)
        return None


def collect_texts(task: TaskName, row_fields: Fields, columns: Mapping[str, Any]) -> dict[str, str]:
    """Collect a row's texts to show to a person, by heading: the question, the answer and so on.

    Empty texts, and cells that aren't strings, are omitted.
    """
    row = DataRow(0, columns)
    if task == "compare":
        texts = _collect_comparison_texts(row_fields, row)
    else:
        texts = _collect_document_texts(row_fields, row)
    return {name: text for name, text in texts.items() if text.strip()}


def _collect_comparison_texts(row_fields: Fields, row: DataRow) -> dict[str, str]:
    """Collect the question and the compared texts by name. Returns {} if the row can't be compared."""
    try:
        subject = fields.read_comparison(row_fields, row)
    except InputError:
        return {}
    texts = {"question": subject.prompt}
    texts.update({file.path: file.text for file in subject.files})
    return texts


def _collect_document_texts(row_fields: Fields, row: DataRow) -> dict[str, str]:
    """Collect the question, the answer, the expected answer and the sources by name."""
    try:
        document = fields.read_document(row_fields, row, "", _GIVEN_TO_PEOPLE)  # no sources
    except InputError:  # there's no answer, or a cell isn't a string; show the other texts anyway
        texts = {}
        for role, name in (("description", "question"), ("reference", "expected")):
            cell = row_fields.read(row, role)
            texts[name] = cell if isinstance(cell, str) else ""
        return texts
    texts = {
        "question": document.task.description,
        "must fulfil": document.task.acceptance,
        "answer": document.files[0].text,
        "expected": document.task.reference,
    }
    if "sources" in row_fields.column_by_field:
        # Read the sources separately, so that malformed ones don't hide the other texts. The first file is
        # the answer.
        with suppress(InputError):
            sources = fields.read_document(row_fields, row, "", _EVERYTHING_GIVEN).files[1:]
            for file in sources[:_MAX_SOURCES]:
                texts[f"source: {file.path}"] = _shorten_source(file.text)
    return texts


def _shorten_source(source: str) -> str:
    """Truncate a source for a page, which would be too long with complete ones."""
    if len(source) <= _SOURCE_CHARS:
        return source
    return f"{source[:_SOURCE_CHARS]} … (cut here)"


def read_texts(
    rows: Rows, task: TaskName, columns: NamedColumns = USUAL_COLUMNS
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each row's id and texts. Rows without an id are identified by their number.

    Raises `UsageError` if no column has a text.
    """
    stream, (names, recogniser) = survey(rows)
    export = recogniser.recognise(task, columns.column_by_field)
    row_fields = fields.choose_fields(
        task, names, columns.column_by_field, rows.name, export=export
    )
    for row in stream:
        if isinstance(row, UnreadableRow):
            continue
        row_id = columns.id_of(row.columns, rows.name) or labels.normalise_id(row.number)
        yield row_id, collect_texts(task, row_fields, row.columns)


def open_results(rows: Rows, columns: NamedColumns = USUAL_COLUMNS) -> ResultFile:
    """Open a results file. Raises what `ResultFile` raises."""
    return ResultFile(rows, columns)


class LabelSheet(NamedTuple):
    """Labels by id (outcomes, or letters and "tie"), and the labels that were skipped."""

    label_by_id: dict[str, str]
    left_out: LeftOut
    has_id_column: bool = False


def read_labels(
    rows: Rows,
    task: TaskName = "judge",
    columns: NamedColumns = USUAL_COLUMNS,
    texts: int = MIN_TEXTS,
) -> LabelSheet:
    """Read a file's labels. `texts` is the number of texts compared per row.

    Raises `InputError` if an id has two different labels, and `UsageError` if the labels are ambiguous.
    """
    field = "winner" if task == "compare" else "label"
    names = fields.USUAL_NAMES_BY_TASK[task][field].split()
    # `--map label=COLUMN` can also name the column of winners.
    label_column = columns.column_by_field.get(field, columns.column_by_field.get("label"))
    if label_column is not None:
        columns = columns._replace(column_by_field={field: label_column})

    keys: dict[str, str] = {}  # labels in the form of `labels.convert_to_key`, by id
    has_id_column = False
    left_out = LeftOut()
    for row, row_id, value in _read_label_column(rows, task, names, columns):
        has_id_column = has_id_column or columns.id_column in row.columns
        key = labels.convert_to_key(value)
        if key == labels.BLANK_LABEL_KEY:
            left_out.blank += 1
            continue
        first_key = keys.setdefault(row_id, key)
        if first_key != key:
            position = f"{rows.name}: row {row.number}"
            raise InputError(f"{position}: two labels for the id {row_id!r}; keep one")

    # A label's meaning depends on all labels: 1 is the best of 0 and 1, but not of 1 to 5.
    key_counts = Counter(keys.values())
    try:
        if task == "compare":
            word_by_key = labels.read_winners(key_counts, texts)
        else:
            word_by_key = labels.read_outcomes(key_counts)
    except UsageError as error:
        raise UsageError(f"{rows.name}: {error}") from None

    words = {}
    for row_id, key in keys.items():
        if key in word_by_key:
            words[row_id] = word_by_key[key]
        else:
            left_out.add_unknown(key)
    return LabelSheet(words, left_out, has_id_column)


def _read_label_column(
    rows: Rows, task: TaskName, names: Sequence[str], columns: NamedColumns
) -> Iterator[tuple[DataRow, str, object]]:
    """Yield each row with its id and label. Raises `InputError` if one is missing."""
    field = "winner" if task == "compare" else "label"
    stream: Iterable[DataRow | UnreadableRow] = rows
    if task == "compare" and field not in columns.column_by_field:
        stream = map(_add_winner, rows)
    yield from _read_answers(stream, rows.name, field, names, columns, is_table=_is_table(rows))


def _add_winner(row: DataRow | UnreadableRow) -> DataRow | UnreadableRow:
    """Add a column `winner` to a row that has a column for each text instead, with 1 for the winner."""
    if isinstance(row, UnreadableRow) or "winner" in row.columns:
        return row
    winner = fields.read_one_hot_winner(row.columns)
    if winner is None:
        return row
    return row._replace(columns={**row.columns, "winner": winner})


def read_labelled_cases(
    rows: Rows, columns: NamedColumns = USUAL_COLUMNS
) -> tuple[list[Case], LeftOut]:
    """Read labelled rows as cases for testing judges, and count the skipped rows.

    A case gets its label as it's written. Raises `InputError` for an unreadable row, a repeated id or no
    column of labels, and `UsageError` for a missing id column.
    """
    stream, (names, recogniser) = survey(rows)
    export = recogniser.recognise("judge", columns.column_by_field)
    row_fields = fields.choose_fields(
        "judge", names, columns.column_by_field, rows.name, export=export
    )
    if "label" not in row_fields.column_by_field:
        problem = f"expected a column label; it has {', '.join(names)}"
        raise InputError(f"{rows.name}: {problem}; name one with --map label=COLUMN")
    if columns.id_column and columns.id_column not in names:
        problem = f"{rows.name} has no such column; it has {', '.join(names)}"
        raise UsageError(f"--id {columns.id_column}: {problem}")

    cases = dict[str, Case]()
    left_out = LeftOut()
    for row in stream:
        if isinstance(row, UnreadableRow):
            raise build_unreadable_error(rows.name, row, 0)
        if _is_table(rows):
            row = _restore_cells(row)  # noqa: PLW2901 - the same row, unescaped
        row_id = columns.id_of(row.columns, rows.name) or str(row.number)
        position = f"{rows.name}: row {row.number}"

        label = row_fields.read(row, "label")
        if labels.is_no_label(label):
            left_out.blank += 1
            continue
        try:
            document = fields.read_document(row_fields, row, row_id, _EVERYTHING_GIVEN)
        except fields.Unjudgeable:
            left_out.texts += 1
            continue
        except InputError as error:
            raise InputError(f"{position}: {error}") from None

        if row_id in cases:
            raise InputError(f"{position}: duplicate id {row_id!r}; keep one")
        cases[row_id] = _make_case(document, label, row_id, position)
    return list(cases.values()), left_out


def _make_case(document: Document, label: object, row_id: str, position: str) -> Case:
    """Build a case from a labelled row's document."""
    text_file, *source_files = document.files
    values = {role: getattr(document.task, role) for role in TASK_ROLES}
    values["files"] = {file.path: file.text for file in source_files}
    values["label"] = label if isinstance(label, str | bool | int | float) else str(label)
    return Case.of_row(position, id=row_id, text=text_file.text, **values)


def _read_answers(
    rows: Iterable[DataRow | UnreadableRow],
    file: str,
    field: str,
    names: Sequence[str],
    columns: NamedColumns,
    *,
    is_table: bool,
) -> Iterator[tuple[DataRow, str, object]]:
    """Yield each row with its id and its value for `field`.

    `is_table` means that cells may be escaped for spreadsheets. Raises `InputError` for an unreadable row, or
    one without an id or value.
    """
    for row in rows:
        if isinstance(row, UnreadableRow):
            raise build_unreadable_error(file, row, 0)
        if is_table:
            row = _restore_cells(row)  # noqa: PLW2901 - the same row, unescaped
        row_id = columns.id_of(row.columns, file)
        column = columns.find_column(row.columns, field, names)
        if row_id is None or column is None:
            problem = f"expected the columns id and {names[0]}; in CSV with commas between them"
            remedy = f"name others with --id COLUMN and --map {field}=COLUMN"
            raise InputError(f"{file}: row {row.number}: {problem}; {remedy}")
        yield row, row_id, row.columns[column]


def _is_table(rows: Rows) -> bool:
    """Whether rows come from CSV or TSV, in which we escape cells that could be run as formulas."""
    return Path(rows.read_from).suffix.lower() in DELIMITERS


def _restore_cells(row: DataRow) -> DataRow:
    """Unescape a row's cells, which we escaped so that spreadsheets don't run them as formulas."""
    cells = {}
    for name, cell in row.columns.items():
        cells[restore_cell(name)] = restore_cell(cell)
    return row._replace(columns=cells)


def _read_scores(columns: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the names and values of a row's scores, from the column `scores` or from `score.NAME` columns."""
    scores = parse_object(columns.get("scores"))
    if scores is None:
        scores = _collect_score_columns(columns)
    for name, value in scores.items():
        score = labels.parse_number(value)
        if score is not None:
            yield name, score


def _collect_score_columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Collect the scores in `score.NAME` columns by name. Input columns with such a name are left out."""
    cells = {}
    for name, value in columns.items():
        if name.startswith(_SCORE_COLUMN_PREFIX):
            cells[name.removeprefix(_SCORE_COLUMN_PREFIX)] = value
    if not cells:
        return {}

    record = parse_object(columns.get("judged"))
    if record is None or not str(record.get("schema")).startswith("judgekit/"):
        return cells
    if "scores" not in record and "subjects" not in record:
        return cells
    # The record contains the names of the scores. All other columns are from the input.
    dimensions = record.get("scores") or ()
    subjects = record.get("subjects") or ()
    names = {*dimensions, *(subject.get("letter") for subject in subjects)}
    return {name: value for name, value in cells.items() if name in names}


def parse_object(value: object) -> dict[str, Any] | None:
    """Return the object in a cell, parsing JSON if necessary, or None if it's anything else."""
    if isinstance(value, str) and value.startswith("{"):
        value = parse_json(value)
    return value if isinstance(value, dict) else None


def add_sample(
    results: Iterable[ResultRow], path: str, count: int, columns: NamedColumns = USUAL_COLUMNS
) -> tuple[int, int]:
    """Add a random sample of `count` decided rows to a file in which people will write labels.

    Returns the number of added rows and of all rows in the file. Raises `InputError` if it can't be read or
    written, and `UsageError` for an unknown file type.
    """
    ending = Path(path).suffix.lower()
    if ending not in (*DELIMITERS, *JSON_LINES.endings):
        raise UsageError(
            f"{path}: unknown ending of a file of labels; expected .csv, .tsv or .jsonl"
        )
    with lock_output(resolve_output_path(path), path, "--labels"):
        return _add_sample(results, path, count, columns)


def _add_sample(
    results: Iterable[ResultRow], path: str, count: int, columns: NamedColumns
) -> tuple[int, int]:
    """Add random rows to a label sheet. Returns the number of added rows and of all rows.

    The caller must lock the file.
    """
    raw = b""
    existing_ids = set()
    if Path(path).exists():
        raw = Path(path).read_bytes()
        # `path` is a file, so standard input isn't used.
        sheet = open_rows(path, stdin=io.BytesIO())
        answers = _read_answers(sheet, path, "label", ["label"], columns, is_table=_is_table(sheet))
        for _, row_id, _ in answers:
            existing_ids.add(row_id)

    new_rows = []
    for result in _draw_rows(results, count, without=existing_ids):
        # People mustn't see the verdict before they label a row, so only write the input columns.
        row = {"id": result.row_id, "label": ""}
        for name, value in result.input_columns.items():
            row.setdefault(name, value)
        new_rows.append(row)

    sheet_text = _append_rows(raw, new_rows, path)
    try:
        outputs.write_atomically(path, sheet_text, mode=outputs.PRIVATE, durable=True)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror}); choose another --labels"
        ) from None
    return len(new_rows), len(existing_ids) + len(new_rows)


def _append_rows(raw: bytes, new_rows: Sequence[Mapping[str, Any]], path: str) -> str:
    """Append rows to a label sheet. `raw` is its current content. Returns the new content.

    Raises `InputError` if the sheet isn't UTF-8.
    """
    encoding = sniffing.recognise_text(raw)
    if not encoding.is_plain:
        problem = f"expected UTF-8 to add rows to, got {encoding}; save it as UTF-8"
        raise InputError(f"{path}: {problem}")
    old_text = raw.decode("utf-8-sig")
    ending = Path(path).suffix.lower()
    if ending in DELIMITERS:
        delimiter = DELIMITERS[ending]
        if raw:
            delimiter = sniffing.find_delimiter(raw, delimiter, path)
        new_lines = _render_delimited(old_text, new_rows, delimiter)
    else:
        new_lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in new_rows)
    if old_text and not old_text.endswith("\n"):
        old_text += "\n"
    return old_text + new_lines


def _draw_rows(
    results: Iterable[ResultRow], count: int, without: Collection[str]
) -> list[ResultRow]:
    """Draw a random sample of decided rows whose id isn't in `without`."""

    # The rows with the lowest hashes are a random sample. A larger sample contains all of a smaller one.
    def hash_id(result: ResultRow) -> bytes:
        return hashlib.sha256(result.row_id.encode()).digest()

    decided = (result for result in results if result.verdict not in UNDECIDED)
    new = (result for result in decided if result.row_id not in without)
    return heapq.nsmallest(count, new, key=hash_id)


def _render_delimited(old: str, rows: Sequence[Mapping[str, Any]], delimiter: str) -> str:
    """Render rows as lines to append to the text `old`, in its columns.

    If `old` is empty, the rows' keys are the columns, and the lines start with a header.
    """
    header = next(csv.reader(io.StringIO(old), delimiter=delimiter), [])
    names = list(map(restore_cell, header))  # without the escapes for spreadsheets
    lines = io.StringIO(newline="")
    writer = csv.writer(lines, delimiter=delimiter)
    if not names:
        names = list(dict.fromkeys(chain.from_iterable(rows)))
    if not old:
        writer.writerow(map(defuse_cell, names))
    for row in rows:
        writer.writerow([tables.format_cell(row.get(name)) for name in names])
    return lines.getvalue()
