"""Reads rows of a JSON document: a list of objects, an object with one such list, or misnamed JSON Lines."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, BinaryIO

from judgekit.data import columns, presets, sniffing
from judgekit.data.cells import CellError
from judgekit.data.sources import DataRow, json_lines
from judgekit.data.sources.line_reader import BOM, build_unreadable_row
from judgekit.errors import InputError
from judgekit.text import RepeatedKeyError, format_count, refuse_repeated_keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.data.sources import Reading, Stream

MAX_DOCUMENT_BYTES = 512_000_000  # in a document, which is read as a whole
_EXPECTED_LIST = "a list of objects, or an object with one such list"
_REMEDY = "or write one object a line into a file whose name ends in .jsonl"


def check(file: BinaryIO, name: str, reading: Reading) -> None:
    del reading  # JSON has no delimiters
    sniffing.refuse_others(sniffing.peek_head(file), name)


def read(file: BinaryIO, name: str, reading: Reading) -> Stream:
    """Yield the rows in a JSON document, which is read into memory. Raises `InputError` if that fails."""
    check(file, name, reading)
    raw = file.read(MAX_DOCUMENT_BYTES + 1)
    if len(raw) > MAX_DOCUMENT_BYTES:
        problem = (
            f"larger than {MAX_DOCUMENT_BYTES // 1_000_000} MB; write one object a line into a file"
        )
        raise InputError(f"{name}: {problem} whose name ends in .jsonl, which is read row by row")

    raw = raw.removeprefix(BOM)
    try:
        document = json.loads(raw, object_pairs_hook=refuse_repeated_keys)
    except RepeatedKeyError as error:
        problem = f"expected each key once, got {error.key!r} twice in an object; rename one"
        raise InputError(f"{name}: {problem}") from None
    except RecursionError:
        raise InputError(f"{name}: {json_lines.describe_deep_nesting()}") from None
    except ValueError as error:
        # Accept JSON Lines in a file named .json.
        if not _is_json_lines(raw):
            raise InputError(
                f"{name}: expected {_EXPECTED_LIST}; {_describe_error(error)}"
            ) from None
        yield from json_lines.read_lines(raw.split(b"\n"))
        return

    for number, value in enumerate(_find_rows(document, name), 1):
        try:
            yield DataRow(number, json_lines.check_object(value))
        except CellError as error:
            yield build_unreadable_row(error, number, number)


def _describe_error(error: ValueError) -> str:
    """Describe why text isn't JSON, with the line if it's known."""
    if isinstance(error, json.JSONDecodeError):
        return f"line {error.lineno}: {error.msg}"
    return "it isn't UTF-8, or has a number of thousands of digits"


def _is_json_lines(raw: bytes) -> bool:
    """Whether each of the first two nonblank lines is a complete JSON object."""
    nonblank_lines = (line for line in raw.split(b"\n") if line.strip())
    for line in itertools.islice(nonblank_lines, 2):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            return False
        if not isinstance(value, dict):
            return False
    return True


def _find_rows(document: object, name: str) -> Sequence[Any]:
    """Find the list of rows in a JSON document. The document can also be a single row.

    Raises `InputError` if there are no rows, or if multiple lists could be the rows.
    """
    if isinstance(document, list):
        return document
    if not isinstance(document, dict):
        raise InputError(f"{name}: expected {_EXPECTED_LIST}, got one value")

    # Try the known formats.
    rows = presets.find_rows(document)
    if rows is None:
        rows = _read_split_table(document)
        if not rows:
            rows = _read_columns_or_index(document)
    if rows is not None:
        return rows

    # Otherwise, look for a list of objects, except one that may be a row's conversation or sources.
    lists: dict[str, list[Any]] = {}
    for key, value in document.items():
        has_objects = isinstance(value, list) and any(isinstance(item, dict) for item in value)
        if has_objects and not columns.is_list_of_row(key):
            lists[key] = value
    if len(lists) == 1:
        (only_list,) = lists.values()
        return only_list

    is_row = any(map(columns.is_usual_name, document))
    if not lists and is_row:
        return [document]
    found_lists = "none"
    if lists:
        found_lists = f"{format_count(len(lists), 'list', 'lists')} ({', '.join(lists)})"
    raise InputError(
        f"{name}: expected {_EXPECTED_LIST}, got {found_lists}; keep one list, {_REMEDY}"
    )


def _read_split_table(document: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Read a table that pandas wrote as {"columns": …, "data": …}. Returns None for any other object."""
    names = document.get("columns")
    data = document.get("data")
    if not isinstance(names, list) or not isinstance(data, list):
        return None
    are_texts = all(isinstance(name, str) for name in names)
    if not are_texts or len(set(names)) < len(names):
        return None
    for cells in data:
        if not isinstance(cells, list) or len(cells) != len(names):
            return None
    return [dict(zip(names, cells, strict=True)) for cells in data]


def _read_columns_or_index(document: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Read a table that pandas wrote by column or by row number. Returns None for any other object.

    By column, it's `{"text": {"0": "a", "1": "b"}}`. By row, it's `{"0": {"text": "a"}, "1": {"text": "b"}}`.
    """
    values = list(document.values())
    are_nonempty_objects = all(isinstance(value, dict) and value for value in values)
    if not values or not are_nonempty_objects:
        return None
    is_by_row = all(key.isdecimal() for key in document)
    if is_by_row:
        return values

    row_numbers = list(values[0])  # all columns must have the same ones
    are_numbers = all(key.isdecimal() for key in row_numbers)
    if not are_numbers or any(list(value) != row_numbers for value in values):
        return None
    rows = []
    for row_number in row_numbers:
        rows.append({name: cells[row_number] for name, cells in document.items()})
    return rows
