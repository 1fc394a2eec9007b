"""A person's decision about one blob, which holds until the blob changes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from judgekit.ledger.records import OverrideLine

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from judgekit.ledger.records import Record

DIGITS = 16  # of a hash: 64 bits
_TASK = re.compile(r"^(?P<path>.+)@(?P<hash>[0-9a-f]{8,64})$", re.DOTALL)


def is_blob(task_id: str) -> bool:
    """Whether a task's id names a version of a file: `path@`, then 8 to 64 hexadecimal digits."""
    return _TASK.match(task_id) is not None


def is_one_blob(task_id: str) -> bool:
    """Whether an id names a version of a file by so many digits that nobody can make another one."""
    found = _TASK.match(task_id)
    return found is not None and len(found["hash"]) >= DIGITS


def same_blob(one: str, other: str) -> bool:
    """Whether two tasks are the same; the hash of one may be cut shorter than that of the other."""
    mine, theirs = _TASK.match(one), _TASK.match(other)
    if mine is None or theirs is None:
        return one == other
    length = min(len(mine["hash"]), len(theirs["hash"]))
    return mine["path"] == theirs["path"] and mine["hash"][:length] == theirs["hash"][:length]


def newest(
    records: Iterable[Record],
    task_id: str,
    subjects: Collection[str] = (),
    *,
    without_terminal: bool = False,
) -> OverrideLine | None:
    """Return the newest override of a task, of those given on a terminal unless `without_terminal`.

    `subjects` are the SHA-256 of the task's files now: an override of other content does not count.
    """
    found = [
        record
        for record in records
        if isinstance(record, OverrideLine)
        and (record.terminal or without_terminal)
        and same_blob(record.task_id, task_id)
        and _same_content(record, task_id, subjects)
    ]
    return max(found, key=lambda each: each.timestamp, default=None)


def _same_content(override: OverrideLine, task_id: str, subjects: Collection[str]) -> bool:
    if override.subjects and subjects:
        return set(override.subjects) == set(subjects)
    # An id of another kind stays the same when the content changes; a short hash is soon another text's too.
    return is_one_blob(override.task_id) and is_one_blob(task_id)
