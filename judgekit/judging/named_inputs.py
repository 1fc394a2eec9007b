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
from judgekit.text import escaped

_GIT = ".git"  # a folder, or a file in worktrees and submodules


@dataclass(frozen=True)
class NamedInputs:
    """The files that data in `folder` may name: those in `base`, relative to it or to the folder."""

    folder: Path
    base: Path

    @classmethod
    def of(cls, data: Path, base: Path | None = None) -> NamedInputs:
        """Allow the files that a data file may name, by default those in its own folder."""
        return cls(data.parent, base or data.parent)

    def read(self, name: str) -> str:
        """Read a file's text; raises `InputError` with the reason."""
        path = self._find_file(name)
        printable_name = escaped(name)
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
        base = self.base.resolve()
        is_outside = False  # whether a path leads out of the base folder
        for folder in dict.fromkeys((self.base, self.folder)):
            try:
                path = (folder / name).resolve()
                is_there = path.exists()
            except (OSError, RuntimeError, ValueError):  # too long, circular links, or a NUL
                raise InputError(f"{escaped(name)} cannot be read (not a path)") from None
            if not path.is_relative_to(base):
                is_outside = True
            elif is_there:
                return path

        if is_outside:
            remedy = "name the folder that holds the files with --base DIR"
            raise InputError(f"{escaped(name)} is outside of {self.base}; {remedy}")
        raise InputError(f"{escaped(name)} cannot be read (there is no such file in {self.base})")

    @cached_property
    def _tracked(self) -> frozenset[Path] | None:
        """The files in the base folder that git tracks, or None outside of a checkout.

        Raises `InputError` if git fails.
        """
        base = self.base.resolve()
        if find_checkout(base) is None:
            return None
        try:
            return tracked_files(base)
        except GitError as error:
            raise InputError(
                f"git does not say which files of {base} it tracks ({error})"
            ) from None


def tracked_files(folder: Path) -> frozenset[Path]:
    """List the files that git tracks in a folder, whose path has no links; raises `GitError`."""
    listed = Repository(folder).ask("ls-files", "-z", "--cached")
    return frozenset(folder / os.fsdecode(name) for name in listed.split(b"\0") if name)


def find_checkout(path: Path) -> Path | None:
    """Return the nearest git checkout at or above an absolute path, or None."""
    for folder in (path, *path.parents):
        if os.path.lexists(folder / _GIT):
            return folder
    return None


def refuse_link_out(path: str) -> None:
    """Raise `InputError` if a link leads out of its checkout, or from a tracked file to an untracked one."""
    if "\0" in path:  # not a valid path; reading the file reports that later
        return
    absolute_path = Path(path).absolute()
    checkout = find_checkout(absolute_path.parent)
    if checkout is None:
        return

    # Resolve links in the same way as the system does, including those in `link/../file`.
    real_path = Path(path).resolve()
    real_checkout = checkout.resolve()
    path_in_checkout = absolute_path.relative_to(checkout)
    if real_path == real_checkout / path_in_checkout:  # not a link
        return
    if not real_path.is_relative_to(real_checkout):
        raise InputError(
            f"{escaped(path)}: a link that leads out of its checkout, {checkout}; "
            "name the file that it leads to"
        )
    _refuse_link_to_untracked(path, path_in_checkout, real_path, real_checkout)


def _refuse_link_to_untracked(
    path: str, path_in_checkout: Path, real_path: Path, real_checkout: Path
) -> None:
    """Raise `InputError` if a link that came with a git clone leads to a file that git doesn't track."""
    link = escaped(path)
    try:
        tracked = tracked_files(real_checkout)
    except GitError as error:
        raise InputError(f"{link}: git does not say which files it tracks ({error})") from None

    # The link is either the path itself or one of its folders. If git doesn't track the link, the user has
    # created it, so it can be trusted.
    possible_links = (path_in_checkout, *path_in_checkout.parents)
    came_with_clone = any(
        real_checkout / possible_link in tracked for possible_link in possible_links
    )
    if not came_with_clone:
        return

    # The link can lead to a tracked file, or to a folder that contains tracked files.
    ends_at_tracked = real_path in tracked or any(
        file.is_relative_to(real_path) for file in tracked
    )
    if not ends_at_tracked:
        raise InputError(
            f"{link}: a link to a file that git does not track; name the file that it leads to"
        )


def _read_regular_file(path: Path) -> bytes:
    """Read a regular file. For a pipe or a device, raise `OSError` rather than wait for it."""
    # Some flags don't exist on every system.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0))
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "it is a folder, a pipe or a device")
        return file.read()
