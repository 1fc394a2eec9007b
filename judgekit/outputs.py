"""Writes the files of judgekit: whole or not at all, or line after line, and never through a clone's link.

A clone may bring a link in the place of any file that a command writes there. So no link counts in a file's
own name or in a folder above it, up to the folder of the project. Outside of projects links are the user's.
Standard library only: the prompt hook imports this.
"""

from __future__ import annotations

import errno
import os
import stat

from judgekit import environment

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO, Self

PRIVATE = 0o600
USUAL = 0o666  # less what the user's umask takes away
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_WAITING = getattr(os, "O_NONBLOCK", 0)  # for a reader of a named pipe
_SQLITE_SUFFIXES = ("-journal", "-wal", "-shm")  # of files next to a database


class RefusedOutputError(OSError):
    """Nothing is written there, whoever asks: a link that a clone may have brought, a pipe or a device."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(errno.ELOOP, problem, path)


def place_of(path: str, *, private: bool = False) -> str:
    """Resolve the absolute path of an output file.

    Raises `RefusedOutputError` for an untrusted link, a pipe, a device or a socket, and `IsADirectoryError`.
    """
    absolute_path = os.path.abspath(path)
    # A link in a project may come from a clone, so no link is followed there. Links elsewhere, and those to a
    # `private` file, which is in a folder of judgekit, are the user's.
    project = None if private else _find_topmost_project(absolute_path)
    if project is not None:
        _refuse_links(absolute_path, project)
    else:
        _refuse_links_of_strangers(absolute_path)
        absolute_path = os.path.realpath(absolute_path)
    _refuse_special_file(absolute_path)
    return absolute_path


def _find_topmost_project(path: str) -> str | None:
    """Find the topmost folder around `path` that is a project or the working folder, or return None."""
    home = os.path.expanduser("~")
    here = os.getcwd()
    working_folders = (here, environment.project_root(here))
    topmost_project = None
    folder = os.path.dirname(path)
    while True:
        if folder in working_folders or (folder != home and environment.is_project(folder, folder)):
            topmost_project = folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return topmost_project
        folder = parent


def _refuse_links(path: str, project: str) -> None:
    """Raise `RefusedOutputError` if `path` or a folder between it and the project is a link."""
    current_path = path
    while current_path != project and current_path != os.path.dirname(current_path):
        if _is_link(current_path):
            if current_path == path:
                problem = "is a link"
            else:
                problem = f"is below {current_path}, a link"
            remedy = (
                "links in a project are not followed; remove it, or name the file that it leads to"
            )
            raise RefusedOutputError(path, f"it {problem}: {remedy}")
        current_path = os.path.dirname(current_path)


def _is_link(path: str) -> bool:
    is_junction = getattr(os.path, "isjunction", None)  # of Windows, from Python 3.12 on
    return os.path.islink(path) or (is_junction is not None and is_junction(path))


def _refuse_links_of_strangers(path: str) -> None:
    """Raise `RefusedOutputError` for a link created by another user, for example in /tmp."""
    if not hasattr(os, "getuid"):  # Windows
        return
    trusted_users = (0, os.getuid())
    current_path = path
    while current_path != os.path.dirname(current_path):
        if os.path.islink(current_path) and os.lstat(current_path).st_uid not in trusted_users:
            problem = f"{current_path} is a link of another user"
            raise RefusedOutputError(path, f"{problem}; remove it, or name another file")
        current_path = os.path.dirname(current_path)


def _refuse_special_file(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except OSError:  # missing, or inaccessible, which opening it will report
        return
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    kinds = {stat.S_IFLNK: "a link", stat.S_IFIFO: "a named pipe"}
    kind = kinds.get(stat.S_IFMT(mode), "a device or a socket")
    raise RefusedOutputError(path, f"it is {kind}; name a file")


def write_atomically(
    path: str,
    content: str | bytes,
    *,
    mode: int = USUAL,
    private: bool = False,
    durable: bool = False,
    check: Callable[[], None] | None = None,
) -> None:
    """Create or replace a file atomically; the options are those of `Replacement`. Raises `OSError`.

    `check` is called just before the replacement. If it raises, the old file stays.
    """
    with Replacement(path, mode=mode, private=private, durable=durable) as replacement:
        replacement.file.write(content.encode() if isinstance(content, str) else content)
        if check is not None:
            replacement.flush()
            check()


def write_once(path: str, content: bytes) -> bytes:
    """Write a private file unless it exists, and return the file's content. Raises `OSError`.

    If multiple processes write it at once, one of them wins.
    """
    real_path = place_of(path, private=True)
    if not os.path.exists(real_path):
        temporary = f"{real_path}.{os.urandom(8).hex()}"
        write_atomically(temporary, content, private=True, durable=True)
        try:
            # Unlike a rename, this fails if the file exists by now.
            os.link(temporary, real_path)
        except FileExistsError:  # another process was first
            pass
        except OSError:  # the file system has no hard links
            os.rename(temporary, real_path)
        finally:
            if os.path.lexists(temporary):
                os.unlink(temporary)

    with open(real_path, "rb") as file:
        return file.read()


class Replacement:
    """A file that takes the place of another one at once when the block ends, unless it raises.

    It has a random name until then. A new one has this `mode`. Where a file was, its mode, its owner and its
    extended attributes stay as far as this user may set them. A `private` one is its owner's alone in any
    case; see `place_of`. A `durable` one is on the disk afterwards. Raises `OSError`.
    """

    def __init__(
        self, path: str, *, mode: int = USUAL, private: bool = False, durable: bool = False
    ) -> None:
        self.path = place_of(path, private=private)
        self._mode = PRIVATE if private else mode
        self._private = private
        self._durable = durable
        folder, name = os.path.split(self.path)
        self._temporary = os.path.join(folder, f".{name[:100]}.{os.urandom(8).hex()}")
        self.file: BinaryIO

    def __enter__(self) -> Self:
        replaced = self._read_replaced_status()
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_LINK
        self.file = open(
            os.open(self._temporary, flags, self._mode if replaced is None else PRIVATE), "w+b"
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._replace()
        finally:
            try:
                self.file.close()
            finally:
                if os.path.lexists(self._temporary):
                    os.unlink(self._temporary)

    def flush(self) -> None:
        """Write everything to the disk so far."""
        self.file.flush()
        os.fsync(self.file.fileno())

    def _read_replaced_status(self) -> os.stat_result | None:
        """Read the status of the file to replace; None if it's missing or its mode isn't to be preserved."""
        if self._private:  # always gets a private mode
            return None
        try:
            return os.lstat(self.path)
        except FileNotFoundError:
            return None

    def _replace(self) -> None:
        self.file.flush()
        if self._durable:
            os.fsync(self.file.fileno())
        replaced = self._read_replaced_status()
        if replaced is not None:
            self._copy_attributes(replaced)
        self.file.close()  # Windows can't rename an open file
        os.replace(self._temporary, self.path)
        if self._durable:
            _sync_folder(os.path.dirname(self.path))

    def _copy_attributes(self, replaced: os.stat_result) -> None:
        """Copy the owner, group, extended attributes and mode of the replaced file to the new one."""
        new = os.lstat(self._temporary)
        has_other_owner = (replaced.st_uid, replaced.st_gid) != (new.st_uid, new.st_gid)
        if has_other_owner and hasattr(os, "chown"):
            _change_owner(self._temporary, replaced.st_uid, replaced.st_gid)

        if hasattr(os, "listxattr"):
            try:
                for name in os.listxattr(self.path):
                    os.setxattr(self._temporary, name, os.getxattr(self.path, name))
            except OSError:  # not supported by the file system, or not permitted
                pass

        # Set the mode last, because changing the owner can clear some of its bits.
        os.chmod(self._temporary, stat.S_IMODE(replaced.st_mode))


def _change_owner(path: str, owner: int, group: int) -> None:
    try:
        os.chown(path, owner, group)
    except PermissionError:
        # Only root can change the owner, but other users can set a group that they belong to.
        try:  # noqa: SIM105 - the hook does without contextlib
            os.chown(path, -1, group)  # -1 leaves the owner unchanged
        except PermissionError:
            pass


def _sync_folder(folder: str) -> None:
    """Sync a folder's entries to the disk, if the system supports it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def open_to_append(path: str, *, mode: int = PRIVATE, private: bool = False) -> int:
    """Open a file for reading and appending, creating it with `mode` if it's missing.

    Returns its descriptor. Raises `OSError`, also if the path isn't a regular file or `place_of` refuses it.
    """
    real_path = place_of(path, private=private)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | _NO_LINK | _NO_WAITING
    descriptor = os.open(real_path, flags, mode)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RefusedOutputError(real_path, "it is no regular file; name a file")
    return descriptor


def open_or_make(path: str) -> tuple[int, bool]:
    """Open a file for reading and writing, creating an empty one if it's missing.

    Returns its descriptor, and whether this call created it. Raises `OSError`, also if the path isn't a
    regular file or `place_of` refuses it.
    """
    real_path = place_of(path)
    flags = os.O_RDWR | _NO_LINK | _NO_WAITING
    descriptor = None
    while descriptor is None:
        try:
            return os.open(real_path, flags | os.O_CREAT | os.O_EXCL, USUAL), True
        except FileExistsError:
            pass
        try:
            descriptor = os.open(real_path, flags)
        except FileNotFoundError:  # another process has just removed it, so try again to create it
            continue

    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RefusedOutputError(real_path, "it is no regular file; name a file")
    return descriptor, False


def append(path: str, lines: str, most: int = 0, *, private: bool = True) -> None:
    """Append lines to a file that only its owner can read.

    If `most` isn't 0 and the file is then larger than `most` bytes, it's renamed to `PATH.1`. Raises
    `OSError`.
    """
    make_folder(os.path.dirname(os.path.abspath(path)), private=private)
    descriptor = open_to_append(path, private=private)
    try:
        # A single write, because the lines of concurrent writers must not mix.
        os.write(descriptor, lines.encode("utf-8", "replace"))
        is_full = 0 < most < os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
    # Check again, because another process may have renamed it and started a new file.
    if is_full and os.stat(path).st_size > most:
        os.replace(path, f"{path}.1")


def make_folder(path: str, *, mode: int = 0o700, private: bool = False) -> str:
    """Create a folder and its missing parents, and return the absolute path.

    Raises `OSError`, also if one of them is an untrusted link.
    """
    folder = os.path.abspath(path)
    if os.path.isdir(folder) and private:
        return folder
    place_of(os.path.join(folder, "file"), private=private)  # raises for an untrusted link

    missing_folders = []
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):
        missing_folders.append(folder)
        folder = os.path.dirname(folder)
    for missing_folder in reversed(missing_folders):
        try:
            os.mkdir(missing_folder, mode)
        except FileExistsError:
            if not os.path.isdir(
                missing_folder
            ):  # a folder was created by another process, and is fine
                raise
    return os.path.abspath(path)


def check_database(path: str) -> str:
    """Resolve the path of an SQLite database.

    Raises `OSError` if this path, or that of SQLite's journal for example, isn't that of a regular file.
    """
    real_path = place_of(path)
    for suffix in _SQLITE_SUFFIXES:
        _refuse_special_file(f"{real_path}{suffix}")
    return real_path


def is_stream(path: str) -> bool:
    """Whether a path is a device or an open file of this process, such as /dev/stdout or a shell's `>(…)`."""
    return os.path.abspath(path).startswith(("/dev/", "/proc/self/fd/"))
