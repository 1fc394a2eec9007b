"""Results in a folder of Parquet files: finds the rows that a second run keeps, and merges files.

A few rows judged together become a file at once, `part-RUN-ROW.parquet`. Many of these are merged into
`rows-RUN-ROW.parquet`, which names them, so we can tell the leftovers of a killed run. A row that's judged
again has two lines for a while: the later run's counts, and the other one is dropped at the end.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from pyarrow.fs import FileSelector, FileSystem, LocalFileSystem

from judgekit import environment, outputs
from judgekit.config import TIE
from judgekit.data import seals, tables
from judgekit.data.results import UNDETERMINED, Ids, Results, resolve_output_path
from judgekit.data.rows import open_file_system, read_rows
from judgekit.data.sources import UnreadableRow
from judgekit.errors import InputError, UsageError
from judgekit.evaluation.labels import normalise_id
from judgekit.judging.documents import LETTERS
from judgekit.text import replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from judgekit.data.seals import Fingerprint

FILES_PER_MERGE = 256  # part files merged into one
_VERDICT_WORDS = ("accept", "improve", "reject", "escalate", TIE, *LETTERS)
_REQUIRED_COLUMNS = ("id", "fingerprint", "verdict", "error")
_MAX_GROUP_ROWS = 5000
_MAX_GROUP_BYTES = 64_000_000  # in a row group
_PART_NAME_PATTERN = re.compile(r"(?:part|rows)-(\d+)-\d+\.parquet")
_REPLACED_PARTS_KEY = b"judgekit.parts"  # metadata key: the files that this one replaces
_RESULT_LINE_DTYPE: list[tuple[str, str]] = [
    ("id", "u8"),
    ("first", "u8"),  # half of the fingerprint, and
    ("second", "u8"),
    ("file", "u4"),
    ("row", "u4"),
    ("word", "u1"),
    ("done", "?"),
    ("sealed", "?"),
]
NO_RESULT_LINES = np.array([], _RESULT_LINE_DTYPE)


class Shape(NamedTuple):
    """The columns of all files.

    `new_name_by_column` has the columns called like a score. `input_typed_columns` keep the input's types.
    """

    schema: pa.Schema
    new_name_by_column: Mapping[str, str]
    input_typed_columns: frozenset[str]


class Key:
    """The seals' key on its way to another machine; no message shows it."""

    def __init__(self, key: str | None) -> None:
        self.key = key


class Found(NamedTuple):
    """The content of some files: a line for each row, the columns, and the files that they replace."""

    lines: np.ndarray[Any, Any]
    schemas: list[pa.Schema]
    replaced: list[str]


@dataclass(frozen=True)
class Folder:
    """A folder that results are written to."""

    name: str
    root: str
    system: FileSystem

    @classmethod
    def at(cls, out: str) -> Folder:
        """Find the results folder at a path or an address such as `s3://…`."""
        system, root = open_file_system(out)
        if isinstance(system, LocalFileSystem):
            # `resolve_output_path` refuses folders, so resolve a file in this one. For an address such as
            # `file:///…`, `root` is the path.
            root = str(Path(resolve_output_path(f"{root if '://' in out else out}/file")).parent)
        return cls(replace_surrogates(out), root, system)

    def make(self) -> None:
        if isinstance(self.system, LocalFileSystem):
            outputs.make_folder(self.root)
        else:
            self.system.create_dir(self.root)

    def get_lockable_path(self) -> str:
        """Return the path that a run must lock before it writes to the folder. Raises `InputError`."""
        try:
            if isinstance(self.system, LocalFileSystem):
                outputs.make_folder(str(Path(self.root).parent))
                return self.root
            # Remote files can't be locked. A local lock prevents simultaneous runs of this user on this
            # machine.
            return f"{environment.RESULTS.make()}/{environment.digest(self.root)}"
        except OSError as error:
            raise InputError(f"{self.name}: cannot be written ({error.strerror})") from None

    def names(self) -> list[str]:
        """List the folder's file names, oldest run first. Raises `UsageError` for a file that isn't ours."""
        names = []
        for info in self.system.get_file_info(FileSelector(self.root, allow_not_found=True)):
            if info.base_name.startswith((".", "_")):
                continue
            is_link = isinstance(self.system, LocalFileSystem) and Path(info.path).is_symlink()
            if is_link or not info.is_file or not _PART_NAME_PATTERN.fullmatch(info.base_name):
                problem = f"{info.base_name} in it is no file of its results"
                raise UsageError(f"{self.name}: {problem}; move it away, or choose another --out")
            names.append(info.base_name)
        return sorted(names, key=lambda name: (run_of(name), name))

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def exists(self, name: str) -> bool:
        return bool(self.system.get_file_info(self.path(name)).is_file)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            if self.exists(name):
                self.system.delete_file(self.path(name))

    def write(self, name: str, tables: Iterable[pa.Table], schema: pa.Schema) -> None:
        """Write a file atomically. Raises `OSError`."""
        # Write a local file under another name, and then rename it. Remote files need no renaming, because
        # they only appear when they are closed.
        is_local = isinstance(self.system, LocalFileSystem)
        written_path = self.path(f".{name}.{os.urandom(8).hex()}" if is_local else name)
        with (
            self.system.open_output_stream(written_path) as file,
            parquet.ParquetWriter(file, schema) as writer,
        ):
            if is_local:
                Path(written_path).chmod(0o600)
            for table in tables:
                writer.write(table)
        if is_local:
            self.system.move(written_path, self.path(name))

    def read(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        with self.system.open_input_file(self.path(name)) as file:
            return parquet.ParquetFile(file).read(columns)

    def rows(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the rows in a file. Raises `InputError` for an unreadable row."""
        with self.system.open_input_file(self.path(name)) as file:
            for row in read_rows(file, name):
                if isinstance(row, UnreadableRow):
                    raise InputError(f"{self.name}: {name}: row {row.number}: {row.problem}")
                yield dict(row.columns)

    def schema(self, name: str) -> pa.Schema:
        with self.system.open_input_file(self.path(name)) as file:
            return parquet.ParquetFile(file).schema_arrow


def run_of(name: str) -> int:
    """Return the number of the run that wrote a file."""
    match = _PART_NAME_PATTERN.fullmatch(name)
    return int(match[1]) if match else 0


def scan(folder: Folder, names: Sequence[str], key: Key, first: int = 0) -> Found:
    """Read the lines, the columns and the replaced files' names from result files, numbered from `first`.

    Raises `UsageError` for a file that doesn't contain results.
    """
    result_lines = []
    schemas: dict[pa.Schema, None] = {}  # an ordered set
    replaced_names = []
    for number, name in enumerate(names, first):
        schema = folder.schema(name)
        if not set(_REQUIRED_COLUMNS).issubset(schema.names):
            raise UsageError(
                f"{folder.name}: {name} is no result of judgekit; choose another --out"
            )

        # A merged file names the part files that it replaces.
        metadata = schema.metadata or {}
        replaced_names += metadata.get(_REPLACED_PARTS_KEY, b"").decode().split()
        schemas[schema.remove_metadata()] = None
        for row, cells in enumerate(folder.rows(name)):
            result_lines.append(_make_line(cells, number, row, key))
    return Found(np.array(result_lines, _RESULT_LINE_DTYPE), list(schemas), replaced_names)


def _make_line(cells: Mapping[str, Any], file: int, row: int, key: Key) -> tuple[int, ...]:
    """Convert a result row to the numbers that are kept in memory, in the order of `_RESULT_LINE_DTYPE`."""
    verdict = cells["verdict"]
    is_done = cells["error"] is None and verdict != UNDETERMINED and verdict in _VERDICT_WORDS
    # Nobody reads the number of a row that isn't done.
    verdict_number = _VERDICT_WORDS.index(verdict) if is_done else 0
    content_hash = seals.read_content_hash(cells["fingerprint"] or "")
    first_half, second_half = _split_fingerprint(content_hash)
    is_sealed = seals.are_cells_valid(cells, key.key)  # signed with the user's key
    id_hash = _hash_id(cells["id"])
    return (id_hash, first_half, second_half, file, row, verdict_number, is_done, is_sealed)


def _split_fingerprint(fingerprint: str) -> tuple[int, int]:
    """Split a fingerprint of 32 hexadecimal digits into two 64-bit numbers.

    Returns (0, 0) if it's invalid.
    """
    try:
        return int(fingerprint[:16] or "0", 16), int(fingerprint[16:32] or "0", 16)
    except ValueError:
        return 0, 0


def _hash_id(row_id: str | int) -> int:
    """Hash an id to a 64-bit number. Collisions are possible."""
    return int(environment.digest(normalise_id(row_id)), 16)


def split_newest(lines: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Split lines into the newest one for each id, sorted by id, and all older ones."""
    # Sort by id, then by file number, because later files are newer.
    ordered = lines[np.lexsort((lines["file"], lines["id"]))]
    ids = ordered["id"]
    is_newest: Any = np.ones(len(ordered), bool)
    is_newest[:-1] = ids[1:] != ids[:-1]  # the next line has a different id
    return ordered[is_newest], ordered[~is_newest]


def find_repeated(digests: Iterable[bytes]) -> list[int]:
    """Find the digests that occur more than once. Each item of `digests` joins a file's 8-byte digests."""
    arrays = [np.frombuffer(file_digests, "u8") for file_digests in digests]
    ordered = np.sort(np.concatenate(arrays))
    is_same_as_previous = ordered[1:] == ordered[:-1]
    repeated = ordered[1:][is_same_as_previous]
    return [int(digest) for digest in np.unique(repeated)]


class Digests(Ids):
    """Collects digests of ids, which are compared once those of all rows are there."""

    def __init__(self, wanted: Collection[int] = ()) -> None:
        self.digest_bytes = bytearray()
        self.wanted_rows = list[tuple[int, str | int]]()
        self._wanted = wanted

    def add(self, row_id: str | int, number: int) -> int | None:
        """Add an id's digest, and note the row if the digest is wanted.

        Other `Ids` return the number of an earlier row with this id. This always returns None, because
        repeated digests are only found once those of all rows are there.
        """
        digest = _hash_id(row_id)
        self.digest_bytes += digest.to_bytes(8, "little")
        if digest in self._wanted:
            self.wanted_rows.append((number, row_id))
        return None

    def close(self) -> None:
        """Do nothing: the digests stay for the comparison."""


class KeptLines(Results):
    """The verdicts that a second run keeps; `lines` are those of finished rows, in the order of ids."""

    def __init__(self, lines: np.ndarray[Any, Any]) -> None:
        self._lines = lines

    def find_verdict(self, row_id: str | int, fingerprint: Fingerprint) -> str | None:
        """Return a row's verdict from earlier results.

        Returns None if there's none, or if the row's content has changed since.
        """
        digest = _hash_id(row_id)
        table = self._lines  # sorted by id
        index = int(np.searchsorted(table["id"], np.uint64(digest)))
        has_line = index < len(table) and int(table["id"][index]) == digest
        if not has_line:
            return None
        fingerprint_halves = int(table["first"][index]), int(table["second"][index])
        if fingerprint_halves == (0, 0):  # the row has no fingerprint
            return None
        # Version 0.1.0 wrote fingerprints in another form, so the content can have two.
        is_same_content = fingerprint_halves in [_split_fingerprint(form) for form in fingerprint]
        return _VERDICT_WORDS[table["word"][index]] if is_same_content else None


def choose_shape(
    columns: tables.ColumnKinds,
    input_types: Mapping[str, pa.DataType],
    old_schemas: Iterable[pa.Schema],
) -> Shape:
    """Choose columns and types for all files, by merging the new columns with the schemas of existing files.

    If a column has different types, numbers become floats, and everything else becomes text. Otherwise, input
    columns keep their type from the input.
    """
    kinds, renamed = columns.get_kinds_by_name()
    kept_input_types = {}
    for name, type_ in input_types.items():
        if name in kinds:
            kept_input_types[name] = type_
    schema = tables.build_schema(kinds, kept_input_types)

    old_columns = chain.from_iterable(old_schemas)
    for column in old_columns:
        index = schema.get_field_index(column.name)
        is_missing = index < 0
        if is_missing:
            schema = schema.append(column)
            continue

        both_types = {schema.field(index).type, column.type}
        if len(both_types) == 1:
            continue
        are_numbers = both_types == {pa.int64(), pa.float64()}
        common_type = pa.float64() if are_numbers else pa.string()
        schema = schema.set(index, pa.field(column.name, common_type))
        kept_input_types.pop(column.name, None)
    return Shape(schema, renamed, frozenset(kept_input_types))


def write_part(folder: Folder, name: str, rows: Sequence[Mapping[str, Any]], shape: Shape) -> None:
    """Write rows of cells (`tables.build_cells`) to a file. Raises `OSError`."""
    batch = tables.make_batch(rows, shape.schema, renamed={}, given=shape.input_typed_columns)
    folder.write(name, [pa.Table.from_batches([batch])], shape.schema)


def rewrite(folder: Folder, name: str, dropped: Collection[int], shape: Shape, key: Key) -> None:
    """Rewrite a file with new columns, without the `dropped` rows. The remaining rows are sealed.

    If no row remains, remove the file.
    """
    dropped_numbers = frozenset(dropped)
    rows = []
    for number, row in enumerate(folder.rows(name)):
        if number not in dropped_numbers:
            rows.append(seals.seal_cells(row, key.key))
    if rows:
        write_part(folder, name, rows, shape)
    else:
        folder.remove([name])


def merge(folder: Folder, names: Sequence[str]) -> None:
    """Merge part files into one file, and remove the parts."""
    target = f"rows{names[0].removeprefix('part')}"
    existing = [name for name in names if folder.exists(name)]
    # If an earlier run merged the parts and was then killed, only remove the parts.
    if not folder.exists(target) and existing:
        schema = folder.schema(existing[0]).with_metadata({_REPLACED_PARTS_KEY: " ".join(names)})
        folder.write(target, _group_tables(folder, existing, schema), schema)
    folder.remove(names)


def _group_tables(folder: Folder, names: Sequence[str], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the tables of small files in groups. Each group becomes a row group of the merged file."""
    group = list[pa.Table]()
    rows = 0
    size = 0
    for name in names:
        table = folder.read(name).replace_schema_metadata(schema.metadata)
        group.append(table)
        rows += len(table)
        size += table.nbytes
        if rows >= _MAX_GROUP_ROWS or size >= _MAX_GROUP_BYTES or name == names[-1]:
            yield pa.concat_tables(group)
            group.clear()
            rows = 0
            size = 0
