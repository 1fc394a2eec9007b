"""The full-text index of one store: opens it, and sees what changed, before a query.

Opening an index looks at the store's folders and its own files, and at a few of the other files in turn; what
changed is read by update.py. Where no file can be kept, the index is built in memory.
docs/decisions/retrieval-index.md says what is seen when.
"""

from __future__ import annotations

import os

from judgekit.retrieval import index_file
from judgekit.retrieval.index_file import SPOILT, Index, NoFullTextError, about, path_of, read_by

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from judgekit.retrieval.compiled import Profiles

EDIT_PATIENCE = 1.0  # seconds of reading that an edit may cost the client
SLICE = 64  # files that each query looks at in turn
FOLDERS = 1_000  # folders that each query looks at; of more the rest is looked at in turn
LAP = 64  # queries after which everything may be listed anew, folder times or not
_GONE = (None, None, None)  # the stamp of what is not there

_WATCH = "SELECT path, folder, x, y, z, sure, number FROM watch"
_FILES = "SELECT number, path, size, mtime, inode, read FROM file"


def open_index(
    root: str, profiles: Profiles, *, anew: bool = False, patience: float | None = None
) -> Index:
    """Return an up-to-date index of the store at `root`, kept or in memory; raises `NoFullTextError`."""
    if index_file.sqlite is None:
        raise NoFullTextError("Python was built without SQLite")
    try:
        kept = _kept(root, profiles, patience, anew=anew)
        if kept is not None:
            return kept
        from judgekit.retrieval import update  # noqa: PLC0415 - the exception, not the rule

        return update.in_memory(root, profiles)
    except index_file.sqlite.OperationalError as error:
        if "no such module" in str(error):
            raise NoFullTextError("its SQLite was built without FTS5") from None
        raise


def _kept(root: str, profiles: Profiles, patience: float | None, *, anew: bool) -> Index | None:
    """Return the index in the newest file, replaced where it is unfit; None where none can be kept."""
    try:
        path = path_of(root)
        for _ in range(3):  # damaged files are replaced, before memory is used
            if path is None or anew:
                from judgekit.retrieval import update  # noqa: PLC0415 - once a store

                update.replace(root, profiles, path)
                path = path_of(root)
            if path is None:
                return None
            index = _open(path, root, profiles, patience)
            if index is not None:
                return index
            anew = True
    except (OSError, index_file.sqlite.DatabaseError, *SPOILT):
        pass  # no folder to write to, no space left on the disk, no locks; damaged where nothing can be made
    return None


def _open(path: str, root: str, profiles: Profiles, patience: float | None) -> Index | None:
    """Open an index file and bring it up to date; None when it is unfit and has to be replaced."""
    connection = index_file.connect(path)
    try:
        try:
            found = about(connection)
        except index_file.sqlite.DatabaseError as error:
            if not index_file.says(error, index_file.READ_ONLY):
                raise
            connection.close()
            if os.path.exists(path + "-wal") and os.path.getsize(path + "-wal"):
                raise OSError(f"{path}: parts of it are in another file") from None
            escaped = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
            connection = index_file.connect(f"file:{escaped}?immutable=1", uri=True)
            found = about(connection)
        if found.get("root") == root and found.get("read_by") == read_by(profiles):
            index = Index(connection, root, profiles, path)
            index.load(found)
            places, numbers = _changed(index)
            if places is None or places or numbers or index.pending:
                from judgekit.retrieval import update  # noqa: PLC0415 - reads files and parses them

                update.refresh(index, places, numbers, patience=patience)
            return index
    except BaseException as error:
        if not index_file.is_damage(error):
            connection.close()
            raise
    connection.close()
    return None


def _changed(index: Index) -> tuple[list[str] | None, list[int]]:
    """Return the watched places (None: any), and the numbers of files, that changed or may have."""
    path = f"{index.path}.turn"
    execute = index.connection.execute
    try:
        with open(path, "rb") as kept:
            file, folder, queries = map(int, kept.read(100).split())
    except (OSError, ValueError):  # none yet, or spoiled: begin anew
        file = folder = queries = 0
    queries += 1
    places: list[str] | None = None
    numbers: list[int] = []
    if index.kind:
        if index.folders <= FOLDERS:
            rows = execute(_WATCH).fetchall()
        else:
            rows = execute(f"{_WATCH} WHERE folder = 0 OR path = ''").fetchall()
            some = f"{_WATCH} WHERE number > ? ORDER BY number LIMIT ?"
            more = execute(some, (folder, FOLDERS)).fetchall()
            if len(more) == FOLDERS:
                folder = more[-1][-1]
            else:
                folder = 0
            rows += more
        places = []
        for place, is_folder, x, y, z, sure, _ in rows:
            if not sure or index_file.look(f"{index.root}/{place}", folder=is_folder) != (x, y, z):
                places.append(place)
        some = f"{_FILES} WHERE number > ? AND NOT pending ORDER BY number LIMIT ?"
        rows = execute(some, (file, SLICE)).fetchall()
        if len(rows) == SLICE:
            file = rows[-1][0]
        else:
            file = 0
        numbers = [number for number, _ in _differing(rows, index.root)]
        if file == 0 and queries >= LAP:
            places = None
            queries = 0
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, (b"%d %d %d " % (file, folder, queries)).ljust(64))
        finally:
            os.close(descriptor)
    except OSError:  # the next query looks at the same
        pass
    return places, numbers


def _differing(
    rows: Iterable[tuple[int, str, int, int, int, int]], root: str
) -> list[tuple[int, str]]:
    differing = []
    for number, place, size, mtime, inode, read in rows:
        is_changed = index_file.look(f"{root}/{place}") != (size, mtime, inode)
        if is_changed or not index_file.is_sure(mtime, read):
            differing.append((number, place))
    return differing


def recheck(index: Index, places: Iterable[str]) -> bool:
    """Read entries to be shown anew where files changed; True: ask once more, and show none `outdated`."""
    index.outdated.clear()
    query = f"{_FILES} WHERE path = ?"
    rows = []
    for place in places:
        rows.extend(index.connection.execute(query, (place,)).fetchall())
    stale = _differing(rows, index.root)
    if not stale:
        return False
    from judgekit.retrieval import update  # noqa: PLC0415 - reads files and parses them; most queries do not

    return update.reread(index, stale)


def refresh_file(path: str, profiles: Profiles) -> list[str]:
    """Bring a file that was just written into every whole index that holds it; return the roots of these."""
    touched: list[str] = []
    real = os.path.realpath(path)
    root = os.path.dirname(real)
    above = real
    while index_file.sqlite is not None and root != above:
        if path_of(root):
            index = _kept(root, profiles, EDIT_PATIENCE, anew=False)
        else:
            index = None
        if index is not None:
            try:
                if not index.pending:
                    recheck(index, [os.path.relpath(real, root).replace(os.sep, "/")])
                    touched.append(root)
            except (
                index_file.sqlite.DatabaseError,
                *SPOILT,
            ):  # the next prompt needs it, and builds it anew
                pass
            finally:
                index.close()
        above = root
        root = os.path.dirname(root)
    return touched


def state(root: str, profiles: Profiles) -> dict[str, Any]:
    """Return the state of a store's index, after a look at every file of the store.

    `path` is None when there is no index, `pending` are files still to be read, `updated` is in seconds since
    the epoch; `stale` says whether the next query has something to read.
    """
    path = path_of(root)
    found: dict[str, Any] = {"root": root, "path": path, "kind": None}
    found |= dict.fromkeys(("entries", "files", "pending", "bytes", "generation"), 0)
    found |= {"problems": [], "updated": None, "stale": True}
    if path is None or index_file.sqlite is None:
        return found
    found["generation"] = int(path.split(".")[-2])
    stamps = [index_file.look(path + suffix) for suffix in ("", "-wal", "-shm")]
    found["bytes"] = sum(stamp[0] for stamp in stamps if stamp)
    try:
        connection = index_file.connect(path)
        try:
            known = about(connection)
            problems = connection.execute(index_file.PROBLEMS).fetchall()
            files = connection.execute(_FILES).fetchall()
            watched = connection.execute(_WATCH).fetchall()
        finally:
            connection.close()
        seen = []
        for _, place, *stamp, _ in files:
            seen.append((f"{root}/{place}", False, tuple(stamp)))
        seen += [(f"{root}/{place}", folder, (x, y, z)) for place, folder, x, y, z, *_ in watched]
        is_current = (known["root"], known["read_by"]) == (root, read_by(profiles))
        is_stale = not is_current or known["pending"] != 0
        for at, is_folder, stamp in seen:
            is_stale = is_stale or (index_file.look(at, folder=is_folder) or _GONE) != stamp
        return found | {
            "kind": known["kind"] or None,
            "entries": known["size"],
            "files": len(files),
            "pending": known["pending"],
            "problems": [text for (text,) in problems],
            "updated": known["updated"] / 1e9 or None,
            "stale": is_stale,
        }
    except (
        index_file.sqlite.DatabaseError,
        *SPOILT,
    ) as error:  # it will be replaced by the next query
        return found | {"problems": [f"the index is damaged: {error}"]}
