"""Reads and writes JSON with only the C code of `json`: importing `json` and `re` costs more than a query."""

from __future__ import annotations

from _json import encode_basestring_ascii, make_scanner

TYPE_CHECKING = False  # same as typing.TYPE_CHECKING, without importing typing
if TYPE_CHECKING:
    from typing import Any

_BLANKS = " \t\n\r"
_MAX_CHARS = 1_000_000  # characters of a file


class _Rules:
    """The attributes that a scanner of `_json` needs from its decoder."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int

    @staticmethod
    def parse_constant(name: str) -> None:
        raise ValueError(f"{name} is no JSON")


_context: Any = _Rules
_scan = make_scanner(_context)


def loads(text: str) -> Any:  # noqa: ANN401 - JSON is any value
    """Parse JSON, reading escaped NULs as spaces. Raises `ValueError` if it's invalid."""
    text = text.encode("utf-8", "replace").decode("utf-8")  # without lone surrogates
    text = text.replace("\\u0000", "\\u0020")  # paths and SQLite texts can't contain NULs
    text = text.strip(_BLANKS)
    try:
        value, end = _scan(text, 0)
    except (ValueError, StopIteration, RecursionError, SystemError):
        # A SystemError is invalid JSON, too: without the `json` module, the C code can't raise its own error.
        raise ValueError("not valid JSON") from None

    if end != len(text):  # something follows the value
        raise ValueError("not valid JSON")

    # Escapes can put lone surrogates into the value, too.
    has_surrogate_escapes = "\\ud" in text or "\\uD" in text
    if has_surrogate_escapes:
        return _replace_surrogates(value)
    return value


def load(path: str) -> Any:  # noqa: ANN401 - JSON is any value
    """Return the value in a JSON file, or None if it can't be read."""
    try:
        with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
            return loads(file.read(_MAX_CHARS))
    except (OSError, ValueError):
        return None


def dumps(value: object) -> str:
    """Serialise `value` as JSON on one line. Too slow to load for the prompt hook."""
    import json  # noqa: PLC0415 - see the module's docstring

    return json.dumps(value, ensure_ascii=False)


def dumps_ascii(value: object) -> str:
    """Serialise `value` as ASCII JSON without importing `json`.

    It can contain dicts with string keys, lists, tuples, strings, numbers, booleans and None.
    """
    if isinstance(value, str):
        return str(encode_basestring_ascii(value))
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        members = [f"{dumps_ascii(name)}:{dumps_ascii(inner)}" for name, inner in value.items()]
        return "{" + ",".join(members) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(dumps_ascii, value)) + "]"
    return repr(value)


def _replace_surrogates(value: Any) -> Any:  # noqa: ANN401 - JSON is any value
    """Replace lone surrogates in all strings of a value, since UTF-8 can't encode them."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        members = {}
        for key, member in value.items():
            members[_replace_surrogates(key)] = _replace_surrogates(member)
        return members
    if isinstance(value, list):
        return [_replace_surrogates(item) for item in value]
    return value
