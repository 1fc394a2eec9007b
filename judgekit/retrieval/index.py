"""The full-text index of one store: a SQLite file in the cache folder, brought up to date at every query.

An index file is built under a temporary name and linked into place when it is whole. A damaged one is left
to whoever still reads it and replaced by a file of the next generation. Where no file can be kept, the index
is built in memory.
"""

from __future__ import annotations

import os
import time
import zlib

from judgekit.retrieval import cachefile, schema
from judgekit.retrieval.sqljson import sqlite

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection

    from judgekit.retrieval.compiled import Profile
    from judgekit.retrieval.scan import Scan

FOLDER = "index"
_MEMORY = ":memory:"
_BUILDING = ".building"
_ABANDONED = 600  # seconds after which a file that is still being built belongs to a process that was killed
_MAX_GENERATIONS = 3  # damaged files that are replaced in one run before memory is used


class Index:
    """An open index that holds what `found` lists. `notes` says what is wrong with the store's files."""

    def __init__(self, connection: Connection, found: Scan, profile: Profile) -> None:
        self.connection, self.found, self.profile = connection, found, profile

    @property
    def size(self) -> int:
        """How many entries there are."""
        (count,) = self.connection.execute("SELECT count(*) FROM file WHERE live").fetchone()
        return int(count)

    def notes(self) -> list[str]:
        """Return one line for each problem of the store's files."""
        rows = self.connection.execute(
            "SELECT text FROM note UNION ALL "
            "SELECT path || ': ' || problem FROM file WHERE problem IS NOT NULL"
        )
        return [*self.found.problems, *(text for (text,) in rows)]

    def close(self) -> None:
        """Let go of the file."""
        self.connection.close()


def open_index(found: Scan, profile: Profile, *, anew: bool = False) -> Index:
    """Return an up-to-date index of a store: the kept file, or one in memory where none can be kept.

    With `anew` the kept file is not trusted and replaced. Raises `NoFullTextError`.
    """
    if sqlite is None:
        raise schema.NoFullTextError("it was built without SQLite")
    try:
        return _kept(found, profile, anew=anew) or _fill(_MEMORY, found, profile)
    except sqlite.OperationalError as error:
        if schema.is_missing_module(error):
            raise schema.NoFullTextError("its SQLite was built without FTS5") from None
        raise


def _kept(found: Scan, profile: Profile, *, anew: bool) -> Index | None:
    try:
        base = os.path.join(cachefile.folder(FOLDER), cachefile.name_for(found.root))
        if anew:
            replace(base, generations(base), found, profile)
        for _ in range(_MAX_GENERATIONS):
            index = _open_kept(base, found, profile)
            if index is not None:
                return index
    except (OSError, sqlite.DatabaseError):  # no cache folder to write to, no space left on the disk
        pass
    return None


def generations(base: str) -> list[int]:
    """Return the generations of an index file that exist, the newest first."""
    folder, name = os.path.split(f"{base}.v{schema.VERSION}.")
    endings = [each.removeprefix(name) for each in os.listdir(folder) if each.startswith(name)]
    numbers = [each.removesuffix(".sqlite") for each in endings if each.endswith(".sqlite")]
    return sorted((int(each) for each in numbers if each.isdecimal()), reverse=True)


def path_of(base: str, generation: int) -> str:
    """Return the path of one generation of an index file."""
    return f"{base}.v{schema.VERSION}.{generation}.sqlite"


def _open_kept(base: str, found: Scan, profile: Profile) -> Index | None:
    """Open the newest file, made if there is none; None when it was unfit and has been replaced."""
    existing = generations(base)
    if not existing:
        _create(base, 0, found, profile)
        existing = generations(base)
    path = path_of(base, existing[0])
    try:
        connection = schema.connect(path)
        try:
            if schema.about(connection) == (found.root, _version(profile)):
                _refresh(connection, found, profile)
                return Index(connection, found, profile)
        except BaseException:
            connection.close()
            raise
        connection.close()
    except sqlite.DatabaseError as error:
        if not schema.is_damage(error):
            raise
    replace(base, existing, found, profile)
    return None


def replace(base: str, existing: list[int], found: Scan, profile: Profile) -> None:
    """Make the next generation of an index file and remove the older ones."""
    _create(base, max(existing, default=-1) + 1, found, profile)
    for generation in existing:
        for suffix in ("", "-wal", "-shm"):
            _unlink(path_of(base, generation) + suffix)


def _create(base: str, generation: int, found: Scan, profile: Profile) -> None:
    """Build an index file and link it into place, unless another process was quicker."""
    _sweep(base)
    temporary = f"{base}.{os.getpid()}{_BUILDING}"
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
    try:
        index = _fill(temporary, found, profile)
        index.connection.execute("PRAGMA journal_mode = WAL")
        index.close()
        _link(temporary, path_of(base, generation))
    finally:
        _unlink(temporary)


def _sweep(base: str) -> None:
    """Remove what killed processes left half built."""
    folder, name = os.path.split(base)
    with os.scandir(folder) as entries:
        left = [each for each in entries if each.name.startswith(name) and _BUILDING in each.name]
    for entry in left:
        try:
            if time.time() - entry.stat().st_mtime > _ABANDONED:
                os.unlink(entry.path)
        except FileNotFoundError:  # it has been finished or swept meanwhile
            continue


def _link(temporary: str, path: str) -> None:
    try:
        os.link(temporary, path)
    except FileExistsError:  # another process was quicker, and as right
        return


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def _fill(path: str, found: Scan, profile: Profile) -> Index:
    connection = schema.connect(path)
    if path != _MEMORY:  # the file is not there until it is whole, so a crash costs nothing
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
    schema.create(connection, found.root, _version(profile))
    _refresh(connection, found, profile)
    return Index(connection, found, profile)


def _refresh(connection: Connection, found: Scan, profile: Profile) -> None:
    rows = connection.execute("SELECT path, size, mtime, inode FROM file").fetchall()
    known = {path: (size, mtime, inode) for path, size, mtime, inode in rows}
    if known == found.files:
        return
    from judgekit.retrieval import update  # noqa: PLC0415 - reads files and parses them; most queries do not

    try:
        update.apply(connection, found, profile)
    except sqlite.OperationalError as error:
        if not schema.is_busy(error):
            raise  # another process is updating: what it wrote until now has to do


def _version(profile: Profile) -> str:
    """Return what changes when a store would be read differently."""
    fields = {name: each.body for name, each in profile.categories.items()}
    read_by = repr((fields, profile.max_bytes, profile.language.abbreviations))
    return f"{profile.kind} {zlib.crc32(read_by.encode()):08x}"
