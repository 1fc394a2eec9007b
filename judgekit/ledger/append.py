"""Appends lines to a day's file: each whole or not at all, whoever else writes and whoever is killed."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from judgekit import lock, paths
from judgekit.errors import Exit, JudgekitError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

MAX_BYTES = 32_000_000  # of one file; a day that has more goes on in a second one
LOCK = ".lock"
SECONDS = 10.0  # a writer holds it for a millisecond; 20 at once wait for a fraction of a second
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)


class LedgerError(JudgekitError):
    """Lines could not be written: the text says why and what to do; `written` of them are in the ledger.

    The user's environment names the place, so the exit code is that of a wrong configuration.
    """

    exit_code = Exit.BAD_CONFIG

    def __init__(self, folder: Path | str, reason: str, written: int = 0) -> None:
        self.written = written
        remedy = "free space there, make it writable"
        link = _dead_link(Path(folder))
        if link is not None:
            reason, remedy = f"{link} is a link that leads to no folder", "make that folder, remove the link"
        told = f"{folder}: the ledger cannot be written ({reason}); {remedy}"
        super().__init__(f"{told}, or set JUDGEKIT_HOME to a folder elsewhere")


def _dead_link(folder: Path) -> Path | None:
    """Return the link at or above a folder that leads nowhere, if there is one."""
    places = (folder, *folder.parents)
    return next((each for each in places if os.path.islink(each) and not os.path.exists(each)), None)  # noqa: PTH110, PTH114 - they never raise


def append(folder: Path, lines: Sequence[tuple[date, bytes]], *, durable: bool = False) -> None:
    """Append each line (with its newline) to the file of its day in `folder`, which is made if need be.

    With `durable` they are on the disk before it returns. Raises `LedgerError`; the lines before the one
    that failed stay, of that one nothing does.
    """
    written = 0
    try:
        paths.private_folder(str(folder))
        with lock.held(folder / LOCK, seconds=SECONDS):
            for day, line in lines:
                _write(_file(folder, day), line, durable=durable)
                written += 1
    except OSError as error:
        raise LedgerError(folder, error.strerror or str(error), written) from None


def day_file(day: date, number: int = 0) -> str:
    """Return the name of a day's file; `number` counts those that were full."""
    return f"{day.isoformat()}.{number}.jsonl" if number else f"{day.isoformat()}.jsonl"


def _file(folder: Path, day: date) -> Path:
    """Return the day's first file that has room."""
    candidates = (folder / day_file(day, number) for number in count())
    return next(path for path in candidates if _size(path) < MAX_BYTES)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _write(path: Path, line: bytes, *, durable: bool) -> None:
    """Append one line in one write; a part of it that was written is taken away again."""
    descriptor = os.open(path, _FLAGS, 0o600)
    try:
        end = os.lseek(descriptor, 0, os.SEEK_END)
        try:
            _write_whole(descriptor, _after(descriptor, end) + line)
        except OSError:
            os.ftruncate(descriptor, end)
            raise
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _after(descriptor: int, end: int) -> bytes:
    """Return what must come first: a newline where a killed writer left a line without one."""
    if end == 0:
        return b""
    os.lseek(descriptor, end - 1, os.SEEK_SET)
    return b"" if os.read(descriptor, 1) == b"\n" else b"\n"


def _write_whole(descriptor: int, data: bytes) -> None:
    """Write all of `data`; where the first write falls short the next one says why (a full disk)."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
