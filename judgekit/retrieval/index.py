"""The full-text index of one store: opens it, sees what changed, and reads that before a query.

Opening an index looks at the store's folders and its own files, and at a few of the other files in turn.
Where no file can be kept, the index is built in memory. docs/decisions/retrieval-index.md says what is seen
when.
"""

from __future__ import annotations

import os

from judgekit.retrieval import index_file
from judgekit.retrieval.index_file import Index, sqlite

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from sqlite3 import Connection
    from typing import Any

    from judgekit.retrieval.compiled import Profiles
    from judgekit.retrieval.index_file import Progress

EDIT_PATIENCE = 1.0  # seconds of reading that an edit may cost the client
SLICE = 64  # files that each query looks at in turn
FOLDERS = 1_000  # folders that each query looks at; of more the rest is looked at in turn
LAP = 64  # queries after which everything may be listed anew, folder times or not
_MOST_MARKS = 500  # question marks in a statement, of which an old SQLite takes 999
_MAX_GENERATIONS = 3  # damaged files that are replaced in one run before memory is used

_WATCH = "SELECT path, folder, x, y, z, sure, number FROM watch"
_FILES = "SELECT number, path, size, mtime, inode, read FROM file"


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
        raise index_file.NoFullTextError("Python was built without SQLite")
    try:
        kept = _kept(root, profiles, patience, progress, anew=anew)
        return in_memory(root, profiles, progress) if kept is None else kept
    except sqlite.OperationalError as error:
        if "no such module" in str(error):
            raise index_file.NoFullTextError("its SQLite was built without FTS5") from None
        raise


def in_memory(root: str, profiles: Profiles, progress: Progress | None = None) -> Index:
    """Return an index of the store at `root`, or of its newest files, that is gone when it is closed."""
    from judgekit.retrieval import update  # noqa: PLC0415 - the exception, not the rule

    index = Index(index_file.connect(":memory:"), root, profiles)
    index_file.create(index.connection, index_file.new_about(root, profiles))
    index.load(index_file.about(index.connection))
    update.refresh(index, None, (), progress=progress, most=index_file.MEMORY_FILES)
    return index


def recheck(index: Index, places: Collection[str]) -> bool:
    """Compare entries that are about to be shown with their files, and read those anew that changed.

    True when anything changed, so that the caller asks once more. What the caller has of `outdated`
    entries is not what their files say and must not be shown, should it not ask again, or should what
    changed not have been written, since another process is writing or the disk is full.
    """
    index.outdated.clear()
    rows, waiting = [], list(places)
    while waiting:
        some, waiting = waiting[:_MOST_MARKS], waiting[_MOST_MARKS:]
        query = f"{_FILES} WHERE path IN ({', '.join('?' * len(some))})"
        rows += index.connection.execute(query, some).fetchall()
    stale = _differing(rows, index.root)
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
    real = os.path.realpath(path)
    root, above = os.path.dirname(real), real
    while sqlite is not None and root != above:
        if index_file.path_of(root) is not None and _refresh(root, os.path.relpath(real, root), profiles):
            touched.append(root)
        root, above = os.path.dirname(root), root
    return touched


def _refresh(root: str, relative: str, profiles: Profiles) -> bool:
    index = _kept(root, profiles, EDIT_PATIENCE, None, anew=False)
    if index is None:
        return False
    try:
        if index.pending:
            return False
        recheck(index, [relative.replace(os.sep, "/")])
    except (sqlite.DatabaseError, *index_file.SPOILT):  # the next prompt needs it, and builds it anew
        return False
    finally:
        index.close()
    return True


def _kept(
    root: str, profiles: Profiles, patience: float | None, progress: Progress | None, *, anew: bool
) -> Index | None:
    try:
        path = index_file.path_of(root)
        for _ in range(_MAX_GENERATIONS):
            if path is None or anew:
                index_file.replace(root, profiles, path)
                path = index_file.path_of(root)
            if path is None:
                return None
            index = _open_kept(path, root, profiles)
            if index is not None and _is_fresh(index, patience, progress):
                return index
            anew = True
    except (OSError, sqlite.DatabaseError, *index_file.SPOILT):
        pass  # no folder to write to, no space left on the disk, no locks; damaged where nothing can be made
    return None


def _open_kept(path: str, root: str, profiles: Profiles) -> Index | None:
    """Open an index file; None when it is unfit and has to be replaced."""
    connection, about = _read_about(path)
    index = Index(connection, root, profiles, path)
    try:
        if about.get("root") == root and about.get("read_by") == index_file.read_by(profiles):
            index.load(about)
            return index
    except KeyError:  # some of what it should say of itself is missing
        pass
    connection.close()
    return None


def _read_about(path: str) -> tuple[Connection, dict[str, Any]]:
    """Open a file and read what it says of itself; nothing when it is damaged."""
    connection = index_file.connect(path)
    try:
        return connection, index_file.about(connection)
    except (sqlite.DatabaseError, *index_file.SPOILT) as error:
        if index_file.is_damage(error):
            return connection, {}
        connection.close()
        if not index_file.is_read_only(error):
            raise
    connection = index_file.connect_read_only(path)
    return connection, index_file.about(connection)


def _is_fresh(index: Index, patience: float | None, progress: Progress | None) -> bool:
    """Look at what may have changed and read it; False for a damaged index, which is closed."""
    try:
        _freshen(index, patience, progress)
    except BaseException as error:
        if index_file.is_damage(error):
            index.close()
            return False
        if isinstance(error, sqlite.DatabaseError) and index.size > index_file.MEMORY_FILES:
            # An old index of all is worth more than a new one of some.
            index.trouble = f"{index.root}: the index cannot be updated: {error}"
            return True
        index.close()
        raise
    return True


def _freshen(index: Index, patience: float | None, progress: Progress | None) -> None:
    turn = WatchTurn(f"{index.path}.turn")
    turn.queries += 1
    places: Sequence[str] | None = None
    numbers: list[int] = []
    if index.kind:
        places = _changed_places(index, turn)
        numbers = _changed_files(index, turn)
        if turn.file == 0 and turn.queries >= LAP:
            places, turn.queries = None, 0
    turn.keep()
    if places is None or places or numbers or index.pending:
        from judgekit.retrieval import update  # noqa: PLC0415 - reads files and parses them

        update.refresh(index, places, numbers, patience=patience, progress=progress)


class WatchTurn:
    """Whose turn it is to be looked at: kept in a small file beside the index, without locks.

    Two queries at the same time may take the same turn; none is skipped.
    """

    __slots__ = ("file", "folder", "path", "queries")

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            with open(path, "rb") as file:
                self.file, self.folder, self.queries = map(int, file.read(100).split())
        except (OSError, ValueError):  # none yet, or spoiled: begin anew
            self.file = self.folder = self.queries = 0

    def keep(self) -> None:
        """Write the turn of the next query; where that cannot be, the same is looked at again."""
        text = b"%d %d %d " % (self.file, self.folder, self.queries)
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.write(descriptor, text.ljust(64))
            finally:
                os.close(descriptor)
        except OSError:
            return


def _changed_places(index: Index, turn: WatchTurn) -> list[str]:
    """Return the watched folders and files of a store that changed, or may have."""
    execute = index.connection.execute
    if index.folders <= FOLDERS:
        rows = execute(_WATCH).fetchall()
    else:
        rows = execute(f"{_WATCH} WHERE folder = 0 OR path = ''").fetchall()
        some = f"{_WATCH} WHERE number > ? ORDER BY number LIMIT ?"
        more = execute(some, (turn.folder, FOLDERS)).fetchall()
        turn.folder = more[-1][-1] if len(more) == FOLDERS else 0
        rows += more
    changed = []
    for path, folder, x, y, z, sure, _ in rows:
        stamp = _look_at(index.root, path, folder)
        if not sure or stamp != (x, y, z):
            changed.append(path)
    return changed


def _changed_files(index: Index, turn: WatchTurn) -> list[int]:
    """Return the numbers of those files of this turn that changed, or may have; a new lap may begin."""
    some = f"{_FILES} WHERE number > ? AND NOT pending ORDER BY number LIMIT ?"
    rows = index.connection.execute(some, (turn.file, SLICE)).fetchall()
    turn.file = rows[-1][0] if len(rows) == SLICE else 0
    return [number for number, _ in _differing(rows, index.root)]


def _differing(rows: list[tuple[int, str, int, int, int, int]], root: str) -> list[tuple[int, str]]:
    """Return number and place of those files that changed, or may have."""
    start = root + "/"
    return [
        (number, path)
        for number, path, size, mtime, inode, read in rows
        if index_file.look(start + path) != (size, mtime, inode) or not index_file.is_sure(mtime, read)
    ]


def _look_at(root: str, path: str, folder: int) -> index_file.Stamp | None:
    place = f"{root}/{path}"
    return index_file.look_at_folder(place) if folder else index_file.look(place)


def state(root: str, profiles: Profiles) -> dict[str, Any]:
    """Return the state of a store's index.

    The keys are `root`, `path` (None when there is no index), `kind`, `entries`, `files`, `pending` (files
    still to be read), `problems`, `bytes` on disk, `generation`, `updated` (seconds since the epoch) and
    `stale`: whether the next query has something to read. Looks at every file of the store.
    """
    path = index_file.path_of(root)
    found: dict[str, Any] = {"root": root, "path": path, "kind": None}
    found |= dict.fromkeys(("entries", "files", "pending", "bytes", "generation"), 0)
    found |= {"problems": [], "updated": None, "stale": True}
    if path is None or sqlite is None:
        return found
    found["generation"] = int(path.removesuffix(".sqlite").rpartition(".")[2])
    stamps = [index_file.look(path + suffix) for suffix in ("", "-wal", "-shm")]
    found["bytes"] = sum(stamp[0] for stamp in stamps if stamp)
    try:
        connection = index_file.connect(path)
        try:
            about = index_file.about(connection)
            (found["files"],) = connection.execute("SELECT count(*) FROM file").fetchone()
            return found | {
                "kind": about["kind"] or None,
                "entries": about["size"],
                "pending": about["pending"],
                "problems": index_file.problems(connection),
                "updated": about["updated"] / 1e9 or None,
                "stale": _is_stale(connection, root, about, profiles),
            }
        finally:
            connection.close()
    except (sqlite.DatabaseError, *index_file.SPOILT) as error:  # it will be replaced by the next query
        return found | {"problems": [f"the index is damaged: {error}"]}


def _is_stale(connection: Connection, root: str, about: dict[str, Any], profiles: Profiles) -> bool:
    if about["root"] != root or about["read_by"] != index_file.read_by(profiles) or about["pending"]:
        return True
    for path, folder, x, y, z, _, _ in connection.execute(_WATCH).fetchall():
        if (None if x is None else (x, y, z)) != _look_at(root, path, folder):
            return True
    rows = connection.execute(_FILES).fetchall()
    changed = any(index_file.look(f"{root}/{path}") != (*stamp,) for _, path, *stamp, _ in rows)
    return changed or not about["kind"]
