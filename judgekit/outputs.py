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
DEFAULT_MODE = 0o666  # before the umask is applied
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_WAITING = getattr(os, "O_NONBLOCK", 0)  # for a reader of a named pipe
_SQLITE_SUFFIXES = ("-journal", "-wal", "-shm")  # of files next to a database


class RefusedOutputError(OSError):
    """An output path is unsafe: a link that could come from a clone, a pipe or a device."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(errno.ELOOP, problem, path)


def resolve_output_path(path: str, *, private: bool = False) -> str:
    """Return an output file's absolute path. Trusted links are resolved, and others are refused.

    Set `private` for a file in judgekit's own folders. Raises `IsADirectoryError` for a folder, and
    `RefusedOutputError` for an untrusted link, a pipe, a device or a socket.
    """
    absolute_path = os.path.abspath(path)
    project = None if private else _find_topmost_project(absolute_path)
    if project is not None:
        # Trust no links in a project, because they may come from somebody else's commit.
        _refuse_links(absolute_path, project)
        output_path = absolute_path
    else:
        # Anywhere else, trust the links that the user created.
        _refuse_links_of_strangers(absolute_path)
        output_path = os.path.realpath(absolute_path)
    _refuse_special_file(output_path)
    return output_path


def _find_topmost_project(path: str) -> str | None:
    """Return the topmost folder above `path` that is a project, or None if there's none.

    The working folder and the project that it belongs to always count.
    """
    home = os.path.expanduser("~")
    working_folder = os.getcwd()
    always_projects = (working_folder, environment.find_project_root(working_folder))

    topmost_project = None
    for folder in environment.walk_up(os.path.dirname(path)):
        # A home folder often contains a marker of projects, such as .claude, but isn't a project.
        is_home = folder == home
        # `is_project` only accepts projects of trusted users, such as the owner of `start`. Pass the folder
        # itself, so that the projects of all users count.
        has_marker = not is_home and environment.is_project(folder, start=folder)
        if has_marker or folder in always_projects:
            topmost_project = folder
    return topmost_project


def _refuse_links(path: str, project: str) -> None:
    """Raise `RefusedOutputError` if `path` or a folder between it and the project is a link."""
    for current_path in environment.walk_up(path):
        if current_path == project:
            return
        if _is_link(current_path):
            is_path_itself = current_path == path
            problem = "is a link" if is_path_itself else f"is below {current_path}, a link"
            remedy = (
                "links in a project are not followed; remove it, or name the file that it leads to"
            )
            raise RefusedOutputError(path, f"it {problem}: {remedy}")


def _is_link(path: str) -> bool:
    is_junction = getattr(os.path, "isjunction", None)  # of Windows, from Python 3.12 on
    return os.path.islink(path) or (is_junction is not None and is_junction(path))


def _refuse_links_of_strangers(path: str) -> None:
    """Raise `RefusedOutputError` for a link created by another user, for example in /tmp."""
    if not hasattr(os, "getuid"):  # Windows
        return
    trusted_users = (0, os.getuid())  # root and this user
    for current_path in environment.walk_up(path):
        if not os.path.islink(current_path):
            continue
        owner = os.lstat(current_path).st_uid
        if owner not in trusted_users:
            problem = f"{current_path} is a link of another user"
            raise RefusedOutputError(path, f"{problem}; remove it, or name another file")


def _refuse_special_file(path: str) -> None:
    """Raise an error unless `path` is missing or a regular file.

    Raises `IsADirectoryError` for a folder, otherwise `RefusedOutputError`.
    """
    try:
        mode = os.lstat(path).st_mode
    except OSError:  # missing or inaccessible; the caller finds out when it opens the file
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
    mode: int = DEFAULT_MODE,
    private: bool = False,
    durable: bool = False,
    check: Callable[[], None] | None = None,
) -> None:
    """Create or replace a file atomically. Raises `OSError`.

    `check` is called just before the file is replaced, and can keep the old file by raising an error. For the
    other options, see `Replacement`.
    """
    with Replacement(path, mode=mode, private=private, durable=durable) as replacement:
        data = content.encode() if isinstance(content, str) else content
        replacement.file.write(data)
        if check is not None:
            # Writing can take long, so finish it first, and check as late as possible.
            replacement.flush()
            check()


def write_once(path: str, content: bytes) -> bytes:
    """Create a private file unless it exists, and return the file's content. Raises `OSError`.

    If multiple processes create the file at once, all of them return the same content.
    """
    real_path = resolve_output_path(path, private=True)
    if not os.path.exists(real_path):
        # Another process may create the file meanwhile, and `write_atomically` would replace it. So write
        # under another name, and move the complete file only if there's still none.
        temporary = f"{real_path}.{os.urandom(8).hex()}"
        write_atomically(temporary, content, private=True, durable=True)
        _move_unless_exists(temporary, real_path)

    with open(real_path, "rb") as file:
        return file.read()


def _move_unless_exists(temporary: str, path: str) -> None:
    """Move a temporary file to `path`. If another process has created that file meanwhile, keep it."""
    try:
        # Move by adding the new name and removing the old one. Unlike a rename, this fails if `path` exists.
        os.link(temporary, path)
    except FileExistsError:
        pass
    except OSError:  # the file system has no hard links
        os.rename(temporary, path)
    finally:
        if os.path.lexists(temporary):  # it wasn't renamed
            os.unlink(temporary)


class Replacement:
    """A temporary file that atomically replaces another one when the block ends, unless the block raises.

    A new file gets `mode`. Otherwise the replaced file's mode, owner and extended attributes are preserved,
    as far as this user can set them. A `private` file is always accessible to its owner only, and a `durable`
    file is synced to the disk. Raises `OSError`.
    """

    def __init__(
        self, path: str, *, mode: int = DEFAULT_MODE, private: bool = False, durable: bool = False
    ) -> None:
        self.path = resolve_output_path(path, private=private)
        self._mode = PRIVATE if private else mode
        self._is_private = private
        self._is_durable = durable
        folder, name = os.path.split(self.path)
        # Cut the name off, because the temporary name must not exceed the file system's limit either.
        self._temporary_path = os.path.join(folder, f".{name[:100]}.{os.urandom(8).hex()}")
        self.file: BinaryIO  # opened by `__enter__`

    def __enter__(self) -> Self:
        """Open the temporary file."""
        replaces_file = self._read_replaced_status() is not None
        # Stay private until `_replace` copies the replaced file's mode.
        mode = PRIVATE if replaces_file else self._mode
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_LINK
        self.file = open(os.open(self._temporary_path, flags, mode), "w+b")
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        """Replace the file unless the block raised, and remove the temporary file in any case."""
        try:
            if error_type is None:
                self._replace()
        finally:
            try:
                self.file.close()
            finally:
                if os.path.lexists(self._temporary_path):
                    os.unlink(self._temporary_path)

    def flush(self) -> None:
        """Sync everything written so far to the disk."""
        self.file.flush()
        os.fsync(self.file.fileno())

    def _read_replaced_status(self) -> os.stat_result | None:
        """Return the replaced file's status, or None if no file exists or its attributes don't matter."""
        if self._is_private:  # a private file doesn't copy the attributes of the file it replaces
            return None
        try:
            return os.lstat(self.path)
        except FileNotFoundError:
            return None

    def _replace(self) -> None:
        """Rename the temporary file to the real path, after copying the replaced file's attributes."""
        self.file.flush()
        if self._is_durable:
            os.fsync(self.file.fileno())

        replaced_status = self._read_replaced_status()
        if replaced_status is not None:
            self._copy_attributes(replaced_status)

        self.file.close()  # Windows can't rename an open file
        os.replace(self._temporary_path, self.path)
        if self._is_durable:
            # The renaming itself must be synced, too.
            _sync_folder(os.path.dirname(self.path))

    def _copy_attributes(self, replaced: os.stat_result) -> None:
        """Copy the replaced file's owner, group, extended attributes and mode to the temporary file."""
        new = os.lstat(self._temporary_path)  # the temporary file's attributes
        has_other_owner = (replaced.st_uid, replaced.st_gid) != (new.st_uid, new.st_gid)
        if has_other_owner and hasattr(os, "chown"):
            _change_owner(self._temporary_path, replaced.st_uid, replaced.st_gid)

        if hasattr(os, "listxattr"):
            try:
                for name in os.listxattr(self.path):
                    os.setxattr(self._temporary_path, name, os.getxattr(self.path, name))
            except OSError:  # not supported by the file system, or not permitted
                pass

        # Set the mode last, because changing the owner can clear some of its bits.
        os.chmod(self._temporary_path, stat.S_IMODE(replaced.st_mode))


def _change_owner(path: str, owner: int, group: int) -> None:
    """Change a file's owner and group. Without permission for both, try the group alone."""
    try:
        os.chown(path, owner, group)
    except PermissionError:
        # Only root can change the owner, but other users can set any group that they belong to.
        try:  # noqa: SIM105 - importing contextlib would slow down the git hook
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

    Set `private` for a file in judgekit's own folders. Returns the file descriptor. Raises `OSError`, and
    `RefusedOutputError` for an untrusted or special file.
    """
    real_path = resolve_output_path(path, private=private)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
    # A link or a pipe may have replaced the file since the check. Don't follow it, and don't wait for it.
    flags |= _NO_LINK | _NO_WAITING
    descriptor = os.open(real_path, flags, mode)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RefusedOutputError(real_path, "it is no regular file; name a file")
    return descriptor


def open_or_make(path: str) -> tuple[int, bool]:
    """Open a file for reading and writing, creating an empty one if it's missing.

    Returns the file descriptor and whether this call created the file. Raises `OSError`, and
    `RefusedOutputError` for an untrusted or special file.
    """
    real_path = resolve_output_path(path)
    descriptor, is_new = _create_or_open(real_path)
    if is_new:
        return descriptor, True
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RefusedOutputError(real_path, "it is no regular file; name a file")
    return descriptor, False


def _create_or_open(path: str) -> tuple[int, bool]:
    """Create a file, or open it if it exists. Returns the file descriptor and whether the file is new."""
    flags = os.O_RDWR | _NO_LINK | _NO_WAITING
    while True:
        # With O_EXCL, this only succeeds if the file didn't exist.
        try:
            return os.open(path, flags | os.O_CREAT | os.O_EXCL, DEFAULT_MODE), True
        except FileExistsError:
            pass
        # Another process may have just removed the file. Then try again to create it.
        try:
            return os.open(path, flags), False
        except FileNotFoundError:
            pass


def append(path: str, lines: str, max_bytes: int = 0, *, private: bool = True) -> None:
    """Append lines to a log file, and create the file and its folder if they're missing. Raises `OSError`.

    If the file is then larger than `max_bytes`, it's renamed to `PATH.1`, unless `max_bytes` is 0. Set
    `private` for a file in judgekit's own folders. In any case, only the owner can read a new file.
    """
    make_folder(os.path.dirname(os.path.abspath(path)), private=private)
    descriptor = open_to_append(path, private=private)
    try:
        # Use a single write, so that lines from concurrent writers can't mix.
        os.write(descriptor, lines.encode("utf-8", "replace"))
        is_full = 0 < max_bytes < os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
    # Check again, because another process may have just renamed the full file and started a new one.
    if is_full and os.stat(path).st_size > max_bytes:
        os.replace(path, f"{path}.1")


def make_folder(path: str, *, mode: int = 0o700, private: bool = False) -> str:
    """Create a folder and its missing parents, and return the absolute path.

    Raises `OSError`, and `RefusedOutputError` if a part of the path is an untrusted link. Set `private` for
    judgekit's own folders. If such a folder exists, it isn't checked.
    """
    folder = os.path.abspath(path)
    if private and os.path.isdir(folder):
        return folder

    # Refuse untrusted links in the path. `resolve_output_path` expects a file's path, but the file may be
    # missing.
    resolve_output_path(os.path.join(folder, "file"), private=private)
    for missing_folder in reversed(_list_missing_folders(folder)):
        _create_folder(missing_folder, mode)
    return folder


def _list_missing_folders(folder: str) -> list[str]:
    """List the missing folders that a path needs, from the folder itself upwards."""
    missing_folders = []
    for current_folder in environment.walk_up(folder):
        if os.path.isdir(current_folder):
            break
        missing_folders.append(current_folder)
    return missing_folders


def _create_folder(folder: str, mode: int) -> None:
    """Create a folder, unless another process has created it meanwhile. Raises `OSError`."""
    try:
        os.mkdir(folder, mode)
    except FileExistsError:
        is_file = not os.path.isdir(folder)
        if is_file:
            raise


def resolve_database_path(path: str) -> str:
    """Resolve trusted links in an SQLite database's path.

    Raises `OSError` if the database or one of SQLite's other files, such as the journal, is a special file.
    """
    real_path = resolve_output_path(path)  # this also checks the database itself
    for suffix in _SQLITE_SUFFIXES:
        _refuse_special_file(f"{real_path}{suffix}")
    return real_path


def is_stream(path: str) -> bool:
    """Whether a path is a device or an open file of this process, such as /dev/stdout or a shell's `>(…)`."""
    return os.path.abspath(path).startswith(("/dev/", "/proc/self/fd/"))
