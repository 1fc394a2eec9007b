"""Reads the samples of an inspect-ai log that ends in `.eval`: an archive with a JSON file for each."""

from __future__ import annotations

import os
import struct
import zipfile
from typing import TYPE_CHECKING, BinaryIO

from judgekit.data import presets
from judgekit.data.arrow import import_parquet_module
from judgekit.data.cells import CellError
from judgekit.data.sources import TOO_LONG_MESSAGE, DataRow, json_lines
from judgekit.data.sources.line_reader import build_unreadable_row
from judgekit.errors import InputError
from judgekit.judging.documents import MAX_BYTES
from judgekit.text import escape_name

if TYPE_CHECKING:
    from judgekit.data.sources import Reading, Stream

_SAMPLES_FOLDER = "samples/"
_ZSTANDARD_COMPRESSION = 93  # Python can unpack it from 3.14 on
_HEADER_BYTES = 30  # before the name of each file in an archive
# The lengths of the name and the extra field, at the end of the header.
_NAME_LENGTHS_STRUCT = struct.Struct("<HH")


def check(file: BinaryIO, name: str, reading: Reading) -> None:
    del reading  # logs need no options for reading
    with _open_archive(file, name) as archive:
        _list_samples(archive, name)


def read(file: BinaryIO, name: str, reading: Reading) -> Stream:
    del reading  # logs need no options for reading
    with _open_archive(file, name) as archive:
        for number, entry in enumerate(_list_samples(archive, name), 1):
            try:
                sample = json_lines.read_object(_unpack(archive, entry, file, name))
            except CellError as error:
                # A sample has no line, so give its number for both.
                yield build_unreadable_row(error, number, number)
                continue
            yield DataRow(number, presets.remove_bulk(sample))


def _open_archive(file: BinaryIO, name: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except zipfile.BadZipFile as error:
        raise InputError(f"{escape_name(name)}: no whole log of inspect-ai ({error})") from None


def _list_samples(archive: zipfile.ZipFile, name: str) -> list[zipfile.ZipInfo]:
    """List a log's samples in order of completion. Raises `InputError` if there are none."""
    samples = []
    for entry in archive.infolist():
        if entry.filename.startswith(_SAMPLES_FOLDER) and entry.filename.endswith(".json"):
            samples.append(entry)
    if not samples:
        raise InputError(f"{escape_name(name)}: no samples in it; expected a log of inspect-ai")
    return samples


def _unpack(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, file: BinaryIO, name: str) -> bytes:
    """Unpack a sample. Raises `CellError` if it's damaged or too long.

    Raises `InputError` if unpacking it needs pyarrow, which isn't installed.
    """
    try:
        with archive.open(entry) as unpacked:
            # Read one more byte than allowed, to notice if the sample is too long.
            raw = unpacked.read(MAX_BYTES + 1)
    except NotImplementedError:
        if entry.compress_type != _ZSTANDARD_COMPRESSION:
            raise CellError("expected a sample that Python can unpack") from None
        raw = _unpack_zstandard(entry, file, name)
    except (zipfile.BadZipFile, EOFError, OSError, RuntimeError) as error:
        raise CellError(f"expected a whole sample, got a damaged one ({error})") from None
    if len(raw) > MAX_BYTES:
        raise CellError(f"expected a shorter sample; {TOO_LONG_MESSAGE}")
    return raw


def _unpack_zstandard(entry: zipfile.ZipInfo, file: BinaryIO, name: str) -> bytes:
    """Unpack a file that is compressed with Zstandard, which `zipfile` doesn't support."""
    import_parquet_module(name, "such a log")
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency

    # Skip the local file header, which ends with a name and extra fields of variable length.
    file.seek(entry.header_offset)
    header = file.read(_HEADER_BYTES)
    name_length, extra_length = _NAME_LENGTHS_STRUCT.unpack(header[-_NAME_LENGTHS_STRUCT.size :])
    file.seek(name_length + extra_length, os.SEEK_CUR)
    packed = file.read(entry.compress_size)
    try:
        with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as unpacked:
            raw: bytes = unpacked.read(MAX_BYTES + 1)
    except OSError as error:
        raise CellError(f"expected a whole sample, got a damaged one ({error})") from None
    return raw
