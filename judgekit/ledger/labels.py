"""What a person has to do: which verdict to label next, and what else must be looked at; who that is."""

from __future__ import annotations

import getpass
import hashlib
import socket
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from judgekit.git import GitError, Repository
from judgekit.ledger import kpi
from judgekit.ledger.records import (
    Fault,
    Label,
    ModeChange,
    OverrideLine,
    Skip,
    VerdictLine,
    newest_override,
)
from judgekit.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from judgekit.ledger.records import GateWord, Record

_MOST = 4_000_000  # bytes of one file; a larger one is not shown
_WORDS: tuple[GateWord, ...] = ("GO", "NO-GO", "UNDETERMINED")


def waiting(
    records: Iterable[Record], who: str, lacking: kpi.Readiness | None = None
) -> list[VerdictLine]:
    """Return the GO and NO-GO verdicts whose content `who` has not labelled, each content once.

    First come so many of each word as a promotion is `lacking`, then as many GO as NO-GO. The order is
    drawn from hashes of ids: always the same, and any part of it a random sample of each word's verdicts.
    """
    lines = list(records)
    mine = kpi.agreed(line for line in lines if isinstance(line, Label) and line.who == who)
    verdicts = []
    for line in lines:
        if isinstance(line, VerdictLine) and not line.of_task:
            verdicts.append(line)
    labelled = set()
    for each in verdicts:
        if mine.get(each.id, "withdrawn") != "withdrawn":
            labelled.add(kpi.content(each))
    verdicts.sort(key=lambda each: (not kpi.used_again(each), each.answered, each.timestamp))
    # Of several verdicts on one content, the measured one stands last.
    last = {kpi.content(verdict): verdict for verdict in verdicts}
    fresh = [verdict for name, verdict in last.items() if name not in labelled]
    lots = {}
    for each in fresh:
        lots[each.id] = hashlib.sha256(each.id.encode()).hexdigest()
    fresh.sort(key=lambda each: lots[each.id])
    chances = {}
    for name, lot in lots.items():
        chances[name] = int(lot[-8:], 16) / 2**32
    if lacking:
        wanted = lacking.labels
        found = lacking.found
    else:
        wanted = {}
        found = kpi.Evidence([], {})
    open_ids = {each.id for each in found.verdicts if not found.sure(each)}
    queue: list[tuple[bool, float, VerdictLine]] = []
    for word in _WORDS:
        group = [each for each in fresh if each.word == word]
        first = [each for each in group if each.id in open_ids][: wanted.get(word, 0)]
        taken = {each.id for each in first}
        rest = []
        for each in group:
            if each.id not in taken and word != "UNDETERMINED":
                rest.append(each)
        for late, verdicts, size in ((False, first, len(first)), (True, rest, 1)):
            queue += [
                (late, (rank + chances[each.id]) / size, each) for rank, each in enumerate(verdicts)
            ]
    return [verdict for _, _, verdict in sorted(queue, key=lambda entry: entry[:2])]


def who(folder: Path | None = None) -> str:
    """Return the person's address as git knows it in `folder`, else the login name at this machine."""
    try:
        email = (
            Repository(folder or Path.cwd()).ask("config", "user.email").decode("utf-8", "replace")
        )
    except GitError:
        email = ""
    if email.strip():
        return email.strip()
    try:
        login = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container's user without a name
        login = "unknown"
    return f"{login}@{socket.gethostname()}"


def signed(record: Record, name: str) -> Record:
    """Return a record that came over the network as said by `name`, whoever it names itself."""
    if isinstance(record, VerdictLine):
        override = record.human_override
        by = {"who": name}
        findings = [
            each.model_copy(
                update={"dismissed": each.dismissed and each.dismissed.model_copy(update=by)}
            )
            for each in record.findings
        ]
        decided = override and override.model_copy(update=by)
        return record.model_copy(update={"human_override": decided, "findings": findings})
    return record.model_copy(update={"who": name} if "who" in type(record).model_fields else {})


def at_terminal() -> bool:
    """Whether a person can be typing here. A program can pretend to be one: this is no lock."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def texts(verdict: VerdictLine, project: Path) -> dict[str, str | None]:
    """Return each judged file's visible text by its path; None where it is gone or another one now."""
    found: dict[str, str | None] = {}
    for subject in verdict.subjects:
        contents = _contents(subject.path, verdict.commit, project)
        same = (
            data for data in contents if subject.sha256 in ("", hashlib.sha256(data).hexdigest())
        )
        data = next(same, None)
        if data is None:
            found[subject.path] = None
        else:
            found[subject.path] = visible(data.decode("utf-8", "replace"))
    return found


def _contents(path: str, commit: str | None, project: Path) -> Iterator[bytes]:
    with suppress(GitError, ValueError):  # ValueError: a NUL in the path
        if commit and not commit.startswith("-"):
            yield Repository(project).ask("cat-file", "blob", f"{commit}:{path}")[:_MOST]
    with suppress(OSError, ValueError):
        yield (project / path).read_bytes()[:_MOST]


@dataclass(slots=True)
class Triage:
    """What a person must look at, newest first; `settled` counts paths fixed or overridden since."""

    overrides: list[OverrideLine]
    skips: list[Skip]
    changes: list[ModeChange]
    faults: Counter[str]
    nogo: list[VerdictLine] = field(default_factory=list)
    unclear: list[VerdictLine] = field(default_factory=list)
    failures: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    settled: int = 0


def triage(records: Iterable[Record]) -> Triage:
    lines = sorted(records, key=lambda record: record.timestamp)
    newest = lines[::-1]
    last: dict[tuple[str, str], VerdictLine] = {}
    skips = [line for line in newest if isinstance(line, Skip)]
    changes = [line for line in newest if isinstance(line, ModeChange)]
    faults = Counter(line.problem for line in lines if isinstance(line, Fault))
    found = Triage(
        overrides=[line for line in newest if isinstance(line, OverrideLine)],
        skips=skips,
        changes=changes,
        faults=faults,
    )
    stumbled: set[tuple[str, str]] = set()
    for line in lines:
        if isinstance(line, VerdictLine):
            key = (line.project, line.task_id.rpartition("@")[0] or line.task_id)
            last.pop(key, None)  # so that the newest stands last
            last[key] = line
            stumbled |= {key} if line.word != "GO" else set()
            for each in line.rounds:
                if each.failure:
                    found.failures[each.failure.kind, each.model, each.failure.message] += 1
    for key, verdict in reversed(last.items()):
        overrides = [
            override for override in found.overrides if override.project == verdict.project
        ]
        hashes = [subject.sha256 for subject in verdict.subjects]
        if verdict.word == "GO" or newest_override(overrides, verdict.task_id, hashes):
            found.settled += key in stumbled
        else:
            (found.nogo if verdict.word == "NO-GO" else found.unclear).append(verdict)
    return found
