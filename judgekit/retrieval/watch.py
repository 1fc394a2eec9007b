"""Sees that a store changed without looking at each of its files: the part of freshness every query pays for.

Times on a file system are coarse: what changes twice within one tick looks as if it had changed once. So what
was read too soon after its last change is not sure, and is looked at again. How soon that is depends on the
tick, which shows in the time itself: full seconds, or fractions of them.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from sqlite3 import Connection
    from typing import TypeAlias

    # Of a file size, mtime_ns, and inode mixed with ctime_ns; of a folder ctime_ns, mtime_ns, inode.
    Stamp: TypeAlias = tuple[int, int, int]

WINDOW = 2_000_000_000  # nanoseconds: the coarsest tick in use (FAT), where times are full seconds
FINE_WINDOW = 100_000_000  # nanoseconds: many ticks of a file system that tells less than seconds
_SECOND = 1_000_000_000
_DAY = 86_400 * _SECOND
_SIGNED = 2**63 - 1  # what fits into a column
SLICE = 64  # files that each query looks at in turn
FOLDERS = 1_000  # folders that each query looks at; of more the rest is looked at in turn
LAP = 64  # queries after which everything may be listed anew, folder times or not

_WATCH = "SELECT path, folder, x, y, z, sure, number FROM watch"
_FILES = "SELECT number, path, size, mtime, inode, read FROM file"


def clock() -> int:
    """Return the time in nanoseconds, as file systems count it."""
    return time.time_ns()


def look(path: str) -> Stamp | None:
    """Return what tells whether a file changed, None when it is gone.

    The change time is part of it: tools that write into a file may set size and modification time back.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, (found.st_ino ^ found.st_ctime_ns) & _SIGNED


def look_at_folder(path: str) -> Stamp | None:
    """Return what tells whether entries of a folder came, went or changed places, None when it is gone."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ctime_ns, found.st_mtime_ns, found.st_ino


def is_sure(changed: int, read: int) -> bool:
    """Whether what was last `changed` (by the file system's clock) cannot have changed unseen after `read`.

    A time more than a day ahead was set by somebody and is no clock's: the next change sets another one.
    """
    return read - changed >= (FINE_WINDOW if changed % _SECOND else WINDOW) or changed - read > _DAY


def is_folder_sure(stamp: Stamp, read: int) -> bool:
    """Whether a folder's stamp tells all changes after `read`."""
    return is_sure(stamp[0], read) and is_sure(stamp[1], read)


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


def changed_places(connection: Connection, root: str, folders: int, turn: WatchTurn) -> list[str]:
    """Return the watched folders and files of a store that changed, or may have."""
    if folders <= FOLDERS:
        rows = connection.execute(_WATCH).fetchall()
    else:
        rows = connection.execute(f"{_WATCH} WHERE folder = 0 OR path = ''").fetchall()
        some = f"{_WATCH} WHERE number > ? ORDER BY number LIMIT ?"
        more = connection.execute(some, (turn.folder, FOLDERS)).fetchall()
        turn.folder = more[-1][-1] if len(more) == FOLDERS else 0
        rows += more
    start = root + "/"
    changed = []
    for path, folder, x, y, z, sure, _ in rows:
        stamp = look_at_folder(start + path) if folder else look(start + path)
        if not sure or stamp != (x, y, z):
            changed.append(path)
    return changed


def changed_files(connection: Connection, root: str, turn: WatchTurn) -> list[int]:
    """Return the numbers of those files of this turn that changed, or may have; a new lap may begin."""
    rows = connection.execute(
        f"{_FILES} WHERE number > ? AND NOT pending ORDER BY number LIMIT ?", (turn.file, SLICE)
    )
    found = rows.fetchall()
    turn.file = found[-1][0] if len(found) == SLICE else 0
    return [number for number, _ in _differing(found, root)]


def changed_among(connection: Connection, root: str, places: Iterable[str]) -> list[tuple[int, str]]:
    """Return number and place of those files among `places` that changed, or may have."""
    found = []
    for place in places:
        found += connection.execute(f"{_FILES} WHERE path = ?", (place,)).fetchall()
    return _differing(found, root)


def _differing(rows: list[tuple[int, str, int, int, int, int]], root: str) -> list[tuple[int, str]]:
    start = root + "/"
    return [
        (number, path)
        for number, path, size, mtime, inode, read in rows
        if look(start + path) != (size, mtime, inode) or not is_sure(mtime, read)
    ]


def any_changed(connection: Connection, root: str) -> bool:
    """Whether the stamp of any folder or file of a store is not what the index knows; looks at them all."""
    start = root + "/"
    for path, folder, x, y, z, _, _ in connection.execute(_WATCH).fetchall():
        known = None if x is None else (x, y, z)
        if known != (look_at_folder(start + path) if folder else look(start + path)):
            return True
    rows = connection.execute(_FILES).fetchall()
    return any(look(start + path) != (size, mtime, inode) for _, path, size, mtime, inode, _ in rows)
