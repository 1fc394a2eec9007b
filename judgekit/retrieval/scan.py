"""Lists the files of a store that may be entries, with what tells whether they changed.

Nothing outside the store is listed: links that lead out of it are named as problems instead.
"""

from __future__ import annotations

import os

from judgekit.retrieval import watch
from judgekit.retrieval.compiled import AUTO_MEMORY, CLAUDE_MEMORY, MARKDOWN
from judgekit.text import lines_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.retrieval.compiled import Profile
    from judgekit.retrieval.ignore import IgnoreRules
    from judgekit.retrieval.watch import Stamp

IGNORE = ".judgekitignore"
OWN = ("index.md", "MEMORY.md", IGNORE)  # files that say something about the others, in stores of any kind
MARKDOWN_ENDINGS = (".md", ".markdown", ".mdx")
MAX_FILES = 250_000
MAX_DEPTH = 12
_NOT_DOCUMENTS = frozenset({"node_modules", "__pycache__", "venv"})


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

    def __init__(self, root: str, kind: str, memory: Profile) -> None:
        self.root, self.kind = root, kind
        self.categories = frozenset(_folders(memory))
        self.rules = _rules(root)
        self.room = MAX_FILES

    def list(self, relative: str) -> Listing:
        """List one folder; of one that is gone or may not be read nothing is there."""
        read = watch.clock()
        listing = Listing(watch.look_at_folder(self.path(relative)), read)
        endings = self._endings(relative)
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

    def walk(self, start: str = "") -> Iterator[tuple[str, Listing]]:
        """List a folder and all below it."""
        pending = [start]
        while pending:
            relative = pending.pop()
            listing = self.list(relative)
            yield relative, listing
            pending += listing.folders

    def path(self, relative: str) -> str:
        """Return the absolute path of what stands at `relative`."""
        return f"{self.root}/{relative}" if relative else self.root

    def leaves_out(self, relative: str) -> bool:
        """Whether the store ignores a file, itself or with a folder above it."""
        parts = relative.split("/")
        above = ("/".join(parts[:count]) for count in range(1, len(parts)))
        return any(self._ignores(each, folder=True) for each in above) or self._ignores(
            relative, folder=False
        )

    def _endings(self, relative: str) -> tuple[str, ...]:
        if self.kind == MARKDOWN:
            return MARKDOWN_ENDINGS
        if self.kind == AUTO_MEMORY:
            return () if relative else MARKDOWN_ENDINGS
        return (".json",) if relative else ()

    def _is_wanted(self, name: str) -> bool:
        """Whether a folder is looked into; those of a claude-memory store are, since they tell the kind."""
        if self.kind == MARKDOWN:
            return name.count("/") < MAX_DEPTH and name.rpartition("/")[2] not in _NOT_DOCUMENTS
        return name in self.categories

    def _is_folder(self, name: str, entry: os.DirEntry[str], listing: Listing) -> bool:
        if entry.is_dir(follow_symlinks=False):
            return True
        if self.kind == MARKDOWN or name not in self.categories or not entry.is_symlink():
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
        stamp = watch.look(entry.path)
        if stamp is None:  # it went away meanwhile
            return
        self.room -= 1
        if self.room >= 0:
            listing.files[name] = stamp
        elif self.room == -1:
            listing.problems.append(f"{self.root}: more than {MAX_FILES:,} files; the rest is left out")

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
        listing.problems.append(f"{relative}: leads out of {self.root}; left out")
        return False


class Scan:
    """All that stands in a store: `files` by path relative to the root, `/` as separator, and `problems`."""

    __slots__ = ("files", "problems", "root")

    def __init__(self, root: str) -> None:
        self.root = root
        self.files: dict[str, Stamp] = {}
        self.problems: list[str] = []


def scan(root: str, kind: str, memory: Profile) -> Scan:
    """List the files of the store at `root`; `memory` is the profile of claude-memory stores."""
    found = Scan(os.path.realpath(root))
    for _, listing in Store(found.root, kind, memory).walk():
        found.files |= listing.files
        found.problems += listing.problems
    return found


def contained(root: str, relative: str) -> str | None:
    """Return the real path of `relative` under the real path `root`, None when it is outside."""
    real = os.path.realpath(os.path.join(root, relative))
    return real if real.startswith(root.rstrip(os.sep) + os.sep) else None


def kind_of(root: str, memory: Profile) -> str:
    """Return which kind of store is at `root`; `memory` is the profile of claude-memory stores."""
    if os.path.isfile(os.path.join(root, "memory-config.json")) or _has_records(root, memory):
        return CLAUDE_MEMORY
    if os.path.isfile(os.path.join(root, "MEMORY.md")):
        return AUTO_MEMORY
    return CLAUDE_MEMORY if _has_index_lines(root) else MARKDOWN


def _rules(root: str) -> IgnoreRules | None:
    path = os.path.join(root, IGNORE)
    if not os.path.isfile(path) or os.path.islink(path):
        return None
    from judgekit.retrieval import ignore  # noqa: PLC0415 - few stores have such a file

    return ignore.read(path)


def _is_text(name: str) -> bool:
    """Whether a file's name can be stored and printed: names that are no UTF-8 hold lone surrogates."""
    return name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)


def _folders(memory: Profile) -> list[str]:
    return [category.folder for category in memory.categories.values() if category.folder]


def _has_records(root: str, memory: Profile) -> bool:
    return any(
        contained(root, folder) and _has_record(os.path.join(root, folder)) for folder in _folders(memory)
    )


def _has_record(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(
                entry.name.endswith(".json") and not entry.name.startswith(".") and entry.is_file()
                for entry in entries
            )
    except OSError:
        return False


def _has_index_lines(root: str) -> bool:
    path = os.path.join(root, "index.md")
    if not os.path.isfile(path) or not contained(os.path.realpath(root), "index.md"):
        return False  # reading a device may never end
    try:
        with open(path, "rb") as file:
            head = file.read(4000).decode("utf-8", "replace")
    except OSError:
        return False
    return any(line.startswith("- [") and "] " in line and " -> " in line for line in lines_of(head))
