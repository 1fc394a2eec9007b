"""The ids of tasks: `path@hash` for a file of the gate, anything else that a user gave."""

from __future__ import annotations

import re

DIGITS = 16  # of a hash: 64 bits
_TASK = re.compile(r"^(?P<path>.+)@(?P<hash>[0-9a-f]{8,64})$", re.DOTALL)


def is_blob(task_id: str, digits: int = 0) -> bool:
    """Whether a task's id is `path@` and 8 to 64 hexadecimal digits of a hash, at least so many `digits`."""
    match = _TASK.match(task_id)
    return match is not None and len(match["hash"]) >= digits


def task_name(task_id: str) -> str:
    """Return the part of a task's id that stays when its content changes: a blob's path, else all."""
    if is_blob(task_id):
        return task_id.rpartition("@")[0]
    return task_id


def same_blob(one: str, other: str) -> bool:
    """Whether two tasks are the same; the hash of one may be cut shorter than that of the other."""
    mine = _TASK.match(one)
    theirs = _TASK.match(other)
    if mine is None or theirs is None:
        return one == other
    short, long = sorted((mine["hash"], theirs["hash"]), key=len)
    return mine["path"] == theirs["path"] and long.startswith(short)
