"""Reads the YAML and JSON files that users edit into validated models; errors name file, line and key.

Only this module reads pydantic's errors; it rephrases them in plain words and the data's own keys.
"""

from __future__ import annotations

import difflib
import hashlib
import io
import json
import re
import stat
import tomllib
from copy import deepcopy
from functools import cache, lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, get_args

from pydantic import BaseModel, RootModel, StringConstraints, ValidationError

from judgekit.config import files
from judgekit.errors import MAX_ERRORS, ConfigError
from judgekit.text import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from pydantic_core import ErrorDetails

Location = tuple[int | str, ...]
Identifier = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*$")]
Version = Annotated[str, StringConstraints(pattern=r"^\d+\.\d+\.\d+$")]
Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]

MAX_BYTES = 1_000_000  # real files are far smaller; a YAML bomb isn't parsed
# The limit for a configuration file. The file can come from a clone, and every prompt waits until it's
# parsed, which takes at most 1.5 seconds of CPU.
CONFIG_BYTES = 32_000


class Strict(BaseModel, extra="forbid", frozen=True):
    """Base class of models that are read from files. They're frozen and don't allow unknown keys."""


Model = TypeVar("Model", bound=BaseModel)


def read_model(
    path: Path, model: type[Model], *, version_key: str | None = None, max_bytes: int = MAX_BYTES
) -> Model:
    """Read a YAML or JSON file of at most `max_bytes` and validate it as a `model`. Cached by content.

    If `version_key` is given, the file must have that key, which identifies the kind of file. Raises
    `ConfigError` with the file, line, key, expected value and remedy of each problem.
    """
    data: Model = _validate(_read_bytes(path, max_bytes), path, model, version_key)
    return data


@lru_cache(256)
def _validate(raw: bytes, path: Path, model: type[Model], version_key: str | None) -> Model:
    """Parse a file's content, and validate it as a `model`.

    The file must contain `version_key`, unless that's None. Raises `ConfigError` with all problems.
    """
    data = _parse(raw, path)
    if version_key is not None and version_key not in data:
        raise ConfigError(
            f"not a {version_key} file: add the key {version_key!r} first", path=path, line=1
        )

    try:
        return model.model_validate(data)
    except ValidationError as error:
        errors = []
        all_problems = problems(error.errors(include_url=False), data, model)
        # Collect one problem more than the message lists, so that the message can say that there are more.
        for problem in islice(all_problems, MAX_ERRORS + 1):
            line = line_of(data, problem.location)
            errors.append(ConfigError(problem.text, path=path, line=line, key=problem.key))

        errors.sort(key=lambda error: error.line or 0)
        raise ConfigError.of(errors) from None


def read_lines(path: Path, model: type[Model]) -> list[Model]:
    """Read the objects in a JSON Lines file, skipping blank lines.

    Raises one `ConfigError` that contains the problems of all invalid lines.
    """
    objects = []
    errors = []

    for number, line in enumerate(_read_text_lines(path), 1):
        try:
            if line.strip():
                objects.append(model.model_validate_json(line))
        except ValidationError as error:
            line_problem = problem_in(line, error)
            errors.append(
                ConfigError(line_problem.text, path=path, line=number, key=line_problem.key)
            )

    if errors:
        raise ConfigError.of(errors)
    return objects


def _read_text_lines(path: Path) -> list[str]:
    """Read a file's lines; raises `ConfigError` if it isn't UTF-8 or can't be read."""
    try:
        return lines_of(path.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"not UTF-8 (byte {error.start}); save it as UTF-8", path=path) from None
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror})", path=path) from None


def load_yaml(path: Path) -> dict[str, Any]:
    """Load the mapping in a YAML 1.2 file or a `.json` file; raises `ConfigError` if there's none."""
    # A copy, because bundled files' data is shared
    return deepcopy(_parse(_read_bytes(path, MAX_BYTES), path))


def _read_bytes(path: Path, max_bytes: int) -> bytes:
    """Read a file of at most `max_bytes`; raises `ConfigError` if it's larger, not regular or unreadable."""
    try:
        # Reading a device or a pipe could block forever.
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError("no regular file", path=path)
        with path.open("rb", buffering=0) as file:
            raw = file.read(max_bytes + 1)  # the extra byte shows that the file is too large
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror})", path=path) from None
    if len(raw) > max_bytes:
        raise ConfigError(f"larger than {max_bytes} bytes: is this the right file?", path=path)
    return raw


@cache
def _read_bundled() -> dict[str, dict[str, Any]]:
    """Read the data of all bundled YAML files, by the SHA-256 of their bytes."""
    # They're compiled into a JSON file, because parsing the YAML takes 0.2 s.
    data_by_digest: dict[str, dict[str, Any]] = json.loads(files.COMPILED.read_bytes())
    return data_by_digest


def _parse(raw: bytes, path: Path) -> dict[str, Any]:
    """Parse the mapping in a YAML file, or in a `.json` file. Returns {} for an empty file.

    Raises `ConfigError` if the file isn't UTF-8, isn't valid, or isn't a mapping.
    """
    # The content of files that come with judgekit is stored in parsed form, by digest.
    bundled_data = _read_bundled().get(hashlib.sha256(raw).hexdigest())
    if bundled_data is not None:
        return bundled_data

    try:
        text = io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8").read()
    except UnicodeDecodeError as error:
        raise ConfigError(f"not UTF-8 (byte {error.start}); save it as UTF-8", path=path) from None

    if path.suffix == ".json":
        data = _parse_json(text, path)
    else:
        from judgekit.config import yaml_text  # noqa: PLC0415 - imported lazily because it's slow

        data = yaml_text.parse_yaml(text, path)

    if data is not None and not isinstance(data, dict):
        raise ConfigError(
            f"expected a mapping (lines `key: value`), got {kind_of(data)}", path=path, line=1
        )
    return data or {}


def _parse_json(text: str, path: Path) -> Any:  # noqa: ANN401 - any JSON
    """Parse JSON; raises `ConfigError` if it isn't valid, or has duplicate keys."""
    try:
        return json.loads(text.removeprefix("\ufeff"), object_pairs_hook=_make_object)
    except RecursionError:
        raise ConfigError("nested too deeply to read; correct the JSON", path=path) from None
    except json.JSONDecodeError as error:
        problem = f"{error.msg}; correct the JSON"
        raise ConfigError(problem, path=path, line=error.lineno) from None
    except ValueError as error:
        raise ConfigError(f"{error}; correct the JSON", path=path) from None


def _make_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object's dict; raises `ValueError` for a duplicate key."""
    members = {}
    for key, value in pairs:
        if key in members:
            raise ValueError(f"duplicate key {json.dumps(key)}")
        members[key] = value
    return members


def line_of(data: object, location: Location) -> int | None:
    """Return the line number of a location in parsed YAML, or of the deepest part of it that exists.

    Lines are counted from 1. Returns None for other data, which has no line numbers.
    """
    line: int | None = None
    for part in location:
        line_data = getattr(data, "lc", None)  # only set by the YAML parser
        lines_by_part = getattr(line_data, "data", None) or {}
        if part not in lines_by_part:
            break
        line = lines_by_part[part][0] + 1
        data = data[part]  # type: ignore[index]  # it has lines of parts, so it's a container
    return line


def check_project_file(path: Path, project: Path) -> bool:
    """Check that a project's file can be read without following a link. Returns whether the file exists.

    Raises `ConfigError` if the file or one of its folders is a link, or if it isn't a regular file.
    """
    # Check each folder on the way from the project to the file, and finally the file.
    current_path = project
    mode = 0  # if `path` is the project itself, it's refused below, because 0 isn't a regular file's mode
    for part in path.relative_to(project).parts:
        current_path /= part
        try:
            mode = current_path.lstat().st_mode  # doesn't follow a link
        except (FileNotFoundError, NotADirectoryError):
            return False
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "no such file"
            raise ConfigError(f"cannot be read ({reason})", path=current_path) from None

        if stat.S_ISLNK(mode):
            problem = "a link, and links of a project are not followed; replace it with the file"
            raise ConfigError(problem, path=current_path)

    # The mode is now that of the file, which is the last part of the path.
    if not stat.S_ISREG(mode):
        raise ConfigError("not a regular file; replace it with a file, or remove it", path=path)
    return True


class Problem(NamedTuple):
    """A problem in data: the keys that lead to it, and a message with the expected value."""

    location: Location
    text: str

    @property
    def key(self) -> str:
        """The location as a dotted key."""
        return ".".join(map(str, self.location))

    def __str__(self) -> str:
        if self.location:
            return f"{self.key}: {self.text}"
        return self.text


class WrongValuesError(ValueError):
    """Raised by a model's validator; its arguments are the `Problem`s inside the value."""


_VALUE_ERROR = "Value error, "
_QUOTED = re.compile("'([^']*)'")


@cache
def _read_wordings() -> dict[str, Any]:
    """Read our wordings of pydantic's error types."""
    return tomllib.loads(files.COMPILED.with_name("faults.toml").read_bytes().decode())


def problem(errors: Sequence[ErrorDetails], data: object) -> Problem:
    """Rephrase the first of pydantic's errors about `data`; see `problems`."""
    return next(problems(errors, data))


def problems(
    errors: Sequence[ErrorDetails], data: object, model: object = None
) -> Iterator[Problem]:
    """Rephrase pydantic's errors about `data`, which should be a `model`, in plain words.

    All possible kinds of value are named. A wrong value itself is never quoted.
    """
    # Values aren't quoted, because a clone's file can lead to another file that must stay private.
    # Unknown keys come first, because a misspelt key explains a missing one.
    sorted_errors = sorted(errors, key=lambda error: error["type"] != "extra_forbidden")
    misspelt = set()  # the correct locations of misspelt keys
    for alternatives in _group_by_value(sorted_errors, data):
        # Of the possible kinds of value, the one that pydantic read furthest was meant.
        meant = max(alternatives, key=lambda located: len(located.data_parts))
        depth = len(meant.data_parts)
        deepest = [located.error for located in alternatives if len(located.data_parts) == depth]
        expected = _join_expectations(deepest)

        error = meant.error
        error_type = error["type"]
        context = error.get("ctx", {})
        location = tuple(error["loc"][part] for part in meant.data_parts)
        if error_type == "union_tag_invalid":  # the problem is a key such as 'task'
            location += tuple(_QUOTED.findall(context["discriminator"])[-1:])

        # Our own validators already yield problems.
        inner_error = context.get("error")
        if isinstance(inner_error, WrongValuesError):
            for problem in inner_error.args:
                yield Problem((*location, *problem.location), problem.text)
            continue

        if error_type == "extra_forbidden":
            similar_key = _find_similar(location[-1], _list_keys(model, location[:-1]))
            if similar_key:
                misspelt.add((*location[:-1], similar_key))
                yield Problem(location, f"unknown key; did you mean {similar_key}?")
                continue

        text = expected + _describe_actual(error)
        guess = _find_similar(context.get("tag", error["input"]), _QUOTED.findall(expected))
        if guess:
            text += f"; did you mean {guess}?"
        was_misspelt = error_type == "missing" and location in misspelt
        if not was_misspelt:
            yield Problem(location, text)


class _LocatedError(NamedTuple):
    """An error, and the indexes of its location's parts that are keys of the data."""

    error: ErrorDetails
    data_parts: list[int]


def _group_by_value(errors: Sequence[ErrorDetails], data: object) -> Iterator[list[_LocatedError]]:
    """Group the errors that are about the same value, and yield the groups in order."""
    # If a value can have multiple types, pydantic reports an error for each of these types.
    remaining = [_LocatedError(error, _find_data_parts(error, data)) for error in errors]
    while remaining:
        remaining_errors = [located.error for located in remaining]
        indexes = _find_alternatives(remaining_errors, remaining[0].data_parts)
        yield [remaining[index] for index in indexes]
        remaining = [located for index, located in enumerate(remaining) if index not in indexes]


def _join_expectations(errors: Iterable[ErrorDetails]) -> str:
    """Join the errors' expected values: "expected A, B or C"."""
    expectations = list(dict.fromkeys(map(_describe_expectation, errors)))
    first, *others = expectations
    others = [expectation.removeprefix("expected ") for expectation in others]
    if not others:
        return first
    return f"{', '.join([first, *others[:-1]])} or {others[-1]}"


def _describe_actual(error: ErrorDetails) -> str:
    """Describe the actual value, as in ", got a number", or return "" if that's redundant."""
    error_type = error["type"]
    value = error["input"]
    table = _read_wordings()["got"]
    if error_type in table["never"] or error["msg"].startswith(_VALUE_ERROR):
        return ""
    # "got a number" doesn't help if a number was expected but it's too large. But true, false and null are
    # worth mentioning, because they can be typing mistakes.
    is_about_value = error_type in table["of_another_kind"]
    has_expected_kind = is_about_value and not isinstance(value, bool | None)
    if has_expected_kind or isinstance(value, bytes):
        return ""
    return f", got {kind_of(value)}"


def _find_similar(value: object, words: Sequence[str]) -> str | None:
    """Return the word that a misspelt value resembles, or None."""
    if not isinstance(value, str):
        return None
    # Comparing a long value would be slow, and it can't be similar anyway.
    matches = difflib.get_close_matches(value[:60], words, n=1)
    return matches[0] if matches else None


def _list_keys(model: object, location: Location) -> list[str]:
    """List the keys that `model` allows at `location`, a path such as `("judges", 0, "tiers")`.

    `model` is a pydantic model, or a type such as a list of models.
    """
    models = _list_models(model)
    for part in location:
        fields = [model.model_fields[part] for model in models if part in model.model_fields]
        # A part that isn't a field is a list index or a mapping key. In that case, `models` already contains
        # the models of the list's or mapping's items.
        if not fields:
            continue
        models = []
        for field in fields:
            models += _list_models(field.annotation)

    keys: list[str] = []
    for nested_model in models:
        keys += nested_model.model_fields
    return keys


def _list_models(annotation: object) -> list[type[BaseModel]]:
    """List the models in a type annotation, including those in unions, lists and mappings."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if issubclass(annotation, RootModel):
            return _list_models(annotation.model_fields["root"].annotation)
        return [annotation]
    models = []
    for inner in get_args(annotation):
        models += _list_models(inner)
    return models


def problem_in(text: str | bytes, error: ValidationError) -> Problem:
    """Rephrase the first of pydantic's errors about a JSON document."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None  # not valid JSON, so the error's location is empty
    return problem(error.errors(include_url=False), data)


def _find_data_parts(error: ErrorDetails, data: object) -> list[int]:
    """Return the indexes of those parts of an error's location (`loc`) that are keys or indexes in `data`.

    Pydantic also puts the names of the types that it tried into `loc`. For `("paths", "list[str]", 0)`, the
    result is `[0, 2]`.
    """
    indexes = []
    location = error["loc"]
    for index, part in enumerate(location):
        try:
            data = data[part]  # type: ignore[index]  # raises TypeError if it isn't a container
        except (LookupError, TypeError):
            # An error about a missing key ends with that key.
            is_missing_key = index == len(location) - 1 and error["type"] == "missing"
            if not is_missing_key:
                continue
        indexes.append(index)
    return indexes


def _find_alternatives(errors: Sequence[ErrorDetails], data_parts: Sequence[int]) -> list[int]:
    """Return the indexes of all errors about the same value as the first error.

    If a value can have multiple types, pydantic reports an error for each type, with the type's name in the
    location. `data_parts` are the indexes of the other parts of the first error's location.
    """
    # Find the positions of type names in the first error's location.
    first_location = errors[0]["loc"]
    type_parts = set(range(len(first_location))) - set(data_parts)
    for part in type_parts:
        # Find the errors whose locations are equal up to the type's name. They are about the same value.
        same_value_indexes = []
        type_names = set()
        for index, error in enumerate(errors):
            location = error["loc"]
            if location[:part] == first_location[:part]:
                same_value_indexes.append(index)
                type_names.add(location[part : part + 1])
        if len(type_names) > 1:
            return same_value_indexes

    return [0]  # only the first error is about this value


def _describe_expectation(error: ErrorDetails) -> str:
    """Describe the value that an error expects, such as "expected a number from 0 to 1"."""
    error_type = error["type"]
    message = error["msg"]
    context = error.get("ctx", {})

    # Our own validators have already described the value.
    if message.startswith(_VALUE_ERROR):
        return message.removeprefix(_VALUE_ERROR)

    message = message.removeprefix("Input should be ")
    if message in {"an object", "a valid array"}:  # the JSON terms
        return "expected an object" if message == "an object" else "expected a list"

    # Use our own wording for this type of error, and fill in the limits.
    wording = _read_wordings()["words"].get(error_type)
    if wording:
        limits = dict(context)
        # Write 1 instead of 1.0.
        for key, value in context.items():
            if isinstance(value, float):
                limits[key] = f"{value:g}"
        return str(wording.format(**limits))

    # Otherwise use the wording for a family of errors, such as "float" for "float_parsing".
    family, _, _ = error_type.partition("_")
    return f"expected {_read_wordings()['kinds'].get(family, message)}"


def kind_of(value: object) -> str:
    """Describe the kind of a value, such as "a list of 3", without quoting it."""
    if isinstance(value, dict | list):
        kind = "list" if isinstance(value, list) else "mapping"
        if value:
            return f"a {kind} of {len(value)}"
        return f"an empty {kind}"
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, str | int | float):
        return "a text" if isinstance(value, str) else "a number"
    if getattr(value, "tag", None):
        return "a value with a tag"
    return f"a {type(value).__name__.lower()}"
