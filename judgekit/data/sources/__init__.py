"""The kinds of files that rows come from: a table of them, and the types that their readers yield.

Each kind has a line in `SOURCES`, and a module in this package with the functions of `SourceReader`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol, TypeAlias, cast

from judgekit.judging.documents import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    Stream: TypeAlias = Iterator["DataRow | UnreadableRow"]

PACKED_ENDING = ".gz"
TOO_LONG_MESSAGE = f"it has more than {MAX_BYTES // 1_000_000} MB"


class DataRow(NamedTuple):
    """A row: its number in the input, from 1, and its columns as they are in the input.

    A CSV cell is text. A Parquet cell becomes a JSON value: a time or a date becomes text (ISO 8601, to the
    microsecond), a duration seconds, a decimal text with all its digits, bytes text (in Base64 if they aren't
    UTF-8), and a map a list of pairs.
    """

    number: int
    columns: Mapping[str, Any]


class UnreadableRow(NamedTuple):
    """Stands in for a row: says what was expected, in which column ("" for all). Number 0 is the header."""

    number: int
    column: str
    problem: str


class Reading:
    """The user's options for reading a file, and the function that gets remarks about unusual ones.

    Each remark is made once.
    """

    def __init__(
        self,
        encoding: str | None = None,
        delimiter: str | None = None,
        listener: Callable[[str], None] | None = None,
    ) -> None:
        self.encoding = encoding
        """A Python codec, or None to recognise it by the file's first bytes."""
        self.delimiter = delimiter
        """A character, or None to find it in the file's header."""
        self._show_remark = listener
        self._made: set[str] = set()  # the remarks so far

    def remark(self, text: str) -> None:
        """Pass a remark to the listener, unless the same one was made before."""
        if self._show_remark is None or text in self._made:
            return
        self._made.add(text)
        self._show_remark(text)


class SourceReader(Protocol):
    """The functions of a source's module. They raise `InputError` for a file of another kind."""

    def check(self, file: BinaryIO, name: str, reading: Reading) -> pa.Schema | None:
        """Refuse other files by their beginning; returns the columns' types, or None if they have none."""

    def read(self, file: BinaryIO, name: str, reading: Reading) -> Stream:
        """Yield the rows of a file, numbered from 1, with an `UnreadableRow` for each that can't be read."""


class Source(NamedTuple):
    """A kind of files with rows: its name, the endings of its files, the usual one first, and its module.

    `is_text`: its files can be documents, too; `judge` of one says that --data would judge its rows, and on
    Ray they are read through a buffer.
    `has_cases`: it may hold labelled cases of `eval judge` in place of rows.
    `has_types`: its columns have types, which results in Parquet keep. `can_split`: its files can be read
    apart from each other, on several machines.
    `is_of_folders`: it's read in a folder, too. Beside rows there are JSON files that describe them.
    `has_tables`: its path may end with the name of a table, `FILE::TABLE`.
    """

    name: str
    endings: tuple[str, ...]
    module: str
    is_text: bool = True
    has_cases: bool = False
    has_types: bool = False
    can_split: bool = True
    is_of_folders: bool = True
    has_tables: bool = False

    def recognises(self, path: str) -> bool:
        """Whether a file's name has an extension for rows of this kind."""
        file_path = path
        if self.has_tables:
            file_path, _ = split_table(path)
        # Skip the first character, because a file named `.csv`, for example, has no extension.
        name = PurePath(file_path).name[1:]
        return strip_compression_extension(name).endswith(self.endings)

    @property
    def reader(self) -> SourceReader:
        return cast("SourceReader", import_module(f"{__name__}.{self.module}"))


SOURCES = (
    Source("jsonl", (".jsonl", ".ndjson"), "json_lines", has_cases=True),
    Source("json", (".json",), "json_document", has_cases=True, is_of_folders=False),
    Source("csv", (".csv",), "delimited"),
    Source("tsv", (".tsv", ".tab"), "delimited"),
    Source("psv", (".psv",), "delimited"),
    Source(
        "sqlite",
        (".sqlite", ".sqlite3", ".db"),
        "sqlite_table",
        is_text=False,
        can_split=False,
        is_of_folders=False,
        has_tables=True,
    ),
    Source(
        "workbook",
        (".xlsx", ".xlsm"),
        "workbook",
        is_text=False,
        can_split=False,
        has_tables=True,
    ),
    Source(
        "inspect",
        (".eval",),
        "eval_log",
        is_text=False,
        can_split=False,
    ),
    Source("parquet", (".parquet",), "parquet", is_text=False, has_types=True),
)
"""The kinds, in the order used in messages. A path's kind is the first one that recognises it."""

JSON_LINES, JSON_DOCUMENT = SOURCES[:2]
ENDINGS = tuple(ending for source in SOURCES for ending in source.endings)
ENDINGS_IN_FOLDERS = tuple(
    ending for source in SOURCES if source.is_of_folders for ending in source.endings
)
USUAL_ENDINGS = tuple(source.endings[0] for source in SOURCES)


def split_table(path: str) -> tuple[str, str]:
    """Split `FILE::TABLE`. The table is "" if there's none."""
    file, _, table = path.partition("::")
    return file, table


def strip_compression_extension(path: str) -> str:
    """Return a path in lower case, without an extension for compression."""
    return path.lower().removesuffix(PACKED_ENDING)


def find_source(path: str) -> Source | None:
    """Find a file's kind by its name. Returns None if it's unknown."""
    for source in SOURCES:
        if source.recognises(path):
            return source
    return None
