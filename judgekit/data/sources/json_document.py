"""Reads rows of a JSON document: a list of objects, an object with one such list, or misnamed JSON Lines."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, BinaryIO

from judgekit.data import columns, presets, sniffing
from judgekit.data.cells import CellError
from judgekit.data.sources import DataRow, json_lines
from judgekit.data.sources.line_reader import BOM, unreadable_row
from judgekit.errors import InputError
from judgekit.text import RepeatedKeyError, counted, with_different_keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.data.sources import Reading, Stream

MAX_BYTES = 512_000_000  # in a document, which is read as a whole
_LISTED = "a list of objects, or an object with one such list"
_REMEDY = "or write one object a line into a file whose name ends in .jsonl"


def check(file: BinaryIO, name: str, reading: Reading) -> None:
    del reading  # JSON has no delimiters
    sniffing.refuse_others(sniffing.head_of(file), name)


def read(file: BinaryIO, name: str, reading: Reading) -> Stream:
    """Yield the rows of a document. It's read as a whole; raises `InputError` if that fails."""
    check(file, name, reading)
    raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        problem = f"larger than {MAX_BYTES // 1_000_000} MB; write one object a line into a file"
        raise InputError(f"{name}: {problem} whose name ends in .jsonl, which is read row by row")
    raw = raw.removeprefix(BOM)
    try:
        document = json.loads(raw, object_pairs_hook=with_different_keys)
    except RepeatedKeyError as error:
        problem = f"expected each key once, got {error.key!r} twice in an object; rename one"
        raise InputError(f"{name}: {problem}") from None
    except RecursionError:
        raise InputError(f"{name}: {json_lines.too_deep()}") from None
    except ValueError as error:
        # JSON Lines in a file named .json are read all the same.
        if not _is_json_lines(raw):
            raise InputError(f"{name}: expected {_LISTED}; {_describe_error(error)}") from None
        yield from json_lines.read_lines(raw.split(b"\n"))
        return
    for number, value in enumerate(_find_rows(document, name), 1):
        try:
            yield DataRow(number, json_lines.check_object(value))
        except CellError as error:
            yield unreadable_row(error, number, number)


def _describe_error(error: ValueError) -> str:
    """Say why a text isn't JSON, with the line if it's known."""
    if isinstance(error, json.JSONDecodeError):
        return f"line {error.lineno}: {error.msg}"
    return "it isn't UTF-8, or has a number of thousands of digits"


def _is_json_lines(raw: bytes) -> bool:
    """Whether the first two lines that aren't blank are each a whole JSON object."""
    filled_lines = (line for line in raw.split(b"\n") if line.strip())
    for line in itertools.islice(filled_lines, 2):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            return False
        if not isinstance(value, dict):
            return False
    return True


def _find_rows(document: object, name: str) -> Sequence[Any]:
    """Find the list of rows in a document. A single row in an object becomes a list of one.

    Raises `InputError` if there's no list, or if several lists could be the rows.
    """
    if isinstance(document, list):
        return document
    if not isinstance(document, dict):
        raise InputError(f"{name}: expected {_LISTED}, got one value")
    rows = presets.find_rows(document)
    if rows is None:
        rows = _build_rows_of_split_table(document)
        if not rows:  # a split table without rows may be something else
            rows = _build_rows_of_columns(document)
    if rows is not None:
        return rows
    lists: dict[str, list[Any]] = {}
    for key, value in document.items():
        has_objects = isinstance(value, list) and any(isinstance(item, dict) for item in value)
        # A conversation or sources are a list, too: then the object is a row.
        if has_objects and not columns.is_list_of_row(key):
            lists[key] = value
    if len(lists) == 1:
        (only_list,) = lists.values()
        return only_list
    is_row = any(map(columns.is_usual_name, document))
    if not lists and is_row:
        return [document]
    found_lists = (
        f"{counted(len(lists), 'list', 'lists')} ({', '.join(lists)})" if lists else "none"
    )
    raise InputError(f"{name}: expected {_LISTED}, got {found_lists}; keep one list, {_REMEDY}")


def _build_rows_of_split_table(document: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Build the rows of a table that pandas wrote as an object with `columns` and `data`.

    None if the document isn't such a table.
    """
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


def _build_rows_of_columns(document: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Build the rows of a table that pandas wrote column by column, or row by row under numbers.

    Column by column is `{"text": {"0": "a", "1": "b"}}`. Row by row is `{"0": {"text": "a"}, "1": {"text":
    "b"}}`. None for anything else.
    """
    tables = list(document.values())
    are_filled_objects = all(isinstance(table, dict) and table for table in tables)
    if not tables or not are_filled_objects:
        return None
    are_rows = all(key.isdecimal() for key in document)
    if are_rows:
        return tables
    numbers = list(tables[0])  # of the rows, which are the same in each column
    are_numbers = all(key.isdecimal() for key in numbers)
    if not are_numbers or any(list(table) != numbers for table in tables):
        return None
    rows = []
    for number in numbers:
        rows.append({name: cells[number] for name, cells in document.items()})
    return rows
