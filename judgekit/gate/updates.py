"""What git tells a pre-push hook on stdin: one line for each ref that is about to be updated."""

from __future__ import annotations

from typing import NamedTuple

from judgekit.errors import InputError
from judgekit.text import lines_of

_FIELDS = 4


class RefUpdate(NamedTuple):
    """One ref of a push; an object id of zeros stands for nothing: a new ref, or a deleted one."""

    local_ref: str
    local_oid: str
    remote_ref: str
    remote_oid: str

    @property
    def deletes(self) -> bool:
        """Whether the ref is removed from the remote."""
        return is_nothing(self.local_oid)

    @property
    def is_new(self) -> bool:
        """Whether the remote has no such ref yet."""
        return is_nothing(self.remote_oid)


def is_nothing(oid: str) -> bool:
    """Whether an object id is all zeros (40 of them, or 64 in a SHA-256 repository)."""
    return not oid.strip("0")


def parse(text: str) -> list[RefUpdate]:
    """Return the updates that git's lines say; raises `InputError` for a line that is none.

    What is pushed may be named by an expression with spaces in it (`main@{1 day ago}`), so lines are read
    from their end.
    """
    updates = []
    for number, line in enumerate(lines_of(text), 1):
        if not line.strip():
            continue
        fields = line.rsplit(" ", _FIELDS - 1)
        if len(fields) < _FIELDS or not all(map(_is_oid, fields[1::2])):
            raise InputError(f"stdin:{number}: expected <local ref> <local oid> <remote ref> <remote oid>")
        updates.append(RefUpdate(*fields))
    return updates


def _is_oid(text: str) -> bool:
    return len(text) in (40, 64) and not text.strip("0123456789abcdef")
