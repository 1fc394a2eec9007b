"""Remembers what did not exist before an installation, so that taking it out leaves nothing behind.

The settings file's own text says nearly all; the record says which folders were made for it, and whether a
file that now holds our entries alone was there before, empty. Where it is lost, an empty `.claude` goes.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from judgekit import paths
from judgekit.errors import InputError
from judgekit.install import files


class _Record(NamedTuple):
    folders: list[str]  # made for some file
    files: dict[str, bool]  # that were written, and whether they were there before with nothing in them


def location() -> Path:
    """Return the file of the record."""
    return Path(paths.state_home(), "installed.json")


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
    ours = [Path(each) for each in record.folders if Path(each) in file.parents]
    if str(file) not in record.files and file.parent.name == ".claude":
        ours.append(file.parent)
    left = {str(each) for each in files.remove_folders(ours)}
    gone = {str(each) for each in ours} - left
    remaining = _Record(
        [each for each in record.folders if each not in gone],
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
            paths.private_folder(str(path.parent))
            files.replace(path, files.read(path), json.dumps(record._asdict(), indent=2).encode())
        else:
            path.unlink(missing_ok=True)
