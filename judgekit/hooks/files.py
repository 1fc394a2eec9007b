"""Writes another program's settings file: whole or not at all, and never over somebody else's edit.

What did not exist before an installation is recorded, so that taking it out leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from judgekit import environment
from judgekit.errors import InputError

_UNTOUCHED = "nothing was changed"


def read(path: Path) -> bytes | None:
    """Return a file's content; None where there is no file.

    Raises `InputError` when it cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        _refuse(path, error, "cannot be read")


def replace(path: Path, before: bytes | None, after: bytes | None) -> list[Path]:
    """Make the content of `path` what `after` says (None: no file) and return the folders that this made.

    Links are followed; mode, owner and extended attributes stay. Raises `InputError` when the file's content
    is not `before` any more, and when it cannot be written; then nothing has changed.
    """
    target = Path(os.path.realpath(path))
    try:
        if before is not None:
            _check_writable(path, target)
        made = _make_folder(target.parent) if after is not None else []
        try:
            _swap(path, target, before, after)
        except BaseException:
            remove_folders(made)
            raise
    except OSError as error:
        _refuse(path, error, "cannot be written")
    return made


def remove_folders(folders: list[Path]) -> list[Path]:
    """Remove the folders that are empty, the deepest first, and return those that are left."""
    left = []
    for folder in sorted(folders, key=lambda each: len(each.parts), reverse=True):
        with contextlib.suppress(OSError):
            folder.rmdir()
        if folder.exists():
            left.append(folder)
    return left


def _check_writable(path: Path, target: Path) -> None:
    """Refuse a file that its owner made read-only: renaming over it would not ask."""
    mode = target.stat().st_mode
    if not mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) or not os.access(target, os.W_OK):
        where = "" if target == path else f" (it leads to {target})"
        raise InputError(
            f"{path}: is read-only{where}; make it writable, or put in by hand what --print shows; "
            f"{_UNTOUCHED}"
        )


def _make_folder(folder: Path) -> list[Path]:
    missing = []
    for path in (folder, *folder.parents):
        if path.exists():
            break
        missing.append(path)
    made: list[Path] = []
    for path in reversed(missing):
        try:
            path.mkdir()
        except OSError:
            remove_folders(made)
            raise
        made.append(path)
    return made


def _swap(path: Path, target: Path, before: bytes | None, after: bytes | None) -> None:
    if after is None:
        _check_unchanged(path, before)
        target.unlink()
        return
    temporary = _written(target, after, exists=before is not None)
    try:
        _check_unchanged(path, before)
        if before is None:
            _put(temporary, target)
        else:
            temporary.replace(target)
    except FileExistsError:
        _changed(path)
    finally:
        temporary.unlink(missing_ok=True)


def _put(temporary: Path, target: Path) -> None:
    """Give a new file its name. Raises `FileExistsError` when another program made one meanwhile."""
    try:
        os.link(temporary, target)  # unlike a rename it never replaces
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if target.exists():
            raise FileExistsError from None
        temporary.replace(target)


def _written(target: Path, content: bytes, *, exists: bool) -> Path:
    """Return a new file beside `target` with the content, and its mode and owner if there is one."""
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if exists:
            _take_after(temporary, target)
        else:
            temporary.chmod(0o666 & ~_umask())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _take_after(temporary: Path, target: Path) -> None:
    owner = target.stat()
    mine = temporary.stat()
    if hasattr(os, "chown") and (owner.st_uid, owner.st_gid) != (mine.st_uid, mine.st_gid):
        os.chown(temporary, owner.st_uid, owner.st_gid)
    shutil.copystat(target, temporary)
    os.utime(temporary)


def _umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current


def _check_unchanged(path: Path, before: bytes | None) -> None:
    if read(path) != before:
        _changed(path)


def _changed(path: Path) -> NoReturn:
    raise InputError(
        f"{path}: another program changed it just now; {_UNTOUCHED} by this command, run it again"
    ) from None


def _refuse(path: Path, error: OSError, what: str) -> NoReturn:
    raise InputError(
        f"{path}: {what} ({error.strerror}); see that it is a file, and that it and its folder are yours to "
        f"read and write; {_UNTOUCHED}"
    ) from None


class _Record(NamedTuple):
    folders: list[str]  # made for some file
    files: dict[str, bool]  # that were written, and whether they were there before with nothing in them


def location() -> Path:
    """Return the file of the record."""
    return Path(environment.state_home(), "installed.json")


def add(file: Path, folders: list[Path], *, before: bytes | None) -> None:
    """Remember what `file` was before it was written, None being absent, and the folders made for it."""
    known, written = _load()
    empty = before == b"" or (before is not None and written.get(str(file), False))
    _save(_Record(sorted({*known, *map(str, folders)}), {**written, str(file): empty}))


def was_empty(file: Path) -> bool:
    """Whether `file` was there with nothing in it before something was installed in it."""
    return _load().files.get(str(file), False)


def forget(file: Path) -> None:
    """Remove the folders that were made for `file` and are empty, and all memory of it."""
    record = _load()
    ours = [Path(folder) for folder in record.folders if Path(folder) in file.parents]
    if str(file) not in record.files and file.parent.name == ".claude":
        ours.append(file.parent)
    left = {str(remove_folder) for remove_folder in remove_folders(ours)}
    gone = {str(path) for path in ours} - left
    remaining = _Record(
        [folder for folder in record.folders if folder not in gone],
        {name: empty for name, empty in record.files.items() if name != str(file)},
    )
    if remaining != record:
        _save(remaining)


def _load() -> _Record:
    try:
        data: Any = json.loads(location().read_bytes())
        return _Record([str(each) for each in data["folders"]], dict(data["files"]))
    except (OSError, ValueError, TypeError, KeyError):
        return _Record([], {})


def _save(record: _Record) -> None:
    """Write the record, or remove it when it holds nothing; an installation does not fail for its sake."""
    path = location()
    with contextlib.suppress(OSError, InputError):
        if any(record):
            environment.private_folder(str(path.parent))
            replace(path, read(path), json.dumps(record._asdict(), indent=2).encode())
        else:
            path.unlink(missing_ok=True)
