"""Finds what an index lacks: compares what stands in a store's changed folders with what was there before."""

from __future__ import annotations

from judgekit.retrieval import scan, watch
from judgekit.retrieval.compiled import AUTO_MEMORY, CLAUDE_MEMORY, MARKDOWN
from judgekit.retrieval.sources import auto_memory, claude_memory, markdown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from sqlite3 import Connection
    from typing import Any

    from judgekit.retrieval.compiled import Profiles
    from judgekit.retrieval.scan import Listing, Store
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
            [""] if everywhere else [each for each in places or () if each not in scan.OWN], deep=everywhere
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
        pending = [each for each in places if each == "" or self.known.get(each, (1,))[0]]
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
        return [each for each in listing.folders if deep or moved or each not in self.known]

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
