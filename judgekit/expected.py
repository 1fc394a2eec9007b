"""Says in a few words of a file what pydantic expected in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_core import ErrorDetails

VALUE_ERROR = "Value error, "
EXPECTED = "expected "
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


def expectation(error: ErrorDetails) -> str:
    """Say in a few words what was expected, without what stands there: it may be none of the reader's."""
    if error["type"] == "extra_forbidden":
        return "unknown key; remove it or mend its spelling"
    if error["type"] == "missing":
        return "missing key; add it"
    if error["type"].startswith("union_tag"):
        context = error.get("ctx", {})
        wanted, given = context.get("expected_tags"), context.get("tag")
        kind = context.get("discriminator", "")
        return (
            f"expected {kind} to be one of {wanted}, got {given!r}"
            if wanted
            else f"missing key {kind}; add it"
        )
    if error["type"] == "json_invalid":
        why = error.get("ctx", {}).get("error", "")
        return f"not valid JSON ({why}); mend it" if why else "not valid JSON; mend it"
    if error["msg"].startswith(VALUE_ERROR):
        return error["msg"].removeprefix(VALUE_ERROR)
    message = error["msg"].removeprefix("Input should be ")
    in_json = message in ("an object", "a valid array")
    expected = message if in_json else _expected(error["type"], error.get("ctx", {})) or message
    return f"expected {expected}"


def _expected(kind: str, context: Mapping[str, object]) -> str:
    """Return in the words of a file what was expected; "" for a rare fault, which pydantic tells of."""
    if kind in _BOUNDS:
        figures = {
            name: f"{value:g}" if isinstance(value, float) else value for name, value in context.items()
        }
        return _BOUNDS[kind].format(**figures)
    return _TYPES.get(kind.partition("_")[0], "")
