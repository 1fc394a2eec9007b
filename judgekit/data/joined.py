"""Joins two files of texts by row id into pairs for `compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from judgekit.data import fields as row_fields
from judgekit.data.dataset import RowOptions, match_columns, report_repeated_id
from judgekit.data.paths import read_cell
from judgekit.data.rows import Rows
from judgekit.data.sources import DataRow, UnreadableRow
from judgekit.errors import InputError, UsageError
from judgekit.evaluation import labels
from judgekit.rubric.schema import Given
from judgekit.text import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from judgekit.data.fields import Fields
    from judgekit.data.sources import Reading

# Without a reference and sources: a comparison shows only prompts and texts.
_NOTHING_GIVEN = Given()


class Side(NamedTuple):
    """One file's part of a pair."""

    prompt: str
    text: str
    author_family: str | None


class JoinedRows(Rows):
    """Pairs of rows with the same id from two files, in the first file's order.

    The columns are `id`, `prompt`, `a`, `b` and, if a file has authors, `author_a` and `author_b`. If the
    prompts differ, the first file's is used. The second file's texts are held in memory.
    """

    def __init__(
        self,
        first: Rows,
        second: Rows,
        given: Mapping[str, str],
        id_column: str | None,
        reading: Reading,
    ) -> None:
        """Match both files' columns. Raises `UsageError` for a missing column, `InputError` without rows."""
        self.name = f"{first.name} and {second.name}"
        self.paths = (*first.paths, *second.paths)
        self.can_reread = True
        self.schema = None
        self.can_split = False
        self._reading = reading
        self._first = _OneFile(first, _map_fields_of_side(given, "a"), id_column)
        self._second = _OneFile(second, _map_fields_of_side(given, "b"), id_column)

    def __iter__(self) -> Iterator[DataRow | UnreadableRow]:
        second_sides: dict[str, Side] = {}  # by id
        yield from self._read_second_into(second_sides)

        matched_ids: set[str] = set()
        without_partner = 0
        different_prompts = 0
        for row in self._first.read_sides():
            if isinstance(row, UnreadableRow):
                yield row
                continue
            key = labels.normalise_id(row.id)
            second_side = second_sides.get(key)
            if second_side is None:
                without_partner += 1
                continue
            matched_ids.add(key)
            have_prompts = bool(row.side.prompt and second_side.prompt)
            if have_prompts and row.side.prompt != second_side.prompt:
                different_prompts += 1
            yield DataRow(row.number, _build_pair(row.id, row.side, second_side))

        if not matched_ids:
            problem = f"no id of {self._first.name} is in {self._second.name}"
            raise InputError(f"{problem}; name the column that both have with --id")
        self._remark_unpaired(without_partner, self._first.name)
        self._remark_unpaired(len(second_sides) - len(matched_ids), self._second.name)
        if different_prompts:
            pairs = format_count(different_prompts, "pair has", "pairs have")
            problem = f"{pairs} different prompts: that of {self._first.name} is shown"
            self._reading.remark(problem)

    def _read_second_into(self, sides: dict[str, Side]) -> Iterator[UnreadableRow]:
        """Add the second file's texts to `sides`, by id. Yields its unreadable rows."""
        row_number_by_id: dict[str, int] = {}
        for row in self._second.read_sides():
            if isinstance(row, UnreadableRow):
                yield row
                continue
            key = labels.normalise_id(row.id)
            if key in sides:
                yield report_repeated_id(
                    row.id, row.number, row_number_by_id[key], self._second.id_column
                )
            sides[key] = row.side  # of rows with the same id, the last one counts
            row_number_by_id[key] = row.number

    def describe(self, fields: Fields, *id_columns: str) -> list[str]:
        """Describe the columns that are read from each file."""
        del fields, id_columns  # a pair's own columns always have the same names
        return [self._first.describe(), self._second.describe()]

    def _remark_unpaired(self, count: int, name: str) -> None:
        if count:
            rows = format_count(count, "row", "rows")
            self._reading.remark(f"{name}: {rows} without a partner, not compared")


class _RowOfSide(NamedTuple):
    """A readable row: its number in the file, its id, and its part of a pair."""

    number: int
    id: str | int
    side: Side


class _OneFile:
    """One of the two files, with the columns of its texts and ids."""

    def __init__(self, rows: Rows, given: Mapping[str, str], id_column: str | None) -> None:
        self.name = rows.name
        # Each row of a file contains a single text, so read the file as if its documents were to be judged.
        matched = match_columns(rows, RowOptions("judge", given, id_column))
        if matched.id_column is None:
            problem = f"{rows.name} has no column of ids, by which two files are joined"
            raise UsageError(f"{problem}; name one with --id")
        self._rows = matched.rows
        self._fields = matched.fields
        self.id_column = matched.id_column

    def describe(self) -> str:
        """Describe the file's columns."""
        return f"{self.name}: {self._fields.describe(self.id_column)}"

    def read_sides(self) -> Iterator[_RowOfSide | UnreadableRow]:
        """Yield each row as one side of a pair, with its id."""
        for row in self._rows:
            if isinstance(row, UnreadableRow):
                yield self._add_file_name(row)
                continue
            row_id = labels.read_id(read_cell(row.columns, self.id_column))
            if row_id is None:
                problem = "expected an id: a short text or a number"
                yield self._add_file_name(UnreadableRow(row.number, self.id_column, problem))
                continue
            try:
                yield _RowOfSide(row.number, row_id, _read_side(self._fields, row))
            except row_fields.FieldError as error:
                yield self._add_file_name(UnreadableRow(row.number, error.column, error.problem))

    def _add_file_name(self, row: UnreadableRow) -> UnreadableRow:
        """Add the file's name to the row's problem."""
        return row._replace(problem=f"{row.problem} ({self.name})")


def _map_fields_of_side(given: Mapping[str, str], side: str) -> dict[str, str]:
    """Rename a comparison's fields to those of a judged document. `side` is "a" or "b"."""
    column_by_field = {}
    for field, column in given.items():
        if field == "prompt":
            column_by_field["description"] = column
        elif field == side:
            column_by_field["text"] = column
        elif field not in ("a", "b"):  # the other side's text is in another file
            column_by_field[field] = column
    return column_by_field


def _read_side(fields: Fields, row: DataRow) -> Side:
    """Read one side of a pair from a row."""
    try:
        document = row_fields.read_document(fields, row, str(row.number), _NOTHING_GIVEN)
    except row_fields.Unjudgeable:
        return Side("", "", None)  # `compare` reports the empty text
    return Side(document.task.description, document.files[0].text, document.author.family)


def _build_pair(row_id: str | int, first: Side, second: Side) -> dict[str, str | int]:
    """Build the columns of a row that compares both sides."""
    pair: dict[str, str | int] = {
        "id": row_id,
        "prompt": first.prompt or second.prompt,
        "a": first.text,
        "b": second.text,
    }
    if first.author_family or second.author_family:
        pair["author_a"] = first.author_family or ""
        pair["author_b"] = second.author_family or ""
    return pair
