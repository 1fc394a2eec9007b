"""The full-text index of one store: opens it, and finds changes of the store before a query.

Opening an index checks the store's folders and its own files, and some of its other files in turn; update.py
reads those that changed. If no file can be kept, the index is built in memory.
docs/decisions/retrieval-index.md says which changes are noticed when.
"""

from __future__ import annotations

import os

from judgekit.retrieval import index_file
from judgekit.retrieval.index_file import (
    SPOILT_DATA_ERRORS,
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

_WATCHES_QUERY = "SELECT path, folder, x, y, z, sure, number FROM watch"
_FILES_QUERY = "SELECT number, path, size, mtime, inode, read FROM file"
_FOLDER_OF_FILE_QUERY = (
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
            return _build_in_memory(root, profiles)
        return _choose_fuller_index(index)
    except index_file.sqlite.OperationalError as error:
        lacks_fts5 = "no such module" in str(error)
        if lacks_fts5:
            raise NoFullTextError("its SQLite was built without FTS5") from None
        raise


def _build_in_memory(root: str, profiles: Profiles) -> Index:
    """Build an index that's gone when it's closed."""
    from judgekit.retrieval import update  # noqa: PLC0415 - only if no index file can be kept

    return update.build_in_memory(root, profiles)


def _choose_fuller_index(index: Index) -> Index:
    """Return the index. While it's built for the first time, return an earlier version's if there's one."""
    # After the first time, only changed files are pending, so it's still fuller.
    has_been_complete = index.was_whole or not index.pending_count
    if has_been_complete:
        return index

    earlier_index = _open_earlier(index)
    if earlier_index is None:
        return index
    index.close()
    return earlier_index


def _open_or_replace(
    root: str, profiles: Profiles, patience: float | None, *, anew: bool
) -> Index | None:
    """Open a store's newest index file. It's replaced first if it's missing or unusable, or if `anew`.

    Returns None if no index file is possible, e.g. in a read-only folder.
    """
    must_replace = anew
    try:
        path = find_index_file(root)
        for _ in range(3):  # after replacing an unusable file, open the new one
            if path is None or must_replace:
                path = _replace_file(root, profiles, path)
            if path is None:
                return None

            index = _open_file(path, root, profiles, patience)
            if index is not None:
                return index
            must_replace = True  # the file is unusable
    except (OSError, index_file.sqlite.DatabaseError, *SPOILT_DATA_ERRORS):
        # The folder isn't writable, the disk is full, or a damaged file can't be replaced.
        return None

    return None


def _replace_file(root: str, profiles: Profiles, path: str | None) -> str | None:
    """Replace a store's index file at `path`, if any. Returns the new file's path; None without one."""
    from judgekit.retrieval import update  # noqa: PLC0415 - only to replace the file

    update.replace(root, profiles, path)
    return find_index_file(root)


def _open_file(path: str, root: str, profiles: Profiles, patience: float | None) -> Index | None:
    """Open an index file and update it; None if it's unusable and must be replaced."""
    connection = index_file.connect(path)
    try:
        facts = _read_facts_unless_read_only(connection)
        if facts is None:
            # In a read-only folder, SQLite needs another way to open the file.
            connection.close()
            connection = _open_read_only(path)
            facts = read_facts(connection)

        is_for_this_store = facts.get("root") == root
        has_current_rules = facts.get("read_by") == reading_fingerprint(profiles)
        if is_for_this_store and has_current_rules:
            index = Index(connection, root, profiles, path)
            index.load(facts)
            _update(index, patience)
            return index
    except BaseException as error:
        connection.close()
        if index_file.is_damage(error):
            return None
        raise

    # It was made for another store, or the rules for reading files have changed.
    connection.close()
    return None


def _read_facts_unless_read_only(connection: Connection) -> dict[str, Any] | None:
    """Read an index's facts about itself; None if SQLite can't because the folder is read-only."""
    try:
        return read_facts(connection)
    except index_file.sqlite.DatabaseError as error:
        if index_file.has_error_code(error, index_file.READ_ONLY):
            return None
        raise


def _update(index: Index, patience: float | None) -> None:
    """Update an index, if anything changed or is still pending, for up to `patience` seconds."""
    changed_paths, file_numbers = _find_changes(index)
    must_list_all = changed_paths is None
    has_changes = must_list_all or changed_paths or file_numbers
    if has_changes or index.pending_count:
        from judgekit.retrieval import update  # noqa: PLC0415 - most queries find no change

        update.refresh(index, changed_paths, file_numbers, patience=patience)


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
    unreadable = (index_file.sqlite.DatabaseError, *SPOILT_DATA_ERRORS)
    try:
        connection = index_file.connect(path)
    except unreadable:
        return None

    try:
        earlier = _load_version(connection, index, path, version)
    except unreadable:
        earlier = None
    if earlier is None:
        connection.close()
    return earlier


def _load_version(connection: Connection, index: Index, path: str, version: int) -> Index | None:
    """Load an earlier version's index; None unless it's complete, and for the same store and kind."""
    facts = read_facts(connection)
    is_complete = facts["pending"] == 0 and facts["size"] > 0
    is_for_same_store = facts["root"] == index.root and facts["kind"] == index.kind
    is_usable = is_complete and is_for_same_store
    if not is_usable:
        return None

    earlier = Index(connection, index.root, index.profiles, path)
    # The earlier index's notes tell the user how many files the new one still has to read.
    earlier.load_earlier(facts, version, index.pending_count)
    return earlier


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
    position_path = f"{index.path}.turn"
    last_file, last_folder, queries_since_listing = _read_position(position_path)
    queries_since_listing += 1

    is_unlisted = not index.kind  # an index gets its kind when the files are first listed
    if is_unlisted:
        _write_position(position_path, last_file, last_folder, queries_since_listing)
        return None, []

    watched_rows, last_folder = _read_next_watched(index, last_folder)
    changed_paths = _list_changed_watched(index, watched_rows)
    files, last_file = _read_next_files(index, last_file)
    differing_files = _list_differing(files, index.root)
    file_numbers = [number for number, _ in differing_files]
    changed_paths += _find_folders_of_missing(index, differing_files)

    # Some file systems don't change a folder's time with its content, so list everything from time to time.
    is_end_of_files = last_file == 0
    must_list_all = is_end_of_files and queries_since_listing >= QUERIES_PER_LAP
    if must_list_all:
        _write_position(position_path, last_file, last_folder, queries=0)
        return None, file_numbers

    _write_position(position_path, last_file, last_folder, queries_since_listing)
    return changed_paths, file_numbers


def _list_changed_watched(index: Index, rows: Iterable[tuple[Any, ...]]) -> list[str]:
    """List the watched paths that may have changed since they were read."""
    changed_paths = []
    for watched_path, is_folder, *stamp, is_sure, _ in rows:
        if not is_sure:  # the path may have changed without getting a new stamp
            changed_paths.append(watched_path)
            continue
        new_stamp = index_file.read_stamp(f"{index.root}/{watched_path}", folder=is_folder)
        if new_stamp != tuple(stamp):
            changed_paths.append(watched_path)
    return changed_paths


def _read_next_watched(index: Index, last: int) -> tuple[list[tuple[Any, ...]], int]:
    """Read the watched paths to check now, and the number of the last folder among them.

    If there are too many folders, these are only the next ones after number `last`. At the end, the number
    returned is 0, so that the next query starts over.
    """
    execute = index.connection.execute
    if index.folders <= FOLDERS_PER_QUERY:  # all are checked each time, so `last` doesn't matter
        return execute(_WATCHES_QUERY).fetchall(), last

    rows = execute(
        f"{_WATCHES_QUERY} WHERE folder = 0 OR path = ''"
    ).fetchall()  # files and the root
    query = f"{_WATCHES_QUERY} WHERE number > ? ORDER BY number LIMIT ?"
    folder_rows = execute(query, (last, FOLDERS_PER_QUERY)).fetchall()
    rows += folder_rows
    is_end = len(folder_rows) < FOLDERS_PER_QUERY
    if is_end:
        return rows, 0

    *_, last_number = folder_rows[-1]  # the number is the last column
    return rows, last_number


def _read_next_files(index: Index, last: int) -> tuple[list[tuple[Any, ...]], int]:
    """Read the next files to check, after number `last`. Also returns the last one's number.

    It's 0 after the last file, so that the next query starts over.
    """
    query = f"{_FILES_QUERY} WHERE number > ? AND NOT pending ORDER BY number LIMIT ?"
    rows = index.connection.execute(query, (last, FILES_PER_QUERY)).fetchall()
    is_end = len(rows) < FILES_PER_QUERY
    if is_end:
        return rows, 0
    number, *_ = rows[-1]
    return rows, number


def _read_position(path: str) -> tuple[int, int, int]:
    """Read where the last query's checks ended: the file's number, the folder's number, and a query count.

    The count is of the queries since everything was listed. If the file at `path` is missing or damaged, all
    three are 0, so the checks start over.
    """
    try:
        with open(path, "rb") as stream:
            fields = stream.read(100).split()
        last_file, last_folder, query_count = [int(field) for field in fields]
    except (OSError, ValueError):
        return 0, 0, 0
    return last_file, last_folder, query_count


def _write_position(path: str, file: int, folder: int, queries: int) -> None:
    """Store what `_read_position` reads. If that fails, the next query checks the same files and folders."""
    text = f"{file} {folder} {queries} "
    # The file isn't truncated, so spaces overwrite the rest of a longer text.
    content = text.ljust(64).encode()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, content)
        finally:
            os.close(descriptor)
    except OSError:
        return


def _list_differing(
    rows: Iterable[tuple[int, str, int, int, int, int]], root: str
) -> list[tuple[int, str]]:
    """Return the numbers and paths of files that may have changed."""
    differing = []
    for number, file_path, size, mtime, inode, read_at in rows:
        is_changed = index_file.read_stamp(f"{root}/{file_path}") != (size, mtime, inode)
        # A file read right after a change may have changed again without getting a new time.
        is_sure = index_file.is_sure(mtime, read_at)
        if is_changed or not is_sure:
            differing.append((number, file_path))
    return differing


def _find_folders_of_missing(index: Index, rows: Iterable[tuple[int, str]]) -> list[str]:
    """Find the folders of indexed files that are missing on disk, to list these folders again.

    `rows` contain each file's number and path.
    """
    # A file also seems missing if the index has a wrong path for it. Then its folder has no new modification
    # time, which would make it be listed again.
    folders: list[str] = []
    for number, file_path in rows:
        exists = os.path.isfile(f"{index.root}/{file_path}")
        if not exists:
            folder_rows = index.connection.execute(_FOLDER_OF_FILE_QUERY, (number,)).fetchall()
            folders += [folder for (folder,) in folder_rows]
    return list(dict.fromkeys(folders))  # without duplicates


def recheck_files(index: Index, file_paths: Iterable[str]) -> bool:
    """Read changed files again before they're shown. Returns whether the query must be repeated.

    The index of an earlier version is read-only, so its changed files are only added to `outdated_paths`.
    """
    index.outdated_paths.clear()
    select_file = f"{_FILES_QUERY} WHERE path = ?"
    rows: list[tuple[Any, ...]] = []
    for file_path in file_paths:
        rows += index.connection.execute(select_file, (file_path,)).fetchall()

    if index.is_earlier:
        _add_outdated(index, rows)
        return False

    changed_rows = _list_differing(rows, index.root)
    if not changed_rows:
        return False
    return _reread(index, changed_rows)


def _add_outdated(index: Index, rows: Iterable[tuple[Any, ...]]) -> None:
    """Add the paths of files that changed to `index.outdated_paths`."""
    for _, file_path, *stamp, _ in rows:
        current_stamp = index_file.read_stamp(f"{index.root}/{file_path}")
        if current_stamp != tuple(stamp):
            index.outdated_paths.add(file_path)


def _reread(index: Index, changed_rows: list[tuple[int, str]]) -> bool:
    """Read changed files again, and list the folders of missing ones. Returns whether the index changed."""
    from judgekit.retrieval import update  # noqa: PLC0415 - most queries find no change

    # Look these up first, because `reread` removes missing files from the index.
    folders = _find_folders_of_missing(index, changed_rows)
    is_different = update.reread(index, changed_rows)
    if folders:
        update.refresh(index, folders, file_numbers=())
        return True
    return is_different


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
    """Update a file in the index of the store at `root`. Returns whether that was possible."""
    index = _open_or_replace(root, profiles, EDIT_SECONDS, anew=False)
    if index is None:
        return False

    relative_path = os.path.relpath(real_path, root).replace(os.sep, "/")
    try:
        if index.pending_count:  # later queries read the missing files, and this one with them
            return False
        recheck_files(index, [relative_path])
    except (index_file.sqlite.DatabaseError, *SPOILT_DATA_ERRORS):
        return False  # the next prompt will rebuild the index
    finally:
        index.close()

    return True


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
    facts["bytes"] = _measure_index(path)
    try:
        facts.update(_describe_content(path, root, profiles))
    except (index_file.sqlite.DatabaseError, *SPOILT_DATA_ERRORS) as error:
        facts["problems"] = [_describe_unreadable(error)]
    return facts


def _measure_index(path: str) -> int:
    """Return the size in bytes of an index, which consists of up to three files."""
    total = 0
    for suffix in ("", "-wal", "-shm"):
        stamp = index_file.read_stamp(path + suffix)
        if stamp is not None:
            size, _, _ = stamp
            total += size
    return total


def _describe_content(path: str, root: str, profiles: Profiles) -> dict[str, Any]:
    """Describe an index by its content.

    Raises SQLite's `DatabaseError` or one of `SPOILT_DATA_ERRORS` if the content is damaged.
    """
    connection = index_file.connect(path)
    try:
        own_facts = read_facts(connection)
        problems = connection.execute(index_file.PROBLEMS).fetchall()
        files = connection.execute(_FILES_QUERY).fetchall()
        watched = connection.execute(_WATCHES_QUERY).fetchall()
    finally:
        connection.close()

    # An index that's for another store, or read by other rules, will be replaced.
    has_current_rules = own_facts["read_by"] == reading_fingerprint(profiles)
    is_for_this_store = own_facts["root"] == root
    is_complete = own_facts["pending"] == 0
    is_usable = has_current_rules and is_for_this_store and is_complete
    is_current = is_usable and not _has_changed_on_disk(root, files, watched)

    updated_seconds = own_facts["updated"] / 1e9  # from nanoseconds
    return {
        "kind": own_facts["kind"] or None,
        "entries": own_facts["size"],
        "files": len(files),
        "pending": own_facts["pending"],
        "problems": [text for (text,) in problems],
        "updated": updated_seconds or None,
        "stale": not is_current,
    }


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
    if index_file.has_error_code(error, index_file.BUSY_ERROR_CODES):
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
