"""Finds the git repository around a folder, and the main working tree of a linked one, without running git.

A linked worktree has a file `.git` that names a folder in the main repository, which in turn names the
worktree. The main one is trusted only if both agree: an archive could bring such a file along.
"""

from __future__ import annotations

import os

_MARK = ".git"
_MOST = 4_096  # bytes of the files by which git links worktrees


def git_root(folder: str) -> str | None:
    """Return the nearest folder at or above an absolute path that git works in, or None."""
    while not os.path.lexists(os.path.join(folder, _MARK)):
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
    return folder


def git_folder_of(root: str) -> str:
    """Return git's own folder for the working tree at `root`; "" if there's no such folder."""
    mark = os.path.join(root, _MARK)
    if os.path.isdir(mark):
        return mark
    link = _read_first_line(mark)
    if not link.startswith("gitdir:"):
        return ""
    return os.path.join(root, link.removeprefix("gitdir:").strip())


def main_worktree(root: str) -> str:
    """Return the main working tree of the one at `root`: itself, unless it's linked.

    A bare repository has no working tree; then it's the repository's own folder.
    """
    git_folder = git_folder_of(root)
    is_linked = git_folder and git_folder != os.path.join(root, _MARK)
    if not is_linked:
        return root
    common_line = _read_first_line(os.path.join(git_folder, "commondir"))
    common = os.path.normpath(os.path.join(git_folder, common_line))
    worktrees = os.path.realpath(f"{common}/worktrees")
    is_in_repository = os.path.realpath(os.path.dirname(git_folder)) == worktrees
    back_line = _read_first_line(os.path.join(git_folder, "gitdir"))
    if not back_line or not is_in_repository:
        return root
    back = os.path.realpath(os.path.join(git_folder, back_line))
    if back != os.path.join(os.path.realpath(root), _MARK):
        return root
    if os.path.basename(common) == _MARK:
        return os.path.dirname(common)
    return common


def path_in_main_worktree(folder: str) -> str | None:
    """Return the counterpart of `folder` in the main working tree; None unless it's in a linked one."""
    root = git_root(folder)
    if root is None or not os.path.isfile(os.path.join(root, _MARK)):
        return None
    main = main_worktree(root)
    if main == root:
        return None
    return os.path.normpath(os.path.join(main, os.path.relpath(folder, root)))


def _read_first_line(path: str) -> str:
    """Return the first line of a small file; "" if it can't be read."""
    if not os.path.isfile(path):
        return ""
    try:
        with open(path, "rb") as file:
            raw = file.read(_MOST)
    except OSError:
        return ""
    return os.fsdecode(raw).partition("\n")[0].strip()
