"""An index file: where it is kept, and what it holds."""

from __future__ import annotations

import os

from judgekit.retrieval import cachefile, schema, watch
from judgekit.retrieval.sqljson import sqlite

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable
    from sqlite3 import Connection
    from typing import Any, TypeAlias

    from judgekit.retrieval.compiled import Profile, Profiles

    Progress: TypeAlias = Callable[[int, int], None]  # files that were read, and files to read


FOLDER = "index"
MEMORY_FILES = 5_000  # files that are read into memory where no file can be kept: about a second


class Index:
    """An open index of the store at `root`, a real path.

    `size` is the number of entries, `pending` that of files still to be read, `left_out` that of files which
    were too many. `outdated` are the files that the last `recheck` found changed.
    """

    builder: int
    kind: str
    pending: int
    size: int
    updated: int

    def __init__(
        self, connection: Connection, root: str, profiles: Profiles, path: str | None = None
    ) -> None:
        self.connection, self.root, self.profiles, self.path = connection, root, profiles, path
        self.folders = self.left_out = 0
        self.outdated: set[str] = set()
        self.trouble: str | None = None

    def load(self, about: dict[str, Any]) -> None:
        """Take over what the file says of itself."""
        self.kind, self.size, self.pending = about["kind"], about["size"], about["pending"]
        self.folders, self.updated, self.builder = about["folders"], about["updated"], about["builder"]

    @property
    def profile(self) -> Profile:
        """How the kind of store is read and ranked."""
        return self.profiles.by_kind[self.kind]

    def notes(self) -> list[str]:
        """Return one line for each problem of the store's files, and for what is missing in the index."""
        rows = self.connection.execute(
            "SELECT text FROM note UNION ALL "
            "SELECT path || ': ' || problem FROM file WHERE problem IS NOT NULL"
        )
        notes = [text for (text,) in rows]
        if self.trouble is not None:
            notes.insert(0, self.trouble)
        if self.left_out:
            notes.insert(
                0, f"{self.root}: only the newest {MEMORY_FILES:,} files searched: no index can be kept"
            )
        if self.pending:
            notes.insert(0, f"{self.root}: {self.pending:,} files not read yet; the next query goes on")
        return notes

    def close(self) -> None:
        """Let go of the file."""
        self.connection.close()


def folder_of(root: str) -> str:
    """Return the folder in which the index files of a store are kept, there or not."""
    return cachefile.place(FOLDER, cachefile.name_for(root))


def path_of(root: str) -> str | None:
    """Return the newest index file of a store, None when there is none."""
    folder = folder_of(root)
    start = f"v{schema.VERSION}."
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    found = [name[len(start) : -7] for name in names if name.startswith(start) and name.endswith(".sqlite")]
    generation = max((int(each) for each in found if each.isdecimal()), default=None)
    return None if generation is None else f"{folder}/{start}{generation}.sqlite"


def read_by(profiles: Profiles) -> str:
    """Return what changes when stores would be read differently."""
    read = [
        (
            kind,
            {name: (category.folder, category.body) for name, category in profile.categories.items()},
            profile.max_bytes,
        )
        for kind, profile in profiles.by_kind.items()
    ]
    words = [profile.language.fingerprint for profile in profiles.by_kind.values()]
    return cachefile.checksum(repr((schema.COLUMNS_VERSION, read, words)).encode())


def about(root: str, profiles: Profiles) -> dict[str, Any]:
    """Return what an empty index says of itself."""
    empty = {"kind": "", "size": 0, "pending": 0, "folders": 0}
    made = {"updated": watch.clock(), "builder": os.getpid()}
    return {"root": root, "read_by": read_by(profiles), **empty, **made}


def of(root: str, profiles: Profiles) -> dict[str, Any]:
    """Return the state of a store's index.

    The keys are `root`, `path` (None when there is no index), `kind`, `entries`, `files`, `pending` (files
    still to be read), `problems`, `bytes` on disk, `generation`, `updated` (seconds since the epoch) and
    `stale`: whether the next query has something to read. Looks at every file of the store.
    """
    found: dict[str, Any] = {"root": root, "path": path_of(root), "kind": None}
    found |= dict.fromkeys(("entries", "files", "pending", "bytes", "generation"), 0)
    found |= {"problems": [], "updated": None, "stale": True}
    path = found["path"]
    if path is None or sqlite is None:
        return found
    found["generation"] = int(path.removesuffix(".sqlite").rpartition(".")[2])
    found["bytes"] = sum(_size(path + suffix) for suffix in ("", "-wal", "-shm"))
    try:
        connection = schema.connect(path)
        try:
            found |= _inside(connection, root, profiles)
        finally:
            connection.close()
    except (sqlite.DatabaseError, *schema.SPOILT) as error:  # it will be replaced by the next query
        found["problems"] = [f"the index is damaged: {error}"]
    return found


def _inside(connection: Connection, root: str, profiles: Profiles) -> dict[str, Any]:
    about = schema.about(connection)
    (files,) = connection.execute("SELECT count(*) FROM file").fetchone()
    query = (
        "SELECT text FROM note UNION ALL SELECT path || ': ' || problem FROM file WHERE problem IS NOT NULL"
    )
    return {
        "kind": about["kind"] or None,
        "entries": about["size"],
        "files": files,
        "pending": about["pending"],
        "problems": [text for (text,) in connection.execute(query).fetchall()],
        "updated": about["updated"] / 1e9 or None,
        "stale": _is_stale(connection, root, about, profiles),
    }


def _is_stale(connection: Connection, root: str, about: dict[str, Any], profiles: Profiles) -> bool:
    if about["root"] != root or about["read_by"] != read_by(profiles) or about["pending"]:
        return True
    return not about["kind"] or watch.any_changed(connection, root)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
