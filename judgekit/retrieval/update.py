"""Writes an index: compares a store with it, then puts in what is new or changed and drops what is gone.

All is done in transactions of at most `BATCH` files, so that nobody waits long for the lock. What is left
when a process ends, or is killed, is marked as pending and taken up by the next one.
"""

from __future__ import annotations

import os
import time
import zlib
from contextlib import contextmanager

from judgekit.retrieval import index_file, scan
from judgekit.retrieval.index_file import sqlite
from judgekit.retrieval.sources import KINDS
from judgekit.retrieval.sources.base import Entry, Unreadable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from sqlite3 import Connection
    from typing import Any

    from judgekit.retrieval.compiled import Profile
    from judgekit.retrieval.index_file import Index, Progress, Stamp
    from judgekit.retrieval.scan import Listing, Store

BATCH = 256  # files that are read in one transaction: some 50 ms
OTHERS_SECONDS = 1.0  # how long is waited for another process that is reading the store already
_STALLED = 2.0  # seconds without progress after which the other process is taken for dead
_PAUSE = 0.05  # seconds between two looks at how far the other one is
HINTS = "index"  # the place of notes about the store's own index

_IN_FOLDER = """SELECT file.number, file.path, size, mtime, inode, read FROM file
    JOIN watch ON file.folder = watch.number WHERE watch.path = ?"""
_ADD_FILE = "INSERT OR IGNORE INTO file (path, folder, hint) VALUES (?, ?, ?)"
_SET_FILE = """UPDATE file SET pending = 0, size = ?, mtime = ?, inode = ?, read = ?, live = ?, digest = ?,
    problem = ?, id = ?, title = ?, category = ?, tags = ?, updated = ? WHERE number = ?"""
_TOUCH_FILE = "UPDATE file SET pending = 0, size = ?, mtime = ?, inode = ?, read = ? WHERE number = ?"
_ADD_WATCH = "INSERT OR REPLACE INTO watch (number, path, folder, x, y, z, sure) VALUES (?, ?, ?, ?, ?, ?, ?)"
_STEMS = f"SELECT {', '.join(index_file.NAMES)} FROM text WHERE rowid = ?"  # noqa: S608 - names of ours


class Plan:
    """What has to be written to bring an index up to date, before any entry is read.

    Compares the watched `places` of a store (None: all of them) with the index, for which the store so far
    was of `known_kind` (empty: nothing is known). `folders` and `own` are the watched places that were looked
    at, `gone` those that are no more; `notes` are the problems by place. `new` files have no row yet,
    `changed` and `lost` rows are named by number, and `hints` are those that differ, by path. With `anew`
    nothing that was there counts.
    """

    def __init__(self, index: Index, known_kind: str, places: Collection[str] | None) -> None:
        self._connection, self._root = index.connection, index.root
        self.kind = scan.kind_of(index.root, index.profiles)
        self.anew = self.kind != known_kind
        self.folders: dict[str, tuple[Stamp | None, bool]] = {}
        self.own: dict[str, tuple[Stamp | None, bool]] = {}
        self.gone: dict[str, None] = {}
        self.new: dict[str, str] = {}  # the folder of each
        self.stamps: dict[str, Stamp] = {}
        self.changed: list[int] = []
        self.lost: list[int] = []
        self.hints: dict[str, str | None] = {}
        self.notes: dict[str, list[str]] = {}

        self._known: dict[str, tuple[int, Stamp | None, bool]] = {}
        self._below: dict[str, list[str]] = {}  # the folders directly in each
        if not self.anew:
            for path, folder, x, y, z, sure in self._rows("SELECT path, folder, x, y, z, sure FROM watch"):
                self._known[path] = (folder, None if x is None else (x, y, z), bool(sure))
                if folder and path:
                    self._below.setdefault(path.rpartition("/")[0], []).append(path)
        changed = self._look_at_own()
        self._store = scan.Store(index.root, self.kind, index.profiles)
        if not self.anew:
            self._store.room -= self._rows("SELECT count(*) FROM file")[0][0]
        everywhere = self.anew or places is None or scan.IGNORE in changed
        self._listed: set[str] = set()
        self._list(
            [""] if everywhere else [place for place in places or () if place not in scan.OWN],
            deep=everywhere,
        )
        for name in () if self.anew else changed:  # some are entries too
            self.changed += [row[0] for row in self._rows("SELECT number FROM file WHERE path = ?", name)]
        if self.anew or changed or self.new or self.lost or places is None:
            self._read_hints()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        differences = (self.folders, self.own, self.gone, self.new, self.changed, self.lost)
        return not (self.anew or any((*differences, self.hints, self.notes)))

    def _rows(self, query: str, *values: object) -> list[Any]:
        return self._connection.execute(query, values).fetchall()

    def _look_at_own(self) -> list[str]:
        """Look at the store's own files; return those that changed, or may have."""
        changed = []
        for name in scan.OWN:
            read = index_file.clock()
            stamp = index_file.look(f"{self._root}/{name}")
            before = self._known.get(name, (0, None, True))[1:]
            after = (stamp, stamp is None or index_file.is_sure(stamp[1], read))
            if after != before:
                self.own[name] = after
            if stamp != before[0] or not before[1]:
                changed.append(name)
        return changed

    def _list(self, places: list[str], *, deep: bool) -> None:
        pending = [place for place in places if place == "" or self._known.get(place, (1,))[0]]
        while pending:
            place = pending.pop()
            if place not in self._listed:
                self._listed.add(place)
                pending += self._compare_folder(place, self._store.list(place), deep=deep)

    def _compare_folder(self, place: str, listing: Listing, *, deep: bool) -> list[str]:
        """Note what is different in one folder, and return which of those below it have to be listed."""
        before, stamp = self._known.get(place), listing.stamp
        if stamp is None and place:
            self._forget(place)
            return []
        sure = stamp is None or all(index_file.is_sure(changed, listing.read) for changed in stamp[:2])
        if before is None or before[1:] != (stamp, sure):
            self.folders[place] = (stamp, sure)
        for path in set(self._below.get(place, ())).difference(listing.folders):
            self._forget(path)
        unknown = dict(listing.files)
        for number, path, size, mtime, inode, read in self._rows(_IN_FOLDER, place) if before else ():
            known = unknown.pop(path, None)
            if known is None:
                self.lost.append(number)
            elif known != (size, mtime, inode) or not index_file.is_sure(mtime, read):
                self.changed.append(number)
        self.new.update(dict.fromkeys(unknown, place))
        self.stamps.update(unknown)
        self._compare_notes(place, listing.problems, new=before is None)
        moved = before is None or (before[1] or (0, 0, 0))[2] != (stamp or (0, 0, 0))[2]
        return [folder for folder in listing.folders if deep or moved or folder not in self._known]

    def _compare_notes(self, place: str, problems: list[str], *, new: bool) -> None:
        known = () if new or self.anew else self._rows("SELECT text FROM note WHERE place = ?", place)
        if problems != [text for (text,) in known]:
            self.notes[place] = problems

    def _forget(self, place: str) -> None:
        """Note that a folder is gone with all that was in it."""
        if place in self.gone:
            return
        self.gone[place] = None
        self._listed.add(place)
        for path in self._below.get(place, ()):
            self._forget(path)
        self.lost += [row[0] for row in self._rows(_IN_FOLDER, place)]

    def _read_hints(self) -> None:
        known: dict[str, str | None] = {}
        if not self.anew:
            lost = set(self.lost)
            rows = self._rows("SELECT number, path, hint FROM file")
            known = {path: hint for number, path, hint in rows if number not in lost}
        files = [*known, *self.new]
        hints, strays = KINDS[self.kind].read_hints(self._root, _Named(files, self._store))
        self.hints = {path: hints.get(path) for path in files if hints.get(path) != known.get(path)}
        self._compare_notes(HINTS, strays, new=False)


class _Named(dict[str, None]):
    """The files that a store's own index may name: those that are there, and those that are ignored."""

    def __init__(self, files: Collection[str], store: Store) -> None:
        super().__init__(dict.fromkeys(files))
        self._store = store

    def __contains__(self, path: object) -> bool:
        if super().__contains__(path):
            return True
        return self._store.rules is not None and isinstance(path, str) and self._store.leaves_out(path)


class ReadFile:
    """What reading one file gave: its stamp from before it was read, the row of its entry, and its texts."""

    __slots__ = ("digest", "read", "row", "stamp", "texts")

    def __init__(self, root: str, place: str, profile: Profile, hint: str | None) -> None:
        self.read = index_file.clock()
        self.stamp = index_file.look(f"{root}/{place}")
        entry, problem = read(root, place, profile, hint)
        shown = entry or Entry("", "", "")
        texts = None if entry is None else index_file.row(entry, profile.language)
        self.texts = None if texts is None else [_clean(text) for text in texts]
        names = [_clean(name) for name in (shown.id, shown.title, shown.category, ",".join(shown.tags))]
        updated = shown.updated or (self.stamp[1] / 1e9 if self.stamp else 0.0)
        self.row = (None if problem is None else _clean(problem), *names, updated)
        self.digest = zlib.crc32(repr((self.row, self.texts)).encode("utf-8", "surrogatepass"))


class Writer:
    """Changes an index inside a transaction, and keeps count."""

    def __init__(self, connection: Connection, about: dict[str, Any]) -> None:
        self.execute, self.executemany = connection.execute, connection.executemany
        self.connection, self.about = connection, about
        self.terms = index_file.TermCounts(connection)

    def carry_out(self, plan: Plan) -> None:
        """Write what a plan says; files to be read are marked as pending."""
        if plan.anew:
            for table in ("file", "text", "term", "watch", "note"):
                self.execute(f"DELETE FROM {table}")  # noqa: S608 - names of ours
            self.about |= {"kind": plan.kind, "size": 0}
        for number in plan.lost:
            self.drop(number)
        self.executemany("DELETE FROM watch WHERE path = ?", [(path,) for path in plan.gone])
        self.executemany("DELETE FROM note WHERE place = ?", [(path,) for path in plan.gone])
        for folder, places in enumerate((plan.own, plan.folders)):
            for path, (stamp, sure) in places.items():
                row = self.execute("SELECT number FROM watch WHERE path = ?", (path,)).fetchone()
                values = (row and row[0], path, folder, *(stamp or (None,) * 3), sure)
                self.execute(_ADD_WATCH, values)
        for place, texts in plan.notes.items():
            self.execute("DELETE FROM note WHERE place = ?", (place,))
            self.executemany("INSERT INTO note VALUES (?, ?)", [(place, _clean(text)) for text in texts])
        numbers = dict(self.execute("SELECT path, number FROM watch WHERE folder").fetchall())
        new = [(path, numbers[folder], plan.hints.pop(path, None)) for path, folder in plan.new.items()]
        self.executemany(_ADD_FILE, new)
        hints = [(hint, path) for path, hint in plan.hints.items()]
        self.executemany("UPDATE file SET pending = 1, hint = ? WHERE path = ?", hints)
        self.mark(plan.changed)
        self.count()

    def mark(self, numbers: Sequence[int]) -> None:
        """Mark files as to be read."""
        rows = [(number,) for number in numbers]
        self.executemany("UPDATE file SET pending = 1 WHERE number = ?", rows)

    def drop(self, number: int) -> None:
        """Take a file out of the index."""
        self._drop_text(number)
        self.execute("DELETE FROM file WHERE number = ?", (number,))

    def put(self, number: int, file: ReadFile) -> bool:
        """Write what reading a file gave; return whether anything but its stamp is different."""
        if file.stamp is None:
            self.drop(number)
            return True
        row = self.execute("SELECT digest FROM file WHERE number = ?", (number,)).fetchone()
        if row is None:  # dropped by another process meanwhile
            return False
        if row[0] == file.digest:
            self.execute(_TOUCH_FILE, (*file.stamp, file.read, number))
            return False
        self._drop_text(number)
        live = file.texts is not None
        self.execute(_SET_FILE, (*file.stamp, file.read, live, file.digest, *file.row, number))
        if file.texts is not None:
            self.execute(index_file.ADD_TEXT, (number, *file.texts))
            self.terms.count(file.texts, 1)
            self.about["size"] += 1
        return True

    def _drop_text(self, number: int) -> None:
        row = self.execute("SELECT live FROM file WHERE number = ?", (number,)).fetchone()
        if row is not None and row[0]:
            for texts in self.execute(_STEMS, (number,)).fetchall():
                self.terms.count(texts, -1)
            self.execute("DELETE FROM text WHERE rowid = ?", (number,))
            self.about["size"] -= 1

    def count(self) -> None:
        """Note what the index says of itself."""
        self.terms.write()
        (pending,) = self.execute("SELECT count(*) FROM file WHERE pending").fetchone()
        (folders,) = self.execute("SELECT count(*) FROM watch WHERE folder").fetchone()
        builder = os.getpid() if pending else 0
        self.about |= {
            "pending": pending,
            "folders": folders,
            "updated": index_file.clock(),
            "builder": builder,
        }
        index_file.put(self.connection, self.about)


class _Passed(Exception):  # noqa: N818 - no error: another process holds the lock
    """Another process is writing, and has been for long."""


def refresh(
    index: Index,
    places: Collection[str] | None,
    numbers: Sequence[int],
    *,
    patience: float | None = None,
    progress: Progress | None = None,
    most: int | None = None,
) -> None:
    """Bring an index up to date: the watched `places` (None: all) and the files `numbers` may have changed.

    It takes as long as it takes, or `patience` seconds; a second when another process is at it. Of a store
    with more than `most` files only the ones changed last are read, where no file of it can be kept.
    """
    deadline = None if patience is None else time.monotonic() + patience
    try:
        if _another_is_at_it(index):
            _wait(index)
        else:
            _write_plan(index, places, numbers, most)
            _read_pending(index, deadline, progress)
    except _Passed:
        pass
    if not index.kind:  # another process is listing the files, and nothing is known yet
        index.kind = scan.kind_of(index.root, index.profiles)
        index.trouble = f"{index.root}: another process is building the index; not searched"


def reread(index: Index, stale: list[tuple[int, str]]) -> bool:
    """Read files anew that changed, or may have; return whether anything about them is different.

    All of the latter are named in `index.outdated`, whether they could be written or not.
    """
    files = {}
    for number, place in stale:
        query = "SELECT hint, digest FROM file WHERE number = ?"
        hint, digest = index.connection.execute(query, (number,)).fetchone() or (None, None)
        new = ReadFile(index.root, place, index.profile, hint)
        differs = new.stamp is None or new.digest != digest
        if differs:
            index.outdated.add(place)
        if differs or (new.stamp and index_file.is_sure(new.stamp[1], new.read)):
            files[number] = new
    if not files:
        return False
    try:
        with _transaction(index) as writer:
            changed = [writer.put(number, new) for number, new in files.items()]
            writer.count()
    except _Passed:
        return False
    except sqlite.OperationalError as error:
        if index_file.is_damage(error):
            raise
        return False
    return any(changed)


def read(root: str, path: str, profile: Profile, hint: str | None) -> tuple[Entry | None, str | None]:
    """Return the entry in a file, if it has one, and what is wrong with the file, if anything is."""
    try:
        entry = KINDS[profile.kind].read(root, path, profile, hint)
    except Unreadable as error:
        return None, f"{error}; skipped"
    return entry, entry.problem if entry is not None else None


def entries(store: Store, profile: Profile) -> tuple[list[tuple[str, Entry]], list[str]]:
    """Read a whole store without an index: its entries by path, and what is wrong with it."""
    listing = store.walk()
    hints, notes = KINDS[profile.kind].read_hints(store.root, listing.files)
    result, problems = [], [*listing.problems, *notes]
    for path in listing.files:
        entry, problem = read(store.root, path, profile, hints.get(path))
        if problem is not None:
            problems.append(f"{path}: {problem}")
        if entry is not None:
            result.append((path, entry))
    return result, problems


def _write_plan(
    index: Index, places: Collection[str] | None, numbers: Sequence[int], most: int | None
) -> None:
    """Find out what is different, and write it; without the lock first, since mostly nothing is."""
    (version,) = index.connection.execute("PRAGMA data_version").fetchone()
    plan = Plan(index, index.kind, places)
    numbers = [number for number in numbers if _is_worth_writing(index, number)]
    plan.changed = [number for number in plan.changed if _is_worth_writing(index, number)]
    if plan.is_empty and not numbers:
        return
    with _transaction(index) as writer:
        (now,) = index.connection.execute("PRAGMA data_version").fetchone()
        if now != version:  # another process wrote meanwhile, most likely the same
            plan = Plan(index, writer.about["kind"], places)
        # The newest are read first: they are the likeliest to matter.
        newest = sorted(plan.new, key=lambda path: -plan.stamps[path][1])
        index.left_out = 0 if most is None else max(0, len(newest) - most)
        plan.new = {path: plan.new[path] for path in newest[:most]}
        writer.carry_out(plan)
        writer.mark(numbers)
        _read_batch(index, writer)


def _is_worth_writing(index: Index, number: int) -> bool:
    """Whether reading a file gives more than is known: not so while it is as it was, and still not sure."""
    query = "SELECT path, hint, digest, size, mtime, inode FROM file WHERE number = ? AND NOT pending"
    row = index.connection.execute(query, (number,)).fetchone()
    if row is None:
        return True
    path, hint, digest, *stamp = row
    now = index_file.look(f"{index.root}/{path}")
    if now is None or now != tuple(stamp) or index_file.is_sure(now[1], index_file.clock()):
        return True
    return bool(ReadFile(index.root, path, index.profile, hint).digest != digest)


def _read_pending(index: Index, deadline: float | None, progress: Progress | None) -> None:
    """Read what is pending until the deadline, at least one batch: else a slow machine would never end."""
    total = index.pending
    while index.pending:
        if progress is not None:
            progress(total - index.pending, total)
        with _transaction(index) as writer:
            _read_batch(index, writer)
        if deadline is not None and time.monotonic() > deadline:
            return
    if progress is not None and total:
        progress(total, total)


def _read_batch(index: Index, writer: Writer) -> None:
    query = "SELECT number, path, hint FROM file WHERE pending ORDER BY number LIMIT ?"
    rows = index.connection.execute(query, (BATCH,)).fetchall()
    if not rows:
        return
    profile = index.profiles.by_kind[writer.about["kind"]]
    for number, path, hint in rows:
        writer.put(number, ReadFile(index.root, path, profile, hint))
    writer.count()


def _another_is_at_it(index: Index) -> bool:
    if index.kind and not index.pending:
        return False
    if not 0 <= index_file.clock() - index.updated < _STALLED * 1e9 or index.builder == os.getpid():
        return False
    if os.name != "posix":  # elsewhere asking whether a process is alive may end it
        return True
    try:
        os.kill(index.builder, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _wait(index: Index) -> None:
    deadline = time.monotonic() + OTHERS_SECONDS
    while (index.pending or not index.kind) and time.monotonic() < deadline:
        time.sleep(_PAUSE)
        index.load(index_file.about(index.connection))


@contextmanager
def _transaction(index: Index) -> Iterator[Writer]:
    try:
        index.connection.execute("BEGIN IMMEDIATE")
    except sqlite.OperationalError as error:
        if index_file.is_busy(error):
            index.connection.execute("PRAGMA busy_timeout = 0")  # one wait a query is enough
            raise _Passed from None
        raise
    try:
        writer = Writer(index.connection, index_file.about(index.connection))
        yield writer
        index.connection.execute("COMMIT")
    except BaseException:
        if index.connection.in_transaction:
            index.connection.execute("ROLLBACK")
        raise
    index.load(writer.about)


def _clean(text: str) -> str:
    """Return text that SQLite can store: lone surrogates are replaced, NULs become spaces."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", " ")
