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
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit import environment, outputs
from judgekit.errors import InputError
from judgekit.text import split_lines

if TYPE_CHECKING:
    from collections.abc import Callable

_UNTOUCHED = "nothing was changed"
_CLIENT_FOLDERS = (".claude", ".codex", ".gemini")  # of clients, in a project


class FileChange(NamedTuple):
    """The planned change of one file; None stands for no file.

    `original_content` is its content without judgekit. `backup_path` is the path to move another program's
    file to, or back from. `needs_run_bit`: the file is a program without its run bit. `is_user_file`: the
    file is the user's own, for all projects, and may be a link; a link in place of a project's file came with
    the project.
    """

    path: Path
    before: bytes | None
    after: bytes | None
    original_content: bytes | None = None
    backup_path: Path | None = None
    needs_run_bit: bool = False
    is_user_file: bool = False

    @property
    def has_changes(self) -> bool:
        """Whether there's anything to do."""
        return self.before != self.after or self.backup_path is not None or self.needs_run_bit


class Record(NamedTuple):
    """The record of a file: its content before an installation, and the SHA-256 of the content we wrote."""

    before: bytes | None
    sha256: str


def install(change: FileChange, *, is_program: bool = False) -> None:
    """Carry out a planned installation. `is_program` says that the file is to be made executable.

    Another program's file is first moved to `change.backup_path`. On failure, it's moved back, and
    `InputError` or `OSError` is raised.
    """
    if not change.has_changes or change.after is None:
        return

    if change.backup_path:
        _move(change.path, change.backup_path, is_user_file=change.is_user_file)
    try:
        new_folders = _write_file(change, change.after, is_program=is_program)
    except (InputError, OSError):
        if change.backup_path:
            _move(change.backup_path, change.path, is_user_file=change.is_user_file)
        raise

    _record_installation(change, change.after, new_folders)


def _write_file(change: FileChange, content: bytes, *, is_program: bool) -> list[Path]:
    """Write a planned file's content. Returns the folders that were made for it."""
    # After the move to a backup, there's no file at the path.
    before = None if change.backup_path else change.before
    new_folders = replace(change.path, before, content, is_user_file=change.is_user_file)
    if is_program:
        executable_by_all = 0o111
        change.path.chmod(change.path.stat().st_mode | executable_by_all)
    return new_folders


def _record_installation(change: FileChange, content: bytes, new_folders: list[Path]) -> None:
    """Record the original content and the new folders, so that uninstalling can restore everything.

    The hash of the installed `content` shows later whether anybody has edited the file.
    """
    folders, records = _read_records()
    installed_hash = hashlib.sha256(content).hexdigest()
    records[str(change.path)] = Record(change.original_content, installed_hash)

    all_folders = set(folders)
    all_folders.update(str(folder) for folder in new_folders)
    _write_records(sorted(all_folders), records)


def uninstall(change: FileChange) -> None:
    """Carry out a planned removal, and remove any empty folders that were made for the file.

    Raises `InputError` or `OSError` if the file can't be changed.
    """
    if not change.has_changes:
        return

    if change.backup_path:  # another program's file, which ours replaced
        _move(change.backup_path, change.path, is_user_file=change.is_user_file)
    else:
        replace(change.path, change.before, change.after, is_user_file=change.is_user_file)

    folders, records = _read_records()
    record = records.pop(str(change.path), None)
    our_folders = _list_our_folders(change.path, folders, has_record=record is not None)
    remove_folders(our_folders)

    remaining_folders = _drop_removed(folders, our_folders)
    _write_records(remaining_folders, records)


def _list_our_folders(path: Path, recorded_folders: list[str], *, has_record: bool) -> list[Path]:
    """List the folders above `path` that an installation made."""
    our_folders = []
    for recorded_folder in recorded_folders:
        folder = Path(recorded_folder)
        if folder in path.parents:
            our_folders.append(folder)

    # If the records are lost, a client's folder was probably ours. It's only removed if it's empty.
    is_client_folder = path.parent.name in _CLIENT_FOLDERS
    if is_client_folder and not has_record:
        our_folders.append(path.parent)
    return our_folders


def _drop_removed(recorded_folders: list[str], our_folders: list[Path]) -> list[str]:
    """List the recorded folders, but without those of `our_folders` that don't exist any more."""
    removed_folders = [folder for folder in our_folders if not folder.exists()]
    return [folder for folder in recorded_folders if Path(folder) not in removed_folders]


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
    for line in split_lines(os.fsdecode(content or b"")):
        is_comment = line.lstrip().startswith(("#", "//"))
        if word in line and not is_comment:
            return True
    return False


def get_records_path() -> Path:
    """Return the path of the installation records, which may not exist."""
    return Path(environment.ORIGINAL_FILES.path())


def read_content(path: Path) -> bytes | None:
    """Read a file; None if it doesn't exist. Raises `InputError` if it can't be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _build_input_error(path, error, "cannot be read") from None


def replace(
    path: Path, before: bytes | None, after: bytes | None, *, is_user_file: bool = False
) -> list[Path]:
    """Write `after` to a file that still contains `before`, or delete it if `after` is None.

    Returns the folders that were created. `is_user_file` says that it's the user's own file, which can be a
    link. If the file has changed or can't be written, raises `InputError` and leaves it as it is.
    """
    try:
        target = _find_target(path, is_user_file=is_user_file)
        _check_writable(path, target)
        if after is None:
            _check_unchanged(path, before)
            target.unlink()
            return []

        check_unchanged = partial(_check_unchanged, path, before)
        return _write_with_folders(target, after, check_unchanged)
    except outputs.RefusedOutputError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}; {_UNTOUCHED}") from None
    except OSError as error:
        raise _build_input_error(path, error, "cannot be written") from None


def _find_target(path: Path, *, is_user_file: bool) -> Path:
    """Find the file to write. A link in the user's own files is followed, and any other is refused."""
    if is_user_file:
        return Path(os.path.realpath(path))
    return Path(outputs.resolve_output_path(str(path)))


def _write_with_folders(target: Path, content: bytes, check: Callable[[], None]) -> list[Path]:
    """Write a file and make the folders above it. Returns the new folders.

    If anything fails, the new folders are removed again. `check` is called just before the file is replaced.
    """
    new_folders: list[Path] = []
    try:
        missing_folders = [folder for folder in target.parents if not folder.exists()]
        for folder in reversed(missing_folders):  # the outermost first
            folder.mkdir()
            new_folders.append(folder)
        outputs.write_atomically(str(target), content, check=check)
    except BaseException:  # including an interruption by the user
        remove_folders(new_folders)
        raise
    return new_folders


def _check_writable(path: Path, target: Path) -> None:
    """Raise `InputError` if a file is read-only. `target` is the file that `path` is, or links to."""
    # To replace a file, a new one is moved over it, which works even if the old one is read-only.
    if not target.exists() or _is_writable(target):
        return

    link_note = "" if target == path else f" (a link to {target})"
    remedy = "make it writable, or add by hand what --print shows"
    raise InputError(f"{path}: read-only{link_note}; {remedy}; {_UNTOUCHED}")


def _is_writable(file: Path) -> bool:
    """Whether this user may write to a file. A read-only file doesn't count as writable, even for root."""
    # For root, `access` always succeeds, so look at the permissions first.
    writable_by_anyone = 0o222
    write_bits = file.stat().st_mode & writable_by_anyone
    has_write_bit = write_bits != 0
    return has_write_bit and os.access(file, os.W_OK)


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


def _move(path: Path, target: Path, *, is_user_file: bool) -> None:
    """Move another program's file. If `path` is a link, the link itself moves.

    Raises `InputError` if that fails.
    """
    try:
        # The user may link their own folders, but a link in a project can lead anywhere.
        if not is_user_file:
            _refuse_linked_folders(path)
        path.replace(target)
    except OSError as error:
        remedy = f"check that you can write to the folder; {_UNTOUCHED}"
        raise InputError(
            f"{path}: cannot be moved to {target} ({error.strerror}); {remedy}"
        ) from None


def _refuse_linked_folders(path: Path) -> None:
    """Raise an `OSError` if a folder above `path` is a link, since it can have come with the project."""
    # The check refuses any link, but the file at `path` may be one. So check another name beside it.
    outputs.resolve_output_path(str(path.with_name("no such file")))


def _build_input_error(path: Path, error: OSError, problem: str) -> InputError:
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
    text = _format_records(folders, records)
    with contextlib.suppress(OSError, InputError):
        if not folders and not records:
            path.unlink(missing_ok=True)
            return

        # The records contain clients' settings, which can include API keys. So make the file private.
        environment.make_private_folder(str(path.parent))
        outputs.write_atomically(str(path), text, private=True)


def _format_records(folders: list[str], records: dict[str, Record]) -> str:
    """Format the installation records as JSON."""
    files = {}
    for changed_file, record in records.items():
        text_before = None if record.before is None else record.before.decode()
        files[changed_file] = (text_before, record.sha256)
    return json.dumps({"folders": folders, "files": files}, indent=2)
