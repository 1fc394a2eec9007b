"""Recognises exports of other tools by their keys; `presets.toml` has the paths of the fields in each."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from judgekit import environment
from judgekit.data.bodies import read_reply, read_request
from judgekit.data.paths import find_roots, read_cell
from judgekit.evaluation.labels import normalise_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

Task: TypeAlias = Literal["judge", "compare"]

_EXAMINED_ROWS = 3  # of a document
_EMPTY_VALUES: tuple[object, ...] = (None, "", [], {})
_REPLY_FIELDS = ("text", "a", "b")
_JUDGED_FIELDS = ("text", "conversation", "a", "b", "texts")
_LABEL_FIELDS = ("label", "winner")
_REQUEST_FIELDS = ("description", "prompt", "acceptance", "reference")


class Preset(NamedTuple):
    """An export of a tool: how it's recognised, and the paths of each field. `presets.toml` explains each."""

    name: str
    has: Sequence[str]
    document: str = ""
    only: frozenset[str] = frozenset()
    lacks: frozenset[str] = frozenset()
    leave_out: frozenset[str] = frozenset()
    usual: bool = False
    id: str = ""
    judge: Mapping[str, Sequence[str]] | None = None
    compare: Mapping[str, Sequence[str]] | None = None

    def fields(self, task: Task) -> Mapping[str, Sequence[str]] | None:
        """Return the paths of a task's fields, or None if this export isn't suitable for the task."""
        return self.judge if task == "judge" else self.compare

    def fits(self, columns: Mapping[str, Any]) -> bool:
        """Whether a row is from this export: it has the required values, and only allowed columns."""
        has_other_column = bool(self.only) and not self.only.issuperset(columns)
        if has_other_column:
            return False
        # The names in `lacks` are normalised, too.
        has_excluded_column = not self.lacks.isdisjoint(map(normalise_name, columns))
        if has_excluded_column:
            return False
        return all(is_given(read_cell(columns, path)) for path in self.has)

    def remove_bulk(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Remove columns that are too large to keep in results."""
        return {name: value for name, value in row.items() if name not in self.leave_out}


class Recognised(NamedTuple):
    """A recognised export, with the paths of its fields for a task.

    `shown_path_by_field` has the fields with a value in the first rows, with the paths that gave it.
    """

    name: str
    paths_by_field: Mapping[str, Sequence[str]]
    shown_path_by_field: Mapping[str, str]
    uses_usual_names: bool
    id: str


def list_preset_names() -> list[str]:
    """List the names of all known exports."""
    return [preset.name for preset in _read_presets()]


def is_given(value: object) -> bool:
    """Whether a value isn't None or an empty string, list or object."""
    return not any(value is empty or value == empty for empty in _EMPTY_VALUES)


def read_field(columns: Mapping[str, Any], field: str, paths: Sequence[str]) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Read a field from the first of its paths with a value. Returns None if there's none."""
    for path in paths:
        value = read_cell(columns, path)
        if not is_given(value):
            continue
        if field in _REPLY_FIELDS:
            return read_reply(value)
        if field in _REQUEST_FIELDS:
            return read_request(value)
        return value
    return None


class Recogniser:
    """Recognises by the first rows which export they come from."""

    def __init__(self) -> None:
        self._found: Preset | None = None
        self._giving_paths: dict[tuple[Task, str], dict[str, None]] = {}

    def note_row(self, columns: Mapping[str, Any]) -> None:
        """Recognise the export by this row, unless it's already known, and note which paths have a value."""
        if self._found is None:
            self._found = _find_preset(columns)
        if self._found is None:
            return

        tasks: tuple[Task, ...] = ("judge", "compare")
        for task in tasks:
            paths_by_field = self._found.fields(task) or {}
            for field, paths in paths_by_field.items():
                paths_with_value = self._giving_paths.setdefault((task, field), {})
                for path in paths:
                    if is_given(read_cell(columns, path)):
                        paths_with_value[path] = None
                        break  # of a field's paths, the first one with a value is used

    def recognise(self, task: Task, given: Mapping[str, str]) -> Recognised | None:
        """Return the export that the rows come from, or None if it's unknown or unsuitable for the task.

        Also returns None if `given` names a column for the judged text.
        """
        # The caller knows how to read the rows.
        if any(given.get(field) for field in _JUDGED_FIELDS):
            return None
        if self._found is None or self._found.fields(task) is None:
            return None

        shown_paths = {}  # by field, only for fields with a value
        for (task_of_field, field), paths_with_value in self._giving_paths.items():
            if task_of_field == task and paths_with_value:
                # An ordered set, because different paths can be equal once they're shortened.
                short_paths = dict.fromkeys(map(_shorten_path, paths_with_value))
                shown_paths[field] = " or ".join(short_paths)
        paths = _choose_paths(self._found, task, shown_paths)
        return Recognised(
            name=self._found.name,
            paths_by_field=paths,
            shown_path_by_field={
                field: path for field, path in shown_paths.items() if field in paths
            },
            uses_usual_names=self._found.usual,
            id=self._found.id,
        )


def _choose_paths(
    preset: Preset, task: Task, fields_with_value: Collection[str]
) -> dict[str, Sequence[str]]:
    """Choose the paths of an export's fields. `fields_with_value` have a value in the first rows."""
    paths = dict(preset.fields(task) or {})
    for field in list(paths):
        # Drop optional fields without a value. Labels are optional, because rows can be judged without them.
        # With `usual`, other fields are, too, because they may be in another column with a usual name.
        may_be_other_column = preset.usual and field not in _JUDGED_FIELDS
        is_optional = field in _LABEL_FIELDS or may_be_other_column
        if is_optional and field not in fields_with_value:
            del paths[field]
    # Read rows either as texts or as conversations. If both have values, read texts.
    if "text" in fields_with_value:
        paths.pop("conversation", None)
    elif "conversation" in fields_with_value:
        paths.pop("text", None)
    return paths


def _find_preset(columns: Mapping[str, Any]) -> Preset | None:
    """Find the preset for the tool that exported a row. Returns None if the tool is unknown."""
    for preset in _read_presets():
        if preset.fits(columns):
            return preset
    return None


def find_rows(document: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Find the rows in an exported JSON document. Returns None if the export is unknown."""
    for preset in _read_presets():
        if not preset.document:  # this export isn't a single document
            continue
        rows = read_cell(document, preset.document)
        has_rows = isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
        if not has_rows:
            continue
        if any(preset.fits(row) for row in rows[:_EXAMINED_ROWS]):
            return [preset.remove_bulk(row) for row in rows]
    return None


def remove_bulk(row: Mapping[str, Any]) -> dict[str, Any]:
    """Remove an export's columns that are too large to keep in results."""
    for preset in _read_presets():
        if preset.leave_out and preset.fits(row):
            return preset.remove_bulk(row)
    return dict(row)


def _shorten_path(path: str) -> str:
    """Shorten a path for a message. If the path has operators, only name its columns."""
    roots = find_roots(path)
    is_literal = not roots
    if is_literal:
        return path.strip("'")
    has_operators = bool(set("|&?(@") & set(path))
    if has_operators:
        return " and ".join(roots)
    return path.replace('"', "")  # remove the quotes around names with spaces, for example


@cache
def _read_presets() -> Sequence[Preset]:
    """Read the known exports from `presets.toml`, in the order of that file."""
    presets = []
    for entry in environment.read_toml(__file__, "presets.toml")["preset"]:
        values = dict(entry)
        for key in ("only", "leave_out"):
            values[key] = frozenset(values.get(key, ()))
        values["lacks"] = frozenset(map(normalise_name, values.get("lacks", "").split()))
        presets.append(Preset(**values))
    return presets
