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
from judgekit.text import split_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
    from pathlib import Path

    from pydantic_core import ErrorDetails

Location = tuple[int | str, ...]
Identifier = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*$")]
Version = Annotated[str, StringConstraints(pattern=r"^\d+\.\d+\.\d+$")]
Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]

MAX_FILE_BYTES = 1_000_000  # real files are far smaller; a YAML bomb isn't parsed
# The limit for a configuration file. The file can come from a clone, and every prompt waits until it's
# parsed, which takes at most 1.5 seconds of CPU.
CONFIG_BYTES = 32_000


class Strict(BaseModel, extra="forbid", frozen=True):
    """Base class of models that are read from files. They're frozen and don't allow unknown keys."""


Model = TypeVar("Model", bound=BaseModel)


def read_model(
    path: Path,
    model: type[Model],
    *,
    version_key: str | None = None,
    max_bytes: int = MAX_FILE_BYTES,
) -> Model:
    """Read a YAML or JSON file of at most `max_bytes` and validate it as a `model`.

    If `version_key` is given, the file must have this key. Raises `ConfigError` with the file, line, key,
    expected value and remedy of each problem.
    """
    raw = _read_bytes(path, max_bytes)
    # `_validate` is cached by content, so an unchanged file isn't validated again. The cache hides the type.
    instance: Model = _validate(raw, path, model, version_key)
    return instance


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
        all_problems = explain_errors(error.errors(include_url=False), data, model)
        raise ConfigError.of(_locate_in_file(all_problems, data, path)) from None


def _locate_in_file(
    all_problems: Iterable[Problem], data: dict[str, Any], path: Path
) -> list[ConfigError]:
    """Convert problems to errors with the file and line, in the order of their lines."""
    config_errors = []
    # Convert one problem more than the message lists, so that the message can say that there are more.
    for problem in islice(all_problems, MAX_ERRORS + 1):
        line = find_line_number(data, problem.location)
        config_errors.append(ConfigError(problem.text, path=path, line=line, key=problem.key))

    config_errors.sort(key=lambda config_error: config_error.line or 0)
    return config_errors


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
            line_problem = explain_json_error(line, error)
            errors.append(
                ConfigError(line_problem.text, path=path, line=number, key=line_problem.key)
            )

    if errors:
        raise ConfigError.of(errors)
    return objects


def _read_text_lines(path: Path) -> list[str]:
    """Read a file's lines; raises `ConfigError` if it isn't UTF-8 or can't be read."""
    try:
        return split_lines(path.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"not UTF-8 (byte {error.start}); save it as UTF-8", path=path) from None
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror})", path=path) from None


def load_yaml(path: Path) -> dict[str, Any]:
    """Load the mapping in a YAML 1.2 file or a `.json` file; raises `ConfigError` if there's none."""
    # A copy, because bundled files' data is shared
    return deepcopy(_parse(_read_bytes(path, MAX_FILE_BYTES), path))


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

    text = _decode(raw, path)
    data = _parse_text(text, path)
    if data is not None and not isinstance(data, dict):
        raise ConfigError(
            f"expected a mapping (lines `key: value`), got {describe_kind(data)}", path=path, line=1
        )
    return data or {}


def _decode(raw: bytes, path: Path) -> str:
    """Decode a file's content; raises `ConfigError` if it isn't UTF-8."""
    # Unlike `raw.decode()`, this also converts all line ends to LF.
    file = io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8")
    try:
        return file.read()
    except UnicodeDecodeError as error:
        raise ConfigError(f"not UTF-8 (byte {error.start}); save it as UTF-8", path=path) from None


def _parse_text(text: str, path: Path) -> Any:  # noqa: ANN401 - any JSON or YAML
    """Parse the text of a `.json` file as JSON, and any other text as YAML."""
    if path.suffix == ".json":
        return _parse_json(text, path)

    from judgekit.config import yaml_text  # noqa: PLC0415 - imported lazily because it's slow

    return yaml_text.parse_yaml(text, path)


def _parse_json(text: str, path: Path) -> Any:  # noqa: ANN401 - any JSON
    """Parse JSON; raises `ConfigError` if it isn't valid, or has duplicate keys."""
    text_without_mark = text.removeprefix("\ufeff")  # the byte order mark
    try:
        return json.loads(text_without_mark, object_pairs_hook=_make_object)
    except RecursionError:
        raise ConfigError("nested too deeply to read; correct the JSON", path=path) from None
    except json.JSONDecodeError as error:
        problem = f"{error.msg}; correct the JSON"
        raise ConfigError(problem, path=path, line=error.lineno) from None
    except ValueError as error:  # a duplicate key, or a number with too many digits
        raise ConfigError(f"{error}; correct the JSON", path=path) from None


def _make_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object's dict; raises `ValueError` for a duplicate key."""
    members = {}
    for key, value in pairs:
        if key in members:
            raise ValueError(f"duplicate key {json.dumps(key)}")
        members[key] = value
    return members


def find_line_number(data: object, location: Location) -> int | None:
    """Return the line number, from 1, of a location in parsed YAML.

    If the location doesn't exist, returns the line of its closest parent that does. Returns None if there's
    no such parent, or if `data` doesn't come from YAML.
    """
    line_number: int | None = None
    for part in location:
        positions = _map_positions(data)
        if part not in positions:
            break
        line_from_0 = positions[part][0]  # a position has the line and the column
        line_number = line_from_0 + 1
        data = data[part]  # type: ignore[index]  # it has positions, so it's a container
    return line_number


def _map_positions(data: object) -> Mapping[Any, Sequence[int]]:
    """Map each key or index of a parsed YAML container to its line and column. Other data has none."""
    position_data = getattr(data, "lc", None)  # only set by the YAML parser
    return getattr(position_data, "data", None) or {}


def check_project_file(path: Path, project: Path) -> bool:
    """Check that a project's file can be read without following a link. Returns whether the file exists.

    Raises `ConfigError` if the file or one of its folders is a link, or if it isn't a regular file.
    """
    mode: int | None = None
    # Check each folder on the way from the project to the file, and finally the file.
    current_path = project
    for part in path.relative_to(project).parts:
        current_path /= part
        mode = _find_mode(current_path)
        if mode is None:
            return False
        if stat.S_ISLNK(mode):
            problem = "a link, and links of a project are not followed; replace it with the file"
            raise ConfigError(problem, path=current_path)

    # The mode is now that of the file, or None if `path` is the project itself.
    is_regular_file = mode is not None and stat.S_ISREG(mode)
    if not is_regular_file:
        raise ConfigError("not a regular file; replace it with a file, or remove it", path=path)
    return True


def _find_mode(path: Path) -> int | None:
    """Return the mode of a file, folder or link, or None if there's none. Raises `ConfigError` on failure."""
    try:
        return path.lstat().st_mode  # doesn't follow a link
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror})", path=path) from None
    except ValueError:  # a path with a NUL
        raise ConfigError("cannot be read (no such file)", path=path) from None


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
_QUOTED_WORD_PATTERN = re.compile("'([^']*)'")


@cache
def _read_wordings() -> dict[str, Any]:
    """Read our wordings of pydantic's error types."""
    return tomllib.loads(files.COMPILED.with_name("faults.toml").read_bytes().decode())


def explain_first_error(errors: Sequence[ErrorDetails], data: object) -> Problem:
    """Rephrase the first of pydantic's errors about `data`; see `explain_errors`."""
    return next(explain_errors(errors, data))


def explain_errors(
    errors: Sequence[ErrorDetails], data: object, model: object = None
) -> Iterator[Problem]:
    """Rephrase pydantic's errors about `data`, which should be a `model`, in plain words.

    If a value can have several types, the problem names all of them. It never quotes the wrong value,
    because a file in a clone can lead to a private one.
    """
    # Unknown keys come first, because a misspelt key explains a missing one.
    sorted_errors = sorted(errors, key=lambda error: error["type"] != "extra_forbidden")
    corrected_locations = set[Location]()  # of misspelt keys, with the correct spelling

    for alternatives in _group_by_value(sorted_errors, data):
        likely_errors = _choose_likely_errors(alternatives)
        likeliest = likely_errors[0]
        error = likeliest.error
        location = _find_location(likeliest)

        inner_error = error.get("ctx", {}).get("error")
        if isinstance(inner_error, WrongValuesError):  # our own validators already yield problems
            yield from _locate_inner_problems(inner_error, location)
            continue

        similar_key = _find_similar_key(error, location, model)
        if similar_key:
            corrected_locations.add((*location[:-1], similar_key))
            yield Problem(location, f"unknown key; did you mean {similar_key}?")
            continue

        is_missing = error["type"] == "missing"
        if is_missing and location in corrected_locations:  # already reported as misspelt
            continue
        yield Problem(location, _describe_wrong_value(likely_errors))


def _locate_inner_problems(error: WrongValuesError, location: Location) -> Iterator[Problem]:
    """Yield the problems inside a value, with locations from the top of the data."""
    for problem in error.args:
        yield Problem((*location, *problem.location), problem.text)


class _LocatedError(NamedTuple):
    """An error, and the positions in its location that lead into the data, without pydantic's type names."""

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


def _choose_likely_errors(alternatives: Sequence[_LocatedError]) -> list[_LocatedError]:
    """Choose the errors about the kinds of value that pydantic read furthest. One of these was meant."""
    greatest_depth = max(len(located.data_parts) for located in alternatives)
    return [located for located in alternatives if len(located.data_parts) == greatest_depth]


def _find_location(located: _LocatedError) -> Location:
    """Return the keys and indexes that lead to the wrong value."""
    error = located.error
    location = tuple(error["loc"][position] for position in located.data_parts)
    if error["type"] != "union_tag_invalid":
        return location

    # The object has a wrong type, as in `task: unknown`. Pydantic's location is that of the object, so append
    # the key, which pydantic names in quotes. It names a field with an alias twice, as in
    # "'schema_' | 'schema'". The alias, which comes last, is the key in the data.
    quoted_keys = _QUOTED_WORD_PATTERN.findall(error["ctx"]["discriminator"])
    return (*location, *quoted_keys[-1:])


def _find_similar_key(error: ErrorDetails, location: Location, model: object) -> str | None:
    """Find the key that was probably meant by an unknown key. Returns None for any other error."""
    if error["type"] != "extra_forbidden":
        return None
    return _find_similar(location[-1], _list_keys(model, location[:-1]))


def _describe_wrong_value(likely_errors: Sequence[_LocatedError]) -> str:
    """Describe what was expected, what was found instead, and a similar expected word if there's one."""
    error = likely_errors[0].error
    expected = _join_expectations([located.error for located in likely_errors])
    description = expected + _describe_actual(error)

    # If an object names an unknown type, pydantic gives this name as "tag", and the whole object as "input".
    context = error.get("ctx", {})
    actual_word = context.get("tag", error["input"])
    expected_words = _QUOTED_WORD_PATTERN.findall(expected)  # the allowed words are in quotes
    similar_word = _find_similar(actual_word, expected_words)
    if similar_word:
        description += f"; did you mean {similar_word}?"
    return description


def _join_expectations(errors: Iterable[ErrorDetails]) -> str:
    """Join the errors' expected values, without duplicates: "expected A, B or C"."""
    expectations = [_describe_expectation(error) for error in errors]
    first, *others = dict.fromkeys(expectations)  # drops duplicates, and keeps the order
    if not others:
        return first

    # Only the first keeps the word "expected".
    *middle, last = [expectation.removeprefix("expected ") for expectation in others]
    all_but_last = ", ".join([first, *middle])
    return f"{all_but_last} or {last}"


def _describe_actual(error: ErrorDetails) -> str:
    """Describe the actual value, as in ", got a number", or return "" if that's redundant."""
    if _is_kind_redundant(error):
        return ""
    return f", got {describe_kind(error['input'])}"


def _is_kind_redundant(error: ErrorDetails) -> bool:
    """Whether the error's message needn't say the kind of the actual value, as in "got a number"."""
    error_type = error["type"]
    value = error["input"]
    # Lists of pydantic's error types, such as the one for which the kind is "never" worth saying.
    error_types = _read_wordings()["got"]

    has_our_wording = error["msg"].startswith(_VALUE_ERROR)
    is_always_redundant = error_type in error_types["never"]
    if has_our_wording or is_always_redundant:
        return True
    if isinstance(value, bytes):  # a request's whole body, which wasn't sent as JSON
        return True

    # True, false and null are worth mentioning, because they can be typing mistakes.
    is_true_false_or_null = isinstance(value, bool | None)
    if is_true_false_or_null:
        return False
    # Other values with these types of errors are usually of the expected kind, such as too large a number.
    return error_type in error_types["of_another_kind"]


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
        models = _list_models_at(part, models)

    keys: list[str] = []
    for nested_model in models:
        keys += nested_model.model_fields
    return keys


def _list_models_at(part: int | str, models: list[type[BaseModel]]) -> list[type[BaseModel]]:
    """List the models to which one part of a location leads from `models`.

    `part` is a field's name, a list index or a mapping key.
    """
    fields = [model.model_fields[part] for model in models if part in model.model_fields]
    is_index_or_key = not fields
    if is_index_or_key:
        # `_list_models` looks into lists and mappings, so `models` are already the models of their items.
        return models

    nested_models = []
    for field in fields:
        nested_models += _list_models(field.annotation)
    return nested_models


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


def explain_json_error(text: str | bytes, error: ValidationError) -> Problem:
    """Rephrase the first of pydantic's errors about a JSON document."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None  # not valid JSON, so the error's location is empty
    return explain_first_error(error.errors(include_url=False), data)


def _find_data_parts(error: ErrorDetails, data: object) -> list[int]:
    """Return the positions of the keys and indexes in an error's location (`loc`).

    The other parts are names of types that pydantic tried. For `("paths", "list[str]", 0)`, returns `[0, 2]`.
    """
    positions = []
    location = error["loc"]
    last_position = len(location) - 1
    is_about_missing_key = error["type"] == "missing"
    for position, part in enumerate(location):
        if _has_item(data, part):
            data = data[part]  # type: ignore[index]  # it has items, so it's a container
            positions.append(position)
        elif is_about_missing_key and position == last_position:
            # The last part is the missing key, so `data` doesn't have it.
            positions.append(position)
    return positions


def _has_item(data: object, key: int | str) -> bool:
    """Whether `data` is a container that has this key or index."""
    try:
        data[key]  # type: ignore[index]  # raises TypeError if it isn't a container
    except (LookupError, TypeError):
        return False
    return True


def _find_alternatives(errors: Sequence[ErrorDetails], data_parts: Sequence[int]) -> list[int]:
    """Return the indexes of all errors about the same value as the first error.

    If a value can have multiple types, pydantic reports an error for each type. The locations only differ
    from the type's name on: `("paths", "list[str]", 0)` and `("paths", "str")`. `data_parts` has the
    positions of all parts of the first location but the type names: `[0, 2]`, since "list[str]" is at
    position 1.
    """
    first_location = errors[0]["loc"]
    positions = range(len(first_location))
    type_name_positions = [position for position in positions if position not in data_parts]
    for position in type_name_positions:
        location_of_value = first_location[:position]
        indexes = _find_with_prefix(errors, location_of_value)
        errors_at_value = [errors[index] for index in indexes]
        # If the next part differs, it's the name of a type that pydantic tried.
        if _differ_at(position, errors_at_value):
            return indexes

    return [0]  # only the first error is about this value


def _find_with_prefix(errors: Sequence[ErrorDetails], prefix: Location) -> list[int]:
    """Return the indexes of the errors whose locations start with `prefix`."""
    return [index for index, error in enumerate(errors) if error["loc"][: len(prefix)] == prefix]


def _differ_at(position: int, errors: Iterable[ErrorDetails]) -> bool:
    """Whether the locations of the errors have different parts at a position."""
    # Take slices, because a location may be too short to have this part.
    parts = {error["loc"][position : position + 1] for error in errors}
    return len(parts) > 1


def _describe_expectation(error: ErrorDetails) -> str:
    """Describe the value that an error expects, such as "expected a number from 0 to 1"."""
    error_type = error["type"]
    message = error["msg"]

    # Our own validators have already described the value.
    if message.startswith(_VALUE_ERROR):
        return message.removeprefix(_VALUE_ERROR)

    # Pydantic's messages about JSON have these words, but the errors' types are those of Python's dictionary
    # and tuple, so they don't fit.
    message = message.removeprefix("Input should be ")
    if message == "an object":
        return "expected an object"
    if message == "a valid array":
        return "expected a list"

    wordings = _read_wordings()
    our_wording = wordings["words"].get(error_type)
    if our_wording:
        limits = _shorten_floats(error.get("ctx", {}))
        return str(our_wording.format(**limits))

    # Otherwise use the wording for a family of errors, such as "float" for "float_parsing".
    family, _, _ = error_type.partition("_")
    return f"expected {wordings['kinds'].get(family, message)}"


def _shorten_floats(context: Mapping[str, Any]) -> dict[str, Any]:
    """Copy an error's context, with floats as short texts: "1" instead of 1.0."""
    shortened = dict(context)
    for key, value in context.items():
        if isinstance(value, float):
            shortened[key] = f"{value:g}"
    return shortened


def describe_kind(value: object) -> str:
    """Describe the kind of a value, such as "a list of 3".

    The value itself isn't shown, unless it's null, true or false.
    """
    if isinstance(value, list):
        return _describe_size(value, "list")
    if isinstance(value, dict):
        return _describe_size(value, "mapping")
    if isinstance(value, bool) or value is None:
        return json.dumps(value)  # "true", not Python's "True"
    if isinstance(value, str):
        return "a text"
    if isinstance(value, int | float):
        return "a number"
    if getattr(value, "tag", None):  # such as `!name text` in YAML
        return "a value with a tag"
    return f"a {type(value).__name__.lower()}"


def _describe_size(values: Sized, kind: str) -> str:
    """Describe a list or mapping, as in "a list of 3" or "an empty list"."""
    if len(values) == 0:
        return f"an empty {kind}"
    return f"a {kind} of {len(values)}"
