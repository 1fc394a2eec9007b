"""The common parts of the stores' readers: the entry they return, and the safe way to open a file.

A kind of store is a module, listed in `SOURCE_BY_KIND` of scan.py. It has `NAME`, also the name of its
profile's file; `ENDINGS` of its files; `IN_ROOT` and `BELOW`, whether these are entries in the root or in
folders; `DEEP`, whether every folder is searched, or only those that records of a kind have;
`LINKED_FOLDERS`, whether these may be links; `LISTS`, names of files whose entry depends on the other files;
`is_store`, whether a folder is such a store; `read_listing`, the contents of the store's own list of its
entries; and `read`.
"""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import BinaryIO


REPLACED = "\ufffd"  # replaces bytes that aren't a character
_MAX_CHARACTER_BYTES = 4  # bytes, in UTF-8
_FIRST_CONTINUATION_BYTE = 0x80  # UTF-8 bytes from here to below 0xC0 don't start a character
_FIRST_MULTIBYTE_START = 0xC0  # UTF-8 bytes from here on start a multi-byte character
_MAX_UNIT_BYTES = 4  # bytes
_BYTE_ORDER_MARK = "\ufeff"  # of the order of bytes
_ENCODING_BY_MARK = {
    b"\xff\xfe\0\0": "utf-32-le",
    b"\0\0\xfe\xff": "utf-32-be",
    b"\xff\xfe": "utf-16-le",
    b"\xfe\xff": "utf-16-be",
}
_HEAD_BYTES = 4_000  # bytes that are enough to detect an encoding
# Line breaks are counted in files up to this size. That takes hundredths of a second.
_MAX_COUNTED_BYTES = 10_000_000
_PIECE_BYTES = 1_000_000  # bytes
_NAMES_OF_NO_SUBJECT = frozenset(("index", "readme", "description", "overview", "_index"))
_MAX_NAME_CHARS = 1_000  # characters
_MIN_UTF_16_ZERO_SHARE = 0.4  # of characters below U+0100, at least
# A file with more undecodable characters than both limits isn't in an encoding we read.
_MAX_REPLACED = 4
_MAX_REPLACED_SHARE = 0.2


class Unreadable(Exception):  # noqa: N818 - a state of the file, which its reader decides about
    """A file without text to search; the message briefly says why."""


class Entry:
    """One thing to find. Its title and tags are cut to a maximum length."""

    __slots__ = (
        "aliases",
        "body",
        "category",
        "end_chars",
        "id",
        "lines_above",
        "lines_left_out",
        "name_words",
        "note",
        "problem",
        "status",
        "tags",
        "title",
        "updated",
    )

    def __init__(
        self,
        id: str,  # noqa: A002 - the published name of the attribute
        title: str,
        category: str,
        *,
        tags: Iterable[str] = (),
        body: str = "",
        updated: float = 0.0,
        problem: str | None = None,
    ) -> None:
        self.id = id
        self.category = category
        self.body = body
        self.title = title[:1_000]
        self.tags = tuple(tag[:100] for tag in tags)[:100]
        self.updated = updated  # in seconds since the epoch; 0 if unknown
        # Why the file couldn't be read, or None. An unreadable entry may be retired.
        self.problem = problem
        self.aliases: list[str] = []  # alternative titles to find it by
        self.status = ""  # why it's no longer in force, or ""
        self.note: str | None = None  # about any part of a readable file that isn't searched
        # The number of lines above the body in its file; below 0 if the body begins with text from elsewhere.
        # None if the body's lines aren't the file's.
        self.lines_above: int | None = None
        # Of a long file, the body is only the beginning and the end.
        self.end_chars = 0  # the length of the end, or 0
        self.lines_left_out: int | None = None  # between the two; None if unknown
        self.name_words: list[str] = []  # the words of the file's name, unless the title has them


class Listed:
    """The contents of a store's own list: folders with entries beside the usual ones, and its problems."""

    __slots__ = ("folders", "problems")

    def __init__(self) -> None:
        self.folders: set[str] = set()
        self.problems: list[str] = []


def read_time(value: object) -> float:
    """Parse an ISO 8601 time into seconds since the epoch. Returns 0 for anything else.

    A time without a zone is in UTC.
    """
    if not isinstance(value, str):
        return 0.0
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return 0.0
    if not moment.tzinfo:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp()


def resolve_inside(root: str, relative: str) -> str | None:
    """Return the real path of a file in `root`, which must be a real path; None if it leads outside."""
    real_path = os.path.realpath(os.path.join(root, relative))
    root_prefix = root.rstrip(os.sep) + os.sep
    return real_path if real_path.startswith(root_prefix) else None


class FileText:
    """The text of a file, and a note on any part that isn't searched.

    If its middle is left out, the last `end_chars` characters are the file's end, and `lines_left_out` lines
    are missing before them; None if they weren't counted.
    """

    __slots__ = ("end_chars", "lines_left_out", "note", "text")

    def __init__(
        self,
        text: str,
        note: str | None,
        end_chars: int = 0,
        lines_left_out: int | None = None,
    ) -> None:
        self.text = text
        self.note = note  # what the user should know, e.g. that the file is damaged
        # Of a long file, only the beginning and the end are read.
        self.end_chars = end_chars  # the length of the end, or 0
        self.lines_left_out = lines_left_out  # between the two; None if unknown


def read_text(root: str, relative: str, limit: int) -> FileText:
    """Read a file's text. Raises `Unreadable` for a file that's binary or can't be read.

    If a file is longer than `limit` bytes, only its beginning and its end are read. People append to logs, so
    the newest entry, usually the most important, is at the end.
    """
    raw, is_longer = read_bytes(root, relative, limit)
    if is_longer:
        return _read_both_ends(root, relative, raw, limit)
    text, note = decode_file(raw, whole=True)
    return FileText(text, note)


def _read_both_ends(root: str, relative: str, raw: bytes, limit: int) -> FileText:
    """Join the beginning of a long file, taken from `raw`, and its end, which gets a quarter of `limit`."""
    end_bytes = limit // 4
    beginning, _ = decode_file(raw[: limit - end_bytes], whole=False)
    end_raw, size, line_breaks_above = _read_end(root, relative, end_bytes)
    encoding = _detect_encoding(raw) or "utf-8"
    decoded_end = end_raw.decode(encoding, "replace").replace("\0", "")
    ending = _drop_cut_line(decoded_end)

    # The line numbers in the ending are corrected by this. Only in UTF-8 is each such byte a line break.
    lines_left_out = None
    if line_breaks_above is not None and encoding == "utf-8":
        is_line_dropped = len(ending) < len(decoded_end)
        lines_above_ending = line_breaks_above + (1 if is_line_dropped else 0)
        lines_left_out = lines_above_ending - _count_lines_above_ending(beginning)

    note = f"only {limit:,} of its {size:,} bytes are searched, at its beginning and its end"
    return FileText(
        f"{beginning}\n{ending}",
        f"{note}; split it to search all",
        end_chars=len(ending),
        lines_left_out=lines_left_out,
    )


def _count_lines_above_ending(beginning: str) -> int:
    """Count the lines above the ending in the joined text, which has a line break between the two."""
    return beginning.count("\n") + 1


def _drop_cut_line(ending: str) -> str:
    """Drop the first line of a file's end, which is probably cut, unless it's the only line."""
    _, _, whole_lines = ending.partition("\n")
    return whole_lines or ending


def _read_end(root: str, relative: str, limit: int) -> tuple[bytes, int, int | None]:
    """Read about the last `limit` bytes of a file.

    Also returns the file's size and the number of line breaks above these bytes. In very large files, line
    breaks aren't counted, and their number is None. Raises `Unreadable` if the file can't be read.
    """
    try:
        with open(_resolve_path(root, relative), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = max(size - limit, 0)
            start -= start % _MAX_UNIT_BYTES  # don't start within a UTF-16 or UTF-32 character
            line_breaks = None
            if start <= _MAX_COUNTED_BYTES:
                file.seek(0)
                line_breaks = _count_line_breaks(file, start)

            file.seek(start)
            return file.read(limit + _MAX_UNIT_BYTES), size, line_breaks
    except OSError as error:
        raise Unreadable(f"cannot be read ({error.strerror})") from None


def _count_line_breaks(file: BinaryIO, size: int) -> int:
    """Count the line breaks in a file's next `size` bytes, in small pieces to save memory."""
    count = 0
    bytes_left = size
    while bytes_left > 0:
        piece = file.read(min(bytes_left, _PIECE_BYTES))
        if not piece:  # the file became shorter
            break
        count += piece.count(b"\n")
        bytes_left -= len(piece)
    return count


def read_bytes(root: str, relative: str, limit: int) -> tuple[bytes, bool]:
    """Return the first `limit` bytes of a file, and whether the file is longer.

    Raises `Unreadable` for a file that's missing or outside `root`, and for a folder, a pipe or a device.
    """
    path = _resolve_path(root, relative)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Unreadable("not a regular file")
        with open(path, "rb") as file:
            raw = file.read(limit + 1)
    except OSError as error:
        raise Unreadable(f"cannot be read ({error.strerror})") from None
    return raw[:limit], len(raw) > limit


def _resolve_path(root: str, relative: str) -> str:
    """Return the real path of a file in a store. Raises `Unreadable` if it's outside `root`."""
    path = resolve_inside(root, relative)
    if path is None:
        raise Unreadable("outside its store")
    return path


def decode_file(raw: bytes, *, whole: bool) -> tuple[str, str | None]:
    """Decode bytes. Also returns a note if some places couldn't be decoded, else None.

    Unless `raw` is the `whole` file, an incomplete character at its end is no error. Raises `Unreadable` for
    binary data.
    """
    encoding = _detect_encoding(raw)
    if encoding is None:
        raise Unreadable("a binary file")

    try:
        return raw.decode(encoding).removeprefix(_BYTE_ORDER_MARK), None
    except UnicodeDecodeError:
        pass  # it's decoded again below, with replacements

    text, count = _decode_damaged(raw, encoding, whole=whole)
    is_too_damaged = count > _MAX_REPLACED and count > len(text) * _MAX_REPLACED_SHARE
    if is_too_damaged:
        raise Unreadable("neither UTF-8 nor UTF-16")
    if not count:
        return text, None

    places = "1 place" if count == 1 else f"{count:,} places"
    return text, f"not {encoding.upper()} in {places}; the rest is searched"


def _decode_damaged(raw: bytes, encoding: str, *, whole: bool) -> tuple[str, int]:
    """Decode bytes, and count the damaged places, which become replacement characters.

    Unless `raw` is the whole file, its last character may be incomplete. That isn't counted as damage.
    """
    is_utf_8 = encoding == "utf-8"
    if is_utf_8 and not whole:
        raw = _drop_cut_character(raw)
    text = raw.decode(encoding, "replace").removeprefix(_BYTE_ORDER_MARK)
    count = text.count(REPLACED)

    # In UTF-16 and UTF-32, an incomplete last character has become one replacement character.
    may_end_incomplete = not is_utf_8 and not whole
    if may_end_incomplete and text.endswith(REPLACED):
        count -= 1
    return text, count


def decode_leniently(raw: bytes) -> str:
    """Decode UTF-8 or UTF-16, even if the text is cut. Invalid bytes are replaced."""
    encoding = _detect_encoding(raw) or "utf-8"
    return raw.decode(encoding, "replace").removeprefix(_BYTE_ORDER_MARK)


def _detect_encoding(raw: bytes) -> str | None:
    """Detect the encoding of a file from its bytes; None for a binary file."""
    for mark, encoding in _ENCODING_BY_MARK.items():
        if raw.startswith(mark):
            return encoding

    if b"\0" not in raw:
        return "utf-8"
    # A single UTF-16 character is too little to tell.
    is_too_short = len(raw) <= 2  # noqa: PLR2004 - the bytes of one character
    if is_too_short:
        return None

    # In little-endian UTF-16, the upper byte of each character comes second.
    head = raw[:_HEAD_BYTES]
    even_bytes = head[0::2]
    odd_bytes = head[1::2]
    if _is_utf_16(upper_bytes=odd_bytes, lower_bytes=even_bytes):
        return "utf-16-le"
    if _is_utf_16(upper_bytes=even_bytes, lower_bytes=odd_bytes):
        return "utf-16-be"
    return None


def _is_utf_16(*, upper_bytes: bytes, lower_bytes: bytes) -> bool:
    """Whether these halves of the bytes suit UTF-16: most upper bytes are 0, and no lower byte is."""
    is_upper_mostly_zero = upper_bytes.count(0) > len(upper_bytes) * _MIN_UTF_16_ZERO_SHARE
    return is_upper_mostly_zero and 0 not in lower_bytes


def _drop_cut_character(raw: bytes) -> bytes:
    """Drop the last UTF-8 character, which may be incomplete, unless it's ASCII."""
    for count in range(1, min(_MAX_CHARACTER_BYTES, len(raw)) + 1):
        byte = raw[-count]
        begins_character = byte >= _FIRST_MULTIBYTE_START
        is_ascii = byte < _FIRST_CONTINUATION_BYTE
        if begins_character:
            return raw[:-count]
        if is_ascii:  # a complete character, so nothing is cut
            break
    return raw


def split_file_name(relative: str, title: str) -> list[str]:
    """Split a file name into words. Returns an empty list if the title contains all of them.

    For a file named `index` or `readme`, the folder's name is used. Numbers are dropped, because tools number
    copies.
    """
    folder, _, _ = relative.rpartition("/")
    name = get_base_name(relative)
    if name.lower() in _NAMES_OF_NO_SUBJECT and folder:
        _, _, name = folder.rpartition("/")
    title_words = _split_name(title.lower())
    words = [word for word in _split_name(name) if not word.isdigit()]
    for word in words:
        is_in_title = any(title_word.startswith(word.lower()) for title_word in title_words)
        if not is_in_title:
            return words
    return []


def _split_name(name: str) -> list[str]:
    """Split a name into its runs of letters and digits."""
    spaced = [char if char.isalnum() else " " for char in name[:_MAX_NAME_CHARS]]
    return "".join(spaced).split()


def get_base_name(relative: str) -> str:
    """Return a file's name, without its folder and its ending; "" if it has no ending."""
    _, _, name = relative.rpartition("/")
    base_name, _, _ = name.rpartition(".")
    return base_name
