"""Makes and replaces the index files of one store: each in a folder of its own, generation after generation.

A file is laid out under a temporary name and linked into place, so that another process finds a sound one or
none. A damaged one is never written over: a process may be reading it, and SQLite would serve it old rows.
"""

from __future__ import annotations

import os
import time

from judgekit.retrieval import schema

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_ENDING = ".sqlite"
_MAKING = ".making"
_ABANDONED = 600  # seconds after which what is still being laid out belongs to a process that was killed
_UNUSED = 30 * 86_400  # seconds after which the file of another version of this program goes


def newest(names: Iterable[str], version: int) -> int | None:
    """Return the newest generation among the names of a store's index files, None when there is none."""
    start = f"v{version}."
    found = [each.removeprefix(start).removesuffix(_ENDING) for each in names if each.startswith(start)]
    return max((int(each) for each in found if each.isdecimal()), default=None)


def path_of(folder: str, generation: int) -> str:
    """Return the path of one generation of a store's index."""
    return f"{folder}/v{schema.VERSION}.{generation}{_ENDING}"


def make(folder: str, generation: int, about: dict[str, Any]) -> None:
    """Lay out an empty index file, unless another process was quicker."""
    temporary = f"{folder}/{os.getpid()}{_MAKING}"
    unlink(temporary)
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        connection = schema.connect(temporary)
        try:
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")
            schema.create(connection, about)
            connection.execute("PRAGMA journal_mode = WAL")
        finally:
            connection.close()
        try:
            os.link(temporary, path_of(folder, generation))
        except FileExistsError:  # another process was quicker, and as right
            return
    finally:
        for suffix in ("", "-wal", "-shm"):
            unlink(temporary + suffix)


def replace(folder: str, about: dict[str, Any]) -> None:
    """Make the next generation of a store's index and remove the older ones."""
    existing = newest(os.listdir(folder), schema.VERSION)
    make(folder, 0 if existing is None else existing + 1, about)
    for generation in range((-1 if existing is None else existing) + 1):
        for suffix in ("", "-wal", "-shm"):
            unlink(path_of(folder, generation) + suffix)
    sweep(folder)


def sweep(folder: str) -> None:
    """Remove what killed processes left half made, and what other versions of this program left long ago."""
    current = f"v{schema.VERSION}."
    with os.scandir(folder) as entries:
        for entry in list(entries):
            limit = _ABANDONED if _MAKING in entry.name else _UNUSED
            if entry.name.startswith(current):
                continue
            try:
                if time.time() - entry.stat().st_mtime > limit:
                    os.unlink(entry.path)
            except OSError:  # it has been finished or swept meanwhile, or is none of ours
                continue


def unlink(path: str) -> None:
    """Remove a file, if it is there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
