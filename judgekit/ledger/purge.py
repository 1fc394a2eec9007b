"""Removes what is older than a day, and what people said about it."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

from judgekit import lock
from judgekit.ledger import append, read
from judgekit.ledger.append import LedgerError
from judgekit.ledger.records import Label, VerdictLine, kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import date
    from pathlib import Path


def count(folder: Path, before: date) -> Counter[str]:
    """Return how many lines of each kind (and damaged ones) in a ledger `purge` would remove.

    A file that cannot be read counts as one damaged line; `purge` removes it where its day is over.
    """
    found: Counter[str] = Counter()
    for path in _older(folder, before):
        found += _kinds(path)
    gone = _verdicts(folder, before)
    for path in _younger(folder, before):
        found["label"] += sum(_is_about(raw, gone) for raw in _readable(path))
    return +found


def purge(folder: Path, before: date) -> None:
    """Remove the files of days before `before` (UTC), and later labels of the verdicts in them.

    Damaged lines of later days stay. Raises `LedgerError`.
    """
    try:
        with lock.held(folder / append.LOCK, seconds=append.SECONDS):
            gone = _verdicts(folder, before)
            for path in _younger(folder, before):
                _drop_labels(path, gone)
            for path in _older(folder, before):
                path.unlink()
    except OSError as error:
        raise LedgerError(folder, error.strerror or str(error)) from None


def _older(folder: Path, before: date) -> Iterator[Path]:
    return (path for path in read.files([folder]) if (day := read.day_of(path)) is not None and day < before)


def _younger(folder: Path, before: date) -> Iterator[Path]:
    return (path for path in read.files([folder]) if (day := read.day_of(path)) is not None and day >= before)


def _verdicts(folder: Path, before: date) -> set[str]:
    wanted = read.Wanted(kinds=[VerdictLine])
    return {each.id for each in read.records(_older(folder, before), wanted)}


def _kinds(path: Path) -> Counter[str]:
    found: Counter[str] = Counter()
    for raw in _readable(path, instead=[b"unreadable"]):
        record = read.parse(raw)
        found["damaged" if isinstance(record, str) else kind(type(record)).split("/")[1].split("@")[0]] += 1
    return found


def _readable(path: Path, instead: Sequence[bytes] = ()) -> Iterable[bytes]:
    """Return a file's lines; those `instead` for one that cannot be read."""
    try:
        return list(_raw(path))
    except OSError:
        return instead


def _raw(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from (raw for raw in file if raw.strip())


def _is_about(raw: bytes, gone: set[str]) -> bool:
    if kind(Label).encode() not in raw:
        return False
    record = read.parse(raw)
    return isinstance(record, Label) and record.of in gone


def _drop_labels(path: Path, gone: set[str]) -> None:
    """Write a file anew without the labels of verdicts that are gone, at once: a reader sees old or new."""
    lines = list(_readable(path))
    kept = [raw for raw in lines if not _is_about(raw, gone)]
    if len(kept) == len(lines):
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(kept)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
