"""The ids of tasks: `path@hash` for a file of the gate, anything else that a user gave."""

from __future__ import annotations

import re

HASH_DIGITS = 16  # of a hash: 64 bits
_TASK_ID_PATTERN = re.compile(r"^(?P<path>.+)@(?P<hash>[0-9a-f]{8,64})$", re.DOTALL)


def is_blob(task_id: str, digits: int = 0) -> bool:
    """Whether a task id is `path@hash`, with 8 to 64 hexadecimal digits, and at least `digits`."""
    match = _TASK_ID_PATTERN.match(task_id)
    return match is not None and len(match["hash"]) >= digits


def task_name(task_id: str) -> str:
    """Return the part of a task id that doesn't depend on content: the path in `path@hash`, or all of it."""
    if is_blob(task_id):
        return task_id.rpartition("@")[0]
    return task_id


def is_same_task(one: str, other: str) -> bool:
    """Whether two task ids mean the same task. In ids such as `path@hash`, one hash can be abbreviated."""
    first = _TASK_ID_PATTERN.match(one)
    second = _TASK_ID_PATTERN.match(other)
    if first is None or second is None:
        return one == other
    short_hash, long_hash = sorted((first["hash"], second["hash"]), key=len)
    return first["path"] == second["path"] and long_hash.startswith(short_hash)
