"""Reads the YAML and JSON files that users tune into validated models; errors name file, line and key.

One place reads the errors of pydantic and says them in plain words and the data's own keys.
"""

from __future__ import annotations

import hashlib
import io
import json
import stat
import time
from copy import deepcopy
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from judgekit.config import files
from judgekit.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pydantic_core import ErrorDetails


Location = tuple[int | str, ...]
Identifier = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*$")]
Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]

MAX_BYTES = 1_000_000  # far above any real file; keeps a YAML bomb from being parsed
MOST_KEPT = 256  # files whose content is kept
# A file that was changed so lately may change again without its times telling so: it is not kept yet.
FRESH_SECONDS = 0.1
CONFIG_BYTES = 32_000  # of what a clone may bring and every prompt waits for: a second and a half of CPU


class Strict(BaseModel):
    """Base of every model that is read from a file: unknown keys are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Model = TypeVar("Model", bound=BaseModel)


def read(path: Path, model: type[Model], *, version_key: str | None = None, most: int = MAX_BYTES) -> Model:
    """Return the file at `path`, of `most` bytes, as a `model`; it is parsed once while it stays as it is.

    `version_key` names a key that must be there before anything else is looked at, so that a file of
    another kind is called that instead of a list of unknown keys.

    Raises `ConfigError` naming file, line, key, what was expected and what to do.
    """
    try:
        state = path.stat()
        is_fresh = abs(time.time() - max(state.st_mtime, state.st_ctime)) < FRESH_SECONDS
        same = state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns
    except (OSError, ValueError):
        is_fresh = True
    data = load_yaml(path, most) if is_fresh else _kept(path, most, same)
    if version_key is not None and version_key not in data:
        raise ConfigError(f"not a {version_key} file: add the key {version_key!r} first", path=path, line=1)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        wrong = problem(error.errors(include_url=False), data)
        more = f" (and {wrong.others} more in this file)" if wrong.others else ""
        line = line_of(data, wrong.location)
        raise ConfigError(wrong.text + more, path=path, line=line, key=wrong.key) from None


@lru_cache(1)
def _bundled() -> dict[str, dict[str, Any]]:
    """Return the data in bundled YAML files by the SHA-256 of their bytes: a parser takes 0.2 s."""
    compiled: dict[str, dict[str, Any]] = json.loads(files.COMPILED.read_bytes())
    return compiled


def load_yaml(path: Path, most: int = MAX_BYTES, _state: tuple[int, ...] = ()) -> dict[str, Any]:
    """Return the mapping in a YAML 1.2 file, or in a JSON file by its name; duplicate keys are refused.

    Raises `ConfigError` when the file cannot be read, is not YAML or JSON, or is not a mapping.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a device may have no end, a pipe no beginning
            raise ConfigError("no regular file", path=path)
        with path.open("rb") as file:
            raw = file.read(most + 1)
        if len(raw) > most:
            raise ConfigError(f"larger than {most} bytes: is this the right file?", path=path)
        if (data := _bundled().get(hashlib.sha256(raw).hexdigest())) is not None:
            return deepcopy(data)
        text = io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8").read()
    except UnicodeDecodeError as error:
        raise ConfigError(f"not UTF-8 (byte {error.start}); save it as UTF-8", path=path) from None
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror})", path=path) from None
    if path.suffix == ".json":
        data = _parsed_json(text, path)
    else:
        from judgekit.config import yaml_text  # noqa: PLC0415 - what is bundled needs no parser

        data = yaml_text.parsed(text, path)
    if data is not None and not isinstance(data, dict):
        raise ConfigError(f"expected a mapping (lines `key: value`), got {kind_of(data)}", path=path, line=1)
    return data or {}


_kept = lru_cache(MOST_KEPT)(load_yaml)  # by path and state


def _parsed_json(text: str, path: Path) -> Any:  # noqa: ANN401 - any JSON
    def members(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise ValueError(f"duplicate key {json.dumps(key)}")
            found[key] = value
        return found

    try:
        return json.loads(text.removeprefix("\ufeff"), object_pairs_hook=members)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{error.msg}; correct the JSON", path=path, line=error.lineno) from None
    except RecursionError:
        raise ConfigError("nested too deeply to read; correct the JSON", path=path) from None
    except ValueError as error:
        raise ConfigError(f"{error}; correct the JSON", path=path) from None


def line_of(data: object, location: Location) -> int | None:
    """Return the line (from 1) of the deepest part of `location` that stands in the file."""
    line: int | None = None
    for part in location:
        marks = getattr(getattr(data, "lc", None), "data", None) or {}
        if part not in marks:
            break
        line = marks[part][0] + 1
        data = data[part]  # type: ignore[index]  # `marks` has the part, so `data` is a container
    return line


def check_own(path: Path, project: Path) -> bool:
    """Whether a file of a project's is there, and its own.

    Raises `ConfigError` where it, or a folder on the way from the project, is a link, or where it is no
    regular file: a clone may lead to what is none of its business, or to a pipe without an end.
    """
    step, mode = project, 0
    for part in path.relative_to(project).parts:
        step /= part
        try:
            mode = step.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return False
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "no such file"
            raise ConfigError(f"cannot be read ({reason})", path=step) from None
        if stat.S_ISLNK(mode):
            raise ConfigError(
                "a link, and links of a project are not followed; replace it with the file", path=step
            )
    if not stat.S_ISREG(mode):
        raise ConfigError("not a regular file; replace it with a file, or remove it", path=path)
    return True


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# What is wrong with data, in plain words


class Problem(NamedTuple):
    """What is wrong with data: where, in the data's own keys, and what was expected there.

    `others` is how many more places are wrong.
    """

    location: Location
    text: str
    others: int = 0

    @property
    def key(self) -> str:
        return ".".join(str(part) for part in self.location)

    def __str__(self) -> str:
        return f"{self.key}: {self.text}" if self.location else self.text


_VALUE_ERROR = "Value error, "
# These say all, or are about a value of the right kind: what stands there is not said.
_WITHOUT_KIND = {"extra_forbidden", "missing", "json_invalid", "union_tag_invalid", "union_tag_not_found"}
_OF_THE_RIGHT_KIND = {
    *("greater_than", "greater_than_equal", "less_than", "less_than_equal", "finite_number"),
    *("string_too_short", "string_too_long", "string_pattern_mismatch", "literal_error", "enum"),
}
_WORDS = {
    "extra_forbidden": "unknown key; remove it or correct its spelling",
    "missing": "missing key; add it",
    "union_tag_not_found": "missing key {discriminator}; add it",
    "union_tag_invalid": "expected {discriminator} to be one of {expected_tags}",
    "json_invalid": "not valid JSON ({error}); correct it",
    "greater_than": "expected a number above {gt}",
    "greater_than_equal": "expected a number of at least {ge}",
    "less_than": "expected a number below {lt}",
    "less_than_equal": "expected a number of at most {le}",
    "too_short": "expected {min_length} or more entries",
    "too_long": "expected {max_length} entries at most",
    "string_too_short": "expected a text of {min_length} or more characters",
    "string_too_long": "expected a text of {max_length} characters at most",
    "string_pattern_mismatch": "expected a text of the pattern {pattern}",
    "literal_error": "expected {expected}",
    "enum": "expected {expected}",
    "invalid_key": "expected a key that is a text",
}
# By the first word of what pydantic calls a fault of type.
_KINDS = {
    "string": "a text",
    "int": "a whole number",
    "float": "a number",
    "finite": "a number",
    "bool": "true or false",
    "list": "a list",
    "dict": "a mapping",
    "mapping": "a mapping",
    "model": "a mapping",
    "dataclass": "a mapping",
    "none": "null",
    "datetime": "a time such as 2026-02-17T14:30:00Z",
}


def problem(errors: Sequence[ErrorDetails], data: object) -> Problem:
    """Return the first of pydantic's errors about `data` in plain words, which repeat no value.

    Where several kinds of value are possible, all that were expected there are named. What stands there may
    be none of the reader's, since a file of a clone may lead to another one: its kind is said, never itself.
    """
    # A misspelt key explains the missing one, so it comes first.
    details = sorted(errors, key=lambda each: each["type"] != "extra_forbidden")
    places = [_place(each, data) for each in details]
    same = _alternatives(details, places[0])
    deepest = max(same, key=lambda number: len(places[number]))
    first = details[deepest]
    there = [details[number] for number in same if len(places[number]) == len(places[deepest])]
    wanted = list(dict.fromkeys(_expectation(each) for each in there))
    *most, last = (wanted[0], *(each.removeprefix("expected ") for each in wanted[1:]))
    text = " or ".join(filter(None, (", ".join(most), last)))
    value, kind = first["input"], first["type"]
    is_said = kind in _WITHOUT_KIND or first["msg"].startswith(_VALUE_ERROR) or isinstance(value, bytes)
    if not is_said and (kind not in _OF_THE_RIGHT_KIND or isinstance(value, bool | None)):
        text += f", got {kind_of(value)}"
    location = tuple(first["loc"][part] for part in places[deepest])
    return Problem(location, text, len(details) - len(same))


def problem_in(text: str | bytes, error: ValidationError) -> Problem:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    return problem(error.errors(include_url=False), data)


def _place(error: ErrorDetails, data: object) -> list[int]:
    """Return which parts of the place of an error stand in `data`, or are missing there.

    The others are the names of types and of the chosen members of unions, which no reader knows.
    """
    found: list[int] = []
    location = error["loc"]
    for position, part in enumerate(location):
        try:
            data = data[part]  # type: ignore[index]  # where it is no container it has no parts
        except (LookupError, TypeError):
            if position < len(location) - 1 or error["type"] != "missing":
                continue
        found.append(position)
    return found


def _alternatives(details: Sequence[ErrorDetails], place: Sequence[int]) -> list[int]:
    """Return which errors are about the same value as the first: one or more for each kind it could be."""
    first = details[0]["loc"]
    for part in set(range(len(first))) - set(place):
        same = [number for number, each in enumerate(details) if each["loc"][:part] == first[:part]]
        if len({details[number]["loc"][part : part + 1] for number in same}) > 1:
            return same
    return [0]


def _expectation(error: ErrorDetails) -> str:
    kind, message, context = error["type"], error["msg"], error.get("ctx", {})
    if message.startswith(_VALUE_ERROR):
        return message.removeprefix(_VALUE_ERROR)
    message = message.removeprefix("Input should be ")
    if message in {"an object", "a valid array"}:  # of JSON
        return "expected an object" if message == "an object" else "expected a list"
    if kind in _WORDS:
        figures = {
            name: f"{value:g}" if isinstance(value, float) else value for name, value in context.items()
        }
        return _WORDS[kind].format(**figures)
    return f"expected {_KINDS.get(kind.partition('_')[0], message)}"


def kind_of(value: object) -> str:
    """Return what a value of YAML or JSON is, in the words of those."""
    if isinstance(value, dict | list):
        kind = "list" if isinstance(value, list) else "mapping"
        return f"a {kind} of {len(value)}" if value else f"an empty {kind}"
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, str):
        return "a text"
    if isinstance(value, int | float):
        return "a number"
    return "a value with a tag" if getattr(value, "tag", None) else f"a {type(value).__name__.lower()}"
