"""Writes another program's file: whole or not at all, and never over somebody else's edit.

What stood there before an installation is recorded, so that taking it out leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any, NamedTuple

from judgekit import environment
from judgekit.errors import InputError

_UNTOUCHED = "nothing was changed"


class FileChange(NamedTuple):
    """What would become of one file; None stands for no file."""

    path: Path
    before: bytes | None
    after: bytes | None

    @property
    def changes(self) -> bool:
        return self.before != self.after


class Record(NamedTuple):
    """What is remembered of a file: what it held before an installation, and the SHA-256 of what we wrote."""

    before: bytes | None
    sha256: str


def read(path: Path) -> bytes | None:
    """Return a file's content; None where there is no file.

    Raises `InputError` when it cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refused(path, error, "cannot be read") from None


def replace(path: Path, before: bytes | None, after: bytes | None) -> list[Path]:
    """Make the content of `path` what `after` says (None: no file) and return the folders that this made.

    Links are followed; mode, owner and extended attributes stay. Raises `InputError` when the file's content
    is not `before` any more, and when it cannot be written; then nothing has changed.
    """
    target = Path(os.path.realpath(path))
    made: list[Path] = []
    try:
        if before is not None:
            _refuse_read_only(path, target)
        if after is None:
            _check_unchanged(path, before)
            target.unlink()
            return []
        for folder in reversed([each for each in target.parents if not each.exists()]):
            folder.mkdir()
            made.append(folder)
        _write(path, target, before, after)
    except BaseException as error:
        remove_folders(made)
        if isinstance(error, OSError):
            raise _refused(path, error, "cannot be written") from None
        raise
    return made


def remove_folders(folders: list[Path]) -> list[Path]:
    """Remove the folders that are empty, the deepest first, and return those that are left."""
    for folder in sorted(folders, key=lambda each: len(each.parts), reverse=True):
        with contextlib.suppress(OSError):
            folder.rmdir()
    return [folder for folder in folders if folder.exists()]


def _refuse_read_only(path: Path, target: Path) -> None:
    """Refuse a file that its owner made read-only: renaming over it would not ask."""
    mode = target.stat().st_mode
    if not mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) or not os.access(target, os.W_OK):
        where = "" if target == path else f" (a link to {target})"
        raise InputError(
            f"{path}: read-only{where}; make it writable, or add by hand what --print shows; {_UNTOUCHED}"
        )


def _write(path: Path, target: Path, before: bytes | None, after: bytes) -> None:
    """Write a file beside `target` and rename it, unless another program changed the old one meanwhile."""
    temporary = target.with_name(f".{target.name}.{os.urandom(6).hex()}")
    try:
        with temporary.open("xb") as file:
            file.write(after)
            file.flush()
            os.fsync(file.fileno())
        if before is not None:
            owner, mine = target.stat(), temporary.stat()
            if hasattr(os, "chown") and (owner.st_uid, owner.st_gid) != (mine.st_uid, mine.st_gid):
                os.chown(temporary, owner.st_uid, owner.st_gid)
            shutil.copystat(target, temporary)
            os.utime(temporary)
        else:
            with contextlib.suppress(PermissionError, NotImplementedError):  # no hard links here
                os.link(temporary, target)  # unlike a rename it never replaces
                return
        _check_unchanged(path, before)
        temporary.replace(target)
    except FileExistsError:
        raise _changed(path) from None
    finally:
        temporary.unlink(missing_ok=True)


def _check_unchanged(path: Path, before: bytes | None) -> None:
    if read(path) != before:
        raise _changed(path)


def _changed(path: Path) -> InputError:
    return InputError(f"{path}: another program just changed it; {_UNTOUCHED} by this command; run it again")


def _refused(path: Path, error: OSError, what: str) -> InputError:
    return InputError(
        f"{path}: {what} ({error.strerror}); check that it is a file, and that you can read and write it "
        f"and its folder; {_UNTOUCHED}"
    )


def location() -> Path:
    """Return the file of the record."""
    return Path(environment.state_home(), "installed.json")


def remember(file: Path, folders: list[Path], original: bytes | None, written: bytes) -> None:
    """Remember what `file` held before it was `written`, None being absent, and the folders made for it."""
    known, files = _load()
    files[str(file)] = Record(original, hashlib.sha256(written).hexdigest())
    _save(sorted({*known, *map(str, folders)}), files)


def recorded(file: Path) -> Record | None:
    """Return what is remembered of a file."""
    return _load()[1].get(str(file))


def forget(file: Path) -> None:
    """Remove the folders that were made for `file` and are empty, and all memory of it."""
    folders, files = _load()
    ours = [Path(folder) for folder in folders if Path(folder) in file.parents]
    if files.pop(str(file), None) is None and file.parent.name == ".claude":
        ours.append(file.parent)
    left = remove_folders(ours)
    _save([folder for folder in folders if Path(folder) not in ours or Path(folder) in left], files)


def _load() -> tuple[list[str], dict[str, Record]]:
    """Return the folders that were made, and the record of each file.

    Earlier versions kept no copy, only whether a file had been there with nothing in it.
    """
    try:
        data: Any = json.loads(location().read_bytes())
        files = {
            name: Record(b"" if kept else None, "")
            if isinstance(kept, bool)
            else Record(None if kept[0] is None else kept[0].encode(), str(kept[1]))
            for name, kept in data["files"].items()
        }
        return [str(each) for each in data["folders"]], files
    except (OSError, ValueError, TypeError, KeyError, AttributeError, IndexError):
        return [], {}


def _save(folders: list[str], files: dict[str, Record]) -> None:
    """Write the record, or remove it when it holds nothing; an installation does not fail for its sake."""
    path = location()
    kept = {
        name: (None if before is None else before.decode(), sha256)
        for name, (before, sha256) in files.items()
    }
    with contextlib.suppress(OSError, InputError):
        if not folders and not files:
            path.unlink(missing_ok=True)
            return
        environment.private_folder(str(path.parent))
        path.touch(mode=0o600)  # a client's settings may hold keys
        replace(path, read(path), json.dumps({"folders": folders, "files": kept}, indent=2).encode())
