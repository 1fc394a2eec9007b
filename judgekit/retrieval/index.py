"""The full-text index of one store: a SQLite file in the cache folder that knows what it has read.

Opening it looks at the store's folders and its own files, and at a few of the others in turn; what changed is
read before the first query. Where no file can be kept, the index is built in memory.
See docs/decisions/retrieval-index.md for what is seen when.
"""

from __future__ import annotations

import os

from judgekit.retrieval import cachefile, index_file, schema, watch
from judgekit.retrieval.index_file import FOLDER, Index, about, path_of, read_by
from judgekit.retrieval.sqljson import sqlite

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from sqlite3 import Connection
    from typing import Any

    from judgekit.retrieval.compiled import Profiles
    from judgekit.retrieval.index_file import Progress

EDIT_PATIENCE = 1.0  # seconds of reading that an edit may cost the client
_MEMORY = ":memory:"
_MAX_GENERATIONS = 3  # damaged files that are replaced in one run before memory is used


def open_index(
    root: str,
    profiles: Profiles,
    *,
    anew: bool = False,
    patience: float | None = None,
    progress: Progress | None = None,
) -> Index:
    """Return an up-to-date index of the store at `root`, a real path: a kept file, or one in memory.

    With `anew` the kept file is not trusted and replaced. Reading many files is cut off after `patience`
    seconds, and taken up by whoever opens the index next; `progress` is told how far it is. Raises
    `NoFullTextError`.
    """
    if sqlite is None:
        raise schema.NoFullTextError("it was built without SQLite")
    try:
        kept = _kept(root, profiles, patience, progress, anew=anew)
        return in_memory(root, profiles, progress) if kept is None else kept
    except sqlite.OperationalError as error:
        if schema.is_missing_module(error):
            raise schema.NoFullTextError("its SQLite was built without FTS5") from None
        raise


def recheck(index: Index, places: Collection[str]) -> bool:
    """Compare entries that are about to be shown with their files, and read those anew that changed.

    True when anything changed, so that the caller asks once more. What the caller has of `outdated`
    entries is not what their files say and must not be shown, should it not ask again, or should what
    changed not have been written, since another process is writing or the disk is full.
    """
    index.outdated.clear()
    stale = watch.changed_among(index.connection, index.root, places)
    if not stale:
        return False
    from judgekit.retrieval import update  # noqa: PLC0415 - reads files and parses them; most queries do not

    return update.reread(index, stale)


def refresh_file(path: str, profiles: Profiles) -> list[str]:
    """Bring a file that was just written into every index that holds it; return the roots of these.

    For the client's edit hook: only indexes that are there are touched, whatever their store's kind, and only
    those of which all is read: the rest of the others is left to the next prompt.
    """
    touched: list[str] = []
    if sqlite is None:
        return touched
    real = os.path.realpath(path)
    root = os.path.dirname(real)
    while True:
        if path_of(root) is not None and _refresh(root, os.path.relpath(real, root), profiles):
            touched.append(root)
        above = os.path.dirname(root)
        if above == root:
            return touched
        root = above


def _refresh(root: str, relative: str, profiles: Profiles) -> bool:
    index = _kept(root, profiles, EDIT_PATIENCE, None, anew=False)
    if index is None:
        return False
    try:
        if index.pending:
            return False
        recheck(index, [relative.replace(os.sep, "/")])
    except (sqlite.DatabaseError, *schema.SPOILT):  # the next prompt needs it, and builds it anew
        return False
    finally:
        index.close()
    return True


def _kept(
    root: str, profiles: Profiles, patience: float | None, progress: Progress | None, *, anew: bool
) -> Index | None:
    try:
        path = path_of(root)
        for _ in range(_MAX_GENERATIONS):
            if path is None or anew:
                path, anew = _make(root, profiles), False
            index = _open_kept(path, root, profiles)
            if index is not None and _is_fresh(index, patience, progress):
                return index
            anew = True
    except (OSError, sqlite.DatabaseError, *schema.SPOILT):
        pass  # no folder to write to, no space left on the disk, no locks; damaged where nothing can be made
    return None


def _make(root: str, profiles: Profiles) -> str:

    folder = cachefile.folder(FOLDER, cachefile.name_for(root))
    schema.replace(folder, about(root, profiles))
    path = path_of(root)
    if path is None:
        raise FileNotFoundError(folder)
    return path


def _open_kept(path: str, root: str, profiles: Profiles) -> Index | None:
    """Open an index file; None when it is unfit and has to be replaced."""
    connection, found = _read_about(path)
    index = Index(connection, root, profiles, path)
    try:
        if found.get("root") == root and found.get("read_by") == read_by(profiles):
            index.load(found)
            return index
    except KeyError:  # some of what it should say of itself is missing
        pass
    connection.close()
    return None


def _read_about(path: str) -> tuple[Connection, dict[str, Any]]:
    """Open a file and read what it says of itself; nothing when it is damaged."""
    connection = schema.connect(path)
    try:
        return connection, schema.about(connection)
    except (sqlite.DatabaseError, *schema.SPOILT) as error:
        if schema.is_damage(error):
            return connection, {}
        connection.close()
        if not schema.is_read_only(error):
            raise
    connection = schema.connect_read_only(path)
    return connection, schema.about(connection)


def _is_fresh(index: Index, patience: float | None, progress: Progress | None) -> bool:
    """Look at what may have changed and read it; False for a damaged index, which is closed."""
    try:
        _freshen(index, patience, progress)
    except BaseException as error:
        if schema.is_damage(error):
            index.close()
            return False
        if isinstance(error, sqlite.DatabaseError) and index.size > index_file.MEMORY_FILES:
            # An old index of all is worth more than a new one of some.
            index.trouble = f"{index.root}: the index cannot be brought up to date: {error}"
            return True
        index.close()
        raise
    return True


def _freshen(index: Index, patience: float | None, progress: Progress | None) -> None:
    turn = watch.WatchTurn(f"{index.path}.turn")
    turn.queries += 1
    places: Sequence[str] | None = None
    numbers: list[int] = []
    if index.kind:
        places = watch.changed_places(index.connection, index.root, index.folders, turn)
        numbers = watch.changed_files(index.connection, index.root, turn)
        if turn.file == 0 and turn.queries >= watch.LAP:
            places, turn.queries = None, 0
    turn.keep()
    if places is None or places or numbers or index.pending:
        from judgekit.retrieval import update  # noqa: PLC0415 - reads files and parses them

        update.refresh(index, places, numbers, patience=patience, progress=progress)


def in_memory(root: str, profiles: Profiles, progress: Progress | None = None) -> Index:
    """Return an index of the store at `root`, or of its newest files, that is gone when it is closed."""
    from judgekit.retrieval import update  # noqa: PLC0415 - the exception, not the rule

    index = Index(schema.connect(_MEMORY), root, profiles)
    schema.create(index.connection, about(root, profiles))
    index.load(schema.about(index.connection))
    update.refresh(index, None, (), progress=progress, most=index_file.MEMORY_FILES)
    return index
