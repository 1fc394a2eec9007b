"""What is wrong with data, in plain words and its own keys: one place reads the errors of pydantic."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

Location = tuple[int | str, ...]


class Problem(NamedTuple):
    """What is wrong with data: where, in the data's own keys, and what was expected there.

    `others` is how many more places are wrong.
    """

    location: Location
    text: str
    others: int = 0

    @property
    def key(self) -> str:
        """The place as one text, such as `modes.strict.accept`."""
        return ".".join(str(part) for part in self.location)

    def __str__(self) -> str:
        """Say where and what."""
        return f"{self.key}: {self.text}" if self.location else self.text


def problem(errors: Sequence[ErrorDetails], data: object) -> Problem:
    """Return the first of pydantic's errors about `data` in plain words, which repeat no value.

    Where several kinds of value are possible, all that were expected there are named.
    """
    # A misspelt key explains the missing one, so it comes first.
    details = sorted(errors, key=lambda each: each["type"] != "extra_forbidden")
    places = [_place(each, data) for each in details]
    same = _alternatives(details, places[0])
    deepest = max(same, key=lambda number: len(places[number]))
    location = tuple(details[deepest]["loc"][part] for part in places[deepest])
    there = [details[number] for number in same if len(places[number]) == len(places[deepest])]
    wanted = list(dict.fromkeys(expectation(each) for each in there))
    *most, last = (wanted[0], *(each.removeprefix("expected ") for each in wanted[1:]))
    told = " or ".join(filter(None, (", ".join(most), last)))
    given = _given(details[deepest])
    return Problem(location, f"{told}, got {given}" if given else told, len(details) - len(same))


def problem_in(text: str | bytes, error: ValidationError) -> Problem:
    """Return the first problem of a line of JSON."""
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


def _given(error: ErrorDetails) -> str:
    """Say of what kind is what stands there, where that says something.

    Never what it is: a file of a clone may lead to one that is none of the reader's.
    """
    kind, given = error["type"], error["input"]
    if kind in _WITHOUT_VALUE or kind.startswith("union_tag") or error["msg"].startswith(_VALUE_ERROR):
        return ""
    if isinstance(given, bytes) or (kind in _OF_THE_RIGHT_KIND and not isinstance(given, bool | None)):
        return ""
    return kind_of(given)


def expectation(error: ErrorDetails) -> str:
    """Say in a few words what was expected, without what stands there: it may be none of the reader's."""
    if error["type"] == "extra_forbidden":
        return "unknown key; remove it or mend its spelling"
    if error["type"] == "missing":
        return "missing key; add it"
    if error["type"].startswith("union_tag"):
        context = error.get("ctx", {})
        wanted, kind = context.get("expected_tags"), context.get("discriminator", "")
        return f"expected {kind} to be one of {wanted}" if wanted else f"missing key {kind}; add it"
    if error["type"] == "json_invalid":
        why = error.get("ctx", {}).get("error", "")
        return f"not valid JSON ({why}); mend it" if why else "not valid JSON; mend it"
    if error["msg"].startswith(_VALUE_ERROR):
        return error["msg"].removeprefix(_VALUE_ERROR)
    message = error["msg"].removeprefix("Input should be ")
    in_json = {"an object": "an object", "a valid array": "a list"}.get(message)
    expected = in_json or _expected(error["type"], error.get("ctx", {})) or message
    return f"expected {expected}"


_WITHOUT_VALUE = ("extra_forbidden", "missing", "json_invalid")
_OF_THE_RIGHT_KIND = (
    *("greater_than", "greater_than_equal", "less_than", "less_than_equal", "finite_number"),
    *("string_too_short", "string_too_long", "string_pattern_mismatch", "literal_error", "enum"),
)
_VALUE_ERROR = "Value error, "
# By the first word of what pydantic calls a fault of type.
_TYPES = {
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
    "datetime": "a time such as 2026-02-17T14:30:00Z",
    "none": "null",
}
_BOUNDS = {
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "too_short": "{min_length} or more entries",
    "too_long": "{max_length} entries at most",
    "string_too_short": "a text of {min_length} or more characters",
    "string_too_long": "a text of {max_length} characters at most",
    "string_pattern_mismatch": "a text of the pattern {pattern}",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "invalid_key": "a key that is a text",
}


def _expected(kind: str, context: Mapping[str, object]) -> str:
    """Return in the words of a file what was expected; "" for a rare fault, which pydantic tells of."""
    if kind in _BOUNDS:
        figures = {
            name: f"{value:g}" if isinstance(value, float) else value for name, value in context.items()
        }
        return _BOUNDS[kind].format(**figures)
    return _TYPES.get(kind.partition("_")[0], "")


def kind_of(value: object) -> str:
    """Return what a value of YAML or JSON is, in the words of those."""
    if isinstance(value, dict | list):
        kind = "list" if isinstance(value, list) else "mapping"
        return f"a {kind} of {len(value)}" if value else f"an empty {kind}"
    if isinstance(value, bool) or value is None:
        return {None: "null", True: "true", False: "false"}[value]
    kinds = (("a text", str), ("a number", (int, float)))
    found = next((words for words, types in kinds if isinstance(value, types)), "")
    if found or getattr(value, "tag", None) is None:
        return found or f"a {type(value).__name__.lower()}"
    return "a value with a tag"
