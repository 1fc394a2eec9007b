"""The work that's waiting for a person: verdicts to label and others to look at. Also, who that person is."""

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
from judgekit.task_ids import task_name
from judgekit.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from judgekit.ledger.records import GateWord, Record

_MOST = 4_000_000  # bytes; larger files aren't shown
_WORDS: tuple[GateWord, ...] = ("GO", "NO-GO", "UNDETERMINED")


def waiting(
    records: Iterable[Record], who: str, lacking: kpi.Readiness | None = None
) -> list[VerdictLine]:
    """Return the GO and NO-GO verdicts whose content `who` hasn't labelled, each content once.

    The number of each word that a promotion is `lacking` comes first, then as many GO as NO-GO. The order is
    drawn from hashes of ids: it's always the same, and any part of it is a random sample of each word's
    verdicts.
    """
    labels = []
    verdicts = []
    for record in records:
        if isinstance(record, Label) and record.who == who:
            labels.append(record)
        elif isinstance(record, VerdictLine) and not record.of_task:
            verdicts.append(record)
    word_by_id = kpi.agreed(labels)
    # Of several verdicts on the same content, the measured one must come last: it's the one that stays.
    verdicts.sort(key=lambda line: (not kpi.used_again(line), line.answered, line.timestamp))
    verdict_by_content = {}
    labelled_contents = set()
    for verdict in verdicts:
        content = kpi.content(verdict)
        verdict_by_content[content] = verdict
        if word_by_id.get(verdict.id, "withdrawn") != "withdrawn":
            labelled_contents.add(content)
    for content in labelled_contents:
        del verdict_by_content[content]
    unlabelled = sorted(verdict_by_content.values(), key=_draw_lot)
    labels_lacking: Mapping[GateWord, int] = {}
    unsure_ids = set()
    if lacking:
        labels_lacking = lacking.labels
        evidence = lacking.evidence
        unsure_ids = {line.id for line in evidence.verdicts if not evidence.sure(line)}
    queue = []
    for word in _WORDS:
        lacking_first: list[VerdictLine] = []
        others = []
        for verdict in unlabelled:
            if verdict.word != word:
                continue
            if verdict.id in unsure_ids and len(lacking_first) < labels_lacking.get(word, 0):
                lacking_first.append(verdict)
            elif word != "UNDETERMINED":
                others.append(verdict)
        # Mix the words: first those that are lacking, evenly, then one of each word in turn.
        for rank, verdict in enumerate(lacking_first):
            queue.append((False, (rank + _draw_chance(verdict)) / len(lacking_first), verdict))
        for rank, verdict in enumerate(others):
            queue.append((True, rank + _draw_chance(verdict), verdict))
    queue.sort(key=lambda entry: entry[:2])
    return [verdict for _, _, verdict in queue]


def _draw_lot(verdict: VerdictLine) -> str:
    return hashlib.sha256(verdict.id.encode()).hexdigest()


def _draw_chance(verdict: VerdictLine) -> float:
    """Draw a number from 0 to below 1 from the id."""
    return int(_draw_lot(verdict)[-8:], 16) / 2**32


def who(folder: Path | None = None) -> str:
    """Return the person's address from git's configuration in `folder`, or else the login name."""
    with suppress(GitError):
        answer = Repository(folder or Path.cwd()).ask("config", "user.email")
        email = answer.decode("utf-8", "replace").strip()
        if email:
            return email
    try:
        login = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container's user without a name
        login = "unknown"
    return f"{login}@{socket.gethostname()}"


def signed(record: Record, name: str) -> Record:
    """Return a record from the network under the authenticated `name`, whatever name it carries."""
    by = {"who": name}
    if not isinstance(record, VerdictLine):
        return record.model_copy(update=by if "who" in type(record).model_fields else {})
    override = record.human_override
    if override:
        override = override.model_copy(update=by)
    findings = []
    for finding in record.findings:
        dismissed = finding.dismissed
        if dismissed:
            dismissed = dismissed.model_copy(update=by)
        findings.append(finding.model_copy(update={"dismissed": dismissed}))
    return record.model_copy(update={"human_override": override, "findings": findings})


def at_terminal() -> bool:
    """Whether a person could be typing here. A program can pretend to be one: this is no lock."""
    streams = (sys.stdin, sys.stderr)
    return all(stream is not None and stream.isatty() for stream in streams)


def texts(verdict: VerdictLine, project: Path) -> dict[str, str | None]:
    """Map each judged file's path to its visible text, or to None if the file is gone or has changed."""
    texts: dict[str, str | None] = {}
    for subject in verdict.subjects:
        texts[subject.path] = None
        for data in _read_contents(subject.path, verdict.commit, project):
            if subject.sha256 in ("", hashlib.sha256(data).hexdigest()):
                texts[subject.path] = visible(data.decode("utf-8", "replace"))
                break
    return texts


def _read_contents(path: str, commit: str | None, project: Path) -> Iterator[bytes]:
    with suppress(GitError, ValueError):  # ValueError: a NUL in the path
        if commit and not commit.startswith("-"):
            yield Repository(project).ask("cat-file", "blob", f"{commit}:{path}")[:_MOST]
    with suppress(OSError, ValueError):
        yield (project / path).read_bytes()[:_MOST]


@dataclass(slots=True)
class Triage:
    """The lines a person must look at, newest first; `settled` counts paths fixed or overridden since.

    `verdicts` holds every verdict that was read.
    """

    overrides: list[OverrideLine] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    changes: list[ModeChange] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    nogo: list[VerdictLine] = field(default_factory=list)
    unclear: list[VerdictLine] = field(default_factory=list)
    failures: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    settled: int = 0
    verdicts: list[VerdictLine] = field(default_factory=list)

    @property
    def unjudged(self) -> list[VerdictLine]:
        """Those of `unclear` that were pushed while no judge answered."""
        return [verdict for verdict in self.unclear if _is_unjudged(verdict)]


def _is_unjudged(verdict: VerdictLine) -> bool:
    return verdict.gate is not None and bool(verdict.commit) and not verdict.answered


def triage(records: Iterable[Record]) -> Triage:
    """Sort out the lines that need a person's attention; only a task's newest verdict counts."""
    lines = sorted(records, key=lambda record: record.timestamp)
    triage = Triage()
    newest: dict[tuple[str, str], VerdictLine] = {}  # by project and task
    once_unsettled = set()  # tasks with a verdict that was no GO
    for line in lines:
        if isinstance(line, OverrideLine):
            triage.overrides.insert(0, line)
        elif isinstance(line, Skip):
            triage.skips.insert(0, line)
        elif isinstance(line, ModeChange):
            triage.changes.insert(0, line)
        elif isinstance(line, Fault):
            triage.faults[line.problem] += 1
        elif isinstance(line, VerdictLine):
            triage.verdicts.append(line)
            task = (line.project, task_name(line.task_id))
            newest.pop(task, None)  # so that the newest task comes last
            newest[task] = line
            if line.word != "GO":
                once_unsettled.add(task)
            for round_ in line.rounds:
                failure = round_.failure
                if failure:
                    triage.failures[failure.kind, round_.model, failure.message] += 1
    for task, verdict in reversed(newest.items()):
        overrides = [line for line in triage.overrides if line.project == verdict.project]
        if verdict.word == "GO" or newest_override(overrides, verdict.task_id, verdict.hashes):
            if task in once_unsettled:
                triage.settled += 1
        elif verdict.word == "NO-GO":
            triage.nogo.append(verdict)
        else:
            triage.unclear.append(verdict)
    return triage
