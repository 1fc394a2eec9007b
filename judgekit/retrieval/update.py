"""Writes an index: what is new or changed is read and put in, what is gone is dropped.

All is done in transactions of at most `BATCH` files, so that nobody waits long for the lock. What is left
when a process ends, or is killed, is marked as pending and taken up by the next one.

Finds what an index lacks: compares what stands in a store's changed folders with what was there before.
"""

from __future__ import annotations

import os
import time
import zlib
from contextlib import contextmanager

from judgekit.retrieval import scan, schema, watch
from judgekit.retrieval.compiled import AUTO_MEMORY, CLAUDE_MEMORY, MARKDOWN
from judgekit.retrieval.sources import auto_memory, claude_memory, markdown
from judgekit.retrieval.sources.base import Entry, Unreadable
from judgekit.retrieval.sqljson import sqlite

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from sqlite3 import Connection
    from typing import Any

    from judgekit.retrieval.compiled import Profile, Profiles
    from judgekit.retrieval.index_file import Index, Progress
    from judgekit.retrieval.scan import Listing, Scan, Store
    from judgekit.retrieval.watch import Stamp


READERS = {CLAUDE_MEMORY: claude_memory, AUTO_MEMORY: auto_memory, MARKDOWN: markdown}
HINTS = "index"  # the place of notes about the store's own index

_IN_FOLDER = """SELECT file.number, file.path, size, mtime, inode, read FROM file
    JOIN watch ON file.folder = watch.number WHERE watch.path = ?"""


class Plan:
    """What has to be written to bring an index up to date, before any entry is read.

    `folders` and `own` are the watched places that were looked at, `gone` those that are no more; `notes` are
    the problems by place. `new` files have no row yet, `changed` and `lost` rows are named by number, and
    `hints` are those that differ, by path. With `anew` nothing that was there counts.
    """

    def __init__(self, kind: str, *, anew: bool) -> None:
        self.kind, self.anew = kind, anew
        self.folders: dict[str, tuple[Stamp | None, bool]] = {}
        self.own: dict[str, tuple[Stamp | None, bool]] = {}
        self.gone: dict[str, None] = {}
        self.new: dict[str, str] = {}  # the folder of each
        self.stamps: dict[str, Stamp] = {}
        self.changed: list[int] = []
        self.lost: list[int] = []
        self.hints: dict[str, str | None] = {}
        self.notes: dict[str, list[str]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (
            self.anew
            or any(
                (self.folders, self.own, self.gone, self.new, self.changed, self.lost, self.hints, self.notes)
            )
        )


def make(
    connection: Connection, root: str, kind: str, profiles: Profiles, places: Collection[str] | None
) -> Plan:
    """Compare the watched `places` of a store (None: all of them) with the index.

    `kind` is what the store was so far, empty when nothing is known.
    """
    return _Survey(connection, root, kind, profiles, places).plan


class _Survey:
    def __init__(
        self, connection: Connection, root: str, kind: str, profiles: Profiles, places: Collection[str] | None
    ) -> None:
        memory = profiles.by_kind[CLAUDE_MEMORY]
        now = scan.kind_of(root, memory)
        self.connection, self.root = connection, root
        self.plan = Plan(now, anew=now != kind)
        self.known: dict[str, tuple[int, Stamp | None, bool]] = {}
        self.below: dict[str, list[str]] = {}  # the folders directly in each
        if not self.plan.anew:
            self._remember()
        own = self._look_at_own()
        self.store: Store = scan.Store(root, now, memory)
        if not self.plan.anew:
            self.store.room -= self._count()
        self.listed: set[str] = set()
        everywhere = self.plan.anew or places is None or scan.IGNORE in own
        self._list(
            [""] if everywhere else [place for place in places or () if place not in scan.OWN],
            deep=everywhere,
        )
        for name in () if self.plan.anew else own:  # some are entries too
            self.plan.changed += self._of_file(name)
        if self.plan.anew or own or self.plan.new or self.plan.lost or places is None:
            self._read_hints()

    def _remember(self) -> None:
        rows = self.connection.execute("SELECT path, folder, x, y, z, sure FROM watch")
        for path, folder, x, y, z, sure in rows:
            self.known[path] = (folder, None if x is None else (x, y, z), bool(sure))
            if folder and path:
                self.below.setdefault(path.rpartition("/")[0], []).append(path)

    def _count(self) -> int:
        (count,) = self.connection.execute("SELECT count(*) FROM file").fetchone()
        return int(count)

    def _look_at_own(self) -> list[str]:
        """Look at the store's own files; return those that changed, or may have."""
        changed = []
        for name in scan.OWN:
            read = watch.clock()
            stamp = watch.look(f"{self.root}/{name}")
            before = self.known.get(name, (0, None, True))[1:]
            after = (stamp, stamp is None or watch.is_sure(stamp[1], read))
            if after != before:
                self.plan.own[name] = after
            if stamp != before[0] or not before[1]:
                changed.append(name)
        return changed

    def _of_file(self, path: str) -> list[int]:
        rows = self.connection.execute("SELECT number FROM file WHERE path = ?", (path,)).fetchall()
        return [number for (number,) in rows]

    def _list(self, places: list[str], *, deep: bool) -> None:
        pending = [place for place in places if place == "" or self.known.get(place, (1,))[0]]
        while pending:
            place = pending.pop()
            if place in self.listed:
                continue
            self.listed.add(place)
            listing = self.store.list(place)
            pending += self._compare_folder(place, listing, deep=deep)

    def _compare_folder(self, place: str, listing: Listing, *, deep: bool) -> list[str]:
        """Note what is different in one folder, and return which of those below it have to be listed."""
        before = self.known.get(place)
        if listing.stamp is None and place:
            self._forget(place)
            return []
        sure = listing.stamp is None or watch.is_folder_sure(listing.stamp, listing.read)
        if before is None or before[1:] != (listing.stamp, sure):
            self.plan.folders[place] = (listing.stamp, sure)
        for path in set(self.below.get(place, ())).difference(listing.folders):
            self._forget(path)
        self._compare_files(place, listing, new=before is None)
        self._compare_notes(place, listing.problems, new=before is None)
        moved = before is None or (before[1] or (0, 0, 0))[2] != (listing.stamp or (0, 0, 0))[2]
        return [folder for folder in listing.folders if deep or moved or folder not in self.known]

    def _compare_files(self, place: str, listing: Listing, *, new: bool) -> None:
        rows: list[Any] = []
        if not new:
            rows = self.connection.execute(_IN_FOLDER, (place,)).fetchall()
        unknown = dict(listing.files)
        for number, path, size, mtime, inode, read in rows:
            stamp = unknown.pop(path, None)
            if stamp is None:
                self.plan.lost.append(number)
            elif stamp != (size, mtime, inode) or not watch.is_sure(mtime, read):
                self.plan.changed.append(number)
        self.plan.new.update(dict.fromkeys(unknown, place))
        self.plan.stamps.update(unknown)

    def _compare_notes(self, place: str, problems: list[str], *, new: bool) -> None:
        rows: list[Any] = []
        if not (new or self.plan.anew):
            rows = self.connection.execute("SELECT text FROM note WHERE place = ?", (place,)).fetchall()
        if problems != [text for (text,) in rows]:
            self.plan.notes[place] = problems

    def _forget(self, place: str) -> None:
        """Note that a folder is gone with all that was in it."""
        if place in self.plan.gone:
            return
        self.plan.gone[place] = None
        self.listed.add(place)
        for path in self.below.get(place, ()):
            self._forget(path)
        rows = self.connection.execute(_IN_FOLDER, (place,)).fetchall()
        self.plan.lost += [row[0] for row in rows]

    def _read_hints(self) -> None:
        known: dict[str, str | None] = {}
        if not self.plan.anew:
            lost = set(self.plan.lost)
            rows = self.connection.execute("SELECT number, path, hint FROM file").fetchall()
            known = {path: hint for number, path, hint in rows if number not in lost}
        files = [*known, *self.plan.new]
        hints, strays = READERS[self.plan.kind].read_hints(self.root, _Named(files, self.store))
        self.plan.hints = {path: hints.get(path) for path in files if hints.get(path) != known.get(path)}
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


BATCH = 256  # files that are read in one transaction: some 50 ms
OTHERS_SECONDS = 1.0  # how long is waited for another process that is reading the store already
_STALLED = 2.0  # seconds without progress after which the other process is taken for dead
_PAUSE = 0.05  # seconds between two looks at how far the other one is

_ADD_FILE = "INSERT OR IGNORE INTO file (path, folder, hint) VALUES (?, ?, ?)"
_SET_FILE = """UPDATE file SET pending = 0, size = ?, mtime = ?, inode = ?, read = ?, live = ?, digest = ?,
    problem = ?, id = ?, title = ?, category = ?, tags = ?, updated = ? WHERE number = ?"""
_TOUCH_FILE = "UPDATE file SET pending = 0, size = ?, mtime = ?, inode = ?, read = ? WHERE number = ?"
_ADD_WATCH = "INSERT OR REPLACE INTO watch (number, path, folder, x, y, z, sure) VALUES (?, ?, ?, ?, ?, ?, ?)"
_ADD_TEXT = (
    f"INSERT INTO text (rowid, {', '.join(schema.NAMES)}) "  # noqa: S608 - names of ours
    f"VALUES (?{', ?' * len(schema.NAMES)})"
)


class ReadFile:
    """What reading one file gave: its stamp from before it was read, the row of its entry, and its texts."""

    __slots__ = ("digest", "read", "row", "stamp", "texts")

    def __init__(self, root: str, place: str, profile: Profile, hint: str | None) -> None:
        self.read = watch.clock()
        self.stamp = watch.look(f"{root}/{place}")
        entry, problem = read(root, place, profile, hint)
        shown = entry or Entry("", "", "")
        self.texts = None if entry is None else [_clean(text) for text in schema.row(entry, profile.language)]
        names = [_clean(each) for each in (shown.id, shown.title, shown.category, ",".join(shown.tags))]
        updated = shown.updated or (self.stamp[1] / 1e9 if self.stamp else 0.0)
        self.row = (None if problem is None else _clean(problem), *names, updated)
        self.digest = zlib.crc32(repr((self.row, self.texts)).encode("utf-8", "surrogatepass"))


class Writer:
    """Changes an index inside a transaction, and keeps count."""

    def __init__(self, connection: Connection, root: str, about: dict[str, Any]) -> None:
        self.connection, self.root, self.about = connection, root, about
        self.terms = schema.TermCounts(connection)

    def carry_out(self, plan: Plan) -> None:
        """Write what a plan says; files to be read are marked as pending."""
        if plan.anew:
            for table in ("file", "text", "term", "watch", "note"):
                self.connection.execute(f"DELETE FROM {table}")  # noqa: S608 - names of ours
            self.about |= {"kind": plan.kind, "size": 0}
        for number in plan.lost:
            self.drop(number)
        self.connection.executemany("DELETE FROM watch WHERE path = ?", [(path,) for path in plan.gone])
        self.connection.executemany("DELETE FROM note WHERE place = ?", [(path,) for path in plan.gone])
        for folder, places in enumerate((plan.own, plan.folders)):
            for path, (stamp, sure) in places.items():
                row = self.connection.execute("SELECT number FROM watch WHERE path = ?", (path,)).fetchone()
                values = (row and row[0], path, folder, *(stamp or (None,) * 3), sure)
                self.connection.execute(_ADD_WATCH, values)
        for place, texts in plan.notes.items():
            self.connection.execute("DELETE FROM note WHERE place = ?", (place,))
            rows = [(place, _clean(text)) for text in texts]
            self.connection.executemany("INSERT INTO note VALUES (?, ?)", rows)
        self._mark(plan)
        self.count()

    def drop(self, number: int) -> None:
        """Take a file out of the index."""
        self._drop_text(number)
        self.connection.execute("DELETE FROM file WHERE number = ?", (number,))

    def put(self, number: int, read_file: ReadFile) -> bool:
        """Write what reading a file gave; return whether anything but its stamp is different."""
        if read_file.stamp is None:
            self.drop(number)
            return True
        row = self.connection.execute(
            "SELECT digest, pending FROM file WHERE number = ?", (number,)
        ).fetchone()
        if row is None:  # dropped by another process meanwhile
            return False
        if row[0] == read_file.digest:
            self.connection.execute(_TOUCH_FILE, (*read_file.stamp, read_file.read, number))
            return False
        self._drop_text(number)
        live = read_file.texts is not None
        values = (*read_file.stamp, read_file.read, live, read_file.digest, *read_file.row, number)
        self.connection.execute(_SET_FILE, values)
        if read_file.texts is not None:
            self.connection.execute(_ADD_TEXT, (number, *read_file.texts))
            self.terms.add(read_file.texts)
            self.about["size"] += 1
        return True

    def count(self) -> None:
        """Note what the index says of itself."""
        self.terms.write()
        (pending,) = self.connection.execute("SELECT count(*) FROM file WHERE pending").fetchone()
        (folders,) = self.connection.execute("SELECT count(*) FROM watch WHERE folder").fetchone()
        builder = os.getpid() if pending else 0
        self.about |= {"pending": pending, "folders": folders, "updated": watch.clock(), "builder": builder}
        schema.put(self.connection, self.about.items())

    def _drop_text(self, number: int) -> None:
        row = self.connection.execute("SELECT live FROM file WHERE number = ?", (number,)).fetchone()
        if row is not None and row[0]:
            self.terms.remove(number)
            self.connection.execute("DELETE FROM text WHERE rowid = ?", (number,))
            self.about["size"] -= 1

    def _mark(self, plan: Plan) -> None:
        numbers = dict(self.connection.execute("SELECT path, number FROM watch WHERE folder").fetchall())
        rows = [(path, numbers[folder], plan.hints.pop(path, None)) for path, folder in plan.new.items()]
        self.connection.executemany(_ADD_FILE, rows)
        hints = [(hint, path) for path, hint in plan.hints.items()]
        self.connection.executemany("UPDATE file SET pending = 1, hint = ? WHERE path = ?", hints)
        self.mark_changed(plan.changed)

    def mark_changed(self, numbers: Sequence[int]) -> None:
        """Mark files as to be read."""
        rows = [(number,) for number in numbers]
        self.connection.executemany("UPDATE file SET pending = 1 WHERE number = ?", rows)


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
        index.kind = scan.kind_of(index.root, index.profiles.by_kind[CLAUDE_MEMORY])
        index.trouble = f"{index.root}: being read for the first time by another process; not searched"


def reread(index: Index, stale: list[tuple[int, str]]) -> bool:
    """Read files anew that changed, or may have; return whether anything about them is different.

    All of the latter are named in `index.outdated`, whether they could be written or not.
    """
    connection, changed = index.connection, False
    found = {}
    for number, place in stale:
        row = connection.execute("SELECT hint, digest FROM file WHERE number = ?", (number,)).fetchone()
        hint, digest = row or (None, None)
        new = ReadFile(index.root, place, index.profile, hint)
        sure = new.stamp is not None and watch.is_sure(new.stamp[1], new.read)
        if sure or new.stamp is None or new.digest != digest:
            found[number] = new
            if new.digest != digest or new.stamp is None:
                index.outdated.add(place)
    if not found:
        return False
    try:
        with _transaction(index) as writer:
            for number, new in found.items():
                changed |= writer.put(number, new)
            writer.count()
    except _Passed:
        return False
    except sqlite.OperationalError as error:
        if schema.is_damage(error):
            raise
        return False
    return changed


def read(root: str, path: str, profile: Profile, hint: str | None) -> tuple[Entry | None, str | None]:
    """Return the entry in a file, if it has one, and what is wrong with the file, if anything is."""
    try:
        entry = READERS[profile.kind].read(root, path, profile, hint)
    except Unreadable as error:
        return None, f"{error}; skipped"
    return entry, entry.problem if entry is not None else None


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


def _write_plan(
    index: Index, places: Collection[str] | None, numbers: Sequence[int], most: int | None
) -> None:
    """Find out what is different, and write it; without the lock first, since mostly nothing is."""
    (version,) = index.connection.execute("PRAGMA data_version").fetchone()
    plan = make(index.connection, index.root, index.kind, index.profiles, places)
    numbers = [number for number in numbers if _is_worth_writing(index, number)]
    plan.changed = [each for each in plan.changed if _is_worth_writing(index, each)]
    if plan.is_empty and not numbers:
        return
    with _transaction(index) as writer:
        (now,) = index.connection.execute("PRAGMA data_version").fetchone()
        if now != version:  # another process wrote meanwhile, most likely the same
            plan = make(index.connection, index.root, writer.about["kind"], index.profiles, places)
        newest = sorted(
            plan.new, key=lambda path: -plan.stamps[path][1]
        )  # read first: the likeliest to matter
        index.left_out = 0 if most is None else max(0, len(newest) - most)
        plan.new = {path: plan.new[path] for path in newest[:most]}
        writer.carry_out(plan)
        writer.mark_changed(numbers)
        _read_batch(index, writer)


def _is_worth_writing(index: Index, number: int) -> bool:
    """Whether reading a file gives more than is known: not so while it is as it was, and still not sure."""
    query = "SELECT path, hint, digest, size, mtime, inode FROM file WHERE number = ? AND NOT pending"
    row = index.connection.execute(query, (number,)).fetchone()
    if row is None:
        return True
    path, hint, digest, *stamp = row
    now = watch.look(f"{index.root}/{path}")
    if now is None or now != tuple(stamp) or watch.is_sure(now[1], watch.clock()):
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
    if not 0 <= watch.clock() - index.updated < _STALLED * 1e9 or index.builder == os.getpid():
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
        index.load(schema.about(index.connection))


@contextmanager
def _transaction(index: Index) -> Iterator[Writer]:
    try:
        index.connection.execute("BEGIN IMMEDIATE")
    except sqlite.OperationalError as error:
        if schema.is_busy(error):
            index.connection.execute("PRAGMA busy_timeout = 0")  # one wait a query is enough
            raise _Passed from None
        raise
    try:
        writer = Writer(index.connection, index.root, schema.about(index.connection))
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
