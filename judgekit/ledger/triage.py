"""What a person must look at, out of all that ledgers hold."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from judgekit.ledger.records import Fault, ModeChange, OverrideLine, Skip, VerdictLine, newest_override

if TYPE_CHECKING:
    from collections.abc import Iterable

    from judgekit.ledger.records import Record


@dataclass(slots=True)
class Triage:
    """The groups that are left, newest first.

    `nogo` and `unclear` hold the last verdict on a path or task alone, and none that a person overrode.
    `failures` counts what kept models from answering by `kind, model, message`. `settled` counts paths whose
    last verdict is GO after one that was not, or that were overridden.
    """

    nogo: list[VerdictLine] = field(default_factory=list)
    unclear: list[VerdictLine] = field(default_factory=list)
    overrides: list[OverrideLine] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    changes: list[ModeChange] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    failures: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    settled: int = 0


def triage(records: Iterable[Record]) -> Triage:
    """Sort records into what needs a person."""
    found, last = Triage(), dict[tuple[str, str], VerdictLine]()
    stumbled: set[tuple[str, str]] = set()
    for record in sorted(records, key=lambda record: record.timestamp):
        if isinstance(record, VerdictLine):
            key = (record.project, record.task_id.rpartition("@")[0] or record.task_id)
            last.pop(key, None)  # so that the newest stands last
            last[key] = record
            stumbled |= {key} if record.word != "GO" else set()
            for each in record.rounds:
                if each.failure:
                    found.failures[each.failure.kind, each.model, each.failure.message] += 1
        elif isinstance(record, Fault):
            found.faults[record.problem] += 1
        elif isinstance(record, OverrideLine):
            found.overrides.append(record)
        elif isinstance(record, Skip):
            found.skips.append(record)
        elif isinstance(record, ModeChange):
            found.changes.append(record)
    for group in (found.overrides, found.skips, found.changes):
        group.reverse()
    for key, verdict in reversed(last.items()):
        overrides = [override for override in found.overrides if override.project == verdict.project]
        hashes = [subject.sha256 for subject in verdict.subjects]
        if verdict.word == "GO" or newest_override(overrides, verdict.task_id, hashes):
            found.settled += key in stumbled
        else:
            (found.nogo if verdict.word == "NO-GO" else found.unclear).append(verdict)
    return found
