"""Shared by reading and writing Parquet: imports pyarrow, and converts cells of its arrays to JSON values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from judgekit.config.files import install_extra
from judgekit.data.cells import CellError
from judgekit.data.values import NoJsonValueError, convert_value
from judgekit.errors import InputError
from judgekit.text import shorten_to_line

if TYPE_CHECKING:
    from types import ModuleType

    import pyarrow as pa


def import_parquet_module(name: str, what: str = "Parquet") -> ModuleType:
    """Import `pyarrow.parquet`. Raises `InputError` if pyarrow isn't installed.

    The message is "NAME: WHAT needs pyarrow", where `name` is a file.
    """
    try:
        from pyarrow import parquet  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        command = install_extra("data")
        raise InputError(f"{name}: {what} needs pyarrow ({error}); run {command}") from None
    return parquet  # type: ignore[no-any-return]  # it has no types


def convert_cells(column: pa.Array) -> list[Any]:
    """Convert an array to the cells of a `DataRow`. Values that can't be converted become a `CellError`."""
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency

    # Python's times have no nanoseconds, so truncate them to microseconds.
    arrow_type = column.type
    if pa.types.is_timestamp(arrow_type) and arrow_type.unit == "ns":
        column = column.cast(pa.timestamp("us", arrow_type.tz), safe=False)
    elif arrow_type == pa.duration("ns"):
        column = column.cast(pa.duration("us"), safe=False)
    elif arrow_type == pa.time64("ns"):
        column = column.cast(pa.time64("us"), safe=False)

    try:
        return [convert_value(cell) for cell in column.to_pylist()]
    except (ValueError, OverflowError, NoJsonValueError):
        # At least one value can't be converted. Convert the cells one by one, so that only this one fails.
        return [_convert_cell(cell) for cell in column]


def _convert_cell(cell: pa.Scalar) -> object:
    """Convert a single cell to a JSON value, or to a `CellError` if that's impossible."""
    try:
        return convert_value(cell.as_py())
    except (ValueError, OverflowError) as error:
        return CellError(
            f"expected a value that Python can hold ({shorten_to_line(str(error), 100)})"
        )
    except NoJsonValueError as error:
        return CellError(shorten_to_line(str(error), 200))
