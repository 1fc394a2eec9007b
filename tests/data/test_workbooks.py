"""Rows of Excel's workbooks: the sheet, its cells, and refusals."""

from __future__ import annotations

import io
import sys
import zipfile
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

import openpyxl
import pytest

from judgekit.data.rows import open_rows
from judgekit.data.sources import DataRow, Reading, UnreadableRow, workbook
from judgekit.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

HEADER = ("id", "text")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.xlsx"


def write(path: Path, **sheets: list[tuple[Any, ...]]) -> None:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for cells in rows:
            sheet.append(cells)
    book.save(path)


def read(name: str | Path, told: list[str] | None = None) -> list[Any]:
    reading = Reading(listener=None if told is None else told.append)
    found = []
    for row in open_rows(str(name), io.BytesIO(), reading):
        found.append(dict(row.columns) if isinstance(row, DataRow) else row)
    return found


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("One\nTwo", "One\nTwo"),
        (1, 1),
        (1.5, 1.5),
        (True, True),
        (None, None),
        (datetime(2026, 1, 2, 3, 4, 5), "2026-01-02T03:04:05"),  # noqa: DTZ001 - Excel knows no zones
        (date(2026, 1, 2), "2026-01-02T00:00:00"),
        (time(3, 4), "03:04:00"),
        (timedelta(minutes=1), 60.0),
    ],
)
def test_a_cell_is_what_json_can_say(cell: object, value: object, path: Path) -> None:
    write(path, rows=[HEADER, ("r1", cell), ("r2", "x")])
    assert read(path)[0] == {"id": "r1", "text": value}


def test_a_formula_has_the_value_that_was_last_computed(path: Path) -> None:
    write(path, rows=[HEADER, ("r1", "=1+1")])
    assert read(path) == [{"id": "r1", "text": None}]


def test_cleared_rows_and_columns_beside_the_table_are_none(path: Path) -> None:
    blank = (None, "", None)
    write(path, rows=[blank, (*HEADER, None), ("r1", "a", None), blank, ("r2", "b"), blank, blank])
    assert read(path) == [
        {"id": "r1", "text": "a"},
        {"id": None, "text": None},
        {"id": "r2", "text": "b"},
    ]


def test_the_index_of_pandas_has_its_name(path: Path) -> None:
    write(path, rows=[(None, "text"), (0, "a")])
    assert read(path) == [{"Unnamed: 0": 0, "text": "a"}]


def test_more_cells_than_the_header_has_are_an_unreadable_row(path: Path) -> None:
    write(path, rows=[HEADER, ("r1", "a", "b"), ("r2", "c")])
    first, second = read(path)
    problem = "expected 2 cells, as many as the header has, got more (line 2)"
    assert first == UnreadableRow(1, "", problem)
    assert second == {"id": "r2", "text": "c"}


def test_two_columns_of_one_name_are_an_error(path: Path) -> None:
    write(path, rows=[("text", "text"), ("a", "b")])
    (found,) = read(path)
    assert "expected different names" in found.problem


def test_the_first_sheet_is_read_and_the_others_are_named(path: Path) -> None:
    write(path, answers=[HEADER, ("r1", "a")], notes=[("n",), ("x",)])
    told: list[str] = []
    assert read(path, told) == [{"id": "r1", "text": "a"}]
    said = "the sheet answers is read (FILE::SHEET names another of answers, notes)"
    assert told == [f"{path}: {said}"]


def test_a_sheet_can_be_named(path: Path) -> None:
    write(path, answers=[HEADER, ("r1", "a")], notes=[("n",), ("x",)])
    told: list[str] = []
    assert read(f"{path}::notes", told) == [{"n": "x"}]
    assert told == []


def test_a_hidden_sheet_is_not_the_first(path: Path) -> None:
    write(path, lists=[("n",), ("x",)], answers=[HEADER, ("r1", "a")])
    book = openpyxl.load_workbook(path)
    book["lists"].sheet_state = "hidden"
    book.active = 1
    book.save(path)
    assert read(path) == [{"id": "r1", "text": "a"}]


def test_a_sheet_that_is_not_there_is_named(path: Path) -> None:
    write(path, answers=[HEADER])
    with pytest.raises(InputError, match="no sheet nots; it has the sheets answers; name one as"):
        read(f"{path}::nots")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a,b\n1,2\n", "no workbook of this kind"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600, "it may be an older one, or have"),
    ],
)
def test_what_is_no_workbook_is_refused(content: bytes, problem: str, path: Path) -> None:
    path.write_bytes(content)
    with pytest.raises(InputError, match=problem):
        read(path)


def test_an_archive_that_is_no_workbook_is_refused(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "a")
    with pytest.raises(InputError, match=r"rows\.xlsx: cannot be read as a workbook"):
        read(path)


def test_a_workbook_that_unpacks_to_too_much_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workbook, "MAX_UNPACKED_BYTES", 1_000_000)
    write(path, rows=[HEADER])
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("more.xml", b"\0" * 1_000_000)
    with pytest.raises(InputError, match="it unpacks to more than 1 MB"):
        read(path)


def test_without_openpyxl_the_extra_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, rows=[HEADER, ("r1", "a")])
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(InputError, match=r"a workbook needs openpyxl .*; run .*\[data\]"):
        read(path)


def test_a_workbook_in_a_folder_is_read(path: Path) -> None:
    write(path, rows=[HEADER, ("r1", "a")])
    (path.parent / "more.csv").write_text("id,text\nr2,b\n")
    found = read(path.parent)
    assert [row["id"] for row in found] == ["r2", "r1"]
