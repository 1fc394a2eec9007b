"""Reads rows from a file, a folder of files, an address, or JSON Lines on standard input.

Rows are read one by one, so a million take no more memory than a thousand. An unreadable row is yielded as an
`UnreadableRow`, and reading goes on with the next one. The rows of a folder are those of its files, in the
order of their paths. The modules of `sources/` read the different kinds of files.
"""

from __future__ import annotations

import codecs
import io
import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self

from judgekit.data.arrow import import_parquet_module
from judgekit.data.sniffing import peek_head
from judgekit.data.sources import (
    ENDINGS,
    ENDINGS_IN_FOLDERS,
    JSON_DOCUMENT,
    JSON_LINES,
    Reading,
    UnreadableRow,
    find_source,
    split_table,
)
from judgekit.data.sources.decoding import open_as_utf_8
from judgekit.errors import InputError
from judgekit.judging.documents import STDIN
from judgekit.judging.named_inputs import refuse_link_out
from judgekit.text import replace_surrogates, shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyarrow.fs import FileSystem

    from judgekit.data.fields import Fields
    from judgekit.data.sources import DataRow, Source, Stream


@dataclass(frozen=True)
class RowFiles:
    """The paths of a dataset's files: on this machine, or in another file `system`."""

    name: str
    paths: Sequence[str]
    system: FileSystem | None = None
    reading: Reading = field(default_factory=Reading)

    @classmethod
    def at(cls, path: str) -> Self:
        """Find a file, or all files in a folder or at an address such as s3://bucket/folder.

        In folders, hidden files and links are ignored. Raises `InputError`.
        """
        with _explain_read_errors(path):
            if "://" in path:
                return cls._at_address(path)
            is_folder = stat.S_ISDIR(Path(get_file_path(path)).stat().st_mode)
            if not is_folder:
                return cls(path, [path])
            names = _choose_names(_list_local_files(path), folder=path)
            return cls(path, [f"{path.rstrip('/')}/{name}" for name in names])

    @classmethod
    def _at_address(cls, address: str) -> Self:
        """Find the file at an address, or all files in the folder there. Raises `InputError`."""
        system, path = open_file_system(address)
        if _is_local(system):
            return replace(cls.at(path), name=address)
        if system.get_file_info(path).is_file:
            return cls(address, [path], system)
        names = _choose_names(_list_remote_files(system, path), folder=address)
        return cls(address, [f"{path.rstrip('/')}/{name}" for name in names], system)

    @property
    def can_split(self) -> bool:
        """Whether its files can be read independently, on several machines."""
        return all(detect_source(path).can_split for path in self.paths)

    def open_file(self, path: str) -> BinaryIO:
        if self.system is None:
            return Path(get_file_path(path)).open("rb")
        return io.BufferedReader(self.system.open_input_file(path))

    def rows(self) -> Stream:
        """Yield the rows of all files, numbered consecutively."""
        rows_before = 0  # the number of rows in earlier files
        for path in self.paths:
            highest_number = 0
            with self.open_file(path) as file:
                for row in read_rows(file, path, self.reading):
                    highest_number = max(highest_number, row.number)
                    yield self.renumber(row, rows_before, path)
            rows_before += highest_number

    def renumber(
        self, row: DataRow | UnreadableRow, before: int, path: str
    ) -> DataRow | UnreadableRow:
        """Renumber a file's row within the dataset. `before` is the number of rows in earlier files."""
        is_header = row.number == 0  # an unreadable header is reported like a row
        number = 0 if is_header else row.number + before
        has_several_files = len(self.paths) > 1
        if has_several_files and isinstance(row, UnreadableRow):
            # The number alone doesn't show which file to look in.
            problem = f"{row.problem} ({replace_surrogates(path)})"
            return row._replace(number=number, problem=problem)
        return row._replace(number=number)


def open_file_system(address: str) -> tuple[FileSystem, str]:
    """Open the file system of a local path, or of an address such as s3://bucket/folder.

    Also returns the path within it. Raises pyarrow's errors.
    """
    import_parquet_module(address, "an address")  # raises an error if pyarrow isn't installed
    from pyarrow.fs import FileSystem, LocalFileSystem  # noqa: PLC0415 - an optional dependency

    is_address = "://" in address
    if not is_address:
        return LocalFileSystem(), os.path.realpath(address)
    system_and_path: tuple[FileSystem, str] = FileSystem.from_uri(address)
    return system_and_path


def _is_local(system: FileSystem) -> bool:
    from pyarrow.fs import LocalFileSystem  # noqa: PLC0415 - an optional dependency

    return isinstance(system, LocalFileSystem)


def _list_remote_files(system: FileSystem, root: str) -> list[str]:
    """List the files below a remote folder, as relative paths."""
    from pyarrow.fs import FileSelector  # noqa: PLC0415 - an optional dependency

    names = []
    for entry in system.get_file_info(FileSelector(root, recursive=True)):
        if entry.is_file:
            names.append(entry.path.removeprefix(root).lstrip("/"))
    return names


def _list_local_files(folder: str) -> list[str]:
    """List the files below a folder, as relative paths. Links are omitted, and not followed."""
    names = []
    for base, _, files in os.walk(folder, onerror=_raise):
        for name in files:
            file = Path(base, name)
            if stat.S_ISREG(file.lstat().st_mode):
                names.append(file.relative_to(folder).as_posix())
    return names


def _raise(error: OSError) -> None:
    raise error


def _choose_names(names: Iterable[str], folder: str) -> list[str]:
    """Choose the files that contain rows, sorted. Raises `InputError` if there are none."""
    chosen = sorted(name for name in names if _is_rows_file(name))
    if not chosen:
        endings = ", ".join(ENDINGS_IN_FOLDERS)
        raise InputError(
            f"{folder}: no file of rows in it; expected {endings} (links are left out)"
        )
    return chosen


def _is_rows_file(name: str) -> bool:
    """Whether a relative path isn't hidden, and has an extension for rows in folders."""
    is_hidden = any(part.startswith((".", "_")) for part in name.split("/"))
    source = find_source(name)
    return source is not None and source.is_of_folders and not is_hidden


class Rows:
    """The rows of one input. Each iteration reads it from the start; standard input can be read once.

    `name` is used in messages, and may be changed; `read_from` is the input itself. `paths` are the files or
    folders read on this machine; `schema` is that of the first file whose columns have types, else None;
    `can_split` as in `RowFiles`. Iterating raises `InputError` if the file itself can't be read any further.
    """

    def __init__(
        self,
        path: str,
        read: Callable[[], Stream],
        schema: pa.Schema | None = None,
        *,
        can_split: bool = False,
    ) -> None:
        is_stdin = path == STDIN
        is_address = "://" in path
        is_on_this_machine = not is_stdin and not is_address
        self.paths: tuple[str, ...] = (get_file_path(path),) if is_on_this_machine else ()
        self.name = "standard input" if is_stdin else replace_surrogates(path)
        self.read_from = self.name  # stays the same even if the name is changed
        self.can_reread = not is_stdin
        self.schema = schema
        self.can_split = can_split
        self._read = read

    def __iter__(self) -> Stream:
        with _explain_read_errors(self.name):
            yield from self._read()

    def describe(self, fields: Fields, *id_columns: str) -> list[str]:
        """Describe the columns that the fields come from, in one line per file."""
        return [f"{self.name}: {fields.describe(*id_columns)}"]


def open_rows(path: str, stdin: BinaryIO, reading: Reading | None = None) -> Rows:
    """Open the rows of a file, folder or address, or those on standard input for `-`.

    Raises `InputError`.
    """
    reading = reading or Reading()
    if path == STDIN:
        return Rows(path, partial(_read_stdin, stdin, reading))

    is_address = "://" in path
    if not is_address:  # a link in a checkout mustn't lead out of it
        refuse_link_out(get_file_path(path))
    files = replace(RowFiles.at(path), reading=reading)
    schema = _check_first_file(files, path, reading)  # now, to report problems early
    return Rows(path, files.rows, schema, can_split=files.can_split)


def _check_first_file(files: RowFiles, path: str, reading: Reading) -> pa.Schema | None:
    """Check the first file with typed columns, or else the first file, and return the types, if any.

    Raises `InputError`.
    """
    with _explain_read_errors(path):
        is_folder_or_address = Path(path).is_dir() or "://" in path
        if not is_folder_or_address:
            _require_rows_file(path)
        first_path = _find_typed_file(files)
        with files.open_file(first_path) as file:
            return check_file(file, first_path, reading)


def _require_rows_file(path: str) -> None:
    """Raise `InputError` unless a path is a regular file with a known extension."""
    if find_source(path) is None:
        expected = f"{', '.join(ENDINGS)}, a folder, or - for JSON Lines on standard input"
        raise InputError(f"{path}: unknown ending of a file of rows; expected {expected}")
    # Unlike `is_file`, this raises an error if there's no file.
    mode = Path(get_file_path(path)).stat().st_mode
    is_regular = stat.S_ISREG(mode)
    if not is_regular:
        raise InputError(f"{path}: not a file; pass its rows as JSON Lines on standard input: -")


def _find_typed_file(files: RowFiles) -> str:
    """Return the first file with typed columns, or else the first file."""
    for path in files.paths:
        if detect_source(path).has_types:
            return path
    return files.paths[0]


def get_file_path(path: str) -> str:
    """Return the path of the file, without the table name in `FILE::TABLE`."""
    source = find_source(path)
    if source is not None and source.has_tables:
        path, _ = split_table(path)
    return path


def detect_source(path: str) -> Source:
    """Find the kind of a file by its name, by default JSON Lines."""
    return find_source(path) or JSON_LINES


def check_file(file: BinaryIO, name: str, reading: Reading) -> pa.Schema | None:
    """Check that a file's content starts as its extension requires. Raises `InputError` if it doesn't.

    Returns the columns' types, or None if the format has none.
    """
    source = detect_source(name)
    if source.is_text:
        file = open_as_utf_8(file, name, reading)
    return source.reader.check(file, name, reading)


def read_rows(file: BinaryIO, name: str, reading: Reading | None = None) -> Stream:
    """Yield the rows in an open file. Its extension determines the format.

    Raises `InputError` if the file doesn't have that format.
    """
    reading = reading or Reading()
    source = detect_source(name)
    if source.is_text:
        file = open_as_utf_8(file, name, reading)
    yield from source.reader.read(file, name, reading)


def _read_stdin(stdin: BinaryIO, reading: Reading) -> Stream:
    """Yield the rows on standard input, which is JSON Lines or a single JSON document."""
    name = "standard input"
    file = open_as_utf_8(stdin, name, reading)
    source = JSON_DOCUMENT if _is_json_document(peek_head(file)) else JSON_LINES
    yield from source.reader.read(file, name, reading)


def _is_json_document(head: bytes) -> bool:
    """Whether JSON starts as a list, or as an object over multiple lines, rather than as JSON Lines."""
    text = head.removeprefix(codecs.BOM_UTF8).lstrip()
    if text.startswith(b"["):
        return True
    # In JSON Lines, the first line is a complete object, so it's longer than a brace.
    first_line, line_end, _ = text.partition(b"\n")
    has_second_line = line_end != b""
    return has_second_line and first_line.strip() == b"{"


@contextmanager
def _explain_read_errors(name: str) -> Iterator[None]:
    """Convert errors of the system or pyarrow in this block to `InputError`. `name` is the input."""
    try:
        yield
    except (OSError, ValueError) as error:  # such as `ValueError` for a NUL character in a path
        reason = getattr(error, "strerror", None) or shorten_to_line(str(error), 200)
        raise InputError(f"{name}: cannot be read ({reason})") from None
