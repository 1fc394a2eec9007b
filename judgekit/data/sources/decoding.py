"""Reads text files of rows as UTF-8 with LF: also if they're packed, or in another encoding."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from typing import TYPE_CHECKING, BinaryIO

from judgekit.data import sniffing
from judgekit.errors import InputError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from judgekit.data.sources import Reading

_CHUNK = 65_536  # bytes
_GZIP_MAGIC = b"\x1f\x8b"


def open_as_utf_8(file: BinaryIO, name: str, reading: Reading) -> BinaryIO:
    """Wrap a text file, so that reading it unpacks it, and converts it to UTF-8 with LF.

    A plain UTF-8 file is returned unchanged. A conversion gets a remark, unless the user named the encoding.
    Reading raises `InputError` if the file is damaged.
    """
    head = sniffing.peek_head(file)
    if head.startswith(_GZIP_MAGIC):
        file = io.BufferedReader(_Unpacked(file, name), _CHUNK)
        head = sniffing.peek_head(file)
    text = sniffing.recognise_text(head, reading.encoding)
    if text.is_plain:
        return file
    if reading.encoding is None:
        reading.remark(f"{name}: read as {text} (--encoding NAME reads it otherwise)")
    return io.BufferedReader(_Recoded(file, name, text), _CHUNK)


class _Unpacked(io.RawIOBase):
    """The content of a file in gzip."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = gzip.GzipFile(fileobj=file, mode="rb")
        self._name = name

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Unpack the next bytes into a buffer, and return their number, which is 0 at the end."""
        view = memoryview(buffer).cast("B")
        try:
            chunk = self._file.read1(len(view))
        except (EOFError, OSError, zlib.error) as error:
            problem = f"damaged or cut off in the middle ({error}); pack or fetch it again"
            raise InputError(f"{self._name}: {problem}") from None
        view[: len(chunk)] = chunk
        return len(chunk)


class _Recoded(io.RawIOBase):
    """The content of a text file, in UTF-8 with LF at the ends of lines."""

    def __init__(self, file: BinaryIO, name: str, text: sniffing.TextKind) -> None:
        self._file = file
        self._name = name
        self._text = text
        decoder = codecs.getincrementaldecoder(text.codec)()
        # Don't translate CR LF, which can be part of a quoted cell.
        self._decoder = io.IncrementalNewlineDecoder(decoder, translate=text.has_bare_returns)
        self._pending = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Write the next UTF-8 bytes into a buffer, and return their number, which is 0 at the end."""
        view = memoryview(buffer).cast("B")
        is_end = False
        while not self._pending and not is_end:
            raw = self._file.read(_CHUNK)
            is_end = not raw
            try:
                self._pending = self._decoder.decode(raw, final=is_end).encode()
            except UnicodeError as error:
                problem = f"expected {self._text.encoding} to its end ({error}); save it as UTF-8"
                raise InputError(f"{self._name}: {problem}") from None

        chunk = self._pending[: len(view)]
        self._pending = self._pending[len(chunk) :]
        view[: len(chunk)] = chunk
        return len(chunk)
