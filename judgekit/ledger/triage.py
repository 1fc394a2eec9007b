"""What a person must look at, out of all that ledgers hold."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from judgekit.ledger.records import Fault, ModeChange, OverrideLine, Skip, VerdictLine, newest_override

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
    for each in sorted(records, key=lambda record: record.timestamp):
        if isinstance(each, VerdictLine):
            key = (each.project, each.task_id.rpartition("@")[0] or each.task_id)
            last.pop(key, None)  # so that the newest stands last
            last[key] = each
            stumbled |= {key} if each.word != "GO" else set()
            _count_failures(each, found)
        elif isinstance(each, Fault):
            found.faults[each.problem] += 1
        else:
            _file(each, found)
    for key, verdict in reversed(last.items()):
        _sort(verdict, found, stumbled=key in stumbled)
    for group in (found.overrides, found.skips, found.changes):
        group.reverse()
    return found


def _file(record: Record, found: Triage) -> None:
    if isinstance(record, OverrideLine):
        found.overrides.append(record)
    elif isinstance(record, Skip):
        found.skips.append(record)
    elif isinstance(record, ModeChange):
        found.changes.append(record)


def _count_failures(verdict: VerdictLine, found: Triage) -> None:
    for each in verdict.rounds:
        if each.failure:
            found.failures[each.failure.kind, each.model, each.failure.message] += 1


def _sort(verdict: VerdictLine, found: Triage, *, stumbled: bool) -> None:
    if verdict.word == "GO" or _overridden(verdict, found.overrides):
        found.settled += stumbled
    elif verdict.word == "NO-GO":
        found.nogo.append(verdict)
    else:
        found.unclear.append(verdict)


def _overridden(verdict: VerdictLine, overrides: Sequence[OverrideLine]) -> bool:
    hashes = [subject.sha256 for subject in verdict.subjects]
    own = [override for override in overrides if override.project == verdict.project]
    return newest_override(own, verdict.task_id, hashes) is not None
