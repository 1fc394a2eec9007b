"""Indexes of stores for tests: opened, their content, and the files that hold them."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgekit import environment
from judgekit.retrieval import compiled, index, update

if TYPE_CHECKING:
    from memory_store import MemoryStore

    from judgekit.retrieval.index_file import Index

PROFILES = compiled.Profiles(compiled.get_bundled_data())
JWT = "decisions/jwt.json"
FRESH = (
    "SELECT path, size, mtime, inode, live, problem, id, file.title, category, file.tags, updated, "
)
CONTENT = (
    f"{FRESH} text.title, text.tags, body, parts FROM file LEFT JOIN text ON number = text.rowid"
)


def opened(store: MemoryStore | Path, **options: Any) -> Index:  # noqa: ANN401 - as open_index takes them
    root = store if isinstance(store, Path) else store.root
    return index.open_index(os.path.realpath(root), PROFILES, **options)


def live(found: Index) -> set[str]:
    """Return the files with an entry, and close the index."""
    with closing(found):
        return {
            path
            for (path,) in found.connection.execute("SELECT path FROM file WHERE live").fetchall()
        }


def content(found: Index) -> list[Any]:
    """Return all that is in an index and true, and close it."""
    with closing(found):
        paths = found.connection.execute("SELECT path FROM file WHERE live").fetchall()
        index.recheck_files(found, [path for (path,) in paths])
        terms = found.connection.execute("SELECT term, entries FROM term").fetchall()
        return [
            *sorted(found.connection.execute(CONTENT).fetchall()),
            sorted(terms),
            found.describe_problems(),
        ]


def fresh(store: MemoryStore) -> list[Any]:
    return content(update.build_in_memory(str(store.root.resolve()), PROFILES))


def databases() -> list[Path]:
    return sorted(Path(environment.INDEXES.path()).rglob("*.sqlite"))
