"""Says what the index of a store holds, without changing it."""

from __future__ import annotations

import os

from judgekit.retrieval import index_file, schema, watch
from judgekit.retrieval.sqljson import sqlite

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection
    from typing import Any

    from judgekit.retrieval.compiled import Profiles


def of(root: str, profiles: Profiles) -> dict[str, Any]:
    """Return the state of a store's index.

    The keys are `root`, `path` (None when there is no index), `kind`, `entries`, `files`, `pending` (files
    still to be read), `problems`, `bytes` on disk, `generation`, `updated` (seconds since the epoch) and
    `stale`: whether the next query has something to read. Looks at every file of the store.
    """
    found: dict[str, Any] = {"root": root, "path": index_file.path_of(root), "kind": None}
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
    if about["root"] != root or about["read_by"] != index_file.read_by(profiles) or about["pending"]:
        return True
    return not about["kind"] or watch.any_changed(connection, root)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
