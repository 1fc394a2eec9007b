"""Rows are read from files of all kinds; unreadable ones are named, and those behind them are read."""

from __future__ import annotations

import io
import os
import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from judgekit.data import sources
from judgekit.data.results import open_results
from judgekit.data.rows import open_rows
from judgekit.data.sources import UnreadableRow
from judgekit.errors import InputError
from judgekit.text import escape_name

if TYPE_CHECKING:
    from pathlib import Path


def read(path: Path, content: bytes) -> list[Any]:
    """Read a file: the columns of each row, or the number, column and problem of a broken one."""
    path.write_bytes(content)
    found = list(open_rows(str(path), io.BytesIO()))
    assert [row.number for row in found if row.number] == [
        *range(1, sum(row.number > 0 for row in found) + 1)
    ]
    return [tuple(row) if isinstance(row, UnreadableRow) else dict(row.columns) for row in found]


def deep(depth: int) -> bytes:
    return b'{"a":' + b"[" * depth + b"]" * depth + b"}"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b'{"a": 1}\n{"b": [null, "\xc3\xa9"]}\n', [{"a": 1}, {"b": [None, "é"]}]),
        (b'{"a": 1}\n{"a": 2}', [{"a": 1}, {"a": 2}]),
        (b'\xef\xbb\xbf{"a": 1}\r\n\r\n{"a": 2}\r\n', [{"a": 1}, {"a": 2}]),
        (
            b'{"a": 123456789012345678901, "b": 1e400}',
            [{"a": 123456789012345678901, "b": float("inf")}],
        ),
        (rb'{"a": "\ud83d\ude00\u0000"}', [{"a": "\U0001f600\0"}]),
        (b'{"a": 1}\n \n[]', [{"a": 1}, (2, "", "expected a JSON object, got a list (line 3)")]),
    ],
)
def test_json_lines(tmp_path: Path, content: bytes, expected: list[Any]) -> None:
    assert read(tmp_path / "rows.jsonl", content) == expected
    assert read(tmp_path / "rows.ndjson", content) == expected


TOO_DEEP = "expected at most 100 lists and objects inside each other, got more"
QUOTES = "expected quotes around whole cells, and doubled inside them"
HALF = "expected text, got half of a surrogate pair (a \\ud8… without its other half)"


@pytest.mark.parametrize(
    ("broken", "column", "problem"),
    [
        (b'{"a": ', "", "expected a JSON object; Expecting value at character 8"),
        (b'{"a": "\0"}', "", "expected a JSON object; Invalid control character at at character 8"),
        (b"[1]", "", "expected a JSON object, got a list"),
        (b'"a"', "", "expected a JSON object, got a text"),
        (b"null", "", "expected a JSON object, got null"),
        (b"true", "", "expected a JSON object, got true or false"),
        (b"1.5", "", "expected a JSON object, got a number"),
        (
            b'{"a": "\xff"}',
            "",
            "expected UTF-8, got the byte 0xff; save the file as UTF-8 (it may be Windows-1252)",
        ),
        (rb'{"a": 1, "b": ["\uD800"]}', "b", HALF),
        (rb'{"a": 1, "\udfff": 1}', "?", HALF),
        (deep(100), "", TOO_DEEP),
        (b"[" * 100_000, "", TOO_DEEP),
        (
            b'{"a": ' + b"1" * 5000 + b"}",
            "",
            "expected a shorter number, got one of thousands of digits",
        ),
    ],
)
def test_a_line_that_is_no_row_of_json(
    tmp_path: Path, broken: bytes, column: str, problem: str
) -> None:
    found = read(tmp_path / "rows.jsonl", broken + b'\n{"a": 1}\n' + deep(99))
    assert found[:2] == [(1, column, problem), {"a": 1}]
    assert isinstance(found[2], dict)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"a,b\n", []),
        (b'a,b\n1,"x, ""y"""\n"",\n', [{"a": "1", "b": 'x, "y"'}, {"a": "", "b": ""}]),
        # Rows without anything are none below the last one, and some between others.
        (b"a,b\n1,2\n,\n,\n", [{"a": "1", "b": "2"}]),
        (b"a,b\n,\n1,2\n,\n", [{"a": "", "b": ""}, {"a": "1", "b": "2"}]),
        (b"\xef\xbb\xbfa,b\r\n1,2\r\n3,4", [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]),
        (b'\n\na\n \n1\n""\n', [{"a": "1"}, {"a": ""}]),
        (b'a,b\n"1\n\n2",3\n\n4,5', [{"a": "1\n\n2", "b": "3"}, {"a": "4", "b": "5"}]),
    ],
)
def test_csv_and_tsv(tmp_path: Path, content: bytes, expected: list[Any]) -> None:
    assert read(tmp_path / "rows.CSV", content) == expected
    tabs = [{name: cell.replace(",", "\t") for name, cell in row.items()} for row in expected]
    assert read(tmp_path / "rows.tsv", content.replace(b",", b"\t")) == tabs


@pytest.mark.parametrize(
    ("broken", "column", "problem"),
    [
        (b"1", "", "expected 2 cells, as many as the header has, got 1"),
        (b"1,2,3", "", "expected 2 cells, as many as the header has, got 3"),
        (b'"1"x,2', "", f"{QUOTES} (',' expected after '\"')"),
        (b'1,"2', "", f"{QUOTES} (',' expected after '\"')"),
        (
            b"1,\xff",
            "b",
            "expected UTF-8, got the byte 0xff; save the file as UTF-8 (it may be Windows-1252)",
        ),
        (b"\0,2", "a", "expected text, got a NUL byte"),
    ],
)
def test_a_row_of_csv_that_cannot_be_read(
    tmp_path: Path, broken: bytes, column: str, problem: str
) -> None:
    found = read(tmp_path / "rows.csv", b'a,b\n"1\n",2\n' + broken + b'\n3,4\n5,"6"\n')
    assert found[1] == (2, column, f"{problem} (line 4)")
    assert [found[0], *found[2:]] == [
        {"a": "1\n", "b": "2"},
        {"a": "3", "b": "4"},
        {"a": "5", "b": "6"},
    ]


def test_an_open_quote_swallows_nothing(tmp_path: Path) -> None:
    found = read(tmp_path / "rows.csv", b'a,b\n1,"2\n3,4\n5,6')
    problem = f"{QUOTES} (unexpected end of data) (line 2)"
    assert found == [(1, "", problem), {"a": "3", "b": "4"}, {"a": "5", "b": "6"}]


@pytest.mark.parametrize(
    ("header", "column", "problem"),
    [
        (b"a,b,a", "a", "expected different names, got this one 2 times; rename one"),
        (b"a,,b", "", "expected a name for each column, got none for column 2; add it"),
        (
            b"a,\xff",
            "",
            "expected UTF-8, got the byte 0xff; save the file as UTF-8 (it may be Windows-1252)",
        ),
        (b"a,\0", "", "expected text, got a NUL byte"),
    ],
)
def test_without_a_header_there_are_no_rows(
    tmp_path: Path, header: bytes, column: str, problem: str
) -> None:
    found = read(tmp_path / "rows.csv", header + b"\n1,2\n")
    assert found == [(0, column, f"{problem} (line 1)")]


def parquet(path: Path, table: dict[str, pa.Array]) -> list[Any]:
    """Write these columns to a Parquet file and read its rows."""
    pq.write_table(pa.table(table), path, row_group_size=3)
    return [
        tuple(row) if isinstance(row, UnreadableRow) else row.columns
        for row in open_rows(str(path), io.BytesIO())
    ]


NOON = datetime(2026, 11, 22, 12, 0, 0, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "cell", "plain"),
    [
        (pa.string(), "é", "é"),
        (pa.dictionary(pa.int8(), pa.string()), "a", "a"),
        (pa.uint64(), 2**64 - 1, 2**64 - 1),
        (pa.float32(), 0.5, 0.5),
        (pa.bool_(), True, True),
        (pa.null(), None, None),
        (pa.list_(pa.struct([("role", pa.string())])), [{"role": "user"}], [{"role": "user"}]),
        (pa.map_(pa.string(), pa.int8()), [("a", 1)], [["a", 1]]),
        (pa.timestamp("us", "UTC"), NOON, "2026-11-22T12:00:00.000005+00:00"),
        (pa.timestamp("ns"), 1_000_000_001, "1970-01-01T00:00:01"),
        (pa.date32(), NOON.date(), "2026-11-22"),
        (pa.time64("ns"), 1_000_000_001, "00:00:01"),
        (pa.duration("ns"), 1_500_000_001, 1.5),
        (pa.decimal128(5, 2), Decimal("1.10"), "1.10"),
        (pa.binary(), "é".encode(), "é"),
        (pa.binary(), b"\xff\x00", "/wA="),
    ],
)
def test_a_cell_of_parquet(tmp_path: Path, kind: pa.DataType, cell: object, plain: object) -> None:
    found = parquet(tmp_path / "rows.parquet", {"a": pa.array([cell, None] * 99, kind)})
    assert found == [{"a": plain}, {"a": None}] * 99


def test_a_cell_that_python_cannot_hold(tmp_path: Path) -> None:
    column = pa.array([0, 2**62, 1], pa.timestamp("us"))
    first, wrong, last = parquet(tmp_path / "rows.parquet", {"a": pa.array([1, 2, 3]), "b": column})
    assert wrong == (2, "b", "expected a value that Python can hold (date value out of range)")
    assert (first["a"], last["a"]) == (1, 3)


def test_parquet_with_a_name_twice(tmp_path: Path) -> None:
    table = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(table, tmp_path / "rows.parquet")
    (found,) = open_rows(str(tmp_path / "rows.parquet"), io.BytesIO())
    assert found == UnreadableRow(
        0, "a", "expected different names, got this one 2 times; rename one"
    )


def test_standard_input_is_read_once() -> None:
    rows = open_rows("-", io.BytesIO(b'{"a": 1}\n[]\n'))
    assert (rows.name, rows.can_reread) == ("standard input", False)
    assert [row.number for row in rows] == [1, 2]
    assert list(rows) == []


def test_a_file_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a\n1\n")
    rows = open_rows(str(tmp_path / "rows.csv"), io.BytesIO())
    assert rows.can_reread
    assert list(rows) == list(rows) == [(1, {"a": "1"})]


ENDINGS = f"{', '.join(sources.ENDINGS)}, a folder, or - for JSON Lines on standard input"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("rows.xml", f"unknown ending of a file of rows; expected {ENDINGS}"),
        ("rows", f"unknown ending of a file of rows; expected {ENDINGS}"),
        ("none.csv", "cannot be read (No such file or directory)"),
        ("none", "cannot be read (No such file or directory)"),
        ("folder.csv", f"no file of rows in it; expected {', '.join(sources.ENDINGS_IN_FOLDERS)}"),
        ("pipe.jsonl", "not a file; pass its rows as JSON Lines on standard input: -"),
        ("a\0.csv", "cannot be read ("),
        ("broken.parquet", "cannot be read (Parquet magic bytes not found"),
    ],
)
def test_a_file_without_rows(tmp_path: Path, name: str, problem: str) -> None:
    (tmp_path / "folder.csv").mkdir()
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "broken.parquet").write_text("{}" * 100)
    for odd in ("rows", "rows.xml"):
        (tmp_path / odd).write_text("{}")
    with pytest.raises(InputError) as caught:
        open_rows(str(tmp_path / name), io.BytesIO())
    assert f"{escape_name(name)}: {problem}" in str(caught.value)


def test_a_file_that_goes_away_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("")
    rows = open_rows(str(path), io.BytesIO())
    path.unlink()
    with pytest.raises(InputError, match="cannot be read"):
        list(rows)


def test_parquet_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.parquet").write_text("")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for act in (
        lambda: open_rows(str(tmp_path / "rows.parquet"), io.BytesIO()),
        lambda: open_results(str(tmp_path / "out.parquet"), print, fresh=False),
    ):
        with pytest.raises(
            InputError, match=r"Parquet needs pyarrow .*run pip install '\.\[data\]'"
        ):
            act()


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv"])
def test_a_row_has_a_largest_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for module in ("json_lines", "delimited"):
        monkeypatch.setattr(f"judgekit.data.sources.{module}.MAX_BYTES", 100)
    long = {"rows.jsonl": b'{"a": "%s"}\n{"a": 1}', "rows.csv": b'a\n"%s"\n1'}[name] % (b"x" * 200)
    wrong, good = read(tmp_path / name, long)
    assert "it has more than 64 MB" in wrong[2]
    assert str(good["a"]) == "1"
