"""The full-text index of one store: opens it, and finds changes of the store before a query.

Opening an index checks the store's folders and its own files, and some of its other files in turn; update.py
reads those that changed. If no file can be kept, the index is built in memory.
docs/decisions/retrieval-index.md says which changes are noticed when.
"""

from __future__ import annotations

import os

from judgekit.retrieval import index_file
from judgekit.retrieval.index_file import (
    SPOILT,
    Index,
    NoFullTextError,
    find_index_file,
    read_facts,
    reading_fingerprint,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from sqlite3 import Connection
    from typing import Any

    from judgekit.retrieval.compiled import Profiles

EDIT_SECONDS = 1.0  # seconds of reading that an edit may cost the client
FILES_PER_QUERY = 64  # files that each query looks at in turn
FOLDERS_PER_QUERY = 1_000  # folders that each query checks; if there are more, the rest take turns
# After so many queries, everything is listed again, even if the folders' times are unchanged.
QUERIES_PER_LAP = 64
_GONE = (None, None, None)  # the stamp of something missing

_WATCH = "SELECT path, folder, x, y, z, sure, number FROM watch"
_FILES = "SELECT number, path, size, mtime, inode, read FROM file"
_FOLDER_OF = (
    "SELECT watch.path FROM file JOIN watch ON file.folder = watch.number WHERE file.number = ?"
)


def open_index(
    root: str, profiles: Profiles, *, anew: bool = False, patience: float | None = None
) -> Index:
    """Open and update the index of the store at `root`. Without a usable index file, it's in memory.

    If `anew`, the index file is replaced first. Reading changed files stops after `patience` seconds. Raises
    `NoFullTextError` if this Python's SQLite has no full-text search.
    """
    if index_file.sqlite is None:
        raise NoFullTextError("Python was built without SQLite")

    try:
        index = _open_or_replace(root, profiles, patience, anew=anew)
        if index is None:  # no index file can be kept
            from judgekit.retrieval import update  # noqa: PLC0415 - only if no index file can be kept

            return update.build_in_memory(root, profiles)

        is_half_built = index.pending and not index.was_whole
        # An index by an earlier version of this program has more entries than a half-built one.
        earlier_index = _open_earlier(index) if is_half_built else None
        if earlier_index is None:
            return index
        index.close()
    except index_file.sqlite.OperationalError as error:
        if "no such module" in str(error):
            raise NoFullTextError("its SQLite was built without FTS5") from None
        raise

    return earlier_index


def _open_or_replace(
    root: str, profiles: Profiles, patience: float | None, *, anew: bool
) -> Index | None:
    """Open a store's newest index file, and replace it first if it's missing or unusable.

    Returns None if no index file is possible, e.g. in a read-only folder.
    """
    try:
        path = find_index_file(root)
        for _ in range(3):  # after replacing an unusable file, open the new one
            if path is None or anew:
                from judgekit.retrieval import update  # noqa: PLC0415 - only to replace the file

                update.replace(root, profiles, path)
                path = find_index_file(root)

            if path is None:
                return None

            index = _open_file(path, root, profiles, patience)
            if index is not None:
                return index
            anew = True  # replace the unusable file in the next round
    except (OSError, index_file.sqlite.DatabaseError, *SPOILT):
        # The folder isn't writable, the disk is full, or a damaged file can't be replaced.
        return None

    return None


def _open_file(path: str, root: str, profiles: Profiles, patience: float | None) -> Index | None:
    """Open an index file and update it; None if it's unusable and must be replaced."""
    connection = index_file.connect(path)
    try:
        try:
            facts = read_facts(connection)
        except index_file.sqlite.DatabaseError as error:
            if not index_file.has_error_code(error, index_file.READ_ONLY):
                raise
            # In a read-only folder, SQLite needs another way to open the file.
            connection.close()
            connection = _open_read_only(path)
            facts = read_facts(connection)

        is_of_store = facts.get("root") == root
        has_same_rules = facts.get("read_by") == reading_fingerprint(profiles)
        if is_of_store and has_same_rules:
            index = Index(connection, root, profiles, path)
            index.load(facts)
            changed_paths, file_numbers = _find_changes(index)
            has_no_changes = changed_paths == [] and not file_numbers  # None means all paths
            if not has_no_changes or index.pending:
                from judgekit.retrieval import update  # noqa: PLC0415 - reads files and parses them

                update.refresh(index, changed_paths, file_numbers, patience=patience)
            return index
    except BaseException as error:
        if not index_file.is_damage(error):
            connection.close()
            raise

    # The file is damaged, or made for another store or with other rules.
    connection.close()
    return None


def _open_earlier(index: Index) -> Index | None:
    """Open a store's newest complete index of an earlier version, read-only; None if there's none."""
    earlier_versions = range(index_file.OLDEST_VERSION, index_file.VERSION)
    for version in reversed(earlier_versions):
        path = find_index_file(index.root, version)
        if path is None:
            continue
        earlier = _open_version(index, path, version)
        if earlier is not None:
            return earlier
    return None


def _open_version(index: Index, path: str, version: int) -> Index | None:
    """Open an index file of an earlier version.

    Returns None unless it's complete, readable, and for the same store and kind as `index`.
    """
    connection = None
    try:
        connection = index_file.connect(path)
        facts = read_facts(connection)
        is_whole = facts["pending"] == 0 and facts["size"] > 0
        if is_whole and facts["root"] == index.root and facts["kind"] == index.kind:
            earlier = Index(connection, index.root, index.profiles, path)
            earlier.load_earlier(facts, version, index.pending)
            return earlier
    except (index_file.sqlite.DatabaseError, *SPOILT):
        pass  # answer from the new index, with the entries it has so far

    if connection is not None:
        connection.close()
    return None


def _open_read_only(path: str) -> Connection:
    """Open an index in a read-only folder. Raises `OSError` if part of it is still in SQLite's log."""
    log = path + "-wal"  # content that isn't in the file yet
    if os.path.exists(log) and os.path.getsize(log):
        raise OSError(f"{path}: parts of it are in another file")
    escaped_path = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    # Without `immutable`, SQLite would create files next to the index.
    return index_file.connect(f"file:{escaped_path}?immutable=1", uri=True)


def _find_changes(index: Index) -> tuple[list[str] | None, list[int]]:
    """Find watched paths (None means all) and numbers of files that may have changed.

    Watched paths are the store's folders and its configuration files. Each query checks all of them, up to
    `FOLDERS_PER_QUERY`, and the next `FILES_PER_QUERY` of the other files.
    """
    # A small file stores the position for the next query.
    turn_path = f"{index.path}.turn"
    last_file, last_folder, queries = _read_turn(turn_path)
    queries += 1  # the number of queries since everything was listed

    changed_paths: list[str] | None = None
    file_numbers: list[int] = []
    if index.kind:  # otherwise, the store was never listed, and everything is new
        watched_rows, last_folder = _read_next_watched(index, last_folder)
        changed_paths = []
        for watched_path, is_folder, *stamp, is_sure, _ in watched_rows:
            path = f"{index.root}/{watched_path}"
            # If the stamp isn't sure, the path may have changed without getting a new stamp.
            if not is_sure or index_file.read_stamp(path, folder=is_folder) != tuple(stamp):
                changed_paths.append(watched_path)

        files, last_file = _read_next_files(index, last_file)
        differing_files = _list_differing(files, index.root)
        file_numbers = [number for number, _ in differing_files]
        changed_paths += _find_folders_of_missing(index, differing_files)

        is_lap_done = last_file == 0 and queries >= QUERIES_PER_LAP
        if is_lap_done:
            # List everything from time to time, whatever the folders' times are.
            changed_paths = None
            queries = 0

    _write_turn(turn_path, last_file, last_folder, queries)
    return changed_paths, file_numbers


def _read_next_watched(index: Index, last: int) -> tuple[list[tuple[Any, ...]], int]:
    """Read the watched paths to check now. Also returns the last folder's number.

    If there are too many folders, only the next ones after `last` are checked. The number is 0 after the last
    folder, so that the next query starts over.
    """
    execute = index.connection.execute
    if index.folders <= FOLDERS_PER_QUERY:
        return execute(_WATCH).fetchall(), last

    rows = execute(f"{_WATCH} WHERE folder = 0 OR path = ''").fetchall()  # files and the root
    query = f"{_WATCH} WHERE number > ? ORDER BY number LIMIT ?"
    folder_rows = execute(query, (last, FOLDERS_PER_QUERY)).fetchall()
    rows += folder_rows
    is_end = len(folder_rows) < FOLDERS_PER_QUERY
    if is_end:
        return rows, 0

    *_, number = folder_rows[-1]
    return rows, number


def _read_next_files(index: Index, last: int) -> tuple[list[tuple[Any, ...]], int]:
    """Read the next files to check, after number `last`. Also returns the last one's number.

    It's 0 after the last file, so that the next query starts over.
    """
    query = f"{_FILES} WHERE number > ? AND NOT pending ORDER BY number LIMIT ?"
    rows = index.connection.execute(query, (last, FILES_PER_QUERY)).fetchall()
    is_end = len(rows) < FILES_PER_QUERY
    if is_end:
        return rows, 0
    number, *_ = rows[-1]
    return rows, number


def _read_turn(path: str) -> tuple[int, int, int]:
    """Return the last file and folder checked, and the number of queries since everything was listed."""
    try:
        with open(path, "rb") as stream:
            file, folder, queries = map(int, stream.read(100).split())
    except (OSError, ValueError):  # missing or damaged: start over
        return 0, 0, 0
    return file, folder, queries


def _write_turn(path: str, file: int, folder: int, queries: int) -> None:
    """Store what `_read_turn` reads. If that fails, the next query checks the same files and folders."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            # The file isn't truncated, so overwrite the rest of a longer text with spaces.
            os.write(descriptor, (b"%d %d %d " % (file, folder, queries)).ljust(64))
        finally:
            os.close(descriptor)
    except OSError:
        return


def _list_differing(
    rows: Iterable[tuple[int, str, int, int, int, int]], root: str
) -> list[tuple[int, str]]:
    """Return the numbers and paths of files that changed, or may have."""
    differing = []
    for number, file_path, size, mtime, inode, read_at in rows:
        is_changed = index_file.read_stamp(f"{root}/{file_path}") != (size, mtime, inode)
        if is_changed or not index_file.is_sure(mtime, read_at):
            differing.append((number, file_path))
    return differing


def _find_folders_of_missing(index: Index, rows: Iterable[tuple[int, str]]) -> list[str]:
    """Find the folders of indexed files that are missing on disk, to list these folders again."""
    # Folders' times aren't enough: if a path in the index is wrong, it lacks the actual file.
    folders: dict[str, None] = {}
    for number, file_path in rows:
        if not os.path.isfile(f"{index.root}/{file_path}"):
            for (folder,) in index.connection.execute(_FOLDER_OF, (number,)).fetchall():
                folders[folder] = None
    return list(folders)


def recheck(index: Index, file_paths: Iterable[str]) -> bool:
    """Read changed files again before they're shown. Returns whether the query must be repeated.

    Afterwards, `index.outdated` contains the paths of entries that changed.
    """
    index.outdated.clear()
    query = f"{_FILES} WHERE path = ?"
    rows = []
    for file_path in file_paths:
        rows.extend(index.connection.execute(query, (file_path,)).fetchall())
    if index.is_earlier:  # this index is read-only, so only exclude entries that changed
        for _, file_path, *stamp, _ in rows:
            if index_file.read_stamp(f"{index.root}/{file_path}") != tuple(stamp):
                index.outdated.add(file_path)
        return False

    changed_rows = _list_differing(rows, index.root)
    if not changed_rows:
        return False

    from judgekit.retrieval import update  # noqa: PLC0415 - reads files and parses them; most queries do not

    folders = _find_folders_of_missing(index, changed_rows)
    is_different = update.reread(index, changed_rows)
    if folders:
        update.refresh(index, folders, ())
    return is_different or bool(folders)


def refresh_file(path: str, profiles: Profiles) -> list[str]:
    """Update a file that was just written in the index of every store that contains it.

    Any parent folder can be a store. Returns the roots of the updated stores.
    """
    roots: list[str] = []
    if index_file.sqlite is None:
        return roots

    real_path = os.path.realpath(path)
    folder = os.path.dirname(real_path)
    while True:
        has_index = find_index_file(folder) is not None
        if has_index and _refresh_in(folder, real_path, profiles):
            roots.append(folder)
        parent = os.path.dirname(folder)
        if parent == folder:  # the top folder
            return roots
        folder = parent


def _refresh_in(root: str, real_path: str, profiles: Profiles) -> bool:
    """Update a file in the index of the store at `root`. Returns False for an incomplete index."""
    index = _open_or_replace(root, profiles, EDIT_SECONDS, anew=False)
    if index is None:
        return False

    is_whole = not index.pending
    relative_path = os.path.relpath(real_path, root).replace(os.sep, "/")
    try:
        if is_whole:
            recheck(index, [relative_path])
    except (index_file.sqlite.DatabaseError, *SPOILT):
        return False  # the next prompt will rebuild the index
    finally:
        index.close()

    return is_whole


def describe_index(root: str, profiles: Profiles) -> dict[str, Any]:
    """Describe a store's index after checking all of the store's files.

    `path` is None without an index, `pending` counts unread files, `updated` is in seconds since the epoch,
    and `stale` means that the next query will have to read something.
    """
    path = find_index_file(root)
    facts: dict[str, Any] = {
        "root": root,
        "path": path,
        "kind": None,
        "entries": 0,
        "files": 0,
        "pending": 0,
        "bytes": 0,
        "generation": 0,
        "problems": [],
        "updated": None,
        "stale": True,
    }

    if path is None or index_file.sqlite is None:
        return facts

    *_, generation, _ = path.split(".")  # `v6.1.sqlite`
    facts["generation"] = int(generation)
    # The index consists of up to three files.
    for suffix in ("", "-wal", "-shm"):
        stamp = index_file.read_stamp(path + suffix)
        if stamp is not None:
            size, _, _ = stamp
            facts["bytes"] += size

    try:
        connection = index_file.connect(path)
        try:
            own_facts = read_facts(connection)
            problems = connection.execute(index_file.PROBLEMS).fetchall()
            files = connection.execute(_FILES).fetchall()
            watched = connection.execute(_WATCH).fetchall()
        finally:
            connection.close()

        # An index of another store or with other rules will be replaced.
        has_same_rules = own_facts["read_by"] == reading_fingerprint(profiles)
        is_ours = own_facts["root"] == root and has_same_rules
        is_stale = (
            not is_ours or own_facts["pending"] != 0 or _has_changed_on_disk(root, files, watched)
        )
        return facts | {
            "kind": own_facts["kind"] or None,
            "entries": own_facts["size"],
            "files": len(files),
            "pending": own_facts["pending"],
            "problems": [text for (text,) in problems],
            "updated": own_facts["updated"] / 1e9 or None,
            "stale": is_stale,
        }
    except (index_file.sqlite.DatabaseError, *SPOILT) as error:
        return facts | {"problems": [_describe_unreadable(error)]}


def _has_changed_on_disk(
    root: str, files: Iterable[tuple[Any, ...]], watched: Iterable[tuple[Any, ...]]
) -> bool:
    """Whether any file or watched path in a store differs from its row in the index."""
    for _, relative_path, *file_stamp, _ in files:
        if _is_changed(f"{root}/{relative_path}", tuple(file_stamp), is_folder=False):
            return True
    for relative_path, is_folder, *watch_stamp, _, _ in watched:
        if _is_changed(f"{root}/{relative_path}", tuple(watch_stamp), is_folder=is_folder):
            return True
    return False


def _describe_unreadable(error: Exception) -> str:
    """Explain why an index can't be read, and what queries do instead."""
    if index_file.has_error_code(error, index_file.BUSY):
        return (
            "another process has locked the index; until it ends, queries read the files themselves"
        )
    if index_file.is_damage(error):
        return f"the index is damaged, and the next query replaces it: {error}"
    return f"the index cannot be read, so queries read the files themselves: {error}"


def _is_changed(path: str, stamp: tuple[int | None, ...], *, is_folder: bool) -> bool:
    """Whether a file or folder has a different stamp now. A missing one has the stamp `_GONE`."""
    current_stamp = index_file.read_stamp(path, folder=is_folder)
    if current_stamp is None:
        return stamp != _GONE
    return stamp != current_stamp
