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
    """Return the main working tree of the repository that the working tree at `root` belongs to.

    Returns `root` if it isn't linked, or if the main repository doesn't confirm the link: it may be forged.
    A bare repository has no main working tree: its own folder is returned.
    """
    git_folder = find_git_folder(root)
    is_linked = git_folder and git_folder != os.path.join(root, _GIT_ENTRY)
    if not is_linked:
        return root

    common_line = _read_first_line(os.path.join(git_folder, "commondir"))
    common_folder = os.path.normpath(os.path.join(git_folder, common_line))
    worktrees_folder = os.path.realpath(f"{common_folder}/worktrees")
    is_in_repository = os.path.realpath(os.path.dirname(git_folder)) == worktrees_folder
    # The main repository confirms the link by naming the linked tree's `.git` in the file `gitdir`.
    back_line = _read_first_line(os.path.join(git_folder, "gitdir"))
    if not back_line or not is_in_repository:
        return root
    back_path = os.path.realpath(os.path.join(git_folder, back_line))
    if back_path != os.path.join(os.path.realpath(root), _GIT_ENTRY):
        return root

    is_bare = os.path.basename(common_folder) != _GIT_ENTRY
    return common_folder if is_bare else os.path.dirname(common_folder)


def map_to_main_worktree(folder: str) -> str | None:
    """Map `folder` to the corresponding path in the main working tree.

    Returns None if `folder` isn't in a linked working tree.
    """
    root = find_git_root(folder)
    if root is None or not os.path.isfile(os.path.join(root, _GIT_ENTRY)):
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
