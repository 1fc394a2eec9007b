"""Lists and reads the files of a store that may be entries, with stamps that show changes.

Nothing outside the store is listed: links that lead out of it are reported as problems instead.
`.judgekitignore` at the root of a store leaves files out, as git reads a .gitignore: of two matching
patterns, the later one counts, and `!` takes a name back in, but nothing in a folder that's left out.
"""

from __future__ import annotations

import os
from contextlib import suppress

from judgekit.retrieval import index_file
from judgekit.retrieval.sources import (
    Entry,
    Unreadable,
    auto_memory,
    claude_memory,
    markdown,
    resolve_inside,
)
from judgekit.text import split_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from judgekit.config.patterns import Pattern
    from judgekit.retrieval.compiled import Profile, Profiles
    from judgekit.retrieval.sources import Listed

SOURCE_BY_KIND: dict[str, Any] = {
    source.NAME: source for source in (claude_memory, auto_memory, markdown)
}
"""The kinds of stores, in the order in which they're recognised."""

IGNORE_FILE_NAME = ".judgekitignore"
# Files that describe the others, in stores of any kind.
STORE_FILE_NAMES = (
    "index.md",
    "MEMORY.md",
    IGNORE_FILE_NAME,
)
MAX_FILES = 250_000
MAX_DEPTH = 12
_MAX_PATTERNS = 1_000
_MAX_IGNORE_CHARS = 100_000  # characters of a `.judgekitignore`
_NON_DOCUMENT_FOLDERS = frozenset({"node_modules", "__pycache__", "venv"})


def parse_ignore_patterns(lines: Iterable[str]) -> list[Pattern]:
    """Parse the lines of a `.judgekitignore`, skipping invalid ones."""
    from judgekit.config import patterns  # noqa: PLC0415 - few stores have such a file

    parsed = []
    for line in lines:
        with suppress(ValueError):  # an invalid pattern
            pattern = patterns.parse(line)
            if pattern is not None:
                parsed.append(pattern)
    return parsed[:_MAX_PATTERNS]


def is_ignored(patterns: Sequence[Pattern], path: str, *, folder: bool) -> bool:
    """Whether a path relative to the root is ignored, provided that its parent folders aren't."""
    for pattern in reversed(patterns):  # the last matching pattern decides
        if pattern.is_for_folders and not folder:
            continue
        if pattern.path_regex.fullmatch(path):
            return not pattern.is_negated
    return False


class Listing:
    """The content of one folder, such as the files, or the problems with them.

    `stamp` is the folder's, taken at `read_at_ns`, before it was listed; None if there's no such folder.
    """

    __slots__ = ("files", "folders", "problems", "read_at_ns", "stamp")

    def __init__(self, stamp: index_file.Stamp | None, read_at: int) -> None:
        self.stamp = stamp
        self.read_at_ns = read_at  # in nanoseconds since the epoch
        self.files: dict[str, index_file.Stamp] = {}  # by path
        self.folders: list[str] = []  # to enter
        self.problems: list[str] = []


class Store:
    """A folder, whose `root` is a real path, and the rules for listing its kind of store."""

    def __init__(self, root: str, kind: str, profiles: Profiles) -> None:
        self.root = root
        self.kind = kind
        self.source = SOURCE_BY_KIND[kind]
        self._profile = profiles.by_kind[kind]
        self._own_list: Listed | None = None  # read when it's first needed
        self.record_folders = _list_record_folders(profiles)
        self.files_left = MAX_FILES  # how many more files may be listed
        self.patterns = _read_patterns(os.path.join(root, IGNORE_FILE_NAME))

    def list(self, relative: str) -> Listing:
        """List the files and subfolders directly in the folder `relative` ("" is the root).

        If the folder can't be read, or is a link out of the store, the listing has a problem and no files.
        """
        path = f"{self.root}/{relative}" if relative else self.root
        # Take the stamp before listing, so that a change in between results in another stamp.
        read_at = index_file.get_time_ns()
        stamp = index_file.read_stamp(path, folder=True)
        listing = Listing(stamp, read_at)

        is_root = not relative
        if is_root:
            # A store can have its own list of its entries. Report the problems with it once.
            listing.problems += self._read_own_list().problems
        elif os.path.islink(path) and not self._check_inside(relative, listing):
            return listing  # `_check_inside` has added the problem

        try:
            with os.scandir(path) as directory_entries:
                for directory_entry in directory_entries:
                    self._list_entry(relative, directory_entry, listing)
        except PermissionError:
            problem = "this folder may not be read, so nothing in it is searched"
            listing.problems.append(f"{relative or self.root}: {problem}")
        except OSError:  # the folder doesn't exist
            pass

        return listing

    def _list_entry(
        self, relative: str, directory_entry: os.DirEntry[str], listing: Listing
    ) -> None:
        """Add a file or subfolder of `relative` to its listing, if the store's rules allow it."""
        name = directory_entry.name
        is_hidden = name.startswith(".")
        if is_hidden or not _is_printable(name):
            return

        path = f"{relative}/{name}" if relative else name
        is_folder = self._is_folder(path, directory_entry, listing)
        # Files that describe the store can't be ignored.
        is_store_file = path in STORE_FILE_NAMES
        if not is_store_file and is_ignored(self.patterns, path, folder=is_folder):
            return

        if is_folder:
            if self._may_lead_to_entries(path):
                listing.folders.append(path)
        elif self._may_be_entry(relative, name):
            self._add_file(path, directory_entry, listing)

    def _may_be_entry(self, folder: str, name: str) -> bool:
        """Whether a file in a folder ("" is the root) can be an entry of this kind of store, by its name."""
        has_entries_here = self.source.BELOW if folder else self.source.IN_ROOT
        return has_entries_here and name.lower().endswith(self.source.ENDINGS)

    def _read_own_list(self) -> Listed:
        """Read the store's own list of entries, if any. The result is cached."""
        if self._own_list is None:
            self._own_list = self.source.read_listing(self.root, self._profile)
        return self._own_list

    def _may_lead_to_entries(self, path: str) -> bool:
        """Whether a folder can contain entries, directly or in subfolders."""
        if path in self.record_folders or self._leads_to_listed_folder(path):
            return True
        if not self.source.DEEP:  # this kind has no entries in other folders
            return False

        is_shallow = path.count("/") < MAX_DEPTH
        _, _, name = path.rpartition("/")
        return is_shallow and name not in _NON_DOCUMENT_FOLDERS

    def _leads_to_listed_folder(self, path: str) -> bool:
        """Whether a folder in the store's own list is at `path` or below it."""
        for folder in self._read_own_list().folders:
            is_below = folder.startswith(f"{path}/")
            if folder == path or is_below:
                return True
        return False

    def _is_folder(self, path: str, directory_entry: os.DirEntry[str], listing: Listing) -> bool:
        """Whether a directory entry is a folder to list. Only folders for records may be links."""
        if directory_entry.is_dir(follow_symlinks=False):
            return True

        may_be_link = self.source.LINKED_FOLDERS and path in self.record_folders
        is_allowed_link = may_be_link and directory_entry.is_symlink()
        if not is_allowed_link:
            return False

        # A link that leads out of the store isn't followed, and is a problem in the listing.
        return os.path.isdir(directory_entry.path) and self._check_inside(path, listing)

    def _add_file(self, path: str, directory_entry: os.DirEntry[str], listing: Listing) -> None:
        """Add a file to the listing, unless it's outside the store or there are too many."""
        if not self._is_file_inside(path, directory_entry, listing):
            return

        stamp = index_file.read_stamp(directory_entry.path)
        if stamp is None:  # it was just deleted
            return

        if self.files_left > 0:
            listing.files[path] = stamp
        elif self.files_left == 0:  # below 0, it has been reported
            problem = f"more than {MAX_FILES:,} files; the rest is ignored"
            listing.problems.append(f"{self.root}: {problem}")
        self.files_left -= 1

    def _is_file_inside(
        self, path: str, directory_entry: os.DirEntry[str], listing: Listing
    ) -> bool:
        """Whether a directory entry is a file, or a link to a file in the store.

        A link out of the store is a problem in the listing.
        """
        try:
            is_file = directory_entry.is_file()
            is_link = directory_entry.is_symlink()
        except OSError:  # e.g. a link to itself
            return False

        if not is_file:
            return False
        if is_link:
            return self._check_inside(path, listing)
        return True

    def _check_inside(self, relative: str, listing: Listing) -> bool:
        """Whether a link stays inside the store. Otherwise, add a problem."""
        if resolve_inside(self.root, relative):
            return True
        listing.problems.append(f"{relative}: outside {self.root}; ignored")
        return False


def _list_record_folders(profiles: Profiles) -> set[str]:
    """List the folders for records in all kinds of store, such as `decisions`.

    Every store looks into all of them, because the first record in one can turn it into another kind.
    """
    folders = set()
    for profile in profiles.by_kind.values():
        for category in profile.categories.values():
            if category["folder"]:
                folders.add(category["folder"])
    return folders


def _is_printable(name: str) -> bool:
    """Whether a name is UTF-8. Others contain lone surrogates, which can't be stored or printed."""
    return not any("\ud800" <= char <= "\udfff" for char in name)


def _read_patterns(path: str) -> list[Pattern]:
    """Read the patterns in an ignore file; [] if it's a link or can't be read."""
    if not os.path.isfile(path) or os.path.islink(path):
        return []
    try:
        with open(path, encoding="utf-8-sig", errors="replace", newline="\n") as file:
            text = file.read(_MAX_IGNORE_CHARS)
    except OSError:
        return []
    return parse_ignore_patterns(split_lines(text))


def detect_kind(root: str, profiles: Profiles) -> str:
    """Return the first kind that recognises a folder, or else the kind for documents."""
    for kind, source in SOURCE_BY_KIND.items():
        if source.is_store(root, profiles.by_kind[kind]):
            return kind
    return markdown.NAME


def read_file(root: str, path: str, profile: Profile) -> tuple[Entry | None, str | None]:
    """Read a file's entry, if any, and the problem with the file, if any."""
    try:
        entry = SOURCE_BY_KIND[profile.kind].read(root, path, profile)
    except Unreadable as error:
        return None, f"{error}; skipped"
    except Exception as error:  # noqa: BLE001 - one file must not cost the whole store
        return None, f"cannot be read ({type(error).__name__}: {error}); skipped"
    problem = None if entry is None else entry.problem
    return entry, problem


def read_entries(
    root: str, profiles: Profiles
) -> tuple[Profile, list[tuple[str, Entry]], list[str]]:
    """Read a complete store without an index. Returns its profile, its entries by path, and problems."""
    profile = profiles.by_kind[detect_kind(root, profiles)]
    store = Store(root, profile.kind, profiles)
    pending_folders = [""]
    files: list[str] = []
    problems: list[str] = []
    while pending_folders:
        listing = store.list(pending_folders.pop())
        files += listing.files
        problems += listing.problems
        pending_folders += listing.folders

    entries_with_paths = []
    for path in files:
        entry, problem = read_file(root, path, profile)
        if problem is not None:
            problems.append(f"{path}: {problem}")
        if entry is not None:
            entries_with_paths.append((path, entry))

    return profile, entries_with_paths, problems
