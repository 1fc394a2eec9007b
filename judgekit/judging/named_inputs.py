"""Files named by others: in a file of labelled cases, or by a link in a clone.

A clone may name `../private.txt`, `/proc/self/environ`, a link or a pipe, and a file that's read gets sent
to a provider. So a name only counts inside the folder the user chose, and in a checkout only if git tracks
the file.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from judgekit.errors import InputError
from judgekit.git import GitError, Repository
from judgekit.text import escape_name

_GIT_ENTRY_NAME = ".git"  # a folder, or a file in worktrees and submodules


@dataclass(frozen=True)
class NamedInputs:
    """The files that data in `folder` may name: those in `base_folder`, relative to it or to the folder."""

    folder: Path
    base_folder: Path

    @classmethod
    def of(cls, data: Path, base: Path | None = None) -> NamedInputs:
        """Allow the files that a data file may name, by default those in its own folder."""
        return cls(data.parent, base or data.parent)

    def read(self, name: str) -> str:
        """Read a file's text; raises `InputError` with the reason."""
        path = self._find_file(name)
        printable_name = escape_name(name)
        if self._tracked is not None and path not in self._tracked:
            remedy = "add it with git, or put its text into the case"
            raise InputError(f"{printable_name} is no file that git tracks; {remedy}")
        try:
            return _read_regular_file(path).decode("utf-8-sig")
        except OSError as error:
            raise InputError(f"{printable_name} cannot be read ({error.strerror})") from None
        except UnicodeDecodeError as error:
            raise InputError(f"{printable_name} is not UTF-8 (byte {error.start})") from None

    def _find_file(self, name: str) -> Path:
        """Return the path of a named file, with links resolved.

        Raises `InputError` if the file doesn't exist, or isn't in the base folder.
        """
        base = self.base_folder.resolve()
        leads_outside = False
        # A name can be relative to the base folder, or to the folder of the file that contains it.
        folders = dict.fromkeys((self.base_folder, self.folder))  # just one if they're the same
        for folder in folders:
            path, is_there = _resolve_name(folder, name)
            if not path.is_relative_to(base):
                leads_outside = True
            elif is_there:
                return path

        if leads_outside:
            remedy = "name the folder that holds the files with --base DIR"
            raise InputError(f"{escape_name(name)} is outside of {self.base_folder}; {remedy}")
        raise InputError(
            f"{escape_name(name)} cannot be read (there is no such file in {self.base_folder})"
        )

    @cached_property
    def _tracked(self) -> frozenset[Path] | None:
        """The files in the base folder that git tracks, or None outside of a checkout.

        Raises `InputError` if git fails.
        """
        base = self.base_folder.resolve()
        if find_checkout(base) is None:
            return None
        try:
            return tracked_files(base)
        except GitError as error:
            raise InputError(
                f"git does not say which files of {base} it tracks ({error})"
            ) from None


def _resolve_name(folder: Path, name: str) -> tuple[Path, bool]:
    """Resolve a file's name in a folder. Returns its path, and if that exists.

    Raises `InputError` if the name can't be a path.
    """
    try:
        path = (folder / name).resolve()
        return path, path.exists()
    except (OSError, RuntimeError, ValueError):  # too long, circular links, or a NUL
        raise InputError(f"{escape_name(name)} cannot be read (not a path)") from None


def tracked_files(folder: Path) -> frozenset[Path]:
    """List the files that git tracks in a folder, whose path has no links; raises `GitError`."""
    listed = Repository(folder).ask("ls-files", "-z", "--cached")
    return frozenset(folder / os.fsdecode(name) for name in listed.split(b"\0") if name)


def find_checkout(path: Path) -> Path | None:
    """Return the nearest git checkout at or above an absolute path, or None."""
    for folder in (path, *path.parents):
        if os.path.lexists(folder / _GIT_ENTRY_NAME):
            return folder
    return None


def refuse_link_out(path: str) -> None:
    """Raise `InputError` if a link leads out of its checkout, or a tracked link to an untracked file.

    A link can be the path itself or one of its folders.
    """
    if "\0" in path:  # not a valid path; reading the file reports that later
        return
    absolute_path = _resolve_parent_steps(Path(path).absolute())
    checkout = find_checkout(absolute_path.parent)
    if checkout is None:
        return

    # In `link/../file`, this takes `..` for the parent of the link's target, as the system does.
    real_path = Path(path).resolve()
    real_checkout = checkout.resolve()
    path_in_checkout = absolute_path.relative_to(checkout)
    has_no_link = real_path == real_checkout / path_in_checkout
    if has_no_link:
        return
    if not real_path.is_relative_to(real_checkout):
        raise InputError(
            f"{escape_name(path)}: a link that leads out of its checkout, {checkout}; "
            "name the file that it leads to"
        )
    _refuse_link_to_untracked(path, path_in_checkout, real_path, real_checkout)


def _resolve_parent_steps(path: Path) -> Path:
    """Resolve each `..` in an absolute path: `checkout/../file` isn't a file in the checkout.

    A `..` behind a link stays, because it's the parent of the link's target.
    """
    resolved = Path(path.anchor)
    for part in path.parts[1:]:
        can_step_up = resolved.name != ".." and not resolved.is_symlink()
        if part == ".." and can_step_up:
            resolved = resolved.parent
        else:
            resolved = resolved / part
    return resolved


def _refuse_link_to_untracked(
    path: str, path_in_checkout: Path, real_path: Path, real_checkout: Path
) -> None:
    """Raise `InputError` if a link that came with a git clone leads to a file that git doesn't track."""
    link = escape_name(path)
    try:
        tracked = tracked_files(real_checkout)
    except GitError as error:
        raise InputError(f"{link}: git does not say which files it tracks ({error})") from None

    if not _contains_tracked_link(path_in_checkout, real_checkout, tracked):
        return  # the user has created the link, so it can be trusted
    if not _leads_to_tracked(real_path, tracked):
        raise InputError(
            f"{link}: a link to a file that git does not track; name the file that it leads to"
        )


def _contains_tracked_link(
    path_in_checkout: Path, real_checkout: Path, tracked: frozenset[Path]
) -> bool:
    """Whether git tracks the link in a path, which is the path itself or one of its folders."""
    possible_links = (path_in_checkout, *path_in_checkout.parents)
    return any(real_checkout / possible_link in tracked for possible_link in possible_links)


def _leads_to_tracked(real_path: Path, tracked: frozenset[Path]) -> bool:
    """Whether a link leads to a tracked file, or to a folder that contains one."""
    if real_path in tracked:
        return True
    return any(file.is_relative_to(real_path) for file in tracked)


def _read_regular_file(path: Path) -> bytes:
    """Read a regular file. For a pipe or a device, raise `OSError` rather than wait for it."""
    descriptor = os.open(path, _combine_open_flags())
    with os.fdopen(descriptor, "rb") as file:
        is_regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        if not is_regular:
            raise OSError(0, "it is a folder, a pipe or a device")
        return file.read()


def _combine_open_flags() -> int:
    """Combine the flags for reading bytes, without following a link or waiting for a pipe."""
    flags = os.O_RDONLY
    # The path's links are resolved, so a link at its end has been put there since.
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"):
        flags |= getattr(os, name, 0)  # some systems don't have all of them
    return flags
