"""Lists the files of a store that may be entries, with what tells whether they changed.

Nothing outside the store is listed: links that lead out of it are named as problems instead.
`.judgekitignore` at the root of a store leaves files out, as git reads a .gitignore: of two patterns that
match, the later one counts, and `!` takes a name back in; what stands in a folder that is left out cannot
come back.
"""

from __future__ import annotations

import os

from judgekit.retrieval import index_file
from judgekit.retrieval.sources import KINDS, markdown
from judgekit.retrieval.sources.base import contained
from judgekit.text import lines_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from judgekit.retrieval.compiled import Profiles
    from judgekit.retrieval.index_file import Stamp

IGNORE = ".judgekitignore"
OWN = ("index.md", "MEMORY.md", IGNORE)  # files that say something about the others, in stores of any kind
MAX_FILES = 250_000
MAX_DEPTH = 12
_NOT_DOCUMENTS = frozenset({"node_modules", "__pycache__", "venv"})
_IGNORE_CHARS = 100_000
_MAX_PATTERNS = 1_000


class IgnoreRules:
    """The patterns of one store, in their order."""

    def __init__(self, lines: Iterable[str]) -> None:
        from judgekit.config import patterns  # noqa: PLC0415 - few stores have such a file

        self.patterns: list[patterns.Pattern] = []
        for line in lines:
            try:
                pattern = patterns.parse(line.removesuffix("\r"))
            except ValueError:  # it can match nothing
                continue
            if pattern is not None:
                self.patterns.append(pattern)
        del self.patterns[_MAX_PATTERNS:]

    def match(self, path: str, *, folder: bool) -> bool:
        """Whether a path relative to the root is left out; those above it are taken to be in."""
        for pattern in reversed(self.patterns):
            if (folder or not pattern.folders_only) and pattern.entry.fullmatch(path):
                return not pattern.takes_back
        return False


class Listing:
    """What stands in one folder: files, folders to look into, problems; stamped before it was read."""

    __slots__ = ("files", "folders", "problems", "read", "stamp")

    def __init__(self, stamp: Stamp | None, read: int) -> None:
        self.stamp, self.read = stamp, read
        self.files: dict[str, Stamp] = {}
        self.folders: list[str] = []
        self.problems: list[str] = []


class Store:
    """A folder and the rules by which its kind of store is listed. `root` is a real path.

    `room` is how many more files may be listed.
    """

    def __init__(self, root: str, kind: str, profiles: Profiles) -> None:
        self.root, self.kind, self.source = root, kind, KINDS[kind]
        # Looked into in a store of any kind, since a first record there changes the kind.
        self.record_folders = frozenset(
            category.folder
            for profile in profiles.by_kind.values()
            for category in profile.categories.values()
        )
        self.rules = _ignore_rules(root)
        self.room = MAX_FILES

    def list(self, relative: str) -> Listing:
        """List one folder; of one that is gone or may not be read nothing is there."""
        read = index_file.clock()
        listing = Listing(index_file.look_at_folder(self.path(relative)), read)
        endings = self.source.ENDINGS if self.source.lists(relative) else ()
        for entry in self._entries(relative, listing):
            name = f"{relative}/{entry.name}" if relative else entry.name
            if entry.name.startswith(".") or not _is_text(entry.name):
                continue
            if self._is_folder(name, entry, listing):
                if self._is_wanted(name) and not self._ignores(name, folder=True):
                    listing.folders.append(name)
            elif entry.name.endswith(endings) and not self._ignores(name, folder=False):
                self._add(name, entry, listing)
        return listing

    def walk(self) -> Listing:
        """List all files."""
        everything, folders = Listing(None, 0), [""]
        while folders:
            listing = self.list(folders.pop())
            everything.files |= listing.files
            everything.problems += listing.problems
            folders += listing.folders
        return everything

    def path(self, relative: str) -> str:
        """Return the absolute path of what stands at `relative`."""
        return f"{self.root}/{relative}" if relative else self.root

    def leaves_out(self, relative: str) -> bool:
        """Whether the store ignores a file, itself or with a folder above it."""
        parts = relative.split("/")
        above = ("/".join(parts[:count]) for count in range(1, len(parts)))
        return any(self._ignores(folder, folder=True) for folder in above) or self._ignores(
            relative, folder=False
        )

    def _is_wanted(self, folder: str) -> bool:
        if self.source.DEEP:
            return folder.count("/") < MAX_DEPTH and folder.rpartition("/")[2] not in _NOT_DOCUMENTS
        return folder in self.record_folders

    def _is_folder(self, name: str, entry: os.DirEntry[str], listing: Listing) -> bool:
        if entry.is_dir(follow_symlinks=False):
            return True
        if not self.source.LINKED_FOLDERS or name not in self.record_folders or not entry.is_symlink():
            return False
        return os.path.isdir(entry.path) and self._holds(name, listing)

    def _ignores(self, name: str, *, folder: bool) -> bool:
        return self.rules is not None and name not in OWN and self.rules.match(name, folder=folder)

    def _add(self, name: str, entry: os.DirEntry[str], listing: Listing) -> None:
        try:
            if not entry.is_file() or (entry.is_symlink() and not self._holds(name, listing)):
                return
        except OSError:  # a link to itself
            return
        stamp = index_file.look(entry.path)
        if stamp is None:  # it went away meanwhile
            return
        self.room -= 1
        if self.room >= 0:
            listing.files[name] = stamp
        elif self.room == -1:
            listing.problems.append(f"{self.root}: more than {MAX_FILES:,} files; the rest is ignored")

    def _entries(self, relative: str, listing: Listing) -> Iterator[os.DirEntry[str]]:
        path = self.path(relative)
        if relative and os.path.islink(path) and not self._holds(relative, listing):
            return
        try:
            with os.scandir(path) as entries:
                yield from entries
        except OSError:  # no such folder, or no permission: nothing to list
            return

    def _holds(self, relative: str, listing: Listing) -> bool:
        if contained(self.root, relative):
            return True
        listing.problems.append(f"{relative}: outside {self.root}; ignored")
        return False


def kind_of(root: str, profiles: Profiles) -> str:
    """Return which kind of store is at `root`."""
    kinds = (kind for kind, source in KINDS.items() if source.is_at(root, profiles.by_kind[kind]))
    return next(kinds, markdown.NAME)


def _ignore_rules(root: str) -> IgnoreRules | None:
    path = os.path.join(root, IGNORE)
    if not os.path.isfile(path) or os.path.islink(path):
        return None
    try:
        with open(path, encoding="utf-8-sig", errors="replace", newline="\n") as file:
            return IgnoreRules(lines_of(file.read(_IGNORE_CHARS)))
    except OSError:
        return None


def _is_text(name: str) -> bool:
    """Whether a file's name can be stored and printed: names that are no UTF-8 hold lone surrogates."""
    return name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)
