"""Converts the values of rows given by Python programs to JSON values."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import asdict, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from judgekit.text import replace_surrogates, shorten_to_line

MAX_DEPTH = 100  # levels of nested lists and objects; Python itself stops somewhere below 1,000
_MAX_BITS = 10_000  # of a whole number: Python writes at most 4,300 digits


class NoJsonValueError(Exception):
    """A value that JSON can't hold; the text says what was expected and what was found."""


def parse_json(text: str) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Parse text as JSON, or return it unchanged if it isn't JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def convert_row(columns: Mapping[Any, Any]) -> dict[str, Any]:
    """Convert a row to JSON values. Raises `NoJsonValueError`, which names the column."""
    row = {}
    for key, value in columns.items():
        name = _convert_name(key)
        if name in row:
            raise NoJsonValueError(
                f"{name}: expected different names of columns, got this one twice"
            )
        try:
            row[name] = convert_value(value)
        except NoJsonValueError as error:
            raise NoJsonValueError(f"{name}: {error}") from None
    return row


def convert_value(value: object, depth: int = 0) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Convert a value to a JSON value. Raises `NoJsonValueError` if that's impossible.

    Dates and times become ISO 8601 text, durations become seconds, and decimals become text with all digits.
    Bytes become text, in Base64 if they aren't UTF-8. Sets become lists, and objects with fields become JSON
    objects.
    """
    if depth > MAX_DEPTH:
        raise NoJsonValueError(
            f"expected at most {MAX_DEPTH} lists and objects inside each other, got more"
        )
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return convert_value(value.value, depth + 1)
    simple = _convert_simple(value)
    if simple is not None:
        return simple

    if isinstance(value, Mapping):
        return {_convert_name(key): convert_value(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [convert_value(inner, depth + 1) for inner in value]
    if isinstance(value, AbstractSet):
        # Sort the items, so that equal sets give equal lists.
        return sorted((convert_value(inner, depth + 1) for inner in value), key=repr)
    return _convert_object(value, depth)


def _convert_simple(value: object) -> str | int | float | None:
    """Convert a string, number, date, duration or bytes to JSON. Returns None for any other type."""
    if isinstance(value, str):
        if replace_surrogates(value) != value:
            raise NoJsonValueError("expected text, got half of a surrogate pair")
        return str(value)
    if isinstance(value, int):
        if value.bit_length() > _MAX_BITS:
            raise NoJsonValueError("expected a shorter number, got one of thousands of digits")
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Decimal | UUID | PurePath):
        return str(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, date | time):  # a datetime is a date, too
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return _decode_bytes(bytes(value))
    return None


def _decode_bytes(raw: bytes) -> str:
    """Decode bytes as UTF-8. If they aren't UTF-8, encode them as Base64."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return base64.b64encode(raw).decode()


def _convert_object(value: object, depth: int) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Convert an object such as a pydantic model, a dataclass or a NumPy array."""
    is_class = isinstance(value, type)  # a class itself can't be converted, only its instances can
    if not is_class:
        converted = _convert_instance(value)
        if converted is not value:
            return convert_value(converted, depth + 1)

    type_name = shorten_to_line(type(value).__name__, 60)
    raise NoJsonValueError(
        f"expected text, a number, a list or an object, got {type_name}; convert it, or leave it out"
    )


def _convert_instance(value: Any) -> object:  # noqa: ANN401 - any instance
    """Convert a dataclass, or an object with a conversion method of pydantic, NumPy or another library.

    Returns the value itself if nothing converts it. Raises `NoJsonValueError` if its conversion fails.
    """
    has_fields = is_dataclass(value)
    if has_fields:
        return asdict(value)
    for name in ("model_dump", "tolist", "item", "to_dict"):
        convert = getattr(value, name, None)
        if not callable(convert):
            continue
        try:
            converted = convert()
        except Exception as error:  # noqa: BLE001 - another program's code can raise anything
            raise NoJsonValueError(
                f"expected a value, got one that cannot be read ({error})"
            ) from None
        if converted is not value:  # otherwise, another method may convert it
            return converted
    return value


def _convert_name(key: object) -> str:
    """Convert a mapping's key to a column name. In JSON, names must be strings."""
    name = key if isinstance(key, str) else str(convert_value(key))
    if replace_surrogates(name) != name:
        raise NoJsonValueError("expected text as a name, got half of a surrogate pair")
    return name
