"""What git tells a pre-push hook on stdin: one line for each ref that is about to be updated.

What a run of the gate came to, as plain objects: the same whether this process ran it or the engine did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from judgekit.errors import InputError
from judgekit.text import lines_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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


STOPS, UNKNOWN = "NO-GO", "UNDETERMINED"


class Begin(TypedDict):
    """What is known when judging begins: the `count` of files, and the `budget` that is left, in seconds.

    `holds`: what is left undetermined holds up the push.
    """

    count: int
    budget: float
    holds: bool


class Row(TypedDict):
    """What the gate says of one file; `lost` where the ledger should know it and could not be written.

    `author` is who wrote the `commit`, and `verdict` a record as `judgekit schema verdict` describes it.
    """

    path: str
    word: str
    commit: str
    author: str
    lost: bool
    verdict: Mapping[str, Any]


class Report(NamedTuple):
    """A row for each file, the mode that held, and lines for a person.

    `escalate` is the section of the configuration that says which verdicts become issues. `unjudged` are
    lines about what could not be judged at all. `holds`: while blocking, that and UNDETERMINED stop a push.
    """

    rows: Sequence[Row]
    mode: str
    notes: Sequence[str]
    escalate: Mapping[str, Any]
    unjudged: Sequence[str] = ()
    holds: bool = False

    @property
    def blocked(self) -> bool:
        """Whether the push must not leave: for a NO-GO, or what `holds` it, while the gate is blocking."""
        return self.mode == "blocking" and bool(self.stopping or (self.holds and self.unjudged))

    @property
    def stopping(self) -> list[Row]:
        """The rows that hold up a push where the gate is blocking."""
        stops = (STOPS, UNKNOWN) if self.holds else (STOPS,)
        return [row for row in self.rows if row["word"] in stops]
