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
_WITHOUT_WAITING = getattr(os, "O_NONBLOCK", 0)  # for a reader of a named pipe
_SQLITE_ENDINGS = ("", "-journal", "-wal", "-shm")


class RefusedOutputError(OSError):
    """Nothing is written there, whoever asks: a link that a clone may have brought, a pipe or a device."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(errno.ELOOP, problem, path)


def place_of(path: str, *, private: bool = False) -> str:
    """Resolve the absolute path at which an output is written; raises `RefusedOutputError`.

    A link in a project or below the working folder may have come with a clone, so it's refused. Elsewhere,
    and for a `private` file, which stands in a folder of judgekit's own, links are the user's, and followed.
    """
    absolute_path = os.path.abspath(path)
    base = None if private else _find_topmost_project(absolute_path)
    if base is not None:
        _refuse_links(absolute_path, base)
    else:
        _refuse_links_of_strangers(absolute_path)
        absolute_path = os.path.realpath(absolute_path)
    _refuse_special_file(absolute_path)
    return absolute_path


def _find_topmost_project(path: str) -> str | None:
    """Find the topmost project or working folder that holds `path`; None if there's none."""
    home = os.path.expanduser("~")
    here = os.getcwd()
    working_folders = (here, environment.project_root(here))
    topmost = None
    folder = os.path.dirname(path)
    while True:
        if folder in working_folders or (folder != home and environment.is_project(folder, folder)):
            topmost = folder
        above = os.path.dirname(folder)
        if above == folder:
            return topmost
        folder = above


def _refuse_links(place: str, base: str) -> None:
    step = place
    while step != base and step != os.path.dirname(step):
        if _is_link(step):
            if step == place:
                what = "is a link"
            else:
                what = f"is below {step}, a link"
            remedy = (
                "links in a project are not followed; remove it, or name the file that it leads to"
            )
            raise RefusedOutputError(place, f"it {what}: {remedy}")
        step = os.path.dirname(step)


def _is_link(path: str) -> bool:
    is_junction = getattr(os.path, "isjunction", None)  # of Windows, from Python 3.12 on
    return os.path.islink(path) or (is_junction is not None and is_junction(path))


def _refuse_links_of_strangers(place: str) -> None:
    """Raise for a link that another user made, as anybody can in /tmp."""
    if not hasattr(os, "getuid"):
        return
    ours = (0, os.getuid())
    step = place
    while step != os.path.dirname(step):
        if os.path.islink(step) and os.lstat(step).st_uid not in ours:
            raise RefusedOutputError(
                place, f"{step} is a link of another user; remove it, or name another file"
            )
        step = os.path.dirname(step)


def _refuse_special_file(place: str) -> None:
    try:
        mode = os.lstat(place).st_mode
    except OSError:  # not there yet, or not to be reached: opening it says so
        return
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), place)
    kinds = {stat.S_IFLNK: "a link", stat.S_IFIFO: "a named pipe"}
    kind = kinds.get(stat.S_IFMT(mode), "a device or a socket")
    raise RefusedOutputError(place, f"it is {kind}; name a file")


def write_atomically(
    path: str,
    content: str | bytes,
    *,
    mode: int = USUAL,
    private: bool = False,
    durable: bool = False,
    check: Callable[[], None] | None = None,
) -> None:
    """Replace a file at once, or make it; arguments are those of `Replacement`. Raises `OSError`.

    `check` is called last before the file takes its place; what it raises leaves all as it was.
    """
    with Replacement(path, mode=mode, private=private, durable=durable) as replacement:
        replacement.file.write(content.encode() if isinstance(content, str) else content)
        if check is not None:
            replacement.flush()
            check()


def write_once(path: str, content: bytes) -> bytes:
    """Write a private file unless it exists. Returns its content: of several writers one wins.

    Raises `OSError`.
    """
    place = place_of(path, private=True)
    if not os.path.exists(place):
        temporary = f"{place}.{os.urandom(8).hex()}"
        write_atomically(temporary, content, private=True, durable=True)
        try:
            os.link(temporary, place)
        except FileExistsError:  # another writer was first
            pass
        except OSError:  # a file system without hard links
            os.rename(temporary, place)
        finally:
            if os.path.lexists(temporary):
                os.unlink(temporary)
    with open(place, "rb") as file:
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
        before = self._before()
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_LINK
        self.file = open(
            os.open(self._temporary, flags, self._mode if before is None else PRIVATE), "w+b"
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
        """Bring what was written so far onto the disk."""
        self.file.flush()
        os.fsync(self.file.fileno())

    def _before(self) -> os.stat_result | None:
        """Return the state of the file that's replaced, or None if nothing of it stays."""
        try:
            return None if self._private else os.lstat(self.path)
        except FileNotFoundError:
            return None

    def _replace(self) -> None:
        self.file.flush()
        if self._durable:
            os.fsync(self.file.fileno())
        before = self._before()
        if before is not None:
            self._keep_attributes(before)
        self.file.close()  # Windows renames no file that is open
        os.replace(self._temporary, self.path)
        if self._durable:
            _sync_folder(os.path.dirname(self.path))

    def _keep_attributes(self, before: os.stat_result) -> None:
        ours = os.lstat(self._temporary)
        if hasattr(os, "chown") and (before.st_uid, before.st_gid) != (ours.st_uid, ours.st_gid):
            _give_to(self._temporary, before.st_uid, before.st_gid)
        if hasattr(os, "listxattr"):
            try:
                for name in os.listxattr(self.path):
                    os.setxattr(self._temporary, name, os.getxattr(self.path, name))
            except OSError:  # the file system has none, or this user may not set it
                pass
        os.chmod(self._temporary, stat.S_IMODE(before.st_mode))


def _give_to(path: str, owner: int, group: int) -> None:
    try:
        os.chown(path, owner, group)
    except PermissionError:  # only root gives files away; a group may be one of this user's
        try:  # noqa: SIM105 - the hook does without contextlib
            os.chown(path, -1, group)
        except PermissionError:
            pass


def _sync_folder(folder: str) -> None:
    """Bring the names in a folder onto the disk, where the system can."""
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
    """Return a descriptor that reads a file and appends to it; a missing one is made with `mode`.

    Raises `OSError`, as `place_of` does, and for anything that is no regular file.
    """
    place = place_of(path, private=private)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | _NO_LINK | _WITHOUT_WAITING
    descriptor = os.open(place, flags, mode)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RefusedOutputError(place, "it is no regular file; name a file")
    return descriptor


def open_or_make(path: str) -> tuple[int, bool]:
    """Open a file to read and write, or make an empty one. Returns its descriptor, and whether it was made.

    Of several that make it at once one does. Raises `OSError`, as `place_of` does, and for anything that is
    no regular file.
    """
    place = place_of(path)
    flags = os.O_RDWR | _NO_LINK | _WITHOUT_WAITING
    descriptor = None
    while descriptor is None:
        try:
            return os.open(place, flags | os.O_CREAT | os.O_EXCL, USUAL), True
        except FileExistsError:
            pass
        try:
            descriptor = os.open(place, flags)
        except FileNotFoundError:  # another process has removed it meanwhile, so it can be made
            continue
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RefusedOutputError(place, "it is no regular file; name a file")
    return descriptor, False


def append(path: str, lines: str, most: int = 0, *, private: bool = True) -> None:
    """Append lines to a file that only its owner can read, in one write, so that several writers don't mix.

    With `most`, a file that's larger than that many bytes is then renamed to `PATH.1`. Raises `OSError`.
    """
    make_folder(os.path.dirname(os.path.abspath(path)), private=private)
    descriptor = open_to_append(path, private=private)
    try:
        os.write(descriptor, lines.encode("utf-8", "replace"))
        is_full = 0 < most < os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
    # Another process may have begun a new file meanwhile.
    if is_full and os.stat(path).st_size > most:
        os.replace(path, f"{path}.1")


def make_folder(path: str, *, mode: int = 0o700, private: bool = False) -> str:
    """Make a folder and what is missing above it, through no link of a clone; return it. Raises `OSError`."""
    folder = os.path.abspath(path)
    if os.path.isdir(folder) and private:
        return folder
    place_of(os.path.join(folder, "file"), private=private)
    missing_folders = []
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):
        missing_folders.append(folder)
        folder = os.path.dirname(folder)
    for missing_folder in reversed(missing_folders):
        try:
            os.mkdir(missing_folder, mode)
        except FileExistsError:
            if not os.path.isdir(missing_folder):  # another process may have made it meanwhile
                raise
    return os.path.abspath(path)


def check_database(path: str) -> str:
    """Resolve the path of a database of SQLite; refuses a special file there, or in place of SQLite's own."""
    place = place_of(path)
    for ending in _SQLITE_ENDINGS[1:]:
        _refuse_special_file(f"{place}{ending}")
    return place


def is_stream(path: str) -> bool:
    """Whether a path names what this process has open already, or a device: /dev/stdout, a shell's `>(…)`."""
    return os.path.abspath(path).startswith(("/dev/", "/proc/self/fd/"))
