"""Lists the files of a store that may be entries, with what tells whether they changed.

Nothing outside the store is listed: links that lead out of it are named as problems instead.
"""

from __future__ import annotations

import os

from judgekit.retrieval.compiled import AUTO_MEMORY, CLAUDE_MEMORY, MARKDOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    from judgekit.retrieval.compiled import Profile

    Stamp: TypeAlias = tuple[int, int, int]  # size, mtime_ns, inode

INDEX = {CLAUDE_MEMORY: "index.md", AUTO_MEMORY: "MEMORY.md", MARKDOWN: None}
MARKDOWN_ENDINGS = (".md", ".markdown", ".mdx")
MAX_FILES = 50_000
MAX_DEPTH = 12
_NOT_DOCUMENTS = frozenset({"node_modules", "__pycache__", "venv"})


class Scan:
    """What stands in a store: `files` by path relative to the root, `/` as separator, and `problems`."""

    __slots__ = ("files", "problems", "root")

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)
        self.files: dict[str, Stamp] = {}
        self.problems: list[str] = []

    def folder(self, relative: str, endings: tuple[str, ...]) -> list[str]:
        """Add the files of one folder that end so, and return its own subfolders."""
        subfolders = []
        for entry in self._entries(relative):
            name = f"{relative}/{entry.name}" if relative else entry.name
            if entry.name.startswith(".") or not _is_text(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                subfolders.append(name)
            elif entry.name.endswith(endings) and len(self.files) < MAX_FILES:
                self._add(name, entry)
        return subfolders

    def file(self, relative: str) -> None:
        """Add one file, if it is there."""
        path = os.path.join(self.root, relative)
        if os.path.isfile(path) and self._holds(relative):
            status = os.stat(path)
            self.files[relative] = (status.st_size, status.st_mtime_ns, status.st_ino)

    def _add(self, name: str, entry: os.DirEntry[str]) -> None:
        try:
            if not entry.is_file() or (entry.is_symlink() and not self._holds(name)):
                return
            status = entry.stat()
        except OSError:  # it went away meanwhile, or is a link to itself
            return
        self.files[name] = (status.st_size, status.st_mtime_ns, status.st_ino)

    def _entries(self, relative: str) -> Iterator[os.DirEntry[str]]:
        path = os.path.join(self.root, relative) if relative else self.root
        if os.path.islink(path) and not self._holds(relative):
            return
        try:
            with os.scandir(path) as entries:
                yield from entries
        except OSError:  # no such folder, or no permission: nothing to list
            return

    def _holds(self, relative: str) -> bool:
        if contained(self.root, relative):
            return True
        self.problems.append(f"{relative}: leads out of {self.root}; left out")
        return False


def contained(root: str, relative: str) -> str | None:
    """Return the real path of `relative` under the real path `root`, None when it is outside."""
    real = os.path.realpath(os.path.join(root, relative))
    return real if real.startswith(root.rstrip(os.sep) + os.sep) else None


def kind_of(root: str, profile: Profile) -> str:
    """Return which kind of store is at `root`; `profile` is the one of claude-memory stores."""
    if os.path.isfile(os.path.join(root, "memory-config.json")) or _has_records(root, profile):
        return CLAUDE_MEMORY
    if os.path.isfile(os.path.join(root, "MEMORY.md")):
        return AUTO_MEMORY
    return CLAUDE_MEMORY if _has_index_lines(os.path.join(root, "index.md")) else MARKDOWN


def scan(root: str, kind: str, profile: Profile) -> Scan:
    """List the files of the store at `root`."""
    found = Scan(root)
    if kind == CLAUDE_MEMORY:
        found.file("index.md")
        for folder in _folders(profile):
            found.folder(folder, (".json",))
    elif kind == AUTO_MEMORY:
        found.folder("", MARKDOWN_ENDINGS)
    else:
        _walk(found)
    return found


def _is_text(name: str) -> bool:
    """Whether a file's name can be stored and printed: names that are no UTF-8 hold lone surrogates."""
    return name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)


def _walk(found: Scan) -> None:
    pending = [""]
    while pending:
        for folder in found.folder(pending.pop(), MARKDOWN_ENDINGS):
            name = folder.rpartition("/")[2]
            if folder.count("/") < MAX_DEPTH and name not in _NOT_DOCUMENTS:
                pending.append(folder)


def _folders(profile: Profile) -> list[str]:
    return [each.folder for each in profile.categories.values() if each.folder]


def _has_records(root: str, profile: Profile) -> bool:
    found = Scan(root)
    for folder in _folders(profile):
        found.folder(folder, (".json",))
        if found.files:
            return True
    return False


def _has_index_lines(path: str) -> bool:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            head = file.read(4000)
    except OSError:
        return False
    return any(line.startswith("- [") and "] " in line and " -> " in line for line in head.splitlines())
