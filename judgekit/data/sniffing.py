"""What a file of rows is by its first bytes: its encoding, its line ends, what stands between its cells."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from judgekit.errors import InputError

if TYPE_CHECKING:
    from typing import BinaryIO

_HEAD = 65_536  # bytes that are looked at
_BEGINNINGS = (
    (b"\xff\xfe\0\0", "this is UTF-32; save it as UTF-8"),
    (b"\0\0\xfe\xff", "this is UTF-32; save it as UTF-8"),
    (b"\xff\xfe", "this is UTF-16; save it as UTF-8"),
    (b"\xfe\xff", "this is UTF-16; save it as UTF-8"),
    (b"PK\x03\x04", "this is a workbook or an archive (ZIP); export its rows as CSV in UTF-8"),
    (b"\xd0\xcf\x11\xe0", "this is an old workbook of Excel; export its rows as CSV in UTF-8"),
    (b"\x1f\x8b", "this is compressed (gzip); unpack it"),
    (b"PAR1", "this is Parquet; let its name end in .parquet"),
)
_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}


def head_of(file: BinaryIO) -> bytes:
    """Return the first bytes of a file, which are read again afterwards."""
    if hasattr(file, "peek"):
        head: bytes = file.peek(_HEAD)
        return head[:_HEAD]
    if not file.seekable():
        return b""
    start = file.tell()
    head = file.read(_HEAD)
    file.seek(start)
    return head


def refuse_others(head: bytes, name: str) -> None:
    """Raise `InputError` for what is no text in UTF-8 with lines: its text says what it is and what to do."""
    for beginning, problem in _BEGINNINGS:
        if head.startswith(beginning):
            raise InputError(f"{name}: {problem}")
    encoding = _wide_encoding(head)
    if encoding:
        raise InputError(f"{name}: this is {encoding}; save it as UTF-8")
    if _has_bare_returns(head):
        raise InputError(
            f"{name}: its lines end in CR alone; save it with the line end LF or CR LF"
        )


def _wide_encoding(head: bytes) -> str | None:
    """Return the encoding of a text whose characters have two or four bytes each, without a mark."""
    size = len(head)
    zeros = []
    for place in range(4):
        zeros.append(head[place::4].count(0) * 4 / size if size else 0.0)
    most = 0.7
    if sum(share > most for share in zeros) == 3:  # noqa: PLR2004 - of four bytes
        return "UTF-32"
    even = min(zeros[0], zeros[2])
    odd = min(zeros[1], zeros[3])
    return "UTF-16" if max(even, odd) > most else None


def _has_bare_returns(head: bytes) -> bool:
    """Whether lines end as on old Macs: more than one line, and no LF among them."""
    if b"\n" in head or b"\r" not in head:
        return False
    lines = [line for line in head.split(b"\r") if line.strip()]
    return len(lines) > 1


def no_utf_8(byte: int) -> str:
    """Return what was expected in place of a byte that is no UTF-8."""
    return f"expected UTF-8, got the byte 0x{byte:02x}; save the file as UTF-8 (it may be Windows-1252)"


def delimiter_of(head: bytes, usual: str, name: str) -> str:
    """Return what stands between the cells of a header: what is usual, or the only other that does.

    Raises `InputError` where several others may.
    """
    first = (
        head.removeprefix(b"\xef\xbb\xbf")
        .partition(b"\n")[0]
        .decode("utf-8", "replace")
        .strip("\r")
    )
    if not first or _cells(first, usual) > 1:
        return usual
    others = []
    for other in _DELIMITERS:
        if other != usual and _cells(first, other) > 1:
            others.append(other)
    if len(others) > 1:
        got = " and ".join(_DELIMITERS[other] for other in others)
        raise InputError(
            f"{name}: the header: expected {_DELIMITERS[usual]} between cells, got {got}"
        )
    return others[0] if others else usual


def _cells(line: str, delimiter: str) -> int:
    if delimiter not in line:
        return 1
    try:
        return len(next(csv.reader(io.StringIO(line), delimiter=delimiter), []))
    except csv.Error:
        return 1
