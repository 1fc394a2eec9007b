"""Writes other programs' files: completely or not at all, and never over somebody else's edit.

A file's previous content is recorded, so that uninstalling leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from judgekit import environment, outputs
from judgekit.errors import InputError
from judgekit.text import lines_of

_UNTOUCHED = "nothing was changed"
_FOLDERS = (".claude", ".codex", ".gemini")  # of clients, in a project


class FileChange(NamedTuple):
    """The planned change of one file; None stands for no file.

    `original` is its content without judgekit. `backup` is the path to move another program's file to, or
    back from. `not_executable`: the file is a program without its run bit. `is_users`: the file is the user's
    own, for all projects, and may be a link; a link in place of a project's file came with the project.
    """

    path: Path
    before: bytes | None
    after: bytes | None
    original: bytes | None = None
    backup: Path | None = None
    not_executable: bool = False
    is_users: bool = False

    @property
    def changes(self) -> bool:
        """Whether there's anything to do."""
        return self.before != self.after or self.backup is not None or self.not_executable


class Record(NamedTuple):
    """The record of a file: its content before an installation, and the SHA-256 of the content we wrote."""

    before: bytes | None
    sha256: str


def install(change: FileChange, *, program: bool = False) -> None:
    """Carry out a planned installation. If `program`, make the file executable.

    Another program's file is first moved to `change.backup`. On failure, it's moved back, and `InputError` or
    `OSError` is raised.
    """
    if not change.changes or change.after is None:
        return

    if change.backup:
        _move(change.path, change.backup, is_users=change.is_users)
    try:
        # After the move, there's no file at the path.
        before = None if change.backup else change.before
        new_folders = replace(change.path, before, change.after, is_users=change.is_users)
        if program:
            executable_by_all = 0o111
            change.path.chmod(change.path.stat().st_mode | executable_by_all)
    except (InputError, OSError):
        # Move the other program's file back.
        if change.backup:
            _move(change.backup, change.path, is_users=change.is_users)
        raise

    # Record the original content and the new folders, so that uninstalling can restore everything.
    folders, records = _read_records()
    records[str(change.path)] = Record(change.original, hashlib.sha256(change.after).hexdigest())
    _write_records(sorted({*folders, *map(str, new_folders)}), records)


def uninstall(change: FileChange) -> None:
    """Carry out a planned removal, and remove any empty folders that were made for the file.

    Raises `InputError` or `OSError` if the file can't be changed.
    """
    if not change.changes:
        return

    # Restore another program's file, or write the content without our part.
    if change.backup:
        _move(change.backup, change.path, is_users=change.is_users)
    else:
        replace(change.path, change.before, change.after, is_users=change.is_users)

    # Remove the folders that an installation created above the file, if they're empty now.
    folders, records = _read_records()
    parent = change.path.parent
    folders_above = [Path(folder) for folder in folders if Path(folder) in change.path.parents]
    record = records.pop(str(change.path), None)
    if record is None and parent.name in _FOLDERS:  # an empty client folder was probably ours
        folders_above.append(parent)
    remove_folders(folders_above)

    # Keep records of all folders that still exist.
    remaining_folders = []
    for folder in folders:
        is_removed = Path(folder) in folders_above and not Path(folder).exists()
        if not is_removed:
            remaining_folders.append(folder)
    _write_records(remaining_folders, records)


def find_record(file: Path) -> Record | None:
    """Return the record of a file that an installation wrote; None for other files."""
    _, records = _read_records()
    return records.get(str(file))


def is_unchanged(file: Path, content: bytes | None) -> bool:
    """Whether a file is unchanged since installation, so that its previous content can be restored."""
    record = find_record(file)
    if record is None or content is None:
        return False
    return record.sha256 == hashlib.sha256(content).hexdigest()


def mentions_in_code(content: bytes | None, word: str) -> bool:
    """Whether `word` appears outside of comment lines."""
    for line in lines_of(os.fsdecode(content or b"")):
        is_comment = line.lstrip().startswith(("#", "//"))
        if word in line and not is_comment:
            return True
    return False


def get_records_path() -> Path:
    """Return the path of the installation records, which may not exist."""
    return Path(environment.INSTALLED.path())


def read_content(path: Path) -> bytes | None:
    """Read a file; None if it doesn't exist. Raises `InputError` if it can't be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _input_error(path, error, "cannot be read") from None


def replace(
    path: Path, before: bytes | None, after: bytes | None, *, is_users: bool = False
) -> list[Path]:
    """Replace a file's content `before` by `after`. If `after` is None, delete the file.

    Returns the folders that were created. If `is_users`, the file can be a link. Raises `InputError` without
    changing anything if the content is no longer `before`, or if it can't be written.
    """
    new_folders: list[Path] = []
    try:
        # Find the file to write, which is a link's target.
        real_path = os.path.realpath(path) if is_users else outputs.resolve_output_path(str(path))
        target = Path(real_path)
        _check_writable(path, target)
        if after is None:  # delete the file
            _check_unchanged(path, before)
            target.unlink()
            return []

        missing_folders = [folder for folder in target.parents if not folder.exists()]
        for folder in reversed(missing_folders):
            folder.mkdir()
            new_folders.append(folder)

        check = partial(_check_unchanged, path, before)
        outputs.write_atomically(str(target), after, check=check)
    except BaseException as error:  # including an interruption by the user
        remove_folders(new_folders)
        if isinstance(error, outputs.RefusedOutputError):
            raise InputError(f"{path}: cannot be written: {error.strerror}; {_UNTOUCHED}") from None
        if isinstance(error, OSError):
            raise _input_error(path, error, "cannot be written") from None
        raise

    return new_folders


def _check_writable(path: Path, target: Path) -> None:
    """Raise `InputError` if a file is read-only."""
    # Replacing a read-only file would succeed, since it renames another file.
    if not target.exists():
        return
    # For root, `access` always succeeds, so also check whether anyone has the right to write.
    has_write_bit = target.stat().st_mode & 0o222 != 0
    if not (has_write_bit and os.access(target, os.W_OK)):
        link_note = "" if target == path else f" (a link to {target})"
        remedy = "make it writable, or add by hand what --print shows"
        raise InputError(f"{path}: read-only{link_note}; {remedy}; {_UNTOUCHED}")


def _check_unchanged(path: Path, before: bytes | None) -> None:
    """Raise `InputError` if a file's content isn't `before` any more."""
    if read_content(path) != before:
        problem = f"another program just changed it; {_UNTOUCHED} by this command; run it again"
        raise InputError(f"{path}: {problem}")


def remove_folders(folders: list[Path]) -> None:
    """Remove the folders that are empty, innermost first."""
    for folder in sorted(folders, key=lambda folder: len(folder.parts), reverse=True):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _move(path: Path, target: Path, *, is_users: bool) -> None:
    """Move another program's file, or a link to it; raises `InputError` if that fails."""
    try:
        if not is_users:
            # Refuse links among the parent folders, which can come with the project. The file itself can be a
            # link, so check the path of a file that doesn't exist.
            outputs.resolve_output_path(str(path.with_name("no such file")))
        path.replace(target)
    except OSError as error:
        remedy = f"check that you can write to the folder; {_UNTOUCHED}"
        raise InputError(
            f"{path}: cannot be moved to {target} ({error.strerror}); {remedy}"
        ) from None


def _input_error(path: Path, error: OSError, problem: str) -> InputError:
    """Build the error for a file with a reading or writing `problem`."""
    remedy = "check that it is a file, and that you can read and write it and its folder"
    return InputError(f"{path}: {problem} ({error.strerror}); {remedy}; {_UNTOUCHED}")


def _read_records() -> tuple[list[str], dict[str, Record]]:
    """Read the folders that installations made, and the records of changed files.

    Both are empty if the records are missing or damaged.
    """
    try:
        data: Any = json.loads(get_records_path().read_bytes())
        records = {}
        for name, (original_text, sha256) in data["files"].items():
            original_content = None if original_text is None else original_text.encode()
            records[name] = Record(original_content, str(sha256))
        return [str(folder) for folder in data["folders"]], records
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return [], {}


def _write_records(folders: list[str], records: dict[str, Record]) -> None:
    """Write the installation records, or delete their file if there are none. Failures are ignored.

    `folders` were created by installations, and `records` describe the changed files by path.
    """
    path = get_records_path()
    files = {}
    for name, (before, sha256) in records.items():
        text = None if before is None else before.decode()
        files[name] = (text, sha256)

    with contextlib.suppress(OSError, InputError):
        if not folders and not records:
            path.unlink(missing_ok=True)
            return

        environment.make_private_folder(str(path.parent))
        data = json.dumps({"folders": folders, "files": files}, indent=2)
        # The records contain clients' settings, which can include API keys. So make the file private.
        outputs.write_atomically(str(path), data, private=True)
