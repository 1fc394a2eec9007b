"""Rows are read from five formats; what cannot be read is named, and the rows behind it are read."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest

from judgekit.data.rows import Unreadable, open_rows

if TYPE_CHECKING:
    from pathlib import Path


def read(path: Path, content: bytes) -> list[Any]:
    """Return what a file gives: the columns of a row, or number, column and problem of one that is broken."""
    path.write_bytes(content)
    found = list(open_rows(str(path), io.BytesIO()))
    assert [row.number for row in found if row.number] == [
        *range(1, sum(row.number > 0 for row in found) + 1)
    ]
    return [tuple(row) if isinstance(row, Unreadable) else dict(row.columns) for row in found]


def deep(depth: int) -> bytes:
    return b'{"a":' + b"[" * depth + b"]" * depth + b"}"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b'{"a": 1}\n{"b": [null, "\xc3\xa9"]}\n', [{"a": 1}, {"b": [None, "é"]}]),
        (b'{"a": 1}\n{"a": 2}', [{"a": 1}, {"a": 2}]),
        (b'\xef\xbb\xbf{"a": 1}\r\n\r\n{"a": 2}\r\n', [{"a": 1}, {"a": 2}]),
        (b'{"a": 123456789012345678901, "b": 1e400}', [{"a": 123456789012345678901, "b": float("inf")}]),
        (rb'{"a": "\ud83d\ude00\u0000"}', [{"a": "\U0001f600\0"}]),
        (b'{"a": 1}\n \n[]', [{"a": 1}, (2, "", "expected a JSON object, got a list (line 3)")]),
    ],
)
def test_json_lines(tmp_path: Path, content: bytes, expected: list[Any]) -> None:
    assert read(tmp_path / "rows.jsonl", content) == expected
    assert read(tmp_path / "rows.ndjson", content) == expected


TOO_DEEP = "expected at most 100 lists and objects inside each other, got more"
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
        (b'{"a": "\xff"}', "", "expected UTF-8, got the byte 0xff"),
        (rb'{"a": 1, "b": ["\uD800"]}', "b", HALF),
        (rb'{"a": 1, "\udfff": 1}', "?", HALF),
        (deep(100), "", TOO_DEEP),
        (b"[" * 100_000, "", TOO_DEEP),
        (b'{"a": ' + b"1" * 5000 + b"}", "", "expected a shorter number, got one of thousands of digits"),
    ],
)
def test_a_line_that_is_no_row_of_json(tmp_path: Path, broken: bytes, column: str, problem: str) -> None:
    found = read(tmp_path / "rows.jsonl", broken + b'\n{"a": 1}\n' + deep(99))
    assert found[:2] == [(1, column, problem), {"a": 1}]
    assert isinstance(found[2], dict)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"a,b\n", []),
        (b'a,b\n1,"x, ""y"""\n,\n', [{"a": "1", "b": 'x, "y"'}, {"a": "", "b": ""}]),
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
        (
            b'"1"x,2',
            "",
            "expected quotes around whole cells, and doubled inside them (',' expected after '\"')",
        ),
        (
            b'1,"2',
            "",
            "expected quotes around whole cells, and doubled inside them (',' expected after '\"')",
        ),
        (b"1,\xe9", "b", "expected UTF-8, got the byte 0xe9"),
        (b"\0,2", "a", "expected text, got a NUL byte"),
    ],
)
def test_a_row_of_csv_that_cannot_be_read(tmp_path: Path, broken: bytes, column: str, problem: str) -> None:
    found = read(tmp_path / "rows.csv", b'a,b\n"1\n",2\n' + broken + b'\n3,4\n5,"6"\n')
    assert found[1] == (2, column, f"{problem} (line 4)")
    assert [found[0], *found[2:]] == [{"a": "1\n", "b": "2"}, {"a": "3", "b": "4"}, {"a": "5", "b": "6"}]


def test_an_open_quote_swallows_nothing(tmp_path: Path) -> None:
    found = read(tmp_path / "rows.csv", b'a,b\n1,"2\n3,4\n5,6')
    problem = "expected quotes around whole cells, and doubled inside them (unexpected end of data) (line 2)"
    assert found == [(1, "", problem), {"a": "3", "b": "4"}, {"a": "5", "b": "6"}]


@pytest.mark.parametrize(
    ("header", "column", "problem"),
    [
        (b"a,b,a", "a", "expected different names, got this one 2 times; rename one"),
        (b",b", "", "expected a name for each column, got none for column 1; add it"),
        (b"a,\xff", "", "expected UTF-8, got the byte 0xff"),
        (b"a,\0", "", "expected text, got a NUL byte"),
    ],
)
def test_without_a_header_there_are_no_rows(tmp_path: Path, header: bytes, column: str, problem: str) -> None:
    found = read(tmp_path / "rows.csv", header + b"\n1,2\n")
    assert found == [(0, column, f"{problem} (line 1)")]
