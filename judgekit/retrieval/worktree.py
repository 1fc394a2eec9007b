"""Finds the git repository around a folder, and the main working tree of a linked one, without running git.

A linked worktree has a file `.git` that names a folder in the main repository, which in turn names the
worktree. The main one is trusted only if both agree: an archive could bring such a file along.
"""

from __future__ import annotations

import os

_GIT_ENTRY = ".git"
_MAX_LINK_BYTES = 4_096  # bytes of the files by which git links worktrees


def find_git_root(folder: str) -> str | None:
    """Return the root of the working tree around an absolute path; None if there isn't any."""
    while not os.path.lexists(os.path.join(folder, _GIT_ENTRY)):
        parent = os.path.dirname(folder)
        is_topmost = parent == folder
        if is_topmost:
            return None
        folder = parent
    return folder


def find_git_folder(root: str) -> str:
    """Return git's own folder for the working tree at `root`; "" if there's none."""
    path = os.path.join(root, _GIT_ENTRY)
    if os.path.isdir(path):
        return path
    # In a linked worktree, `.git` is a file with the line `gitdir: PATH`.
    first_line = _read_first_line(path)
    if not first_line.startswith("gitdir:"):
        return ""
    return os.path.join(root, first_line.removeprefix("gitdir:").strip())


def find_main_worktree(root: str) -> str:
    """Return a repository's main working tree, given the `root` of any of its working trees.

    Returns `root` if it isn't linked, or if the main repository doesn't confirm the link: it may be forged.
    A bare repository has no main working tree: its own folder is returned.
    """
    git_folder = find_git_folder(root)
    is_linked = git_folder not in ("", os.path.join(root, _GIT_ENTRY))
    if not is_linked:
        return root

    common_line = _read_first_line(os.path.join(git_folder, "commondir"))
    common_folder = os.path.normpath(os.path.join(git_folder, common_line))
    if not _is_link_confirmed(root, git_folder, common_folder):
        return root

    is_bare = os.path.basename(common_folder) != _GIT_ENTRY
    return common_folder if is_bare else os.path.dirname(common_folder)


def _is_link_confirmed(root: str, git_folder: str, common_folder: str) -> bool:
    """Whether `git_folder` is one of the main repository's worktrees, and names `root` as its tree."""
    worktrees_folder = os.path.realpath(f"{common_folder}/worktrees")
    is_in_repository = os.path.realpath(os.path.dirname(git_folder)) == worktrees_folder
    if not is_in_repository:
        return False

    # The file `gitdir` contains the path of the linked tree's `.git`.
    back_line = _read_first_line(os.path.join(git_folder, "gitdir"))
    if not back_line:
        return False
    back_path = os.path.realpath(os.path.join(git_folder, back_line))
    return back_path == os.path.join(os.path.realpath(root), _GIT_ENTRY)


def map_to_main_worktree(folder: str) -> str | None:
    """Map `folder` to the corresponding path in the main working tree.

    Returns None if `folder` isn't in a linked working tree.
    """
    root = find_git_root(folder)
    if root is None:
        return None
    # In a linked working tree, `.git` is a file; in most main ones, it's a folder.
    may_be_linked = os.path.isfile(os.path.join(root, _GIT_ENTRY))
    if not may_be_linked:
        return None
    main_root = find_main_worktree(root)
    if main_root == root:  # not linked, or the link is unconfirmed
        return None
    relative_path = os.path.relpath(folder, root)
    return os.path.normpath(os.path.join(main_root, relative_path))


def _read_first_line(path: str) -> str:
    """Return a small file's first line; "" if the file can't be read."""
    if not os.path.isfile(path):
        return ""
    try:
        with open(path, "rb") as file:
            raw = file.read(_MAX_LINK_BYTES)
    except OSError:
        return ""
    first_line, _, _ = os.fsdecode(raw).partition("\n")
    return first_line.strip()
