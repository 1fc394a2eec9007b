"""Finds the columns of a row's fields (the text, the question and so on), and reads its judged content.

A column is found by common names (`fields.toml`), in an order of priority, or named with `--map
FIELD=COLUMN`.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import shlex
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from judgekit import environment
from judgekit.data import conversation
from judgekit.data.columns import list_response_names, list_rival_columns
from judgekit.data.conversation import ASSISTANT, describe_kind
from judgekit.data.passages import read_passages
from judgekit.data.paths import find_column, find_roots, is_path_into, read_cell
from judgekit.data.presets import read_field
from judgekit.data.values import parse_json
from judgekit.errors import InputError, UsageError
from judgekit.evaluation import labels
from judgekit.evaluation.labels import normalise_name
from judgekit.judging import documents
from judgekit.judging.documents import (
    LETTERS,
    MAX_TEXTS,
    TASK_ROLES,
    ComparisonInput,
    Document,
    TaskDescription,
    make_file,
)
from judgekit.text import escape_name, is_blank, replace_surrogates, shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from judgekit.data.presets import Recognised
    from judgekit.data.sources import DataRow
    from judgekit.data.templates import Template
    from judgekit.data.thoughts import Thoughts
    from judgekit.judging.documents import File
    from judgekit.rubric.schema import Given

TaskName: TypeAlias = Literal["judge", "compare"]
JudgeTurn: TypeAlias = Literal["last", "all"]

_FIELDS_TABLE: dict[str, Any] = environment.read_toml(__file__, "fields.toml")
USUAL_NAMES_BY_TASK: dict[TaskName, dict[str, str]] = _FIELDS_TABLE["usual"]
_NEXT_NAME_BY_NAME: dict[str, str] = _FIELDS_TABLE["continued"]
_ONE_HOT_WINNER_PATTERN = re.compile(r"winner(?:model|response|answer)?([a-z]|tie)")
_MAX_SHOWN_COLUMNS = 12  # column names in a message
_NAME_CHARS = 60
_SHOWN_CHOICES = 3
_LABEL_FIELDS = ("label", "winner")
TEMPLATE_FIELDS = ("description", "prompt")


class FieldError(InputError):
    """A cell of the wrong type. `problem` says which type was expected, and which was found."""

    def __init__(self, column: str, problem: str) -> None:
        self.column = column
        self.problem = problem
        super().__init__(f"{column}: {problem}")


class Unjudgeable(InputError):  # noqa: N818 - no fault of the input: the row gets no verdict
    """A row without a text to judge."""


class Naming(NamedTuple):
    """How callers name a field's column, for messages: with a command-line option, or in Python."""

    is_python: bool = False

    def format_field_option(self, field: str, column: str = "COLUMN") -> str:
        if self.is_python:
            return f"fields={{{field!r}: {column!r}}}"
        return f"--map {shlex.quote(f'{field}={column}')}"

    def format_id_option(self, column: str = "COLUMN") -> str:
        return f"id_column={column!r}" if self.is_python else f"--id {shlex.quote(column)}"

    def format_compare_option(self) -> str:
        return 'task="compare"' if self.is_python else "judgekit compare --data"


COMMAND_LINE_NAMING = Naming()


class Fields(NamedTuple):
    """The column of each field, and how to read a row's value for it."""

    column_by_field: Mapping[str, str]
    """Columns by field.

    For a field with `paths_by_field`, the column only serves as a name in messages, or is "".
    """
    other_columns_by_field: Mapping[str, Sequence[str]]
    """By field, further columns that could have been chosen."""
    unused_columns: Sequence[str]
    """Columns of no field."""
    naming: Naming = Naming()
    export_name: str = ""
    """The name of the tool that exported the rows, if it's known."""
    paths_by_field: Mapping[str, Sequence[str]] = MappingProxyType({})
    """By field, where an export has the value."""
    second_column_by_field: Mapping[str, str] = MappingProxyType({})
    """By field, a second column, whose text is appended to that of the first."""
    template: Template | None = None
    """A template that each row fills, instead of a column for the description or prompt."""

    def read(self, row: DataRow, field: str) -> Any:  # noqa: ANN401 - whatever JSON can hold
        """Read a row's value for a field, or None if it has none."""
        if field in self.paths_by_field:
            return read_field(row.columns, field, self.paths_by_field[field])
        return read_cell(row.columns, self.column_by_field.get(field, ""))

    def name(self, field: str) -> str:
        """Return a field's column for messages, or the field's own name if it has no column."""
        return self.column_by_field[field] or field

    def fill_template(self, row: DataRow) -> str:
        """Fill the template from a row. Raises `FieldError` for a cell that's neither text nor messages."""
        assert self.template is not None, "the caller checks this"  # noqa: S101

        def read(column: str) -> str:
            value = read_cell(row.columns, column)
            if conversation.is_conversation(value):
                return conversation.render_turns(_read_turns(value, column))
            return _convert_to_text(value, "template", column, self.naming)

        return self.template.fill(read)

    def _is_fixed(self, field: str) -> bool:
        """Whether an export has no column for a field, because the value is the same in all rows.

        For example, A always wins in an export with a "chosen" and a "rejected" column.
        """
        paths = self.paths_by_field.get(field, ())
        # A path without a root is a literal, such as 'A', which is the same for all rows.
        reads_column = any(find_roots(path) for path in paths)
        return bool(paths) and not reads_column

    def describe(self, *id_columns: str) -> str:
        """Describe in one line which column each field is read from, and which columns aren't used.

        `id_columns` are used for ids, so they aren't mentioned.
        """
        parts = []
        for field, column in self.column_by_field.items():
            if column:
                parts.append(self._describe_field(field, column))
        if self.template is not None:
            parts.append(f"the template filled from {format_column_names(self.template.columns)}")

        text = ", ".join(parts)
        unused = self._list_unused(id_columns)
        if unused:
            text += f"; not used: {format_column_names(unused)}"
        return f"{self.export_name}: {text}" if self.export_name else text

    def _describe_field(self, field: str, column: str) -> str:
        """Describe the columns that a field is read from, such as `text from answer (not output)`."""
        # A fixed field has a literal in place of a column, as in `winner is 'A'`.
        verb = "is" if self._is_fixed(field) else "from"
        description = f"{field} {verb} {format_column_names([column])}"
        # Some fields continue in a second column, such as Alpaca's `instruction` in `input`.
        if field in self.second_column_by_field:
            description += f" and {format_column_names([self.second_column_by_field[field]])}"
        # Other columns may have a name that fits the field, too.
        other_columns = self.other_columns_by_field.get(field)
        if other_columns:
            description += f" (not {format_column_names(other_columns)})"
        return description

    def _list_unused(self, id_columns: Iterable[str]) -> list[str]:
        """List the unused columns, except those that `_describe_field` names as "not …"."""
        used = [*id_columns]
        if self.template is not None:
            used += self.template.columns
        left_out = {find_column(name, self.unused_columns) for name in used}
        for field, column in self.column_by_field.items():
            if column:
                left_out.update(self.other_columns_by_field.get(field, ()))
        return _exclude(self.unused_columns, left_out)


def parse_map(items: Iterable[str]) -> dict[str, str]:
    """Parse items such as `text=answer` (FIELD=COLUMN). Returns columns by field.

    Raises `UsageError` for any other item.
    """
    columns = {}
    for item in items:
        field, sign, column = item.partition("=")
        if not sign or not field:
            raise UsageError(f"--map {item}: expected FIELD=COLUMN, such as text=answer")
        if field in columns:
            raise UsageError(f"--map {field}: given twice; give it once")
        columns[field] = column
    return columns


def choose_fields(
    task: TaskName,
    columns: Sequence[str],
    given: Mapping[str, str],
    name: str,
    naming: Naming = Naming(),  # noqa: B008 - a value that never changes
    export: Recognised | None = None,
) -> Fields:
    """Choose the column of each field among the `columns` of `name`; a field `given` as "" is left out.

    The paths of an `export` come first, except for `given` fields. Raises `UsageError` for an unknown field
    or column, if no column gives a text, and if several might; it says how to name one, by `naming`.
    """
    # Names are always compared in their plain form.
    usual = {}
    for field, names in USUAL_NAMES_BY_TASK[task].items():
        usual[field] = list(map(normalise_name, names.split()))
    _check_given(given, usual, columns, name, naming)
    paths = {} if export is None else _select_paths(export, given)
    taken_first = {*given.values(), *_collect_roots(paths)}
    column_by_name: dict[str, str] = {}
    for column in columns:
        column_by_name.setdefault(normalise_name(column), column)
    free = {key: column for key, column in column_by_name.items() if column not in taken_first}

    usual_names = list(chain.from_iterable(usual.values()))
    if task == "judge":
        # "text" itself comes before a model's response, which comes before the other usual names.
        first, *rest = usual["text"]
        usual["text"] = [first, *list_response_names(column_by_name, usual_names), *rest]
    elif not given.get("a") and not given.get("b"):
        usual["a"], usual["b"] = _keep_complete_pairs(usual["a"], usual["b"], free)

    # An export's columns are known. It may leave only the label to be found by a usual name.
    is_closed = export is not None and not export.uses_usual_names
    open_names = {}
    for field, plain_names in usual.items():
        is_known = field in given or field in paths
        if not is_known and (not is_closed or field in _LABEL_FIELDS):
            open_names[field] = plain_names
    found = _find_by_usual_name(open_names, free)

    chosen = {field: column for field, column in given.items() if column}
    for field in paths:
        # Only a name for messages; the value is read by the path.
        chosen[field] = export.shown_path_by_field.get(field, "") if export else ""
    chosen.update(found.column_by_field)
    _choose_fields_of_text(task, chosen, given, name, columns, naming)
    is_text_found = "text" in found.column_by_field and "text" in chosen
    if task == "judge" and is_text_found:
        rivals = list_rival_columns(normalise_name(chosen["text"]), free, usual_names)
        _refuse_doubt(chosen["text"], rivals, name, naming)

    taken = {find_column(name, columns) for name in chosen.values()}
    taken.update(taken_first, found.second_column_by_field.values())
    columns_of_fields = {}
    other_columns = {}
    for field in usual:
        if field in chosen:
            columns_of_fields[field] = chosen[field]
            other_columns[field] = _exclude(found.other_columns_by_field.get(field, ()), taken)
    return Fields(
        column_by_field=columns_of_fields,
        other_columns_by_field=other_columns,
        unused_columns=[] if is_closed else _exclude(columns, taken),
        naming=naming,
        export_name="" if export is None else export.name,
        paths_by_field={field: paths[field] for field in paths if field in columns_of_fields},
        second_column_by_field=found.second_column_by_field,
    )


class _FoundColumns(NamedTuple):
    """Columns found by their usual names, as in `Fields`."""

    column_by_field: dict[str, str]
    other_columns_by_field: dict[str, list[str]]
    second_column_by_field: dict[str, str]


def _find_by_usual_name(names: Mapping[str, Sequence[str]], free: dict[str, str]) -> _FoundColumns:
    """Find each field's column by its usual `names`, in order of preference.

    `free` maps plain names to the columns that have no field yet. Found columns are removed from it.
    """
    found = _FoundColumns({}, {}, {})
    for field, usual_names in names.items():
        matching_names = [plain_name for plain_name in usual_names if plain_name in free]
        if not matching_names:
            continue
        best_name, *other_names = matching_names
        found.column_by_field[field] = free.pop(best_name)
        # Some texts continue in a second column, such as Alpaca's `instruction` in `input`.
        second_name = _NEXT_NAME_BY_NAME.get(best_name, "")
        if second_name in free:
            found.second_column_by_field[field] = free.pop(second_name)
            other_names.remove(second_name)  # it's also one of the field's own usual names
        found.other_columns_by_field[field] = [free[plain_name] for plain_name in other_names]
    return found


def _select_paths(export: Recognised, given: Mapping[str, str]) -> dict[str, Sequence[str]]:
    """Select an export's paths for fields whose column the caller didn't name."""
    return {field: paths for field, paths in export.paths_by_field.items() if field not in given}


def _collect_roots(paths: Mapping[str, Sequence[str]]) -> set[str]:
    """Collect the columns in which the fields' paths start, such as `a` for the path `a.b[0]`."""
    roots = set()
    for alternatives in paths.values():
        for path in alternatives:
            roots.update(find_roots(path))
    return roots


def find_id_column(
    columns: Iterable[str], name: str, naming: Naming = COMMAND_LINE_NAMING
) -> str | None:
    """Find the id column: `id`, or the only column with a similar name, such as `ID` or `_id`.

    Returns None if there's none. Raises `UsageError` if there are multiple candidates.
    """
    if "id" in columns:
        return "id"
    candidates = [column for column in columns if normalise_name(column) == "id"]
    if len(candidates) > 1:
        options = [naming.format_id_option(column) for column in candidates[:_SHOWN_CHOICES]]
        problem = f"{format_column_names(candidates)} may each be the ids of the rows"
        raise UsageError(f"{name}: {problem}; choose with {' or '.join(options)}")
    return candidates[0] if candidates else None


def _exclude(columns: Iterable[str], excluded: Collection[str]) -> list[str]:
    return [column for column in columns if column not in excluded]


def _check_given(
    given: Mapping[str, str],
    usual: Collection[str],
    columns: Sequence[str],
    name: str,
    naming: Naming,
) -> None:
    """Raise `UsageError` if a column is given for an unknown field, or doesn't exist."""
    for field, column in given.items():
        option = naming.format_field_option(field, column)
        if field not in usual:
            raise UsageError(f"{option}: unknown field; use one of {', '.join(usual)}")
        if column and column not in columns and not is_path_into(column, columns):
            raise build_unknown_column_error(option, column, columns, name)


def build_unknown_column_error(
    option: str, column: str, columns: Sequence[str], name: str
) -> UsageError:
    """Build the error for an option with a column that doesn't exist in the input `name`."""
    hint = ""
    close_matches = difflib.get_close_matches(column, columns, n=1)
    if close_matches:
        hint = f" (did you mean {close_matches[0]}?)"
    problem = f"{name} has no such column{hint}; it has {format_column_names(columns)}"
    return UsageError(f"{option}: {problem}")


def _keep_complete_pairs(
    a: Sequence[str], b: Sequence[str], free: Collection[str]
) -> tuple[list[str], list[str]]:
    """Keep the pairs of names, such as `response_a` and `response_b`, for which both columns exist."""
    names_of_a = []
    names_of_b = []
    for name_of_a, name_of_b in zip(a, b, strict=True):
        if name_of_a in free and name_of_b in free:
            names_of_a.append(name_of_a)
            names_of_b.append(name_of_b)
    return names_of_a, names_of_b


def _refuse_doubt(text: str, rivals: Sequence[str], name: str, naming: Naming) -> None:
    """Raise `UsageError` if the text to judge could be in the column `text` or in one of `rivals`."""
    if not rivals:
        return
    columns = [text, *rivals]
    options = [naming.format_field_option("text", column) for column in columns[:_SHOWN_CHOICES]]
    problem = f"{format_column_names(columns)} may each be the text to judge"
    raise UsageError(f"{name}: {problem}; choose with {' or '.join(options)}")


def _choose_fields_of_text(
    task: TaskName,
    chosen: dict[str, str],
    given: Mapping[str, str],
    name: str,
    columns: Sequence[str],
    naming: Naming,
) -> None:
    """Decide whether the texts have a column each or share a column (`conversation` or `texts`).

    The fields that aren't used are removed from `chosen`. Raises `UsageError` if there's no text, or if the
    caller named columns of both kinds.
    """
    separate_fields: tuple[str, ...]
    if task == "judge":
        separate_fields = ("text",)
        shared_field = "conversation"
    else:
        separate_fields = ("a", "b")
        shared_field = "texts"
    gave_separate = any(given.get(field) for field in separate_fields)
    gave_shared = bool(given.get(shared_field))
    if gave_separate and gave_shared:
        raise _build_error_for_both(separate_fields, shared_field, naming)

    has_separate = all(field in chosen for field in separate_fields)
    if has_separate and not gave_shared:
        chosen.pop(shared_field, None)
        return
    if shared_field not in chosen:
        raise _build_error_without_text(task, separate_fields, name, columns, naming)
    for field in separate_fields:
        chosen.pop(field, None)


def _build_error_without_text(
    task: TaskName, text_fields: Sequence[str], name: str, columns: Sequence[str], naming: Naming
) -> UsageError:
    """Build the error for rows without a column of texts. It suggests a comparison if that's possible."""
    advice = " ".join(naming.format_field_option(field) for field in text_fields)
    if task == "judge":
        with suppress(UsageError):
            # Only suggest a comparison if this raises no error, so the rows can be compared.
            choose_fields("compare", columns, {}, name)
            advice += f", or compare these texts with {naming.format_compare_option()}"
    advice += f". It has {format_column_names(columns)}"
    return UsageError(f"{name}: no column for {' and '.join(text_fields)}; name it with {advice}")


def _build_error_for_both(
    text_fields: Sequence[str], field_of_all: str, naming: Naming
) -> UsageError:
    """Build the error for a caller who named `field_of_all` and also some of `text_fields`."""
    if naming.is_python:
        all_fields = ", ".join([*text_fields, field_of_all])
        return UsageError(
            f"fields: {all_fields}: give {' and '.join(text_fields)}, or {field_of_all}"
        )
    return UsageError(
        f"--map {' and '.join(text_fields)} and --map {field_of_all}: give only one of them"
    )


def read_document(
    fields: Fields,
    row: DataRow,
    row_id: str,
    given: Given,
    fixed: TaskDescription | None = None,
    family: str | None = None,
    judge_turn: JudgeTurn = "last",
    thoughts: Thoughts | None = None,
) -> Document:
    """Read a row as a document, with only the fields that the rubric uses (`given`).

    `fixed` and the author's `family` are defaults for missing values. If `thoughts` is given, it removes a
    model's thoughts from the text, and counts them. Raises `FieldError` for a cell of the wrong type, and
    `Unjudgeable` without a text.
    """
    task_texts = _read_task_texts(fields, row, given, fixed or TaskDescription())
    text, earlier_turns = _read_judged_text(fields, row, judge_turn, thoughts)
    if earlier_turns is not None:  # the text is part of a conversation
        # The text answers the earlier turns, so they describe its task. Every rubric uses a description.
        descriptions = [part for part in (task_texts["description"], earlier_turns) if part]
        task_texts["description"] = "\n\n".join(descriptions)

    # Models see the alias instead of the row's id.
    files = [replace(make_file(replace_surrogates(row_id), text), alias="text")]
    if given.sources and "sources" in fields.column_by_field:
        files += _read_sources(fields.read(row, "sources"), fields.name("sources"), fields.naming)
    author = _read_author(fields, row, "author") or family
    return documents.build_document(files, None, TaskDescription(**task_texts), author)


def _read_task_texts(
    fields: Fields, row: DataRow, given: Given, default: TaskDescription
) -> dict[str, str]:
    """Read the texts that describe the task, by role. Blank ones are taken from `default`."""
    task_texts = {}
    for role in TASK_ROLES:
        is_used = getattr(given, role)
        if is_used:
            role_text = _read_text(fields, row, role)
            task_texts[role] = role_text if role_text.strip() else getattr(default, role)
    return task_texts


def _read_judged_text(
    fields: Fields, row: DataRow, judge_turn: JudgeTurn, thoughts: Thoughts | None
) -> tuple[str, str | None]:
    """Read the text to judge and, if it's from a conversation, the turns before it (otherwise None).

    Raises `FieldError` for a cell of the wrong type, and `Unjudgeable` without a text.
    """
    field = "conversation" if "conversation" in fields.column_by_field else "text"
    column = fields.name(field)
    value = fields.read(row, field)
    earlier_turns: str | None = None
    if field == "conversation" or _has_messages(value):
        text, earlier_turns = _split_judged_turn(value, column, judge_turn, thoughts)
    else:
        text_with_thoughts = _convert_to_text(value, "text", column, fields.naming)
        text = _drop_thoughts(text_with_thoughts, thoughts)
    if is_blank(text):
        raise Unjudgeable(f"{column}: empty; nothing to judge")
    return text, earlier_turns


def read_comparison(
    fields: Fields,
    row: DataRow,
    prompt: str = "",
    families: Sequence[str | None] = (),
    thoughts: Thoughts | None = None,
) -> ComparisonInput:
    """Read the texts to compare in a row. `prompt` and `families` are used if the row has no values for them.

    Raises `FieldError` for a cell of the wrong type, and `Unjudgeable` if a text is empty.
    """
    prompt, texts = _read_compared_texts(fields, row, prompt)
    files = []
    for letter, (column, output) in zip(LETTERS, texts, strict=False):
        text = _drop_thoughts(output, thoughts)
        if is_blank(text):
            raise Unjudgeable(f"{column}: empty; nothing to compare")
        files.append(make_file(letter, text))
    authors = _read_authors(fields, row, len(texts), families)
    return ComparisonInput(prompt, tuple(files), tuple(authors))


def _read_compared_texts(
    fields: Fields, row: DataRow, default_prompt: str
) -> tuple[str, list[tuple[str, str]]]:
    """Read the prompt and the texts to compare, each with the name of its column."""
    row_prompt = _read_text(fields, row, "prompt")
    prompt = row_prompt if row_prompt.strip() else default_prompt
    if "texts" in fields.column_by_field:
        return prompt, _read_list_of_texts(fields, row, fields.name("texts"))

    # If there's no prompt of its own, it's what both conversations begin with.
    lacks_prompt = prompt.strip() == ""
    if lacks_prompt and _are_conversations(fields, row):
        return _split_conversations(fields, row)
    texts = [(fields.name(field), _read_text(fields, row, field)) for field in ("a", "b")]
    return prompt, texts


def _read_authors(
    fields: Fields, row: DataRow, text_count: int, families: Sequence[str | None]
) -> list[str | None]:
    """Read each text's author. The default is the family at the same position in `families`, if any."""
    if len(families) == 1:  # the same family wrote all texts
        families = [*families] * text_count
    authors = []
    for index, letter in enumerate(LETTERS[:text_count]):
        family = families[index] if index < len(families) else None
        author = _read_author(fields, row, f"author_{letter.lower()}")
        authors.append(author or family)
    return authors


def _are_conversations(fields: Fields, row: DataRow) -> bool:
    """Whether both texts to compare are lists of messages."""
    return all(conversation.is_conversation(fields.read(row, field)) for field in ("a", "b"))


def _split_conversations(fields: Fields, row: DataRow) -> tuple[str, list[tuple[str, str]]]:
    """Split two conversations into their common beginning, which is the prompt, and the two answers."""
    column_of_a = fields.name("a")
    column_of_b = fields.name("b")
    first = _read_turns(fields.read(row, "a"), column_of_a)
    second = _read_turns(fields.read(row, "b"), column_of_b)
    shared, rest_of_first, rest_of_second = conversation.split_shared(first, second)
    is_single_message = len(shared) == 1  # it needs no speaker
    prompt = shared[0].content if is_single_message else conversation.render_turns(shared)
    texts = [
        (column_of_a, conversation.render_as_text(rest_of_first)),
        (column_of_b, conversation.render_as_text(rest_of_second)),
    ]
    return prompt, texts


def _read_list_of_texts(fields: Fields, row: DataRow, column: str) -> list[tuple[str, str]]:
    """Read a cell's list of texts, with a name for each. Raises `FieldError` for anything else."""
    value = fields.read(row, "texts")
    if isinstance(value, str):
        value = parse_json(value)
    expected = f"expected a list of {documents.MIN_TEXTS} to {MAX_TEXTS} texts"
    if not isinstance(value, list):
        raise FieldError(column, f"{expected}, got {describe_kind(value)}")
    if not documents.MIN_TEXTS <= len(value) <= MAX_TEXTS:
        raise FieldError(column, f"{expected}, got {len(value)} of them")
    texts = []
    for letter, item in zip(LETTERS, value, strict=False):
        text = _convert_to_text(item, "text", column, fields.naming)
        texts.append((f"{column} {letter}", text))
    return texts


def hash_content(subject: Document | ComparisonInput) -> str:
    """Hash everything in a row that affects its verdict. The id and unused columns don't."""
    files = [[file.visible_path, file.sha256] for file in subject.files]
    if isinstance(subject, Document):
        task_and_authors = [getattr(subject.task, role) for role in TASK_ROLES]
        task_and_authors.append(subject.author.family)
    else:
        task_and_authors = [subject.prompt, *subject.authors]
    return hashlib.sha256(json.dumps([files, task_and_authors]).encode()).hexdigest()


def read_winner(fields: Fields, row: DataRow) -> str:
    """Read the winner in a row: a letter or "tie".

    A number or a blank is returned as its key (`labels.convert_to_key`). Any other label is returned as
    `NOT_UNDERSTOOD_PREFIX`, followed by its key.
    """
    letter_by_name = _map_names_to_letters(fields, row)
    # With columns `a` and `b`, a row has two texts, the minimum. A column of texts can contain more.
    most_texts = documents.MIN_TEXTS if "a" in fields.column_by_field else MAX_TEXTS
    value = fields.read(row, "winner")
    key = labels.convert_to_key(value)
    if labels.parse_number(key) is not None:
        return key  # its meaning depends on the labels of all rows
    winner_letter = labels.find_winner(value, most_texts, letter_by_name)
    if winner_letter:
        return winner_letter
    if key == labels.BLANK_LABEL_KEY:
        return key
    return labels.NOT_UNDERSTOOD_PREFIX + key


def _map_names_to_letters(fields: Fields, row: DataRow) -> dict[str, str | None]:
    """Map each text's column and author to its letter, because a label can name a text by either.

    A name that both texts have is mapped to None.
    """
    letter_by_name: dict[str, str | None] = {}
    for letter, text_field, author_field in (("A", "a", "author_a"), ("B", "b", "author_b")):
        for name in (
            fields.column_by_field.get(text_field),
            _read_author(fields, row, author_field),
        ):
            if not name:
                continue
            key = normalise_name(name[:_NAME_CHARS])
            is_ambiguous = letter_by_name.get(key, letter) != letter
            letter_by_name[key] = None if is_ambiguous else letter
    return letter_by_name


def read_label_key(fields: Fields, row: DataRow, task: TaskName) -> str | None:
    """Read a row's label as a key (`labels.convert_to_key`) or, for comparisons, the winner.

    Returns None if the rows have no labels.
    """
    field = "label"
    if task == "compare":
        field = "winner"
        # Without a column of winners, each text may have a column, marked with 1 if it won.
        if field not in fields.column_by_field:
            return read_one_hot_winner(row.columns)
    if field not in fields.column_by_field:
        return None
    if task == "compare":
        return read_winner(fields, row)
    return labels.convert_to_key(fields.read(row, field))


def read_one_hot_winner(columns: Mapping[str, Any]) -> str | None:
    """Read the winner, marked with 1, from columns such as `winner_model_a`, `winner_model_b`, `winner_tie`.

    Returns `BLANK_LABEL_KEY` unless exactly one column is marked, and None if there are no such columns.
    """
    marked_sides = []
    sides = set()
    for column, value in columns.items():
        match = _ONE_HOT_WINNER_PATTERN.fullmatch(normalise_name(column))
        if match is None:
            continue
        side = match[1]  # a letter, or "tie"
        sides.add(side)
        if labels.convert_to_key(value) in ("1", "true", "True"):
            marked_sides.append(side)

    has_both_texts = {"a", "b"} <= sides
    if not has_both_texts:
        return None
    if len(marked_sides) != 1:  # there's no winner, or more than one
        return labels.BLANK_LABEL_KEY
    (winner_side,) = marked_sides
    return winner_side if winner_side == "tie" else winner_side.upper()


def _read_text(fields: Fields, row: DataRow, field: str) -> str:
    """Read a field as text. Returns "" without a value.

    A conversation is rendered if it's a description or prompt. In `a` and `b`, only its last answer is read.
    """
    if field in TEMPLATE_FIELDS and fields.template is not None:
        return fields.fill_template(row)
    if field not in fields.column_by_field:
        return ""
    column = fields.name(field)
    value = fields.read(row, field)
    if isinstance(value, list) and field in ("description", "prompt"):
        return conversation.render_turns(_read_turns(value, column))
    if field in ("a", "b") and _has_messages(value):
        answer, _ = _split_judged_turn(value, column, "last")
        return answer

    text = _convert_to_text(value, field, column, fields.naming)
    if field not in fields.second_column_by_field:
        return text
    # The text continues in a second column, such as Alpaca's `instruction` in `input`.
    second_column = fields.second_column_by_field[field]
    second_value = read_cell(row.columns, second_column)
    second_text = _convert_to_text(second_value, field, second_column, fields.naming)
    return "\n\n".join(part for part in (text, second_text) if not is_blank(part))


def _has_messages(value: object) -> bool:
    """Whether a cell contains a conversation, or a single message by an assistant."""
    return conversation.is_conversation(value) or conversation.is_message(value)


def _convert_to_text(value: object, field: str, column: str, naming: Naming) -> str:
    """Convert a cell to text. Raises `FieldError` for a list or an object."""
    is_nan = value != value  # noqa: PLR0124 - only NaN differs from itself
    if value is None or is_nan:  # in tables, NaN is an empty cell
        return ""
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, bool | int | float):
        return json.dumps(value)

    hint = ""
    if field not in ("text", "a", "b", "template"):
        hint = f"; to leave the column out: {naming.format_field_option(field, '')}"
    if field == "text" and isinstance(value, list):
        hint = f"; a conversation is given with {naming.format_field_option('conversation')}"
    raise FieldError(column, f"expected a text, got {describe_kind(value)}{hint}")


def _read_author(fields: Fields, row: DataRow, field: str) -> str | None:
    """Read the family of a text's author, truncated to 64 characters, or None if there's none."""
    return _read_text(fields, row, field).strip()[:64] or None


def _read_turns(value: object, column: str) -> list[conversation.Turn]:
    try:
        return conversation.read_turns(value)
    except conversation.NotUnderstoodError as error:
        raise FieldError(column, str(error)) from None


def _drop_thoughts(output: str, thoughts: Thoughts | None) -> str:
    return output if thoughts is None else thoughts.drop(output)


def _split_judged_turn(
    value: object, column: str, judge_turn: JudgeTurn, thoughts: Thoughts | None = None
) -> tuple[str, str]:
    """Split a conversation into the text to judge and the turns before it.

    The text is the assistant's last message or, if `judge_turn` is "all", the entire conversation. Raises
    `FieldError` if `value` isn't a conversation, and `Unjudgeable` if there's no text to judge.
    """
    if conversation.is_message(value):
        value = [value]
    is_empty = value in (None, "")
    turns = [] if is_empty else _read_turns(value, column)
    for index, turn in enumerate(turns):
        if turn.speaker == ASSISTANT:
            turns[index] = turn._replace(text=_drop_thoughts(turn.text, thoughts))

    if judge_turn == "all":
        if all(is_blank(turn.content) for turn in turns):
            raise Unjudgeable(f"{column}: empty; nothing to judge")
        return conversation.render_turns(turns), ""
    while turns:
        turn = turns.pop()  # turns after the assistant's last message are ignored
        if turn.speaker == ASSISTANT:
            return turn.content, conversation.render_turns(turns)
    raise Unjudgeable(f"{column}: no message of the assistant; nothing to judge")


def _read_sources(value: object, column: str, naming: Naming) -> list[File]:
    """Read the sources in a cell as files. A source without a name is called "source 1" and so on."""
    if isinstance(value, str) and value.lstrip().startswith(("[", "{")):
        parsed = parse_json(value)
        is_json = parsed is not value  # `parse_json` returns any other text unchanged
        if is_json:
            # JSON that isn't a list of sources is read below, as the text of a single source.
            with suppress(FieldError):
                return _read_sources(parsed, column, naming)

    files = []
    for number, (name, content) in enumerate(read_passages(value), 1):
        text = _convert_to_text(content, "sources", column, naming)
        if not is_blank(text):
            shown_name = shorten_to_line(replace_surrogates(name), _NAME_CHARS)
            files.append(make_file(shown_name or f"source {number}", text))
    return files


def format_column_names(columns: Sequence[str]) -> str:
    """Format column names for a message, up to a dozen of them."""
    names = [
        shorten_to_line(escape_name(column), _NAME_CHARS) for column in columns[:_MAX_SHOWN_COLUMNS]
    ]
    text = ", ".join(names)
    if len(columns) > _MAX_SHOWN_COLUMNS:
        return f"{text} and {len(columns) - _MAX_SHOWN_COLUMNS} more"
    return text
