"""Reads rows of a table in an SQLite database, `FILE::TABLE`; a database with one table needs no name."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from judgekit.data.cells import CellError, check_names, check_text
from judgekit.data.sources import DataRow, split_table
from judgekit.data.sources.line_reader import build_unreadable_row
from judgekit.data.values import NoJsonValueError, convert_value
from judgekit.errors import InputError
from judgekit.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from judgekit.data.sources import Reading, Stream

_BUSY_SECONDS = 5.0
# No views or virtual tables, because their definitions are code that came with the file.
_SELECT_TABLES_SQL = """
SELECT name FROM sqlite_schema
WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND sql NOT LIKE 'CREATE VIRTUAL %'
ORDER BY name
"""


def check(file: BinaryIO, name: str, reading: Reading) -> None:
    del file, reading  # SQLite opens the file by its name
    try:
        with closing(_connect(name)) as connection:
            _choose_table(connection, name)
    except sqlite3.Error as error:
        raise _build_damage_error(name, error) from None


def read(file: BinaryIO, name: str, reading: Reading) -> Stream:
    """Yield the rows in the table that `name` means. Raises `InputError` if the database is damaged."""
    del file, reading  # SQLite opens the file by its name
    try:
        with closing(_connect(name)) as connection:
            table = _choose_table(connection, name)
            quoted = table.replace('"', '""')
            cursor = connection.execute(f'SELECT * FROM "{quoted}"')  # noqa: S608 - the name of a table
            names = [column_name for column_name, *_ in cursor.description]
            for number, values in enumerate(cursor, 1):
                try:
                    yield DataRow(number, _make_row(names, values))
                except CellError as error:
                    yield build_unreadable_row(error, number, number)
    except sqlite3.Error as error:
        raise _build_damage_error(name, error) from None


def _connect(name: str) -> sqlite3.Connection:
    """Open a local SQLite database read-only. Raises `InputError` for an address such as `s3://…`."""
    path, _ = split_table(name)
    if "://" in path:
        raise InputError(f"{name}: a database is read on this machine; fetch the file")
    file_uri = Path(path).absolute().as_uri()
    connection = sqlite3.connect(f"{file_uri}?mode=ro", uri=True, timeout=_BUSY_SECONDS)
    connection.execute("PRAGMA trusted_schema = OFF")  # don't let the schema run code
    connection.text_factory = _decode
    return connection


def _decode(raw: bytes) -> str:
    """Decode text. Invalid bytes become surrogates, which `check_text` reports later."""
    return raw.decode("utf-8", "surrogateescape")


def _choose_table(connection: sqlite3.Connection, name: str) -> str:
    """Return the table named in `FILE::TABLE`. If none is named, return the only one.

    Raises `InputError` if there's no such table, or more than one.
    """
    path, wanted = split_table(name)
    tables = [str(table) for (table,) in connection.execute(_SELECT_TABLES_SQL)]
    if wanted in tables:
        return wanted
    if not wanted and len(tables) == 1:
        return tables[0]
    listed = ", ".join(map(escape_name, tables)) or "none"
    problem = f"it has the tables {listed}"
    if wanted:
        problem = f"no table {escape_name(wanted)}; {problem}"
    raise InputError(f"{escape_name(path)}: {problem}; name one as FILE::TABLE")


def _make_row(names: Sequence[str], values: Sequence[object]) -> dict[str, Any]:
    """Build a row of JSON values. Raises `CellError` if a value can't be converted."""
    row = {}
    for name, value in zip(check_names(names), values, strict=True):
        if isinstance(value, str):
            check_text(value, name)
        try:
            row[name] = convert_value(value)
        except NoJsonValueError as error:
            raise CellError(str(error), name) from None
    return row


def _build_damage_error(name: str, error: sqlite3.Error) -> InputError:
    return InputError(f"{escape_name(name)}: cannot be read as a database of SQLite ({error})")
