"""Reads rows of a sheet in an Excel workbook, `FILE.xlsx::SHEET`; by default the first visible one."""

from __future__ import annotations

import warnings
import zipfile
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

from judgekit.config.files import install_extra
from judgekit.data.cells import (
    CellError,
    check_names,
    check_text,
    name_index_column,
    strip_blank_end,
)
from judgekit.data.sources import TOO_LONG_MESSAGE, DataRow, split_table
from judgekit.data.sources.line_reader import build_unreadable_row
from judgekit.data.values import NoJsonValueError, convert_value
from judgekit.errors import InputError
from judgekit.judging.documents import MAX_BYTES
from judgekit.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

    from openpyxl import Workbook
    from openpyxl.worksheet._read_only import ReadOnlyWorksheet

    from judgekit.data.sources import Reading, Stream

MAX_UNPACKED_BYTES = 512_000_000  # bytes of all files in a workbook


def check(file: BinaryIO, name: str, reading: Reading) -> None:
    with _explain_errors(name), closing(_open(file, name)) as workbook:
        _choose_sheet(workbook, name, reading)


def read(file: BinaryIO, name: str, reading: Reading) -> Stream:
    with _explain_errors(name), closing(_open(file, name)) as workbook:
        sheet = _choose_sheet(workbook, name, reading)
        yield from _read_rows(sheet)


def _read_rows(sheet: ReadOnlyWorksheet) -> Stream:
    """Yield the rows below the header, which is the first row that isn't blank."""
    lines = enumerate(_read_cells_quietly(sheet), 1)
    header = next((cells for _, cells in lines if not _is_blank(cells)), None)
    if header is None:
        return
    try:
        names = _read_names(header)
    except CellError as error:
        yield build_unreadable_row(error, number=0, line=0)  # 0 stands for the header
        return

    empty_count = 0  # empty rows since the last row with content
    for number, (line_number, cells) in enumerate(lines, 1):
        # Don't yield an empty row until another row follows, because it could be below the table.
        if _is_blank(cells):
            empty_count += 1
            continue
        for empty_number in range(number - empty_count, number):
            yield DataRow(empty_number, dict.fromkeys(names))
        empty_count = 0

        try:
            yield DataRow(number, _make_row(names, cells))
        except CellError as error:
            yield build_unreadable_row(error, number, line_number)


def _is_blank(cells: Sequence[object]) -> bool:
    return not any(map(_is_filled, cells))


def _read_names(header: Sequence[object]) -> list[str]:
    """Return the column names in a header. Raises `CellError` if they're invalid."""
    all_names = list(map(_convert_name, header))
    names = strip_blank_end(all_names, 1)
    return check_names(name_index_column(names))


def _open(file: BinaryIO, name: str) -> Workbook:
    """Open a workbook, with formulas replaced by their last computed values. Raises `InputError`."""
    openpyxl = _import_openpyxl(name)
    with zipfile.ZipFile(file) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    if unpacked > MAX_UNPACKED_BYTES:
        problem = f"it unpacks to more than {MAX_UNPACKED_BYTES // 1_000_000} MB"
        raise InputError(f"{escape_name(name)}: {problem}; export its rows as CSV in UTF-8")
    file.seek(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # openpyxl warns about styles and charts
        return openpyxl.load_workbook(file, read_only=True, data_only=True)


def _import_openpyxl(name: str) -> ModuleType:
    """Import openpyxl. Raises `InputError`, which names the file, if it isn't installed."""
    try:
        import openpyxl  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        command = install_extra("data")
        raise InputError(
            f"{escape_name(name)}: a workbook needs openpyxl ({error}); run {command}"
        ) from None
    return openpyxl  # type: ignore[no-any-return]  # it has no types


@contextmanager
def _explain_errors(name: str) -> Iterator[None]:
    """Convert errors in this block, such as those for a damaged file, to `InputError`."""
    try:
        yield
    except InputError:
        raise
    except zipfile.BadZipFile:
        problem = "no workbook of this kind (it may be an older one, or have a password)"
        raise InputError(
            f"{escape_name(name)}: {problem}; save it as .xlsx, or as CSV in UTF-8"
        ) from None
    except Exception as error:  # noqa: BLE001 - for a damaged file, openpyxl can raise anything
        problem = f"cannot be read as a workbook ({type(error).__name__}: {error})"
        raise InputError(f"{escape_name(name)}: {escape_name(problem)}; save it again") from None


def _choose_sheet(workbook: Workbook, name: str, reading: Reading) -> ReadOnlyWorksheet:
    """Return the sheet named in `FILE::SHEET`. If none is named, return the first visible one.

    In that case, remark on the other sheets, if any. Raises `InputError` if there's no such sheet.
    """
    path, wanted = split_table(name)  # `wanted` is "" if no sheet is named
    sheets = {sheet.title: sheet for sheet in workbook.worksheets}
    if wanted in sheets:
        return sheets[wanted]

    listed = ", ".join(map(escape_name, sheets)) or "none"
    is_missing = wanted != ""
    if is_missing or not sheets:
        problem = f"no sheet {escape_name(wanted)}; it has the sheets {listed}"
        raise InputError(f"{escape_name(path)}: {problem}; name one as FILE::SHEET")

    sheet = _find_first_visible(list(sheets.values()))
    if len(sheets) > 1:
        title = escape_name(sheet.title)
        reading.remark(f"{path}: the sheet {title} is read (FILE::SHEET names another of {listed})")
    return sheet


def _find_first_visible(sheets: Sequence[ReadOnlyWorksheet]) -> ReadOnlyWorksheet:
    """Return the first visible sheet, or the first one if all are hidden."""
    for sheet in sheets:
        if sheet.sheet_state == "visible":
            return sheet
    return sheets[0]


def _read_cells_quietly(sheet: ReadOnlyWorksheet) -> Iterator[Sequence[Any]]:
    """Yield the cells of each row, suppressing openpyxl's warnings."""
    rows = sheet.iter_rows(values_only=True)
    while True:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # openpyxl warns about invalid dates
            cells = next(rows, None)
        if cells is None:
            return
        yield cells


def _is_filled(cell: object) -> bool:
    return cell is not None and cell != ""


def _convert_name(cell: object) -> str:
    return "" if cell is None else str(cell)


def _make_row(names: Sequence[str], cells: Sequence[object]) -> dict[str, Any]:
    """Build a row of JSON values from a row's cells.

    Raises `CellError` for cells outside the table, an invalid cell, or a row that is too long.
    """
    if any(map(_is_filled, cells[len(names) :])):
        raise CellError(f"expected {len(names)} cells, as many as the header has, got more")

    row: dict[str, Any] = dict.fromkeys(names)
    size = 0
    for name, cell in zip(names, cells, strict=False):
        if isinstance(cell, str):
            check_text(cell, name)
            size += len(cell)
        try:
            row[name] = convert_value(cell)
        except NoJsonValueError as error:
            raise CellError(str(error), name) from None

    if size > MAX_BYTES:
        raise CellError(f"expected a shorter row; {TOO_LONG_MESSAGE}")
    return row
