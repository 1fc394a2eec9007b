"""Reads rows of JSON Lines: each line is an object; blank lines are skipped."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, BinaryIO

from judgekit.data import presets, sniffing
from judgekit.data.cells import CellError
from judgekit.data.sources import TOO_LONG_MESSAGE, DataRow
from judgekit.data.sources.line_reader import BOM, build_unreadable_row, read_bounded_lines
from judgekit.judging.documents import MAX_BYTES
from judgekit.text import RepeatedKeyError, refuse_repeated_keys, replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from judgekit.data.sources import Reading, Stream

MAX_DEPTH = 100  # levels of nested lists and objects; Python itself stops somewhere below 1,000
_KINDS = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}


def check(file: BinaryIO, name: str, reading: Reading) -> None:
    del reading  # JSON has no delimiters
    sniffing.refuse_others(sniffing.peek_head(file), name)


def read(file: BinaryIO, name: str, reading: Reading) -> Stream:
    check(file, name, reading)
    yield from read_lines(read_bounded_lines(file, MAX_BYTES))


def read_lines(lines: Iterable[bytes | None]) -> Stream:
    """Yield the rows in lines of JSON. A line is a row, or a document with rows that some tool exported.

    A line that's too long is None.
    """
    next_number = 1
    are_documents = True  # until a line isn't such a document
    for line_number, line in enumerate(_drop_bom(lines), 1):
        is_blank = line is not None and not line.strip()
        if is_blank:
            continue
        try:
            row = read_object(line)
        except CellError as error:
            yield build_unreadable_row(error, next_number, line_number)
            next_number += 1
            continue

        rows = presets.find_rows(row) if are_documents else None
        if rows is None:
            are_documents = False
            rows = [row]
        for columns in rows:
            yield DataRow(next_number, columns)
            next_number += 1


def _drop_bom(lines: Iterable[bytes | None]) -> Iterator[bytes | None]:
    """Yield the lines, the first one without a byte order mark."""
    for index, line in enumerate(lines):
        is_first = index == 0
        yield line.removeprefix(BOM) if is_first and line is not None else line


def read_object(raw: bytes | None) -> dict[str, Any]:
    """Parse a line with a JSON object. The line is None if it was too long.

    Raises `CellError` in that case, or if the line isn't a JSON object.
    """
    if raw is None:
        raise CellError(f"expected a shorter row; {TOO_LONG_MESSAGE}")

    try:
        text = raw.decode()
        value = json.loads(text, object_pairs_hook=refuse_repeated_keys)
    except UnicodeDecodeError as error:
        raise CellError(sniffing.describe_invalid_byte(raw[error.start])) from None
    except RepeatedKeyError as error:
        raise CellError(
            "expected each key once, got this one twice; rename one", error.key
        ) from None
    except json.JSONDecodeError as error:
        raise CellError(
            f"expected a JSON object; {error.msg} at character {error.pos + 1}"
        ) from None
    except ValueError:
        raise CellError("expected a shorter number, got one of thousands of digits") from None
    except RecursionError:
        raise CellError(describe_deep_nesting()) from None

    # Quick searches show whether the slow checks are needed, which is rare.
    may_be_deep = text.count("[") + text.count("{") > MAX_DEPTH
    may_have_surrogates = "\\ud" in text or "\\uD" in text
    return check_object(value, may_be_deep=may_be_deep, may_have_surrogates=may_have_surrogates)


def check_object(
    value: object, *, may_be_deep: bool = True, may_have_surrogates: bool = True
) -> dict[str, Any]:
    """Check that a value is a valid row, and return it. Raises `CellError` if it isn't.

    The checks for depth and surrogates are slow. Callers who know that a value can't fail can skip them.
    """
    if may_be_deep and _is_deep(value):
        raise CellError(describe_deep_nesting())
    if not isinstance(value, dict):
        raise CellError(f"expected a JSON object, got {_KINDS.get(type(value), 'a number')}")
    if may_have_surrogates:
        _check_surrogates(value)
    return value


def describe_deep_nesting() -> str:
    return f"expected at most {MAX_DEPTH} lists and objects inside each other, got more"


def _check_surrogates(row: dict[str, Any]) -> None:
    """Raise `CellError` if a row contains half of a surrogate pair, which can't be encoded as UTF-8."""
    for column, value in row.items():
        try:
            json.dumps([column, value], ensure_ascii=False).encode()
        except UnicodeEncodeError:
            problem = (
                "expected text, got half of a surrogate pair (a \\ud8… without its other half)"
            )
            raise CellError(problem, replace_surrogates(column)) from None


def _is_deep(value: object) -> bool:
    """Whether lists and objects are nested more than `MAX_DEPTH` levels deep."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        containers = [item for item in level if isinstance(item, dict | list)]
        if not containers:
            return False
        level = []
        for container in containers:
            if isinstance(container, dict):
                level.extend(container.values())
            else:
                level.extend(container)
    return True
