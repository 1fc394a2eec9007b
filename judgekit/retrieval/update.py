"""Brings an index up to date with its store: reads what is new or changed, drops what is gone."""

from __future__ import annotations

from judgekit.retrieval import columns
from judgekit.retrieval.compiled import AUTO_MEMORY, CLAUDE_MEMORY, MARKDOWN
from judgekit.retrieval.scan import INDEX
from judgekit.retrieval.sources import auto_memory, claude_memory, markdown
from judgekit.retrieval.sources.base import Entry, Unreadable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from sqlite3 import Connection

    from judgekit.retrieval.compiled import Profile
    from judgekit.retrieval.scan import Scan

READERS = {CLAUDE_MEMORY: claude_memory, AUTO_MEMORY: auto_memory, MARKDOWN: markdown}

_INSERT = """INSERT INTO file
    (path, size, mtime, inode, hint, live, problem, id, title, category, tags, updated)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_INSERT_TEXT = (
    f"INSERT INTO text (rowid, {', '.join(columns.NAMES)}) "  # noqa: S608 - names of ours
    f"VALUES (?{', ?' * len(columns.NAMES)})"
)


def apply(connection: Connection, found: Scan, profile: Profile) -> None:
    """Make the index hold what stands in the files of `found`, in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        hints, notes = READERS[profile.kind].read_hints(found.root, found.files)
        stale, wanted = _differences(connection, found, hints)
        for number in stale:
            connection.execute("DELETE FROM file WHERE number = ?", (number,))
            connection.execute("DELETE FROM text WHERE rowid = ?", (number,))
        for path in wanted:
            _add(connection, found, path, profile, hints.get(path))
        connection.execute("DELETE FROM note")
        connection.executemany("INSERT INTO note VALUES (?)", [(_clean(note),) for note in notes])
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def entries(found: Scan, profile: Profile) -> tuple[list[tuple[str, Entry]], list[str]]:
    """Read a whole store without an index: its entries by path, and what is wrong with it."""
    hints, notes = READERS[profile.kind].read_hints(found.root, found.files)
    result, problems = [], [*found.problems, *notes]
    for path in found.files:
        entry, problem = read(found.root, path, profile, hints.get(path))
        if problem is not None:
            problems.append(f"{path}: {problem}")
        if entry is not None:
            result.append((path, entry))
    return result, problems


def read(root: str, path: str, profile: Profile, hint: str | None) -> tuple[Entry | None, str | None]:
    """Return the entry in a file, if it has one, and what is wrong with the file, if anything is."""
    if profile.kind == CLAUDE_MEMORY and path == INDEX[CLAUDE_MEMORY]:
        return None, None
    try:
        entry = READERS[profile.kind].read(root, path, profile, hint)
    except Unreadable as error:
        return None, f"{error}; skipped"
    return entry, entry.problem if entry is not None else None


def _differences(
    connection: Connection, found: Scan, hints: dict[str, str]
) -> tuple[list[int], Iterator[str]]:
    """Return the numbers of the rows that no longer hold, and the paths that have to be read."""
    rows = connection.execute("SELECT number, path, size, mtime, inode, hint FROM file").fetchall()
    stale, kept = [], set()
    for number, path, size, mtime, inode, hint in rows:
        if found.files.get(path) == (size, mtime, inode) and hints.get(path) == hint:
            kept.add(path)
        else:
            stale.append(number)
    return stale, (path for path in found.files if path not in kept)


def _add(connection: Connection, found: Scan, path: str, profile: Profile, hint: str | None) -> None:
    entry, problem = read(found.root, path, profile, hint)
    size, mtime, inode = found.files[path]
    shown = entry or Entry("", "", "")
    updated = shown.updated or mtime / 1e9
    row = (path, size, mtime, inode, hint, entry is not None, problem, shown.id, shown.title, shown.category)
    cleaned = [_clean(each) if isinstance(each, str) else each for each in row]
    cursor = connection.execute(_INSERT, (*cleaned, _clean(",".join(shown.tags)), updated))
    if entry is None:
        return
    texts = [_clean(text) for text in columns.row(entry, profile.language)]
    connection.execute(_INSERT_TEXT, (cursor.lastrowid, *texts))


def _clean(text: str) -> str:
    """Return text that SQLite can store: lone surrogates are replaced, NULs become spaces."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", " ")
