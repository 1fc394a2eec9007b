"""Results in a folder of Parquet files: which rows a second run keeps, and how each is there once in the end.

A few rows that were judged together are a file at once, `part-RUN-ROW.parquet`. Many of these become one,
`rows-RUN-ROW.parquet`, which names them: what a killed run left behind is known. A row that is judged again
has two lines for a while; that of the later run counts, and the other goes at the end.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from pyarrow.fs import FileSelector, FileSystem, LocalFileSystem

from judgekit import environment, outputs
from judgekit.config import TIE
from judgekit.data import seals, tables
from judgekit.data.results import UNDETERMINED, Ids, Results, place_of
from judgekit.data.rows import file_system, rows_in
from judgekit.data.sources import UnreadableRow
from judgekit.errors import InputError, UsageError
from judgekit.evaluation.labels import id_key
from judgekit.judging.documents import LETTERS
from judgekit.text import encodable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from judgekit.data.seals import Fingerprint

MERGED = 256  # files of a few rows that become one
_WORDS = ("accept", "improve", "reject", "escalate", TIE, *LETTERS)
_READ = ("id", "fingerprint", "verdict", "error")
_ROWS = 5000
_BYTES = 64_000_000  # of a row group
_NAME = re.compile(r"(?:part|rows)-(\d+)-\d+\.parquet")
_PARTS = b"judgekit.parts"  # of the metadata of a file: which it replaces
_LINE: list[tuple[str, str]] = [
    ("id", "u8"),
    ("first", "u8"),  # half of the fingerprint, and
    ("second", "u8"),
    ("file", "u4"),
    ("row", "u4"),
    ("word", "u1"),
    ("done", "?"),
    ("sealed", "?"),
]
NOTHING = np.array([], _LINE)


class Shape(NamedTuple):
    """The columns of all files: `renamed` are called like a score, `given` have a type of the input."""

    schema: pa.Schema
    renamed: Mapping[str, str]
    given: frozenset[str]


class Key:
    """The key of seals on its way to another machine; no message shows it."""

    def __init__(self, key: str | None) -> None:
        self.key = key


class Found(NamedTuple):
    """What is in some files: a line for each row, the columns, and the files that they replace."""

    lines: np.ndarray[Any, Any]
    schemas: list[pa.Schema]
    replaced: list[str]


@dataclass(frozen=True)
class Folder:
    """Where results go."""

    name: str
    root: str
    system: FileSystem

    @classmethod
    def at(cls, out: str) -> Folder:
        system, root = file_system(out)
        if isinstance(system, LocalFileSystem):
            root = str(Path(place_of(f"{root if '://' in out else out}/file")).parent)
        return cls(encodable(out), root, system)

    def make(self) -> None:
        if isinstance(self.system, LocalFileSystem):
            outputs.make_folder(self.root)
        else:
            self.system.create_dir(self.root)

    def lockable(self) -> str:
        """Return what a run locks that writes to the folder, which need not be there; raises `InputError`.

        A bucket has no locks: there only the runs of one user on one machine notice each other.
        """
        try:
            if isinstance(self.system, LocalFileSystem):
                outputs.make_folder(str(Path(self.root).parent))
                return self.root
            return f"{environment.RESULTS.make()}/{environment.digest(self.root)}"
        except OSError as error:
            raise InputError(f"{self.name}: cannot be written ({error.strerror})") from None

    def names(self) -> list[str]:
        """Return the names of its files, from old to new; raises `UsageError` for one that is not ours."""
        names = []
        for info in self.system.get_file_info(FileSelector(self.root, allow_not_found=True)):
            if info.base_name.startswith((".", "_")):
                continue
            is_link = isinstance(self.system, LocalFileSystem) and Path(info.path).is_symlink()
            if is_link or not info.is_file or not _NAME.fullmatch(info.base_name):
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
        """Write a file, all of it at once; raises `OSError`."""
        # Elsewhere a file is there when it is closed.
        is_local = isinstance(self.system, LocalFileSystem)
        place = self.path(f".{name}.{os.urandom(8).hex()}" if is_local else name)
        with (
            self.system.open_output_stream(place) as file,
            parquet.ParquetWriter(file, schema) as writer,
        ):
            if is_local:
                Path(place).chmod(0o600)
            for table in tables:
                writer.write(table)
        if is_local:
            self.system.move(place, self.path(name))

    def read(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        with self.system.open_input_file(self.path(name)) as file:
            return parquet.ParquetFile(file).read(columns)

    def rows(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of a file; raises `InputError` for one that takes too much memory."""
        with self.system.open_input_file(self.path(name)) as file:
            for row in rows_in(file, name):
                if isinstance(row, UnreadableRow):
                    raise InputError(f"{self.name}: {name}: row {row.number}: {row.problem}")
                yield dict(row.columns)

    def schema(self, name: str) -> pa.Schema:
        with self.system.open_input_file(self.path(name)) as file:
            return parquet.ParquetFile(file).schema_arrow


def run_of(name: str) -> int:
    """Return the number of the run that wrote a file."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else 0


def scan(folder: Folder, names: Sequence[str], key: Key, first: int = 0) -> Found:
    """Return what is in these files, the first of which has the number `first`; raises `UsageError`."""
    lines = []
    schemas: dict[pa.Schema, None] = {}
    replaced = []
    for number, name in enumerate(names, first):
        schema = folder.schema(name)
        if not set(_READ).issubset(schema.names):
            raise UsageError(
                f"{folder.name}: {name} is no result of judgekit; choose another --out"
            )
        replaced += (schema.metadata or {}).get(_PARTS, b"").decode().split()
        schemas[schema.remove_metadata()] = None
        for row, cells in enumerate(folder.rows(name)):
            lines.append(_line_of(cells, number, row, key))
    return Found(np.array(lines, _LINE), list(schemas), replaced)


def _line_of(cells: Mapping[str, Any], file: int, row: int, key: Key) -> tuple[int, ...]:
    """Return what is kept in memory of a result, as `_LINE` lists it."""
    word = cells["verdict"]
    is_done = cells["error"] is None and word != UNDETERMINED and word in _WORDS
    word_number = _WORDS.index(word) if is_done else 0
    what, who = _halves(seals.what_of(cells["fingerprint"] or ""))
    is_sealed = seals.are_cells_valid(cells, key.key)
    return (_digest(cells["id"]), what, who, file, row, word_number, is_done, is_sealed)


def _halves(fingerprint: str) -> tuple[int, int]:
    """Return a fingerprint as two numbers of 64 bits; (0, 0) for one that nobody has."""
    try:
        return int(fingerprint[:16] or "0", 16), int(fingerprint[16:32] or "0", 16)
    except ValueError:
        return 0, 0


def _digest(row_id: str | int) -> int:
    return int(environment.digest(id_key(row_id)), 16)


def newest(lines: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the line that counts of each row, in the order of their ids, and those that are superseded."""
    ordered = lines[np.lexsort((lines["file"], lines["id"]))]
    is_last: Any = np.ones(len(ordered), bool)
    is_last[:-1] = ordered["id"][1:] != ordered["id"][:-1]
    return ordered[is_last], ordered[~is_last]


def doubles(digests: Iterable[bytes]) -> list[int]:
    """Return the digests of ids that are there twice; those of each file are given as bytes."""
    ordered = np.sort(np.concatenate([np.frombuffer(file, "u8") for file in digests]))
    is_repeated = ordered[1:] == ordered[:-1]
    return [int(digest) for digest in np.unique(ordered[1:][is_repeated])]


class Digests(Ids):
    """Notes the ids of some rows as digests, which are compared when those of all rows are there."""

    def __init__(self, wanted: Collection[int] = ()) -> None:
        self.found = bytearray()
        self.places = list[tuple[int, str | int]]()
        self._wanted = wanted

    def add(self, row_id: str | int, number: int) -> int | None:
        digest = _digest(row_id)
        self.found += digest.to_bytes(8, "little")
        if digest in self._wanted:
            self.places.append((number, row_id))
        return None

    def close(self) -> None:
        """Keep what was found."""


class KeptLines(Results):
    """The verdicts that a second run keeps: `lines` of rows that are done, in the order of their ids."""

    def __init__(self, lines: np.ndarray[Any, Any]) -> None:
        self._lines = lines

    def kept(self, row_id: str | int, fingerprint: Fingerprint) -> str | None:
        digest = _digest(row_id)
        table = self._lines
        place = int(np.searchsorted(table["id"], np.uint64(digest)))
        if place == len(table) or int(table["id"][place]) != digest:
            return None
        fingerprint_halves = int(table["first"][place]), int(table["second"][place])
        if fingerprint_halves == (0, 0):  # the row has none
            return None
        is_same = fingerprint_halves in [_halves(variant) for variant in fingerprint]
        return _WORDS[table["word"][place]] if is_same else None


def shape_of(
    columns: tables.ColumnKinds, types: Mapping[str, pa.DataType], before: Iterable[pa.Schema]
) -> Shape:
    """Return the columns that hold these rows and those of the files `before`.

    A column has its type of the input (`types`), or that which all its values share. Where an earlier file
    has another type, whole numbers become decimal ones, and all else text.
    """
    kinds, renamed = columns.named()
    types_of_input = {}
    for name, type_ in types.items():
        if name in kinds:
            types_of_input[name] = type_
    schema = tables.schema_of(kinds, types_of_input)
    for earlier_schema in before:
        for column in earlier_schema:
            place = schema.get_field_index(column.name)
            if place < 0:
                schema = schema.append(column)
                continue
            both_types = {schema.field(place).type, column.type}
            if len(both_types) == 1:
                continue
            are_numbers = both_types == {pa.int64(), pa.float64()}
            common_type = pa.float64() if are_numbers else pa.string()
            schema = schema.set(place, pa.field(column.name, common_type))
            types_of_input.pop(column.name, None)
    return Shape(schema, renamed, frozenset(types_of_input))


def write_part(folder: Folder, name: str, rows: Sequence[Mapping[str, Any]], shape: Shape) -> None:
    """Write rows of cells (`tables.cells_of`) as a file; raises `OSError`."""
    batch = tables.batch_of(rows, shape.schema, renamed={}, given=shape.given)
    folder.write(name, [pa.Table.from_batches([batch])], shape.schema)


def rewrite(folder: Folder, name: str, dropped: Collection[int], shape: Shape, key: Key) -> None:
    """Write a file in these columns, without some of its rows; seal those that the user trusts."""
    dropped = frozenset(dropped)
    rows = []
    for number, row in enumerate(folder.rows(name)):
        if number not in dropped:
            rows.append(seals.sealed_cells(row, key.key))
    if rows:
        write_part(folder, name, rows, shape)
    else:
        folder.remove([name])


def merge(folder: Folder, names: Sequence[str]) -> None:
    """Put several files of a few rows into one; what was begun before is finished."""
    target = f"rows{names[0].removeprefix('part')}"
    existing = [name for name in names if folder.exists(name)]
    if not folder.exists(target) and existing:
        schema = folder.schema(existing[0]).with_metadata({_PARTS: " ".join(names)})

        def grouped() -> Iterable[pa.Table]:
            group = list[pa.Table]()
            rows = 0
            size = 0
            for name in existing:
                table = folder.read(name).replace_schema_metadata(schema.metadata)
                group.append(table)
                rows += len(table)
                size += table.nbytes
                if rows >= _ROWS or size >= _BYTES or name == existing[-1]:
                    yield pa.concat_tables(group)
                    group.clear()
                    rows = 0
                    size = 0

        folder.write(target, grouped(), schema)
    folder.remove(names)
