"""Recognises a file of rows by its first bytes: its encoding, its line ends, and its delimiter."""

from __future__ import annotations

import codecs
import csv
import io
from typing import TYPE_CHECKING, NamedTuple

from judgekit.errors import InputError

if TYPE_CHECKING:
    from typing import BinaryIO

_HEAD_SIZE = 65_536  # bytes that are examined
# The Windows-1252 characters that occur in people's texts; a damaged byte is as likely to be any other.
_LIKELY_SIGNS = frozenset(
    "\u00e0\u00e1\u00e2\u00e3\u00e4\u00e5\u00e6\u00e7\u00e8\u00e9\u00ea\u00eb\u00ec\u00ed\u00ee\u00ef\u00f1\u00f2\u00f3"
    "\u00f4\u00f5\u00f6\u00f8\u00f9\u00fa\u00fb\u00fc\u00df\u00c0\u00c1\u00c4\u00c5\u00c7\u00c9\u00d1\u00d6\u00d8\u00dc"
    "\u0153\u0161\u017e\u2018\u2019\u201c\u201d\u2013\u2014\u2026\u20ac\u00a3\u00b0\u00a7\u00a0\u00ab\u00bb\u00bf\u00a1\u2022"
)
_MIN_ZEROS = 0.7  # the least fraction of zeros among every second or fourth byte
_BEGINNINGS = (
    (
        b"PK\x03\x04",
        "this is a workbook or an archive (ZIP); let its name end in .xlsx, or export its rows as CSV",
    ),
    (b"\xd0\xcf\x11\xe0", "this is an old workbook of Excel; export its rows as CSV in UTF-8"),
    (b"\x1f\x8b", "this is compressed twice (gzip); unpack it"),
    (b"PAR1", "this is Parquet; let its name end in .parquet"),
)
_BYTE_ORDER_MARKS = (  # UTF-32 first, because one of its marks begins with that of UTF-16
    (b"\xff\xfe\0\0", "UTF-32", "utf-32"),
    (b"\0\0\xfe\xff", "UTF-32", "utf-32"),
    (b"\xff\xfe", "UTF-16", "utf-16"),
    (b"\xfe\xff", "UTF-16", "utf-16"),
)
_DELIMITERS = {
    ",": "commas",
    ";": "semicolons",
    "\t": "tabs",
    "|": "vertical bars",
    "^": "carets",
    "~": "tildes",
    "\x01": "U+0001",
    "\x1f": "U+001F",
}


def describe_delimiter(delimiter: str) -> str:
    """Name a delimiter in words, such as `semicolons`."""
    return _DELIMITERS.get(delimiter, repr(delimiter))


def peek_head(file: BinaryIO) -> bytes:
    """Return a file's next bytes without changing its position. Returns b"" if that's impossible."""
    if hasattr(file, "peek"):
        head: bytes = file.peek(_HEAD_SIZE)  # can return more or fewer bytes
        return head[:_HEAD_SIZE]
    if not file.seekable():  # reading would consume these bytes
        return b""
    start = file.tell()
    head = file.read(_HEAD_SIZE)
    file.seek(start)
    return head


class TextKind(NamedTuple):
    """A text's encoding, Python's codec for it, and its kind of line ends."""

    encoding: str = "UTF-8"
    codec: str = "utf-8"
    has_bare_returns: bool = False
    """Whether its lines end in CR alone, as on old Macs."""

    @property
    def is_plain(self) -> bool:
        return self == TextKind()

    def __str__(self) -> str:
        return f"{self.encoding}, lines that end in CR" if self.has_bare_returns else self.encoding


def recognise_text(head: bytes, codec: str | None = None) -> TextKind:
    """Recognise a text's encoding and line ends by its first bytes. If given, `codec` is the encoding."""
    if codec is None:
        encoding, codec = _recognise_encoding(head)
    else:
        codec = codecs.lookup(codec).name  # its usual spelling: "utf-8" for "UTF8"
        encoding = "UTF-8" if codec == "utf-8" else codec
    # In some encodings, a line end isn't a single byte, so look for it in UTF-8.
    has_bare_returns = _has_bare_returns(_convert_to_utf_8(head, codec))
    return TextKind(encoding, codec, has_bare_returns=has_bare_returns)


def _convert_to_utf_8(head: bytes, codec: str) -> bytes:
    """Convert a text's first bytes to UTF-8. Bytes that aren't valid are dropped."""
    if codec.startswith("utf-8"):
        return head
    text = head.decode(codec, "ignore")  # the last character can be cut
    return text.encode()


def refuse_others(head: bytes, name: str) -> None:
    """Raise `InputError` if this is a known kind of binary file, saying which and what to do about it."""
    for beginning, problem in _BEGINNINGS:
        if head.startswith(beginning):
            raise InputError(f"{name}: {problem}")


def _recognise_encoding(head: bytes) -> tuple[str, str]:
    """Recognise a text's encoding by its first bytes. Returns its name and Python's codec."""
    for mark, encoding, codec in _BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return encoding, codec

    wide_encoding = _recognise_by_zeros(head)
    if wide_encoding is not None:
        return wide_encoding
    if _is_windows_1252(head):
        return "Windows-1252", "cp1252"
    return "UTF-8", "utf-8"


def _recognise_by_zeros(head: bytes) -> tuple[str, str] | None:
    """Recognise UTF-16 and UTF-32 by their zero bytes. Returns None for other encodings.

    All bytes of a Latin letter are zero, except the first or last one.
    """
    # For each position in a group of four bytes: is it mostly zero?
    is_zero = [_measure_zeros(head[offset::4]) > _MIN_ZEROS for offset in range(4)]
    if is_zero == [True, True, True, False]:  # "A" is 00 00 00 41
        return "UTF-32", "utf-32-be"
    if is_zero == [False, True, True, True]:  # "A" is 41 00 00 00
        return "UTF-32", "utf-32-le"
    if is_zero[0] and is_zero[2]:  # "AB" is 00 41 00 42
        return "UTF-16", "utf-16-be"
    if is_zero[1] and is_zero[3]:  # "AB" is 41 00 42 00
        return "UTF-16", "utf-16-le"
    return None


def _measure_zeros(some_bytes: bytes) -> float:
    """Compute the fraction of bytes that are zero; 0 if there are no bytes."""
    if not some_bytes:
        return 0.0
    return some_bytes.count(0) / len(some_bytes)


def _is_windows_1252(head: bytes) -> bool:
    """Whether text is probably Windows-1252 rather than damaged UTF-8."""
    if head.isascii() or _resembles_utf_8(head):
        return False
    try:
        text = head.decode("cp1252")
    except UnicodeDecodeError:
        return False
    # Damaged bytes would give unlikely characters as often as likely ones.
    non_ascii = [char for char in text if not char.isascii()]
    likely = [char for char in non_ascii if char in _LIKELY_SIGNS]
    return len(likely) > len(non_ascii) / 2


def _resembles_utf_8(head: bytes) -> bool:
    """Whether text is UTF-8, even if some of its bytes are damaged."""
    # The head can end in the middle of a character, so decode it incrementally.
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    non_ascii = {char for char in decoder.decode(head) if not char.isascii()}
    replacement = "\ufffd"  # for invalid bytes
    byte_order_mark = "\ufeff"
    is_intact = replacement not in non_ascii
    # Bytes in another encoding hardly ever make a valid character beyond ASCII.
    letters = non_ascii.difference([replacement, byte_order_mark])
    return is_intact or bool(letters)


def _has_bare_returns(head: bytes) -> bool:
    """Whether lines end with a bare CR, as on old Macs."""
    if b"\n" in head or b"\r" not in head:
        return False
    # There must be text on both sides of a CR, because the head can also end between CR and LF.
    nonblank_lines = [line for line in head.split(b"\r") if line.strip()]
    return len(nonblank_lines) > 1


def describe_invalid_byte(byte: int) -> str:
    """Describe the problem with a byte that isn't UTF-8."""
    return f"expected UTF-8, got the byte 0x{byte:02x}; save the file as UTF-8 (it may be Windows-1252)"


def find_delimiter(head: bytes, usual: str, name: str) -> str:
    """Find the delimiter in a file's header: the `usual` one, or another if only that separates cells.

    Raises `InputError` if multiple other delimiters separate cells.
    """
    header = _read_header(head)
    if not header or _count_cells(header, usual) > 1:
        return usual

    candidates = []
    for delimiter in _DELIMITERS:
        if delimiter != usual and _count_cells(header, delimiter) > 1:
            candidates.append(delimiter)
    if not candidates:  # there's a single column
        return usual
    if len(candidates) > 1:
        candidate_names = " and ".join(_DELIMITERS[delimiter] for delimiter in candidates)
        raise InputError(
            f"{name}: the header: expected {_DELIMITERS[usual]} between cells, got {candidate_names}; "
            "name it with --delimiter"
        )
    return candidates[0]


def _read_header(head: bytes) -> str:
    """Return a text's first line, without byte order mark and line end."""
    raw_header, _, _ = head.removeprefix(codecs.BOM_UTF8).partition(b"\n")
    return raw_header.decode("utf-8", "replace").strip("\r")


def _count_cells(line: str, delimiter: str) -> int:
    """Count the cells in a line. A malformed line counts as a single cell."""
    if delimiter not in line:
        return 1
    reader = csv.reader(io.StringIO(line), delimiter=delimiter)
    try:
        cells = next(reader, [])
    except csv.Error:
        return 1
    return len(cells)
