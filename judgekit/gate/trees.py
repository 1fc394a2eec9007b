"""A commit's files at some paths: a blob for each entry, even if a name occurs twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit.gate.history import REGULAR_FILE_MODE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from judgekit.git import Repository


class Tree:
    """The blobs of regular files by path, and the paths that are links or submodules."""

    def __init__(self) -> None:
        self.blobs: dict[str, list[str]] = {}
        self.non_file_paths: set[str] = set()

    @classmethod
    def read(cls, repository: Repository, commit: str, is_needed: Callable[[str], bool]) -> Tree:
        """Read a commit's files at the needed paths; raises `GitError`."""
        tree = cls()
        for entry in repository.list_tree(commit):
            if not is_needed(entry.path):
                continue

            is_regular_file = entry.mode.startswith(REGULAR_FILE_MODE_PREFIX)
            if is_regular_file:
                # A malformed tree can contain a path twice, so each path has a list of blobs.
                blobs = tree.blobs.setdefault(entry.path, [])
                if entry.oid not in blobs:
                    blobs.append(entry.oid)
            else:  # a link or a submodule
                tree.non_file_paths.add(entry.path)

        return tree

    def has(self, path: str, blob: str) -> bool:
        """Whether a path has this blob."""
        return blob in self.blobs.get(path, ())

    def list_repeated_paths(self) -> list[str]:
        """List the paths that the tree contains more than once, with different blobs."""
        return [path for path, blobs in self.blobs.items() if len(blobs) > 1]
